"""Learn the structure of a machine from its matrix: which cells should be equal.

There are several hypotheses: all cells are equal; local and remote; packages of neighbouring or of
alternating nodes; steps of value that recur for every node, as in rings and meshes; hops between
nearest neighbours; the distances of the firmware. The hypothesis that explains the cells with the
fewest groups is selected. A fault must not be taken for structure. So a group has to recur: each of
its initiators and targets has a cell in the group. And a cell that departs costs at most CAP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csgraph

from chaosity.anomalies.cell_groups import (
    Labels,
    expected_score_of_each_cell,
    expected_score_of_each_group,
)
from chaosity.anomalies.cell_log_scores import Mask, ScoredCells, cell_positions_in_mask

PackageNodes = tuple[tuple[int, ...], ...]  # nodes of each package
NodePair = tuple[int, int]  # initiator node, target node
SlitEntries = Mapping[NodePair, float]  # distance in the firmware's SLIT
UNKNOWN, NONE, LOCAL_REMOTE, PACKAGES = "unknown", "none", "local_remote", "packages"
STEPS, HOPS, DISTANCES = "steps", "hops", "distances"
# A departure of more than three standard deviations is not noise; beyond that, its size says
# nothing about the structure.
CAP = 9.0
# Faults make values worse. A cell that is better than its group contradicts the group twice as
# much.
BETTER_COSTS = 2.0
# Known packages and distances are rejected only for more than one pair of nodes that departs in
# both directions.
KNOWN_BONUS = 2.0 * CAP + 2.0
# Share of the cells that has to be measured to learn the structure; some points may have failed.
ENOUGH_CELLS = 0.75
# Structure below a few per cent does not matter, however small the noise is.
LEAST_SCALE = 0.03
# Gaps between sorted values that can separate groups. The near and far nodes of a four-socket
# Opteron differ by 13 %; nodes of one group by less than 6 % on all published machines.
GAPS = (0.06, 0.1, 0.2)


@dataclass(frozen=True)
class EqualCellGroups:
    """A hypothesis about which cells should be equal."""

    kind: str  # one of the constants of this module, such as PACKAGES
    labels: Labels  # group of each cell, -1 where nothing was measured
    names: tuple[str, ...]  # names of the groups, by their numbers
    packages: PackageNodes | None = None  # nodes of each package, if `kind` is PACKAGES

    @property
    def description(self) -> str:
        """Description of the groups, such as "local / remote"."""
        if self.kind == UNKNOWN:
            return "unknown: no node was measured both on its own memory and on remote memory"
        if self.kind == NONE:
            return "none: all nodes reach all memory equally, as with interleaving"
        if self.packages is not None:
            listed = " | ".join(",".join(map(str, nodes)) for nodes in self.packages)
            return f"{' / '.join(self.names)}, packages {listed}"
        return " / ".join(self.names)


def learn_matrix_structure(
    cells: ScoredCells[int],
    packages: PackageNodes | None = None,
    distances: SlitEntries | None = None,
) -> EqualCellGroups:
    """Return the hypothesis that explains a node matrix best.

    Given packages and entries of the SLIT are tried too; given packages exclude others.
    """
    hypotheses = list(_hypotheses(cells, packages, distances))
    best, least = hypotheses[0], np.inf
    for hypothesis in hypotheses:
        known = hypothesis.kind == DISTANCES or (hypothesis.kind == PACKAGES and packages)
        cost = structure_cost(cells, hypothesis) - (KNOWN_BONUS if known else 0.0)
        if cost < least - 1e-9:
            best, least = hypothesis, cost
    # Equal groups under several names get the first name: packages say more than steps.
    return _ordered(cells, next(h for h in hypotheses if _same_groups(h.labels, best.labels)))


def _same_groups(labels: Labels, others: Labels) -> bool:
    """Return whether two hypotheses put the same cells together."""
    pairs = set(zip(labels.ravel().tolist(), others.ravel().tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def structure_cost(cells: ScoredCells[int], structure: EqualCellGroups) -> float:
    """Return unexplained departures plus a penalty for each group; smaller is better."""
    scale = max(
        LEAST_SCALE, cells.noise if not cells.freedom else float(np.nanmedian(cells.standard_error))
    )
    expected = expected_score_of_each_cell(cells, structure.labels)
    departures = (cells.log_score - expected)[cells.measured_mask]
    groups = len(np.unique(structure.labels[cells.measured_mask]))
    # Twice the penalty of Schwarz's criterion: one group too few is better than one too many.
    penalty = 2.0 * np.log(max(2, len(departures)))
    costs = np.minimum((departures / scale) ** 2, CAP)
    costs *= np.where(departures > 0.0, BETTER_COSTS, 1.0)
    return float(costs.sum() + penalty * groups)


def _ordered(cells: ScoredCells[int], structure: EqualCellGroups) -> EqualCellGroups:
    """Return the structure with groups numbered from the best to the worst, local groups first."""
    labels, names = structure.labels, structure.names
    used = [label for label in range(len(names)) if (labels == label).any()]
    level = expected_score_of_each_group(cells, labels)
    order = sorted(used, key=lambda label: (names[label] != "local", -level[label]))
    renumbered = np.full(len(names) + 1, -1)
    for new, old in enumerate(order):
        renumbered[old] = new
    return replace(
        structure, labels=renumbered[labels], names=tuple(names[label] for label in order)
    )


def _hypotheses(
    cells: ScoredCells[int], packages: PackageNodes | None, distances: SlitEntries | None
) -> Iterator[EqualCellGroups]:
    measured = cells.measured_mask
    equal = np.where(measured, 0, -1)
    local = cells.local_mask
    one_sided = _one_sided(cells)
    plain = measured & ~one_sided
    if one_sided.any():
        equal = _label_one_sided(cells, equal, one_sided)
    if not (local & measured).any() or not (plain & ~local).any():
        yield _unknown(cells, local)
        return
    yield EqualCellGroups(NONE, equal, _names(["all"], equal))
    remote = np.where(plain & ~local, 1, _shifted(equal, plain, 2))
    yield EqualCellGroups(LOCAL_REMOTE, remote, _names(["local", "remote"], remote))
    for nodes in [packages] if packages else _partitions(cells):
        for hypothesis in _by_packages(cells, plain, local, equal, nodes):
            if packages or are_groups_within_packages_better(cells, hypothesis):
                yield hypothesis
    yield from _by_steps(cells, plain & ~local, remote)
    if distances:
        yield from _by_distances(cells, plain & ~local, remote, distances)


def _unknown(cells: ScoredCells[int], local: Mask) -> EqualCellGroups:
    """Return the structure in which local cells are one group and each other cell is a group."""
    labels = np.where(local & cells.measured_mask, 0, -1)
    names = ["local"] if (labels == 0).any() else []
    for position in cell_positions_in_mask(~local & cells.measured_mask):
        labels[position] = len(names)
        names.append("{}->{}".format(*cells.initiator_and_target(position)))
    return EqualCellGroups(UNKNOWN, labels, tuple(names))


def _one_sided(cells: ScoredCells[int]) -> Mask:
    """Return the mask of cells of one-sided nodes, which lack either processing units or memory."""
    columns = ~np.isin(cells.columns, cells.rows)
    rows = ~np.isin(cells.rows, cells.columns)
    if columns.all() or rows.all():
        return np.zeros(cells.log_score.shape, dtype=bool)
    mask: Mask = np.logical_or.outer(rows, columns)
    return mask


def _label_one_sided(cells: ScoredCells[int], labels: Labels, one_sided: Mask) -> Labels:
    """Return labels with groups for one-sided nodes: one for all nearest initiators, and so on.

    If only one node is one-sided, each of its cells is a group, since no node is comparable.
    """
    labels = labels.copy()
    done = np.zeros(labels.shape, dtype=bool)
    lines: list[tuple[slice | int, slice | int]] = [
        (slice(None), int(column)) for column in np.flatnonzero(one_sided.all(axis=0))
    ]
    lines += [(int(row), slice(None)) for row in np.flatnonzero(one_sided.all(axis=1))]
    for line in lines:
        log_score = cells.log_score[line]
        rank = np.empty(len(log_score), dtype=int)
        rank[np.argsort(-log_score, kind="stable")] = np.arange(len(log_score))
        here = one_sided[line] & cells.measured_mask[line] & ~done[line]
        labels[line] = np.where(here, 1 + rank, labels[line])
        done[line] |= here
    return labels


def _names(first: Sequence[str], labels: Labels) -> tuple[str, ...]:
    """Return names for all groups: `first`, then the ranks of the one-sided nodes' cells."""
    more = range(len(first), int(labels.max()) + 1)
    return (*first, *(f"other memory, rank {number - len(first) + 1}" for number in more))


def _shifted(labels: Labels, plain: Mask, used: int) -> Labels:
    """Return labels with one-sided groups numbered after the `used` groups of plain cells."""
    low = labels[~plain & (labels >= 0)]
    if not len(low):
        return labels
    return np.where(~plain & (labels >= 0), labels - low.min() + used, labels)


def _partitions(cells: ScoredCells[int]) -> Iterator[PackageNodes]:
    """Yield each division into packages of equal size, with neighbouring or alternating nodes."""
    nodes = sorted(set(cells.rows) & set(cells.columns))
    for size in range(2, len(nodes) // 2 + 1):
        if len(nodes) % size:
            continue
        number = len(nodes) // size
        yield tuple(tuple(nodes[i * size : (i + 1) * size]) for i in range(number))
        yield tuple(tuple(nodes[i::number]) for i in range(number))


def _by_packages(
    cells: ScoredCells[int], plain: Mask, local: Mask, equal: Labels, packages: PackageNodes
) -> Iterator[EqualCellGroups]:
    """Yield groups local, same package, other package; then these divided by steps of value."""
    same = np.zeros(local.shape, dtype=bool)
    for nodes in packages:
        same |= np.logical_and.outer(np.isin(cells.rows, nodes), np.isin(cells.columns, nodes))
    parts = {"same package": plain & ~local & same, "other package": plain & ~same & ~local}
    parts = {name: part for name, part in parts.items() if part.any()}
    for gap in (None, *GAPS):
        labels, names = np.where(plain, 0, equal), ["local"]
        for name, part in parts.items():
            steps = [part] if gap is None else next(_steps_of_value(cells, part, gap))
            for number, step in enumerate(steps, start=1):
                labels = np.where(step, len(names), labels)
                names.append(name if len(steps) == 1 else f"{name}, step {number}")
        labels = _shifted(labels, plain, len(names))
        yield EqualCellGroups(PACKAGES, labels, _names(names, labels), packages)


def are_groups_within_packages_better(cells: ScoredCells[int], structure: EqualCellGroups) -> bool:
    """Return whether each group of cells within packages is better than each between packages."""
    level = dict(
        zip(structure.names, expected_score_of_each_group(cells, structure.labels), strict=False)
    )
    same = [value for name, value in level.items() if name.startswith("same package")]
    other = [value for name, value in level.items() if name.startswith("other package")]
    return not same or not other or min(same) > max(other)


def _by_steps(
    cells: ScoredCells[int], remote: Mask, two_groups: Labels
) -> Iterator[EqualCellGroups]:
    """Yield structures of steps of value, and of hops between nearest neighbours."""
    for gap in GAPS:
        for steps in _steps_of_value(cells, remote, gap):
            if len(steps) < 2:
                continue
            names = [f"step {number}" for number in range(1, len(steps) + 1)]
            names = ["near", "far"] if len(steps) == 2 else names
            yield _structure(STEPS, steps, names, remote, two_groups)
            hops = _cells_by_hop_count(steps[0])
            if hops is not None:
                names = [f"{number} hop{'s' if number > 1 else ''}" for number in hops]
                parts = [part & remote for part in hops.values()]
                typical = [np.nanmedian(cells.log_score[part]) for part in parts if part.any()]
                if typical == sorted(typical, reverse=True):  # more hops are not better
                    yield _structure(HOPS, parts, names, remote, two_groups)


def _structure(
    kind: str, parts: Sequence[Mask], names: Sequence[str], remote: Mask, two_groups: Labels
) -> EqualCellGroups:
    labels = two_groups
    for number, part in enumerate(parts, start=1):
        labels = np.where(part, number, labels)
    labels = _shifted(labels, remote | (two_groups == 0), len(parts) + 1)
    return EqualCellGroups(kind, labels, _names(["local", *names], labels))


def _by_distances(
    cells: ScoredCells[int], remote: Mask, two_groups: Labels, distances: SlitEntries
) -> Iterator[EqualCellGroups]:
    """Yield the structure with one group for each distance of the SLIT."""
    table = np.array([[distances.get((r, c), np.nan) for c in cells.columns] for r in cells.rows])
    values = np.unique(table[remote & ~np.isnan(table)])
    if len(values) and not np.isnan(table[remote]).any():
        parts = [remote & (table == value) for value in values]
        yield _structure(DISTANCES, parts, [f"distance {v:g}" for v in values], remote, two_groups)


def _steps_of_value(cells: ScoredCells[int], remote: Mask, gap: float) -> Iterator[list[Mask]]:
    """Yield steps of value that join both directions of a node pair, then steps that do not.

    The better direction decides the step of both, so a direction that became slow stays in its
    group. Steps with separate directions, as in a one-way ring, have to recur.
    """
    log_score = cells.log_score
    if cells.rows != cells.columns:
        yield _steps(cells, remote, gap, join_worse=True)
        return
    both = replace(cells, log_score=np.fmax(log_score, log_score.T))
    yield _steps(both, remote, gap, join_worse=False)
    yield _steps(both, remote, gap, join_worse=True)
    directed = _steps(cells, remote, gap, join_worse=True)
    one_way = np.any([step & ~step.T for step in directed], axis=0)
    if directed and _recurs(one_way, remote):
        yield directed


def _steps(cells: ScoredCells[int], part: Mask, gap: float, *, join_worse: bool) -> list[Mask]:
    """Return the masks of a part's cells in steps of score, best first.

    A step ends where scores differ by more than `gap`. Each step has cells of all initiators and
    targets of the part. Cells that do not recur so are joined to the next worse step if
    `join_worse`, else to the better step, since faults make values worse.
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
        steps[-2:] = [steps[-2] | steps[-1]]
    return steps


def _recurs(step: Mask, part: Mask) -> bool:
    """Return whether each initiator and target of the part has a cell in the step."""
    return all(bool((step.any(axis=axis) | ~part.any(axis=axis)).all()) for axis in (0, 1))


def _cells_by_hop_count(nearest: Mask) -> dict[int, Mask] | None:
    """Return number of hops -> mask of cells; None if nearest neighbours do not explain the cells.

    Each node must have a node two hops away. Not every node needs one at three or more hops: one in
    the middle of a row or of a mesh may have none.
    """
    if nearest.shape[0] != nearest.shape[1]:
        return None
    distance = csgraph.shortest_path(nearest, unweighted=True)
    most = distance.max()
    other_nodes = ~np.eye(len(nearest), dtype=bool)
    if not 2 <= most < np.inf or not _recurs(distance == 2, other_nodes):
        return None
    return {number: distance == number for number in range(1, int(most) + 1)}
