"""Curves and scatters over a measured quantity, such as latency over the co-running bandwidth.

The x axis has no named values: each mark stands where it was measured, with the intervals of both
quantities.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from chaosity.figures import figure_style as style
from chaosity.figures.axis_order_and_labels import axis_title
from chaosity.figures.figure_header_and_legends import TextStyle
from chaosity.figures.figure_marks_and_axes import FigureData, FigureMark, mark_rows
from chaosity.figures.mark_labels_and_hover_texts import hover_text
from chaosity.figures.panel_grid_and_series import (
    ALONE_STYLE,
    LineStyle,
    Panel,
    draw_panels,
    draw_series,
    series_legend,
    series_style,
)
from chaosity.figures.svg_hover_texts import IGNORE
from chaosity.figures.value_axis_limits import ValueLimits
from chaosity.units import Scale, choose_scale, format_count, metric_words

_MOST_TICKS = 10
# Width of a group of marks with equal x: share of the axis, and of the gap to the next value.
_WIDEST_SPREAD, _SHARE_OF_GAP = 0.12, 0.8


def draw_curve_or_scatter(data: FigureData, limits: ValueLimits) -> tuple[Figure, dict[str, str]]:
    """Draw a curve or a scatter.

    Args:
        data: with measured positions; the axes "series" and "panels" are optional.
        limits: of the value axis.

    Returns:
        The figure, and the hover text of each mark by the mark's id in the SVG.
    """
    x_scale = choose_scale(
        data.x_metric, data.marks[["position", "position_high"]].to_numpy(float).ravel()
    )
    texts: dict[str, str] = {}
    figure = draw_panels(
        data,
        limits,
        x_title=_x_title(data, x_scale),
        legend=_legend(data),
        label_height=0.0,
        fill=lambda panel: _fill_panel(panel, data, limits, x_scale, texts),
    )
    return figure, texts


def _x_title(data: FigureData, scale: Scale) -> str:
    """Return the title of the x axis: "Traffic (GB/s)"."""
    text = data.spec.x_title
    if text is None and data.x_is_metric_of_other_load:
        text = f"{data.measured_x_column.split('.')[0]} {metric_words(data.x_metric)}"
    text = text or axis_title(data.measured_x_column, ())
    text = text[:1].upper() + text[1:]
    if data.spec.kind == "scatter" and data.marks["position"].duplicated().any():
        text += ", equal values side by side"
    return f"{text} ({scale.symbol})" if scale.symbol else text


def _legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the legend: the series, and marks measured alone."""
    entries = series_legend(data)
    if data.spec.kind == "scatter":
        entries = [(text, _point_style(look)) for text, look in entries]
    if entries and data.marks["series"].isna().any():
        entries.append(("no co-running load", ALONE_STYLE))
    return entries


def _point_style(look: LineStyle) -> LineStyle:
    """Return the look of a series without its line, hollow so that touching marks differ."""
    return LineStyle(color=look["color"], marker=look["marker"], linestyle="none", mfc="white")


def _fill_panel(
    panel: Panel, data: FigureData, limits: ValueLimits, x_scale: Scale, texts: dict[str, str]
) -> None:
    """Draw all series of a panel and add their hover texts to `texts`."""
    axes, table = panel.axes, panel.marks_of_panel(data.marks)
    _set_x_axis(panel, data, x_scale)
    joined = data.spec.kind == "curve"
    if not joined and not x_scale.symbol:
        table = _spread_equal_positions(table)
    factor = limits.scale.factor
    alone = table[table["series"].isna()] if "series" in data.axes else table.iloc[:0]
    without = _valid_points(alone, x_scale)

    def draw(points: list[tuple[float, FigureMark]], look: LineStyle, identity: str) -> None:
        identity = f"mark-{panel.number}-{identity}"
        draw_series(axes, points, look, factor, identity)
        for number, (x, mark) in enumerate(points):
            where = _position_text(x, mark, data, x_scale)
            texts[f"{identity}-{number}"] = hover_text(mark, data, limits.scale, where)

    for index, name in enumerate(data.axis_names("series")):
        own = _valid_points(table if name is None else table[table["series"] == name], x_scale)
        look = series_style(index) if joined else _point_style(series_style(index))
        if joined and own and not alone.empty:  # the line starts at the mark measured alone
            first = without[:1] + own[:1]
            heights = np.array([mark["median"] for _, mark in first]) / factor
            line: LineStyle = {**look, "marker": "", "lw": 1.4, "zorder": 2}
            axes.plot([x for x, _ in first], heights, **line)
        draw(own, look, str(index))
    draw(without, ALONE_STYLE, "alone")
    failed = int((table["status"] == "failed").sum())
    if failed:
        look_failed = TextStyle(size=style.SMALL_POINTS, color=style.FAILED, ha="right", gid=IGNORE)
        text = f"{format_count(failed, 'point')} failed"
        axes.text(0.99, 0.03, text, transform=axes.transAxes, **look_failed)


def _spread_equal_positions(table: pd.DataFrame) -> pd.DataFrame:
    """Return marks with equal positions side by side, in order of their values.

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


def _valid_points(table: pd.DataFrame, x_scale: Scale) -> list[tuple[float, FigureMark]]:
    """Return position and mark of each valid mark, in order, in units of the x axis."""
    valid = table[(table["status"] == "valid") & table["position"].notna()]
    valid = valid.sort_values(["position", "median"], kind="stable")
    columns = ["position", "position_low", "position_high"]
    valid = valid.assign(**{name: valid[name] / x_scale.factor for name in columns})
    if not x_scale.symbol:  # the position is a column, not a measurement: no interval
        valid = valid.assign(position_low=math.nan, position_high=math.nan)
    return [(mark["position"], mark) for mark in mark_rows(valid)]


def _position_text(x: float, mark: FigureMark, data: FigureData, x_scale: Scale) -> str:
    """Return the position of a mark for its hover text: "at 41.2 GB/s", "distance 12"."""
    value = mark.get("true_position", x * x_scale.factor)
    column = data.measured_x_column.split(".")[-1].replace("_", " ")
    text = x_scale.text(value) if x_scale.symbol else f"{value:g}"
    return f"{'at' if data.x_is_metric_of_other_load else column} {text}"


def _set_x_axis(panel: Panel, data: FigureData, x_scale: Scale) -> None:
    """Start the x axis at zero for a measured quantity, else fit it to the values."""
    axes = panel.axes
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
        if len(ticks) <= _MOST_TICKS:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
