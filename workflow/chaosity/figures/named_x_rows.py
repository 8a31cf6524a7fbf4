"""Place marks over an axis of named values: side by side above them, or as bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from chaosity.errors import UserError
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    ShownValueRange,
    best_mark,
    mark_rows,
)
from chaosity.figures.mark_row import (
    ALONE,
    CACHES,
    NO_SERIES,
    STEPS,
    axis_label,
    axis_ticks,
    lowest_shown_value,
    mark_row,
    series_key,
)
from chaosity.figures.vega_lite import WIDTH, Row, text_width
from chaosity.units import format_binary_bytes

_MOST_TICKS = 12
_BAR_GAP, _ALL_BARS, _LOWEST_BAR, _HIGHEST_BAR = 9.0, 576.0, 7.5, 17.0  # points


def x_positions(data: FigureData) -> dict[str, float]:
    """Return the position of each value of x: its number, or its rank."""
    axis, scale = data.axes["x"], data.spec.x_scale
    if scale != "linear" and not (
        axis.is_numeric and all(value.number > 0.0 for value in axis.values)
    ):
        raise UserError(
            f"x_scale {scale} needs numbers above zero; {axis.column} has other values",
            data.spec.name_in_errors,
        )
    if axis.is_numeric:
        return {value.name: value.number for value in axis.values}
    return {value.name: float(rank) for rank, value in enumerate(axis.values)}


def _base(data: FigureData) -> float | None:
    """Return the base of a logarithmic x axis (2 for sizes); None for a linear axis."""
    if data.spec.x_scale == "linear":
        return None
    return 2.0 if data.axes["x"].has_byte_sizes or data.spec.x_scale == "log2" else 10.0


def _has_separate_marks(data: FigureData) -> bool:
    """Return whether loads and their sums stand above names, which lines must not connect."""
    return data.spec.sum and not data.axes["x"].is_numeric


def named_x(data: FigureData, places: dict[str, float], width: float) -> dict[str, Any]:
    """Return the x axis: ticks at the values, or at powers if it is logarithmic."""
    axis, base = data.axes["x"], _base(data)
    ticks = sorted(set(places.values()))
    shown: dict[str, Any] = {"title": None, "grid": False, "labelOverlap": False}
    if base is not None:
        powers = _powers(ticks, base)
        write = format_binary_bytes if axis.has_byte_sizes else "{:g}".format
        texts = {base**power: write(base**power) for power in powers}
        shown |= axis_ticks(_fitting_powers(texts, powers, base, width))
        low, high = (math.log(end, base) for end in (ticks[0], ticks[-1]))
        low, high = min(low, powers[0]), max(high, powers[-1])
        room = 0.06 * (high - low) or 0.1
        domain = [base ** (low - room), base ** (high + room)]
        scale = {"type": "log", "base": base, "domain": domain, "nice": False}
        return {"field": "x", "type": "quantitative", "axis": shown, "scale": scale}
    if len(ticks) <= _MOST_TICKS or not axis.is_numeric:
        labels = {places[value.name]: axis_label(data, "x", value.name) for value in axis.values}
        shown |= axis_ticks(labels)
        widest = max(text_width(text, 7.0) for text in labels.values())
        plain = all(value.kind == "number" for value in axis.values)
        if not plain and widest * len(labels) > 0.9 * width:
            shown |= {"labelAngle": -90, "labelAlign": "right", "labelBaseline": "middle"}
        if plain:  # numbers may be close together
            shown["labelOverlap"] = "greedy"
    else:
        shown |= {"tickCount": 8, "format": "d"}
    spread = ticks[-1] - ticks[0] or 1.0
    room = 0.5 if _has_separate_marks(data) else 0.06 * spread
    scale = {"domain": [ticks[0] - room, ticks[-1] + room], "nice": False, "zero": False}
    return {"field": "x", "type": "quantitative", "axis": shown, "scale": scale}


def _powers(ticks: Sequence[float], base: float) -> list[int]:
    """Return the whole powers within the values, or around values between two powers."""
    low, high = (math.log(end, base) for end in (ticks[0], ticks[-1]))
    inside = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    return list(inside) or [math.floor(low), math.ceil(high)]


def _fitting_powers(
    texts: dict[float, str], powers: Sequence[int], base: float, width: float
) -> dict[float, str]:
    """Return as many of the labels as fit a width; the others are ticks without a text."""
    # Every tenth power of two changes the unit: steps that divide ten keep round labels.
    for step in (1, 2, 5, 10, 20):
        labelled = {power for power in powers if power % step == 0} or set(powers[:1])
        if sum(text_width(texts[base**power], 7.0) + 9.0 for power in labelled) <= width:
            break
    return {base**power: texts[base**power] if power in labelled else "" for power in powers}


def named_rows(
    data: FigureData, limits: ShownValueRange, places: dict[str, float]
) -> Iterator[Row]:
    """Yield a row for each mark, the ring of the best mark, and the level of a mark alone."""
    names, base = data.value_names_on_axis("series"), _base(data)
    ordered = sorted(
        places.values() if base is None else (math.log(x, base) for x in places.values())
    )
    step = min((b - a for a, b in pairwise(dict.fromkeys(ordered))), default=1.0)
    # Marks at one x are drawn side by side, because overlapping intervals cannot be read.
    many = len(names)
    distance = 0.1 if _has_separate_marks(data) else min(0.03, 0.12 / many) * step
    best = best_mark(data) if data.spec.mark_best else None
    floor = lowest_shown_value(data, limits)
    ranks = {name: rank for rank, name in enumerate(names)}
    marks = mark_rows(data.marks)
    for mark in sorted(marks, key=lambda m: (places[m["x"]], ranks.get(m.get("series"), many))):
        row = mark_row(mark, data, limits) | {
            "key": series_key(mark, data),
            "panel": mark.get("panels"),
        }
        series, x = mark.get("series"), places[mark["x"]]
        if "series" in data.axes and not isinstance(series, str):
            row["role"] = ALONE if row["role"] == "value" else row["role"]
        else:
            index = 0 if "series" not in data.axes else names.index(series)  # type: ignore[arg-type]
            aside = (index - (many - 1) / 2) * distance
            x = x + aside if base is None else x * base**aside
        row |= {"x": x, "place": mark["x"], "line": row["key"]}
        row.setdefault("value", floor)
        yield row
        if best is not None and all(best.get(role) == mark.get(role) for role in data.axes):
            yield {**row, "role": "best"}
    if "series" in data.axes:
        yield from _levels_alone(data, limits)


def _levels_alone(data: FigureData, limits: ShownValueRange) -> Iterator[Row]:
    """Yield a line for a panel's only mark outside all series, the reference of all series."""
    marks = data.marks
    valid = marks[marks["series"].isna() & (marks["status"] == "valid")]
    for panel in data.value_names_on_axis("panels"):
        own = valid if panel is None else valid[valid["panels"] == panel]
        if len(own) == 1:
            level = float(own["median"].iloc[0]) / limits.scale.factor
            yield {"role": "alone_level", "panel": panel, "value": level}


def rows_beside_marks(
    data: FigureData, limits: ShownValueRange, places: dict[str, float]
) -> Iterator[Row]:
    """Yield the bounds of the marks, the steps of latency and the sizes of caches."""
    factor = limits.scale.factor
    series = data.axes.get("series")
    for bound in data.bounds:
        for panel in data.value_names_on_axis("panels"):
            if not bound.along_x:
                level = bound.bound_of_mark(panel, None, None)
                if level is not None:
                    yield _bound_row("bound", bound.title, panel, level / factor)
                continue
            for name in data.value_names_on_axis("series"):
                known = {x: bound.bound_of_mark(panel, name, x) for x in places}
                ends = sorted((places[x], level) for x, level in known.items() if level is not None)
                role = "bound_along_x" if len(ends) > 1 else "bound_at_one_x"
                key = NO_SERIES
                if series is not None and name is not None:
                    key = series.legend_label(series.find_value_by_name(name))
                for x, level in ends:
                    row = _bound_row(role, bound.title, panel, level / factor)
                    yield row | {"x": x, "key": key}
    for step in data.steps:
        end = step.end_bytes.median
        within = {"low": step.below_bytes, "high": step.above_bytes, "line": STEPS}
        yield {"role": "step", "x": end, "text": format_binary_bytes(end), **within}
    sizes = places.values()
    for cache, size in data.cache_bytes:
        if sizes and min(sizes) <= size <= max(sizes):
            yield {"role": "cache", "x": float(size), "text": cache, "line": CACHES}


def _bound_row(role: str, title: str, panel: str | None, value: float) -> Row:
    return {"role": role, "line": title, "panel": panel, "value": value}


def place_bars(data: FigureData, rows: Sequence[Row]) -> dict[str, Any]:
    """Give each mark its slot from top to bottom; return the axis of the slots and its size.

    A group has room for its own bars only: other groups may have other series.
    """
    order = {name: rank for rank, name in enumerate(data.axes["x"].value_names)}
    keys = {value: rank for rank, value in enumerate(dict.fromkeys(row.get("key") for row in rows))}
    series = data.axes.get("series")
    if series is not None:
        keys = {series.legend_label(value): rank for rank, value in enumerate(series.values)}
    marks = [row for row in rows if "place" in row and row["role"] != "best"]
    marks.sort(key=lambda row: (order[row["place"]], keys.get(row["key"], len(keys))))
    high = min(_HIGHEST_BAR, max(_LOWEST_BAR, _ALL_BARS / max(len(marks), 1)))
    top, middles, last = _BAR_GAP / 2, dict[float, str](), None
    for row in marks:
        if last not in (None, row["place"]):
            top += _BAR_GAP
        last = row["place"]
        row |= {"slot": top + 0.7, "slot2": top + high - 0.7, "slot_middle": top + high / 2}
        top += high
    axis = data.axes["x"]
    height = top + _BAR_GAP / 2
    titled = height > text_width(axis.title, 8.0)
    for name in order:
        own = [row["slot_middle"] for row in marks if row["place"] == name]
        if own:
            label = axis_label(data, "x", name) if titled else axis.find_value_by_name(name).long
            middles[sum(own) / len(own)] = label
    shown: dict[str, Any] = {"title": axis.title if titled else None, "ticks": False, "grid": False}
    shown |= {"domain": False, "labelFontSize": 8, **axis_ticks(middles)}
    scale = {"domain": [0.0, height], "reverse": True, "nice": False}
    slot = {"field": "slot", "type": "quantitative", "axis": shown, "scale": scale}
    labels = max((text_width(text, 8.0) for text in middles.values()), default=0.0)
    return {"slot": slot, "bars_height": height, "bars_width": min(380.0, WIDTH - 80.0 - labels)}
