"""What makes a cell of one selection the partner of a cell of another.

A cell is matched by what was asked and not by whose it is: experiment, load and what ran beside
it, benchmark, kernel, levels and metric, and then

- by **place** (initiator and target by name), where both sides are built alike: twins, the same
  host before and after, two kernels of one run;
- by **class** (kind of initiator, relation, kind of target), where they are not: in another NPS
  mode `node1` is another thing of the same name. The places of a class are one cell; its value in a
  replicate block is their geometric mean.

What others published was measured with other programs. Where two sides have a category and metric
in common and no question, each side's largest group of like cells is taken instead, by class.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.statistics import (
    LOAD,
    POINT,
    is_performance,
    less_is_better,
    load_parameters,
    plain,
    valid,
)

PLACE, CLASS = "place", "class"
OWN, OTHER = "own node", "other nodes"
ALONE = ""
_GROUP = ("category", "metric")
_QUESTION = ("experiment", "load", "benchmark", "kernel", "asked", "file_backed")
_WHERE = {
    PLACE: ("initiator", "target"),
    CLASS: ("initiator_kind", "part", "target_kind", "drives", "context"),
}
# Names of places within factors: node3, l3_4, nodes0-1drives, drive-0000-41-00-0, and those that
# lack some of their cores, such as machine_without_node0.
_PLACE_NAME = re.compile(
    r"(pu|core|l3_|nodes?|package|drive-?|file)\d.*|drive-.+|alldrives|machine(_.+)?"
)
# What of a cell's first row describes it, beside its key.
_TOLD = (
    *("category", "metric", "experiment", "load", "benchmark", "kernel", "asked"),
    *("initiator_kind", "target_kind", "part", "label"),
)
_A_PLACE = [*POINT, *LOAD]
_OWN_RELATIONS = ("same_node", "same_nodes")
Key = tuple[object, ...]


@dataclass(frozen=True)
class Cell:
    """The values of one cell on one side.

    Attributes:
        logs: replicate block -> logarithm of the value, of a class the mean over its places.
        told: what describes it: the key's columns, and threads, label.
        places: how many places it has.
    """

    logs: Mapping[int, float]
    told: Mapping[str, object]
    places: int

    @property
    def values(self) -> NDArray[np.float64]:
        """In the metric's unit, a value a block."""
        return np.exp(np.fromiter(self.logs.values(), dtype=float))

    @property
    def median(self) -> float:
        """Of the blocks; the middle of logarithms, so that a ratio has an exact reciprocal."""
        return math.exp(statistics.median(self.logs.values()))


def prepared(tidy: pd.DataFrame) -> pd.DataFrame:
    """What a selection says of hardware, with the columns that matching needs, in every status.

    Adds `asked` (what was varied; where it is there the history's fingerprint too), `company` and
    `company_class` (what ran beside the load, "" where nothing did), `context` (factors that name
    no place) and `part` (the relation).
    """
    rows = plain(tidy)
    rows = rows[rows["metric"].map(is_performance).astype(bool)]
    kinds = load_parameters(rows)
    if "asked" in rows:  # of the history
        kinds = kinds + " " + rows["asked"].fillna("").astype(str)
    rows = rows.assign(asked=kinds, part=rows["relation"].fillna("unknown"))
    rows = rows.assign(file_backed=rows["file_backed"].fillna(False).astype(bool))
    rows["context"] = _context(rows)
    rows["company"], rows["company_class"] = _company(rows)
    return rows


def _context(rows: pd.DataFrame) -> pd.Series:
    """Factors that say something wherever a load is, as JSON."""

    def kept(text: object) -> str:
        if not isinstance(text, str):
            return "{}"
        factors = json.loads(text).items()
        named = {name: value for name, value in factors if not _PLACE_NAME.fullmatch(str(value))}
        return json.dumps(named, sort_keys=True)

    texts = rows["factors"].unique()
    shown = {text: kept(text) for text in texts if isinstance(text, str)}
    return pd.Series([shown.get(text, "{}") for text in rows["factors"]], rows.index, dtype=object)


def _company(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """What ran beside each row's load, by place and by class."""
    loads = rows.drop_duplicates([*POINT, *LOAD])
    numbers = loads.groupby(list(POINT), dropna=False)["load"].transform("size")
    loads = loads[numbers > 1]
    empty = pd.Series(ALONE, rows.index, dtype=object)
    if loads.empty:
        return empty, empty.copy()
    names = loads[[*POINT, *LOAD]].copy()
    names["place"] = _joined(loads, ["load", "initiator", "target", "kernel", "asked"])
    names["class"] = _joined(loads, ["load", "initiator_kind", "target_kind", "kernel", "drives"])
    for kind in ("place", "class"):
        own = names.groupby(list(POINT), dropna=False)[kind]
        everyone = own.agg(lambda texts: Counter(texts)).rename("all")
        joined = names.merge(everyone, left_on=list(POINT), right_index=True, how="left")
        names[f"beside_{kind}"] = [
            _listed(everybody - Counter([one]))
            for one, everybody in zip(joined[kind], joined["all"], strict=True)
        ]
    found = rows[[*POINT, *LOAD]].merge(
        names[[*POINT, *LOAD, "beside_place", "beside_class"]], on=[*POINT, *LOAD], how="left"
    )
    found.index = rows.index
    return found["beside_place"].fillna(ALONE), found["beside_class"].fillna(ALONE)


def _joined(rows: pd.DataFrame, columns: Iterable[str]) -> pd.Series:
    parts = [rows[column].map(_part).replace("{}", "") for column in columns]
    return pd.Series([" ".join(filter(None, row)) for row in zip(*parts, strict=True)], rows.index)


def _part(value: object) -> str:
    """A value in a description: nothing where it is unknown, whole numbers as such."""
    if value is None or pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(loads: Counter[str]) -> str:
    return ", ".join(f"{n} x {text}" if n > 1 else text for text, n in sorted(loads.items()))


def alike(sides: Sequence[pd.DataFrame]) -> bool:
    """Whether a name means the same place on all sides.

    Every initiator and target that several have must have as many threads, the same nodes and the
    same relation. Where nobody said how many threads, as in what others published, all must have
    the same initiators and targets throughout.

    Args:
        sides: rows that count, as `prepared` gives them.
    """
    pair, facts = ["initiator", "target"], ["threads", "initiator_nodes", "target_nodes", "part"]
    places = [side[[*pair, *facts]].drop_duplicates() for side in sides]
    known = pd.concat([place.astype(object).fillna("").astype(str) for place in places])
    seen = known.groupby(pair).size()
    if (seen < 2).all():
        return False
    if (known["threads"] == "").any() and not (seen == len(sides)).all():
        return False
    return not known.drop_duplicates().duplicated(pair).any()


def coarse(rows: pd.DataFrame) -> pd.DataFrame:
    """Own node against other nodes: all that can be said where a side's relations are unknown."""
    own = rows["relation"].isin(_OWN_RELATIONS).map({True: OWN, False: OTHER})
    return rows.assign(part=own.where(rows["target_kind"] == "node", rows["part"]))


def relations_unknown(rows: pd.DataFrame) -> bool:
    """Whether some memory's relation to its initiator is not known."""
    return bool(((rows["part"] == "unknown") & (rows["target_kind"] == "node")).any())


def key_columns(by: str, ignore: Collection[str] = (), *, question: bool = True) -> list[str]:
    """The columns that make two cells partners.

    Args:
        by: PLACE or CLASS.
        ignore: columns in which the two sides differ on purpose.
        question: whether the same has to be asked; otherwise category and metric will do.
    """
    company = "company" if by == PLACE else "company_class"
    columns = [*_GROUP, company, *(_QUESTION if question else ()), *_WHERE[by]]
    if not question:
        columns.remove("context")
    return [column for column in columns if column not in ignore]


def cells_of(rows: pd.DataFrame, keys: Iterable[str]) -> dict[Key, Cell]:
    """The cells of a side by their keys.

    Args:
        rows: as `prepared` gives them.
        keys: as `key_columns` gives them.
    """
    keys = list(keys)
    known = valid(rows)
    if known.empty:
        return {}
    known = known.assign(
        _log=np.log(known["value"].to_numpy(dtype=float)),
        _cell=known.groupby(keys, sort=False, dropna=False).ngroup(),
        _place=known.groupby(_A_PLACE, sort=False, dropna=False).ngroup(),
    )
    counted = known[_whole(known)]
    logs: dict[int, dict[int, float]] = {}
    means = counted.groupby(["_cell", "replicate"])["_log"].mean()
    for (cell, block), log in means.items():
        logs.setdefault(int(cell), {})[int(block)] = float(log)
    places = counted.groupby("_cell")["_place"].nunique()
    threads = known.groupby("_cell")["threads"].agg(["min", "max"])
    first = known.drop_duplicates("_cell")
    sizes = threads.loc[first["_cell"]].to_numpy()
    columns = list(dict.fromkeys([*keys, *_TOLD]))
    told = first[columns].astype(object).where(first[columns].notna(), None).to_dict("records")
    return {
        tuple(one[key] for key in keys): Cell(
            logs[cell], {**one, "threads": _range(*size)}, int(places[cell])
        )
        for cell, one, size in zip(first["_cell"], told, sizes, strict=True)
    }


def _whole(known: pd.DataFrame) -> pd.Series:
    """Rows of places that have every block of their cell; all rows of cells without such a place.

    A place that is missing in some block would shift that block's mean.
    """
    of_cell = known.groupby("_cell")["replicate"].transform("nunique")
    of_place = known.groupby(["_cell", "_place"])["replicate"].transform("nunique")
    whole = of_cell == of_place
    return whole | ~whole.groupby(known["_cell"]).transform("any")


def _range(low: float, high: float) -> str | None:
    if pd.isna(low):
        return None
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def largest_kind(rows: pd.DataFrame, kernels: Collection[object] = ()) -> pd.DataFrame:
    """Of the rows of one category and metric, the largest group in which the same was asked.

    Args:
        rows: valid ones of points with a single load.
        kernels: preferred where there is a choice, since the other side has them too.
    """
    kind = ["experiment", "load", "benchmark", "kernel", "asked"]
    better = -1.0 if less_is_better(str(rows["metric"].iloc[0])) else 1.0

    def weight(own: pd.DataFrame) -> tuple[bool, int, float, float]:
        size = float(json.loads(load_parameters(own).iloc[0]).get("bytes") or 0)
        places = own[own["target_kind"] == "node"][["initiator", "target"]]
        worth = better * float(own["value"].median())
        known = own["kernel"].iloc[0] in kernels
        return known, len(places.drop_duplicates()), size, worth

    groups = [own for _, own in rows.groupby(kind, sort=False, dropna=False)]
    return max(groups, key=weight)
