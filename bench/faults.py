"""How often faults of known size are found on simulated machines, and how often findings are wrong.

The machines are from ``tests/support/faulty_machines.py``. Equal parts differ by 0.5 %, replicates
by 2 %, and blocks drift by 3 %. One replicate in a hundred loses a tenth, as much as a fault takes.
Recall is the share of machines whose fault is found. Precision is the share of findings that are
about the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import faulty_machines as faulty
from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host
from chaosity.anomalies.matrix_anomalies import analyse_matrix
from chaosity.store.measurements import Measurements
from table_rows import rows, table

MACHINES = 30
CLEAN = 200
LOSSES, RUNS = (0.05, 0.1, 0.2, 0.3), (1, 3, 5)
EIGHT = (faulty.two_packages(4), faulty.full_mesh(8), faulty.ring(8), faulty.mesh(2, 4))
STEPPED = (faulty.two_packages(4), faulty.ring(8), faulty.mesh(2, 4), faulty.ring(4))
Rng = np.random.Generator
measure = partial(faulty.measure, disturbed=faulty.DISTURBED)
Cells = frozenset[tuple[object, object]]


@dataclass(frozen=True)
class Outcome:
    """Whether the fault of one machine was found, and the number of true and false findings."""

    found: bool
    true: int
    false: int


def compare(_: int) -> Iterator[str]:
    """Yield a table of recall and precision; the number of pairs is not used."""
    yield f"recall % / precision % of {MACHINES} machines of 8 nodes each, 2 % noise:"
    heads = [f"{loss:.0%} n={n}" for n in RUNS for loss in LOSSES]
    yield f"{'fault':30}" + "".join(f"{head:>10}" for head in heads)
    for name, make in FAULTS.items():
        cells = [shown(simulate(name, make, loss, n)) for n in RUNS for loss in LOSSES]
        yield f"{name:30}" + "".join(f"{cell:>10}" for cell in cells)
    yield "without a size, n = 1, 3, 5:"
    for name, make in WITHOUT_SIZE.items():
        cells = [shown(simulate(name, make, 0.0, n)) for n in RUNS]
        yield f"{name:30}" + "".join(f"{cell:>10}" for cell in cells)
    for n in RUNS:
        false = sum(bool(healthy(seed, n).anomalies) for seed in range(CLEAN))
        yield (
            f"healthy 8 x 8 machines of which something is reported, n = {n}: {false} of {CLEAN} "
            f"({100.0 * false / CLEAN:.1f} in 100; goal at n = 5: at most 1)"
        )


def simulate(
    name: str, make: Callable[[Rng, float, int], Outcome], loss: float, n: int
) -> Sequence[Outcome]:
    """Return what is reported of machines with one fault each; each run has the same machines."""
    rng = np.random.default_rng([*name.encode(), int(1000 * loss), n])
    return [make(rng, loss, n) for _ in range(MACHINES)]


def shown(outcomes: Sequence[Outcome]) -> str:
    """Return recall and precision in per cent as text; no precision if nothing was reported."""
    recall = 100.0 * np.mean([one.found for one in outcomes])
    true, reported = sum(o.true for o in outcomes), sum(o.true + o.false for o in outcomes)
    return f"{recall:.0f}/{100.0 * true / reported:.0f}" if reported else f"{recall:.0f}/-"


def judged(found: Findings, cells: Cells) -> Outcome:
    """Compare what was reported with the cells in which the fault is."""
    about = [bool(set(one.cells) & cells) for one in found.anomalies]
    return Outcome(any(about), sum(about), len(about) - sum(about))


def healthy(seed: int, n: int) -> Findings:
    """Return the findings on a machine without a fault."""
    rng = np.random.default_rng([seed, n])
    layout = EIGHT[seed % len(EIGHT)]
    return analyse_matrix(measure(layout, rng, n=n))


def pair(layout: faulty.Layout, rng: Rng) -> tuple[int, int]:
    """Return two different nodes."""
    one, other = rng.choice(layout.nodes, 2, replace=False)
    return int(one), int(other)


def _matrix(make: Callable[[faulty.Layout, Rng, float], faulty.Fault]) -> Callable[..., Outcome]:
    """Return a function that gives the outcome for a fault of memory or links on random nodes."""

    def one(rng: Rng, loss: float, n: int) -> Outcome:
        layout = EIGHT[int(rng.integers(len(EIGHT)))]
        fault = make(layout, rng, loss)
        matrix = measure(layout, rng, fault, n=n)
        return judged(analyse_matrix(matrix, None, layout.distances()), fault.cells)

    return one


def drive_name(node: int, number: int) -> str:
    """Return the name of a drive of a node."""
    return f"drive-{node}-{number}"


def measure_drives(
    layout: faulty.Layout,
    rng: np.random.Generator,
    *,
    each: int = 2,
    slow: Mapping[str, float] | None = None,
    swapped: tuple[str, str] | None = None,
    n: int = 5,
    noise: float = 0.02,
    far: float = 0.8,
) -> pd.DataFrame:
    """Return the tidy table of every drive read alone from every node.

    Args:
        layout: of the nodes.
        rng: of the noise.
        each: drives of a node.
        slow: drive -> the share of its bandwidth that is left.
        swapped: two drives whose cables changed places, so that each hangs off the other's node.
        n: replicates.
        noise: standard deviation of a replicate.
        far: what a node gets from a drive of another node, as a share.
    """
    names = {drive_name(node, k): node for node in range(layout.nodes) for k in range(each)}
    wired = dict(names)
    if swapped:
        one, other = swapped
        wired[one], wired[other] = names[other], names[one]
    drift = np.exp(faulty.DRIFT * rng.standard_normal(n))
    parts, measured = [], []
    for name, node in names.items():
        own = 7e9 * np.exp(faulty.NATURAL * rng.standard_normal()) * (slow or {}).get(name, 1.0)
        for reader in range(layout.nodes):
            share = 1.0 if reader == wired[name] else far
            values = own * share * drift * np.exp(noise * rng.standard_normal(n))
            measured += np.where(
                rng.random(n) < faulty.DISTURBED, values * faulty.DISTURBANCE, values
            ).tolist()
            columns: dict[str, Any] = {
                "point": f"storage=node{reader}+{name}",
                "relation": "same_node" if reader == node else "other_node",
                **{"target": name, "target_kind": "drive", "drives": 1},
                **dict.fromkeys(("experiment", "category"), "storage_bandwidth"),
                **{"load": "storage", "kernel": None},
            }
            parts.append(rows(lambda *_: 1.0, [reader], [node], replicates=n, **columns))
    return table(*parts).assign(value=measured)


def models(tidy: pd.DataFrame) -> dict[str, str]:
    """Return the model of each drive: all are of the same."""
    return dict.fromkeys(tidy["target"].unique(), "M1")


def slow_drive(rng: Rng, loss: float, n: int) -> Outcome:
    """Return the outcome for sixteen drives of which one is slow."""
    layout = faulty.two_packages(4)
    name = drive_name(int(rng.integers(8)), int(rng.integers(2)))
    tidy = measure_drives(layout, rng, slow={name: 1.0 - loss}, n=n)
    found = analyse_host(Measurements.from_table(tidy), HostComponentFacts(models=models(tidy)))
    return judged(found, frozenset((f"node{node}", name) for node in range(layout.nodes)))


def swapped_drives(rng: Rng, _: float, n: int) -> Outcome:
    """Return the outcome for two drives of different nodes whose cables changed places."""
    layout = faulty.two_packages(4)
    one, other = (drive_name(node, int(rng.integers(2))) for node in pair(layout, rng))
    tidy = measure_drives(layout, rng, swapped=(one, other), n=n)
    found = analyse_host(Measurements.from_table(tidy), HostComponentFacts(models=models(tidy)))
    cells = frozenset((f"node{node}", name) for node in range(8) for name in (one, other))
    return judged(found, cells)


def swapped_nodes(rng: Rng, _: float, n: int) -> Outcome:
    """Return the outcome for two nodes whose links changed places without firmware's knowledge."""
    while True:
        layout = STEPPED[int(rng.integers(len(STEPPED)))]
        moved, fault = faulty.swapped(layout, *pair(layout, rng))
        if fault.cells:
            break
    matrix = measure(moved, rng, fault, n=n)
    return judged(analyse_matrix(matrix, layout.packages, layout.distances()), fault.cells)


def lying_table(rng: Rng, _: float, n: int) -> Outcome:
    """Return the outcome for two entries of the SLIT that changed places."""
    while True:
        layout = STEPPED[int(rng.integers(len(STEPPED)))]
        table = layout.distances()
        one, other = pair(layout, rng), pair(layout, rng)
        if table[one] != table[other]:
            break
    fault = faulty.lying_table(layout, one, other)
    matrix = measure(layout, rng, n=n)
    return judged(analyse_matrix(matrix, None, {**table, **fault.entries}), fault.cells)


FAULTS: dict[str, Callable[[Rng, float, int], Outcome]] = {
    "slow drive": slow_drive,
    "slow link, one direction": _matrix(lambda la, r, x: faulty.slow_direction(la, pair(la, r), x)),
    "slow link, both directions": _matrix(lambda la, r, x: faulty.slow_link(la, pair(la, r), x)),
    "weak memory channel": _matrix(
        lambda la, r, x: faulty.weak_channel(la, int(r.integers(la.nodes)), x)
    ),
    "slow memory of a node": _matrix(
        lambda la, r, x: faulty.slow_memory(la, int(r.integers(la.nodes)), x)
    ),
    "slow processing units": _matrix(
        lambda la, r, x: faulty.slow_cores(la, int(r.integers(la.nodes)), x)
    ),
}
WITHOUT_SIZE: dict[str, Callable[[Rng, float, int], Outcome]] = {
    "swapped cables of drives": swapped_drives,
    "swapped cables of nodes": swapped_nodes,
    "lying distance table": lying_table,
}


PARTS = {"faults": compare}
