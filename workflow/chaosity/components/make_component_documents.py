"""Makes the document of each component of a host: JSON values that change only with the component.

A component is named after its place (`node3`, or `drive-0000-41-00-0` after the PCI address, so the
slot). Its document describes the part in that place. When a drive is replaced, the document of one
component changes, and the points that depend on it are measured again. When `nvme3n1` becomes
`nvme1n1`, nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypedDict

from chaosity.cpusets import format_cpu_list
from chaosity.place_names import PlaceName, node_name, package_name
from chaosity.records.point_types import DriveFacts
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.device_types import Drive, Gpu, OpenclDevice
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_model import Node, Package, Topology

SYSTEM = "system"
# Firmware reserves a few pages more or fewer from boot to boot; no memory module is that small.
_MEMORY_STEP_BYTES = 64 * 2**20
_NAMESPACE = re.compile(r"nvme\d+n(\d+)")


class HugePageFacts(TypedDict):
    """Huge pages reserved on a node, or on the whole machine (`node` null)."""

    node: int | None
    page_bytes: int
    pages: int


class SystemDocument(HostFacts):
    """Facts that affect all results of a host and stay the same after a reboot."""

    component: Literal["system"]
    configuration: str
    cache_line_bytes: int | None
    offline_cpus: str
    huge_page_pools: list[HugePageFacts]
    tools: dict[str, str]


class CacheFacts(TypedDict):
    """A group of equal caches, each shared by `pus` processing units."""

    level: int
    kind: str
    size_bytes: int | None
    pus: int


class PackageDocument(TypedDict):
    """A package with its cores and caches."""

    component: Literal["package"]
    os_index: int
    model: str | None
    cpus: str
    nodes: list[int]
    cores: int
    pus_per_core: list[int]
    caches: list[CacheFacts]


class MemoryAttributeFacts(TypedDict):
    """A value of the HMAT for a node, seen from some processing units."""

    name: str
    initiator_cpus: str
    value: float


class NodeDocument(TypedDict):
    """A node; `distances` are its row of the SLIT, by node."""

    component: Literal["node"]
    os_index: int
    package: int | None
    cpus: str
    memory_bytes: int | None
    memory_side_cache_bytes: int | None
    kind: str
    tier: int | None
    initiator: bool
    target: bool
    distances: dict[str, int]
    memory_attributes: list[MemoryAttributeFacts]


class DriveDocument(TypedDict):
    """A drive, without the kernel's name for it, which can change with the next boot."""

    component: Literal["drive"]
    pci: str | None
    serial: str | None
    model: str | None
    firmware: str | None
    size_bytes: int | None
    link_bytes_per_second: int | None
    node: int | None


class GpuDocument(TypedDict):
    """A GPU, without the libraries that show it, which depend on the installation."""

    component: Literal["gpu"]
    pci: str | None
    model: str | None
    serial: str | None
    memory_bytes: int | None
    node: int | None


class OpenclDocument(TypedDict):
    """An OpenCL device with its driver."""

    component: Literal["opencl_device"]
    platform: str
    device: str
    type: str
    driver: str | None
    compute_units: int | None
    memory_bytes: int | None
    pci: str | None
    node: int | None


# `DriveFacts` describes a block device or file of the inventory; its `component` is its name.
ComponentDocument = (
    SystemDocument
    | PackageDocument
    | NodeDocument
    | DriveDocument
    | GpuDocument
    | OpenclDocument
    | DriveFacts
)
Components = Mapping[str, ComponentDocument]


def make_component_documents(
    topology: Topology,
    tools: Mapping[str, str] | None = None,
    extra_drives: Mapping[str, DriveFacts] | None = None,
) -> dict[str, ComponentDocument]:
    """Returns the documents of all components of a host, by name.

    Args:
        topology: of the host.
        tools: version and hash of each tool, for the system component.
        extra_drives: all drives of the inventory by component; drives that discovery knows already
            are ignored.
    """
    drives = [drive for drive in topology.drives if drive.name]  # others cannot be measured
    documents: dict[str, ComponentDocument] = {
        SYSTEM: make_system_document(topology, tools or {}),
        **{package_name(part.os_index): _package(part, topology) for part in topology.packages},
        **{node_name(part.os_index): _node(part, topology) for part in topology.nodes},
        **{drive_component_name(drive): _drive(drive) for drive in drives},
        **{gpu_component_name(gpu): _gpu(gpu) for gpu in topology.compute_gpus},
        **{device.name: _opencl_device(device) for device in topology.opencl_devices},
    }
    for name, drive in (extra_drives or {}).items():
        documents.setdefault(name, drive)
    return documents


def drive_component_name(drive: Drive) -> str:
    """Returns `drive-0000-41-00-0` after the slot; a second namespace is `drive-0000-41-00-0-n2`.

    A drive without a PCI address (NVMe over fabrics) is named after its serial number, else after
    its namespace, which may change from boot to boot.
    """
    if drive.pci is None:
        address = _word(drive.serial or drive.name or "unknown")
    else:
        match = _NAMESPACE.fullmatch(drive.name or "")
        further = f"-n{match[1]}" if match and match[1] != "1" else ""
        address = f"{_word(drive.pci)}{further}"
    return str(PlaceName("drive", address=address))


def gpu_component_name(gpu: Gpu) -> str:
    """Returns `gpu-0000-06-00-0` after the slot."""
    return str(PlaceName("gpu", address=_word(gpu.pci or gpu.name or "unknown")))


def _word(text: str) -> str:
    """Text as part of a component's name: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def make_system_document(topology: Topology, tools: Mapping[str, str]) -> SystemDocument:
    """Returns the facts that affect all results of a host and stay the same after a reboot."""
    facts = topology.host.copy()
    facts.pop("name", None)
    return {
        **facts,
        "component": "system",
        "configuration": configuration_name(topology),
        "cache_line_bytes": topology.cache_line_bytes,
        "offline_cpus": format_cpu_list(topology.restrictions.offline_cpus),
        "huge_page_pools": [
            {"node": pool.node, "page_bytes": pool.page_bytes, "pages": pool.pages}
            for pool in topology.huge_page_pools
        ],
        "tools": dict(tools),
    }


def _package(package: Package, topology: Topology) -> PackageDocument:
    cores = [core for core in topology.cores if core.package == package.os_index]
    return {
        "component": "package",
        "os_index": package.os_index,
        "model": package.model,
        "cpus": format_cpu_list(package.cpus),
        "nodes": list(package.nodes),
        "cores": len(cores),
        "pus_per_core": sorted({len(core.cpus) for core in cores}),
        "caches": [
            {"level": c.level, "kind": c.kind, "size_bytes": c.size_bytes, "pus": c.pus}
            for c in topology.caches
            if set(c.cpus) & set(package.cpus)
        ],
    }


def _node(node: Node, topology: Topology) -> NodeDocument:
    """A node; its memory is what the firmware gave to it, which no memory balloon changes."""
    return {
        "component": "node",
        "os_index": node.os_index,
        "package": node.package,
        "cpus": format_cpu_list(node.cpus),
        "memory_bytes": _steady_memory_bytes(node),
        "memory_side_cache_bytes": node.memory_side_cache_bytes,
        "kind": node.kind,
        "tier": node.tier,
        "initiator": node.initiator,
        "target": node.target,
        "distances": _distances(node, topology),
        "memory_attributes": [
            {
                "name": item.name,
                "initiator_cpus": format_cpu_list(item.initiator_cpus),
                "value": item.value,
            }
            for item in topology.memory_attributes
            if item.target == node.os_index
        ],
    }


def _steady_memory_bytes(node: Node) -> int | None:
    if node.present_bytes is None:
        return node.memory_bytes
    return round(node.present_bytes / _MEMORY_STEP_BYTES) * _MEMORY_STEP_BYTES


def _distances(node: Node, topology: Topology) -> dict[str, int]:
    """Distances from a node to all nodes of the SLIT."""
    table = topology.distances
    if table is None or node.os_index not in table.nodes:
        return {}
    row = table.matrix[table.nodes.index(node.os_index)]
    return {str(other): distance for other, distance in zip(table.nodes, row, strict=True)}


def _drive(drive: Drive) -> DriveDocument:
    return {
        "component": "drive",
        "pci": drive.pci,
        "serial": drive.serial,
        "model": drive.model,
        "firmware": drive.firmware,
        "size_bytes": drive.size_bytes,
        "link_bytes_per_second": drive.link_bytes_per_second,
        "node": drive.node,
    }


def _gpu(gpu: Gpu) -> GpuDocument:
    return {
        "component": "gpu",
        "pci": gpu.pci,
        "model": gpu.model,
        "serial": gpu.serial,
        "memory_bytes": gpu.memory_bytes,
        "node": gpu.node,
    }


def _opencl_device(device: OpenclDevice) -> OpenclDocument:
    """A device; a processor's memory is left out, because a memory balloon changes its size."""
    return {
        "component": "opencl_device",
        "platform": device.platform,
        "device": device.device,
        "type": device.type,
        "driver": device.driver,
        "compute_units": device.compute_units,
        "memory_bytes": None if device.is_processor else device.memory_bytes,
        "pci": device.pci,
        "node": device.node,
    }
