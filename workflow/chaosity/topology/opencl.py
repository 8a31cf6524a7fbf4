"""OpenCL devices: by clinfo where a host told what it prints, else as hwloc's XML shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chaosity.runner.opencl import devices as printed_devices
from chaosity.runner.opencl import whole
from chaosity.topology.device_model import Gpu, OpenclDevice
from chaosity.topology.host_model import Node
from chaosity.topology.hwloc_xml import HwlocTree

# Devices with memory of their own come first, the processor last.
_ORDER = ("gpu", "accelerator", "other", "cpu")
_HWLOC_TYPES = {"GPU": "gpu", "CPU": "cpu", "Accelerator": "accelerator"}


def opencl_devices(
    said: str | None, tree: HwlocTree, gpus: tuple[Gpu, ...], nodes: tuple[Node, ...]
) -> tuple[OpenclDevice, ...]:
    """All OpenCL devices, named `opencl0`, `opencl1`, ... in an order that no driver changes.

    A device without a slot has no known node, unless the machine has only one with processors.

    Args:
        said: what `clinfo --raw` printed on the host; None for an XML alone.
        tree: hwloc's, whose OpenCL devices count where there is nothing of clinfo's.
        gpus: those found, whose node a device at the same slot has too.
        nodes: all nodes.
    """
    found = _printed(said) if said else tuple(_shown(tree))
    node_of = {gpu.pci: gpu.node for gpu in gpus if gpu.pci}
    with_cpus = [node.os_index for node in nodes if node.shown_cpus]
    only = with_cpus[0] if len(with_cpus) == 1 else None
    ordered = sorted(
        found,
        key=lambda one: (
            _ORDER.index(one.type), one.pci or "~", one.platform, one.device, one.twin,
        ),
    )  # fmt: skip
    return tuple(
        replace(one, name=f"opencl{number}", node=node_of.get(one.pci, only))
        for number, one in enumerate(ordered)
    )


def _printed(said: str) -> tuple[OpenclDevice, ...]:
    numbers = ("platform_number", "device_number")
    return tuple(
        OpenclDevice(name="", **{key: one[key] for key in one if key not in numbers})
        for one in printed_devices(said)
    )


def _shown(tree: HwlocTree) -> Iterator[OpenclDevice]:
    """What hwloc was built to see; it keeps the processor out."""
    for item in tree.machine.all("OSDev"):
        if item.subtype != "OpenCL":
            continue
        infos, function = item.infos, item.ancestor("PCIDev")
        size = whole(infos.get("OpenCLGlobalMemorySize"))  # in KiB
        yield OpenclDevice(
            name="",
            platform=infos.get("OpenCLPlatformName", "unknown"),
            device=infos.get("GPUModel", item.name or "unknown"),
            type=_HWLOC_TYPES.get(infos.get("OpenCLDeviceType", ""), "other"),
            twin=whole(infos.get("OpenCLPlatformDeviceIndex")) or 0,
            vendor=infos.get("GPUVendor"),
            compute_units=whole(infos.get("OpenCLComputeUnits")),
            memory_bytes=None if size is None else size * 1024,
            pci=function.attributes.get("pci_busid") if function else None,
        )
