"""A node matrix compared with its structure: departing cells and suspected components."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies import anomaly_text as text
from chaosity.anomalies.anomaly_results import SLOW_COMPONENT, SLOW_PATH, Anomaly
from chaosity.anomalies.cell_groups import GroupedCells
from chaosity.anomalies.departure_significance import (
    LEVEL,
    MATTERS,
    MATTERS_IN_ONE_RUN,
    Departure,
    Suspect,
    critical_value,
    estimate_scatter,
)
from chaosity.anomalies.matrix_structure import NONE, Structure
from chaosity.anomalies.scored_cells import Position, ScoredCells, positions_of
from chaosity.anomalies.structural_departures import (
    is_repeated_by_symmetry,
    losses_explained_by_node_position,
)
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.units import join_with_and


class MatrixAnalysis(GroupedCells[int]):
    """A node matrix with its structure and the departures from it.

    Attributes:
        structure, looks: as given.
        remote_better: remote cells that are better than a local cell, see
            `_remote_cells_better_than_local`.
        labels: group of each cell; -1 also where the cell does not represent its group.
        structural: mask of the cells whose loss is structural.
        found: cells and components that depart.
    """

    def __init__(self, cells: ScoredCells[int], structure: Structure, looks: int) -> None:
        """Compare the cells with their groups.

        Args:
            cells: rows and columns are node numbers.
            structure: of the machine.
            looks: see `analyse_matrix`.
        """
        self.structure, self.looks = structure, looks
        self.remote_better = _remote_cells_better_than_local(cells, structure)
        labels = structure.labels.copy()
        for row, column, _ in self.remote_better:
            # A cell that is better than local memory and than its group does not show what its
            # group should reach.
            group = structure.labels == structure.labels[row, column]
            group[row, column] = False
            level = np.median(cells.log_score[group]) if group.any() else -np.inf
            if cells.log_score[row, column] - level > MATTERS:
                labels[row, column] = -1
        super().__init__(cells, labels)
        self.structural = self._structural()
        tested = np.where(self.structural, -1, labels)
        self.scatter = estimate_scatter(cells, self.departures, tested)
        self.found = self.find_departures(list(self._suspects()), self.structural, looks)

    def _structural(self) -> NDArray[np.bool_]:
        """Mask of the cells whose loss recurs over the machine."""
        structural = np.zeros(self.cells.log_score.shape, dtype=bool)
        limit = np.log1p(-MATTERS) / 2.0
        packages = self.structure.packages
        with np.errstate(invalid="ignore"):
            worse = self.departures < limit
        for position in positions_of(worse):
            structural[position] = is_repeated_by_symmetry(
                self.cells, self.departures, position, packages
            )
        explained = losses_explained_by_node_position(
            self.cells, self.departures, self.labels, packages
        )
        with np.errstate(invalid="ignore"):
            structural |= worse & (self.departures - explained > limit)
        return structural

    def _suspects(self) -> Iterator[Suspect]:
        cells = self.cells
        rows = {node: i for i, node in enumerate(cells.rows)}
        columns = {node: i for i, node in enumerate(cells.columns)}
        for node, column in columns.items():
            yield Suspect(text.TARGET, node, cells.row_or_column_mask(column=column))
            yield Suspect(
                text.INTO, node, cells.row_or_column_mask(column=column) & ~cells.local_mask
            )
        for node, row in rows.items():
            yield Suspect(text.INITIATOR, node, cells.row_or_column_mask(row))
            yield Suspect(text.OUT_OF, node, cells.row_or_column_mask(row) & ~cells.local_mask)
        for node in rows.keys() & columns.keys():
            both = cells.row_or_column_mask(rows[node], columns[node])
            yield Suspect(text.LINKS, node, both & ~cells.local_mask)
        for source, nodes in enumerate(self.structure.packages or ()):
            for target, others in enumerate(self.structure.packages or ()):
                if source != target:
                    mask = np.array(
                        [[r in nodes and c in others for c in cells.columns] for r in cells.rows]
                    )
                    yield Suspect(text.BLOCK, (source, target), mask)

    def find_slow_components_and_paths(self) -> Iterator[Anomaly]:
        """Slow components and slow paths."""
        for departure in self.found:
            compared_with = self._compared_with(departure.cells)
            if departure.suspect is None:
                yield self._slow_cell(departure, compared_with)
            else:
                yield self._slow_suspect(departure, departure.suspect, compared_with)

    def _compared_with(self, positions: tuple[Position, ...]) -> str:
        """Number and groups of the comparable cells."""
        groups = dict.fromkeys(
            self.structure.names[self.structure.labels[position]] for position in positions
        )
        labels = {int(self.labels[position]) for position in positions}
        total = sum(int((self.labels == label).sum()) for label in labels)
        noun = "group" if len(groups) == 1 else "groups"
        others = max(0, total - len(positions))
        return f"{others} other cells of the {noun} {join_with_and([*groups])}"

    def _slow_cell(self, departure: Departure, compared_with: str) -> Anomaly:
        source, target = self.cells.names_at(departure.cells[0])
        if source == target:
            return self.build_anomaly(
                departure,
                SLOW_COMPONENT,
                (node_name(target),),
                f"{text.suspect_text(text.LOCAL, target)}:",
                text.ADVICE[text.LOCAL],
                compared_with=compared_with,
                than=" than other nodes",
            )
        return self.build_anomaly(
            departure,
            SLOW_PATH,
            (initiator_to_target_name(node_name(source), node_name(target)),),
            f"The path from node {source} to the memory of node {target} is slow: it "
            f"{text.verb_for_metric(self.cells.metric)}",
            text.ADVICE[text.PATH],
            compared_with=compared_with,
        )

    def _slow_suspect(self, departure: Departure, suspect: Suspect, compared_with: str) -> Anomaly:
        whole_node = (text.TARGET, text.INITIATOR, text.LINKS)
        if isinstance(suspect.name, tuple):
            source, target = suspect.name
            what = f"The path from package {source} to package {target} is slow"
            components = (initiator_to_target_name(package_name(source), package_name(target)),)
        else:
            what = text.suspect_text(suspect.part, int(suspect.name))
            components = (node_name(int(suspect.name)),)
        return self.build_anomaly(
            departure,
            SLOW_COMPONENT if suspect.part in whole_node else SLOW_PATH,
            components,
            f"{what}:",
            text.ADVICE[suspect.part],
            compared_with=compared_with,
            seen_at=(None, None) if suspect.part == text.BLOCK else None,
        )


def _remote_cells_better_than_local(
    cells: ScoredCells[int], structure: Structure
) -> list[tuple[int, int, Position]]:
    """Remote cells that are clearly better than a local cell: row, column, position of the local.

    Two comparisons are made: the memories that one node reaches, and the nodes that reach one
    memory. Only nodes with units and memory count, since memory of another kind (HBM) may well be
    better.
    """
    if structure.kind == NONE:
        return []
    noise = np.hypot(np.nanmedian(cells.standard_error[cells.measured_mask]), 0.01)
    error = float(np.sqrt(2.0) * noise)
    comparisons = int(cells.measured_mask.sum())
    matters = MATTERS if cells.freedom else MATTERS_IN_ONE_RUN
    clear = critical_value(cells.freedom or np.inf, LEVEL / comparisons) * error
    least = max(clear, -np.log1p(-matters))
    found: list[tuple[float, int, int, Position]] = []
    for i, source in enumerate(cells.rows):
        for j, target in enumerate(cells.columns):
            if source == target or np.isnan(cells.log_score[i, j]) or target not in cells.rows:
                continue
            local_cells = [(cells.rows.index(target), j)]
            if source in cells.columns:
                local_cells.insert(0, (i, cells.columns.index(source)))
            for local in local_cells:
                gain = float(cells.log_score[i, j] - cells.log_score[local])
                if gain > least:
                    found.append((gain, i, j, local))
                    break
    found.sort(key=lambda entry: -entry[0])
    return [(row, column, local) for _, row, column, local in found]
