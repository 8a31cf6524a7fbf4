"""Compute what loads take from each other when they run at the same time.

`summarise_corun_to_alone_ratios` compares each load of a point with several loads with the same
load alone. It works for any experiment. `compare_latency_together_and_alone` compares two levels of
an experiment at each size: each core alone (serial), and all cores together (concurrent).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.statistics.block_ratios import summarise_cell_ratios_paired_by_block
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import (
    CELL,
    LOAD,
    Measurements,
    Table,
    as_measurements,
    less_is_better,
)
from chaosity.units import format_percent, format_quantity

# Two loads are the same when they agree in these columns.
_SAME_LOAD = (
    *("host", "configuration", "load", "benchmark", "kernel"),
    *("initiator", "target", "metric", "levels"),
)
# Sizes at which cores hardly share anything have ratios within about 5 % of 1 in the published
# sweep (document 003, one run, eight cores, 2 to 64 MB). This limit is 1.5 times as far from 1, so
# such noise does not reach it.
DIVERGING_RATIO = 1.075
# Ratio of a core to the others of its node. In the published sweep it is 1 within 1 % as long as
# each core runs alone, and 1.26 to 1.30 for the slow cores when all run.
SLOW_INITIATOR_RATIO = 1.1
_PAIR = ["host", "configuration", "initiator", "target", "x", "replicate"]


def summarise_corun_to_alone_ratios(measurements: Measurements) -> pd.DataFrame:
    """Compare each load of points that have several loads with the same load alone.

    The load alone is from the same replicate block and, if possible, from the same experiment:
    other experiments may have other durations.

    Returns:
        The table of `summarise_cells` for the ratios: 1 is no loss, 0.6 means 40 % lost. It is
            empty when no load was measured both ways.
    """
    same_levels = measurements.with_columns(levels=measurements.rows["load_parameters"])
    alone, corunning = same_levels.single_load_rows(), same_levels.rows_of_corunning_loads()
    near = summarise_cell_ratios_paired_by_block(corunning, alone, ["experiment", *_SAME_LOAD])
    found = pd.MultiIndex.from_frame(near[[*CELL]])
    missing = ~pd.MultiIndex.from_frame(corunning.rows[[*CELL]]).isin(found)
    far = summarise_cell_ratios_paired_by_block(corunning.select(missing), alone, _SAME_LOAD)
    parts = [part for part in (near, far) if not part.empty]
    return pd.concat(parts, ignore_index=True) if parts else near


@dataclass(frozen=True)
class InitiatorSlowerThanOthersOfNode:
    """An initiator that is slower than others of its node."""

    initiator: str  # name of the initiator
    nodes: str  # node of the initiator, as a Linux list
    # Its latency divided by the geometric mean of the others, all running at the same time, over
    # the sizes from `LatencyDivergence.start` on.
    together: Estimate
    alone: float  # the same ratio with each initiator measured alone; NaN if that was not measured


@dataclass(frozen=True)
class LatencyDivergence:
    """How the latency of loads that run together differs from that of each load alone."""

    # Size -> latency together divided by latency alone, by ascending size.
    ratios: dict[float, Estimate]
    # The smallest size from which on every ratio is above DIVERGING_RATIO, or None.
    start: float | None
    # Initiators that are slower than others of their node, the slowest first.
    slow: tuple[InitiatorSlowerThanOthersOfNode, ...]
    compared: int  # number of initiators that share their node with another initiator


def compare_latency_together_and_alone(
    measurements: Table, together: str, alone: str
) -> LatencyDivergence:
    """Compare the latencies of two levels at each size.

    A pair has the same initiator, target, size and replicate block. The typical ratio of a size is
    the geometric mean over the pairs; the means of the blocks give the interval.

    Args:
        measurements: values of a metric of which less is better, with the additional columns `x`
            (the size) and `level`.
        together: the level of loads that were measured at the same time.
        alone: the level of loads that were measured one after the other.
    """
    valid = as_measurements(measurements).valid_rows().rows
    known = valid[valid["x"].notna()]
    known = known.assign(log=np.log(known["value"].to_numpy(dtype=float)))
    both, single = (known[known["level"] == level] for level in (together, alone))
    ratios = _ratios(both, single)
    large = itertools.takewhile(
        lambda size: ratios[size].median > DIVERGING_RATIO, reversed(ratios)
    )
    start = min(large, default=None)
    if start is None:
        return LatencyDivergence(ratios, None, (), 0)
    to_others, alone_to_others = (_to_others(side[side["x"] >= start]) for side in (both, single))
    slow = []
    for initiator, blocks in to_others.items():
        ratio = Estimate.of_values(np.exp(blocks))
        if ratio.median > SLOW_INITIATOR_RATIO and (ratio.low is None or ratio.low > 1.0):
            own = float(np.exp(np.median(alone_to_others.get(initiator, np.nan))))
            slow.append(InitiatorSlowerThanOthersOfNode(*initiator, ratio, own))
    slow.sort(key=lambda initiator: initiator.together.median, reverse=True)
    return LatencyDivergence(ratios, start, tuple(slow), len(to_others))


def _ratios(together: pd.DataFrame, alone: pd.DataFrame) -> dict[float, Estimate]:
    """Return size -> geometric mean of the ratios of its pairs, by ascending size."""
    above, below = (side.groupby(_PAIR)["log"].mean() for side in (together, alone))
    pairs = (above - below).dropna()
    blocks = pairs.groupby(["x", "host", "configuration", "replicate"]).mean()
    sizes = blocks.groupby("x")
    return {float(x): Estimate.of_values(np.exp(own)) for x, own in sizes}  # type: ignore


def _to_others(rows: pd.DataFrame) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return (initiator, nodes) -> log ratios to the others of its node, one per block.

    Targets and sizes do not count if any initiator of the node has no value there.
    """
    place = ["host", "configuration", "initiator_nodes", "target", "x", "replicate"]
    logs = rows.groupby([*place, "initiator"])["log"].mean().reset_index()
    sums, sizes = (logs.groupby(place)["log"].transform(name) for name in ("sum", "size"))
    whole = logs.groupby("initiator_nodes")["initiator"].transform("nunique")
    logs["ratio"] = logs["log"] - (sums - logs["log"]) / (sizes - 1)
    compared = logs[(sizes == whole) & (whole > 1)]
    keys = ["initiator", "initiator_nodes"]
    blocks = compared.groupby([*keys, "replicate"])["ratio"].mean()
    return {place: own.to_numpy(float) for place, own in blocks.groupby(keys)}  # type: ignore


def slowdown_sentences(measurements: Measurements) -> Iterator[str]:
    """Yield a sentence for each co-running load with its slowdown."""
    table = measurements.rows
    medians = summarise_cells(measurements).set_index(["point", *LOAD])["median"]
    for _, cost in summarise_corun_to_alone_ratios(measurements).iterrows():
        metric, ratio = cost["metric"], cost["median"]
        loads = table[table["point"] == cost["point"]]
        others = ", ".join(sorted(set(loads["initiator"]) - {cost["initiator"]}))
        value = medians[(cost["point"], *(cost[column] for column in LOAD))]
        effect = f"loses {format_percent(1.0 - ratio)}"
        if less_is_better(metric) or ratio > 1.0:
            effect = f"has {ratio:.2f} times its value alone"
        own, alone = (format_quantity(metric, each) for each in (value, value / ratio))
        yield f"{cost['initiator']} {effect} with {others} co-running: {own}, alone {alone}."
