"""Small tidy tables of equal hosts, quick to make in large numbers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import numpy as np
import pandas as pd

from chaosity.compare.outlier_host_search import find_outlier_hosts
from chaosity.compare.selection_comparison import compare_selections
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS

GB = 1e9


def host(
    name: str,
    seed: int,
    *,
    nodes: int = 4,
    replicates: int = 3,
    noise: float = 0.01,
    factor: Mapping[str, float] | None = None,
    configuration: str = "nps4",
    metric: str = "bandwidth_bytes_per_second",
    day: str = "2026-11-20",
    kernel: str = "triad",
    threads: int = 6,
) -> pd.DataFrame:
    """A tidy table of node x node.

    Args:
        name: of the host.
        seed: of its noise.
        factor: target or "initiator -> target" -> what its value is multiplied by.
    """
    random = np.random.default_rng(seed)
    cells = list(itertools.product(range(nodes), range(nodes)))
    factor = factor or {}
    rows = []
    for (i, j), replicate in itertools.product(cells, range(1, replicates + 1)):
        near = i == j
        typical = 40.0 * GB * (1.0 if near else 0.7)
        if metric == "latency_ns":
            typical = 90.0 if near else 140.0
        typical *= factor.get(f"node{j}", 1.0) * factor.get(f"node{i} -> node{j}", 1.0)
        rows.append(
            {
                "host": name,
                "configuration": configuration,
                "experiment": "memory_bandwidth",
                "point": f"memory=node{i}+node{j}+{kernel}",
                "replicate": replicate,
                "order": replicate,
                "measured_at": f"{day}T1{replicate}:00:00.000Z",
                "status": "valid",
                "load": "memory",
                "benchmark": "chaosity_bandwidth",
                "category": "memory_latency" if metric == "latency_ns" else "memory_bandwidth",
                "kernel": kernel,
                "initiator": f"node{i}",
                "initiator_kind": "node",
                "initiator_nodes": str(i),
                "threads": threads,
                "target": f"node{j}",
                "target_kind": "node",
                "target_nodes": str(j),
                "file_backed": False,
                "relation": "same_node" if near else "other_package",
                "metric": metric,
                "value": typical * float(np.exp(random.normal(0.0, noise))),
                "factors": json.dumps({}),
                "levels": json.dumps({}),
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def compare_tables(left, right, **options):
    """Compare two tables, see `compare_selections`."""
    sides = map(Measurements.from_table, (left, right))
    return compare_selections(*sides, **options)


def find_outliers(tables, **options):
    """Outlier hosts among tables, see `find_outlier_hosts`."""
    measured = {name: Measurements.from_table(table) for name, table in tables.items()}
    return find_outlier_hosts(measured, **options)
