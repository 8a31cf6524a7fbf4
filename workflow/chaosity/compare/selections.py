"""Read selections of tidy tables, and match their comparable cells in one table.

Matched cells have the same experiment, load, co-running loads, benchmark, kernel, levels and
metric. In addition, cells are matched in one of two ways:

- by **place** (names of initiator and target) if hosts are built alike, for example for equal
  hosts, for a host before and after a repair, or for two kernels of one run;
- by **class** (kind of initiator, relation, kind of target) if hosts are built differently, since
  in another NPS mode the name `node1` means another place. All places of a class are one cell, and
  the value of this cell in a replicate block is the geometric mean of its places.

The comparison of two sides and the search for outlier hosts use the table of matched cells.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.core.groupby import SeriesGroupBy

from chaosity.errors import UserError, suggest_allowed_names
from chaosity.place_names import parse_place_name
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.statistics.cell_summary import KIND_COLUMNS
from chaosity.statistics.estimates import (
    fit_priors_of_variances,
    intervals_and_p_of_ratios,
    moderate_variances,
)
from chaosity.store.measurements import (
    LOAD_COLUMNS,
    POINT_COLUMNS,
    WORKING_SET,
    Measurements,
    less_is_better,
    parse_levels_json,
)
from chaosity.store.profile_database import (
    PROFILE_FILTERS,
    find_profiles,
    is_duckdb_file,
    read_profile_measurements,
)
from chaosity.store.tidy_table_from_records import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, none_for_missing_values
from chaosity.units import format_binary_bytes, metric_in_words

_HISTORY_FILE = "history.parquet"
_MOST_SUGGESTED_VALUES = 40


@dataclass(frozen=True)
class Selection:
    """A part of a tidy table."""

    name: str  # name that sentences use, such as "epyc1 nps4"
    measurements: Measurements  # the rows of the selection
    requested_values: Mapping[str, str]  # column -> value that its rows must have

    def filter_rows(self, conditions: Mapping[str, str]) -> Selection:
        """Return a selection with only those rows that have the values in `conditions`.

        Raises:
            UserError: a column is unknown, or no row has the requested values.
        """
        return replace(
            self, measurements=_filter_measurements(self.measurements, conditions, self.name)
        )


def read_selections(texts: Iterable[str]) -> list[Selection]:
    """Read the selections that the texts name.

    A text that names a database can give several selections, one for each profile.

    Args:
        texts: each text names a tidy table (measurements.parquet, history.parquet), a folder with a
            tidy table, the folder of a host with all its configurations, or a database of profiles.
            Conditions can follow after a ``#``: ``column=value&column=value``. For a database,
            conditions can also be filters of `find_profiles`. For a folder, the condition ``era``
            selects history.parquet.

    Raises:
        UserError: a file is missing or is not a tidy table, a column is unknown, or no row meets
            the conditions.
    """
    found = [selection for text in texts for selection in _parse_selection(text)]
    names = Counter(selection.name for selection in found)
    return [
        replace(each, name=f"{each.name} ({number})") if names[each.name] > 1 else each
        for number, each in enumerate(found, start=1)
    ]


def _parse_selection(text: str) -> list[Selection]:
    name, _, query = text.partition("#")
    conditions = parse_conditions(query.split("&") if query else [], text)
    path = Path(name)
    paths = [path]
    if path.is_dir():
        file = _HISTORY_FILE if "era" in conditions else MEASUREMENTS_FILE
        paths = [path / file] if (path / file).exists() else sorted(path.glob(f"*/{file}"))
        if not paths:
            remedy = "name a folder results/HOST/CONFIGURATION or results/HOST"
            raise UserError(f"{file} is missing", str(path), remedy)
    if not path.exists():
        raise UserError("file or folder not found", str(path))
    if is_duckdb_file(path):
        return _read_profiles(path, conditions)
    tables = [
        Measurements.read(each, HISTORY_COLUMNS if each.name == _HISTORY_FILE else COLUMN_TYPES)
        for each in paths
    ]
    table = tables[0] if len(tables) == 1 else Measurements.concatenated(tables)
    if table.rows["host"].isna().all():
        raise UserError("the file is not a measurements table: the column host is empty", str(path))
    return [_make_selection(table, conditions, str(path))]


def _read_profiles(path: Path, conditions: Mapping[str, str]) -> list[Selection]:
    """Return a selection for each profile in a database that meets the conditions."""
    query = {key: value for key, value in conditions.items() if key in PROFILE_FILTERS}
    rest = {key: value for key, value in conditions.items() if key not in PROFILE_FILTERS}
    profiles = find_profiles(path, **query)
    if not profiles:
        listed = ", ".join(f"{key} {value}" for key, value in query.items())
        no_profile = f"the database has no profile with {listed}"
        raise UserError(no_profile if listed else "the database is empty", str(path))
    tables = [read_profile_measurements(path, profile["id"]) for profile in profiles]
    return [_make_selection(Measurements.from_table(table), rest, str(path)) for table in tables]


def _make_selection(table: Measurements, conditions: Mapping[str, str], place: str) -> Selection:
    measurements = _filter_measurements(table, conditions, place)
    return Selection(_name_of_selection(measurements, conditions), measurements, conditions)


def _name_of_selection(measurements: Measurements, conditions: Mapping[str, str]) -> str:
    """Return the name of a selection: its hosts, configurations and further conditions."""
    hosts = measurements.rows.groupby("host", sort=False)["configuration"].unique().items()
    listed = [f"{host} {' and '.join(map(str, names))}" for host, names in hosts]
    name = ", ".join(listed[:2]) + (" and others" if len(listed) > 2 else "")
    name += " (SIMULATED)" if measurements.is_simulated else ""
    others = conditions.keys() - {"host", "configuration"}
    return ", ".join([name, *(f"{key} {conditions[key]}" for key in conditions if key in others)])


def parse_conditions(texts: Iterable[str], place: str) -> dict[str, str]:
    """Return column -> value from texts such as "kernel=triad"; error messages name `place`."""
    conditions = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column:
            raise UserError(f"{text!r} is not COLUMN=VALUE", place)
        conditions[column] = value
    return conditions


def _filter_measurements(
    measurements: Measurements, conditions: Mapping[str, str], place: str
) -> Measurements:
    """Return the rows whose columns have the values in `conditions`, compared as texts."""
    for column, value in conditions.items():
        rows = measurements.rows
        if column not in rows:
            remedy = suggest_allowed_names(column, rows.columns)
            raise UserError(f"unknown column {column!r}", place, remedy)
        texts = rows[column].map(_value_as_text)
        if not (texts == value).any():
            known = texts.dropna().unique().tolist()
            remedy = suggest_allowed_names(value, known[:_MOST_SUGGESTED_VALUES])
            raise UserError(f"no row has {column} {value!r}", place, remedy)
        measurements = measurements.select(texts == value)
    return measurements


def _value_as_text(value: Any) -> str | None:
    """Return a value as a person would write it, such as "2" for 2.0; None without a value."""
    if value is None or pd.isna(value):
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


PLACE, CLASS = "place", "class"
ARROW = "\N{RIGHTWARDS ARROW}"
_GROUP_COLUMNS = ("category", "metric")
QUESTION_COLUMNS = ("experiment", "load", "benchmark", "kernel", "asked")
_PLACE_COLUMNS = {
    PLACE: ("initiator", "target"),
    CLASS: ("initiator_kind", "part", "target_kind", "drives", "context"),
}
# Columns that describe a co-running load.
_CORUNNING_LOAD_COLUMNS = {
    PLACE: ("load", "initiator", "target", "kernel", "asked"),
    CLASS: ("load", "initiator_kind", "target_kind", "kernel", "drives"),
}
# Columns that describe a cell in addition to its key columns. The values of these columns come from
# the cell's first row.
_CELL_DESCRIPTION_COLUMNS = (
    *(*_GROUP_COLUMNS, *QUESTION_COLUMNS, "load_parameters"),
    *("initiator_kind", "target_kind", "part", "initiator_nodes", "target_nodes"),
)
# The columns that a prepared side keeps, since all columns of all hosts of a fleet would fill the
# memory.
_COLUMNS_FOR_MATCHING = {
    *(*POINT_COLUMNS, *LOAD_COLUMNS, *_CELL_DESCRIPTION_COLUMNS, "corunning"),
    *(column for columns in _PLACE_COLUMNS.values() for column in columns),
    *("replicate", "threads", "file_backed", "relation", "status", "value"),
    *("origin", "measured_at", "era"),
}
_RELATIONS_TO_OWN_NODE = ("same_node", "same_nodes")
CellKey = tuple[object, ...]
# Fewest degrees of freedom of a cell whose variance is moderated. Two values do not show that their
# cell is disturbed. If a quarter of the cells scatters four times as much as the others, moderation
# at n = 2 would report a difference in 14 of 60 comparisons of equal hosts. At n = 3, moderation
# reports a difference in 3 of 60 comparisons, and at n = 5 in 5 of 60.
_LEAST_FREEDOM_TO_MODERATE = 2


@dataclass(frozen=True)
class MatchedCells:
    """The values of all cells on all sides; cells and sides are numbered from 0."""

    # A table with a row for each cell: its key columns, the columns that describe it, and four
    # texts. The texts are `group` ("memory latency with co-running loads"), `company` (its
    # co-running loads, or ""), `where` ("node2 -> node3", or the class) and `asked_words` ("triad,
    # 64 MiB, pages thp").
    cells: pd.DataFrame
    # A table with the logarithm of each value in the column `log`, and with the index `cell`,
    # `side` and `block`. If cells are classes, `log` is the mean over the places of the class.
    values: pd.DataFrame
    # A table with a row for each cell and side with a value. Columns: `n` (number of blocks),
    # `median`, `mean` and `variance` of the blocks' logarithms, `freedom` (degrees of freedom of
    # the variance), `places` (number of places) and `threads` ("12", or "6-12" if the places of a
    # class differ; None if unknown).
    samples: pd.DataFrame
    keys: tuple[str, ...]  # columns whose values are equal in matched cells


def prepare_sides_for_matching(
    tables: Iterable[Measurements], by: str | None, ignore: Collection[str] = ()
) -> tuple[str, list[Measurements], list[str]]:
    """Return how cells are matched, the sides with columns for matching, and the key columns.

    The argument `by` is PLACE or CLASS; by default, cells are matched by PLACE if all sides are
    built alike. In the columns `ignore` (such as `kernel`) the sides differ on purpose.

    Raises:
        UserError: some sides are simulated and others are measured.
    """
    sides = [_with_matching_columns(table) for table in tables]
    Measurements.refuse_mixed_origins(sides)
    configuration = _configuration_key(sides)
    valid = [side.valid_rows() for side in sides]
    if by is None:
        alike = _place_names_mean_the_same(valid, configuration)
        if {"initiator", "target"} & set(ignore):  # compare places as requested
            hosts = (side.rows[["host", "configuration"]].itertuples(index=False) for side in valid)
            alike = len(set(map(frozenset, hosts))) == 1
        by = PLACE if alike else CLASS
    unknown = any(len(side.where(part="unknown", target_kind="node")) for side in valid)
    if by == CLASS and unknown:
        sides = list(map(reduce_relations_to_own_or_other_node, sides))
    for number, side in enumerate(sides):
        side = side.with_columns(corunning=side.corunning_text(_CORUNNING_LOAD_COLUMNS[by]))
        sides[number] = Measurements(
            side.rows[[name for name in side.rows if name in _COLUMNS_FOR_MATCHING]]
        )
    return by, sides, [*columns_equal_in_matched_cells(by, ignore), *configuration]


def _with_matching_columns(measurements: Measurements) -> Measurements:
    """Return the performance rows of a selection with additional columns for matching.

    The additional columns are `asked` (levels of the load; in a history also the fingerprint of the
    request), `context` (factors that do not name a place) and `part` (the relation).
    """
    side = measurements.performance_rows()
    rows = side.rows
    asked = rows["load_parameters"]
    if "asked" in rows:  # only a history has this column
        asked = asked + " " + rows["asked"].fillna("").astype(str)
    contexts = {text: _factors_without_places(text) for text in rows["factors"].unique()}
    return side.with_columns(
        asked=asked,
        part=rows["relation"].fillna("unknown"),
        file_backed=rows["file_backed"].fillna(False).astype(bool),
        context=rows["factors"].map(contexts),
    )


def _factors_without_places(factors: object) -> str:
    """Return as JSON the factors that name no place, and so mean the same for every load."""
    levels = parse_levels_json(factors).items()
    return json.dumps({k: v for k, v in levels if parse_place_name(str(v)) is None}, sort_keys=True)


def _configuration_key(sides: Sequence[Measurements]) -> list[str]:
    """Return the column `configuration` if cells are matched only within a configuration.

    Cells are matched only within a configuration if a side has several configurations and another
    side has one of these. In all other cases the list is empty, and different configurations are
    compared with each other.
    """
    found = [set(side.rows["configuration"]) for side in sides]
    several = any(len(names) > 1 for names in found)
    return ["configuration"] if several and len(set().union(*found)) < sum(map(len, found)) else []


def _place_names_mean_the_same(sides: Sequence[Measurements], configuration: Sequence[str]) -> bool:
    """Return whether each name of an initiator or target means the same place on all sides.

    Each initiator and target that several sides have must have equal numbers of threads, nodes and
    relations on these sides. If the number of threads is unknown, as in published data, all sides
    must have the same initiators and targets.
    """
    pair = [*configuration, "initiator", "target"]
    facts = ["threads", "initiator_nodes", "target_nodes", "part"]
    places = [side.rows[[*pair, *facts]].drop_duplicates() for side in sides]
    known = pd.concat([place.astype(object).fillna("").astype(str) for place in places])
    sides_with_place = known.groupby(pair).size()
    if (sides_with_place < 2).all():
        return False
    if (known["threads"] == "").any() and not (sides_with_place == len(sides)).all():
        return False
    return not known.drop_duplicates().duplicated(pair).any()


def reduce_relations_to_own_or_other_node(side: Measurements) -> Measurements:
    """Return the side with a coarser relation in the column `part`.

    In rows whose target is a node, `part` becomes "own node" or "other nodes" instead of the exact
    relation.
    """
    rows = side.rows
    own = (
        rows["relation"].isin(_RELATIONS_TO_OWN_NODE).map({True: "own node", False: "other nodes"})
    )
    return side.with_columns(part=own.where(rows["target_kind"] == "node", rows["part"]))


def columns_equal_in_matched_cells(
    by: str, ignore: Collection[str] = (), *, question: bool = True
) -> list[str]:
    """Return the names of the columns whose values must be equal in matched cells.

    The argument `by` is PLACE or CLASS. In the columns `ignore` the sides differ on purpose.
    Without `question`, matched cells may differ in experiment, load, benchmark, kernel and levels.
    """
    columns = [*_GROUP_COLUMNS, "corunning", *_PLACE_COLUMNS[by]]
    columns += [*QUESTION_COLUMNS, "file_backed"] if question else []
    return [name for name in columns if name not in ignore and (question or name != "context")]


def match_cells(sides: Iterable[Measurements], keys: Sequence[str]) -> MatchedCells:
    """Match the cells of prepared sides; the first side with a cell describes the cell.

    Cells match if they have equal values in the columns `keys`.
    """
    columns = list(dict.fromkeys([*keys, *_CELL_DESCRIPTION_COLUMNS]))
    numbers: dict[CellKey, int] = {}
    described = [pd.DataFrame(columns=columns, dtype=object)]
    values: list[pd.DataFrame] = []
    facts: list[pd.DataFrame] = []
    for number, side in enumerate(sides):
        valid = side.valid_rows().rows
        own = valid.groupby(list(keys), sort=False, dropna=False).ngroup().to_numpy()
        own = pd.factorize(own)[0]  # pandas may number a group with a null last
        first = none_for_missing_values(
            valid.loc[~pd.Series(own, valid.index).duplicated(), columns]
        )
        known = len(numbers)
        found = np.array(
            [numbers.setdefault(key, len(numbers)) for key in keys_of_rows(first, keys)], dtype=int
        )
        # Only the first description of a cell is kept, since descriptions of all cells of all hosts
        # of a fleet would fill the memory.
        described.append(first[found >= known])
        for tables, table in zip((values, facts), _values_and_facts(valid, own), strict=True):
            cell = found[table["cell"].to_numpy(dtype=int)]
            tables.append(table.assign(cell=cell, side=number))
    logs = pd.concat(values, ignore_index=True)
    samples = summarise_logs(logs.groupby(["cell", "side"])["log"])
    return MatchedCells(
        cells=_with_cell_texts(pd.concat(described, ignore_index=True)),
        values=logs.set_index(["cell", "side", "block"]),
        samples=samples.join(pd.concat(facts).set_index(["cell", "side"])),
        keys=tuple(keys),
    )


def signs_of_improvement(cells: pd.DataFrame) -> NDArray[np.float64]:
    """Return for each cell 1 if a larger value is better, or -1 if a smaller value is better."""
    return np.array([-1.0 if less_is_better(metric) else 1.0 for metric in cells["metric"]])


def summarise_logs(groups: SeriesGroupBy[Any, Any]) -> pd.DataFrame:
    """Return `n`, `median`, `mean`, `variance` and `freedom` (of the variance) of each group."""
    names = {"count": "n", "median": "median", "mean": "mean", "var": "variance"}
    samples = groups.agg(list(names)).rename(columns=names)
    return samples.assign(freedom=samples["n"] - 1.0)


def keys_of_rows(rows: pd.DataFrame, keys: Sequence[str]) -> Iterable[CellKey]:
    """Return the values of the key columns of each row; a missing value is None."""
    return none_for_missing_values(rows[list(keys)]).itertuples(index=False, name=None)


def _values_and_facts(
    valid: pd.DataFrame, cells: NDArray[np.intp]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the logarithm of each cell in each block, and places and threads of each cell."""
    place = (
        valid.groupby([*POINT_COLUMNS, *LOAD_COLUMNS], sort=False, dropna=False).ngroup().to_numpy()
    )
    rows = pd.DataFrame(
        {
            "cell": cells,
            "block": valid["replicate"].to_numpy(dtype=int),
            "place": place,
            "log": np.log(valid["value"].to_numpy(dtype=float)),
            "threads": valid["threads"].to_numpy(dtype=float),
        }
    )
    # A place without a value in a block would shift the mean of this block. So only places with
    # values in all blocks of their cell count. If no place of a cell has values in all blocks, all
    # places of the cell count.
    blocks = rows.groupby("cell")["block"].transform("nunique")
    complete = rows.groupby(["cell", "place"])["block"].transform("nunique") == blocks
    counted = rows[complete | ~complete.groupby(rows["cell"]).transform("any")]
    threads = rows.groupby("cell")["threads"].agg(["min", "max"])
    facts = pd.DataFrame(
        {
            "places": counted.groupby("cell")["place"].nunique(),
            "threads": [_range_text(*each) for each in threads.itertuples(index=False)],
        }
    )
    return counted.groupby(["cell", "block"])["log"].mean().reset_index(), facts.reset_index()


def _range_text(low: float, high: float) -> str | None:
    if math.isnan(low):
        return None
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def _with_cell_texts(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with the four texts that `MatchedCells.cells` explains."""
    cells = cells.assign(company=cells.get("corunning", ""))
    records = cells.to_dict("records")
    return cells.assign(
        group=[
            cell_group_text(one["category"], one["metric"], bool(one["company"])) for one in records
        ],
        where=list(map(_place_text, records)),
        asked_words=list(map(_load_text, records)),
    )


def cell_group_text(category: str, metric: str, corunning: bool = False) -> str:
    """Return a category and metric as text: "memory latency with co-running loads"."""
    words, measured = str(category).replace("_", " "), metric_in_words(str(metric))
    quantity, _, more = measured.partition(" ")  # latency p99 of memory latency
    words = words if words.endswith(quantity) else f"{words} {quantity}"
    words = f"{words} {more}".strip()
    return f"{words} with co-running loads" if corunning else words


def cell_class_text(description: Mapping[Any, Any]) -> str:
    """Return the class of a cell: "node -> same package, drive"."""
    part, kind = (str(description[name]).replace("_", " ") for name in ("part", "target_kind"))
    drives = description.get("drives")
    several = drives is not None and drives > 1  # NaN > 1 is false
    number = f"{drives:.0f} x " if several else ""
    target = part if kind == "node" else f"{number}{kind}, {part}"
    return f"{description['initiator_kind']} {ARROW} {target}"


def _place_text(cell: Mapping[Any, Any]) -> str:
    """Return initiator and target, or the class, after the configuration if that is a key."""
    known = [str(cell[end]) for end in ("initiator", "target") if cell.get(end) is not None]
    place = f" {ARROW} ".join(known) or cell_class_text(cell)
    configuration = cell.get("configuration")
    return f"{configuration}: {place}" if configuration else place


def _load_text(cell: Mapping[Any, Any]) -> str:
    parts = [cell.get("kernel")]
    for name, level in parse_levels_json(cell["load_parameters"]).items():
        is_size = name == WORKING_SET
        parts.append(format_binary_bytes(float(level)) if is_size else f"{name} {level}")
    parts.append(f"co-running with {cell['company']}" if cell["company"] else None)
    return ", ".join(str(part) for part in parts if part)


def with_moderated_variances(samples: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of one side, but with moderated variances and their degrees of freedom.

    `cells` must describe the cells of `samples` in the same order.
    """
    kinds = cells.groupby([name for name in KIND_COLUMNS if name in cells], dropna=False).ngroup()
    variance, freedom = (samples[name].to_numpy(float) for name in ("variance", "freedom"))
    known = np.where(freedom >= _LEAST_FREEDOM_TO_MODERATE, kinds.to_numpy(dtype=np.intp), -1)
    prior = fit_priors_of_variances(variance, freedom, known)
    variance, freedom, _ = moderate_variances(variance, freedom, prior)
    return samples.assign(variance=variance, freedom=freedom)


def ratios_with_intervals(*samples: pd.DataFrame) -> pd.DataFrame:
    """Return `ratio`, 95 % interval `low`, `high`, and `p` of each cell, NaN without a variance.

    A single table in `samples` must have differences within replicate blocks, so drift between
    blocks cancels. Two tables must have the values of two runs. Values of two runs are not pairs,
    since hours or days, and often a reboot, are between the runs. So the values of two runs are
    compared by Welch's test. The interval includes the scatter within the runs, but not the
    differences between one run and the next. The ratio is the ratio of the medians, so swapped
    tables give the reciprocal ratio.
    """
    median, mean = (
        samples[0][name] - samples[1][name] if len(samples) > 1 else samples[0][name]
        for name in ("median", "mean")
    )
    ratio = np.exp(median)
    errors = [sample["variance"] / sample["n"] for sample in samples]
    freedom = [sample["freedom"] for sample in samples]
    low, high, p = intervals_and_p_of_ratios(mean, errors, freedom, ratio)
    return pd.DataFrame({"ratio": ratio, "low": low, "high": high, "p": p}, index=median.index)
