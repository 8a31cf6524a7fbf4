"""Compute the expected bandwidth of a placement, and check how well it ranks placements.

The model is that of the canonical weights, for any placement. The work is divided equally between
the workers, each worker reads from all nodes at once, and the slowest path of any worker decides
when all are done. In addition, a node's memory gives all workers together no more than the
highest bandwidth that an initiator got alone from this memory. The model does not include links
that several paths share, since a matrix does not show links. The model also ignores how much
bandwidth the cores of a worker can use at most. So for many nodes the expected bandwidth is too
high.

Use the model only to rank placements. Published measurements on a machine of four nodes, with 16
threads of STREAM on pairs of nodes, are 0.79 to 1.13 times the expected bandwidth. But measurements
are up to 2.4 times as high if all memory is on the node of one worker and the arrays are large. The
threads could move to the node with the memory, and then the work is not divided equally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.store.read_node_matrix_csv import BANDWIDTH, NodeMatrix

# With fewer placements a perfect order means nothing: 4 placements are in order in 1 of 24 cases.
_MIN_PLACEMENTS = 5
_CONFIDENCE = 0.95
# The ends of the interval change by about 0.01 from seed to seed.
_RESAMPLES = 2000
_SEED = 1
Values = NDArray[np.float64]


def _check_workers(matrix: NodeMatrix, workers: Sequence[int]) -> None:
    """Check that the matrix has the bandwidths of these workers.

    Raises:
        UserError: there is no worker, a worker is not an initiator of the matrix or is named
            twice, or the matrix has another metric than bandwidth.
    """
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


def bandwidths_from_workers_to_target(
    matrix: NodeMatrix, workers: Sequence[int], target: int
) -> list[float]:
    """Return the bandwidth from each worker to a node, in bytes per second.

    Raises:
        UserError: there is no worker, a worker is not an initiator of the matrix or is named
            twice, the matrix has another metric than bandwidth, or a path was not measured.
    """
    _check_workers(matrix, workers)
    bandwidths = []
    for worker in workers:
        if (value := matrix.median_of_cell(worker, target)) is None:
            missing = f"the path from node {worker} to node {target} was not measured"
            raise UserError(missing, matrix.source, "weights need every path of the workers")
        bandwidths.append(value)
    return bandwidths


def expected_bandwidth(
    matrix: NodeMatrix, workers: Sequence[int], shares: Mapping[int, float]
) -> float:
    """Return the expected bandwidth of all workers together, in bytes per second.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        workers: nodes whose cores run the program.
        shares: node -> share of the pages; only ratios count. Nodes without pages can be omitted.

    Raises:
        UserError: a share is below 0, or all are 0, or as `bandwidths_from_workers_to_target`.
    """
    _check_workers(matrix, workers)
    used = {node: share for node, share in shares.items() if share != 0.0}
    if not used or not all(share > 0.0 for share in used.values()):
        wrong = "no share may be below 0, and at least one share has to be above 0"
        raise UserError(wrong, "the placement")
    total = sum(used.values())

    def _bandwidth_limit(node: int) -> float:
        paths = len(workers) * min(bandwidths_from_workers_to_target(matrix, workers, node))
        known = (matrix.median_of_cell(initiator, node) for initiator in matrix.initiators)
        return min(paths, max(value for value in known if value is not None))

    return min(total / share * _bandwidth_limit(node) for node, share in used.items())


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation with its 95 % interval (bootstrap over the placements).

    The correlation is 1 if the expected and the measured bandwidths give the same ranks, and 0 for
    unrelated ranks. Correlation and interval are None with too few placements, or when all expected
    or all measured values are equal.
    """

    n: int
    correlation: float | None = None
    low: float | None = None
    high: float | None = None


def rank_correlation(expected: Sequence[float], measured: Sequence[float]) -> RankCorrelation:
    """Return the rank correlation of expected and measured values of the same placements."""
    n = len(expected)
    if n < _MIN_PLACEMENTS or len(set(expected)) < 2 or len(set(measured)) < 2:
        return RankCorrelation(n)
    interval = stats.bootstrap(
        (np.asarray(expected), np.asarray(measured)),
        _spearman,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    correlation = float(_spearman(np.asarray(expected), np.asarray(measured)))
    return RankCorrelation(n, correlation, float(interval.low), float(interval.high))


def _spearman(expected: Values, measured: Values, axis: int = -1) -> Values:
    """Return Spearman's rank correlations; 0 if all ranks are equal, as in few resamples."""
    ranks = [stats.rankdata(values, axis=axis) for values in (expected, measured)]
    x, y = (each - each.mean(axis=axis, keepdims=True) for each in ranks)
    spread = np.sqrt((x**2).sum(axis=axis) * (y**2).sum(axis=axis))
    return np.asarray((x * y).sum(axis=axis) / np.where(spread > 0.0, spread, np.inf))


def expected_and_measured_bandwidths(
    matrix: NodeMatrix, placements: pd.DataFrame
) -> list[tuple[bool, float, float]]:
    """Return, for each placement, whether it is interleaved, its expected and measured bandwidth.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        placements: rows of the tidy table. Their initiators are the workers, and the pages are in
            equal shares on the nodes of their targets. Rows with the same nodes are replicates.

    Raises:
        UserError: the placements have no bandwidth, or the reasons of `expected_bandwidth`.
    """
    rows = placements[placements["metric"] == BANDWIDTH]
    if rows.empty:
        raise UserError(f"no row has the metric {BANDWIDTH}", "the placements")
    found = []
    for (workers, nodes), own in rows.groupby(["initiator_nodes", "target_nodes"], sort=True):
        targets = parse_cpu_list(str(nodes))
        shares = dict.fromkeys(targets, 1.0)
        expected = expected_bandwidth(matrix, parse_cpu_list(str(workers)), shares)
        found.append((len(targets) > 1, expected, float(median(own["value"]))))
    return found


def rank_correlations_of_all_and_interleaved(
    matrix: NodeMatrix, placements: pd.DataFrame
) -> dict[str, RankCorrelation]:
    """Return the rank correlation of `all` placements, and of the `interleaved` placements alone.

    Placements on one node differ much, so interleaved placements are also ranked without them.

    Raises:
        UserError: for the same reasons as `expected_and_measured_bandwidths`.
    """
    found = expected_and_measured_bandwidths(matrix, placements)
    groups = {"all": found, "interleaved": [entry for entry in found if entry[0]]}
    return {
        name: rank_correlation([entry[1] for entry in own], [entry[2] for entry in own])
        for name, own in groups.items()
    }
