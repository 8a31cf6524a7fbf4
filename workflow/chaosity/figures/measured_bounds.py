"""Bounds of a figure's marks, measured elsewhere in the experiment: the roof of a roofline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from chaosity.figures.axis_order_and_labels import make_axis_value
from chaosity.figures.figure_column_values import FigureColumnValues
from chaosity.figures.figure_spec import BoundEntry, FigureSpec, Level, Role
from chaosity.store.measurements import Measurements, equals_or_in_list

# Axes that a bound depends on. A bound that is constant along x is the same for all series: the
# resource behind it, such as memory, need not belong to a series.
_ALONG: tuple[Role, ...] = ("panels", "series", "x")
_CONSTANT: tuple[Role, ...] = ("panels",)


@dataclass(frozen=True)
class MeasuredBound:
    """A bound of a figure.

    Attributes:
        title: from the figure's YAML.
        along_x: whether it has a value for each x, or a single value.
        values: medians in the metric's unit, by the names of panel, series and x; a name is None
            where the bound does not depend on this axis.
    """

    title: str
    along_x: bool
    values: Mapping[tuple[str | None, str | None, str | None], float]

    def value_at(self, panel: str | None, series: str | None, x: str | None) -> float | None:
        """Return the bound of a mark; None where it was not measured."""
        return self.values.get((panel, series, x) if self.along_x else (panel, None, None))


def read_measured_bounds(spec: FigureSpec, experiment: Measurements) -> tuple[MeasuredBound, ...]:
    """Return the bounds of a figure that were measured.

    Args:
        spec: description of the figure.
        experiment: all rows of its experiment.

    Raises:
        UserError: a bound names an unknown column.
    """
    bounds = (_read_bound(spec, entry, experiment) for entry in spec.bounds)
    return tuple(bound for bound in bounds if bound.values)


def _read_bound(spec: FigureSpec, entry: BoundEntry, experiment: Measurements) -> MeasuredBound:
    """Return a bound; without values when it was not measured."""
    along_x = entry.get("along_x", False)
    measured = experiment.where(load=entry["load"], metric=entry["metric"]).valid_rows()
    if not len(measured):
        return MeasuredBound(entry["title"], along_x, {})
    columns, rows = FigureColumnValues(spec, measured, experiment), measured.rows
    for column, wanted in entry.get("where", {}).items():
        rows = rows[equals_or_in_list(columns.get(column).loc[rows.index], wanted)]
    used = {role: spec.column_of_axis(role) for role in (_ALONG if along_x else _CONSTANT)}
    names = {role: columns.get(name).map(_name) for role, name in used.items() if name is not None}
    roles, rows = list(names), rows.assign(**names)
    # As the marks of a figure: points of a mark are combined within each replicate block.
    values: dict[tuple[str | None, str | None, str | None], float] = {}
    for key, own in rows.groupby(list(roles)) if roles else [((), rows)]:
        place: dict[Role, str] = dict(zip(roles, map(str, key), strict=True))
        blocks = own.groupby("replicate")["value"].median() if roles else own["value"]
        if len(blocks):
            at = (place.get("panels"), place.get("series"), place.get("x"))
            values[at] = float(blocks.median()) * entry.get("times", 1.0)
    return MeasuredBound(entry["title"], along_x, values)


def _name(level: Level) -> str | None:
    """Return the name of a level on an axis; None for a missing level."""
    return None if pd.isna(level) else make_axis_value(level).name


def lowest_bound_of_mark(
    bounds: Iterable[MeasuredBound], panel: str | None, series: str | None, x: str | None
) -> tuple[str, float] | None:
    """Return title and value of the lowest bound of a mark; None without a bound."""
    known = [(bound.title, bound.value_at(panel, series, x)) for bound in bounds]
    found = [(title, value) for title, value in known if value is not None]
    return min(found, key=lambda bound: bound[1], default=None)
