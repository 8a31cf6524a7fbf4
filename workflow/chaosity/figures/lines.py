"""Lines over a factor, one per series, in one panel or several with the same axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from chaosity.figures import style
from chaosity.figures.cells import Axis, Cells
from chaosity.figures.sheet import MARGIN, header_height, in_rows, new_sheet, write_header
from chaosity.figures.values import Limits, hover, panel_title, provenance, tick_label, value_title

_LEFT = 0.62  # inches for the value axis, its numbers and its title
_HIT_POINTS = 16.0  # a finger needs more than the 5 points of a marker
Row = Mapping[str, Any]


def draw_lines(cells: Cells, limits: Limits) -> tuple[Figure, dict[str, str]]:
    """Draw lines with intervals.

    Args:
        cells: with the axis "x" and perhaps "series" and "panels".
        limits: of the value axis, which starts at zero.

    Returns:
        The figure, and the text that hovers over each mark by the mark's id in the SVG.
    """
    panels: list[str | None] = [None]
    if "panels" in cells.axes:
        panels = list(cells.axes["panels"].names)
    across = _panels_across(len(panels))
    down = math.ceil(len(panels) / across)
    width = 6.2 if across == 1 else style.WIDTH
    legend = in_rows(_legend_entries(cells), width - _LEFT - MARGIN, 0.62)
    head = header_height(cells.title, provenance(cells), width - 2 * MARGIN)
    named = 0.0 if panels == [None] else 0.18
    top = head + 0.165 * len(legend) + 0.08
    tall = {1: 2.7, 2: 2.1, 4: 1.45}.get(across, 1.15)
    upright = _upright(cells.axes["x"], (width - _LEFT - MARGIN) / across)
    below = 0.46 + upright
    height = top + down * (tall + named) + (down - 1) * 0.16 + below
    figure, sheet = new_sheet(width, height)
    write_header(sheet, cells.title, provenance(cells), width - 2 * MARGIN)
    _draw_legend(sheet, legend, head + 0.06)
    gap = 0.16
    each = (width - _LEFT - MARGIN - gap * (across - 1)) / across
    texts: dict[str, str] = {}
    for number, panel in enumerate(panels):
        row, column = divmod(number, across)
        y = top + named + row * (tall + named + 0.16)
        place = (
            (_LEFT + column * (each + gap)) / width, 1.0 - (y + tall) / height,
            each / width, tall / height,
        )  # fmt: skip
        axes = figure.add_axes(place)
        lowest = number + across >= len(panels)
        _panel(axes, cells, limits, panel, number, texts)
        _label_axes(axes, cells.axes["x"], lowest, column == 0, bool(upright))
        if panel is not None:
            axes.set_title(panel_title(cells, panel), size=style.TEXT_POINTS, loc="left", pad=3)
    sheet.text(
        (_LEFT + width - MARGIN) / 2, height - MARGIN, cells.axes["x"].title,
        size=style.TEXT_POINTS, ha="center", va="baseline",
    )  # fmt: skip
    sheet.text(
        MARGIN, top + (height - top - below) / 2, value_title(cells, limits.scale),
        size=style.TEXT_POINTS, rotation=90, ha="left", va="center",
    )  # fmt: skip
    return figure, texts


def _panels_across(number: int) -> int:
    """Panels side by side, so that a figure with many still fits a page."""
    if number <= 4:
        return min(number, 2)
    return 4 if number <= 12 else 6


def _upright(axis: Axis, width: float) -> float:
    """Height of upright tick labels when they do not fit side by side; 0 when they do."""
    labels = [tick_label(place, axis) for place in axis.places]
    widest = max(style.text_width(text, style.SMALL_POINTS) for text in labels)
    numeric = all(place.kind == "number" for place in axis.places)
    return 0.0 if numeric or widest * len(labels) < 0.9 * width else widest


def _series(cells: Cells) -> list[str | None]:
    """Names of the series in order; None when there is just one without a name."""
    return list(cells.axes["series"].names) if "series" in cells.axes else [None]


def _legend_entries(cells: Cells) -> list[tuple[str, dict[str, Any]]]:
    """What stands in the legend: words and look; nothing for a single unnamed series."""
    if "series" not in cells.axes:
        return []
    axis = cells.axes["series"]
    entries = []
    for number, place in enumerate(axis.places):
        words = place.long if place.kind != "number" else f"{axis.title} {place.short}"
        entries.append((words, _look(number)))
    if cells.cells["series"].isna().any():
        entries.append(("alone", {"color": style.GREY, "dashes": (2, 2), "marker": ""}))
    if (cells.cells["status"] == "failed").any():
        entries.append(("failed", {"color": style.FAILED, "marker": "x", "linestyle": "none"}))
    return entries


def _look(number: int) -> dict[str, Any]:
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


def _draw_legend(sheet: Axes, lines: list[list[tuple[str, dict[str, Any]]]], top: float) -> None:
    for number, line in enumerate(lines):
        x, y = _LEFT, top + 0.165 * number
        for words, look in line:
            settings = {"markersize": 4.5, "lw": 1.4, **look}
            sheet.add_line(Line2D([x, x + 0.17, x + 0.34], [y] * 3, markevery=[1], **settings))
            sheet.text(x + 0.4, y, words, size=style.SMALL_POINTS, va="center_baseline")
            x += 0.62 + style.text_width(words, style.SMALL_POINTS)


def _panel(
    axes: Axes,
    cells: Cells,
    limits: Limits,
    panel: str | None,
    number: int,
    texts: dict[str, str],
) -> None:
    """All series of one panel."""
    table = cells.cells
    if panel is not None:
        table = table[table["panels"] == panel]
    positions = _positions(cells.axes["x"])
    factor = limits.scale.factor
    axes.set_ylim(0.0, 1.04 * limits.high / factor)
    spread = max(positions.values()) - min(positions.values()) or 1.0
    axes.set_xlim(min(positions.values()) - 0.06 * spread, max(positions.values()) + 0.06 * spread)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)
    names: list[str | None] = _series(cells)
    lone = table[table["series"].isna()] if "series" in cells.axes else table.iloc[:0]
    _alone(axes, lone, factor)
    step = min((b - a for a, b in pairwise(sorted(set(positions.values())))), default=1.0)
    for index, name in enumerate(names):
        chosen = table if name is None else table[table["series"] == name]
        # Side by side where they meet: an interval behind another cannot be read.
        aside = (index - (len(names) - 1) / 2) * min(0.03, 0.12 / len(names)) * step
        points = [(positions[row["x"]] + aside, row) for row in chosen.to_dict("records")]
        points.sort(key=lambda pair: pair[0])
        _line(axes, points, _look(index), factor, f"mark-{number}-{index}")
        for place, (_, row) in enumerate(points):
            texts[f"mark-{number}-{index}-{place}"] = hover(row, cells, limits.scale)
    points = [(positions[row["x"]], row) for row in lone.to_dict("records")]
    look = {"color": style.GREY, "marker": "o", "linestyle": "none", "mfc": "white"}
    _line(axes, points, look, factor, f"mark-{number}-alone")
    for place, (_, row) in enumerate(points):
        texts[f"mark-{number}-alone-{place}"] = hover(row, cells, limits.scale)


def _positions(axis: Axis) -> dict[str, float]:
    """Where each value stands: at its number, or one after the other."""
    if all(place.kind == "number" for place in axis.places):
        return {place.name: float(place.sort[0]) for place in axis.places}
    return {place.name: float(number) for number, place in enumerate(axis.places)}


def _alone(axes: Axes, lone: pd.DataFrame, factor: float) -> None:
    """A dashed line for what was measured without company, to compare the series with."""
    valid = lone[lone["status"] == "valid"]
    if len(valid) == 1:
        axes.axhline(valid["median"].iloc[0] / factor, color=style.GREY, lw=0.9, dashes=(2, 2))


def _line(
    axes: Axes,
    points: list[tuple[float, Row]],
    look: Mapping[str, Any],
    factor: float,
    identity: str,
) -> None:
    """One series: the line, intervals, markers, crosses for what failed, and what the hand hits."""
    valid = [(x, row) for x, row in points if row["status"] == "valid"]
    xs = [x for x, _ in valid]
    ys = np.array([row["median"] for _, row in valid]) / factor
    settings = {"lw": 1.4, "markersize": 4.5, "markeredgewidth": 0.9, **look}
    axes.plot(xs, ys, zorder=3, clip_on=False, **settings)
    known = [(x, row) for x, row in valid if not pd.isna(row["low"])]
    if known:
        middle = np.array([row["median"] for _, row in known]) / factor
        ends = np.array([[row["low"], row["high"]] for _, row in known]).T / factor
        axes.errorbar(
            [x for x, _ in known], middle, np.abs(ends - middle), fmt="none", ecolor=look["color"],
            elinewidth=1.0, capsize=2.5, capthick=1.0, zorder=2, clip_on=False,
        )  # fmt: skip
    for number, (x, row) in enumerate(points):
        y = row["median"] / factor if row["status"] == "valid" else 0.0
        if row["status"] == "failed":
            axes.plot(
                [x], [0.0], marker="x", color=style.FAILED, markersize=6, mew=1.6,
                clip_on=False, zorder=4,
            )  # fmt: skip
        axes.plot(
            [x], [y], marker="o", markersize=_HIT_POINTS, alpha=0.0, color="white", zorder=5,
            clip_on=False, gid=f"{identity}-{number}", linestyle="none",
        )  # fmt: skip


def _label_axes(axes: Axes, axis: Axis, lowest: bool, first: bool, upright: bool) -> None:
    """Ticks at measured values; numbers only on the outer panels."""
    positions = _positions(axis)
    ticks = sorted(set(positions.values()))
    if len(ticks) > 12:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    else:
        axes.xaxis.set_major_locator(FixedLocator(ticks))
    if not lowest:
        axes.tick_params(axis="x", labelbottom=False)
    elif len(ticks) <= 12:
        labels = {positions[place.name]: tick_label(place, axis) for place in axis.places}
        axes.set_xticks(ticks, [labels[tick] for tick in ticks], rotation=90 if upright else 0)
    if not first:
        axes.tick_params(axis="y", labelleft=False)
