"""What a load can be run on and against: initiators, memory targets and drive sets, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chaosity.topology.cpusets import CpuSet, format_cpu_list
from chaosity.topology.model import UNKNOWN, Core, Topology


@dataclass(frozen=True)
class Initiator:
    """Processing units that issue accesses; `nodes` are those they belong to."""

    name: str
    kind: str
    cpus: CpuSet
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class DriveRef:
    """A drive as a point names it: by component (slot), never by its kernel name."""

    component: str
    node: int | None
    pci: str | None = None
    serial: str | None = None
    path: str | None = None
    file: str | None = None
    size_bytes: int | None = None
    link_bytes_per_second: int | None = None
    destructive: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values without those that are not set."""
        # By identity: node 0 equals False.
        given = {k: v for k, v in vars(self).items() if v is not None and v is not False}
        return {"node": None, **given}


@dataclass(frozen=True)
class Target:
    """What a load's accesses go to: memory nodes or drives; `kind` none is a load left out."""

    name: str
    kind: str
    nodes: tuple[int, ...]
    drives: tuple[DriveRef, ...] = ()
    is_drive_set: bool = False

    @property
    def link_bytes_per_second(self) -> int | None:
        """Sum of the drives' links, None when one of them is unknown."""
        links = [drive.link_bytes_per_second for drive in self.drives]
        return None if not links or None in links else sum(filter(None, links))


@dataclass
class Elements:
    """All initiators, nodes and drives of a host, with what a person may call them."""

    topology: Topology
    drives: tuple[DriveRef, ...]
    _initiators: dict[tuple[str, bool], list[Initiator]] = field(default_factory=dict)

    def initiators(self, level: str, one_per_core: bool) -> list[Initiator]:
        """Every initiator of a level: pu, core, l3_domain, node, package or machine."""
        key = (level, one_per_core)
        if key not in self._initiators:
            self._initiators[key] = [
                self.initiator(kind_name(level), name, self.thin(cpus) if one_per_core else cpus)
                for name, cpus in self.groups(level)
                if cpus
            ]
        return self._initiators[key]

    @cached_property
    def _names(self) -> dict[CpuSet, Initiator]:
        """The name that stands for each set of units: a node's before all others'."""
        levels = ("node", "package", "machine", "l3_domain", "pu", "core")
        every = (one for level in levels for one in self.initiators(level, True))
        found: dict[CpuSet, Initiator] = {}
        for one in every:
            found.setdefault(one.cpus, one)
        return found

    def one_name(self, initiator: Initiator) -> Initiator:
        """The initiator under the one name that its units have in all experiments.

        On small machines a node is also the package, or a single unit; the same measurement must
        not be taken twice under two names.
        """
        return self._names.get(initiator.cpus, initiator)

    def groups(self, level: str) -> list[tuple[str, CpuSet]]:
        """Name and processing units of every group of a level."""
        topology = self.topology
        return {
            "pu": lambda: [(f"pu{pu}", (pu,)) for pu in topology.pus],
            "core": lambda: [(f"core{c.index}", c.cpus) for c in topology.cores],
            "l3_domain": lambda: [(f"l3_{d.index}", d.cpus) for d in topology.l3_domains],
            "node": lambda: [(f"node{n.os_index}", n.cpus) for n in topology.initiators],
            "package": lambda: [(f"package{p.os_index}", p.cpus) for p in topology.packages],
            "machine": lambda: [("machine", topology.pus)],
        }[level]()

    def initiator(self, kind: str, name: str, cpus: CpuSet) -> Initiator:
        """An initiator, with its nodes looked up."""
        return Initiator(name, kind, cpus, self.topology.nodes_of(cpus))

    def thin(self, cpus: Iterable[int]) -> CpuSet:
        """The first usable processing unit of each core: SMT siblings share what is measured."""
        wanted = set(cpus)
        firsts = (min(wanted & set(c.cpus), default=None) for c in self.topology.cores)
        found = tuple(sorted(pu for pu in firsts if pu is not None))
        return found or tuple(sorted(wanted))

    def first_pu(self, level: str) -> list[Initiator]:
        """One single processing unit for each group of a level: its first."""
        found = [
            self.initiator("pu", f"pu{min(cpus)}", (min(cpus),))
            for _, cpus in self.groups(level)
            if cpus
        ]
        return list(dict.fromkeys(found))

    def memory(self, nodes: Iterable[int]) -> Target:
        """Memory of one or several nodes as a target."""
        listed = tuple(sorted(nodes))
        prefix = "node" if len(listed) == 1 else "nodes"
        return Target(f"{prefix}{format_cpu_list(listed)}", prefix, listed)

    @cached_property
    def _core_of(self) -> dict[int, Core]:
        return {cpu: core for core in self.topology.cores for cpu in core.cpus}

    def packages_of(self, initiator: Initiator) -> frozenset[int | None]:
        """The packages that an initiator's units belong to."""
        cores = (self._core_of.get(cpu) for cpu in initiator.cpus)
        return frozenset(core.package for core in cores if core)

    def l3_bytes(self, initiator: Initiator) -> int:
        """Size of all L3 caches that an initiator's units reach, together."""
        cores = (self._core_of.get(cpu) for cpu in initiator.cpus)
        reached = {core.l3 for core in cores if core}
        domains = self.topology.l3_domains
        return sum(one.size_bytes or 0 for one in domains if one.index in reached)

    def memory_bytes(self, node: int) -> int | None:
        """Size of a node's memory, as firmware gave it where that is known."""
        found = self.topology.node(node)
        return None if found is None else found.present_bytes or found.memory_bytes

    def local_memory(self, initiator: Initiator) -> tuple[int, ...]:
        """The nodes of an initiator that have memory; else the nearest by distance."""
        usable = {node.os_index for node in self.topology.targets}
        own = tuple(node for node in initiator.nodes if node in usable)
        if own or not usable:
            return own
        return (min(usable, key=lambda node: (self.distance(initiator, node), node)),)

    def distance(self, initiator: Initiator, node: int) -> float:
        """Least SLIT distance from an initiator to a node, infinite when unknown."""
        table = self.topology.distances
        steps = [table.between(own, node) for own in initiator.nodes] if table else []
        return min((step for step in steps if step is not None), default=float("inf"))

    def drive_groups(self) -> dict[int | None, tuple[DriveRef, ...]]:
        """Drives by the node they hang on; None collects those of unknown locality."""
        groups: dict[int | None, list[DriveRef]] = {}
        for drive in self.drives:
            groups.setdefault(drive.node, []).append(drive)
        ordered = sorted(groups, key=lambda node: (node is None, node))
        return {node: tuple(groups[node]) for node in ordered}

    def drive_set(self, kind: str, drives: tuple[DriveRef, ...]) -> Target:
        """Drives as a target, named for what they have in common."""
        nodes = tuple(sorted({drive.node for drive in drives if drive.node is not None}))
        home = f"node{nodes[0]}" if len(nodes) == 1 else "unknown"
        listed = format_cpu_list(nodes)
        name = {
            "drive": lambda: drives[0].component,
            "first_of_node": lambda: f"{home}drives{len(drives)}",
            "all_of_node": lambda: f"{home}drives",
            "all_of_nodes": lambda: f"nodes{listed}drives",
            "all": lambda: "alldrives",
        }[kind]()
        return Target(name, kind, nodes, drives, is_drive_set=True)

    def relation(self, a: Initiator | Target, b: Initiator | Target) -> str:
        """How two sides lie to each other: the farthest pair of their nodes decides."""
        if not a.nodes or not b.nodes:
            return UNKNOWN
        if set(a.nodes) == set(b.nodes):
            return "same_node" if len(a.nodes) == 1 else "same_nodes"
        order = ("same_node", "same_package", "other_package", UNKNOWN)
        pairs = {self.topology.relation(x, y) for x in a.nodes for y in b.nodes}
        return max(pairs, key=order.index)


def kind_name(level: str) -> str:
    """The short word for a level in names and tables."""
    return "l3" if level == "l3_domain" else level
