"""``chaosity topology``: print the topology of a host, as text for 100 columns or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    JSON_OPTION,
    print_json,
    print_line,
    print_table,
    short_processor_name,
)
from chaosity.cpusets import format_cpu_list
from chaosity.units import format_binary_bytes, format_count, format_decimal_bytes, format_quantity

if TYPE_CHECKING:
    from chaosity.topology.topology_model import Topology
    from chaosity.topology.topology_parts import SlitDistances

# The list of a node's CPUs can be very long if CPU numbers alternate between nodes (0,4,8,...). A
# list with more than `_LONGEST_CPU_LIST` characters is cut to `_START_OF_LONG_LIST` characters.
_LONGEST_CPU_LIST, _START_OF_LONG_LIST = 28, 14
# Largest number of nodes whose matrix of distances fits into 100 columns.
_MOST_NODES_IN_DISTANCE_TABLE = 16


@click.command("topology")
@click.argument("source", default="live")
@JSON_OPTION
def topology_command(source: str, as_json: bool) -> None:
    """Show the topology of a host: NUMA nodes, caches, memory, drives, GPUs, accelerators, NICs.

    SOURCE is "live" (this machine, the default), an hwloc XML file (`lstopo --of xml FILE`), or a
    directory with a captured /sys (`hwloc-gather-topology NAME`, unpacked).

    Example: chaosity topology results/demo/paper_server/nps4/topology.xml
    """
    from chaosity.topology.topology_discovery import discover_topology
    from chaosity.topology.topology_model import topology_to_json

    host_topology = discover_topology(source)
    if as_json:
        print_json(topology_to_json(host_topology))
    else:
        _print_topology(host_topology)


def _print_topology(topology: Topology) -> None:
    """Print all parts of a host; kinds of parts that the host lacks are left out."""
    from chaosity.topology.topology_model import configuration_name

    host, counts = topology.host, topology.counts
    maker = host.get("firmware") or {}
    names = [host.get("name"), maker.get("product_vendor"), maker.get("product_name")]
    if any(names):
        print_line(", ".join(filter(None, names)), style="bold")
    kinds, processor = len(topology.core_kinds), short_processor_name(host.get("cpu_model"))
    parts = [
        f"{counts.packages} x {processor}",
        format_count(counts.cores, "core"),
        f"{kinds} kinds of cores" if kinds > 1 else "",
        format_count(counts.pus, "PU"),
    ]
    print_line(", ".join(filter(None, parts)))
    caches = Counter(format_binary_bytes(l3.size_bytes) for l3 in topology.l3_domains)
    line, kernel = topology.cache_line_bytes, host.get("kernel_release")
    parts = [
        configuration_name(topology),
        " + ".join(f"{number} x {size} L3" for size, number in caches.items()) or "no L3",
        f"{line} B cache line" if line else "",
        f"kernel {kernel}" if kernel else "",
    ]
    print_line(", ".join(filter(None, parts)))
    print_line(f"memory modules: {topology.memory_peak.text}")
    if topology.nodes:
        _print_nodes(topology)
    if sentences := [*topology.coherence_sentences()]:
        print_line("\n".join(sentences))
    if topology.distances and len(topology.distances.nodes) > 1:
        _print_distances(topology.distances)
    _print_devices(topology)
    if sentences := [*unusable_part_sentences(topology)]:
        print_line("\nWhat cannot be used", style="bold")
        print_line("\n".join(sentences))


def _print_nodes(topology: Topology) -> None:
    """Print a table of the NUMA nodes."""
    cores_of = Counter(node for core in topology.cores for node in core.nodes)
    drives_of = Counter(drive.node for drive in topology.drives)
    gpus_of = Counter(gpu.node for gpu in topology.compute_gpus)
    rows = []
    for node in topology.nodes:
        number, empty = node.os_index, node.memory_bytes == 0
        side_cache = node.memory_side_cache_bytes
        rows.append(
            {
                "node": number,
                "package": node.package,
                "cores": cores_of[number] or None,
                "CPUs": short_cpu_list(node.cpus) or None,
                "initiator": "yes" if node.initiator else None,
                "target": "yes" if node.target else None,
                "memory": "none" if empty else format_binary_bytes(node.size_bytes),
                "side cache": format_binary_bytes(side_cache) if side_cache else None,
                "kind": None if empty else node.kind,
                "tier": node.tier,
                "drives": drives_of[number] or None,
                "GPUs": gpus_of[number] or None,
            }
        )
    always = rows[0].keys() - {"side cache", "drives", "GPUs"}
    heads = [head for head in rows[0] if head in always or any(row[head] for row in rows)]
    print_line("\nNUMA nodes", style="bold")
    print_table(
        [[row[head] for head in heads] for row in rows],
        heads,
        on_right={*heads} - {"CPUs", "kind"},
        missing="-",
    )


def _print_distances(distances: SlitDistances) -> None:
    """Print the matrix of distances, or how often each distance occurs if it is too wide."""
    print_line("\nDistances (10 is local)", style="bold")
    nodes = distances.nodes
    if len(nodes) > _MOST_NODES_IN_DISTANCE_TABLE:
        pairs = Counter(distance for row in distances.matrix for distance in row)
        print_line(", ".join(f"{value} ({pairs[value]} pairs)" for value in sorted(pairs)))
        return
    rows = [(node, *row) for node, row in zip(nodes, distances.matrix, strict=True)]
    print_table(rows, right=["from \\ to", *map(str, nodes)])


def _print_devices(topology: Topology) -> None:
    """Print drives, GPUs, OpenCL devices, network interfaces and accelerators, if there are any."""
    from chaosity.topology.devices import accelerator_texts

    rate = "link_bytes_per_second"
    drives = [
        (
            *(drive.pci or "-", drive.name, drive.model, drive.serial),
            format_decimal_bytes(drive.size_bytes),
            *(format_quantity(rate, drive.link_bytes_per_second), drive.node),
        )
        for drive in topology.drives
        if drive.name
    ]
    _print_kind_of_devices("NVMe drives", "slot name model serial size link node", drives)
    if bare := Counter(drive.node for drive in topology.drives if not drive.name):
        print_line("\nNVMe functions without a block device", style="bold")
        print_line(", ".join(f"{number} on {_node_text(node)}" for node, number in bare.items()))
    gpus = [
        (
            *(gpu.pci, gpu.name, gpu.model),
            format_binary_bytes(gpu.memory_bytes) if gpu.compute else "display only",
            gpu.node,
        )
        for gpu in topology.gpus
    ]
    _print_kind_of_devices("GPUs", "slot name model memory node", gpus)
    opencl = [
        (
            *(device.name, device.device, device.platform),
            "processor" if device.is_processor else device.type,
            *(device.pci or "-", device.memory_sharing_text or None, device.node),
        )
        for device in topology.opencl_devices
    ]
    _print_kind_of_devices("OpenCL devices", "name device platform type slot memory node", opencl)
    nics = [
        (
            *(nic.pci or "-", nic.name, nic.kind, nic.model),
            *(format_quantity(rate, nic.link_bytes_per_second), nic.node),
        )
        for nic in topology.nics
    ]
    _print_kind_of_devices("Network", "slot name kind model rate node", nics)
    if accelerators := accelerator_texts(topology):
        print_line("\nAccelerators", style="bold")
    for kind, places, not_measured in accelerators:
        print_line(f"{kind}: {places}", wrap=True)
        print_line(not_measured, wrap=True)


def _print_kind_of_devices(title: str, heads: str, rows: Sequence[Sequence[object]]) -> None:
    """Print a table of devices below a title; print nothing if there are no devices."""
    if rows:
        print_line(f"\n{title}", style="bold")
        print_table(rows, heads.split(), missing="unknown")


def _node_text(node: int | None) -> str:
    return "an unknown node" if node is None else f"node {node}"


def unusable_part_sentences(topology: Topology) -> Iterator[str]:
    """Yield a sentence for each part of the machine that this process cannot use."""
    limits = topology.restrictions
    by_cgroup = f" by cgroup {limits.cgroup}" if limits.cgroup else ""
    known = {*limits.offline_cpus, *limits.disallowed_cpus}
    unknown = [cpu for cpu in limits.missing_cpus if cpu not in known]
    states: dict[str, Sequence[int]] = {
        "offline": limits.offline_cpus,
        f"forbidden{by_cgroup}": limits.disallowed_cpus,
        f"offline or forbidden{by_cgroup}; the file does not say which of the two": unknown,
    }
    yield from (f"{_cpus_text(cpus)} {state}." for state, cpus in states.items() if cpus)
    if limits.disallowed_nodes:
        nodes = format_cpu_list(limits.disallowed_nodes)
        plural = "" if len(limits.disallowed_nodes) == 1 else "s"
        yield f"The memory of node{plural} {nodes} is forbidden{by_cgroup}."
    without_node = [cpu for cpu in topology.pus if not topology.nodes_of_pus([cpu])]
    if without_node:
        yield f"{_cpus_text(without_node)} usable, but on no node."


def _cpus_text(cpus: Sequence[int]) -> str:
    return f"CPU {cpus[0]} is" if len(cpus) == 1 else f"CPUs {format_cpu_list(cpus)} are"


def short_cpu_list(cpus: Iterable[int]) -> str:
    """Return CPUs as a Linux list; a long list is cut, and the number of CPUs follows."""
    indexes = list(cpus)
    text = format_cpu_list(indexes)
    if len(text) <= _LONGEST_CPU_LIST:
        return text
    start = text[:_START_OF_LONG_LIST].rpartition(",")[0]
    return f"{start},... ({len(indexes)})"
