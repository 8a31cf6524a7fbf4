"""All findings of a matrix of initiator nodes and target nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_results import (
    ASYMMETRY,
    REMOTE_BETTER,
    Anomaly,
    CellGroup,
    Findings,
)
from chaosity.anomalies.departure_significance import MATTERS
from chaosity.anomalies.matrix_departures import MatrixAnalysis
from chaosity.anomalies.matrix_structure import (
    NONE,
    PackageNodes,
    SlitEntries,
    Structure,
    learn_structure,
)
from chaosity.anomalies.scored_cells import Position, ScoredCells, positions_of, score_cells
from chaosity.anomalies.slit_mismatch import check_firmware_claims
from chaosity.anomalies.structural_departures import is_repeated_by_symmetry
from chaosity.place_names import initiator_to_target_name, node_name
from chaosity.store.node_matrix_csv import NodeMatrix
from chaosity.units import join_with_and

# Most cells that a note names.
_MAX_NAMED = 8
_NODE_NUMBERS = (
    "Look at how the firmware numbers the nodes (a device or memory bank wired to another node "
    "than reported), at the memory of the node itself, and at other programs on the node."
)


def analyse_matrix(
    matrix: NodeMatrix,
    packages: PackageNodes | None = None,
    distances: SlitEntries | None = None,
    looks: int = 1,
) -> Findings:
    """The anomalies of a machine, from its matrix alone.

    Args:
        matrix: bandwidth or latency from each initiator node to each target node.
        packages: nodes of each package. Default: learned from the matrix.
        distances: (initiator, target) -> entry of the SLIT. Default: the SLIT is not checked.
        looks: number of matrices that are analysed for one machine; each is one more chance of a
            false alarm.
    """
    cells = score_cells(
        matrix.metric, matrix.samples, matrix.blocks, matrix.initiators, matrix.targets
    )
    structure = learn_structure(cells, packages, distances)
    claims = check_firmware_claims(cells, structure, packages, distances)
    structure = claims.structure or structure
    analysis = MatrixAnalysis(cells, structure, looks)
    found = [
        *analysis.find_slow_components_and_paths(),
        *_asymmetries(analysis),
        *_remote_better(analysis),
        *claims.anomalies,
    ]
    found.sort(key=lambda anomaly: -anomaly.loss_percent)
    sizes = np.bincount(analysis.labels[analysis.labels >= 0])
    # In groups of one cell no loss is detectable.
    detectable = analysis.detectable_percent if (sizes > 1).any() else None
    slit = ["the SLIT"] if distances else []
    return Findings(
        metric=matrix.metric,
        anomalies=tuple(found),
        groups=tuple(_groups(cells, structure)),
        structure=structure.text,
        packages=structure.packages,
        verdict=_verdict(found, cells, structure, detectable),
        detectable_percent=detectable,
        noise_percent=100.0 * analysis.scatter.single,
        notes=(*_notes(analysis), *claims.notes),
        checked=("slow nodes", "slow paths", "asymmetry", "remote better than local", *slit),
    )


def _notes(analysis: MatrixAnalysis) -> Iterator[str]:
    """What was not tested, and which departures are structural."""
    cells = analysis.cells
    if not cells.freedom:
        yield (
            "One replicate per cell: the noise is unknown. It is estimated from the scatter of "
            f"comparable cells ({100.0 * analysis.scatter.single:.1f} %), and no confidence is "
            "above 0.95. Measure three replicates or more."
        )
    with np.errstate(invalid="ignore"):
        least = np.maximum(-np.log1p(-MATTERS), 1.5 * analysis.scatter.error)
        structural = analysis.structural & (-analysis.departures > least)
    if structural.any():
        named = anomaly_text.shorten_list(_cell_texts(cells, structural), _MAX_NAMED)
        yield (
            f"Not reported: {join_with_and(named)} are below their group, but the same "
            "pattern recurs across the machine, so it is structural."
        )
    labels = np.unique(analysis.labels[analysis.labels >= 0])
    parts = [analysis.labels == label for label in labels]
    single = [text for part in parts if part.sum() == 1 for text in _cell_texts(cells, part)]
    if single:
        yield f"Not tested, no comparable cell: {join_with_and(single)}."
    missing = int((~cells.measured_mask).sum())
    if missing:
        yield f"{missing} of {cells.measured_mask.size} cells were not measured."


def _cell_texts(cells: ScoredCells[int], part: NDArray[np.bool_]) -> list[str]:
    """Cells as 0->1."""
    return [f"{cells.rows[i]}->{cells.columns[j]}" for i, j in positions_of(part)]


def _groups(cells: ScoredCells[int], structure: Structure) -> Iterator[CellGroup]:
    for label, name in enumerate(structure.names):
        positions = positions_of(structure.labels == label)
        typical = float(np.median([cells.log_score[position] for position in positions]))
        names = tuple(cells.names_at(position) for position in positions)
        yield CellGroup(name, names, cells.value_of_score(typical))


def _verdict(
    found: Sequence[Anomaly],
    cells: ScoredCells[int],
    structure: Structure,
    detectable: float | None,
) -> str:
    size = f"{len(cells.rows)} x {len(cells.columns)} nodes"
    if found:
        number = "1 anomaly" if len(found) == 1 else f"{len(found)} anomalies"
        return f"{number} in {size}; the worst: {found[0].sentence}"
    if detectable is None:
        return f"Not tested: no cell of {size} has a comparable cell."
    replicates = int(np.min(cells.n[cells.measured_mask]))
    end = "" if structure.kind != NONE else " The matrix has no structure."
    return (
        f"No anomaly was detected in {size} at n = {replicates}. Smallest detectable loss of a "
        f"cell (95 % power): {detectable:.0f} %.{end}"
    )


def _asymmetries(analysis: MatrixAnalysis) -> Iterator[Anomaly]:
    """Pairs with one clearly worse direction, unless a slow node explains it."""
    cells, labels = analysis.cells, analysis.structure.labels
    explained = {
        position
        for departure in analysis.found
        if departure.suspect is not None
        for position in departure.cells
    }
    better_than_local = {(row, column) for row, column, _ in analysis.remote_better}
    pairs = list(_opposite_cells(cells))
    reverse = _minus_opposite(cells)
    for there, back in pairs:
        if labels[there] != labels[back]:
            continue  # a one-way ring is asymmetric by its steps
        slow, fast = sorted((there, back), key=lambda position: cells.log_score[position])
        if slow in explained or fast in better_than_local:
            continue
        error = float(np.hypot(analysis.scatter.own[slow], analysis.scatter.own[fast]))
        comparisons = len(pairs) * analysis.looks
        departure = analysis.loss_against_better_cell(slow, fast, error, comparisons)
        if departure is None or is_repeated_by_symmetry(
            cells, reverse, slow, analysis.structure.packages
        ):
            continue
        source, target = cells.names_at(slow)
        yield analysis.build_anomaly(
            departure,
            ASYMMETRY,
            (initiator_to_target_name(node_name(source), node_name(target)),),
            f"The path from node {source} to the memory of node {target} is worse than the "
            "opposite direction:",
            anomaly_text.ADVICE[anomaly_text.PATH],
            reference=fast,
            than="",
            compared_with=f"the opposite direction, node {target} to the memory of node {source}",
            cells=[slow],
        )


def _opposite_cells(cells: ScoredCells[int]) -> Iterator[tuple[Position, Position]]:
    """Positions of both directions of each pair of nodes with two measured directions."""
    for i, source in enumerate(cells.rows):
        for target in cells.rows[i + 1 :]:
            if source in cells.columns and target in cells.columns:
                there = i, cells.columns.index(target)
                back = cells.rows.index(target), cells.columns.index(source)
                if cells.measured_mask[there] and cells.measured_mask[back]:
                    yield there, back


def _minus_opposite(cells: ScoredCells[int]) -> NDArray[np.float64]:
    """Score of each cell minus that of the opposite direction."""
    if cells.rows == cells.columns:
        return cells.log_score - cells.log_score.T
    return np.zeros(cells.log_score.shape)


def _remote_better(analysis: MatrixAnalysis) -> Iterator[Anomaly]:
    """Nodes that are served better remotely than from their own memory, the worst case of each."""
    reported: set[int] = set()
    for row, column, local in analysis.remote_better:
        node = analysis.cells.rows[local[0]]
        if node in reported:
            continue
        anomaly = _remote_better_anomaly(analysis, (row, column), local)
        if anomaly is not None:
            reported.add(node)
            yield anomaly


def _remote_better_anomaly(
    analysis: MatrixAnalysis, remote: Position, local: Position
) -> Anomaly | None:
    """The anomaly, if it is clear against the scatter of comparable cells too."""
    cells, scatter = analysis.cells, analysis.scatter
    source, target = cells.names_at(remote)
    node, _ = cells.names_at(local)
    error = float(np.hypot(scatter.own[local], scatter.own[remote]))
    comparisons = int(cells.measured_mask.sum()) * analysis.looks
    departure = analysis.loss_against_better_cell(local, remote, error, comparisons)
    if departure is None:
        return None
    what = (
        f"Node {source} reaches the memory of node {target} better than its own memory"
        if local[0] == remote[0]
        else f"Node {source} reaches the memory of node {target} better than node {target} does"
    )
    return analysis.build_anomaly(
        departure,
        REMOTE_BETTER,
        (node_name(node),),
        f"{what}: locally",
        _NODE_NUMBERS,
        reference=remote,
        compared_with=f"node {source} to the memory of node {target}",
        cells=[remote, local],
        than=" than remotely",
    )
