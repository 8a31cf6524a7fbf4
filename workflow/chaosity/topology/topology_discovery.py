"""Discover the topology of a host: the live machine, an hwloc XML file, or a captured /sys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lxml import etree

from chaosity.cpusets import CpuSet, make_cpu_set
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.topology.accelerators import accelerators_in_processor
from chaosity.topology.devices import DeviceMaker, make_opencl_devices
from chaosity.topology.host_facts import find_memory_peak, read_host_facts
from chaosity.topology.hwloc import HwlocObject, HwlocTree
from chaosity.topology.numa_nodes import discover_nodes, find_restrictions, usable_cpus
from chaosity.topology.topology_model import Topology, topology_from_json, topology_to_json
from chaosity.topology.topology_parts import (
    Core,
    CoreKind,
    Die,
    EqualCaches,
    HugePagePool,
    L3Domain,
    Package,
    PartCounts,
    SlitDistances,
)
from chaosity.topology.topology_sources import (
    LIVE,
    SysfsNode,
    SysfsReader,
    TopologySource,
    open_topology_source,
)

NodesOf = Callable[[CpuSet], tuple[int, ...]]
_CACHE_KINDS = {"0": "unified", "1": "data", "2": "instruction"}


class CoreAndCacheMaker:
    """Makes the model's packages, cores and caches from hwloc's tree, with only `usable` units.

    `nodes_of` returns the nodes that own given processing units.
    """

    def __init__(self, tree: HwlocTree, usable: CpuSet, nodes_of: NodesOf) -> None:
        self._machine = tree.machine
        self._kinds = tuple(tree.core_kinds())
        self._usable = set(usable)
        self._nodes_of = nodes_of

    def _usable_objects(self, type_name: str) -> list[tuple[int, HwlocObject, CpuSet]]:
        """Return (position, object, usable units) of each object of a type with usable units."""
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
            model = " ".join(name.split()) or None  # firmware pads the name with blanks
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
        packages, cores, pus = (
            len(self._machine.objects_of_type(name)) for name in ("Package", "Core", "PU")
        )
        return PartCounts(packages, cores or pus, pus)


def _package(item: HwlocObject) -> int | None:
    package = item.nearest_ancestor("Package")
    return package.os_index if package else None


_UNREADABLE = "the topology cannot be read"


def discover_topology(source: str) -> Topology:
    """Return the topology of a host.

    `source` is `live`, or the path of an hwloc XML file, of a host's description of itself, or of a
    directory with a captured /sys.

    Raises:
        UserError: the source cannot be read, or hwloc is missing or too old for it.
    """
    with malformed_as_user_error(_UNREADABLE, source):
        return _build(open_topology_source(source))


def discover_topology_with_xml(source: str) -> tuple[Topology, str]:
    """Return the topology and hwloc's XML (format 2) of a source, for lstopo and other programs.

    In the XML, nodes of a live machine have the memory that firmware provided, so the file is the
    same each time. The kernel's own total changes with a memory balloon.

    Raises:
        UserError: for the same reasons as `discover_topology`.
    """
    with malformed_as_user_error(_UNREADABLE, source):
        opened = open_topology_source(source)
        return _build(opened), _xml(opened)  # `_build` comes first, since `_xml` changes the source


def _xml(source: TopologySource) -> str:
    """Return the XML; for a live machine, present memory (bytes and pages) replaces MemTotal."""
    page_bytes = HwlocTree(source.xml).page_bytes
    present = source.sysfs.present_bytes(page_bytes) if source.kind == LIVE else {}
    for node in source.xml.iterfind(".//object[@type='NUMANode']"):
        size = present.get(int(node.attrib["os_index"]))
        pages = node.find(f"page_type[@size='{page_bytes}']")
        if size and pages is not None:
            node.set("local_memory", str(size))
            pages.set("count", str(size // page_bytes))
    text = etree.tostring(source.xml.getroottree(), xml_declaration=True, encoding="UTF-8")
    return text.decode() + "\n"


def _build(source: TopologySource) -> Topology:
    sysfs, tree = source.sysfs, HwlocTree(source.xml)
    usable = usable_cpus(tree)
    if not usable:
        raise UserError("the host has no processing unit that may be used", source.name)
    kernel_nodes, online = sysfs.read_nodes(), sysfs.read_cpu_list("sys/devices/system/cpu/online")
    nodes = discover_nodes(tree, sysfs)
    structure = CoreAndCacheMaker(tree, usable, Topology(nodes=nodes).nodes_of_pus)
    devices = DeviceMaker(tree, nodes, sysfs)
    kinds, l3_domains = structure.make_core_kinds(), structure.make_l3_domains()
    caches, gpus = structure.make_caches(), devices.make_gpus()  # the innermost caches first
    facts, counts = read_host_facts(tree, source), structure.count_parts()
    # Only x86 processors report that a machine is virtual.
    may_be_virtual = facts["architecture"] != "x86_64" or facts.get("hypervisor", True)
    modules = source.facts.get("module_table", "the source has no speed of memory modules")
    lines = (cache.line_bytes for cache in caches if cache.kind != "instruction")
    built = Topology(
        source=source.name,
        kind=source.kind,
        packages=structure.make_packages({node.os_index: node.package for node in nodes}),
        l3_domains=l3_domains,
        cores=structure.make_cores(kinds, l3_domains),
        pus=usable,
        nodes=nodes,
        drives=devices.make_drives(),
        gpus=gpus,
        opencl_devices=make_opencl_devices(source.facts.get("opencl_devices"), tree, gpus, nodes),
        accelerators=(*accelerators_in_processor(facts), *devices.make_accelerators()),
        nics=devices.make_nics(),
        core_kinds=kinds,
        distances=_distances(tree, kernel_nodes),
        caches=caches,
        memory_attributes=tree.memory_attributes(),
        memory_peak=find_memory_peak(modules, nodes, counts.packages, may_be_virtual),
        cache_line_bytes=next(filter(None, lines), None) or sysfs.cache_line_bytes(),
        dies=structure.make_dies(),
        huge_page_pools=_huge_pages(kernel_nodes, sysfs),
        restrictions=find_restrictions(tree, nodes, online),
        counts=counts,
        host=facts,
    )
    # A value that a file of the results cannot hold, such as a number above 64 bits, is refused
    # here.
    return topology_from_json(topology_to_json(built))


def _distances(tree: HwlocTree, kernel_nodes: Sequence[SysfsNode]) -> SlitDistances | None:
    """Return the SLIT from /sys, which has rows for nodes without memory, or else from hwloc."""
    # Each row of the SLIT has a column for each online node. If nodes are missing in a capture,
    # nobody knows to which nodes the columns belong.
    if kernel_nodes and all(len(node.distances) == len(kernel_nodes) for node in kernel_nodes):
        indexes = tuple(node.os_index for node in kernel_nodes)
        return SlitDistances(indexes, tuple(node.distances for node in kernel_nodes))
    return tree.slit_distances()


def _huge_pages(kernel_nodes: Sequence[SysfsNode], sysfs: SysfsReader) -> tuple[HugePagePool, ...]:
    """Return the reserved huge pages of each node, or of the machine if the kernel has no NUMA."""
    pools: dict[int | None, dict[int, int]]
    pools = {node.os_index: node.huge_pages for node in kernel_nodes if node.huge_pages}
    return tuple(
        HugePagePool(node, size, pages)
        for node, sizes in (pools or {None: sysfs.machine_huge_pages()}).items()
        for size, pages in sorted(sizes.items())
    )
