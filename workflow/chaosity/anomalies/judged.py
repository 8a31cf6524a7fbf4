"""A matrix of nodes set against its structure: what departs, and which component that points at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import wording
from chaosity.anomalies.cells import Cells
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
from chaosity.anomalies.model import SLOW_COMPONENT, SLOW_PATH, Anomaly
from chaosity.anomalies.structure import NONE, Structure, centres
from chaosity.anomalies.symmetry import by_position, recurs

Place = tuple[int, int]
Places = Sequence[Place]


class Judged:
    """A matrix with its structure, and what departs from it.

    Attributes:
        cells, structure, looks: as given.
        better: remote cells that are better than a local one, see `better_than_local`.
        labels: class of each cell; -1 also where the cell is not to tell of its class.
        expected, residual: goodness by the class, and what each cell departs from it by.
        most: the highest confidence that is told.
        normal: cells whose loss is how the machine is built.
        scatter: of the departures.
        found: cells and groups of cells that depart.
    """

    def __init__(self, cells: Cells, structure: Structure, looks: int) -> None:
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
            level = np.median(cells.goodness[siblings]) if siblings.any() else -np.inf
            if cells.goodness[row, column] - level > MATTERS:
                labels[row, column] = -1
        expected = np.append(centres(cells, labels), np.nan)
        if (structure.labels >= 0).any() and len(expected) <= structure.labels.max() + 1:
            expected = np.append(centres(cells, structure.labels), np.nan)
        self.labels = labels
        self.expected = expected[labels]
        self.residual = cells.goodness - self.expected
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
        """Cells whose loss recurs over the machine, and so is how it is built."""
        normal = np.zeros(self.cells.goodness.shape, dtype=bool)
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
        local = np.array([[r == c for c in cells.columns] for r in cells.rows])

        def line(row: int | None, column: int | None) -> NDArray[np.bool_]:
            mask = np.zeros(cells.goodness.shape, dtype=bool)
            if row is not None:
                mask[row] = True
            if column is not None:
                mask[:, column] = True
            return mask

        for node, column in columns.items():
            yield Group((wording.TARGET, node), line(None, column))
            yield Group((wording.INTO, node), line(None, column) & ~local)
        for node, row in rows.items():
            yield Group((wording.INITIATOR, node), line(row, None))
            yield Group((wording.OUT_OF, node), line(row, None) & ~local)
        for node in rows.keys() & columns.keys():
            yield Group((wording.LINKS, node), line(rows[node], columns[node]) & ~local)
        for source, nodes in enumerate(self.structure.packages or ()):
            for sink, others in enumerate(self.structure.packages or ()):
                if source != sink:
                    mask = np.array([[r in nodes and c in others for c in cells.columns]
                                     for r in cells.rows])  # fmt: skip
                    yield Group((wording.BLOCK, (source, sink)), mask)

    def departures(self) -> Iterator[Anomaly]:
        """Slow components and slow paths."""
        for one in self.found:
            yield self._single(one) if one.group is None else self._group(one, one.group)

    def _base(self, one: Departure) -> Anomaly:
        """What is the same for all: numbers."""
        expected = float(np.median([self.expected[place] for place in one.cells]))
        return Anomaly(
            **numbers(self.cells, one, expected),
            kind=SLOW_PATH,
            initiator=None,
            target=None,
            components=(),
            siblings=self._siblings(one.cells),
            sentence="",
            advice="",
            cells=tuple(self.node_pair(place) for place in one.cells),
        )

    def _siblings(self, places: Places) -> str:
        """What the cells were compared with."""
        names = dict.fromkeys(
            self.structure.names[self.structure.labels[place]] for place in places
        )
        others = sum(
            int((self.labels == label).sum()) for label in {self.labels[place] for place in places}
        )
        return f"{max(0, others - len(places))} other cells of class {wording.listed([*names])}"

    def _single(self, one: Departure) -> Anomaly:
        base = self._base(one)
        (place,) = one.cells
        source, sink = self.node_pair(place)
        said = wording.values(base.metric, base.observed, base.expected)
        worse = wording.worse(base.metric, base.loss_percent)
        if source == sink:
            sentence = f"{wording.suspect(wording.LOCAL, sink)}: {said}, {worse} than other nodes."
            return replace(
                base, kind=SLOW_COMPONENT, initiator=source, target=sink,
                components=(f"node{sink}",), sentence=sentence,
                advice=wording.ADVICE[wording.LOCAL],
            )  # fmt: skip
        verb = wording.verb(base.metric)
        sentence = (
            f"The way from node {source} to the memory of node {sink} is slow: it {verb} {said}, "
            f"{worse} than its siblings."
        )
        return replace(
            base, initiator=source, target=sink, components=(f"node{source}->node{sink}",),
            sentence=sentence, advice=wording.ADVICE[wording.PATH],
        )  # fmt: skip

    def _group(self, one: Departure, group: Group) -> Anomaly:
        base = self._base(one)
        what, node = group.name
        said = wording.values(base.metric, base.observed, base.expected)
        worse = wording.worse(base.metric, base.loss_percent)
        tail = f"{said} in the middle of {len(one.cells)} cells, {worse} than their siblings."
        if what == wording.BLOCK:
            source, sink = (int(part) for part in node)  # type: ignore[attr-defined]
            return replace(
                base, components=(f"package{source}->package{sink}",),
                sentence=f"The way from package {source} to package {sink} is slow: {tail}",
                advice=wording.ADVICE[what],
            )  # fmt: skip
        both = what in (wording.TARGET, wording.INITIATOR)
        sources = {cell[0] for cell in base.cells}
        sinks = {cell[1] for cell in base.cells}
        return replace(
            base,
            kind=SLOW_COMPONENT if both or what == wording.LINKS else SLOW_PATH,
            initiator=next(iter(sources)) if len(sources) == 1 else None,
            target=next(iter(sinks)) if len(sinks) == 1 else None,
            components=(f"node{node}",),
            sentence=f"{wording.suspect(what, node)}: {tail}",
            advice=wording.ADVICE[what],
        )


def better_than_local(cells: Cells, structure: Structure) -> list[tuple[int, int, tuple[int, int]]]:
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
            if source == sink or np.isnan(cells.goodness[i, j]):
                continue
            locals_ = []
            if source in cells.columns and sink in cells.rows:
                locals_.append((i, cells.columns.index(source)))
            if sink in cells.rows:
                locals_.append((cells.rows.index(sink), j))
            for place in locals_:
                if cells.goodness[i, j] - cells.goodness[place] > least:
                    found.append((i, j, place))
                    break
    return sorted(found, key=lambda one: -(cells.goodness[one[0], one[1]] - cells.goodness[one[2]]))
