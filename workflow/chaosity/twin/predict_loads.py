"""Predict loads that run at the same time, from the model that is fitted to a host's records.

The loads of planned points are joined, and the model computes their values. An interval follows
from draws of the fitted parameters and from how far measured values are from the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.errors import UserError
from chaosity.records.record_format import Load, Point
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_loads import processing_units_of_load
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.twin.fitted_description import FittedMachine
from chaosity.twin.machine_parameters import (
    Parameter,
    ParameterUses,
    Values,
    can_be_fitted,
    model_with_values,
    sorted_parameters,
    with_capacity,
)
from chaosity.twin.model_values import ALL, RATES, cell_medians, departs, kind_of_value

# Number of draws of the parameters: five of them are below the 2.5th percentile.
DRAWS = 200
# A parameter that the data do not determine is named if a prediction changes by more than this
# share with the parameter.
MATTERS_FOR_PREDICTION = 0.02

# (name of the load, metric)
ValueKey = tuple[str, str]


@dataclass(frozen=True)
class PredictedValue:
    """A value of a load while all given loads run, as the fitted model predicts it."""

    load: str  # name of the load, ``<point>/<load>``
    metric: str  # name of the metric; rates are in bytes per second, latencies in nanoseconds
    alone: float  # what the model predicts for the load alone
    measured_alone: float | None  # median of the measurements of the load alone; None without any
    value: float  # the predicted value beside the other loads
    # low, high: its 95 % interval; None if nothing says how sure the machine's numbers are.
    low: float | None
    high: float | None
    # Whether the measured value of the load alone departs from the model. Then a rate in `value` is
    # at most the measured rate, and the model may be wrong for other loads, too.
    departs: bool
    # The kind of measured values whose distance from the model gives the interval, such as memory
    # together; all values if few values of this kind were measured.
    misfit_of: str


def joined_loads(points: Sequence[Point], topology: Topology) -> list[Load]:
    """Return the loads of points that run at the same time, each with a name of its own.

    The name is the load's part of the point's name, such as ``memory=node0+node1+triad``.

    Raises:
        UserError: the model cannot predict a load, or two loads on memory use the same core.
    """
    loads: dict[str, Load] = {}
    for number, point in enumerate(points, start=1):
        if not can_be_fitted(point):
            raise UserError(
                "the model knows no GPUs, writes to drives, random reads and placement searches",
                f"{point['experiment']}/{point['point']}",
                "name points that read memory, or drives in sequence",
            )
        for load in point["loads"]:
            parts = point["point"].split(".")
            own = [part for part in parts if part.startswith(f"{load['name']}=")]
            name = own[0] if len(own) == 1 else f"{point['point']}/{load['name']}"
            name = f"{name} #{number}" if name in loads else name
            loads[name] = {**load, "name": name}
    used: dict[int, str] = {}
    for name, load in loads.items():
        # Threads that wait for drives leave the core to other threads.
        units = set() if load["target"]["drives"] else {*processing_units_of_load(load)}
        for core in (core for core in topology.cores if units.intersection(core.cpus)):
            if other := used.get(core.index):
                remedy = "name points whose memory loads use different cores"
                both = f"{other} and {name} both use the core of processing unit {min(core.cpus)}"
                raise UserError(both, "--with", remedy)
            used[core.index] = name
    return [*loads.values()]


def measured_medians(
    measured: Measurements, points: Sequence[Point], loads: Sequence[Load]
) -> dict[ValueKey, float]:
    """Return the medians of loads while just these loads run.

    Args:
        measured: the tidy table of the host.
        points: its planned points; the first one with these loads counts.
        loads: the loads; they can belong to other points and have other names.
    """
    names = {_work(load): load["name"] for load in reversed(loads)}
    same = [
        point
        for point in points
        if len(point["loads"]) == len(loads) and set(map(_work, point["loads"])) == names.keys()
    ]
    found: dict[ValueKey, float] = {}
    for (number, name, metric), (median, _, _) in cell_medians(measured, same).items():
        own = next(load for load in same[number]["loads"] if load["name"] == name)
        found.setdefault((names[_work(own)], metric), median)
    return found


def _work(load: Load) -> str:
    """Return what a load does and where, as text; equal loads differ at most in their names."""
    keys = ("benchmark", "kernel", "levels", "memory_bytes", "initiator")
    own = {key: load.get(key) or {} for key in keys}
    return json.dumps([own, load["target"]["name"]], sort_keys=True)


def predict_loads(
    fitted: FittedMachine,
    topology: Topology,
    loads: Sequence[Load],
    measured_alone: dict[ValueKey, float] | None = None,
) -> list[PredictedValue]:
    """Predict the values of loads that run at the same time.

    Args:
        fitted: the fitted machine.
        topology: its topology.
        loads: the loads, with different names, see `joined_loads`.
        measured_alone: medians of measurements of these loads alone.
    """
    by_name = {load["name"]: load for load in loads}
    alone = {name: _values(fitted, topology, [load]) for name, load in by_name.items()}
    all_draws = fitted.draws(DRAWS, seed=0) if fitted.parameters else ()
    draws = [_values(fitted, topology, loads, drawn) for drawn in all_draws]
    found = []
    for key, value in _values(fitted, topology, loads).items():
        kind = kind_of_value(by_name[key[0]], key[1], len(loads))
        kind = kind if kind in fitted.misfits else ALL
        usual, median, most = alone[key[0]][key], (measured_alone or {}).get(key), math.inf
        departing = median is not None and departs(math.log(median / usual), fitted.scale)
        if departing and median is not None and key[1] in RATES:
            most = median  # other loads make no load faster
        centre, low, high = min(value, most), None, None
        if draws:
            logs = np.log([min(draw[key], most) for draw in draws])
            low, high = _interval(logs, math.log(centre), fitted.misfits[kind])
        found.append(PredictedValue(*key, usual, median, centre, low, high, departing, kind))
    return found


def _interval(logs: NDArray[np.float64], centre: float, misfit: float) -> tuple[float, float]:
    """Return the 95 % interval of a value; `centre` and `misfit` are on logarithms as the draws.

    Draws and misfit are independent. The misfit is not drawn, so it adds no random scatter to the
    ends.
    """
    low, high = np.quantile(logs, (0.025, 0.975)) - centre
    own = float(stats.norm.ppf(0.975)) * misfit
    return (
        math.exp(centre - math.hypot(min(low, 0.0), own)),
        math.exp(centre + math.hypot(max(high, 0.0), own)),
    )


def parameters_without_data(
    fitted: FittedMachine, uses: ParameterUses, loads: Sequence[Load]
) -> list[Parameter]:
    """Return the parameters that loads need and that no measurement or description gives.

    Args:
        fitted: the fitted machine.
        uses: which parameters loads of its topology use.
        loads: the loads.
    """
    rates = [load for load in loads if "latency_ns" not in load["metrics"]]
    # The few bytes of a pointer chase fill nothing.
    needed = {own for own in uses.parameters_of_loads(rates) if own.resources} | {
        own for own in uses.parameters_of_loads(loads) if own.is_latency and own.required
    }
    if not fitted.parameters:  # a part without a capacity has no limit
        needed = {own for own in needed if own.required}
    return sorted_parameters(needed - fitted.known_parameters)


def undetermined_parameters(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load]
) -> list[Parameter]:
    """Return the parameters without an interval on which a prediction depends.

    Intervals contain the value with the least capacity that the measurements allow, and with any
    usual latency.

    Raises:
        UserError: nothing is known of a parameter, so that there is no interval.
    """

    def unknown(own: Parameter) -> UserError:
        remedy = f"measure {own.measured_by} first"
        return UserError(f"no valid measurement depends on {own.name}", "--with", remedy)

    for own in parameters_without_data(fitted, ParameterUses(topology), loads):
        if not fitted.parameters:
            remedy = "name points without them, or add the number"
            raise UserError(f"the description has no {own.name}", "--machine", remedy)
        raise unknown(own)
    usual = _values(fitted, topology, loads)
    found = []
    for each in fitted.parameters:
        own = each.parameter
        if each.is_determined or not (each.at_least or own.is_latency):
            continue
        # A latency that is as far from its estimate as usual latencies are from each other.
        other = each.at_least or (each.value or own.usual) * math.exp(own.spread)
        values = fitted.others.get(own) or with_capacity(fitted.values, own, other)
        changed = _values(fitted, topology, loads, values)
        if any(abs(math.log(changed[key] / usual[key])) > MATTERS_FOR_PREDICTION for key in usual):
            if not (each.at_least or each.value):
                raise unknown(own)
            found.append(own)
    return found


def _values(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load], values: Values | None = None
) -> dict[ValueKey, float]:
    """Return the values of loads at the same time; `values` replace those of the machine."""
    model = model_with_values(
        fitted.values if values is None else values, topology, fitted.description
    )
    return model_values(model, loads)


def model_values(model: MachineModel, loads: Sequence[Load]) -> dict[ValueKey, float]:
    """Return a model's values of loads that run at the same time."""
    results = model.noiseless_results(list(loads))
    found: dict[ValueKey, float] = {}
    for load in loads:
        result = results[load["name"]]
        for metric in load["metrics"]:
            if metric in RATES:
                found[load["name"], metric] = result.counted_bytes_per_second
            elif metric == "latency_ns" and result.latency_ns is not None:
                found[load["name"], metric] = result.latency_ns
    return found
