"""Advise how to interleave pages for workers: weights, commands, expected bandwidth.

The Linux kernel accepts weights as whole numbers from 1 to 255, one set for the machine. Weighted
interleaving came with Linux 6.9 (Documentation/ABI/testing/
sysfs-kernel-mm-mempolicy-weighted-interleave) and with numactl 2.0.19 (`-w` for short). A program
names only the nodes; sysfs has each node's number of consecutive pages, for all programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chaosity.cpusets import format_cpu_list
from chaosity.place.page_shares import integer_weights, shift_shares_to_workers, uniform_shares
from chaosity.place_names import node_name
from chaosity.store.read_node_matrix_csv import NodeMatrix
from chaosity.text_templates import write_sentences
from chaosity.weights.canonical_weights import canonical_weights, expected_bandwidth

_SYSFS = "/sys/kernel/mm/mempolicy/weighted_interleave"
# With an error above this, weights differ from the shares by more than intended rounding explains.
_COARSE_PERCENT = 5.0


@dataclass(frozen=True)
class PlacementAdvice:
    """Weights for a set of workers, with commands, notes and expected bandwidths."""

    workers: tuple[int, ...]  # nodes whose cores run the program
    dwp: float  # data-to-worker proximity, 0 to 1
    weights: dict[int, float]  # node -> share of the pages
    # Node -> whole number for the kernel, without nodes that get no pages, see
    # `page_shares.integer_weights`.
    kernel_weights: dict[int, int]
    # The largest difference of a node's share with these whole numbers from its share in `weights`,
    # in per cent of the latter.
    error_percent: float
    # Placement -> expected bandwidth of all workers in bytes per second. Placements: with these
    # weights, equal shares on all nodes, equal shares on the nodes of the workers (omitted when a
    # worker has no memory). Use these bandwidths only to rank placements, see `expected_bandwidth`.
    expected: dict[str, float]
    source: str  # origin of the bandwidths

    @property
    def commands_to_copy(self) -> list[str]:
        """Return commands for a user to copy: set the weights as root, then run the program."""
        nodes, bound = format_cpu_list(self.kernel_weights), format_cpu_list(self.workers)
        return [
            *(f"echo {n} > {_SYSFS}/{node_name(node)}" for node, n in self.kernel_weights.items()),
            f"numactl --cpunodebind={bound} --weighted-interleave={nodes} PROGRAM",
        ]

    @property
    def sentences_before_commands(self) -> list[str]:
        """Return sentences to read before the commands are copied."""
        return write_sentences(
            "weights",
            "notes",
            has_nodes_without_pages=len(self.kernel_weights) < len(self.weights),
            is_coarse=self.error_percent > _COARSE_PERCENT,
        )

    @property
    def relative_to_equal_shares(self) -> dict[str, float]:
        """Return placement -> expected bandwidth divided by that of equal shares on all nodes."""
        base = self.expected["uniform_all"]
        return {name: value / base for name, value in self.expected.items()}

    def to_json(self) -> dict[str, object]:
        """Return the advice for `chaosity weights --json`."""
        return {
            "workers": list(self.workers),
            "dwp": self.dwp,
            "weights": self.weights,
            "kernel_weights": self.kernel_weights,
            "kernel_weights_error_percent": self.error_percent,
            "expected_bandwidth_bytes_per_second": self.expected,
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
        expected={
            name: expected_bandwidth(matrix, workers, own) for name, own in placements.items()
        },
        source=matrix.source if matrix.unit is None else f"{matrix.source} ({matrix.unit})",
    )
