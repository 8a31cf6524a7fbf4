"""Compute how to spread the pages of a bandwidth-bound program, and what bandwidth to expect.

The method is BWAP (Gureya et al., Bandwidth-Aware Page Placement in NUMA Systems, IPDPS 2020,
arXiv:2003.03304; its slides are document 002). The *workers* are the nodes whose cores run the
program. All workers read the shares of all nodes at the same time, so the program waits for the
slowest path. The program reads a share of its data over the path from node j to worker i, in a time
that is the share of node j divided by the bandwidth of this path. All paths take the same time if
the share of each node is proportional to the lowest bandwidth that any worker gets from this node.

The bandwidths are in one of two matrices. For the first matrix each initiator is measured alone, so
the matrix treats paths that share a link as independent. For the second matrix, as in BWAP, all
workers read from all nodes at the same time. So the second matrix includes the effect of links and
memory that paths share.

The same model gives the expected bandwidth of any placement. In addition, the memory of a node
gives all workers together at most the highest bandwidth that an initiator got alone from this
memory. The model does not include links that several paths share, since a matrix does not show
links. The model also does not include the highest bandwidth that the cores of a worker can use. So
for many nodes, the expected bandwidth is too high, and can only be used to rank placements.
Published measurements on a machine of four nodes, with 16 threads of STREAM on pairs of nodes, are
0.79 to 1.13 times the expected bandwidth. But measurements are up to 2.4 times as high if all
memory is on the node of one worker and the arrays are large. In these measurements, the threads
could move to the node with the memory, so that the work was not divided equally.

A parameter `matrix` is the bandwidth from each initiator node to each target node in bytes per
second. A parameter `workers` contains numbers of nodes in any order. Shares of pages are mappings
of node -> share.

The Linux kernel accepts weights as whole numbers from 1 to 255, one set for the machine. Weighted
interleaving came with Linux 6.9 (Documentation/ABI/testing/
sysfs-kernel-mm-mempolicy-weighted-interleave) and with numactl 2.0.19 (`-w` for short). A program
selects only the nodes; the number of consecutive pages on each node is set in sysfs, for all
programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.page_placement import (
    CANONICAL,
    CONTENDED,
    integer_weights,
    shift_shares_to_workers,
    uniform_shares,
)
from chaosity.place_names import node_name
from chaosity.runner.observed_state import page_share_deviations
from chaosity.store.csv_tables import BANDWIDTH, NodeMatrix
from chaosity.store.measurements import Measurements
from chaosity.text_templates import sentences_of_macro

# Name of the metric for the bandwidth of each worker from each node, while all workers read from
# all nodes.
PATH_BANDWIDTH = "path_bandwidth_bytes_per_second"


def canonical_weights(matrix: NodeMatrix, workers: Sequence[int]) -> dict[int, float]:
    """Return target node -> share of the pages; the shares add up to 1.

    The shares of all nodes are equal if all nodes are equally near, or if all nodes of a symmetric
    machine are workers.

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
            raise UserError(
                missing, where, "weights need the bandwidth of each worker to each target"
            )
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
        UserError: a share is below 0, all shares are 0, or `canonical_weights` would raise an
            error.
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
    """Return the bandwidth of each worker from each node, while exactly these workers ran.

    If several points match (such as points of several kernels), the point with the most cells is
    used; among points with the same number of cells, the first by name is used. Return None if no
    matching point was measured. The measurements must be of one host in one configuration.
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
    """Two sets of page weights for one set of worker nodes.

    The canonical weights are computed from paths that were measured alone, the contended weights
    from paths that were measured while all workers ran.
    """

    weights: Mapping[str, Mapping[int, float]]  # name of the weights -> node -> share of the pages
    # Name of the weights -> expected bandwidth of all workers in bytes per second, computed from
    # the matrix of all workers at once.
    expected_bandwidths: Mapping[str, float]
    sources: Mapping[str, str]  # name of the weights -> text on the origin of the bandwidths

    @property
    def node_with_largest_share_difference(self) -> tuple[int, float]:
        """Return the node whose two shares differ most, and the difference of these shares."""
        differences = page_share_deviations(self.weights[CANONICAL], self.weights[CONTENDED])
        node = max(differences, key=differences.__getitem__)
        return node, differences[node]

    def to_json(self) -> dict[str, object]:
        """Return the comparison for `chaosity weights --json`."""
        node, difference = self.node_with_largest_share_difference
        return {
            "weights": self.weights,
            "largest_difference": {"node": node, "share": difference},
            "expected_bandwidth_bytes_per_second": self.expected_bandwidths,
            "sources": self.sources,
        }


def compare_alone_and_contended_weights(
    alone: NodeMatrix, contended: NodeMatrix, workers: Sequence[int]
) -> WeightsComparison:
    """Return two sets of page weights of the workers, one from each matrix.

    In the matrix `alone` each path was measured alone; in the matrix `contended` all these workers
    read at once. The expected bandwidths are computed from `contended`, since a program that uses
    the weights runs on all workers at once.

    Raises:
        UserError: for the same reasons as `canonical_weights`.
    """
    matrices = {CANONICAL: alone, CONTENDED: contended}
    weights = {name: canonical_weights(matrix, workers) for name, matrix in matrices.items()}
    expected = {name: expected_bandwidth(contended, workers, own) for name, own in weights.items()}
    return WeightsComparison(
        weights, expected, {name: own.source for name, own in matrices.items()}
    )


_KERNEL_WEIGHTS_FOLDER = "/sys/kernel/mm/mempolicy/weighted_interleave"
# Largest `error_percent` without a note. The note says that whole numbers are too coarse for the
# shares.
_MOST_ERROR_PERCENT_WITHOUT_NOTE = 5.0


@dataclass(frozen=True)
class PlacementAdvice:
    """Page weights for a set of worker nodes, with commands, notes and expected bandwidths."""

    workers: tuple[int, ...]  # nodes whose cores run the program
    dwp: float  # data-to-worker proximity, 0 to 1
    weights: dict[int, float]  # node -> share of the pages
    # Node -> weight as a whole number for the kernel, see `place.page_placement.integer_weights`.
    # Nodes without pages are left out.
    kernel_weights: dict[int, int]
    # Largest difference of the share of a node that the whole numbers give from its share in
    # `weights`, in per cent of the share in `weights`.
    error_percent: float
    # Placement -> expected bandwidth of all workers in bytes per second. The placements are
    # `weights`, equal shares on all nodes, and (if each worker has memory) equal shares on the
    # workers' nodes. The bandwidths can only be used to rank placements, see `expected_bandwidth`.
    expected_bandwidths: dict[str, float]
    source: str  # text on the origin of the bandwidths

    @property
    def commands_to_copy(self) -> list[str]:
        """Return commands for a user to copy: set the weights as root, then run the program."""
        nodes, bound = format_cpu_list(self.kernel_weights), format_cpu_list(self.workers)
        return [
            *(
                f"echo {n} > {_KERNEL_WEIGHTS_FOLDER}/{node_name(node)}"
                for node, n in self.kernel_weights.items()
            ),
            f"numactl --cpunodebind={bound} --weighted-interleave={nodes} PROGRAM",
        ]

    @property
    def sentences_before_commands(self) -> list[str]:
        """Return notes that a user should read before copying the commands."""
        return sentences_of_macro(
            "weights",
            "notes",
            has_nodes_without_pages=len(self.kernel_weights) < len(self.weights),
            is_coarse=self.error_percent > _MOST_ERROR_PERCENT_WITHOUT_NOTE,
        )

    @property
    def relative_to_equal_shares(self) -> dict[str, float]:
        """Return placement -> expected bandwidth relative to equal shares on all nodes."""
        base = self.expected_bandwidths["uniform_all"]
        return {name: value / base for name, value in self.expected_bandwidths.items()}

    def to_json(self) -> dict[str, object]:
        """Return the advice for `chaosity weights --json`."""
        return {
            "workers": list(self.workers),
            "dwp": self.dwp,
            "weights": self.weights,
            "kernel_weights": self.kernel_weights,
            "kernel_weights_error_percent": self.error_percent,
            "expected_bandwidth_bytes_per_second": self.expected_bandwidths,
            "commands": self.commands_to_copy,
            "notes": self.sentences_before_commands,
            "source": self.source,
        }


def advise_interleave_weights(
    matrix: NodeMatrix, workers: Sequence[int], dwp: float = 0.0
) -> PlacementAdvice:
    """Return weights, commands and expected bandwidths for a set of workers.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        workers: nodes whose cores run the program.
        dwp: data-to-worker proximity, from 0 (canonical weights) to 1 (all pages on the workers).

    Raises:
        UserError: for the same reasons as `canonical_weights` and `shift_shares_to_workers`.
    """
    weights = shift_shares_to_workers(canonical_weights(matrix, workers), workers, dwp)
    numbers, error = integer_weights(weights)
    placements = {"weights": weights, "uniform_all": uniform_shares(weights)}
    if set(workers) <= set(weights):
        placements["uniform_workers"] = uniform_shares(workers)
    return PlacementAdvice(
        workers=tuple(sorted(workers)),
        dwp=dwp,
        weights=weights,
        kernel_weights=numbers,
        error_percent=100.0 * error,
        expected_bandwidths={
            name: expected_bandwidth(matrix, workers, own) for name, own in placements.items()
        },
        source=matrix.source if matrix.unit is None else f"{matrix.source} ({matrix.unit})",
    )
