"""Find all anomalies of a matrix of initiator nodes and target nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_doubts import doubt_of_single_run, with_doubt
from chaosity.anomalies.anomaly_results import (
    Anomaly,
    AnomalyKind,
    CellGroup,
    Findings,
    shorten_list,
)
from chaosity.anomalies.cell_log_scores import (
    Mask,
    Position,
    ScoredCells,
    cell_positions_in_mask,
    score_cells,
)
from chaosity.anomalies.departure_significance import Departure
from chaosity.anomalies.matrix_departures import MatrixAnalysis
from chaosity.anomalies.matrix_structure import (
    ENOUGH_CELLS,
    NONE,
    EqualCellGroups,
    PackageNodes,
    SlitEntries,
    learn_matrix_structure,
)
from chaosity.anomalies.slit_mismatch import check_packages_and_slit
from chaosity.place_names import node_name
from chaosity.statistics.significance_tests import MATTERS
from chaosity.store.read_node_matrix_csv import NodeMatrix
from chaosity.text_templates import write_sentences, write_text

# Most cells that a note names.
_MAX_NAMED = 8


def analyse_matrix(
    matrix: NodeMatrix,
    packages: PackageNodes | None = None,
    distances: SlitEntries | None = None,
) -> Findings:
    """Return the findings of a machine from its matrix alone; for the arguments see below."""
    found, analysis, notes = analyse_one_of_matrices(matrix, packages, distances)
    cells, structure = analysis.cells, analysis.structure
    gaps = ""
    if matrix.share_of_measured_cells < ENOUGH_CELLS and not packages and not distances:
        gaps = write_text("anomalies", "unknown_structure", least=ENOUGH_CELLS)
    found = [with_doubt(anomaly, gaps or doubt_of_single_run(anomaly)) for anomaly in found]
    told = [anomaly for anomaly in found if not anomaly.doubt]
    detectable = None
    if analysis.has_comparable_cells:
        detectable = analysis.smallest_detectable_loss_percent()
    slit = ["the SLIT"] if distances else []
    return Findings(
        metric=matrix.metric,
        anomalies=tuple(told),
        suspicions=tuple(anomaly for anomaly in found if anomaly.doubt),
        groups=tuple(_groups(cells, structure)),
        structure=structure.description,
        packages=structure.packages,
        verdict=write_text(
            "anomalies",
            "matrix_verdict",
            anomalies=told,
            suspicions=len(found) - len(told),
            size=f"{len(cells.rows)} x {len(cells.columns)} nodes",
            replicates=int(np.min(cells.n[cells.measured_mask])),
            detectable=detectable,
            has_structure=structure.kind != NONE,
        ),
        detectable_percent=detectable,
        noise_percent=100.0 * analysis.scatter.single,
        notes=(*_notes(analysis), *notes),
        checked=("slow nodes", "slow paths", "remote better than local", *slit),
    )


def analyse_one_of_matrices(
    matrix: NodeMatrix,
    packages: PackageNodes | None = None,
    distances: SlitEntries | None = None,
    looks: int = 1,
    units: Mapping[int, str] | None = None,
) -> tuple[list[Anomaly], MatrixAnalysis, tuple[str, ...]]:
    """Return the anomalies of one of several matrices of a machine, and what they rest on.

    Args:
        matrix: bandwidth or latency from each initiator node to each target node.
        packages: nodes of each package. Default: learned from the matrix.
        distances: (initiator, target) -> entry of the SLIT. Default: the SLIT is not checked.
        looks: number of matrices of one machine; each is one more chance of a false alarm.
        units: node -> the only processing unit that stands for it as an initiator. Default: all of
            its units do.

    Returns:
        The anomalies, the largest loss first; the analysis; what the check of packages and SLIT
        notes.
    """
    values = pd.Series(dict(matrix.samples)).explode()
    blocks = None
    if matrix.blocks:
        blocks = [block for pair in matrix.samples for block in matrix.blocks[pair]]
    # The order of the nodes in the matrix says nothing.
    nodes = sorted(matrix.initiators), sorted(matrix.targets)
    cells = score_cells(matrix.metric, values, *nodes, blocks)
    structure = learn_matrix_structure(cells, packages, distances)
    firmware = check_packages_and_slit(cells, structure, packages, distances)
    analysis = MatrixAnalysis(cells, firmware.structure or structure, looks, units or {})
    found = [*analysis.find_slow_components_and_paths(), *firmware.anomalies]
    for remote_better in _remote_better(analysis):
        _add_or_explain(found, remote_better)
    found.sort(key=lambda anomaly: -anomaly.loss_percent)
    return found, analysis, firmware.notes


def _notes(analysis: MatrixAnalysis) -> list[str]:
    """Return what was not tested, and which departures are structural."""
    cells, measured = analysis.cells, analysis.cells.measured_mask
    limit = np.log1p(-MATTERS) / 2.0
    below_group = analysis.departures + analysis.structural < limit
    structural = below_group & (analysis.structural < limit)
    labels = np.unique(analysis.labels[analysis.labels >= 0])
    parts = [analysis.labels == label for label in labels]
    return write_sentences(
        "anomalies",
        "matrix_notes",
        assumed_noise_percent=None if cells.freedom else 100.0 * analysis.scatter.single,
        structural=shorten_list(_cell_texts(cells, structural), _MAX_NAMED),
        single=[text for part in parts if part.sum() == 1 for text in _cell_texts(cells, part)],
        missing=int((~measured).sum()),
        cells=measured.size,
    )


def _cell_texts(cells: ScoredCells[int], part: Mask) -> list[str]:
    """Return cells as texts such as 0->1."""
    return [f"{cells.rows[i]}->{cells.columns[j]}" for i, j in cell_positions_in_mask(part)]


def _groups(cells: ScoredCells[int], structure: EqualCellGroups) -> Iterator[CellGroup]:
    for label, name in enumerate(structure.names):
        positions = cell_positions_in_mask(structure.labels == label)
        typical = float(np.median([cells.log_score[position] for position in positions]))
        names = tuple(cells.initiator_and_target(position) for position in positions)
        yield CellGroup(name, names, cells.value_of_score(typical))


def _add_or_explain(found: list[Anomaly], anomaly: Anomaly) -> None:
    """Add an anomaly of a cell against a better one, or its sentence to the reason of the loss."""
    worse = anomaly.cells[-1]
    for number, each in enumerate(found):
        if worse in each.cells and each.kind != AnomalyKind.SLIT_MISMATCH:
            found[number] = replace(each, also=(*each.also, anomaly.sentence))
            return
    found.append(anomaly)


def _loss_against(
    analysis: MatrixAnalysis, worse: Position, better: Position, comparisons: int
) -> Departure | None:
    """Return the loss of a cell against a better cell, if the loss is clear."""
    error = float(np.hypot(analysis.scatter.own[worse], analysis.scatter.own[better]))
    return analysis.comparison.significant_loss_against_cell(worse, better, error, comparisons)


def _remote_better(analysis: MatrixAnalysis) -> Iterator[Anomaly]:
    """Yield the worst case of each node that gets better values from remote than from own memory.

    The loss must be clear, also against the scatter of comparable cells.
    """
    cells, reported = analysis.cells, set()
    comparisons = int(cells.measured_mask.sum()) * analysis.looks
    for remote, local in analysis.remote_better:
        (source, target), node = cells.initiator_and_target(remote), cells.rows[local[0]]
        departure = _loss_against(analysis, local, remote, comparisons)
        if node in reported or departure is None:
            continue
        reported.add(node)
        served = "its own memory" if local[0] == remote[0] else f"node {target} does"
        yield analysis.build_anomaly(
            departure,
            AnomalyKind.REMOTE_BETTER,
            (node_name(node),),
            f"Node {source} reaches the memory of node {target} better than {served}: locally",
            "node_numbers",
            reference=remote,
            compared_with=f"node {source} to the memory of node {target}",
            cells=[remote, local],
            than=" than remotely",
        )
