"""Compare two selections of the tidy table, cell by cell, with an overall verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.compare.comparison_text import (
    BETTER,
    NO_DIFFERENCE,
    NOT_TESTED,
    WORSE,
    benchmark_and_kernel_text,
    class_text,
    group_text,
)
from chaosity.compare.matched_cells import (
    CLASS,
    CORUNNING,
    LEVEL,
    MATTERS,
    PLACE,
    ComparableCell,
    Key,
    add_matching_columns,
    configuration_key,
    group_cells,
    key_columns,
    place_names_mean_the_same,
    reduce_relations_to_own_or_other_node,
    select_largest_group,
    simplify_relations_if_any_unknown,
)
from chaosity.errors import UserError
from chaosity.statistics.estimates_and_ratios import Ratio
from chaosity.statistics.significance_tests import adjust_false_discovery_rate
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.text_templates import write_sentences
from chaosity.units import metric_words

_MAX_LISTED = 3  # kinds of cells without a partner that a sentence names
# Columns that describe a cell in the table of cells; a cell may lack some of them.
_DESCRIBED = (
    *("category", "metric", "experiment", "load", "benchmark", "kernel", "asked"),
    *("initiator", "target", "initiator_kind", "part", "target_kind", "drives"),
)
_Sides = Sequence[Measurements]
_Group = tuple[object, object]  # category and metric


@dataclass(frozen=True)
class GroupVerdict:
    """The verdict on all cells of one metric."""

    group: str  # name of the group, such as "memory bandwidth"
    metric: str  # full name of the metric
    ratio: float  # median ratio over the cells
    # low, high: 95 % interval of the median ratio; None for fewer than three cells.
    low: float | None
    high: float | None
    cells: int  # number of compared cells
    # better, worse: number of cells in which the left side is clearly better, or worse.
    better: int
    worse: int
    unsaid: int  # number of cells with too few replicates for a test


@dataclass(frozen=True)
class SelectionComparison:
    """The comparison of the left side with the right side, which is the reference."""

    # left, right: names of the sides.
    left: str
    right: str
    matched_by: str  # PLACE or CLASS
    paired: bool  # whether replicates are paired, which needs both sides from one run
    sentences: tuple[str, ...]  # the overall verdict
    notes: tuple[str, ...]  # facts that a reader needs to interpret the ratios
    # A verdict for each metric of each category, alone and with co-running loads.
    groups: tuple[GroupVerdict, ...]
    # A row for each cell, clear losses first: `group`, the columns of the tidy table that describe
    # it, `company` (text of the co-running loads), `where` (text of the places), `asked_words`
    # (text of kernel and levels), `median_left`, `median_right` (in the metric's unit), `ratio`,
    # `low`, `high`, `n_left`, `n_right`, `places_left`, `places_right`, `threads_left`,
    # `threads_right`, `p`, `p_adjusted` and `verdict` (better, worse, no difference detected, not
    # tested).
    cells: pd.DataFrame
    # only_left, only_right: cells that the other side lacks: description -> number of cells.
    only_left: Mapping[str, int]
    only_right: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        """Return the attributes as JSON values; `sentences` becomes `verdict`."""
        plain = {"verdict" if key == "sentences" else key: v for key, v in vars(self).items()}
        cells = self.cells.astype(object).where(self.cells.notna(), None).to_dict("records")
        return {**plain, "groups": [asdict(group) for group in self.groups], "cells": cells}


def compare_selections(
    left: Measurements,
    right: Measurements,
    *,
    names: tuple[str, str] = ("left", "right"),
    by: str | None = None,
    ignore: Collection[str] = (),
) -> SelectionComparison:
    """Compare two selections of the tidy table, or of the history, cell by cell.

    Args:
        left: the side that is judged.
        right: the reference; ratios are left divided by right.
        names: names of the sides, for the sentences.
        by: PLACE or CLASS. Default: PLACE where both sides are built alike.
        ignore: columns in which the sides differ on purpose, such as `kernel`.

    Raises:
        UserError: the sides have no comparable cell.
    """
    sides = [add_matching_columns(left), add_matching_columns(right)]
    configuration = configuration_key(sides)
    by = by or _matched_by(sides, ignore, configuration)
    if by == CLASS:
        sides = simplify_relations_if_any_unknown(sides)
    paired = _of_one_run(sides)
    keys = [*key_columns(by, ignore), *configuration]
    cells = [group_cells(side, keys) for side in sides]
    rows = [_row(own, cells[1][key], paired) for key, own in cells[0].items() if key in cells[1]]
    loose = _loose_matches(sides, {(row["category"], row["metric"]) for row in rows})
    rows += [_row(own, other, False) for pairs, _ in loose.values() for own, other in pairs]
    if not rows:
        raise UserError(
            f"no comparable cell: {names[0]} has {_content_text(sides[0])}, {names[1]} has "
            f"{_content_text(sides[1])}"
        )
    table = _with_verdicts(pd.DataFrame(rows))
    groups = tuple(_group(str(name), own) for name, own in table.groupby("group", sort=False))
    unmatched = [
        _unmatched(cells[own], cells[1 - own], sides[1 - own], keys, loose) for own in (0, 1)
    ]
    return SelectionComparison(
        left=names[0],
        right=names[1],
        matched_by=by,
        paired=paired,
        sentences=tuple(_verdict_sentences(names, table, groups, unmatched)),
        notes=tuple(
            write_sentences(
                "comparison",
                "notes",
                names=names,
                loose=[note for _, note in loose.values()],
                threads=_numbers_of_threads(table),
                is_paired=paired,
                is_of_two_hosts=_may_need_third_host(sides, table),
            )
        ),
        groups=groups,
        cells=table,
        only_left=unmatched[0],
        only_right=unmatched[1],
    )


def _matched_by(sides: _Sides, ignore: Collection[str], configuration: Sequence[str]) -> str:
    """Return PLACE if each name means the same place on both sides, else CLASS."""
    valid = [side.valid_rows() for side in sides]
    alike = place_names_mean_the_same(valid, configuration)
    if {"initiator", "target"} & set(ignore):  # compare places as requested
        left, right = (
            set(zip(s.rows["host"], s.rows["configuration"], strict=True)) for s in valid
        )
        alike = left == right
    return PLACE if alike else CLASS


def _of_one_run(sides: _Sides) -> bool:
    """Return whether both sides come from one run, so that replicates of equal number are pairs.

    That is so if both sides are of one host in one configuration and were measured in turns, in the
    random order of a run. Periods of a history do not come from one run: they were measured one
    after the other.
    """
    left, right = (side.valid_rows().rows for side in sides)
    hosts = pd.concat([left, right])[["host", "configuration"]].drop_duplicates()
    times = [side["measured_at"].dropna().astype(str) for side in (left, right)]
    if len(hosts) != 1 or not all(map(len, times)) or "era" in left or "era" in right:
        return False
    return bool(times[0].min() <= times[1].max() and times[1].min() <= times[0].max())


# Pairs of cells with one category and metric but different questions, and their group and programs.
_LooseMatch = tuple[list[tuple[ComparableCell, ComparableCell]], tuple[str, list[str]]]


def _loose_matches(sides: _Sides, strict: Collection[_Group]) -> dict[_Group, _LooseMatch]:
    """Return matches by class for categories and metrics of both sides without equal questions."""
    left, right = (
        dict(
            side.valid_rows()
            .where(**{CORUNNING[PLACE]: ""})
            .groups_by_columns(["category", "metric"])
        )
        for side in sides
    )
    matches: dict[_Group, _LooseMatch] = {}
    for (category, metric), own in left.items():
        if category is None or (category, metric) in strict or (category, metric) not in right:
            continue
        both = (own, right[category, metric])
        kernels = set.intersection(*(set(side.rows["kernel"].dropna()) for side in both))
        chosen = [
            reduce_relations_to_own_or_other_node(select_largest_group(side, kernels))
            for side in both
        ]
        kinds = set.intersection(*(set(side.rows["initiator_kind"]) for side in chosen))
        # A load waits for one cache line at a time. So the latency from a node is the latency from
        # one of its units.
        any_kind = less_is_better(str(metric)) and not kinds
        keys = key_columns(CLASS, ["initiator_kind"] if any_kind else (), question=False)
        cells, others = (group_cells(side, keys) for side in chosen)
        pairs = [(cell, others[key]) for key, cell in cells.items() if key in others]
        if pairs:
            programs = [benchmark_and_kernel_text(dict(side.rows.iloc[0])) for side in chosen]
            matches[category, metric] = pairs, (group_text(str(category), str(metric)), programs)
    return matches


def _row(own: ComparableCell, other: ComparableCell, paired: bool) -> dict[str, Any]:
    """Return a cell's row of the table, without the columns that depend on other cells."""
    ratio = own.ratio_to_reference(other, paired=paired)
    description = own.description
    return {
        "group": own.category_and_metric_text,
        **{name: description[name] for name in _DESCRIBED if name in description},
        "company": own.corunning_text,
        "where": own.place_text,
        "asked_words": own.load_text,
        "median_left": own.median_over_blocks,
        "median_right": other.median_over_blocks,
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
    """Return the table with verdicts, sorted from the largest clear loss to the clear gains."""
    p_values = [None if pd.isna(p) else p for p in table["p"]]
    p_adjusted = pd.Series(adjust_false_discovery_rate(p_values), table.index, dtype=float)
    sign = [-1.0 if less_is_better(metric) else 1.0 for metric in table["metric"]]
    gains = np.log(table["ratio"].to_numpy(dtype=float)) * sign
    equal = (p_adjusted >= LEVEL) | (np.abs(gains) < np.log(MATTERS))
    verdicts = np.select(
        [p_adjusted.isna(), equal, gains > 0.0], [NOT_TESTED, NO_DIFFERENCE, BETTER], WORSE
    )
    rank = {WORSE: 0, NOT_TESTED: 1, NO_DIFFERENCE: 1, BETTER: 2}
    order = np.lexsort((gains, [rank[verdict] for verdict in verdicts]))
    return table.assign(p_adjusted=p_adjusted, verdict=verdicts).iloc[order].reset_index(drop=True)


def _group(name: str, cells: pd.DataFrame) -> GroupVerdict:
    typical = Ratio.of_many_cells(cells["ratio"].to_numpy(dtype=float))
    counts = cells["verdict"].value_counts()
    better, worse, untested = (int(counts.get(key, 0)) for key in (BETTER, WORSE, NOT_TESTED))
    return GroupVerdict(
        group=name,
        metric=str(cells["metric"].iloc[0]),
        ratio=typical.ratio,
        low=typical.low,
        high=typical.high,
        cells=len(cells),
        better=better,
        worse=worse,
        unsaid=untested,
    )


def _unmatched(
    own: Mapping[Key, ComparableCell],
    other: Mapping[Key, ComparableCell],
    other_side: Measurements,
    keys: Sequence[str],
    loose: Collection[_Group],
) -> dict[str, int]:
    """Return description -> number of the cells that only this side has."""
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


def _numbers_of_threads(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return the kinds of initiators with the numbers of threads of both sides."""
    sizes = table[["initiator_kind", "threads_left", "threads_right"]].dropna().drop_duplicates()
    return list(sizes.itertuples(index=False, name=None))


def _may_need_third_host(sides: _Sides, table: pd.DataFrame) -> bool:
    """Return whether two hosts of one configuration differ."""
    hosts, modes = (
        [set(side.rows[name].dropna()) for side in sides] for name in ("host", "configuration")
    )
    clear = {BETTER, WORSE} & set(table["verdict"])
    return hosts[0] != hosts[1] and modes[0] == modes[1] and bool(clear)


def _verdict_sentences(
    names: tuple[str, str],
    cells: pd.DataFrame,
    groups: Sequence[GroupVerdict],
    unmatched: Sequence[Mapping[str, int]],
) -> list[str]:
    """Return the overall verdict, a sentence for each group, and those on cells without partner."""
    counts = cells["verdict"].value_counts()
    described = []
    for group in groups:
        own = cells[cells["group"] == group.group]
        known = own[own["low"].notna()]
        width = float(((known["high"] / known["low"]) ** 0.5 - 1.0).median())
        described.append((group, dict(own.iloc[0]), width if len(known) > 1 else None))
    number = {name: int(counts.get(name, 0)) for name in (NOT_TESTED, BETTER, WORSE)}
    sizes = (cells[side].astype(int) for side in ("n_left", "n_right"))
    spans = [sorted({size.min(), size.max()}) for size in sizes]
    return write_sentences(
        "comparison",
        "selections",
        names=names,
        cells=len(cells),
        untested=number[NOT_TESTED],
        better=number[BETTER],
        worse=number[WORSE],
        extreme=dict(cells.iloc[0 if number[WORSE] else -1]),
        n=" and ".join(dict.fromkeys(" to ".join(map(str, span)) for span in spans)),
        groups=described,
        unmatched=unmatched,
        most_listed=_MAX_LISTED,
    )


def _content_text(side: Measurements) -> str:
    """Return a text with the metrics and experiments of a side, for an error message."""
    kinds = side.valid_rows().rows[["experiment", "metric"]].drop_duplicates()
    texts = [
        f"{metric_words(metric)} of {experiment}"
        for experiment, metric in kinds.itertuples(index=False)
    ]
    return ", ".join(dict.fromkeys(texts)) or "no valid value"
