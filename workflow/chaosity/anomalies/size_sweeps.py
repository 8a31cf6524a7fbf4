"""Anomalies of latency over the working set's size: contention within a node, and inversions.

Document 003 shows both on an EPYC: half of the cores are slower as soon as all run, though each
alone is as fast as any other; and at the largest size the order of two cores of one node turns
round.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import CONTENTION, INVERSION, Anomaly
from chaosity.anomalies.departures import (
    MATTERS_IN_ONE_RUN,
    MOST_CONFIDENCE,
    MOST_CONFIDENCE_OF_ONE,
)
from chaosity.statistics import estimate, latency_divergence
from chaosity.units import format_binary_bytes

SERIAL, CONCURRENT = "serial", "concurrent"
# An order counts as usual when it held for at least so many smaller sizes.
_FEWEST_SIZES = 3
_CONTENTION = (
    "Processing units of this node share a path to its memory that congests when all run. Spread "
    "threads over L3 domains, use fewer a node for work that waits for memory, and compare the "
    "node's other settings (NPS, clock of the fabric)."
)
_INVERSION = (
    "Measure this size again: a size that fills the node may spill to other nodes or other "
    "channels. Look at the memory modules behind the upper addresses of this node (mixed sizes, "
    "one rank more)."
)


def sweep_rows(tidy: pd.DataFrame) -> pd.DataFrame:
    """Rows of sweeps over sizes, with `x` (bytes), `level` (serial or concurrent) and `rest`.

    Args:
        tidy: valid rows of a latency.
    """
    factors = tidy["factors"].map(lambda text: json.loads(text or "{}"))
    rows = tidy.assign(
        x=[pd.to_numeric(one.get("bytes"), errors="coerce") for one in factors],
        level=[one.get("mode") for one in factors],
        rest=[
            json.dumps({k: v for k, v in one.items() if k not in ("bytes", "mode")}, sort_keys=True)
            for one in factors
        ],
    )
    return rows[rows["x"].notna() & rows["level"].isin([SERIAL, CONCURRENT])]


def sweep_anomalies(rows: pd.DataFrame) -> Iterator[Anomaly]:
    """Contention and inversions.

    Args:
        rows: see `sweep_rows`.
    """
    keys = ["experiment", "load", "benchmark", "metric", "rest"]
    for key, own in rows.groupby(keys, sort=False, dropna=False):
        where = {name: str(part) for name, part in zip(keys[:-1], key, strict=False)}
        yield from _contention(own, where)
        for level, side in own.groupby("level", sort=False):
            yield from _inversions(side, {**where, "mode": str(level)})


def _contention(rows: pd.DataFrame, where: dict[str, str]) -> Iterator[Anomaly]:
    """Initiators that are slower than others of their node as soon as all run."""
    found = latency_divergence(rows, CONCURRENT, SERIAL)
    slow = {one.initiator: one for one in found.slow}
    if found.start is None:
        return
    large = rows[(rows["level"] == CONCURRENT) & (rows["x"] >= found.start)]
    for _, own in large.groupby("initiator_nodes", sort=True):
        held = [name for name in own["initiator"].unique() if name in slow]
        if held:
            alone = float(np.median([slow[name].alone for name in held]))
            yield _held_up(own, held, found.start, alone, where)


def _held_up(
    rows: pd.DataFrame, held: list[str], start: float, alone: float, where: dict[str, str]
) -> Anomaly:
    """The contention of one node.

    Args:
        rows: of its initiators, when all run, from the size on at which they part.
        held: the slow initiators.
        start: that size in bytes.
        alone: what they take alone, over what the others take.
        where: what the rows are of.
    """
    node = f"node{rows['initiator_nodes'].iloc[0]}"
    held = sorted(held, key=_number)
    others = sorted(set(rows["initiator"]) - set(held), key=_number)
    slow = rows["initiator"].isin(held)
    sizes, blocks = rows["x"].nunique(), rows["replicate"].nunique()
    logs = rows.assign(log=np.log(rows["value"].astype(float)))
    means = [logs[part].groupby(["x", "replicate"])["log"].mean() for part in (slow, ~slow)]
    pairs = (means[0] - means[1]).dropna()
    per_block = pairs.groupby("replicate").mean() if blocks > 1 else pairs
    low, high, confidence = _interval(per_block.to_numpy(), one_run=blocks == 1)
    loss = 100.0 * float(np.expm1(np.median(per_block)))
    wait = "wait" if len(held) > 1 else "waits"
    return Anomaly(
        kind=CONTENTION,
        metric=where["metric"],
        initiator=held[0] if len(held) == 1 else None,
        target=node,
        components=(node,),
        observed=float(np.median(rows.loc[slow, "value"])),
        expected=float(np.median(rows.loc[~slow, "value"])),
        loss_percent=loss,
        loss_low=low,
        loss_high=high,
        confidence=confidence,
        n=int(blocks),
        siblings=f"{anomaly_text.listed(others)} of the same node, at {sizes} sizes",
        sentence=(
            f"Contention within node {node.removeprefix('node')}: when all run, from "
            f"{format_binary_bytes(start)} on, {anomaly_text.listed(held)} {wait} {loss:.0f} % longer than the "
            f"others of the node, and alone {alone:.2f} times as long."
        ),
        advice=_CONTENTION,
        cells=tuple((name, node) for name in held),
        where={**where, "mode": CONCURRENT},
    )


def _interval(logs: np.ndarray, *, one_run: bool) -> tuple[float | None, float | None, float]:
    """95 % interval of a ratio in per cent of loss, and how sure it is that it is one."""
    most = MOST_CONFIDENCE_OF_ONE if one_run else MOST_CONFIDENCE
    ratio = estimate(np.exp(logs))
    if ratio.low is None or ratio.high is None:
        return None, None, most / 2.0
    chance = float(stats.t.sf(logs.mean() / (stats.sem(logs) or 1e-6), len(logs) - 1))
    return 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0), min(most, 1.0 - chance)


def _number(name: str) -> tuple[int, str]:
    digits = "".join(part for part in name if part.isdigit())
    return int(digits or 0), name


def _inversions(rows: pd.DataFrame, where: dict[str, str]) -> Iterator[Anomaly]:
    """Sizes at which the usual order of the initiators of a node turns round."""
    for _, own in rows.groupby(["initiator_nodes", "target"], sort=True):
        table = own.pivot_table("value", "x", "initiator", aggfunc="median").dropna().sort_index()
        if table.shape[1] < 2:
            continue
        turn = _first_turn(table)
        if turn is not None:
            yield _inversion(own, table, *turn, where)


def _first_turn(table: pd.DataFrame) -> tuple[str, int, pd.Series] | None:
    """Where an initiator that was the fast one before is the slow one.

    Args:
        table: medians, a row a size, a column an initiator.

    Returns:
        The initiator, the position of the size, and what it was ahead by at the last smaller sizes
        at which the order was clear (logarithms, negative).
    """
    limit = -np.log1p(-MATTERS_IN_ONE_RUN)
    logs = np.log(table)
    for initiator in logs.columns:
        ahead = logs[initiator] - logs.drop(columns=initiator).mean(axis=1)
        for position in range(_FEWEST_SIZES, len(ahead)):
            before = ahead.iloc[:position]
            usual = before[before.abs() > limit].iloc[-_FEWEST_SIZES:]
            faster = len(usual) == _FEWEST_SIZES and bool((usual < 0.0).all())
            if faster and float(ahead.iloc[position]) >= limit:
                return str(initiator), position, usual
    return None


def _inversion(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    initiator: str,
    position: int,
    usual: pd.Series,
    where: dict[str, str],
) -> Anomaly:
    size = float(table.index[position])
    observed = float(table[initiator].iloc[position])
    rest = table.drop(columns=initiator).iloc[position]
    expected = float(np.exp(np.log(rest).mean()))
    loss = 100.0 * (observed / expected - 1.0)
    here = rows[rows["x"] == size]
    blocks = int(here["replicate"].nunique())
    if blocks > 1:
        logs = here.assign(log=np.log(here["value"].astype(float)))
        is_own = logs["initiator"] == initiator
        own, other = (logs[part].groupby("replicate")["log"].mean() for part in (is_own, ~is_own))
        low, high, confidence = _interval((own - other).dropna().to_numpy(), one_run=False)
    else:
        low, high, confidence = None, None, _sure_by_sizes(np.log1p(loss / 100.0), usual)
    nodes, target = str(rows["initiator_nodes"].iloc[0]), str(rows["target"].iloc[0])
    others = anomaly_text.listed([str(name) for name in rest.index])
    before = 100.0 * (1.0 - float(np.exp(usual.median())))
    return Anomaly(
        kind=INVERSION,
        metric=where["metric"],
        initiator=initiator,
        target=target,
        components=(f"node{nodes}",),
        observed=observed,
        expected=expected,
        loss_percent=loss,
        loss_low=low,
        loss_high=high,
        confidence=confidence,
        n=blocks,
        siblings=f"{others} of the same node",
        sentence=(
            f"Inversion at {format_binary_bytes(size)} on node {nodes}: {initiator}, which took "
            f"{before:.0f} % less time than {others} at smaller sizes, takes {loss:.0f} % longer "
            f"there ({where['mode']})."
        ),
        advice=_INVERSION,
        cells=((initiator, target),),
        where={**where, "bytes": f"{size:.0f}"},
    )


def _sure_by_sizes(loss: float, usual: pd.Series) -> float:
    """How sure a loss of one run is: the scatter of the usual order is all that there is."""
    error = float(np.std(usual, ddof=1)) * np.sqrt(1.0 + 1.0 / len(usual)) or 1e-6
    chance = float(stats.t.sf((loss - usual.mean()) / error, len(usual) - 1))
    return min(MOST_CONFIDENCE_OF_ONE, 1.0 - chance)
