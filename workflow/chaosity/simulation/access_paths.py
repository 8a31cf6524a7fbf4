"""Find the flows of loads over a simulated machine's resources, and the rates of flows.

Rates are max-min fair (progressive filling): the rates of all flows grow at the same pace until a
resource is full or a flow reaches its limit. The flows that use the full resource keep their rate;
all other flows continue to grow (Bertsekas and Gallager, Data Networks, section 6.5.2). For one
unit of its rate, a flow may use several units of a resource, such as two bytes of a link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chaosity.documents.machines import Fault
from chaosity.records.record_format import DriveFacts, Load, OpenclTargetDevice
from chaosity.simulation.machine_description import (
    WITHOUT_LIMIT,
    HitShares,
    IdleMachine,
    missed_share,
    shared_drive_path_resource_name,
    slow_port_resource_name,
)
from chaosity.simulation.simulated_loads import (
    accesses_own_node_only,
    block_bytes,
    page_shares_by_node,
    processing_units_of_load,
    read_written_and_counted_shares,
    simulated_program,
)
from chaosity.topology.topology_model import OTHER_PACKAGE, Topology

# A resource counts as full if less than this share of its capacity is left. The share is above 0
# because of rounding errors.
REMAINING_SHARE_OF_FULL_RESOURCE = 1e-9


@dataclass(frozen=True)
class Flow:
    """Accesses of a load that take one path."""

    load: str  # name of the load
    # Name of each resource -> units of the resource that the flow uses for one unit of its rate.
    uses: Mapping[str, float]
    limit: float = float("inf")  # highest rate that the flow requests; infinite by default
    # How fast the rate of the flow grows compared with other flows, for example the number of its
    # threads.
    pace: float = 1.0


@dataclass
class FlowRatesAndUtilisation:
    """The rates of flows, in the order of the flows, and how full each resource is (0 to 1)."""

    rates: list[float]
    utilisation: dict[str, float] = field(default_factory=dict)


def max_min_fair_rates(
    flows: Sequence[Flow], capacities: Mapping[str, float]
) -> FlowRatesAndUtilisation:
    """Return the max-min fair rates of flows.

    Each flow uses at least one resource of `capacities` or has a limit. Capacities are in units per
    second, and can be infinite.

    Raises:
        KeyError: a flow uses a resource without a capacity.
    """
    rates = [0.0] * len(flows)
    growing = set(range(len(flows)))
    left = {
        name: rest for flow in flows for name in flow.uses if (rest := capacities[name]) < math.inf
    }
    # For each flow: the units of each limited resource that the flow needs when its rate grows by
    # its pace.
    needs = [
        {name: units * flow.pace for name, units in flow.uses.items() if units > 0 and name in left}
        for flow in flows
    ]
    while growing:
        demand: dict[str, float] = {}
        for number in growing:
            for name, units in needs[number].items():
                demand[name] = demand.get(name, 0.0) + units
        steps = [left[name] / units for name, units in demand.items()]
        steps += [(flows[n].limit - rates[n]) / flows[n].pace for n in growing]
        step = max(0.0, min(steps))
        for number in growing:
            rates[number] += step * flows[number].pace
        for name, units in demand.items():
            left[name] -= step * units
        full = {
            name
            for name in demand
            if left[name] <= REMAINING_SHARE_OF_FULL_RESOURCE * capacities[name]
        }
        growing = {
            number
            for number in growing
            if rates[number] < flows[number].limit * (1 - REMAINING_SHARE_OF_FULL_RESOURCE)
            and full.isdisjoint(needs[number])
        }
    return FlowRatesAndUtilisation(
        rates, {name: 1 - rest / capacities[name] for name, rest in left.items()}
    )


LINE_BYTES = 64
# How fast the requests of a drive grow compared with the requests of a core. Many requests of one
# MiB each are always on the way, so drives keep most of their rate next to programs (document 000,
# figure 7).
_GROWTH_OF_DRIVES_TO_CORES = 4.0
# Direction of copies to or from a device -> the shares of the copied bytes that are read from the
# host's memory and written to the host's memory.
_READ_AND_WRITTEN_BY_COPIES = {
    "to_device": (1.0, 0.0),
    "from_device": (0.0, 1.0),
    "both_ways": (0.5, 0.5),
}


class AccessPaths:
    """The paths of loads through a simulated machine.

    `capacities` has the capacity of each resource. Files that replace drives are added to this
    mapping.
    """

    def __init__(
        self, idle: IdleMachine, capacities: dict[str, float], faults: Sequence[Fault]
    ) -> None:
        self._idle, self.capacities, self._faults = idle, capacities, faults
        self.machine, self.topology = idle.machine, idle.topology
        self._slow_units = _units_of_slower_cores(idle.topology)
        # Cached results: path of a byte -> units of each resource that the byte uses. Most loads
        # take the same few paths.
        self._known_uses: dict[tuple[object, ...], Mapping[str, float]] = {}

    def flows_of_load(self, load: Load, hits: HitShares) -> Iterator[Flow]:
        """Yield the flows of a load."""
        target = load["target"]
        if target["drives"]:
            yield from self._drive_flows(load)
        elif device := target.get("device"):
            if f"{device['name']}_in" in self.capacities:
                yield self._device_flow(load, device)
        elif "latency_ns" in load["metrics"]:
            # A pointer chase has only one access in flight, so it uses nearly nothing of the
            # machine's capacity.
            for flow in self.memory_flows(load, hits, page_shares_by_node(load)):
                limit = LINE_BYTES / (self._idle.access_ns(load, hits) * 1e-9)
                yield replace(flow, limit=limit)
        else:
            yield from self.memory_flows(load, hits, page_shares_by_node(load))

    def add_capacities_of_stand_in_files(self, load: Load) -> None:
        """Add capacities of files that replace drives; no PCI link limits a file."""
        for drive in load["target"]["drives"]:
            self.capacities.setdefault(drive["component"], 1.0)
            self.capacities.setdefault(f"{drive['component']}_link", WITHOUT_LIMIT)

    def _device_flow(self, load: Load, device: OpenclTargetDevice) -> Flow:
        """Return the flow of a device: within its own memory, or over its link to the host."""
        # If a device uses the memory of a node as its memory, its accesses use the controllers of
        # this node.
        copied = _READ_AND_WRITTEN_BY_COPIES.get(load["kernel"] or "")
        if "host_to_device_bytes_per_second" in load["metrics"]:
            copied = 1.0, 0.0
        devices, package_of_node = self.machine["devices"], self.topology.package_of_node
        uses = {device["name"]: 1.0}
        if copied:
            links = (f"{device['name']}_in", f"{device['name']}_out")
            uses = {link: share for link, share in zip(links, copied, strict=True) if share}
        if (own := devices.get("memory_node")) is not None:
            reads, writes, _ = read_written_and_counted_shares(load)
            accesses = copied[::-1] if copied else (reads, writes)
            add_uses(uses, self._way_uses(package_of_node.get(own), own, own, *accesses))
        if not copied:
            return Flow(load["name"], uses, pace=devices.get("competes_as_cores", 1.0))
        [node, *_] = load["placement"]["memory_nodes"]
        begin = node if device["node"] is None else device["node"]
        add_uses(uses, self._way_uses(package_of_node.get(begin), begin, node, *copied))
        return Flow(load["name"], uses, pace=_GROWTH_OF_DRIVES_TO_CORES)

    def memory_flows(
        self, load: Load, hits: HitShares, shares: Mapping[int, float]
    ) -> Iterator[Flow]:
        """Yield a flow for each thread of a load; `shares` is node -> share of accesses."""
        reads, writes, _ = read_written_and_counted_shares(load)
        beyond_caches = missed_share(hits)
        for unit in sorted(processing_units_of_load(load)):
            uses: dict[str, float] = {}
            own_shares = self.access_shares(load, unit, shares)
            seconds = self._core_seconds(load, unit, own_shares, beyond_caches)
            uses[f"core{self.topology.core_of_pu[unit].index}"] = seconds
            for node, share in own_shares.items():
                missed = share * beyond_caches
                add_uses(uses, self.memory_uses(unit, node, reads, writes), missed)
            missed = sum(own_shares.values()) * beyond_caches
            if unit in self.topology.l3_of_pu:
                add_uses(uses, {f"l3_{self.topology.l3_of_pu[unit]}": 1.0}, missed)
            cores = "slow_cores" if unit in self._slow_units else "fast_cores"
            if cores in self.capacities:
                add_uses(uses, {cores: 1.0}, missed)
            yield Flow(load["name"], uses)

    def access_shares(
        self, load: Load, unit: int, shares: Mapping[int, float]
    ) -> Mapping[int, float]:
        """Return node -> share of a unit's accesses; `shares` are the shares of the load's pages.

        If a program runs each part of its work on the node of the data, each unit accesses only its
        own node.
        """
        near = self._idle.node_of(unit)
        return {near: 1.0} if near in shares and accesses_own_node_only(load) else shares

    def _core_seconds(
        self, load: Load, unit: int, shares: Mapping[int, float], missed: float
    ) -> float:
        """Return the seconds that a core needs per byte; `shares` is node -> share of accesses."""
        # A core waits for a limited number of cache lines at a time, so a longer mean latency makes
        # the core slower (Little's law). A core handles near lines while far lines are on the way.
        # Only the share `missed` of the accesses needs memory. A program also computes, so only a
        # part of its time is spent on accesses to memory.
        memory = self.machine["memory"]
        near = 1 / memory["core_bytes_per_second"]
        if unit in self._slow_units:
            near /= memory.get("slow_core_share", 1.0)
        seconds = near
        if in_flight := memory.get("core_bytes_in_flight"):
            here = self._idle.node_of(unit)
            latency = sum(
                share * self._idle.memory_ns(here, node) * 1e-9 for node, share in shares.items()
            )
            seconds = (1 - missed) * near + missed * max(near, latency / in_flight)
        return seconds + near * (1 / simulated_program(load)["time_in_memory"] - 1)

    def memory_uses(self, unit: int, node: int, reads: float, writes: float) -> Mapping[str, float]:
        """Return, for each controller and link, its bytes for one byte between core and memory."""
        near, package = self._idle.node_of(unit), self._idle.package_of(unit)
        key = near, package, node, reads, writes
        if key in self._known_uses:
            return self._known_uses[key]
        uses = self._way_uses(package, near, node, reads, writes)
        if self.topology.node_relation(near, node) == OTHER_PACKAGE:
            far = self.topology.package_of_node[node]
            add_uses(
                uses, {f"node{near}->package{far}": writes, f"package{far}->node{near}": reads}
            )
        self._known_uses[key] = uses
        return uses

    def _way_uses(
        self, package: int | None, begin: int, node: int, reads: float, writes: float
    ) -> dict[str, float]:
        """Return, for each controller and link, its bytes for one byte between place and memory.

        The place is `begin`, a node of `package`. The memory belongs to `node`.
        """
        uses = {f"node{node}": reads + self.machine["memory"].get("write_cost", 1.0) * writes}
        own = self.topology.package_of_node.get(node)
        places = [own] if own is not None else [part.os_index for part in self.topology.packages]
        for place in places:
            share = 1 / len(places)
            if place != package:
                there = f"package{package}->package{place}"
                back = f"package{place}->package{package}"
                add_uses(uses, {there: writes * share, back: reads * share})
            elif begin != node:
                there, back = f"node{begin}->node{node}", f"node{node}->node{begin}"
                add_uses(uses, {there: writes, back: reads})
        return uses

    def _drive_flows(self, load: Load) -> Iterator[Flow]:
        """Yield a flow for each drive of a load, from the drive to the memory of the buffers."""
        drives = self.machine.get("drives")
        if drives is None:
            return
        shares = page_shares_by_node(load)
        rate = drives["read_bytes_per_second"]
        if load["writes"]:
            rate = drives.get("write_bytes_per_second", rate)
        cores = sorted(
            {self.topology.core_of_pu[unit].index for unit in processing_units_of_load(load)}
        )
        self.add_capacities_of_stand_in_files(load)
        for drive in load["target"]["drives"]:
            uses = {drive["component"]: 1 / rate, f"{drive['component']}_link": 1.0}
            for core in cores:
                each = 1 / drives.get("core_bytes_per_second", WITHOUT_LIMIT) / len(cores)
                add_uses(uses, {f"core{core}": each})
            for fault in self._faults:
                if fault["fault"] == "slow_port" and drive["component"] in fault["drives"]:
                    add_uses(uses, {slow_port_resource_name(fault): 1.0})
            for node, share in shares.items():
                add_uses(uses, self._drive_uses(drive, node, writes=load["writes"]), share)
                if "processing_throughput_bytes_per_second" in load["metrics"]:
                    # The cores of the load read the data that the drives have sent.
                    add_uses(uses, {f"node{node}": share})
            limit = math.inf
            if self.reads_at_random(load):
                block = block_bytes(load)
                busy = block / rate, 1 / drives["random_reads_per_second"]
                uses[drive["component"]] = max(busy) / block
                in_flight = load["memory_bytes"] // block // len(load["target"]["drives"])
                limit = block * closed_queue_rate(
                    in_flight,
                    self._idle.random_read_ns(load, drive) * 1e-9,
                    max(busy) / self.capacities[drive["component"]],
                )
            yield Flow(load["name"], uses, limit, _GROWTH_OF_DRIVES_TO_CORES)

    def _drive_uses(self, drive: DriveFacts, node: int, *, writes: bool) -> Mapping[str, float]:
        """Return, for each port, link and controller, its bytes for one byte of a drive."""
        near = drive["node"]
        key = "drive", near, node, writes
        if key in self._known_uses:
            return self._known_uses[key]
        from_memory, into_memory = (1.0, 0.0) if writes else (0.0, 1.0)
        begin = node if near is None else near
        package = self.topology.package_of_node.get(begin)
        uses = self._way_uses(package, begin, node, from_memory, into_memory)
        if near is not None:
            add_uses(uses, {f"drives{near}": 1.0})
            if self.topology.node_relation(near, node) == OTHER_PACKAGE:
                far = self.topology.package_of_node[node]
                add_uses(uses, {f"drives{near}->package{far}": 1.0})
                for fault in self._faults:
                    if near in fault.get("drive_nodes", []) and far == fault["to_package"]:
                        add_uses(uses, {shared_drive_path_resource_name(fault): 1.0})
        self._known_uses[key] = uses
        return uses

    def reads_at_random(self, load: Load) -> bool:
        """Return whether a load reads drives at random, and the description allows random reads."""
        described = "read_latency_ns" in self.machine.get("drives", {})
        return described and "read_rate_reads_per_second" in load["metrics"]


def closed_queue_rate(in_flight: int, idle_seconds: float, busy_seconds: float) -> float:
    """Return the requests per second of a device with a constant number of requests in flight.

    The rate is the exact result of mean value analysis (Reiser and Lavenberg 1980) for a queue with
    exponential service and a delay.

    `in_flight` is the number of requests, at least 1. `idle_seconds` is the time of a request
    without other requests. `busy_seconds` is the time for which one request keeps the device from
    serving the next one.
    """
    delay = max(0.0, idle_seconds - busy_seconds)
    queued, rate = 0.0, 0.0
    for number in range(1, in_flight + 1):
        served = busy_seconds * (1 + queued)
        rate = number / (delay + served)
        queued = rate * served
    return rate


def _units_of_slower_cores(topology: Topology) -> set[int]:
    """Return the processing units of all core kinds except the fastest."""
    kinds = [kind for kind in topology.core_kinds if kind.speed_rank is not None]
    fastest = max((kind.speed_rank for kind in kinds if kind.speed_rank), default=None)
    return {unit for kind in kinds if kind.speed_rank != fastest for unit in kind.cpus}


def add_uses(uses: dict[str, float], more: Mapping[str, float], factor: float = 1.0) -> None:
    """Add `more`, the use of resources multiplied by a factor, to `uses`."""
    for name, units in more.items():
        uses[name] = uses.get(name, 0.0) + units * factor
