"""Find contention within a node, and inversions, in sweeps of latency over working sets.

Contention means that some initiators of a node are slower than the others while all run at the same
time, although each of them is as fast as the others alone. Inversion means that an initiator is
clearly slower than the others of its node at one size, although it was faster at smaller sizes.
Document 003 shows contention and inversion on an EPYC: contention of half of the cores, and an
inversion at the largest size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.anomaly_results import (
    Anomaly,
    AnomalyKind,
    advice_text,
    shared_initiator_and_target,
)
from chaosity.anomalies.cell_log_scores import (
    HOST_FALSE_ALARM_LEVEL,
    MAX_CONFIDENCE,
    MAX_CONFIDENCE_OF_ONE_RUN,
)
from chaosity.anomalies.component_anomalies import AnomalyTestResult
from chaosity.place_names import natural_sort_key, place_in_words, places_in_words
from chaosity.statistics.cell_summary import compare_latency_together_and_alone
from chaosity.statistics.estimates import LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN
from chaosity.store.measurements import Measurements
from chaosity.text_templates import text_of_macro

MODE_OF_SERIAL_LOADS = "serial"
# Level of the factor `mode` whose loads run at the same time -> text for these loads.
TEXT_OF_CONCURRENT_MODE = {"concurrent": "all", "all_cores": "all cores"}
# Least number of sizes with a clear lead at which an initiator counts as usually faster.
_FEWEST_SIZES_WITH_CLEAR_LEAD = 3
# Least lead, in either direction, that the noise of a single run does not explain; see
# `_choose_inversion_of_each_node`.
_LEAST_CLEAR_LOG_LEAD = -float(np.log1p(-LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN))


def select_latency_size_sweeps(rows: Measurements) -> Measurements:
    """Return the rows of sweeps over sizes, with the added columns `x`, `level` and `rest`.

    The column `x` has the size in bytes, `level` has the level of the factor `mode`, and `rest` has
    the levels of the other factors as JSON. `rows` must have valid rows of times.
    """
    with_columns = rows.with_columns(
        x=pd.to_numeric(rows.factor_level_of_each_row("bytes"), errors="coerce"),
        level=rows.factor_level_of_each_row("mode"),
        rest=[
            json.dumps({k: v for k, v in own.items() if k not in ("bytes", "mode")}, sort_keys=True)
            for own in rows.factors_of_each_row
        ],
    )
    known = with_columns.rows["x"].notna()
    return with_columns.select(
        known & with_columns.rows["level"].isin([MODE_OF_SERIAL_LOADS, *TEXT_OF_CONCURRENT_MODE])
    )


def find_contention_and_inversions(
    sweeps: Measurements,
) -> tuple[AnomalyTestResult, dict[AnomalyKind, str]]:
    """Find contention and inversions in the sweeps that `select_latency_size_sweeps` returns.

    Returns:
        Two results. The first result is that of the tests: one test for each node and mode with
        possible contention, and one test for inversions. The second result maps a kind of anomaly
        to a sentence on why this kind could not be found.
    """
    columns = ["experiment", "load", "benchmark", "metric"]
    check = AnomalyTestResult(tests_count=1)
    possible: list[list[_PossibleInversion]] = []
    most_sizes = 0
    for key, own in sweeps.groups_by_columns([*columns, "rest"]):
        where = {name: str(part) for name, part in zip(columns, key, strict=False)}
        for level in TEXT_OF_CONCURRENT_MODE:
            check.anomalies += _find_contention(own.rows, {**where, "mode": level})
            together = own.rows[own.rows["level"] == level]
            check.tests_count += together["initiator_nodes"].nunique()
        for (level,), side in own.groups_by_columns(["level"]):
            possible += _find_possible_inversions(side.rows, {**where, "mode": str(level)})
            most_sizes = max(most_sizes, side.rows["x"].nunique())
    check.anomalies += _choose_inversion_of_each_node(possible)
    untested = _reasons_for_untested_kinds(
        sweeps.rows, most_sizes, has_possible_inversions=any(possible)
    )
    check.tested = "latency over sizes" * (AnomalyKind.CONTENTION not in untested)
    return check, untested


def _find_contention(rows: pd.DataFrame, where: dict[str, str]) -> Iterator[Anomaly]:
    """Yield an anomaly for each node that has initiators which are slow only while all run."""
    together = where["mode"]
    found = compare_latency_together_and_alone(Measurements(rows), together, MODE_OF_SERIAL_LOADS)
    if found.start is None:
        return
    alone = {entry.initiator: entry.alone for entry in found.slow}
    large = rows[(rows["level"] == together) & (rows["x"] >= found.start)]
    one_run = large["replicate"].nunique() == 1
    ratios: dict[str, pd.Series] = {}
    for nodes, own in large.groupby("initiator_nodes", sort=True):
        pairs = _log_ratios_to_other_rows(own, own["initiator"].isin(alone), ["x", "replicate"])
        if len(pairs):
            ratios[str(nodes)] = pairs if one_run else pairs.groupby("replicate").mean()
    # The values of all nodes scatter alike, so the variances of the nodes are pooled.
    freedom = sum(len(each) - 1 for each in ratios.values())
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in ratios.values())
    for nodes, per_block in ratios.items():
        if not freedom:  # one ratio for each node may be noise
            continue
        error = np.sqrt(squares / freedom / len(per_block))
        low, high, p = _interval_and_confidence(float(per_block.mean()), error, freedom)
        if low <= 0.0:
            continue
        own = large[large["initiator_nodes"] == nodes]
        names = sorted(own["initiator"].unique(), key=natural_sort_key)
        affected = [name for name in names if name in alone]
        others = places_in_words(name for name in names if name not in alone)
        slow = own["initiator"].isin(affected)
        loss_percent = 100.0 * float(np.expm1(np.median(per_block)))
        initiator, target = shared_initiator_and_target((name, f"node{nodes}") for name in affected)
        yield Anomaly(
            kind=AnomalyKind.CONTENTION,
            initiator=initiator,
            target=target,
            components=(f"node{nodes}",),
            metric=where["metric"],
            observed=float(np.median(own.loc[slow, "value"])),
            expected=float(np.median(own.loc[~slow, "value"])),
            loss_percent=loss_percent,
            loss_percent_low=low,
            loss_percent_high=high,
            confidence=min(MAX_CONFIDENCE_OF_ONE_RUN if one_run else MAX_CONFIDENCE, 1.0 - p),
            p_value=p,
            n=int(own["replicate"].nunique()),
            compared_with=f"{others} of the same node, at {own['x'].nunique()} sizes",
            sentence=text_of_macro(
                "anomalies",
                "contention",
                node=nodes,
                running=TEXT_OF_CONCURRENT_MODE[together],
                start=found.start,
                affected=affected,
                percent=loss_percent,
                alone=np.median([alone[name] for name in affected]),
            ),
            advice=advice_text("contention"),
            cells=tuple((name, f"node{nodes}") for name in affected),
            where=where,
        )


def _reasons_for_untested_kinds(
    rows: pd.DataFrame, most_sizes: int, *, has_possible_inversions: bool
) -> dict[AnomalyKind, str]:
    """Return kind of anomaly -> sentence on why the sweeps cannot show it."""
    if rows.groupby(["initiator_nodes", "target"])["initiator"].nunique().max() < 2:
        one_core = text_of_macro("anomalies", "one_core_per_node")
        return dict.fromkeys((AnomalyKind.CONTENTION, AnomalyKind.INVERSION), one_core)
    reasons = {}
    if rows["level"].nunique() == 1 or not (rows["level"] == MODE_OF_SERIAL_LOADS).any():
        measured = sorted(rows["level"].unique())
        text = text_of_macro("anomalies", "no_contention", measured=measured)
        reasons[AnomalyKind.CONTENTION] = text
    if not has_possible_inversions:
        sizes = {"smaller_sizes": most_sizes - 1, "needed": _FEWEST_SIZES_WITH_CLEAR_LEAD}
        reasons[AnomalyKind.INVERSION] = text_of_macro("anomalies", "no_inversions", **sizes)
    return reasons


def _log_ratios_to_other_rows(rows: pd.DataFrame, chosen: pd.Series, by: list[str]) -> pd.Series:
    """Return for each group the mean logarithm of the chosen rows minus that of the other rows."""
    logs = rows.assign(log=np.log(rows["value"].astype(float)))["log"]
    keys = [rows[name] for name in by]
    above, below = (logs[part].groupby([key[part] for key in keys]) for part in (chosen, ~chosen))
    ratios: pd.Series = (above.mean() - below.mean()).dropna()
    return ratios


def _interval_and_confidence(loss: float, error: float, freedom: int) -> tuple[float, float, float]:
    """Return both ends of the loss's 95 % interval in per cent, and the p-value of no loss."""
    half = float(stats.t.isf(0.025, freedom)) * error
    low, high = (100.0 * float(np.expm1(end)) for end in (loss - half, loss + half))
    return low, high, float(stats.t.sf(loss / (error or 1e-6), freedom))


@dataclass(frozen=True)
class _PossibleInversion:
    """A size at which an initiator is expected to be faster than the others of its node."""

    where: dict[str, str]  # experiment, load, benchmark, metric and mode
    rows: pd.DataFrame  # rows of all initiators of the node at all sizes
    # Medians of the replicates, with a row for each size and a column for each initiator.
    medians: pd.DataFrame
    initiator: str  # initiator that was faster at smaller sizes with a clear order
    position: int  # row of the size in `medians`
    lead: float  # its lead at this size, see `_choose_inversion_of_each_node`
    usual: pd.Series  # its leads at smaller sizes, beginning with the first clear lead


def _find_possible_inversions(
    rows: pd.DataFrame, where: dict[str, str]
) -> Iterator[list[_PossibleInversion]]:
    """Yield for each node all sizes at which the order of its initiators can be inverted."""
    for _, own in rows.groupby(["initiator_nodes", "target"], sort=True):
        medians = own.pivot_table("value", "x", "initiator", aggfunc="median").dropna().sort_index()
        logs = medians.apply(np.log)
        possible: list[_PossibleInversion] = []
        for initiator in medians.columns if medians.shape[1] > 1 else ():
            lead = logs[initiator] - logs.drop(columns=initiator).mean(axis=1)
            for position in range(_FEWEST_SIZES_WITH_CLEAR_LEAD, len(lead)):
                clear = lead.iloc[:position][lead.iloc[:position].abs() > _LEAST_CLEAR_LOG_LEAD]
                if len(clear) >= _FEWEST_SIZES_WITH_CLEAR_LEAD and bool(
                    (clear.iloc[-_FEWEST_SIZES_WITH_CLEAR_LEAD:] < 0.0).all()
                ):
                    usual = lead.loc[clear.index[0] :].iloc[: -(len(lead) - position)]
                    own_lead = float(lead.iloc[position])
                    name = str(initiator)
                    possible.append(
                        _PossibleInversion(where, own, medians, name, position, own_lead, usual)
                    )
        yield possible


def _choose_inversion_of_each_node(
    possible_of_nodes: Sequence[Sequence[_PossibleInversion]],
) -> Iterator[Anomaly]:
    """Yield at most one inversion for each node.

    At the size of an inversion, an initiator is clearly slower than the others, although it is
    faster at smaller sizes.

    The lead of an initiator is the logarithm of its latency minus the mean logarithm of the other
    initiators' latencies. A faster initiator has a negative lead. The mean lead of an initiator at
    smaller sizes must be clearly below zero, and its lead at the size of the inversion must be
    clearly above this mean. The scatter is computed from the differences between leads of an
    initiator at neighbouring smaller sizes, for all initiators together. Both tests of an initiator
    are corrected for the number of all comparisons (Bonferroni). The significance level is 5 % if
    the size was measured in a single block, else `HOST_FALSE_ALARM_LEVEL`.
    """
    steps: list[NDArray[np.float64]] = []
    for possible in possible_of_nodes:
        last = {case.initiator: case for case in possible}
        steps += [np.diff(case.usual) for case in last.values()]
    squares = np.square(np.concatenate([[], *steps]))
    # The differences of successive leads have twice the variance of the leads, and two thirds of
    # the degrees of freedom (von Neumann).
    variance, freedom = float(squares.sum()) / 2.0 / max(len(squares), 1), len(squares) / 1.5
    count = sum(len(possible) for possible in possible_of_nodes)
    for possible in possible_of_nodes:
        for case in possible:
            usual, own = float(case.usual.mean()), 1.0 / len(case.usual)
            scores = -usual / np.sqrt(own), (case.lead - usual) / np.sqrt(1.0 + own)
            p = stats.t.sf(min(scores) / (np.sqrt(variance) or 1e-6), freedom)
            found = _inversion_if_clear(case, 1.0 - count * float(p))
            if found is not None:
                yield found
                break


def _inversion_if_clear(case: _PossibleInversion, confidence: float) -> Anomaly | None:
    """Return the inversion if its lead, its confidence and its replicates are clear, else None."""
    if case.lead < _LEAST_CLEAR_LOG_LEAD:
        return None
    initiator, where = case.initiator, case.where
    size = float(case.medians.index[case.position])
    here = case.rows[case.rows["x"] == size]
    blocks = int(here["replicate"].nunique())
    logs = _log_ratios_to_other_rows(here, here["initiator"] == initiator, ["replicate"])
    low, high = None, None
    if blocks > 1:
        low, high, _ = _interval_and_confidence(
            float(logs.mean()), float(stats.sem(logs)), blocks - 1
        )
    level = 1.0 - MAX_CONFIDENCE_OF_ONE_RUN if blocks == 1 else HOST_FALSE_ALARM_LEVEL
    if 1.0 - confidence > level or (low is not None and low <= 0.0):
        return None
    nodes, target = here["initiator_nodes"].iloc[0], str(here["target"].iloc[0])
    at_size = case.medians.iloc[case.position]
    rest = at_size.drop(initiator)
    loss_percent = 100.0 * float(np.expm1(case.lead))
    others = places_in_words(rest.index)
    return Anomaly(
        kind=AnomalyKind.INVERSION,
        initiator=initiator,
        target=target,
        components=(f"node{nodes}",),
        metric=where["metric"],
        observed=float(at_size[initiator]),
        expected=float(np.exp(np.log(rest).mean())),
        loss_percent=loss_percent,
        loss_percent_low=low,
        loss_percent_high=high,
        confidence=min(MAX_CONFIDENCE_OF_ONE_RUN if blocks == 1 else MAX_CONFIDENCE, confidence),
        p_value=1.0 - confidence,
        n=blocks,
        compared_with=f"{others} of the same node",
        sentence=text_of_macro(
            "anomalies",
            "inversion",
            size=size,
            node=nodes,
            initiator=place_in_words(initiator),
            before=-100.0 * float(np.expm1(case.usual.median())),
            others=others,
            percent=loss_percent,
            mode=where["mode"],
        ),
        advice=advice_text("inversion"),
        cells=((initiator, target),),
        where={**where, "bytes": f"{size:.0f}"},
    )
