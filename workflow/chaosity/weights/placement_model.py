"""What bandwidth a placement of pages is to be expected to give.

The model behind the canonical weights, for any placement: the work is split evenly over the
workers, each reads from all nodes at once, and the slowest path of any worker decides when all are
done. Beyond that a node's memory gives all workers together no more than it gave the initiator that
got most from it. Links that several paths share are not in a matrix, nor is how much a worker's
cores could ask for if memory gave more. So neither is in the model, and what it expects of many
nodes is too much.

It is there to rank placements. Others measured some on a machine of four nodes, with 16 threads of
STREAM on pairs of nodes: measured is 0.79 to 1.13 times what is expected here, but up to 2.4 times
where all memory lies on the node of one of the workers and the arrays are large. Nothing kept those
threads from moving to the node that has the memory, and the work is not split evenly if they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chaosity.errors import UserError
from chaosity.store.node_matrix import NodeMatrix
from chaosity.weights.bandwidth_weights import check_workers, path_bandwidths

EXPECTED_NOTE = (
    "Expected bandwidths rank placements: they take paths for independent and cores for fast "
    "enough, so where links or cores are the limit they are too high."
)


def expected_bandwidth(
    matrix: NodeMatrix, workers: Sequence[int], shares: Mapping[int, float]
) -> float:
    """Expected bandwidth of all workers together, in bytes per second.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        workers: nodes whose cores run the program.
        shares: of the pages by node; only their ratios count, a node without pages may be left out.

    Raises:
        UserError: as `canonical_weights`, a share is below 0, or no node has any page.
    """
    check_workers(matrix, workers)
    used = {node: share for node, share in shares.items() if share != 0.0}
    if not used or not all(share > 0.0 for share in used.values()):
        raise UserError("shares have to be 0 or more, and one above 0", "the placement")
    total = sum(used.values())
    return min(
        total / share * min(len(workers) * _slowest(matrix, workers, node), _most(matrix, node))
        for node, share in used.items()
    )


def _slowest(matrix: NodeMatrix, workers: Sequence[int], node: int) -> float:
    return min(path_bandwidths(matrix, workers, node))


def _most(matrix: NodeMatrix, node: int) -> float:
    """What a node's memory gave the initiator that got most from it alone."""
    seen = (matrix.median(initiator, node) for initiator in matrix.initiators)
    return max(value for value in seen if value is not None)
