"""Predict loads that run at the same time, from the model that is fitted to a host's records.

The loads of planned points are joined and asked of the model. An interval follows from draws of
the fitted parameters and from how far measured values are from the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chaosity.errors import UserError
from chaosity.prediction.fit_machine import RATES, departs, kind_of_value
from chaosity.prediction.fitted_description import FittedMachine
from chaosity.prediction.machine_parameters import Values, can_be_fitted, model_of
from chaosity.records.point_types import Load, Point
from chaosity.simulation.simulated_loads import processing_units_of_load
from chaosity.topology.topology_model import Topology

# Draws of the parameters: the 2.5th of the 100 percentiles is then the mean of two draws.
DRAWS = 200
# A capacity that the data do not determine is named if a prediction changes by this share with it.
_MATTERS = 0.02

# (name of the load, metric)
ValueKey = tuple[str, str]


@dataclass(frozen=True)
class PredictedValue:
    """A value of a load while all given loads run, as the fitted model predicts it.

    Attributes:
        load: name of the load, ``<point>/<load>``.
        metric: name of the metric; rates are in bytes per second, latencies in nanoseconds.
        alone: what the model predicts for the load alone.
        measured_alone: median of the measurements of the load alone; None without any.
        value: the predicted value beside the other loads.
        low, high: its 95 % interval.
        departs: whether the measured value of the load alone departs from the model. Then `value`
            is not above the measured one, and the model may be wrong for other loads, too.
    """

    load: str
    metric: str
    alone: float
    measured_alone: float | None
    value: float
    low: float
    high: float
    departs: bool


def joined_loads(points: Sequence[Point]) -> list[Load]:
    """Return the loads of points that run at the same time, each with a name of its own.

    The name is the load's part of the point's name, such as ``memory=node0+node1+triad``.

    Raises:
        UserError: the model has no such load, or two loads use a processing unit for memory.
    """
    loads: list[Load] = []
    names: set[str] = set()
    for number, point in enumerate(points):
        if not can_be_fitted(point):
            remedy = "name points that read memory, or drives in sequence"
            raise UserError(
                "the model has no GPUs, writes to drives, random reads or searches for a placement",
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
            continue  # threads that wait for drives leave the unit to others
        for unit in sorted(processing_units_of_load(load)):
            if unit in used:
                remedy = "name points whose memory loads use different processing units"
                message = f"{used[unit]} and {load['name']} both use processing unit {unit}"
                raise UserError(message, "--with", remedy)
            used[unit] = load["name"]
    return loads


def predict_loads(
    fitted: FittedMachine,
    topology: Topology,
    loads: Sequence[Load],
    measured_alone: dict[ValueKey, float] | None = None,
    seed: int = 0,
) -> list[PredictedValue]:
    """Predict the values of loads that run at the same time.

    Args:
        fitted: the fitted machine.
        topology: its topology.
        loads: the loads, with different names, see `joined_loads`.
        measured_alone: medians of measurements of these loads alone.
        seed: of the draws.
    """
    measured_alone = measured_alone or {}
    alone: dict[ValueKey, float] = {}
    for load in loads:
        alone |= _values(fitted.values, topology, [load])
    together = _values(fitted.values, topology, loads)
    draws = [_values(drawn, topology, loads) for drawn in fitted.draws(DRAWS, seed)]
    random = np.random.default_rng(seed)
    found = []
    for key, value in together.items():
        load = next(load for load in loads if load["name"] == key[0])
        misfit = fitted.misfits[kind_of_value(load, key[1], len(loads))]
        median = measured_alone.get(key)
        departing = median is not None and departs(math.log(median / alone[key]), fitted.scale)
        logs = np.log([draw[key] for draw in draws])
        most = math.inf
        if departing and median is not None and key[1] in RATES:
            most = median  # other loads make no load faster
            logs = np.minimum(logs, math.log(most))
        low, high = _interval(logs + random.normal(0.0, misfit, len(logs)), math.log(value), most)
        found.append(
            PredictedValue(*key, alone[key], median, min(value, most), low, high, departing)
        )
    return found


def _interval(logs: NDArray[np.float64], log_value: float, most: float) -> tuple[float, float]:
    """Return the 95 % interval of draws; it contains the value."""
    low, high = np.quantile(logs, (0.025, 0.975))
    centre = min(log_value, math.log(most))
    return math.exp(min(low, centre)), math.exp(max(high, centre))


def undetermined_capacities(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load]
) -> Iterator[str]:
    """Yield the names of parameters without an interval on which a prediction depends.

    Each of them has the least value that the measurements allow, instead of its estimate.
    """
    usual = _values(fitted.values, topology, loads)
    for each in fitted.parameters:
        if each.is_determined or not each.at_least:
            continue
        least = _values({**fitted.values, each.parameter: each.at_least}, topology, loads)
        if any(least[key] < (1 - _MATTERS) * usual[key] for key in usual):
            yield each.parameter.name


def _values(values: Values, topology: Topology, loads: Sequence[Load]) -> dict[ValueKey, float]:
    """Return the model's values of loads that run at the same time."""
    results = model_of(values, topology).noiseless_results(list(loads))
    found: dict[ValueKey, float] = {}
    for load in loads:
        result = results[load["name"]]
        for metric in load["metrics"]:
            if metric in RATES:
                found[load["name"], metric] = result.counted_bytes_per_second
            elif metric == "latency_ns" and result.latency_ns is not None:
                found[load["name"], metric] = result.latency_ns
    return found
