"""Place marks at a measured x, such as the latency over the traffic of other cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.figures.axis_order_and_labels import axis_title
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    FigureMark,
    ShownValueRange,
    mark_rows,
)
from chaosity.figures.mark_row import ALONE, mark_row, series_key
from chaosity.figures.vega_lite import Row
from chaosity.units import UnitScale, format_count, metric_words

_MOST_POSITION_TICKS = 10
# Width of a group of marks with equal x: share of the axis, and of the gap to the next value.
_WIDEST_SPREAD, _SHARE_OF_GAP = 0.12, 0.8


def valid_numbers(data: FigureData, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return the numbers in columns of the valid marks, without those that are unknown."""
    valid = data.marks["status"] == "valid"
    numbers: NDArray[np.float64] = data.marks.loc[valid, list(columns)].to_numpy(float).ravel()
    return numbers[np.isfinite(numbers)]


def x_title(data: FigureData, scale: UnitScale) -> str:
    """Return the title of the x axis: "Traffic (GB/s)"."""
    text = data.spec.x_title
    if text is None and data.x_is_metric_of_other_load:
        text = f"{data.measured_x_column.split('.')[0]} {metric_words(data.x_metric)}"
    text = text or axis_title(data.measured_x_column, ())
    text = text[:1].upper() + text[1:]
    if data.spec.kind == "scatter" and data.marks["position"].duplicated().any():
        text += ", equal values side by side"
    return f"{text} ({scale.symbol})" if scale.symbol else text


def measured_x(data: FigureData, scale: UnitScale) -> dict[str, Any]:
    """Return the x axis: from zero for a measured quantity, else fitted to the values."""
    columns = ["position", "position_high"] if scale.symbol else ["position"]
    known = valid_numbers(data, columns) / scale.factor
    axis: dict[str, Any] = {"title": None, "grid": False, "tickCount": 6}
    high = float(known.max()) if len(known) else 1.0
    domain = [-0.02 * high, 1.05 * high or 1.0]
    if not scale.symbol and len(known):
        ticks = sorted(set(map(float, known)))
        spread = ticks[-1] - ticks[0] or 1.0
        domain = [ticks[0] - 0.09 * spread, ticks[-1] + 0.09 * spread]
        if len(ticks) <= _MOST_POSITION_TICKS:
            axis["values"] = ticks
    shown = {"domain": domain, "nice": False, "zero": False}
    return {"field": "x", "type": "quantitative", "axis": axis, "scale": shown}


def measured_rows(data: FigureData, limits: ShownValueRange, x_scale: UnitScale) -> Iterator[Row]:
    """Yield a row for each mark at its measured x, and the number of those that failed."""
    marks = data.marks
    valid = marks[(marks["status"] == "valid") & marks["position"].notna()]
    if data.spec.kind == "scatter" and not x_scale.symbol:
        valid = _spread_equal_positions(valid, [role for role in ("panels",) if role in data.axes])
    starts: dict[tuple[str | None, str], Row] = {}
    alone: dict[str | None, Row] = {}
    for mark in mark_rows(valid.sort_values(["position", "median"], kind="stable")):
        at = _position_text(mark, data, x_scale)
        row = mark_row(mark, data, limits, at) | {"key": series_key(mark, data)}
        row |= {"x": mark["position"] / x_scale.factor, "panel": mark.get("panels")}
        row["line"] = row["key"]
        if x_scale.symbol and not pd.isna(mark["position_low"]):
            ends = ("position_low", mark["position_low"]), ("position_high", mark["position_high"])
            row |= {key.replace("position", "x"): end / x_scale.factor for key, end in ends}
        if "series" in data.axes and row["key"] == ALONE:
            row["role"] = ALONE
            alone.setdefault(row["panel"], row)
        else:
            starts.setdefault((row["panel"], row["key"]), row)
        yield row
    for (panel, _), row in starts.items():  # the line starts at the mark measured alone
        if panel in alone:
            at_start = {key: alone[panel][key] for key in ("x", "value")}
            yield {
                **at_start,
                "role": "start",
                "panel": panel,
                **{k: row[k] for k in ("key", "line")},
            }
    failed = marks[marks["status"] == "failed"]
    for panel in data.value_names_on_axis("panels"):
        count = len(failed if panel is None else failed[failed["panels"] == panel])
        if count:
            yield {
                "role": "remark",
                "panel": panel,
                "text": f"{format_count(count, 'point')} failed",
            }


def _spread_equal_positions(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the marks; those with equal positions are moved side by side, sorted by value.

    The column `true_position` keeps the measured position.
    """
    values = np.sort(table["position"].unique())
    if not len(values):
        return table
    spread = values[-1] - values[0] or 1.0
    nearest = float(np.diff(values).min()) if len(values) > 1 else spread
    width = min(_WIDEST_SPREAD * spread, _SHARE_OF_GAP * nearest)
    medians = table.groupby([*by, "position"])["median"]
    ranks, sizes = medians.rank(method="first"), medians.transform("count")
    aside = (ranks - (sizes + 1.0) / 2.0) / sizes.clip(lower=2.0)
    moved = table["position"] + width * aside.fillna(0.0)
    return table.assign(position=moved, true_position=table["position"])


def _position_text(mark: FigureMark, data: FigureData, x_scale: UnitScale) -> str:
    """Return the position of a mark for its hover text: "at 41.2 GB/s", "distance 12"."""
    value = mark.get("true_position", mark["position"])
    column = data.measured_x_column.split(".")[-1].replace("_", " ")
    text = x_scale.text(value) if x_scale.symbol else f"{value:g}"
    return f"{'at' if data.x_is_metric_of_other_load else column} {text}"
