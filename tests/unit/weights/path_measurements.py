"""Rows of the tidy table: bandwidth from nodes to nodes, each path alone and all at once."""

from __future__ import annotations

from chaosity.store.measurements import Measurements
from chaosity.weights import PATH_BANDWIDTH
from table_rows import rows, table

NODES = range(8)
TRIED = {"host": "milan", "experiment": "tried", "benchmark": "tried", "relation": "unknown"}


def alone(local=40e9, remote=10e9):
    """Each node alone to each node."""
    return rows(lambda i, t: local if i == t else remote, NODES, NODES, replicates=1, **TRIED)


def together(workers, value=lambda i, t: 20e9 if i == t else 5e9, **more):
    """All workers at once, each to each node."""
    point = f"paths=nodes{','.join(map(str, workers))}+nodes0-7"
    said = {**TRIED, "point": point, "load": "paths", "experiment": "all_at_once", **more}
    return rows(value, workers, NODES, PATH_BANDWIDTH, replicates=1, **said)


def measurements(*parts):
    return Measurements.from_table(table(*parts))
