"""Turn marks of figures into texts and into rows, axes and legends, for all kinds of figures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from chaosity.errors import printable_text
from chaosity.figures.figure_data import (
    Axis,
    AxisRole,
    FigureData,
    FigureMark,
    ShownValueRange,
    has_number,
    make_axis_value,
    marks_of_table,
    shown_interval,
    shown_value,
)
from chaosity.figures.vega_lite import (
    FIGURE_WIDTH_POINTS,
    Row,
    bar_hatch_number,
    figure_template,
    text_width_points,
)
from chaosity.place_names import access_in_words
from chaosity.statistics.cell_summary import UNMEASURED
from chaosity.statistics.estimates import Estimate
from chaosity.store.measurements import LEFT_OUT, PREDICTED, Measurements
from chaosity.units import UnitScale, format_count, metric_in_words

# State of a mark without a measured value -> its words in figures and captions, in the order of
# legends. A `missing` mark was planned but not measured; an `unmeasured` mark was measured but has
# no value; an `absent` mark was not planned. A budget left out the marks `left_out` and
# `predicted`; the values of `predicted` marks follow from measured values.
STATUS_TEXTS = {
    "failed": "failed",
    "missing": "not measured yet",
    PREDICTED: "predicted, not measured",
    LEFT_OUT: "left out by the budget",
    UNMEASURED: "not measured",
    "absent": "not part of the experiment",
}
_TEXT_WITHOUT_REASON = "no reason recorded"
_ROLES_OF_PATH: tuple[AxisRole, ...] = ("rows", "columns")
_ROLES_OF_PLACE_TEXT: tuple[AxisRole, ...] = ("panels", "series", "rows", "x", "columns")


def value_axis_title(data: FigureData, scale: UnitScale) -> str:
    """Return the title of the value axis with its unit: "Memory bandwidth (GB/s)"."""
    load = data.spec.load if len(data.spec.load) == 1 else ()
    text = data.spec.value_title or " ".join([*load, metric_in_words(data.spec.metric)])
    text = text[:1].upper() + text[1:]
    return f"{text} ({scale.symbol})" if scale.symbol else text


def replicates_text(data: FigureData) -> str:
    """Return how many replicates the marks have as text: "median of 2 to 3 replicates"."""
    numbers = sorted(set(data.marks.loc[data.marks["n"] > 0, "n"]))
    if not numbers:
        return "no valid replicate"
    if numbers == [1]:
        return "one replicate" + ", no intervals" * bool(data.marks["low"].isna().all())
    if len(numbers) == 1:
        return f"median of {format_count(int(numbers[0]), 'replicate')}"
    return f"median of {numbers[0]} to {numbers[-1]} replicates"


def shows_simulated_machine(data: FigureData) -> bool:
    """Return whether a figure shows values of a simulated machine."""
    return Measurements(data.measurements).is_simulated


def provenance_text(data: FigureData) -> str:
    """Return the text below a title: host, configuration, benchmark, kernel and replicates."""
    first = data.marks.iloc[0]
    configurations = ", ".join(data.marks["configuration"].drop_duplicates())
    parts = [f"{first['host']}, {configurations}"]
    benchmarks = data.measurements["benchmark"].dropna().unique()
    if len(benchmarks) <= 2:
        parts.append(" and ".join(str(name).replace("_", " ") for name in benchmarks))
    kernels = data.measurements["kernel"].dropna().unique()
    if len(kernels) == 1:
        parts.append(f"kernel {kernels[0]}")
    if data.spec.combine:
        parts.append(f"{data.spec.combine} of the points that share a mark")
    parts += [replicates_text(data), *data.labels_required_by_benchmarks]
    return " · ".join(part for part in parts if part)


def mark_location_text(
    mark: FigureMark, data: FigureData, access: Callable[[str, str], str] = access_in_words
) -> str:
    """Return the place of a mark in words: "node 3 to the memory of node 5", or its axis values.

    The function `access` returns the words for an initiator and a target.
    """
    if ends := _ends_of_path(mark, data):
        return access(*ends)
    columns = {role: axis.column for role, axis in data.axes.items()}
    parts = []
    measured_x = not {"rows", "x"} & set(columns)
    if measured_x:
        parts.append(access(mark["initiator"], mark["target"]))
    for role in _ROLES_OF_PLACE_TEXT:
        if role not in columns or (measured_x and columns[role] in ("initiator", "target")):
            continue
        name = mark.get(role)
        if not isinstance(name, str):
            parts.append("alone")
            continue
        value = data.axes[role].find_value_by_name(name)
        column = columns[role].split(".")[-1].replace("_", " ")
        forms = {
            "number": f"{column} = {value.short_label}",
            "text": f"{column.lower()} {value.long_label}",
        }
        parts.append(forms.get(value.kind, value.long_label))
    return ", ".join(parts)


def mark_place_for_csv(mark: FigureMark, data: FigureData) -> str:
    """Return the place of a mark with the names that the CSV has: "node3 -> node5"."""
    return mark_location_text(mark, data, "{} -> {}".format)


def _ends_of_path(mark: FigureMark, data: FigureData) -> tuple[str, str] | None:
    """Return initiator and target (or responder) of a cell; None if the axes have neither."""
    if "rows" not in data.axes or "columns" not in data.axes:
        return None
    ends = {data.axes[role].column.split(".")[-1]: mark[role] for role in _ROLES_OF_PATH}
    initiator = ends.pop("initiator", None)
    other = ends.get("target", ends.get("responder"))
    return (initiator, other) if initiator and other else None


def mark_value_text(mark: FigureMark, scale: UnitScale) -> str:
    """Return value, interval and n of a mark as text, or the reason why its value is missing.

    An example is "41.2 GB/s, 95 % interval 40.8 to 41.6 GB/s, n = 3".
    """
    if mark["status"] == "failed":
        reason = mark["reason"] or _TEXT_WITHOUT_REASON
        return f"failed in {format_count(int(mark['n_failed']), 'replicate')}: {reason}"
    if mark["status"] == UNMEASURED:
        return f"not measured: {mark['reason'] or _TEXT_WITHOUT_REASON}"
    if mark["status"] == PREDICTED:
        return _prediction_text(mark, scale)
    if mark["status"] != "valid":
        return STATUS_TEXTS[mark["status"]]
    text = Estimate.of_cell(mark).text(scale)
    if mark["n_failed"]:
        text += f", {format_count(int(mark['n_failed']), 'replicate')} failed"
    if not pd.isna(mark["outliers"]) and mark["outliers"]:
        text += f", {format_count(int(mark['outliers']), 'outlier')} marked and kept"
    return text


def _prediction_text(mark: FigureMark, scale: UnitScale) -> str:
    """Return a predicted value as text, with its interval and the bounds from measured values."""
    low = scale.number(mark["predicted_low"])
    interval = f"95 % interval {low} to {scale.text(mark['predicted_high'])}"
    text = f"predicted {scale.text(mark['predicted_value'])}, {interval}"
    least, most = mark["predicted_lower_bound"], mark["predicted_upper_bound"]
    if not pd.isna(least) and not pd.isna(most):
        text += f"; by measured sets at least {scale.number(least)} and at most {scale.text(most)}"
    return f"{text}; not measured"


def hover_text(mark: FigureMark, data: FigureData, scale: UnitScale, position: str = "") -> str:
    """Return the hover text of a mark; `position` is the measured x with its unit, or ""."""
    shown = {axis.column for axis in data.axes.values()}
    combined = data.spec.combine is not None
    notes = []
    if "responder" in shown and "target" not in shown and not combined:
        notes.append(f"line on {mark['target']}")
    kernel, label = mark.get("kernel"), mark["label"]
    if isinstance(kernel, str) and "kernel" not in shown and not combined:
        notes.append(kernel)
    if isinstance(label, str):
        notes.append(label)
    if mark["file_backed"] and "file-backed" not in notes:
        notes.append("file-backed")
    if data.spec.cell_note and not pd.isna(mark["note"]):
        notes.append(cell_second_value_text(data.spec.cell_note, mark["note"]))
    # By the names in the hover text, users find the value in the CSV, and the point in the results.
    location = mark_place_for_csv(mark, data)
    place = ", ".join(part for part in (location, position) if part)
    text = f"{place}: {mark_value_text(mark, scale)}"
    return f"{text} ({', '.join(notes)})" if notes else text


def cell_second_value_text(column: str, value: float) -> str:
    """Return the second value of a heat map's cell as text: "SLIT 21" for a distance."""
    name = {"distance": "SLIT"}.get(column, column.split(".")[-1].replace("_", " "))
    return f"{name} {make_axis_value(value, column=column).short_label}"


def panel_title(data: FigureData, panel: str) -> str:
    """Return the title of a panel: "node 3" or, if the axis has a title, "Drives of node 3"."""
    axis = data.axes["panels"]
    value = axis.find_value_by_name(panel)
    titled = data.spec.panels_title or value.kind == "number"
    return f"{axis.title} {value.short_label}" if titled else value.long_label


def failed_mark_lines(data: FigureData) -> list[str]:
    """Return a line for each mark of a failed measurement, with its place and the reason."""
    # In a figure with a measured x, a mark without a value has no position, so the name of its
    # point identifies the mark.
    return [
        f"{mark['point'] if data.spec.has_measured_x else mark_location_text(mark, data)}: "
        f"{mark['reason'] or _TEXT_WITHOUT_REASON}"
        for mark in marks_of_table(data.marks[data.marks["status"] == "failed"])
    ]


def unmeasured_mark_reason_lines(data: FigureData) -> list[str]:
    """Return a line for each reason why marks that did not fail have no value."""
    unmeasured = data.marks[data.marks["status"] == UNMEASURED]
    return reasons_with_counts(unmeasured["reason"], len(data.marks), data.mark_noun)


def reasons_with_counts(reasons: pd.Series, total: int, noun: str) -> list[str]:
    """Return each reason once, with the number of its marks: "no GPU (2 of 5 cells)".

    If all `total` marks have the reason, its number is omitted. `noun` is the word for a mark.
    """
    numbers = reasons.fillna(_TEXT_WITHOUT_REASON).value_counts(sort=False)
    return [
        str(reason) if number == total else f"{reason} ({number} of {format_count(total, noun)})"
        for reason, number in numbers.items()
    ]


ALONE, NO_SERIES = "alone", ""
GREY = "#5f5f5f"
LEFT_MARGIN_POINTS = 46.0  # points for the numbers and the title of the value axis
# Factor by which a logarithmic axis extends below the lowest and above the highest value.
_LOG_AXIS_MARGIN_FACTOR = 1.15
# Names of two kinds of lines in the legend.
STEPS, CACHES = "latency steps up, between the grey sizes", "size of a cache by hwloc"


def data_row_of_mark(
    mark: FigureMark, data: FigureData, limits: ShownValueRange, at: str = ""
) -> Row:
    """Return the row of a mark for any kind of figure; `at` is the measured x as text, or ""."""
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


def value_axis_encoding(data: FigureData, limits: ShownValueRange) -> dict[str, Any]:
    """Return the value axis for Vega-Lite, which begins at zero unless it is logarithmic."""
    factor = limits.scale.factor
    axis: dict[str, Any] = {"title": None, "tickCount": 5, "domain": False, "ticks": False}
    if data.spec.value_scale == "log" and limits.least_positive > 0.0:
        low, high = (
            limits.least_positive / factor / _LOG_AXIS_MARGIN_FACTOR,
            limits.high / factor * _LOG_AXIS_MARGIN_FACTOR,
        )
        steps = (1, 2, 5) if math.log10(limits.high / limits.least_positive) < 2.5 else (1,)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        axis["values"] = [tick for tick in ticks if low <= tick <= high]
        axis |= {"format": "~g", "labelOverlap": False}
        scale: dict[str, Any] = {"type": "log", "domain": [low, high], "nice": False}
    else:
        scale = {"domain": [0.0, 1.04 * limits.high / factor], "nice": False}
    return {"field": "value", "type": "quantitative", "axis": axis, "scale": scale}


def lowest_shown_value(data: FigureData, limits: ShownValueRange) -> float:
    """Return the lower end of the value axis, at which marks without a value are drawn."""
    low = value_axis_encoding(data, limits)["scale"]["domain"][0]
    return float(low)


def series_looks_and_legends(data: FigureData) -> dict[str, Any]:
    """Return the legends, and the colours, shapes and dashes of series, bounds and steps."""
    look = figure_template("common")["series"]
    axis = data.axes.get("series")
    keys = [] if axis is None else [axis.legend_label(value) for value in axis.values]
    many = max(len(keys), 1)
    colours = [look["colours"][i % len(look["colours"])] for i in range(many)]
    turn = len(look["colours"])  # further series reuse the colours with other shapes
    shapes = [look["shapes"][(i + i // turn) % len(look["shapes"])] for i in range(many)]
    fills = [f"url(#bar{i})" if bar_hatch_number(i) else colours[i] for i in range(many)]
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
    """Return the legend for marks without a measured value; None if all marks have one."""
    known = [status for status in STATUS_TEXTS if status in statuses]
    if not known:
        return None
    words = f"({json.dumps(STATUS_TEXTS)})[datum.value]"
    stroke = {"symbolType": "square", "symbolStrokeColor": "#b8b8b8", "symbolStrokeWidth": 0.6}
    return {"values": known, "labelExpr": words, "orient": "bottom", "symbolSize": 70, **stroke}


def _legend_columns(texts: Sequence[str]) -> int:
    """Return how many entries of a legend fit side by side."""
    widest = max(text_width_points(text, 7.0) for text in texts) + 30.0
    return max(1, min(len(texts), int((FIGURE_WIDTH_POINTS - LEFT_MARGIN_POINTS) / widest)))


def legend_entry_of_mark(mark: FigureMark, data: FigureData) -> str:
    """Return the text for the series of a mark in the legend."""
    if "series" not in data.axes:
        return NO_SERIES
    axis, name = data.axes["series"], mark.get("series")
    return axis.legend_label(axis.find_value_by_name(name)) if isinstance(name, str) else ALONE


def axis_label(data: FigureData, role: AxisRole, name: str) -> str:
    """Return a value's label on an axis, with the number of drives if most nodes have more."""
    axis: Axis = data.axes[role]
    text = axis.tick_label(axis.find_value_by_name(name))
    few = _nodes_with_fewer_drives(data, role)
    return f"{text} ({format_count(few[name], 'drive')})" if name in few else text


def _nodes_with_fewer_drives(data: FigureData, role: AxisRole) -> dict[str, int]:
    """Return drive set of one node -> number of drives, for nodes with fewer than most nodes."""
    axis: Axis = data.axes[role]
    alone = [v.name for v in axis.values if v.kind == "node_drives" and len(v.nodes) == 1]
    rows = data.measurements
    if len(alone) < 2 or "drives" not in rows:
        return {}
    counts = rows[rows[role].isin(alone)].groupby(role)["drives"].max().dropna()
    usual = counts.mode().max()
    return {str(name): int(count) for name, count in counts.items() if count < usual}


def axis_ticks(labels: Mapping[float, str]) -> dict[str, Any]:
    """Return the ticks of an axis for Vega-Lite; `labels` maps a position to its text."""
    values = list(labels)
    # JSON would escape a control character, and Vega would turn the escape into the character
    # again. So control characters are replaced before.
    texts = json.dumps([printable_text(text) for text in labels.values()], ensure_ascii=False)
    return {"values": values, "labelExpr": f"{texts}[indexof({json.dumps(values)}, datum.value)]"}
