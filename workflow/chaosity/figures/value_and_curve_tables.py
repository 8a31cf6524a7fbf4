"""Make the text tables below or instead of a drawing: values by place, and numbers of curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pandas as pd

from chaosity.cpusets import format_cpu_list
from chaosity.figures.axis_order_and_labels import Axis, make_axis_value
from chaosity.figures.column_values_and_upper_bounds import parse_node_list
from chaosity.figures.figure_data_and_value_limits import FigureData, FigureMark, mark_rows
from chaosity.figures.figure_spec import Role
from chaosity.figures.mark_labels_and_hover_texts import (
    mark_value_text,
    panel_title,
    replicates_text,
    value_axis_title,
)
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.statistics.loaded_latency_curves import (
    QUANTITIES,
    latency_curve_quantities,
    repeat_unloaded_points_on_each_line,
)
from chaosity.units import UnitScale, choose_scale, metric_words

# Number of columns that fit on an A4 page at a legible size; further columns follow below.
MOST_COLUMNS = 24
_LATENCIES = ("unloaded", *(name for name in QUANTITIES if name.startswith("latency_at_")))
CellState = Literal["valid", "failed", "missing", "unmeasured", "absent", "odd"]


@dataclass(frozen=True)
class TextCell:
    """A cell of a text table."""

    text: str  # text in the cell
    detail: str = ""  # hover text, such as interval and n; may be empty
    # Status of the value; "odd" if the actual place differs from the requested place.
    state: CellState = "valid"


@dataclass(frozen=True)
class TextTable:
    """A table of text."""

    caption: str  # text above the table
    columns: tuple[str, ...]  # headings of the columns
    lead: int  # number of leading columns that identify a row
    rows: tuple[tuple[TextCell, ...], ...]  # cells of each row
    spread: bool = False  # whether the cells show their details, and not only the hover texts
    notes: tuple[str, ...] = ()  # texts below the table


def figure_text_tables(data: FigureData) -> tuple[TextTable, ...]:
    """Return the tables of a figure of kind "table", or the numbers of its curves."""
    if data.spec.kind == "table":
        return tuple(_value_tables(data))
    if data.spec.kind == "curve":
        return (_curve_number_table(data),)
    return ()


def _value_tables(data: FigureData) -> Iterator[TextTable]:
    """Yield a table for each panel; many columns are split into several tables."""
    values = data.marks.loc[data.marks["status"] == "valid", "median"]
    typical = float(np.median(values)) if len(values) else 1.0
    scale = choose_scale(data.spec.metric, [typical])
    for panel in data.value_names_on_axis("panels"):
        for start in range(0, len(data.axes["columns"].values), MOST_COLUMNS):
            caption = f"{value_axis_title(data, scale)}, {replicates_text(data)}"
            caption += ", continued" if start else ""
            if panel is not None:
                caption = f"{panel_title(data, panel)}: {caption[:1].lower()}{caption[1:]}"
            columns = slice(start, start + MOST_COLUMNS)
            yield _value_table(data, panel, columns, scale, caption)


def _value_table(
    data: FigureData, panel: str | None, columns: slice, scale: UnitScale, caption: str
) -> TextTable:
    """Return a table with a row for each initiator and target.

    If the columns are targets, a row has the values of one initiator to all memory.
    """
    marks, measurements = data.marks, data.measurements
    if panel is not None:
        marks = marks[marks["panels"] == panel]
        measurements = measurements[measurements["panels"] == panel]
    down, across = data.axes["rows"], data.axes["columns"]
    keys = ["rows", "initiator"] if across.column == "target" else ["rows", "initiator", "target"]
    rank = {name: number for number, name in enumerate(down.value_names)}
    ordered = marks.sort_values("rows", key=lambda names: names.map(rank), kind="stable")
    rows = []
    for key, own in ordered.groupby(keys, sort=False):
        by_column = {mark["columns"]: mark for mark in mark_rows(own)}
        sources = measurements[(measurements[keys] == list(key)).all(axis=1)]
        lead = _lead_cells(str(key[0]), own, sources, down)
        values = [_value_cell(by_column.get(name), scale) for name in across.value_names[columns]]
        rows.append((*lead, *values))
    headings = [across.tick_label(value) for value in across.values[columns]]
    headings = [down.title, "Its node", "Memory node", "Pages found on", *headings]
    return TextTable(caption, tuple(headings), 4, tuple(rows))


def _lead_cells(
    row: str, marks: pd.DataFrame, measurements: pd.DataFrame, axis: Axis
) -> tuple[TextCell, ...]:
    """Return cells with a row's initiator, its node, and requested and actual nodes of pages."""
    requested = _join_nodes(marks["target_nodes"]) or "unknown"
    seen = _join_nodes(measurements["seen_nodes"]) if "seen_nodes" in measurements else None
    if seen is None:
        pages = TextCell("unknown", "the kernel did not report where the pages are", "odd")
    elif seen != requested:
        text = f"{seen} (requested: {requested})"
        pages = TextCell(text, "pages are not on the requested node", "odd")
    else:
        pages = TextCell(seen)
    return (
        TextCell(axis.tick_label(axis.find_value_by_name(row))),
        TextCell(_join_nodes(marks["initiator_nodes"]) or "unknown"),
        TextCell(requested),
        pages,
    )


def _join_nodes(lists: pd.Series) -> str | None:
    """Return all nodes of several Linux lists as a single list; None without nodes."""
    return format_cpu_list({node for text in lists for node in parse_node_list(text)}) or None


def _value_cell(mark: FigureMark | None, scale: UnitScale) -> TextCell:
    """Return a cell with the median in three digits; its hover text has interval and n."""
    if mark is None:
        return TextCell("", "not part of the experiment", "absent")
    if mark["status"] == "valid":
        value = mark["median"] / scale.factor
        decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
        return TextCell(f"{value:.{decimals}f}", mark_value_text(mark, scale))
    text = "failed" if mark["status"] == "failed" else "\N{EN DASH}"
    return TextCell(text, mark_value_text(mark, scale), cast(CellState, mark["status"]))


def latency_curve_numbers(data: FigureData) -> pd.DataFrame:
    """Return the numbers of each curve, see `statistics.latency_curve_quantities`.

    The columns that identify a curve are the roles of the figure's axes.
    """
    rows = data.measurements
    if "series" in data.axes:
        by_panel = rows.groupby("panels", sort=False) if "panels" in data.axes else [("", rows)]
        lines = [repeat_unloaded_points_on_each_line(own, "series") for _, own in by_panel]
        rows = pd.concat(lines, ignore_index=True)
    numbers = latency_curve_quantities(rows, list(data.axes))
    for role, axis in reversed(list(data.axes.items())):
        rank = {name: number for number, name in enumerate(axis.value_names)}
        numbers = numbers.sort_values(role, key=lambda names: names.map(rank), kind="stable")
    return numbers.reset_index(drop=True)


def metric_of_curve_quantity(name: str, data: FigureData) -> str:
    """Return the metric whose unit a quantity of a curve has."""
    return data.spec.metric if name in _LATENCIES else data.x_metric


def _quantity_title(name: str, data: FigureData) -> str:
    """Return the title of a quantity of a curve."""
    titles = {"unloaded": "Unloaded", "peak": "Peak", "knee": "Knee (latency doubled)"}
    words = metric_words(metric_of_curve_quantity(name, data)).capitalize()
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
        for name in QUANTITIES:
            number = by_quantity[name]
            cells.append(_curve_number_cell(number, metric_of_curve_quantity(name, data)))
            if isinstance(number["reason"], str):
                curve = f"{', '.join(names)}: " if names else ""
                notes.append(f"{curve}{_quantity_title(name, data).lower()}: {number['reason']}.")
        rows.append(tuple(cells))
    headings = [data.axes[role].title for role in roles]
    headings += [_quantity_title(name, data) for name in QUANTITIES]
    caption = f"Numbers of the curves, {replicates_text(data)}"
    return TextTable(caption, tuple(headings), len(roles), tuple(rows), True, tuple(notes))


def _curve_name(data: FigureData, role: Role, name: object) -> str:
    """Return the label of a curve on an axis."""
    if not isinstance(name, str):
        return "no co-running load"
    known = {value.name: value.long for value in data.axes[role].values}
    return known.get(name, make_axis_value(name).long)


def _curve_number_cell(number: pd.Series, metric: str) -> TextCell:
    """Return a quantity of a curve, with interval and n as detail."""
    if pd.isna(number["median"]):
        return TextCell("\N{EN DASH}", str(number["reason"]), "absent")
    note = f"{number['note']}; " if isinstance(number["note"], str) else ""
    scale = choose_scale(metric, [number["median"]])
    estimate = Estimate.of_cell(number.to_dict())
    interval = estimate.interval_and_n_text(scale.number, scale.symbol)
    return TextCell(scale.text(estimate.median), note + interval)
