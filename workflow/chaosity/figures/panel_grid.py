"""What lines, curves and scatters share: panels with equal axes, legend, and series of marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from chaosity.figures import style
from chaosity.figures.drawing_sheet import MARGIN, header_height, in_rows, new_sheet, write_header
from chaosity.figures.figure_data import FigureData
from chaosity.figures.mark_texts import Limits, panel_title, provenance, value_title

_LEFT = 0.62  # inches for the value axis, its numbers and its title
_GAP = 0.16  # inches between panels
_HIT_POINTS = 16.0  # a finger needs more than the 5 points of a marker
# Beyond a logarithmic axis' lowest and highest value, so that no mark stands on the frame.
_LOG_ROOM = 1.15
Row = Mapping[str, Any]
Look = Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """One panel as it is about to be filled.

    Attributes:
        axes: to draw on.
        name: of its place on the axis "panels"; None when there is just one.
        number: its position.
        lowest, first: whether it carries the numbers of the axes across and up.
    """

    axes: Axes
    name: str | None
    number: int
    lowest: bool
    first: bool

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table of cells that belong here."""
        return table if self.name is None else table[table["panels"] == self.name]


def panel_width(cells: FigureData) -> float:
    """Width of one panel in inches."""
    across = _across(len(_panels(cells)))
    width = _sheet_width(across)
    return (width - _LEFT - MARGIN - _GAP * (across - 1)) / across


def draw_panels(
    cells: FigureData,
    limits: Limits,
    *,
    x_title: str,
    legend: list[tuple[str, Look]],
    upright: float,
    fill: Callable[[Panel], None],
) -> Figure:
    """Draw header, legend and titles, and let each panel be filled.

    Args:
        cells: what is shown.
        limits: of the value axis.
        x_title: of the axis across.
        legend: words and look.
        upright: height of upright labels of the axis across, inches; 0 for level ones.
        fill: draws the marks of one panel.
    """
    panels = _panels(cells)
    across = _across(len(panels))
    down = math.ceil(len(panels) / across)
    width, each = _sheet_width(across), panel_width(cells)
    entries = in_rows(legend, width - _LEFT - MARGIN, 0.62)
    head = header_height(cells.title, provenance(cells), width - 2 * MARGIN)
    named = 0.0 if panels == [None] else 0.18
    top = head + 0.165 * len(entries) + 0.08
    tall = {1: 2.7, 2: 2.1, 4: 1.45}.get(across, 1.15)
    below = 0.46 + upright
    height = top + down * (tall + named) + (down - 1) * _GAP + below
    figure, sheet = new_sheet(width, height)
    write_header(sheet, cells.title, provenance(cells), width - 2 * MARGIN)
    _draw_legend(sheet, entries, head + 0.06)
    for number, name in enumerate(panels):
        row, column = divmod(number, across)
        y = top + named + row * (tall + named + _GAP)
        place = (
            (_LEFT + column * (each + _GAP)) / width, 1.0 - (y + tall) / height,
            each / width, tall / height,
        )  # fmt: skip
        axes = figure.add_axes(place)
        _value_axis(axes, cells, limits)
        fill(Panel(axes, name, number, number + across >= len(panels), column == 0))
        if number + across < len(panels):
            axes.tick_params(axis="x", labelbottom=False)
        if column:
            axes.tick_params(axis="y", labelleft=False)
        if name is not None:
            axes.set_title(panel_title(cells, name), size=style.TEXT_POINTS, loc="left", pad=3)
    sheet.text(
        (_LEFT + width - MARGIN) / 2, height - MARGIN, x_title, size=style.TEXT_POINTS,
        ha="center", va="baseline",
    )  # fmt: skip
    sheet.text(
        MARGIN, top + (height - top - below) / 2, value_title(cells, limits.scale),
        size=style.TEXT_POINTS, rotation=90, ha="left", va="center",
    )  # fmt: skip
    return figure


def _panels(cells: FigureData) -> list[str | None]:
    return list(cells.axes["panels"].names) if "panels" in cells.axes else [None]


def _across(number: int) -> int:
    """Panels side by side, so that a figure with many still fits a page."""
    if number <= 4:
        return min(number, 2)
    return 4 if number <= 12 else 6


def _sheet_width(across: int) -> float:
    return 6.2 if across == 1 else style.WIDTH


def _value_axis(axes: Axes, cells: FigureData, limits: Limits) -> None:
    """From zero up, or logarithmic around the values."""
    factor = limits.scale.factor
    if cells.spec.value_scale == "log" and limits.least > 0.0:
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
    axes.grid(axis="y", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)


def series_names(cells: FigureData) -> list[str | None]:
    """Names of the series in order; None when there is just one without a name."""
    return list(cells.axes["series"].names) if "series" in cells.axes else [None]


def series_legend(cells: FigureData) -> list[tuple[str, Look]]:
    """Words and look of each series; nothing for a single unnamed one."""
    if "series" not in cells.axes:
        return []
    axis = cells.axes["series"]
    return [
        (f"{axis.title} {place.short}" if place.kind == "number" else place.long, look_of(number))
        for number, place in enumerate(axis.places)
    ]


def look_of(number: int) -> dict[str, Any]:
    """Colour, marker and dash of a series."""
    kinds = len(style.COLOURS)
    look: dict[str, Any] = {
        "color": style.COLOURS[number % kinds],
        # Series beyond the palette reuse its colours with other markers.
        "marker": style.MARKERS[(number + number // kinds) % len(style.MARKERS)],
    }
    if style.DASHES[number % kinds]:
        look["dashes"] = style.DASHES[number % kinds]
    return look


def _draw_legend(sheet: Axes, lines: list[list[tuple[str, Look]]], top: float) -> None:
    for number, line in enumerate(lines):
        x, y = _LEFT, top + 0.165 * number
        for words, look in line:
            settings = {"markersize": 4.5, "lw": 1.4, **look}
            sheet.add_line(Line2D([x, x + 0.17, x + 0.34], [y] * 3, markevery=[1], **settings))
            sheet.text(x + 0.4, y, words, size=style.SMALL_POINTS, va="center_baseline")
            x += 0.62 + style.text_width(words, style.SMALL_POINTS)


def draw_series(
    axes: Axes, points: list[tuple[float, Row]], look: Look, factor: float, identity: str
) -> None:
    """One series: the line, intervals, markers, crosses for what failed, and what the hand hits.

    Args:
        axes: of the panel.
        points: position and cell of each mark; a cell may have `x_low` and `x_high`, the interval
            of the position, in the units of the axis.
        look: of line and markers.
        factor: what one unit of the value axis is.
        identity: of the marks, to which their number is added.
    """
    valid = [(x, row) for x, row in points if row["status"] == "valid"]
    xs = [x for x, _ in valid]
    ys = np.array([row["median"] for _, row in valid]) / factor
    settings = {"lw": 1.4, "markersize": 4.5, "markeredgewidth": 0.9, **look}
    axes.plot(xs, ys, zorder=3, clip_on=False, **settings)
    bars = {"fmt": "none", "ecolor": look["color"], "elinewidth": 1.0, "capsize": 2.5,
            "capthick": 1.0, "zorder": 2, "clip_on": False}  # fmt: skip
    known = [(x, row) for x, row in valid if not pd.isna(row["low"])]
    if known:
        middle = np.array([row["median"] for _, row in known]) / factor
        ends = np.array([[row["low"], row["high"]] for _, row in known]).T / factor
        axes.errorbar([x for x, _ in known], middle, np.abs(ends - middle), **bars)
    wide = [(x, row) for x, row in valid if not pd.isna(row.get("x_low"))]
    if wide:
        middle = np.array([x for x, _ in wide])
        ends = np.array([[row["x_low"], row["x_high"]] for _, row in wide]).T
        heights = [row["median"] / factor for _, row in wide]
        axes.errorbar(middle, heights, xerr=np.abs(ends - middle), **bars)
    floor = axes.get_ylim()[0]
    for number, (x, row) in enumerate(points):
        y = row["median"] / factor if row["status"] == "valid" else floor
        if row["status"] == "failed":
            axes.plot(
                [x], [floor], marker="x", color=style.FAILED, markersize=6, mew=1.6,
                clip_on=False, zorder=4,
            )  # fmt: skip
        axes.plot(
            [x], [y], marker="o", markersize=_HIT_POINTS, alpha=0.0, color="white", zorder=5,
            clip_on=False, gid=f"{identity}-{number}", linestyle="none",
        )  # fmt: skip
