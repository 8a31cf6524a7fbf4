"""Anomalies of latency over the working set: contention within a node, and inversions.

Document 003 shows both on an EPYC. Half of the cores are slower as soon as all cores run, though
each alone is as fast as the others. And at the largest size the order of two cores of one node is
inverted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.anomaly_results import CONTENTION, INVERSION, Anomaly, Loss
from chaosity.anomalies.departure_significance import (
    MATTERS_IN_ONE_RUN,
    MAX_CONFIDENCE,
    MAX_CONFIDENCE_OF_ONE_RUN,
)
from chaosity.statistics import Estimate, find_latency_divergence
from chaosity.store.measurements import Measurements
from chaosity.units import format_binary_bytes, join_with_and

SERIAL, CONCURRENT = "serial", "concurrent"
# An order is usual when it held at the last so many sizes.
_MIN_SIZES = 3
_CONTENTION_ADVICE = (
    "Processing units of this node share a path to its memory that congests when all run. Spread "
    "threads over L3 domains, use fewer threads per node for latency-bound programs, and compare "
    "the node's other settings (NPS, clock of the fabric)."
)
_INVERSION_ADVICE = (
    "Measure this size again: a size that fills the node may spill to other nodes or other "
    "channels. Look at the memory modules behind the upper addresses of this node (mixed sizes, "
    "one rank more)."
)


def select_sweeps(rows: Measurements) -> Measurements:
    """Rows of sweeps over sizes, with `x` (bytes), `level` (serial or concurrent) and `rest`.

    `rest` holds the other factors as JSON.

    Args:
        rows: valid rows of a latency.
    """
    with_columns = rows.with_columns(
        x=pd.to_numeric(rows.factor("bytes"), errors="coerce"),
        level=rows.factor("mode"),
        rest=[
            json.dumps({k: v for k, v in own.items() if k not in ("bytes", "mode")}, sort_keys=True)
            for own in rows.factors
        ],
    )
    known = with_columns.rows["x"].notna()
    return with_columns.select(known & with_columns.rows["level"].isin([SERIAL, CONCURRENT]))


def find_sweep_anomalies(sweeps: Measurements) -> Iterator[Anomaly]:
    """Contention and inversions.

    Args:
        sweeps: see `select_sweeps`.
    """
    columns = ["experiment", "load", "benchmark", "metric"]
    for key, own in sweeps.groups([*columns, "rest"]):
        where = {name: str(part) for name, part in zip(columns, key, strict=False)}
        yield from _contention(own.rows, where)
        for (level,), side in own.groups(["level"]):
            yield from _inversions(side.rows, {**where, "mode": str(level)})


def _contention(rows: pd.DataFrame, where: dict[str, str]) -> Iterator[Anomaly]:
    """Initiators that are slower than others of their node when all run."""
    found = find_latency_divergence(rows, CONCURRENT, SERIAL)
    slow = {entry.initiator: entry for entry in found.slow}
    if found.start is None:
        return
    large = rows[(rows["level"] == CONCURRENT) & (rows["x"] >= found.start)]
    for _, own in large.groupby("initiator_nodes", sort=True):
        affected = [name for name in own["initiator"].unique() if name in slow]
        if affected:
            alone = float(np.median([slow[name].alone for name in affected]))
            yield _contention_of_node(own, affected, found.start, alone, where)


def _contention_of_node(
    rows: pd.DataFrame, affected: Sequence[str], start: float, alone: float, where: dict[str, str]
) -> Anomaly:
    """The contention of one node.

    Args:
        rows: of its initiators when all run, from the size on at which they diverge.
        affected: the slow initiators.
        start: that size in bytes.
        alone: latency of the slow initiators alone, divided by that of the others alone.
        where: the slice.
    """
    node = f"node{rows['initiator_nodes'].iloc[0]}"
    affected = sorted(affected, key=_pu_number)
    others = sorted(set(rows["initiator"]) - set(affected), key=_pu_number)
    slow = rows["initiator"].isin(affected)
    sizes, blocks = rows["x"].nunique(), rows["replicate"].nunique()
    logs = rows.assign(log=np.log(rows["value"].astype(float)))
    means = [logs[part].groupby(["x", "replicate"])["log"].mean() for part in (slow, ~slow)]
    pairs = (means[0] - means[1]).dropna()
    per_block = pairs.groupby("replicate").mean() if blocks > 1 else pairs
    low, high, confidence = _interval(per_block.to_numpy(float), one_run=blocks == 1)
    loss = Loss(
        metric=where["metric"],
        observed=float(np.median(rows.loc[slow, "value"])),
        expected=float(np.median(rows.loc[~slow, "value"])),
        loss_percent=100.0 * float(np.expm1(np.median(per_block))),
        loss_low=low,
        loss_high=high,
        confidence=confidence,
        n=int(blocks),
    )
    wait = "wait" if len(affected) > 1 else "waits"
    return Anomaly.from_loss(
        loss,
        CONTENTION,
        (node,),
        tuple((name, node) for name in affected),
        sentence=(
            f"Contention within node {node.removeprefix('node')}: when all run, from "
            f"{format_binary_bytes(start)} on, {join_with_and(affected)} {wait} "
            f"{loss.loss_percent:.0f} % longer than the others of the node, and alone "
            f"{alone:.2f} times as long."
        ),
        advice=_CONTENTION_ADVICE,
        compared_with=f"{join_with_and(others)} of the same node, at {sizes} sizes",
        where={**where, "mode": CONCURRENT},
    )


def _interval(
    logs: NDArray[np.float64], *, one_run: bool
) -> tuple[float | None, float | None, float]:
    """Low and high end of the loss in per cent (95 % interval), and the confidence in a loss."""
    most = MAX_CONFIDENCE_OF_ONE_RUN if one_run else MAX_CONFIDENCE
    ratio = Estimate.of_values(np.exp(logs))
    if ratio.low is None or ratio.high is None:
        return None, None, most / 2.0
    p = float(stats.t.sf(logs.mean() / (stats.sem(logs) or 1e-6), len(logs) - 1))
    return 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0), min(most, 1.0 - p)


def _pu_number(name: str) -> tuple[int, str]:
    """Sort key of a place by its number."""
    digits = "".join(part for part in name if part.isdigit())
    return int(digits or 0), name


def _inversions(rows: pd.DataFrame, where: dict[str, str]) -> Iterator[Anomaly]:
    """Sizes at which the usual order of the initiators of a node is inverted."""
    for _, own in rows.groupby(["initiator_nodes", "target"], sort=True):
        medians = own.pivot_table("value", "x", "initiator", aggfunc="median").dropna().sort_index()
        if medians.shape[1] < 2:
            continue
        inversion = _first_inversion(medians)
        if inversion is not None:
            yield _inversion(own, medians, *inversion, where)


def _first_inversion(medians: pd.DataFrame) -> tuple[str, int, pd.Series] | None:
    """The first size at which the usually fast initiator is the slow one.

    Args:
        medians: a row per size, a column per initiator.

    Returns:
        The initiator, the position of the size, and its lead at the last smaller sizes with a clear
        order (logarithms, negative).
    """
    limit = -np.log1p(-MATTERS_IN_ONE_RUN)
    logs = medians.apply(np.log)
    for initiator in logs.columns:
        lead = logs[initiator] - logs.drop(columns=initiator).mean(axis=1)
        for position in range(_MIN_SIZES, len(lead)):
            before = lead.iloc[:position]
            usual = before[before.abs() > limit].iloc[-_MIN_SIZES:]
            faster = len(usual) == _MIN_SIZES and bool((usual < 0.0).all())
            if faster and float(lead.iloc[position]) >= limit:
                return str(initiator), position, usual
    return None


def _inversion(
    rows: pd.DataFrame,
    medians: pd.DataFrame,
    initiator: str,
    position: int,
    usual: pd.Series,
    where: dict[str, str],
) -> Anomaly:
    size = float(medians.index[position])
    observed = float(medians[initiator].iloc[position])
    rest = medians.drop(columns=initiator).iloc[position]
    expected = float(np.exp(np.log(rest).mean()))
    loss_percent = 100.0 * (observed / expected - 1.0)
    here = rows[rows["x"] == size]
    blocks = int(here["replicate"].nunique())
    low: float | None = None
    high: float | None = None
    if blocks > 1:
        logs = here.assign(log=np.log(here["value"].astype(float)))
        is_own = logs["initiator"] == initiator
        own, other = (logs[part].groupby("replicate")["log"].mean() for part in (is_own, ~is_own))
        low, high, confidence = _interval((own - other).dropna().to_numpy(float), one_run=False)
    else:
        confidence = _confidence_by_sizes(np.log1p(loss_percent / 100.0), usual)
    loss = Loss(
        metric=where["metric"],
        observed=observed,
        expected=expected,
        loss_percent=loss_percent,
        loss_low=low,
        loss_high=high,
        confidence=confidence,
        n=blocks,
    )
    nodes, target = str(rows["initiator_nodes"].iloc[0]), str(rows["target"].iloc[0])
    others = join_with_and([str(name) for name in rest.index])
    before = 100.0 * (1.0 - float(np.exp(usual.median())))
    return Anomaly.from_loss(
        loss,
        INVERSION,
        (f"node{nodes}",),
        ((initiator, target),),
        sentence=(
            f"Inversion at {format_binary_bytes(size)} on node {nodes}: {initiator}, which took "
            f"{before:.0f} % less time than {others} at smaller sizes, takes {loss_percent:.0f} % "
            f"longer there ({where['mode']})."
        ),
        advice=_INVERSION_ADVICE,
        compared_with=f"{others} of the same node",
        where={**where, "bytes": f"{size:.0f}"},
    )


def _confidence_by_sizes(loss: float, usual: pd.Series) -> float:
    """Confidence in a loss of one run, from the scatter of the usual order alone."""
    error = float(np.std(usual, ddof=1)) * np.sqrt(1.0 + 1.0 / len(usual)) or 1e-6
    p = float(stats.t.sf((loss - usual.mean()) / error, len(usual) - 1))
    return min(MAX_CONFIDENCE_OF_ONE_RUN, 1.0 - p)
