"""The structure of a machine, learned from its matrix: which cells should be equal.

There are several hypotheses: all cells are equal; local and remote; packages of neighbouring or of
alternating nodes; steps of value that recur for every node, as in rings and meshes; hops between
nearest neighbours; the distances of the firmware. The hypothesis that explains the cells with the
fewest groups is selected. A fault must not look like structure. So a group has to recur: each of
its initiators and targets takes part in it. And a cell that departs costs at most CAP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.cell_groups import Labels, departures_from_groups, expected_scores
from chaosity.anomalies.interconnect_hops import cells_by_hop_count, groups_by_value_step
from chaosity.anomalies.scored_cells import ScoredCells, positions_of

PackageNodes = tuple[tuple[int, ...], ...]  # nodes of each package
NodePair = tuple[int, int]  # initiator node, target node
SlitEntries = Mapping[NodePair, float]  # distance in the firmware's SLIT
Mask = NDArray[np.bool_]
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
class Structure:
    """A hypothesis about which cells should be equal.

    Attributes:
        kind: one of the constants above.
        labels: group of each cell, -1 where nothing was measured.
        names: names of the groups, by their numbers.
        packages: nodes of each package, for the kind PACKAGES.
    """

    kind: str
    labels: Labels
    names: tuple[str, ...]
    packages: PackageNodes | None = None

    @property
    def text(self) -> str:
        """Description, such as "local / remote"."""
        if self.kind == UNKNOWN:
            return "unknown: no node was measured both on its own memory and on remote memory"
        if self.kind == NONE:
            return "none: all nodes reach all memory equally, as with interleaving"
        if self.packages is not None:
            listed = " | ".join(",".join(map(str, nodes)) for nodes in self.packages)
            return f"{' / '.join(self.names)}, packages {listed}"
        return " / ".join(self.names)


def learn_structure(
    cells: ScoredCells[int],
    packages: PackageNodes | None = None,
    distances: SlitEntries | None = None,
) -> Structure:
    """The hypothesis that explains a node matrix best.

    Args:
        cells: rows and columns are node numbers.
        packages: nodes of each package, if known; then no other packages are tried.
        distances: entries of the SLIT, if known.
    """
    best, least = None, np.inf
    hypotheses = list(_hypotheses(cells, packages, distances))
    for hypothesis in hypotheses:
        known = hypothesis.kind == DISTANCES or (
            hypothesis.kind == PACKAGES and packages is not None
        )
        cost = structure_cost(cells, hypothesis) - (KNOWN_BONUS if known else 0.0)
        if cost < least - 1e-9:
            best, least = hypothesis, cost
    assert best is not None  # the first hypothesis always exists
    # Equal groups under several names get the first name: packages say more than steps.
    first = next(
        hypothesis for hypothesis in hypotheses if _same_groups(hypothesis.labels, best.labels)
    )
    return _ordered(cells, first)


def _same_groups(labels: Labels, others: Labels) -> bool:
    """Whether two hypotheses put the same cells together."""
    pairs = set(zip(labels.ravel().tolist(), others.ravel().tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def structure_cost(cells: ScoredCells[int], structure: Structure) -> float:
    """Unexplained departures plus a penalty for each group; smaller is better."""
    scale = max(
        LEAST_SCALE, cells.noise if not cells.freedom else float(np.nanmedian(cells.standard_error))
    )
    departures = departures_from_groups(cells, structure.labels)[cells.measured_mask]
    groups = len(np.unique(structure.labels[cells.measured_mask]))
    # Twice the penalty of Schwarz's criterion: one group too few is better than one too many.
    penalty = 2.0 * np.log(max(2, len(departures)))
    costs = np.minimum((departures / scale) ** 2, CAP)
    costs *= np.where(departures > 0.0, BETTER_COSTS, 1.0)
    return float(costs.sum() + penalty * groups)


def _ordered(cells: ScoredCells[int], structure: Structure) -> Structure:
    """The structure with its groups numbered from the best to the worst, local first."""
    labels, names = structure.labels, structure.names
    used = [label for label in range(len(names)) if (labels == label).any()]
    level = expected_scores(cells, labels)
    order = sorted(used, key=lambda label: (names[label] != "local", -level[label]))
    renumbered = np.full(len(names) + 1, -1)
    for new, old in enumerate(order):
        renumbered[old] = new
    return replace(
        structure, labels=renumbered[labels], names=tuple(names[label] for label in order)
    )


def _hypotheses(
    cells: ScoredCells[int], packages: PackageNodes | None, distances: SlitEntries | None
) -> Iterator[Structure]:
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
    yield Structure(NONE, equal, _names(["all"], equal))
    remote = np.where(plain & ~local, 1, _shifted(equal, plain, 2))
    yield Structure(LOCAL_REMOTE, remote, _names(["local", "remote"], remote))
    for nodes in [packages] if packages else _partitions(cells):
        for hypothesis in _by_packages(cells, plain, local, equal, nodes):
            if packages or nearer_within_packages(cells, hypothesis):
                yield hypothesis
    yield from _by_steps(cells, plain & ~local, remote)
    if distances:
        yield from _by_distances(cells, plain & ~local, remote, distances)


def _unknown(cells: ScoredCells[int], local: Mask) -> Structure:
    """Local cells are equal; each other cell is a group of its own."""
    labels = np.full(local.shape, -1)
    names = []
    if (local & cells.measured_mask).any():
        labels[local & cells.measured_mask] = 0
        names.append("local")
    for row, column in positions_of(~local & cells.measured_mask):
        labels[row, column] = len(names)
        names.append(f"{cells.rows[row]}->{cells.columns[column]}")
    return Structure(UNKNOWN, labels, tuple(names))


def _one_sided(cells: ScoredCells[int]) -> Mask:
    """Cells of memory without processing units, or of processing units without memory."""
    columns = np.array([column not in cells.rows for column in cells.columns])
    rows = np.array([row not in cells.columns for row in cells.rows])
    if columns.all() or rows.all():
        return np.zeros(cells.log_score.shape, dtype=bool)
    mask: Mask = columns[None, :] | rows[:, None]
    return mask


def _label_one_sided(cells: ScoredCells[int], labels: Labels, one_sided: Mask) -> Labels:
    """Labels with groups for the one-sided nodes: the nearest initiator of each, the second, ...

    A single such node has no comparable node, so each of its cells is a group of its own.
    """
    labels = labels.copy()
    columns = [column for column in range(labels.shape[1]) if one_sided[:, column].all()]
    rows = [row for row in range(labels.shape[0]) if one_sided[row].all()]
    done = np.zeros(labels.shape, dtype=bool)
    lines: list[tuple[slice | int, slice | int]] = [(slice(None), column) for column in columns]
    lines += [(row, slice(None)) for row in rows]
    for line in lines:
        log_score = cells.log_score[line]
        rank = np.empty(len(log_score), dtype=int)
        rank[np.argsort(-log_score, kind="stable")] = np.arange(len(log_score))
        here = one_sided[line] & cells.measured_mask[line] & ~done[line]
        labels[line] = np.where(here, 1 + rank, labels[line])
        done[line] |= here
    return labels


def _names(first: Sequence[str], labels: Labels) -> tuple[str, ...]:
    """Names for all group numbers; those after the given names are ranks of one-sided nodes."""
    more = range(len(first), int(labels.max()) + 1)
    return (*first, *(f"other memory, rank {number - len(first) + 1}" for number in more))


def _shifted(labels: Labels, plain: Mask, used: int) -> Labels:
    """Labels whose one-sided groups follow `used` groups of plain cells."""
    low = labels[~plain & (labels >= 0)]
    if not len(low):
        return labels
    return np.where(~plain & (labels >= 0), labels - low.min() + used, labels)


def _partitions(cells: ScoredCells[int]) -> Iterator[PackageNodes]:
    """Packages of equal size, with neighbouring or with alternating nodes."""
    nodes = sorted(set(cells.rows) & set(cells.columns))
    for size in range(2, len(nodes) // 2 + 1):
        if len(nodes) % size:
            continue
        number = len(nodes) // size
        yield tuple(tuple(nodes[i * size : (i + 1) * size]) for i in range(number))
        yield tuple(tuple(nodes[i::number]) for i in range(number))


def _by_packages(
    cells: ScoredCells[int], plain: Mask, local: Mask, equal: Labels, packages: PackageNodes
) -> Iterator[Structure]:
    """Local, same package, other package; and the same with steps within these."""
    package = {node: index for index, nodes in enumerate(packages) for node in nodes}
    same = np.array(
        [[package.get(r, -1) == package.get(c, -2) for c in cells.columns] for r in cells.rows]
    )
    parts = {"same package": plain & ~local & same, "other package": plain & ~same & ~local}
    parts = {name: part for name, part in parts.items() if part.any()}
    for gap in (None, *GAPS):
        labels, names = np.where(plain, 0, equal), ["local"]
        for name, part in parts.items():
            steps = [part] if gap is None else next(groups_by_value_step(cells, part, gap))
            for number, step in enumerate(steps, start=1):
                labels = np.where(step, len(names), labels)
                names.append(name if len(steps) == 1 else f"{name}, step {number}")
        labels = _shifted(labels, plain, len(names))
        yield Structure(PACKAGES, labels, _names(names, labels), packages)


def nearer_within_packages(cells: ScoredCells[int], structure: Structure) -> bool:
    """Whether every cell group within packages is better than all between packages."""
    level = dict(zip(structure.names, expected_scores(cells, structure.labels), strict=False))
    same = [value for name, value in level.items() if name.startswith("same package")]
    other = [value for name, value in level.items() if name.startswith("other package")]
    return not same or not other or min(same) > max(other)


def _by_steps(cells: ScoredCells[int], remote: Mask, two_groups: Labels) -> Iterator[Structure]:
    """Steps of value, and hops between nearest neighbours."""
    for gap in GAPS:
        for steps in groups_by_value_step(cells, remote, gap):
            if len(steps) < 2:
                continue
            names = [f"step {number}" for number in range(1, len(steps) + 1)]
            names = ["near", "far"] if len(steps) == 2 else names
            yield _structure(STEPS, steps, names, remote, two_groups)
            hops = cells_by_hop_count(steps[0])
            if hops is not None:
                names = [f"{number} hop{'s' if number > 1 else ''}" for number in hops]
                parts = [part & remote for part in hops.values()]
                typical = [np.nanmedian(cells.log_score[part]) for part in parts if part.any()]
                if typical == sorted(typical, reverse=True):  # more hops are not better
                    yield _structure(HOPS, parts, names, remote, two_groups)


def _structure(
    kind: str, parts: Sequence[Mask], names: Sequence[str], remote: Mask, two_groups: Labels
) -> Structure:
    labels = two_groups
    for number, part in enumerate(parts, start=1):
        labels = np.where(part, number, labels)
    labels = _shifted(labels, remote | (two_groups == 0), len(parts) + 1)
    return Structure(kind, labels, _names(["local", *names], labels))


def _by_distances(
    cells: ScoredCells[int], remote: Mask, two_groups: Labels, distances: SlitEntries
) -> Iterator[Structure]:
    """A group for each distance of the SLIT."""
    table = np.array([[distances.get((r, c), np.nan) for c in cells.columns] for r in cells.rows])
    values = np.unique(table[remote & ~np.isnan(table)])
    if len(values) and not np.isnan(table[remote]).any():
        parts = [remote & (table == value) for value in values]
        yield _structure(DISTANCES, parts, [f"distance {v:g}" for v in values], remote, two_groups)
