"""Make packages, dies, L3 domains, cores and caches of the model from hwloc's tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from chaosity.cpusets import CpuSet, make_cpu_set
from chaosity.topology.hwloc import HwlocObject, HwlocTree
from chaosity.topology.topology_parts import (
    Core,
    CoreKind,
    Die,
    EqualCaches,
    L3Domain,
    Package,
    PartCounts,
)

NodesOf = Callable[[CpuSet], tuple[int, ...]]
_CACHE_KINDS = {"0": "unified", "1": "data", "2": "instruction"}


class CoreAndCacheMaker:
    """Makes the model's objects from hwloc's tree, each with only its `usable` processing units.

    `nodes_of` returns the nodes that own given processing units.
    """

    def __init__(self, tree: HwlocTree, usable: CpuSet, nodes_of: NodesOf) -> None:
        self._machine = tree.machine
        self._kinds = tuple(tree.core_kinds())
        self._usable = set(usable)
        self._nodes_of = nodes_of

    def _usable_objects(self, type_name: str) -> list[tuple[int, HwlocObject, CpuSet]]:
        """Return position, object and usable processing units of each usable object of a type."""
        pairs = [(item, self._cpus(item)) for item in self._machine.objects_of_type(type_name)]
        return [(index, *pair) for index, pair in enumerate(pair for pair in pairs if pair[1])]

    def _cpus(self, item: HwlocObject | CoreKind) -> CpuSet:
        return make_cpu_set(self._usable & set(item.cpus))

    def make_packages(self, package_of_node: Mapping[int, int | None]) -> tuple[Package, ...]:
        """Return the packages with at least one usable processing unit."""
        packages = []
        for _, item, cpus in self._usable_objects("Package"):
            os_index = item.required_os_index
            nodes = tuple(n for n in sorted(package_of_node) if package_of_node[n] == os_index)
            name = item.infos.get("CPUModel") or self._machine.infos.get("CPUModel") or ""
            model = " ".join(name.split()) or None  # firmware pads it with blanks
            packages.append(Package(os_index, cpus, nodes, model))
        return tuple(packages)

    def make_dies(self) -> tuple[Die, ...]:
        """Return the dies, if the source has dies."""
        objects = self._usable_objects("Die")
        return tuple(Die(index, cpus, _package(item)) for index, item, cpus in objects)

    def make_l3_domains(self) -> tuple[L3Domain, ...]:
        """Return an L3 domain for each L3 cache."""
        domains = []
        for index, item, cpus in self._usable_objects("L3Cache"):
            size, nodes = item.attribute_number("cache_size"), self._nodes_of(cpus)
            domains.append(L3Domain(index, cpus, nodes, _package(item), size))
        return tuple(domains)

    def make_core_kinds(self) -> tuple[CoreKind, ...]:
        """Return the core kinds; a single unnamed kind if the source has none."""
        every = (replace(kind, cpus=self._cpus(kind)) for kind in self._kinds)
        usable = enumerate(kind for kind in every if kind.cpus)
        core_kinds = tuple(replace(kind, index=index) for index, kind in usable)
        return core_kinds or (CoreKind(0, make_cpu_set(self._usable)),)

    def make_cores(
        self, kinds: tuple[CoreKind, ...], l3_domains: tuple[L3Domain, ...]
    ) -> tuple[Core, ...]:
        """Return the cores in hwloc's order; without cores, each processing unit is a core."""
        kind_of = {cpu: kind.index for kind in kinds for cpu in kind.cpus}
        l3_of = {cpu: domain.index for domain in l3_domains for cpu in domain.cpus}
        objects = self._usable_objects("Core") or self._usable_objects("PU")
        return tuple(
            Core(
                index,
                item.os_index,
                cpus,
                _package(item),
                l3_of.get(cpus[0]),
                self._nodes_of(cpus),
                kind_of.get(cpus[0], 0),
            )
            for index, item, cpus in objects
        )

    def make_caches(self) -> tuple[EqualCaches, ...]:
        """Return the caches of cores, from L1 on; equal caches are one entry.

        Memory-side caches are left out, because they belong to nodes.
        """
        equal: dict[tuple[int, str, int | None, int | None, int], list[CpuSet]] = {}
        for item in self._machine.walk_subtree():
            cpus = self._cpus(item)
            if "cache_type" in item.attributes and item.type != "MemCache" and cpus:
                key = (
                    item.attribute_number("depth") or 0,
                    _CACHE_KINDS.get(item.attributes["cache_type"], "unified"),
                    item.attribute_number("cache_size") or None,
                    item.attribute_number("cache_linesize") or None,
                    len(cpus),
                )
                equal.setdefault(key, []).append(cpus)
        caches = [
            EqualCaches(level, kind, size, line, pus, len(sets), make_cpu_set(sum(sets, ())))
            for (level, kind, size, line, pus), sets in equal.items()
        ]
        return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind, cache.cpus)))

    def count_parts(self) -> PartCounts:
        """Return the numbers of packages, cores and processing units, usable or not."""
        pus = len(self._machine.objects_of_type("PU"))
        return PartCounts(
            len(self._machine.objects_of_type("Package")),
            len(self._machine.objects_of_type("Core")) or pus,
            pus,
        )


def _package(item: HwlocObject) -> int | None:
    package = item.nearest_ancestor("Package")
    return package.os_index if package else None
