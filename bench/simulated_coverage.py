"""How often 95 % intervals hold the value that a simulated machine has without noise.

The values take the same steps as in a report: plan, records, tidy table, statistics. Intervals of
one seed are not independent, since ratios share references. So the share of each seed is one
observation. The table has the mean over the seeds with Student's t interval.

Drift moves measured values away from the truth, and no interval can show this shift. The last
column is the coverage of the value that the estimate can find: the median of the runs without
random noise, which is the truth with the drift of the middle run. A few disturbed runs do not move
this median.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from chaosity.documents.config import read_config
from chaosity.statistics.cell_summary import (
    summarise_cell_ratios_paired_by_block,
    summarise_cells,
    summarise_corun_to_alone_ratios,
)
from chaosity.store.measurements import Measurements
from machines import SimulatedHost, shipped_machine, shipped_topology

REPLICATES = (3, 5)
# Machines with the two levels of noise of the shipped descriptions: runs differ by 0.6 % and 1 %.
MACHINES = ("xeon_8358", "desktop")
EXPERIMENTS = ["memory_bandwidth", "latency_matrix", "storage_bandwidth", "interference"]
DRIFT, DISTURBED_RUNS, DISTURBED_LOSS = 0.03, 0.05, 0.1
# Additions to the noise of a description.
NOISE: Mapping[str, dict[str, float]] = {
    "as shipped": {},
    f"and drift of {DRIFT:.0%}": {"drift": DRIFT},
    f"and {DISTURBED_RUNS:.0%} of the runs lose {DISTURBED_LOSS:.0%}": {
        "disturbed_runs": DISTURBED_RUNS,
        "disturbed_loss": DISTURBED_LOSS,
    },
}
Statistic = Callable[[Measurements], pd.DataFrame]
# Columns that two cells of a ratio of remote to local memory share.
SAME = ("host", "configuration", "experiment", "load", "kernel", "initiator", "metric", "levels")


def _cells(metric: str) -> Statistic:
    return lambda table: summarise_cells(table.single_load_rows().where(metric=metric))


def remote_to_local(table: Measurements) -> pd.DataFrame:
    """Return the ratios of remote to local memory, by rate and by latency."""
    alone = table.single_load_rows().where(target_kind="node")
    local = alone.rows["relation"] == "same_node"
    return summarise_cell_ratios_paired_by_block(alone.select(~local), alone.select(local), SAME)


STATISTICS: Mapping[str, Statistic] = {
    "bandwidth": _cells("bandwidth_bytes_per_second"),
    "latency": _cells("latency_ns"),
    "ratio of remote to local": remote_to_local,
    "interference": summarise_corun_to_alone_ratios,
}


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    columns = ["machine", "noise", "n", "interval of", "intervals", "hold the truth", "the aim"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    cases = [(name, noise, n) for name in MACHINES for noise in NOISE for n in REPLICATES]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        of_each = pool.map(partial(coverage_by_statistic, seeds), *zip(*cases, strict=True))
        for case, lines in zip(cases, of_each, strict=True):
            yield from (f"| {' | '.join(map(str, case))} | {line} |" for line in lines)


def coverage_by_statistic(seeds: int, name: str, noise: str, n: int) -> list[str]:
    """Return the coverage of each statistic's intervals."""
    topology = shipped_topology(name)
    machine = shipped_machine(name, topology)
    config = {**read_config(), "experiments": EXPERIMENTS, "replicates": n}

    def host(noise: dict[str, float]) -> SimulatedHost:
        return SimulatedHost.planned(
            {**machine, "noise": noise}, topology, [], config, all_points=True
        )

    more = NOISE[noise]
    noisy = host({**machine["noise"], **more})
    drifting = host({"drift": more.get("drift", 0.0)}).table_of_records(0)
    targets = {
        each: (statistic(noisy.true_table), statistic(drifting)["median"])
        for each, statistic in STATISTICS.items()
    }
    held: dict[str, list[tuple[float, float]]] = {each: [] for each in STATISTICS}
    for seed in range(1, seeds + 1):
        table = noisy.table_of_records(seed)
        for each, (truth, aim) in targets.items():
            if truth.empty:
                continue
            found = STATISTICS[each](table)
            assert (found["point"] == truth["point"]).all()
            inside = [
                float(((found["low"] <= value) & (value <= found["high"])).mean())
                for value in (truth["median"], aim)
            ]
            held[each].append((inside[0], inside[1]))
    return [
        " | ".join(
            [each, str(seeds * len(targets[each][0])), *map(shown, zip(*shares, strict=True))]
        )
        for each, shares in held.items()
        if shares
    ]


def shown(shares: tuple[float, ...]) -> str:
    """Return the mean share of the seeds with its 95 % interval."""
    mean, error = float(np.mean(shares)), float(stats.sem(shares))
    half = float(stats.t.ppf(0.975, len(shares) - 1)) * error
    high = min(1.0, mean + half)
    return f"{100 * mean:.1f} % ({100 * (mean - half):.1f} to {100 * high:.1f} %)"


PARTS = {"simulated_coverage": compare}
