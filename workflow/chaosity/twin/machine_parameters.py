"""The parameters of a machine description that can be fitted, and the loads that use each one.

A parameter is a capacity or a latency of the description of simulated hosts. All parameters are
positive and are fitted as logarithms.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from chaosity.cpusets import format_cpu_list
from chaosity.documents.machines import FAULT_KINDS, Fault, MachineDescription
from chaosity.records.record_format import Load, Point
from chaosity.simulation.machine_description import affected_resources
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_loads import (
    begins_with_placement_search,
    read_written_and_counted_shares,
    share_of_peak_rate,
    shares_work,
)
from chaosity.topology.topology_model import Topology


@dataclass(frozen=True)
class Parameter:
    """A number of the machine description."""

    # section, key: the place of the number in the description.
    section: str
    key: str
    # Pattern of the names of resources with this capacity; empty if the number is no capacity.
    resources: str = ""
    # Start value of a parameter that is no capacity; also its value if no data determine the
    # parameter.
    usual: float = 0.0
    # Standard deviation of the logarithm of usual values. The spread only says how far from `usual`
    # the value of a machine can be, and keeps the equations of the fit solvable.
    spread: float = 3.0
    required: bool = False  # says whether each description must contain the number
    # JSON of a fault of a single part, if the number is the share of capacity that remains.
    fault: str = ""
    share_of: str = ""  # name of the capacity of which a share remains
    nodes: tuple[int, ...] = ()  # nodes with separate controllers (HBM), each with this capacity
    # Pattern of the names of resources whose use depends on the number, although it is not their
    # capacity. Empty if the number is a capacity.
    fills: str = ""

    @property
    def name(self) -> str:
        """The number's place in the description: ``links.node_to_node_bytes_per_second``."""
        return f"{self.section}.{self.key}"

    @property
    def measured_by(self) -> str:
        """The measurements that determine the number on most machines, as a text."""
        return _MEASUREMENTS_OF_SECTION[self.section]

    @property
    def is_latency(self) -> bool:
        """Return whether only latencies depend on this parameter."""
        return self.section in ("latency_ns", "core_to_core_ns")

    @property
    def is_bytes_in_flight(self) -> bool:
        """Return whether the number says for how many bytes a core waits at the same time."""
        return self.key == "core_bytes_in_flight"

    @property
    def changes_routes(self) -> bool:
        """Return whether the routes of loads depend on the number.

        Capacities of shared resources change no route, but a fault can add a resource to routes.
        """
        own_parts = ("core_bytes_per_second", "core_bytes_in_flight", "read_bytes_per_second")
        return not self.resources or bool(self.fault) or self.key in own_parts

    @property
    def metric_of_unit(self) -> str:
        """Return the name of a metric in whose unit the number is, such as ``latency_ns``."""
        if self.is_latency:
            return "latency_ns"
        return "bandwidth_bytes_per_second" if self.nodes else self.key

    def is_share_of(self, capacity: Parameter) -> bool:
        """Return whether this parameter is a single part's share of the given capacity."""
        return self.share_of == capacity.name

    def is_capacity_of(self, resource: str) -> bool:
        """Return whether the number is the capacity of a resource."""
        return bool(self.resources) and re.fullmatch(self.resources, resource) is not None

    @cache  # noqa: B019  (few parameters, and as many resources as a machine has)
    def affects_fullness_of(self, resource: str) -> bool:
        """Return whether another value of the parameter changes the utilisation of a resource."""
        return any(
            re.fullmatch(self.resources or self.fills, prefix + resource)
            for prefix in ("", _REQUESTS, _WAITING)
        )


Values = dict[Parameter, float]

# A capacity this number of times as large as each rate that was measured through it sets no limit.
CAPACITY_RATIO_WITHOUT_LIMIT = 1e3

# Section of the description -> measurements that fill the capacities or show the latencies of the
# section.
_MEASUREMENTS_OF_SECTION = {
    "memory": "memory bandwidth of the cores of an L3 domain and of a node",
    "links": "bandwidth of memory on other nodes, also of several nodes at the same time",
    "drives": "bandwidth of drives",
    "latency_ns": "latency by size and node, also beside other loads",
    "core_to_core_ns": "latency between cores",
}

# Prefixes of the name of a core, for two resources of the core: requests to drives, and waits for
# memory.
_REQUESTS, _WAITING = "requests_of_", "waiting_"
_CORE_PATTERN = (
    r"core\d+"  # if its bytes in flight are limited, a core waits for the latency of memory
)
# An NVMe drive, another device, or a file that replaces a drive.
_DRIVE_PATTERN = "(?:drive|disk|file)-"
PARAMETERS = (
    Parameter("memory", "core_bytes_per_second", r"core\d+", required=True),
    Parameter("memory", "core_bytes_in_flight", rf"{_WAITING}core\d+"),
    Parameter("memory", "l3_domain_bytes_per_second", r"l3_\d+"),
    Parameter("memory", "package_bytes_per_second", r"node\d+", required=True),
    # A written byte takes at least the time of a read byte; descriptions of servers have factors of
    # 1 to 1.2.
    Parameter("memory", "write_cost", usual=1.1, spread=0.05, fills=r"node\d+"),
    Parameter("links", "node_to_node_bytes_per_second", r"node\d+->node\d+"),
    Parameter(
        "links", "node_to_package_bytes_per_second", r"node\d+->package\d+|package\d+->node\d+"
    ),
    Parameter("links", "package_to_package_bytes_per_second", r"package\d+->package\d+"),
    Parameter("drives", "read_bytes_per_second", rf"{_DRIVE_PATTERN}.*(?<!_link)", required=True),
    Parameter("drives", "core_bytes_per_second", rf"{_REQUESTS}core\d+"),
    Parameter("drives", "package_bytes_per_second", r"drives\d+"),
    Parameter("drives", "remote_package_bytes_per_second", r"drives\d+->package\d+"),
    # Usual latencies of servers since 2012; a server can differ by a factor of about three.
    Parameter("latency_ns", "l1", usual=1.3, spread=1.0, required=True),
    Parameter("latency_ns", "l2", usual=4.0, spread=1.0, required=True),
    Parameter("latency_ns", "l3", usual=15.0, spread=1.0, required=True),
    Parameter(
        "latency_ns", "same_node", usual=100.0, spread=1.0, required=True, fills=_CORE_PATTERN
    ),
    Parameter("latency_ns", "same_package", usual=110.0, spread=1.0, fills=_CORE_PATTERN),
    Parameter("latency_ns", "other_package", usual=180.0, spread=1.0, fills=_CORE_PATTERN),
    Parameter("latency_ns", "base_pages", usual=20.0, spread=1.0),
    Parameter("latency_ns", "queue", usual=8.0, spread=1.0),
    Parameter("core_to_core_ns", "same_l3", usual=25.0, spread=1.0, required=True),
    Parameter("core_to_core_ns", "same_package", usual=100.0, spread=1.0),
    Parameter("core_to_core_ns", "other_package", usual=200.0, spread=1.0),
)


def factor_of_fault(fault: Fault, topology: Topology) -> Parameter | None:
    """Return the parameter for the remaining capacity of a faulty part; None for other faults.

    Args:
        fault: the fault without `remaining`.
        topology: the topology of the machine.
    """
    parts, reduced = affected_resources(fault, topology, {}), FAULT_KINDS[fault["fault"]].capacity
    if reduced is None or len(parts) != 1:
        return None
    [part], capacity = parts, ".".join(reduced)
    for kind in capacities_of_memory_without_cores(topology):
        capacity = kind.name if kind.is_capacity_of(part) else capacity
    return Parameter(
        *("faults", f"{fault['fault']} {part}", re.escape(part)),
        usual=1.0,
        fault=json.dumps(fault),
        share_of=capacity,
    )


def capacities_of_memory_without_cores(topology: Topology) -> list[Parameter]:
    """Return a capacity parameter for each kind of memory without cores, such as HBM and CXL."""
    nodes: dict[str, list[int]] = defaultdict(list)
    for node in topology.memory_nodes:
        if not node.has_cpus:
            nodes[node.kind].append(node.os_index)
    return [
        Parameter(
            *("memory", f"nodes {format_cpu_list(own)}", f"node({'|'.join(map(str, own))})"),
            required=True,
            nodes=tuple(own),
        )
        for own in nodes.values()
    ]


def sorted_parameters(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return parameters in the order of `PARAMETERS`, then parameters of a single machine."""
    order = {parameter: place for place, parameter in enumerate(PARAMETERS)}
    return sorted(parameters, key=lambda each: order.get(each, len(order)))


def with_capacity_and_same_slow_parts(
    values: Mapping[Parameter, float], capacity: Parameter, value: float
) -> Values:
    """Return the values with a new value of a capacity, which `values` may lack.

    Slower parts stay equally slow, since their factors become shares of the new value.
    """
    ratio = values.get(capacity, value) / value
    return {
        own: each * ratio if own.is_share_of(capacity) else each for own, each in values.items()
    } | {capacity: value}


def description_with_values(
    values: Mapping[Parameter, float], base: MachineDescription | None = None
) -> MachineDescription:
    """Return the description with given values; a parameter without a value sets no limit.

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
        if parameter.nodes:
            own_rates = document.setdefault("memory", {}).setdefault("nodes", {})
            own_rates |= {str(node): value for node in parameter.nodes}
            continue
        document.setdefault(parameter.section, {})[parameter.key] = value
    return cast(MachineDescription, document)


def model_with_values(
    values: Mapping[Parameter, float], topology: Topology, base: MachineDescription | None = None
) -> MachineModel:
    """Return the model of a machine with the given values and topology.

    The model has the faults of `base` that have begun and that concern all hosts.
    """
    return MachineModel(
        description_with_values(values, base), topology, "", datetime.now(UTC).date()
    )


def can_be_fitted(point: Point) -> bool:
    """Return whether the parameters explain a point.

    GPUs, writes to drives, random reads of drives and searches for a placement have no parameter.
    """
    return not any(
        load["target"].get("device")
        or (load["writes"] and load["target"]["drives"])
        or "read_rate_reads_per_second" in load["metrics"]
        or any("by_node" in source for source in load["metrics"].values())
        or begins_with_placement_search(load)
        for load in point["loads"]
    )


class ParameterUses:
    """The parameters that the loads of a machine's points use, and the use of each parameter.

    Args:
        topology: the topology of the machine.
        factors: parameters of single parts that can be slower than other parts of their kind.
    """

    def __init__(self, topology: Topology, factors: Sequence[Parameter] = ()) -> None:
        fast, waiting, *others = PARAMETERS
        self._kinds = capacities_of_memory_without_cores(topology)
        own_parts = (*self._kinds, *factors)
        self._every = (*PARAMETERS, *own_parts)
        units = {parameter: parameter.usual or 1.0 for parameter in (*others, *own_parts)}
        self._own_speed = model_with_values({fast: 1.0, **units}, topology)
        # The cores of the model below have one byte in flight and no other limit, so they only
        # wait.
        self._in_flight = model_with_values({fast: math.inf, waiting: 1.0, **units}, topology)
        # Each parameter gets another number, so that different sums of parameters are different
        # numbers.
        different = {each: math.exp(math.sin(n)) for n, each in enumerate(self._every)}
        self._different = model_with_values({**different, fast: 1e9}, topology)

    def _uses_of_flows(self, load: Load) -> list[dict[str, float]]:
        """Return for each flow of a load: resource -> its use in units of the parameter."""
        found = []
        drives, chase = bool(load["target"]["drives"]), "latency_ns" in load["metrics"]
        waiting = self._in_flight.routes([load]).flows
        for flow, slow in zip(self._own_speed.routes([load]).flows, waiting, strict=True):
            uses = {}
            for name, units in flow.uses.items():
                is_core = name.startswith("core")
                own = f"{_REQUESTS}{name}" if is_core and drives else name
                uses[own] = units / self._own_speed.capacities[name]
                if is_core and not drives and not chase:
                    uses[f"{_WAITING}{name}"] = slow.uses[name]
            found.append(uses)
        return found

    def flows_without_names(self, loads: list[Load]) -> Hashable:
        """Return a point's flows with numbers for names; equal flows have equal values."""
        model = self._different
        routes, places = model.routes(loads), {load["name"]: n for n, load in enumerate(loads)}
        latencies = dict.fromkeys(places, 0.0)
        if any("latency_ns" in load["metrics"] for load in loads):
            results = model.results_on(routes, loads)
            latencies = {name: results[name].latency_ns or 0.0 for name in places}
        works = tuple(
            (load["kernel"], share_of_peak_rate(load), shares_work(load), f"{latencies[name]:.9g}")
            for name, load in zip(places, loads, strict=True)
        )
        flows = []
        for flow in routes.flows:
            uses = flow.uses.items()
            parts = sorted((model.capacities[name], f"{units:.9g}", name) for name, units in uses)
            flows.append((places[flow.load], f"{flow.limit:.9g}", parts))
        # Flows are sorted by their resources. After sorting, each name becomes a number, in the
        # order of the flows.
        flows.sort(key=lambda own: (*own[:2], [part[:2] for part in own[2]]))
        numbers: dict[str, int] = defaultdict(lambda: len(numbers))
        return works, tuple(
            (place, limit, *((*part, numbers[name]) for *part, name in parts))
            for place, limit, parts in flows
        )

    def parameters_of_loads(self, loads: Sequence[Load]) -> set[Parameter]:
        """Return the parameters on which the values of a point's loads can depend."""
        names = {name for load in loads for uses in self._uses_of_flows(load) for name in uses}
        chases = [load for load in loads if "latency_ns" in load["metrics"]]
        transfers = {load["placement"]["cpus"] != load["initiator"]["cpus"] for load in chases}
        sections = {"core_to_core_ns" if own else "latency_ns" for own in transfers}
        if any(name.startswith(_WAITING) for name in names):
            sections.add("latency_ns")
        return {
            parameter
            for parameter in self._every
            if parameter.section in sections
            or any(map(parameter.is_capacity_of, names))
            or (parameter.key == "write_cost" and any(re.match(r"node\d", name) for name in names))
        }

    def capacities_for_rates(
        self, loads: Sequence[Load]
    ) -> list[dict[tuple[Parameter, str], float]]:
        """Return how much of each capacity a load uses for each byte per second of its rate.

        If threads or drives of a load take different paths, their shares of the load's rate are
        unknown. In this case, only resources that all threads or drives use equally count.

        Returns:
            For each load: (capacity, name of a resource with this capacity) -> use.
        """
        found = []
        for load in loads:
            moved, flows = 1.0, self._uses_of_flows(load)
            if not load["target"]["drives"]:
                moved /= read_written_and_counted_shares(load)[2]
            ways = [{item for item in uses.items() if _is_shared(item[0])} for uses in flows]
            alike = all(way == ways[0] for way in ways)
            used: dict[str, float] = defaultdict(float)
            for name, units in (item for uses in flows for item in uses.items()):
                if alike or all(other.get(name) == units for other in flows):
                    used[name] += units * moved / len(flows)
            holders = {name: self._parameters_of_resource(name) for name in used}
            found.append({(own, name): used[name] for name in used for own in holders[name]})
        return found

    def _parameters_of_resource(self, resource: str) -> list[Parameter]:
        """Return the parameters for the capacity of a resource, or for its remaining share."""
        found = [own for own in self._every if own.is_capacity_of(resource)]
        # Memory of this kind uses no resource that the nodes of a package share.
        if any(own in self._kinds for own in found):
            found = [own for own in found if own.nodes or own.fault]
        return found


def _is_shared(resource: str) -> bool:
    """Return whether threads or drives of several places share a resource, unlike a core."""
    return re.match(rf"([a-z_]+_)?core\d|l3_|{_DRIVE_PATTERN}", resource) is None
