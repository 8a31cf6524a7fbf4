"""Make tables from a figure: its CSV, its values in words, numbers of curves, and text tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pandas as pd

from chaosity.cpusets import format_cpu_list
from chaosity.figures.figure_data import (
    AxisRole,
    FigureData,
    FigureMark,
    make_axis_value,
    marks_of_table,
)
from chaosity.figures.marks import (
    mark_value_text,
    panel_title,
    replicates_text,
    shows_simulated_machine,
    value_axis_title,
)
from chaosity.place_names import place_in_words
from chaosity.records.record_format import SIMULATED
from chaosity.statistics.curves import CURVE_QUANTITIES, latency_curve_quantities
from chaosity.statistics.estimates import Estimate
from chaosity.store.measurements import PREDICTED, PREDICTION_NUMBERS, parse_nodes
from chaosity.units import UnitScale, choose_scale, format_quantity, metric_in_words

# Largest number of columns that are legible on an A4 page; a table with more columns is split.
MOST_TABLE_COLUMNS = 24
# Largest number of rows of a table on the page, since a CSV file with more rows is easier to read.
_MOST_TABLE_ROWS = 320
_LATENCY_QUANTITIES = (
    "unloaded",
    *(name for name in CURVE_QUANTITIES if name.startswith("latency_at_")),
)
_PREDICTED_COLUMNS = [f"{PREDICTED}_{name}" for name in PREDICTION_NUMBERS]
CellState = Literal["valid", "failed", "missing", "unmeasured", "absent", "odd"]


@dataclass(frozen=True)
class TextCell:
    """A cell of a text table."""

    text: str  # text in the cell
    detail: str = ""  # hover text, such as interval and n; may be empty
    # Status of the value; "odd" if pages are on other nodes than the requested nodes.
    state: CellState = "valid"


@dataclass(frozen=True)
class TextTable:
    """A table of text, with its caption and notes."""

    caption: str  # text above the table
    columns: tuple[str, ...]  # headings of the columns
    lead: int  # the first `lead` columns are aligned on the left
    rows: tuple[tuple[TextCell, ...], ...]  # cells of each row
    spread: bool = False  # whether cells show `detail` also without a hover
    notes: tuple[str, ...] = ()  # texts below the table


def figure_csv_table(data: FigureData) -> pd.DataFrame:
    """Return the table for the CSV: place, median, interval, n and status of marks, in SI units.

    A heat map has a row for each cell; a cell without a planned point has the status "absent".
    """
    spec, metric, axes, table = data.spec, data.spec.metric, data.axes, data.marks
    if spec.kind == "heatmap":
        keys, names = ["rows", "columns"], (axes["rows"].tick_names, axes["columns"].tick_names)
        every = pd.MultiIndex.from_product(names, names=keys).to_frame(index=False)
        table = every.merge(table, on=keys, how="left")
        table = table.fillna({"status": "absent", "n": 0}).astype({"n": int})
    columns = {column: table[at] for column, at in _lead_columns(data).items()}
    if spec.kind == "table" and "seen_nodes" in table:
        columns["seen_nodes"] = table["seen_nodes"]
    columns |= {
        f"median_{metric}": table["median"],
        f"interval_low_{metric}": table["low"],
        f"interval_high_{metric}": table["high"],
        f"minimum_{metric}": table["minimum"],
        f"maximum_{metric}": table["maximum"],
        "replicates_valid": table["n"],
        "replicates_failed": table["n_failed"].astype("Int64"),
        **{name: table[name] for name in ("outliers", "status", "reason", "file_backed", "label")},
    }
    if spec.bounds:
        for title, values in data.bounds_of_marks().items():
            columns[f"bound_{str(title).replace(' ', '_')}_{metric}"] = values
    for end in ("low", "high") if spec.has_measured_x else ():
        columns[f"interval_{end}_{data.measured_x_column}"] = table[f"position_{end}"]
    if spec.cell_note:
        columns[spec.cell_note] = table["note"]
    if (table["status"] == PREDICTED).any():
        columns |= {f"{name}_{metric}": table[name] for name in _PREDICTED_COLUMNS}
        columns["origin"] = table["status"].where(table["status"] == PREDICTED)
    if shows_simulated_machine(data):
        known = columns.get("origin", pd.Series(None, table.index, dtype=object))
        columns["origin"] = (f"{SIMULATED}, " + known).fillna(SIMULATED)
    return pd.DataFrame(columns)


def _lead_columns(data: FigureData) -> dict[str, str]:
    """Return column of the CSV -> column of `data.marks`, for columns with places and levels."""
    found: dict[str, str] = {axis.column: role for role, axis in data.axes.items()}
    if data.spec.has_measured_x or data.spec.kind == "table":
        found = {"initiator": "initiator", "target": "target"} | found
    if data.spec.has_measured_x:
        found[data.measured_x_column] = "position"
    return found


def value_table(data: FigureData) -> TextTable:
    """Return a table of the values of all marks in one unit, with places and levels in words.

    If there are very many marks, the table has no rows, and a note refers to the CSV file.
    """
    table, lead = data.marks, _lead_columns(data)
    if data.spec.kind == "heatmap":  # row by row, like the CSV
        table = data.axes["rows"].in_order(data.axes["columns"].in_order(table, "columns"), "rows")
    marks = marks_of_table(table)
    predicted = _PREDICTED_COLUMNS if any(m["status"] == PREDICTED for m in marks) else []
    numbers = [m["predicted_value" if m["status"] == PREDICTED else "median"] for m in marks]
    scale = choose_scale(data.spec.metric, [float(number) for number in numbers])
    unit = f" ({scale.symbol})" if scale.symbol else ""
    heads = [name.replace("_", " ").replace(".", " ") for name in lead]
    heads += ["status", f"median{unit}", f"interval{unit}", "n"]
    heads += [name.replace("_", " ") for name in predicted]

    def number(value: float) -> str:
        return "" if pd.isna(value) else scale.number(value)

    def texts(mark: FigureMark) -> Iterator[str]:
        yield from (_level_words(data, name, at, mark.get(at)) for name, at in lead.items())
        yield mark["status"]
        yield number(mark["median"])
        yield " to ".join(filter(None, (number(mark["low"]), number(mark["high"]))))
        yield str(mark["n"])
        yield from (number(mark[name]) for name in predicted)

    notes = (f"The CSV has all {len(marks)} values.",) if len(marks) > _MOST_TABLE_ROWS else ()
    rows = tuple(tuple(map(TextCell, texts(mark))) for mark in marks if not notes)
    return TextTable("Values", tuple(heads), len(lead) + 1, rows, notes=notes)


def _level_words(data: FigureData, column: str, at: str, name: object) -> str:
    """Return the place or level of a mark in words, or its measured x with the unit."""
    if pd.isna(name):  # type: ignore[call-overload] # a text or a number
        return ""
    if at == "position" and isinstance(name, float):
        has_unit = metric_in_words(column) != column and choose_scale(column, [name]).symbol
        return format_quantity(column, name) if has_unit else make_axis_value(name).short_label
    if not isinstance(name, str):
        return ""
    axis = next((axis for role, axis in data.axes.items() if role == at), None)
    return axis.find_value_by_name(name).long_label if axis else place_in_words(name)


def figure_text_tables(data: FigureData) -> tuple[TextTable, ...]:
    """Return the tables of a figure of the kind "table", or a table of the numbers of curves."""
    if data.spec.kind == "table":
        return tuple(_tables_of_panels(data))
    return (_curve_number_table(data),) if data.spec.kind == "curve" else ()


def _tables_of_panels(data: FigureData) -> Iterator[TextTable]:
    """Yield the table of each panel; a table with many columns is split into several tables."""
    values = data.valid_marks["median"]
    scale = choose_scale(data.spec.metric, [float(np.median(values)) if len(values) else 1.0])
    for panel in data.tick_names_on_axis("panels"):
        for start in range(0, len(data.axes["columns"].values), MOST_TABLE_COLUMNS):
            caption = f"{value_axis_title(data, scale)}, {replicates_text(data)}"
            caption += ", continued" if start else ""
            if panel is not None:
                caption = f"{panel_title(data, panel)}: {caption[:1].lower()}{caption[1:]}"
            columns = slice(start, start + MOST_TABLE_COLUMNS)
            yield _table_of_panel(data, panel, columns, scale, caption)


def _table_of_panel(
    data: FigureData, panel: str | None, columns: slice, scale: UnitScale, caption: str
) -> TextTable:
    """Return the table of a panel, with a row for each initiator and target."""
    marks, measurements = data.marks, data.measurements
    if panel is not None:
        marks = marks[marks["panels"] == panel]
        measurements = measurements[measurements["panels"] == panel]
    down, across = data.axes["rows"], data.axes["columns"]
    keys = ["rows", "initiator"] if across.column == "target" else ["rows", "initiator", "target"]
    rows = []
    for key, own in down.in_order(marks, "rows").groupby(keys, sort=False):
        by_column = {mark["columns"]: mark for mark in marks_of_table(own)}
        sources = measurements[(measurements[keys] == list(key)).all(axis=1)]
        label = down.tick_label(down.find_value_by_name(str(key[0])))
        values = [_value_cell(by_column.get(name), scale) for name in across.tick_names[columns]]
        rows.append((TextCell(label), *_node_cells(own, sources), *values))
    headings = [across.tick_label(value) for value in across.values[columns]]
    headings = [down.title, "Its node", "Memory node", "Pages found on", *headings]
    return TextTable(caption, tuple(headings), 4, tuple(rows))


def _node_cells(marks: pd.DataFrame, measurements: pd.DataFrame) -> tuple[TextCell, ...]:
    """Return cells with the initiator's nodes, and with the requested and actual nodes of pages."""
    requested = _join_nodes(marks["target_nodes"]) or "unknown"
    seen = _join_nodes(measurements["seen_nodes"]) if "seen_nodes" in measurements else None
    if seen is None:
        pages = TextCell("unknown", "the kernel did not report where the pages are", "odd")
    elif seen != requested:
        text = f"{seen} (requested: {requested})"
        pages = TextCell(text, "pages are not on the requested node", "odd")
    else:
        pages = TextCell(seen)
    own = _join_nodes(marks["initiator_nodes"]) or "unknown"
    return TextCell(own), TextCell(requested), pages


def _join_nodes(lists: pd.Series) -> str | None:
    """Return all nodes of several Linux lists as one Linux list; None if there are no nodes."""
    return format_cpu_list({node for text in lists for node in parse_nodes(text)}) or None


def _value_cell(mark: FigureMark | None, scale: UnitScale) -> TextCell:
    """Return a cell with the median of a mark in three digits, and interval and n on hover."""
    if mark is None:
        return TextCell("", "not part of the experiment", "absent")
    text, state = "\N{EN DASH}", mark["status"]
    if state == "valid":
        value = mark["median"] / scale.factor
        text = f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
    elif state == "failed":
        text = "failed"
    return TextCell(text, mark_value_text(mark, scale), state)


def curve_numbers_table(data: FigureData) -> pd.DataFrame | None:
    """Return the numbers of a figure's curves, or its steps of latency; None if it has neither.

    Latencies are in ns, all other values are in SI units.
    """
    if data.spec.cache_steps:
        return pd.json_normalize([asdict(step) for step in data.steps], sep="_")
    if data.spec.kind != "curve":
        return None
    table = latency_curve_numbers(data)
    metrics = table["quantity"].map(lambda name: _metric_of_quantity(name, data))
    table.insert(list(table.columns).index("quantity") + 1, "metric", metrics)
    roles = {role: axis.column for role, axis in data.axes.items()}
    return table.drop(columns=["host", "configuration"]).rename(columns=roles)


def latency_curve_numbers(data: FigureData) -> pd.DataFrame:
    """Return the numbers of each curve, see `statistics.latency_curve_quantities`.

    The table has a column for each axis, named after the axis' role, which identify a curve.
    """
    numbers = latency_curve_quantities(data.measurements_of_each_line, list(data.axes))
    for role, axis in reversed(list(data.axes.items())):
        numbers = axis.in_order(numbers, role)
    return numbers.reset_index(drop=True)


def _metric_of_quantity(name: str, data: FigureData) -> str:
    """Return the metric of the axis (x or value axis) to which a quantity of curves belongs."""
    return data.spec.metric if name in _LATENCY_QUANTITIES else data.x_metric


def _quantity_title(name: str, data: FigureData) -> str:
    titles = {"unloaded": "Unloaded", "peak": "Peak", "knee": "Knee (latency doubled)"}
    words = metric_in_words(_metric_of_quantity(name, data)).capitalize()
    return titles.get(name) or f"{words} at {name.rsplit('_', 1)[1]} % of the peak"


def _curve_number_table(data: FigureData) -> TextTable:
    """Return a table with a row for each curve and a column for each quantity."""
    numbers = latency_curve_numbers(data)
    roles, rows, notes = list(data.axes), [], []
    by: list[str] = [*roles] or ["host"]
    for key, own in numbers.groupby(by, sort=False, dropna=False):
        names = [_curve_name(data, role, name) for role, name in zip(roles, key, strict=False)]
        cells = [TextCell(name) for name in names]
        by_quantity = {row["quantity"]: row for _, row in own.iterrows()}
        for name in CURVE_QUANTITIES:
            number = by_quantity[name]
            cells.append(_curve_number_cell(number, _metric_of_quantity(name, data)))
            if isinstance(number["reason"], str):
                curve = f"{', '.join(names)}: " if names else ""
                notes.append(f"{curve}{_quantity_title(name, data).lower()}: {number['reason']}.")
        rows.append(tuple(cells))
    headings = [data.axes[role].title for role in roles]
    headings += [_quantity_title(name, data) for name in CURVE_QUANTITIES]
    caption = f"Numbers of the curves, {replicates_text(data)}"
    return TextTable(caption, tuple(headings), len(roles), tuple(rows), True, tuple(notes))


def _curve_name(data: FigureData, role: AxisRole, name: object) -> str:
    """Return the label of the value that a curve has on an axis."""
    if not isinstance(name, str):
        return "no co-running load"
    known = {value.name: value.long_label for value in data.axes[role].values}
    return known.get(name, make_axis_value(name).long_label)


def _curve_number_cell(number: pd.Series, metric: str) -> TextCell:
    """Return a cell with a quantity of a curve, and interval and n on hover."""
    if pd.isna(number["median"]):
        return TextCell("\N{EN DASH}", str(number["reason"]), "absent")
    note = f"{number['note']}; " if isinstance(number["note"], str) else ""
    scale = choose_scale(metric, [number["median"]])
    estimate = Estimate.of_cell(number.to_dict())
    interval = estimate.interval_and_n_text(scale.number, scale.symbol)
    return TextCell(scale.text(estimate.median), note + interval)
