"""Read hwloc's XML (format 2) as a tree of Python objects, with sets instead of masks.

This module interprets nothing; `packages_cores_and_caches`, `numa_nodes` and
`drives_gpus_and_accelerators` interpret the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from chaosity.cpusets import CpuSet, parse_mask
from chaosity.topology.topology_model import CoreKind, MemoryAttribute, SlitDistances

IO_TYPES = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_MIB = 2**20
_MHZ = 10**6
# hwloc's memory attributes in MiB/s and ns (hwloc/memattrs.h) -> names and factors of this project.
_MEMORY_ATTRIBUTES = {
    "Bandwidth": ("bandwidth_bytes_per_second", _MIB),
    "ReadBandwidth": ("read_bandwidth_bytes_per_second", _MIB),
    "WriteBandwidth": ("write_bandwidth_bytes_per_second", _MIB),
    "Latency": ("latency_ns", 1),
    "ReadLatency": ("read_latency_ns", 1),
    "WriteLatency": ("write_latency_ns", 1),
}


@dataclass
class HwlocObject:
    """An object of the tree; the sets of I/O objects are empty."""

    type: str
    attributes: dict[str, str]
    infos: dict[str, str]
    parent: HwlocObject | None
    children: list[HwlocObject] = field(default_factory=list)
    cpus: CpuSet = ()
    complete_cpus: CpuSet = ()
    nodes: CpuSet = ()
    complete_nodes: CpuSet = ()

    @property
    def os_index(self) -> int | None:
        """Return the number of the object in the operating system; None without such a number."""
        return self.attribute_number("os_index")

    @property
    def required_os_index(self) -> int:
        """Return the OS index of a node, processing unit or package, which always has one."""
        return int(self.attributes["os_index"])

    @property
    def name(self) -> str | None:
        """Return the name of an OS device, such as nvme0n1."""
        return self.attributes.get("name")

    @property
    def finer_type(self) -> str | None:
        """Return hwloc's subtype, such as MCDRAM for a node or CUDA for a device."""
        return self.attributes.get("subtype")

    def attribute_number(self, attribute: str) -> int | None:
        """Return an attribute as a whole number; None if it is missing or no whole number."""
        text = self.attributes.get(attribute)
        return None if text is None else int(text)

    def walk_subtree(self) -> Iterator[HwlocObject]:
        """Yield this object and all objects below it, in hwloc's order."""
        yield self
        for child in self.children:
            yield from child.walk_subtree()

    def objects_of_type(self, type_name: str) -> list[HwlocObject]:
        """Return all objects of a type at or below this object, in hwloc's order."""
        return [item for item in self.walk_subtree() if item.type == type_name]

    def ancestors_up_to_machine(self) -> Iterator[HwlocObject]:
        """Yield the parent, its parent, and so on up to the machine."""
        item = self.parent
        while item is not None:
            yield item
            item = item.parent

    def nearest_ancestor(self, type_name: str) -> HwlocObject | None:
        """Return the nearest ancestor of this type; None without one."""
        return next(
            (item for item in self.ancestors_up_to_machine() if item.type == type_name), None
        )


class HwlocTree:
    """The objects of a topology, and the tables after the objects in the file."""

    def __init__(self, root: etree._Element) -> None:
        self.machine = _object(next(root.iterfind("object")), None)
        packages = self.machine.objects_of_type("Package")
        if any(package.os_index is None for package in packages):  # as hwloc on Windows writes them
            for index, package in enumerate(packages):
                package.attributes["os_index"] = str(index)
        self._root = root

    @property
    def page_bytes(self) -> int:
        """Return the size of base pages in bytes: the first that a node lists, else 4 KiB."""
        page = self._root.find(".//page_type")
        return 4096 if page is None else int(page.attrib["size"])

    @property
    def allowed_cpus(self) -> CpuSet:
        """Return the processing units that the cgroup allows."""
        return parse_mask(self.machine.attributes["allowed_cpuset"])

    @property
    def allowed_nodes(self) -> CpuSet:
        """Return the NUMA nodes whose memory the cgroup allows."""
        return parse_mask(self.machine.attributes["allowed_nodeset"])

    def slit_distances(self) -> SlitDistances | None:
        """Return the SLIT, or None. The SLIT has no name in files converted from hwloc 1."""
        tables = [
            item for item in self._root.iterfind("distances2") if item.get("type") == "NUMANode"
        ]
        tables.sort(key=lambda item: item.get("name") != "NUMALatency")
        if not tables:
            return None
        table, indexes = tables[0], _numbers(tables[0], "indexes")
        if table.get("indexing") == "gp":
            nodes = self._nodes_by_gp_index()
            indexes = [nodes[index] for index in indexes]
        values, size = _numbers(table, "u64values"), len(indexes)
        rows = tuple(tuple(values[row * size : (row + 1) * size]) for row in range(size))
        return SlitDistances(tuple(indexes), rows)

    def _nodes_by_gp_index(self) -> dict[int | None, int]:
        """Return hwloc's global persistent index (used by tables) -> OS index of the node."""
        return {
            node.attribute_number("gp_index"): node.required_os_index
            for node in self.machine.objects_of_type("NUMANode")
        }

    def memory_attributes(self) -> tuple[MemoryAttribute, ...]:
        """Return the HMAT's bandwidths and latencies, one item for each target and initiator."""
        nodes = self._nodes_by_gp_index()
        attributes = []
        for table in self._root.iterfind("memattr"):
            if (known := _MEMORY_ATTRIBUTES.get(table.get("name", ""))) is None:
                continue
            name, factor = known
            for item in table.iterfind("memattr_value"):
                target = nodes.get(int(item.attrib["target_obj_gp_index"]))
                cpus = item.get("initiator_cpuset")
                if target is not None and cpus:
                    value = int(item.attrib["value"]) * factor
                    attributes.append(MemoryAttribute(name, target, parse_mask(cpus), value))
        return tuple(attributes)

    def core_kinds(self) -> Iterator[CoreKind]:
        """Yield the core kinds in ascending order of hwloc's efficiency rank; none if unknown."""
        for index, item in enumerate(self._root.iterfind("cpukind")):
            infos = _infos(item)
            yield CoreKind(
                index,
                parse_mask(item.get("cpuset", "0x0")),
                int(item.attrib["forced_efficiency"]) if item.get("forced_efficiency") else None,
                _hertz(infos.get("FrequencyBaseMHz", "")),
                _hertz(infos.get("FrequencyMaxMHz", "")),
                infos.get("CoreType"),
            )


def _hertz(megahertz: str) -> int | None:
    return int(megahertz) * _MHZ if megahertz.isdigit() else None


def _object(element: etree._Element, parent: HwlocObject | None) -> HwlocObject:
    attributes = {str(name): str(value) for name, value in element.attrib.items()}
    item = HwlocObject(
        attributes.pop("type"),
        attributes,
        _infos(element),
        parent,
        cpus=parse_mask(attributes.get("cpuset", "0x0")),
        complete_cpus=parse_mask(attributes.get("complete_cpuset", "0x0")),
        nodes=parse_mask(attributes.get("nodeset", "0x0")),
        complete_nodes=parse_mask(attributes.get("complete_nodeset", "0x0")),
    )
    item.children = [_object(child, item) for child in element.iterfind("object")]
    return item


def _infos(element: etree._Element) -> dict[str, str]:
    return {item.get("name", ""): item.get("value", "") for item in element.iterfind("info")}


def _numbers(table: etree._Element, tag: str) -> list[int]:
    """Return the numbers of all `tag` elements; hwloc breaks a table into lines of ten."""
    return [int(word) for item in table.iterfind(tag) for word in (item.text or "").split()]
