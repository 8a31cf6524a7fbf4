"""The parameters of a machine description that can be fitted, and what each of them depends on.

A parameter is a capacity or a latency of the description of simulated hosts. All parameters are
positive and are fitted as logarithms.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from chaosity.documents.machines import Fault, MachineDescription
from chaosity.records.point_types import Load, Point
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_loads import (
    rate_share,
    read_written_and_counted_shares,
    searches_a_placement,
    shares_work,
)
from chaosity.topology.topology_model import Topology


@dataclass(frozen=True)
class Parameter:
    """A number of the machine description."""

    # section, key: where the number is in the description.
    section: str
    key: str
    resources: str = ""  # pattern of the resources with this capacity; empty for other parameters
    # Start value of a parameter without resources, and the value if no data determine it.
    usual: float = 0.0
    # Standard deviation of the logarithm of usual values. It says only how far from `usual` a
    # machine can be, and keeps the equations of the fit solvable.
    spread: float = 3.0
    required: bool = False  # whether each description needs the number
    fault: str = ""  # JSON of the fault of a single part of which the number is what remains

    @property
    def name(self) -> str:
        """The place in the description, such as ``links.node_to_node_bytes_per_second``."""
        return f"{self.section}.{self.key}"

    @property
    def measured_by(self) -> str:
        """What has to be measured to determine the number on most machines."""
        return _MEASURED_BY[self.section]

    @property
    def is_latency(self) -> bool:
        """Return whether only latencies depend on this parameter."""
        return self.section in ("latency_ns", "core_to_core_ns")

    def holds(self, resource: str) -> bool:
        """Return whether a resource has this capacity."""
        return re.fullmatch(self.resources, resource) is not None

    @cache  # noqa: B019  (few parameters, and as many resources as a machine has)
    def limits(self, resource: str) -> bool:
        """Return whether a resource is full sooner if this capacity is lower."""
        return any(self.holds(prefix + resource) for prefix in ("", _REQUESTS, _WAITING))


Values = dict[Parameter, float]

# Section of the description -> what fills its capacities, or measures its latencies.
_MEASURED_BY = {
    "memory": "memory bandwidth of the cores of an L3 domain and of a node",
    "links": "bandwidth of memory on other nodes, also of several nodes at the same time",
    "drives": "bandwidth of drives",
    "latency_ns": "latency by size and node, also beside other loads",
    "core_to_core_ns": "latency between cores",
}

# Before the name of a core: its requests for reads of drives, and its waiting for memory.
_REQUESTS, _WAITING = "requests_of_", "waiting_"
# An NVMe drive, another device, or a file that replaces a drive.
_DRIVE = "(?:drive|disk|file)-"
PARAMETERS = (
    Parameter("memory", "core_bytes_per_second", r"core\d+", required=True),
    Parameter("memory", "core_bytes_in_flight", rf"{_WAITING}core\d+"),
    Parameter("memory", "l3_domain_bytes_per_second", r"l3_\d+"),
    Parameter("memory", "package_bytes_per_second", r"node\d+", required=True),
    # A written byte takes at least the time of a read byte; descriptions of servers have 1 to 1.2.
    Parameter("memory", "write_cost", usual=1.1, spread=0.05),
    Parameter("links", "node_to_node_bytes_per_second", r"node\d+->node\d+"),
    Parameter(
        "links", "node_to_package_bytes_per_second", r"node\d+->package\d+|package\d+->node\d+"
    ),
    Parameter("links", "package_to_package_bytes_per_second", r"package\d+->package\d+"),
    Parameter("drives", "read_bytes_per_second", rf"{_DRIVE}.*(?<!_link)", required=True),
    Parameter("drives", "core_bytes_per_second", rf"{_REQUESTS}core\d+"),
    Parameter("drives", "package_bytes_per_second", r"drives\d+"),
    Parameter("drives", "remote_package_bytes_per_second", r"drives\d+->package\d+"),
    # Usual latencies of servers since 2012, within a factor of about three.
    Parameter("latency_ns", "l1", usual=1.3, spread=1.0, required=True),
    Parameter("latency_ns", "l2", usual=4.0, spread=1.0, required=True),
    Parameter("latency_ns", "l3", usual=15.0, spread=1.0, required=True),
    Parameter("latency_ns", "same_node", usual=100.0, spread=1.0, required=True),
    Parameter("latency_ns", "same_package", usual=110.0, spread=1.0),
    Parameter("latency_ns", "other_package", usual=180.0, spread=1.0),
    Parameter("latency_ns", "base_pages", usual=20.0, spread=1.0),
    Parameter("latency_ns", "queue", usual=8.0, spread=1.0),
    Parameter("core_to_core_ns", "same_l3", usual=25.0, spread=1.0, required=True),
    Parameter("core_to_core_ns", "same_package", usual=100.0, spread=1.0),
    Parameter("core_to_core_ns", "other_package", usual=200.0, spread=1.0),
)


def fault_parameter(fault: Fault, resource: str) -> Parameter:
    """Return the parameter that says what remains of a single part.

    Args:
        fault: the fault without `remaining`.
        resource: the part.
    """
    name = f"{fault['fault']} {resource}"
    return Parameter("faults", name, re.escape(resource), usual=1.0, fault=json.dumps(fault))


def described(
    values: Mapping[Parameter, float], base: MachineDescription | None = None
) -> MachineDescription:
    """Return the description with these values; a parameter without a value has no limit.

    Args:
        values: the values.
        base: a description that has all other keys, such as other faults.
    """
    document: dict[str, Any] = {"simulated_machine": "fitted", "description": "", "sources": []}
    document |= deepcopy(cast(dict[str, Any], base or {}))
    for parameter in PARAMETERS:
        document.get(parameter.section, {}).pop(parameter.key, None)
    for parameter, value in values.items():
        if parameter.fault:
            place = json.loads(parameter.fault)
            others = [own for own in document.get("faults", []) if not place.items() <= own.items()]
            document["faults"] = [*others, {**place, "remaining": value}]
            continue
        document.setdefault(parameter.section, {})[parameter.key] = value
    return cast(MachineDescription, document)


def model_of(
    values: Mapping[Parameter, float], topology: Topology, base: MachineDescription | None = None
) -> MachineModel:
    """Return the model of a machine with these values and this topology, see `described`.

    It has the faults of `base` that have begun and are not those of a single host.
    """
    return MachineModel(described(values, base), topology, "", datetime.now(UTC).date())


def can_be_fitted(point: Point) -> bool:
    """Return whether the parameters explain a point.

    GPUs, writes to drives, random reads of drives and searches for a placement have no parameter.
    """
    return not any(
        load["target"].get("device")
        or (load["writes"] and load["target"]["drives"])
        or "read_rate_reads_per_second" in load["metrics"]
        or any("by_node" in source for source in load["metrics"].values())
        or searches_a_placement(load)
        for load in point["loads"]
    )


class ParameterUses:
    """Which parameters the loads of a machine's points use, and how much of each.

    Args:
        topology: the topology of the machine.
    """

    def __init__(self, topology: Topology) -> None:
        fast, waiting, *others = PARAMETERS
        units = {parameter: parameter.usual or 1.0 for parameter in others}
        self._own_speed = model_of({fast: 1.0, **units}, topology)
        # These cores have one byte in flight and no other limit, so they only wait.
        self._in_flight = model_of({fast: math.inf, waiting: 1.0, **units}, topology)
        # No two parameters are equal, so that other sums of them are other numbers.
        different = {each: math.exp(math.sin(n)) for n, each in enumerate(PARAMETERS)}
        self._different = model_of({**different, fast: 1e9}, topology)

    def _flows(self, load: Load) -> list[dict[str, float]]:
        """Return, for each flow of a load, name of resource -> use in units of its parameter."""
        found = []
        drives, chase = bool(load["target"]["drives"]), "latency_ns" in load["metrics"]
        waiting = self._in_flight.paths([load])
        for path, slow in zip(self._own_speed.paths([load]), waiting, strict=True):
            uses = {}
            for name, units in path.flow.uses.items():
                is_core = name.startswith("core")
                own = f"{_REQUESTS}{name}" if is_core and drives else name
                uses[own] = units / self._own_speed.capacities[name]
                if is_core and not drives and not chase:
                    uses[f"{_WAITING}{name}"] = slow.flow.uses[name]
            found.append(uses)
        return found

    def flows_without_names(self, loads: list[Load], distinct: Collection[str]) -> Hashable:
        """Return the flows of a point's loads, equal for points whose values are always equal.

        Args:
            loads: the loads.
            distinct: the names of resources that can differ from others of their kind.
        """
        model, numbers = self._different, dict[str, int]()
        results, names = model.noiseless_results(loads), [load["name"] for load in loads]

        def part(name: str, units: float) -> Hashable:
            number = numbers.setdefault(name, len(numbers))
            own = name if name in distinct else model.capacities[name]
            return number, own, float(f"{units:.9g}")

        return (
            tuple(
                (
                    *(load["kernel"], rate_share(load), shares_work(load)),
                    f"{results[name].latency_ns or 0:.9g}",
                )
                for name, load in zip(names, loads, strict=True)
            ),
            tuple(
                (
                    names.index(path.load),
                    tuple(part(*use) for use in path.flow.uses.items()),
                    float(f"{path.flow.limit:.9g}"),
                )
                for path in model.paths(loads)
            ),
        )

    def parameters(self, loads: Sequence[Load]) -> set[Parameter]:
        """Return the parameters on which the values of a point's loads can depend."""
        names = {name for load in loads for uses in self._flows(load) for name in uses}
        sections = set()
        for load in loads:
            if "latency_ns" in load["metrics"]:
                transfer = load["placement"]["cpus"] != load["initiator"]["cpus"]
                sections.add("core_to_core_ns" if transfer else "latency_ns")
        if any(name.startswith(_WAITING) for name in names):
            sections.add("latency_ns")
        return {
            parameter
            for parameter in PARAMETERS
            if parameter.section in sections
            or any(parameter.resources and parameter.holds(name) for name in names)
            or (parameter.key == "write_cost" and any(re.match(r"node\d", name) for name in names))
        }

    def least_capacities(self, point: Point, rates: Mapping[str, float]) -> dict[Parameter, float]:
        """Return the capacities that a machine must have at least to reach the rates of a point.

        If the threads or drives of a load take different ways, their shares of the rate are
        unknown. Then only the resources count that all of them use equally.

        Args:
            point: the point.
            rates: name of each measured load -> bytes per second, as its program counts them.
        """
        used: dict[str, float] = {}
        for load in point["loads"]:
            flows = self._flows(load) if load["name"] in rates else []
            moved = rates.get(load["name"], 0.0)
            if not load["target"]["drives"]:
                moved /= read_written_and_counted_shares(load["kernel"])[2]
            ways = [{item for item in uses.items() if _is_shared(item[0])} for uses in flows]
            for uses in flows:
                for name, units in uses.items():
                    if all(way == ways[0] for way in ways) or all(
                        other.get(name) == units for other in flows
                    ):
                        used[name] = used.get(name, 0.0) + units * moved / len(flows)
        least = {
            parameter: max((use for name, use in used.items() if parameter.holds(name)), default=0)
            for parameter in PARAMETERS
            if parameter.resources
        }
        return {parameter: float(rate) for parameter, rate in least.items() if rate}


def _is_shared(resource: str) -> bool:
    """Return whether several threads or drives share a resource, unlike a core or an L3 domain."""
    return re.match(rf"([a-z_]+_)?core\d|l3_|{_DRIVE}", resource) is None
