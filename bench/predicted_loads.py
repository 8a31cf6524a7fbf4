"""How well `chaosity predict --with` predicts loads that run at the same time.

Each machine is fitted to single loads and to every third point of `interference`. Predicted are the
other points of `interference`, and pairs of points that slow each other down and that are in no
plan. The predictions are compared with the values without noise, and with simulated measurements of
the same seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from chaosity.documents.config import read_config
from chaosity.errors import UserError
from chaosity.records.record_format import Point
from chaosity.simulation.machine_model import MachineModel
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.machine_parameters import can_be_fitted
from chaosity.twin.model_values import (
    cell_medians,
    loads_at_the_same_time,
    model_values,
    predict_loads,
)
from machines import TODAY, SimulatedHost, shipped_machine, shipped_topology

# Topology, description: two nodes, eight nodes, sixteen nodes with bytes in flight.
MACHINES = (
    ("xeon_8358", "xeon_8358"),
    ("epyc_7413_nps4", "epyc_7413"),
    ("sixteen_nodes", "sixteen_nodes"),
)
EXPERIMENTS = [
    "memory_bandwidth",
    "latency_matrix",
    "loaded_latency",
    "storage_bandwidth",
    "interference",
]
# Points of `interference` that the fit reads, and the most points of each kind that are predicted.
EVERY, AT_MOST = 3, 20
# A pair counts if one of its loads loses this share of its rate or gains this share of latency.
SLOWER = 0.03


@dataclass
class Prediction:
    """A predicted value: relative error, and whether its interval holds truth and measurement."""

    kind: str
    error: float
    holds_truth: bool
    holds_measured: bool


def contended_pairs(host: SimulatedHost, truth: MachineModel) -> Iterator[Point]:
    """Yield pairs of points, as one point, of which a load is slower than alone."""
    chance, single = random.Random(1), [p for p in host.points if can_be_fitted(p)]
    memory = [point for point in single if not point["loads"][0]["target"]["drives"]]
    while True:
        first, second = chance.choice(memory), chance.choice(single)
        try:
            loads = loads_at_the_same_time([first, second], host.topology)
        except UserError:
            continue  # both use the same cores
        together = model_values(truth, loads)
        alone = [model_values(truth, [load]) for load in loads]
        if any(abs(together[key] / own[key] - 1) > SLOWER for own in alone for key in own):
            names = {"experiment": "pairs", "point": f"{first['point']}.{second['point']}"}
            yield {**first, **names, "loads": loads, "relative": []}  # type: ignore[typeddict-item]


def held_out_predictions(names: tuple[str, str], seed: int) -> list[Prediction]:
    """Fit a machine with one seed, and predict the values that the fit did not read."""
    topology = shipped_topology(names[0])
    machine = shipped_machine(names[1], topology)
    config = {**read_config(), "experiments": EXPERIMENTS}
    host = SimulatedHost.planned(machine, topology, [], config, all_points=True)
    truth = MachineModel(host.machine, topology, host.name, TODAY)
    several = [point for point in host.points if len(point["loads"]) > 1]
    several = [point for point in several if point["experiment"] == "interference"]
    held_out = [point for number, point in enumerate(several) if number % EVERY]
    read = [point for point in host.points if point not in held_out]
    pairs = contended_pairs(host, truth)
    asked = [
        *random.Random(2).sample(held_out, min(AT_MOST, len(held_out))),
        *(next(pairs) for _ in range(AT_MOST)),
    ]
    fitted = fit_machine(replace(host, points=tuple(read)).table_of_records(seed), read, topology)
    table = replace(host, points=tuple(asked)).table_of_records(seed)
    measured = cell_medians(table, asked)
    found = []
    for number, point in enumerate(asked):
        right = model_values(truth, point["loads"])
        for each in predict_loads(fitted, topology, point["loads"]):
            key = each.load, each.metric
            value = measured[number, *key][0]
            metric = "latency" if each.metric == "latency_ns" else "rate"
            found.append(
                Prediction(
                    f"{point['experiment']}, {metric}",
                    each.value / right[key] - 1,
                    each.low <= right[key] <= each.high,
                    each.low <= value <= each.high,
                )
            )
    return found


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    heads = "machine", "predicted", "values", "error, median", "95 % below", "worst"
    yield f"| {' | '.join(heads)} | intervals that hold the truth | a measurement |"
    yield "|---" * 8 + "|"
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for names in MACHINES:
            own = [
                each
                for found in pool.map(partial(held_out_predictions, names), range(1, seeds + 1))
                for each in found
            ]
            for kind in sorted({each.kind for each in own}):
                yield table_row(names[1], kind, [each for each in own if each.kind == kind])


def table_row(name: str, kind: str, own: Sequence[Prediction]) -> str:
    """Return a row of the table."""
    off = np.abs([each.error for each in own])
    shares = " | ".join(f"{100 * np.quantile(off, q):.1f} %" for q in (0.5, 0.95, 1.0))
    held = sum(each.holds_truth for each in own), sum(each.holds_measured for each in own)
    inside = " | ".join(f"{100 * number / len(own):.1f} %" for number in held)
    return f"| `{name}` | {kind} | {len(own)} | {shares} | {inside} |"


PARTS = {"predicted_loads": compare}
