"""The canonical weights of two measurements: each path alone, and all workers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaosity.place.policies import CANONICAL, CONTENDED
from chaosity.runner.observed_placement import share_deviations
from chaosity.store.node_matrix import NodeMatrix
from chaosity.weights.bandwidth_weights import canonical_weights
from chaosity.weights.placement_model import expected_bandwidth


@dataclass(frozen=True)
class WeightsComparison:
    """Both weights of one set of workers.

    Attributes:
        workers: nodes whose cores run the program.
        weights: name -> share by node.
        expected: name -> expected bandwidth of all workers in bytes per second, by the matrix that
            was measured with all workers at once.
        sources: name -> what its bandwidths came from.
    """

    workers: tuple[int, ...]
    weights: Mapping[str, Mapping[int, float]]
    expected: Mapping[str, float]
    sources: Mapping[str, str]

    @property
    def largest_difference(self) -> tuple[int, float]:
        """The node whose shares differ most, and by how much of all pages."""
        off = share_deviations(self.weights[CANONICAL], self.weights[CONTENDED])
        worst = max(off, key=off.__getitem__)
        return worst, off[worst]

    def to_json(self) -> dict[str, Any]:
        """As `chaosity weights --json` prints it; nodes are texts, as keys in JSON are."""
        node, difference = self.largest_difference
        return {
            "weights": {
                name: {str(node): share for node, share in shares.items()}
                for name, shares in self.weights.items()
            },
            "largest_difference": {"node": node, "share": difference},
            "expected_bandwidth_bytes_per_second": dict(self.expected),
            "sources": dict(self.sources),
        }


def compare_weights(
    alone: NodeMatrix, contended: NodeMatrix, workers: Sequence[int]
) -> WeightsComparison:
    """Both weights side by side.

    Both are judged by the paths as they are with all workers at once, which is how they are used.

    Args:
        alone: bandwidth of initiator nodes by target nodes, each measured alone.
        contended: the same with all these workers at once.
        workers: nodes whose cores run the program.

    Raises:
        UserError: as `canonical_weights`.
    """
    matrices = {CANONICAL: alone, CONTENDED: contended}
    weights = {name: canonical_weights(matrix, workers) for name, matrix in matrices.items()}
    return WeightsComparison(
        workers=tuple(sorted(workers)),
        weights=weights,
        expected={
            name: expected_bandwidth(contended, workers, shares) for name, shares in weights.items()
        },
        sources={name: matrix.source for name, matrix in matrices.items()},
    )
