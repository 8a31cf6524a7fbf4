"""Compute the capacities of the parts of a simulated machine, reduced by its faults.

A resource is a part that accesses use: ``core3``, ``l3_1``, ``node2`` (memory controllers),
``node0->package1`` and ``package0->package1`` (links), a drive such as ``drive-0000-41-00-0``, its
link, and ``drives2`` (the root ports of node 2). docs/simulation.md explains all resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chaosity.components.make_component_documents import drive_component_name
from chaosity.documents.machines import Fault, MachineDescription
from chaosity.topology.topology_model import Topology

WITHOUT_LIMIT = float("inf")


def resource_capacities(
    machine: MachineDescription, topology: Topology, faults: Sequence[Fault]
) -> dict[str, float]:
    """Return resource -> capacity in bytes per second; cores and drives have the capacity 1.

    Args:
        machine: description of the machine.
        topology: topology of the machine.
        faults: the faults that the machine has now.
    """
    rates = dict(_healthy_capacities(machine, topology))
    capacities = dict(rates)
    for fault in faults:
        if fault["fault"] == "slow_port":  # one port, too slow for the drives behind it together
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
    """Return the name of the resource that the drives of the nodes of a fault share."""
    nodes = "+".join(map(str, fault["drive_nodes"]))
    return f"drives{nodes}->package{fault['to_package']}"


def affected_resources(
    fault: Fault, topology: Topology, capacities: Mapping[str, float]
) -> list[str]:
    """Return the resources of which a fault leaves a share; `capacities` are those of all."""
    match fault["fault"]:
        case "slow_node":
            return [f"node{fault['node']}"]
        case "slow_link":
            return [f"package{fault['from_package']}->package{fault['to_package']}"]
        case "slow_drive":
            return [fault["drive"]]
        case "slow_core":
            return [f"core{fault['core']}"]
        case "slow_host":
            return list(capacities)
        case "slow_drive_path":
            return _drive_paths(fault, topology)
        case "slow_port":
            return [slow_port_resource_name(fault)]
        case "shared_drive_path":
            return [shared_drive_path_resource_name(fault)]
    return []  # `swapped_distances`: the firmware is wrong, the machine is fine


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
    packages = [package.os_index for package in topology.packages]
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
        part = len(packages) / max(1, len(shared))  # share of a package's root ports at a node
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
