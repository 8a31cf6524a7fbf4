"""Read the description of a simulated machine: capacity and idle latency of each part.

An idle latency is the latency without other traffic. Capacities and latencies include the faults of
the machine: a fault reduces capacities (`affected_resources`) or adds to latencies.

A resource is a part that accesses use: ``core3``, ``l3_1``, ``node2`` (memory controllers),
``node0->package1`` and ``package0->package1`` (links), a drive such as ``drive-0000-41-00-0``, its
link, and ``drives2`` (the root ports of node 2). docs/explanation has all resources.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, cast

from chaosity.components import drive_component_name
from chaosity.documents.checked_yaml import check_document, read_yaml
from chaosity.documents.machines import (
    FAULT_KINDS,
    KEYS_OF_ALL_FAULTS,
    PART_KIND_BY_FAULT_KEY,
    Fault,
    MachineDescription,
    MachineFile,
)
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.records.record_format import DriveFacts, Load
from chaosity.simulation.simulated_loads import (
    page_shares_by_node,
    passes_over_arrays,
    processing_units_of_load,
)
from chaosity.topology.topology_model import OTHER_PACKAGE, SAME_NODE, SAME_PACKAGE, Topology

MACHINE_DESCRIPTION_KIND = "simulated_machine"
# Name of the file with the checked description in the results of a host. The simulation of a record
# reads only this file, and no YAML file.
MACHINE_FILE = "machine.json"

_DATE_BEFORE_ALL_RECORDS = "0001-01-01"  # the start of a fault without `since`: before any record


def read_machine_description(path: Path, topology: Topology) -> MachineDescription:
    """Return the description of a simulated machine.

    Raises:
        UserError: the file is wrong, or it names a part that the topology does not have.
    """
    machine = _read_with_base(path)
    for key in ("memory", "latency_ns"):
        if key not in machine:
            raise UserError(f"the key {key!r} is missing", f"{path}, the document")
    _check_named_parts_exist(machine, topology, str(path))
    return machine


def _read_with_base(path: Path, users: frozenset[str] = frozenset()) -> MachineDescription:
    """Return a checked description, completed by the keys of the description in `based_on`.

    `users` are the names of the descriptions that are based on this description.
    """
    users |= {path.stem}
    # YAML reads 2026-01-01 as a date, but descriptions and `machine.json` contain dates as text.
    document = json.loads(json.dumps(read_yaml(path), default=str))
    check_document(document, MachineFile, str(path))
    if document[MACHINE_DESCRIPTION_KIND] != path.stem:
        found = f"the file has `{MACHINE_DESCRIPTION_KIND}: {document[MACHINE_DESCRIPTION_KIND]}`"
        raise UserError(found, str(path), f"the file's name requires {path.stem!r}")
    base = document.get("based_on")
    if base is None:
        return cast(MachineDescription, document)
    # Descriptions that Chaosity provides, and descriptions in the folder of the file, which take
    # precedence.
    folders = (ROOT / "templates/machines", path.parent)
    known = {file.stem: file for folder in folders for file in folder.glob("*.yaml")}
    others = known.keys() - users
    check_name_is_allowed(base, others, f"unknown machine {base!r}", f"{path}, based_on")
    return cast(MachineDescription, {**_read_with_base(known[base], users), **document})


def _check_named_parts_exist(machine: MachineDescription, topology: Topology, where: str) -> None:
    """Check that the topology has each part that the description names."""
    known = {
        "node": {str(node.os_index) for node in topology.memory_nodes},
        "package": {str(package.os_index) for package in topology.packages},
        "drive": {drive_component_name(drive) for drive in topology.drives if drive.name},
        "core": {str(core.index) for core in topology.cores},
        "L3 domain": {str(domain.index) for domain in topology.l3_domains},
    }

    def check_part_exists(kind: str, name: object, key: str) -> None:
        problem = f"the topology has no {kind} {name}"
        check_name_is_allowed(str(name), known[kind], problem, f"{where}, {key}")

    for node in machine["memory"].get("nodes", {}):
        check_part_exists("node", node, "memory.nodes")
    if (unified := machine.get("devices", {}).get("memory_node")) is not None:
        check_part_exists("node", unified, "devices.memory_node")
    for pair in machine["latency_ns"].get("pairs", {}):
        for node in pair.split("->"):
            check_part_exists("node", node, f"latency_ns.pairs.{pair}")
    for number, fault in enumerate(machine.get("faults", [])):
        place, kind = f"{where}, faults.{number}", FAULT_KINDS[fault["fault"]]
        if missing := sorted(kind.keys - fault.keys()):
            raise UserError(f"the fault {fault['fault']} needs the key {missing[0]!r}", place)
        if extra := sorted(fault.keys() - kind.keys - kind.optional_keys - KEYS_OF_ALL_FAULTS):
            raise UserError(f"unknown key {extra[0]!r} of the fault {fault['fault']}", place)
        try:
            date.fromisoformat(fault.get("since", _DATE_BEFORE_ALL_RECORDS))
        except ValueError as error:
            wrong = f"{fault['since']} is not a date"
            raise UserError(wrong, f"{place}.since", "write the date as 2026-11-22") from error
        for key, value in fault.items():
            for name in value if isinstance(value, list) else [value]:
                if key in PART_KIND_BY_FAULT_KEY:
                    check_part_exists(PART_KIND_BY_FAULT_KEY[key], name, f"faults.{number}.{key}")
        section, capacity = kind.capacity or ("", "")
        if section == "drives" and "drives" not in machine:
            remedy = "add the key `drives` with their rates"
            what = f"the fault {fault['fault']} needs drives, but the description has none"
            raise UserError(what, place, remedy)
        if capacity and capacity not in cast(dict[str, Any], machine).get(section, {}):
            what = f"the fault {fault['fault']} needs the capacity {section}.{capacity}"
            raise UserError(what, place)


def current_faults(machine: MachineDescription, host: str, today: date) -> list[Fault]:
    """Return the faults of a machine that a given host has on a given day."""
    return [
        fault
        for fault in machine.get("faults", [])
        if fault.get("host", host) == host
        and date.fromisoformat(fault.get("since", _DATE_BEFORE_ALL_RECORDS)) <= today
    ]


def firmware_topology(
    machine: MachineDescription, topology: Topology, host: str, today: date
) -> Topology:
    """Return the topology as the machine's firmware and drivers report it.

    A GPU that uses the memory of a node has unified memory. The fault `swapped_distances` names two
    nodes. In the SLIT row of every other node, the distances to these two nodes are swapped.
    """
    distances = topology.distances
    for fault in current_faults(machine, host, today):
        if fault["fault"] != "swapped_distances" or not distances:
            continue
        first, second = (distances.nodes.index(node) for node in fault["nodes"])
        rows = [list(row) for row in distances.matrix]
        for place, row in enumerate(rows):
            if place not in (first, second):
                row[first], row[second] = row[second], row[first]
        distances = replace(distances, matrix=tuple(map(tuple, rows)))
    devices = topology.opencl_devices
    if "memory_node" in machine.get("devices", {}):
        devices = tuple(replace(device, unified_memory=True) for device in devices)
    return replace(topology, distances=distances, opencl_devices=devices)


WITHOUT_LIMIT = float("inf")


def resource_capacities(
    machine: MachineDescription, topology: Topology, faults: Sequence[Fault]
) -> dict[str, float]:
    """Return resource -> capacity, reduced by faults; cores and drives have the capacity 1.

    Other capacities are in bytes per second.
    """
    rates = dict(_healthy_capacities(machine, topology))
    capacities = dict(rates)
    for fault in faults:
        # The fault is one root port that is too slow for all its drives together.
        if fault["fault"] == "slow_port":
            rate = machine["drives"]["read_bytes_per_second"]
            capacities[slow_port_resource_name(fault)] = rate * len(fault["drives"])
        if fault["fault"] == "shared_drive_path":
            paths = [f"drives{node}->package{fault['to_package']}" for node in fault["drive_nodes"]]
            capacities[shared_drive_path_resource_name(fault)] = sum(map(rates.__getitem__, paths))
        for name in affected_resources(fault, topology, capacities):
            capacities[name] *= fault["remaining"]
    return capacities


def slow_port_resource_name(fault: Fault) -> str:
    """Return the name of the resource that the drives of a `slow_port` share."""
    return "port_of_" + "+".join(fault["drives"])


def shared_drive_path_resource_name(fault: Fault) -> str:
    """Return the name of the path from the drives of a fault to a package; the drives share it."""
    nodes = "+".join(map(str, fault["drive_nodes"]))
    return f"drives{nodes}->package{fault['to_package']}"


# Kind of a fault that reduces the capacity of a single resource -> name of this resource.
_RESOURCE_OF_FAULT = {
    "slow_node": "node{node}",
    "slow_link": "package{from_package}->package{to_package}",
    "slow_drive": "{drive}",
    "slow_core": "core{core}",
    "slow_l3_domain": "l3_{l3_domain}",
}


def affected_resources(
    fault: Fault, topology: Topology, capacities: Mapping[str, float]
) -> list[str]:
    """Return the names of the resources whose capacity a fault reduces.

    The keys of `capacities` are the names of all resources. The result is empty if the fault
    reduces no capacity.
    """
    if name := _RESOURCE_OF_FAULT.get(fault["fault"]):
        return [name.format_map(fault)]
    match fault["fault"]:
        case "slow_host":
            return list(capacities)
        case "slow_drive_path":
            return _drive_paths(fault, topology)
        case "slow_port":
            return [slow_port_resource_name(fault)]
        case "shared_drive_path":
            return [shared_drive_path_resource_name(fault)]
    # The remaining kinds of faults reduce no capacity: `swapped_distances` changes the firmware's
    # SLIT (see `firmware_topology`), and `waiting_l3_domains` changes a latency (see
    # `IdleMachine`).
    return []


def _drive_paths(fault: Fault, topology: Topology) -> list[str]:
    """Return the resources from a node's drives to other packages, or to one given package."""
    node = fault["drive_node"]
    own = topology.package_of_node.get(node)
    others = {package.os_index for package in topology.packages} - {own}
    wanted = {fault["to_package"]} if "to_package" in fault else others
    return [f"drives{node}->package{package}" for package in sorted(wanted)]


def _healthy_capacities(
    machine: MachineDescription, topology: Topology
) -> Iterator[tuple[str, float]]:
    """Yield each resource and its capacity without faults."""
    memory, links = machine["memory"], machine.get("links", {})
    drives, devices = machine.get("drives"), machine.get("devices")
    # A package without usable cores, because a cgroup forbids them, can still have memory.
    known = {package.os_index for package in topology.packages}
    packages = sorted(known | {node.package for node in topology.nodes if node.package is not None})
    nodes = [node.os_index for node in topology.nodes]
    for core in topology.cores:
        yield f"core{core.index}", 1.0
    for cores, rate in (
        ("fast_cores", memory.get("fast_cores_bytes_per_second")),
        ("slow_cores", memory.get("slow_cores_bytes_per_second")),
    ):
        if rate is not None:
            yield cores, rate
    for domain in topology.l3_domains:
        yield f"l3_{domain.index}", memory.get("l3_domain_bytes_per_second", WITHOUT_LIMIT)
    own = {int(node): float(rate) for node, rate in memory.get("nodes", {}).items()}
    shared = [node.os_index for node in topology.memory_nodes if node.os_index not in own]
    each = memory["package_bytes_per_second"] * len(packages) / max(1, len(shared))
    for number in {*own, *shared}:
        yield f"node{number}", own.get(number, each)
    for begin in nodes:
        near = links.get("node_to_node_bytes_per_second", WITHOUT_LIMIT)
        yield from ((f"node{begin}->node{end}", near) for end in nodes)
        far = links.get("node_to_package_bytes_per_second", WITHOUT_LIMIT)
        yield from ((f"node{begin}->package{end}", far) for end in packages)
        yield from ((f"package{end}->node{begin}", far) for end in packages)
    for begin in packages:
        between = links.get("package_to_package_bytes_per_second", WITHOUT_LIMIT)
        yield from ((f"package{begin}->package{end}", between) for end in packages)
    if drives:
        for drive in topology.drives:
            if drive.name:
                name = drive_component_name(drive)
                yield name, 1.0
                yield f"{name}_link", drive.link_bytes_per_second or WITHOUT_LIMIT
        # Share of the package's root ports that one node has.
        part = len(packages) / max(1, len(shared))
        all_near = part * drives.get("package_bytes_per_second", WITHOUT_LIMIT)
        far = part * drives.get("remote_package_bytes_per_second", WITHOUT_LIMIT)
        for number in nodes:
            yield f"drives{number}", all_near
            yield from ((f"drives{number}->package{package}", far) for package in packages)
    if devices:
        for device in topology.opencl_devices:
            yield device.name, devices["memory_bytes_per_second"]
            yield f"{device.name}_in", devices["link_bytes_per_second"]
            yield f"{device.name}_out", devices["link_bytes_per_second"]


# Memory in bytes that the second-level TLB covers with base pages: 2048 entries of 4 KiB.
_TLB_REACH_BYTES = 2048 * 4096
# How sharply the hit rate falls when the working set exceeds a cache. With 3, dependent accesses at
# random find 79 % of their lines in an L3 cache as large as the working set, and 48 % in an L3
# cache of half this size. The tables of document 003 show similar hit rates.
_CACHE_EDGE_SHARPNESS = 3
# Passes over arrays replace lines in a cache before the next pass reads these lines again. So if a
# cache is too small, the hit rate of passes is this power of the hit rate of dependent accesses at
# random. With 3, arrays of twice the cache's size get at most 1.13 times the bandwidth of memory,
# and arrays of four times the size get 1.02 times. Two cores were measured at 1.33 (0.95 to 2.47)
# and 1.05 (0.63 to 1.31) times the bandwidth of memory, see docs/validation.md.
_HIT_RATE_POWER_OF_PASSES = 3
# For each cache level: the share of accesses that hit, and their latency in ns.
HitShares = list[tuple[float, float]]


class IdleMachine:
    """Latencies and cache hits of loads on a simulated machine without other traffic.

    `faults` are the present faults of the machine.
    """

    def __init__(
        self, machine: MachineDescription, topology: Topology, faults: Sequence[Fault]
    ) -> None:
        self.machine, self.topology = machine, topology
        whole = [fault["remaining"] for fault in faults if fault["fault"] == "slow_host"]
        # The factor by which faults of the complete host make all accesses slower.
        self._slowdown = 1 / math.prod(whole)
        self._waiting = [fault for fault in faults if fault["fault"] == "waiting_l3_domains"]
        self._domain_of_pu = {pu: domain for domain in topology.l3_domains for pu in domain.cpus}

    def memory_ns(self, begin: int, end: int) -> float:
        """Return the latency in ns of an access to memory in a machine without other traffic."""
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
        # If a node belongs to no package, the lines of its memory are in all packages.
        if self.topology.package_of_node.get(end) is None and count > 1:
            named = (same_package + (count - 1) * other_package) / count
        return (named if pair is None else pair) * self._slowdown

    def hit_shares(self, load: Load, loads: list[Load]) -> HitShares:
        """Return the hits of a load in each cache level while all loads of a point run."""
        unit, size = min(processing_units_of_load(load)), load["memory_bytes"]
        latencies = self.machine["latency_ns"]
        found = 0.0
        shares = []
        levels = latencies["l1"], latencies["l2"], latencies["l3"]
        for level, nanoseconds in enumerate(levels, start=1):
            if level == len(levels):
                size += self._l3_bytes_of_others(load, loads)
            hits = _share_within(size, self.topology.data_cache_bytes_of_pu.get((unit, level), 0))
            if passes_over_arrays(load):
                hits **= _HIT_RATE_POWER_OF_PASSES
            shares.append((max(0.0, hits - found), nanoseconds))
            found = max(found, hits)
        return shares

    def share_in_other_nodes_l3(self, load: Load) -> float:
        """Return the share of a load's data in L3 caches of the load's cores in other nodes.

        Each L3 cache in another node contains a part of the data, independent of the other caches.
        """
        units, size = processing_units_of_load(load), load["memory_bytes"]
        here = self.node_of(min(units))
        others = {
            self._domain_of_pu[unit].index: self._domain_of_pu[unit].size_bytes or 0
            for unit in units
            if unit in self._domain_of_pu and self.node_of(unit) != here
        }
        return 1 - math.prod(1 - _share_within(size, capacity) for capacity in others.values())

    def _l3_bytes_of_others(self, load: Load, loads: list[Load]) -> int:
        """Return the bytes of working sets that other loads keep in the L3 cache of a load."""
        # A working set larger than the cache does not count, because its lines are evicted before
        # reuse. Pointer chases whose working sets all exceed the cache are equally fast, so they
        # share the cache.
        unit, size = min(processing_units_of_load(load)), load["memory_bytes"]
        if unit not in self._domain_of_pu:
            return 0
        domain = self._domain_of_pu[unit]
        capacity = domain.size_bytes or 0
        chase_beyond = size > capacity and _is_chase(load)
        return sum(
            other["memory_bytes"]
            for other in loads
            if (other["memory_bytes"] <= capacity or (chase_beyond and _is_chase(other)))
            and other is not load
            and _is_of_cores(other)
            and not processing_units_of_load(other).isdisjoint(domain.cpus)
        )

    def access_ns(self, load: Load, hits: HitShares) -> float:
        """Return the latency in ns of dependent accesses in a machine without other traffic."""
        from_caches = sum(share * nanoseconds for share, nanoseconds in hits)
        near = self.node_of(min(processing_units_of_load(load)))
        shares = page_shares_by_node(load)
        memory = sum(share * self.memory_ns(near, node) for node, share in shares.items())
        if load.get("levels", {}).get("pages") == "base":
            within = _share_within(load["memory_bytes"], _TLB_REACH_BYTES)
            memory += (1 - within) * self.machine["latency_ns"].get("base_pages", 0.0)
        return from_caches + missed_share(hits) * memory

    def wait_beside_other_l3_domains_ns(self, load: Load, loads: list[Load]) -> float:
        """Return how long dependent accesses wait because of another L3 domain of their node.

        The fault `waiting_l3_domains` delays accesses of some L3 domains to their own node. The
        wait in ns grows with the working set, as the misses of a cache do. The wait was fitted to
        measurements, since no other part of the model explains this wait.
        """
        unit, l3_of_pu = min(processing_units_of_load(load)), self.topology.l3_of_pu
        node, size, wait = self.node_of(unit), load["memory_bytes"], 0.0
        for fault in self._waiting:
            waits = fault.get("smallest_bytes", 0) <= size <= fault.get("largest_bytes", math.inf)
            if (
                waits
                and l3_of_pu.get(unit) in fault["l3_domains"]
                and any(
                    self.node_of(other) == node and l3_of_pu.get(other) != l3_of_pu[unit]
                    for each in loads
                    if _is_of_cores(each)
                    and each["memory_bytes"]
                    > self.topology.data_cache_bytes_of_pu.get((unit, 3), 0)
                    for other in processing_units_of_load(each)
                )
            ):
                beyond = 1 - _share_within(size, fault["from_bytes"])
                wait += fault["wait_ns"] * beyond
        return wait * page_shares_by_node(load).get(node, 0.0) * self._slowdown

    def random_read_ns(self, load: Load, drive: DriveFacts) -> float:
        """Return the time in ns of a random read of a drive that serves no other request.

        The request goes from the cores to the drive, and the data from the drive to the buffers.
        """
        cores = self.node_of(min(processing_units_of_load(load)))
        near = cores if drive["node"] is None else drive["node"]
        ways = self.memory_ns(cores, near)
        for node, share in page_shares_by_node(load).items():
            ways += share * self.memory_ns(near, node)
        return self.machine["drives"]["read_latency_ns"] * self._slowdown + ways

    def core_to_core_transfer_ns(self, load: Load, responder: int) -> float:
        """Return the time in ns of the transfer of a cache line between two cores."""
        latencies = self.machine.get("core_to_core_ns", {"same_l3": self.memory_ns(0, 0)})
        unit, l3 = min(processing_units_of_load(load)), self.topology.l3_of_pu
        if unit in l3 and l3.get(unit) == l3.get(responder):
            return latencies["same_l3"] * self._slowdown
        within = latencies.get("same_package", latencies["same_l3"])
        far = latencies.get("other_package", within)
        same = self.package_of(unit) == self.package_of(responder)
        return (within if same else far) * self._slowdown

    def package_of(self, unit: int) -> int | None:
        """Return the package of a processing unit."""
        return self.topology.core_of_pu[unit].package

    def node_of(self, unit: int) -> int:
        """Return the node of a processing unit; the first node for a unit without a node."""
        return self.topology.node_of_pu.get(unit, self.topology.nodes[0].os_index)


def _is_of_cores(load: Load) -> bool:
    """Return whether cores, and neither drives nor a GPU, access the memory of a load."""
    return not (load["target"]["drives"] or load["target"].get("device"))


def _is_chase(load: Load) -> bool:
    """Return whether a load measures the latency of dependent accesses."""
    return "latency_ns" in load["metrics"]


def _share_within(size: int, capacity: float) -> float:
    """Return the share of accesses within `size` bytes that a cache of `capacity` bytes serves."""
    return (
        (1 + (size / capacity) ** _CACHE_EDGE_SHARPNESS) ** (-1 / _CACHE_EDGE_SHARPNESS)
        if capacity
        else 0.0
    )


def missed_share(hits: HitShares) -> float:
    """Return the share of accesses that hit in no cache and so need memory."""
    return 1 - sum(share for share, _ in hits)
