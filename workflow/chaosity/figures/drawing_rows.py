"""Turn the data of a figure into rows of a table: one for each drawn mark, label or line.

The `role` of a row says what is drawn. Roles of marks are `value`, `predicted`, `failed`,
`missing`, `left_out`, `unmeasured`, `absent` (the mark has no planned point) and `alone` (the mark
is outside all series). Further rows are bounds, steps, labels, and the ring around the best mark. A
template of ``templates/figures`` has a layer for each role. The columns with the position of a row
depend on the axes of the data, and not on the kind of the figure:

- with axes rows and columns: `x`, `x2`, `y`, `y2` are the edges of a cell, `xm`, `ym` its middle; -
with an axis x: `x`, and for bars the edges `slot`, `slot2` and the middle `slot_middle`; - with a
measured x: `x`, and the ends of its interval `x_low`, `x_high`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.errors import UserError
from chaosity.figures.cell_rows import heat_map_rows
from chaosity.figures.figure_data import (
    FigureData,
    FigureMark,
    ShownValueRange,
    axis_title,
    best_mark,
    marks_of_table,
)
from chaosity.figures.marks import (
    ALONE,
    CACHES,
    LEFT_MARGIN_POINTS,
    NO_SERIES,
    STEPS,
    axis_label,
    axis_ticks,
    data_row_of_mark,
    legend_entry_of_mark,
    lowest_shown_value,
    panel_title,
    provenance_text,
    series_looks_and_legends,
    shows_simulated_machine,
    value_axis_encoding,
    value_axis_title,
)
from chaosity.figures.vega_lite import FIGURE_WIDTH_POINTS, Drawing, Row, text_width_points
from chaosity.records.record_format import SIMULATED
from chaosity.units import (
    UnitScale,
    choose_scale,
    format_binary_bytes,
    format_count,
    metric_in_words,
)

_MOST_TICKS_ON_AXIS = 12
_BAR_GAP, _ALL_BARS, _LOWEST_BAR, _HIGHEST_BAR = 9.0, 576.0, 7.5, 17.0  # in points
_MOST_POSITION_TICKS = 10
# Largest width of a group of marks with equal x: the first number is a share of the axis, and the
# second number is a share of the distance to the nearest other x.
_WIDEST_SPREAD, _SHARE_OF_GAP = 0.12, 0.8


def drawing_of_figure(data: FigureData, limits: ShownValueRange) -> Drawing:
    """Return the drawing of a figure: its rows and the values that its template needs.

    Raises:
        UserError: a logarithmic x axis has a value that is not a number above zero.
    """
    title, about = data.title, provenance_text(data)
    if shows_simulated_machine(data):  # a part cut out of the picture has the title too
        title = f"{title}\N{NO-BREAK SPACE}\N{MIDDLE DOT}\N{NO-BREAK SPACE}{SIMULATED.upper()}"
    value, value_title = value_axis_encoding(data, limits), value_axis_title(data, limits.scale)
    values: dict[str, Any] = {
        "value": value,
        "value_title": value_title,
        "titled_axis": {**value["axis"], "title": value_title},
        **series_looks_and_legends(data),
    }
    if "rows" in data.axes:
        rows, placed = heat_map_rows(data, limits)
    else:
        rows, placed = _rows_on_axis(data, limits)
    return Drawing(data.spec.template or data.spec.kind, title, about, rows, values | placed)


def _rows_on_axis(data: FigureData, limits: ShownValueRange) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of a figure with an x axis and panels, and the values for its template."""
    panels = data.tick_names_on_axis("panels")
    columns = _column_count(len(panels))
    width = (
        (FIGURE_WIDTH_POINTS - LEFT_MARGIN_POINTS - 14.0 * (columns - 1)) / columns
        if columns > 1
        else 392.0
    )
    height = {1: 190.0, 2: 148.0, 4: 104.0}.get(columns, 84.0)
    titles = {name: "" if name is None else panel_title(data, name) for name in panels}
    values: dict[str, Any] = {
        "columns": columns,
        "width": width,
        "height": height,
        "panels": list(titles.values()),
        "has_panels": panels != [None],
    }
    if data.spec.has_measured_x:
        scale = choose_scale(data.x_metric, _valid_numbers(data, ["position", "position_high"]))
        values |= {"x": _axis_of_measured_x(data, scale), "x_title": _x_title(data, scale)}
        found = list(_rows_at_measured_x(data, limits, scale))
    else:
        axis = data.axes["x"]
        places = _x_positions(data)
        values |= {"x": _axis_of_named_x(data, places, width), "x_title": axis.title}
        found = [*_rows_at_named_x(data, limits, places), *_rows_beside_marks(data, limits, places)]
        values |= _assign_slots_to_bars(data, found)
    for row in found:
        row["panel"] = titles[row.get("panel")]
    return found, values


def _column_count(panels: int) -> int:
    """Return how many panels are side by side if all panels must fit on a page."""
    if panels <= 4:
        return min(panels, 2)
    return 4 if panels <= 12 else 6


def _x_positions(data: FigureData) -> dict[str, float]:
    """Return value of x -> position on the axis: the number itself, or the rank of a text."""
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


def _base_of_logarithmic_x(data: FigureData) -> float | None:
    """Return the base of a logarithmic x axis (2 for sizes); None for a linear axis."""
    if data.spec.x_scale == "linear":
        return None
    return 2.0 if data.axes["x"].has_byte_sizes or data.spec.x_scale == "log2" else 10.0


def _has_separate_marks(data: FigureData) -> bool:
    """Return whether lines do not join marks, since the figure has sums of loads over names."""
    return data.spec.sum and not data.axes["x"].is_numeric


def _axis_of_named_x(data: FigureData, places: dict[str, float], width: float) -> dict[str, Any]:
    """Return the x axis for Vega-Lite, with ticks at the values, or at powers of a base."""
    axis, base = data.axes["x"], _base_of_logarithmic_x(data)
    ticks = sorted(set(places.values()))
    shown: dict[str, Any] = {"title": None, "grid": False, "labelOverlap": False}
    if base is not None:
        powers = _exponents_of_ticks(ticks, base)
        write = format_binary_bytes if axis.has_byte_sizes else "{:g}".format
        texts = {base**power: write(base**power) for power in powers}
        shown |= axis_ticks(_labels_that_fit(texts, powers, base, width))
        low, high = (math.log(end, base) for end in (ticks[0], ticks[-1]))
        low, high = min(low, powers[0]), max(high, powers[-1])
        room = 0.06 * (high - low) or 0.1
        domain = [base ** (low - room), base ** (high + room)]
        scale = {"type": "log", "base": base, "domain": domain, "nice": False}
        return {"field": "x", "type": "quantitative", "axis": shown, "scale": scale}
    if len(ticks) <= _MOST_TICKS_ON_AXIS or not axis.is_numeric:
        labels = {places[value.name]: axis_label(data, "x", value.name) for value in axis.values}
        shown |= axis_ticks(labels)
        widest = max(text_width_points(text, 7.0) for text in labels.values())
        plain = all(value.kind == "number" for value in axis.values)
        if not plain and widest * len(labels) > 0.9 * width:
            shown |= {"labelAngle": -90, "labelAlign": "right", "labelBaseline": "middle"}
        if plain:  # Vega leaves out numbers that would overlap
            shown["labelOverlap"] = "greedy"
    else:
        shown |= {"tickCount": 8, "format": "d"}
    spread = ticks[-1] - ticks[0] or 1.0
    room = 0.5 if _has_separate_marks(data) else 0.06 * spread
    scale = {"domain": [ticks[0] - room, ticks[-1] + room], "nice": False, "zero": False}
    return {"field": "x", "type": "quantitative", "axis": shown, "scale": scale}


def _exponents_of_ticks(ticks: Sequence[float], base: float) -> list[int]:
    """Return the exponents of the powers of `base` between the first and the last value.

    If there is no power between these values, return the exponents of the nearest powers.
    """
    low, high = (math.log(end, base) for end in (ticks[0], ticks[-1]))
    inside = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    return list(inside) or [math.floor(low), math.ceil(high)]


def _labels_that_fit(
    texts: dict[float, str], powers: Sequence[int], base: float, width: float
) -> dict[float, str]:
    """Return position -> label for as many ticks as fit into the width; other ticks have ""."""
    # The unit changes at each tenth power of two (KiB, MiB), so a step that divides ten labels each
    # unit alike.
    for step in (1, 2, 5, 10, 20):
        labelled = {power for power in powers if power % step == 0} or set(powers[:1])
        if sum(text_width_points(texts[base**power], 7.0) + 9.0 for power in labelled) <= width:
            break
    return {base**power: texts[base**power] if power in labelled else "" for power in powers}


def _rows_at_named_x(
    data: FigureData, limits: ShownValueRange, places: dict[str, float]
) -> Iterator[Row]:
    """Yield rows for marks, for the ring around the best mark, and for lines of lone marks."""
    names, base = data.tick_names_on_axis("series"), _base_of_logarithmic_x(data)
    ordered = sorted(
        places.values() if base is None else (math.log(x, base) for x in places.values())
    )
    step = min((b - a for a, b in pairwise(dict.fromkeys(ordered))), default=1.0)
    # Marks with the same x are drawn side by side, because overlapping intervals are illegible.
    many = len(names)
    distance = 0.1 if _has_separate_marks(data) else min(0.03, 0.12 / many) * step
    best = best_mark(data) if data.spec.mark_best else None
    floor = lowest_shown_value(data, limits)
    ranks = {name: rank for rank, name in enumerate(names)}
    marks = marks_of_table(data.marks)
    for mark in sorted(marks, key=lambda m: (places[m["x"]], ranks.get(m.get("series"), many))):
        row = data_row_of_mark(mark, data, limits) | {
            "key": legend_entry_of_mark(mark, data),
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
        yield from _lines_of_reference_level(data, limits)


def _lines_of_reference_level(data: FigureData, limits: ShownValueRange) -> Iterator[Row]:
    """Yield for each panel a horizontal line at the value of its mark outside all series."""
    marks = data.marks
    valid = marks[marks["series"].isna() & (marks["status"] == "valid")]
    for panel in data.tick_names_on_axis("panels"):
        own = valid if panel is None else valid[valid["panels"] == panel]
        if len(own) == 1:
            level = float(own["median"].iloc[0]) / limits.scale.factor
            yield {"role": "alone_level", "panel": panel, "value": level}


def _rows_beside_marks(
    data: FigureData, limits: ShownValueRange, places: dict[str, float]
) -> Iterator[Row]:
    """Yield rows for bounds of marks, for steps of latency, and for sizes of caches."""
    factor = limits.scale.factor
    series = data.axes.get("series")
    for (title, along_x), bound in data.bounds.groupby(["title", "along_x"], sort=False):
        for panel, own in bound.groupby("panels", dropna=False, sort=False):
            shared = {"line": title, "panel": None if pd.isna(panel) else panel}
            if not along_x:
                yield {"role": "bound", "value": own["value"].iloc[0] / factor, **shared}
                continue
            for name, line in own.groupby("series", dropna=False, sort=False):
                role = "bound_along_x" if len(line) > 1 else "bound_at_one_x"
                key = NO_SERIES
                if series is not None and isinstance(name, str):
                    key = series.legend_label(series.find_value_by_name(name))
                ends = zip(line["x"].map(places), line["value"] / factor, strict=True)
                for x, level in sorted(ends):
                    yield {"role": role, "x": x, "value": level, "key": key, **shared}
    for step in data.steps:
        end = step.end_bytes.median
        within = {"low": step.below_bytes, "high": step.above_bytes, "line": STEPS}
        yield {"role": "step", "x": end, "text": format_binary_bytes(end), **within}
    sizes = places.values()
    for cache, size in data.cache_bytes:
        if sizes and min(sizes) <= size <= max(sizes):
            yield {"role": "cache", "x": float(size), "text": cache, "line": CACHES}


def _assign_slots_to_bars(data: FigureData, rows: Sequence[Row]) -> dict[str, Any]:
    """Give each bar a slot from top to bottom; return the axis of the slots, and the sizes."""
    order = {name: rank for rank, name in enumerate(data.axes["x"].tick_names)}
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
    titled = height > text_width_points(axis.title, 8.0)
    for name in order:
        own = [row["slot_middle"] for row in marks if row["place"] == name]
        if own:
            label = (
                axis_label(data, "x", name) if titled else axis.find_value_by_name(name).long_label
            )
            middles[sum(own) / len(own)] = label
    shown: dict[str, Any] = {"title": axis.title if titled else None, "ticks": False, "grid": False}
    shown |= {"domain": False, "labelFontSize": 8, **axis_ticks(middles)}
    scale = {"domain": [0.0, height], "reverse": True, "nice": False}
    slot = {"field": "slot", "type": "quantitative", "axis": shown, "scale": scale}
    labels = max((text_width_points(text, 8.0) for text in middles.values()), default=0.0)
    return {
        "slot": slot,
        "bars_height": height,
        "bars_width": min(380.0, FIGURE_WIDTH_POINTS - 80.0 - labels),
    }


def _valid_numbers(data: FigureData, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return the finite numbers of the valid marks in the given columns."""
    valid = data.marks["status"] == "valid"
    numbers: NDArray[np.float64] = data.marks.loc[valid, list(columns)].to_numpy(float).ravel()
    return numbers[np.isfinite(numbers)]


def _x_title(data: FigureData, scale: UnitScale) -> str:
    """Return the title of the x axis with its unit: "Traffic (GB/s)"."""
    text = data.spec.x_title
    if text is None and data.x_is_metric_of_other_load:
        text = f"{data.measured_x_column.split('.')[0]} {metric_in_words(data.x_metric)}"
    text = text or axis_title(data.measured_x_column, ())
    text = text[:1].upper() + text[1:]
    if data.spec.kind == "scatter" and data.marks["position"].duplicated().any():
        text += ", equal values side by side"
    return f"{text} ({scale.symbol})" if scale.symbol else text


def _axis_of_measured_x(data: FigureData, scale: UnitScale) -> dict[str, Any]:
    """Return the x axis for Vega-Lite; it begins at zero if x has a unit."""
    columns = ["position", "position_high"] if scale.symbol else ["position"]
    known = _valid_numbers(data, columns) / scale.factor
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


def _rows_at_measured_x(
    data: FigureData, limits: ShownValueRange, x_scale: UnitScale
) -> Iterator[Row]:
    """Yield a row for each mark at its measured x, and a text on the number of failed marks."""
    marks = data.marks
    valid = marks[(marks["status"] == "valid") & marks["position"].notna()]
    if data.spec.kind == "scatter" and not x_scale.symbol:
        valid = _spread_equal_positions(valid, [role for role in ("panels",) if role in data.axes])
    starts: dict[tuple[str | None, str], Row] = {}
    alone: dict[str | None, Row] = {}
    for mark in marks_of_table(valid.sort_values(["position", "median"], kind="stable")):
        at = _measured_x_text(mark, data, x_scale)
        row = data_row_of_mark(mark, data, limits, at) | {"key": legend_entry_of_mark(mark, data)}
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
    for (panel, _), row in starts.items():  # each line starts at the unloaded mark
        if panel in alone:
            at_start = {key: alone[panel][key] for key in ("x", "value")}
            yield {
                **at_start,
                "role": "start",
                "panel": panel,
                **{k: row[k] for k in ("key", "line")},
            }
    failed = marks[marks["status"] == "failed"]
    for panel in data.tick_names_on_axis("panels"):
        count = len(failed if panel is None else failed[failed["panels"] == panel])
        if count:
            yield {
                "role": "remark",
                "panel": panel,
                "text": f"{format_count(count, 'point')} failed",
            }


def _spread_equal_positions(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Move marks of equal position apart, in order of their medians, so that all are visible."""
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


def _measured_x_text(mark: FigureMark, data: FigureData, x_scale: UnitScale) -> str:
    """Return the measured x of a mark for its hover text: "at 41.2 GB/s", "distance 12"."""
    value = mark.get("true_position", mark["position"])
    column = data.measured_x_column.split(".")[-1].replace("_", " ")
    text = x_scale.text(value) if x_scale.symbol else f"{value:g}"
    return f"{'at' if data.x_is_metric_of_other_load else column} {text}"
