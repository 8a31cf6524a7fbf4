"""Make the drives, GPUs, OpenCL devices, accelerators and NICs of the topology model.

Each device has its nearest node. hwloc may attach a device to the machine instead of a node. A
device of the machine has the node None, unless the machine has only one node with processors.

Each file in templates/accelerators describes one kind of accelerators. An accelerator of no
described kind is named after its PCI class.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, cast

from pydantic import TypeAdapter

from chaosity.documents.reference_data import AcceleratorDocument
from chaosity.documents.shipped_documents import ROOT, read_document, yaml_file_names
from chaosity.place_names import PlaceName
from chaosity.runner.describe_host import ListedOpenclDevice
from chaosity.topology.hwloc import IO_TYPES, HwlocObject, HwlocTree
from chaosity.topology.topology_parts import (
    Accelerator,
    Gpu,
    HostFacts,
    Nic,
    Node,
    NvmeDrive,
    OpenclDevice,
    value_of_checked_json,
)
from chaosity.topology.topology_sources import SysfsReader
from chaosity.units import join_with_and

if TYPE_CHECKING:
    from chaosity.topology.topology_model import Topology


_ACCELERATORS_FOLDER = ROOT / "templates" / "accelerators"
# PCI class -> kind of accelerator (PCI Code and ID Assignment Specification).
_ACCELERATOR_OF_PCI_CLASS = {"0b40": "coprocessor", "1080": "encryption", "1200": "accelerator"}
# hwloc's numbers for two types of operating system devices.
_OSDEV_DMA, _OSDEV_COPROCESSOR = "4", "5"
_SENTENCE_ON_OTHER_ACCELERATORS = "Not measured: no load uses it."


@cache
def accelerator_kinds() -> tuple[AcceleratorDocument, ...]:
    """Return the content of each file in templates/accelerators."""
    names = yaml_file_names(_ACCELERATORS_FOLDER)
    documents = (
        read_document(_ACCELERATORS_FOLDER, n, AcceleratorDocument, str(_ACCELERATORS_FOLDER))
        for n in names
    )
    return tuple(cast(AcceleratorDocument, document) for document in documents)


def accelerators_in_processor(facts: HostFacts) -> Iterator[Accelerator]:
    """Yield the accelerators that the flags or the model of the processor reveal."""
    has = set(facts.get("cpu_flags") or ())
    for kind in accelerator_kinds():
        flags = [flag for flag in kind.get("flags", ()) if flag in has]
        model = facts.get("cpu_model") or ""
        if flags or ("cpu_model" in kind and re.match(kind["cpu_model"], model)):
            shown = " ".join(flags) or model
            yield Accelerator(shown, kind["name"], None, None, None, kind.get("part_of"))


def sentence_on_what_is_not_measured(kind: str) -> str:
    """Return a sentence on what Chaosity does not measure of a kind of accelerators."""
    return next(
        (k["not_measured"] for k in accelerator_kinds() if k["name"] == kind),
        _SENTENCE_ON_OTHER_ACCELERATORS,
    )


def accelerators_of_known_kinds(accelerators: Iterable[Accelerator]) -> list[Accelerator]:
    """Return those accelerators whose kind has a file in templates/accelerators."""
    names = {kind["name"] for kind in accelerator_kinds()}
    return [each for each in accelerators if each.kind in names]


def accelerator_texts(topology: Topology) -> list[tuple[str, str, str]]:
    """Return (kind, places, what is not measured) for each kind of accelerators of a host."""
    titles = {kind["name"]: kind["title"] for kind in accelerator_kinds()}
    kinds: dict[str, list[Accelerator]] = {}
    for each in topology.accelerators:
        kinds.setdefault(each.kind, []).append(each)
    return [
        (
            f"{kind} ({titles[kind]})" if kind in titles else kind,
            _places_text(found),
            sentence_on_what_is_not_measured(kind),
        )
        for kind, found in kinds.items()
    ]


def _places_text(found: Sequence[Accelerator]) -> str:
    """Return "4 on node 0 and 4 on node 1, driver idxd", or "in each core (amx_tile)"."""
    first = found[0]
    if first.part_of == "cores":
        return f"in each core ({first.name})"
    if first.part_of:
        return f"in the processor ({first.name})"
    numbers = Counter(each.node for each in found)
    places = [
        f"{number} on {'an unknown node' if node is None else f'node {node}'}"
        for node, number in sorted(
            numbers.items(), key=lambda item: (item[0] is None, item[0] or 0)
        )
    ]
    drivers = sorted({each.driver for each in found if each.driver})
    known = [
        f"driver {driver}" if driver != "none" else "some without a driver" for driver in drivers
    ]
    if drivers == ["none"]:
        known = ["no driver"]
    return ", ".join([join_with_and(places), *known])


_NVME_PCI_CLASS = "0108"
# With native multipath, each path to a drive is a hidden block device
# `nvme<subsystem>c<controller>n<ns>`. Programs open the block device `nvme<subsystem>n<ns>`
# (drivers/nvme/host/multipath.c).
_NVME_NAME_PATTERN = re.compile(r"nvme(?P<subsystem>\d+)(c\d+)?n(?P<namespace>\d+)")
_GPU_LIBRARIES_FOR_COMPUTING = frozenset({"CUDA", "NVML", "RSMI", "LevelZero", "OpenCL"})
# If several libraries show a GPU, the name of the GPU comes from the library that is listed first
# here. Libraries whose names the programs of the vendor use are listed first.
_GPU_LIBRARIES_IN_ORDER = ("CUDA", "RSMI", "LevelZero", "NVML", "OpenCL", "DRM", "Display")
# The PCI vendors NVIDIA, AMD and Intel make GPUs. Display devices of other vendors (ASPEED, Matrox)
# serve a remote console.
_GPU_VENDORS = frozenset({"10de", "1002", "8086"})
# PCI vendor and class of newer AMD Instinct GPUs. Newer AMD Instinct GPUs have the PCI class of
# accelerators, like Intel's NPUs.
_AMD_INSTINCT_VENDOR_AND_CLASS = ("1002", "1200")
_OSDEV_GPU, _OSDEV_NETWORK, _OSDEV_FABRIC = "123"
# PCI class of a network controller -> kind of the controller. A controller of another class, or
# without a PCI address, has the kind "network".
_NIC_KIND_OF_PCI_CLASS = {
    "0200": "ethernet",
    "0207": "infiniband",
    "0208": "fabric",
    "0c06": "infiniband",
}
# The order in which types of OpenCL devices are listed: types with separate memory come first.
_OPENCL_TYPES_IN_ORDER = ("gpu", "accelerator", "other", "cpu")
_OPENCL_TYPE_OF_HWLOC = {"GPU": "gpu", "CPU": "cpu", "Accelerator": "accelerator"}


class DeviceMaker:
    """Makes the devices of the topology model from hwloc's tree and all `nodes` of the host."""

    def __init__(self, tree: HwlocTree, nodes: tuple[Node, ...], sysfs: SysfsReader) -> None:
        self._sysfs = sysfs
        self._functions = tree.machine.objects_of_type("PCIDev")
        self._os_devices = tree.machine.objects_of_type("OSDev")
        self._known = {node.os_index for node in nodes}
        self._with_cpus = {node.os_index for node in nodes if node.shown_cpus}
        # If a GPU's memory is a node of the kernel (NVLink-C2C, POWER9), hwloc notes the PCI
        # address of the GPU in this node.
        self._node_of_gpu_memory = {
            item.infos.get("PCIBusID"): item.required_os_index
            for item in tree.machine.objects_of_type("NUMANode")
            if "PCIBusID" in item.infos
        }

    def _nearest_node(self, device: HwlocObject) -> int | None:
        """Return the nearest node of a device, preferably a node that has processing units."""
        place = next(item for item in device.ancestors_up_to_machine() if item.type not in IO_TYPES)
        near = {*place.nodes, *place.complete_nodes} or self._known
        candidates = near & self._with_cpus or near
        if len(candidates) == 1:
            return next(iter(candidates))
        pci = device.pci_address
        stated = self._sysfs.pci_function_node(pci) if pci else None
        return stated if stated in self._known else None

    def make_drives(self) -> tuple[NvmeDrive, ...]:
        """Return NVMe namespaces, and NVMe functions without a block device, by PCI address.

        Several paths to one multipath disk count as one drive.
        """
        drives: dict[str, NvmeDrive] = {}
        served: set[str | None] = set()
        for device in self._os_devices:
            if match := _NVME_NAME_PATTERN.fullmatch(device.name or ""):
                name = f"nvme{match['subsystem']}n{match['namespace']}"
                served.add(device.pci_address)
                drives.setdefault(name, self._make_drive(device, name))
        bare = [
            self._make_drive(item)
            for item in self._functions
            if item.pci_class == _NVME_PCI_CLASS and item.pci_address not in served
        ]
        order = sorted([*drives.values(), *bare], key=lambda d: (d.pci or "~", d.name or ""))
        return tuple(order)

    def _make_drive(self, device: HwlocObject, name: str | None = None) -> NvmeDrive:
        """Return the drive of a block device, or of a PCI function that has none (no `name`)."""
        infos, pci, sysfs = device.infos, device.pci_address, self._sysfs

        def _attribute_text(attribute: str, info: str) -> str | None:
            found = sysfs.block_device_text(name, attribute) if name else None
            return found or _text_without_padding(infos.get(info))

        function = device.pci_function
        gigabytes = float(function.attributes.get("pci_link_speed", 0)) if function else 0.0
        negotiated = sysfs.pci_link_bytes_per_second(pci, "current") if pci else None
        return NvmeDrive(
            name=name,
            pci=pci,
            serial=_attribute_text("serial", "SerialNumber"),
            model=_attribute_text("model", "Model")
            or _text_without_padding(infos.get("PCIDevice")),
            firmware=_attribute_text("firmware_rev", "Revision"),
            node=self._nearest_node(device),
            size_bytes=(name and sysfs.block_device_bytes(name)) or _kib_in_bytes(infos, "Size"),
            link_bytes_per_second=negotiated or round(gigabytes * 1e9) or None,
            link_max_bytes_per_second=sysfs.pci_link_bytes_per_second(pci, "max") if pci else None,
        )

    def make_gpus(self) -> tuple[Gpu, ...]:
        """Return one GPU for each PCI function that is a GPU, even if several libraries show it."""
        gpus = map(self._make_gpu, self._functions)
        return tuple(sorted((gpu for gpu in gpus if gpu), key=lambda gpu: gpu.pci or ""))

    def _make_gpu(self, function: HwlocObject) -> Gpu | None:
        devices = [item for item in function.objects_of_type("OSDev") if _gpu_library(item)]
        vendor, kind = function.pci_id.partition(":")[0], function.pci_class
        graphics = kind.startswith("03") and vendor in _GPU_VENDORS
        if not devices and not graphics and (vendor, kind) != _AMD_INSTINCT_VENDOR_AND_CLASS:
            return None
        devices.sort(
            key=lambda item: (_GPU_LIBRARIES_IN_ORDER.index(_gpu_library(item)), item.name or "")
        )
        infos = {k: v for item in reversed(devices) for k, v in item.infos.items()}
        backends = tuple(dict.fromkeys(map(_gpu_library, devices)))
        return Gpu(
            name=devices[0].name if devices else None,
            pci=function.pci_address,
            backends=backends,
            node=self._nearest_node(function),
            model=_text_without_padding(infos.get("GPUModel") or function.infos.get("PCIDevice")),
            serial=infos.get("NVIDIAUUID") or infos.get("AMDUUID") or infos.get("LevelZeroUUID"),
            memory_bytes=_kib_in_bytes(
                infos, "CUDAGlobalMemorySize", "RSMIVRAMSize", "OpenCLGlobalMemorySize"
            ),
            compute=bool(_GPU_LIBRARIES_FOR_COMPUTING & set(backends)) or vendor in _GPU_VENDORS,
            memory_node=self._node_of_gpu_memory.get(function.pci_address),
        )

    def make_nics(self) -> tuple[Nic, ...]:
        """Return the network interfaces, and OpenFabrics devices that have no network interface."""
        ports, fabrics = (
            [item for item in self._os_devices if item.attributes.get("osdev_type") == kind]
            for kind in (_OSDEV_NETWORK, _OSDEV_FABRIC)
        )
        served = {port.pci_address for port in ports}
        ports += [item for item in fabrics if item.pci_address not in served]
        return tuple(sorted(map(self._make_nic, ports), key=lambda nic: (nic.pci or "~", nic.name)))

    def _make_nic(self, device: HwlocObject) -> Nic:
        function, name = device.pci_function, device.name or ""
        return Nic(
            name=name,
            kind=_NIC_KIND_OF_PCI_CLASS.get(function.pci_class if function else "", "network"),
            pci=device.pci_address,
            model=_text_without_padding(function.infos.get("PCIDevice")) if function else None,
            node=self._nearest_node(device),
            link_bytes_per_second=self._sysfs.network_bytes_per_second(name),
        )

    def make_pci_accelerators(self) -> tuple[Accelerator, ...]:
        """Return the accelerators that are PCI devices, except GPUs."""
        others = (function for function in self._functions if not self._make_gpu(function))
        engines = [item for function in others for item in self._accelerators_of_function(function)]
        return tuple(sorted(engines, key=lambda item: (item.pci or "", item.name)))

    def _accelerators_of_function(self, function: HwlocObject) -> Iterator[Accelerator]:
        """Yield the accelerator of a PCI function, or its devices if its kind is unknown."""
        pci, driver = function.pci_address, None
        names = self._sysfs.list_directory(f"sys/bus/pci/devices/{pci}") if pci else []
        if (events := self._sysfs.read_text(f"sys/bus/pci/devices/{pci}/uevent")) is not None:
            found = re.search(r"^DRIVER=(.+)$", events, re.MULTILINE)
            driver = found[1] if found else "none"
        devices = [
            item
            for item in function.objects_of_type("OSDev")
            if item.attributes.get("osdev_type") in (_OSDEV_DMA, _OSDEV_COPROCESSOR)
        ]
        node = self._nearest_node(function)
        for kind in accelerator_kinds():
            number = rf"{kind.get('device_names', '(?!)')}\d+"
            own = [name for name in names if re.fullmatch(number, name)]
            if own or function.pci_id in kind.get("pci", ()) or driver in kind.get("drivers", ()):
                # hwloc lists several copy channels, which all belong to one accelerator.
                yield Accelerator(own[0] if own else pci or "", kind["name"], pci, node, driver)
                return
        kind_of_class = _ACCELERATOR_OF_PCI_CLASS.get(function.pci_class)
        for item in devices:
            channel = "DMA" if item.attributes["osdev_type"] == _OSDEV_DMA else item.subtype
            name = kind_of_class or channel or "coprocessor"
            yield Accelerator(item.name or pci or "", name, pci, node, driver)
        if kind_of_class and not devices:
            yield Accelerator(pci or kind_of_class, kind_of_class, pci, node, driver)


def _gpu_library(device: HwlocObject) -> str:
    """Return the name of the library that shows a GPU; "" for a device that is no GPU."""
    # Devices of the kernel's Direct Rendering Manager (card0, renderD128) have no subtype.
    if device.subtype and device.subtype in _GPU_LIBRARIES_IN_ORDER:
        return device.subtype
    return "DRM" if device.attributes.get("osdev_type") == _OSDEV_GPU else ""


def _kib_in_bytes(infos: Mapping[str, str], *names: str) -> int | None:
    """Return the first of the named hwloc infos that is a whole number of KiB, in bytes."""
    return next((int(infos[k]) * 1024 for k in names if infos.get(k, "").isdigit()), None)


def _whole_number(text: str | None) -> int | None:
    """Return the whole number in a text; None if the text is not a whole number."""
    return int(text) if text and re.fullmatch("[0-9]{1,19}", text) else None


def _text_without_padding(text: str | None) -> str | None:
    return " ".join(text.split()) or None if text else None


def make_opencl_devices(
    listed: Sequence[ListedOpenclDevice] | None,
    tree: HwlocTree,
    gpus: Iterable[Gpu],
    nodes: Iterable[Node],
) -> tuple[OpenclDevice, ...]:
    """Return all OpenCL devices in a fixed order, with the names `opencl0`, `opencl1`, ...

    `listed` has the devices that the program chaosity-opencl lists on the host. `listed` is None if
    this program is not installed or if the source is an XML file. If `listed` is None, the OpenCL
    devices in hwloc's `tree` are used. An OpenCL device at the PCI address of a GPU gets the node
    of this GPU.
    """
    devices = (
        _opencl_of_tree(tree)
        if listed is None
        else [
            value_of_checked_json(_listed_devices(), json.dumps({**one, "name": ""}))
            for one in listed
        ]
    )
    node_of = {gpu.pci: gpu.node for gpu in gpus if gpu.pci}
    with_cpus = [node.os_index for node in nodes if node.shown_cpus]
    only = with_cpus[0] if len(with_cpus) == 1 else None

    def _sort_key_of_device(device: OpenclDevice) -> tuple[int, str, str, str, int]:
        rank = _OPENCL_TYPES_IN_ORDER.index(device.type)
        return rank, device.pci or "~", device.platform, device.device, device.twin

    return tuple(
        replace(
            device,
            name=str(PlaceName("opencl", (number,))),
            node=node_of.get(device.pci, only) if device.pci else only,
        )
        for number, device in enumerate(sorted(devices, key=_sort_key_of_device))
    )


@cache
def _listed_devices() -> TypeAdapter[OpenclDevice]:
    return TypeAdapter(OpenclDevice)


def _opencl_of_tree(tree: HwlocTree) -> list[OpenclDevice]:
    """Return the OpenCL devices in hwloc's tree, which never has processors as OpenCL devices."""
    return [
        OpenclDevice(
            name="",
            platform=item.infos.get("OpenCLPlatformName", "unknown"),
            device=item.infos.get("GPUModel", item.name or "unknown"),
            type=_OPENCL_TYPE_OF_HWLOC.get(item.infos.get("OpenCLDeviceType", ""), "other"),
            twin=_whole_number(item.infos.get("OpenCLPlatformDeviceIndex")) or 0,
            vendor=item.infos.get("GPUVendor"),
            compute_units=_whole_number(item.infos.get("OpenCLComputeUnits")),
            memory_bytes=_kib_in_bytes(item.infos, "OpenCLGlobalMemorySize"),
            pci=item.pci_address,
        )
        for item in tree.machine.objects_of_type("OSDev")
        if item.subtype == "OpenCL"
    ]
