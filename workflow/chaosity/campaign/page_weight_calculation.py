"""Calculate weights for placements of pages from a host's measurements.

This module loads pandas, which takes a second, so it is imported only when weights are needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import (
    MeasuredHost,
    read_measured_host,
    select_most_complete_node_measurements,
)
from chaosity.place.placement_policies import CONTENDED
from chaosity.store.node_matrix_csv import BANDWIDTH
from chaosity.weights.canonical_weights import canonical_weights, find_contended_bandwidth_matrix


class PageWeightsOfHost:
    """The weights that follow from a host's measurements.

    Args:
        folder: ``results/<host>/<configuration>``.
    """

    def __init__(self, folder: Path) -> None:
        self._host: MeasuredHost | None = None
        with contextlib.suppress(UserError):  # nothing was measured yet
            self._host = read_measured_host(folder)
        # Its source has the kernel: triad if several kernels were measured in as many places.
        self._alone = (
            select_most_complete_node_measurements(self._host, BANDWIDTH) if self._host else None
        )

    def calculate_weights(
        self, name: str, workers: Sequence[int]
    ) -> tuple[dict[int, float], str | None] | None:
        """Return node -> share and the source of the shares; None if bandwidths are not measured.

        Args:
            name: CANONICAL (each path measured alone) or CONTENDED (all workers at once).
            workers: numbers of the worker nodes.
        """
        if self._host is None:
            return None
        try:
            if name != CONTENDED:
                alone = self._alone
                return (
                    (canonical_weights(alone.matrix, workers), alone.source_text) if alone else None
                )
            matrix = find_contended_bandwidth_matrix(self._host.measurements, workers)
            return (canonical_weights(matrix, workers), matrix.source) if matrix else None
        except UserError:  # a path of the workers was not measured
            return None
