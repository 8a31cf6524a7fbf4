"""The map of a host: measured values with intervals, and a model that predicts all other values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any, cast

import numpy as np
from scipy import stats

from chaosity.advice.grouped_cores_model import GroupedCoresModel
from chaosity.advice.requests import (
    BANDWIDTH,
    DEFAULT_MEMORY_BYTES,
    LATENCY,
    Place,
    Request,
    RunningLoad,
)
from chaosity.cpusets import CpuSet, format_cpu_list, make_cpu_set
from chaosity.documents.machines import MachineDescription
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.records.record_format import DriveFacts, Load
from chaosity.simulation.simulated_loads import read_written_and_counted_shares
from chaosity.topology.topology_model import Topology
from chaosity.twin.fitted_description import FittedMachine
from chaosity.twin.machine_parameters import (
    PARAMETERS,
    Parameter,
    ParameterUses,
    capacities_of_memory_without_cores,
    model_with_values,
    sorted_parameters,
    with_capacity_and_same_slow_parts,
)
from chaosity.twin.model_values import (
    ALL_KINDS_OF_VALUES,
    LEAST_NAMED_CHANGE_OF_PREDICTION,
    parameters_without_data,
    value_kind_of_load,
)

# A resource counts as the limit of a load if at least this share of the resource is used.
_LIMITING_UTILISATION = 0.98
# A parameter counts for an interval if at least this share of one of its resources is used, since
# the parameter could be the limit with another value in its interval.
_RELEVANT_UTILISATION = 0.7
_KEY_OF_QUEUE_LATENCY = "queue"
# Size in bytes of data for which caches serve only a negligible part of the accesses.
_BYTES_BEYOND_CACHES = 2 << 30
# Step of a parameter's logarithm with which derivatives are computed.
_LOG_STEP_OF_DERIVATIVE = 0.01


@dataclass(frozen=True)
class ExpectedValue:
    """A value that a load gets, as the model predicts it.

    Rates are in bytes per second, latencies in nanoseconds. `low` and `high` are the ends of the
    95 % interval, or None if the uncertainty is unknown. `limited_by` names the parts of the
    machine whose capacity is used up. `undetermined` is name -> what to measure, for each capacity
    that no measurement determines and that can change the value.
    """

    median: float
    low: float | None
    high: float | None
    limited_by: tuple[str, ...]
    undetermined: Mapping[str, str] = field(default_factory=dict)


@dataclass
class MachineMap:
    """The fitted model of a host, and the values that the model predicts.

    Attributes:
        topology: the topology of the host.
        fitted: the fitted machine.
        drives: name of each drive -> its facts, as a point has them.
        is_simulated: says whether the host is simulated, so that it does not exist.
        slow_rates: (node of the cores, node of the memory) -> measured bandwidth, if no parameter
            of the model explains this low bandwidth.
        slow_latencies: (node of the cores, node of the memory) -> measured latency divided by
            predicted latency, if no parameter explains this ratio.
        stale_components: components that changed after points that use them were measured.
        unusable: the report's sentence on why the results are useless and what to do; empty if
            the results are usable.
        host: name of the host.
    """

    topology: Topology
    fitted: FittedMachine
    drives: Mapping[str, DriveFacts] = field(default_factory=dict)
    is_simulated: bool = False
    slow_rates: Mapping[tuple[int, int], float] = field(default_factory=dict)
    slow_latencies: Mapping[tuple[int, int], float] = field(default_factory=dict)
    stale_components: tuple[str, ...] = ()
    unusable: str = ""
    host: str = "HOST"

    @cached_property
    def model(self) -> GroupedCoresModel:
        """Return the model with the fitted values."""
        return GroupedCoresModel(
            model_with_values(self.fitted.values, self.topology, self._machine_description)
        )

    @cached_property
    def _models_with_one_smaller_parameter(self) -> dict[Parameter, GroupedCoresModel]:
        """Return parameter -> model in which only this parameter has a slightly smaller value."""
        smaller = math.exp(-_LOG_STEP_OF_DERIVATIVE)
        return {
            own: self._model_with_values({**self.fitted.values, own: value * smaller})
            for own, value in self.fitted.values.items()
        }

    @cached_property
    def _models_that_data_allow(self) -> list[tuple[Parameter, set[Parameter], GroupedCoresModel]]:
        """Return (capacity, changed parameters, model) for each other model that the data allow.

        No measurement determines the returned capacity. The model has the smallest value of the
        returned capacity that the data allow, or other numbers that explain the data without this
        capacity.
        """
        now = self.fitted.values
        found = [
            (own, {own}, with_capacity_and_same_slow_parts(now, own, least))
            for own, least in self.fitted.least_capacities.items()
        ]
        found += [
            (own, {own, *(each for each in values.keys() - now.keys() if each.resources)}, values)
            for own, values in self.fitted.others.items()
        ]
        return [(own, changed, self._model_with_values(values)) for own, changed, values in found]

    @cached_property
    def _models_with_unusual_latency(self) -> dict[Parameter, GroupedCoresModel]:
        """Return each latency that no point measures -> model with an unusual latency.

        The parameter for the time in queues is left out, since it is assumed and has a wide
        interval.
        """
        return {
            each.parameter: self._model_with_values(
                {
                    **self.fitted.values,
                    each.parameter: each.parameter.usual * math.exp(each.parameter.spread),
                }
            )
            for each in self.fitted.parameters
            if each.parameter.is_latency
            and not (each.is_determined or each.points)
            and each.parameter.key != _KEY_OF_QUEUE_LATENCY
        }

    @cached_property
    def _parameters_without_data(self) -> set[Parameter]:
        """Return the parameters that have no value, neither in a fit nor in a description."""
        return {
            *PARAMETERS,
            *capacities_of_memory_without_cores(self.topology),
        } - self.fitted.known_parameters

    @cached_property
    def _parameter_uses(self) -> ParameterUses:
        return ParameterUses(self.topology)

    @cached_property
    def _model_with_least_capacities(self) -> GroupedCoresModel:
        """Return the model in which each undetermined capacity has its smallest possible value."""
        values: Mapping[Parameter, float] = self.fitted.values
        for own, least in self.fitted.least_capacities.items():
            values = with_capacity_and_same_slow_parts(values, own, least)
        return self._model_with_values(values)

    def _model_with_values(self, values: Mapping[Parameter, float]) -> GroupedCoresModel:
        """Return the model of this machine with other values of parameters."""
        now = self.fitted.values
        changed = {own for own in values.keys() | now.keys() if values.get(own) != now.get(own)}
        same_routes = None if any(own.changes_routes for own in changed) else self.model
        return GroupedCoresModel(
            model_with_values(values, self.topology, self._machine_description), same_routes
        )

    @cached_property
    def _machine_description(self) -> MachineDescription:
        """Return the parts of the description that the model reads."""
        kept = {key: value for key, value in self.fitted.description.items() if key != "fitted"}
        return cast(MachineDescription, kept)

    def running_loads(self, running: Sequence[RunningLoad]) -> list[Load]:
        """Return the loads of the programs that run on the machine.

        Raises:
            UserError: the machine lacks a named drive.
        """
        return [
            load
            for number, each in enumerate(running, start=1)
            for load in self.loads(f"other {number}", each.place, each.kernel, percent=each.percent)
        ]

    def loads(
        self,
        name: str,
        place: Place,
        kernel: str = "read",
        *,
        metric: str = BANDWIDTH,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        percent: float = 100.0,
    ) -> list[Load]:
        """Return the loads that a program makes in a place, in the form of loads in points.

        The result has several loads if each thread uses its own node. For a latency, it has a load
        for each node of the cores.

        Args:
            name: name of the loads; if there are several, the node is added to each name.
            place: the place.
            kernel: the accesses of memory, see `RunningLoad`.
            metric: bandwidth, or latency of one core on each node.
            memory_bytes: size of the data.
            percent: share of its peak rate to which a load limits itself, in per cent.

        Raises:
            UserError: the machine lacks a named drive.
        """
        for drive in place.drives:
            check_name_is_allowed(drive, self.drives, f"there is no drive {drive!r}", "drives")
        parts: list[tuple[str, CpuSet, Mapping[int, float]]] = [(name, place.cpus, place.shares)]
        if not place.shares or metric == LATENCY:
            by_node: dict[int, list[int]] = {}
            for unit in place.cpus:
                if unit in self.topology.node_of_pu:
                    by_node.setdefault(self.topology.node_of_pu[unit], []).append(unit)
            # One core makes the dependent accesses; all cores of a node are alike.
            kept = 1 if metric == LATENCY else None
            parts = [
                (f"{name} on node {node}", make_cpu_set(units[:kept]), place.shares or {node: 1.0})
                for node, units in by_node.items()
            ]
        # only the keys of a load that the model reads
        common: dict[str, Any] = {
            "benchmark": "",
            "kernel": None if place.drives or metric == LATENCY else kernel,
            "levels": {} if percent == 100.0 else {"share": percent},
            "memory_bytes": memory_bytes // len(parts),
            "target": {"drives": [self.drives[drive] for drive in place.drives]},
            "writes": False,
            "metrics": {metric: {}},
        }
        found = []
        for own_name, cpus, shares in parts:
            cpu_list = format_cpu_list(cpus)
            own = {
                "name": own_name,
                "initiator": {"cpus": cpu_list, "nodes": [*self.topology.nodes_of_pus(cpus)]},
                "placement": {
                    "cpus": cpu_list,
                    "memory_nodes": sorted(shares),
                    "shares": {str(node): share for node, share in shares.items()},
                },
            }
            found.append(cast(Load, {**common, **own}))
        return found

    def predicted_value(self, loads: Sequence[Load], beside: Sequence[Load]) -> float:
        """Return the sum of the rates of loads, or their mean latency, while `beside` run."""
        return self._corrected_by_measured_pairs(
            self._value_of_model(self.model, loads, beside), loads
        )

    def value_with_least_capacities(self, loads: Sequence[Load], beside: Sequence[Load]) -> float:
        """Return the value for capacities that are no larger than the rates through them."""
        return self._corrected_by_measured_pairs(
            self._value_of_model(self._model_with_least_capacities, loads, beside), loads
        )

    def highest_memory_bandwidth(self, place: Place, request: Request) -> float:
        """Return the highest bandwidth that the memory of a place can give; infinity if unknown."""
        if request.goal != "bandwidth" or request.memory_bytes < _BYTES_BEYOND_CACHES:
            return math.inf
        one_core = self.loads("program", Place(place.cpus[:1], place.shares), request.kernel)
        reads, writes, counted = read_written_and_counted_shares(one_core[0])
        model = self.model.model
        used = reads + writes * model.machine["memory"].get("write_cost", 1.0)
        rates = (
            model.capacities[f"node{node}"] / share for node, share in place.shares.items() if share
        )
        return min(rates, default=math.inf) / used * counted

    def expected_value(self, loads: Sequence[Load], beside: Sequence[Load]) -> ExpectedValue:
        """Return the value of a place's loads with its interval and with what limits it.

        The interval combines the uncertainty of the parameters with the usual distance of measured
        values from the model. The interval includes the case that a capacity that no measurement
        determines is only as large as the rates measured through it. Other values that explain the
        measurements equally well also widen the interval.

        Raises:
            UserError: no valid measurement depends on a number that the value needs.
        """
        self._check_parameters_have_data(
            loads, beside, self._value_of_model(self.model, loads, beside)
        )
        return self._value_with_interval_and_limits(
            loads,
            beside,
            lambda model: self._value_of_model(model, loads, beside),
            lambda model: self._corrected_by_measured_pairs(
                self._value_of_model(model, loads, beside), loads
            ),
        )

    def expected_scan_rate_and_memory_share(
        self, memory: Sequence[Load], drives: Sequence[Load], beside: Sequence[Load]
    ) -> tuple[ExpectedValue, ExpectedValue]:
        """Return the rate of a scan of memory and drives together, and the share of memory.

        Raises:
            UserError: no valid measurement depends on a number that the values need.
        """
        both = [*memory, *drives]
        self._check_parameters_have_data(
            both, beside, self._value_of_model(self.model, both, beside)
        )

        def scan_rate(model: GroupedCoresModel) -> float:
            return sum(self._scan_rates(model, memory, both, beside))

        def memory_share(model: GroupedCoresModel) -> float:
            own, rest = self._scan_rates(model, memory, both, beside)
            return own / (own + rest)

        scan, part = (
            self._value_with_interval_and_limits(both, beside, value, value)
            for value in (scan_rate, memory_share)
        )
        return scan, replace(part, high=None if part.high is None else min(part.high, 1.0))

    def predicted_scan_rate(
        self, memory: Sequence[Load], drives: Sequence[Load], beside: Sequence[Load]
    ) -> float:
        """Return the rate of a scan that reads memory and drives at the same time."""
        return sum(self._scan_rates(self.model, memory, [*memory, *drives], beside))

    def _scan_rates(
        self,
        model: GroupedCoresModel,
        memory: Sequence[Load],
        both: Sequence[Load],
        beside: Sequence[Load],
    ) -> tuple[float, float]:
        """Return the rates of memory and of drives while loads on both run."""
        results = model.results(both, beside)
        rates = {load["name"]: results[load["name"]].counted_bytes_per_second for load in both}
        own = sum(rates[load["name"]] for load in memory)
        return self._corrected_by_measured_pairs(own, memory), sum(rates.values()) - own

    def _value_with_interval_and_limits(
        self,
        loads: Sequence[Load],
        beside: Sequence[Load],
        predicted_by: Callable[[GroupedCoresModel], float],
        value_by: Callable[[GroupedCoresModel], float],
    ) -> ExpectedValue:
        """Return a value of loads with its interval and with what limits the loads.

        Args:
            loads: the loads; the kind of the first load says how far values are from the model.
            beside: the co-running loads.
            predicted_by: a function that returns the value that a model predicts.
            value_by: a function that returns this value, corrected by measured pairs of nodes that
                no parameter explains.
        """
        predicted, value = predicted_by(self.model), value_by(self.model)
        used, every = self.model.used_resources(loads, beside)
        full = _resource_names_in_words(
            name for name, share in used.items() if share >= _LIMITING_UTILISATION
        )
        if not self.fitted.parameters:
            return ExpectedValue(value, None, None, full)
        latency = LATENCY in loads[0]["metrics"]
        busy = [name for name, share in used.items() if share >= _RELEVANT_UTILISATION]
        slopes = np.zeros(len(self.fitted.values))
        for place, (own, model) in enumerate(self._models_with_one_smaller_parameter.items()):
            if (
                (own.section == "latency_ns" and latency)
                or own.is_bytes_in_flight
                or any(map(own.affects_fullness_of, busy))
            ):
                slopes[place] = math.log(predicted / predicted_by(model)) / _LOG_STEP_OF_DERIVATIVE
        variance = float(slopes @ self.fitted.covariance @ slopes)
        kind = value_kind_of_load(
            loads[0], next(iter(loads[0]["metrics"])), len(loads) + len(beside)
        )
        error = self.fitted.errors.get(kind, self.fitted.errors[ALL_KINDS_OF_VALUES])
        half = float(stats.norm.ppf(0.975)) * math.hypot(math.sqrt(variance), error)
        ends, undetermined = [value], {}
        for missing, changed, model in self._models_that_data_allow:
            if any(own.affects_fullness_of(name) for own in changed for name in every):
                ends.append(value_by(model))
                if abs(math.log(ends[-1] / value)) > LEAST_NAMED_CHANGE_OF_PREDICTION:
                    undetermined[missing.name] = missing.measured_by
        low, high = min(ends) * math.exp(-half), max(ends) * math.exp(half)
        return ExpectedValue(value, low, high, full, undetermined)

    @staticmethod
    def _value_of_model(
        model: GroupedCoresModel, loads: Sequence[Load], beside: Sequence[Load]
    ) -> float:
        if LATENCY not in loads[0]["metrics"]:
            return model.rate(loads, beside)
        results = model.results(loads, beside)
        return fmean(cast(float, results[load["name"]].latency_ns) for load in loads)

    def _corrected_by_measured_pairs(self, value: float, loads: Sequence[Load]) -> float:
        """Return a predicted value, corrected by measured pairs of nodes that the model misses.

        A rate over several pairs of nodes is at most the rate that the slowest pair allows. A
        latency is the mean latency of the pairs.
        """
        pairs = [
            ((node, int(memory)), share / len(load["initiator"]["nodes"]) / len(loads))
            for load in loads
            if not load["target"]["drives"]
            for node in load["initiator"]["nodes"]
            for memory, share in (load["placement"].get("shares") or {}).items()
        ]
        if not pairs:
            return value
        if LATENCY in loads[0]["metrics"]:
            return value * sum(share * self.slow_latencies.get(pair, 1.0) for pair, share in pairs)
        limits = [self.slow_rates[pair] / share for pair, share in pairs if pair in self.slow_rates]
        return min([value, *limits])

    def _check_parameters_have_data(
        self, loads: Sequence[Load], beside: Sequence[Load], value: float
    ) -> None:
        """Check that valid measurements depend on each number that a value needs.

        Raises:
            UserError: no valid measurement depends on one of these numbers.
        """
        without = self._parameters_without_data and parameters_without_data(
            self.fitted, self._parameter_uses, [*loads, *beside]
        )
        unknown = {*without} | {
            own
            for own, model in self._models_with_unusual_latency.items()
            if abs(math.log(self._value_of_model(model, loads, beside) / value))
            > LEAST_NAMED_CHANGE_OF_PREDICTION
        }
        for own in sorted_parameters(unknown):
            remedy = f"measure {own.measured_by} first"
            raise UserError(f"no valid measurement depends on {own.name}", remedy=remedy)


# Pattern of a resource's name in the model -> name of the part in sentences; a group of the pattern
# is the number of the part.
_RESOURCE_NAME_PATTERNS = (
    (r"(?:core|slow_cores|fast_cores).*", "cores"),
    (r"l3_(\d+)", "links of L3 domain"),
    (r"node(\d+)", "memory of node"),
    (r"node\d+->node\d+", "links between nodes"),
    (r"package\d+->package\d+|node\d+->package\d+|package\d+->node\d+", "links between packages"),
    (r"drives([\d+]+)", "ports of the drives of node"),
    (r"drives[\d+]+->package\d+", "paths from drives to another package"),
    (r"port_of_.*", "port that drives share"),
    (r".*", "drives"),
)


def _resource_names_in_words(resources: Iterable[str]) -> tuple[str, ...]:
    """Return the names of resources in sentences, such as "memory of nodes 0-3" and "cores"."""
    numbers: dict[str, set[int]] = {}
    for resource in resources:
        matches = (
            (re.fullmatch(pattern, resource), text) for pattern, text in _RESOURCE_NAME_PATTERNS
        )
        match, text = next((match, text) for match, text in matches if match)
        numbers.setdefault(text, set()).update(
            map(int, re.findall(r"\d+", "".join(match.groups())))
        )
    return tuple(
        f"{text}{'s' * (len(own) > 1)} {format_cpu_list(own)}" if own else text
        for text, own in numbers.items()
    )
