"""`chaosity topology`: prints the topology of a host, as text for 100 columns or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from chaosity.cli.shared_options import JSON_OPTION
from chaosity.cli.terminal_output import print_json, print_template, short_processor_name
from chaosity.cpusets import format_cpu_list
from chaosity.units import format_binary_bytes

if TYPE_CHECKING:
    from chaosity.topology.topology_model import Topology

# Where CPUs are numbered in turn over nodes (0,4,8,...), their lists can be very long.
_LONGEST_CPU_LIST, _START_OF_LONG_LIST = 28, 14


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
        print_template("topology", wrap=True, **_values(host_topology))


def _values(topology: Topology) -> dict[str, Any]:
    """Return the values of the template: the topology, names and numbers of parts."""
    from chaosity.topology.configuration_names import configuration_name

    rows = topology.distances.matrix if topology.distances else ()
    return {
        "topology": topology,
        "configuration": configuration_name(topology),
        "processor": short_processor_name(topology.host.get("cpu_model")),
        "l3_caches": Counter(format_binary_bytes(l3.size_bytes) for l3 in topology.l3_domains),
        "cores_of": Counter(node for core in topology.cores for node in core.nodes),
        "drives_of": Counter(drive.node for drive in topology.drives),
        "bare_drives_of": Counter(drive.node for drive in topology.drives if not drive.name),
        "gpus_of": Counter(gpu.node for gpu in topology.compute_gpus),
        "accelerators": Counter((item.kind, item.node) for item in topology.accelerators),
        "pairs_at": Counter(distance for row in rows for distance in row),
        "unusable": list(unusable_part_sentences(topology)),
        "short_cpu_list": short_cpu_list,
    }


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
