"""`chaosity topology`: prints the topology of a host, as text for 100 columns or as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaosity.cpusets import format_cpu_list
from chaosity.units import format_binary_bytes, format_count, format_decimal_bytes, format_quantity

if TYPE_CHECKING:
    from chaosity.topology.device_types import Drive, Gpu, OpenclDevice
    from chaosity.topology.topology_model import Node, SlitDistances, Topology

# A wider matrix does not fit on 100 columns; the pairs at each distance are counted instead.
_WIDEST_MATRIX = 16
# CPUs in turn over nodes (0,4,8,...) make lists of any length.
_LONGEST_CPU_LIST, _START_OF_LONG_LIST = 28, 14


@click.command("topology")
@click.argument("source", default="live")
@click.option("--json", "as_json", is_flag=True, help="Print the whole topology as JSON.")
def topology_command(source: str, as_json: bool) -> None:
    """Show the topology of a host: NUMA nodes, caches, memory, drives and GPUs.

    SOURCE is "live" (this machine, the default), an hwloc XML file (`lstopo --of xml FILE`), or a
    directory or tarball with a captured /sys (`hwloc-gather-topology NAME`).
    """
    # Heavy libraries are imported inside functions, so that --help does not wait for them.
    from chaosity.topology.topology_discovery import discover_topology
    from chaosity.topology.topology_json import topology_to_json

    host_topology = discover_topology(source)
    if as_json:
        click.echo(json.dumps(topology_to_json(host_topology), indent=1))
        return
    console = Console(highlight=False)
    for part in topology_summary(host_topology):
        console.print(part)


def topology_summary(topology: Topology) -> Iterator[Table | Text]:
    """Returns the parts of the summary in their order, without empty parts."""
    yield from _machine(topology)
    yield _heading("NUMA nodes")
    yield _nodes(topology)
    if topology.distances and len(topology.distances.nodes) > 1:
        yield _heading("Distances (10 is local)")
        yield _distances(topology.distances)
    yield from _drives(topology.drives)
    if topology.gpus:
        yield _heading("GPUs")
        yield _gpus(topology.gpus)
    if topology.opencl_devices:
        yield _heading("OpenCL devices")
        yield _opencl_devices(topology.opencl_devices)
    if topology.accelerators:
        yield _heading("Accelerators")
        yield _accelerators(topology)
    sentences = list(restriction_sentences(topology))
    if sentences:
        yield _heading("What cannot be used")
        yield Text("\n".join(sentences))


def _machine(topology: Topology) -> Iterator[Text]:
    """A line each for the machine, its processors and its configuration."""
    from chaosity.topology.configuration_names import configuration_name

    host, firmware = topology.host, topology.host.get("firmware") or {}
    l3 = Counter(format_binary_bytes(domain.size_bytes) for domain in topology.l3_domains)
    line, kinds = topology.cache_line_bytes, len(topology.core_kinds)
    kernel = host.get("kernel_release")
    rows = (
        (host.get("name"), firmware.get("product_vendor"), firmware.get("product_name")),
        (
            f"{topology.counts.packages} x {_model(host.get('cpu_model'))}",
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
    )
    for row in rows:
        if any(row):
            yield Text(", ".join(filter(None, row)), style="bold" if row is rows[0] else "")


def _model(name: str | None) -> str:
    """A processor's name without trademark signs and nominal clock."""
    return re.sub(r"\((R|TM)\)| @ .*|( \d+-Core)? Processor$", "", name or "unknown processor")


def _nodes(topology: Topology) -> Table:
    """A row for each node, without empty columns."""
    drives = Counter(drive.node for drive in topology.drives)
    gpus = Counter(gpu.node for gpu in topology.compute_gpus)
    cores = Counter(node for core in topology.cores for node in core.nodes)
    columns: dict[str, Callable[[Node], str]] = {
        "node": lambda node: str(node.os_index),
        "package": lambda node: _or_dash(node.package),
        "cores": lambda node: str(cores[node.os_index] or "-"),
        "CPUs": lambda node: short_cpu_list(node.cpus) or "-",
        "initiator": lambda node: "yes" if node.initiator else "-",
        "target": lambda node: "yes" if node.target else "-",
        "memory": _memory,
        "side cache": lambda node: _size_or_dash(node.memory_side_cache_bytes),
        "kind": lambda node: "-" if node.memory_bytes == 0 else node.kind,
        "tier": lambda node: _or_dash(node.tier),
        "drives": lambda node: str(drives[node.os_index] or "-"),
        "GPUs": lambda node: str(gpus[node.os_index] or "-"),
    }
    table = _table()
    cells = {name: [cell(node) for node in topology.nodes] for name, cell in columns.items()}
    for name in ("side cache", "drives", "GPUs"):
        if set(cells[name]) == {"-"}:
            del cells[name]
    for name in cells:
        table.add_column(name, justify="left" if name in ("CPUs", "kind") else "right")
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


def _memory(node: Node) -> str:
    return "none" if node.memory_bytes == 0 else format_binary_bytes(node.size_bytes)


def _size_or_dash(size: int | None) -> str:
    return format_binary_bytes(size) if size else "-"


def _distances(distances: SlitDistances) -> Table | Text:
    if len(distances.nodes) > _WIDEST_MATRIX:
        numbers = Counter(value for row in distances.matrix for value in row)
        pairs = (f"{value} ({number} pairs)" for value, number in sorted(numbers.items()))
        return Text(", ".join(pairs))
    table = _table()
    table.add_column("from \\ to", justify="right")
    for node in distances.nodes:
        table.add_column(str(node), justify="right")
    for node, row in zip(distances.nodes, distances.matrix, strict=True):
        table.add_row(str(node), *map(str, row))
    return table


def _drives(drives: tuple[Drive, ...]) -> Iterator[Table | Text]:
    """A row for each drive; NVMe functions without a block device are counted by node."""
    named = [drive for drive in drives if drive.name]
    if named:
        yield _heading("NVMe drives")
        table = _table()
        for column in ("slot", "name", "model", "serial", "size", "link", "node"):
            table.add_column(column, overflow="fold")
        for drive in named:
            link = drive.link_bytes_per_second
            table.add_row(
                drive.pci or "-",
                drive.name or "-",
                drive.model or "unknown",
                drive.serial or "unknown",
                format_decimal_bytes(drive.size_bytes),
                format_quantity("link_bytes_per_second", link),
                _node_text(drive.node),
            )
        yield table
    bare = Counter(_node_text(drive.node) for drive in drives if not drive.name)
    if bare:
        yield _heading("NVMe functions without a block device")
        yield Text(", ".join(f"{number} on node {place}" for place, number in bare.items()))


def _gpus(gpus: tuple[Gpu, ...]) -> Table:
    table = _table()
    for column in ("slot", "name", "model", "memory", "node"):
        table.add_column(column, overflow="fold")
    for gpu in gpus:
        memory = format_binary_bytes(gpu.memory_bytes) if gpu.compute else "display only"
        table.add_row(
            gpu.pci or "-", gpu.name or "-", gpu.model or "-", memory, _node_text(gpu.node)
        )
    return table


def _opencl_devices(devices: tuple[OpenclDevice, ...]) -> Table:
    table = _table()
    for column in ("name", "device", "platform", "type", "slot", "node"):
        table.add_column(column, overflow="fold")
    for item in devices:
        kind = "processor" if item.is_processor else item.type
        node = _node_text(item.node)
        table.add_row(item.name, item.device, item.platform, kind, item.pci or "-", node)
    return table


def _accelerators(topology: Topology) -> Text:
    kinds = Counter((item.kind, _node_text(item.node)) for item in topology.accelerators)
    text = ", ".join(f"{number} x {kind} on node {node}" for (kind, node), number in kinds.items())
    return Text(text)


def restriction_sentences(topology: Topology) -> Iterator[str]:
    """Returns a sentence for each part of the machine that this process cannot use."""
    limits = topology.restrictions
    known = {*limits.offline_cpus, *limits.disallowed_cpus}
    unknown = [cpu for cpu in limits.missing_cpus if cpu not in known]
    if limits.offline_cpus:
        yield f"{_cpus(limits.offline_cpus)} offline."
    if limits.disallowed_cpus:
        yield f"{_cpus(limits.disallowed_cpus)} forbidden{_by(limits.cgroup)}."
    if unknown:
        where = _by(limits.cgroup)
        yield f"{_cpus(unknown)} offline or forbidden{where}; the file does not show which."
    if limits.disallowed_nodes:
        nodes = format_cpu_list(limits.disallowed_nodes)
        plural = "" if len(limits.disallowed_nodes) == 1 else "s"
        yield f"The memory of node{plural} {nodes} is forbidden{_by(limits.cgroup)}."
    without_node = [cpu for cpu in topology.pus if not topology.nodes_of_pus([cpu])]
    if without_node:
        yield f"{_cpus(without_node)} usable, but not on any node."


def _cpus(cpus: Iterable[int]) -> str:
    listed = list(cpus)
    return f"CPU {listed[0]} is" if len(listed) == 1 else f"CPUs {format_cpu_list(listed)} are"


def _by(cgroup: str | None) -> str:
    return f" by cgroup {cgroup}" if cgroup else ""


def short_cpu_list(cpus: Iterable[int]) -> str:
    """Returns a Linux list; of a long list, the beginning and the number of CPUs."""
    indexes = list(cpus)
    text = format_cpu_list(indexes)
    if len(text) <= _LONGEST_CPU_LIST:
        return text
    start = text[:_START_OF_LONG_LIST].rpartition(",")[0]
    return f"{start},... ({len(indexes)})"


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim")


def _node_text(node: int | None) -> str:
    return "unknown" if node is None else str(node)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
