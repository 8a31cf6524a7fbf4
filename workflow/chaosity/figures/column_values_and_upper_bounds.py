"""Read the values of the columns that a figure's YAML names; bounds of its marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.figures.figure_spec import FigureSpec
from chaosity.store.measurements import (
    LOAD,
    POINT,
    Measurements,
    parse_levels_json,
)

_BLOCK = [*POINT, "replicate"]
# Columns that are summed over several loads with the same name.
_SUMMED = ("threads", "drives")
# Columns that count the nodes of another column.
_NODE_COUNTS = {f"{side}_node_count": f"{side}_nodes" for side in ("initiator", "target")}


class FigureColumnValues:
    """Values of columns for the rows of a figure.

    A column is a factor of the experiment, a column of the measurements, a column of another load
    of the point (LOAD.COLUMN), or a number of nodes (`initiator_node_count`).
    """

    def __init__(self, spec: FigureSpec, rows: Measurements, experiment: Measurements) -> None:
        """Keep the `rows` with the figure's load and metric; `experiment` has all rows."""
        self._spec, self._figure, self._experiment = spec, rows, experiment
        self._rows = rows.rows

    def values_of_column(self, name: str) -> pd.Series:
        """Return the values of a column, one per row.

        Raises:
            UserError: the column is unknown.
        """
        factors = _factor_names(self._figure)
        if name in factors:
            return self._figure.factor_level_of_each_row(name)
        if name in self._rows.columns:
            return self._rows[name]
        if name in _NODE_COUNTS:
            return self._rows[_NODE_COUNTS[name]].map(lambda nodes: len(parse_node_list(nodes)))
        load, _, column = name.partition(".")
        others = self._experiment.where(load=load)
        if column and column in {*others.rows.columns, *_factor_names(others)} and len(others):
            return self._of_load(others, column)
        allowed = ", ".join(sorted({*factors, *self._rows.columns, *_NODE_COUNTS}))
        raise UserError(
            f"unknown column {name}",
            self._spec.name_in_errors,
            f"allowed: {allowed}, and LOAD.COLUMN for another load of the point",
        )

    def numbers_of_column_or_metric(self, name: str) -> tuple[pd.Series, str | None]:
        """Return a column of numbers, or a metric of another load, with one value per row.

        Returns:
            The values (NaN if unknown) and the name of the metric (None for a column). If the load
                is not part of the point, its value is 0. Over several loads with this name, rates
                are summed and other metrics are averaged.

        Raises:
            UserError: the column or metric is unknown, or its values are not numbers.
        """
        load, _, metric = name.partition(".")
        others = self._experiment.where(load=load)
        if metric and metric in set(others.rows["metric"]):
            return self._of_metric(others, metric), metric
        values = self.values_of_column(name)
        try:
            return values.astype(float), None
        except (TypeError, ValueError) as error:
            raise UserError(
                f"the values of column {name} are not numbers", self._spec.name_in_errors
            ) from error

    def _of_load(self, others: Measurements, column: str) -> pd.Series:
        """Return a column of another load of the same point and replicate; null without that load.

        Several loads with this name give their common value. If they differ, names are joined, and
        numbers of threads or drives are summed. A row of the load itself keeps its own value.
        """
        rows = others.rows
        values = rows[column] if column in rows.columns else others.factor_level_of_each_row(column)
        loads = rows[[*_BLOCK, *LOAD]].assign(_value=values).drop_duplicates([*_BLOCK, *LOAD])
        joined = loads.set_index(_BLOCK)["_value"]
        if not joined.index.is_unique:
            grouped = loads.groupby(_BLOCK, dropna=False)["_value"]
            joined = grouped.agg(lambda own: _join_values(own, summed=column in _SUMMED))
        keys = pd.MultiIndex.from_frame(self._rows[_BLOCK])
        found = pd.Series(joined.reindex(keys).to_numpy(), self._rows.index)
        own_rows = self._rows.index.intersection(rows.index)
        if len(own_rows):
            found = found.astype(object)
            found.loc[own_rows] = values.loc[own_rows]
        return found

    def _of_metric(self, others: Measurements, metric: str) -> pd.Series:
        """Return a metric of another load; 0 in points without that load, NaN without a value."""
        total = "sum" if metric.endswith("_per_second") else "mean"
        values = others.where(metric=metric).rows.groupby(_BLOCK, dropna=False)["value"]
        totals = values.agg(total).where(values.count() == values.size())
        keys = pd.MultiIndex.from_frame(self._rows[_BLOCK])
        found = pd.Series(totals.reindex(keys).to_numpy(dtype=float), self._rows.index)
        with_load = pd.MultiIndex.from_frame(others.rows[_BLOCK])
        return found.where(keys.isin(with_load), 0.0)


def parse_node_list(text: object) -> tuple[int, ...]:
    """Return the memory nodes of a Linux list; none for an empty or missing text."""
    return tuple(parse_cpu_list(text)) if isinstance(text, str) and text else ()


def _factor_names(rows: Measurements) -> set[str]:
    """Return the names of all factors of the rows."""
    return {name for text in rows.rows["factors"].unique() for name in parse_levels_json(text)}


def _join_values(values: pd.Series, *, summed: bool) -> object:
    """Return the common value of several loads, their sum, or their names joined by "+"."""
    known = list(dict.fromkeys(value for value in values if not pd.isna(value)))
    if summed and known:
        return values.sum()
    return known[0] if len(known) == 1 else "+".join(map(str, known)) or None


@dataclass(frozen=True)
class MeasuredBound:
    """A bound of a figure, such as the roof of a roofline; other points measured it."""

    title: str  # title in the figure's YAML
    along_x: bool  # whether the bound has a value for each x instead of a single value
    # Names of panel, series and x -> median in the metric's unit; a name is None if the bound does
    # not depend on this axis.
    values: Mapping[tuple[str | None, str | None, str | None], float]

    def bound_of_mark(self, panel: str | None, series: str | None, x: str | None) -> float | None:
        """Return the bound of a mark; None if the bound was not measured."""
        return self.values.get((panel, series, x) if self.along_x else (panel, None, None))


def lowest_bound_of_mark(
    bounds: Iterable[MeasuredBound], panel: str | None, series: str | None, x: str | None
) -> tuple[str, float] | None:
    """Return the title and the value of the lowest bound of a mark; None without a bound."""
    known = [(bound.title, bound.bound_of_mark(panel, series, x)) for bound in bounds]
    found = [(title, value) for title, value in known if value is not None]
    return min(found, key=lambda bound: bound[1], default=None)
