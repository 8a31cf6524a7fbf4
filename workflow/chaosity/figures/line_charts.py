"""Line charts over a factor: one line a series, in one panel or several."""

from __future__ import annotations

import math
from itertools import pairwise

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from chaosity.errors import UserError
from chaosity.figures import figure_style as style
from chaosity.figures.axis_order_and_labels import Axis
from chaosity.figures.figure_marks_and_axes import FigureData, mark_rows
from chaosity.figures.mark_labels_and_hover_texts import hover_text
from chaosity.figures.panel_grid_and_series import (
    ALONE_STYLE,
    LineStyle,
    Panel,
    draw_panels,
    draw_series,
    panel_width,
    series_legend,
    series_style,
)
from chaosity.figures.value_axis_limits import ValueLimits
from chaosity.units import format_binary_bytes

_MOST_TICKS = 12
# Room around a label on a logarithmic axis, inches.
_LABEL_ROOM = 0.12


def draw_line_chart(data: FigureData, limits: ValueLimits) -> tuple[Figure, dict[str, str]]:
    """Draw a line chart with intervals.

    Args:
        data: with the axis "x"; "series" and "panels" are optional.
        limits: of the value axis, which starts at zero unless it is logarithmic.

    Returns:
        The figure, and the hover text of each mark by the mark's id in the SVG.

    Raises:
        UserError: a logarithmic x axis has a value that is not a number above zero.
    """
    axis, width = data.axes["x"], panel_width(data)
    positions = _x_positions(data)
    linear = data.spec.x_scale == "linear"
    label_height = _upright_label_height(axis, width) if linear else 0.0
    texts: dict[str, str] = {}

    def fill(panel: Panel) -> None:
        _fill_panel(panel, data, limits, positions, texts)
        if linear:
            _label_values(panel, axis, positions, upright=label_height > 0.0)
        else:
            _label_powers(panel, data, positions, width)

    figure = draw_panels(
        data, limits, x_title=axis.title, legend=_legend(data), label_height=label_height, fill=fill
    )
    return figure, texts


def _upright_label_height(axis: Axis, width: float) -> float:
    """Return the height of upright tick labels in inches; 0 when level labels fit the width."""
    labels = [axis.tick_label(value) for value in axis.values]
    widest = max(style.text_width(text, style.SMALL_POINTS) for text in labels)
    plain = all(value.kind == "number" for value in axis.values)
    return 0.0 if plain or widest * len(labels) < 0.9 * width else widest


def _legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the legend: series, marks measured alone, failed marks, and bounds."""
    entries = series_legend(data)
    if entries and data.marks["series"].isna().any():
        entries.append(("alone", LineStyle(color=style.GREY, dashes=(2, 2), marker="")))
    if entries and (data.marks["status"] == "failed").any():
        entries.append(("failed", LineStyle(color=style.FAILED, marker="x", linestyle="none")))
    entries += [(bound.title, _bound_style(index)) for index, bound in enumerate(data.bounds)]
    return entries


def _bound_style(index: int) -> LineStyle:
    """Return the look of a bound: dashed and without markers, since it is not a series."""
    dashes = [look for look in style.DASHES if look]
    return LineStyle(color=style.GREY, marker="", dashes=dashes[index % len(dashes)])


def _draw_bounds(
    panel: Panel, data: FigureData, factor: float, positions: dict[str, float]
) -> None:
    """Draw bounds as dashed lines; a bound that varies along x has its series' colour."""
    names = data.axis_names("series")
    for index, bound in enumerate(data.bounds):
        look: LineStyle = {**_bound_style(index), "lw": 1.1, "zorder": 1}
        if not bound.along_x:
            level = bound.value_at(panel.name, None, None)
            if level is not None:
                dashes, color = look["dashes"], look["color"]
                panel.axes.axhline(level / factor, color=color, dashes=dashes, lw=1.1, zorder=1)
            continue
        for number, series in enumerate(names):
            known = {name: bound.value_at(panel.name, series, name) for name in positions}
            points = sorted((positions[n], v / factor) for n, v in known.items() if v is not None)
            own = look.copy()
            if len(names) > 1:
                own["color"] = series_style(number)["color"]
            if len(points) == 1:  # a line of a single point is not visible
                own |= LineStyle(marker="_", markersize=14)
            panel.axes.plot([x for x, _ in points], [y for _, y in points], **own)


def _fill_panel(
    panel: Panel,
    data: FigureData,
    limits: ValueLimits,
    positions: dict[str, float],
    texts: dict[str, str],
) -> None:
    """Draw all series of a panel and add their hover texts to `texts`."""
    marks, factor = panel.marks_of_panel(data.marks), limits.scale.factor
    low, high = min(positions.values()), max(positions.values())
    spread = high - low or 1.0
    panel.axes.set_xlim(low - 0.06 * spread, high + 0.06 * spread)
    names = data.axis_names("series")
    alone = marks[marks["series"].isna()] if "series" in data.axes else marks.iloc[:0]
    valid = alone[alone["status"] == "valid"]
    if len(valid) == 1:  # reference of all series
        level = valid["median"].iloc[0] / factor
        panel.axes.axhline(level, color=style.GREY, lw=0.9, dashes=(2, 2))
    _draw_bounds(panel, data, factor, positions)
    step = min((b - a for a, b in pairwise(sorted(set(positions.values())))), default=1.0)

    def draw(table: pd.DataFrame, look: LineStyle, identity: str, aside: float = 0.0) -> None:
        points = [(positions[mark["x"]] + aside, mark) for mark in mark_rows(table)]
        if identity != "alone":
            points.sort(key=lambda point: point[0])
        identity = f"mark-{panel.number}-{identity}"
        draw_series(panel.axes, points, look, factor, identity)
        for number, (_, mark) in enumerate(points):
            texts[f"{identity}-{number}"] = hover_text(mark, data, limits.scale)

    for index, name in enumerate(names):
        own = marks if name is None else marks[marks["series"] == name]
        # Series stand side by side where they meet: overlapping intervals cannot be read.
        aside = (index - (len(names) - 1) / 2) * min(0.03, 0.12 / len(names)) * step
        draw(own, series_style(index), str(index), aside)
    draw(alone, ALONE_STYLE, "alone")


def _x_positions(data: FigureData) -> dict[str, float]:
    """Return the position of each value of x: its number, its logarithm, or its rank."""
    axis, scale = data.axes["x"], data.spec.x_scale
    if scale == "linear":
        if axis.is_numeric:
            return {value.name: value.number for value in axis.values}
        return {value.name: float(rank) for rank, value in enumerate(axis.values)}
    if not axis.is_numeric or any(value.number <= 0.0 for value in axis.values):
        raise UserError(
            f"x_scale {scale} needs numbers above zero; {axis.column} has other values",
            data.spec.location_text,
        )
    power = math.log2 if _has_powers_of_two(data) else math.log10
    return {value.name: power(value.number) for value in axis.values}


def _has_powers_of_two(data: FigureData) -> bool:
    """Whether the ticks of a logarithmic x axis are powers of two; those of sizes always are."""
    return data.axes["x"].has_byte_sizes or data.spec.x_scale == "log2"


def _label_values(panel: Panel, axis: Axis, positions: dict[str, float], *, upright: bool) -> None:
    """Set ticks at the measured values; at round numbers when there are too many values."""
    axes, ticks = panel.axes, sorted(set(positions.values()))
    if len(ticks) > _MOST_TICKS and axis.is_numeric:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    if panel.lowest:
        labels = {positions[value.name]: axis.tick_label(value) for value in axis.values}
        axes.set_xticks(ticks, [labels[tick] for tick in ticks], rotation=90 if upright else 0)


def _label_powers(
    panel: Panel, data: FigureData, positions: dict[str, float], width: float
) -> None:
    """Set ticks at whole powers; as many of them get a label as fit the width."""
    sizes, base = data.axes["x"].has_byte_sizes, 2.0 if _has_powers_of_two(data) else 10.0
    low, high = panel.axes.get_xlim()
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    if not powers:  # a single value between two powers
        powers = sorted({math.floor(min(positions.values())), math.ceil(max(positions.values()))})
        panel.axes.set_xlim(powers[0] - 0.1, powers[-1] + 0.1)
    texts = {
        power: format_binary_bytes(base**power) if sizes else f"{base**power:g}" for power in powers
    }
    # Every tenth power of two changes the unit: steps that divide ten keep round labels.
    for step in (1, 2, 5, 10, 20):
        labelled = [power for power in powers if power % step == 0] or powers[:1]
        needed = sum(style.text_width(texts[p], style.SMALL_POINTS) + _LABEL_ROOM for p in labelled)
        if needed <= width:
            break
    panel.axes.set_xticks(labelled, [texts[power] for power in labelled])
    panel.axes.set_xticks([power for power in powers if power not in labelled], minor=True)
    panel.axes.tick_params(axis="x", which="minor", length=1.5, color=style.RULE)
