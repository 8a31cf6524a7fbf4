"""`chaosity topology`: prints the topology of a host, as text for 100 columns or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from chaosity.cli.shared_options import JSON_OPTION
from chaosity.cli.terminal_output import (
    bold_heading,
    borderless_table,
    print_json,
    print_rich,
    short_processor_name,
)
from chaosity.cpusets import format_cpu_list
from chaosity.units import format_binary_bytes, format_count, format_decimal_bytes, format_quantity

if TYPE_CHECKING:
    from chaosity.topology.topology_model import Node, SlitDistances, Topology

# A wider matrix does not fit on 100 columns; the pairs at each distance are counted instead.
_WIDEST_MATRIX = 16
# Where CPUs are numbered in turn over nodes (0,4,8,...), their lists can be very long.
_LONGEST_CPU_LIST, _START_OF_LONG_LIST = 28, 14
# Head of a column -> attribute of the items, or a function that returns the text of an item.
_Columns = Mapping[str, str | Callable[[Any], str]]
_DRIVE_COLUMNS: _Columns = {
    "slot": lambda drive: drive.pci or "-",
    **{"name": "name", "model": "model", "serial": "serial"},
    "size": lambda drive: format_decimal_bytes(drive.size_bytes),
    "link": lambda drive: format_quantity("link_bytes_per_second", drive.link_bytes_per_second),
    "node": "node",
}
_GPU_COLUMNS: _Columns = {
    **{"slot": "pci", "name": "name", "model": "model"},
    "memory": lambda gpu: format_binary_bytes(gpu.memory_bytes) if gpu.compute else "display only",
    "node": "node",
}
_OPENCL_COLUMNS: _Columns = {
    **{"name": "name", "device": "device", "platform": "platform"},
    "type": lambda device: "processor" if device.is_processor else device.type,
    "slot": lambda device: device.pci or "-",
    "memory": lambda device: device.memory_text or "unknown",
    "node": "node",
}
_NIC_COLUMNS: _Columns = {
    "slot": lambda nic: nic.pci or "-",
    **{"name": "name", "kind": "kind", "model": "model"},
    "rate": lambda nic: format_quantity("link_bytes_per_second", nic.link_bytes_per_second),
    "node": "node",
}


@click.command("topology")
@click.argument("source", default="live")
@JSON_OPTION
def topology_command(source: str, as_json: bool) -> None:
    """Show the topology of a host: NUMA nodes, caches, memory, drives, GPUs and NICs.

    SOURCE is "live" (this machine, the default), an hwloc XML file (`lstopo --of xml FILE`), or a
    directory or tarball with a captured /sys (`hwloc-gather-topology NAME`).
    """
    from chaosity.topology.topology_discovery import discover_topology
    from chaosity.topology.topology_json import topology_to_json

    host_topology = discover_topology(source)
    if as_json:
        print_json(topology_to_json(host_topology))
    else:
        print_rich(_topology_summary(host_topology), wrap=True)


def _topology_summary(topology: Topology) -> Iterator[Table | Text]:
    """Yield the parts of the summary in their order, without empty parts."""
    yield from _machine(topology)
    named = [drive for drive in topology.drives if drive.name]
    bare = Counter(drive.node for drive in topology.drives if not drive.name)
    kinds = Counter((item.kind, item.node) for item in topology.accelerators)
    sections: dict[str, Table | str | None] = {
        "NUMA nodes": _nodes(topology),
        "Distances (10 is local)": _distances(topology.distances),
        "NVMe drives": _table(named, _DRIVE_COLUMNS, "unknown"),
        "NVMe functions without a block device": ", ".join(
            f"{number} on {_node_text(node)}" for node, number in bare.items()
        ),
        "GPUs": _table(topology.gpus, _GPU_COLUMNS, "unknown"),
        "OpenCL devices": _table(topology.opencl_devices, _OPENCL_COLUMNS, "unknown"),
        "Network": _table(topology.nics, _NIC_COLUMNS, "unknown"),
        "Accelerators": ", ".join(
            f"{number} x {kind} on {_node_text(node)}" for (kind, node), number in kinds.items()
        ),
        "What cannot be used": "\n".join(unusable_part_sentences(topology)),
    }
    for title, part in sections.items():
        if part:
            yield bold_heading(title)
            yield Text(part) if isinstance(part, str) else part


def _machine(topology: Topology) -> Iterator[Text]:
    """Yield a line for the machine, one for its processors and one for its configuration."""
    from chaosity.topology.configuration_names import configuration_name

    host, firmware = topology.host, topology.host.get("firmware") or {}
    l3 = Counter(format_binary_bytes(domain.size_bytes) for domain in topology.l3_domains)
    line, kinds = topology.cache_line_bytes, len(topology.core_kinds)
    kernel = host.get("kernel_release")
    rows = (
        (host.get("name"), firmware.get("product_vendor"), firmware.get("product_name")),
        (
            f"{topology.counts.packages} x {short_processor_name(host.get('cpu_model'))}",
            format_count(topology.counts.cores, "core"),
            f"{kinds} kinds of cores" if kinds > 1 else None,
            format_count(topology.counts.pus, "PU"),
        ),
        (
            configuration_name(topology),
            " + ".join(f"{number} x {size} L3" for size, number in l3.items()) or "no L3",
            f"{line} B cache line" if line else None,
            f"kernel {kernel}" if kernel else None,
        ),
        (f"memory modules: {topology.memory_peak.text}",),
    )
    for row in rows:
        if any(row):
            yield Text(", ".join(filter(None, row)), style="bold" if row is rows[0] else "")


def _table(items: Sequence[object], columns: _Columns, missing: str) -> Table | None:
    """Return a table with a row for each item, or None without items; `missing` replaces None."""
    if not items:
        return None
    table = borderless_table(list(columns))
    for item in items:
        cells = (c(item) if callable(c) else getattr(item, c) for c in columns.values())
        table.add_row(*(missing if cell is None else str(cell) for cell in cells))
    return table


def _nodes(topology: Topology) -> Table | None:
    """Return a table with a row for each node, without columns that are empty on most machines."""
    drives = Counter(drive.node for drive in topology.drives)
    gpus = Counter(gpu.node for gpu in topology.compute_gpus)
    cores = Counter(node for core in topology.cores for node in core.nodes)
    columns: dict[str, str | Callable[[Node], str]] = {
        "node": "os_index",
        "package": "package",
        "cores": lambda node: str(cores[node.os_index] or "-"),
        "CPUs": lambda node: short_cpu_list(node.cpus) or "-",
        "initiator": lambda node: "yes" if node.initiator else "-",
        "target": lambda node: "yes" if node.target else "-",
        "memory": lambda node: (
            "none" if node.memory_bytes == 0 else format_binary_bytes(node.size_bytes)
        ),
        "side cache": lambda node: (
            format_binary_bytes(size) if (size := node.memory_side_cache_bytes) else "-"
        ),
        "kind": lambda node: "-" if node.memory_bytes == 0 else node.kind,
        "tier": "tier",
        "drives": lambda node: str(drives[node.os_index] or "-"),
        "GPUs": lambda node: str(gpus[node.os_index] or "-"),
    }
    for name in ("side cache", "drives", "GPUs"):
        text = columns[name]
        if callable(text) and all(text(node) == "-" for node in topology.nodes):
            del columns[name]
    table = _table(topology.nodes, columns, missing="-")
    for column in table.columns if table else ():
        column.justify = "left" if column.header in ("CPUs", "kind") else "right"
    return table


def _distances(distances: SlitDistances | None) -> Table | str | None:
    """Return the distances between all nodes; for many nodes, the number of pairs per distance."""
    if distances is None or len(distances.nodes) < 2:
        return None
    if len(distances.nodes) > _WIDEST_MATRIX:
        numbers = Counter(value for row in distances.matrix for value in row)
        return ", ".join(f"{value} ({number} pairs)" for value, number in sorted(numbers.items()))
    table = borderless_table((), ["from \\ to", *map(str, distances.nodes)])
    for node, row in zip(distances.nodes, distances.matrix, strict=True):
        table.add_row(str(node), *map(str, row))
    return table


def unusable_part_sentences(topology: Topology) -> Iterator[str]:
    """Yield a sentence for each part of the machine that this process cannot use."""
    limits = topology.restrictions
    by_cgroup = f" by cgroup {limits.cgroup}" if limits.cgroup else ""
    known = {*limits.offline_cpus, *limits.disallowed_cpus}
    unknown = [cpu for cpu in limits.missing_cpus if cpu not in known]
    states: dict[str, Sequence[int]] = {
        "offline": limits.offline_cpus,
        f"forbidden{by_cgroup}": limits.disallowed_cpus,
        f"offline or forbidden{by_cgroup}; the file does not show which": unknown,
    }
    yield from (f"{_cpus(cpus)} {state}." for state, cpus in states.items() if cpus)
    if limits.disallowed_nodes:
        nodes = format_cpu_list(limits.disallowed_nodes)
        plural = "" if len(limits.disallowed_nodes) == 1 else "s"
        yield f"The memory of node{plural} {nodes} is forbidden{by_cgroup}."
    without_node = [cpu for cpu in topology.pus if not topology.nodes_of_pus([cpu])]
    if without_node:
        yield f"{_cpus(without_node)} usable, but not on any node."


def _cpus(cpus: Sequence[int]) -> str:
    return f"CPU {cpus[0]} is" if len(cpus) == 1 else f"CPUs {format_cpu_list(cpus)} are"


def short_cpu_list(cpus: Iterable[int]) -> str:
    """Return a list of CPUs as Linux writes it; a long list is cut, with the number of CPUs."""
    indexes = list(cpus)
    text = format_cpu_list(indexes)
    if len(text) <= _LONGEST_CPU_LIST:
        return text
    start = text[:_START_OF_LONG_LIST].rpartition(",")[0]
    return f"{start},... ({len(indexes)})"


def _node_text(node: int | None) -> str:
    return "an unknown node" if node is None else f"node {node}"
