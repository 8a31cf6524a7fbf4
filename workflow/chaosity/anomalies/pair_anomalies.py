"""ScoredCells that ought to be in an order: both directions of a pair alike, local memory the best."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import ASYMMETRY, REMOTE_BETTER, Anomaly
from chaosity.anomalies.departures import Departure, gap, numbers
from chaosity.anomalies.matrix_analysis import MatrixAnalysis, Place
from chaosity.anomalies.scored_cells import ScoredCells
from chaosity.anomalies.symmetry import recurs

_NUMBERING = (
    "Look at how the firmware numbers the nodes (a device or memory bank wired to another node "
    "than it says), at the memory of the node itself, and at work of others on it."
)


def asymmetries(judged: MatrixAnalysis) -> Iterator[Anomaly]:
    """Pairs of which one direction is clearly worse, unless a slow node explains it."""
    cells = judged.cells
    grouped = {place for one in judged.found if one.group is not None for place in one.cells}
    better = {(row, column) for row, column, _ in judged.better}
    pairs = list(_opposites(cells))
    for there, back in pairs:
        if judged.structure.labels[there] != judged.structure.labels[back]:
            continue  # a ring is asymmetric by its steps
        slow, fast = sorted((there, back), key=lambda place: cells.log_score[place])
        if slow in grouped or fast in better:
            continue
        error = float(np.hypot(judged.scatter.own[slow], judged.scatter.own[fast]))
        one = gap(cells, slow, fast, error, judged.scatter, len(pairs) * judged.looks)
        if one is None or recurs(cells, _against_reverse(cells), slow, judged.structure.packages):
            continue
        yield _asymmetry(judged, one, fast)


def _opposites(cells: ScoredCells) -> Iterator[tuple[Place, Place]]:
    """Places of both directions of each pair of nodes that was measured both ways."""
    for i, source in enumerate(cells.rows):
        for sink in cells.rows[i + 1 :]:
            if source in cells.columns and sink in cells.columns:
                there = i, cells.columns.index(sink)
                back = cells.rows.index(sink), cells.columns.index(source)
                if cells.measured[there] and cells.measured[back]:
                    yield there, back


def _against_reverse(cells: ScoredCells) -> NDArray[np.float64]:
    if cells.rows == cells.columns:
        return cells.log_score - cells.log_score.T
    return np.zeros(cells.log_score.shape)


def _asymmetry(judged: MatrixAnalysis, one: Departure, fast: Place) -> Anomaly:
    found = numbers(judged.cells, one, judged.cells.log_score[fast], [fast])
    source, sink = judged.node_pair(one.cells[0])
    return Anomaly(
        **found,
        kind=ASYMMETRY,
        initiator=source,
        target=sink,
        components=(f"node{source}->node{sink}",),
        siblings=f"the opposite direction, node {sink} to the memory of node {source}",
        sentence=(
            f"The way from node {source} to the memory of node {sink} is worse than back: "
            f"{anomaly_text.loss(found)}."
        ),
        advice=anomaly_text.ADVICE[anomaly_text.PATH],
        cells=((source, sink),),
    )


def remote_better(judged: MatrixAnalysis) -> Iterator[Anomaly]:
    """Nodes that are served better from elsewhere than from their own memory."""
    told: set[object] = set()
    for row, column, local in judged.better:
        node = judged.cells.rows[local[0]]
        if node in told:
            continue  # the worst is told; of a slow node all others would be
        one = _remote_better(judged, (row, column), local)
        if one is not None:
            told.add(node)
            yield one


def _remote_better(judged: MatrixAnalysis, remote: Place, local: Place) -> Anomaly | None:
    """The anomaly, if it is clear against the scatter of siblings too."""
    source, sink = judged.node_pair(remote)
    node, _ = judged.node_pair(local)
    error = float(np.hypot(judged.scatter.own[local], judged.scatter.own[remote]))
    comparisons = int(judged.cells.measured.sum()) * judged.looks
    one = gap(judged.cells, local, remote, error, judged.scatter, comparisons)
    if one is None:
        return None
    found = numbers(judged.cells, one, judged.cells.log_score[remote], [remote])
    what = (
        f"Node {source} reaches the memory of node {sink} better than its own"
        if local[0] == remote[0]
        else f"The memory of node {sink} is reached better from node {source} than from its own"
    )
    return Anomaly(
        **found,
        kind=REMOTE_BETTER,
        initiator=source,
        target=sink,
        components=(f"node{node}",),
        siblings=f"node {source} to the memory of node {sink}",
        sentence=f"{what}: local {anomaly_text.loss(found)} than from there.",
        advice=_NUMBERING,
        cells=((source, sink), (node, node)),
    )
