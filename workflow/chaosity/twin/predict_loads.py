"""Predict loads that run at the same time, from the model that is fitted to a host's records.

The loads of planned points are joined and asked of the model. An interval follows from draws of
the fitted parameters and from how far measured values are from the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.errors import UserError
from chaosity.records.point_types import Load, Point
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_loads import processing_units_of_load
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.twin.fitted_description import FittedMachine
from chaosity.twin.machine_parameters import (
    PARAMETERS,
    Parameter,
    ParameterUses,
    Values,
    can_be_fitted,
    model_of,
)
from chaosity.twin.model_values import ALL, RATES, cell_medians, departs, kind_of_value

# Draws of the parameters: the 2.5th of the 100 percentiles is then the mean of two draws.
DRAWS = 200
# A parameter that the data do not determine is named if a prediction changes by this share with it.
_MATTERS = 0.02

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
    # Whether the measured value of the load alone departs from the model. Then `value` is not above
    # the measured one, and the model may be wrong for other loads, too.
    departs: bool
    # The measured values that tell how far such a value is from the model, such as memory together;
    # all values if few of its own kind are measured.
    misfit_of: str


def joined_loads(points: Sequence[Point], topology: Topology) -> list[Load]:
    """Return the loads of points that run at the same time, each with a name of its own.

    The name is the load's part of the point's name, such as ``memory=node0+node1+triad``.

    Raises:
        UserError: the model has no such load, or two loads use a core for memory.
    """
    loads: list[Load] = []
    names: set[str] = set()
    for number, point in enumerate(points):
        if not can_be_fitted(point):
            remedy = "name points that read memory, or drives in sequence"
            raise UserError(
                "the fit has no GPUs, writes to drives, random reads or searches for a placement",
                f"{point['experiment']}/{point['point']}",
                remedy,
            )
        for load in point["loads"]:
            parts = point["point"].split(".")
            own = [part for part in parts if part.startswith(f"{load['name']}=")]
            name = own[0] if len(own) == 1 else f"{point['point']}/{load['name']}"
            if name in names:
                name = f"{name} #{number + 1}"
            names.add(name)
            loads.append({**load, "name": name})
    used: dict[int, str] = {}
    for load in loads:
        if load["target"]["drives"]:
            continue  # threads that wait for drives leave the core to others
        units = processing_units_of_load(load)
        for core in (core for core in topology.cores if units.intersection(core.cpus)):
            if core.index in used:
                remedy = "name points whose memory loads use different cores"
                both = f"{used[core.index]} and {load['name']}"
                message = f"{both} both use the core of processing unit {min(core.cpus)}"
                raise UserError(message, "--with", remedy)
            used[core.index] = load["name"]
    return loads


def measured_medians(
    measured: Measurements, points: Sequence[Point], loads: Sequence[Load]
) -> dict[ValueKey, float]:
    """Return the medians of loads while just these loads run.

    Args:
        measured: the tidy table of the host.
        points: its planned points; the first one with these loads counts.
        loads: the loads, whose points and names can be others.
    """
    works = [_work(load) for load in loads]
    same = [
        point
        for point in points
        if len(point["loads"]) == len(loads)
        and all(_work(own) in works for own in point["loads"])
        and all(work in map(_work, point["loads"]) for work in works)
    ]
    found: dict[ValueKey, float] = {}
    for (number, name, metric), (median, _, _) in cell_medians(measured, same).items():
        own = next(load for load in same[number]["loads"] if load["name"] == name)
        found.setdefault((loads[works.index(_work(own))]["name"], metric), median)
    return found


def _work(load: Load) -> tuple[object, ...]:
    """Return what a load does and where; equal loads differ at most in their names."""
    levels, size = load.get("levels", {}), load["memory_bytes"]
    return (
        load["benchmark"],
        load["kernel"],
        levels,
        size,
        load["initiator"],
        load["target"]["name"],
    )


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
    measured_alone = measured_alone or {}
    alone: dict[ValueKey, float] = {}
    for load in loads:
        alone |= _values(fitted, topology, [load])
    together = _values(fitted, topology, loads)
    all_draws = fitted.draws(DRAWS, seed=0) if fitted.parameters else ()
    draws = [_values(fitted, topology, loads, drawn) for drawn in all_draws]
    found = []
    for key, value in together.items():
        load = next(load for load in loads if load["name"] == key[0])
        kind = kind_of_value(load, key[1], len(loads))
        kind = kind if kind in fitted.misfits else ALL
        median = measured_alone.get(key)
        departing = median is not None and departs(math.log(median / alone[key]), fitted.scale)
        logs = np.log([draw[key] for draw in draws])
        most = math.inf
        if departing and median is not None and key[1] in RATES:
            most = median  # other loads make no load faster
            logs = np.minimum(logs, math.log(most))
        centre, low, high = min(value, most), None, None
        if draws:
            low, high = _interval(logs, math.log(centre), fitted.misfits[kind])
        own = PredictedValue(*key, alone[key], median, centre, low, high, departing, kind)
        found.append(own)
    return found


def _interval(logs: NDArray[np.float64], centre: float, misfit: float) -> tuple[float, float]:
    """Return the 95 % interval of a value; `centre` and `misfit` are on logarithms as the draws.

    Draws and misfit are independent. No draw of the misfit adds its own scatter to the ends.
    """
    low, high = np.quantile(logs, (0.025, 0.975)) - centre
    own = float(stats.norm.ppf(0.975)) * misfit
    return (
        math.exp(centre - math.hypot(min(low, 0.0), own)),
        math.exp(centre + math.hypot(max(high, 0.0), own)),
    )


def undetermined_parameters(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load]
) -> list[Parameter]:
    """Return the parameters without an interval on which a prediction depends.

    Intervals contain the value with the least capacity that the measurements allow, and with any
    usual latency.

    Raises:
        UserError: nothing is known of a parameter, so that there is no interval.
    """
    listed = {each.parameter for each in fitted.parameters} | fitted.values.keys()
    uses, rates = ParameterUses(topology), [load for load in loads if not _is_latency(load)]
    # The few bytes of a pointer chase fill nothing.
    needed = {own for own in uses.parameters(rates) if own.resources} | {
        own for own in uses.parameters(loads) if own.is_latency and own.required
    }
    if not fitted.parameters:  # a part without a capacity has no limit
        needed = {own for own in needed if own.required}
    for own in sorted(needed - listed, key=PARAMETERS.index):
        if not fitted.parameters:
            remedy = "name points without them, or add the number"
            raise UserError(f"the description has no {own.name}", "--machine", remedy)
        raise _unknown(own)
    usual = _values(fitted, topology, loads)
    found = []
    for each in fitted.parameters:
        own = each.parameter
        if each.is_determined or not (each.at_least or own.is_latency):
            continue
        # A latency that is as far from its estimate as usual latencies are from each other.
        other = each.at_least or (each.value or own.usual) * math.exp(own.spread)
        values = fitted.others.get(own, {**fitted.values, own: other})
        changed = _values(fitted, topology, loads, values)
        if any(abs(math.log(changed[key] / usual[key])) > _MATTERS for key in usual):
            if not (each.at_least or each.value):
                raise _unknown(own)
            found.append(own)
    return found


def _is_latency(load: Load) -> bool:
    """Return whether a load measures a latency."""
    return "latency_ns" in load["metrics"]


def _unknown(parameter: Parameter) -> UserError:
    """Return the error that the data say nothing about a parameter, so there is no interval."""
    remedy = f"measure {parameter.measured_by} first"
    return UserError(f"no valid measurement depends on {parameter.name}", "--with", remedy)


def _values(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load], values: Values | None = None
) -> dict[ValueKey, float]:
    """Return the values of loads at the same time; `values` replace those of the machine."""
    model = model_of(fitted.values if values is None else values, topology, fitted.description)
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
