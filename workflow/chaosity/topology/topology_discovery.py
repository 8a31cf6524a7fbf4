"""Discover the topology of a host: the live machine, an hwloc XML file, or a captured /sys.

hwloc hides NUMA nodes without memory, leaves out processing units and nodes that a cgroup forbids,
and gives a node without processing units the units of a neighbour. /sys, if available, has the
correct data. If the source is only an XML file, this module infers which node owns a processing
unit.

Memory tiers rank nodes by speed; tier 0 is the fastest. The kernel's tiers are used if the kernel
has several tiers, or else hwloc's tiers if hwloc has several. If neither has several tiers, the
tiers follow from the kind of memory, the HMAT and the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lxml import etree

from chaosity.cpusets import CpuSet, make_cpu_set
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.topology.devices import DeviceMaker, accelerators_in_processor, make_opencl_devices
from chaosity.topology.host_facts import find_memory_peak, read_host_facts
from chaosity.topology.hwloc import HwlocObject, HwlocTree
from chaosity.topology.topology_model import Topology, topology_from_json, topology_to_json
from chaosity.topology.topology_parts import (
    DRAM,
    UNKNOWN,
    Core,
    CoreKind,
    Die,
    EqualCaches,
    HugePagePool,
    L3Domain,
    Node,
    Package,
    PartCounts,
    Restrictions,
    SlitDistances,
)
from chaosity.topology.topology_sources import (
    LIVE_SOURCE,
    SysfsNode,
    SysfsReader,
    TopologySource,
    open_topology_source,
)

_CPU_LESS_MEMORY = "CPU-less"
# hwloc's subtypes of special memory. If a node with special memory and an ordinary node may both
# own a processing unit, the ordinary node owns it.
_SPECIAL_MEMORY = frozenset({"MCDRAM", "HBM", "NVM", "SPM", "GPUMemory", "CXL-DRAM", "CXL-NVM"})
# Kinds of memory, ranked from high to low bandwidth. The memory of a node without processors
# ("CPU-less") and of unknown technology comes after DRAM.
_BANDWIDTH_RANK_OF_MEMORY_KIND = {
    "HBM": 0,
    "MCDRAM": 0,
    DRAM: 1,
    _CPU_LESS_MEMORY: 2,
    "SPM": 2,
    "CXL": 2,
    "GPU": 3,
    "NVM": 4,
}
# The possible values of `Node.kind` for a node with memory.
MEMORY_KINDS = (*_BANDWIDTH_RANK_OF_MEMORY_KIND, UNKNOWN)
_MEMORY_KIND_OF_HWLOC = {"GPUMemory": "GPU", "CXL-DRAM": "CXL", "CXL-NVM": "NVM"}
# CPU-less memory counts as HBM if its bandwidth in the HMAT is more than 1.5 times that of DRAM. In
# the HMAT, nodes of one memory technology differ by a few per cent in bandwidth, and nodes of
# different technologies differ far more.
_BANDWIDTH_RATIO_OF_OTHER_TECHNOLOGY = 1.5


@dataclass
class _NodeEvidence:
    """What hwloc and /sys say about a node; the `Node` of the model is made from this evidence."""

    os_index: int
    item: HwlocObject | None  # hwloc's object of the node; None when hwloc hides the node
    # hwloc's cpuset: the processing units of the node, or of the nearest neighbour if the node has
    # no processing units.
    near_cpus: CpuSet
    allowed: bool  # whether the cgroup allows the node's memory
    own_cpus: CpuSet = ()  # the processing units that the node owns
    memory_bytes: int | None = None
    package: int | None = None
    has_cpus: bool = False

    @property
    def is_target(self) -> bool:
        """Return whether the node's memory can be used; memory of unknown size counts as usable."""
        return self.item is not None and self.allowed and self.memory_bytes != 0

    @property
    def is_special(self) -> bool:
        """Return whether hwloc says that the node has a special kind of memory, such as MCDRAM."""
        if self.item is None:
            return False
        return self.item.subtype in _SPECIAL_MEMORY or "DAXType" in self.item.infos


def _discover_nodes(tree: HwlocTree, sysfs: SysfsReader) -> tuple[Node, ...]:
    """Return the model's nodes, with flags, kinds and tiers."""
    evidence = _collect_evidence(tree, sysfs)
    usable = set(_usable_cpus(tree))
    present = sysfs.present_bytes(tree.page_bytes)
    kinds = _memory_kinds(evidence)
    targets = [node for node in evidence if node.is_target]
    tiers = _memory_tiers(targets, kinds, tree, sysfs.memory_tiers())
    return tuple(
        Node(
            os_index=node.os_index,
            cpus=make_cpu_set(usable & set(node.own_cpus)),
            memory_bytes=node.memory_bytes,
            present_bytes=present.get(node.os_index),
            initiator=bool(usable & set(node.own_cpus)),
            target=node.is_target,
            tier=tiers.get(node.os_index),
            kind=kinds[node.os_index],
            package=node.package,
            shown_cpus=node.own_cpus,
            has_cpus=node.has_cpus,
            memory_side_cache_bytes=_memory_side_cache(node.item),
        )
        for node in evidence
    )


def _usable_cpus(tree: HwlocTree) -> CpuSet:
    """Return the processing units that are online and that the cgroup allows."""
    return make_cpu_set(set(tree.machine.cpus) & set(tree.allowed_cpus))


def _find_restrictions(
    tree: HwlocTree, nodes: Iterable[Node], online: CpuSet | None
) -> Restrictions:
    """Return the processing units and nodes of the machine that this process cannot use.

    hwloc's complete_cpuset also has offline and forbidden processing units. The set `online` from
    /sys shows which processing units are offline.
    """
    missing = set(tree.machine.complete_cpus) - set(_usable_cpus(tree))
    offline: set[int] = set()
    disallowed = set(tree.machine.cpus) - set(tree.allowed_cpus)
    if online is not None:
        offline = missing - set(online)
        disallowed = missing - offline
    elif disallowed:  # an XML written with --disallowed lacks only offline units
        offline = missing - disallowed
    return Restrictions(
        missing_cpus=make_cpu_set(missing),
        offline_cpus=make_cpu_set(offline),
        disallowed_cpus=make_cpu_set(disallowed),
        disallowed_nodes=tuple(
            node.os_index for node in nodes if not node.target and node.memory_bytes != 0
        ),
        cgroup=tree.machine.infos.get("LinuxCgroup") if _is_in_cgroup(tree) else None,
    )


def _is_in_cgroup(tree: HwlocTree) -> bool:
    """Return whether hwloc ran within a cgroup other than the root."""
    return tree.machine.infos.get("LinuxCgroup", "/") != "/"


def _memory_side_cache(item: HwlocObject | None) -> int | None:
    cache = item.nearest_ancestor("MemCache") if item else None
    return cache.attribute_number("cache_size") if cache else None


def _collect_evidence(tree: HwlocTree, sysfs: SysfsReader) -> list[_NodeEvidence]:
    """Return all nodes in the XML or /sys, with the processing units and the memory they own."""
    visible = {item.required_os_index: item for item in tree.machine.objects_of_type("NUMANode")}
    kernel = {node.os_index: node for node in sysfs.read_nodes()}
    nodes, pus = [], tree.machine.objects_of_type("PU")
    for index in sorted({*visible, *kernel, *tree.machine.complete_nodes}):
        item = visible.get(index)
        # hwloc removes a hidden node from all nodesets, but keeps it in the complete_nodesets.
        near = (
            item.cpus
            if item
            else make_cpu_set(p.required_os_index for p in pus if index in p.complete_nodes)
        )
        nodes.append(_NodeEvidence(index, item, near, index in tree.allowed_nodes))
    _assign_owners(nodes, kernel, tree.machine.cpus)
    packages = tree.machine.objects_of_type("Package")
    for node in nodes:
        in_kernel = kernel.get(node.os_index)
        listed = (in_kernel.cpus if in_kernel else None) or ()
        node.memory_bytes = _memory_bytes(node, in_kernel, tree)
        # hwloc gives a node without processing units the cpuset of a usable neighbour. So an empty
        # cpuset means that all processing units of the node are offline or forbidden.
        lost_all = node.item and not node.item.cpus and node.item.complete_cpus
        node.has_cpus = bool(node.own_cpus or listed or lost_all)
        holders = [p for p in packages if node.os_index in {*p.nodes, *p.complete_nodes}]
        node.package = holders[0].os_index if len(holders) == 1 else None
        if node.package is None:  # hwloc hides a package if all of it is forbidden
            node.package = sysfs.common_package_of_pus(listed)
    return nodes


def _assign_owners(
    nodes: Sequence[_NodeEvidence], kernel: Mapping[int, SysfsNode], shown: CpuSet
) -> None:
    """Set `own_cpus` of each node, so that exactly one node owns each processing unit."""
    # In an XML a processing unit can be in the cpusets of several nodes, because a node without
    # processing units has the cpuset of its neighbours. The owner is the node with the fewest
    # processing units. If several nodes have equally few, a node with ordinary memory comes first,
    # then the node with the lowest OS index. Linux numbers nodes with processors before nodes that
    # have only memory (acpi_numa_init reads CPU affinities first).
    if kernel and all(node.cpus is not None for node in kernel.values()):
        for node in nodes:
            listed = kernel[node.os_index].cpus if node.os_index in kernel else ()
            # /sys also lists offline processing units, which hwloc does not list.
            node.own_cpus = make_cpu_set(set(listed or ()) & set(shown))
        return
    owned: dict[int, list[int]] = {}
    for cpu in shown:
        claimants = [node for node in nodes if cpu in node.near_cpus]
        if claimants:
            owner = min(claimants, key=lambda n: (len(n.near_cpus), n.is_special, n.os_index))
            owned.setdefault(owner.os_index, []).append(cpu)
    for node in nodes:
        node.own_cpus = make_cpu_set(owned.get(node.os_index, ()))


def _memory_bytes(node: _NodeEvidence, kernel: SysfsNode | None, tree: HwlocTree) -> int | None:
    """Return the bytes of a node's memory: 0 without memory, None if the size is unknown."""
    if node.item and (size := node.item.attribute_number("local_memory")):
        return size
    if kernel is not None:
        return kernel.memory_bytes
    if node.item is not None:
        # hwloc omits a size of 0. If no node has a size, as in dumps of cpuid, all sizes are
        # unknown.
        sizes = (
            item.attribute_number("local_memory")
            for item in tree.machine.objects_of_type("NUMANode")
        )
        return 0 if any(sizes) else None
    # Without /sys, a node that hwloc hides counts as forbidden (its size is unknown) if hwloc ran
    # in a cgroup. Outside a cgroup, hwloc hides only nodes without memory.
    return None if _is_in_cgroup(tree) else 0


def _memory_kinds(nodes: Sequence[_NodeEvidence]) -> dict[int, str]:
    """Return OS index of a node -> kind of the node's memory.

    Special memory has the kind that hwloc states. A node with processors has DRAM. The memory of a
    node without processors is CPU-less, or DRAM if the nearby processors have no other memory. The
    kind is "none" for a node without memory, and "unknown" for a node without processors that hwloc
    hides.
    """
    provided = {cpu for node in nodes if node.memory_bytes != 0 for cpu in node.own_cpus}
    every = {cpu for node in nodes for cpu in node.own_cpus}
    return {
        node.os_index: _memory_kind(node, set(node.near_cpus) or every, provided) for node in nodes
    }


def _memory_kind(node: _NodeEvidence, near: set[int], provided: set[int]) -> str:
    """Return the kind of a node's memory; `provided` has the units whose own node has memory."""
    if node.memory_bytes == 0:
        return "none"
    if node.item is not None and node.is_special:
        name = node.item.subtype or node.item.infos["DAXType"]
        return _MEMORY_KIND_OF_HWLOC.get(name, name)
    if node.has_cpus:
        return DRAM
    if node.item is None:
        return UNKNOWN
    return _CPU_LESS_MEMORY if near <= provided else DRAM


def _memory_tiers(
    targets: Sequence[_NodeEvidence],
    kinds: Mapping[int, str],
    tree: HwlocTree,
    kernel_tiers: Mapping[int, int],
) -> dict[int, int]:
    """Return target node -> memory tier; tiers are counted from 0 without gaps."""
    keys = {node.os_index: _tier_key(node, kinds, tree, targets) for node in targets}
    stated = {n.os_index: n.item.infos.get("MemoryTier", "") for n in targets if n.item}
    hwloc_tiers = {index: int(tier) for index, tier in stated.items() if tier.isdigit()}
    for tiers in (hwloc_tiers, kernel_tiers):  # the kernel's tiers replace hwloc's
        # If the firmware gives no information on tiers, the kernel has a single tier.
        if keys.keys() <= tiers.keys() and len({tiers[index] for index in keys}) > 1:
            keys = {index: (tiers[index], 0) for index in keys}
    order = sorted(set(keys.values()))
    return {index: order.index(key) for index, key in keys.items()}


def _tier_key(
    node: _NodeEvidence,
    kinds: Mapping[int, str],
    tree: HwlocTree,
    targets: Iterable[_NodeEvidence],
) -> tuple[int, int]:
    """Return a sort key: rank of the kind of memory, then SLIT distance of CPU-less memory."""
    kind = kinds[node.os_index]
    if kind != _CPU_LESS_MEMORY:
        return _BANDWIDTH_RANK_OF_MEMORY_KIND.get(
            kind, _BANDWIDTH_RANK_OF_MEMORY_KIND[_CPU_LESS_MEMORY]
        ), 0
    bandwidths: dict[int, float] = {}  # node -> highest bandwidth in the HMAT
    for item in tree.memory_attributes():
        if item.name == "bandwidth_bytes_per_second":
            bandwidths[item.target] = max(item.value, bandwidths.get(item.target, 0.0))
    ordinary = [bandwidths[i] for i, k in kinds.items() if k == DRAM and i in bandwidths]
    faster = _BANDWIDTH_RATIO_OF_OTHER_TECHNOLOGY * max(ordinary, default=float("inf"))
    if bandwidths.get(node.os_index, 0) > faster:
        return _BANDWIDTH_RANK_OF_MEMORY_KIND["HBM"], 0
    processors = [other.os_index for other in targets if other.own_cpus]
    table = tree.slit_distances()
    steps = [table.distance_between(index, node.os_index) for index in processors] if table else []
    return _BANDWIDTH_RANK_OF_MEMORY_KIND[_CPU_LESS_MEMORY], min(
        (step for step in steps if step is not None), default=0
    )


NodesOf = Callable[[CpuSet], tuple[int, ...]]
_CACHE_KIND_OF_HWLOC = {"0": "unified", "1": "data", "2": "instruction"}


class CoreAndCacheMaker:
    """Makes packages, cores and caches of the model from hwloc's tree and the `usable` units.

    `usable` has the processing units that can be used. The function `nodes_of` returns the nodes
    that own given processing units.
    """

    def __init__(self, tree: HwlocTree, usable: CpuSet, nodes_of: NodesOf) -> None:
        self._machine = tree.machine
        self._kinds = tuple(tree.core_kinds())
        self._usable = set(usable)
        self._nodes_of = nodes_of

    def _usable_objects(self, type_name: str) -> list[tuple[int, HwlocObject, CpuSet]]:
        """Return (position, object, usable units) of each object of a type with usable units."""
        pairs = [(item, self._usable_in(item)) for item in self._machine.objects_of_type(type_name)]
        return [(index, *pair) for index, pair in enumerate(pair for pair in pairs if pair[1])]

    def _usable_in(self, item: HwlocObject | CoreKind) -> CpuSet:
        return make_cpu_set(self._usable & set(item.cpus))

    def make_packages(self, package_of_node: Mapping[int, int | None]) -> tuple[Package, ...]:
        """Return the packages with at least one usable processing unit."""
        packages = []
        for _, item, cpus in self._usable_objects("Package"):
            os_index = item.required_os_index
            nodes = tuple(n for n in sorted(package_of_node) if package_of_node[n] == os_index)
            name = item.infos.get("CPUModel") or self._machine.infos.get("CPUModel") or ""
            model = " ".join(name.split()) or None  # firmware fills up the name with blanks
            packages.append(Package(os_index, cpus, nodes, model))
        return tuple(packages)

    def make_dies(self) -> tuple[Die, ...]:
        """Return the dies; no dies if the source does not list dies."""
        objects = self._usable_objects("Die")
        return tuple(Die(index, cpus, _package_of_object(item)) for index, item, cpus in objects)

    def make_l3_domains(self) -> tuple[L3Domain, ...]:
        """Return an L3 domain for each L3 cache."""
        domains = []
        for index, item, cpus in self._usable_objects("L3Cache"):
            size, nodes = item.attribute_number("cache_size"), self._nodes_of(cpus)
            domains.append(L3Domain(index, cpus, nodes, _package_of_object(item), size))
        return tuple(domains)

    def make_core_kinds(self) -> tuple[CoreKind, ...]:
        """Return the core kinds, or one kind without a name if the source lists no kinds."""
        every = (replace(kind, cpus=self._usable_in(kind)) for kind in self._kinds)
        usable = enumerate(kind for kind in every if kind.cpus)
        core_kinds = tuple(replace(kind, index=index) for index, kind in usable)
        return core_kinds or (CoreKind(0, make_cpu_set(self._usable)),)

    def make_cores(
        self, kinds: tuple[CoreKind, ...], l3_domains: tuple[L3Domain, ...]
    ) -> tuple[Core, ...]:
        """Return the cores in hwloc's order; if the source has no cores, each unit is a core."""
        kind_of = {cpu: kind.index for kind in kinds for cpu in kind.cpus}
        l3_of = {cpu: domain.index for domain in l3_domains for cpu in domain.cpus}
        objects = self._usable_objects("Core") or self._usable_objects("PU")
        return tuple(
            Core(
                index,
                item.os_index,
                cpus,
                _package_of_object(item),
                l3_of.get(cpus[0]),
                self._nodes_of(cpus),
                kind_of.get(cpus[0], 0),
            )
            for index, item, cpus in objects
        )

    def make_caches(self) -> tuple[EqualCaches, ...]:
        """Return the caches of cores, L1 first; equal caches have one common entry.

        Memory-side caches are left out, because they belong to nodes and not to cores.
        """
        equal: dict[tuple[int, str, int | None, int | None, int], list[CpuSet]] = {}
        for item in self._machine.walk_subtree():
            cpus = self._usable_in(item)
            if "cache_type" in item.attributes and item.type != "MemCache" and cpus:
                key = (
                    item.attribute_number("depth") or 0,
                    _CACHE_KIND_OF_HWLOC.get(item.attributes["cache_type"], "unified"),
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
        """Return how many packages, cores and processing units there are, usable or not."""
        packages, cores, pus = (
            len(self._machine.objects_of_type(name)) for name in ("Package", "Core", "PU")
        )
        return PartCounts(packages, cores or pus, pus)


def _package_of_object(item: HwlocObject) -> int | None:
    package = item.nearest_ancestor("Package")
    return package.os_index if package else None


_ERROR_OF_UNREADABLE_TOPOLOGY = "the topology cannot be read"


def discover_topology(source: str) -> Topology:
    """Return the topology of a host.

    `source` is `live` or a path. The path is that of an hwloc XML file, of a description that a
    host's runner wrote, or of a directory with a captured /sys.

    Raises:
        UserError: the source cannot be read, or hwloc is missing or too old for it.
    """
    with malformed_as_user_error(_ERROR_OF_UNREADABLE_TOPOLOGY, source):
        return _build_topology(open_topology_source(source))


def discover_topology_with_xml(source: str) -> tuple[Topology, str]:
    """Return the topology of a source, and its XML (format 2) for lstopo and other programs.

    In the XML of a live machine, each node has the memory size that firmware provided. The kernel's
    total of a node would change with a memory balloon, so the file would not stay the same.

    Raises:
        UserError: for the same reasons as `discover_topology`.
    """
    with malformed_as_user_error(_ERROR_OF_UNREADABLE_TOPOLOGY, source):
        opened = open_topology_source(source)
        return _build_topology(opened), _xml_of_source(
            opened
        )  # `_build_topology` comes first, since `_xml_of_source` changes `opened`


def _xml_of_source(source: TopologySource) -> str:
    """Return a source's XML; for a live machine, present memory replaces the kernel's MemTotal."""
    page_bytes = HwlocTree(source.xml).page_bytes
    present = source.sysfs.present_bytes(page_bytes) if source.kind == LIVE_SOURCE else {}
    for node in source.xml.iterfind(".//object[@type='NUMANode']"):
        size = present.get(int(node.attrib["os_index"]))
        pages = node.find(f"page_type[@size='{page_bytes}']")
        if size and pages is not None:
            node.set("local_memory", str(size))
            pages.set("count", str(size // page_bytes))
    text = etree.tostring(source.xml.getroottree(), xml_declaration=True, encoding="UTF-8")
    return text.decode() + "\n"


def _build_topology(source: TopologySource) -> Topology:
    sysfs, tree = source.sysfs, HwlocTree(source.xml)
    usable = _usable_cpus(tree)
    if not usable:
        raise UserError("the host has no processing unit that may be used", source.name)
    kernel_nodes, online = sysfs.read_nodes(), sysfs.read_cpu_list("sys/devices/system/cpu/online")
    nodes = _discover_nodes(tree, sysfs)
    structure = CoreAndCacheMaker(tree, usable, Topology(nodes=nodes).nodes_of_pus)
    devices = DeviceMaker(tree, nodes, sysfs)
    kinds, l3_domains = structure.make_core_kinds(), structure.make_l3_domains()
    caches, gpus = structure.make_caches(), devices.make_gpus()  # caches: L1 first
    facts, counts = read_host_facts(tree, source), structure.count_parts()
    # Only x86 processors report whether a machine is virtual.
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
        accelerators=(*accelerators_in_processor(facts), *devices.make_pci_accelerators()),
        nics=devices.make_nics(),
        core_kinds=kinds,
        distances=_slit_distances(tree, kernel_nodes),
        caches=caches,
        memory_attributes=tree.memory_attributes(),
        memory_peak=find_memory_peak(modules, nodes, counts.packages, may_be_virtual),
        cache_line_bytes=next(filter(None, lines), None) or sysfs.cache_line_bytes(),
        dies=structure.make_dies(),
        huge_page_pools=_huge_page_pools(kernel_nodes, sysfs),
        restrictions=_find_restrictions(tree, nodes, online),
        counts=counts,
        host=facts,
    )
    # The conversion refuses a value that result files cannot have, such as a number above 64 bits.
    return topology_from_json(topology_to_json(built))


def _slit_distances(tree: HwlocTree, kernel_nodes: Sequence[SysfsNode]) -> SlitDistances | None:
    """Return the SLIT from /sys, which also has nodes without memory, or else from hwloc."""
    # Each row of the SLIT has a column for each online node. If a captured /sys lacks nodes, nobody
    # knows to which nodes the columns belong.
    if kernel_nodes and all(len(node.distances) == len(kernel_nodes) for node in kernel_nodes):
        indexes = tuple(node.os_index for node in kernel_nodes)
        return SlitDistances(indexes, tuple(node.distances for node in kernel_nodes))
    return tree.slit_distances()


def _huge_page_pools(
    kernel_nodes: Sequence[SysfsNode], sysfs: SysfsReader
) -> tuple[HugePagePool, ...]:
    """Return the reserved huge pages of each node, or of a machine whose kernel has no NUMA."""
    pools: dict[int | None, dict[int, int]]
    pools = {node.os_index: node.huge_pages for node in kernel_nodes if node.huge_pages}
    return tuple(
        HugePagePool(node, size, pages)
        for node, sizes in (pools or {None: sysfs.machine_huge_pages()}).items()
        for size, pages in sorted(sizes.items())
    )
