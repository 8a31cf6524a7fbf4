"""Horizontal bars in groups, for factors without an order such as kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from chaosity.figures import style
from chaosity.figures.drawing_sheet import (
    MARGIN,
    cross,
    empty_look,
    header_height,
    in_rows,
    legend_row,
    new_sheet,
    write_header,
)
from chaosity.figures.figure_data import FigureData
from chaosity.figures.mark_texts import Limits, hover, provenance, tick_label, value_title
from chaosity.figures.svg_marks import IGNORE

_WIDTH = 6.6
_GAP = 0.12  # between groups of bars, inches
Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Bar:
    """One bar: its place in inches below the first one's top, and its series."""

    top: float
    height: float
    series: int
    row: Row


def draw_bars(cells: FigureData, limits: Limits) -> tuple[Figure, dict[str, str]]:
    """Draw bars with intervals.

    Args:
        cells: with the axis "x" and perhaps "series".
        limits: of the value axis, which starts at zero.

    Returns:
        The figure, and the text that hovers over each bar by its id in the SVG.
    """
    groups = cells.axes["x"]
    bars, middles, tall = _arrange(cells)
    # The title stands upright; where it would reach the header, labels say all of it.
    titled = tall > style.text_width(groups.title, style.TEXT_POINTS)
    labels = [tick_label(place, groups) if titled else place.long for place in groups.places]
    label_width = max(style.text_width(text, style.TEXT_POINTS) for text in labels)
    left = MARGIN + 0.22 + label_width + 0.08
    head = header_height(cells.title, provenance(cells), _WIDTH - 0.2)
    legend = in_rows(_legend_entries(cells), _WIDTH - left - MARGIN, 0.5)
    top = head + 0.17 * len(legend)
    states = {bar.row["status"] for bar in bars} - {"valid"}
    below = 0.5 + (0.24 if states else 0.0)
    height = top + tall + below
    figure, sheet = new_sheet(_WIDTH, height)
    write_header(sheet, cells.title, provenance(cells), _WIDTH - 0.2)
    _draw_legend(sheet, legend, left, head + 0.05)
    room = _number_room(bars, limits)
    place = (left / _WIDTH, below / height, (_WIDTH - left - 0.15 - room) / _WIDTH, tall / height)
    axes = figure.add_axes(place)
    axes.set(ylim=(tall, 0.0), xlim=(0.0, limits.high / limits.scale.factor), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(axis="x", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(value_title(cells, limits.scale), size=style.TEXT_POINTS, labelpad=3)
    for label, middle in zip(labels, middles, strict=True):
        sheet.text(
            left - 0.08, top + middle, label, size=style.TEXT_POINTS, ha="right",
            va="center_baseline",
        )  # fmt: skip
    if titled:
        sheet.text(
            MARGIN, top + tall / 2, groups.title, size=style.TEXT_POINTS, rotation=90, ha="left",
            va="center",
        )  # fmt: skip
    texts: dict[str, str] = {}
    for number, bar in enumerate(bars):
        _draw_bar(axes, bar, limits, f"mark-{number}")
        texts[f"mark-{number}"] = hover(bar.row, cells, limits.scale)
    if states:
        words = {"failed": "failed", "missing": "not measured yet", "unmeasured": "not measured"}
        legend_row(sheet, left, height - 0.13, [(state, words[state]) for state in sorted(states)])
    return figure, texts


def _arrange(cells: FigureData) -> tuple[list[_Bar], list[float], float]:
    """The bars, the middle of each group, and the height of all, in inches."""
    series = cells.axes["series"].names if "series" in cells.axes else [None]
    found = {(row["x"], row.get("series")): row for row in cells.cells.to_dict("records")}
    shown = [
        [(number, found[group, name]) for number, name in enumerate(series)
         if (group, name) in found]
        for group in cells.axes["x"].names
    ]  # fmt: skip
    total = sum(len(group) for group in shown)
    thick = min(0.24, max(0.105, 8.0 / max(total, 1)))
    bars, middles, y = [], [], _GAP / 2
    for group in shown:
        bars += [_Bar(y + i * thick, thick, s, row) for i, (s, row) in enumerate(group)]
        middles.append(y + len(group) * thick / 2)
        y += len(group) * thick + _GAP
    return bars, middles, y - _GAP / 2


def _number_room(bars: list[_Bar], limits: Limits) -> float:
    """Width in inches that the numbers behind the bars need."""
    numbers = [
        limits.scale.number(bar.row["median"]) for bar in bars if bar.row["status"] == "valid"
    ]
    widest = max((style.text_width(text, style.SMALL_POINTS) for text in numbers), default=0.0)
    return widest + 0.1


def _legend_entries(cells: FigureData) -> list[tuple[str, int]]:
    """Words and number of each series; nothing for a single series."""
    if "series" not in cells.axes or len(cells.axes["series"].places) < 2:
        return []
    axis = cells.axes["series"]
    return [
        (place.long if place.kind != "number" else f"{axis.title} {place.short}", number)
        for number, place in enumerate(axis.places)
    ]


def _look(series: int) -> dict[str, Any]:
    """Colour and hatch of a series."""
    kinds = len(style.COLOURS)
    return {
        "facecolor": style.COLOURS[series % kinds],
        "hatch": style.HATCHES[(series + series // kinds) % len(style.HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.5,
    }


def _draw_legend(sheet: Axes, lines: list[list[tuple[str, int]]], left: float, top: float) -> None:
    for number, line in enumerate(lines):
        x, y = left, top + 0.17 * number
        for words, series in line:
            sheet.add_patch(Rectangle((x, y - 0.055), 0.2, 0.11, **_look(series)))
            sheet.text(x + 0.26, y, words, size=style.SMALL_POINTS, va="center_baseline")
            x += 0.5 + style.text_width(words, style.SMALL_POINTS)


def _draw_bar(axes: Axes, bar: _Bar, limits: Limits, identity: str) -> None:
    """One bar with its interval and number, or what stands for a missing value."""
    status, factor = bar.row["status"], limits.scale.factor
    middle = bar.top + bar.height / 2
    if status != "valid":
        width = 0.05 * limits.high / factor
        axes.add_patch(
            Rectangle(
                (0, bar.top + 0.01), width, bar.height - 0.02, gid=identity, **empty_look(status)
            )
        )
        if status == "failed":
            cross(axes, width / 2, middle, bar.height)
        return
    value = bar.row["median"] / factor
    axes.add_patch(
        Rectangle((0, bar.top + 0.01), value, bar.height - 0.02, gid=identity, **_look(bar.series))
    )
    end = value
    if not pd.isna(bar.row["low"]):
        low, high = bar.row["low"] / factor, bar.row["high"] / factor
        end = max(value, high)
        axes.errorbar(
            value, middle, xerr=[[value - low], [high - value]], fmt="none", ecolor=style.INK,
            elinewidth=1.0, capsize=min(2.5, bar.height * 12), capthick=1.0, clip_on=False,
        )  # fmt: skip
    offset = 0.01 * limits.high / factor
    axes.text(
        end + offset, middle, limits.scale.number(bar.row["median"]), size=style.SMALL_POINTS,
        ha="left", va="center_baseline", clip_on=False, gid=IGNORE,
    )  # fmt: skip
