"""A matrix of nodes set against its structure: what departs, and which component that points at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import SLOW_COMPONENT, SLOW_PATH, Anomaly
from chaosity.anomalies.departures import (
    LEVEL,
    MATTERS,
    MATTERS_IN_ONE_RUN,
    Departure,
    Group,
    Scatter,
    critical,
    find,
    numbers,
    scatter,
)
from chaosity.anomalies.matrix_structure import NONE, Structure, centres
from chaosity.anomalies.scored_cells import ScoredCells
from chaosity.anomalies.symmetry import by_position, recurs

Place = tuple[int, int]
Places = Sequence[Place]


class MatrixAnalysis:
    """A matrix with its structure, and what departs from it.

    Attributes:
        cells, structure, looks: as given.
        better: remote cells that are better than a local one, see `better_than_local`.
        labels: class of each cell; -1 also where the cell is not to tell of its class.
        expected, residual: log_score by the class, and what each cell departs from it by.
        normal: cells whose loss is how the machine is built.
        scatter: of the departures.
        found: cells and groups of cells that depart.
    """

    def __init__(self, cells: ScoredCells, structure: Structure, looks: int) -> None:
        """Compare the cells.

        Args:
            cells: rows and columns are node numbers.
            structure: of the machine.
            looks: see `analyse_matrix`.
        """
        self.cells, self.structure, self.looks = cells, structure, looks
        self.better = better_than_local(cells, structure)
        labels = structure.labels.copy()
        for row, column, _ in self.better:
            # What is better than local and than its own siblings says nothing of what these ought
            # to be.
            siblings = structure.labels == structure.labels[row, column]
            siblings[row, column] = False
            level = np.median(cells.log_score[siblings]) if siblings.any() else -np.inf
            if cells.log_score[row, column] - level > MATTERS:
                labels[row, column] = -1
        self.labels = labels
        self.expected = np.append(centres(cells, labels), np.nan)[labels]  # -1 takes the NaN
        self.residual = cells.log_score - self.expected
        self.normal = self._normal()
        self.scatter: Scatter = scatter(cells, self.residual, np.where(self.normal, -1, labels))
        self.found = find(
            cells, self.residual, self.scatter, list(self._groups()), self.normal, looks
        )

    def node_pair(self, place: Place) -> tuple[int, int]:
        """Initiator and target of a place."""
        row, column = self.cells.cell(*place)
        return int(row), int(column)  # type: ignore[call-overload]

    def _normal(self) -> NDArray[np.bool_]:
        """ScoredCells whose loss recurs over the machine, and so is how it is built."""
        normal = np.zeros(self.cells.log_score.shape, dtype=bool)
        with np.errstate(invalid="ignore"):
            worse = self.residual < np.log1p(-MATTERS) / 2.0
        for row, column in zip(*np.nonzero(worse), strict=True):
            place = int(row), int(column)
            normal[place] = recurs(self.cells, self.residual, place, self.structure.packages)
        by_place = by_position(self.cells, self.residual, self.labels, self.structure.packages)
        with np.errstate(invalid="ignore"):
            return normal | (worse & (self.residual - by_place > np.log1p(-MATTERS) / 2.0))

    def _groups(self) -> Iterator[Group]:
        cells = self.cells
        rows = {name: i for i, name in enumerate(cells.rows)}
        columns = {name: i for i, name in enumerate(cells.columns)}
        for node, column in columns.items():
            yield Group((anomaly_text.TARGET, node), cells.line(column=column))
            yield Group((anomaly_text.INTO, node), cells.line(column=column) & ~cells.local)
        for node, row in rows.items():
            yield Group((anomaly_text.INITIATOR, node), cells.line(row))
            yield Group((anomaly_text.OUT_OF, node), cells.line(row) & ~cells.local)
        for node in rows.keys() & columns.keys():
            yield Group(
                (anomaly_text.LINKS, node), cells.line(rows[node], columns[node]) & ~cells.local
            )
        for source, nodes in enumerate(self.structure.packages or ()):
            for sink, others in enumerate(self.structure.packages or ()):
                if source != sink:
                    mask = np.array(
                        [[r in nodes and c in others for c in cells.columns] for r in cells.rows]
                    )
                    yield Group((anomaly_text.BLOCK, (source, sink)), mask)

    def departures(self) -> Iterator[Anomaly]:
        """Slow components and slow paths."""
        for one in self.found:
            yield self._single(one) if one.group is None else self._group(one, one.group)

    def _numbers(self, one: Departure) -> dict[str, Any]:
        """What is the same for all."""
        expected = float(np.median([self.expected[place] for place in one.cells]))
        return {
            **numbers(self.cells, one, expected),
            "siblings": self._siblings(one.cells),
            "cells": tuple(self.node_pair(place) for place in one.cells),
        }

    def _siblings(self, places: Places) -> str:
        """What the cells were compared with."""
        names = dict.fromkeys(
            self.structure.names[self.structure.labels[place]] for place in places
        )
        others = sum(
            int((self.labels == label).sum()) for label in {self.labels[place] for place in places}
        )
        return (
            f"{max(0, others - len(places))} other cells of class {anomaly_text.listed([*names])}"
        )

    def _single(self, one: Departure) -> Anomaly:
        found = self._numbers(one)
        source, sink = self.node_pair(one.cells[0])
        if source == sink:
            suspect = anomaly_text.suspect(anomaly_text.LOCAL, sink)
            return Anomaly(
                **found,
                kind=SLOW_COMPONENT,
                initiator=source,
                target=sink,
                components=(f"node{sink}",),
                sentence=f"{suspect}: {anomaly_text.loss(found)} than other nodes.",
                advice=anomaly_text.ADVICE[anomaly_text.LOCAL],
            )
        return Anomaly(
            **found,
            kind=SLOW_PATH,
            initiator=source,
            target=sink,
            components=(f"node{source}->node{sink}",),
            sentence=(
                f"The way from node {source} to the memory of node {sink} is slow: it "
                f"{anomaly_text.verb(self.cells.metric)} {anomaly_text.loss(found)} than its siblings."
            ),
            advice=anomaly_text.ADVICE[anomaly_text.PATH],
        )

    def _group(self, one: Departure, group: Group) -> Anomaly:
        found = self._numbers(one)
        what, node = group.name
        said = anomaly_text.loss(found, f" in the middle of {len(one.cells)} cells")
        if what == anomaly_text.BLOCK:
            source, sink = (int(part) for part in node)  # type: ignore[attr-defined]
            suspect = f"The way from package {source} to package {sink} is slow"
            components = (f"package{source}->package{sink}",)
            ends: tuple[int | None, int | None] = None, None
        else:
            suspect, components = anomaly_text.suspect(what, node), (f"node{node}",)
            ends = tuple(_only(cell[side] for cell in found["cells"]) for side in (0, 1))
        whole = what in (anomaly_text.TARGET, anomaly_text.INITIATOR, anomaly_text.LINKS)
        return Anomaly(
            **found,
            kind=SLOW_COMPONENT if whole else SLOW_PATH,
            initiator=ends[0],
            target=ends[1],
            components=components,
            sentence=f"{suspect}: {said} than their siblings.",
            advice=anomaly_text.ADVICE[what],
        )


def _only(nodes: Iterable[int]) -> int | None:
    """The node that all are, or None."""
    different = set(nodes)
    return different.pop() if len(different) == 1 else None


def better_than_local(
    cells: ScoredCells, structure: Structure
) -> list[tuple[int, int, tuple[int, int]]]:
    """Remote cells that are clearly better than a local one: (row, column, the local place).

    Compared are the memories that one node reaches, and the nodes that reach one memory; only nodes
    with both count, for memory of another kind (HBM) may well be better.
    """
    if structure.kind == NONE:
        return []
    noise = np.hypot(np.nanmedian(cells.error[cells.measured]), 0.01)
    error = float(np.sqrt(2.0) * noise)
    freedom = cells.freedom or np.inf
    comparisons = int(cells.measured.sum())
    matters = MATTERS if cells.freedom else MATTERS_IN_ONE_RUN
    least = max(critical(freedom, LEVEL / comparisons) * error, -np.log1p(-matters))
    found = []
    for i, source in enumerate(cells.rows):
        for j, sink in enumerate(cells.columns):
            if source == sink or np.isnan(cells.log_score[i, j]):
                continue
            locals_ = []
            if source in cells.columns and sink in cells.rows:
                locals_.append((i, cells.columns.index(source)))
            if sink in cells.rows:
                locals_.append((cells.rows.index(sink), j))
            for place in locals_:
                if cells.log_score[i, j] - cells.log_score[place] > least:
                    found.append((i, j, place))
                    break
    return sorted(
        found, key=lambda one: -(cells.log_score[one[0], one[1]] - cells.log_score[one[2]])
    )
