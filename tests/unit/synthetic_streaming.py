"""Streaming compute measurements of a synthetic host whose memory limits large drive sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pandas as pd
import synthetic

from chaosity.store.tidy_table_parquet import COLUMNS

THROUGHPUT = "processing_throughput_bytes_per_second"
GB = 1e9


def machine(**keys: Any) -> synthetic.Machine:
    """A host with two packages; each has one node and eight drives."""
    return synthetic.Machine("h", ((0,), (1,)), {0: 8, 1: 8}, configuration="nps1", **keys)


def rows(
    found: synthetic.Machine, drive: float, memory: float, most: int = 8
) -> Iterator[dict[str, Any]]:
    """Rows of the experiment.

    Args:
        found: the machine.
        drive: bandwidth of one drive.
        memory: read bandwidth of a package, of which a sum from drives has half.
        most: drives of a package.
    """
    name = "streaming_compute"
    for node in found.nodes:
        local = {"drives": 0, "placement": "same_package"}
        read = found.memory_load(f"node{node}", "node", node, node, "read", memory)
        summed = {**read, "kernel": None, "benchmark": "chaosity_sum", "label": None}
        yield from found.point(name, [{**read, "load": "read"}], local)
        for row in found.point(name, [{**summed, "load": "sum", "rate": 0.97 * memory}], local):
            yield {**row, "metric": THROUGHPUT}
        for owner in found.nodes:
            share = 1.0 if owner == node else 0.8
            placement = "same_package" if owner == node else "other_package"
            for count in range(1, most + 1):
                kind = "first_of_package" if count < most else "all_of_package"
                target = f"package{owner}drives" + (str(count) if count < most else "")
                given = share * drive * count
                alone = found.storage_load(node, target, kind, (owner,), count, given)
                factors = {"drives": count, "placement": placement}
                yield from found.point(name, [{**alone, "load": "drives"}], factors)
                done = 0.95 * min(given, memory / 2)
                summed = {**alone, "load": "sum", "benchmark": "chaosity_sum", "rate": done}
                for row in found.point(name, [summed], factors):
                    yield {**row, "metric": THROUGHPUT}
    yield from reading(found, 0.95 * min(drive * most, memory / 2))


def reading(found: synthetic.Machine, rate: float) -> Iterator[dict[str, Any]]:
    """Rows of the design that varies how chunks are read; small and few chunks are slow."""
    summed = found.storage_load(0, "package0drives", "all_of_package", (0,), 8, rate)
    for depth, chunk in itertools.product((4, 32), (262144, 2097152)):
        slower = 0.5 if (depth, chunk) == (4, 262144) else 1.0
        # The point's name knows no levels here, so each has a target of its own.
        load = {**summed, "load": "sum", "rate": slower * rate, "target": f"{depth}x{chunk}"}
        factors = {"drives": 8, "placement": "same_package"}
        levels = {"queue_depth": depth, "chunk_bytes": chunk, "registered_buffers": "no"}
        for row in found.point("streaming_compute", [load], {**factors, **levels}):
            yield {**row, "metric": THROUGHPUT}


def tidy(drive: float = 6.9 * GB, memory: float = 80 * GB, **keys: Any) -> pd.DataFrame:
    """The experiment's tidy table."""
    found = list(rows(machine(noise=0.01, **keys), drive, memory))
    return pd.DataFrame(found, columns=list(COLUMNS)).astype(COLUMNS)
