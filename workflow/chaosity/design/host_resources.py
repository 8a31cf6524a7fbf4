"""Name the initiators, memory nodes, drive sets and devices of a host, and their relations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from chaosity.cpusets import CpuSet, make_cpu_set
from chaosity.design.chosen_loads import Endpoint, Initiator, Target
from chaosity.design.samples import pick_evenly_spread, take_in_turns
from chaosity.place_names import InitiatorKind, PlaceName, nodes_name, parse_place_name, pu_name
from chaosity.records.record_format import DriveFacts
from chaosity.topology.topology_model import RELATIONS_NEAREST_FIRST, Topology
from chaosity.topology.topology_parts import UNKNOWN, CoreKind, OpenclDevice

DriveGroups = dict[int | None, tuple[DriveFacts, ...]]
# If a host lacks the groups of a level, some cores of each node replace the groups. The numbers are
# the most cores of a node and the most cores of the host; each node has at least one core.
_FALLBACK_CORES_OF_NODE, _MOST_FALLBACK_UNITS = 4, 16


@dataclass
class HostResources:
    """All initiators, memory nodes, drives and devices of a host, with their names in points.

    `one_per_core` (`threads` in the config) says whether selectors by default take only one
    processing unit of each core, without SMT siblings.
    """

    topology: Topology
    drives: tuple[DriveFacts, ...]
    one_per_core: bool = True
    _initiators: dict[tuple[str, bool, Initiator | None], list[Initiator]] = field(
        default_factory=dict
    )

    # Initiators

    def cpu_groups_of_level(self, level: str) -> list[tuple[PlaceName, CpuSet]]:
        """Return the name and the processing units of each group of a level.

        The levels are pu, core, l3_domain, core_kind, node, package and machine. A group of the
        level node, for example, has the processing units of one node.
        """
        topology = self.topology
        if level == "pu":
            return [(PlaceName("pu", (pu,)), (pu,)) for pu in topology.pus]
        if level == "core":
            return [(PlaceName("core", (c.index,)), c.cpus) for c in topology.cores]
        if level == "l3_domain":
            return [(PlaceName("l3", (d.index,)), d.cpus) for d in topology.l3_domains]
        if level == "core_kind":
            return [(self._core_kind_name(k), k.cpus) for k in topology.core_kinds]
        if level == "node":
            return [(PlaceName("node", (n.os_index,)), n.cpus) for n in topology.initiator_nodes]
        if level == "package":
            return [(PlaceName("package", (p.os_index,)), p.cpus) for p in topology.packages]
        return [(PlaceName("machine"), topology.pus)]

    def initiators_of_level(
        self, level: str, one_per_core: bool, without: Initiator | None = None
    ) -> list[Initiator]:
        """Return one initiator for each group of a level, see `cpu_groups_of_level`.

        The cores of the initiator `without` are left out. An initiator that loses no core keeps its
        name. An initiator that loses all its cores is left out.
        """
        key = (level, one_per_core, without)
        if key in self._initiators:
            return self._initiators[key]
        found = self._initiators[key] = []
        own = self._with_siblings(without) if without else set()
        kind = "l3" if level == "l3_domain" else level  # names and tables have the word l3
        for name, cpus in self.cpu_groups_of_level(level):
            used = self._one_pu_per_core(cpus) if one_per_core else cpus
            rest = tuple(cpu for cpu in used if cpu not in own)
            if rest and without and rest != used:
                found.append(self._rest_of_groups([name], without, rest))
            elif rest:
                found.append(self._make_initiator(kind, str(name), used))
        return found

    def _make_initiator(self, kind: str, name: str, cpus: CpuSet) -> Initiator:
        return Initiator(name, kind, cpus, self.topology.nodes_of_pus(cpus))

    @cached_property
    def _initiator_by_cpus(self) -> dict[CpuSet, Initiator]:
        """Return set of units -> the initiator that has them, preferably named after a node."""
        levels = ("node", "package", "machine", "core_kind", "l3_domain", "pu", "core")
        found: dict[CpuSet, Initiator] = {}
        for one_per_core in (True, False):
            for level in levels:
                for initiator in self.initiators_of_level(level, one_per_core):
                    found.setdefault(initiator.cpus, initiator)
        return found

    def with_unique_name(self, initiator: Initiator) -> Initiator:
        """Return the initiator under the name that its units have in all experiments.

        On small machines a node can have the same units as a package or as one processing unit.
        Equal sets of units get the same name, so that they are measured only once.
        """
        return self._initiator_by_cpus.get(initiator.cpus, initiator)

    def _core_kind_name(self, kind: CoreKind) -> PlaceName:
        """Return the name of all cores of a kind."""
        # Of two kinds with different ranks, the names are efficiency and performance. More kinds,
        # or kinds without a rank, are numbered. If all cores are of one kind, the kind has the name
        # of the machine.
        kinds = self.topology.core_kinds
        if len(kinds) == 1:
            return PlaceName("machine")
        ranks = [other.speed_rank for other in kinds if other.speed_rank is not None]
        if len(kinds) == len(ranks) == 2 and ranks[0] != ranks[1]:
            faster = kind.speed_rank == max(ranks)
            return PlaceName("core_kind", word="performance" if faster else "efficiency")
        return PlaceName("core_kind", (kind.index,))

    def uniform_core_kind_name(self, initiator: Initiator) -> str | None:
        """Return the name of the only core kind of an initiator's cores.

        The result is None if the initiator has cores of several kinds, or if the host has only one
        kind.
        """
        kinds = self.topology.core_kinds
        wanted = set(initiator.cpus)
        names = (str(self._core_kind_name(kind)) for kind in kinds if wanted <= set(kind.cpus))
        return next(names, None) if len(kinds) > 1 else None

    def _one_pu_per_core(self, cpus: Iterable[int]) -> CpuSet:
        """Return the first usable unit of each core, without the core's other SMT siblings."""
        wanted = sorted(set(cpus))
        firsts: dict[int, int] = {}
        for cpu in wanted:
            if cpu in self.topology.core_of_pu:
                firsts.setdefault(self.topology.core_of_pu[cpu].index, cpu)
        return tuple(firsts.values()) or tuple(wanted)

    def first_pu_of_each_group(self, level: str, at_least: int = 1) -> tuple[str, list[Initiator]]:
        """Return the level that was used, and the first processing unit of each of its groups.

        If the level has fewer than `at_least` groups, a few cores of each node replace the groups.
        The used level is then `some_cores`, or `core` if these few are all cores. On a host without
        any L3 cache, the groups of cores that share the largest cache (`shared_cache`) are tried
        before. The number of cores is small, because experiments measure all pairs of units.
        """
        groups = [cpus for _, cpus in self.cpu_groups_of_level(level)]
        used, firsts = level, dict.fromkeys(min(cpus) for cpus in groups if cpus)
        if len(firsts) < at_least and level == "l3_domain" and not self.topology.l3_domains:
            shared = pick_evenly_spread(self._cores_of_largest_shared_cache(), _MOST_FALLBACK_UNITS)
            used, firsts = "shared_cache", dict.fromkeys(map(min, shared))
        if len(firsts) < at_least:
            firsts = dict.fromkeys(self._sample_of_cores())
            used = "core" if len(firsts) == len(self.topology.cores) else "some_cores"
        return used, [self._make_initiator("pu", pu_name(pu), (pu,)) for pu in firsts]

    def _cores_of_largest_shared_cache(self) -> list[CpuSet]:
        """Return the units of each cache of the highest cache level that several cores share."""
        core_of = {pu: core.index for pu, core in self.topology.core_of_pu.items()}
        # In hwloc's order, cores that share a cache are neighbours.
        ordered = [pu for core in self.topology.cores for pu in core.cpus]
        found: dict[int, list[CpuSet]] = {}
        for cache in self.topology.caches:
            units = [pu for pu in ordered if pu in set(cache.cpus)]
            sets = [tuple(units[at : at + cache.pus]) for at in range(0, len(units), cache.pus)]
            if cache.kind != "instruction" and any(len({core_of[p] for p in s}) > 1 for s in sets):
                found.setdefault(cache.level, []).extend(sets)
        return found[max(found)] if found else []

    def _sample_of_cores(self) -> list[int]:
        """Return the first units of a few cores of each node, evenly spread."""
        nodes = [self._one_pu_per_core(node.cpus) for node in self.topology.initiator_nodes]
        each = min(_FALLBACK_CORES_OF_NODE, _MOST_FALLBACK_UNITS // max(len(nodes), 1))
        return [pu for cores in nodes for pu in pick_evenly_spread(cores, max(each, 1))]

    def remaining_cores(self, initiator: Initiator, levels: Sequence[str]) -> Initiator | None:
        """Return the unused cores in the groups of an initiator; None if all are used.

        Of the `levels`, the one whose groups have most units is used, or the first of several with
        equally many. For example, the level of nodes is used if a node spans packages, since then
        the node has more units than a package. SMT siblings of the initiator's units are left out
        too, since they share the initiator's cores.
        """
        own = self._with_siblings(initiator)
        groups = max(
            (
                {name: cpus for name, cpus in self.cpu_groups_of_level(level) if own & set(cpus)}
                for level in levels
            ),
            key=lambda found: len(set().union(*found.values())),
        )
        rest = tuple(sorted(set[int]().union(*groups.values()) - own))
        used = self._one_pu_per_core(rest) if self.one_per_core else rest
        return self._rest_of_groups(groups, initiator, used) if rest else None

    def _rest_of_groups(
        self, groups: Iterable[PlaceName], initiator: Initiator, cpus: CpuSet
    ) -> Initiator:
        """Return units as an initiator, whose name has their groups and the left-out initiator."""
        without = parse_place_name(initiator.name)
        place = PlaceName("others", groups=tuple(groups), without=without)
        return self._make_initiator("others", str(place), cpus)

    def _with_siblings(self, initiator: Initiator) -> set[int]:
        """Return an initiator's units and the SMT siblings that share their cores."""
        cores = (self.topology.core_of_pu.get(cpu) for cpu in initiator.cpus)
        return set(initiator.cpus).union(*(core.cpus for core in cores if core))

    @property
    def has_smt(self) -> bool:
        """Return whether any core has several usable units."""
        return any(len(core.cpus) > 1 for core in self.topology.cores)

    def uses_smt_siblings(self, initiator: Initiator) -> bool:
        """Return whether an initiator has several processing units of the same core."""
        cores = [
            core.index for cpu in initiator.cpus if (core := self.topology.core_of_pu.get(cpu))
        ]
        return len(set(cores)) < len(cores)

    def packed_and_spread_core_sets(self, level: str, *, half: bool = False) -> list[Initiator]:
        """Return initiators with 1, 2, 3, 4, 6, ... or (`half`) half the cores of each group.

        A packed initiator takes all cores of one L3 domain before cores of the next domain. A
        spread initiator takes one core of each domain in turn. If a packed and a spread initiator
        have the same cores, one initiator of the kind `threads` replaces both.
        """
        found = []
        for name, cpus in self.cpu_groups_of_level(level):
            domains = self._split_by_l3(cpus)
            packed = [cpu for domain in domains for cpu in domain]
            spread = take_in_turns(domains)
            halves = [len(packed) // 2] if len(packed) > 1 else []
            for count in halves if half else thread_counts_up_to(len(packed)):
                sets: dict[InitiatorKind, list[int]] = {"threads": packed[:count]}
                if set(packed[:count]) != set(spread[:count]):
                    sets = {"packed": packed[:count], "spread": spread[:count]}
                for kind, chosen in sets.items():
                    place = PlaceName(kind, count=count, groups=(name,))
                    found.append(self._make_initiator(kind, str(place), tuple(sorted(chosen))))
        return found

    def _split_by_l3(self, cpus: CpuSet) -> list[list[int]]:
        domains: dict[int | None, list[int]] = {}
        for cpu in self._one_pu_per_core(cpus):
            domains.setdefault(self.topology.l3_of_pu.get(cpu), []).append(cpu)
        return list(domains.values())

    def worker_initiator(self, nodes: Iterable[int], one_per_core: bool = True) -> Initiator:
        """Return all units of the given nodes as one initiator, which runs one program.

        The name of the initiator lists the nodes, even if the nodes are all nodes of a package.
        """
        wanted = set(nodes)
        every = self.initiators_of_level("node", one_per_core)
        members = [initiator for initiator in every if wanted & set(initiator.nodes)]
        if len(members) == 1:
            return members[0]
        cpus = tuple(sorted(cpu for member in members for cpu in member.cpus))
        return self._make_initiator("nodes", nodes_name(wanted), cpus)

    def packages_of_initiator(self, initiator: Initiator) -> frozenset[int | None]:
        """Return the packages that have units of an initiator."""
        cores = (self.topology.core_of_pu.get(cpu) for cpu in initiator.cpus)
        return frozenset(core.package for core in cores if core)

    # Caches and memory

    def l3_bytes(self, initiator: Initiator) -> int:
        """Return the total size in bytes of all L3 caches that an initiator's units use."""
        return sum(self._l3_bytes_by_domain.get(index, 0) for index in self._l3_domains(initiator))

    @cached_property
    def _l3_bytes_by_domain(self) -> dict[int | None, int]:
        return {domain.index: domain.size_bytes or 0 for domain in self.topology.l3_domains}

    def _l3_domains(self, initiator: Initiator) -> set[int | None]:
        return {self.topology.l3_of_pu.get(cpu) for cpu in initiator.cpus}

    def memory_bytes(self, node: int) -> int | None:
        """Return the bytes of a node's memory that firmware or else the kernel reports."""
        found = self.topology.find_node(node)
        return found.size_bytes if found else None

    def target_of_nodes(self, nodes: Iterable[int]) -> Target:
        """Return the memory of one or several nodes as a target."""
        listed = tuple(sorted(nodes))
        kind = "node" if len(listed) == 1 else "nodes"
        return Target(nodes_name(listed) if listed else kind, kind, listed)

    def local_memory_nodes(self, endpoint: Endpoint) -> tuple[int, ...]:
        """Return an endpoint's nodes that have memory, or else the nearest node with memory."""
        usable = {node.os_index for node in self.topology.memory_nodes}
        own = tuple(node for node in endpoint.nodes if node in usable)
        if own or not usable:
            return own
        return (min(usable, key=lambda node: (self._slit_distance(endpoint.nodes, node), node)),)

    def worker_memory_nodes(self, workers: Initiator) -> tuple[int, ...]:
        """Return the memory nodes that are nearest to each node of the workers."""
        nodes = {one.nodes[0]: one for one in self.initiators_of_level("node", True) if one.nodes}
        found = {near for node in workers.nodes for near in self.local_memory_nodes(nodes[node])}
        return tuple(sorted(found))

    def buffer_nodes(self, initiator: Initiator, where: str) -> tuple[int, ...]:
        """Return the nodes on which an initiator's buffers lie; empty if there is no such node.

        `where` is `own` for local memory, or `other` for the first of the farthest nodes.
        """
        own = self.local_memory_nodes(initiator)
        if where == "own":
            return own
        memory = (node.os_index for node in self.topology.memory_nodes)
        others = [self.target_of_nodes([node]) for node in memory if node not in own]
        order = (UNKNOWN, "same_package", "other_package")
        others.sort(key=lambda other: -order.index(self.endpoint_relation(initiator, other)))
        return others[0].nodes if others else ()

    # Distances and relations

    def _slit_distance(self, nodes: Iterable[int], node: int) -> float:
        """Return the smallest SLIT distance from `nodes` to `node`; infinite if unknown."""
        table = self.topology.distances
        steps = [table.distance_between(own, node) for own in nodes] if table else []
        return min((step for step in steps if step is not None), default=float("inf"))

    def largest_slit_distance(self, initiator: Initiator, target: Target) -> float | None:
        """Return the largest SLIT distance from an initiator to a target; None if unknown."""
        steps = [self._slit_distance(initiator.nodes, node) for node in target.nodes]
        return max(steps) if steps and max(steps) < float("inf") else None

    def nearest_initiator_node(self, node: int) -> int | None:
        """Return the node with processing units that has the smallest SLIT distance to a node.

        If the node itself has processing units, the result is this node. Of several nodes with the
        same distance, the first one is returned. The result is None if no node has processing
        units.
        """
        initiators = [initiator.os_index for initiator in self.topology.initiator_nodes]
        if node in initiators:
            return node
        return min(initiators, key=lambda own: self._slit_distance([own], node), default=None)

    def relation_function(self, by: str | None) -> Callable[[Endpoint, Endpoint], str]:
        """Return the function that finds relations by package, L3 domain or node (None)."""
        by_unit = {
            "package": self.relation_by_package,
            "l3_domain": self.relation_by_l3_domain_or_node,
        }
        return by_unit.get(by or "", self.endpoint_relation)

    def relation_by_l3_domain_or_node(self, a: Endpoint, b: Endpoint) -> str:
        """Return `same_l3_domain` for initiators in one L3 domain, else `endpoint_relation`."""
        if isinstance(a, Initiator) and isinstance(b, Initiator):
            used = self._l3_domains(a) | self._l3_domains(b)
            if len(used) == 1 and None not in used:
                return "same_l3_domain"
        return self.endpoint_relation(a, b)

    def endpoint_relation(self, a: Endpoint, b: Endpoint) -> str:
        """Return the relation of two endpoints, which is the relation of their farthest nodes."""
        if not a.nodes or not b.nodes:
            return UNKNOWN
        if set(a.nodes) == set(b.nodes):
            return "same_node" if len(a.nodes) == 1 else "same_nodes"
        pairs = {self.topology.node_relation(x, y) for x in a.nodes for y in b.nodes}
        return max(pairs, key=RELATIONS_NEAREST_FIRST.index)

    def relation_by_package(self, a: Endpoint, b: Endpoint) -> str:
        """Return whether `b` lies in packages of `a`, in other packages, or in both."""
        own, there = ({self.package_of_node(node) for node in one.nodes} for one in (a, b))
        if not own or not there or None in own | there:
            return UNKNOWN
        if there <= own:
            return "same_package"
        return "other_package" if not own & there else "both_packages"

    def package_of_node(self, node: int | None) -> int | None:
        """Return the package of a node; None if `node` is None or spans several packages."""
        return None if node is None else self.topology.package_of_node.get(node)

    # Drives and devices

    def drives_by_node(self) -> DriveGroups:
        """Return node -> drives nearest to it; the key None has drives of unknown node."""
        ordered = sorted(self.drives, key=lambda drive: (drive["node"] is None, drive["node"] or 0))
        return {node: tuple(group) for node, group in groupby(ordered, lambda drive: drive["node"])}

    def drives_by_package(self) -> DriveGroups:
        """Return package (None if unknown) -> its drives, taken from its nodes in turn."""
        packages: dict[int | None, list[tuple[DriveFacts, ...]]] = {}
        for node, drives in self.drives_by_node().items():
            packages.setdefault(self.package_of_node(node), []).append(drives)
        return {package: tuple(take_in_turns(nodes)) for package, nodes in packages.items()}

    def drive_set_target(self, kind: str, drives: tuple[DriveFacts, ...]) -> Target:
        """Return one or more drives as a target, named after the drive or the place of the drives.

        `kind` says how the drives were selected; it is drive, first_of_node, all_of_node,
        first_of_package, all_of_package, all_of_nodes or all.
        """
        nodes = make_cpu_set(node for drive in drives if (node := drive["node"]) is not None)
        of_package = kind.endswith("package")
        owners = {self.package_of_node(node) if of_package else node for node in nodes}
        known = tuple(owner for owner in owners if owner is not None)
        count = len(drives) if kind.startswith("first_of") else None
        place = PlaceName("unknown_drives", count=count)
        if kind == "all":
            place = PlaceName("all_drives")
        elif kind == "all_of_nodes":
            place = PlaceName("nodes_drives", nodes)
        elif len(known) == 1:
            place = PlaceName("package_drives" if of_package else "node_drives", known, count)
        name = drives[0]["component"] if kind == "drive" else str(place)
        return Target(name, kind, nodes, drives, is_drive_set=True)

    def opencl_target(self, device: OpenclDevice) -> Target:
        """Return an OpenCL device as a target, with its nearest node if this node is known."""
        nodes = () if device.node is None else (device.node,)
        return Target(device.name, "opencl", nodes, device=device)


def thread_counts_up_to(most: int) -> list[int]:
    """Return the numbers of threads to measure: 1, 2, 3, 4, 6, 8, 12, ... and `most`."""
    counts = {size for power in range(most.bit_length()) for size in (2**power, 3 * 2**power)}
    return sorted({count for count in counts if count < most} | {most} if most else set())
