"""Whether a departure is how the machine is built: it recurs where a symmetry maps the machine.

On a Broadwell in cluster-on-die mode the second cluster of each package reaches the first one
faster than the first the second. Both packages show it to 0.3 %, so it is no fault. A symmetry is a
permutation of the nodes that leaves every measured value what it was; a fault breaks all those that
move it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.anomalies.scored_cells import NATURAL, Cell, ScoredCells

# Steps of the search for all permutations that are tried for one cell. A regular machine needs one
# step a node, and a search that fails fails early.
_MOST_STEPS = 20_000
# A twin departs alike when it does so by at least so much of the departure: noise takes from the
# one and adds to the other, and where nothing is there is nothing to take from.
_ALIKE = 0.4


def recurs(
    cells: ScoredCells,
    departures: NDArray[np.float64],
    at: tuple[int, int],
    packages: PackageNodes | None,
) -> bool:
    """Whether a cell's departure recurs elsewhere on the machine, as structure does.

    Args:
        cells: of a matrix of nodes.
        departures: of the cells from their classes.
        at: place (row, column) of the cell.
        packages: of the nodes, if there are any.

    Returns:
        True when symmetries map the cell to places that share no node with it, where the departure
        is alike, and when those places and its own begin and end in every package, or without
        packages touch more than half of the nodes: two equal faults are no structure, and neither
        is one link between packages that all their nodes share.
    """
    if cells.rows != cells.columns or not cells.measured.all():
        return False
    size = len(cells.rows)
    sigma = np.hypot(NATURAL, float(np.median(cells.error)))
    # Differences of two cells, three standard deviations of them.
    allowed = 3.0 * np.sqrt(2.0) * sigma
    search = _Search(cells.log_score, allowed)
    places, apart = [at], False
    for twin in _alike(departures, at):
        if not search.maps(at, twin):
            continue
        places.append(twin)
        apart |= not set(twin) & set(at)
        if apart and _everywhere([cells.cell(*place) for place in places], packages, size):
            return True
    return False


def by_position(
    cells: ScoredCells,
    departures: NDArray[np.float64],
    labels: NDArray[np.int_],
    packages: PackageNodes | None,
) -> NDArray[np.float64]:
    """What of each departure is explained by where its nodes lie in their packages.

    A node that is far from its package's links is somewhat slower both ways, and adds to what the
    other end adds. Such an effect is the machine's when every package has a node with it; that of a
    single node is its fault.

    Returns:
        The explained part, at most 0; shape as the departures.
    """
    explained = np.zeros(departures.shape)
    if not packages or len(packages) < 2:
        return explained
    for label in np.unique(labels[labels >= 0]):
        part = np.where(labels == label, departures, np.nan)
        rows = _effects(part, cells.rows, packages)
        columns = _effects((part - rows[:, None]).T, cells.columns, packages)
        explained += np.where(labels == label, rows[:, None] + columns[None, :], 0.0)
    return explained


def _effects(
    part: NDArray[np.float64], nodes: tuple[object, ...], packages: PackageNodes
) -> NDArray[np.float64]:
    """Median departure of each line, where a node of every package shares it, else 0."""
    some = ~np.isnan(part).all(axis=1)
    typical = np.zeros(len(part))
    typical[some] = np.nanmedian(part[some], axis=1)
    of = {node: typical[i] for i, node in enumerate(nodes)}
    return np.array(
        [
            effect
            if effect < 0.0
            and all(
                any(of.get(node, 0.0) <= _ALIKE * effect for node in package)
                for package in packages
            )
            else 0.0
            for effect in typical
        ]
    )


def _alike(departures: NDArray[np.float64], at: tuple[int, int]) -> Iterator[tuple[int, int]]:
    own = departures[at]
    for row, column in zip(*np.nonzero(departures / own >= _ALIKE), strict=True):
        if (row, column) != at and (row == column) == (at[0] == at[1]):
            yield int(row), int(column)


def _everywhere(found: Sequence[Cell], packages: PackageNodes | None, size: int) -> bool:
    sources, sinks = {source for source, _ in found}, {sink for _, sink in found}
    if packages and len(packages) > 1:
        return all(sources & set(nodes) and sinks & set(nodes) for nodes in packages)
    return len(sources | sinks) > size / 2


class _Search:
    """Looks for permutations of the nodes that leave all values alike."""

    def __init__(self, log_score: NDArray[np.float64], allowed: float) -> None:
        """Say which node can go to the place of which.

        Args:
            log_score: of all cells; square.
            allowed: what two values may differ by.
        """
        self.log_score, self.allowed, self.steps = log_score, allowed, 0
        # A permutation that leaves all values alike leaves them alike in their order too.
        ordered = [
            np.sort(log_score, axis=1),
            np.sort(log_score.T, axis=1),
            np.diag(log_score)[:, None],
        ]
        self.possible = np.ones(log_score.shape, dtype=bool)
        for part in ordered:
            self.possible &= (abs(part[:, None, :] - part[None, :, :]) <= allowed).all(axis=2)

    def maps(self, at: tuple[int, int], to: tuple[int, int]) -> bool:
        """Whether one of them takes one place to another."""
        left = self.possible
        for node, onto in dict(zip(at, to, strict=True)).items():
            if not left[node, onto]:
                return False
            left = self._chosen(left, node, onto)
        free = np.ones(len(left), dtype=bool)
        free[list(at)] = False
        return self._complete(left, free)

    def _chosen(self, left: NDArray[np.bool_], node: int, onto: int) -> NDArray[np.bool_]:
        """What remains possible for the others when a node goes to a place."""
        values = self.log_score
        left = left.copy()
        for here, there in ((values[node], values[onto]), (values[:, node], values[:, onto])):
            left &= abs(here[:, None] - there[None, :]) <= self.allowed
        left[:, onto] = False
        return left

    def _complete(self, left: NDArray[np.bool_], free: NDArray[np.bool_]) -> bool:
        if not free.any():
            return True
        # The node with the fewest places first: what cannot go on is seen at once.
        node = int(np.argmin(np.where(free, left.sum(axis=1), len(left) + 1)))
        free = free.copy()
        free[node] = False
        for onto in sorted(np.flatnonzero(left[node]), key=lambda place: place != node):
            self.steps += 1
            if self.steps > _MOST_STEPS:
                return False
            if self._complete(self._chosen(left, node, int(onto)), free):
                return True
        return False
