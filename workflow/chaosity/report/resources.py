"""What can this machine do? One line a resource, with its best and its worst place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from chaosity.statistics import cells_differ, cost_of_company, summarise
from chaosity.units import count, metric_words, percent, scale_of

# Small to large, as they follow one another in the table: level -> words.
INITIATORS = {
    "pu": "one processing unit",
    "core": "one core",
    "l3": "one L3 domain",
    "node": "one node",
    "package": "one package",
    "machine": "the whole machine",
}
DRIVES = {
    "drive": "one drive",
    "first_of_node": "some drives of a node",
    "all_of_node": "all drives of a node",
    "all_of_nodes": "all drives of several nodes",
    "all": "all drives",
}
_POINT = ["host", "configuration", "experiment", "point"]


@dataclass(frozen=True)
class Place:
    """A value and where it was measured.

    Attributes:
        value: with unit.
        interval: "95 % interval ... to ..., n = 3", or why there is none.
        where: initiator and target, or the point's name.
    """

    value: str
    interval: str
    where: str


@dataclass(frozen=True)
class Resource:
    """One line: a resource at one level of the machine.

    Attributes:
        name: of the resource and the level.
        detail: benchmark, kernel, label, number of cells.
        best, worst: its extremes; worst is None where there is just one cell.
        share: worst as a share of best in words; None where there is just one cell.
        differ: False when the cells do not differ by more than noise, None when unknown.
    """

    name: str
    detail: str
    best: Place
    worst: Place | None
    share: str | None
    differ: bool | None


def resources(tidy: pd.DataFrame) -> list[Resource]:
    """All lines: each load alone by level, then what loads lose in company."""
    lines = [_line(f"{level.resource}, {level.words}", level.rows) for level in levels(tidy)]
    return [line for line in lines if line is not None] + _company(tidy)


@dataclass(frozen=True)
class Level:
    """Cells that are like with like: a resource at one level of the machine.

    Attributes:
        resource: such as "Memory bandwidth".
        key: of INITIATORS or DRIVES.
        words: that it has there.
        rows: of the tidy table, of one experiment, benchmark and kernel.
    """

    resource: str
    key: str
    words: str
    rows: pd.DataFrame


def levels(tidy: pd.DataFrame) -> Iterator[Level]:
    """Every resource that was measured alone, at every level, small to large."""
    for (category, metric), rows in _alone(tidy).groupby(["category", "metric"], sort=False):
        level = _level_of(rows)
        for key, words in {**INITIATORS, **DRIVES}.items():
            chosen = _comparable(rows[level == key], rows)
            if not chosen.empty:
                yield Level(resource_words(category, metric), key, words, chosen)


def _alone(tidy: pd.DataFrame) -> pd.DataFrame:
    """Rows of points with a single load."""
    if tidy.empty:
        return tidy
    return tidy[tidy.groupby(_POINT, dropna=False)["load"].transform("nunique") == 1]


def _level_of(rows: pd.DataFrame) -> pd.Series:
    """The level of each row: its drive set where it has one, else its initiator."""
    return rows["target_kind"].where(rows["target_kind"].isin(DRIVES), rows["initiator_kind"])


def same_kind(tidy: pd.DataFrame, level: Level) -> pd.DataFrame:
    """Rows of another table that are like a level's, whatever it is called there.

    Where the firmware makes a package a single node, the node's name stands for both. So a level
    that is not there by its name is looked for by its number of threads.
    """
    rows, first = _alone(tidy), level.rows.iloc[0]
    for column in ("category", "metric", "experiment", "benchmark", "kernel"):
        rows = rows[_equal(rows[column], first[column])]
    named = rows[_level_of(rows) == level.key]
    if not named.empty or level.key in DRIVES:
        return named
    return rows[rows["threads"].isin(level.rows["threads"].unique())]


def resource_words(category: str, metric: str) -> str:
    """Such as "Memory bandwidth", from a category and a metric that may both say "bandwidth"."""
    words = str(category).replace("_", " ")
    measured = metric_words(metric)
    words = words if words.endswith(measured) else f"{words} {measured}"
    return words[:1].upper() + words[1:]


def _comparable(rows: pd.DataFrame, category: pd.DataFrame) -> pd.DataFrame:
    """Rows of one experiment, benchmark and kernel: others are not like with like.

    It is the one with most places here; of several, that of the experiment and then the kernel
    which measured most in the whole category.
    """
    if rows.empty:
        return rows
    keys = ["experiment", "benchmark", "kernel"]
    kinds = rows[keys].drop_duplicates()

    def weight(kind: tuple[object, ...]) -> tuple[int, int, int]:
        same = [_equal(rows[key], value) for key, value in zip(keys, kind, strict=True)]
        here = rows[same[0] & same[1] & same[2]]
        own = category[_equal(category["experiment"], kind[0])]
        kernel = category[_equal(category["kernel"], kind[2])]
        return here["point"].nunique(), own["point"].nunique(), len(kernel)

    best = max(kinds.itertuples(index=False, name=None), key=weight)
    chosen = [_equal(rows[key], value) for key, value in zip(keys, best, strict=True)]
    return rows[chosen[0] & chosen[1] & chosen[2]]


def _equal(column: pd.Series, value: object) -> pd.Series:
    """Where a column has a value, None being one."""
    return column.isna() if value is None else column == value


def _line(name: str, rows: pd.DataFrame) -> Resource | None:
    """The line of some cells; None when none of them is valid."""
    cells = best_first(rows)
    if cells.empty:
        return None
    best, worst, first = cells.iloc[0], cells.iloc[-1], cells.iloc[0]
    details = [str(first["benchmark"]).replace("_", " "), first["kernel"], first["label"]]
    details.append(count(len(cells), "place"))
    share = worst["median"] / best["median"]
    several = len(cells) > 1
    return Resource(
        name=name,
        detail=", ".join(part for part in details if isinstance(part, str)),
        best=place(best),
        worst=place(worst) if several else None,
        share=percent(share) if several else None,
        differ=cells_differ(rows) if several else None,
    )


def best_first(rows: pd.DataFrame) -> pd.DataFrame:
    """The valid cells, as `summarise`, the best first."""
    cells = summarise(rows)
    cells = cells[cells["status"] == "valid"]
    if cells.empty:
        return cells
    less = cells["metric"].iloc[0].endswith(("_ns", "_seconds"))
    return cells.sort_values("median", ascending=less, kind="stable")


def place(cell: pd.Series) -> Place:
    """A cell in words."""
    where = f"{cell['initiator']} \N{RIGHTWARDS ARROW} {cell['target']}"
    scale = scale_of(cell["metric"], [cell["median"]])
    interval = "one replicate, no interval"
    if not pd.isna(cell["low"]):
        low, high = scale.number(cell["low"]), scale.number(cell["high"])
        interval = f"95 % interval {low} to {high}, n = {cell['n']}"
    return Place(scale.text(cell["median"]), interval, where)


def _company(tidy: pd.DataFrame) -> list[Resource]:
    """What each kind of load keeps when others run beside it."""
    ratios = cost_of_company(tidy)
    ratios = ratios[ratios["status"] == "valid"]
    lines = []
    for (category, metric), cells in ratios.groupby(["category", "metric"], sort=False):
        ordered = cells.sort_values("median", ascending=False, kind="stable")
        best, worst = ordered.iloc[0], ordered.iloc[-1]
        lines.append(
            Resource(
                name=f"{resource_words(category, metric)} left beside other loads",
                detail=f"share of the value alone, {count(len(cells), 'point')}",
                best=_kept(best),
                worst=_kept(worst) if len(cells) > 1 else None,
                share=None,
                differ=None,
            )
        )
    return lines


def _kept(cell: pd.Series) -> Place:
    interval = "one replicate, no interval"
    if not pd.isna(cell["low"]):
        interval = (
            f"95 % interval {percent(cell['low'])} to {percent(cell['high'])}, n = {cell['n']}"
        )
    return Place(percent(cell["median"]), interval, str(cell["point"]))
