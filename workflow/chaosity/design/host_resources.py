"""The initiators, memory targets and drive sets of a host, by name, and how they lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from chaosity.cpusets import CpuSet, format_cpu_list
from chaosity.design.endpoints import DriveRef, Endpoint, Initiator, Target
from chaosity.topology import Core, CoreKind, OpenclDevice, Topology
from chaosity.topology.host_model import UNKNOWN


@dataclass
class HostResources:
    """All initiators, nodes and drives of a host, with what a person may call them."""

    topology: Topology
    drives: tuple[DriveRef, ...]
    _initiators: dict[tuple[str, bool], list[Initiator]] = field(default_factory=dict)

    def initiators(self, level: str, one_per_core: bool) -> list[Initiator]:
        """Every initiator of a level: pu, core, l3_domain, core_kind, node, package or machine."""
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
        levels = ("node", "package", "machine", "core_kind", "l3_domain", "pu", "core")
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
            "core_kind": lambda: [(self.core_kind_name(k), k.cpus) for k in topology.core_kinds],
            "node": lambda: [(f"node{n.os_index}", n.cpus) for n in topology.initiators],
            "package": lambda: [(f"package{p.os_index}", p.cpus) for p in topology.packages],
            "machine": lambda: [("machine", topology.pus)],
        }[level]()

    def core_kind_name(self, kind: CoreKind) -> str:
        """What the cores of a kind are called.

        Two kinds of different rank are the efficiency cores and the performance cores; with more,
        or where they cannot be ranked, they are numbered. The only one is the machine.
        """
        kinds = self.topology.core_kinds
        if len(kinds) == 1:
            return "machine"
        ranks = [one.rank for one in kinds]
        if len(kinds) == 2 and None not in ranks and ranks[0] != ranks[1]:
            return "performance_cores" if kind.rank == max(ranks) else "efficiency_cores"
        return f"kind{kind.index}"

    def core_kind_of(self, initiator: Initiator) -> str | None:
        """The kind that all of an initiator's cores are of; None of several, or of the only one."""
        wanted = set(initiator.cpus)
        names = (
            self.core_kind_name(kind)
            for kind in self.topology.core_kinds
            if len(self.topology.core_kinds) > 1 and wanted <= set(kind.cpus)
        )
        return next(names, None)

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

    def others(self, initiator: Initiator, level: str) -> Initiator | None:
        """The cores of an initiator's groups without its own; None when it has all of them.

        Args:
            initiator: whose siblings are left out too, since they share its core.
            level: l3_domain, node, package or machine.
        """
        own = self._with_siblings(initiator)
        groups = [(name, cpus) for name, cpus in self.groups(level) if own & set(cpus)]
        rest = self.thin(set().union(*(cpus for _, cpus in groups)) - own) if groups else ()
        if not rest:
            return None
        where = "_".join(name for name, _ in groups)
        return self.initiator("others", f"{where}_without_{initiator.name}", rest)

    def each_without(self, level: str, initiator: Initiator, *, thin: bool) -> list[Initiator]:
        """Every initiator of a level without the cores that another one uses.

        Those that lose none keep their name, and those that lose all are left out.
        """
        own = self._with_siblings(initiator)
        found = []
        for one in self.initiators(level, thin):
            rest = tuple(cpu for cpu in one.cpus if cpu not in own)
            if rest == one.cpus:
                found.append(one)
            elif rest:
                name = f"{one.name}_without_{initiator.name}"
                found.append(self.initiator("others", name, rest))
        return found

    def _with_siblings(self, initiator: Initiator) -> set[int]:
        """An initiator's units and the SMT siblings that share their cores."""
        return {cpu for one in initiator.cpus for cpu in self._siblings(one)}

    def _siblings(self, cpu: int) -> CpuSet:
        core = self._core_of.get(cpu)
        return core.cpus if core else (cpu,)

    def growing(self, level: str) -> list[Initiator]:
        """More and more cores of every group of a level, packed and spread.

        Packed takes the cores of one L3 domain before those of the next, spread takes one of each
        in turn. Where both are the same cores there is one initiator, of the kind `threads`.
        """
        found = []
        for name, cpus in self.groups(level):
            packed, spread = self._packed(cpus), self._spread(cpus)
            for count in thread_counts(len(packed)):
                a, b = tuple(sorted(packed[:count])), tuple(sorted(spread[:count]))
                if a == b:
                    found.append(self.initiator("threads", f"{name}_threads{count}", a))
                else:
                    found.append(self.initiator("packed", f"{name}_packed{count}", a))
                    found.append(self.initiator("spread", f"{name}_spread{count}", b))
        return found

    def _by_l3(self, cpus: CpuSet) -> list[CpuSet]:
        domains: dict[int | None, list[int]] = {}
        for cpu in self.thin(cpus):
            core = self._core_of.get(cpu)
            domains.setdefault(core.l3 if core else None, []).append(cpu)
        return [tuple(one) for one in domains.values()]

    def _packed(self, cpus: CpuSet) -> list[int]:
        return [cpu for domain in self._by_l3(cpus) for cpu in domain]

    def _spread(self, cpus: CpuSet) -> list[int]:
        turns = zip_longest(*self._by_l3(cpus))
        return [cpu for turn in turns for cpu in turn if cpu is not None]

    def workers(self, nodes: Iterable[int], one_per_core: bool = True) -> Initiator:
        """Nodes whose units run one program together; a single node keeps its own name.

        The name says which nodes they are, also where they make up a package.
        """
        wanted = set(nodes)
        members = [one for one in self.initiators("node", one_per_core) if wanted & set(one.nodes)]
        if len(members) == 1:
            return members[0]
        cpus = tuple(sorted(cpu for one in members for cpu in one.cpus))
        return self.initiator("nodes", f"nodes{format_cpu_list(wanted)}", cpus)

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
        return sum(self._l3_bytes.get(index, 0) for index in reached)

    @cached_property
    def _l3_bytes(self) -> dict[int | None, int]:
        return {one.index: one.size_bytes or 0 for one in self.topology.l3_domains}

    def cache_bytes(self, initiator: Initiator, level: int) -> int | None:
        """Size of the data cache of a level that the initiator's first unit has, None unknown."""
        sizes = (
            cache.size_bytes
            for cache in self.topology.caches
            if cache.level == level
            and cache.kind != "instruction"
            and set(initiator.cpus[:1]) <= set(cache.cpus)
        )
        return next(sizes, None)

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

    def buffer_nodes(self, initiator: Initiator, where: str) -> tuple[int, ...]:
        """The nodes of an initiator's buffers: its `own`, or an `other` one, none if there is none.

        The other one is the first that lies as far away as any does.
        """
        own = self.local_memory(initiator)
        if where == "own":
            return own
        others = [self.memory([one.os_index]) for one in self.topology.targets]
        others = [one for one in others if not set(one.nodes) & set(own)]
        order = (UNKNOWN, "same_package", "other_package")
        far = max((order.index(self.relation(initiator, one)) for one in others), default=0)
        return next((o.nodes for o in others if self.relation(initiator, o) == order[far]), ())

    def distance(self, initiator: Initiator, node: int) -> float:
        """Least SLIT distance from an initiator to a node, infinite when unknown."""
        table = self.topology.distances
        steps = [table.between(own, node) for own in initiator.nodes] if table else []
        return min((step for step in steps if step is not None), default=float("inf"))

    def slit(self, initiator: Initiator, target: Target) -> float | None:
        """Largest SLIT distance from an initiator to the target's nodes, None when unknown."""
        steps = [self.distance(initiator, node) for node in target.nodes]
        return max(steps) if steps and max(steps) < float("inf") else None

    def nearest(self, node: int) -> tuple[int, ...]:
        """The initiator nodes that no other is nearer to a node's memory than, by the SLIT.

        Where there is no table, the node itself; and all of them for a node without units.
        """
        table = self.topology.distances
        initiators = [one.os_index for one in self.topology.initiators]
        if node in initiators:
            return (node,)
        steps = {one: table.between(one, node) if table else None for one in initiators}
        known = {one: step for one, step in steps.items() if step is not None}
        if not known:
            return tuple(initiators)
        return tuple(one for one, step in known.items() if step == min(known.values()))

    def drive_groups(self) -> dict[int | None, tuple[DriveRef, ...]]:
        """Drives by the node they hang on; None collects those of unknown locality."""
        groups: dict[int | None, list[DriveRef]] = {}
        for drive in self.drives:
            groups.setdefault(drive.node, []).append(drive)
        ordered = sorted(groups, key=lambda node: (node is None, node))
        return {node: tuple(groups[node]) for node in ordered}

    def package_drives(self) -> dict[int | None, tuple[DriveRef, ...]]:
        """Drives by package, of each of its nodes in turn; None collects those without locality."""
        packages: dict[int | None, list[tuple[DriveRef, ...]]] = {}
        for node, drives in self.drive_groups().items():
            packages.setdefault(self._package_of(node), []).append(drives)
        return {
            package: tuple(one for turn in zip_longest(*nodes) for one in turn if one is not None)
            for package, nodes in packages.items()
        }

    def _package_of(self, node: int | None) -> int | None:
        found = None if node is None else self.topology.node(node)
        return None if found is None else found.package

    def drive_set(self, kind: str, drives: tuple[DriveRef, ...]) -> Target:
        """Drives as a target, named for what they have in common."""
        nodes = tuple(sorted({drive.node for drive in drives if drive.node is not None}))
        home = f"node{nodes[0]}" if len(nodes) == 1 else "unknown"
        listed = format_cpu_list(nodes)
        owners = {self._package_of(node) for node in nodes} - {None}
        package = f"package{min(owners)}" if len(owners) == 1 else "unknown"
        name = {
            "drive": lambda: drives[0].component,
            "first_of_node": lambda: f"{home}drives{len(drives)}",
            "all_of_node": lambda: f"{home}drives",
            "first_of_package": lambda: f"{package}drives{len(drives)}",
            "all_of_package": lambda: f"{package}drives",
            "all_of_nodes": lambda: f"nodes{listed}drives",
            "all": lambda: "alldrives",
        }[kind]()
        return Target(name, kind, nodes, drives, is_drive_set=True)

    def opencl(self, device: OpenclDevice) -> Target:
        """An OpenCL device as a target, on the node that it hangs on where that is known."""
        nodes = () if device.node is None else (device.node,)
        return Target(device.name, "opencl", nodes, device=device)

    def relation(self, a: Endpoint, b: Endpoint) -> str:
        """How two sides lie to each other: the farthest pair of their nodes decides."""
        if not a.nodes or not b.nodes:
            return UNKNOWN
        if set(a.nodes) == set(b.nodes):
            return "same_node" if len(a.nodes) == 1 else "same_nodes"
        order = ("same_node", "same_package", "other_package", UNKNOWN)
        pairs = {self.topology.relation(x, y) for x in a.nodes for y in b.nodes}
        return max(pairs, key=order.index)

    def package_relation(self, a: Endpoint, b: Endpoint) -> str:
        """Whether the second of two sides is in the first one's packages, in others, or in both."""
        own, there = ({self._package_of(node) for node in one.nodes} for one in (a, b))
        if not own or not there or None in own | there:
            return UNKNOWN
        if there <= own:
            return "same_package"
        return "other_package" if not own & there else "both_packages"


def thread_counts(most: int) -> list[int]:
    """Numbers of threads to try, in steps of a half or finer: 1, 2, 3, 4, 6, 8, 12, ... and all."""
    counts = {size for power in range(most.bit_length()) for size in (2**power, 3 * 2**power)}
    return sorted({count for count in counts if count < most} | {most} if most else set())


def kind_name(level: str) -> str:
    """The short word for a level in names and tables."""
    return "l3" if level == "l3_domain" else level
