"""What a machine's structure is, learned from the matrix itself: which cells ought to be equal.

Several hypotheses are put forward (all cells alike; local and remote; packages of neighbouring or
of alternating nodes; steps of value that recur for every node, as in rings and meshes; hops between
nearest neighbours; the firmware's distances), and the one that explains the cells with the fewest
classes is taken. Faults must not be taken for structure: what a class is must recur, so each of its
initiators and targets takes part in it, and a cell that departs costs no more than CAP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.scored_cells import ScoredCells
from chaosity.anomalies.value_steps import all_steps, hops_of

PackageNodes = tuple[tuple[int, ...], ...]
Labels = NDArray[np.int_]  # of each cell the number of its class, -1 where nothing was measured
UNKNOWN, NONE, LOCAL_REMOTE, PACKAGES, STEPS, HOPS, DISTANCES = (
    *("unknown", "none", "local_remote", "packages"),
    *("steps", "hops", "distances"),
)
# A departure beyond three standard deviations is no noise, and how far beyond says nothing of the
# structure.
CAP = 9.0
# Faults make worse. A cell that is better than its class speaks against the class twice as much.
BETTER = 2.0
# What is known beforehand is given up only for more than one pair of nodes that departs both ways.
KNOWN = 2.0 * CAP + 2.0
# The structure of a machine is not learned from a sample of its cells; some points may have failed.
ENOUGH_CELLS = 0.75
# Structure below a few per cent matters to nobody, however small the noise is.
LEAST_SCALE = 0.03
# Gaps between sorted values that may part classes. The near and far nodes of a four-socket Opteron
# differ by 13 %; nodes of one class by less than 6 % on all published machines.
GAPS = (0.06, 0.1, 0.2)


@dataclass(frozen=True)
class Structure:
    """A hypothesis.

    Attributes:
        kind: one of the above.
        labels: class of each cell.
        names: of the classes, by their numbers.
        packages: nodes of each package, where it is about packages.
    """

    kind: str
    labels: Labels
    names: tuple[str, ...]
    packages: PackageNodes | None = None

    @property
    def words(self) -> str:
        """For a sentence."""
        if self.kind == UNKNOWN:
            return "unknown: no node was measured both on its own memory and on another's"
        if self.kind == NONE:
            return "none: all nodes reach all memory alike, as when it is interleaved"
        if self.packages is not None:
            listed = " | ".join(",".join(map(str, nodes)) for nodes in self.packages)
            return f"{' / '.join(self.names)}, packages {listed}"
        return " / ".join(self.names)


def centres(cells: ScoredCells, labels: Labels) -> NDArray[np.float64]:
    """Expected log_score of each class.

    The median, and of an even number the better one in the middle: faults make worse, not better,
    so of two that differ the better one shows what the machine can do.
    """
    found = np.full(labels.max() + 1, np.nan)
    for label in range(len(found)):
        values = np.sort(cells.log_score[labels == label])
        if len(values):
            found[label] = values[len(values) // 2]
    return found


def residuals(cells: ScoredCells, structure: Structure) -> NDArray[np.float64]:
    """Goodness of each cell less its class's; negative for the worse."""
    expected = np.append(centres(cells, structure.labels), np.nan)  # -1 takes the NaN
    return cells.log_score - expected[structure.labels]


def learn(
    cells: ScoredCells,
    packages: PackageNodes | None = None,
    distances: Mapping[tuple[int, int], float] | None = None,
) -> Structure:
    """The hypothesis that explains a matrix of nodes best.

    Args:
        cells: rows and columns are node numbers.
        packages: of the nodes, where they are known; then no other packages are thought of.
        distances: of the firmware's table, where it is known.
    """
    best, least = None, np.inf
    hypotheses = list(_hypotheses(cells, packages, distances))
    for one in hypotheses:
        known = one.kind == DISTANCES or (one.kind == PACKAGES and packages is not None)
        total = cost(cells, one) - (KNOWN if known else 0.0)
        if total < least - 1e-9:
            best, least = one, total
    assert best is not None  # the first hypothesis always stands
    # What is the same by another name is called by what it is first: packages say more than steps.
    same = next(one for one in hypotheses if _same(one.labels, best.labels))
    return _ordered(cells, same)


def _same(one: Labels, other: Labels) -> bool:
    """Whether two hypotheses put the same cells together."""
    pairs = set(zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def cost(cells: ScoredCells, structure: Structure) -> float:
    """What a hypothesis leaves unexplained, and its classes; the less the better."""
    scale = max(LEAST_SCALE, cells.noise if not cells.freedom else float(np.nanmedian(cells.error)))
    departures = residuals(cells, structure)[cells.measured]
    classes = len(np.unique(structure.labels[cells.measured]))
    # The penalty of a class is that of Schwarz's criterion, twice: better one class too few.
    penalty = 2.0 * np.log(max(2, len(departures)))
    costs = np.minimum((departures / scale) ** 2, CAP) * np.where(departures > 0.0, BETTER, 1.0)
    return float(costs.sum() + penalty * classes)


def _ordered(cells: ScoredCells, structure: Structure) -> Structure:
    """With classes numbered from the best to the worst, local first."""
    labels, names = structure.labels, structure.names
    used = [label for label in range(len(names)) if (labels == label).any()]
    level = centres(cells, labels)
    order = sorted(used, key=lambda label: (names[label] != "local", -level[label]))
    anew = np.full(len(names) + 1, -1)
    for new, old in enumerate(order):
        anew[old] = new
    return replace(structure, labels=anew[labels], names=tuple(names[label] for label in order))


def _hypotheses(
    cells: ScoredCells,
    packages: PackageNodes | None,
    distances: Mapping[tuple[int, int], float] | None,
) -> Iterator[Structure]:
    measured = cells.measured
    alike = np.where(measured, 0, -1)
    local = cells.local
    foreign = _foreign(cells)
    plain = measured & ~foreign
    if foreign.any():
        alike = _with_foreign(cells, alike, foreign)
    if not (local & measured).any() or not (plain & ~local).any():
        yield _unknown(cells, local)
        return
    yield Structure(NONE, alike, _names(["all"], alike))
    remote = np.where(plain & ~local, 1, _shifted(alike, plain, 2))
    yield Structure(LOCAL_REMOTE, remote, _names(["local", "remote"], remote))
    for nodes in [packages] if packages else _partitions(cells):
        for one in _by_packages(cells, plain, local, alike, nodes):
            if packages or nearer_within(cells, one):
                yield one
    yield from _by_steps(cells, plain & ~local, remote)
    if distances:
        yield from _by_distances(cells, plain & ~local, remote, distances)


def _unknown(cells: ScoredCells, local: NDArray[np.bool_]) -> Structure:
    """Local cells are alike; of others nobody knows what ought to be equal."""
    labels = np.full(local.shape, -1)
    names = []
    if (local & cells.measured).any():
        labels[local & cells.measured] = 0
        names.append("local")
    for row, column in zip(*np.nonzero(~local & cells.measured), strict=True):
        labels[row, column] = len(names)
        names.append(f"{cells.rows[row]}->{cells.columns[column]}")
    return Structure(UNKNOWN, labels, tuple(names))


def _foreign(cells: ScoredCells) -> NDArray[np.bool_]:
    """ScoredCells of memory without processing units, or of processing units without memory."""
    columns = np.array([column not in cells.rows for column in cells.columns])
    rows = np.array([row not in cells.columns for row in cells.rows])
    if columns.all() or rows.all():
        return np.zeros(cells.log_score.shape, dtype=bool)
    return columns[None, :] | rows[:, None]


def _with_foreign(cells: ScoredCells, labels: Labels, foreign: NDArray[np.bool_]) -> Labels:
    """Classes of the cells of such nodes: the nearest initiator of each, the second nearest, ...

    A single such node has no siblings, so each of its cells is a class of its own.
    """
    labels = labels.copy()
    across = [column for column in range(labels.shape[1]) if foreign[:, column].all()]
    down = [row for row in range(labels.shape[0]) if not foreign[row, across].all()] or [
        row for row in range(labels.shape[0]) if foreign[row].all()
    ]
    used = 1
    taken = np.zeros(labels.shape, dtype=bool)
    for line, log_score in [
        *((np.s_[:, column], cells.log_score[:, column]) for column in across),
        *((np.s_[row, :], cells.log_score[row]) for row in down if foreign[row].all()),
    ]:
        rank = np.empty(len(log_score), dtype=int)
        rank[np.argsort(-log_score, kind="stable")] = np.arange(len(log_score))
        here = foreign[line] & cells.measured[line] & ~taken[line]
        labels[line] = np.where(here, used + rank, labels[line])
        taken[line] |= here
    return labels


def _names(first: Sequence[str], labels: Labels) -> tuple[str, ...]:
    """Names for all numbers in use; those beyond the given are ranks of foreign nodes."""
    more = range(len(first), int(labels.max()) + 1)
    return (*first, *(f"other memory, rank {number - len(first) + 1}" for number in more))


def _shifted(labels: Labels, plain: NDArray[np.bool_], used: int) -> Labels:
    """Foreign classes moved behind `used` classes of plain cells."""
    low = labels[~plain & (labels >= 0)]
    if not len(low):
        return labels
    return np.where(~plain & (labels >= 0), labels - low.min() + used, labels)


def _partitions(cells: ScoredCells) -> Iterator[PackageNodes]:
    """Nodes in packages of equal size, neighbours together or dealt out in turn."""
    nodes = sorted(set(cells.rows) & set(cells.columns))
    for size in range(2, len(nodes) // 2 + 1):
        if len(nodes) % size:
            continue
        number = len(nodes) // size
        yield tuple(tuple(nodes[i * size : (i + 1) * size]) for i in range(number))
        yield tuple(tuple(nodes[i::number]) for i in range(number))


def _by_packages(
    cells: ScoredCells,
    plain: NDArray[np.bool_],
    local: NDArray[np.bool_],
    alike: Labels,
    packages: PackageNodes,
) -> Iterator[Structure]:
    """Local, same package, other package; and with steps within these."""
    of = {node: index for index, nodes in enumerate(packages) for node in nodes}
    same = np.array([[of.get(r, -1) == of.get(c, -2) for c in cells.columns] for r in cells.rows])
    parts = {"same package": plain & ~local & same, "other package": plain & ~same & ~local}
    parts = {name: part for name, part in parts.items() if part.any()}
    for gap in (None, *GAPS):
        labels, names = np.where(plain, 0, alike), ["local"]
        for name, part in parts.items():
            steps = [part] if gap is None else next(all_steps(cells, part, gap))
            for number, step in enumerate(steps, start=1):
                labels = np.where(step, len(names), labels)
                names.append(name if len(steps) == 1 else f"{name}, step {number}")
        labels = _shifted(labels, plain, len(names))
        yield Structure(PACKAGES, labels, _names(names, labels), packages)


def nearer_within(cells: ScoredCells, structure: Structure) -> bool:
    """No package is nearer to another one than to itself, at any step."""
    level = dict(zip(structure.names, centres(cells, structure.labels), strict=False))
    same = [value for name, value in level.items() if name.startswith("same package")]
    other = [value for name, value in level.items() if name.startswith("other package")]
    return not same or not other or min(same) > max(other)


def _by_steps(cells: ScoredCells, remote: NDArray[np.bool_], alike: Labels) -> Iterator[Structure]:
    """Values in steps, and hops between nearest neighbours."""
    for gap in GAPS:
        for steps in all_steps(cells, remote, gap):
            if len(steps) < 2:
                continue
            names = [f"step {number}" for number in range(1, len(steps) + 1)]
            names = ["near", "far"] if len(steps) == 2 else names
            yield _structure(STEPS, steps, names, remote, alike)
            hops = hops_of(steps[0])
            if hops is not None:
                names = [f"{number} hop{'s' if number > 1 else ''}" for number in hops]
                parts = [part & remote for part in hops.values()]
                typical = [np.nanmedian(cells.log_score[part]) for part in parts if part.any()]
                if typical == sorted(typical, reverse=True):  # farther is no better
                    yield _structure(HOPS, parts, names, remote, alike)


def _structure(
    kind: str,
    parts: Sequence[NDArray[np.bool_]],
    names: Sequence[str],
    remote: NDArray[np.bool_],
    alike: Labels,
) -> Structure:
    labels = alike
    for number, part in enumerate(parts, start=1):
        labels = np.where(part, number, labels)
    plain = remote | (alike == 0)
    labels = _shifted(labels, plain, len(parts) + 1)
    return Structure(kind, labels, _names(["local", *names], labels))


def _by_distances(
    cells: ScoredCells,
    remote: NDArray[np.bool_],
    alike: Labels,
    distances: Mapping[tuple[int, int], float],
) -> Iterator[Structure]:
    table = np.array([[distances.get((r, c), np.nan) for c in cells.columns] for r in cells.rows])
    values = np.unique(table[remote & ~np.isnan(table)])
    if len(values) and not np.isnan(table[remote]).any():
        parts = [remote & (table == value) for value in values]
        yield _structure(DISTANCES, parts, [f"distance {v:g}" for v in values], remote, alike)
