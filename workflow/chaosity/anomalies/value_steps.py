"""Steps of value among the cells of a matrix, as rings and meshes have them, and hops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.scored_cells import ScoredCells

Mask = NDArray[np.bool_]  # of cells


def all_steps(cells: ScoredCells, remote: Mask, gap: float) -> Iterator[list[Mask]]:
    """Steps in which both directions between two nodes are one class, and directed ones.

    The better direction says what class the two are, so that one that became slow stays with its
    siblings. Directed steps, as in a ring that goes round one way, have to recur.
    """
    log_score = cells.log_score
    if cells.rows == cells.columns:
        both = replace(cells, log_score=np.fmax(log_score, log_score.T))
        yield _steps(both, remote, gap, down=False)
        yield _steps(both, remote, gap, down=True)
        directed = _steps(cells, remote, gap, down=True)
        one_way = sum((step & ~step.T for step in directed), np.zeros(remote.shape, dtype=bool))
        if _recurs(one_way, remote):
            yield directed
    else:
        yield _steps(cells, remote, gap, down=True)


def _steps(cells: ScoredCells, part: Mask, gap: float, down: bool) -> list[Mask]:
    """ScoredCells in steps of log_score, best first; each step has all initiators and targets in it.

    Values are parted where they leave a gap. A step in which some initiator or target has no cell
    does not recur over the machine, so it is joined to a neighbour.

    Args:
        cells: the matrix.
        part: the cells to part.
        gap: on logarithms.
        down: join to the next worse step; else to the better one, since faults make worse.
    """
    values = np.sort(cells.log_score[part])[::-1]
    if not len(values):
        return []
    gap = max(gap, 4.0 * float(np.nanmedian(cells.error)))
    limits = [(a + b) / 2.0 for a, b in pairwise(values) if a - b > gap]
    steps: list[Mask] = []
    upper = np.inf
    for lower in [*limits, -np.inf]:
        with np.errstate(invalid="ignore"):
            step = part & (cells.log_score <= upper) & (cells.log_score > lower)
        open_step = bool(steps) and not _recurs(steps[-1], part)
        if open_step or (steps and not down and not _recurs(step, part)):
            steps[-1] = steps[-1] | step
        else:
            steps.append(step)
        upper = lower
    if len(steps) > 1 and not _recurs(steps[-1], part):
        last = steps.pop()
        steps[-1] = steps[-1] | last
    return steps


def _recurs(step: Mask, part: Mask) -> bool:
    """Whether every initiator and target that takes part in the whole does so in the step."""
    rows, columns = part.any(axis=1), part.any(axis=0)
    return bool(step.any(axis=1)[rows].all() and step.any(axis=0)[columns].all())


def hops_of(nearest: Mask) -> dict[int, Mask] | None:
    """ScoredCells by the hops between their nodes, where steps lead from neighbour to neighbour.

    Two hops have to recur; only from three on may some nodes be without a partner, as the ends of
    a row or the corners of a mesh have.
    """
    if nearest.shape[0] != nearest.shape[1]:
        return None
    size = len(nearest)
    found = {1: nearest}
    reached = nearest | np.eye(size, dtype=bool)
    front = nearest
    while not reached.all():
        front = (front.astype(int) @ nearest.astype(int) > 0) & ~reached
        if not front.any() or (len(found) == 1 and not _recurs(front, ~np.eye(size, dtype=bool))):
            return None
        found[len(found) + 1] = front
        reached = reached | front
    return found if len(found) > 1 else None
