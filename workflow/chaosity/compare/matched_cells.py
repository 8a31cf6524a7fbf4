"""Match the cells of two or more selections that can be compared, and compute their ratios.

Matched cells ask the same question: experiment, load and its co-running loads, benchmark, kernel,
levels and metric are equal. In addition they are matched

- by **place** (initiator and target by name), where the hosts are built alike: equal hosts, the
  same host before and after a repair, two kernels of one run;
- by **class** (kind of initiator, relation, kind of target), where hosts differ: in another NPS
  mode the name `node1` means another place. All places of a class are one cell; its value in a
  replicate block is their geometric mean.

Published data was measured with other programs. If two sides share a category and a metric but no
question, the largest group of comparable cells of each side is matched, by class.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.compare.comparison_text import ARROW, class_text, group_text
from chaosity.place_names import parse_place_name
from chaosity.statistics.estimates_and_ratios import Ratio
from chaosity.store.measurements import (
    LOAD,
    POINT,
    WORKING_SET,
    Measurements,
    parse_levels_json,
)
from chaosity.units import format_binary_bytes

PLACE, CLASS = "place", "class"
# A difference counts if it is significant and at least this large. Equal servers differ by 1 or 2 %
# in the bandwidth of their memory; a wrong setting or a slow module takes at least 5 %.
MATTERS = 1.05
LEVEL = 0.05
OWN_NODE, OTHER_NODES = "own node", "other nodes"
_GROUP = ("category", "metric")
_QUESTION = ("experiment", "load", "benchmark", "kernel", "asked")
_PLACE_COLUMNS = {
    PLACE: ("initiator", "target"),
    CLASS: ("initiator_kind", "part", "target_kind", "drives", "context"),
}
# Columns of the co-running loads of a cell.
CORUNNING = {PLACE: "corunning", CLASS: "corunning_kinds"}
# Columns that describe a cell besides its key, taken from its first row.
_DESCRIPTION = (
    *(*_GROUP, *_QUESTION, "load_parameters"),
    *("initiator_kind", "target_kind", "part", "label", "initiator_nodes", "target_nodes"),
)
_OWN_RELATIONS = ("same_node", "same_nodes")
Key = tuple[object, ...]


@dataclass(frozen=True)
class ComparableCell:
    """The values of one cell on one side."""

    # Replicate block -> logarithm of the value; for a class, the mean over its places.
    logs: Mapping[int, float]
    # Column -> value, for the key columns, threads, label and others.
    description: Mapping[str, Any]
    places: int  # number of places in the cell; 1 if it is matched by place

    @property
    def block_values(self) -> NDArray[np.float64]:
        """Values of the cell, one for each block, in the metric's unit."""
        values: NDArray[np.float64] = np.exp(np.fromiter(self.logs.values(), dtype=float))
        return values

    @property
    def median_over_blocks(self) -> float:
        """Median of the blocks' logarithms, by which a ratio has an exact reciprocal."""
        return math.exp(statistics.median(self.logs.values()))

    @property
    def corunning_text(self) -> str:
        """Description of the co-running loads; empty when the load ran alone."""
        return str(
            next((self.description[c] for c in CORUNNING.values() if c in self.description), "")
        )

    @property
    def category_and_metric_text(self) -> str:
        """Name of the cell's group, such as "memory latency with co-running loads"."""
        description = self.description
        return group_text(description["category"], description["metric"], bool(self.corunning_text))

    @property
    def place_text(self) -> str:
        """Initiator and target of the cell, such as "node2 -> node3", or its class.

        The configuration comes first if cells of several configurations are compared.
        """
        ends = [self.description.get(end) for end in ("initiator", "target")]
        known = [str(end) for end in ends if end is not None]
        place = f" {ARROW} ".join(known) or class_text(self.description)
        configuration = self.description.get("configuration")
        return f"{configuration}: {place}" if configuration else place

    @property
    def load_text(self) -> str:
        """Kernel, levels and co-running loads of the cell: "triad, 64 MiB, pages thp"."""
        parts = [self.description.get("kernel")]
        for name, level in parse_levels_json(self.description["load_parameters"]).items():
            is_size = name == WORKING_SET
            parts.append(format_binary_bytes(float(level)) if is_size else f"{name} {level}")
        corunning = self.corunning_text
        parts.append(f"co-running with {corunning}" if corunning else None)
        return ", ".join(str(part) for part in parts if part)

    def ratio_to_reference(self, reference: ComparableCell, *, paired: bool) -> Ratio:
        """Return the ratio of this cell to a reference cell.

        Cells of one run are paired by equal blocks. If they have no common block (each side failed
        where the other did not), they are not paired.
        """
        blocks = [block for block in self.logs if block in reference.logs] if paired else []
        if not blocks:
            return Ratio.of_samples(self.block_values, reference.block_values, paired=False)
        own, other = (np.exp([side.logs[block] for block in blocks]) for side in (self, reference))
        return Ratio.of_samples(own, other, paired=True)


def add_matching_columns(measurements: Measurements) -> Measurements:
    """Return the performance rows of a selection with the columns that matching needs.

    Adds `asked` (the levels of the load; in a history also the fingerprint of the request),
    `corunning` and `corunning_kinds` (the other loads of the point by place and by class, ""
    without other loads), `context` (factors that do not name a place) and `part` (the relation).
    """
    side = measurements.performance_rows()
    rows = side.rows
    asked = rows["load_parameters"]
    if "asked" in rows:  # only a history has this column
        asked = asked + " " + rows["asked"].fillna("").astype(str)
    side = side.with_columns(
        asked=asked,
        part=rows["relation"].fillna("unknown"),
        file_backed=rows["file_backed"].fillna(False).astype(bool),
        context=[
            json.dumps(factors_without_places(factors), sort_keys=True)
            for factors in side.factors_of_each_row
        ],
    )
    return side.with_columns(
        corunning=side.corunning_text(["load", "initiator", "target", "kernel", "asked"]),
        corunning_kinds=side.corunning_text(
            ["load", "initiator_kind", "target_kind", "kernel", "drives"]
        ),
    )


def factors_without_places(factors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the factors that do not name a place, so they mean the same for every load."""
    return {name: value for name, value in factors.items() if parse_place_name(str(value)) is None}


def configuration_key(sides: Sequence[Measurements]) -> list[str]:
    """Return the column `configuration` if only cells of equal configurations are comparable.

    That is so if a side has several configurations and another side has one of them. Otherwise the
    result is empty: then the configurations themselves are compared.
    """
    found = [set(side.rows["configuration"]) for side in sides]
    several = any(len(names) > 1 for names in found)
    return ["configuration"] if several and len(set().union(*found)) < sum(map(len, found)) else []


def place_names_mean_the_same(
    sides: Sequence[Measurements], configuration: Sequence[str] = ()
) -> bool:
    """Return whether a name means the same place on all sides.

    Each initiator and target that several sides have must have the same number of threads, nodes
    and relation. Where the number of threads is unknown, as in published data, all sides must have
    the same initiators and targets. `sides` must be valid rows of `add_matching_columns`;
    `configuration` is the `configuration_key` of the sides.
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


def simplify_relations_if_any_unknown(sides: Sequence[Measurements]) -> list[Measurements]:
    """Return the sides; if any relation is unknown, reduce all to own node or other nodes."""
    valid = [side.valid_rows().where(part="unknown", target_kind="node") for side in sides]
    unknown = any(len(side) for side in valid)
    return [reduce_relations_to_own_or_other_node(side) if unknown else side for side in sides]


def reduce_relations_to_own_or_other_node(side: Measurements) -> Measurements:
    """Return the side with own node or other nodes in `part` instead of the exact relation."""
    rows, own = side.rows, own_or_other_node(side)
    return side.with_columns(part=own.where(rows["target_kind"] == "node", rows["part"]))


def own_or_other_node(measurements: Measurements) -> pd.Series:
    """Return OWN_NODE for each row with memory of the initiator's own node, else OTHER_NODES."""
    own = measurements.rows["relation"].isin(_OWN_RELATIONS)
    return own.map({True: OWN_NODE, False: OTHER_NODES})


def key_columns(by: str, ignore: Collection[str] = (), *, question: bool = True) -> list[str]:
    """Return the names of the columns that have equal values in comparable cells.

    Cells are matched by PLACE or CLASS. The sides differ on purpose in the columns `ignore`.
    Without `question`, cells need the same category and metric, but not the same question.
    """
    columns = [*_GROUP, CORUNNING[by], *_PLACE_COLUMNS[by]]
    columns += [*_QUESTION, "file_backed"] if question else []
    return [name for name in columns if name not in ignore and (question or name != "context")]


def group_cells(side: Measurements, keys: Iterable[str]) -> dict[Key, ComparableCell]:
    """Return values of the key columns -> cell, for a side with matching columns."""
    keys = list(keys)
    valid = side.valid_rows().rows
    if valid.empty:
        return {}
    place = [*POINT, *LOAD]
    valid = valid.assign(
        _log=np.log(valid["value"].to_numpy(dtype=float)),
        _cell=valid.groupby(keys, sort=False, dropna=False).ngroup(),
        _place=valid.groupby(place, sort=False, dropna=False).ngroup(),
    )
    counted = valid[_in_all_blocks(valid)]
    logs: dict[int, dict[int, float]] = {}
    means = counted.groupby(["_cell", "replicate"])["_log"].mean().reset_index()
    for number, block, log in means.itertuples(index=False):
        logs.setdefault(int(number), {})[int(block)] = float(log)
    places = counted.groupby("_cell")["_place"].nunique()
    threads = valid.groupby("_cell")["threads"].agg(["min", "max"])
    first = valid.drop_duplicates("_cell")
    columns = list(dict.fromkeys([*keys, *_DESCRIPTION]))
    described = first[columns].astype(object).where(first[columns].notna(), None)
    cells: dict[Key, ComparableCell] = {}
    for number, values in zip(first["_cell"], described.itertuples(index=False), strict=True):
        named = dict(zip(columns, values, strict=True))
        description = {**named, "threads": _range_text(*threads.loc[number])}
        key = tuple(named[name] for name in keys)
        cells[key] = ComparableCell(logs[number], description, int(places[number]))
    return cells


def _in_all_blocks(valid: pd.DataFrame) -> pd.Series:
    """Return the mask of rows whose place has every block of its cell; all rows if there are none.

    A place without a value in a block would shift the mean of that block.
    """
    of_cell = valid.groupby("_cell")["replicate"].transform("nunique")
    of_place = valid.groupby(["_cell", "_place"])["replicate"].transform("nunique")
    complete = of_cell == of_place
    return complete | ~complete.groupby(valid["_cell"]).transform("any")


def _range_text(low: float, high: float) -> str | None:
    if pd.isna(low):
        return None
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def select_largest_group(side: Measurements, kernels: Collection[object] = ()) -> Measurements:
    """Return the largest group of rows with the same question, if possible with one of `kernels`.

    `side` must have valid rows of loads alone, of one category and metric.
    """

    def _rank_of_group(part: Measurements) -> tuple[bool, int, float, float]:
        known = part.rows["kernel"].iloc[0] in kernels
        places = part.where(target_kind="node").initiator_target_pair_count
        return known, places, part.working_set_bytes, part.median_for_ranking

    return side.highest_ranked_group(list(_QUESTION), _rank_of_group)
