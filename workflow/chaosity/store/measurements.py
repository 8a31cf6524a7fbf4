"""The tidy table, prepared once for every analysis, and the points that a budget left out.

`Measurements` has rows of the tidy table in numpy types. `Measurements` selects the rows that have
a value, the rows of loads that ran alone, comparable rows, and rows that form a matrix of nodes.
The selected rows are again a `Measurements`.

Predictions are in a separate file, so that nobody who reads the tidy table mistakes a prediction
for a measurement.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.core.groupby import DataFrameGroupBy

from chaosity.cpusets import CpuSet, parse_cpu_list
from chaosity.errors import UserError
from chaosity.records.record_format import SIMULATED, VALID
from chaosity.result_folders import PREDICTIONS_FILE, UNMEASURED_FILE
from chaosity.store.csv_tables import NodeMatrix
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, read_parquet_table
from chaosity.units import group_thousands

# Columns that identify a point of one host in one configuration.
POINT_COLUMNS = ("host", "configuration", "experiment", "point")
# Columns that identify a load of a point. Loads of a point may share a name, but they differ in
# initiator or target.
LOAD_COLUMNS = ("load", "initiator", "target")
# Columns that identify a cell: one metric of one load of one point, with all replicates.
CELL_COLUMNS = (*POINT_COLUMNS, *LOAD_COLUMNS, "metric")
# Columns whose values differ between the replicates of one cell.
REPLICATE_COLUMNS = ("replicate", "order", "measured_at", "status", "reason", "value", "remarks")
# Rows with the same values in these columns are comparable.
SLICE_COLUMNS = ("experiment", "load", "benchmark", "kernel", "metric", "initiator_kind", "levels")
# The level that holds the working set of a load in bytes.
WORKING_SET = "bytes"
_NO_LEVELS = "{}"

Mask = pd.Series | NDArray[np.bool_]
# Column of `SLICE_COLUMNS` -> the value that all rows of a group of comparable rows have.
SliceKey = dict[str, str | None]


def less_is_better(metric: str) -> bool:
    """Return whether a smaller value of a metric is better, which is true only for times."""
    return metric.endswith(("_ns", "_seconds"))


def is_performance_metric(metric: str) -> bool:
    """Return whether a metric measures the performance of hardware, as rates and times do.

    Counts, shares and ratios do not: a larger count or share is neither better nor worse, and a
    ratio only repeats what the two divided rows of the table say.
    """
    return less_is_better(metric) or metric.endswith("_per_second")


def is_percentile(metric: str) -> bool:
    """Return whether a metric is a percentile of many values, as `completion_latency_p99_ns` is."""
    return re.search(r"_p\d+_", metric) is not None


def disturbed_mask(rows: pd.DataFrame) -> pd.Series:
    """Return for each row whether other programs or a slow clock disturbed the measurement."""
    if "remarks" not in rows:
        return pd.Series(False, rows.index)
    found: pd.Series = rows["remarks"].str.contains("disturbed", na=False)
    return found.astype(bool)


@lru_cache(maxsize=1 << 16)
def parse_levels_json(text: object) -> Mapping[str, Any]:
    """Return the mapping in a JSON text of the column `factors` or `levels`; {} without a text."""
    return dict(json.loads(text)) if isinstance(text, str) and text else {}


def parse_nodes(text: object) -> CpuSet:
    """Return the nodes in a text of the columns `initiator_nodes` and `target_nodes`, as 0-3.

    A missing text has no nodes.

    Raises:
        ValueError: the text is damaged.
    """
    return parse_cpu_list(text) if isinstance(text, str) else ()


def equals_or_in_list(values: pd.Series, wanted: object) -> pd.Series:
    """Return for each value whether it equals `wanted` or is in this list; None matches NaN."""
    options = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    found = values.isin([option for option in options if option is not None])
    return found | values.isna() if None in options else found


@dataclass(frozen=True, eq=False)
class Measurements:
    """Rows of the tidy table, ready for analysis."""

    # The columns of the tidy table in numpy types; a missing text is None, a missing number NaN.
    # Two columns are added: `load_count` is the number of loads of the row's point.
    # `load_parameters` has the levels of the row's load as JSON; the text is "{}" without levels.
    rows: pd.DataFrame

    @classmethod
    def from_table(cls, table: Measurements | pd.DataFrame) -> Measurements:
        """Return a tidy table, prepared for analysis; return a `Measurements` unchanged.

        The table must have all rows of each point, since the loads of each point are counted.
        """
        if isinstance(table, Measurements):
            return table
        rows = _in_numpy_types(table)
        if "load_count" not in rows:
            # One load can have rows for several targets: a metric by node has a row for each node.
            # So name and initiator identify a load of a point here.
            loads = rows["load"].astype(str) + "\0" + rows["initiator"].astype(str)
            of_point = loads.groupby(
                [rows[name] for name in POINT_COLUMNS], dropna=False, sort=False
            )
            rows = rows.assign(load_count=of_point.transform("nunique"))
        if "load_parameters" not in rows:
            levels = rows["levels"] if "levels" in rows else pd.Series(None, rows.index, object)
            rows = rows.assign(load_parameters=levels.fillna(_NO_LEVELS))
        return cls(rows)

    @classmethod
    def read(cls, path: Path, columns: Mapping[str, str] = COLUMN_TYPES) -> Measurements:
        """Return the tidy table in a Parquet file, prepared; see `read_parquet_table`."""
        return cls.from_table(read_parquet_table(path, columns))

    @classmethod
    def concatenated(cls, parts: Iterable[Measurements]) -> Measurements:
        """Return the rows of all `parts` as one `Measurements`, with a new index.

        Raises:
            UserError: some parts are simulated, and other parts are measured.
        """
        found = list(parts)
        cls.refuse_mixed_origins(found)
        return cls(pd.concat([part.rows for part in found], ignore_index=True))

    @staticmethod
    def refuse_mixed_origins(parts: Iterable[Measurements]) -> None:
        """Raise a UserError if some of the `parts` are simulated and others are measured."""
        if len({part.is_simulated for part in parts if len(part)}) > 1:
            what = "simulated and measured values cannot be compared or combined"
            raise UserError(what, remedy="give only simulated hosts or only measured hosts")

    @property
    def is_simulated(self) -> bool:
        """Return whether any value is from a simulated host and so must not count as measured."""
        return "origin" in self.rows and bool((self.rows["origin"] == SIMULATED).any())

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, mask: Mask) -> Measurements:
        """Return the rows where a mask is true."""
        return Measurements(self.rows[mask])

    def where(self, **wanted: object) -> Measurements:
        """Return the rows whose named columns have the wanted values, see `equals_or_in_list`."""
        rows = self.rows
        for column, value in wanted.items():
            rows = rows[equals_or_in_list(rows[column], value)]
        return Measurements(rows)

    def with_columns(self, **columns: object) -> Measurements:
        """Return the rows with further columns."""
        return Measurements(self.rows.assign(**columns))  # type: ignore[arg-type] # stub is narrow

    def valid_rows(self) -> Measurements:
        """Return the rows of valid measurements with a value above 0, for ratios and logarithms."""
        return self.select((self.rows["status"] == VALID) & (self.rows["value"] > 0.0))

    def valid_rows_with_value(self) -> Measurements:
        """Return the rows of valid measurements with a value, zero included."""
        finite = np.isfinite(self.rows["value"].to_numpy(float))
        return self.select((self.rows["status"] == VALID) & finite)

    def performance_rows(self) -> Measurements:
        """Return the rows whose metric measures performance: rates and times."""
        metrics = self.rows["metric"]
        return self.select(metrics.isin(list(filter(is_performance_metric, metrics.unique()))))

    def without_percentiles(self) -> Measurements:
        """Return the rows without percentiles, which few slow accesses decide.

        So percentiles scatter more than medians.
        """
        return self.select(~self.rows["metric"].map(is_percentile).astype(bool))

    def single_load_rows(self) -> Measurements:
        """Return the rows of points with a single load."""
        return self.select(self.rows["load_count"] == 1)

    def rows_of_corunning_loads(self) -> Measurements:
        """Return the rows of points with several loads, which run at the same time."""
        return self.select(self.rows["load_count"] > 1)

    def node_to_node_rows(self) -> Measurements:
        """Return the rows of memory accesses from one node to one node.

        Adds the columns `initiator_node` and `target_node`, the node numbers.
        """
        rows = self.rows[(self.rows["target_kind"] == "node") & self.rows["drives"].isna()]
        for column in ("initiator_nodes", "target_nodes"):
            rows = rows[rows[column].astype(str).str.fullmatch(r"\d+")]
        return Measurements(rows).with_columns(
            initiator_node=rows["initiator_nodes"].astype(int),
            target_node=rows["target_nodes"].astype(int),
        )

    @cached_property
    def factors_of_each_row(self) -> pd.Series:
        """Return for each row the mapping factor -> level of the row's point and load."""
        return self.rows["factors"].map(parse_levels_json).astype(object)

    def factor_level_of_each_row(self, name: str) -> pd.Series:
        """Return for each row the level of the factor `name`, or None without this factor."""
        found = [levels.get(name) for levels in self.factors_of_each_row]
        return pd.Series(found, self.rows.index, dtype=object)

    def load_level_of_each_row(self, name: str) -> pd.Series:
        """Return for each row the level `name` of the row's load, or None without this level."""
        found = [parse_levels_json(text).get(name) for text in self.rows["load_parameters"]]
        return pd.Series(found, self.rows.index, dtype=object)

    @cached_property
    def first_row_of_each_load(self) -> pd.DataFrame:
        """Return the first row of each load of each point."""
        return self.rows.drop_duplicates([*POINT_COLUMNS, *LOAD_COLUMNS])

    def other_loads(self, row: pd.Series) -> pd.DataFrame:
        """Return the first row of each load that has the same point as `row` but another name."""
        loads: pd.DataFrame = self._loads_by_point.get_group(tuple(row[[*POINT_COLUMNS]]))
        others: pd.DataFrame = loads[loads["load"] != row["load"]]
        return others

    @cached_property
    def _loads_by_point(self) -> DataFrameGroupBy[Any, Any]:
        return self.first_row_of_each_load.groupby(list(POINT_COLUMNS), sort=False)

    def corunning_text(self, columns: Sequence[str]) -> pd.Series:
        """Return for each row a text on the other loads of the row's point, or an empty text.

        The text has the values in `columns` of each other load. Example text, for the columns
        `load`, `initiator` and `target`: "traffic node0 node0, 2 x traffic node1 node1".
        """
        places = [*POINT_COLUMNS, *LOAD_COLUMNS]
        numbers = self.first_row_of_each_load.groupby(
            list(POINT_COLUMNS), dropna=False, sort=False
        ).ngroup()
        several = numbers.duplicated(keep=False)
        if not several.any():
            return pd.Series("", self.rows.index, dtype=object)
        loads, numbers = self.first_row_of_each_load[several], numbers[several]
        texts = _values_as_one_text(loads, columns)
        all_of_point = {point: Counter(own) for point, own in texts.groupby(numbers)}
        others = [
            _texts_as_one_text(all_of_point[point] - Counter([text]))
            for point, text in zip(numbers, texts, strict=True)
        ]
        own = loads[places].assign(_others=pd.Series(others, loads.index, dtype=object))
        merged = self.rows[places].merge(own, on=places, how="left")  # keeps the order of rows
        return merged["_others"].set_axis(self.rows.index).fillna("")

    def groups_by_columns(
        self, by: Sequence[str]
    ) -> Iterator[tuple[tuple[Any, ...], Measurements]]:
        """Yield each combination of values in the columns `by`, and its rows in unchanged order."""
        for key, rows in self.rows.groupby(list(by), sort=False, dropna=False):
            yield tuple(key), Measurements(rows)

    def comparable_slices(self) -> Iterator[tuple[SliceKey, Measurements]]:
        """Yield the values in `SLICE_COLUMNS`, and the rows, of each group of comparable rows."""
        for key, part in self.groups_by_columns(SLICE_COLUMNS):
            texts = (None if pd.isna(value) else value for value in key)
            yield dict(zip(SLICE_COLUMNS, texts, strict=True)), part

    def node_matrices(self) -> Iterator[tuple[SliceKey, NodeMatrix]]:
        """Yield the matrix of initiator node x target node of each group of comparable valid rows.

        Each matrix comes with the values of its rows in the columns `SLICE_COLUMNS`. All rows must
        be from one host in one configuration, and from loads that ran alone. Groups with several
        initiators for one node, and groups with a single cell, are left out.
        """
        for where, part in self.valid_rows().node_to_node_rows().comparable_slices():
            if part.has_at_most_one_initiator_per_node and part.initiator_target_pair_count > 1:
                yield where, part.node_matrix()

    def node_matrix(self, metric: str | None = None, source: str | None = None) -> NodeMatrix:
        """Return the matrix of the rows; each cell has all its replicates in order.

        The rows must be from `node_to_node_rows`. `source` is the origin of the values. By default
        `metric` and `source` are the metric and the experiment of the first row.
        """
        groups = self.groups_by_columns(["initiator_node", "target_node"])
        cells = {(int(row), int(column)): cell.rows for (row, column), cell in groups}
        return NodeMatrix(
            metric=metric or str(self.rows["metric"].iloc[0]),
            initiators=tuple(sorted({row for row, _ in cells})),
            targets=tuple(sorted({column for _, column in cells})),
            samples={pair: tuple(map(float, cell["value"])) for pair, cell in cells.items()},
            blocks={pair: tuple(map(int, cell["replicate"])) for pair, cell in cells.items()},
            source=source or str(self.rows["experiment"].iloc[0]),
        )

    @property
    def has_at_most_one_initiator_per_node(self) -> bool:
        """Return whether each node has at most one initiator; two cores count as two initiators."""
        return not (self.rows.groupby("initiator_nodes")["initiator"].nunique() > 1).any()

    @property
    def initiator_target_pair_count(self) -> int:
        """Return the number of pairs of initiator and target."""
        return len(self.rows[["initiator", "target"]].drop_duplicates())


def _in_numpy_types(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table in numpy types, since no comparison with pandas' NA is true or false."""
    if all(isinstance(kind, np.dtype) for kind in table.dtypes):
        return table
    columns: dict[str, Any] = {}
    for name, column in table.items():
        if pd.api.types.is_bool_dtype(column.dtype):
            columns[str(name)] = column.fillna(False).astype(bool)
        elif pd.api.types.is_numeric_dtype(column.dtype):
            columns[str(name)] = column.to_numpy(float, na_value=np.nan)
            if pd.api.types.is_integer_dtype(column.dtype) and not column.isna().any():
                columns[str(name)] = column.to_numpy(np.int64)
        else:
            texts = column.to_numpy(object, na_value=None)  # type: ignore[call-overload] # narrow stub
            columns[str(name)] = pd.Series(texts, table.index, dtype=object)
    return pd.DataFrame(columns, index=table.index)


def _values_as_one_text(rows: pd.DataFrame, columns: Iterable[str]) -> pd.Series:
    """Return, for each row, the values of `columns` as one text; missing values are left out."""
    parts = [rows[column].map(_value_as_text).replace(_NO_LEVELS, "") for column in columns]
    return pd.Series([" ".join(filter(None, row)) for row in zip(*parts, strict=True)], rows.index)


def _value_as_text(value: Any) -> str:
    """Return a value as text: a missing value as "", a whole number without decimals."""
    if value is None or pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _texts_as_one_text(texts: Counter[str]) -> str:
    return ", ".join(f"{n} x {text}" if n > 1 else text for text, n in sorted(texts.items()))


# Rows for statistics: measurements, or a table with the columns that the function needs.
Table = Measurements | pd.DataFrame


def as_measurements(table: Table) -> Measurements:
    """Return the rows of a table in numpy types, without the columns that `from_table` adds."""
    return table if isinstance(table, Measurements) else Measurements(_in_numpy_types(table))


PREDICTED = "predicted"
# Status of a cell that was neither measured nor predicted because the budget was too short.
LEFT_OUT = "left_out"
PREDICTION_NUMBERS = ("value", "low", "high", "lower_bound", "upper_bound")
PREDICTION_COLUMNS = {
    **{name: kind for name, kind in COLUMN_TYPES.items() if name not in REPLICATE_COLUMNS},
    **dict.fromkeys(PREDICTION_NUMBERS, "Float64"),
    "origin": "string",
    "method": "string",
}
_CELL_COLUMNS_LIST = list(CELL_COLUMNS)


@dataclass(frozen=True, eq=False)
class LeftOutPoints:
    """The points that a budget left out."""

    # One row of the tidy table for each load and metric of these points, with status "missing".
    rows: Measurements
    # Cells of `rows` that have a prediction, with the columns `PREDICTION_COLUMNS`.
    predictions: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the left-out points of ``results/<host>/<configuration>``; None without any.

        Raises:
            UserError: a file is not a table of this version.
        """
        if not (folder / UNMEASURED_FILE).exists():
            return None
        rows = Measurements.read(folder / UNMEASURED_FILE)
        file = folder / PREDICTIONS_FILE
        if file.exists():
            return cls(rows, Measurements.read(file, PREDICTION_COLUMNS).rows)
        return cls(rows, rows.rows[:0].assign(**dict.fromkeys(PREDICTION_NUMBERS, 0.0)))

    def predicted_only(self) -> Self:
        """Return only those left-out points that have a prediction."""
        places = pd.MultiIndex.from_frame(self.rows.rows[_CELL_COLUMNS_LIST])
        known = places.isin(pd.MultiIndex.from_frame(self.predictions[_CELL_COLUMNS_LIST]))
        return replace(self, rows=Measurements(self.rows.rows[known]))

    def appended_to_measured(self, measured: Measurements) -> Measurements:
        """Return the measured rows, and after them the rows of the points that were left out."""
        if not len(self.rows):
            return measured
        return Measurements(pd.concat([measured.rows, self.rows.rows], ignore_index=True))

    def add_predictions_to_cells(self, cells: pd.DataFrame) -> pd.DataFrame:
        """Return cells of `summarise_cells` with predictions and the status of left-out cells.

        The status is `PREDICTED` or `LEFT_OUT` where a point was left out. The columns
        "predicted_value", "predicted_low", ... are NaN where nothing is predicted.
        """
        known = self.predictions.drop_duplicates(_CELL_COLUMNS_LIST).set_index(_CELL_COLUMNS_LIST)[
            [*PREDICTION_NUMBERS]
        ]
        places = pd.MultiIndex.from_frame(cells[_CELL_COLUMNS_LIST])
        numbers = known.reindex(places).set_axis(cells.index)
        cells = cells.assign(
            **{f"{PREDICTED}_{name}": numbers[name].astype(float) for name in PREDICTION_NUMBERS}
        )
        out = places.isin(pd.MultiIndex.from_frame(self.rows.rows[_CELL_COLUMNS_LIST])) & (
            cells["n"] == 0
        )
        predicted = out & numbers["value"].notna().to_numpy()
        status = cells["status"].mask(out, LEFT_OUT).mask(predicted, PREDICTED)
        return cells.assign(status=status)

    def coverage_text(self, measured: Measurements) -> str | None:
        """Return in words how many points are measured, how many predicted, and how many neither.

        Return None if the budget left out no point.
        """
        tables = (measured.valid_rows().rows, measured.rows, self.rows.rows, self.predictions)
        done, planned, missing, guessed = (
            len(rows[[*POINT_COLUMNS]].drop_duplicates()) for rows in tables
        )
        if not missing:
            return None
        total = planned + missing
        parts = [f"{group_thousands(done)} of {group_thousands(total)} combinations measured"]
        numbers = {"predicted": guessed, "without a value": total - done - guessed}
        parts += [f"{group_thousands(number)} {text}" for text, number in numbers.items() if number]
        return ", ".join(parts)

    def prediction_method_texts(self) -> list[str]:
        """Return in words how predictions were made, and how well they agree with measurements."""
        if self.predictions.empty:
            return []
        methods = "; ".join(self.predictions["method"].drop_duplicates())
        return [
            f"Predicted values follow from measured ones: {methods}. Figures draw them hatched. No "
            "finding, comparison or export uses them."
        ]
