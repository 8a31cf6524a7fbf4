"""Compute ratios of cells: to partners of the same replicate block, alone and together, over time.

Replicate k of every point is measured before replicate k + 1 of any point, so two measurements of
one block were made in the same hours. Drift between blocks cancels out in their ratio. The scatter
of the ratios over the blocks gives the interval.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.statistics.cell_summary import replace_values, summarise_cells
from chaosity.statistics.estimates import Estimate, Ratio
from chaosity.store.measurements import (
    CELL,
    LOAD,
    Measurements,
    Table,
    as_measurements,
    less_is_better,
)
from chaosity.units import format_percent, format_quantity

_BLOCK = ("host", "configuration", "replicate")
# Two loads are the same when they agree in these columns.
_SAME_LOAD = (
    *("host", "configuration", "load", "benchmark", "kernel"),
    *("initiator", "target", "metric", "levels"),
)
# At sizes at which cores hardly share anything, latency together divided by latency alone is within
# about 5 % of 1 in the published sweep (document 003, one run, eight cores, 2 to 64 MB). This limit
# is 1.5 times as far from 1, so such noise does not reach it.
DIVERGING_RATIO = 1.075
# Latency of a core divided by that of the others of its node. In the published sweep it is 1 within
# 1 % as long as each core runs alone, and 1.26 to 1.30 for the slow cores when all run.
SLOW_INITIATOR_RATIO = 1.1
# Columns that are equal in both latencies of a pair, together and alone.
_PAIR = ["host", "configuration", "initiator", "target", "x", "replicate"]
# Columns of a summary that are given for the periods before and after a change of a component.
_ESTIMATE = ("median", "low", "high", "n")


def summarise_cell_ratios_paired_by_block(
    numerator: Table, denominator: Table, on: Sequence[str]
) -> pd.DataFrame:
    """Divide cells of a selection by partners in another selection, paired by replicate block.

    Args:
        numerator: divided selection, whose columns describe the result.
        denominator: reference; if a cell has several partners, their geometric mean is used.
        on: columns with equal values in partners; `replicate` is added.

    Returns:
        The table of `summarise_cells` for the ratios (no unit), without cells that have no pair.
    """
    keys = [*on, "replicate"]
    above, below = (as_measurements(side).valid_rows().rows for side in (numerator, denominator))
    below = below.assign(_log=np.log(below["value"].to_numpy(dtype=float)))
    partners = below.groupby(keys, dropna=False)["_log"].mean().reset_index()
    # A key without any value (no load has a kernel) has lost its type in the grouping.
    partners = partners.astype({key: above.dtypes[key] for key in keys})
    pairs = above.merge(partners, on=keys, how="inner")
    ratios = pairs["value"] / np.exp(pairs.pop("_log").to_numpy(dtype=float))
    return summarise_cells(Measurements(replace_values(pairs, ratios)))


def estimate_group_ratio_paired_by_block(numerator: Table, denominator: Table) -> Estimate:
    """Return the ratio of the typical value of one group of cells to that of another.

    For example, the cells with memory of another package are compared with the cells with memory of
    the own node. The typical value of a block is the geometric mean over the group's cells. A cell
    without a value in a block would shift that block's mean, so only complete cells count, unless
    no cell is complete. n is the number of blocks that both groups have.
    """
    return Estimate.of_values(np.exp(_block_logs(numerator) - _block_logs(denominator)))


def _block_logs(group: Table) -> pd.Series:
    """Return block -> mean logarithm over the cells that have a value in every block."""
    rows = as_measurements(group).valid_rows().rows
    blocks = rows.groupby(list(_BLOCK), dropna=False).ngroups
    seen = rows.groupby(list(CELL), dropna=False)["value"].transform("size")
    complete = rows[seen == blocks]
    rows = rows if complete.empty else complete
    logs = rows.assign(value=np.log(rows["value"].to_numpy(dtype=float)))
    return logs.groupby(list(_BLOCK), dropna=False)["value"].mean()


def summarise_corun_to_alone_ratios(measurements: Measurements) -> pd.DataFrame:
    """Compare each load of points that have several loads with the same load alone.

    The load alone is from the same replicate block and, if possible, from the same experiment:
    other experiments may have other durations. Only rates and times are compared: the shares of
    pages that a search found have no loss.

    Returns:
        The table of `summarise_cells` for the ratios: 1 means no loss, 0.6 means 40 % lost. The
        table is empty if no load was measured both alone and co-running.
    """
    performance = measurements.performance_rows()
    same_levels = performance.with_columns(levels=performance.rows["load_parameters"])
    alone, corunning = same_levels.single_load_rows(), same_levels.rows_of_corunning_loads()
    near = summarise_cell_ratios_paired_by_block(corunning, alone, ["experiment", *_SAME_LOAD])
    found = pd.MultiIndex.from_frame(near[[*CELL]])
    missing = ~pd.MultiIndex.from_frame(corunning.rows[[*CELL]]).isin(found)
    far = summarise_cell_ratios_paired_by_block(corunning.select(missing), alone, _SAME_LOAD)
    parts = [part for part in (near, far) if not part.empty]
    return pd.concat(parts, ignore_index=True) if parts else near


@dataclass(frozen=True)
class InitiatorSlowerThanOthersOfNode:
    """An initiator that is slower than the other initiators of its node."""

    initiator: str  # name of the initiator
    nodes: str  # node of the initiator, as a Linux list
    # Latency of the initiator divided by the geometric mean latency of the others, all running at
    # the same time, over the sizes from `LatencyTogetherAndAlone.start` on.
    together: Estimate
    alone: float  # the same ratio with each initiator measured alone; NaN if that was not measured


@dataclass(frozen=True)
class LatencyTogetherAndAlone:
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
) -> LatencyTogetherAndAlone:
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
        return LatencyTogetherAndAlone(ratios, None, (), 0)
    to_others, alone_to_others = (_to_others(side[side["x"] >= start]) for side in (both, single))
    slow = []
    for initiator, blocks in to_others.items():
        ratio = Estimate.of_values(np.exp(blocks))
        if ratio.median > SLOW_INITIATOR_RATIO and (ratio.low is None or ratio.low > 1.0):
            own = float(np.exp(np.median(alone_to_others.get(initiator, np.nan))))
            slow.append(InitiatorSlowerThanOthersOfNode(*initiator, ratio, own))
    slow.sort(key=lambda initiator: initiator.together.median, reverse=True)
    return LatencyTogetherAndAlone(ratios, start, tuple(slow), len(to_others))


def _ratios(together: pd.DataFrame, alone: pd.DataFrame) -> dict[float, Estimate]:
    """Return size -> geometric mean of the ratios of its pairs, by ascending size."""
    above, below = (side.groupby(_PAIR)["log"].mean() for side in (together, alone))
    pairs = (above - below).dropna()
    blocks = pairs.groupby(["x", "host", "configuration", "replicate"]).mean()
    sizes = blocks.groupby("x")
    return {float(x): Estimate.of_values(np.exp(own)) for x, own in sizes}  # type: ignore


def _to_others(rows: pd.DataFrame) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return (initiator, nodes) -> log ratios to other initiators of its node, one per block."""
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


def compare_neighbouring_periods(history: Measurements) -> pd.DataFrame:
    """Compare each cell of each point in successive periods of a history.

    Returns:
        One row for each cell and change of its components, the newest change last: the cell's
        columns and `era` (the number of the later period), `changed` (JSON: component -> [start of
        its earlier state, start of its later state]), `comparable` (whether both periods have the
        same request fingerprint), `median_before`, `low_before`, `high_before`, `n_before`, the
        same with `_after`, and `ratio`, `ratio_low`, `ratio_high`.
    """
    found = []
    valid = history.performance_rows().valid_rows_with_value()
    keys = [*CELL, "era"]
    cells = summarise_cells(valid, keys).set_index(keys)
    for _, cell in valid.groups_by_columns(CELL):
        for (_, before), (_, after) in itertools.pairwise(cell.rows.groupby("era", sort=True)):
            old, new = (json.loads(own["components"].iloc[-1]) for own in (before, after))
            changed = {c: [old.get(c), new[c]] for c in new if old.get(c) != new[c]}
            of_cell = [tuple(own[keys].iloc[0]) for own in (before, after)]
            old_cell, new_cell = (cells.loc[key] for key in of_cell)
            ratio = Ratio.of_cells(new_cell, old_cell)
            found.append(
                [
                    *(*of_cell[1], json.dumps(changed, sort_keys=True)),
                    len({*before["asked"], *after["asked"]}) == 1,
                    *(own[name] for own in (old_cell, new_cell) for name in _ESTIMATE),
                    *(ratio.ratio, ratio.low, ratio.high),
                ]
            )
    columns = [
        *(*CELL, "era", "changed", "comparable"),
        *(f"{name}_{side}" for side in ("before", "after") for name in _ESTIMATE),
        *("ratio", "ratio_low", "ratio_high"),
    ]
    return pd.DataFrame(found, columns=columns)
