"""Model of a simulated machine: the rates and latencies of a point's loads without noise.

Every part on the path of an access is a resource with a capacity: a core, an L3 domain, the link
between two nodes or packages, the memory controllers of a node, a drive, its PCI link. The loads of
a point are flows over these resources, and their rates are max-min fair, so interference follows
from the paths. Latency is the latency of the idle machine plus the time in the queues of busy
resources. docs/simulation.md explains the model and has its sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from chaosity.cpusets import parse_cpu_list
from chaosity.place.page_share_arithmetic import shift_shares_to_workers
from chaosity.records.point_types import DriveFacts, Load, OpenclTargetDevice
from chaosity.runner.point_measurement import memory_shares_by_node
from chaosity.simulation.machine_description import MachineDescription, current_faults
from chaosity.simulation.max_min_fair_rates import Flow, FlowRatesAndUtilisation, max_min_fair_rates
from chaosity.simulation.resource_capacities import (
    WITHOUT_LIMIT,
    resource_capacities,
    shared_drive_path_resource_name,
    slow_port_resource_name,
)
from chaosity.topology.topology_model import OTHER_PACKAGE, SAME_NODE, SAME_PACKAGE, Topology

# Bytes that STREAM-like kernels read and write, as they count them. An ordinary store also fetches
# its line first; a non-temporal store (_nt) does not.
_READS_AND_WRITES = {
    "copy": (1, 1),
    "scale": (1, 1),
    "add": (2, 1),
    "triad": (2, 1),
    "read": (1, 0),
    "fill": (0, 1),
}
# Other programs mostly read.
_OTHER_PROGRAM = (3, 1)
# Utilisation above which queues grow no further, since every core has a limited number of accesses.
_FULLEST = 0.97
# Reach of the second-level TLB with base pages: 2048 entries of 4 KiB.
_TLB_BYTES = 2048 * 4096
# Sharpness of the edge of a cache. With 3, a working set as large as the L3 cache finds 79 % of its
# lines there, and one of twice the size 48 %, as in the tables of document 003.
_CACHE_EDGE = 3
LINE_BYTES = 64
# Block size of random reads if it is not a level of the experiment.
_RANDOM_READ_BYTES = 4096
# How fast the requests of a drive grow in comparison with those of a core. Many requests of a MiB
# are always on the way, so drives keep most of their rate next to programs (document 000, figure
# 7).
_DRIVE_PACE = 4.0
# For each cache level: the share of accesses that hit, and their latency in ns.
HitShares = list[tuple[float, float]]


@dataclass
class NoiselessLoadResult:
    """The rates and latency of a load without noise.

    Attributes:
        moved_bytes_per_second: bytes that memory or drives move for the load.
        counted_bytes_per_second: bytes that the program counts; STREAM does not count fetches.
        latency_ns: time of one dependent access or transfer; None for other loads.
        bytes_per_second_by_node: rate to each node of the target while all nodes are accessed.
        dwp: data-to-worker proximity that the load's search finds; None without a search.
        read_rate_reads_per_second: random reads of drives; None for other loads.
        completion_latency_ns, completion_latency_p99_ns: median and 99th percentile of the time of
            a random read; None for other loads.
    """

    moved_bytes_per_second: float = 0.0
    counted_bytes_per_second: float = 0.0
    latency_ns: float | None = None
    bytes_per_second_by_node: dict[int, float] = field(default_factory=dict)
    dwp: float | None = None
    read_rate_reads_per_second: float | None = None
    completion_latency_ns: float | None = None
    completion_latency_p99_ns: float | None = None


@dataclass(frozen=True)
class _Path:
    """One flow of a load through the machine."""

    load: str
    flow: Flow


def _searches_a_placement(load: Load) -> bool:
    """Return whether a load begins with a search: AutoNUMA has no shares to begin with."""
    return bool(load["placement"].get("settles") and load["placement"].get("shares"))


def _with_proximity(load: Load, dwp: float) -> Load:
    """Return a load whose pages are moved towards its workers by a data-to-worker proximity."""
    shares = memory_shares_by_node(load["placement"])
    moved = shift_shares_to_workers(shares, load["initiator"]["nodes"], dwp)
    by_node = {str(node): share for node, share in moved.items()}
    return {**load, "placement": {**load["placement"], "shares": by_node}}


def read_written_and_counted_shares(kernel: str | None) -> tuple[float, float, float]:
    """Return the bytes that a kernel reads, writes and counts, as shares of the bytes it moves.

    Args:
        kernel: name of a kernel such as ``triad_nt``, or of a share of reads such as ``read67``.
    """
    name = kernel or ""
    plain = name.removesuffix("_nt")
    if plain.startswith("read") and plain[4:].isdigit():
        reads = int(plain[4:]) / 100
        return reads, 1 - reads, 1.0
    reads, writes = _READS_AND_WRITES.get(plain, _OTHER_PROGRAM)
    fetched = 0 if name.endswith("_nt") or plain not in _READS_AND_WRITES else writes
    moved = reads + writes + fetched
    return (reads + fetched) / moved, writes / moved, (reads + writes) / moved


class MachineModel:
    """Rates and latencies of loads on a simulated machine.

    Args:
        machine: description of the machine.
        topology: topology of the machine.
        host: name of the host; a fault can affect only one of several hosts.
        today: present date; a fault can begin on a date.
    """

    def __init__(
        self, machine: MachineDescription, topology: Topology, host: str, today: date
    ) -> None:
        self.machine, self.topology = machine, topology
        self._faults = current_faults(machine, host, today)
        self._core_of_pu = {pu: core for core in topology.cores for pu in core.cpus}
        self._slow_units = _units_of_slower_cores(topology)
        self.capacities = resource_capacities(machine, topology, self._faults)
        whole = [fault["remaining"] for fault in self._faults if fault["fault"] == "slow_host"]
        # The factor by which a fault of the whole host makes all accesses slower.
        self.slowdown = 1 / math.prod(whole)

    def noiseless_results(self, loads: list[Load]) -> dict[str, NoiselessLoadResult]:
        """Return name of each load -> what it reaches while all loads run.

        A search for a placement tries all steps, and the fastest step is its result.
        """
        searched = [load for load in loads if _searches_a_placement(load)]
        if not searched:
            return self._results(loads)
        [load], tried = searched, []
        for tenths in range(11):
            moved = _with_proximity(load, tenths / 10)
            results = self._results([moved if each is load else each for each in loads])
            results[load["name"]].dwp = tenths / 10
            tried.append(results)
        return max(tried, key=lambda results: results[load["name"]].moved_bytes_per_second)

    def _results(self, loads: list[Load]) -> dict[str, NoiselessLoadResult]:
        """Return name of each load -> what it reaches while all loads run as they are placed."""
        hits = {load["name"]: self._hit_shares(load, loads) for load in loads}
        paths = [path for load in loads for path in self._paths(load, hits[load["name"]])]
        free = max_min_fair_rates([path.flow for path in paths], self.capacities)
        shares = {load["name"]: _rate_share(load) for load in loads}
        if any(share < 1 for share in shares.values()):
            # The traffic program finds its own peak first and then keeps to a share of it.
            paths = [
                _Path(path.load, replace(path.flow, limit=shares[path.load] * rate))
                for path, rate in zip(paths, free.rates, strict=True)
            ]
            free = max_min_fair_rates([path.flow for path in paths], self.capacities)
        return {load["name"]: self._truth(load, hits[load["name"]], paths, free) for load in loads}

    def _truth(
        self, load: Load, hits: HitShares, paths: list[_Path], fair: FlowRatesAndUtilisation
    ) -> NoiselessLoadResult:
        """Return what a load reaches at the given rates."""
        rates = [
            rate for path, rate in zip(paths, fair.rates, strict=True) if path.load == load["name"]
        ]
        moved = sum(rates)
        counted = (
            1.0 if load["target"]["drives"] else read_written_and_counted_shares(load["kernel"])[2]
        )
        truth = NoiselessLoadResult(moved, moved * counted)
        if responders := set(parse_cpu_list(load["placement"]["cpus"])) - _units(load):
            truth.latency_ns = self._transfer_ns(load, min(responders))
        elif "latency_ns" in load["metrics"]:
            truth.latency_ns = self._access_ns(load, hits, fair)
        elif self._reads_at_random(load):
            idle = [self._idle_read_ns(load, drive) for drive in load["target"]["drives"]]
            # Little's law gives the mean. The time in the queue of M/M/1 is exponential.
            waiting = load["memory_bytes"] / moved * 1e9 - sum(idle) / len(idle)
            truth.read_rate_reads_per_second = moved / _block_bytes(load)
            truth.completion_latency_ns, truth.completion_latency_p99_ns = (
                sum(idle) / len(idle) + max(0.0, waiting) * math.log(times) for times in (2, 100)
            )
        elif "by_node" in load["target"]:
            # Threads visit the nodes in turn, so a node's rate is that of all threads with it.
            for node in load["target"]["nodes"]:
                alone = [path.flow for path in self._memory_paths(load, hits, {node: 1.0})]
                rate = sum(max_min_fair_rates(alone, self.capacities).rates)
                truth.bytes_per_second_by_node[node] = rate
        return truth

    # -- paths -------------------------------------------------------------------------------

    def _paths(self, load: Load, hits: HitShares) -> Iterator[_Path]:
        """Yield the flows of a load."""
        target = load["target"]
        if target["drives"]:
            yield from self._drive_flows(load)
        elif device := target.get("device"):
            if f"{device['name']}_in" in self.capacities:
                yield _Path(load["name"], self._device_flow(load, device))
        elif "latency_ns" in load["metrics"]:
            # A chase has one access on the way at a time, which hardly loads the machine.
            for path in self._memory_paths(load, hits, memory_shares_by_node(load["placement"])):
                limit = LINE_BYTES / (self._idle_access_ns(load, hits) * 1e-9)
                yield _Path(path.load, replace(path.flow, limit=limit))
        else:
            yield from self._memory_paths(load, hits, memory_shares_by_node(load["placement"]))

    def _device_flow(self, load: Load, device: OpenclTargetDevice) -> Flow:
        """Return the flow of a device: within its memory, or from the host's memory by its link."""
        if "host_to_device_bytes_per_second" not in load["metrics"]:
            return Flow({device["name"]: 1.0})
        [node, *_] = load["placement"]["memory_nodes"]
        begin = node if device["node"] is None else device["node"]
        package = self.topology.package_of_node.get(begin)
        uses = self._way_uses(package, begin, node, 1.0, 0.0)
        return Flow({**uses, f"{device['name']}_in": 1.0}, pace=_DRIVE_PACE)

    def _memory_paths(
        self, load: Load, hits: HitShares, shares: Mapping[int, float]
    ) -> Iterator[_Path]:
        """Yield a flow for each thread of a load; `shares` are the shares of accesses by node."""
        reads, writes, _ = read_written_and_counted_shares(load["kernel"])
        missed_share = _missed(hits)
        for unit in sorted(_units(load)):
            uses: dict[str, float] = {}
            for node, share in self.access_shares(load, unit, shares).items():
                _add(uses, self._core_uses(unit, node, missed_share), share)
                missed = share * missed_share
                _add(uses, self._memory_uses(unit, node, reads, writes), missed)
                if unit in self.topology.l3_of_pu:
                    _add(uses, {f"l3_{self.topology.l3_of_pu[unit]}": 1.0}, missed)
            yield _Path(load["name"], Flow(uses))

    def access_shares(
        self, load: Load, unit: int, shares: Mapping[int, float]
    ) -> Mapping[int, float]:
        """Return the share of a unit's accesses by node; `shares` are those of the load's pages.

        A runtime that keeps tasks on the node of their data accesses only the unit's own node.
        """
        near = self._node_of(unit)
        keeps = load.get("levels", {}).get("runtime") == "locality" and near in shares
        return {near: 1.0} if keeps else shares

    def local_and_missed_shares(self, load: Load) -> tuple[float, float]:
        """Return the shares of a load's accesses to the core's own node, and beyond all caches."""
        pages, units = memory_shares_by_node(load["placement"]), _units(load)
        near = (self.access_shares(load, unit, pages).get(self._node_of(unit), 0) for unit in units)
        return sum(near) / len(units), _missed(self._hit_shares(load, [load]))

    def _core_uses(self, unit: int, node: int, missed: float) -> dict[str, float]:
        """Return the time in seconds that a core needs for a byte of a node's memory.

        A core waits for a limited number of cache lines at a time, so a longer latency makes it
        slower (Little's law). Only the share `missed` of its accesses needs memory.
        """
        memory = self.machine["memory"]
        seconds = 1 / memory["core_bytes_per_second"]
        if unit in self._slow_units:
            seconds /= memory.get("slow_core_share", 1.0)
        if in_flight := memory.get("core_bytes_in_flight"):
            latency = self._memory_ns(self._node_of(unit), node) * 1e-9
            seconds = (1 - missed) * seconds + missed * max(seconds, latency / in_flight)
        return {f"core{self._core_of_pu[unit].index}": seconds}

    def _memory_uses(self, unit: int, node: int, reads: float, writes: float) -> dict[str, float]:
        """Return the use of controllers and links for a byte between a core and a node's memory."""
        near, package = self._node_of(unit), self._package_of(unit)
        uses = self._way_uses(package, near, node, reads, writes)
        if self.topology.node_relation(near, node) == OTHER_PACKAGE:
            far = self.topology.package_of_node[node]
            _add(uses, {f"node{near}->package{far}": writes, f"package{far}->node{near}": reads})
        return uses

    def _way_uses(
        self, package: int | None, begin: int, node: int, reads: float, writes: float
    ) -> dict[str, float]:
        """Return the use of controllers and links for a byte between a place and a node's memory.

        Args:
            package: where the access begins.
            begin: its node.
            node: the node of the memory. If it spans packages, its cache lines are in all of them.
            reads: share of the byte that is read from memory.
            writes: share of the byte that is written.
        """
        uses = {f"node{node}": reads + self.machine["memory"].get("write_cost", 1.0) * writes}
        own = self.topology.package_of_node.get(node)
        places = [own] if own is not None else [part.os_index for part in self.topology.packages]
        for place in places:
            share = 1 / len(places)
            if place != package:
                there, back = (
                    f"package{package}->package{place}",
                    f"package{place}->package{package}",
                )
                _add(uses, {there: writes * share, back: reads * share})
            elif begin != node:
                _add(uses, {f"node{begin}->node{node}": writes, f"node{node}->node{begin}": reads})
        return uses

    def _drive_flows(self, load: Load) -> Iterator[_Path]:
        """Yield a flow for each drive of a load: from the drive to the memory of its buffers."""
        drives = self.machine.get("drives")
        if drives is None:
            return
        shares = memory_shares_by_node(load["placement"])
        rate = drives["read_bytes_per_second"]
        if load["writes"]:
            rate = drives.get("write_bytes_per_second", rate)
        cores = sorted({self._core_of_pu[unit].index for unit in _units(load)})
        for drive in load["target"]["drives"]:
            # A file that takes the place of a drive has no slot, and so no link.
            self.capacities.setdefault(drive["component"], 1.0)
            self.capacities.setdefault(f"{drive['component']}_link", WITHOUT_LIMIT)
            uses = {drive["component"]: 1 / rate, f"{drive['component']}_link": 1.0}
            for core in cores:
                each = 1 / drives.get("core_bytes_per_second", WITHOUT_LIMIT) / len(cores)
                _add(uses, {f"core{core}": each})
            for fault in self._faults:
                if fault["fault"] == "slow_port" and drive["component"] in fault["drives"]:
                    _add(uses, {slow_port_resource_name(fault): 1.0})
            for node, share in shares.items():
                _add(uses, self._drive_uses(drive, node, writes=load["writes"]), share)
                if "processing_throughput_bytes_per_second" in load["metrics"]:
                    _add(uses, {f"node{node}": share})  # the cores read what has arrived
            limit = math.inf
            if self._reads_at_random(load):
                block = _block_bytes(load)
                busy = block / rate, 1 / drives["random_reads_per_second"]
                uses[drive["component"]] = max(busy) / block
                in_flight = load["memory_bytes"] // block // len(load["target"]["drives"])
                limit = block * closed_queue_rate(
                    in_flight,
                    self._idle_read_ns(load, drive) * 1e-9,
                    max(busy) / self.capacities[drive["component"]],
                )
            yield _Path(load["name"], Flow(uses, limit, _DRIVE_PACE))

    def _drive_uses(self, drive: DriveFacts, node: int, *, writes: bool) -> dict[str, float]:
        """Return the use of ports, links and controllers for a byte between a drive and a node."""
        near = drive["node"]
        from_memory, into_memory = (1.0, 0.0) if writes else (0.0, 1.0)
        begin = node if near is None else near
        package = self.topology.package_of_node.get(begin)
        uses = self._way_uses(package, begin, node, from_memory, into_memory)
        if near is not None:
            _add(uses, {f"drives{near}": 1.0})
            if self.topology.node_relation(near, node) == OTHER_PACKAGE:
                far = self.topology.package_of_node[node]
                _add(uses, {f"drives{near}->package{far}": 1.0})
                for fault in self._faults:
                    if near in fault.get("drive_nodes", []) and far == fault["to_package"]:
                        _add(uses, {shared_drive_path_resource_name(fault): 1.0})
        return uses

    def _reads_at_random(self, load: Load) -> bool:
        """Return whether a load reads drives at random, and the description has such reads."""
        described = "read_latency_ns" in self.machine.get("drives", {})
        return described and "read_rate_reads_per_second" in load["metrics"]

    def _idle_read_ns(self, load: Load, drive: DriveFacts) -> float:
        """Return the time of a random read of an idle drive, in ns.

        The request goes from the cores to the drive, and the data from the drive to the buffers.
        """
        cores = self._node_of(min(_units(load)))
        near = cores if drive["node"] is None else drive["node"]
        ways = self._memory_ns(cores, near)
        for node, share in memory_shares_by_node(load["placement"]).items():
            ways += share * self._memory_ns(near, node)
        return self.machine["drives"]["read_latency_ns"] * self.slowdown + ways

    # -- latency -----------------------------------------------------------------------------

    def _memory_ns(self, begin: int, end: int) -> float:
        """Return the latency of an access to memory in the idle machine, in ns."""
        latencies = self.machine["latency_ns"]
        pair = latencies.get("pairs", {}).get(f"{begin}->{end}")
        relation = self.topology.node_relation(begin, end)
        near = latencies["same_node"]
        same_package = latencies.get("same_package", near)
        other_package = latencies.get("other_package", near)
        count = len(self.topology.packages)
        named = {
            SAME_NODE: near,
            SAME_PACKAGE: same_package,
            OTHER_PACKAGE: other_package,
        }.get(relation, near)
        if self.topology.package_of_node.get(end) is None and count > 1:  # its lines are everywhere
            named = (same_package + (count - 1) * other_package) / count
        return (named if pair is None else pair) * self.slowdown

    def _hit_shares(self, load: Load, loads: list[Load]) -> HitShares:
        """Return the hits of a load in each cache level while all loads of a point run."""
        unit, size = min(_units(load)), load["memory_bytes"]
        latencies = self.machine["latency_ns"]
        found = 0.0
        shares = []
        levels = latencies["l1"], latencies["l2"], latencies["l3"]
        for level, nanoseconds in enumerate(levels, start=1):
            capacity = max(
                (
                    cache.size_bytes or 0
                    for cache in self.topology.caches
                    if cache.level == level and unit in cache.cpus and cache.kind != "instruction"
                ),
                default=0,
            )
            if level == len(levels):
                size += self._l3_bytes_of_others(load, loads)
            hits = _share_within(size, capacity)
            shares.append((max(0.0, hits - found), nanoseconds))
            found = max(found, hits)
        return shares

    def _l3_bytes_of_others(self, load: Load, loads: list[Load]) -> int:
        """Return the working sets in bytes that other loads keep in the L3 cache of a load.

        A working set larger than the cache does not count: its lines go before they are used again.
        """
        unit = min(_units(load))
        return sum(
            other["memory_bytes"]
            for domain in self.topology.l3_domains
            for other in loads
            if unit in domain.cpus
            and other is not load
            and not (other["target"]["drives"] or other["target"].get("device"))
            and other["memory_bytes"] <= (domain.size_bytes or 0)
            and _units(other) & set(domain.cpus)
        )

    def _idle_access_ns(self, load: Load, hits: HitShares) -> float:
        """Return the latency of dependent accesses in the idle machine, in ns."""
        from_caches = sum(share * nanoseconds for share, nanoseconds in hits)
        near = self._node_of(min(_units(load)))
        shares = memory_shares_by_node(load["placement"])
        memory = sum(share * self._memory_ns(near, node) for node, share in shares.items())
        if load.get("levels", {}).get("pages") == "base":
            within = _share_within(load["memory_bytes"], _TLB_BYTES)
            memory += (1 - within) * self.machine["latency_ns"].get("base_pages", 0.0)
        return from_caches + _missed(hits) * memory

    def _access_ns(self, load: Load, hits: HitShares, fair: FlowRatesAndUtilisation) -> float:
        """Return the latency of dependent accesses while other loads use the machine, in ns."""
        queue = self.machine["latency_ns"].get("queue", 0.0)
        unit = min(_units(load))
        waiting = 0.0
        for node, share in memory_shares_by_node(load["placement"]).items():
            # Of a node that spans packages, only a part of the accesses use a link.
            for name, part in self._memory_uses(unit, node, 1.0, 0.0).items():
                full = min(fair.utilisation.get(name, 0.0), _FULLEST)
                waiting += share * part * queue * full / (1 - full)  # M/M/1, time in the queue
        return self._idle_access_ns(load, hits) + _missed(hits) * waiting

    def _transfer_ns(self, load: Load, responder: int) -> float:
        """Return the time of the transfer of a line between two cores, in ns."""
        latencies = self.machine.get("core_to_core_ns", {"same_l3": self._memory_ns(0, 0)})
        unit, l3 = min(_units(load)), self.topology.l3_of_pu
        if unit in l3 and l3.get(unit) == l3.get(responder):
            return latencies["same_l3"] * self.slowdown
        within = latencies.get("same_package", latencies["same_l3"])
        far = latencies.get("other_package", within)
        same = self._package_of(unit) == self._package_of(responder)
        return (within if same else far) * self.slowdown

    def _package_of(self, unit: int) -> int | None:
        """Return the package of a processing unit."""
        return self._core_of_pu[unit].package

    def _node_of(self, unit: int) -> int:
        """Return the node of a processing unit, or the first node if it has none."""
        return self.topology.node_of_pu.get(unit, self.topology.nodes[0].os_index)


def closed_queue_rate(in_flight: int, idle_seconds: float, busy_seconds: float) -> float:
    """Return the requests per second of a device with a constant number of requests in flight.

    It is the exact result of mean value analysis (Reiser and Lavenberg 1980) for a queue with
    exponential service and a delay.

    Args:
        in_flight: number of requests, at least 1.
        idle_seconds: time of a request while there is no other.
        busy_seconds: time in which the device takes no other request.
    """
    delay = max(0.0, idle_seconds - busy_seconds)
    queued, rate = 0.0, 0.0
    for number in range(1, in_flight + 1):
        served = busy_seconds * (1 + queued)
        rate = number / (delay + served)
        queued = rate * served
    return rate


def _block_bytes(load: Load) -> int:
    """Return the size of a random read in bytes."""
    return int(load.get("levels", {}).get("block_bytes", _RANDOM_READ_BYTES))


def _units_of_slower_cores(topology: Topology) -> set[int]:
    """Return the processing units of all core kinds except the fastest."""
    kinds = [kind for kind in topology.core_kinds if kind.speed_rank is not None]
    fastest = max((kind.speed_rank for kind in kinds if kind.speed_rank), default=None)
    return {unit for kind in kinds if kind.speed_rank != fastest for unit in kind.cpus}


def _share_within(size: int, capacity: int) -> float:
    """Return the share of accesses to `size` bytes that a cache of `capacity` bytes serves."""
    return (1 + (size / capacity) ** _CACHE_EDGE) ** (-1 / _CACHE_EDGE) if capacity else 0.0


def _missed(hits: HitShares) -> float:
    """Return the share of accesses that need memory."""
    return 1 - sum(share for share, _ in hits)


def _units(load: Load) -> set[int]:
    """Return the processing units of a load's initiator."""
    return set(parse_cpu_list(load["initiator"]["cpus"]))


def _rate_share(load: Load) -> float:
    """Return the share of its own peak to which a load limits its rate (1 without a limit)."""
    return float(load.get("levels", {}).get("share", 100)) / 100


def _add(uses: dict[str, float], more: Mapping[str, float], factor: float = 1.0) -> None:
    """Add the uses `more` of resources, multiplied by a factor, to `uses`."""
    for name, units in more.items():
        uses[name] = uses.get(name, 0.0) + units * factor
