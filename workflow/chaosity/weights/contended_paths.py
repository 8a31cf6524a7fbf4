"""The matrix of a set of workers that was measured with all of them at once, as BWAP measures it.

The matrix of each initiator alone takes paths for independent. Here every worker reads from all
nodes while the others do the same, so what paths share (links, memory) is in the bandwidths.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from chaosity.store.node_matrix import BANDWIDTH, NodeMatrix, Pair
from chaosity.store.tidy_table import valid

# What each worker gets from each node while all of them read from all nodes.
PATH_BANDWIDTH = "path_bandwidth_bytes_per_second"


def contended_matrix(tidy: pd.DataFrame, workers: Sequence[int]) -> NodeMatrix | None:
    """What each of these workers got from each node when just they were at work together.

    Of several points (kernels, pages) the one with the most cells, then the first by name.

    Args:
        tidy: of one host in one configuration, in numpy's types.
        workers: nodes whose cores run the program; their order does not matter.

    Returns:
        None where it was not measured.
    """
    rows = valid(tidy[tidy["metric"] == PATH_BANDWIDTH])
    rows = rows[rows["target_kind"] == "node"]
    rows = rows[rows["initiator_nodes"].astype(str).str.fullmatch(r"\d+")]
    found: list[NodeMatrix] = []
    for (experiment, _), own in rows.groupby(["experiment", "point"], sort=True):
        initiators = sorted({int(node) for node in own["initiator_nodes"]})
        if initiators != sorted(workers):
            continue
        samples: dict[Pair, tuple[float, ...]] = {
            (int(row), int(column)): tuple(cell["value"].astype(float))
            for (row, column), cell in own.groupby(["initiator_nodes", "target_nodes"])
        }
        found.append(
            NodeMatrix(
                metric=BANDWIDTH,
                initiators=tuple(initiators),
                targets=tuple(sorted({column for _, column in samples})),
                samples=samples,
                blocks={},
                source=f"{experiment}, all workers at once",
            )
        )
    return max(found, key=lambda one: len(one.samples), default=None)
