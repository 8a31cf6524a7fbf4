"""Cells in groups that should be equal: expected scores, departures, scatter and anomalies.

The groups of a node matrix are learned from the matrix itself (`matrix_analysis`). Those of drives,
cores and L3 domains follow from the topology: cells of the same relation and distance, initiators
with the same number of threads, drives of the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.anomalies.anomaly_model import Anomaly, SliceKey
from chaosity.anomalies.departures import (
    Departure,
    Suspect,
    detectable_loss,
    estimate_scatter,
    find_departures,
    loss_of,
)
from chaosity.anomalies.scored_cells import Name, ScoredCells, loss_percent, score_cells

# Of two comparable initiators or targets, either can be the faulty one.
_TOO_FEW = 2
# Number of the group of each cell, -1 where nothing was measured.
Labels = NDArray[np.int_]


def expected_scores(cells: ScoredCells[Name], labels: Labels) -> NDArray[np.float64]:
    """Expected score of each group.

    It is the median; for an even number of cells, the better of the two middle cells: faults make
    values worse, so of two that differ the better shows what the machine can do.
    """
    expected = np.full(labels.max() + 1, np.nan)
    for label in range(len(expected)):
        values = np.sort(cells.log_score[labels == label])
        if len(values):
            expected[label] = values[len(values) // 2]
    return expected


def departures_from_groups(cells: ScoredCells[Name], labels: Labels) -> NDArray[np.float64]:
    """Score of each cell minus the expected score of its group; negative for a loss."""
    expected = np.append(expected_scores(cells, labels), np.nan)  # label -1 takes the NaN
    departures: NDArray[np.float64] = cells.log_score - expected[labels]
    return departures


class GroupedCells(Generic[Name]):
    """Cells with their groups.

    Attributes:
        cells: the cells.
        labels: group of each cell.
        expected: expected score of each cell.
        departures: score of each cell minus the expected one.
        scatter: scatter of the departures.
        where: the slice of the tidy table; empty for a matrix.
    """

    def __init__(
        self, cells: ScoredCells[Name], labels: Labels, where: SliceKey | None = None
    ) -> None:
        """Compare the cells with the expected scores of their groups."""
        self.cells: ScoredCells[Name] = cells
        self.labels, self.where = labels, where or {}
        self.expected = np.append(expected_scores(cells, labels), np.nan)[labels]
        self.departures = departures_from_groups(cells, labels)
        self.scatter = estimate_scatter(cells, self.departures, labels)

    @property
    def detectable_percent(self) -> float:
        """Smallest detectable loss of a single cell, in per cent."""
        return loss_percent(-detectable_loss(self.cells, self.scatter), self.cells.metric)

    def anomaly(
        self,
        departure: Departure,
        kind: str,
        components: tuple[str, ...],
        *,
        what: str,
        advice: str,
        compared_with: str | None = None,
        seen_at: tuple[int | str | None, int | str | None] | None = None,
        than: str = "than comparable cells",
    ) -> Anomaly:
        """The anomaly of cells that depart from their group.

        The sentence begins with `what` is slow and ends with `than`. `compared_with` defaults to
        the number of comparable cells. For the other arguments see `Anomaly.from_loss`.
        """
        positions = departure.cells
        expected = float(np.median([self.expected[position] for position in positions]))
        loss = loss_of(self.cells, departure, expected)
        between = f" in the median of {len(positions)} cells" if len(positions) > 1 else ""
        labels = {int(self.labels[position]) for position in positions}
        others = int(np.isin(self.labels, list(labels)).sum()) - len(positions)
        return Anomaly.from_loss(
            loss,
            kind,
            components,
            tuple(self.cells.names_at(position) for position in positions),
            sentence=f"{what} {loss.text(between)} {than}.",
            advice=advice,
            compared_with=compared_with or f"{others} other values of the same relation",
            seen_at=seen_at,
            where=self.where,
        )

    def comparison_anomaly(
        self,
        departure: Departure,
        kind: str,
        components: tuple[str, ...],
        reference: tuple[int, int],
        *,
        what: str,
        advice: str,
        compared_with: str,
        cells: tuple[tuple[int, int], ...],
        than: str = "",
    ) -> Anomaly:
        """The anomaly of a cell that is worse than the cell at the position `reference`.

        The sentence begins with `what` is slow and ends with `than`. `cells` are the positions of
        the cells that it explains; the first one says where it is seen. For the other arguments see
        `Anomaly.from_loss`.
        """
        loss = loss_of(self.cells, departure, self.cells.log_score[reference], [reference])
        names = tuple(self.cells.names_at(position) for position in cells)
        return Anomaly.from_loss(
            loss,
            kind,
            components,
            names,
            sentence=f"{what} {loss.text()}{than}.",
            advice=advice,
            compared_with=compared_with,
            seen_at=names[0],
            where=self.where,
        )


class SliceCells(GroupedCells[str]):
    """Cells of one slice of the tidy table, in groups by their columns.

    Attributes:
        first_rows: (initiator, target) -> first row of the tidy table.
        untested: mask of cells with too few comparable cells to tell which of them is wrong.
    """

    def __init__(self, rows: pd.DataFrame, where: SliceKey, columns: Sequence[str]) -> None:
        """Group the cells.

        Args:
            rows: of one slice, valid and positive, in numpy's types.
            where: the slice.
            columns: columns whose values are equal in comparable cells.
        """
        samples: dict[tuple[str, str], tuple[float, ...]] = {}
        blocks: dict[tuple[str, str], tuple[int, ...]] = {}
        self.first_rows: dict[tuple[str, str], pd.Series] = {}
        for (source, target), own in rows.groupby(["initiator", "target"], sort=False):
            cell = str(source), str(target)
            samples[cell] = tuple(own["value"].astype(float))
            blocks[cell] = tuple(own["replicate"].astype(int))
            self.first_rows[cell] = own.iloc[0]
        cells = score_cells(str(where["metric"]), samples, blocks)
        numbers: dict[tuple[str, ...], int] = {}
        labels = np.full(cells.log_score.shape, -1)
        for i, row in enumerate(cells.rows):
            for j, column in enumerate(cells.columns):
                if (row, column) in self.first_rows:
                    first = self.first_rows[row, column]
                    key = tuple(str(first[name]) for name in columns)
                    labels[i, j] = numbers.setdefault(key, len(numbers))
        super().__init__(cells, labels, where)
        self.untested = self._untested()

    def _untested(self) -> NDArray[np.bool_]:
        untested = np.zeros(self.labels.shape, dtype=bool)
        for label in np.unique(self.labels[self.labels >= 0]):
            part = self.labels == label
            if max(part.any(axis=1).sum(), part.any(axis=0).sum()) <= _TOO_FEW:
                untested |= part
        return untested

    def initiator_suspects(self) -> Iterator[Suspect]:
        """Each initiator with its cells."""
        for row, name in enumerate(self.cells.rows):
            yield Suspect("initiator", name, self.cells.line(row))

    def target_suspects(self, part: str) -> Iterator[Suspect]:
        """Each target with its cells, under the name of this part."""
        for column, name in enumerate(self.cells.columns):
            yield Suspect(part, name, self.cells.line(column=column))

    def find_departures(self, suspects: Sequence[Suspect]) -> list[Departure]:
        """Departures of the tested cells."""
        return find_departures(self.cells, self.departures, self.scatter, suspects, self.untested)

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Mask of the measured cells that are tested."""
        tested: NDArray[np.bool_] = ~self.untested & self.cells.measured
        return tested
