"""Decide that a departure is structural when a permutation of the nodes repeats it elsewhere.

Example: on a Broadwell in cluster-on-die mode, the second cluster of each package reaches the first
one faster than in the opposite direction. Both packages show this within 0.3 %, so it is not a
fault. A symmetry is a permutation of the nodes that does not change any measured value. If a cell
is faulty, no symmetry takes it to another cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.cell_log_scores import (
    NATURAL_SCATTER,
    Mask,
    Position,
    ScoredCells,
    Scores,
    cell_positions_in_mask,
)
from chaosity.anomalies.matrix_structure import NodePair, PackageNodes

# Most steps of the search for permutations, for one cell. A regular machine needs one step per
# node, and a search without a result ends early.
_MAX_STEPS = 20_000
# Noise makes equal departures different. So a departure is similar to another if it is at least
# this share of it.
_SIMILAR = 0.4


def is_repeated_by_symmetry(
    cells: ScoredCells[int],
    departures: Scores,
    position: Position,
    packages: PackageNodes | None,
) -> bool:
    """Return whether a cell's departure recurs elsewhere on the machine, as structure does.

    It recurs when symmetries map the cell to cells that depart similarly, at least one without a
    common node, and when all these cells together begin and end in every package. Without packages
    the cells have to involve more than half of the nodes: two equal faults are not structure, and
    neither is one link that all nodes of two packages share.

    Args:
        cells: a matrix of nodes.
        departures: difference of each cell from its group.
        position: position of the cell.
        packages: nodes of each package, if there are packages.
    """
    if cells.rows != cells.columns or not cells.measured_mask.all():
        return False
    size = len(cells.rows)
    sigma = np.hypot(NATURAL_SCATTER, float(np.median(cells.standard_error)))
    # Three standard deviations of the difference of two cells.
    search = _SymmetrySearch(cells.log_score, 3.0 * np.sqrt(2.0) * sigma)
    positions, disjoint = [position], False
    for other in _similar_cells(departures, position):
        if not search.some_permutation_maps_cell(position, other):
            continue
        positions.append(other)
        disjoint |= not set(other) & set(position)
        pairs = [cells.initiator_and_target(mapped) for mapped in positions]
        if disjoint and _spread_over_machine(pairs, packages, size):
            return True
    return False


def losses_explained_by_node_position(
    cells: ScoredCells[int],
    departures: Scores,
    labels: NDArray[np.int_],
    packages: PackageNodes | None,
) -> Scores:
    """Return the part of each departure, at most 0, that the position of its nodes explains.

    A node that is far from the links of its package is slightly slower as initiator and as target.
    This is structural when every package has such a node; in a single node it is a fault.
    """
    explained = np.zeros(departures.shape)
    if not packages or len(packages) < 2:
        return explained
    for label in np.unique(labels[labels >= 0]):
        part = np.where(labels == label, departures, np.nan)
        rows = _node_effects(part, cells.rows, packages)
        columns = _node_effects((part - rows[:, None]).T, cells.columns, packages)
        explained += np.where(labels == label, rows[:, None] + columns[None, :], 0.0)
    return explained


def _node_effects(part: Scores, nodes: tuple[int, ...], packages: PackageNodes) -> Scores:
    """Return the median departure of each row if every package has a similar node, else 0."""
    known = ~np.isnan(part).all(axis=1)
    effects = np.zeros(len(part))
    effects[known] = np.minimum(np.nanmedian(part[known], axis=1), 0.0)
    in_packages = [effects[np.isin(nodes, package)] for package in packages]
    # The largest loss in each package; 0 where no node of a package was measured.
    largest = np.array([own.min(initial=0.0) for own in in_packages])
    recurs = (largest[None, :] <= _SIMILAR * effects[:, None]).all(axis=1)
    return np.where(recurs, effects, 0.0)


def _similar_cells(departures: Scores, position: Position) -> Iterator[Position]:
    """Yield positions of other cells that depart similarly and are equally local or remote."""
    is_local = position[0] == position[1]
    for other in cell_positions_in_mask(departures / departures[position] >= _SIMILAR):
        if other != position and (other[0] == other[1]) == is_local:
            yield other


def _spread_over_machine(
    pairs: Sequence[NodePair], packages: PackageNodes | None, size: int
) -> bool:
    sources, targets = {source for source, _ in pairs}, {target for _, target in pairs}
    if packages and len(packages) > 1:
        return all(sources & set(nodes) and targets & set(nodes) for nodes in packages)
    return len(sources | targets) > size / 2


class _SymmetrySearch:
    """Search for permutations of the nodes that leave all values as they are."""

    def __init__(self, log_score: Scores, tolerance: float) -> None:
        """Find pairs of nodes that can replace each other; scores may differ by `tolerance`."""
        self.log_score, self.tolerance, self.steps = log_score, tolerance, 0
        # A permutation that leaves all values as they are leaves the sorted values as they are.
        rows, columns = np.sort(log_score, axis=1), np.sort(log_score.T, axis=1)
        sorted_values = np.hstack([rows, columns, np.diag(log_score)[:, None]])
        differences = abs(sorted_values[:, None, :] - sorted_values[None, :, :])
        self.possible: Mask = np.logical_and.reduce(differences <= tolerance, axis=2)

    def some_permutation_maps_cell(self, position: Position, to: Position) -> bool:
        """Return whether some permutation takes the cell at `position` to the cell at `to`."""
        possible = self.possible
        for node, onto in dict(zip(position, to, strict=True)).items():
            if not possible[node, onto]:
                return False
            possible = self._assign(possible, node, onto)
        unassigned = np.ones(len(possible), dtype=bool)
        unassigned[list(position)] = False
        return self._complete(possible, unassigned)

    def _assign(self, possible: Mask, node: int, onto: int) -> Mask:
        """Return the possible places of the other nodes after `node` takes the place `onto`."""
        values = self.log_score
        possible = possible.copy()
        for here, there in ((values[node], values[onto]), (values[:, node], values[:, onto])):
            possible &= abs(here[:, None] - there[None, :]) <= self.tolerance
        possible[:, onto] = False
        return possible

    def _complete(self, possible: Mask, unassigned: Mask) -> bool:
        if not unassigned.any():
            return True
        # The node with the fewest places first: a dead end is found at once.
        node = int(np.argmin(np.where(unassigned, possible.sum(axis=1), len(possible) + 1)))
        unassigned = unassigned.copy()
        unassigned[node] = False
        for onto in sorted(np.flatnonzero(possible[node]), key=lambda place: place != node):
            self.steps += 1
            if self.steps > _MAX_STEPS:
                return False
            if self._complete(self._assign(possible, node, int(onto)), unassigned):
                return True
        return False
