"""Compute how to spread the pages of a bandwidth-bound program, and what bandwidth to expect.

The method is BWAP (Gureya et al., Bandwidth-Aware Page Placement in NUMA Systems, IPDPS 2020,
arXiv:2003.03304; its slides are document 002). The *workers* are the nodes whose cores run the
program. All workers read the shares of all nodes at the same time, so the program waits for the
slowest path. The time of the path from node j to worker i is the share of j, divided by the
bandwidth from i to j. All paths end together when the share of each node is proportional to the
lowest bandwidth that any worker gets from this node.

There are two matrices of bandwidths. For the first matrix each initiator is measured alone, so
paths that share a link are assumed to be independent. For the second matrix, as in BWAP, all
workers read from all nodes at the same time. So the second matrix includes the effect of links and
memory that paths share.

The expected bandwidth of any placement follows from the same model. In addition, a node's memory
gives all workers together no more than the highest bandwidth that an initiator got alone from this
memory. The model does not include links that several paths share, since a matrix does not show
links, nor how much bandwidth the cores of a worker can use at most. So for many nodes the expected
bandwidth is too high: use it only to rank placements. Published measurements on a machine of four
nodes, with 16 threads of STREAM on pairs of nodes, are 0.79 to 1.13 times the expected bandwidth.
But measurements are up to 2.4 times as high if all memory is on the node of one worker and the
arrays are large. The threads could move to the node with the memory, and then the work is not
divided equally.

In `chaosity.weights`, a `matrix` has the bandwidth of initiator nodes by target nodes in bytes per
second. `workers` are OS indexes of nodes, in any order. Shares of pages are given by node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.place.placement_policies import CANONICAL, CONTENDED
from chaosity.runner.observed_placement import page_share_deviations
from chaosity.store.measurements import Measurements
from chaosity.store.read_node_matrix_csv import BANDWIDTH, NodeMatrix

# Metric: the bandwidth of each worker from each node while all workers read from all nodes.
PATH_BANDWIDTH = "path_bandwidth_bytes_per_second"


def canonical_weights(matrix: NodeMatrix, workers: Sequence[int]) -> dict[int, float]:
    """Return the share of the pages for each target node; the shares add up to 1.

    Shares are equal if nodes are equally near, or if all nodes of a symmetric machine are workers.

    Raises:
        UserError: there is no worker, a worker is not an initiator of the matrix or is named
            twice, the matrix has another metric than bandwidth, or a path was not measured.
    """
    least = {node: _least_bandwidth(matrix, workers, node) for node in matrix.targets}
    total = sum(least.values())
    return {node: value / total for node, value in sorted(least.items())}


def _least_bandwidth(matrix: NodeMatrix, workers: Sequence[int], target: int) -> float:
    """Return the lowest bandwidth from any worker to a node, see `canonical_weights`."""
    where = matrix.source
    if matrix.metric != BANDWIDTH:
        raise UserError(
            f"the matrix has the metric {matrix.metric}", where, f"weights need {BANDWIDTH}"
        )
    if not workers:
        raise UserError("no worker is given", remedy="name at least one node")
    for worker in workers:
        if worker not in matrix.initiators:
            known = f"initiators: {', '.join(map(str, matrix.initiators))}"
            raise UserError(f"node {worker} is not an initiator", where, known)
        if workers.count(worker) > 1:
            raise UserError(f"worker {worker} is named twice", remedy="name each worker once")
        if matrix.median_of_cell(worker, target) is None:
            missing = f"the path from node {worker} to node {target} was not measured"
            raise UserError(missing, where, "weights need every path of the workers")
    return min(value for each in workers if (value := matrix.median_of_cell(each, target)))


def expected_bandwidth(
    matrix: NodeMatrix, workers: Sequence[int], shares: Mapping[int, float]
) -> float:
    """Return the expected bandwidth of all workers together, in bytes per second.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        workers: nodes whose cores run the program.
        shares: node -> share of the pages; only ratios count. Nodes without pages can be omitted.

    Raises:
        UserError: a share is below 0, or all are 0, or for the same reasons as
            `canonical_weights`.
    """
    used = {node: share for node, share in shares.items() if share != 0.0}
    if not used or not all(share > 0.0 for share in used.values()):
        wrong = "no share may be below 0, and at least one share has to be above 0"
        raise UserError(wrong, "the placement")
    total = sum(used.values())

    def _bandwidth_limit(node: int) -> float:
        paths = len(workers) * _least_bandwidth(matrix, workers, node)
        known = (matrix.median_of_cell(initiator, node) for initiator in matrix.initiators)
        return min(paths, max(value for value in known if value is not None))

    return min(total / share * _bandwidth_limit(node) for node, share in used.items())


def find_contended_bandwidth_matrix(
    measurements: Measurements, workers: Sequence[int]
) -> NodeMatrix | None:
    """Return each worker's bandwidth from each node while exactly these workers ran together.

    If several points match (kernels, pages), the point with the most cells is used, then the first
    by name. The result is None if no such point was measured. The measurements must be of one host
    and configuration.
    """
    rows = measurements.where(metric=PATH_BANDWIDTH).valid_rows().node_to_node_rows()
    points = sorted(rows.groups_by_columns(["experiment", "point"]), key=lambda group: group[0])
    found = (
        part.node_matrix(BANDWIDTH, f"{experiment}, all workers at once")
        for (experiment, _), part in points
    )
    own = [matrix for matrix in found if list(matrix.initiators) == sorted(workers)]
    return max(own, key=lambda matrix: len(matrix.samples), default=None)


@dataclass(frozen=True)
class WeightsComparison:
    """Two sets of weights for one set of workers.

    They are canonical (from each node alone) and contended (from all workers at once).
    """

    weights: Mapping[str, Mapping[int, float]]  # name of the weights -> node -> share
    # Name -> expected bandwidth of all workers in bytes per second, by the matrix of all workers at
    # once.
    expected: Mapping[str, float]
    sources: Mapping[str, str]  # name -> origin of the bandwidths

    @property
    def node_with_largest_share_difference(self) -> tuple[int, float]:
        """Return the node whose two shares differ most, and this difference."""
        differences = page_share_deviations(self.weights[CANONICAL], self.weights[CONTENDED])
        node = max(differences, key=differences.__getitem__)
        return node, differences[node]

    def to_json(self) -> dict[str, object]:
        """Return the comparison for `chaosity weights --json`."""
        node, difference = self.node_with_largest_share_difference
        return {
            "weights": self.weights,
            "largest_difference": {"node": node, "share": difference},
            "expected_bandwidth_bytes_per_second": self.expected,
            "sources": self.sources,
        }


def compare_alone_and_contended_weights(
    alone: NodeMatrix, contended: NodeMatrix, workers: Sequence[int]
) -> WeightsComparison:
    """Return the canonical weights of workers from both matrices.

    In the matrix `alone` each path was measured alone; in `contended` all these workers read at
    once. The expected bandwidths are from `contended`, since programs use the weights with all
    workers at once.

    Raises:
        UserError: for the same reasons as `canonical_weights`.
    """
    matrices = {CANONICAL: alone, CONTENDED: contended}
    weights = {name: canonical_weights(matrix, workers) for name, matrix in matrices.items()}
    expected = {name: expected_bandwidth(contended, workers, own) for name, own in weights.items()}
    return WeightsComparison(
        weights, expected, {name: own.source for name, own in matrices.items()}
    )
