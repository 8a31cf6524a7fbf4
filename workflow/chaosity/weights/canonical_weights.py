"""Compute canonical weights: how to spread the pages of a bandwidth-bound program over nodes.

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

In `chaosity.weights`, a `matrix` has the bandwidth of initiator nodes by target nodes in bytes per
second. `workers` are OS indexes of nodes, in any order. Shares of pages are given by node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaosity.place.page_shares import CANONICAL, CONTENDED
from chaosity.runner.observed_placement import page_share_deviations
from chaosity.store.measurements import Measurements
from chaosity.store.read_node_matrix_csv import BANDWIDTH, NodeMatrix
from chaosity.weights.placement_bandwidth_model import (
    bandwidths_from_workers_to_target,
    expected_bandwidth,
)

# Metric: the bandwidth of each worker from each node while all workers read from all nodes.
PATH_BANDWIDTH = "path_bandwidth_bytes_per_second"


def canonical_weights(matrix: NodeMatrix, workers: Sequence[int]) -> dict[int, float]:
    """Return the share of the pages for each target node; the shares add up to 1.

    Shares are equal if nodes are equally near, or if all nodes of a symmetric machine are workers.

    Raises:
        UserError: for the same reasons as `bandwidths_from_workers_to_target`.
    """
    least = {
        node: min(bandwidths_from_workers_to_target(matrix, workers, node))
        for node in matrix.targets
    }
    total = sum(least.values())
    return {node: value / total for node, value in sorted(least.items())}


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
    """The canonical weights of one set of workers from both matrices."""

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
        UserError: for the same reasons as `bandwidths_from_workers_to_target`.
    """
    matrices = {CANONICAL: alone, CONTENDED: contended}
    weights = {name: canonical_weights(matrix, workers) for name, matrix in matrices.items()}
    return WeightsComparison(
        weights,
        {name: expected_bandwidth(contended, workers, own) for name, own in weights.items()},
        {name: matrix.source for name, matrix in matrices.items()},
    )
