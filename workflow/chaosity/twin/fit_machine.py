"""Fit the description of a simulated machine to the measurements of a host.

The model of simulated machines gives the value of each cell without noise. The fit searches for the
parameters with which the logarithms of model and measurement differ least. Large differences count
less (soft L1 loss), so that a faulty part does not change the description of all other parts.
Before the search, each part that a finding of the host names gets a factor: the share of its
capacity that remains. A capacity or a factor is left out if it improves the fit by less than the
extended Bayesian information criterion (Chen and Chen 2008) requires. The data determine a capacity
only if the model without this capacity explains the values clearly worse, even if all other
parameters are fitted again. Intervals are computed as for an M-estimator (Huber 1981, section 7.6).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from chaosity.documents.machines import Fault, MachineDescription, Noise
from chaosity.errors import UserError
from chaosity.records.record_format import Point
from chaosity.statistics.estimates import variance_of_median
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.twin.fitted_description import FittedMachine, FittedParameter
from chaosity.twin.machine_parameters import (
    CAPACITY_RATIO_WITHOUT_LIMIT,
    PARAMETERS,
    Parameter,
    ParameterUses,
    Values,
    can_be_fitted,
    capacities_of_memory_without_cores,
    description_with_values,
    factor_of_fault,
    sorted_parameters,
    with_capacity_and_same_slow_parts,
)
from chaosity.twin.model_values import (
    ALL_KINDS_OF_VALUES,
    MODELLED_RATES,
    Cell,
    CellKey,
    ModelOfPoints,
    ModelValues,
    cell_medians,
    departs,
    value_kind_of_load,
)

# Smallest standard deviation that is assumed for the difference between the logarithms of model and
# measurement.
_LEAST_MODEL_DEVIATION = 0.002
# Fewest values of one kind from which their distance from the model is estimated. The 95th
# percentile of fewer values is their maximum.
_FEWEST_VALUES_OF_KIND = 20
# The data determine a parameter if the standard deviation of its logarithm is at most _DETERMINED,
# and at most the share _DETERMINED_SHARE of the spread that is assumed without data.
_DETERMINED, _DETERMINED_SHARE = 0.25, 0.5
# A point counts as determining a parameter if a change of the parameter by 1 % changes a value of
# the point by at least this number of per cent.
_LEAST_SENSITIVITY = 0.1
# Largest number of evaluations of the model in one search, and the relative gain that ends the
# search. A step that reduces the loss by a smaller share cannot change an estimate by a tenth of
# its interval.
_MOST_STEPS, _LEAST_GAIN = 12, 1e-4
# Largest number of evaluations of the model in the first search, in which all cells count.
_MOST_STEPS_OF_FIRST_SEARCH = 6
# The data determine a capacity only if, without its limit, values at _FEWEST_HELD points are faster
# by _HELD_SIGMAS standard deviations. A single point can be an outlier.
_HELD_SIGMAS, _FEWEST_HELD = 2.0, 2
# The median and the 95th percentile of the distance from the mean, in a normal distribution.
_NORMAL_QUANTILES = stats.norm.ppf((0.75, 0.975))
# A distance between model and values can be due to chance if it exceeds the scatter of replicates
# by at most this number, divided by the root of the number of runs, as a share of the scatter. This
# limit is about three standard deviations of the larger of the two quantiles.
_DEVIATIONS_BY_CHANCE = 4.0
_DRIVE_RATE_PARAMETER = "drives.read_bytes_per_second"
_NODE_TO_PACKAGE_PARAMETER = "links.node_to_package_bytes_per_second"


def fit_machine(
    measured: Measurements,
    points: Sequence[Point],
    topology: Topology,
    faults: Sequence[Fault] = (),
) -> FittedMachine:
    """Fit capacities and latencies to the measurements of a host.

    Args:
        measured: the tidy table of one host and configuration.
        points: the planned points of the host; points without a valid value do not count.
        topology: the topology of the host.
        faults: the faults of single parts that the host can have, see `faults_of_findings`.

    Raises:
        UserError: the measurements have no valid bandwidth of memory.
    """
    return _Fit(measured, points, topology, faults).simplest_machine()


def _least_capacities(
    uses: ParameterUses,
    points: Sequence[Point],
    same: Mapping[int, int],
    cells: Mapping[CellKey, Cell],
) -> dict[Parameter, float]:
    """Return, for each capacity or factor, the smallest value that allows the measured rates."""
    rates: dict[int, dict[str, float]] = defaultdict(dict)
    for (number, name, metric), (value, _, _) in cells.items():
        if metric in MODELLED_RATES:
            rates[number][name] = value
    per_rate = {n: uses.capacities_for_rates(points[n]["loads"]) for n in set(same.values())}
    least: dict[Parameter, float] = {}
    for number, own in rates.items():
        used: dict[tuple[Parameter, str], float] = defaultdict(float)
        for load, shares in zip(points[number]["loads"], per_rate[same[number]], strict=True):
            for use, share in shares.items():
                used[use] += share * own.get(load["name"], 0.0)
        for (parameter, _), rate in used.items():
            if rate:
                least[parameter] = max(rate, least.get(parameter, 0.0))
    return least


class _Fit:
    """A search for the parameters with the least loss.

    Attributes:
        points: the points that can be fitted.
        keys, logs: the cells, and the logarithm of the median of each cell.
        runs: number of the load of each cell; all metrics of a load come from the same runs.
        model: the model, which gives values for these cells.
        least: capacity -> the least value with which the measured rates are possible.
        limits: the part of `least` with the capacities that can limit the machine.
        kinds: the capacities of kinds of memory without cores.
        factors: factor of a part that a finding names -> the smallest share of its capacity with
            which the measured rates are possible.
        noise: standard deviation of the logarithms of replicates.
        median_per_run: standard deviation of a median divided by that of a single run, for normal
            logarithms.
        scale: standard deviation of the logarithms of cells around the model. In the first search,
            the scale is so large that all cells count; after each search, the scale is computed
            from the residuals.
    """

    def __init__(
        self,
        measured: Measurements,
        points: Sequence[Point],
        topology: Topology,
        faults: Sequence[Fault],
    ) -> None:
        self.scale = 0.5
        self.points = [point for point in points if can_be_fitted(point)]
        cells = cell_medians(measured, self.points)
        factors = [own for fault in faults if (own := factor_of_fault(fault, topology))]
        uses = ParameterUses(topology, factors)
        self.kinds = capacities_of_memory_without_cores(topology)
        # Number of each point -> number of the first point with the same flows.
        first: dict[Hashable, int] = {}
        same = {
            number: first.setdefault(uses.flows_without_names(self.points[number]["loads"]), number)
            for number in sorted({number for number, _, _ in cells})
        }
        self.least = _least_capacities(uses, self.points, same, cells)
        if not any(parameter.name == _DRIVE_RATE_PARAMETER for parameter in self.least):
            # If no drive was measured alone, the description has no drives.
            self.least = {each: v for each, v in self.least.items() if each.section != "drives"}
            same = {
                number: other
                for number, other in same.items()
                if not any(load["target"]["drives"] for load in self.points[number]["loads"])
            }
        needed = [own for own in PARAMETERS if own.section == "memory" and own.required]
        if not all(each in self.least for each in needed):
            remedy = "measure the experiment memory_bandwidth first"
            raise UserError("there is no valid memory bandwidth to fit", remedy=remedy)
        # If each package has one node, accesses to memory use the links of nodes as much as the
        # links of packages.
        one_node_each = len(topology.packages) == len(topology.nodes)
        self.limits = {
            parameter: least
            for parameter, least in self.least.items()
            if not (
                parameter.fault or (one_node_each and parameter.name == _NODE_TO_PACKAGE_PARAMETER)
            )
        }
        self.factors = {
            factor: least / self.limits[capacity]
            for factor in factors
            if (least := self.least.pop(factor, None)) is not None
            and (capacity := next(filter(factor.is_share_of, self.limits), None))
        }
        self.keys = [key for key in cells if key[0] in same]
        self.logs = np.log([cells[key][0] for key in self.keys])
        self.runs = np.unique([f"{n} {load}" for n, load, _ in self.keys], return_inverse=True)[1]
        self.model = ModelOfPoints(topology, uses, self.points, same, self.keys)
        spread = [(variance, n - 1) for _, variance, n in cells.values() if n > 1]
        total = sum(n for _, n in spread)
        self.noise = math.sqrt(sum(v * n for v, n in spread) / total) if spread else 0.0
        shares = variance_of_median([cells[key][2] for key in self.keys])
        self.median_per_run = math.sqrt(fmean(np.minimum(1.0, shares)))

    def loss(self, now: ModelValues) -> float:
        """Return the soft L1 loss: about the square of a small residual, and twice a large one."""
        return float(np.sum(2 * (np.sqrt(1 + ((now.logs - self.logs) / self.scale) ** 2) - 1)))

    def start_values(self) -> Values:
        """Return the values at which the fit starts: least capacities and usual latencies.

        A part with a rate as high as that of other parts of its kind is not slow, and gets no
        factor.
        """
        values: Values = {}
        for parameter in (*PARAMETERS, *self.kinds):
            if parameter.resources and parameter in self.limits:
                values[parameter] = self.limits[parameter]
            elif not parameter.resources and (
                self.model.is_used(parameter) or parameter.section == "latency_ns"
            ):
                values[parameter] = parameter.usual
        return values | {own: remains for own, remains in self.factors.items() if remains < 1}

    def refined(self, start: Values, steps: int = _MOST_STEPS) -> Values:
        """Return the values with the least loss near the start values, and update the scale."""
        values = self._search_least_loss(start, steps)
        off = np.abs(self.model.values_at(values).logs - self.logs)
        self.scale = max(_LEAST_MODEL_DEVIATION, float(np.median(off) / stats.norm.ppf(0.75)))
        return values

    def _search_least_loss(self, start: Values, steps: int, fixed: Values | None = None) -> Values:
        """Return the values with the least loss near the start values; keep the `fixed` values."""
        free = list(start)
        spreads = np.array([parameter.spread for parameter in free])
        centre = np.log([parameter.usual or self.least[parameter] for parameter in free])

        def values_of_logs(logs: NDArray[np.float64]) -> Values:
            return dict(zip(free, map(float, np.exp(logs)), strict=True)) | (fixed or {})

        def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
            model = self.model.values_at(values_of_logs(logs))
            return np.append((model.logs - self.logs) / self.scale, (logs - centre) / spreads)

        def derivatives(logs: NDArray[np.float64]) -> NDArray[np.float64]:
            own = self.model.jacobian(self.model.values_at(values_of_logs(logs))) / self.scale
            return np.vstack([own[:, : len(free)], np.diag(1 / spreads)])

        found = optimize.least_squares(
            residuals,
            np.log(list(start.values())),
            derivatives,
            loss="soft_l1",
            max_nfev=steps,
            ftol=_LEAST_GAIN,
        )
        return values_of_logs(found.x)

    def simplest_machine(self) -> FittedMachine:
        """Return the machine with the fewest capacities that still explain the data."""
        values = self.refined(self.refined(self.start_values(), _MOST_STEPS_OF_FIRST_SEARCH))
        values, others = self._without_undetermined_capacities(values)
        now = self.model.values_at(values)
        jacobian = self.model.jacobian(now)
        covariance = self._covariance(now, jacobian)
        deviations = dict(zip(values, map(float, np.sqrt(np.diag(covariance))), strict=True))
        used = [
            column
            for column, each in enumerate(values)
            if each.required or each.resources or jacobian[:, column].any()
        ]
        values = {each: values[each] for n, each in enumerate(deviations) if n in used}
        parameters = [
            self._make_fitted_parameter(each, None, math.inf, 0)
            for each in self.least.keys() - deviations.keys()
        ]
        for each, column in zip(deviations, jacobian.T, strict=True):
            rows = np.flatnonzero(np.abs(column) > _LEAST_SENSITIVITY)
            # If the data do not determine a capacity, they determine no share of this capacity.
            unsure = each in others or any(map(each.is_share_of, others))
            deviation = math.inf if unsure else deviations[each]
            determined = len({self.keys[row][0] for row in rows})
            parameters.append(
                self._make_fitted_parameter(each, values.get(each), deviation, determined)
            )
        by_parameter = {own.parameter: own for own in parameters}
        parameters = [by_parameter[own] for own in sorted_parameters(by_parameter)]
        noise: Noise = {"between_runs": min(1.0, round(self.noise, 5))}
        document: MachineDescription = {**description_with_values(values), "noise": noise}
        away = self.logs - self.model.values_at(values).logs
        departures = {}
        for row in np.argsort(-np.abs(away)):
            if departs(away[row], self.scale):
                number, load, _ = self.keys[row]
                point = self.points[number]
                departures[f"{point['experiment']}/{point['point']}, {load}"] = math.exp(away[row])
        return FittedMachine(
            *(document, tuple(parameters), len(self.keys), self.scale, departures, values),
            *(covariance[np.ix_(used, used)], *self._misfit_of_each_kind(away, deviations), others),
        )

    def _misfit_of_each_kind(
        self, away: NDArray[np.float64], deviations: Values
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the distance of each kind of values from the model, as deviation of logarithms.

        The distance is the larger of two estimates, from the median difference and from the 95th
        percentile. So outliers count if more than one value in 20 is an outlier. A value that was
        not fitted is further from the model than values to which the parameters were fitted, so the
        distance is enlarged. The distance is never below the scatter of replicates, so no interval
        is narrower than that.

        Returns:
            Kind of value -> distance of medians, and kind of value -> the model's error. The error
            is the part of the distance that exceeds the scatter of replicates, or 0 if chance can
            explain this part.
        """
        # A parameter that no measurement determines keeps its usual value, so it was not fitted to
        # any value.
        adapted = sum(1 - (each / own.spread) ** 2 for own, each in deviations.items())
        cells = len(self.keys)
        further = math.sqrt(cells / max(1.0, cells - adapted))
        replicates = self.noise * self.median_per_run
        kinds: dict[str, list[int]] = {ALL_KINDS_OF_VALUES: [*range(cells)]}
        for row, (number, name, metric) in enumerate(self.keys):
            loads = self.points[number]["loads"]
            load = next(load for load in loads if load["name"] == name)
            kinds.setdefault(value_kind_of_load(load, metric, len(loads)), []).append(row)
        misfits, errors = {}, {}
        for kind, rows in kinds.items():
            if len(rows) >= _FEWEST_VALUES_OF_KIND or kind == ALL_KINDS_OF_VALUES:
                spreads = np.quantile(np.abs(away[rows]), (0.5, 0.95)) / _NORMAL_QUANTILES
                misfit = further * max(_LEAST_MODEL_DEVIATION, float(spreads.max()))
                by_chance = 1 + _DEVIATIONS_BY_CHANCE / math.sqrt(len({*self.runs[rows]}))
                misfits[kind] = max(replicates, misfit)
                errors[kind] = math.sqrt(max(0.0, misfit**2 - replicates**2))
                if misfit < replicates * by_chance:
                    errors[kind] = 0.0
        return misfits, errors

    def _without_undetermined_capacities(
        self, values: Values
    ) -> tuple[Values, dict[Parameter, Values]]:
        """Return the values that the data determine, and values that replace capacities.

        `_without_needless_capacities` describes the values that replace capacities. In the result,
        no part with a factor is faster than other parts of its kind. A part keeps its factor if the
        data determine the capacity of this part, even if they do not determine the capacity of the
        other parts.
        """
        while needed := self._without_weak_capacities(values):
            values = self.refined(needed)
        values, others = self._without_needless_capacities(values)
        now = self.model.values_at(values)
        covariance = self._covariance(now, self.model.jacobian(now))
        places = {own: place for place, own in enumerate(values)}

        def part_is_determined(factor: Parameter) -> bool:
            both = [
                place for own, place in places.items() if own is factor or factor.is_share_of(own)
            ]
            return len(both) == 2 and math.sqrt(covariance[np.ix_(both, both)].sum()) < _DETERMINED

        sure = {
            own: value
            for own, value in values.items()
            if not own.fault or (value < 1 and part_is_determined(own))
        }
        return (
            (values, others)
            if sure == values
            else self._without_undetermined_capacities(self.refined(sure))
        )

    def _without_needless_capacities(
        self, values: Values
    ) -> tuple[Values, dict[Parameter, Values]]:
        """Return the values without needless capacities, and values that replace other capacities.

        The data do not determine a capacity that other capacities can replace. The second result
        maps each capacity that can be replaced to values that explain the data equally well without
        this capacity.
        """
        others = {
            parameter: adapted
            for parameter in values
            if parameter.resources and not parameter.fault
            if (adapted := self._adapted_without_capacity(values, parameter)) is not None
        }
        unneeded = [each for each, own in others.items() if own.keys() < values.keys()]
        if not unneeded:
            return values, others
        least = min(unneeded, key=lambda each: self.loss(self.model.values_at(others[each])))
        return self._without_needless_capacities(self.refined(others[least]))

    def _adapted_without_capacity(self, values: Values, parameter: Parameter) -> Values | None:
        """Return values that explain the data equally well without a capacity; None if none do.

        All other parameters are fitted again, since they were fitted together with this capacity.
        Without a new fit, the capacity would seem to explain too much. Capacities that were left
        out before can replace this capacity, unless each description requires this capacity: a
        required capacity is the simplest explanation of the rates. Slow parts with a share of this
        capacity stay equally slow.
        """
        spare, fixed = {each: own for each, own in self.limits.items() if each not in values}, {}
        kept = with_capacity_and_same_slow_parts(
            values, parameter, values[parameter] * CAPACITY_RATIO_WITHOUT_LIMIT
        )
        without_limit = kept.pop(parameter)
        if parameter.required:
            spare = {}
        if parameter.required or any(own.is_share_of(parameter) for own in values):
            fixed = {parameter: without_limit}
        now = self.model.values_at(values)
        adapted = self._search_least_loss({**kept, **spare}, _MOST_STEPS, fixed)
        adapted = self._without_weak_capacities(adapted) or adapted
        then = self.model.values_at(adapted)
        faster = then.logs - now.logs > _HELD_SIGMAS * self.scale
        held = {self.keys[row][0] for row in np.flatnonzero(faster)}
        clear = self.loss(then) - self.loss(now) > self._required_gain()
        return None if clear and len(held) >= _FEWEST_HELD else adapted

    def _required_gain(self) -> float:
        """Return by how much a capacity or a factor must reduce the loss to be kept."""
        return math.log(len(self.keys)) + 2 * math.log(len(self.limits) + len(self.factors))

    def _without_weak_capacities(self, values: Values) -> Values | None:
        """Return the values without capacities that explain too little; None if no such exists.

        The capacity that explains least is left out first, since two capacities can explain the
        same values.
        """
        now = kept = self.model.values_at(values)
        while True:
            others = {
                parameter: self.model.values_without_limit(kept, parameter)
                for parameter in kept.values
                if parameter.resources and not parameter.required
            }
            least = min(others, key=lambda each: self.loss(others[each]), default=None)
            allowed = self.loss(kept) + self._required_gain()
            if least is None or self.loss(others[least]) > allowed:
                return kept.values if kept is not now else None
            kept = others[least]

    def _covariance(self, now: ModelValues, jacobian: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the covariance of the logarithms of the parameters."""
        residuals = (now.logs - self.logs) / self.scale
        # The influence of each cell on the estimate, and the mean slope of the influence, for the
        # soft L1 loss.
        influence = residuals / np.sqrt(1 + residuals**2)
        slope = float(np.mean((1 + residuals**2) ** -1.5))
        freedom = max(1, len(self.keys) - len(now.values))
        variance = float(np.sum(influence**2)) / freedom / slope**2 * self.scale**2
        variance = max(
            variance, _LEAST_MODEL_DEVIATION**2
        )  # values without noise would give the variance 0
        usual = np.diag([parameter.spread**-2 for parameter in now.values])
        inverse = np.linalg.inv(jacobian.T @ jacobian / variance + usual)
        # All metrics of a load come from the same runs, so together they count as one value.
        of_runs = np.zeros((self.runs.max() + 1, len(now.values)))
        np.add.at(of_runs, self.runs, jacobian)
        return np.asarray(
            inverse @ (of_runs.T @ of_runs / variance + usual) @ inverse, dtype=np.float64
        )

    def _make_fitted_parameter(
        self, parameter: Parameter, value: float | None, deviation: float, points: int
    ) -> FittedParameter:
        """Return a parameter, with an interval if the data determine the parameter."""
        most = min(_DETERMINED, _DETERMINED_SHARE * parameter.spread)
        least = self.least.get(parameter)
        if value is None or deviation > most or not points:
            return FittedParameter(parameter, value, None, None, least, points)
        freedom = max(1, len(self.keys) - len(PARAMETERS))
        factor = math.exp(float(stats.t.ppf(0.975, freedom)) * deviation)
        return FittedParameter(parameter, value, value / factor, value * factor, least, points)
