"""Learn the structure of a machine from a node matrix: find which cells should be equal.

There are six kinds of hypotheses. First, all cells are equal. Second, local cells differ from
remote cells. Third, packages have neighbouring or alternating nodes. Fourth, each node has cells on
the same steps of values, as in rings and meshes. Fifth, cells with equally many hops between
nearest neighbours are equal. Sixth, cells with equal distances in the firmware's SLIT are equal.
The hypothesis that explains the cells with the fewest groups is selected. A fault must not be
mistaken for structure. So a group must recur: each of its initiators and targets has a cell in the
group. And a cell that is worse than its group costs at most `LARGEST_COST_OF_CELL`. The paths
between a pair of nodes can be so slow that their values are those of a worse group. So hypotheses
that are regular without one pair of nodes are tried with this pair in its better group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csgraph

from chaosity.anomalies.cell_groups import Labels, best_middle_score_of_each_group
from chaosity.anomalies.cell_log_scores import (
    Mask,
    Position,
    ScoredCells,
    cell_positions_in_mask,
    mask_of_cells,
)

PackageNodes = tuple[tuple[int, ...], ...]  # nodes of each package
NodePair = tuple[int, int]  # initiator node, target node
SlitEntries = Mapping[NodePair, float]  # distance in the firmware's SLIT
Groups = Mapping[str, Mask]  # name of each group -> mask of its cells
UNKNOWN, NONE, LOCAL_REMOTE, PACKAGES = "unknown", "none", "local_remote", "packages"
STEPS, HOPS, DISTANCES = "steps", "hops", "distances"
# Kind of a hypothesis of hops if only a small gap of scores shows which nodes are nearest. Noise
# alone may leave a small gap. So a hypothesis of this kind gets `COST_BONUS_OF_KNOWN_STRUCTURE`
# only if another hypothesis has the kind HOPS.
UNCLEAR_HOPS = "unclear hops"
# Largest cost of a cell that departs from its group. A departure of more than three standard
# deviations (cost 9) is not noise, and its exact size says nothing about the structure.
LARGEST_COST_OF_CELL = 9.0
# Factor for the cost of a cell that is better than its group. Faults make values worse, so a better
# cell counts twice as much against the hypothesis as a worse cell.
COST_FACTOR_OF_BETTER_CELL = 2.0
# Advantage of hypotheses from known packages, distances and hops, and of hypotheses that are
# regular without one pair of nodes. Such a hypothesis is rejected only if more than one pair of
# nodes departs in both directions. Hops count as known because nearest neighbours determine their
# groups.
COST_BONUS_OF_KNOWN_STRUCTURE = 2.0 * LARGEST_COST_OF_CELL + 2.0
# Least share of the cells that must be measured to learn the structure; some points may have
# failed.
LEAST_SHARE_OF_MEASURED_CELLS = 0.75
# Smallest standard deviation of scores that is assumed, since differences of a few per cent are no
# structure that matters.
LEAST_STANDARD_DEVIATION = 0.03
# Gaps between sorted scores that may separate groups. Near and far nodes of a four-socket Opteron
# differ by 13 %. On all published machines, nodes of one group differ by less than 6 %. Several
# gaps are tried, because the score of a faulty cell can lie in a small gap.
SCORE_GAPS_BETWEEN_GROUPS = (0.06, 0.1, 0.2)
# Fewest nodes of which most show how many neighbours every node should have.
_FEWEST_ALIKE_NODES = 4
# Fewest nodes whose hops can show that a pair of nodes with slow paths are neighbours. Fewer nodes
# have too many pairs of which each could be the slow one.
_FEWEST_NODES_OF_HOPS = 6
# Fewest pairs of nodes within packages of which all but one show that these are packages.
_FEWEST_PAIRS_OF_PACKAGES = 3
# Fewest packages that show whether all paths between two packages are equally fast.
_FEWEST_PACKAGES = 3
# Largest number of pairs of nodes without any measurement that are tried as neighbours. Each pair
# doubles the number of hypotheses, so if there are more pairs, none of them is tried.
_MOST_UNMEASURED_PAIRS_TO_TRY = 2


@dataclass(frozen=True)
class EqualCellGroups:
    """A hypothesis about which cells should be equal."""

    kind: str  # one of the constants of this module, such as PACKAGES
    labels: Labels  # for each cell, the number of its group; -1 if not measured
    names: tuple[str, ...]  # names of the groups, in the order of their numbers
    packages: PackageNodes | None = None  # nodes of each package, if `kind` is PACKAGES
    # Whether one pair of nodes is in a better group than its values, and all other pairs of
    # packages or nodes are regular.
    is_regular_without_a_pair: bool = False
    # Cells of which the values do not show whether a path is slow or the machine is built so. If
    # several pairs of nodes can be the slow one, their cells are in no group.
    undecided: tuple[Position, ...] = ()

    @property
    def description(self) -> str:
        """A text that describes the groups, such as "local / remote"."""
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
    """Return the hypothesis about equal cells that explains a node matrix best.

    Hypotheses with the given packages and SLIT distances are tried too. If packages are given, no
    other packages are tried.
    """
    hypotheses, costs = list(_hypotheses(cells, packages, distances)), []
    best, least = hypotheses[0], np.inf
    has_hops = any(h.kind == HOPS and not h.is_regular_without_a_pair for h in hypotheses)
    for hypothesis in hypotheses:
        known = (
            hypothesis.kind in (DISTANCES, HOPS)
            or (hypothesis.kind == UNCLEAR_HOPS and has_hops)
            or (hypothesis.kind == PACKAGES and packages)
            or hypothesis.is_regular_without_a_pair
        )
        cost = structure_cost(cells, hypothesis) - (COST_BONUS_OF_KNOWN_STRUCTURE if known else 0.0)
        costs.append(cost)
        if cost < least - 1e-9:
            best, least = hypothesis, cost
    # If several hypotheses have the same groups, the first is returned: packages say more than
    # steps.
    same = [h for h in hypotheses if _same_groups(h.labels, best.labels)]
    if all(hypothesis.is_regular_without_a_pair for hypothesis in same):
        limit = least + LARGEST_COST_OF_CELL  # a cost difference of one departing cell can be noise
        alike = [
            hypothesis
            for hypothesis, cost in zip(hypotheses, costs, strict=True)
            if hypothesis.is_regular_without_a_pair and cost < limit
        ]
        of_slit = [hypothesis.labels for hypothesis in hypotheses if hypothesis.kind == DISTANCES]
        as_slit = (h for h in alike if any(_same_groups(h.labels, own) for own in of_slit))
        if agreeing := next(as_slit, None):
            best, alike = agreeing, []
        return _without_undecided_cells(cells, best, alike)
    structure = _with_groups_best_first(cells, same[0])
    return replace(structure, undecided=_pair_without_which_nodes_are_alike(cells, structure))


def _without_undecided_cells(
    cells: ScoredCells[int], best: EqualCellGroups, alike: Iterable[EqualCellGroups]
) -> EqualCellGroups:
    """Return the structure `best` without the cells that it and an equally good one tell apart."""
    structure = _with_groups_best_first(cells, best)
    differ = np.zeros(structure.labels.shape, dtype=bool)
    for other in (_with_groups_best_first(cells, hypothesis) for hypothesis in alike):
        if (other.kind, other.names) == (structure.kind, structure.names):
            differ |= structure.labels != other.labels
    labels = np.where(differ, -1, structure.labels)
    undecided = tuple(cell_positions_in_mask(differ))
    return _with_groups_best_first(cells, replace(structure, labels=labels, undecided=undecided))


def _pair_without_which_nodes_are_alike(
    cells: ScoredCells[int], structure: EqualCellGroups
) -> tuple[Position, ...]:
    """Return the cells of the pair of nodes that alone makes its nodes unlike all other nodes.

    All other nodes must have equally many cells in each group. The two nodes have one cell less in
    a group and one more in a worse group: those of the paths between them. The result is empty if
    there is no such pair.
    """
    labels, remote = structure.labels, ~cells.local_mask
    if cells.rows != cells.columns or len(labels) < _FEWEST_ALIKE_NODES:
        return ()
    if (labels[remote] < 0).any() or (labels != labels.T).any():
        return ()
    groups_of_node = [sorted(row[own].tolist()) for row, own in zip(labels, remote, strict=True)]
    for one, other in combinations(range(len(labels)), 2):
        usual = [own for node, own in enumerate(groups_of_node) if node not in (one, other)]
        slow = int(labels[one, other])
        if groups_of_node[one] != groups_of_node[other] or any(own != usual[0] for own in usual):
            continue
        more = Counter(groups_of_node[one]) - Counter(usual[0])
        less = Counter(usual[0]) - Counter(groups_of_node[one])
        if [*more.elements()] == [slow] and max(less) < slow:
            return (one, other), (other, one)
    return ()


def _same_groups(labels: Labels, others: Labels) -> bool:
    """Return whether two hypotheses have the same groups of cells."""
    pairs = set(zip(labels.ravel().tolist(), others.ravel().tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def _noise_of_scores(cells: ScoredCells[int]) -> float:
    """Return the standard deviation of a score, or a difference of structure if it is larger."""
    noise = cells.typical_standard_error if cells.freedom else cells.noise
    return max(LEAST_STANDARD_DEVIATION, noise)


def structure_cost(cells: ScoredCells[int], structure: EqualCellGroups) -> float:
    """Return the cost of a hypothesis: departures of cells plus a penalty for each group."""
    scale = _noise_of_scores(cells)
    of_groups = best_middle_score_of_each_group(cells, structure.labels)
    expected = np.append(of_groups, np.nan)[structure.labels]  # the label -1 takes the last item
    departures = (cells.log_score - expected)[cells.measured_mask]
    groups = len(np.unique(structure.labels[cells.measured_mask]))
    # The penalty is twice the penalty of Schwarz's criterion, since one group too few is better
    # than one group too many.
    penalty = 2.0 * np.log(max(2, len(departures)))
    costs = np.minimum((departures / scale) ** 2, LARGEST_COST_OF_CELL)
    costs *= np.where(departures > 0.0, COST_FACTOR_OF_BETTER_CELL, 1.0)
    return float(costs.sum() + penalty * groups)


def _with_groups_best_first(cells: ScoredCells[int], structure: EqualCellGroups) -> EqualCellGroups:
    """Return the structure with groups numbered from best to worst, local groups first."""
    labels, names = structure.labels, structure.names
    used = [label for label in range(len(names)) if (labels == label).any()]
    level = best_middle_score_of_each_group(cells, labels)
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
    measured, local, one_sided = (
        cells.measured_mask,
        cells.local_mask,
        _cells_of_one_sided_nodes(cells),
    )
    plain = measured & ~one_sided
    remote = plain & ~local
    if not (local & measured).any() or not remote.any():
        yield _structure_of_unknown_machine(cells, local)
        return
    ranks = _ranks_of_one_sided_cells(cells, one_sided)
    others = {
        f"other memory, rank {rank + 1}": ranks == rank for rank in range(int(ranks.max()) + 1)
    }
    own = {"local": plain & local}
    yield _make_structure(NONE, {"all": plain, **others})
    yield _make_structure(LOCAL_REMOTE, {**own, "remote": remote, **others})
    steps = [each for each in _steps_of_paired_and_single_scores(cells, remote) if len(each) > 1]
    near = list(_nearest_in_both_directions(cells, remote))
    learned = [(packages, False)] if packages else _packages_of_nearest_nodes(cells, steps, near)
    for nodes, lacks_a_pair in learned:
        for groups, differ in _groups_by_packages(cells, remote, nodes):
            structure = _make_structure(PACKAGES, {**own, **groups, **others}, nodes)
            yield replace(structure, is_regular_without_a_pair=lacks_a_pair or differ)
    for kind, groups in chain(
        _groups_by_steps_of_value(cells, remote, steps, near),
        _groups_by_slit_distances(cells, remote, distances),
    ):
        yield _make_structure(kind, {**own, **groups, **others})
    unmeasured = list(_masks_of_unmeasured_pairs(cells))
    # Several gaps of scores often have the same first step.
    first_steps = {of_value[0].tobytes(): of_value[0] for of_value in steps}
    for nearest in first_steps.values():
        for added in unmeasured:
            for kind, groups in _groups_by_hops(cells, remote, nearest | added):
                yield _make_structure(kind, {**own, **groups, **others})
        for _, groups in _groups_by_hops_with_a_slow_pair(cells, remote, nearest):
            structure = _make_structure(HOPS, {**own, **groups, **others})
            yield replace(structure, is_regular_without_a_pair=True)


def _make_structure(
    kind: str, groups: Groups, packages: PackageNodes | None = None
) -> EqualCellGroups:
    """Return the structure that has the given groups, numbered in their order."""
    labels = np.select(list(groups.values()), range(len(groups)), -1)
    return EqualCellGroups(kind, labels, tuple(groups), packages)


def _structure_of_unknown_machine(cells: ScoredCells[int], local: Mask) -> EqualCellGroups:
    """Return the structure if nothing is known about a machine: local cells are one group.

    Each remote cell is a separate group, so it is compared with no other cell.
    """
    groups = {"local": local & cells.measured_mask}
    for position in cell_positions_in_mask(~local & cells.measured_mask):
        name = "{}->{}".format(*cells.initiator_and_target(position))
        groups[name] = mask_of_cells([position], local.shape)
    return _make_structure(UNKNOWN, groups)


def _cells_of_one_sided_nodes(cells: ScoredCells[int]) -> Mask:
    """Return the mask of cells with a one-sided node, which lacks processing units or memory."""
    columns = ~np.isin(cells.columns, cells.rows)
    rows = ~np.isin(cells.rows, cells.columns)
    if columns.all() or rows.all():
        return np.zeros(cells.log_score.shape, dtype=bool)
    mask: Mask = np.logical_or.outer(rows, columns)
    return mask


def _ranks_of_one_sided_cells(cells: ScoredCells[int], one_sided: Mask) -> Labels:
    """Return the rank by score of each cell of a one-sided node (0 is best); -1 for other cells.

    The cells of the nearest initiators of all one-sided nodes are comparable, the cells of the
    second nearest initiators are comparable, and so on. A single one-sided node is comparable with
    no other node, so each of its cells is a separate group.
    """
    ranks = np.full(one_sided.shape, -1)
    lines: list[tuple[slice | int, slice | int]] = [
        (slice(None), int(column)) for column in np.flatnonzero(one_sided.all(axis=0))
    ]
    lines += [(int(row), slice(None)) for row in np.flatnonzero(one_sided.all(axis=1))]
    for line in lines:
        rank = np.argsort(np.argsort(-cells.log_score[line], kind="stable"))
        here = one_sided[line] & cells.measured_mask[line] & (ranks[line] < 0)
        ranks[line] = np.where(here, rank, ranks[line])
    return ranks


def _packages_of_nearest_nodes(
    cells: ScoredCells[int], of_value: Sequence[Sequence[Mask]], near: Sequence[Mask]
) -> Iterable[tuple[PackageNodes, bool]]:
    """Return packages of equal size whose nodes are nearest to each other.

    Two nodes of which no path was measured may be in one package. One pair of nodes of a package
    may be far from each other, since its paths may be slow. The second part of each result is
    whether such a pair exists although clear steps of value show which nodes are near.
    """
    if cells.rows != cells.columns:
        return []
    unmeasured = _mask_of_pairs_unmeasured_in_both_directions(cells)
    found: dict[PackageNodes, bool] = {}
    first_steps = [(True, steps[0]) for steps in of_value]
    for is_clear, nearest in [*first_steps, *((False, each) for each in near)]:
        parts, lacks_a_pair = _equal_parts_of_nearest_nodes(nearest | cells.local_mask, unmeasured)
        if parts:
            packages = tuple(sorted(tuple(cells.rows[row] for row in part) for part in parts))
            found[packages] = found.get(packages, False) or (lacks_a_pair and is_clear)
    return found.items()


def _equal_parts_of_nearest_nodes(near: Mask, unmeasured: Mask) -> tuple[list[list[int]], bool]:
    """Return the row numbers of nodes that are near to each other, as parts of equal size.

    If the parts that the near pairs form have different sizes, parts with no measured pair between
    them become one part, or else two single nodes. The second part of the result is whether a
    measured pair of a part is not near. The parts are empty if their sizes still differ, if several
    such pairs exist, or if too few near pairs show that this pair should be near too.
    """
    parts = _connected_parts(near)
    if len({*map(len, parts)}) > 1:
        together = np.array(
            [[unmeasured[np.ix_(one, other)].all() for other in parts] for one in parts]
        )
        single = [number for number, part in enumerate(parts) if len(part) == 1]
        if len(single) == 2 and not together.any():
            together[np.ix_(single, single)] = True
        parts = [
            sorted(row for number in joined for row in parts[number])
            for joined in _connected_parts(together)
        ]
    pairs = [pair for part in parts for pair in combinations(part, 2)]
    lacking = [pair for pair in pairs if not (near | unmeasured)[pair]]
    if len({*map(len, parts)}) > 1 or len(lacking) > 1:
        return [], False
    if lacking and (len(parts) == 1 or len(pairs) < _FEWEST_PAIRS_OF_PACKAGES):
        return [], False
    return parts, bool(lacking)


def _connected_parts(joined: Mask) -> list[list[int]]:
    """Return the row numbers of each connected part of a graph; a mask has its edges."""
    number, part_of = csgraph.connected_components(joined, directed=False)
    return [np.flatnonzero(part_of == part).tolist() for part in range(number)]


def _groups_by_packages(
    cells: ScoredCells[int], remote: Mask, packages: PackageNodes
) -> Iterator[tuple[Groups, bool]]:
    """Yield the groups same package and other package; then both divided where values differ.

    If the paths between any two packages are then in one group, apart from one pair of nodes in a
    worse group, this pair is put into the group of its packages. The second part of each result is
    whether there is such a pair.
    """
    package_of = {node: number for number, nodes in enumerate(packages) for node in nodes}
    rows, columns = (
        np.array([package_of.get(node, -1) for node in nodes])
        for nodes in (cells.rows, cells.columns)
    )
    same = (rows[:, None] == columns[None, :]) & (rows[:, None] >= 0)
    parts = {"same package": remote & same, "other package": remote & ~same}
    parts = {name: part for name, part in parts.items() if part.any()}
    yield parts, False
    groups: dict[str, Mask] = {}
    for name, part in parts.items():
        steps = next(_steps_of_paired_and_single_scores(cells, part))
        names = [name]
        if len(steps) > 1:
            names = [f"{name}, step {number}" for number in range(1, len(steps) + 1)]
        groups |= zip(names, [step & part for step in steps], strict=True)
    regular: Groups = {}
    if len(packages) >= _FEWEST_PACKAGES:
        regular = _with_a_pair_in_the_group_of_its_packages(groups, rows, columns)
    yield (regular, True) if regular else (groups, False)


def _with_a_pair_in_the_group_of_its_packages(
    groups: Groups, row_packages: NDArray[np.int_], column_packages: NDArray[np.int_]
) -> Groups:
    """Return the groups, with the only pair of nodes that is in another one than its packages.

    The result is empty if there is no such pair, or if there are several. The pair is in a worse
    group than most paths between its packages. The groups come in the order of their values.
    """
    labels = np.select(list(groups.values()), range(len(groups)), -1)
    usual = labels.copy()
    for one, other in combinations(np.unique(row_packages).tolist(), 2):
        between = np.logical_and.outer(row_packages == one, column_packages == other)
        between |= np.logical_and.outer(row_packages == other, column_packages == one)
        between &= labels >= 0
        if between.any():
            counts = np.bincount(labels[between])
            usual[between] = int(counts.argmax())
    moved = usual != labels
    positions = cell_positions_in_mask(
        moved | moved.T if moved.shape[0] == moved.shape[1] else moved
    )
    if len(positions) != 2 or positions[0] != positions[1][::-1] or (usual > labels).any():
        return {}
    return {name: usual == number for number, name in enumerate(groups)}


def are_values_better_within_packages(cells: ScoredCells[int], structure: EqualCellGroups) -> bool:
    """Return whether each group within packages is better than each group between packages."""
    level = dict(
        zip(structure.names, best_middle_score_of_each_group(cells, structure.labels), strict=False)
    )
    same = [value for name, value in level.items() if name.startswith("same package")]
    other = [value for name, value in level.items() if name.startswith("other package")]
    return not same or not other or min(same) > max(other)


def _groups_by_steps_of_value(
    cells: ScoredCells[int], remote: Mask, of_value: Sequence[Sequence[Mask]], near: Sequence[Mask]
) -> Iterator[tuple[str, Groups]]:
    """Yield groups of remote cells for two models of a machine.

    In the first model, the cells of a group have similar values, which form a step. In the second
    model, the cells of a group have the same number of hops between their nodes. A hop leads from a
    node to a nearest neighbour.
    """
    for steps in of_value:
        names = [f"step {number}" for number in range(1, len(steps) + 1)]
        names = ["near", "far"] if len(steps) == 2 else names
        measured = [step & remote for step in steps]
        yield STEPS, dict(zip(names, measured, strict=True))
        yield from _groups_by_hops(cells, remote, steps[0])
    # The values of a slow node can fill gaps between steps, but they do not change which nodes are
    # nearest to each other.
    remote_scores = np.where(remote, cells.log_score, -np.inf)
    best = remote_scores.max(axis=1, keepdims=True)
    yield from _groups_by_hops(cells, remote, remote & (remote_scores == best))
    # The nearest nodes also stay the same if noise fills the gaps. But of equally near nodes, noise
    # alone makes one the nearest, so hops between nearest nodes are unclear.
    for nearest in (_nearest_in_one_direction(cells, remote), *near):
        yield from _groups_by_hops(cells, remote, nearest, UNCLEAR_HOPS)


def _nearest_in_one_direction(cells: ScoredCells[int], remote: Mask) -> Mask:
    """Return the mask of one nearest node for each node, as in a one-way ring.

    Each node is the nearest node of one node. Of all choices, the one with the highest sum of
    scores is returned.
    """
    scores = np.where(remote, cells.log_score, np.nan)
    best, least = np.nanmax(scores), np.nanmin(scores)
    # A node is never near to itself or to a node that lacks processing units or memory.
    far = least - len(cells.rows) * (best - least + 1.0)
    scores = np.where(remote, cells.log_score, far)
    nearest = np.median(scores.max(axis=1)) - 2.0 * cells.typical_standard_error
    scores[~cells.measured_mask & ~cells.local_mask] = nearest
    return mask_of_cells(
        zip(*linear_sum_assignment(scores, maximize=True), strict=True), remote.shape
    )


def _nearest_in_both_directions(cells: ScoredCells[int], remote: Mask) -> Iterator[Mask]:
    """Yield the mask of node pairs above a gap of scores, for each gap that noise seldom leaves."""
    if cells.rows != cells.columns:
        return
    either = np.fmax(cells.log_score, cells.log_score.T)
    subsets = [np.zeros(remote.shape, dtype=bool), *_masks_of_unmeasured_pairs(cells)]
    scores = np.sort(either[remote & ~np.isnan(either)])
    for far, near in pairwise(scores):
        if near - far > cells.typical_standard_error / 2.0:
            for added in subsets:
                yield (remote | remote.T) & (either >= near) | added


def _masks_of_unmeasured_pairs(cells: ScoredCells[int]) -> Iterator[Mask]:
    """Yield the mask of each choice of unmeasured pairs of nodes; nothing if there are many."""
    if cells.rows != cells.columns:
        return
    unmeasured = _mask_of_pairs_unmeasured_in_both_directions(cells)
    unknown = cell_positions_in_mask(np.triu(unmeasured))
    if len(unknown) <= _MOST_UNMEASURED_PAIRS_TO_TRY:
        for number in range(1, len(unknown) + 1):
            for pairs in combinations(unknown, number):
                both_ways = [*pairs, *((column, row) for row, column in pairs)]
                yield mask_of_cells(both_ways, unmeasured.shape)


def _mask_of_pairs_unmeasured_in_both_directions(cells: ScoredCells[int]) -> Mask:
    """Return the mask of both cells of each pair of nodes of which no path was measured.

    The matrix must have the same nodes as initiators and as targets.
    """
    mask: Mask = ~(cells.measured_mask | cells.measured_mask.T | cells.local_mask)
    return mask


def _groups_by_hops(
    cells: ScoredCells[int], remote: Mask, nearest: Mask, kind: str = HOPS
) -> Iterator[tuple[str, Groups]]:
    """Yield groups by number of hops, but nothing if cells with more hops have better scores.

    A hop leads from a node to a nearest neighbour. Paths of four and of five hops can be equally
    fast, so scores that are better by no more than their noise are not better. But the paths with
    most hops must be clearly worse than those with one hop.
    """
    hops = {name: part & remote for name, part in _cells_by_hops(nearest).items()}
    typical = [np.nanmedian(cells.log_score[part]) for part in hops.values() if part.any()]
    noise = _noise_of_scores(cells)
    never_better = all(farther - nearer <= noise for nearer, farther in pairwise(typical))
    if hops and never_better and typical[0] - typical[-1] > noise:
        yield kind, hops


def _groups_by_hops_with_a_slow_pair(
    cells: ScoredCells[int], remote: Mask, nearest: Mask
) -> Iterator[tuple[str, Groups]]:
    """Yield the groups by hops with each pair of nodes that may be neighbours with slow paths.

    Hops must lead to all nodes also without this pair, and other pairs of nodes must have fewer
    hops because of it, as in a ring. Otherwise nothing but the pair itself would show that its
    nodes are neighbours. Unmeasured neighbours also make a ring or mesh irregular. So
    nothing is yielded if there are more unmeasured pairs than are tried as neighbours.
    """
    if len(cells.rows) < _FEWEST_NODES_OF_HOPS or cells.rows != cells.columns:
        return
    if (
        _mask_of_pairs_unmeasured_in_both_directions(cells).sum()
        > 2 * _MOST_UNMEASURED_PAIRS_TO_TRY
    ):
        return
    without = csgraph.shortest_path(nearest, unweighted=True)
    if np.isinf(without).any() or (nearest != nearest.T).any():
        return
    for row, column in cell_positions_in_mask(np.triu(remote & ~nearest)):
        pair = mask_of_cells([(row, column), (column, row)], remote.shape)
        fewer = csgraph.shortest_path(nearest | pair, unweighted=True) < without
        if (fewer & ~pair).any():
            yield from _groups_by_hops(cells, remote, nearest | pair)


def _groups_by_slit_distances(
    cells: ScoredCells[int], remote: Mask, distances: SlitEntries | None
) -> Iterator[tuple[str, Groups]]:
    """Yield groups by distance in the SLIT if the SLIT has all pairs of nodes."""
    known = distances or {}
    table = np.array([[known.get((r, c), np.nan) for c in cells.columns] for r in cells.rows])
    if not np.isnan(table[remote]).any():
        values = np.unique(table[remote])
        yield DISTANCES, {f"distance {value:g}": remote & (table == value) for value in values}


def _steps_of_paired_and_single_scores(
    cells: ScoredCells[int], remote: Mask
) -> Iterator[list[Mask]]:
    """Yield steps of values of pairs of nodes, then steps of values of single directions.

    In steps of pairs, the better direction of a pair of nodes decides the step of both directions.
    So a direction that became slow stays in its group, and a direction that was not measured gets a
    group. Steps of single directions, as in a one-way ring, count only if they recur (see
    `_has_cell_of_each_node`).
    """
    log_score = cells.log_score
    if cells.rows != cells.columns:
        yield _masks_of_score_steps(cells, remote, SCORE_GAPS_BETWEEN_GROUPS[0], join_worse=True)
        return
    both = replace(cells, log_score=np.fmax(log_score, log_score.T))
    for gap in SCORE_GAPS_BETWEEN_GROUPS:
        yield _masks_of_score_steps(both, remote | remote.T, gap, join_worse=False)
        yield _masks_of_score_steps(both, remote | remote.T, gap, join_worse=True)
        directed = _masks_of_score_steps(cells, remote, gap, join_worse=True)
        one_way = np.any([step & ~step.T for step in directed], axis=0)
        if directed and _has_cell_of_each_node(one_way, remote, np.isnan(log_score)):
            yield directed


def _masks_of_score_steps(
    cells: ScoredCells[int], part: Mask, gap: float, *, join_worse: bool
) -> list[Mask]:
    """Return a mask for each step of scores of the cells in `part`, the best step first.

    A step ends at the first gap between sorted scores that is larger than `gap`. Each step has
    cells of all initiators and targets of `part`. A step that does not recur is joined to the next
    worse step if `join_worse` is true. Without `join_worse`, it is joined to the next better step,
    since faults make values worse.
    """
    values = np.sort(cells.log_score[part])[::-1]
    if not len(values):
        return []
    gap = max(gap, 4.0 * cells.typical_standard_error)
    limits = [(a + b) / 2.0 for a, b in pairwise(values) if a - b > gap]
    missing = np.isnan(cells.log_score)
    steps: list[Mask] = []
    upper = np.inf
    for lower in [*limits, -np.inf]:
        with np.errstate(invalid="ignore"):
            step = part & (cells.log_score <= upper) & (cells.log_score > lower)
        incomplete = bool(steps) and not _has_cell_of_each_node(steps[-1], part, missing)
        if incomplete or (
            steps and not join_worse and not _has_cell_of_each_node(step, part, missing)
        ):
            steps[-1] = steps[-1] | step
        else:
            steps.append(step)
        upper = lower
    if len(steps) > 1 and not _has_cell_of_each_node(steps[-1], part, missing):
        steps[-2:] = [steps[-2] | steps[-1]]
    return steps


def _has_cell_of_each_node(step: Mask, part: Mask, missing: Mask) -> bool:
    """Return whether each initiator and each target of `part` has a cell in the step.

    Unmeasured cells (`missing`) count as cells in the step. But at least half of the initiators and
    targets must have a measured cell in the step.
    """
    for axis in (0, 1):
        has, needs = step.any(axis=axis), part.any(axis=axis)
        if not (has | ~needs | missing.any(axis=axis)).all() or 2 * has.sum() < needs.sum():
            return False
    return True


def _cells_by_hops(nearest: Mask) -> Groups:
    """Return number of hops -> cells; empty if nearest neighbours do not explain all cells.

    Each node must have a node at two hops. Not every node needs a node at three or more hops, since
    a node in the middle of a row or mesh may have none.
    """
    if nearest.shape[0] != nearest.shape[1]:
        return {}
    distance = csgraph.shortest_path(nearest, unweighted=True)
    most = distance.max()
    other_nodes = ~np.eye(len(nearest), dtype=bool)
    if not 2 <= most < np.inf or not _has_cell_of_each_node(
        distance == 2, other_nodes, ~other_nodes & False
    ):
        return {}
    return {
        f"{number} hop{'s' if number > 1 else ''}": distance == number
        for number in range(1, int(most) + 1)
    }
