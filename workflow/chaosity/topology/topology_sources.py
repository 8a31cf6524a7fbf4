"""The sources of a topology: a live machine, an hwloc XML file, or a captured /sys.

A captured /sys is a directory with files that hwloc-gather-topology copied from a host. The runner
describes a live host as a JSON object (runner/describe_host.py).

`SysfsReader` reads facts that hwloc leaves out. Any file can be missing in a captured /sys. On a
live machine a file can disappear or be unreadable (a device in reset, a file for root only). If a
file is missing or unreadable, methods return None, an empty set or an empty list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lxml import etree

from chaosity.cpusets import CpuSet, parse_cpu_list, parse_mask
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.runner.describe_host import read_machine_facts
from chaosity.topology import hwloc

_KIB_BYTES = 1024
# Linux gives the size of a block device in sectors of 512 bytes, even if the sectors of the device
# have another size (block/blk.h).
_SECTOR_BYTES = 512
# Transfer rate of a PCIe lane in GT/s -> share of the transferred bits that are payload. The
# encoding is 8b/10b up to generation 2 and 128b/130b up to generation 5. From generation 6 on, 242
# of the 256 bytes of a flit are payload (PCI Express Base Specification; hwloc counts in the same
# way).
_PAYLOAD_SHARE_OF_TRANSFER_RATE = {
    2.5: 8 / 10,
    5.0: 8 / 10,
    8.0: 128 / 130,
    16.0: 128 / 130,
    32.0: 128 / 130,
}
_PAYLOAD_SHARE_OF_FLIT = 242 / 256


@dataclass(frozen=True)
class SysfsNode:
    """What /sys says about a NUMA node; a value is None if its file is missing."""

    os_index: int
    cpus: CpuSet | None
    memory_bytes: int | None
    distances: tuple[int, ...]
    huge_pages: dict[int, int]


class SysfsReader:
    """Reads files of /sys and /proc from this machine, a captured /sys, or a dict path -> text."""

    def __init__(self, files: Path | Mapping[str, str]) -> None:
        self.files = files

    def read_text(self, path: str) -> str | None:
        """Return a file's text without surrounding white space; None if the file cannot be read."""
        try:
            if isinstance(self.files, Mapping):
                found = self.files[path]
            else:
                found = (self.files / path).read_text(errors="replace")
        except (KeyError, OSError):
            return None
        return found.strip("\0 \t\n")

    def read_number(self, path: str) -> int | None:
        """Return the decimal number in a file; None if missing, unreadable or no number."""
        try:
            return int(self.read_text(path) or "")
        except ValueError:
            return None

    def read_cpu_list(self, path: str) -> CpuSet | None:
        """Return the numbers of a Linux list in a file; None if the file has no Linux list."""
        text = self.read_text(path)
        try:
            return None if text is None else parse_cpu_list(text)
        except ValueError:
            return None

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if the directory does not exist."""
        if isinstance(self.files, Mapping):
            inside = (
                name.removeprefix(f"{path}/") for name in self.files if name.startswith(f"{path}/")
            )
            return sorted({name.partition("/")[0] for name in inside})
        try:
            return sorted(item.name for item in (self.files / path).iterdir())
        except OSError:
            return []

    def read_nodes(self) -> tuple[SysfsNode, ...]:
        """Return all online nodes, which are those with a directory in /sys, by OS index.

        The kernel's list `has_memory` is not used, because it still has nodes that were
        hot-removed.
        """
        base = "sys/devices/system/node"
        indexes = (name.removeprefix("node") for name in self.list_directory(base))
        return tuple(
            self._read_node(index) for index in sorted(int(i) for i in indexes if i.isdigit())
        )

    def _read_node(self, index: int) -> SysfsNode:
        base = f"sys/devices/system/node/node{index}"
        cpus = self.read_cpu_list(f"{base}/cpulist")
        if cpus is None and (mask := self.read_text(f"{base}/cpumap")) is not None:
            cpus = parse_mask(mask)
        distances = tuple(int(word) for word in (self.read_text(f"{base}/distance") or "").split())
        huge_pages = self._huge_page_counts(f"{base}/hugepages")
        return SysfsNode(index, cpus, self._node_memory_bytes(base), distances, huge_pages)

    def _node_memory_bytes(self, base: str) -> int | None:
        for line in (self.read_text(f"{base}/meminfo") or "").splitlines():
            words = line.split()  # Node 0 MemTotal:  24683520 kB
            if len(words) >= 4 and words[2] == "MemTotal:":
                return int(words[3]) * _KIB_BYTES
        return None

    def _huge_page_counts(self, base: str) -> dict[int, int]:
        """Return size of a huge page in bytes -> number of reserved pages of this size."""
        pools = {}
        for name in self.list_directory(base):
            size_kib = name.removeprefix("hugepages-").removesuffix("kB")
            pages = self.read_number(f"{base}/{name}/nr_hugepages")
            if size_kib.isdigit() and pages is not None:
                pools[int(size_kib) * _KIB_BYTES] = pages
        return pools

    def machine_huge_pages(self) -> dict[int, int]:
        """Return page size in bytes -> number of pages reserved on the whole machine."""
        return self._huge_page_counts("sys/kernel/mm/hugepages")

    def present_bytes(self, page_bytes: int) -> dict[int, int]:
        """Return node -> bytes of memory that firmware provided, from the node's `present` pages.

        The MemTotal of a node depends on a memory balloon and on the memory that the kernel
        reserved at boot. The number of `present` pages depends neither on the balloon nor on this
        reserved memory.
        """
        present: dict[int, int] = {}
        node = None
        for line in (self.read_text("proc/zoneinfo") or "").splitlines():
            words = line.split()
            if line.startswith("Node ") and "zone" in words:
                node = int(words[1].rstrip(","))
            elif node is not None and len(words) == 2 and words[0] == "present":
                present[node] = present.get(node, 0) + int(words[1]) * page_bytes
        return present

    def common_package_of_pus(self, cpus: CpuSet) -> int | None:
        """Return the only package of these processing units; None if several or unknown."""
        folders = (f"sys/devices/system/cpu/cpu{cpu}/topology" for cpu in cpus)
        ids = {self.read_number(f"{folder}/physical_package_id") for folder in folders}
        return ids.pop() if len(ids) == 1 else None

    def cache_line_bytes(self) -> int | None:
        """Return the bytes of a cache line of the first processor, from /sys or /proc/cpuinfo."""
        line = self.read_number("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size")
        text = self.read_cpuinfo().get("clflush size", "")
        return line or (int(text) if text.isdigit() else None)

    def read_cpuinfo(self) -> dict[str, str]:
        """Return the entries of the first processor in /proc/cpuinfo."""
        first = (self.read_text("proc/cpuinfo") or "").partition("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        return {key.strip(): value.strip() for key, _, value in pairs}

    def memory_tiers(self) -> dict[int, int]:
        """Return node -> the kernel's memory tier (Linux 6.1 and later); a lower tier is faster."""
        base, tiers = "sys/devices/virtual/memory_tiering", {}
        for name in self.list_directory(base):
            number = name.removeprefix("memory_tier")
            if number.isdigit():
                for node in self.read_cpu_list(f"{base}/{name}/nodelist") or ():
                    tiers[node] = int(number)
        return tiers

    def pci_function_node(self, pci: str) -> int | None:
        """Return the nearest node of a PCI function by the firmware; None if unknown (-1)."""
        node = self.read_number(f"sys/bus/pci/devices/{pci}/numa_node")
        return None if node is None or node < 0 else node

    def pci_link_bytes_per_second(self, pci: str, which: str) -> int | None:
        """Return bytes/s of the link of a PCI function; `which` is `current` or `max`."""
        base = f"sys/bus/pci/devices/{pci}/{which}_link"
        speed, width = self.read_text(f"{base}_speed"), self.read_number(f"{base}_width")
        try:
            rate = float((speed or "").split()[0])  # 16.0 GT/s PCIe
        except (IndexError, ValueError):  # "Unknown"
            return None
        if not width or width == 255:  # 255: unknown (drivers/pci/pci-sysfs.c)
            return None
        return link_bytes_per_second(rate, width)

    def network_bytes_per_second(self, name: str) -> int | None:
        """Return the rate of a network interface in bytes/s; None without a link or known rate."""
        megabits = self.read_number(f"sys/class/net/{name}/speed") or 0
        return megabits * 10**6 // 8 if megabits > 0 else None

    def block_device_bytes(self, name: str) -> int | None:
        """Return the size of a block device in bytes."""
        sectors = self.read_number(f"sys/class/block/{name}/size")
        return None if sectors is None else sectors * _SECTOR_BYTES

    def block_device_text(self, name: str, attribute: str) -> str | None:
        """Return an attribute of a block device's hardware: serial, model or firmware_rev."""
        return self.read_text(f"sys/class/block/{name}/device/{attribute}") or None


def link_bytes_per_second(gigatransfers: float, lanes: int) -> int:
    """Return the bytes per second of a PCIe link in one direction, without encoding overhead."""
    share = _PAYLOAD_SHARE_OF_TRANSFER_RATE.get(gigatransfers, _PAYLOAD_SHARE_OF_FLIT)
    return int(gigatransfers * 1e9 * share * lanes / 8)


LIVE_SOURCE = "live"

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# A larger description is refused. The description of a host with 192 processing units has less than
# 2 MB.
_MOST_DESCRIPTION_BYTES = 2**27


@dataclass(frozen=True)
class TopologySource:
    """An opened source of a topology: its hwloc XML and, if available, files of the kernel."""

    name: str  # name of the file or directory, or "live"
    kind: str  # live, xml or sysfs
    xml: etree._Element  # hwloc's XML, format 2
    # Reader of files in the source's /sys and /proc; a source of the kind xml lacks these files.
    sysfs: SysfsReader = field(default_factory=lambda: SysfsReader({}))
    # Facts about a live machine, as `runner.describe_host.read_machine_facts` returns them.
    facts: Mapping[str, Any] = field(default_factory=dict)


def open_topology_source(name: str) -> TopologySource:
    """Open `live`, an hwloc XML file, or a directory with a captured /sys.

    A JSON file is read as the description that the runner made of a live host.

    Raises:
        UserError: the source cannot be read, or hwloc is missing or too old for it.
    """
    path = Path(name)
    if name == LIVE_SOURCE:
        xml, sysfs = hwloc.run_lstopo("this machine"), SysfsReader(Path("/"))
        return TopologySource(name, LIVE_SOURCE, xml, sysfs, read_machine_facts())
    if path.is_dir():
        root = _find_capture_root(path.resolve(), path)
        return TopologySource(
            name, "sysfs", hwloc.run_lstopo(name, capture=root), SysfsReader(root)
        )
    if path.suffix == ".json" and path.exists():
        facts = read_description(path)
        xml = hwloc.parse_xml(facts["topology_xml"].encode(), name)
        return TopologySource(name, LIVE_SOURCE, xml, SysfsReader(facts["files"]), facts)
    if path.name.lower().endswith(_TAR_SUFFIXES) and path.exists():
        raise UserError("the file is a tarball", name, "unpack it, and give its directory")
    return TopologySource(name, "xml", hwloc.read_hwloc_xml_as_format_2(path))


def read_description(path: Path) -> dict[str, Any]:
    """Return the description that the runner of a host made: hwloc's XML, kernel files and facts.

    Raises:
        UserError: the file is not a description, or is too large.
    """
    with malformed_as_user_error("the description of the host is broken", str(path)):
        with path.open("rb") as stream:
            text = stream.read(_MOST_DESCRIPTION_BYTES + 1)
        if len(text) > _MOST_DESCRIPTION_BYTES:
            raise ValueError(f"it has more than {_MOST_DESCRIPTION_BYTES // 2**20} MiB")
        facts = json.loads(text)
        json.dumps(
            facts, ensure_ascii=False
        ).encode()  # fails for half a surrogate pair, which no file can have
        return {**facts}


def _find_capture_root(folder: Path, source: Path) -> Path:
    """Return the directory that contains `sys`: the given folder, one in it, or its parent."""
    children = [item for item in sorted(folder.iterdir()) if item.is_dir()]
    for root in (folder, *children):
        if (root / "sys/devices/system").is_dir():
            return root
    if folder.name == "sys" and (folder / "devices/system").is_dir():
        return folder.parent
    remedy = "capture /sys with `hwloc-gather-topology NAME`, and unpack it"
    raise UserError("sys/devices/system of a captured /sys is missing", str(source), remedy)
