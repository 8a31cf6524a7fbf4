"""Figures as text: tables of values by place, and the numbers of curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.cpusets import format_cpu_list
from chaosity.figures.axis_values import axis_value_of
from chaosity.figures.column_values import nodes_of
from chaosity.figures.figure_data import Axis, FigureData
from chaosity.figures.mark_texts import numbers_of, panel_title, replicates, tick_label, value_title
from chaosity.statistics import QUANTITIES, curve_quantities, with_unloaded
from chaosity.units import Scale, choose_scale, format_quantity, metric_words

# ColumnValues of values that a page of A4 takes at a legible size; more go on below.
MOST_COLUMNS = 24
_LATENCIES = ("unloaded", *(name for name in QUANTITIES if name.startswith("latency_at_")))


@dataclass(frozen=True)
class TextCell:
    """A cell: what it shows, and what it says on hover.

    Attributes:
        text: short.
        detail: the rest, such as interval and n; empty without.
        state: valid, failed, missing, unmeasured, absent, or odd for what is not as it was asked
            for.
    """

    text: str
    detail: str = ""
    state: str = "valid"


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Attributes:
        caption: above it.
        columns: heads.
        lead: number of leading columns, which say what a row is.
        rows: of the table.
        spread: whether details stand in the cells and not only on hover.
        notes: below it.
    """

    caption: str
    columns: tuple[str, ...]
    lead: int
    rows: tuple[tuple[TextCell, ...], ...]
    spread: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TextTable:
        """The inverse of `dataclasses.asdict`."""
        rows = tuple(tuple(TextCell(**cell) for cell in row) for row in stored["rows"])
        listed = {name: tuple(stored[name]) for name in ("columns", "notes")}
        return cls(**{**stored, "rows": rows, **listed})


def tables_of(cells: FigureData) -> tuple[TextTable, ...]:
    """What a figure says as text: the tables of kind "table", the numbers of a curve."""
    if cells.spec.kind == "table":
        return tuple(_place_tables(cells))
    if cells.spec.kind == "curve":
        return (_curve_quantities(cells),)
    return ()


def _place_tables(cells: FigureData) -> Iterator[TextTable]:
    """One table a panel, and where there are many columns one below the other."""
    values = cells.cells.loc[cells.cells["status"] == "valid", "median"]
    typical = float(np.median(values)) if len(values) else 1.0
    scale = choose_scale(cells.spec.metric, [typical])
    panels: list[str | None] = [None]
    if "panels" in cells.axes:
        panels = list(cells.axes["panels"].names)
    places = cells.axes["columns"].places
    for panel in panels:
        for start in range(0, len(places), MOST_COLUMNS):
            stretch = slice(start, start + MOST_COLUMNS)
            caption = f"{value_title(cells, scale)}, {replicates(cells)}"
            caption += ", continued" if start else ""
            if panel is not None:
                caption = f"{panel_title(cells, panel)}: {caption[:1].lower()}{caption[1:]}"
            yield _place_table(cells, panel, stretch, scale, caption)


def _place_table(
    cells: FigureData, panel: str | None, stretch: slice, scale: Scale, caption: str
) -> TextTable:
    """A row an initiator and target, a column a place of the axis "columns".

    Where columns are targets, a row is an initiator with all its memory.
    """
    table, sources = cells.cells, cells.rows
    if panel is not None:
        table, sources = (each[each["panels"] == panel] for each in (table, sources))
    down, across = cells.axes["rows"], cells.axes["columns"]
    keys = ["rows", "initiator"] if across.column == "target" else ["rows", "initiator", "target"]
    order = {name: number for number, name in enumerate(down.names)}
    rows = table.sort_values("rows", key=lambda names: names.map(order), kind="stable")
    shown = []
    for key, own in rows.groupby(keys, sort=False):
        by_column = {cell["columns"]: cell for cell in own.to_dict("records")}
        seen = _seen(sources[(sources[keys] == list(key)).all(axis=1)])
        lead = _lead(key[0], own, seen, down)
        values = [_value(by_column.get(name), scale) for name in across.names[stretch]]
        shown.append((*lead, *values))
    heads = (
        down.title, "Its node", "Memory node", "Pages seen on",
        *(tick_label(place, across) for place in across.places[stretch]),
    )  # fmt: skip
    return TextTable(caption, heads, 4, tuple(shown))


def _lead(row: str, own: pd.DataFrame, seen: str | None, axis: Axis) -> tuple[TextCell, ...]:
    """What a row is: who, on which node, and where its memory was asked for and seen."""
    place = next(place for place in axis.places if place.name == row)
    asked = _nodes(own["target_nodes"]) or "unknown"
    where = TextCell("unknown", "the kernel did not say where the pages are", "odd")
    if seen is not None:
        where = TextCell(seen)
        if seen != asked:
            where = TextCell(f"{seen} (asked for {asked})", "not where it was asked for", "odd")
    return (
        TextCell(tick_label(place, axis)),
        TextCell(_nodes(own["initiator_nodes"]) or "unknown"),
        TextCell(asked),
        where,
    )


def _seen(rows: pd.DataFrame) -> str | None:
    """Nodes that the pages of any of these rows were seen on, as a Linux list; None unknown."""
    return _nodes(rows["seen_nodes"]) if "seen_nodes" in rows else None


def _nodes(lists: pd.Series) -> str | None:
    """All nodes of several Linux lists as one; None without any."""
    nodes = {node for text in lists for node in nodes_of(text)}
    return format_cpu_list(nodes) or None


def _value(cell: Mapping[str, Any] | None, scale: Scale) -> TextCell:
    """The median with three digits; what it is known to on hover."""
    if cell is None:
        return TextCell("", "not part of the experiment", "absent")
    if cell["status"] == "valid":
        shown = cell["median"] / scale.factor
        decimals = 0 if shown >= 99.95 else 1 if shown >= 9.995 else 2
        return TextCell(f"{shown:.{decimals}f}", numbers_of(cell, scale))
    text = "failed" if cell["status"] == "failed" else "\N{EN DASH}"
    return TextCell(text, numbers_of(cell, scale), cell["status"])


def curve_table(cells: FigureData) -> pd.DataFrame:
    """The numbers of each of a figure's curves, see `statistics.curve_quantities`.

    The columns that tell curves apart are those of the figure's axes, with names of places.
    """
    rows = cells.rows
    if "series" in cells.axes:
        groups = [rows]
        if "panels" in cells.axes:
            groups = [own for _, own in rows.groupby("panels", sort=False)]
        rows = pd.concat([with_unloaded(own, "series") for own in groups], ignore_index=True)
    found = curve_quantities(rows, list(cells.axes))
    for role in reversed(list(cells.axes)):
        order = {name: number for number, name in enumerate(cells.axes[role].names)}
        found = found.sort_values(role, key=lambda names: names.map(order), kind="stable")
    return found.reset_index(drop=True)


def quantity_words(name: str, metric: str) -> str:
    """A quantity of a curve in words, with its metric's."""
    words = {"unloaded": "Unloaded", "peak": "Peak", "knee": "Knee (latency doubled)"}
    if name in words:
        return words[name]
    return f"{metric_words(metric).capitalize()} at {name.rsplit('_', 1)[1]} % of the peak"


def metric_of(quantity_name: str, cells: FigureData) -> str:
    """What a quantity of a curve is measured in."""
    return cells.spec.metric if quantity_name in _LATENCIES else str(cells.x_metric)


def _curve_quantities(cells: FigureData) -> TextTable:
    """A row a curve, a column a quantity, with intervals in the cells and reasons below."""
    found = curve_table(cells)
    roles = list(cells.axes)
    rows, notes = [], []
    keys = roles or ["host"]
    for key, own in found.groupby(keys, sort=False, dropna=False):
        names = [_curve_name(cells, role, name) for role, name in zip(roles, key, strict=False)]
        by_quantity = {row["quantity"]: row for row in own.to_dict("records")}
        shown = []
        for name in QUANTITIES:
            row, metric = by_quantity[name], metric_of(name, cells)
            shown.append(_curve_cell(row, metric))
            if isinstance(row["reason"], str):
                head = f"{', '.join(names)}: " if names else ""
                notes.append(f"{head}{quantity_words(name, metric).lower()}: {row['reason']}.")
        rows.append((*(TextCell(name) for name in names), *shown))
    heads = [cells.axes[role].title for role in roles]
    heads += [quantity_words(name, metric_of(name, cells)) for name in QUANTITIES]
    caption = f"Numbers of the curves, {replicates(cells)}"
    return TextTable(caption, tuple(heads), len(roles), tuple(rows), True, tuple(notes))


def _curve_name(cells: FigureData, role: str, name: Any) -> str:
    if not isinstance(name, str):
        return "nothing beside it"
    known = {place.name: place.long for place in cells.axes[role].places}
    return known.get(name, axis_value_of(name).long)


def _curve_cell(row: Mapping[str, Any], metric: str) -> TextCell:
    if pd.isna(row["median"]):
        return TextCell("\N{EN DASH}", str(row["reason"]), "absent")
    text = format_quantity(metric, row["median"])
    remark = f"{row['note']}; " if isinstance(row["note"], str) else ""
    if pd.isna(row["low"]):
        return TextCell(text, f"{remark}no interval: one replicate")
    scale = choose_scale(metric, [row["median"]])
    interval = f"{scale.number(row['low'])} to {scale.number(row['high'])}"
    return TextCell(text, f"{remark}{interval}, n = {int(row['n'])}")
