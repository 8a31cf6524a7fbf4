"""Horizontal bars in groups, for factors without an order such as kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    FigureMark,
    ShownValueRange,
    has_number,
    mark_rows,
    shown_interval,
    shown_value,
)
from chaosity.figures.mark_labels_and_hover_texts import (
    hover_text,
    provenance_text,
    value_axis_title,
)
from chaosity.figures.svg_hover_texts import IGNORE
from chaosity.store.left_out_points import PREDICTED

_WIDTH = 6.6
_GAP = 0.12  # between groups of bars, inches


@dataclass(frozen=True)
class _Bar:
    """A bar: distance of its top from the first bar's top, its height (inches), and its series."""

    top: float
    height: float
    series: int
    mark: FigureMark


def draw_bar_chart(data: FigureData, limits: ShownValueRange) -> tuple[Figure, dict[str, str]]:
    """Return a figure of bars that start at zero, and id of a bar in the SVG -> its hover text.

    The data has the axis "x"; "series" is optional.
    """
    groups = data.axes["x"]
    bars, middles, tall = _arrange_bars(data)
    # Where the upright title would reach the header, long labels replace it.
    titled = tall > style.text_width(groups.title, style.TEXT_POINTS)
    labels = [groups.tick_label(value) if titled else value.long for value in groups.values]
    label_width = max(style.text_width(text, style.TEXT_POINTS) for text in labels)
    left = style.MARGIN + 0.22 + label_width + 0.08
    texts_above = (data.title, provenance_text(data), _WIDTH - 0.2)
    header = style.figure_header_height(*texts_above)
    legend = style.split_legend_into_rows(
        _legend(data), _WIDTH - left - style.MARGIN, style.BOX_WIDTH
    )
    top = header + style.LEGEND_LINE * len(legend)
    statuses = {bar.mark["status"] for bar in bars} - {"valid"}
    below = 0.5 + (0.24 if statuses else 0.0)
    height = top + tall + below
    figure, sheet = style.new_figure_with_header(_WIDTH, height, *texts_above)
    style.draw_legend(
        sheet,
        legend,
        left,
        header + 0.05,
        style.BOX_WIDTH,
        partial(style.draw_rectangle_as_legend_symbol, sheet),
    )
    width = _WIDTH - left - 0.15 - _number_room(bars, limits)
    corner = (left / _WIDTH, below / height)
    axes = figure.add_axes((*corner, width / _WIDTH, tall / height))
    axes.set(ylim=(tall, 0.0), xlim=(0.0, limits.high / limits.scale.factor), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(axis="x", color=style.GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(value_axis_title(data, limits.scale), size=style.TEXT_POINTS, labelpad=3)
    write = partial(sheet.text, size=style.TEXT_POINTS)
    for label, middle in zip(labels, middles, strict=True):
        write(left - 0.08, top + middle, label, ha="right", va="center_baseline")
    if titled:
        write(style.MARGIN, top + tall / 2, groups.title, rotation=90, ha="left", va="center")
    texts: dict[str, str] = {}
    for number, bar in enumerate(bars):
        _draw_bar(axes, bar, limits, f"mark-{number}")
        texts[f"mark-{number}"] = hover_text(bar.mark, data, limits.scale)
    style.draw_legend_of_missing_values(sheet, left, height - 0.13, statuses)
    return figure, texts


def _arrange_bars(data: FigureData) -> tuple[list[_Bar], list[float], float]:
    """Return the bars, the middle of each group, and the total height, in inches."""
    found = {(mark["x"], mark.get("series")): mark for mark in mark_rows(data.marks)}
    series = list(enumerate(data.value_names_on_axis("series")))
    groups = [
        [(number, found[group, name]) for number, name in series if (group, name) in found]
        for group in data.axes["x"].value_names
    ]
    total = sum(len(group) for group in groups)
    height = min(0.24, max(0.105, 8.0 / max(total, 1)))
    bars, middles, y = [], [], _GAP / 2
    for group in groups:
        bars += [_Bar(y + i * height, height, s, mark) for i, (s, mark) in enumerate(group)]
        middles.append(y + len(group) * height / 2)
        y += len(group) * height + _GAP
    return bars, middles, y - _GAP / 2


def _number_room(bars: list[_Bar], limits: ShownValueRange) -> float:
    """Return the width of the numbers after the bars in inches."""
    values = [shown_value(bar.mark) for bar in bars if has_number(bar.mark)]
    texts = map(limits.scale.number, values)
    return max((style.text_width(text, style.SMALL_POINTS) for text in texts), default=0.0) + 0.1


def _legend(data: FigureData) -> list[tuple[str, style.RectangleStyle]]:
    """Return the text and style of each legend entry; empty for a single series."""
    if "series" not in data.axes or len(data.axes["series"].values) < 2:
        return []
    axis = data.axes["series"]
    return [(axis.legend_label(value), _series_style(i)) for i, value in enumerate(axis.values)]


def _series_style(series: int) -> style.RectangleStyle:
    """Return colour and hatch of a series."""
    colours = len(style.COLOURS)
    hatch = style.HATCHES[(series + series // colours) % len(style.HATCHES)]
    colour = style.COLOURS[series % colours]
    return style.RectangleStyle(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.5)


def _draw_bar(axes: Axes, bar: _Bar, limits: ShownValueRange, identity: str) -> None:
    """Draw a bar with its interval and number, or the symbol for a missing value."""
    mark, factor = bar.mark, limits.scale.factor
    middle, corner = bar.top + bar.height / 2, (0, bar.top + 0.01)
    status, height = mark["status"], bar.height - 0.02
    if not has_number(mark):
        width = 0.05 * limits.high / factor
        axes.add_patch(
            Rectangle(corner, width, height, gid=identity, **style.MISSING_MARK_STYLES[status])
        )
        if status == "failed":
            style.draw_failed_mark_cross(axes, width / 2, middle, bar.height)
        return
    value = shown_value(mark) / factor
    look, predicted = _series_style(bar.series), status == PREDICTED
    if predicted:  # series have hatches too, but their bars are filled
        colour, hatch = (
            style.COLOURS[bar.series % len(style.COLOURS)],
            style.MISSING_MARK_STYLES[PREDICTED]["hatch"],
        )
        look = style.RectangleStyle(facecolor="white", hatch=hatch, edgecolor=colour, linewidth=0.8)
    axes.add_patch(Rectangle(corner, value, height, gid=identity, **look))
    low, high = shown_interval(mark)
    if not pd.isna(low):
        low, high = low / factor, high / factor
        ends, caps = [[value - low], [high - value]], min(2.5, bar.height * 12)
        style.draw_intervals(axes, value, middle, xerr=ends, ecolor=style.INK, capsize=caps)
    write = partial(axes.text, size=style.SMALL_POINTS, ha="left", va="center_baseline", gid=IGNORE)
    # In a column of their own: behind the end of an interval, a number reads as that end.
    number, x = limits.scale.number(shown_value(mark)), 1.01 * limits.high / factor
    write(x, middle, number, clip_on=False, style="italic" if predicted else "normal")
