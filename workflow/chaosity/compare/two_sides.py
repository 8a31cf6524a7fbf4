"""Compare two selections of the tidy table, cell by cell, with an overall verdict.

Published values were measured with other programs, so experiment, benchmark and levels of their
cells are not equal to those of other cells. If no cells of a category and metric match, but both
sides have this category and metric, the largest group of comparable cells of each side is matched
by class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.compare.selections import (
    CLASS,
    QUESTION_COLUMNS,
    MatchedCells,
    cell_class_text,
    cell_group_text,
    columns_equal_in_matched_cells,
    keys_of_rows,
    match_cells,
    prepare_sides_for_matching,
    ratios_with_intervals,
    reduce_relations_to_own_or_other_node,
    signs_of_improvement,
    summarise_logs,
    with_moderated_variances,
)
from chaosity.errors import UserError
from chaosity.statistics.estimates import (
    FALSE_ALARM_PROBABILITY,
    LEAST_REPORTED_DIFFERENCE,
    Ratio,
    adjust_false_discovery_rate,
)
from chaosity.store.measurements import WORKING_SET, Measurements, less_is_better, parse_levels_json
from chaosity.store.tidy_table_parquet import none_for_missing_values
from chaosity.text_templates import sentences_of_macro
from chaosity.units import metric_in_words

# Verdicts on a cell.
BETTER, WORSE = "better", "worse"
NO_DIFFERENCE, NOT_TESTED = "no difference detected", "not tested"
_MAX_LISTED = 3  # a sentence names at most this number of kinds of cells without a partner
# Columns that describe a cell in the table of cells. Columns that matching does not need may be
# missing.
_CELL_DESCRIPTION_COLUMNS = (
    *("group", "company", "where", "asked_words"),
    *("category", "metric", "experiment", "load", "benchmark", "kernel", "asked"),
    *("initiator", "target", "initiator_kind", "part", "target_kind", "drives"),
)
# Columns with the kind of initiator and with its number of threads on the left and right side.
_THREAD_COLUMNS = ["initiator_kind", "threads_left", "threads_right"]
_Sides = Sequence[Measurements]
_Group = tuple[object, object]  # category and metric


@dataclass(frozen=True)
class MetricVerdict:
    """The verdict on all cells of one metric in one category, either alone or co-running."""

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
    unsaid: int  # number of cells that were not tested, since they have too few replicates


@dataclass(frozen=True)
class SelectionComparison:
    """The comparison of the left side with the right side, which is the reference."""

    # left, right: names of the sides.
    left: str
    right: str
    matched_by: str  # PLACE or CLASS
    paired: bool  # whether replicates are paired, which is possible if both sides are of one run
    sentences: tuple[str, ...]  # the overall verdict, as sentences
    notes: tuple[str, ...]  # facts that a reader needs to interpret the ratios
    # A verdict for each metric of each category; cells of loads alone and of co-running loads have
    # separate verdicts.
    groups: tuple[MetricVerdict, ...]
    # A table with a row for each cell, clear losses first. Columns: `group`, the columns of the
    # tidy table that describe the cell, `company` (the co-running loads as text), `where` (the
    # places as text), `asked_words` (kernel and levels as text), `median_left`, `median_right` (in
    # the metric's unit), `ratio`, `low`, `high`, `n_left`, `n_right`, `places_left`,
    # `places_right`, `threads_left`, `threads_right`, `p`, `p_adjusted` and `verdict` (better,
    # worse, no difference detected, not tested).
    cells: pd.DataFrame
    # only_left, only_right: description of cells that only this side has -> number of these cells.
    only_left: Mapping[str, int]
    only_right: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        """Return the attributes as JSON values; `sentences` becomes `verdict`."""
        plain = {"verdict" if key == "sentences" else key: v for key, v in vars(self).items()}
        cells = none_for_missing_values(self.cells).to_dict("records")
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
        left: the side that the verdicts are about.
        right: the reference; ratios are left divided by right.
        names: names of the sides, for the sentences.
        by: PLACE or CLASS; by default, PLACE if both sides are built alike, else CLASS.
        ignore: columns in which the sides differ on purpose, such as `kernel`.

    Raises:
        UserError: the sides have no comparable cell.
    """
    by, sides, keys = prepare_sides_for_matching((left, right), by, ignore)
    paired = _are_from_one_run(sides)
    matched = match_cells(sides, keys)
    strict = _ratios_of_cells(matched, paired=paired)
    groups_with_ratios = set(strict[["category", "metric"]].itertuples(index=False, name=None))
    loose = dict(_loose_matches(sides, groups_with_ratios))
    table = pd.concat([strict, *(found for found, _ in loose.values())], ignore_index=True)
    if table.empty:
        raise UserError(
            f"no comparable cell: {names[0]} has {_content_text(sides[0])}, {names[1]} has "
            f"{_content_text(sides[1])}"
        )
    table = _with_verdicts(table)
    groups = tuple(
        _make_metric_verdict(str(name), own) for name, own in table.groupby("group", sort=False)
    )
    unmatched = [_count_unmatched_cells(matched, own, sides[1 - own], loose) for own in (0, 1)]
    hosts, modes = (
        [set(side.rows[name].dropna()) for side in sides] for name in ("host", "configuration")
    )
    # If two equal hosts differ, only a third equal host can show which of the two is at fault.
    is_of_two_hosts = hosts[0] != hosts[1] and modes[0] == modes[1]
    is_of_two_hosts = is_of_two_hosts and bool({BETTER, WORSE} & set(table["verdict"]))
    return SelectionComparison(
        left=names[0],
        right=names[1],
        matched_by=by,
        paired=paired,
        sentences=tuple(_verdict_sentences(names, table, groups, unmatched)),
        notes=tuple(
            sentences_of_macro(
                "comparison",
                "notes",
                names=names,
                loose=[
                    (cell_group_text(str(a), str(b)), own) for (a, b), (_, own) in loose.items()
                ],
                threads=table[_THREAD_COLUMNS].dropna().drop_duplicates().to_numpy().tolist(),
                is_paired=paired,
                is_of_two_hosts=is_of_two_hosts,
            )
        ),
        groups=groups,
        cells=table,
        only_left=unmatched[0],
        only_right=unmatched[1],
    )


def ratio_text(ratio: float, low: float | None, high: float | None) -> str:
    """Return a ratio with its interval: "0.61 times (0.58 to 0.64)"."""
    interval = "no interval" if low is None or pd.isna(low) else f"{low:.2f} to {high:.2f}"
    return f"{ratio:.2f} times ({interval})"


def _are_from_one_run(sides: _Sides) -> bool:
    """Return whether both sides come from one run, so that replicates with equal numbers are pairs.

    Both sides come from one run if one host in one configuration was measured in turns, in the
    random order of a run. Periods of a history do not come from one run, since they were measured
    one after the other.
    """
    left, right = (side.valid_rows().rows for side in sides)
    hosts = pd.concat([left, right])[["host", "configuration"]].drop_duplicates()
    times = [side["measured_at"].dropna().astype(str) for side in (left, right)]
    if len(hosts) != 1 or not all(map(len, times)) or "era" in left or "era" in right:
        return False
    return bool(times[0].min() <= times[1].max() and times[1].min() <= times[0].max())


def _loose_matches(
    sides: _Sides, strict: Collection[_Group]
) -> Iterator[tuple[_Group, tuple[pd.DataFrame, list[str]]]]:
    """Yield (category, metric) and the ratios of cells that different programs measured.

    Since the programs or their settings differ, the cells are matched by class. Each item also
    names the programs of both sides.
    """
    left, right = (
        dict(side.valid_rows().where(corunning="").groups_by_columns(["category", "metric"]))
        for side in sides
    )
    for group, own in left.items():
        if group[0] is None or group in strict or group not in right:
            continue
        both = (own, right[group])
        kernels = set.intersection(*(set(side.rows["kernel"].dropna()) for side in both))
        chosen = [
            reduce_relations_to_own_or_other_node(_largest_group(side, kernels)) for side in both
        ]
        kinds = set.intersection(*(set(side.rows["initiator_kind"]) for side in chosen))
        # A latency load waits for one cache line at a time. So its value does not depend on whether
        # the load runs on all processing units of a node or on one of them.
        any_kind = less_is_better(str(group[1])) and not kinds
        keys = columns_equal_in_matched_cells(
            CLASS, ["initiator_kind"] if any_kind else (), question=False
        )
        table = _ratios_of_cells(match_cells(chosen, keys), paired=False)
        if len(table):
            yield group, (table, [_program_text(dict(side.rows.iloc[0])) for side in chosen])


def _program_text(row: Mapping[str, Any]) -> str:
    """Return benchmark and kernel as text: "chaosity bandwidth (read)"."""
    program = str(row["benchmark"]).replace("_", " ")
    program = "an unknown program" if program == "unknown" else program
    known = row["kernel"] and row["kernel"] != "unknown"
    return f"{program} ({row['kernel']})" if known else program


def _largest_group(side: Measurements, kernels: Collection[object]) -> Measurements:
    """Return the largest group of comparable rows, if possible with one of `kernels`."""

    def rank_of_group(part: Measurements) -> tuple[bool, int, float, float]:
        first, median = part.rows.iloc[0], float(part.rows["value"].median())
        places = part.where(target_kind="node").initiator_target_pair_count
        size = float(parse_levels_json(first["load_parameters"]).get(WORKING_SET) or 0)
        rate = -median if less_is_better(first["metric"]) else median
        return first["kernel"] in kernels, places, size, rate

    return max((part for _, part in side.groups_by_columns(QUESTION_COLUMNS)), key=rank_of_group)


def _ratios_of_cells(matched: MatchedCells, *, paired: bool) -> pd.DataFrame:
    """Return the table of the cells that both sides have, with ratios but without verdicts.

    In cells of one run, values of the same replicate block are paired, so drift between blocks
    cancels. If the sides of a cell have no common block (each side failed in the blocks of the
    other), the cell is tested like a cell of two runs, by Welch's test.
    """
    samples = matched.samples
    left, right = (pd.DataFrame(samples.xs(side, level="side")) for side in (0, 1))
    left, right = left.align(right, join="inner", axis=0)
    cells: pd.DataFrame = matched.cells.loc[left.index]
    found = ratios_with_intervals(
        with_moderated_variances(left, cells), with_moderated_variances(right, cells)
    )
    if paired:
        logs = matched.values["log"].unstack("side").dropna()
        differences = summarise_logs((logs[0] - logs[1]).groupby("cell"))
        pairs = differences.index
        of_pairs: pd.DataFrame = cells.loc[pairs]
        found.loc[pairs] = ratios_with_intervals(with_moderated_variances(differences, of_pairs))
        left.loc[pairs, "n"] = right.loc[pairs, "n"] = differences["n"]
    for name, side in (("left", left), ("right", right)):
        found[f"median_{name}"] = np.exp(side["median"])
        for column in ("n", "places", "threads"):
            found[f"{column}_{name}"] = side[column]
    return pd.concat(
        [cells[[name for name in _CELL_DESCRIPTION_COLUMNS if name in cells]], found], axis=1
    )


def _with_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with verdicts and sorted: largest clear losses first, clear gains last."""
    p_values = [None if pd.isna(p) else p for p in table["p"]]
    p_adjusted = pd.Series(adjust_false_discovery_rate(p_values), table.index, dtype=float)
    gains = np.log(table["ratio"].to_numpy(dtype=float)) * signs_of_improvement(table)
    equal = (p_adjusted >= FALSE_ALARM_PROBABILITY) | (
        np.abs(gains) < np.log1p(LEAST_REPORTED_DIFFERENCE)
    )
    verdicts = np.select(
        [p_adjusted.isna(), equal, gains > 0.0], [NOT_TESTED, NO_DIFFERENCE, BETTER], WORSE
    )
    rank = {WORSE: 0, NOT_TESTED: 1, NO_DIFFERENCE: 1, BETTER: 2}
    order = np.lexsort((gains, [rank[verdict] for verdict in verdicts]))
    return table.assign(p_adjusted=p_adjusted, verdict=verdicts).iloc[order].reset_index(drop=True)


def _make_metric_verdict(name: str, cells: pd.DataFrame) -> MetricVerdict:
    typical = Ratio.of_many_cells(cells["ratio"].to_numpy(dtype=float))
    metric, counts = str(cells["metric"].iloc[0]), cells["verdict"].value_counts()
    numbers = (int(counts.get(key, 0)) for key in (BETTER, WORSE, NOT_TESTED))
    return MetricVerdict(
        name, metric, typical.ratio, typical.low, typical.high, len(cells), *numbers
    )


def _count_unmatched_cells(
    matched: MatchedCells, side: int, other: Measurements, loose: Collection[_Group]
) -> dict[str, int]:
    """Return description -> number of cells for the cells that only one side has."""
    own, others = (matched.samples.xs(each, level="side").index for each in (side, 1 - side))
    alone = matched.cells.loc[own.difference(others)]
    attempted = set(keys_of_rows(other.rows, matched.keys))
    found: Counter[str] = Counter()
    keys = keys_of_rows(alone, matched.keys)
    for key, cell in zip(keys, alone.to_dict("records"), strict=True):
        if (cell["category"], cell["metric"]) not in loose:
            failed = ", failed or missing on the other side" if key in attempted else ""
            found[f"{cell['experiment']}, {cell_class_text(cell)}{failed}"] += 1
    return dict(found.most_common())


def _verdict_sentences(
    names: tuple[str, str],
    cells: pd.DataFrame,
    groups: Sequence[MetricVerdict],
    unmatched: Sequence[Mapping[str, int]],
) -> list[str]:
    """Return the overall verdict, then sentences on each group and on cells without a partner."""
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
    return sentences_of_macro(
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
    """Return the metrics and experiments of a side in words, for an error message."""
    kinds = side.valid_rows().rows[["experiment", "metric"]].drop_duplicates()
    texts = [
        f"{metric_in_words(metric)} of {experiment}"
        for experiment, metric in kinds.itertuples(index=False)
    ]
    return ", ".join(dict.fromkeys(texts)) or "no valid value"
