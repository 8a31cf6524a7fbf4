"""Cells that ought to be in an order: both directions of a pair alike, local memory the best."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import wording
from chaosity.anomalies.cells import Cells, loss_percent
from chaosity.anomalies.departures import clear, critical
from chaosity.anomalies.judged import Judged, Place
from chaosity.anomalies.model import ASYMMETRY, REMOTE_BETTER, Anomaly
from chaosity.anomalies.symmetry import recurs

_NUMBERING = (
    "Look at how the firmware numbers the nodes (a device or memory bank wired to another node "
    "than it says), at the memory of the node itself, and at work of others on it."
)


def asymmetries(judged: Judged) -> Iterator[Anomaly]:
    """Pairs of which one direction is clearly worse, unless a slow node explains it."""
    cells = judged.cells
    grouped = {place for one in judged.found if one.group is not None for place in one.cells}
    better = {(row, column) for row, column, _ in judged.better}
    pairs = list(_opposites(cells))
    for there, back in pairs:
        if judged.structure.labels[there] != judged.structure.labels[back]:
            continue  # a ring is asymmetric by its steps
        slow, fast = sorted((there, back), key=lambda place: cells.goodness[place])
        difference = float(cells.goodness[fast] - cells.goodness[slow])
        error = float(np.hypot(judged.scatter.own[slow], judged.scatter.own[fast]))
        sure, confidence = clear(difference, error, judged.scatter, len(pairs) * judged.looks)
        if not sure or slow in grouped or fast in better:
            continue
        if recurs(cells, _against_reverse(cells), slow, judged.structure.packages):
            continue
        yield _asymmetry(judged, slow, fast, difference, error, confidence)


def _opposites(cells: Cells) -> Iterator[tuple[Place, Place]]:
    """Places of both directions of each pair of nodes that was measured both ways."""
    for i, source in enumerate(cells.rows):
        for sink in cells.rows[i + 1 :]:
            if source in cells.columns and sink in cells.columns:
                there = i, cells.columns.index(sink)
                back = cells.rows.index(sink), cells.columns.index(source)
                if cells.measured[there] and cells.measured[back]:
                    yield there, back


def _against_reverse(cells: Cells) -> NDArray[np.float64]:
    if cells.rows == cells.columns:
        return cells.goodness - cells.goodness.T
    return np.zeros(cells.goodness.shape)


def _asymmetry(
    judged: Judged,
    slow: Place,
    fast: Place,
    difference: float,
    error: float,
    confidence: float,
) -> Anomaly:
    cells, metric = judged.cells, judged.cells.metric
    half = critical(judged.scatter.freedom, 0.025) * error
    source, sink = judged.node_pair(slow)
    observed, expected = (cells.value(cells.goodness[place]) for place in (slow, fast))
    loss = loss_percent(-difference, metric)
    return Anomaly(
        kind=ASYMMETRY,
        metric=metric,
        initiator=source,
        target=sink,
        components=(f"node{source}->node{sink}",),
        observed=observed,
        expected=expected,
        loss_percent=loss,
        loss_low=loss_percent(-(difference - half), metric),
        loss_high=loss_percent(-(difference + half), metric),
        confidence=min(confidence, judged.most),
        n=int(min(cells.n[slow], cells.n[fast])),
        siblings=f"the opposite direction, node {sink} to the memory of node {source}",
        sentence=(
            f"The way from node {source} to the memory of node {sink} is worse than back: "
            f"{wording.values(metric, observed, expected)}, {wording.worse(metric, loss)}."
        ),
        advice=wording.ADVICE[wording.PATH],
        cells=((source, sink),),
    )


def remote_better(judged: Judged) -> Iterator[Anomaly]:
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


def _remote_better(judged: Judged, remote: Place, local: Place) -> Anomaly | None:
    """The anomaly, if it is clear against the scatter of siblings too."""
    cells, metric = judged.cells, judged.cells.metric
    source, sink = judged.node_pair(remote)
    node, _ = judged.node_pair(local)
    difference = float(cells.goodness[remote] - cells.goodness[local])
    error = float(np.hypot(judged.scatter.own[local], judged.scatter.own[remote]))
    half = critical(judged.scatter.freedom, 0.025) * error
    comparisons = int(cells.measured.sum()) * judged.looks
    sure, confidence = clear(difference, error, judged.scatter, comparisons)
    if not sure:
        return None
    observed, expected = (cells.value(cells.goodness[place]) for place in (local, remote))
    loss = loss_percent(-difference, metric)
    what = (
        f"Node {source} reaches the memory of node {sink} better than its own"
        if local[0] == remote[0]
        else f"The memory of node {sink} is reached better from node {source} than from its own"
    )
    return Anomaly(
        kind=REMOTE_BETTER,
        metric=metric,
        initiator=source,
        target=sink,
        components=(f"node{node}",),
        observed=observed,
        expected=expected,
        loss_percent=loss,
        loss_low=loss_percent(-(difference - half), metric),
        loss_high=loss_percent(-(difference + half), metric),
        confidence=min(confidence, judged.most),
        n=int(min(cells.n[local], cells.n[remote])),
        siblings=f"node {source} to the memory of node {sink}",
        sentence=(
            f"{what}: local {wording.values(metric, observed, expected)} from there, "
            f"{wording.worse(metric, loss)}."
        ),
        advice=_NUMBERING,
        cells=((source, sink), (node, node)),
    )
