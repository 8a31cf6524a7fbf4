"""What can this machine do? One line a resource, with its best and its worst place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from chaosity.figures.axis_values import axis_value_of
from chaosity.statistics import (
    LOAD,
    POINT,
    cells_differ,
    corun_slowdown,
    is_performance,
    less_is_better,
    load_counts,
    load_parameters,
    summarise,
)
from chaosity.units import (
    choose_scale,
    format_binary_bytes,
    format_count,
    format_percent,
    metric_words,
)

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
    "first_of_package": "some drives of a package",
    "all_of_package": "all drives of a package",
    "all_of_nodes": "all drives of several nodes",
    "all": "all drives",
}
# Where times differ most: they are told apart for memory of the initiator's own node and others.
OWN, OTHER = "own node", "other nodes"
_OWN = ("same_node", "same_nodes")
# The tail of a distribution is in the figures; the table has one line a resource.
_TAIL = re.compile(r"_p\d+_")


@dataclass(frozen=True)
class MeasuredPlace:
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
class ResourceRow:
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
    best: MeasuredPlace
    worst: MeasuredPlace | None
    share: str | None
    differ: bool | None


def resource_rows(tidy: pd.DataFrame) -> list[ResourceRow]:
    """All lines: each load alone by level, then what loads lose in company."""
    lines = [_line(level.name, level.rows) for level in resource_levels(tidy)]
    return [line for line in lines if line is not None] + _company(tidy)


@dataclass(frozen=True)
class ResourceLevel:
    """Cells that are like with like: a resource at one level of the machine.

    Attributes:
        resource: such as "Memory bandwidth".
        key: of INITIATORS or DRIVES.
        words: that it has there.
        rows: of the tidy table, of one experiment, benchmark and kernel, asked for the same.
        part: OWN or OTHER where it is of these alone, else None.
    """

    resource: str
    key: str
    words: str
    rows: pd.DataFrame
    part: str | None = None

    @property
    def name(self) -> str:
        """ResourceRow, level and part."""
        return f"{self.resource}, {self.words}" + (f", {self.part}" if self.part else "")


def resource_levels(tidy: pd.DataFrame) -> Iterator[ResourceLevel]:
    """Every resource that was measured alone, at every level, small to large."""
    for (category, metric), rows in _alone(tidy).groupby(["category", "metric"], sort=False):
        if _TAIL.search(metric):
            continue
        level, resource = _level_of(rows), resource_name(category, metric)
        for key, words in {**INITIATORS, **DRIVES}.items():
            chosen = _comparable(rows[level == key], rows)
            for part in _parts(chosen):
                own = chosen if part is None else chosen[_part_of(chosen) == part]
                yield ResourceLevel(resource, key, words, own, part)


def _parts(rows: pd.DataFrame) -> list[str | None]:
    """Times by whose memory it is, where there is both; everything else whole."""
    if rows.empty:
        return []
    pair = (
        "responder" in load_parameters(rows).iloc[0]
    )  # the line's home is not the distance it goes
    if pair or not less_is_better(rows["metric"].iloc[0]):
        return [None]
    parts = _part_of(rows)
    return [OWN, OTHER] if parts.nunique() == 2 else [None]


def _part_of(rows: pd.DataFrame) -> pd.Series:
    return rows["relation"].isin(_OWN).map({True: OWN, False: OTHER})


def _alone(tidy: pd.DataFrame) -> pd.DataFrame:
    """Rows of points with a single load that say what the machine can do."""
    if tidy.empty:
        return tidy
    return tidy[(load_counts(tidy) == 1) & tidy["metric"].map(is_performance)]


def _level_of(rows: pd.DataFrame) -> pd.Series:
    """The level of each row: its drive set where it has one, else its initiator."""
    return rows["target_kind"].where(rows["target_kind"].isin(DRIVES), rows["initiator_kind"])


def matching_rows(tidy: pd.DataFrame, level: ResourceLevel) -> pd.DataFrame:
    """Rows of another table that are like a level's, whatever it is called there.

    Where the firmware makes a package a single node, the node's name stands for both. So a level
    that is not there by its name is looked for by its number of threads.
    """
    rows, first = _alone(tidy), level.rows.iloc[0]
    for column in ("category", "metric", "experiment", "benchmark", "kernel"):
        rows = rows[_equal(rows[column], first[column])]
    rows = rows[_kind_of(rows) == _kind_of(level.rows).iloc[0]]
    if level.part is not None:
        rows = rows[_part_of(rows) == level.part]
    named = rows[_level_of(rows) == level.key]
    if not named.empty or level.key in DRIVES:
        return named
    return rows[rows["threads"].isin(level.rows["threads"].unique())]


def resource_name(category: str, metric: str) -> str:
    """Such as "Memory bandwidth", from a category and a metric that may both say "bandwidth"."""
    words = str(category).replace("_", " ")
    measured = metric_words(metric)
    words = words if words.endswith(measured) else f"{words} {measured}"
    return words[:1].upper() + words[1:]


def _comparable(rows: pd.DataFrame, category: pd.DataFrame) -> pd.DataFrame:
    """Rows of one experiment, benchmark and kernel, asked for the same: others are not alike.

    It is the one with most places here; of several, the one with the largest working set (smaller
    ones are in caches), then that of the experiment and of its kernel which measured most, and last
    the better one: larger pages show what memory can do, small ones what the TLB takes from it.
    """
    if rows.empty:
        return rows
    keys = ["experiment", "benchmark", "kernel", "_kind"]
    rows = rows.assign(_kind=_kind_of(rows))
    kinds = rows[keys].drop_duplicates()

    def alike(kind: tuple[object, ...]) -> pd.Series:
        same = [_equal(rows[key], value) for key, value in zip(keys, kind, strict=True)]
        return same[0] & same[1] & same[2] & same[3]

    better = -1.0 if less_is_better(rows["metric"].iloc[0]) else 1.0

    def weight(kind: tuple[object, ...]) -> tuple[int, float, int, int, float]:
        here = rows[alike(kind)]
        places = here[["initiator", "target"]].drop_duplicates()
        own = category[_equal(category["experiment"], kind[0])]
        kernel = own[_equal(own["kernel"], kind[2])]
        size = float(json.loads(str(kind[3])).get("bytes") or 0)
        value = here["value"].median()
        worth = -math.inf if pd.isna(value) else better * value
        return len(places), size, own["point"].nunique(), len(kernel), worth

    best = max(kinds.itertuples(index=False, name=None), key=weight)
    return rows[alike(best)].drop(columns="_kind")


def _kind_of(rows: pd.DataFrame) -> pd.Series:
    """What was asked of each row's load, but for who answered: that is a place."""

    def kind(text: str) -> str:
        levels = {key: value for key, value in json.loads(text).items() if key != "responder"}
        return json.dumps(levels)

    texts = load_parameters(rows)
    return texts.map({text: kind(text) for text in texts.unique()})


def _equal(column: pd.Series, value: object) -> pd.Series:
    """Where a column has a value, None being one."""
    return column.isna() if value is None else column == value


def _line(name: str, rows: pd.DataFrame) -> ResourceRow | None:
    """The line of some cells; None when none of them is valid."""
    cells = rank_cells(rows)
    if cells.empty:
        return None
    best, worst = cells.iloc[0], cells.iloc[-1]
    share = worst["median"] / best["median"]
    several = len(cells) > 1
    less = less_is_better(best["metric"])
    return ResourceRow(
        name=name,
        detail=f"{load_description(rows)}, {format_count(len(cells), 'place')}",
        best=measured_place(best),
        worst=measured_place(worst) if several else None,
        share=(f"{share:.2f} times" if less else format_percent(share)) if several else None,
        differ=cells_differ(rows) if several else None,
    )


def load_description(rows: pd.DataFrame) -> str:
    """Benchmark, kernel, label and what was asked of some cells that are alike."""
    first = rows.iloc[0]
    levels = json.loads(_kind_of(rows).iloc[0])
    parts = [str(first["benchmark"]).replace("_", " "), first["kernel"], first["label"]]
    if "bytes" in levels:
        parts.append(format_binary_bytes(levels["bytes"]))
    if "pages" in levels:
        parts.append(f"{levels['pages']} pages")
    if "share" in levels:
        parts.append(f"{levels['share']} % of its peak")
    others = {name: levels[name] for name in levels if name not in ("bytes", "pages", "share")}
    for name, value in others.items():
        parts.append(f"{name.replace('_', ' ')} {axis_value_of(value, column=name).short}")
    return ", ".join(part for part in parts if isinstance(part, str))


def rank_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """The valid cells, as `summarise`, the best first."""
    cells = summarise(rows)
    cells = cells[cells["status"] == "valid"]
    if cells.empty:
        return cells
    less = less_is_better(cells["metric"].iloc[0])
    return cells.sort_values("median", ascending=less, kind="stable")


def measured_place(cell: pd.Series) -> MeasuredPlace:
    """A cell in words."""
    where = f"{cell['initiator']} \N{RIGHTWARDS ARROW} {cell['target']}"
    levels = json.loads(cell["factors"]) if isinstance(cell.get("factors"), str) else {}
    if responder := levels.get("responder"):
        where = f"{cell['initiator']} \N{LEFT RIGHT ARROW} {responder}, line on {cell['target']}"
    scale = choose_scale(cell["metric"], [cell["median"]])
    interval = "one replicate, no interval"
    if not pd.isna(cell["low"]):
        low, high = scale.number(cell["low"]), scale.number(cell["high"])
        interval = f"95 % interval {low} to {high}, n = {cell['n']}"
    return MeasuredPlace(scale.text(cell["median"]), interval, where)


def _company(tidy: pd.DataFrame) -> list[ResourceRow]:
    """What each kind of load keeps when others run beside it."""
    ratios = corun_slowdown(tidy)
    ratios = ratios[ratios["status"] == "valid"]
    if ratios.empty:
        return []
    loads = tidy[[*POINT, *LOAD]].drop_duplicates().groupby([*POINT, "load"]).size()
    keys = pd.MultiIndex.from_frame(ratios[[*POINT, "load"]])
    ratios = ratios.assign(several=loads.reindex(keys).to_numpy() > 1)
    lines = []
    for (category, metric), cells in ratios.groupby(["category", "metric"], sort=False):
        if _TAIL.search(metric):
            continue
        less = less_is_better(metric)
        ordered = cells.sort_values("median", ascending=less, kind="stable")
        best, worst = ordered.iloc[0], ordered.iloc[-1]
        resource = resource_name(category, metric)
        left, unit = ("", "multiple") if less else (" left", "share")
        lines.append(
            ResourceRow(
                name=f"{resource}{left} beside other loads",
                detail=f"{unit} of the value alone, {format_count(len(cells), 'value')}",
                best=_kept(best, less),
                worst=_kept(worst, less) if len(cells) > 1 else None,
                share=None,
                differ=None,
            )
        )
    return lines


def _kept(cell: pd.Series, less: bool) -> MeasuredPlace:
    def words(ratio: float) -> str:
        return f"{ratio:.2f} times" if less else format_percent(ratio)

    interval = "one replicate, no interval"
    if not pd.isna(cell["low"]):
        interval = f"95 % interval {words(cell['low'])} to {words(cell['high'])}, n = {cell['n']}"
    where = str(cell["point"])
    if cell["several"]:
        where = f"{cell['initiator']} \N{RIGHTWARDS ARROW} {cell['target']} in {where}"
    return MeasuredPlace(words(cell["median"]), interval, where)
