"""Steps of value among the cells of a matrix, as rings and meshes have them, and hops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.scored_cells import ScoredCells

Mask = NDArray[np.bool_]  # of cells


def groups_by_value_step(cells: ScoredCells[int], remote: Mask, gap: float) -> Iterator[list[Mask]]:
    """Steps with both directions between two nodes in one group, then directed steps.

    The better direction decides the step of both, so a direction that became slow stays in its
    group. Directed steps, as in a one-way ring, have to recur.
    """
    log_score = cells.log_score
    if cells.rows == cells.columns:
        both = replace(cells, log_score=np.fmax(log_score, log_score.T))
        yield _steps(both, remote, gap, join_worse=False)
        yield _steps(both, remote, gap, join_worse=True)
        directed = _steps(cells, remote, gap, join_worse=True)
        one_way = np.zeros(remote.shape, dtype=bool)
        for step in directed:
            one_way |= step & ~step.T
        if _recurs(one_way, remote):
            yield directed
    else:
        yield _steps(cells, remote, gap, join_worse=True)


def _steps(cells: ScoredCells[int], part: Mask, gap: float, *, join_worse: bool) -> list[Mask]:
    """Cells in steps of score, best first; each step has cells of all initiators and targets.

    Values are separated where there is a gap. A step without a cell of some initiator or target
    does not recur over the machine, so it is joined to a neighbour.

    Args:
        cells: the matrix.
        part: the cells to separate.
        gap: smallest gap, on logarithms.
        join_worse: join to the next worse step. Else to the better step, since faults make worse.
    """
    values = np.sort(cells.log_score[part])[::-1]
    if not len(values):
        return []
    gap = max(gap, 4.0 * float(np.nanmedian(cells.standard_error)))
    limits = [(a + b) / 2.0 for a, b in pairwise(values) if a - b > gap]
    steps: list[Mask] = []
    upper = np.inf
    for lower in [*limits, -np.inf]:
        with np.errstate(invalid="ignore"):
            step = part & (cells.log_score <= upper) & (cells.log_score > lower)
        incomplete = bool(steps) and not _recurs(steps[-1], part)
        if incomplete or (steps and not join_worse and not _recurs(step, part)):
            steps[-1] = steps[-1] | step
        else:
            steps.append(step)
        upper = lower
    if len(steps) > 1 and not _recurs(steps[-1], part):
        last = steps.pop()
        steps[-1] = steps[-1] | last
    return steps


def _recurs(step: Mask, part: Mask) -> bool:
    """Whether each initiator and target of the part has a cell in the step."""
    missing_rows = np.flatnonzero(part.any(axis=1) & ~step.any(axis=1))
    missing_columns = np.flatnonzero(part.any(axis=0) & ~step.any(axis=0))
    return not len(missing_rows) and not len(missing_columns)


def cells_by_hop_count(nearest: Mask) -> dict[int, Mask] | None:
    """Number of hops -> its cells, where steps lead from neighbour to neighbour; else None.

    Each node has to have a node two hops away. Three hops and more may lack for some nodes, such as
    the middle of a row or of a mesh.
    """
    if nearest.shape[0] != nearest.shape[1]:
        return None
    size = len(nearest)
    hops = {1: nearest}
    reached = nearest | np.eye(size, dtype=bool)
    front = nearest
    while not reached.all():
        front = (front.astype(int) @ nearest.astype(int) > 0) & ~reached
        if not front.any() or (len(hops) == 1 and not _recurs(front, ~np.eye(size, dtype=bool))):
            return None
        hops[len(hops) + 1] = front
        reached = reached | front
    return hops if len(hops) > 1 else None
