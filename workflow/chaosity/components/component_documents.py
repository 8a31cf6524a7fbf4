"""What each component of a host is, as JSON values that change only when the component does.

A component is named for its place (`node3`, `drive-0000-41-00-0`: the PCI address, so the slot)
and its content says what is there. Replacing a drive changes the content of one component, and
the points that depend on it are measured again; renaming `nvme3n1` to `nvme1n1` changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chaosity.topology import (
    Drive,
    Gpu,
    Node,
    OpenclDevice,
    Package,
    Topology,
    configuration_name,
    format_cpu_list,
)

SYSTEM = "system"
Document = dict[str, Any]

# Firmware reserves some pages more or fewer from boot to boot; no memory module is that small.
_MEMORY_STEP_BYTES = 64 * 2**20
_NAMESPACE = re.compile(r"nvme\d+n(\d+)")


def component_documents(
    topology: Topology,
    tools: Mapping[str, str] | None = None,
    extra_drives: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Document]:
    """All components of a host by name.

    Args:
        topology: what was discovered.
        tools: versions or hashes of tools and kernels, for the system component.
        extra_drives: documents of drives that discovery does not know, such as a file that
            stands in for a drive.
    """
    documents: dict[str, Document] = {SYSTEM: system_document(topology, tools or {})}
    for package in topology.packages:
        documents[package_component(package)] = _package(package, topology)
    for node in topology.nodes:
        documents[node_component(node)] = _node(node, topology)
    for drive in topology.drives:
        if drive.name:  # without a block device nothing can be measured
            documents[drive_component_name(drive)] = _drive(drive)
    for gpu in topology.gpus:
        if gpu.compute:
            documents[gpu_component_name(gpu)] = _gpu(gpu)
    for device in topology.opencl_devices:
        documents[device.name] = _opencl_device(device)
    for name, document in (extra_drives or {}).items():
        documents[name] = dict(document)
    return documents


def package_component(package: Package) -> str:
    """`package1`."""
    return f"package{package.os_index}"


def node_component(node: Node) -> str:
    """`node3`."""
    return f"node{node.os_index}"


def drive_component_name(drive: Drive) -> str:
    """`drive-0000-41-00-0`: the slot; of a further namespace `drive-0000-41-00-0-n2`.

    A drive without a PCI address (NVMe over fabrics) is named for its serial, and one without
    that for the namespace, which may then change from boot to boot.
    """
    if drive.pci is None:
        return f"drive-{_word(drive.serial or drive.name or 'unknown')}"
    match = _NAMESPACE.fullmatch(drive.name or "")
    further = f"-n{match[1]}" if match and match[1] != "1" else ""
    return f"drive-{_word(drive.pci)}{further}"


def gpu_component_name(gpu: Gpu) -> str:
    """`gpu-0000-06-00-0`."""
    return f"gpu-{_word(gpu.pci or gpu.name or 'unknown')}"


def _word(text: str) -> str:
    """Text as part of a component's name: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def system_document(topology: Topology, tools: Mapping[str, str]) -> Document:
    """What changes every number of a host and is the same after a reboot."""
    facts = {key: value for key, value in topology.host.items() if key != "name"}
    return {
        "component": SYSTEM,
        "configuration": configuration_name(topology),
        **facts,
        "cache_line_bytes": topology.cache_line_bytes,
        "offline_cpus": format_cpu_list(topology.restrictions.offline_cpus),
        "huge_page_pools": [
            {"node": pool.node, "page_bytes": pool.page_bytes, "pages": pool.pages}
            for pool in topology.huge_page_pools
        ],
        "tools": dict(tools),
    }


def _package(package: Package, topology: Topology) -> Document:
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


def _node(node: Node, topology: Topology) -> Document:
    """A node; its memory is what firmware gave it, which a memory balloon does not change."""
    return {
        "component": "node",
        "os_index": node.os_index,
        "package": node.package,
        "cpus": format_cpu_list(node.cpus),
        "memory_bytes": _steady_memory(node),
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


def _steady_memory(node: Node) -> int | None:
    if node.present_bytes is None:
        return node.memory_bytes
    return round(node.present_bytes / _MEMORY_STEP_BYTES) * _MEMORY_STEP_BYTES


def _distances(node: Node, topology: Topology) -> dict[str, int]:
    """Distances from this node to all that the table knows."""
    table = topology.distances
    if table is None or node.os_index not in table.nodes:
        return {}
    row = table.matrix[table.nodes.index(node.os_index)]
    return {str(other): distance for other, distance in zip(table.nodes, row, strict=True)}


def _drive(drive: Drive) -> Document:
    """A drive without its kernel name, which may be another after the next boot."""
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


def _gpu(gpu: Gpu) -> Document:
    """A GPU; which libraries show it depends on what is installed, not on the GPU."""
    return {
        "component": "gpu",
        "pci": gpu.pci,
        "model": gpu.model,
        "serial": gpu.serial,
        "memory_bytes": gpu.memory_bytes,
        "node": gpu.node,
    }


def _opencl_device(device: OpenclDevice) -> Document:
    """A device with the driver that runs it.

    The memory of a processor is that of its nodes, and a memory balloon changes what OpenCL says.
    """
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
