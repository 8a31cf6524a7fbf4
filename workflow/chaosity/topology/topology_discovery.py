"""Discover the topology of a host: the live machine, an hwloc XML file, or a captured /sys."""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from chaosity.errors import UserError, malformed_as_user_error
from chaosity.topology.accelerators import units_of_processor
from chaosity.topology.devices import DeviceMaker, list_opencl_devices
from chaosity.topology.host_facts import find_memory_peak, read_host_facts
from chaosity.topology.hwloc import HwlocTree
from chaosity.topology.numa_nodes import discover_nodes, find_restrictions, usable_cpus
from chaosity.topology.processors import CoreAndCacheMaker
from chaosity.topology.sysfs_reader import SysfsNode, SysfsReader
from chaosity.topology.topology_model import Topology, topology_from_json, topology_to_json
from chaosity.topology.topology_parts import HugePagePool, SlitDistances
from chaosity.topology.topology_sources import LIVE, TopologySource, open_topology_source

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
        return _build(opened), _xml(opened)  # in this order, since `_xml` changes the source


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
        opencl_devices=list_opencl_devices(source.opencl, tree, gpus, nodes),
        accelerators=(*units_of_processor(facts), *devices.make_accelerators()),
        nics=devices.make_nics(),
        core_kinds=kinds,
        distances=_distances(tree, kernel_nodes),
        caches=caches,
        memory_attributes=tree.memory_attributes(),
        memory_peak=find_memory_peak(source.module_table, nodes, counts.packages, may_be_virtual),
        cache_line_bytes=next(filter(None, lines), None) or sysfs.cache_line_bytes(),
        dies=structure.make_dies(),
        huge_page_pools=_huge_pages(kernel_nodes, sysfs),
        restrictions=find_restrictions(tree, nodes, online),
        counts=counts,
        host=facts,
    )
    # What a file of the results cannot hold, such as a number above 64 bits, is refused here.
    return topology_from_json(topology_to_json(built))


def _distances(tree: HwlocTree, kernel_nodes: Sequence[SysfsNode]) -> SlitDistances | None:
    """Return the SLIT from /sys, which has rows for nodes without memory, or else from hwloc."""
    # A row has a column for each online node. If nodes are missing in a capture, it is unknown to
    # which nodes the columns belong.
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
