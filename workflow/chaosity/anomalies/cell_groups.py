"""Find anomalies in groups of cells that should be equal, and estimate how much cells scatter.

The groups of cells in a node matrix are learned from the matrix itself (`matrix_structure`). The
groups for drives, cores and L3 domains follow from the topology. Cells of one group have, for
example, the same relation and distance, the same number of threads, or drives of the same model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.anomaly_results import (
    Anomaly,
    AnomalyKind,
    SliceKey,
    advice_text,
    shared_initiator_and_target,
    values_and_loss_text,
)
from chaosity.anomalies.cell_log_scores import (
    HOST_FALSE_ALARM_LEVEL,
    Departure,
    Mask,
    Name,
    Position,
    ScatterWithoutFaults,
    ScoredCells,
    Scores,
    SuspectedComponent,
    cell_positions_in_mask,
    estimate_scatter_without_faults,
    mask_of_cells,
    score_cells,
)
from chaosity.place_names import place_in_words
from chaosity.statistics.estimates import lost_share
from chaosity.store.measurements import less_is_better
from chaosity.text_templates import texts_of_yaml_file

# Largest number of initiators or targets of a group in which any of them can be the faulty one.
_MOST_MEMBERS_OF_AMBIGUOUS_GROUP = 2
# Fewest departing cells of a suspected component. A single departing cell is reported without a
# suspected component.
_FEWEST_DEPARTING_CELLS_OF_SUSPECT = 2
SINGLE_CELL = "cell"  # a single cell as a suspect
# Least share of a suspect's cells that must depart from their groups, since noise may hide the loss
# of the other cells.
_LEAST_SHARE_OF_DEPARTING_CELLS = 0.75
# Variance of the median of many values divided by the variance of their mean; used for more than
# two values.
_VARIANCE_OF_MEDIAN_TO_MEAN = np.pi / 2.0
# Probability that a test finds the smallest detectable loss.
_DETECTION_PROBABILITY = 0.95
# Number of the group of each cell; -1 for a cell that was not measured.
Labels = NDArray[np.int_]


def best_middle_score_of_each_group(cells: ScoredCells[Name], labels: Labels) -> Scores:
    """Return the score that the cells of each group typically have on a healthy machine.

    The typical score is the median of the group. Of an even number of cells, the better one of the
    two middle scores counts: faults make values worse, so the better score shows what the machine
    can do.
    """
    expected = np.full(labels.max() + 1, np.nan)
    for label in range(len(expected)):
        values = np.sort(cells.log_score[labels == label])
        if len(values):
            expected[label] = values[len(values) // 2]
    return expected


@dataclass(frozen=True)
class ComparedCells(Generic[Name]):
    """Cells with their expected scores; `GroupedCells` explains the attributes."""

    cells: ScoredCells[Name]
    expected: Scores
    departures: Scores
    scatter: ScatterWithoutFaults

    @property
    def departing_mask(self) -> Mask:
        """The mask of the cells that lose more than half of the smallest loss that is reported.

        The limit is only half of the smallest reported loss, since noise may hide the other half.
        """
        departing: Mask = -self.departures > self.scatter.smallest_reported_loss / 2.0
        return departing

    def departure_of_suspect(
        self, suspect: SuspectedComponent, remaining: Mask, comparisons: int, least_cells: int
    ) -> Departure | None:
        """Return the departure of a suspect's remaining cells if it is clear for most of them.

        A slow component limits a cell only if the expected bandwidth of the cell is higher than the
        bandwidth that the component carries. So if some cells of the suspect do not depart, only
        cells with a higher expected bandwidth count. `remaining` is the mask of the cells that no
        other departure explains.
        """
        part = suspect.cells & self.cells.measured_mask & ~np.isnan(self.departures)
        departing = part & remaining & self.departing_mask
        some_do_not = departing.sum() < (part & remaining).sum()
        if departing.any() and some_do_not and not less_is_better(self.cells.metric):
            carries = float(np.median(self.cells.log_score[departing]))
            part = part & (self.expected > carries + self.scatter.smallest_reported_loss / 2.0)
        own = part & remaining
        if own.sum() < max(least_cells, _LEAST_SHARE_OF_DEPARTING_CELLS * part.sum()):
            return None
        if departing[own].mean() < max(_LEAST_SHARE_OF_DEPARTING_CELLS, 1.0 - 1.0 / own.sum()):
            return None
        noise = float(np.mean(self.scatter.error[own] ** 2)) - self.scatter.natural**2
        noise *= (_VARIANCE_OF_MEDIAN_TO_MEAN if own.sum() > 2 else 1.0) / own.sum()
        error = float(np.sqrt(noise + self.scatter.natural**2))
        positions, losses = cell_positions_in_mask(own), (-self.departures[own]).tolist()
        return self.scatter.departure_if_clear(suspect, positions, losses, error, comparisons)


class GroupedCells(Generic[Name]):
    """Cells in groups that should be equal, compared with the expected score of each group.

    Attributes:
        cells: the cells.
        labels: for each cell, the number of its group; -1 for a cell without a group.
        expected: expected score of each cell.
        departures: score of each cell minus its expected score.
        scatter: how much departures scatter on a machine without faults.
        where: the slice of the tidy table that has the cells; empty for a matrix without a tidy
            table.
        structural: the part of each cell's departure that the structure of the machine explains.
        limits: for each cell, the highest score that other measurements allow; NaN without a limit.
    """

    def __init__(
        self,
        cells: ScoredCells[Name],
        labels: Labels,
        where: SliceKey | None = None,
        structural: Scores | None = None,
    ) -> None:
        """Compare each cell with the expected score of its group."""
        self.cells: ScoredCells[Name] = cells
        self.labels, self.where = labels, where or {}
        self.structural = np.zeros(labels.shape) if structural is None else structural
        self.limits: Scores = np.full(labels.shape, np.nan)
        self.compare_with_cells_without_fault(cells.measured_mask)

    def compare_with_cells_without_fault(self, unexplained: Mask) -> None:
        """Compare all cells with the median of those cells of their group that have no known fault.

        `unexplained` is the mask of the cells without a known fault, which no departure explains so
        far.
        """
        found = self._compare_with_reference_cells(unexplained)
        # If all cells of a group have a known fault, they are compared with the median of the
        # group.
        itself = self.expected_scores(self.labels >= 0)
        self.expected: Scores = np.where(np.isnan(found.expected), itself, found.expected)
        self.departures: Scores = self.cells.log_score - self.expected
        self.scatter: ScatterWithoutFaults = found.scatter

    @property
    def comparison(self) -> ComparedCells[Name]:
        """The comparison of all cells with their expected scores."""
        return ComparedCells(self.cells, self.expected, self.departures, self.scatter)

    def _compare_with_reference_cells(self, references: Mask) -> ComparedCells[Name]:
        """Return all cells compared with the reference cells of their groups; NaN without any."""
        expected = self.expected_scores(references)
        departures = self.cells.log_score - expected
        labels = np.where(references, self.labels, -1)
        scatter = estimate_scatter_without_faults(self.cells, departures, self.labels, labels)
        return ComparedCells(self.cells, expected, departures, scatter)

    def expected_scores(self, references: Mask) -> Scores:
        """Return the expected score of each cell: the median of its group, or a lower limit.

        `references` is the mask of the cells that count for the medians. The median of a group
        without reference cells is NaN.
        """
        known = references & (self.labels >= 0)
        alike = pd.Series((self.cells.log_score - self.structural)[known])
        medians = alike.groupby(self.labels[known]).median()
        # The label -1 takes the last item, which is NaN.
        of_groups = np.full(int(self.labels.max(initial=-1)) + 2, np.nan)
        of_groups[medians.index] = medians
        expected: Scores = of_groups[self.labels] + self.structural
        return np.where(self.limits < expected, self.limits, expected)

    def loss_against_cell(
        self, worse: Position, better: Position, error: float, comparisons: int
    ) -> Departure | None:
        """Return the loss of a cell against one that should not be better; None if not clear.

        `error` is the standard deviation of the difference of the two scores.
        """
        loss = float(self.cells.log_score[better] - self.cells.log_score[worse])
        return self.scatter.departure_if_clear(None, [worse], [loss], error, comparisons)

    def smallest_detectable_loss_percent(self, tests_count: int = 1) -> float:
        """Return in per cent the smallest loss of a cell that a test detects in 95 % of cases.

        Losses below `scatter.smallest_reported_loss` are not reported, so the result is above this
        limit. `tests_count` is the number of all tests of the machine, since each further test is a
        further chance of a false alarm.
        """
        measured, scatter = self.cells.measured_mask, self.scatter
        error = float(np.nanmedian(scatter.error[measured]))
        clear = (
            stats.t.isf(
                HOST_FALSE_ALARM_LEVEL / (int(measured.sum()) * tests_count), scatter.freedom
            )
            * error
        )
        least = max(clear, -np.log1p(-scatter.smallest_reported_loss))
        log_loss = float(least + stats.norm.ppf(_DETECTION_PROBABILITY) * error)
        return 100.0 * lost_share(log_loss, self.cells.metric)

    def find_departing_suspects_and_cells(
        self, suspects: Sequence[SuspectedComponent], excluded: Mask, tests_count: int = 1
    ) -> list[Departure]:
        """Return departures of suspects and of single cells, those that explain most loss first.

        A cell that a departure explains is not tested again, and no other cell is compared with it.

        Args:
            suspects: components that may be slow. Of two components that explain about as much
                loss, the first is chosen.
            excluded: mask of the cells that are not reported.
            tests_count: number of all tests of the machine.
        """
        remaining = self.cells.measured_mask & ~excluded & (self.labels >= 0)
        # Each suspect and each cell is a hypothesis; several suspects with the same cells are one.
        masks = [suspect.cells & remaining for suspect in suspects]
        of_several = {
            mask.tobytes() for mask in masks if mask.sum() >= _FEWEST_DEPARTING_CELLS_OF_SUSPECT
        }
        comparisons = (int(remaining.sum()) + len(of_several)) * tests_count
        found = []
        cells = [
            SuspectedComponent(SINGLE_CELL, "", mask_of_cells([position], remaining.shape))
            for position in cell_positions_in_mask(remaining)
        ]
        for tested, least in ((suspects, _FEWEST_DEPARTING_CELLS_OF_SUSPECT), (cells, 1)):
            while best := self._best_suspect(tested, remaining, comparisons, least):
                departure, explained = best
                found.append(replace(departure, suspect=None) if least == 1 else departure)
                remaining &= ~explained
                self.compare_with_cells_without_fault(remaining)
        return found

    def mask_of_explained_cells(
        self, departure: Departure, comparison: ComparedCells[Name]
    ) -> Mask:
        """Return the mask of the cells that a departure explains, with other cells of its suspect.

        Other cells of the suspect count as explained if they depart in `comparison`, which compares
        cells of the suspect with cells outside of the suspect.
        """
        assert departure.suspect is not None
        own = mask_of_cells(departure.cells, self.departures.shape)
        return own | (departure.suspect.cells & comparison.departing_mask)

    def mask_of_references(self, suspect: SuspectedComponent, remaining: Mask) -> Mask:
        """Return the mask of the remaining cells with which a suspect's cells are compared."""
        return remaining & ~suspect.cells

    def is_contradicted(self, departure: Departure, comparison: ComparedCells[Name]) -> bool:
        """Return whether some of the departure's cells show that its suspect is not slow.

        `comparison` compares the suspect's cells with cells outside of the suspect. Here, the share
        of departing cells has already decided.
        """
        return False

    def _best_suspect(
        self,
        suspects: Sequence[SuspectedComponent],
        remaining: Mask,
        comparisons: int,
        least_cells: int,
    ) -> tuple[Departure, Mask] | None:
        """Return the departure that explains most loss, and the mask of the cells it explains.

        Cells of a suspect are compared with cells outside of the suspect, since cells of the
        suspect show neither how fast the machine is without the fault nor how much healthy cells
        scatter.
        """
        best, most = None, 0.0
        for suspect in suspects:
            references = self.mask_of_references(suspect, remaining)
            own = suspect.cells & remaining
            if not self._is_worth_testing(own, remaining, references, least_cells):
                continue
            outside = self._compare_with_reference_cells(references)
            departure = outside.departure_of_suspect(suspect, remaining, comparisons, least_cells)
            if departure is None or self.is_contradicted(departure, outside):
                continue
            explained = self.mask_of_explained_cells(departure, outside)
            # Cells without a loss count as 0, so that a suspect with more cells without loss
            # explains no more loss.
            losses = np.clip(-outside.departures[explained & remaining], 0.0, departure.loss * 1.5)
            # Of two suspects that explain the same cells, the one with fewer cells says more.
            is_part = best is not None and self._is_part_of(departure, explained, *best)
            if is_part or np.nansum(losses) > most * 1.05:
                best, most = (departure, explained), float(np.nansum(losses))
        return best

    def _is_part_of(
        self, departure: Departure, explained: Mask, other: Departure, other_explained: Mask
    ) -> bool:
        """Return whether a departure has the same cells as another one, and a smaller suspect."""
        assert departure.suspect is not None
        assert other.suspect is not None
        is_smaller = departure.suspect.cells.sum() < other.suspect.cells.sum()
        same = departure.cells == other.cells and np.array_equal(explained, other_explained)
        return bool(is_smaller and same)

    def _is_worth_testing(
        self, own: Mask, remaining: Mask, references: Mask, least_cells: int
    ) -> bool:
        """Return whether a suspect, whose remaining cells are `own`, is worth a test.

        A suspect is worth a test if enough of its cells depart. A suspect is also worth a test if
        most remaining cells of one of its groups are no references, because then these cells decide
        the median of the group.
        """
        if (own & self.comparison.departing_mask).sum() >= least_cells:
            return True
        if own.sum() < 2:
            return False
        of_suspect, sizes, others = (
            np.bincount(self.labels[mask], minlength=int(self.labels.max()) + 1)
            for mask in (own, remaining, references)
        )
        return bool(((of_suspect > 0) & (2 * others < sizes)).any())

    def build_anomaly(
        self,
        departure: Departure,
        text_key: str,
        names: Iterable[object],
        components: tuple[str, ...],
        *,
        than: str = " than comparable cells",
        compared_with: str | None = None,
        reference: Position | None = None,
        cells: Sequence[Position] | None = None,
        seen_at: tuple[int | str | None, int | str | None] | None = None,
    ) -> Anomaly:
        """Return the anomaly for a departure from a group or from a reference cell.

        `text_key` is a key below `found` in ``templates/texts/anomalies.yaml``, which has the kind,
        the begin of the sentence and the advice. `names` are inserted into the begin of the
        sentence, and the sentence ends with `than`. `reference` is the position of the reference
        cell. `cells` has the positions of the explained cells, by default the cells of the
        departure. `seen_at` is the initiator and target that the anomaly names. The default of
        `seen_at` is the first explained cell if there is a reference, or else the initiator and
        target that all explained cells share. All other arguments are attributes of `Anomaly`.
        """
        positions: tuple[Position, ...] = departure.cells
        scores, metric = self.cells.log_score, self.cells.metric
        score = float(np.median([scores[position] for position in positions]))
        observed = self.cells.value_of_score(score)
        expected = self.cells.value_of_score(score + departure.loss)
        percent, low, high = (
            100.0 * lost_share(loss, metric)
            for loss in (departure.loss, departure.low, departure.high)
        )
        if compared_with is None:
            labels = [self.labels[position] for position in positions]
            others = int(np.isin(self.labels, labels).sum()) - len(positions)
            compared_with = f"{others} other values of the same relation"
        places = tuple(self.cells.initiator_and_target(position) for position in cells or positions)
        initiator, target = seen_at or shared_initiator_and_target(
            places[:1] if reference is not None else places
        )
        between = f" in the median of {len(positions)} cells" if len(positions) > 1 else ""
        values = values_and_loss_text(metric, observed, expected, percent, between)
        text = texts_of_yaml_file("anomalies")["found"][text_key]
        words = (place_in_words(name) if isinstance(name, str) else name for name in names)
        what = text["text"].format(*words)
        compared = [*positions, *([] if reference is None else [reference])]
        return Anomaly(
            kind=AnomalyKind(text["kind"]),
            initiator=initiator,
            target=target,
            components=components,
            metric=metric,
            observed=observed,
            expected=expected,
            loss_percent=percent,
            loss_percent_low=low,
            loss_percent_high=high,
            confidence=self.cells.limit_confidence(departure.confidence),
            p_value=1.0 - departure.confidence,
            n=int(min(self.cells.n[position] for position in compared)),
            compared_with=compared_with,
            sentence=f"{what[:1].upper()}{what[1:]} {values}{than}.",
            advice=advice_text(text.get("advice", text_key)),
            cells=places,
            where=self.where,
        )


class TidyTableSliceCells(GroupedCells[str]):
    """The cells of one slice of the tidy table, grouped by the values of some columns.

    Attributes:
        first_rows: (initiator, target) -> first row of the tidy table.
        untested: mask of the cells that have too few comparable cells to show which cell is slow.
    """

    def __init__(self, rows: pd.DataFrame, where: SliceKey, columns: Sequence[str]) -> None:
        """Group the valid rows of a slice; cells with equal values in `columns` are comparable."""
        firsts = rows.drop_duplicates(["initiator", "target"]).to_dict("records")
        self.first_rows = {(str(row["initiator"]), str(row["target"])): row for row in firsts}
        values = rows.set_index(["initiator", "target"])["value"]
        sources, targets = (rows[name].unique().tolist() for name in ("initiator", "target"))
        cells = score_cells(str(where["metric"]), values, sources, targets, rows["replicate"])
        numbers: dict[tuple[str, ...], int] = {}
        labels = np.full(cells.log_score.shape, -1)
        for position in cell_positions_in_mask(cells.measured_mask):
            row = self.first_rows[cells.initiator_and_target(position)]
            key = tuple(str(row[column]) for column in columns)
            labels[position] = numbers.setdefault(key, len(numbers))
        super().__init__(cells, labels, where)
        self.untested = np.zeros(labels.shape, dtype=bool)
        for label in range(len(numbers)):
            part = labels == label
            if (
                max(part.any(axis=1).sum(), part.any(axis=0).sum())
                <= _MOST_MEMBERS_OF_AMBIGUOUS_GROUP
            ):
                self.untested |= part

    def initiators_or_targets_as_suspects(
        self, part: str, axis: int
    ) -> Iterator[SuspectedComponent]:
        """Yield each initiator (`axis` 0) or target (`axis` 1) as a suspect of the kind `part`."""
        for number, name in enumerate((self.cells.rows, self.cells.columns)[axis]):
            of_axis = np.indices(self.labels.shape)[axis]
            yield SuspectedComponent(part, name, of_axis == number)

    @property
    def tested_mask(self) -> Mask:
        """The mask of the measured cells that are tested."""
        tested: Mask = ~self.untested & self.cells.measured_mask
        return tested
