"""Computes a machine's NUMA nodes in one of its firmware modes, and checks descriptions.

A description (``machine.json``) names the nodes of the mode with the most nodes. A mode with fewer
nodes joins neighbouring nodes of a package, as NPS does on AMD processors: the joined node has the
processing units, memory and drives of all of them. A mode with 0 nodes per package has one node
over all packages, as NPS0 does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from virtual_lab.errors import LabError

Machine = Mapping[str, Any]

# Relations between two nodes, named as the keys of a description's `distances` and `hmat`.
SAME_NODE, SAME_PACKAGE, OTHER_PACKAGE = "same_node", "same_package", "other_package"
MEMORY_ONLY, OTHER_MEMORY_ONLY = "memory_only", "other_memory_only"
# NVMe allows 20 characters. These characters need quoting in no file and no command.
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,19}")
# The kernel assigns memory to nodes in sections of this size (x86_64: SECTION_SIZE_BITS).
_MEMORY_STEP = 128 * 2**20


@dataclass
class Node:
    """A NUMA node in one mode: its package, processing units and memory."""

    package: int
    memory_bytes: int = 0
    cpus: list[int] = field(default_factory=list)


def most_nodes_per_package(machine: Machine) -> int:
    """Return the number of nodes per package in the mode with the most nodes."""
    modes: dict[str, int] = machine["modes"]
    return max(modes.values())


def nodes_in_mode(machine: Machine, mode: str) -> list[Node]:
    """Return the nodes in a mode, by number; nodes without processing units come last."""
    per_package, parts = machine["modes"][mode], most_nodes_per_package(machine)
    cpus, memory = machine["cpus_per_package"], machine["memory_bytes_per_package"] // parts
    nodes = []
    for package in range(machine["packages"]):
        joined = [Node(package) for _ in range(max(1, per_package))]
        for part in range(parts):
            if package * parts + part not in machine["memoryless_nodes"]:
                joined[part * per_package // parts].memory_bytes += memory
        for cpu in range(cpus):
            part = cpu % parts if machine["interleaved_cpus"] else cpu * parts // cpus
            joined[part * per_package // parts].cpus.append(package * cpus + cpu)
        nodes += joined
    if per_package == 0:
        cpus_of_all = [cpu for node in nodes for cpu in node.cpus]
        nodes = [Node(0, sum(node.memory_bytes for node in nodes), cpus_of_all)]
    extra = machine["memory_only_nodes"]
    return nodes + [Node(node["package"], node["memory_bytes"]) for node in extra]


def node_in_mode(machine: Machine, mode: str, part: int) -> int:
    """Return the node of a mode that contains a node (`part`) of the mode with the most nodes."""
    per_package, parts = int(machine["modes"][mode]), most_nodes_per_package(machine)
    package, within = divmod(part, parts)
    return package * per_package + within * per_package // parts


def relation_of_nodes(nodes: list[Node], one: int, other: int) -> str:
    """Return how two nodes are related, for example `same_package`."""
    near = nodes[one].package == nodes[other].package
    if one == other:
        return SAME_NODE
    if not (nodes[one].cpus and nodes[other].cpus):
        return MEMORY_ONLY if near else OTHER_MEMORY_ONLY
    return SAME_PACKAGE if near else OTHER_PACKAGE


def node_pairs(nodes: list[Node]) -> Iterator[tuple[int, int, str]]:
    """Yield every ordered pair of node numbers with their relation."""
    for one, other in product(range(len(nodes)), repeat=2):
        yield one, other, relation_of_nodes(nodes, one, other)


def check_description(machine: Machine) -> None:
    """Refuse a description of an impossible machine.

    Raises:
        LabError: names the machine and the first error.
    """
    for wrong in _wrong(machine):
        raise LabError(f"{machine['name']}: {wrong}")


def _wrong(machine: Machine) -> Iterator[str]:
    modes, parts = machine["modes"], most_nodes_per_package(machine)
    if machine["mode"] not in modes:
        yield f"mode is {machine['mode']}; it has to be one of {', '.join(modes)}"
    for mode, count in modes.items():
        if count < 0 or (count and parts % count):
            yield f"mode {mode} has {count} nodes a package, which does not divide {parts}"
    if machine["cpus_per_package"] < parts:
        yield f"cpus_per_package is {machine['cpus_per_package']}; {parts} nodes need one each"
    if machine["memory_bytes_per_package"] % (parts * _MEMORY_STEP):
        yield f"memory_bytes_per_package does not give each of {parts} nodes a multiple of 128 MiB"
    for node in machine["memory_only_nodes"]:
        if node["memory_bytes"] % _MEMORY_STEP or node["package"] not in range(machine["packages"]):
            yield f"memory-only node {node} needs one of the packages and a multiple of 128 MiB"
    if machine["hmat"]:
        kinds = {kind for mode in modes for *_, kind in node_pairs(nodes_in_mode(machine, mode))}
        for kind in sorted(kinds - _complete_kinds(machine["hmat"])):
            yield f"hmat lacks latency_ns and bandwidth_bytes_per_second of {kind}"
    yield from _wrong_drives(machine)


def _complete_kinds(hmat: Mapping[str, Mapping[str, int]]) -> set[str]:
    wanted = {"latency_ns", "bandwidth_bytes_per_second"}
    return {kind for kind, said in hmat.items() if wanted <= said.keys()}


def _wrong_drives(machine: Machine) -> Iterator[str]:
    last = machine["packages"] * most_nodes_per_package(machine) - 1
    serials = [drive["serial"] for drive in machine["drives"]]
    for drive in machine["drives"]:
        serial, node = drive["serial"], drive["node"]
        if not _SERIAL.fullmatch(serial):
            yield f"serial {serial!r}: give up to 20 letters, digits and hyphens"
        if serials.count(serial) > 1:
            yield f"serial {serial} is given to several drives"
        if node is not None and node not in range(last + 1):
            yield f"drive {serial} is at node {node}; the finest mode has nodes 0 to {last}"
        if drive["bytes"] < 2**20 or drive["bytes"] % 4096:
            size = drive["bytes"]
            yield f"drive {serial} has {size} bytes; give a multiple of 4096, at least 1 MiB"
        if drive["read_bytes_per_second"] < 0:
            yield f"drive {serial} reads less than 0 bytes per second; 0 means without a limit"
