"""Draw line charts over a factor, and curves and scatters over a measured quantity.

In a curve or scatter, the x axis has no named values: each mark is drawn at its measured x, with
the intervals of both quantities. An example is latency over the co-running bandwidth.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from chaosity.errors import UserError
from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.axis_order_and_labels import Axis, axis_title
from chaosity.figures.cache_step_marks import cache_step_legend, draw_cache_steps
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    FigureMark,
    ShownValueRange,
    best_mark,
    mark_rows,
)
from chaosity.figures.panel_grid_and_series import (
    ALONE_STYLE,
    LineStyle,
    Panel,
    draw_panels,
    panel_width,
    predicted_style,
    series_legend,
    series_style,
)
from chaosity.figures.svg_hover_texts import IGNORE
from chaosity.store.left_out_points import PREDICTED
from chaosity.units import UnitScale, choose_scale, format_binary_bytes, format_count, metric_words

_MOST_TICKS, _MOST_POSITION_TICKS = 12, 10
# Width of a group of marks with equal x: share of the axis, and of the gap to the next value.
_WIDEST_SPREAD, _SHARE_OF_GAP = 0.12, 0.8
# Room around a label on a logarithmic axis, inches.
_LABEL_ROOM = 0.12


def draw_line_chart(data: FigureData, limits: ShownValueRange) -> tuple[Figure, dict[str, str]]:
    """Return a line chart, and the hover text of each mark by the mark's id in the SVG.

    The data has the axis "x"; "series" and "panels" are optional.

    Raises:
        UserError: a logarithmic x axis has a value that is not a number above zero.
    """
    axis, width = data.axes["x"], panel_width(data)
    positions = _x_positions(data)
    linear = data.spec.x_scale == "linear"
    label_height = _upright_label_height(axis, width) if linear else 0.0

    def fill_panel(panel: Panel) -> None:
        _fill_line_panel(panel, positions)
        if linear:
            _label_values(panel, axis, positions, upright=label_height > 0.0)
        else:
            _label_powers(panel, positions, width)

    return draw_panels(
        data,
        limits,
        x_title=axis.title,
        legend=_line_legend(data),
        fill=fill_panel,
        label_height=label_height,
    )


def _upright_label_height(axis: Axis, width: float) -> float:
    """Return the height of upright tick labels in inches; 0 if horizontal labels fit the width."""
    labels = [axis.tick_label(value) for value in axis.values]
    widest = max(style.text_width(text, style.SMALL_POINTS) for text in labels)
    plain = all(value.kind == "number" for value in axis.values)
    return 0.0 if plain or widest * len(labels) < 0.9 * width else widest


def _line_legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the legend entries: series, marks measured alone, failed marks, and bounds."""
    entries = series_legend(data)
    if _has_separate_marks(data):
        entries = [(text, _point_style(look)) for text, look in entries]
    if entries and data.marks["series"].isna().any():
        entries.append(("alone", LineStyle(color=style.GREY, dashes=(2, 2), marker="")))
    if entries and (data.marks["status"] == "failed").any():
        entries.append(("failed", LineStyle(color=style.FAILED, marker="x", linestyle="none")))
    if (data.marks["status"] == PREDICTED).any():
        look = predicted_style(LineStyle(color=style.GREY, marker="o"))
        entries.append((style.STATUS_TEXTS[PREDICTED], look))
    entries += [(bound.title, _bound_style(index)) for index, bound in enumerate(data.bounds)]
    return entries + cache_step_legend(data) if data.spec.cache_steps else entries


def _bound_style(index: int) -> LineStyle:
    """Return the style of a bound: dashed and without markers, since it is not a series."""
    dashes = [look for look in style.DASHES if look]
    return LineStyle(color=style.GREY, marker="", dashes=dashes[index % len(dashes)])


def _draw_bounds(panel: Panel, positions: dict[str, float]) -> None:
    """Draw bounds as dashed lines; a bound that varies along x has the colour of its series."""
    data, factor = panel.data, panel.limits.scale.factor
    names = data.value_names_on_axis("series")
    for index, bound in enumerate(data.bounds):
        look: LineStyle = {**_bound_style(index), "lw": 1.1, "zorder": 1}
        if not bound.along_x:
            level = bound.bound_of_mark(panel.name, None, None)
            if level is not None:
                dashes, color = look["dashes"], look["color"]
                panel.axes.axhline(level / factor, color=color, dashes=dashes, lw=1.1, zorder=1)
            continue
        for number, series in enumerate(names):
            known = {name: bound.bound_of_mark(panel.name, series, name) for name in positions}
            points = sorted((positions[n], v / factor) for n, v in known.items() if v is not None)
            own = look.copy()
            if len(names) > 1:
                own["color"] = series_style(number)["color"]
            if len(points) == 1:  # a line of a single point is not visible
                own |= LineStyle(marker="_", markersize=14)
            panel.axes.plot([x for x, _ in points], [y for _, y in points], **own)


def _fill_line_panel(panel: Panel, positions: dict[str, float]) -> None:
    """Draw all series of a panel."""
    data, marks = panel.data, panel.marks_of_panel
    low, high = min(positions.values()), max(positions.values())
    spread = high - low or 1.0
    separate = _has_separate_marks(data)
    margin = 0.5 if separate else 0.06 * spread
    panel.axes.set_xlim(low - margin, high + margin)
    names = data.value_names_on_axis("series")
    alone = marks[marks["series"].isna()] if "series" in data.axes else marks.iloc[:0]
    valid = alone[alone["status"] == "valid"]
    if len(valid) == 1:  # this mark is the reference of all series
        level = valid["median"].iloc[0] / panel.limits.scale.factor
        panel.axes.axhline(level, color=style.GREY, lw=0.9, dashes=(2, 2))
    _draw_bounds(panel, positions)
    draw_cache_steps(panel)
    step = min((b - a for a, b in pairwise(sorted(set(positions.values())))), default=1.0)

    best = best_mark(data) if data.spec.mark_best else None
    for index, name in enumerate(names):
        own = marks if name is None else marks[marks["series"] == name]
        # Marks at one x are drawn side by side, because overlapping intervals cannot be read.
        distance = 0.1 if separate else min(0.03, 0.12 / len(names)) * step
        aside = (index - (len(names) - 1) / 2) * distance
        points = [(positions[mark["x"]] + aside, mark) for mark in mark_rows(own)]
        points.sort(key=lambda point: point[0])
        look = series_style(index)
        panel.draw_series(points, _point_style(look) if separate else look, str(index))
        if best is not None and best.get("series") == name:
            x = positions[best["x"]] + aside
            ring = LineStyle(color=style.INK, marker="o", mfc="none", markersize=12)
            height = best["median"] / panel.limits.scale.factor
            panel.axes.plot([x], [height], clip_on=False, gid=f"best-{name}", **ring)
    points = [(positions[mark["x"]], mark) for mark in mark_rows(alone)]
    panel.draw_series(points, ALONE_STYLE, "alone")


def _has_separate_marks(data: FigureData) -> bool:
    """Return whether loads and their sums stand above names, which lines must not connect."""
    return data.spec.sum and not data.axes["x"].is_numeric


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
            data.spec.name_in_errors,
        )
    power = math.log2 if _has_powers_of_two(data) else math.log10
    return {value.name: power(value.number) for value in axis.values}


def _has_powers_of_two(data: FigureData) -> bool:
    """Return whether ticks of a logarithmic x axis are powers of two; for sizes they always are."""
    return data.axes["x"].has_byte_sizes or data.spec.x_scale == "log2"


def _label_values(panel: Panel, axis: Axis, positions: dict[str, float], *, upright: bool) -> None:
    """Set ticks at the measured values, or at round numbers when there are too many values."""
    axes, ticks = panel.axes, sorted(set(positions.values()))
    if len(ticks) > _MOST_TICKS and axis.is_numeric:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    if panel.lowest:
        labels = {positions[value.name]: axis.tick_label(value) for value in axis.values}
        axes.set_xticks(ticks, [labels[tick] for tick in ticks], rotation=90 if upright else 0)


def _label_powers(panel: Panel, positions: dict[str, float], width: float) -> None:
    """Set ticks at whole powers, with as many labels as fit the width."""
    sizes = panel.data.axes["x"].has_byte_sizes
    base = 2.0 if _has_powers_of_two(panel.data) else 10.0
    # Powers beyond the values would be labelled where the figure ends.
    low, high = min(positions.values()), max(positions.values())
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    if not powers:  # a single value between two powers
        powers = sorted({math.floor(low), math.ceil(high)})
        panel.axes.set_xlim(powers[0] - 0.1, powers[-1] + 0.1)
    write = format_binary_bytes if sizes else "{:g}".format
    texts = {power: write(base**power) for power in powers}
    # Every tenth power of two changes the unit: steps that divide ten keep round labels.
    for step in (1, 2, 5, 10, 20):
        labelled = [power for power in powers if power % step == 0] or powers[:1]
        needed = sum(style.text_width(texts[p], style.SMALL_POINTS) + _LABEL_ROOM for p in labelled)
        if needed <= width:
            break
    panel.axes.set_xticks(labelled, [texts[power] for power in labelled])
    panel.axes.set_xticks([power for power in powers if power not in labelled], minor=True)
    panel.axes.tick_params(axis="x", which="minor", length=1.5, color=style.RULE)


def draw_curve_or_scatter(
    data: FigureData, limits: ShownValueRange
) -> tuple[Figure, dict[str, str]]:
    """Return a curve or scatter, and the hover text of each mark by the mark's id in the SVG.

    The data has measured positions; the axes "series" and "panels" are optional.
    """
    positions = data.marks[["position", "position_high"]].to_numpy(float).ravel()
    x_scale = choose_scale(data.x_metric, positions)
    return draw_panels(
        data,
        limits,
        x_title=_x_title(data, x_scale),
        legend=_curve_legend(data),
        fill=lambda panel: _fill_curve_panel(panel, x_scale),
    )


def _x_title(data: FigureData, scale: UnitScale) -> str:
    """Return the title of the x axis: "Traffic (GB/s)"."""
    text = data.spec.x_title
    if text is None and data.x_is_metric_of_other_load:
        text = f"{data.measured_x_column.split('.')[0]} {metric_words(data.x_metric)}"
    text = text or axis_title(data.measured_x_column, ())
    text = text[:1].upper() + text[1:]
    if data.spec.kind == "scatter" and data.marks["position"].duplicated().any():
        text += ", equal values side by side"
    return f"{text} ({scale.symbol})" if scale.symbol else text


def _curve_legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the legend entries: the series, and marks measured alone."""
    entries = series_legend(data)
    if data.spec.kind == "scatter":
        entries = [(text, _point_style(look)) for text, look in entries]
    if entries and data.marks["series"].isna().any():
        entries.append(("no co-running load", ALONE_STYLE))
    return entries


def _point_style(look: LineStyle) -> LineStyle:
    """Return a series' style without line; hollow markers keep overlapping marks visible."""
    return LineStyle(color=look["color"], marker=look["marker"], linestyle="none", mfc="white")


def _fill_curve_panel(panel: Panel, x_scale: UnitScale) -> None:
    """Draw all series of a panel."""
    axes, data, table = panel.axes, panel.data, panel.marks_of_panel
    _set_x_axis(panel, x_scale)
    joined = data.spec.kind == "curve"
    if not joined and not x_scale.symbol:
        table = _spread_equal_positions(table)
    alone = table[table["series"].isna()] if "series" in data.axes else table.iloc[:0]
    without = _valid_points(alone, x_scale)
    describe_position = partial(_position_text, data=data, x_scale=x_scale)
    for index, name in enumerate(data.value_names_on_axis("series")):
        own = _valid_points(table if name is None else table[table["series"] == name], x_scale)
        look = series_style(index) if joined else _point_style(series_style(index))
        if joined and own and not alone.empty:  # the line starts at the mark measured alone
            first = without[:1] + own[:1]
            heights = np.array([mark["median"] for _, mark in first])
            line: LineStyle = {**look, "marker": "", "lw": 1.4, "zorder": 2}
            axes.plot([x for x, _ in first], heights / panel.limits.scale.factor, **line)
        panel.draw_series(own, look, str(index), describe_position)
    panel.draw_series(without, ALONE_STYLE, "alone", describe_position)
    failed = int((table["status"] == "failed").sum())
    if failed:
        write = partial(axes.text, transform=axes.transAxes, size=style.SMALL_POINTS, gid=IGNORE)
        write(0.99, 0.03, f"{format_count(failed, 'point')} failed", color=style.FAILED, ha="right")


def _spread_equal_positions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the marks; those with equal positions are moved side by side, sorted by value.

    The column `true_position` keeps the measured position.
    """
    values = np.sort(table.loc[table["status"] == "valid", "position"].dropna().unique())
    if not len(values):
        return table
    spread = values[-1] - values[0] or 1.0
    nearest = float(np.diff(values).min()) if len(values) > 1 else spread
    width = min(_WIDEST_SPREAD * spread, _SHARE_OF_GAP * nearest)
    medians = table.groupby("position")["median"]
    ranks, sizes = medians.rank(method="first"), medians.transform("count")
    aside = (ranks - (sizes + 1.0) / 2.0) / sizes.clip(lower=2.0)
    moved = table["position"] + width * aside.fillna(0.0)
    return table.assign(position=moved, true_position=table["position"])


def _valid_points(table: pd.DataFrame, x_scale: UnitScale) -> list[tuple[float, FigureMark]]:
    """Return each valid mark with its position in the unit of the x axis, sorted by position."""
    valid = table[(table["status"] == "valid") & table["position"].notna()]
    valid = valid.sort_values(["position", "median"], kind="stable")
    columns = ["position", "position_low", "position_high"]
    valid = valid.assign(**{name: valid[name] / x_scale.factor for name in columns})
    if not x_scale.symbol:  # a position from a column has no interval
        valid = valid.assign(position_low=math.nan, position_high=math.nan)
    return [(mark["position"], mark) for mark in mark_rows(valid)]


def _position_text(x: float, mark: FigureMark, data: FigureData, x_scale: UnitScale) -> str:
    """Return the position of a mark for its hover text: "at 41.2 GB/s", "distance 12"."""
    value = mark.get("true_position", x * x_scale.factor)
    column = data.measured_x_column.split(".")[-1].replace("_", " ")
    text = x_scale.text(value) if x_scale.symbol else f"{value:g}"
    return f"{'at' if data.x_is_metric_of_other_load else column} {text}"


def _set_x_axis(panel: Panel, x_scale: UnitScale) -> None:
    """Start the x axis at zero for a measured quantity; else fit the axis to the values."""
    axes, data = panel.axes, panel.data
    columns = ["position", "position_high"] if x_scale.symbol else ["position"]
    known = data.marks.loc[data.marks["status"] == "valid", columns].to_numpy(float)
    known = known[np.isfinite(known)] / x_scale.factor
    ticks = sorted(set(known))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if x_scale.symbol:
        high = float(known.max()) if len(known) else 1.0
        axes.set_xlim(-0.02 * high, 1.05 * high or 1.0)
    elif ticks:
        spread = ticks[-1] - ticks[0] or 1.0
        axes.set_xlim(ticks[0] - 0.09 * spread, ticks[-1] + 0.09 * spread)
        if len(ticks) <= _MOST_POSITION_TICKS:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
