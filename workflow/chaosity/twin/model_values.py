"""The values of the model of simulated machines at the points of a fit, and their derivatives.

Points with the same flows, but on other parts of the same kind, have the same values, so the model
is computed for one of them only. The derivative with respect to a parameter is computed only at
points whose values the parameter can change: a capacity only matters where one of its resources is
nearly full, or where queues matter. A new capacity of a shared resource changes no route, so routes
are kept until the value of a core, a drive or a latency changes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from chaosity.records.record_format import Load, Point
from chaosity.simulation.machine_model import Routes
from chaosity.simulation.simulated_loads import rate_share
from chaosity.statistics.estimates import MATTERS
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.twin.machine_parameters import (
    Parameter,
    ParameterUses,
    Values,
    model_with_values,
)

# Half the width of the differences that give the derivatives, on logarithms. This width is above
# the noise of usual runs, so that a capacity that is full only with some noise has a derivative.
_STEP = 0.005
# A value is proportional to a capacity if it grows as fast as the capacity, up to this share.
_PROPORTIONAL = 1e-6
# A resource below this share of its capacity is not full after a step either.
_NEARLY_FULL = math.exp(-2 * _STEP)
# A resource with a lower utilisation makes no latency longer by more than 0.1 %.
_BUSY = 0.01
# Number of a cell, position of its load in the point, metric.
Row = tuple[int, int, str]
RATES = ("bandwidth_bytes_per_second", "processing_throughput_bytes_per_second")
METRICS = (*RATES, "latency_ns")
# A cell departs from the model if the logarithms differ by more than `MATTERS` and by more than
# this many standard deviations: one in two million does so by chance.
_DEPARTS_SIGMAS = 5.0

# The kind of all values, see `kind_of_value`.
ALL = "all values"
# Point, name of the load, metric.
CellKey = tuple[int, str, str]
# Median, variance of logarithms, and number of replicates.
Cell = tuple[float, float, int]


def cell_medians(measured: Measurements, points: Sequence[Point]) -> dict[CellKey, Cell]:
    """Return (number of the point, load, metric) -> median, variance of logarithms, and n."""
    rows = measured.valid_rows().rows
    names = ["experiment", "point", "load", "initiator", "target", "metric"]
    logs = np.log(rows.loc[rows["metric"].isin(METRICS), "value"])
    groups = logs.groupby([rows.loc[logs.index, name] for name in names])
    table = groups.agg(["median", "var", "count"]).fillna(0.0)
    found = {key: tuple(row) for key, row in zip(table.index, table.to_numpy(), strict=True)}
    cells = {}
    for number, point in enumerate(points):
        for load in point["loads"]:
            role = load.get("role", load["name"])
            place = point["experiment"], point["point"], role
            for metric in load["metrics"]:
                row = found.get((*place, load["initiator"]["name"], load["target"]["name"], metric))
                if row is not None:
                    median, variance, count = row
                    cells[number, load["name"], metric] = math.exp(median), variance, int(count)
    return cells


def kind_of_value(load: Load, metric: str, loads: int) -> str:
    """Return the kind of a value, such as "memory alone".

    Values of one kind are about equally far from the model.

    Args:
        load: the load of the value.
        metric: its metric.
        loads: number of loads that run at the same time.
    """
    thing = "drives" if load["target"]["drives"] else "memory"
    thing = "latency" if metric == "latency_ns" else thing
    return f"{thing} {'alone' if loads == 1 else 'together'}"


def departs(difference: float, scale: float) -> bool:
    """Return whether a value departs from the model: by 5 %, and by many deviations of all values.

    Args:
        difference: of the logarithms of value and model.
        scale: standard deviation of such differences, `FittedMachine.scale`.
    """
    return abs(difference) > max(MATTERS, _DEPARTS_SIGMAS * scale)


@dataclass
class ModelValues:
    """The model's values for given parameters."""

    values: Values  # the parameters
    logs: NDArray[np.float64]  # logarithm of the value of each cell
    # Number of each point -> how full each resource is, 0 to 1.
    utilisation: dict[int, Mapping[str, float]] = field(default_factory=dict)


class ModelOfPoints:
    """The model, evaluated at the cells that are fitted.

    Args:
        topology: the topology of the host.
        uses: which parameters loads use.
        points: the points.
        same: number of each point -> number of a point that has the same values, and is evaluated.
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
        # Number of a point that is evaluated -> its cells.
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
        # Points at which values can depend on a capacity that is not full.
        self._sensitive = self._chases | {
            number
            for number, loads in self._loads.items()
            if any(rate_share(load) < 1 for load in loads)
        }
        self._routes: dict[int, tuple[Values, Routes]] = {}
        self._last = ModelValues({}, np.zeros(len(keys)))

    def is_used(self, parameter: Parameter) -> bool:
        """Return whether any measured value can depend on this parameter of the model."""
        return bool(self._users[parameter])

    def values_at(self, values: Values) -> ModelValues:
        """Return the model's values with these parameters."""
        if self._last.values != values:
            self._last = self._evaluated(ModelValues(values, self._last.logs), self._loads)
        return self._last

    def values_without_limit(self, now: ModelValues, parameter: Parameter) -> ModelValues:
        """Return the values without the limit of a capacity."""
        left = {each: value for each, value in now.values.items() if each is not parameter}
        changed = ModelValues(left, now.logs, now.utilisation)
        return self._evaluated(changed, self._affected(now, parameter, 0.0))

    def jacobian(self, now: ModelValues) -> NDArray[np.float64]:
        """Return the derivative of each value for each parameter, both as logarithms."""
        derivatives = np.zeros((len(now.logs), len(now.values)))
        for column, (parameter, value) in enumerate(now.values.items()):
            affected = self._affected(now, parameter, _BUSY)
            up = self._evaluated(now, affected, {parameter: value * math.exp(_STEP)})
            rise = up.logs - now.logs
            if parameter.resources:  # a capacity has a kink where it becomes full
                # A value that grows in proportion to the capacity is limited by it, so no kink is
                # near.
                kinks = set(np.flatnonzero(rise < (1 - _PROPORTIONAL) * _STEP))
                full = {
                    number
                    for number in self._affected(now, parameter, _NEARLY_FULL)
                    if any(row in kinks for row, _, _ in self._rows[number])
                }
                down = self._evaluated(now, full, {parameter: value * math.exp(-_STEP)})
                fall = now.logs - down.logs
                rows = [row for number in full for row, _, _ in self._rows[number]]
                rise[rows] = (rise[rows] + fall[rows]) / 2
            derivatives[:, column] = rise / _STEP
        return derivatives

    def _affected(self, now: ModelValues, parameter: Parameter, queues: float) -> set[int]:
        """Return the points whose values a small change of a parameter can change.

        `queues` is the utilisation of a resource from which on accesses wait for it in a queue.
        Without a limit of bytes in flight, no rate depends on latencies.
        """
        found = self._users[parameter] & self._chases if parameter.is_latency else set[int]()
        if parameter.is_latency and not any(own.is_bytes_in_flight for own in now.values):
            return found
        return found | {
            number
            for number in self._users[parameter] - found
            if any(
                used > (queues if number in self._sensitive else _NEARLY_FULL)
                and parameter.affects_fullness_of(name)
                for name, used in now.utilisation[number].items()
            )
        }

    def _evaluated(
        self, old: ModelValues, numbers: Iterable[int], changed: Values | None = None
    ) -> ModelValues:
        """Return values that are new at the given points, and for changed parameters."""
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
