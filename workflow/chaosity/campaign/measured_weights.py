"""The weights that placements are planned with: from what was measured here, and kept.

They stand in ``<results>/<host>/<configuration>/weights.json``. Weights are part of a point's
definition, so weights that moved with every new replicate of a matrix would ask for all placements
again. Those that were once used stay until the measurements clearly say something else.

What computes is imported where something is computed: loading it takes a second, and each of
Snakemake's processes comes by here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.page_shares import largest_share_deviation
from chaosity.place.policies import CONTENDED
from chaosity.records import utc_now, write_if_changed
from chaosity.runner.observed_placement import SHARE_TOLERANCE

if TYPE_CHECKING:
    from chaosity.export import MeasuredHost
    from chaosity.store import NodeMatrix

FILE = "weights.json"


class MeasuredWeights:
    """The weights of one host in one configuration, by their name and the workers.

    It is called with CANONICAL (each path measured alone) or CONTENDED (all workers at once) and
    the workers' nodes, and answers with a share for each node or None.

    Args:
        folder: of the host and configuration.
        anew: whether to compute them from today's measurements; else what was kept holds.

    Raises:
        UserError: the file is no such file.
    """

    def __init__(self, folder: Path, *, anew: bool = True) -> None:
        self.folder, self.path, self.anew = folder, folder / FILE, anew
        self._kept: dict[str, dict[str, dict[str, Any]]] = {}
        if self.path.exists():
            try:
                self._kept = json.loads(self.path.read_text(encoding="utf-8"))["weights"]
            except (ValueError, KeyError, TypeError) as error:
                remedy = "delete it, then it is computed from the measurements"
                raise UserError("holds no weights", str(self.path), remedy) from error

    def __call__(self, name: str, workers: Sequence[int]) -> dict[int, float] | None:
        """The share of each node's pages, or None where nothing was measured to tell."""
        own = self._kept.setdefault(name, {})
        key = format_cpu_list(workers)
        matrix = self._matrix(name, workers) if self.anew else None
        today = weights_of(matrix, workers)
        kept = {int(node): share for node, share in own.get(key, {}).get("shares", {}).items()}
        if matrix is None or today is None or same(kept, today):
            return kept or None
        own[key] = {
            "shares": {str(node): share for node, share in today.items()},
            "source": matrix.source,
            "since": utc_now(),
        }
        return today

    def write(self) -> None:
        """Keep what was asked for, if anything was."""
        known = {name: sets for name, sets in sorted(self._kept.items()) if sets}
        if known:
            write_if_changed(
                self.path, json.dumps({"weights": known}, indent=1, sort_keys=True) + "\n"
            )

    def _matrix(self, name: str, workers: Sequence[int]) -> NodeMatrix | None:
        if self._measured is None:
            return None
        if name == CONTENDED:
            from chaosity.weights import contended_matrix

            return contended_matrix(self._measured.measurements, workers)
        return self._alone

    @cached_property
    def _measured(self) -> MeasuredHost | None:
        """What was measured; None before anything was."""
        from chaosity.export import read_measured_host

        try:
            return read_measured_host(self.folder)
        except UserError:
            return None

    @cached_property
    def _alone(self) -> NodeMatrix | None:
        """The matrix that also the exports take: triad where several kernels say as much.

        It reads and writes, as programs do; and other kernels are measured on local memory alone.
        """
        from chaosity.export import select_node_measurements
        from chaosity.store.node_matrix import BANDWIDTH

        found = select_node_measurements(self._measured, BANDWIDTH) if self._measured else None
        return replace(found.matrix, source=found.text) if found else None


def weights_of(matrix: NodeMatrix | None, workers: Sequence[int]) -> dict[int, float] | None:
    """Canonical weights, or None where a path of the workers was not measured."""
    if matrix is None:
        return None
    from chaosity.weights import canonical_weights

    try:
        return canonical_weights(matrix, workers)
    except UserError:
        return None


def same(kept: Mapping[int, float], today: Mapping[int, float]) -> bool:
    """Whether every share is still what it was, as near as pages can be placed."""
    return set(kept) == set(today) and largest_share_deviation(kept, today) <= SHARE_TOLERANCE
