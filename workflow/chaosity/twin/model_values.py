"""The values of the model of docs/simulation.md at the points of a fit, and their derivatives.

Points with the same flows, but on other parts of the same kind, have the same values, so the model
is only asked for one of them. Derivatives need no point on which a parameter has no effect: a
capacity only matters where one of its resources is nearly full, or where queues matter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from chaosity.records.point_types import Point
from chaosity.simulation.simulated_loads import rate_share
from chaosity.topology.topology_model import Topology
from chaosity.twin.machine_parameters import (
    PARAMETERS,
    Parameter,
    ParameterUses,
    Values,
    model_of,
)
from chaosity.twin.measured_cells import CellKey

# Half the width of the differences that give the derivatives, on logarithms. Above the noise of
# usual runs, so that a capacity that is full only with some noise has a derivative.
_STEP = 0.005
# A resource below this share of its capacity is not full after a step either.
_NEARLY_FULL = math.exp(-2 * _STEP)
# A resource with a lower utilisation makes no latency longer by more than 0.1 %.
_BUSY = 0.01


@dataclass
class ModelValues:
    """The model's values for given parameters."""

    values: Values  # the parameters
    logs: NDArray[np.float64]  # logarithm of the value of each cell
    # Number of each point -> how full each resource is, 0 to 1.
    utilisation: dict[int, Mapping[str, float]] = field(default_factory=dict)


class ModelOfPoints:
    """The model at the cells of a fit.

    Args:
        topology: the topology of the host.
        points: number -> point.
        keys: the cells.
        distinct: names of resources that can differ from others of their kind.

    Attributes:
        same: number of each point -> number of a point that has the same values, and is evaluated.
    """

    def __init__(
        self,
        topology: Topology,
        points: Mapping[int, Point],
        keys: Sequence[CellKey],
        distinct: Collection[str] = (),
    ) -> None:
        self._topology, uses = topology, ParameterUses(topology)
        first: dict[Hashable, int] = {}
        self.same = {
            number: first.setdefault(uses.flows_without_names(point["loads"], distinct), number)
            for number, point in points.items()
        }
        self._loads = {number: points[number]["loads"] for number in first.values()}
        # Number of a point that is evaluated -> row, place of the load, and metric of each cell.
        self._rows: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for row, (number, name, metric) in enumerate(keys):
            names = [load["name"] for load in points[number]["loads"]]
            self._rows[self.same[number]].append((row, names.index(name), metric))
        self._users: dict[Parameter, list[int]] = {parameter: [] for parameter in PARAMETERS}
        for number, loads in self._loads.items():
            for parameter in uses.parameters(loads):
                self._users[parameter].append(number)
        # Here values can depend on a capacity that is not full.
        self._sensitive = {
            number
            for number, loads in self._loads.items()
            if any("latency_ns" in load["metrics"] or rate_share(load) < 1 for load in loads)
        }
        self._last = ModelValues({}, np.zeros(len(keys)))

    def is_used(self, parameter: Parameter) -> bool:
        """Return whether the values of a point can depend on a parameter."""
        return bool(self._users[parameter])

    def at(self, values: Values) -> ModelValues:
        """Return the model's values with these parameters."""
        if self._last.values != values:
            self._last = self._evaluated(ModelValues(values, self._last.logs), self._loads)
        return self._last

    def without(self, now: ModelValues, parameter: Parameter) -> ModelValues:
        """Return the values without the limit of a capacity."""
        left = {each: value for each, value in now.values.items() if each is not parameter}
        changed = ModelValues(left, now.logs, now.utilisation)
        return self._evaluated(changed, self._affected(now, parameter, 0.0))

    def jacobian(self, now: ModelValues) -> NDArray[np.float64]:
        """Return the derivative of each logarithm by the logarithm of each parameter."""
        derivatives = np.zeros((len(now.logs), len(now.values)))
        for column, (parameter, value) in enumerate(now.values.items()):
            affected = self._affected(now, parameter, _BUSY)
            up = self._evaluated(now, affected, {parameter: value * math.exp(_STEP)})
            rise = up.logs - now.logs
            if parameter.resources:  # a capacity has a kink where it becomes full
                full = self._affected(now, parameter, _NEARLY_FULL)
                down = self._evaluated(now, full, {parameter: value * math.exp(-_STEP)})
                fall = now.logs - down.logs
                rows = [row for number in full for row, _, _ in self._rows[number]]
                rise[rows] = (rise[rows] + fall[rows]) / 2
            derivatives[:, column] = rise / _STEP
        return derivatives

    def _affected(self, now: ModelValues, parameter: Parameter, queues: float) -> list[int]:
        """Return the points whose values a small change of a parameter can change.

        In queues, accesses wait for a resource that has at least the utilisation `queues`.
        """
        return [
            number
            for number in self._users.get(parameter, self._loads)
            if not parameter.resources
            or any(
                used > (queues if number in self._sensitive else _NEARLY_FULL)
                and parameter.limits(name)
                for name, used in now.utilisation[number].items()
            )
        ]

    def _evaluated(
        self, old: ModelValues, numbers: Iterable[int], changed: Values | None = None
    ) -> ModelValues:
        """Return values that are new at the given points, and for changed parameters."""
        values = {**old.values, **(changed or {})}
        new = ModelValues(values, old.logs.copy(), dict(old.utilisation))
        model = model_of(new.values, self._topology)
        for number in numbers:
            loads = self._loads[number]
            found = model.noiseless_results(loads)
            results = [found[load["name"]] for load in loads]
            new.utilisation[number] = results[0].utilisation
            for row, place, metric in self._rows[number]:
                value = results[place].latency_ns if metric == "latency_ns" else None
                new.logs[row] = math.log(value or results[place].counted_bytes_per_second)
        return new
