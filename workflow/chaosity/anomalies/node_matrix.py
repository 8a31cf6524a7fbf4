"""The anomalies of a matrix of initiator nodes and target nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import Anomaly, CellGroup, Findings
from chaosity.anomalies.departures import MATTERS, detectable
from chaosity.anomalies.firmware_claims import table_anomalies
from chaosity.anomalies.matrix_analysis import MatrixAnalysis
from chaosity.anomalies.matrix_structure import NONE, PackageNodes, Structure, learn
from chaosity.anomalies.pair_anomalies import asymmetries, remote_better
from chaosity.anomalies.scored_cells import ScoredCells, cells_of, loss_percent
from chaosity.store import NodeMatrix

# So many cells are named in a note.
_MOST_NAMED = 8


def analyse_matrix(
    matrix: NodeMatrix,
    packages: PackageNodes | None = None,
    distances: Mapping[tuple[int, int], float] | None = None,
    looks: int = 1,
) -> Findings:
    """What is wrong with a machine, by its matrix alone.

    Args:
        matrix: bandwidth or latency of each initiator node to each target node.
        packages: nodes of each package; learned from the matrix when None.
        distances: (initiator, target) -> the firmware's distance; looked at for lies when given.
        looks: how many matrices are looked at for one machine, since each is one more chance of a
            false alarm.
    """
    cells = cells_of(
        matrix.metric, matrix.samples, matrix.blocks, matrix.initiators, matrix.targets
    )
    structure = learn(cells, packages, distances)
    lies = table_anomalies(cells, structure, packages, distances)
    if lies.structure is not None:
        structure = lies.structure
    judged = MatrixAnalysis(cells, structure, looks)
    found = [*judged.departures(), *asymmetries(judged), *remote_better(judged), *lies.anomalies]
    found.sort(key=lambda one: -one.loss_percent)
    sizes = np.bincount(judged.labels[judged.labels >= 0])
    least = None  # without a sibling nothing would be found
    if (sizes > 1).any():
        least = loss_percent(-detectable(cells, judged.scatter), cells.metric)
    return Findings(
        metric=matrix.metric,
        anomalies=tuple(found),
        classes=tuple(_classes(cells, structure)),
        structure=structure.words,
        packages=structure.packages,
        verdict=_verdict(found, cells, structure, least),
        detectable_percent=least,
        noise_percent=100.0 * judged.scatter.single,
        notes=(*_notes(judged), *lies.notes),
        checked=(
            "slow nodes",
            "slow paths",
            "asymmetry",
            "remote better than local",
            *(["the distance table"] if distances else []),
        ),
    )


def _notes(judged: MatrixAnalysis) -> Iterator[str]:
    """What cannot be said, and what was taken for normal."""
    cells = judged.cells
    if not cells.freedom:
        yield (
            "One run a cell: the noise is not known; it is taken from the scatter of cells "
            f"that ought to be equal, {100.0 * judged.scatter.single:.1f} % here, and no "
            "confidence is above 0.95. Three runs or more tell better."
        )
    with np.errstate(invalid="ignore"):
        least = np.maximum(-np.log1p(-MATTERS), 1.5 * judged.scatter.error)
        taken = judged.normal & (-judged.residual > least)
    if taken.any():
        said = _named(cells, taken)
        if len(said) > _MOST_NAMED:
            said = [*said[:_MOST_NAMED], f"{len(said) - _MOST_NAMED} more"]
        yield (
            f"Taken for the machine's way, since it recurs over it: {anomaly_text.listed(said)} are "
            "somewhat below their class."
        )
    parts = [judged.labels == label for label in np.unique(judged.labels[judged.labels >= 0])]
    alone = [name for part in parts if part.sum() == 1 for name in _named(cells, part)]
    if alone:
        yield f"Without a sibling, so nothing can be said of it: {anomaly_text.listed(alone)}."
    missing = int((~cells.measured).sum())
    if missing:
        yield f"{missing} of {cells.measured.size} cells were not measured."


def _named(cells: ScoredCells, part: NDArray[np.bool_]) -> list[str]:
    """ScoredCells as 0->1."""
    return [f"{cells.rows[i]}->{cells.columns[j]}" for i, j in zip(*np.nonzero(part), strict=True)]


def _classes(cells: ScoredCells, structure: Structure) -> Iterator[CellGroup]:
    for label, name in enumerate(structure.names):
        places = list(zip(*np.nonzero(structure.labels == label), strict=True))
        typical = float(np.median([cells.log_score[place] for place in places]))
        named = [cells.cell(int(row), int(column)) for row, column in places]
        yield CellGroup(
            name, tuple((int(row), int(column)) for row, column in named), cells.value(typical)
        )


def _verdict(
    found: Sequence[Anomaly], cells: ScoredCells, structure: Structure, least: float | None
) -> str:
    size = f"{len(cells.rows)} x {len(cells.columns)} nodes"
    if found:
        number = "1 anomaly" if len(found) == 1 else f"{len(found)} anomalies"
        return f"{number} in {size}; the worst: {found[0].sentence}"
    if least is None:
        return f"Nothing can be said of {size}: no cell has a sibling that ought to be equal."
    runs = int(np.min(cells.n[cells.measured]))
    end = "" if structure.kind != NONE else " The matrix has no structure."
    return (
        f"No anomaly was detected in {size} at n = {runs}; a cell that is "
        f"{least:.0f} % worse than its siblings would have been found.{end}"
    )
