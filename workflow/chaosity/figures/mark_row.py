"""What the rows and axes of all figures share: value, hover text, legends and labels."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from chaosity.errors import printable_text
from chaosity.figures.axes import Axis
from chaosity.figures.figure_data import (
    FigureData,
    FigureMark,
    Role,
    ShownValueRange,
    has_number,
    shown_interval,
    shown_value,
)
from chaosity.figures.mark_texts import STATUS_TEXTS, hover_text
from chaosity.figures.vega_lite import WIDTH, Row, bar_hatch, template, text_width_points
from chaosity.store.left_out_points import PREDICTED
from chaosity.units import format_count

ALONE, NO_SERIES = "alone", ""
GREY = "#5f5f5f"
LEFT = 46.0  # points for the numbers and the title of the value axis
# Room below the lowest and above the highest value of a logarithmic axis, as a factor.
_LOG_ROOM = 1.15
# Lines beside marks, as the legend names them.
STEPS, CACHES = "latency steps up, between the grey sizes", "size of a cache by hwloc"


def mark_row(mark: FigureMark, data: FigureData, limits: ShownValueRange, at: str = "") -> Row:
    """Return what the row of a mark has in all figures; `at`: a measured x for the hover text."""
    scale = limits.scale
    row: Row = {
        "role": "value" if mark["status"] == "valid" else mark["status"],
        "hover": hover_text(mark, data, scale, at),
    }
    if has_number(mark):
        value, ends = shown_value(mark), shown_interval(mark)
        row |= {"value": value / scale.factor, "text": scale.number(value)}
        if not pd.isna(ends[0]):
            row |= {"low": ends[0] / scale.factor, "high": ends[1] / scale.factor}
    return row


def value_encoding(data: FigureData, limits: ShownValueRange) -> dict[str, Any]:
    """Return the value axis: from zero, or from the smallest value if it is logarithmic."""
    factor = limits.scale.factor
    axis: dict[str, Any] = {"title": None, "tickCount": 5, "domain": False, "ticks": False}
    if data.spec.value_scale == "log" and limits.least > 0.0:
        low, high = limits.least / factor / _LOG_ROOM, limits.high / factor * _LOG_ROOM
        steps = (1, 2, 5) if math.log10(limits.high / limits.least) < 2.5 else (1,)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        axis["values"] = [tick for tick in ticks if low <= tick <= high]
        axis |= {"format": "~g", "labelOverlap": False}
        scale: dict[str, Any] = {"type": "log", "domain": [low, high], "nice": False}
    else:
        scale = {"domain": [0.0, 1.04 * limits.high / factor], "nice": False}
    return {"field": "value", "type": "quantitative", "axis": axis, "scale": scale}


def lowest_shown_value(data: FigureData, limits: ShownValueRange) -> float:
    """Return the lower end of the value axis, where marks without a value stand."""
    low = value_encoding(data, limits)["scale"]["domain"][0]
    return float(low)


def legend_values(data: FigureData) -> dict[str, Any]:
    """Return the looks of the series, and of lines beside them, with their legends."""
    look = template("common")["series"]
    axis = data.axes.get("series")
    keys = [] if axis is None else [axis.legend_label(value) for value in axis.values]
    many = max(len(keys), 1)
    colours = [look["colours"][i % len(look["colours"])] for i in range(many)]
    turn = len(look["colours"])  # series beyond the palette reuse its colours with other shapes
    shapes = [look["shapes"][(i + i // turn) % len(look["shapes"])] for i in range(many)]
    fills = [f"url(#bar{i})" if bar_hatch(i) else colours[i] for i in range(many)]
    dashes = [look["dashes"][i % len(look["dashes"])] for i in range(many)]
    keys = keys or [NO_SERIES]
    statuses = set(data.marks["status"])
    shown = [*keys] if len(keys) > 1 else []
    if axis is not None and data.marks["series"].isna().any():
        keys, colours = [*keys, ALONE], [*colours, GREY]
        shapes, dashes, fills = [*shapes, "circle"], [*dashes, [2, 2]], [*fills, GREY]
        shown = [*(shown or keys[:1]), ALONE]
    guides, styles = [*dict.fromkeys(data.bounds["title"])], look["dashes"][1:]
    lines = [*zip(guides, (styles * len(guides)), strict=False)]
    if data.steps:
        lines.append((STEPS, [1, 0]))
    if data.cache_bytes:
        lines.append((CACHES, [1, 2]))
    legend = {"values": shown, "columns": _legend_columns(shown)} if shown else None
    if legend and PREDICTED in statuses and data.spec.kind != "bars":
        legend["title"] = "hollow: predicted"
    names = [name for name, _ in lines]
    guide_legend = {"symbolType": "stroke", "symbolSize": 180, "symbolStrokeColor": GREY}
    return {
        "keys": keys,
        "colours": colours,
        "shapes": shapes,
        "fills": fills,
        "lines": [*keys, *names],
        "line_dashes": [*dashes, *(dash for _, dash in lines)],
        "legend": legend,
        "guides": {"values": names, **guide_legend} if names else None,
        "states": state_legend(statuses - {"valid"}),
    }


def state_legend(statuses: set[str]) -> dict[str, Any] | None:
    """Return the legend of marks without a measured value; None without such marks."""
    known = [status for status in STATUS_TEXTS if status in statuses]
    if not known:
        return None
    words = f"({json.dumps(STATUS_TEXTS)})[datum.value]"
    stroke = {"symbolType": "square", "symbolStrokeColor": "#b8b8b8", "symbolStrokeWidth": 0.6}
    return {"values": known, "labelExpr": words, "orient": "bottom", "symbolSize": 70, **stroke}


def _legend_columns(texts: Sequence[str]) -> int:
    """Return how many legend entries fit side by side."""
    widest = max(text_width_points(text, 7.0) for text in texts) + 30.0
    return max(1, min(len(texts), int((WIDTH - LEFT) / widest)))


def series_key(mark: FigureMark, data: FigureData) -> str:
    """Return the legend entry of a mark."""
    if "series" not in data.axes:
        return NO_SERIES
    axis, name = data.axes["series"], mark.get("series")
    return axis.legend_label(axis.find_value_by_name(name)) if isinstance(name, str) else ALONE


def axis_label(data: FigureData, role: Role, name: str) -> str:
    """Return the label of a value on an axis; a node with fewer drives than others says so."""
    axis: Axis = data.axes[role]
    text = axis.tick_label(axis.find_value_by_name(name))
    few = _nodes_with_fewer_drives(data, role)
    return f"{text} ({format_count(few[name], 'drive')})" if name in few else text


def _nodes_with_fewer_drives(data: FigureData, role: Role) -> dict[str, int]:
    """Return the sets of all drives of one node that have fewer drives than the others."""
    axis: Axis = data.axes[role]
    alone = [v.name for v in axis.values if v.kind == "node_drives" and len(v.nodes) == 1]
    rows = data.measurements
    if len(alone) < 2 or "drives" not in rows:
        return {}
    counts = rows[rows[role].isin(alone)].groupby(role)["drives"].max().dropna()
    usual = counts.mode().max()
    return {str(name): int(count) for name, count in counts.items() if count < usual}


def axis_ticks(labels: Mapping[float, str]) -> dict[str, Any]:
    """Return an axis with ticks and their texts."""
    values = list(labels)
    # Inside JSON, a control character would be written in a form that Vega reads as the character.
    texts = json.dumps([printable_text(text) for text in labels.values()], ensure_ascii=False)
    return {"values": values, "labelExpr": f"{texts}[indexof({json.dumps(values)}, datum.value)]"}
