"""Calculate the page weights of planned placements from measurements, and keep them in a file.

The file is ``results/<host>/<configuration>/weights.json``. Weights are part of a point's
definition, so if weights changed with every replicate, all placements would be measured again.
Therefore the weights in the file are used until measurements give clearly different weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from chaosity.cpusets import format_cpu_list
from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, UserError
from chaosity.place.page_placement import CONTENDED, largest_share_deviation
from chaosity.records.record_files import (
    read_regular_file,
    utc_now_text,
    write_if_changed,
)
from chaosity.runner.observed_state import SHARE_TOLERANCE

if TYPE_CHECKING:
    from chaosity.export.main_matrices import MainMatrix, MeasuredHost

WEIGHTS_FILE = "weights.json"


class KeptWorkerWeights(TypedDict):
    """Page weights for a set of worker nodes, with the source and the time of the calculation."""

    shares: dict[str, float]
    source: str | None
    since: str


class MeasuredPageWeights:
    """The page weights of one host in one configuration.

    A call with the name of the weights (CANONICAL or CONTENDED) and the worker nodes returns node
    -> share of the pages, or None if the necessary bandwidths were not measured. Without
    `recalculate`, a call only returns weights from the file, and calculates no weights.
    """

    def __init__(self, folder: Path, *, recalculate: bool = True) -> None:
        self.folder, self.path, self.recalculate = folder, folder / WEIGHTS_FILE, recalculate
        # Name of the weights -> worker nodes as a list such as 0-3 -> weights for these workers.
        self._kept: dict[str, dict[str, KeptWorkerWeights]] = {}
        if self.path.exists():
            remedy = "delete the file, then the next run computes the weights from the measurements"
            try:
                self._kept = json.loads(read_regular_file(self.path))["weights"]
                for sets in self._kept.values():
                    for weights in sets.values():
                        sum(weights["shares"].values())
                        [int(node) for node in weights["shares"]]
            except (OSError, *ERRORS_OF_MALFORMED_DOCUMENTS) as error:
                raise UserError("the file has no weights", str(self.path), remedy) from error

    def __call__(self, name: str, workers: Sequence[int]) -> dict[int, float] | None:
        """Return node -> share of the pages; None if necessary measurements are missing."""
        own = self._kept.setdefault(name, {})
        key = format_cpu_list(workers)
        kept: dict[int, float] | None = None
        if key in own:
            kept = {int(node): share for node, share in own[key]["shares"].items()}
        calculated = self._calculate_weights(name, workers) if self.recalculate else None
        if calculated and not (kept and shares_agree(kept, calculated[0])):
            kept, source = calculated
            shares = {str(node): share for node, share in kept.items()}
            own[key] = {"shares": shares, "source": source, "since": utc_now_text()}
        return kept

    def write_weights(self) -> None:
        """Write all weights to the file `weights.json`; if there are none, write no file."""
        if known := {name: sets for name, sets in self._kept.items() if sets}:
            text = json.dumps({"weights": known}, indent=1, sort_keys=True)
            write_if_changed(self.path, text + "\n")

    def _calculate_weights(
        self, name: str, workers: Sequence[int]
    ) -> tuple[dict[int, float], str | None] | None:
        """Return node -> share of the pages, and the source; None if a bandwidth was not measured.

        CANONICAL weights are computed from paths that were measured alone. CONTENDED weights are
        computed from paths that were measured while all workers ran.
        """
        # The import of `weights` loads pandas, which takes a second, and most plans need no
        # weights.
        from chaosity.weights import (
            canonical_weights,
            find_contended_bandwidth_matrix,
        )

        if self._read_results_and_bandwidths is None:
            return None
        host, alone = self._read_results_and_bandwidths
        try:
            if name == CONTENDED:
                matrix = find_contended_bandwidth_matrix(host.measurements, workers)
                return (canonical_weights(matrix, workers), matrix.source) if matrix else None
            # The source of the weights names the kernel of the matrix. If several kernels were
            # measured in the same number of places, the kernel is triad.
            if alone is None or alone.samples is None:
                return None
            return canonical_weights(alone.samples, workers), alone.source
        except UserError:  # a path from a worker to a node was not measured
            return None

    @cached_property
    def _read_results_and_bandwidths(self) -> tuple[MeasuredHost, MainMatrix | None] | None:
        """Return the host's results and the bandwidths from node to node; None without results."""
        from chaosity.export.main_matrices import memory_matrix, read_measured_host
        from chaosity.store.csv_tables import BANDWIDTH

        try:
            host = read_measured_host(self.folder)
        except UserError:  # the host has no results yet
            return None
        return host, memory_matrix(host, BANDWIDTH)


def shares_agree(kept: Mapping[int, float], calculated: Mapping[int, float]) -> bool:
    """Return whether two placements agree within the tolerance of the check of placements."""
    same_nodes = set(kept) == set(calculated)
    return same_nodes and largest_share_deviation(kept, calculated) <= SHARE_TOLERANCE
