"""How well `chaosity fit` recovers the description of simulated machines from their values.

Each machine is fitted to the values of its default plan, except the values of some experiments. The
fitted machine then predicts the cells of these experiments, and drive sets that the fit did not
read. The predictions are compared with the true values. Capacities that the data do not determine
count in no error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.config import read_config
from chaosity.simulation.machine_model import MachineModel, true_values
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fit_results import faults_of_findings
from chaosity.twin.machine_parameters import can_be_fitted
from chaosity.twin.model_values import MODELLED_RATES, predict_loads
from machines import TODAY, SimulatedHost, shipped_machine, shipped_topology

# Topology, description: without faults, with bytes in flight, with faulty paths, with many nodes.
MACHINES = (
    ("xeon_8358", "xeon_8358"),
    ("epyc_7413_nps4", "epyc_7413"),
    ("epyc_7413_nps4", "epyc_7413_nps4"),
    ("epyc_9575f_nps4", "epyc_9575f"),
    ("sixteen_nodes", "sixteen_nodes"),
)
HELD_OUT = ("interference", "bandwidth_scaling", "contended_paths")
# At most this many values of an experiment have their intervals compared with the truth.
AT_MOST = 40
# Of the points with drives of several nodes, the fit reads every fifth, and predicts the others.
EVERY = 5


@dataclass
class Fit:
    """The results of one fit.

    Attributes:
        errors: name of each determined parameter -> its relative error.
        held: for each determined parameter, whether its interval contains the true value.
        undetermined: names of parameters of the true description without an interval.
        factors: for each factor of a single part, whether its interval contains the true value;
            None for a part without a fault.
        missed: faulty parts without a factor.
        misses: experiment -> relative errors of predicted cells.
        contains: experiment -> whether the interval of a prediction contains the true value, for
            at most `AT_MOST` points.
    """

    errors: dict[str, float]
    held: list[bool]
    undetermined: list[str]
    factors: list[bool | None]
    missed: list[str]
    misses: dict[str, list[float]]
    contains: dict[str, list[bool]]


def fit_with_seed(names: tuple[str, str], seed: int) -> Fit:
    """Fit a machine with one seed to the points that are not held out."""
    topology = shipped_topology(names[0])
    machine: Any = shipped_machine(names[1], topology)
    config = read_config()
    names_of_all = dict.fromkeys([*config["experiments"], *HELD_OUT])
    config = {**config, "experiments": list(names_of_all)}
    faults = machine.get("faults", [])
    host = SimulatedHost.planned(machine, topology, faults, config, all_points=True)
    read, predicted = [], []
    for number, point in enumerate(host.points):
        sets = point["loads"][0]["target"]["kind"] == "all_of_nodes"
        out = point["experiment"] in HELD_OUT or (sets and number % EVERY)
        (predicted if out else read).append(point)
    table = replace(host, points=tuple(read)).table_of_records(seed)
    findings = analyse_host(table, host.component_facts)
    result = fit_machine(table, read, topology, faults_of_findings(findings, topology))
    found = Fit({}, [], [], [], [], {}, {})
    for each in result.parameters:
        section = {} if each.parameter.fault else machine.get(each.parameter.section, {})
        true = section.get(each.parameter.key)
        if true and each.low and each.value and each.high:
            found.errors[each.parameter.name] = each.value / true - 1
            found.held.append(each.low <= true <= each.high)
        elif true:
            found.undetermined.append(each.parameter.name)
    true_faults = {_part_text(fault): fault["remaining"] for fault in machine.get("faults", [])}
    for each in result.parameters:
        if each.parameter.fault and each.low and each.high:
            part = _part_text(json.loads(each.parameter.fault))
            true = true_faults.pop(part, 1.0)
            found.factors.append(None if true == 1.0 else each.low <= true <= each.high)
    found.missed += true_faults
    twin = MachineModel(result.description, topology, host.name, TODAY)
    truth = MachineModel(host.machine, topology, host.name, TODAY)
    for point in predicted:
        own = found.contains.setdefault(point["experiment"], [])
        if len(own) < AT_MOST and can_be_fitted(point):
            right = truth.noiseless_results(point["loads"])
            for each in predict_loads(result, topology, point["loads"]):
                value = right[each.load].counted_bytes_per_second
                if each.metric == "latency_ns":
                    value = right[each.load].latency_ns or 0.0
                own.append(each.low <= value <= each.high)
    for point in predicted:
        model, right = true_values(point, twin), true_values(point, truth)
        for load, metric in ((load, metric) for load in right for metric in MODELLED_RATES):
            if (value := right[load].get(metric)) and metric in model[load]:
                ratio = float(model[load][metric]) / float(value)  # type: ignore[arg-type]
                found.misses.setdefault(point["experiment"], []).append(ratio - 1)
    return found


def _part_text(fault: dict[str, Any]) -> str:
    """Return the faulty part and the kind of its fault, as text."""
    return json.dumps({key: fault[key] for key in sorted(fault) if key != "remaining"})


def compare(seeds: int) -> Iterator[str]:
    """Yield two tables in Markdown: parameters, and predictions."""
    fits = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for names in MACHINES:
            fits[names] = list(pool.map(partial(fit_with_seed, names), range(1, seeds + 1)))
    yield "| machine | seeds | determined | error, median | worst | intervals that hold the truth |"
    yield "|---" * 6 + "|"
    for (_, name), own in fits.items():
        errors = np.abs([error for fit in own for error in fit.errors.values()])
        held = [inside for fit in own for inside in fit.held]
        total = len(own[0].errors) + len(own[0].undetermined)
        worst_name = max((abs(e), n) for fit in own for n, e in fit.errors.items())[1]
        yield (
            f"| `{name}` | {seeds} | {len(own[0].errors)} of {total} | "
            f"{100 * np.median(errors):.2f} % | {100 * errors.max():.1f} % (`{worst_name}`) | "
            f"{sum(held)} of {len(held)} |"
        )
    yield "| machine | faulty parts | found | intervals that hold the truth | wrongly found |"
    yield "|---" * 5 + "|"
    for (_, name), own in fits.items():
        right = [each for fit in own for each in fit.factors if each is not None]
        missed = sum(len(fit.missed) for fit in own)
        wrong = sum(each is None for fit in own for each in fit.factors)
        yield (
            f"| `{name}` | {len(right) + missed} | {len(right)} | {sum(right)} of {len(right)} | "
            f"{wrong} |"
        )
    heads = "machine", "predicted", "cells", "error, median", "95 % below", "worst"
    yield f"| {' | '.join(heads)} | intervals that hold the truth |"
    yield "|---" * 7 + "|"
    for (_, name), own in fits.items():
        for experiment in own[0].misses:
            off = np.abs([miss for fit in own for miss in fit.misses[experiment]])
            shares = " | ".join(f"{100 * np.quantile(off, q):.1f} %" for q in (0.5, 0.95, 1.0))
            inside = [each for fit in own for each in fit.contains[experiment]]
            yield (
                f"| `{name}` | `{experiment}` | {len(off)} | {shares} | "
                f"{sum(inside)} of {len(inside)} |"
            )
    for (_, name), own in fits.items():
        yield f"{name}, not determined: {', '.join(own[0].undetermined)}"


PARTS = {"fitted_machines": compare}
