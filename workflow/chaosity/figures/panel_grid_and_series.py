"""Draw a grid of panels with equal axes, a legend and series of marks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    FigureMark,
    ShownValueRange,
    has_number,
    shown_value,
)
from chaosity.figures.mark_labels_and_hover_texts import (
    hover_text,
    panel_title,
    provenance_text,
    value_axis_title,
)
from chaosity.store.left_out_points import PREDICTED

_LEFT = 0.62  # inches for the value axis, its numbers and its title
_GAP = 0.16  # inches between panels
_HIT_POINTS = 16.0  # size of a hover area: a finger needs more than the 5 points of a marker
# Room below the lowest and above the highest value of a logarithmic axis, as a factor.
_LOG_ROOM = 1.15


class LineStyle(TypedDict, total=False):
    """Look of a line and its markers, as keyword arguments of matplotlib."""

    color: str
    marker: str
    dashes: tuple[float, ...]
    linestyle: Literal["none"]
    mfc: str
    lw: float
    markersize: float
    zorder: float


# Marks that belong to no series: the target was measured alone.
ALONE_STYLE = LineStyle(color=style.GREY, marker="o", linestyle="none", mfc="white")


@dataclass(frozen=True)
class Panel:
    """A panel of a figure, into which series are drawn."""

    # data, limits: data and value limits of the figure.
    data: FigureData
    limits: ShownValueRange
    axes: Axes  # matplotlib's axes of the panel
    name: str | None  # value of the axis "panels"; None for a single panel
    number: int  # position in the grid, row by row
    lowest: bool  # whether the panel shows the numbers of the x axis
    # Hover text of each mark by its id in the SVG; `draw_series` adds to them.
    hover_texts: dict[str, str]

    @property
    def marks_of_panel(self) -> pd.DataFrame:
        """Return the marks of this panel."""
        marks = self.data.marks
        return marks if self.name is None else marks[marks["panels"] == self.name]

    def draw_series(
        self,
        points: list[tuple[float, FigureMark]],
        look: LineStyle,
        series: str,
        describe_position: Callable[[float, FigureMark], str] = lambda _x, _mark: "",
    ) -> None:
        """Draw a series: line, intervals, markers, crosses of failed marks, and hover areas.

        Args:
            points: pairs of position and mark. If a mark has `position_low` and `position_high`,
                they are the interval of its position in units of the axis.
            look: style of the line and markers.
            series: name of the series in the ids of its marks.
            describe_position: returns the position of a mark for its hover text.
        """
        axes, factor = self.axes, self.limits.scale.factor
        valid = [(x, mark) for x, mark in points if mark["status"] == "valid"]
        heights = np.array([mark["median"] for _, mark in valid]) / factor
        settings: LineStyle = {"lw": 1.4, "markersize": 4.5, "zorder": 3, **look}
        axes.plot([x for x, _ in valid], heights, markeredgewidth=0.9, clip_on=False, **settings)
        _draw_mark_intervals(axes, valid, look["color"], factor)
        # No line joins what was not measured.
        for x, mark in points:
            if mark["status"] == PREDICTED:
                own: LineStyle = {**predicted_style(look), "lw": 1.0, "markersize": 5, "zorder": 3}
                ends = np.array([mark["predicted_low"], shown_value(mark), mark["predicted_high"]])
                axes.plot([x] * 3, ends / factor, markevery=[1], clip_on=False, **own)
        floor = axes.get_ylim()[0]
        for number, (x, mark) in enumerate(points):
            y = shown_value(mark) / factor if has_number(mark) else floor
            if mark["status"] == "failed":
                cross = LineStyle(marker="x", color=style.FAILED, markersize=6, zorder=4)
                axes.plot([x], [floor], mew=1.6, clip_on=False, **cross)
            identity = f"mark-{self.number}-{series}-{number}"
            area = LineStyle(marker="o", color="white", markersize=_HIT_POINTS, linestyle="none")
            axes.plot([x], [y], alpha=0.0, zorder=5, clip_on=False, gid=identity, **area)
            position = describe_position(x, mark)
            self.hover_texts[identity] = hover_text(mark, self.data, self.limits.scale, position)


def panel_width(data: FigureData) -> float:
    """Return the width of a panel in inches."""
    columns = _column_count(len(data.value_names_on_axis("panels")))
    return (_sheet_width(columns) - _LEFT - style.MARGIN - _GAP * (columns - 1)) / columns


def draw_panels(
    data: FigureData,
    limits: ShownValueRange,
    *,
    x_title: str,
    legend: list[tuple[str, LineStyle]],
    fill: Callable[[Panel], None],
    label_height: float = 0.0,
) -> tuple[Figure, dict[str, str]]:
    """Return the figure, and the hover text of each mark by the mark's id in the SVG.

    Args:
        data: data of the figure.
        limits: limits of the value axis.
        x_title: title of the x axis.
        legend: text and style of each entry.
        fill: function that draws the marks of a panel.
        label_height: height of upright labels of the x axis in inches; 0 for level labels.
    """
    panels = data.value_names_on_axis("panels")
    columns = _column_count(len(panels))
    rows = math.ceil(len(panels) / columns)
    width, each = _sheet_width(columns), panel_width(data)
    legend_rows = style.split_legend_into_rows(
        legend, width - _LEFT - style.MARGIN, style.LINE_WIDTH
    )
    texts_above = (data.title, provenance_text(data), width - 2 * style.MARGIN)
    header = style.figure_header_height(*texts_above)
    title_height = 0.0 if panels == [None] else 0.18
    top = header + style.LEGEND_LINE * len(legend_rows) + 0.08
    tall = {1: 2.7, 2: 2.1, 4: 1.45}.get(columns, 1.15)
    below = 0.46 + label_height
    height = top + rows * (tall + title_height) + (rows - 1) * _GAP + below
    figure, sheet = style.new_figure_with_header(width, height, *texts_above)
    symbol = partial(draw_legend_line, sheet)
    style.draw_legend(sheet, legend_rows, _LEFT, header + 0.06, style.LINE_WIDTH, symbol)
    texts: dict[str, str] = {}
    for number, name in enumerate(panels):
        row, column = divmod(number, columns)
        x, y = _LEFT + column * (each + _GAP), top + title_height
        y += row * (tall + title_height + _GAP)
        corner = (x / width, 1.0 - (y + tall) / height)
        axes = figure.add_axes((*corner, each / width, tall / height))
        _set_value_axis(axes, data, limits)
        lowest = number + columns >= len(panels)
        fill(Panel(data, limits, axes, name, number, lowest, texts))
        if not lowest:
            axes.tick_params(axis="x", labelbottom=False)
        if column:
            axes.tick_params(axis="y", labelleft=False)
        if name is not None:
            axes.set_title(panel_title(data, name), size=style.TEXT_POINTS, loc="left", pad=3)
    middle = (_LEFT + width - style.MARGIN) / 2
    sheet.text(
        middle, height - style.MARGIN, x_title, size=style.TEXT_POINTS, ha="center", va="baseline"
    )
    middle, title = top + (height - top - below) / 2, value_axis_title(data, limits.scale)
    sheet.text(
        style.MARGIN, middle, title, size=style.TEXT_POINTS, rotation=90, ha="left", va="center"
    )
    return figure, texts


def _column_count(panels: int) -> int:
    """Return the number of panels side by side, so that many panels fit a page."""
    if panels <= 4:
        return min(panels, 2)
    return 4 if panels <= 12 else 6


def _sheet_width(columns: int) -> float:
    """Return the width of a figure in inches."""
    return 6.2 if columns == 1 else style.WIDTH


def _set_value_axis(axes: Axes, data: FigureData, limits: ShownValueRange) -> None:
    """Start the value axis at zero, or at the smallest value when it is logarithmic."""
    factor = limits.scale.factor
    if data.spec.value_scale == "log" and limits.least > 0.0:
        axes.set_yscale("log")
        axes.set_ylim(limits.least / factor / _LOG_ROOM, limits.high / factor * _LOG_ROOM)
        decades = math.log10(limits.high / limits.least)
        axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 5) if decades < 2.5 else (1,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(LogLocator(10, range(1, 10)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="y", which="minor", length=1.5)
    else:
        axes.set_ylim(0.0, 1.04 * limits.high / factor)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", color=style.GRID, lw=0.6)
    axes.set_axisbelow(True)


def series_legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the text and style of each series; empty for a figure without series."""
    if "series" not in data.axes:
        return []
    axis = data.axes["series"]
    texts = [axis.legend_label(value) for value in axis.values]
    return [(text, series_style(number)) for number, text in enumerate(texts)]


def series_style(number: int) -> LineStyle:
    """Return colour, marker and dashes of a series."""
    colours = len(style.COLOURS)
    look = LineStyle(
        color=style.COLOURS[number % colours],
        # Series beyond the palette reuse its colours with other markers.
        marker=style.MARKERS[(number + number // colours) % len(style.MARKERS)],
    )
    if dashes := style.DASHES[number % colours]:
        look["dashes"] = dashes
    return look


def predicted_style(look: LineStyle) -> LineStyle:
    """Return the style of predicted marks of a series: hollow, with a dashed interval."""
    return LineStyle(color=look["color"], marker=look["marker"], mfc="white", dashes=(2, 1))


def draw_legend_line(sheet: Axes, x: float, y: float, look: LineStyle) -> None:
    """Draw a line with a marker as the symbol of a legend entry."""
    settings: LineStyle = {"markersize": 4.5, "lw": 1.4, **look}
    sheet.add_line(Line2D([x, x + 0.17, x + 0.34], [y] * 3, markevery=[1], **settings))


def _draw_mark_intervals(
    axes: Axes, points: list[tuple[float, FigureMark]], color: str, factor: float
) -> None:
    """Draw the intervals of the values and of measured positions."""
    draw = partial(style.draw_intervals, axes, ecolor=color, capsize=2.5)
    known = [(x, mark) for x, mark in points if not pd.isna(mark["low"])]
    if known:
        medians = np.array([mark["median"] for _, mark in known]) / factor
        ends = np.array([[mark["low"], mark["high"]] for _, mark in known]).T / factor
        x = [x for x, _ in known]
        draw(x, medians, yerr=np.abs(ends - medians))
    known = [(x, mark) for x, mark in points if not pd.isna(mark.get("position_low"))]
    if known:
        positions = np.array([x for x, _ in known])
        ends = np.array([[mark["position_low"], mark["position_high"]] for _, mark in known]).T
        heights = [mark["median"] / factor for _, mark in known]
        draw(positions, heights, xerr=np.abs(ends - positions))
