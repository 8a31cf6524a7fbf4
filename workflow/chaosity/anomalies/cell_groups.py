"""ScoredCells of the tidy table that are no square of nodes: of drives, cores, L3 domains, sets.

What ought to be equal is known from the topology here: cells of the same relation and distance, of
initiators with as many threads, and drives of the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import Anomaly
from chaosity.anomalies.departures import Departure, Group, detectable, numbers, scatter
from chaosity.anomalies.matrix_structure import centres
from chaosity.anomalies.scored_cells import ScoredCells, cells_of, loss_percent
from chaosity.store.measurements import SLICE

# One sibling could as well be the one that is wrong.
FEWEST_SIBLINGS = 2
Where = Mapping[str, str | None]


class GroupedCells:
    """ScoredCells of one slice of the tidy table, with their classes."""

    def __init__(self, rows: pd.DataFrame, where: Where, kinds: Sequence[str]) -> None:
        """Gather the cells.

        Args:
            rows: of one slice, valid and positive, in numpy's types.
            where: what the slice is of.
            kinds: columns that make cells equal.
        """
        samples, blocks, first = {}, {}, {}
        for cell, own in rows.groupby(["initiator", "target"], sort=False):
            samples[cell] = tuple(own["value"].astype(float))
            blocks[cell] = tuple(own["replicate"].astype(int))
            first[cell] = own.iloc[0]
        self.where = where
        self.first: Mapping[tuple[str, str], pd.Series] = first
        self.cells: ScoredCells = cells_of(str(where["metric"]), samples, blocks)
        numbers: dict[tuple[str, ...], int] = {}
        self.labels = np.full(self.cells.log_score.shape, -1)
        for i, row in enumerate(self.cells.rows):
            for j, column in enumerate(self.cells.columns):
                if (row, column) in first:
                    key = tuple(str(first[row, column][kind]) for kind in kinds)
                    self.labels[i, j] = numbers.setdefault(key, len(numbers))
        self.expected = np.append(centres(self.cells, self.labels), np.nan)[self.labels]
        self.residual = self.cells.log_score - self.expected
        self.scatter = scatter(self.cells, self.residual, self.labels)

    def of_rows(self, kind: str) -> Iterator[Group]:
        """The cells of each initiator, named by a kind and the initiator."""
        for row, name in enumerate(self.cells.rows):
            yield Group((kind, name), self.cells.line(row))

    def of_columns(self, kind: str) -> Iterator[Group]:
        """The cells of each target, named by a kind and the target."""
        for column, name in enumerate(self.cells.columns):
            yield Group((kind, name), self.cells.line(column=column))

    def lonely(self) -> np.ndarray:
        """ScoredCells with too few siblings to say which one is wrong, of one initiator or target."""
        lonely = np.zeros(self.labels.shape, dtype=bool)
        for label in np.unique(self.labels[self.labels >= 0]):
            part = self.labels == label
            parties = max(part.any(axis=1).sum(), part.any(axis=0).sum())
            if parties <= FEWEST_SIBLINGS:
                lonely |= part
        return lonely

    def detectable_percent(self, compared: np.ndarray) -> list[float]:
        """The loss of a single value that would have been found; none where nothing is compared."""
        if not (compared & self.cells.measured).any():
            return []
        return [loss_percent(-detectable(self.cells, self.scatter), self.cells.metric)]

    def anomaly(
        self, one: Departure, kind: str, components: tuple[str, ...], **said: str
    ) -> Anomaly:
        """The numbers of a departure with what is said of it."""
        places = list(one.cells)
        cells = tuple(self.cells.cell(*place) for place in places)
        sources, sinks = {cell[0] for cell in cells}, {cell[1] for cell in cells}
        expected = float(np.median([self.expected[place] for place in places]))
        found = numbers(self.cells, one, expected)
        classes = {int(self.labels[place]) for place in places}
        others = int(np.isin(self.labels, list(classes)).sum()) - len(places)
        return Anomaly(
            **found,
            kind=kind,
            initiator=str(next(iter(sources))) if len(sources) == 1 else None,
            target=str(next(iter(sinks))) if len(sinks) == 1 else None,
            components=components,
            siblings=f"{others} other values of the same relation",
            sentence=f"{said['what']}: {anomaly_text.loss(found)} than its siblings.",
            advice=said["advice"],
            cells=cells,  # type: ignore[arg-type]
            where=dict(self.where),
        )


def slices(rows: pd.DataFrame) -> Iterator[tuple[Where, pd.DataFrame]]:
    """Rows that are like with like, with what they are of."""
    for key, own in rows.groupby(list(SLICE), sort=False, dropna=False):
        yield dict(zip(SLICE, (None if pd.isna(part) else part for part in key), strict=True)), own
