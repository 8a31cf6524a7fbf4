"""Cells in groups that should be equal: expected scores, departures, scatter and anomalies.

The groups of a node matrix are learned from the matrix itself (`matrix_departures`). Those of
drives, cores and L3 domains follow from the topology: cells of the same relation and distance,
initiators with the same number of threads, drives of the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.anomaly_results import Anomaly, Loss, SliceKey
from chaosity.anomalies.departure_significance import (
    LEVEL,
    Departure,
    Suspect,
    critical_value,
    estimate_scatter,
    is_significant_and_large,
    limit_confidence,
)
from chaosity.anomalies.scored_cells import (
    Name,
    Position,
    ScoredCells,
    loss_percent,
    positions_of,
    score_cells,
)

# Of two comparable initiators or targets, either can be the faulty one.
_TOO_FEW = 2
# Share of a component's cells that have to depart. Noise may hide the others.
_DEPARTING_SHARE = 0.75
# A median over more than two values varies pi/2 as much as their mean, as a variance.
_MEDIAN_VARIANCE = np.pi / 2.0
# Probability with which the smallest detectable loss is found.
_POWER = 0.95
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
        """Smallest loss of a single cell that is found with 95 % probability, in per cent.

        Losses below `scatter.matters` are not reported, so a cell has to lose more than that.
        """
        measured, scatter = self.cells.measured_mask, self.scatter
        error = float(np.nanmedian(scatter.error[measured]))
        clear = critical_value(scatter.freedom, LEVEL / int(measured.sum())) * error
        least = max(clear, -np.log1p(-scatter.matters))
        return loss_percent(-float(least + stats.norm.ppf(_POWER) * error), self.cells.metric)

    def find_departures(
        self, suspects: Sequence[Suspect], excluded: NDArray[np.bool_], looks: int = 1
    ) -> list[Departure]:
        """Suspects and single cells that depart, those that explain most first.

        Args:
            suspects: components, in the order of preference.
            excluded: mask of cells that are not reported.
            looks: number of tables that are tested for one machine.
        """
        remaining = self.cells.measured_mask & ~excluded & ~np.isnan(self.departures)
        comparisons = int(remaining.sum()) * looks
        found = []
        while best := self._best_suspect(suspects, remaining, comparisons):
            found.append(best)
            for position in best.cells:
                remaining[position] = False
        single = [self._departure(None, [cell], comparisons) for cell in positions_of(remaining)]
        return found + [departure for departure in single if departure is not None]

    def _best_suspect(
        self, suspects: Sequence[Suspect], remaining: NDArray[np.bool_], comparisons: int
    ) -> Departure | None:
        """The suspect that explains most of the remaining loss."""
        best, most = None, 0.0
        for suspect in suspects:
            part = suspect.cells & self.cells.measured_mask
            if (part & remaining).sum() < max(2, _DEPARTING_SHARE * part.sum()):
                continue
            positions = positions_of(part & remaining)
            losses = np.array([-self.departures[position] for position in positions])
            share = max(_DEPARTING_SHARE, 1.0 - 1.0 / len(losses))
            if np.mean(losses > self.scatter.matters / 2.0) < share:
                continue
            departure = self._departure(suspect, positions, comparisons)
            if departure is None:
                continue
            # A larger suspect that includes cells without a loss explains no more.
            explained = float(np.clip(losses, 0.0, departure.loss * 1.5).sum())
            if explained > most * 1.05:
                best, most = departure, explained
        return best

    def _departure(
        self, suspect: Suspect | None, positions: Sequence[Position], comparisons: int
    ) -> Departure | None:
        natural = self.scatter.natural
        losses = np.array([-self.departures[position] for position in positions])
        errors = np.array([self.scatter.error[position] for position in positions])
        noise = np.mean(errors**2 - natural**2)
        noise *= (_MEDIAN_VARIANCE if len(positions) > 2 else 1.0) / len(positions)
        error = float(np.sqrt(noise + natural**2))
        return self._if_clear(suspect, positions, float(np.median(losses)), error, comparisons)

    def _if_clear(
        self,
        suspect: Suspect | None,
        positions: Sequence[Position],
        loss: float,
        error: float,
        comparisons: int,
    ) -> Departure | None:
        """A loss with its interval, if it is clear and matters."""
        clear, confidence = is_significant_and_large(loss, error, self.scatter, comparisons)
        if not clear:
            return None
        half = critical_value(self.scatter.freedom, 0.025) * error
        return Departure(suspect, tuple(positions), loss, loss - half, loss + half, confidence)

    def loss_against_better_cell(
        self, worse: Position, better: Position, error: float, comparisons: int
    ) -> Departure | None:
        """The loss of one cell against a cell that it should equal or exceed, if it is clear.

        Args:
            worse: position of the worse cell.
            better: position of the better cell.
            error: standard deviation of their difference.
            comparisons: number of tested pairs.
        """
        loss = float(self.cells.log_score[better] - self.cells.log_score[worse])
        return self._if_clear(None, [worse], loss, error, comparisons)

    def build_anomaly(
        self,
        departure: Departure,
        kind: str,
        components: tuple[str, ...],
        what: str,
        advice: str,
        *,
        than: str = " than comparable cells",
        compared_with: str | None = None,
        reference: Position | None = None,
        cells: Sequence[Position] | None = None,
        seen_at: tuple[int | str | None, int | str | None] | None = None,
    ) -> Anomaly:
        """The anomaly of a departure from the group, or from a reference cell.

        The sentence begins with `what` is slow and ends with `than`. `reference` is the position of
        the reference cell. `cells` are the positions of the cells that the anomaly explains; with a
        reference, the first of them is `seen_at`. For the other arguments see `Anomaly.from_loss`.
        """
        positions: tuple[Position, ...] = departure.cells
        values = self.cells.log_score
        expected = np.median([self.expected[position] for position in positions])
        if reference is not None:
            expected = values[reference]
        metric = self.cells.metric
        compared = (*positions, *([reference] if reference is not None else []))
        loss = Loss(
            metric=metric,
            observed=self.cells.value_of_score(
                float(np.median([values[cell] for cell in positions]))
            ),
            expected=self.cells.value_of_score(float(expected)),
            loss_percent=loss_percent(-departure.loss, metric),
            loss_low=loss_percent(-departure.low, metric),
            loss_high=loss_percent(-departure.high, metric),
            confidence=limit_confidence(self.cells, departure.confidence),
            n=int(min(self.cells.n[position] for position in compared)),
        )
        between = f" in the median of {len(positions)} cells" if len(positions) > 1 else ""
        if compared_with is None:
            labels = {int(self.labels[position]) for position in positions}
            others = int(np.isin(self.labels, list(labels)).sum()) - len(positions)
            compared_with = f"{others} other values of the same relation"
        names = tuple(self.cells.names_at(position) for position in cells or positions)
        return Anomaly.from_loss(
            loss,
            kind,
            components,
            names,
            sentence=f"{what} {loss.text(between)}{than}.",
            advice=advice,
            compared_with=compared_with,
            seen_at=names[0] if reference is not None else seen_at,
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
            yield Suspect("initiator", name, self.cells.row_or_column_mask(row))

    def target_suspects(self, part: str) -> Iterator[Suspect]:
        """Each target with its cells, under the name of this part."""
        for column, name in enumerate(self.cells.columns):
            yield Suspect(part, name, self.cells.row_or_column_mask(column=column))

    @property
    def tested_mask(self) -> NDArray[np.bool_]:
        """Mask of the measured cells that are tested."""
        tested: NDArray[np.bool_] = ~self.untested & self.cells.measured_mask
        return tested
