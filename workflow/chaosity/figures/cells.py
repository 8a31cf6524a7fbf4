"""From the tidy table to what one figure shows: a row a mark, and the axes it stands on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.figures.places import Group, Place, arrange, axis_title, packages_of_nodes, place_of
from chaosity.figures.spec import FigureSpec
from chaosity.statistics import plain, summarise
from chaosity.topology.cpusets import parse_cpu_list

ALONE = "alone"  # level of a factor that relates two loads, where one of them is missing
_POINT = ["host", "configuration", "experiment", "point", "replicate"]
_DERIVED = ("target_node_count", "load_count")


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
    places: tuple[Place, ...]
    groups: tuple[Group, ...]

    @property
    def names(self) -> list[str]:
        """Names of the places, in order."""
        return [place.name for place in self.places]

    @property
    def mixed(self) -> bool:
        """Whether there are places of several kinds, so that labels must say which."""
        return len({place.kind for place in self.places}) > 1


@dataclass(frozen=True)
class Cells:
    """What one figure shows.

    Attributes:
        spec: the figure.
        axes: by role: "rows", "columns", "x", "series", "panels"; only those the figure has.
        cells: summary with one row a mark and a column of place names per role; null in the
            column `series` is a mark that belongs to no series.
        rows: the selected rows of the tidy table with the same columns of place names.
    """

    spec: FigureSpec
    axes: Mapping[str, Axis]
    cells: pd.DataFrame
    rows: pd.DataFrame

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


def select(spec: FigureSpec, tidy: pd.DataFrame, topology: Mapping[str, Any]) -> Cells | None:
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
    columns = _Columns(spec, rows, others)
    for column, wanted in spec.where.items():
        values = columns.get(column)
        rows = rows[_chosen(values.loc[rows.index], wanted)]
    if rows.empty:
        return None
    rows = rows.copy()
    packages = packages_of_nodes(topology)
    axes: dict[str, Axis] = {}
    for role in ("panels", "series", "rows", "columns", "x"):
        column = getattr(spec, role)
        if column is None:
            continue
        values = columns.get(column).loc[rows.index]
        title = getattr(spec, f"{role}_title", None)
        listed = spec.where.get(column)
        order = [str(name) for name in listed] if isinstance(listed, list) else []
        axes[role], rows[role] = _axis(column, values, rows, packages, title, order)
    needed = [role for role in axes if role != "series"]
    rows = rows.dropna(subset=needed)
    if rows.empty:
        return None
    if "series" in axes:
        axes["series"], rows["series"] = _without_reference(axes["series"], rows)
    by = ["host", "configuration", *axes]
    return Cells(spec, axes, summarise(_combined(spec, rows, list(axes)), by), rows)


class _Columns:
    """Looks up a column of the tidy table, a factor, another load's column, or a derived one."""

    def __init__(self, spec: FigureSpec, rows: pd.DataFrame, others: pd.DataFrame) -> None:
        self._spec, self._rows, self._others = spec, rows, others
        texts = rows["factors"].fillna("{}")
        parsed = {text: json.loads(text) for text in texts.unique()}
        self._factors = texts.map(parsed)
        self._names = {name for factors in parsed.values() for name in factors}

    def get(self, name: str) -> pd.Series:
        """Values of a column, one per selected row.

        Raises:
            UserError: there is no such column.
        """
        if name in self._names:
            values = [factors.get(name) for factors in self._factors]
            return pd.Series(values, self._rows.index, dtype=object)
        if name in self._rows.columns:
            return self._rows[name]
        if name in _DERIVED:
            return self._derived(name)
        load, _, column = name.partition(".")
        if column in self._others.columns and load in set(self._others["load"]):
            return self._of_load(load, column)
        allowed = ", ".join(sorted({*self._names, *self._rows.columns, *_DERIVED}))
        raise UserError(
            f"unknown column {name}",
            self._spec.where_from,
            f"known are {allowed}, and LOAD.COLUMN for another load of the point",
        )

    def _derived(self, name: str) -> pd.Series:
        """Over how many nodes a target spreads, or how many loads a point has."""
        if name == "target_node_count":
            return self._rows["target_nodes"].map(lambda nodes: len(_nodes(nodes)))
        loads = self._others.groupby(_POINT, dropna=False)["load"].transform("nunique")
        return loads.loc[self._rows.index]

    def _of_load(self, load: str, column: str) -> pd.Series:
        """A column of another load that ran in the same point and replicate; null without one."""
        other = self._others[self._others["load"] == load].drop_duplicates(_POINT)
        values = other.set_index(_POINT)[column]
        keys = pd.MultiIndex.from_frame(self._rows[_POINT])
        return pd.Series(values.reindex(keys).to_numpy(), self._rows.index)


def _nodes(text: Any) -> tuple[int, ...]:
    """Memory nodes of a Linux list; empty for an empty or missing one."""
    return tuple(parse_cpu_list(text)) if isinstance(text, str) and text else ()


def _chosen(values: pd.Series, wanted: Any) -> pd.Series:
    """Which values are the wanted one, or one of them; None stands for null."""
    options = wanted if isinstance(wanted, list | tuple) else [wanted]
    named = [option for option in options if option is not None]
    chosen = values.isin(named)
    return chosen | values.isna() if None in options else chosen


def _axis(
    column: str,
    values: pd.Series,
    rows: pd.DataFrame,
    packages: Mapping[int, int],
    title: str | None,
    order: list[str],
) -> tuple[Axis, pd.Series]:
    """An axis over all values of a column, and the name of each row's place on it.

    Names that `where` lists stand in that order: kernels have no order of their own.
    """
    role = column.split(".")[-1]
    nodes = rows[f"{role}_nodes"] if role in ("initiator", "target") and "." not in column else None
    pairs = zip(values, nodes if nodes is not None else [""] * len(values), strict=True)
    places: dict[Any, Place] = {}
    names: list[str | None] = []
    for value, listed in pairs:
        if value is None or value is pd.NA or value != value:  # NaN is not itself
            names.append(None)
            continue
        if value not in places:
            plain = value.item() if isinstance(value, np.generic) else value
            place = place_of(plain, _nodes(listed))
            if place.kind == "text" and place.name in order:
                place = replace(place, sort=(order.index(place.name),))
            places[value] = place
        names.append(places[value].name)
    ordered, groups = arrange({place.name: place for place in places.values()}.values(), packages)
    axis = Axis(column, title or axis_title(column, ordered), tuple(ordered), tuple(groups))
    return axis, pd.Series(names, rows.index, dtype=object)


def _without_reference(axis: Axis, rows: pd.DataFrame) -> tuple[Axis, pd.Series]:
    """Take the level "alone" off the series when it is but a point to compare the others with."""
    alone = rows["series"] == ALONE
    if not alone.any() or alone.all() or rows.loc[alone, "x"].nunique() > 1:
        return axis, rows["series"]
    left = tuple(place for place in axis.places if place.name != ALONE)
    series = rows["series"].where(~alone, None)
    return replace(axis, places=left, groups=(Group("", 0, len(left)),)), series


def _combined(spec: FigureSpec, rows: pd.DataFrame, roles: list[str]) -> pd.DataFrame:
    """Rows with one point per mark, combined within each replicate block where there are more.

    A mark's replicate is valid when any of its points' is; the points that are not take no part.
    """
    points = rows[[*roles, "point", "load"]].drop_duplicates()
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
    names: Iterable[str] = chosen["point"].head(3)
    return ", ".join(names) + (", ..." if len(chosen) > 3 else "")
