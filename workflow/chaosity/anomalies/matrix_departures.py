"""Compare a node matrix with its structure, and find departing cells and suspected components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
from scipy import stats

from chaosity.anomalies import anomaly_text as text
from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.anomalies.cell_groups import GroupedCells, best_middle_score_of_each_group
from chaosity.anomalies.cell_log_scores import Position, ScoredCells, cell_positions_in_mask
from chaosity.anomalies.departure_significance import (
    LEVEL,
    SuspectedComponent,
)
from chaosity.anomalies.matrix_structure import NONE, EqualCellGroups
from chaosity.anomalies.node_positions import losses_explained_by_node_position
from chaosity.place_names import initiator_to_target_name, node_name, package_name, place_words
from chaosity.statistics.significance_tests import MATTERS, MATTERS_IN_ONE_RUN
from chaosity.units import format_quantity, join_with_and

# A suspected part of a node, not a path.
_OF_A_NODE = (text.TARGET, text.INITIATOR, text.LINKS, text.LOCAL, text.PROCESSING_UNITS)


class MatrixAnalysis(GroupedCells[int]):
    """A node matrix with its structure and the departures from it.

    Attributes:
        structure, looks, units: the arguments of `analyse_one_of_matrices`.
        remote_better: remote cells that are better than a local cell, see
            `_remote_cells_better_than_local`.
        labels: group of each cell; -1 if it was not measured or does not represent its group.
        found: the departures of cells and components.
    """

    def __init__(
        self,
        cells: ScoredCells[int],
        structure: EqualCellGroups,
        looks: int,
        units: Mapping[int, str],
    ) -> None:
        """Compare the cells with their groups; rows and columns of the cells are node numbers."""
        self.structure, self.looks, self.units = structure, looks, units
        self.remote_better = _remote_cells_better_than_local(cells, structure)
        labels = structure.labels.copy()
        for remote, _ in self.remote_better:
            # This cell is better than local memory and better than its group. It is an exception,
            # so the other cells of the group are not compared with it.
            group = structure.labels == structure.labels[remote]
            group[remote] = False
            level = np.median(cells.log_score[group]) if group.any() else -np.inf
            if cells.log_score[remote] - level > MATTERS:
                labels[remote] = -1
        best = np.append(best_middle_score_of_each_group(cells, labels), np.nan)
        structural = losses_explained_by_node_position(
            cells, cells.log_score - best[labels], labels, structure.packages
        )
        super().__init__(cells, labels, structural=structural)
        self.found = self.find_departing_suspects_and_cells(
            list(self._suspects()), labels < 0, looks
        )

    @property
    def has_comparable_cells(self) -> bool:
        """Whether a loss is detectable: in groups of one cell it is not."""
        return bool((np.bincount(self.labels[self.labels >= 0]) > 1).any())

    def smallest_detectable_loss_percent(self, looks: int = 1) -> float:
        """Return the smallest detectable loss of a cell; each of the `looks` is at all matrices."""
        return super().smallest_detectable_loss_percent(looks * self.looks)

    def _suspects(self) -> Iterator[SuspectedComponent]:
        cells, packages = self.cells, self.structure.packages or ()
        remote = ~cells.local_mask
        for node in cells.columns:
            yield SuspectedComponent(text.TARGET, node, cells.mask_of_place(target=node))
            yield SuspectedComponent(text.INTO, node, cells.mask_of_place(target=node) & remote)
        for node in cells.rows:
            yield SuspectedComponent(text.INITIATOR, node, cells.mask_of_place(initiator=node))
            yield SuspectedComponent(
                text.OUT_OF, node, cells.mask_of_place(initiator=node) & remote
            )
        for node in cells.rows:
            if node in cells.columns:
                yield SuspectedComponent(text.LINKS, node, cells.mask_of_place(node, node) & remote)
        for source, target in permutations(range(len(packages)), 2):
            rows = np.isin(cells.rows, packages[source])
            columns = np.isin(cells.columns, packages[target])
            yield SuspectedComponent(
                text.BLOCK, (source, target), np.logical_and.outer(rows, columns)
            )
        for one, other in combinations([node for node in cells.rows if node in cells.columns], 2):
            there = cells.mask_of_path(one, other)
            yield SuspectedComponent(
                text.BOTH_WAYS, (one, other), there | cells.mask_of_path(other, one)
            )

    def find_slow_components_and_paths(self) -> Iterator[Anomaly]:
        """Yield an anomaly for each departure: a slow component or a slow path."""
        for departure in self.found:
            suspect, seen_at, than = departure.suspect, None, " than comparable cells"
            source, target = self.cells.initiator_and_target(departure.cells[0])
            numbers: tuple[int, ...]
            if suspect is not None:
                part = suspect.part
                if isinstance(suspect.name, tuple):
                    numbers = suspect.name
                    name = package_name if part == text.BLOCK else node_name
                    component = initiator_to_target_name(*map(name, numbers))
                    seen_at = (None, None)
                else:
                    numbers = (int(suspect.name),)
                    component = node_name(*numbers)
                what = f"{text.suspected_part_text(part, *numbers)}:"
                if part == text.INITIATOR and numbers[0] in self.units:
                    part, component = text.PROCESSING_UNITS, self.units[numbers[0]]
                    what = f"{place_words(component)} is slow on memory:"
            elif source == target:
                part, component, than = text.LOCAL, node_name(target), " than other nodes"
                what = f"{text.suspected_part_text(part, target)}:"
            else:
                part = text.PATH
                component = initiator_to_target_name(node_name(source), node_name(target))
                verb = text.verb_before_value(self.cells.metric)
                path = f"The path from node {source} to the memory of node {target}"
                what = f"{path} is slow: it {verb}"
            anomaly = self.build_anomaly(
                departure,
                AnomalyKind.SLOW_COMPONENT if part in _OF_A_NODE else AnomalyKind.SLOW_PATH,
                (component,),
                what,
                part,
                than=than,
                compared_with=self._compared_with(departure.cells),
                seen_at=seen_at,
            )
            yield replace(anomaly, also=self._opposite_direction(source, target, part))

    def _opposite_direction(self, source: int, target: int, part: str) -> tuple[str, ...]:
        """Return a sentence on the opposite direction of a slow path, if it is not slow."""
        opposite = self.cells.mask_of_path(target, source) & self.cells.measured_mask
        if part != text.PATH or not (opposite & ~self.comparison.departing_mask).any():
            return ()
        value = self.cells.value_of_score(float(self.cells.log_score[opposite][0]))
        verb = text.verb_before_value(self.cells.metric)
        shown = format_quantity(self.cells.metric, value)
        return (f"The opposite direction {verb} {shown}.",)

    def _compared_with(self, positions: Sequence[Position]) -> str:
        """Return a text with the number of comparable cells and their groups."""
        groups = dict.fromkeys(
            self.structure.names[self.structure.labels[position]] for position in positions
        )
        total = int(np.isin(self.labels, [self.labels[position] for position in positions]).sum())
        noun = "group" if len(groups) == 1 else "groups"
        others = max(0, total - len(positions))
        return f"{others} other cells of the {noun} {join_with_and([*groups])}"


def _remote_cells_better_than_local(
    cells: ScoredCells[int], structure: EqualCellGroups
) -> list[tuple[Position, Position]]:
    """Return pairs of positions: a remote cell, and a local cell that is clearly worse.

    A remote cell is compared with the local cell of its initiator and with that of its target. Only
    nodes with units and memory count, since memory of another kind (HBM) can be better.
    """
    if structure.kind == NONE:
        return []
    noise = np.hypot(cells.typical_standard_error, 0.01)
    error = float(np.sqrt(2.0) * noise)
    comparisons = int(cells.measured_mask.sum())
    matters = MATTERS if cells.freedom else MATTERS_IN_ONE_RUN
    clear = stats.t.isf(LEVEL / comparisons, cells.freedom or np.inf) * error
    least = max(clear, -np.log1p(-matters))
    found: list[tuple[float, Position, Position]] = []
    for remote in cell_positions_in_mask(cells.measured_mask & ~cells.local_mask):
        source, target = cells.initiator_and_target(remote)
        if target not in cells.rows:
            continue
        local_cells = [(cells.rows.index(target), remote[1])]
        if source in cells.columns:
            local_cells.insert(0, (remote[0], cells.columns.index(source)))
        gains = [float(cells.log_score[remote] - cells.log_score[local]) for local in local_cells]
        large = [pair for pair in zip(gains, local_cells, strict=True) if pair[0] > least]
        found += [(gain, remote, local) for gain, local in large[:1]]
    found.sort(key=lambda entry: -entry[0])
    return [(remote, local) for _, remote, local in found]
