"""Rows of the tidy table: bandwidth from nodes to nodes, each path alone and all at once."""

from __future__ import annotations

import pandas as pd

from chaosity.store.csv_tables import BANDWIDTH
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from chaosity.weights import PATH_BANDWIDTH

NODES = range(8)


def row(initiator, target, value, **more):
    """A row of a node that reads from a node; `more` has further columns."""
    return {
        "host": "milan",
        "configuration": "nps4",
        "experiment": "tried",
        "replicate": 1,
        "point": f"p={initiator}+{target}",
        "status": "valid",
        "load": "memory",
        "benchmark": "tried",
        "category": "memory_bandwidth",
        "kernel": "triad",
        "initiator": f"node{initiator}",
        "initiator_kind": "node",
        "initiator_nodes": str(initiator),
        "target": f"node{target}",
        "target_kind": "node",
        "target_nodes": str(target),
        "metric": BANDWIDTH,
        "value": value,
        "factors": "{}",
        "levels": "{}",
        "measured_at": "2026-11-21T10:00:00.000Z",
        "relation": "unknown",
        **more,
    }


def alone(local=40e9, remote=10e9):
    """Each node alone to each node."""
    return [row(i, t, local if i == t else remote) for i in NODES for t in NODES]


def together(workers, value=lambda i, t: 20e9 if i == t else 5e9, **more):
    """All workers at once, each to each node."""
    point = f"paths=nodes{','.join(map(str, workers))}+nodes0-7"
    said = {"point": point, "load": "paths", "metric": PATH_BANDWIDTH, "experiment": "all_at_once"}
    return [row(i, t, value(i, t), **said, **more) for i in workers for t in NODES]


def table(*parts):
    rows = [one for part in parts for one in part]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def measurements(*parts):
    return Measurements.from_table(table(*parts))
