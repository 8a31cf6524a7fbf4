"""What was measured elsewhere in the experiment and bounds what a figure shows: a roofline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.figures.axis_values import axis_value_of
from chaosity.figures.column_values import ColumnValues, chosen
from chaosity.figures.figure_spec import FigureSpec
from chaosity.statistics import valid

# Roles by which a bound that changes along x is told apart; one that does not is the same for all
# series, since what it is made of (memory) need not belong to any of them.
_ALONG, _FLAT = ("panels", "series", "x"), ("panels",)


@dataclass(frozen=True)
class Bound:
    """One bound of a figure.

    Attributes:
        title: as the figure's YAML says it.
        along_x: whether it has a value for each x, or one for all.
        values: medians in the metric's unit, by the names of panel, series and x; of a role that
            the figure or the bound has not, the name is None.
    """

    title: str
    along_x: bool
    values: Mapping[tuple[str | None, str | None, str | None], float]

    def at(self, panel: str | None, series: str | None, x: str | None) -> float | None:
        """The bound of a mark; None where it was not measured."""
        return self.values.get((panel, series, x) if self.along_x else (panel, None, None))


def bounds_of(spec: FigureSpec, tidy: pd.DataFrame) -> tuple[Bound, ...]:
    """The bounds of a figure that were measured.

    Args:
        spec: the figure.
        tidy: rows of its experiment.

    Raises:
        UserError: a bound names a column that there is not.
    """
    found = (_bound(spec, entry, tidy) for entry in spec.bounds)
    return tuple(bound for bound in found if bound.values)


def _bound(spec: FigureSpec, entry: Mapping[str, Any], tidy: pd.DataFrame) -> Bound:
    along_x = entry.get("along_x", False)
    rows = valid(tidy[(tidy["load"] == entry["load"]) & (tidy["metric"] == entry["metric"])])
    if rows.empty:
        return Bound(entry["title"], along_x, {})
    columns = ColumnValues(spec, rows, tidy)
    keep = pd.Series(True, rows.index)
    for column, wanted in entry.get("where", {}).items():
        keep &= chosen(columns.get(column), wanted)
    used = [role for role in (_ALONG if along_x else _FLAT) if getattr(spec, role) is not None]
    names = {role: columns.get(getattr(spec, role)).map(_name) for role in used}
    rows = rows[keep].assign(**names)
    # As the marks of a figure: points that share a place are joined within each replicate block.
    blocks = rows.groupby([*used, "replicate"])["value"].median() if used else rows["value"]
    medians = blocks.groupby(level=used).median() if used else {(): rows["value"].median()}
    values = {}
    for key, median in medians.items():
        names_here = dict(zip(used, key if isinstance(key, tuple) else (key,), strict=True))
        place = (names_here.get("panels"), names_here.get("series"), names_here.get("x"))
        if not math.isnan(median):
            values[place] = float(median) * entry.get("times", 1.0)
    return Bound(entry["title"], along_x, values)


def _name(value: Any) -> str | None:
    """Name of the place that a value has on an axis."""
    if value is None or value is pd.NA or value != value:  # NaN is not itself
        return None
    return axis_value_of(value.item() if isinstance(value, np.generic) else value).name


def lowest(bounds: Iterable[Bound], place: tuple[str | None, ...]) -> tuple[str, float] | None:
    """Title and value of the lowest bound of a mark at (panel, series, x)."""
    known = [(bound.title, bound.at(*place)) for bound in bounds]
    return min(
        ((title, value) for title, value in known if value is not None),
        key=lambda one: one[1],
        default=None,
    )
