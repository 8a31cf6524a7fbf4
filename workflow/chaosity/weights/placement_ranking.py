"""Whether expected bandwidths rank placements as measurements do.

Spearman's rank correlation of what the model expects and what somebody measured: 1 where the order
is the same, 0 where it says nothing. Placements of all pages on one node differ grossly, so those
that are interleaved are also looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from chaosity.errors import UserError
from chaosity.store.node_matrix import BANDWIDTH, NodeMatrix
from chaosity.topology import parse_cpu_list
from chaosity.weights.placement_model import expected_bandwidth

# A correlation of fewer says nothing: with 4 a perfect order comes by chance in 1 of 24.
FEWEST = 5
CONFIDENCE = 0.95
# Ends of the interval move by about 0.01 from seed to seed, and it takes about a second.
RESAMPLES = 2000
SEED = 1


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation with its 95 % interval (bootstrap over the placements).

    Attributes:
        n: how many placements were measured.
        correlation: -1 to 1; None where there are too few or all are expected alike.
        low: end of the interval, or None.
        high: end of the interval, or None.
    """

    n: int
    correlation: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def rank_correlation(expected: Sequence[float], measured: Sequence[float]) -> RankCorrelation:
    """How well two orders agree; pairs of the same placements."""
    n = len(expected)
    if n < FEWEST or len(set(expected)) < 2 or len(set(measured)) < 2:
        return RankCorrelation(n, None, None, None)
    ends = stats.bootstrap(
        (np.asarray(expected), np.asarray(measured)),
        _spearman,
        paired=True,
        vectorized=False,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return RankCorrelation(n, _spearman(expected, measured), float(ends.low), float(ends.high))


def _spearman(expected: ArrayLike, measured: ArrayLike) -> float:
    """Spearman's rank correlation; 0 where all ranks are equal, as in a few resamples."""
    if np.ptp(expected) == 0.0 or np.ptp(measured) == 0.0:
        return 0.0
    return float(stats.spearmanr(expected, measured).statistic)


def expected_and_measured(
    matrix: NodeMatrix, placements: pd.DataFrame
) -> list[tuple[bool, float, float]]:
    """Of each placement whether it is interleaved, and its bandwidths in bytes per second.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        placements: tidy rows whose initiators are the workers, with equal shares on the nodes of
            their targets; rows of the same nodes are replicates.

    Raises:
        UserError: there is no bandwidth in them, or as `expected_bandwidth`.
    """
    rows = placements[placements["metric"] == BANDWIDTH]
    if rows.empty:
        raise UserError(f"holds no {BANDWIDTH}", "the placements")
    found = []
    for (workers, nodes), own in rows.groupby(["initiator_nodes", "target_nodes"], sort=True):
        on = parse_cpu_list(nodes)
        expected = expected_bandwidth(matrix, parse_cpu_list(workers), dict.fromkeys(on, 1.0))
        found.append((len(on) > 1, expected, float(median(own["value"]))))
    return found


def rank_placements(matrix: NodeMatrix, placements: pd.DataFrame) -> dict[str, RankCorrelation]:
    """The rank correlation of all placements, and of those over several nodes alone.

    Raises:
        UserError: as `expected_and_measured`.
    """
    found = expected_and_measured(matrix, placements)
    spread = [one for one in found if one[0]]
    return {
        name: rank_correlation([e for _, e, _ in some], [m for _, _, m in some])
        for name, some in (("all", found), ("interleaved", spread))
    }
