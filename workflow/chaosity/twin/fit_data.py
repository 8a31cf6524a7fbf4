"""The measured cells of a host that a fit reads, and the capacities that their rates need."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

import numpy as np

from chaosity.documents.machines import Fault
from chaosity.errors import UserError
from chaosity.records.point_types import Point
from chaosity.statistics.moderated_variances import variance_of_median
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.twin.machine_parameters import (
    PARAMETERS,
    Parameter,
    ParameterUses,
    can_be_fitted,
    capacity_of_factor,
    factor_of_fault,
)
from chaosity.twin.model_values import (
    RATES,
    Cell,
    CellKey,
    ModelOfPoints,
    cell_medians,
)

_DRIVE_RATE = "drives.read_bytes_per_second"
_NODE_TO_PACKAGE = "links.node_to_package_bytes_per_second"


class FitData:
    """What a fit knows of a host.

    Attributes:
        points: the points that can be fitted.
        keys, logs: the cells, and the logarithm of the median of each.
        model: the model's values of these cells.
        least: capacity or factor -> what it is at least, so that the measured rates are possible.
        limits: the same for the capacities that can limit the machine.
        factors: factor of a part that a finding names -> the smallest share of its capacity with
            which the measured rates are possible.
        noise: standard deviation of the logarithms of replicates.
        median_per_run: standard deviation of a median over that of a run, for normal logarithms.
    """

    def __init__(
        self,
        measured: Measurements,
        points: Sequence[Point],
        topology: Topology,
        faults: Sequence[Fault],
    ) -> None:
        """Read the medians of the host; the arguments are those of `fit_machine`."""
        self.points = [point for point in points if can_be_fitted(point)]
        cells = cell_medians(measured, self.points)
        factors = [factor_of_fault(fault, topology) for fault in faults]
        uses = ParameterUses(topology, factors)
        # Number of each point -> number of the first point with the same flows.
        first: dict[Hashable, int] = {}
        same = {
            number: first.setdefault(uses.flows_without_names(self.points[number]["loads"]), number)
            for number in sorted({number for number, _, _ in cells})
        }
        self.least = self._least_capacities(uses, same, cells)
        if not any(parameter.name == _DRIVE_RATE for parameter in self.least):
            # Without the rate of a drive alone, the description has no drives.
            self.least = {each: v for each, v in self.least.items() if each.section != "drives"}
            same = {
                number: other
                for number, other in same.items()
                if not any(load["target"]["drives"] for load in self.points[number]["loads"])
            }
        # If each package has one node, memory uses the links of nodes and packages alike.
        one_node_each = len(topology.packages) == len(topology.nodes)
        self.limits = {
            parameter: least
            for parameter, least in self.least.items()
            if not (parameter.fault or (one_node_each and parameter.name == _NODE_TO_PACKAGE))
        }
        self.factors = {
            factor: least / self.limits[capacity]
            for factor in factors
            if (least := self.least.pop(factor, None)) is not None
            and (capacity := capacity_of_factor(factor)) in self.limits
        }
        self.keys = [key for key in cells if key[0] in same]
        self.logs = np.log([cells[key][0] for key in self.keys])
        self.model = ModelOfPoints(topology, uses, self.points, same, self.keys)
        spread = [(variance, n - 1) for _, variance, n in cells.values() if n > 1]
        self.noise = (
            math.sqrt(sum(v * n for v, n in spread) / sum(n for _, n in spread)) if spread else 0.0
        )
        shares = variance_of_median([cells[key][2] for key in self.keys])
        self.median_per_run = math.sqrt(fmean(np.minimum(1.0, shares)))
        needed = [own for own in PARAMETERS if own.section == "memory" and own.required]
        if not all(each in self.least for each in needed):
            remedy = "measure the experiment memory_bandwidth first"
            raise UserError("there is no valid memory bandwidth to fit", remedy=remedy)

    def _least_capacities(
        self, uses: ParameterUses, same: Mapping[int, int], cells: Mapping[CellKey, Cell]
    ) -> dict[Parameter, float]:
        """Return the capacities that the machine must have at least to reach the measured rates."""
        rates: dict[int, dict[str, float]] = defaultdict(dict)
        for (number, name, metric), (value, _, _) in cells.items():
            if metric in RATES:
                rates[number][name] = value
        per_rate = {
            number: uses.capacities_for_rates(self.points[number]["loads"])
            for number in set(same.values())
        }
        least: dict[Parameter, float] = {}
        for number, own in rates.items():
            used: dict[tuple[Parameter, str], float] = defaultdict(float)
            loads = self.points[number]["loads"]
            for load, shares in zip(loads, per_rate[same[number]], strict=True):
                for use, share in shares.items():
                    used[use] += share * own.get(load["name"], 0.0)
            for (parameter, _), rate in used.items():
                if rate:
                    least[parameter] = max(rate, least.get(parameter, 0.0))
        return least
