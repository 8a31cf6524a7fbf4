"""From the tidy table to what one figure shows: a row a mark, and the axes it stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.figures.axis_values import (
    NUMERIC,
    AxisGroup,
    AxisValue,
    MachineOrder,
    axis_title,
    axis_value_of,
    machine_order,
    sort_and_group,
)
from chaosity.figures.bounds import Bound, bounds_of
from chaosity.figures.column_values import ColumnValues, chosen, nodes_of
from chaosity.figures.figure_spec import FigureSpec
from chaosity.statistics import CELL, LOAD, plain, summarise

ALONE = "alone"  # level of a factor that relates two loads, where one of them is missing


@dataclass(frozen=True)
class Axis:
    """One axis with its values in order.

    Attributes:
        column: what it shows, as in the figure's YAML.
        title: as it stands on the figure.
        places: the values in order.
        groups: neighbours that belong together, covering all places.
    """

    column: str
    title: str
    places: tuple[AxisValue, ...]
    groups: tuple[AxisGroup, ...]

    @property
    def names(self) -> list[str]:
        """Names of the places, in order."""
        return [place.name for place in self.places]

    @property
    def numeric(self) -> bool:
        """Whether every place is a number, so that first and last mean something."""
        return all(place.kind in NUMERIC for place in self.places)

    @property
    def mixed(self) -> bool:
        """Whether there are places of several kinds, so that labels must say which."""
        return len({place.kind for place in self.places}) > 1


@dataclass(frozen=True)
class FigureData:
    """What one figure shows.

    Attributes:
        spec: the figure.
        axes: by role: "rows", "columns", "x", "series", "panels"; only those the figure has.
        cells: summary with one row a mark and a column of place names per role; null in the
            column `series` is a mark that belongs to no series.
        rows: the selected rows of the tidy table with the same columns of place names; for a figure
            that compares also `level`, and for a plotted x the numbers in `x`.
        x_metric: what a plotted x is in, a metric's name or its column's; None without one.
        bounds: what was measured elsewhere and is drawn beside the marks.
    """

    spec: FigureSpec
    axes: Mapping[str, Axis]
    cells: pd.DataFrame
    rows: pd.DataFrame
    x_metric: str | None = None
    bounds: tuple[Bound, ...] = ()

    @property
    def file_backed(self) -> bool:
        """Whether any value was measured on a file instead of a drive."""
        return bool(self.cells["file_backed"].any())

    @property
    def labels(self) -> list[str]:
        """What the benchmarks say must stand next to their values."""
        texts = {label for label in self.cells["label"] if isinstance(label, str)}
        found = {part for text in texts for part in text.split(", ")}
        return sorted(found - {"file-backed"})

    @property
    def title(self) -> str:
        """The figure's title, which says when a file stood in for drives."""
        return f"{self.spec.title} (file-backed)" if self.file_backed else self.spec.title


def select_data(
    spec: FigureSpec, tidy: pd.DataFrame, topology: Mapping[str, Any]
) -> FigureData | None:
    """The rows of the tidy table that a figure shows, summarised.

    Returns:
        None when no point of this machine belongs on the figure.

    Raises:
        UserError: the figure names a column that there is not, or several points fall on one mark
            and it does not say how to combine them.
    """
    rows = plain(tidy[tidy["experiment"] == spec.experiment])
    others = rows
    rows = rows[rows["load"].isin(spec.load) & (rows["metric"] == spec.metric)]
    columns = ColumnValues(spec, rows, others)
    for column, wanted in spec.where.items():
        values = columns.get(column)
        rows = rows[chosen(values.loc[rows.index], wanted)]
    if rows.empty:
        return None
    rows = rows.copy()
    machine = machine_order(topology)
    axes: dict[str, Axis] = {}
    for role in _roles(spec):
        column = getattr(spec, role)
        if column is None:
            continue
        values = columns.get(column).loc[rows.index]
        title = getattr(spec, f"{role}_title", None)
        listed = spec.where.get(column)
        order = [str(name) for name in listed] if isinstance(listed, list) else []
        axes[role], rows[role] = _axis(column, values, rows, machine, title, order)
    if spec.compare is not None:
        rows["level"] = columns.get(spec.compare["column"]).loc[rows.index].map(str)
    if spec.cell_note is not None:
        rows["note"] = columns.get(spec.cell_note).loc[rows.index]
    needed = [role for role in axes if role != "series"]
    rows = rows.dropna(subset=needed)
    if rows.empty:
        return None
    if spec.plotted:
        return _plotted(spec, axes, rows, columns)
    if "series" in axes:
        if spec.loss_to is None:
            axes["series"], rows["series"] = _without_reference(axes["series"], rows)
        else:
            axes["series"] = _first(axes["series"], spec.loss_to)
        axes["series"], rows = _in_every_series(axes["series"], rows, spec.in_every_series)
    marks = [*axes, "initiator", "target"] if spec.kind == "table" else list(axes)
    by = list(dict.fromkeys(["host", "configuration", *marks]))
    shown = summarise(_combined(spec, rows, marks), by)
    return FigureData(spec, axes, shown, rows, bounds=bounds_of(spec, others))


def _roles(spec: FigureSpec) -> tuple[str, ...]:
    """The axes that a figure may have."""
    return ("panels", "series", *(() if spec.plotted else ("rows", "columns", "x")))


def _plotted(
    spec: FigureSpec, axes: dict[str, Axis], rows: pd.DataFrame, columns: ColumnValues
) -> FigureData | None:
    """A figure whose marks stand at a measured x: a mark a load of a point.

    The columns `x`, `x_low`, `x_high` of its cells are as median, low and high of the values.
    """
    values, metric = columns.quantity(str(spec.x))
    rows["x"] = values.loc[rows.index]
    if metric is None:
        rows = rows.dropna(subset=["x"])
    if rows.empty:
        return None
    if "series" in axes and not axes["series"].places:
        del axes["series"]
    by = [*CELL, *axes]
    cells = summarise(rows, by)
    across = summarise(rows.assign(value=rows["x"]), by)
    for name, source in (("x", "median"), ("x_low", "low"), ("x_high", "high")):
        cells[name] = across[source].to_numpy()
    if spec.kind == "curve":
        _check_lines(spec, rows, [role for role in axes if rows[role].notna().any()])
    return FigureData(spec, axes, cells, rows, metric or str(spec.x))


def _check_lines(spec: FigureSpec, rows: pd.DataFrame, roles: list[str]) -> None:
    """See to it that a line joins points of one initiator and one target only.

    Raises:
        UserError: one does not.
    """
    lines = rows.groupby(roles, dropna=False) if roles else [("the figure", rows)]
    for line, points in lines:
        for column in ("initiator", "target"):
            found = sorted(map(str, points[column].unique()))
            if len(found) > 1:
                words = ", ".join(map(str, line if isinstance(line, tuple) else (line,)))
                listed = ", ".join(found[:4])
                raise UserError(
                    f"the line of {words} joins points of several {column}s: {listed}",
                    spec.where_from,
                    "narrow `where`, or give them `series` or `panels` of their own",
                )


def _axis(
    column: str,
    values: pd.Series,
    rows: pd.DataFrame,
    machine: MachineOrder,
    title: str | None,
    order: list[str],
) -> tuple[Axis, pd.Series]:
    """An axis over all values of a column, and the name of each row's place on it.

    Names that `where` lists stand in that order: kernels have no order of their own.
    """
    role = column.split(".")[-1]
    nodes = rows[f"{role}_nodes"] if role in ("initiator", "target") and "." not in column else None
    pairs = zip(values, nodes if nodes is not None else [""] * len(values), strict=True)
    places: dict[Any, AxisValue] = {}
    names: list[str | None] = []
    for value, listed in pairs:
        if value is None or value is pd.NA or value != value:  # NaN is not itself
            names.append(None)
            continue
        if value not in places:
            plain = value.item() if isinstance(value, np.generic) else value
            place = machine.placed(axis_value_of(plain, nodes_of(listed), column))
            if place.kind == "text" and place.name in order:
                place = replace(place, sort=(order.index(place.name),))
            places[value] = place
        names.append(places[value].name)
    found = {place.name: place for place in places.values()}.values()
    ordered, groups = sort_and_group(found, machine.packages)
    axis = Axis(column, title or axis_title(column, ordered), tuple(ordered), tuple(groups))
    return axis, pd.Series(names, rows.index, dtype=object)


def _without_reference(axis: Axis, rows: pd.DataFrame) -> tuple[Axis, pd.Series]:
    """Take the level "alone" off the series when it is but a point to compare the others with."""
    alone = rows["series"] == ALONE
    if not alone.any() or alone.all() or rows.loc[alone, "x"].nunique() > 1:
        return axis, rows["series"]
    left = tuple(place for place in axis.places if place.name != ALONE)
    series = rows["series"].where(~alone, None)
    return replace(axis, places=left, groups=(AxisGroup("", 0, len(left)),)), series


def _first(axis: Axis, name: str) -> Axis:
    """The axis with one place before all others: what they are compared with."""
    places = tuple(sorted(axis.places, key=lambda place: place.name != name))
    return replace(axis, places=places, groups=(AxisGroup("", 0, len(places)),))


def _in_every_series(
    axis: Axis, rows: pd.DataFrame, names: tuple[str, ...]
) -> tuple[Axis, pd.DataFrame]:
    """Let points that lie on all lines be part of each: one thread is both packed and spread."""
    others = tuple(place for place in axis.places if place.name not in names)
    if not others or len(others) == len(axis.places):
        return axis, rows
    shared = rows["series"].isin(names)
    copies = [rows[shared].assign(series=place.name) for place in others]
    left = replace(axis, places=others, groups=(AxisGroup("", 0, len(others)),))
    return left, pd.concat([rows[~shared], *copies], ignore_index=True)


def _combined(spec: FigureSpec, rows: pd.DataFrame, roles: list[str]) -> pd.DataFrame:
    """Rows with one point per mark, combined within each replicate block where there are more.

    A mark's replicate is valid when any of its points' is; the points that are not take no part.
    """
    points = rows[list(dict.fromkeys([*roles, "point", *LOAD]))].drop_duplicates()
    shared = points.groupby(roles, dropna=False).size()
    if (shared <= 1).all():
        return rows
    if spec.combine is None:
        raise UserError(
            f"{shared.max()} points fall on {_named(roles, shared.idxmax())}: "
            f"{_listed(points, roles, shared.idxmax())}",
            spec.where_from,
            "narrow `where`, add `panels`, or say how to `combine` them",
        )
    ordered = rows.sort_values("status", key=lambda status: status != "valid", kind="stable")
    keys = ["host", "configuration", *roles, "replicate"]
    values = rows.groupby(keys, dropna=False)["value"].transform(
        {"median": "median", "minimum": "min", "maximum": "max"}[spec.combine]
    )
    return ordered.assign(value=values.loc[ordered.index]).drop_duplicates(keys).sort_index()


def _named(roles: list[str], key: Any) -> str:
    values = key if isinstance(key, tuple) else (key,)
    return ", ".join(f"{role} {value}" for role, value in zip(roles, values, strict=True))


def _listed(points: pd.DataFrame, roles: list[str], key: Any) -> str:
    """Up to three points of a mark."""
    values = key if isinstance(key, tuple) else (key,)
    chosen = points
    for role, value in zip(roles, values, strict=True):
        chosen = chosen[chosen[role].eq(value) | (chosen[role].isna() & pd.isna(value))]
    names: Iterable[str] = chosen["point"].drop_duplicates()
    first = list(names)[:4]
    return ", ".join(first[:3]) + (", ..." if len(first) > 3 else "")
