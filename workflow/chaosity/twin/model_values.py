"""Compute values of the model of simulated machines for the points of a fit and for predictions.

Points with the same flows on other parts of the same kind have the same values, so the model is
computed for only one of these points. The derivative for a parameter is computed only at points
whose values the parameter can change. A capacity changes values only where one of its resources is
nearly full, or where accesses wait in queues. A new capacity of a shared resource changes no route
of a load, so routes are computed again only if the value of a core, a drive or a latency changes.

For a prediction, the loads of planned points are joined, and the model computes their values. The
interval of a prediction is computed from draws of the fitted parameters, and from the usual
distance of measured values from the model.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.errors import UserError
from chaosity.records.record_format import Load, Point, point_key
from chaosity.simulation.machine_model import MachineModel, Routes
from chaosity.simulation.simulated_loads import processing_units_of_load, share_of_peak_rate
from chaosity.statistics.estimates import LEAST_REPORTED_DIFFERENCE
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
    with_capacity_and_same_slow_parts,
)

# Half the step of a parameter's logarithm with which a derivative is computed. The step is above
# the noise of usual runs, so that a capacity that becomes full only by noise has a derivative.
_LOG_STEP_OF_DERIVATIVE = 0.005
# A value counts as proportional to a capacity if both grow equally fast, except for this share.
_TOLERANCE_OF_PROPORTIONALITY = 1e-6
# Utilisation below which a resource cannot become full by a step of a parameter.
_LEAST_UTILISATION_NEARLY_FULL = math.exp(-2 * _LOG_STEP_OF_DERIVATIVE)
# Utilisation below which the queue of a resource makes each latency longer by at most 0.1 %.
_LEAST_UTILISATION_WITH_DELAY = 0.01
# A cell: its number, the position of its load in the point, and its metric.
Row = tuple[int, int, str]
MODELLED_RATES = ("bandwidth_bytes_per_second", "processing_throughput_bytes_per_second")
MODELLED_METRICS = (*MODELLED_RATES, "latency_ns")
# A cell departs from the model if the logarithms of cell and model differ by more than
# `LEAST_REPORTED_DIFFERENCE` and by more than this number of standard deviations. By chance, one
# cell in two million departs.
_DEVIATIONS_OF_DEPARTURE = 5.0

# The name for values of all kinds together, see `value_kind_of_load`.
ALL_KINDS_OF_VALUES = "all values"
# The key of a cell: number of the point, name of the load, metric.
CellKey = tuple[int, str, str]
# The statistics of a cell: median, variance of the logarithms, and number of replicates.
Cell = tuple[float, float, int]


def cell_medians(measured: Measurements, points: Sequence[Point]) -> dict[CellKey, Cell]:
    """Return (number of the point, load, metric) -> median, variance of logarithms, and n."""
    rows = measured.valid_rows().rows
    names = ["experiment", "point", "load", "initiator", "target", "metric"]
    logs = np.log(rows.loc[rows["metric"].isin(MODELLED_METRICS), "value"])
    groups = logs.groupby([rows.loc[logs.index, name] for name in names])
    table = groups.agg(["median", "var", "count"]).fillna(0.0)
    found = {key: tuple(row) for key, row in zip(table.index, table.to_numpy(), strict=True)}
    cells = {}
    for number, point in enumerate(points):
        for load in point["loads"]:
            role = load.get("role", load["name"])
            place = *point_key(point), role
            for metric in load["metrics"]:
                row = found.get((*place, load["initiator"]["name"], load["target"]["name"], metric))
                if row is not None:
                    median, variance, count = row
                    cells[number, load["name"], metric] = math.exp(median), variance, int(count)
    return cells


def value_kind_of_load(load: Load, metric: str, loads: int) -> str:
    """Return the kind of a value, such as "memory alone".

    Values of one kind are about equally far from the model.

    Args:
        load: the load of the value.
        metric: the metric of the value.
        loads: number of loads that run at the same time.
    """
    thing = "drives" if load["target"]["drives"] else "memory"
    thing = "latency" if metric == "latency_ns" else thing
    return f"{thing} {'alone' if loads == 1 else 'together'}"


def departs(difference: float, scale: float) -> bool:
    """Return whether a value differs from the model by more than 5 % and 5 standard deviations.

    Args:
        difference: difference of the logarithms of value and model.
        scale: standard deviation of these differences, `FittedMachine.scale`.
    """
    return abs(difference) > max(LEAST_REPORTED_DIFFERENCE, _DEVIATIONS_OF_DEPARTURE * scale)


@dataclass
class ModelValues:
    """The values of all cells that the model has with given parameters."""

    values: Values  # parameter -> its value
    logs: NDArray[np.float64]  # logarithm of the value of each cell
    # Number of each point -> how full each resource is, 0 to 1.
    utilisation: dict[int, Mapping[str, float]] = field(default_factory=dict)


class ModelOfPoints:
    """Evaluates the model at the cells to which it is fitted.

    Args:
        topology: the topology of the host.
        uses: the parameters that loads use.
        points: the points.
        same: number of each point -> number of the point that is evaluated, with the same values.
        keys: the cells.
    """

    def __init__(
        self,
        topology: Topology,
        uses: ParameterUses,
        points: Sequence[Point],
        same: Mapping[int, int],
        keys: Sequence[CellKey],
    ) -> None:
        self._topology = topology
        # Number of a point for which the model is computed -> the cells of this point.
        self._rows: dict[int, list[Row]] = defaultdict(list)
        for row, (number, name, metric) in enumerate(keys):
            names = [load["name"] for load in points[number]["loads"]]
            self._rows[same[number]].append((row, names.index(name), metric))
        self._loads = {number: points[number]["loads"] for number in self._rows}
        self._users: dict[Parameter, set[int]] = defaultdict(set)
        for number, loads in self._loads.items():
            for parameter in uses.parameters_of_loads(loads):
                self._users[parameter].add(number)
        self._chases = {
            number
            for number, loads in self._loads.items()
            if any("latency_ns" in load["metrics"] for load in loads)
        }
        # Points whose values can depend on the capacity of a resource even while this resource is
        # not full.
        self._sensitive = self._chases | {
            number
            for number, loads in self._loads.items()
            if any(share_of_peak_rate(load) < 1 for load in loads)
        }
        self._routes: dict[int, tuple[Values, Routes]] = {}
        self._last = ModelValues({}, np.zeros(len(keys)))

    def is_used(self, parameter: Parameter) -> bool:
        """Return whether at least one measured value can depend on this parameter of the model."""
        return bool(self._users[parameter])

    def values_at(self, values: Values) -> ModelValues:
        """Return the values of the model with the given parameters."""
        if self._last.values != values:
            self._last = self._values_after_change(
                ModelValues(values, self._last.logs), self._loads
            )
        return self._last

    def values_without_limit(self, now: ModelValues, parameter: Parameter) -> ModelValues:
        """Return the values of the model if one capacity sets no limit."""
        left = {each: value for each, value in now.values.items() if each is not parameter}
        changed = ModelValues(left, now.logs, now.utilisation)
        return self._values_after_change(changed, self._points_that_change(now, parameter, 0.0))

    def jacobian(self, now: ModelValues) -> NDArray[np.float64]:
        """Return the derivative of each value for each parameter, both as logarithms."""
        derivatives = np.zeros((len(now.logs), len(now.values)))
        for column, (parameter, value) in enumerate(now.values.items()):
            affected = self._points_that_change(now, parameter, _LEAST_UTILISATION_WITH_DELAY)
            up = self._values_after_change(
                now, affected, {parameter: value * math.exp(_LOG_STEP_OF_DERIVATIVE)}
            )
            rise = up.logs - now.logs
            if parameter.resources:  # the value of a cell has a kink where a capacity becomes full
                # A value that grows in proportion to the capacity is limited by the capacity, so no
                # kink is near.
                kinks = set(
                    np.flatnonzero(
                        rise < (1 - _TOLERANCE_OF_PROPORTIONALITY) * _LOG_STEP_OF_DERIVATIVE
                    )
                )
                full = {
                    number
                    for number in self._points_that_change(
                        now, parameter, _LEAST_UTILISATION_NEARLY_FULL
                    )
                    if any(row in kinks for row, _, _ in self._rows[number])
                }
                down = self._values_after_change(
                    now, full, {parameter: value * math.exp(-_LOG_STEP_OF_DERIVATIVE)}
                )
                fall = now.logs - down.logs
                rows = [row for number in full for row, _, _ in self._rows[number]]
                rise[rows] = (rise[rows] + fall[rows]) / 2
            derivatives[:, column] = rise / _LOG_STEP_OF_DERIVATIVE
        return derivatives

    def _points_that_change(
        self, now: ModelValues, parameter: Parameter, queues: float
    ) -> set[int]:
        """Return the points whose values a small change of a parameter can change.

        `queues` is the utilisation above which accesses wait in the queue of a resource. If the
        machine has no limit of bytes in flight, no rate depends on a latency.
        """
        found = self._users[parameter] & self._chases if parameter.is_latency else set[int]()
        if parameter.is_latency and not any(own.is_bytes_in_flight for own in now.values):
            return found
        return found | {
            number
            for number in self._users[parameter] - found
            if any(
                used > (queues if number in self._sensitive else _LEAST_UTILISATION_NEARLY_FULL)
                and parameter.affects_fullness_of(name)
                for name, used in now.utilisation[number].items()
            )
        }

    def _values_after_change(
        self, old: ModelValues, numbers: Iterable[int], changed: Values | None = None
    ) -> ModelValues:
        """Return the values for changed parameters; only the given points are computed again."""
        values = {**old.values, **(changed or {})}
        new = ModelValues(values, old.logs.copy(), dict(old.utilisation))
        model = model_with_values(new.values, self._topology)
        on_routes = {each: value for each, value in values.items() if each.changes_routes}
        for number in numbers:
            loads = self._loads[number]
            known, routes = self._routes.get(number, (None, None))
            if routes is None or known != on_routes:
                routes = model.routes(loads)
                if changed is None:
                    self._routes[number] = on_routes, routes
            found = model.results_on(routes, loads)
            results = [found[load["name"]] for load in loads]
            new.utilisation[number] = results[0].utilisation
            for row, place, metric in self._rows[number]:
                value = results[place].latency_ns if metric == "latency_ns" else None
                new.logs[row] = math.log(value or results[place].counted_bytes_per_second)
        return new


# Number of draws of the parameters, so that five draws are below the 2.5th percentile.
PARAMETER_DRAWS_COUNT = 200
# A prediction depends on a parameter if other values of the parameter change the prediction by more
# than this share.
LEAST_NAMED_CHANGE_OF_PREDICTION = 0.02

# The key of a prediction: name of the load, metric.
ValueKey = tuple[str, str]


@dataclass(frozen=True)
class PredictedValue:
    """A value of a load while all given loads run, as the fitted model predicts it."""

    load: str  # name of the load, ``<point>/<load>``
    metric: str  # name of the metric; rates are in bytes per second, latencies in nanoseconds
    alone: float  # the value that the model predicts for the load alone
    # Median of the measurements of the load alone; None without measurements.
    measured_alone: float | None
    value: float  # the predicted value while all loads run
    # low, high: 95 % interval of `value`; None if the uncertainty of the machine is unknown.
    low: float | None
    high: float | None
    # Says whether the measured value of the load alone departs from the model. If it departs, a
    # rate in `value` is at most the measured rate, and the model may be wrong for other loads too.
    departs: bool
    # Kind of measured values whose distance from the model gives the interval, such as "memory
    # together", or the kind of all values if few values of this kind were measured.
    misfit_of: str


def loads_at_the_same_time(points: Sequence[Point], topology: Topology) -> list[Load]:
    """Return the loads of points that run at the same time, each with a unique name.

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
        # Only loads on memory need different cores, since threads that wait for drives leave the
        # core to other threads.
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
    """Return the medians of loads that were measured while exactly these loads ran.

    Args:
        measured: the tidy table of the host.
        points: the planned points of the host; the first point with these loads counts.
        loads: the loads; they can belong to other points and have other names.
    """
    names = {_work_and_place_text(load): load["name"] for load in reversed(loads)}
    same = [
        point
        for point in points
        if len(point["loads"]) == len(loads)
        and set(map(_work_and_place_text, point["loads"])) == names.keys()
    ]
    found: dict[ValueKey, float] = {}
    for (number, name, metric), (median, _, _) in cell_medians(measured, same).items():
        own = next(load for load in same[number]["loads"] if load["name"] == name)
        found.setdefault((names[_work_and_place_text(own)], metric), median)
    return found


def _work_and_place_text(load: Load) -> str:
    """Return the work and the place of a load as a text, which is the same for equal loads."""
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
        topology: the topology of the machine.
        loads: the loads, with different names, see `loads_at_the_same_time`.
        measured_alone: medians of measurements of these loads alone.
    """
    by_name = {load["name"]: load for load in loads}
    alone = {
        name: _values_with_parameters(fitted, topology, [load]) for name, load in by_name.items()
    }
    all_draws = fitted.draws(PARAMETER_DRAWS_COUNT, seed=0) if fitted.parameters else ()
    draws = [_values_with_parameters(fitted, topology, loads, drawn) for drawn in all_draws]
    found = []
    for key, value in _values_with_parameters(fitted, topology, loads).items():
        kind = value_kind_of_load(by_name[key[0]], key[1], len(loads))
        kind = kind if kind in fitted.misfits else ALL_KINDS_OF_VALUES
        usual, median, most = alone[key[0]][key], (measured_alone or {}).get(key), math.inf
        departing = median is not None and departs(math.log(median / usual), fitted.scale)
        if departing and median is not None and key[1] in MODELLED_RATES:
            most = median  # a load is not faster because other loads run
        centre, low, high = min(value, most), None, None
        if draws:
            logs = np.log([min(draw[key], most) for draw in draws])
            low, high = _interval_of_draws(logs, math.log(centre), fitted.misfits[kind])
        found.append(PredictedValue(*key, usual, median, centre, low, high, departing, kind))
    return found


def _interval_of_draws(
    logs: NDArray[np.float64], centre: float, misfit: float
) -> tuple[float, float]:
    """Return the 95 % interval of a value; draws, `centre` and `misfit` are logarithms.

    The draws and the misfit of the model are independent. The misfit is not drawn, so that it adds
    no random scatter to the ends of the interval.
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
    """Return the parameters that loads need, but that have no value in the fitted machine.

    Args:
        fitted: the fitted machine.
        uses: the parameters that loads on the machine use.
        loads: the loads.
    """
    rates = [load for load in loads if "latency_ns" not in load["metrics"]]
    # Pointer chases are left out, since they move too few bytes to fill a resource.
    needed = {own for own in uses.parameters_of_loads(rates) if own.resources} | {
        own for own in uses.parameters_of_loads(loads) if own.is_latency and own.required
    }
    if not fitted.parameters:  # a part without a capacity sets no limit
        needed = {own for own in needed if own.required}
    return sorted_parameters(needed - fitted.known_parameters)


def undetermined_parameters(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load]
) -> list[Parameter]:
    """Return the parameters without an interval on which a prediction depends.

    A prediction depends on a parameter if the prediction changes with the smallest capacity that
    the measurements allow, or with an unusual value of a latency.

    Raises:
        UserError: a parameter is unknown, so that there is no interval.
    """

    def error_of_unknown(own: Parameter) -> UserError:
        remedy = f"measure {own.measured_by} first"
        return UserError(f"no valid measurement depends on {own.name}", "--with", remedy)

    for own in parameters_without_data(fitted, ParameterUses(topology), loads):
        if not fitted.parameters:
            remedy = "name points that do not need this number, or add the number"
            raise UserError(f"the description has no {own.name}", "--machine", remedy)
        raise error_of_unknown(own)
    usual = _values_with_parameters(fitted, topology, loads)
    found = []
    for each in fitted.parameters:
        own = each.parameter
        if each.is_determined or not (each.at_least or own.is_latency):
            continue
        # An undetermined latency is tried with a value as far from its estimate as usual latencies
        # are from one another.
        other = each.at_least or (each.value or own.usual) * math.exp(own.spread)
        values = fitted.others.get(own) or with_capacity_and_same_slow_parts(
            fitted.values, own, other
        )
        changed = _values_with_parameters(fitted, topology, loads, values)
        if any(
            abs(math.log(changed[key] / usual[key])) > LEAST_NAMED_CHANGE_OF_PREDICTION
            for key in usual
        ):
            if not (each.at_least or each.value):
                raise error_of_unknown(own)
            found.append(own)
    return found


def _values_with_parameters(
    fitted: FittedMachine, topology: Topology, loads: Sequence[Load], values: Values | None = None
) -> dict[ValueKey, float]:
    """Return the values of co-running loads; `values` replace values of the fitted machine."""
    model = model_with_values(
        fitted.values if values is None else values, topology, fitted.description
    )
    return model_values(model, loads)


def model_values(model: MachineModel, loads: Sequence[Load]) -> dict[ValueKey, float]:
    """Return the values that a model gives to loads that run at the same time."""
    results = model.noiseless_results(list(loads))
    found: dict[ValueKey, float] = {}
    for load in loads:
        result = results[load["name"]]
        for metric in load["metrics"]:
            if metric in MODELLED_RATES:
                found[load["name"], metric] = result.counted_bytes_per_second
            elif metric == "latency_ns" and result.latency_ns is not None:
                found[load["name"], metric] = result.latency_ns
    return found
