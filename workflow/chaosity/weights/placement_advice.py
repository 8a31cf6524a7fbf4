"""What to do for one set of workers: weights, the kernel's numbers, and what to expect of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chaosity.place.page_shares import shift_to_workers, uniform_shares
from chaosity.store.node_matrix import NodeMatrix
from chaosity.weights.bandwidth_weights import canonical_weights
from chaosity.weights.interleave_weights import (
    KernelWeights,
    kernel_weights,
    notes,
    numactl_line,
    sysfs_lines,
)
from chaosity.weights.placement_model import EXPECTED_NOTE, expected_bandwidth


@dataclass(frozen=True)
class PlacementAdvice:
    """Weights for one set of workers.

    Attributes:
        workers: nodes whose cores run the program.
        dwp: data-to-worker proximity, 0 to 1.
        weights: share of the pages by node.
        kernel: the numbers that the kernel takes.
        expected: expected bandwidth of all workers in bytes per second, by placement: with these
            weights, with equal shares on all nodes, with equal shares on the workers' nodes (left
            out when a worker has no memory). For ranking, see `expected_bandwidth`.
        source: what the bandwidths came from.
    """

    workers: tuple[int, ...]
    dwp: float
    weights: dict[int, float]
    kernel: KernelWeights
    expected: dict[str, float]
    source: str

    @property
    def commands(self) -> list[str]:
        """Lines to copy: the kernel's weights as root, then the program."""
        return [*sysfs_lines(self.kernel), numactl_line(self.kernel, self.workers)]

    @property
    def notes(self) -> list[str]:
        """What has to be known before the lines are copied, a sentence each."""
        return [*notes(self.kernel, len(self.weights)), EXPECTED_NOTE]

    @property
    def relative(self) -> dict[str, float]:
        """The expected bandwidths as ratios to that of equal shares on all nodes."""
        base = self.expected["uniform_all"]
        return {name: value / base for name, value in self.expected.items()}

    def to_json(self) -> dict[str, Any]:
        """As `chaosity weights --json` prints it; nodes are texts, as keys in JSON are."""
        return {
            "workers": list(self.workers),
            "dwp": self.dwp,
            "weights": {str(node): share for node, share in self.weights.items()},
            "kernel_weights": {str(node): n for node, n in self.kernel.weights.items()},
            "kernel_weights_error_percent": self.kernel.error_percent,
            "expected_bandwidth_bytes_per_second": self.expected,
            "commands": self.commands,
            "notes": self.notes,
            "source": self.source,
        }


def advise_placement(
    matrix: NodeMatrix, workers: Sequence[int], dwp: float = 0.0
) -> PlacementAdvice:
    """Weights for a set of workers, and what goes with them.

    Args:
        matrix: bandwidth of initiator nodes by target nodes.
        workers: nodes whose cores run the program.
        dwp: data-to-worker proximity, 0 for the canonical weights to 1 for all on the workers.

    Raises:
        UserError: as `canonical_weights` and `towards_workers`.
    """
    weights = shift_to_workers(canonical_weights(matrix, workers), workers, dwp)
    placements = {"weights": weights, "uniform_all": uniform_shares(weights)}
    if set(workers) <= set(weights):
        placements["uniform_workers"] = uniform_shares(workers)
    return PlacementAdvice(
        workers=tuple(sorted(workers)),
        dwp=dwp,
        weights=weights,
        kernel=kernel_weights(weights),
        expected={
            name: expected_bandwidth(matrix, workers, shares) for name, shares in placements.items()
        },
        source=matrix.source if matrix.unit is None else f"{matrix.source} ({matrix.unit})",
    )
