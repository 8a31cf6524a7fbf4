"""Canonical weights: how the pages of a program that asks for bandwidth are best spread over nodes.

After BWAP (Gureya et al., Bandwidth-Aware Page Placement in NUMA Systems, IPDPS 2020,
arXiv:2003.03304; its slides are document 002). The *workers* are the nodes whose cores run the
program. All of them read every node's share at the same time, so the program waits for the slowest
path: of worker i and node j it is the share of j over the bandwidth from i to j. All paths end
together when a node's share is proportional to the bandwidth of the worker that gets least from it.

One thing differs from BWAP. It measures with all workers at once; a matrix holds what each
initiator got alone, so paths that share a link are taken for independent.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaosity.errors import UserError
from chaosity.store.node_matrix import BANDWIDTH, NodeMatrix


def canonical_weights(matrix: NodeMatrix, workers: Sequence[int]) -> dict[int, float]:
    """The share of the pages for each target node; the shares add up to 1.

    Where every node is as near as every other, or all nodes work and the machine is symmetric, the
    shares are equal.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        workers: nodes whose cores run the program; their order does not matter.

    Raises:
        UserError: a worker is no initiator of the matrix or named twice, the matrix holds
            something else than bandwidth, or a path from a worker was not measured.
    """
    least = {node: min(path_bandwidths(matrix, workers, node)) for node in matrix.targets}
    total = sum(least.values())
    return {node: value / total for node, value in sorted(least.items())}


def path_bandwidths(matrix: NodeMatrix, workers: Sequence[int], target: int) -> list[float]:
    """Bandwidth from each worker to a node, in bytes per second.

    Raises:
        UserError: as `canonical_weights`.
    """
    check_workers(matrix, workers)
    found = []
    for worker in workers:
        value = matrix.median(worker, target)
        if value is None:
            raise UserError(
                f"nothing was measured from node {worker} to node {target}",
                matrix.source,
                "weights need every path of the workers",
            )
        found.append(value)
    return found


def check_workers(matrix: NodeMatrix, workers: Sequence[int]) -> None:
    """Refuse workers that the matrix cannot speak for.

    Raises:
        UserError: as `canonical_weights`.
    """
    if matrix.metric != BANDWIDTH:
        raise UserError(f"holds {matrix.metric}", matrix.source, f"weights need {BANDWIDTH}")
    if not workers:
        raise UserError("there is no worker", remedy="name one node at least")
    for worker in workers:
        if worker not in matrix.initiators:
            known = ", ".join(map(str, matrix.initiators))
            raise UserError(f"node {worker} is no initiator", matrix.source, f"these are: {known}")
        if workers.count(worker) > 1:
            raise UserError(f"worker {worker} is named twice", remedy="name each worker once")
