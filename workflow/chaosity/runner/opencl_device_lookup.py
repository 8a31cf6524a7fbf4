"""Find the OpenCL devices of this host in clinfo's output, and the device of a load.

Platforms and devices get new numbers when a driver is added or removed. So a point has the names
and the slot of its device, and the numbers are looked up just before the measurement.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from chaosity.errors import MeasurementError
from chaosity.records.point_types import ClinfoDeviceFacts, Load, OpenclTargetDevice
from chaosity.records.record_types_and_verdict import Check, make_check
from chaosity.runner.describe_host import read_clinfo_output

# `[PREFIX/*]  CL_PLATFORM_NAME  value` and `[PREFIX/0]  CL_DEVICE_NAME  value`. Two platforms may
# have the same prefix, so a platform begins at its name.
_LINE = re.compile(
    r"\[[^]/]*/(?P<number>\*|[0-9]{1,9})\]\s+(?P<key>#?[A-Z][A-Z0-9_]*)\s*(?P<value>.*)"
)
_BOOLEANS = {"CL_TRUE": True, "CL_FALSE": False}
# Capabilities of shared virtual memory, the finest first (OpenCL 2.0, section 5.6).
_SHARING = {
    "FINE_GRAIN_SYSTEM": "fine_grain_system",
    "FINE_GRAIN_BUFFER": "fine_grain",
    "COARSE_GRAIN_BUFFER": "coarse_grain",
}
_TYPES = {"CPU": "cpu", "GPU": "gpu", "ACCELERATOR": "accelerator"}
# Keys of the PCI address: KHR's, AMD's, NVIDIA's; a driver has one of these keys.
_PCI_KEYS = ("CL_DEVICE_PCI_BUS_INFO_KHR", "CL_DEVICE_TOPOLOGY_AMD", "CL_DEVICE_PCI_BUS_ID_NV")
_PCI = re.compile(r"\b(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])\b")
# Words of a command that are replaced by the numbers of the load's device.
PLATFORM_NUMBER, DEVICE_NUMBER = "OPENCL_PLATFORM_NUMBER", "OPENCL_DEVICE_NUMBER"


class ClinfoDevice(ClinfoDeviceFacts):
    """An OpenCL device with its present numbers, and facts that do not define a point."""

    platform_number: int
    device_number: int
    unified_memory: bool | None
    shared_virtual_memory: str | None


def _parse_fields(output: str) -> list[tuple[int, int, str, dict[str, str]]]:
    """Return the platform number, device number, platform name and fields of each device."""
    platform, name = -1, ""
    fields: dict[str, str] = {}
    devices = []
    for match in filter(None, map(_LINE.match, output.splitlines())):
        key, value = match["key"], match["value"].strip()
        if key == "CL_PLATFORM_NAME":
            platform, name, fields = platform + 1, value, {}
        elif match["number"] != "*" and platform >= 0:
            if key == "CL_DEVICE_NAME":
                fields = {}
                devices.append((platform, int(match["number"]), name, fields))
            fields[key] = value
    return devices


def parse_clinfo(output: str | None) -> list[ClinfoDevice]:
    """Return all devices in the output of `clinfo --raw`; empty if clinfo is missing (None)."""
    devices: list[ClinfoDevice] = []
    for platform, number, name, fields in _parse_fields(output or ""):
        device = fields["CL_DEVICE_NAME"]
        equal = [d for d in devices if (d["platform"], d["device"]) == (name, device)]
        devices.append(
            {
                "platform": name,
                "device": device,
                "twin": len(equal),
                "type": _device_type(fields.get("CL_DEVICE_TYPE", "")),
                "vendor": fields.get("CL_DEVICE_VENDOR"),
                "driver": fields.get("CL_DRIVER_VERSION"),
                "compute_units": parse_whole_number(fields.get("CL_DEVICE_MAX_COMPUTE_UNITS")),
                "memory_bytes": parse_whole_number(fields.get("CL_DEVICE_GLOBAL_MEM_SIZE")),
                "pci": _pci_address(fields),
                "uuid": _format_uuid(fields.get("CL_DEVICE_UUID_KHR", "")),
                "platform_number": platform,
                "device_number": number,
                "unified_memory": _BOOLEANS.get(fields.get("CL_DEVICE_HOST_UNIFIED_MEMORY", "")),
                "shared_virtual_memory": _finest_sharing(fields.get("CL_DEVICE_SVM_CAPABILITIES")),
            }
        )
    return devices


def _device_type(text: str) -> str:
    """Return the device type in a text: `CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_GPU` is a GPU."""
    words = re.findall(r"CL_DEVICE_TYPE_(\w+)", text)
    return next((_TYPES[word] for word in words if word in _TYPES), "other")


def _finest_sharing(capabilities: str | None) -> str | None:
    """Return the finest sharing in a text such as `CL_DEVICE_SVM_COARSE_GRAIN_BUFFER | ...`."""
    if capabilities is None:
        return None
    found = (name for key, name in _SHARING.items() if f"CL_DEVICE_SVM_{key}" in capabilities)
    return next(found, "none")


def parse_whole_number(text: str | None) -> int | None:
    """Return the whole number in a text; None for any other text."""
    return int(text) if text and re.fullmatch("[0-9]{1,19}", text) else None


def _pci_address(fields: Mapping[str, str]) -> str | None:
    """Return a device's PCI address in the kernel's form, which includes the domain."""
    match = _PCI.search(" ".join(fields.get(key, "") for key in _PCI_KEYS))
    return match and f"{int(match[1] or '0', 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def _format_uuid(text: str) -> str | None:
    """Return a UUID in the usual form; None for zeros or another text."""
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    return str(uuid.UUID(digits)) if len(digits) == 32 and digits.strip("0") else None


def find_opencl_device(wanted: OpenclTargetDevice, output: str | None) -> ClinfoDevice:
    """Return the device in clinfo's output with the wanted slot or, without slot, wanted names.

    Raises:
        MeasurementError: the device is missing, or another device is in its slot.
    """
    name = f"{wanted['device']!r} of the platform {wanted['platform']!r}"
    if output is None:
        raise MeasurementError(f"{name} cannot be looked up: clinfo is not installed")
    devices = parse_clinfo(output)
    for device in devices:
        same_names = (device["platform"], device["device"]) == (
            wanted["platform"],
            wanted["device"],
        )
        pci = wanted.get("pci")
        same_slot = device["pci"] == pci if pci else device["twin"] == wanted.get("twin", 0)
        if same_names and same_slot:
            return device
    others = "; ".join(f"{d['device']!r} of {d['platform']!r}" for d in devices)
    raise MeasurementError(f"{name} is missing since discovery; present: {others or 'no device'}")


def fill_in_device_numbers(load: Load) -> tuple[Load, list[Check]]:
    """Return a load with its OpenCL device's numbers in its command, and checks for the record.

    A load without a device is unchanged.

    Raises:
        MeasurementError: the device is missing.
    """
    wanted = load["target"].get("device")
    if wanted is None:
        return load, []
    device = find_opencl_device(wanted, read_clinfo_output())
    platform, number = device["platform_number"], device["device_number"]
    numbers = {PLATFORM_NUMBER: str(platform), DEVICE_NUMBER: str(number)}
    detail = (
        f"platform {platform} ({device['platform']}), device {number} ({device['device']}),"
        f" driver {device['driver']}"
    )
    same = device["driver"] == wanted.get("driver")
    command = [numbers.get(word, word) for word in load["command"]]
    check = make_check(f"device {wanted['name']}", same, detail, decisive=False)
    return {**load, "command": command}, [check]
