"""Two selections of the tidy table, cell by cell, with intervals and an overall verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.compare.cell_ratios import (
    LEVEL,
    matters,
    paired_ratio_of,
    ratio_of,
)
from chaosity.compare.comparison_text import (
    BETTER,
    NOTHING,
    UNSAID,
    WORSE,
    asked_words,
    group_words,
    kind_words,
    place_words,
    program_words,
    verdict_sentences,
)
from chaosity.compare.matched_cells import (
    ALONE,
    CLASS,
    PLACE,
    Cell,
    Key,
    alike,
    cells_of,
    coarse,
    key_columns,
    largest_kind,
    prepared,
    relations_unknown,
)
from chaosity.errors import UserError
from chaosity.statistics import Ratio, false_discovery_adjusted, less_is_better, valid
from chaosity.units import metric_words

_PAIRS = "both sides are of one run: ratios are medians over pairs of one replicate block"
# Columns that describe a cell in the table of cells, where it has them.
_DESCRIBED = (
    *("category", "metric", "experiment", "load", "benchmark", "kernel", "asked"),
    *("initiator", "target", "initiator_kind", "part", "target_kind", "drives"),
)


@dataclass(frozen=True)
class GroupVerdict:
    """What all cells of one metric say together.

    Attributes:
        group: in words, such as "memory bandwidth".
        metric: its full name.
        ratio: the typical ratio, the median over the cells.
        low, high: 95 % interval over the cells; None for a single one.
        cells: how many were compared.
        better, worse: how many differ clearly, as seen from the left side.
        unsaid: how many have too few replicates to say.
    """

    group: str
    metric: str
    ratio: float
    low: float | None
    high: float | None
    cells: int
    better: int
    worse: int
    unsaid: int


@dataclass(frozen=True)
class SelectionComparison:
    """How the left side does against the right one, which is the reference.

    Attributes:
        left, right: what the sides are called.
        matched_by: PLACE or CLASS.
        paired: whether replicates are paired, both sides being of one run.
        cells: a row a cell, clear losses first: `group`, columns of the tidy table that describe
            it, `company` (what ran beside it), `where` and `asked_words` (in words), `median_left`,
            `median_right` (in the metric's unit), `ratio`, `low`, `high`, `n_left`, `n_right`,
            `places_left`, `places_right`, `threads_left`, `threads_right`, `p`, `p_adjusted` and
            `verdict` (better, worse, no difference detected, cannot be said).
        groups: a verdict for each metric of each category, alone and beside other loads.
        only_left, only_right: what one side has and the other has not: words -> number of cells.
        notes: what must be known to read the ratios.
        sentences: the overall verdict.
    """

    left: str
    right: str
    matched_by: str
    paired: bool
    cells: pd.DataFrame
    groups: tuple[GroupVerdict, ...]
    only_left: Mapping[str, int]
    only_right: Mapping[str, int]
    notes: tuple[str, ...]
    sentences: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, unknown as null."""
        cells = self.cells.astype(object).where(self.cells.notna(), None)
        return {
            "left": self.left,
            "right": self.right,
            "matched_by": self.matched_by,
            "paired": self.paired,
            "verdict": list(self.sentences),
            "notes": list(self.notes),
            "groups": [asdict(group) for group in self.groups],
            "cells": cells.to_dict("records"),
            "only_left": dict(self.only_left),
            "only_right": dict(self.only_right),
        }


def compare_selections(
    left: pd.DataFrame,
    right: pd.DataFrame,
    *,
    names: tuple[str, str] = ("left", "right"),
    by: str | None = None,
    ignore: Collection[str] = (),
) -> SelectionComparison:
    """Compare two selections of the tidy table, or of the history.

    Args:
        left: what is judged.
        right: the reference; ratios are left over right.
        names: of the sides, for the sentences.
        by: PLACE or CLASS; without it by place where both sides are built alike.
        ignore: columns in which the sides differ on purpose, such as `kernel`.

    Raises:
        UserError: the sides have no cell in common.
    """
    sides = (prepared(left), prepared(right))
    by = by or _matched_by(sides, ignore)
    if by == CLASS and any(relations_unknown(valid(side)) for side in sides):
        sides = (coarse(sides[0]), coarse(sides[1]))
    paired = one_run(*sides)
    keys = key_columns(by, ignore)
    cells = (cells_of(sides[0], keys), cells_of(sides[1], keys))
    rows = [_row(own, cells[1][key], paired) for key, own in cells[0].items() if key in cells[1]]
    loose = _loosely(sides, {(row["category"], row["metric"]) for row in rows})
    rows += [_row(own, other, False) for pair in loose.values() for own, other in pair.cells]
    if not rows:
        raise UserError(
            f"there is no cell in common: {names[0]} has {_had(sides[0])}, {names[1]} has "
            f"{_had(sides[1])}"
        )
    table = _judged(pd.DataFrame(rows))
    groups = tuple(_group(str(name), own) for name, own in table.groupby("group", sort=False))
    only = tuple(_only(cells[a], cells[b], sides[b], keys, loose) for a, b in ((0, 1), (1, 0)))
    return SelectionComparison(
        left=names[0],
        right=names[1],
        matched_by=by,
        paired=paired,
        cells=table,
        groups=groups,
        only_left=only[0],
        only_right=only[1],
        notes=(
            *(note for pair in loose.values() for note in pair.notes),
            *_threads_differ(names, table),
            *([_PAIRS] if paired else []),
            *_which_is_at_fault(sides, table),
        ),
        sentences=tuple(verdict_sentences(names, table, groups, only)),
    )


def _matched_by(sides: tuple[pd.DataFrame, pd.DataFrame], ignore: Collection[str]) -> str:
    """PLACE where a name means the same on both sides, else CLASS."""
    known = [valid(side) for side in sides]
    if {"initiator", "target"} & set(ignore):  # node1 against node2 of one host, as was asked
        places = [set(zip(side["host"], side["configuration"], strict=True)) for side in known]
        return PLACE if places[0] == places[1] else CLASS
    return PLACE if alike(known) else CLASS


def one_run(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    """Whether replicate k of both sides was measured in the same hours, so that they are pairs.

    That is so for one host in one configuration whose two selections were measured between each
    other, as the random order of a run does it. Eras of a history lie one after the other.
    """
    spans = []
    for side in (left, right):
        known = valid(side)
        place = known[["host", "configuration"]].drop_duplicates()
        times = known["measured_at"].dropna().astype(str)
        if len(place) != 1 or times.empty or "era" in known:
            return False
        spans.append((tuple(place.iloc[0]), times.min(), times.max()))
    (here, began, ended), (there, other_began, other_ended) = spans
    return here == there and began <= other_ended and other_began <= ended


@dataclass(frozen=True)
class _Loose:
    """Cells of one category and metric that were measured with different questions."""

    cells: tuple[tuple[Cell, Cell], ...]
    notes: tuple[str, ...]


def _loosely(
    sides: tuple[pd.DataFrame, pd.DataFrame], strict: Collection[tuple[object, object]]
) -> dict[tuple[object, object], _Loose]:
    """Partners for categories and metrics that both sides have, but asked another question."""
    known = [valid(side) for side in sides]
    known = [side[side["company"] == ALONE] for side in known]
    group = ["category", "metric"]
    split = [dict(iter(side.groupby(group))) for side in known]
    found = {}
    for name in split[0].keys() & split[1].keys() - strict:
        own, other = (side[name] for side in split)
        kernels = set(own["kernel"].dropna()) & set(other["kernel"].dropna())
        chosen = [coarse(largest_kind(side, kernels)) for side in (own, other)]
        kinds = [set(side["initiator_kind"]) for side in chosen]
        # A load waits for one line at a time: latency from a node is that from a unit on it.
        any_kind = less_is_better(str(name[1])) and not kinds[0] & kinds[1]
        keys = key_columns(CLASS, ["initiator_kind"] if any_kind else (), question=False)
        one, two = (cells_of(side, keys) for side in chosen)
        pairs = tuple((one[key], two[key]) for key in one if key in two)
        if pairs:
            asked_of = " against ".join(program_words(side.iloc[0]) for side in chosen)
            note = f"{group_words(*name)} is of {asked_of}: a part of any difference may be theirs"
            found[name] = _Loose(pairs, (note,))
    return found


def _row(own: Cell, other: Cell, paired: bool) -> dict[str, object]:
    """A row of the table of cells, without what depends on the others."""
    ratio = (paired_ratio_of if paired else ratio_of)(own, other)
    told = own.told
    company = str(told.get("company", told.get("company_class", ALONE)))
    return {
        "group": group_words(str(told["category"]), str(told["metric"]), bool(company)),
        **{name: told[name] for name in _DESCRIBED if name in told},
        "company": company,
        "where": place_words(told),
        "asked_words": asked_words(told),
        "median_left": own.median,
        "median_right": other.median,
        "ratio": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "n_left": ratio.n,
        "n_right": ratio.n_reference,
        "places_left": own.places,
        "places_right": other.places,
        "threads_left": told["threads"],
        "threads_right": other.told["threads"],
        "p": ratio.p,
    }


def _judged(table: pd.DataFrame) -> pd.DataFrame:
    """The table with verdicts: clear losses first, the largest first, clear gains last."""
    chances = [None if pd.isna(p) else float(p) for p in table["p"]]
    table = table.assign(p_adjusted=false_discovery_adjusted(chances))
    worse = [-1.0 if less_is_better(metric) else 1.0 for metric in table["metric"]]
    gain = np.log(table["ratio"].to_numpy(dtype=float)) * worse
    verdicts = [
        UNSAID
        if p is None or pd.isna(p)
        else NOTHING
        if p >= LEVEL or not matters(ratio)
        else BETTER
        if more > 0.0
        else WORSE
        for p, ratio, more in zip(table["p_adjusted"], table["ratio"], gain, strict=True)
    ]
    rank = {WORSE: 0, UNSAID: 1, NOTHING: 1, BETTER: 2}
    table = table.assign(verdict=verdicts, _gain=gain, _rank=[rank[one] for one in verdicts])
    table = table.sort_values(["_rank", "_gain"], kind="stable", ignore_index=True)
    return table.drop(columns=["_rank", "_gain"])


def _group(name: str, cells: pd.DataFrame) -> GroupVerdict:
    typical = Ratio.typical(cells["ratio"].to_numpy(dtype=float))
    counts = cells["verdict"].value_counts()
    return GroupVerdict(
        group=name,
        metric=str(cells["metric"].iloc[0]),
        ratio=typical.ratio,
        low=typical.low,
        high=typical.high,
        cells=len(cells),
        better=int(counts.get(BETTER, 0)),
        worse=int(counts.get(WORSE, 0)),
        unsaid=int(counts.get(UNSAID, 0)),
    )


def _only(
    own: Mapping[Key, Cell],
    other: Mapping[Key, Cell],
    others: pd.DataFrame,
    keys: Sequence[str],
    loose: Mapping[tuple[object, object], _Loose],
) -> dict[str, int]:
    """What one side has and the other has not, in words, with numbers of cells."""
    tried = others[list(keys)].astype(object)
    tried = set(tried.where(tried.notna(), None).itertuples(index=False, name=None))
    found: Counter[str] = Counter()
    for key, cell in own.items():
        told = cell.told
        if key in other or (told["category"], told["metric"]) in loose:
            continue
        words = f"{told['experiment']}, {kind_words(told)}"
        found[f"{words}, failed or missing on the other side" if key in tried else words] += 1
    return dict(found.most_common())


def _threads_differ(names: tuple[str, str], table: pd.DataFrame) -> Iterator[str]:
    """Initiators of one kind that are of another size on the other side."""
    sizes = table[["initiator_kind", "threads_left", "threads_right"]].dropna().drop_duplicates()
    for kind, one, other in sizes.itertuples(index=False):
        if one != other:
            yield f"initiator {kind} has {one} threads in {names[0]} and {other} in {names[1]}"


def _which_is_at_fault(
    sides: tuple[pd.DataFrame, pd.DataFrame], table: pd.DataFrame
) -> Iterator[str]:
    """Of two equal hosts that differ nobody can say which one is not as it should be."""
    hosts, modes = (
        [set(side[name].dropna()) for side in sides] for name in ("host", "configuration")
    )
    if hosts[0] != hosts[1] and modes[0] == modes[1] and {BETTER, WORSE} & set(table["verdict"]):
        yield "if the two should be equal, which is at fault cannot be said; a third decides"


def _had(rows: pd.DataFrame) -> str:
    """What a selection holds, for the error that nothing fits."""
    known = valid(rows)
    kinds = known[["experiment", "metric"]].drop_duplicates()
    listed = [
        f"{metric_words(metric)} of {experiment}"
        for experiment, metric in kinds.itertuples(index=False)
    ]
    return ", ".join(dict.fromkeys(listed)) or "no valid value"
