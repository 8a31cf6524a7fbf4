"""Synthetic machines with known faults and the noise of real ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from chaosity.store.csv_tables import NodeMatrix

BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
Pair = tuple[int, int]
# Machines differ between equal parts, and drift from block to block; if other programs run, one
# replicate in a hundred is disturbed.
NATURAL, DRIFT, DISTURBED, DISTURBANCE = 0.005, 0.03, 0.01, 0.9


@dataclass(frozen=True)
class Layout:
    """A kind of machine: what each node gets from each, as a share of local bandwidth."""

    name: str
    share: Callable[[int, int], float]
    nodes: int
    packages: tuple[tuple[int, ...], ...] | None = None

    def table(self) -> np.ndarray:
        return np.array([[self.share(i, j) for j in range(self.nodes)] for i in range(self.nodes)])

    def distances(self) -> dict[Pair, float]:
        """As honest firmware would give them: 10 for local, more for less."""
        return {
            (i, j): float(round(10.0 / self.share(i, j) ** 0.7))
            for i in range(self.nodes)
            for j in range(self.nodes)
        }


def _steps(*shares: float) -> Callable[[int], float]:
    return lambda hops: shares[min(hops, len(shares) - 1)]


def two_sockets() -> Layout:
    return Layout("two packages", lambda i, j: 1.0 if i == j else 0.4, 2)


def two_packages(each: int = 4) -> Layout:
    def share(i: int, j: int) -> float:
        return 1.0 if i == j else 0.8 if i // each == j // each else 0.45

    of = tuple(tuple(range(p * each, (p + 1) * each)) for p in range(2))
    return Layout(f"2 packages x {each} nodes", share, 2 * each, of)


def ring_of_packages(packages: int = 4, each: int = 2) -> Layout:
    """Remote values have three levels, which are neither packages alone nor hops between nodes."""

    def share(i: int, j: int) -> float:
        hops = abs(i // each - j // each)
        return 1.0 if i == j else (0.8, 0.5, 0.3)[min(hops, packages - hops)]

    of = tuple(tuple(range(p * each, (p + 1) * each)) for p in range(packages))
    return Layout(f"ring of {packages} packages x {each} nodes", share, packages * each, of)


def full_mesh(nodes: int = 8) -> Layout:
    return Layout(f"full mesh of {nodes}", lambda i, j: 1.0 if i == j else 0.5, nodes)


def ring(nodes: int = 8, one_way: bool = False) -> Layout:
    step = _steps(1.0, 0.6, 0.45, 0.35, 0.28, 0.23, 0.2, 0.17)

    def share(i: int, j: int) -> float:
        hops = (j - i) % nodes
        return step(hops if one_way else min(hops, nodes - hops))

    return Layout(f"{'one-way ' if one_way else ''}ring of {nodes}", share, nodes)


def mesh(rows: int = 2, columns: int = 4) -> Layout:
    step = _steps(1.0, 0.65, 0.5, 0.4, 0.33)

    def share(i: int, j: int) -> float:
        return step(abs(i // columns - j // columns) + abs(i % columns - j % columns))

    return Layout(f"mesh {rows} x {columns}", share, rows * columns)


def interleaved(nodes: int = 4) -> Layout:
    return Layout(f"interleaved, {nodes} nodes", lambda i, j: 1.0, nodes)


def clusters_on_die() -> Layout:
    """A ring within each package makes one direction faster than the other, in both alike."""
    inner = {(0, 1): 0.518, (1, 0): 0.554, (0, 0): 1.0, (1, 1): 1.0}
    outer = {(0, 0): 0.44, (0, 1): 0.414, (1, 0): 0.433, (1, 1): 0.41}  # as published

    def share(i: int, j: int) -> float:
        return (inner if i // 2 == j // 2 else outer)[i % 2, j % 2]

    return Layout("clusters on die", share, 4, ((0, 1), (2, 3)))


LAYOUTS = (
    two_sockets(),
    two_packages(2),
    two_packages(4),
    full_mesh(4),
    full_mesh(8),
    ring(4),
    ring(8),
    ring(6, one_way=True),
    mesh(2, 4),
    mesh(2, 3),
    interleaved(4),
    interleaved(8),
    clusters_on_die(),
)


@dataclass(frozen=True)
class Fault:
    """What is wrong: factors on cells, and the table's wrong entries."""

    name: str
    factors: Mapping[Pair, float] = field(default_factory=dict)
    entries: Mapping[Pair, float] = field(default_factory=dict)
    cells: frozenset[Pair] = frozenset()


HEALTHY = Fault("none")


def weak_channel(layout: Layout, node: int, loss: float) -> Fault:
    """Only local accesses are fast enough to show it."""
    return Fault("weak memory channel", {(node, node): 1.0 - loss}, cells=frozenset({(node, node)}))


def slow_memory(layout: Layout, node: int, loss: float) -> Fault:
    cells = {(i, node): 1.0 - loss for i in range(layout.nodes)}
    return Fault("slow memory of a node", cells, cells=frozenset(cells))


def slow_direction(layout: Layout, pair: Pair, loss: float) -> Fault:
    return Fault("slow link, one direction", {pair: 1.0 - loss}, cells=frozenset({pair}))


def slow_link(layout: Layout, pair: Pair, loss: float) -> Fault:
    cells = {pair: 1.0 - loss, pair[::-1]: 1.0 - loss}
    return Fault("slow link, both directions", cells, cells=frozenset(cells))


def slow_cores(layout: Layout, node: int, loss: float) -> Fault:
    cells = {(node, j): 1.0 - loss for j in range(layout.nodes)}
    return Fault("slow processing units of a node", cells, cells=frozenset(cells))


def far_nodes(layout: Layout, losses: Mapping[int, float]) -> Fault:
    """Nodes far from the links of their package; each loses a share of its remote accesses."""
    cells = {
        (i, j): (1.0 - losses.get(i, 0.0)) * (1.0 - losses.get(j, 0.0))
        for i in range(layout.nodes)
        for j in range(layout.nodes)
        if i != j and (i in losses or j in losses)
    }
    return Fault("far nodes", cells, cells=frozenset(cells))


def both_of(one: Fault, other: Fault) -> Fault:
    """Two faults of one machine."""
    pairs = dict.fromkeys([*one.factors, *other.factors])
    factors = {pair: one.factors.get(pair, 1.0) * other.factors.get(pair, 1.0) for pair in pairs}
    return Fault(f"{one.name}, {other.name}", factors, cells=one.cells | other.cells)


def swapped(layout: Layout, one: int, other: int) -> tuple[Layout, Fault]:
    """Two nodes' cables change places: each reaches what the other should."""
    order = list(range(layout.nodes))
    order[one], order[other] = other, one
    moved = Layout(layout.name, lambda i, j: layout.share(order[i], order[j]), layout.nodes)
    changed = {
        (i, j)
        for i in range(layout.nodes)
        for j in range(layout.nodes)
        if moved.share(i, j) != layout.share(i, j)
    }
    return moved, Fault("swapped cable", cells=frozenset(changed))


def lying_table(layout: Layout, one: Pair, other: Pair) -> Fault:
    """Two entries of the distance table, both directions, change places."""
    table = layout.distances()
    entries = {
        one: table[other],
        one[::-1]: table[other],
        other: table[one],
        other[::-1]: table[one],
    }
    return Fault("lying distance table", entries=entries, cells=frozenset(entries))


def measure(
    layout: Layout,
    rng: np.random.Generator,
    fault: Fault = HEALTHY,
    *,
    n: int = 5,
    noise: float = 0.02,
    metric: str = BANDWIDTH,
    local: float = 40e9,
    disturbed: float = 0.0,
) -> NodeMatrix:
    """A matrix with n replicates, each a block that drifts as a whole; some can be disturbed.

    Latency is taken to be inverse to bandwidth, from 100 ns locally.
    """
    truth = layout.table() * np.exp(NATURAL * rng.standard_normal((layout.nodes, layout.nodes)))
    for pair, factor in fault.factors.items():
        truth[pair] *= factor
    truth = local * truth if metric == BANDWIDTH else 100.0 / truth
    drift = np.exp(DRIFT * rng.standard_normal(n)) if n > 1 else np.ones(1)
    samples, blocks = {}, {}
    for i in range(layout.nodes):
        for j in range(layout.nodes):
            values = truth[i, j] * drift * np.exp(noise * rng.standard_normal(n))
            worse = DISTURBANCE if metric == BANDWIDTH else 1.0 / DISTURBANCE
            values = np.where(rng.random(n) < disturbed, values * worse, values)
            samples[i, j] = tuple(float(value) for value in values)
            blocks[i, j] = tuple(range(1, n + 1))
    nodes = tuple(range(layout.nodes))
    return NodeMatrix(metric, nodes, nodes, samples, blocks, "synthetic")


def matrix_of(
    rows: ArrayLike,
    initiators: tuple[int, ...] | None = None,
    targets: tuple[int, ...] | None = None,
    *,
    n: int = 1,
    metric: str = BANDWIDTH,
) -> NodeMatrix:
    """A matrix without noise, with n equal replicates; NaN and None were not measured."""
    table: Any = pd.DataFrame(np.array(rows, dtype=float), initiators, targets)
    samples = {pair: (value,) * n for pair, value in table.stack().dropna().items()}
    return NodeMatrix(metric, tuple(table.index), tuple(table), samples, {}, "synthetic")


def without(matrix: NodeMatrix, pairs: Collection[Pair]) -> NodeMatrix:
    """The matrix of which some cells were not measured."""
    blocks = {pair: own for pair, own in matrix.blocks.items() if pair not in pairs}
    samples = {pair: own for pair, own in matrix.samples.items() if pair not in pairs}
    return replace(matrix, samples=samples, blocks=blocks)


def renamed(matrix: NodeMatrix, names: Sequence[int]) -> NodeMatrix:
    """The matrix with other numbers of nodes."""
    samples = {(names[i], names[j]): own for (i, j), own in matrix.samples.items()}
    blocks = {(names[i], names[j]): own for (i, j), own in matrix.blocks.items()}
    rows, columns = (tuple(map(names.__getitem__, n)) for n in (matrix.initiators, matrix.targets))
    return replace(matrix, initiators=rows, targets=columns, samples=samples, blocks=blocks)
