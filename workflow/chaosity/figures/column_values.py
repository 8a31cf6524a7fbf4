"""Looks up what a figure's YAML calls a column, for the rows that a figure is about."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.figures.figure_spec import FigureSpec
from chaosity.statistics import LOAD, load_counts

POINT = ["host", "configuration", "experiment", "point", "replicate"]
DERIVED = ("target_node_count", "load_count")
# Of several loads of one name together these are the sum of theirs.
_ADDING = ("threads", "drives")


class ColumnValues:
    """Columns of the tidy table, factors, those of another load of the point, and derived ones."""

    def __init__(self, spec: FigureSpec, rows: pd.DataFrame, others: pd.DataFrame) -> None:
        """Prepare for the rows of a figure.

        Args:
            spec: the figure.
            rows: of the tidy table, of the figure's load and metric.
            others: all rows of the experiment.
        """
        self._spec, self._rows, self._others = spec, rows, others

    def get(self, name: str) -> pd.Series:
        """Values of a column, one per row.

        Raises:
            UserError: there is no such column.
        """
        own = _factors(self._rows)
        if name in _names(own):
            values = [factors.get(name) for factors in own]
            return pd.Series(values, self._rows.index, dtype=object)
        if name in self._rows.columns:
            return self._rows[name]
        if name in DERIVED:
            return self._derived(name)
        load, _, column = name.partition(".")
        others = self._others[self._others["load"] == load]
        if not others.empty and column:
            known = column in others.columns
            if known or column in _names(_factors(others)):
                return self._of_load(others, column)
        allowed = ", ".join(sorted({*_names(own), *self._rows.columns, *DERIVED}))
        raise UserError(
            f"unknown column {name}",
            self._spec.where_from,
            f"known are {allowed}, and LOAD.COLUMN for another load of the point",
        )

    def quantity(self, name: str) -> tuple[pd.Series, str | None]:
        """A column of numbers, or the metric of another load, one value per row.

        Returns:
            The values, NaN where they are unknown, and the metric or None for a column. The metric
            of a load that is not part of the point is 0; of several loads of the name rates are
            added up, and of anything else the mean counts.

        Raises:
            UserError: there is no such column or metric, or it holds no numbers.
        """
        load, _, metric = name.partition(".")
        others = self._others[(self._others["load"] == load) & (self._others["metric"] == metric)]
        if metric and not others.empty:
            return self._of_metric(others, load), metric
        values = self.get(name)
        try:
            return values.astype(float), None
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} holds no numbers", self._spec.where_from) from error

    def _derived(self, name: str) -> pd.Series:
        """Over how many nodes a target spreads, or how many loads a point has."""
        if name == "target_node_count":
            return self._rows["target_nodes"].map(lambda nodes: len(nodes_of(nodes)))
        return load_counts(self._others).loc[self._rows.index].astype(int)

    def _of_load(self, others: pd.DataFrame, column: str) -> pd.Series:
        """A column of another load that ran in the same point and replicate; null without one.

        Several loads of that name have one value where they agree; else names are joined and
        numbers of threads or drives added up. A row of that name itself has its own value.
        """
        values = others[column] if column in others.columns else None
        if values is None:
            held = [factors.get(column) for factors in _factors(others)]
            values = pd.Series(held, others.index, dtype=object)
        loads = others[[*POINT, *LOAD]].assign(_value=values).drop_duplicates([*POINT, *LOAD])
        joined = loads.set_index(POINT)["_value"]
        if not joined.index.is_unique:
            adding = column in _ADDING
            joined = loads.groupby(POINT, dropna=False)["_value"].agg(
                lambda own: _joined(own, adding)
            )
        keys = pd.MultiIndex.from_frame(self._rows[POINT])
        found = pd.Series(joined.reindex(keys).to_numpy(), self._rows.index)
        own = self._rows.index.intersection(others.index)
        if len(own):
            found = found.astype(object)
            found.loc[own] = values.loc[own]
        return found

    def _of_metric(self, others: pd.DataFrame, load: str) -> pd.Series:
        """The metric of another load; 0 in points that are without it, NaN where it has none."""
        total = "sum" if str(others["metric"].iloc[0]).endswith("_per_second") else "mean"
        values = others.groupby(POINT, dropna=False)["value"].agg(
            lambda own: own.agg(total) if own.notna().all() else np.nan
        )
        keys = pd.MultiIndex.from_frame(self._rows[POINT])
        found = pd.Series(values.reindex(keys).to_numpy(dtype=float), self._rows.index)
        with_load = pd.MultiIndex.from_frame(self._others.loc[self._others["load"] == load, POINT])
        return found.where(keys.isin(with_load), 0.0)


def chosen(values: pd.Series, wanted: Any) -> pd.Series:
    """Which values are the wanted one, or one of them; None stands for null."""
    options = wanted if isinstance(wanted, list | tuple) else [wanted]
    named = [option for option in options if option is not None]
    found = values.isin(named)
    return found | values.isna() if None in options else found


def nodes_of(text: Any) -> tuple[int, ...]:
    """Memory nodes of a Linux list; empty for an empty or missing one."""
    return tuple(parse_cpu_list(text)) if isinstance(text, str) and text else ()


def _factors(rows: pd.DataFrame) -> pd.Series:
    """The factors of each row as a mapping."""
    texts = rows["factors"].fillna("{}")
    return texts.map({text: json.loads(text) for text in texts.unique()})


def _names(factors: Iterable[dict[str, Any]]) -> set[str]:
    return {name for held in factors for name in held}


def _joined(values: pd.Series, adding: bool) -> Any:
    known = list(dict.fromkeys(value for value in values if not pd.isna(value)))
    if adding and known:
        return values.sum()
    return known[0] if len(known) == 1 else "+".join(map(str, known)) or None
