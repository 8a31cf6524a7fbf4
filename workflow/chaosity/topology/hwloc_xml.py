"""hwloc's XML (format 2) as a tree of Python objects with real sets instead of masks.

Nothing is interpreted here; `structure`, `nodes` and `devices` do that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from chaosity.cpusets import CpuSet, parse_mask
from chaosity.topology.host_model import Distances, MemoryAttribute

IO_TYPES = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_MIB = 2**20
_MHZ = 10**6
# hwloc's memory attributes in its units (hwloc/memattrs.h: MiB/s and nanoseconds) -> ours.
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
    """One object of the tree; sets are empty for I/O objects, which have none."""

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
        """What the operating system calls it; None for objects without an OS index."""
        text = self.attributes.get("os_index")
        return None if text is None else int(text)

    @property
    def name(self) -> str | None:
        """The name of an OS device, such as nvme0n1."""
        return self.attributes.get("name")

    @property
    def subtype(self) -> str | None:
        """The finer type, such as MCDRAM for a node or CUDA for a device."""
        return self.attributes.get("subtype")

    def number(self, attribute: str) -> int | None:
        """An attribute that is a whole number, or None."""
        text = self.attributes.get(attribute)
        return None if text is None else int(text)

    def walk(self) -> Iterator[HwlocObject]:
        """This object and all below it, in hwloc's order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all(self, type_name: str) -> list[HwlocObject]:
        """All objects of a type at or below this one, in hwloc's order."""
        return [item for item in self.walk() if item.type == type_name]

    def ancestors(self) -> Iterator[HwlocObject]:
        """The parent, its parent, and so on up to the machine."""
        item = self.parent
        while item is not None:
            yield item
            item = item.parent

    def ancestor(self, type_name: str) -> HwlocObject | None:
        """The nearest ancestor of a type."""
        return next((item for item in self.ancestors() if item.type == type_name), None)


@dataclass(frozen=True)
class RawCpuKind:
    """One kind of processing units, as hwloc ranks them from slow to fast."""

    cpus: CpuSet
    efficiency: int | None
    infos: dict[str, str]

    def megahertz(self, name: str) -> int | None:
        """A frequency in Hz from an info in MHz, or None."""
        text = self.infos.get(name)
        return int(text) * _MHZ if text and text.isdigit() else None


class HwlocTree:
    """The objects of one topology, and the tables that follow them in the file."""

    def __init__(self, root: etree._Element) -> None:
        self.machine = _object(root.find("object"), None)
        self._root = root

    @property
    def page_bytes(self) -> int | None:
        """The ordinary page size: the first that a node lists."""
        page = self._root.find(".//page_type")
        return None if page is None else int(page.get("size"))

    @property
    def allowed_cpus(self) -> CpuSet:
        """Processing units that the cgroup allows."""
        return parse_mask(self.machine.attributes["allowed_cpuset"])

    @property
    def allowed_nodes(self) -> CpuSet:
        """NUMA nodes whose memory the cgroup allows."""
        return parse_mask(self.machine.attributes["allowed_nodeset"])

    def distances(self) -> Distances | None:
        """The NUMA latencies (SLIT), or None; hwloc names them, conversions of version 1 do not."""
        tables = [
            item for item in self._root.iterfind("distances2") if item.get("type") == "NUMANode"
        ]
        tables.sort(key=lambda item: item.get("name") != "NUMALatency")
        return self._distances(tables[0]) if tables else None

    def _distances(self, table: etree._Element) -> Distances:
        indexes = _numbers(table, "indexes")
        if table.get("indexing") == "gp":
            by_gp = {
                item.number("gp_index"): item.os_index for item in self.machine.all("NUMANode")
            }
            indexes = [by_gp[index] for index in indexes]
        values, size = _numbers(table, "u64values"), len(indexes)
        rows = tuple(tuple(values[row * size : (row + 1) * size]) for row in range(size))
        return Distances(tuple(indexes), rows)

    def memory_attributes(self) -> tuple[MemoryAttribute, ...]:
        """The HMAT's bandwidths and latencies, one item per target and initiator."""
        by_gp = {item.number("gp_index"): item.os_index for item in self.machine.all("NUMANode")}
        found = []
        for table in self._root.iterfind("memattr"):
            if table.get("name") not in _MEMORY_ATTRIBUTES:
                continue
            name, factor = _MEMORY_ATTRIBUTES[table.get("name")]
            for item in table.iterfind("memattr_value"):
                target = by_gp.get(int(item.get("target_obj_gp_index")))
                if target is not None and item.get("initiator_cpuset"):
                    cpus = parse_mask(item.get("initiator_cpuset"))
                    value = int(item.get("value")) * factor
                    found.append(MemoryAttribute(name, target, cpus, value))
        return tuple(found)

    def cpu_kinds(self) -> tuple[RawCpuKind, ...]:
        """The CPU kinds, least efficient first; empty where the source tells nothing."""
        return tuple(
            RawCpuKind(
                parse_mask(item.get("cpuset")),
                int(item.get("forced_efficiency")) if item.get("forced_efficiency") else None,
                _infos(item),
            )
            for item in self._root.iterfind("cpukind")
        )


def _object(element: etree._Element, parent: HwlocObject | None) -> HwlocObject:
    attributes = dict(element.attrib)
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
    return {item.get("name"): item.get("value", "") for item in element.iterfind("info")}


def _numbers(table: etree._Element, tag: str) -> list[int]:
    """The numbers of all `tag` elements; hwloc breaks a table into lines of ten."""
    return [int(word) for item in table.iterfind(tag) for word in (item.text or "").split()]
