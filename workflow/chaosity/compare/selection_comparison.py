"""Comparison of two selections of the tidy table, cell by cell, with an overall verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.compare.comparison_text import (
    BETTER,
    NO_DIFFERENCE,
    NOT_TESTED,
    WORSE,
    GroupVerdict,
    class_text,
    group_text,
    load_text,
    place_text,
    program_text,
    verdict_sentences,
)
from chaosity.compare.matched_cells import (
    CLASS,
    CORUNNING,
    LEVEL,
    PLACE,
    ComparableCell,
    Key,
    add_matching_columns,
    group_cells,
    has_unknown_relations,
    is_large_ratio,
    key_columns,
    place_names_mean_the_same,
    reduce_relations_to_own_or_other_node,
    select_largest_group,
)
from chaosity.errors import UserError
from chaosity.statistics import Ratio, adjust_false_discovery_rate
from chaosity.store.measurements import Measurements, Table, less_is_better
from chaosity.units import metric_words

_PAIRED_NOTE = "both sides are of one run: ratios are medians over pairs of one replicate block"
# Columns that describe a cell in the table of cells, where it has them.
_DESCRIBED = (
    *("category", "metric", "experiment", "load", "benchmark", "kernel", "asked"),
    *("initiator", "target", "initiator_kind", "part", "target_kind", "drives"),
)
_Sides = tuple[Measurements, Measurements]
_Group = tuple[object, object]  # category and metric


@dataclass(frozen=True)
class SelectionComparison:
    """The left side compared with the right side, which is the reference.

    Attributes:
        left, right: names of the sides.
        matched_by: PLACE or CLASS.
        paired: whether replicates are paired, since both sides are of one run.
        cells: a row for each cell, clear losses first: `group`, the columns of the tidy table that
            describe it, `company` (the co-running loads), `where` and `asked_words` (text),
            `median_left`, `median_right` (in the metric's unit), `ratio`, `low`, `high`, `n_left`,
            `n_right`, `places_left`, `places_right`, `threads_left`, `threads_right`, `p`,
            `p_adjusted` and `verdict` (better, worse, no difference detected, not tested).
        groups: a verdict for each metric of each category, alone and with co-running loads.
        only_left, only_right: cells of one side alone: description -> number.
        notes: what to know to read the ratios.
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

    def to_json(self) -> dict[str, object]:
        """JSON values; null for what is unknown."""
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
    left: Table,
    right: Table,
    *,
    names: tuple[str, str] = ("left", "right"),
    by: str | None = None,
    ignore: Collection[str] = (),
) -> SelectionComparison:
    """Compare two selections of the tidy table, or of the history.

    Args:
        left: the judged side.
        right: the reference; ratios are left divided by right.
        names: names of the sides, for the sentences.
        by: PLACE or CLASS. Default: PLACE where both sides are built alike.
        ignore: columns in which the sides differ on purpose, such as `kernel`.

    Raises:
        UserError: the sides have no comparable cell.
    """
    sides = (add_matching_columns(left), add_matching_columns(right))
    by = by or _matched_by(sides, ignore)
    if by == CLASS and any(has_unknown_relations(side.valid_rows()) for side in sides):
        sides = (
            reduce_relations_to_own_or_other_node(sides[0]),
            reduce_relations_to_own_or_other_node(sides[1]),
        )
    paired = _of_one_run(*sides)
    keys = key_columns(by, ignore)
    cells = (group_cells(sides[0], keys), group_cells(sides[1], keys))
    rows = [_row(own, cells[1][key], paired) for key, own in cells[0].items() if key in cells[1]]
    loose = _loose_matches(sides, {(row["category"], row["metric"]) for row in rows})
    rows += [_row(own, other, False) for match in loose.values() for own, other in match.cells]
    if not rows:
        raise UserError(
            f"no comparable cell: {names[0]} has {_content_text(sides[0])}, {names[1]} has "
            f"{_content_text(sides[1])}"
        )
    table = _with_verdicts(pd.DataFrame(rows))
    groups = tuple(_group(str(name), own) for name, own in table.groupby("group", sort=False))
    unmatched = (
        _unmatched(cells[0], cells[1], sides[1], keys, loose),
        _unmatched(cells[1], cells[0], sides[0], keys, loose),
    )
    return SelectionComparison(
        left=names[0],
        right=names[1],
        matched_by=by,
        paired=paired,
        cells=table,
        groups=groups,
        only_left=unmatched[0],
        only_right=unmatched[1],
        notes=(
            *(match.note for match in loose.values()),
            *_different_threads(names, table),
            *([_PAIRED_NOTE] if paired else []),
            *_third_host_note(sides, table),
        ),
        sentences=tuple(verdict_sentences(names, table, groups, unmatched)),
    )


def _matched_by(sides: _Sides, ignore: Collection[str]) -> str:
    """PLACE where a name means the same place on both sides, else CLASS."""
    valid = [side.valid_rows() for side in sides]
    if {"initiator", "target"} & set(ignore):  # node1 against node2 of one host, as requested
        hosts = [set(zip(s.rows["host"], s.rows["configuration"], strict=True)) for s in valid]
        return PLACE if hosts[0] == hosts[1] else CLASS
    return PLACE if place_names_mean_the_same(valid) else CLASS


def _of_one_run(left: Measurements, right: Measurements) -> bool:
    """Whether replicate k of both sides was measured in the same hours, so that they are pairs.

    This holds for one host in one configuration whose selections were measured alternately, as in
    the random order of a run. Periods of a history follow each other.
    """
    spans = []
    for side in (left, right):
        valid = side.valid_rows().rows
        hosts = valid[["host", "configuration"]].drop_duplicates()
        times = valid["measured_at"].dropna().astype(str)
        if len(hosts) != 1 or times.empty or "era" in valid:
            return False
        spans.append((tuple(hosts.iloc[0]), times.min(), times.max()))
    (host, began, ended), (other_host, other_began, other_ended) = spans
    return bool(host == other_host and began <= other_ended and other_began <= ended)


@dataclass(frozen=True)
class _LooseMatch:
    """Cells of one category and metric that were measured with different questions."""

    cells: tuple[tuple[ComparableCell, ComparableCell], ...]
    note: str


def _loose_matches(sides: _Sides, strict: Collection[_Group]) -> dict[_Group, _LooseMatch]:
    """Matches for categories and metrics that both sides have, with different questions."""
    alone = [side.valid_rows().where(**{CORUNNING[PLACE]: ""}) for side in sides]
    split = [dict(side.groups(["category", "metric"])) for side in alone]
    matches: dict[_Group, _LooseMatch] = {}
    for category, metric in split[0]:
        name = category, metric
        if category is None or name in strict or name not in split[1]:
            continue
        own, other = (groups[name] for groups in split)
        kernels = set(own.rows["kernel"].dropna()) & set(other.rows["kernel"].dropna())
        chosen = [
            reduce_relations_to_own_or_other_node(select_largest_group(side, kernels))
            for side in (own, other)
        ]
        kinds = [set(side.rows["initiator_kind"]) for side in chosen]
        # A load waits for one line at a time, so latency from a node is that from one of its units.
        any_kind = less_is_better(str(metric)) and not kinds[0] & kinds[1]
        keys = key_columns(CLASS, ["initiator_kind"] if any_kind else (), question=False)
        left, right = (group_cells(side, keys) for side in chosen)
        pairs = tuple((left[key], right[key]) for key in left if key in right)
        if pairs:
            programs = " against ".join(program_text(dict(side.rows.iloc[0])) for side in chosen)
            group = group_text(str(category), str(metric))
            note = f"{group} is of {programs}: a part of any difference may be due to the programs"
            matches[category, metric] = _LooseMatch(pairs, note)
    return matches


def _row(own: ComparableCell, other: ComparableCell, paired: bool) -> dict[str, Any]:
    """A row of the table of cells, without the columns that depend on other cells."""
    ratio = own.ratio_to(other, paired=paired)
    description = own.description
    corunning = own.corunning
    return {
        "group": group_text(description["category"], description["metric"], bool(corunning)),
        **{name: description[name] for name in _DESCRIBED if name in description},
        "company": corunning,
        "where": place_text(description),
        "asked_words": load_text(description, corunning),
        "median_left": own.median,
        "median_right": other.median,
        "ratio": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "n_left": ratio.n,
        "n_right": ratio.n_reference,
        "places_left": own.places,
        "places_right": other.places,
        "threads_left": description["threads"],
        "threads_right": other.description["threads"],
        "p": ratio.p,
    }


def _with_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """The table with verdicts: clear losses first, the largest first, clear gains last."""
    p_values = [None if pd.isna(p) else float(p) for p in table["p"]]
    p_adjusted = adjust_false_discovery_rate(p_values)
    sign = [-1.0 if less_is_better(metric) else 1.0 for metric in table["metric"]]
    gains = np.log(table["ratio"].to_numpy(dtype=float)) * sign
    verdicts = [
        _verdict(p, ratio, gain)
        for p, ratio, gain in zip(p_adjusted, table["ratio"], gains, strict=True)
    ]
    rank = {WORSE: 0, NOT_TESTED: 1, NO_DIFFERENCE: 1, BETTER: 2}
    table = table.assign(
        p_adjusted=pd.Series(p_adjusted, table.index, dtype=float),
        verdict=verdicts,
        _gain=gains,
        _rank=[rank[verdict] for verdict in verdicts],
    )
    table = table.sort_values(["_rank", "_gain"], kind="stable", ignore_index=True)
    return table.drop(columns=["_rank", "_gain"])


def _verdict(p: float | None, ratio: float, gain: float) -> str:
    if p is None:
        return NOT_TESTED
    if p >= LEVEL or not is_large_ratio(ratio):
        return NO_DIFFERENCE
    return BETTER if gain > 0.0 else WORSE


def _group(name: str, cells: pd.DataFrame) -> GroupVerdict:
    typical = Ratio.of_many_cells(cells["ratio"].to_numpy(dtype=float))
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
        unsaid=int(counts.get(NOT_TESTED, 0)),
    )


def _unmatched(
    own: Mapping[Key, ComparableCell],
    other: Mapping[Key, ComparableCell],
    other_side: Measurements,
    keys: Sequence[str],
    loose: Mapping[_Group, _LooseMatch],
) -> dict[str, int]:
    """The cells of one side alone: description -> number."""
    planned = other_side.rows[list(keys)].astype(object)
    attempted = set(planned.where(planned.notna(), None).itertuples(index=False, name=None))
    found: Counter[str] = Counter()
    for key, cell in own.items():
        description = cell.description
        if key in other or (description["category"], description["metric"]) in loose:
            continue
        text = f"{description['experiment']}, {class_text(description)}"
        failed = ", failed or missing on the other side" if key in attempted else ""
        found[f"{text}{failed}"] += 1
    return dict(found.most_common())


def _different_threads(names: tuple[str, str], table: pd.DataFrame) -> Iterator[str]:
    """A note for each kind of initiator with different numbers of threads."""
    sizes = table[["initiator_kind", "threads_left", "threads_right"]].dropna().drop_duplicates()
    for kind, left, right in sizes.itertuples(index=False):
        if left != right:
            yield f"initiator {kind} has {left} threads in {names[0]} and {right} in {names[1]}"


def _third_host_note(sides: _Sides, table: pd.DataFrame) -> Iterator[str]:
    """A note for two hosts that differ: two hosts do not show which of them is at fault."""
    hosts, modes = (
        [set(side.rows[name].dropna()) for side in sides] for name in ("host", "configuration")
    )
    if hosts[0] != hosts[1] and modes[0] == modes[1] and {BETTER, WORSE} & set(table["verdict"]):
        yield "if the two hosts should be equal, a third host shows which of them is at fault"


def _content_text(side: Measurements) -> str:
    """The metrics and experiments of a side, for an error message."""
    kinds = side.valid_rows().rows[["experiment", "metric"]].drop_duplicates()
    texts = [
        f"{metric_words(metric)} of {experiment}"
        for experiment, metric in kinds.itertuples(index=False)
    ]
    return ", ".join(dict.fromkeys(texts)) or "no valid value"
