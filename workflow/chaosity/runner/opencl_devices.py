"""The OpenCL devices of this host, as clinfo prints them, and the one that a load asks for.

Platforms and devices are numbered anew each time a driver comes or goes, so a point names a device
by what it is called and where it sits, and its numbers are looked up just before it is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from chaosity.records import make_check
from chaosity.runner.describe_host import read_clinfo as clinfo

# `[PREFIX/*]  CL_PLATFORM_NAME  value` and `[PREFIX/0]  CL_DEVICE_NAME  value`. Two platforms may
# have one prefix, so a platform begins where its name stands.
_LINE = re.compile(r"\[[^]/]*/(?P<number>\*|\d+)\]\s+(?P<key>#?[A-Z][A-Z0-9_]*)\s*(?P<value>.*)")
_KINDS = {"CPU": "cpu", "GPU": "gpu", "ACCELERATOR": "accelerator"}
# Whichever of them a driver answers: KHR's, AMD's, NVIDIA's.
_PCI_KEYS = ("CL_DEVICE_PCI_BUS_INFO_KHR", "CL_DEVICE_TOPOLOGY_AMD", "CL_DEVICE_PCI_BUS_ID_NV")
_PCI = re.compile(r"\b(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])\b")
# Words of a command that stand for the numbers of the load's device.
PLATFORM_NUMBER, DEVICE_NUMBER = "OPENCL_PLATFORM_NUMBER", "OPENCL_DEVICE_NUMBER"

FoundDevice = dict[str, Any]


class OpenclError(Exception):
    """The OpenCL device of a load cannot be used; the text says why."""


def _fields(said: str) -> Iterator[tuple[int, int, str, dict[str, str]]]:
    """Number of the platform, number of the device, name of the platform, what is said of it."""
    platform, name = -1, ""
    number: int | None = None
    held: dict[str, str] = {}
    for line in said.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        key, value = match["key"], match["value"].strip()
        begins = key in ("CL_PLATFORM_NAME", "CL_DEVICE_NAME")
        if begins and number is not None:
            yield platform, number, name, held
            number, held = None, {}
        if key == "CL_PLATFORM_NAME":
            platform, name = platform + 1, value
        elif match["number"] != "*":
            number = int(match["number"])
            held[key] = value
    if number is not None:
        yield platform, number, name, held


def parse_clinfo(said: str | None) -> list[FoundDevice]:
    """All devices that `clinfo --raw` shows, with their numbers; none when it shows nothing.

    Args:
        said: what it printed; None where there is no clinfo.
    """
    found: list[FoundDevice] = []
    for platform, number, name, held in _fields(said or ""):
        if "CL_DEVICE_NAME" not in held or platform < 0:
            continue  # cut off, or of another tool
        device = held["CL_DEVICE_NAME"]
        alike = [one for one in found if (one["platform"], one["device"]) == (name, device)]
        found.append(
            {
                "platform": name,
                "device": device,
                "twin": len(alike),
                "type": _kind(held.get("CL_DEVICE_TYPE", "")),
                "vendor": held.get("CL_DEVICE_VENDOR"),
                "driver": held.get("CL_DRIVER_VERSION"),
                "compute_units": parse_whole_number(held.get("CL_DEVICE_MAX_COMPUTE_UNITS")),
                "memory_bytes": parse_whole_number(held.get("CL_DEVICE_GLOBAL_MEM_SIZE")),
                "pci": _pci(held),
                "uuid": _uuid(held.get("CL_DEVICE_UUID_KHR", "")),
                "platform_number": platform,
                "device_number": number,
            }
        )
    return found


def _kind(text: str) -> str:
    """`CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_GPU` is a GPU."""
    words = re.findall(r"CL_DEVICE_TYPE_(\w+)", text)
    return next((_KINDS[word] for word in words if word in _KINDS), "other")


def parse_whole_number(text: str | None) -> int | None:
    """A text that is a whole number; None for any other."""
    return int(text) if text and text.isdigit() else None


def _pci(held: Mapping[str, str]) -> str | None:
    """The address as the kernel writes it, domain first."""
    matches = (_PCI.search(held.get(key, "")) for key in _PCI_KEYS)
    match = next((one for one in matches if one), None)
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def _uuid(text: str) -> str | None:
    """A device's own number in the usual form, whatever hyphens clinfo sets."""
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    if len(digits) != 32 or not digits.strip("0"):
        return None
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)


def find_opencl_device(wanted: Mapping[str, Any], said: str | None) -> FoundDevice:
    """The device of a load as it is now: by its slot where it has one, else by its names.

    Args:
        wanted: the load's `target.device`.
        said: what `clinfo --raw` printed just now.

    Raises:
        OpenclError: it is not there any more, or another one sits in its slot.
    """
    words = f"{wanted['device']!r} of the platform {wanted['platform']!r}"
    if said is None:
        raise OpenclError(f"{words} cannot be looked up: clinfo is not installed")
    found = parse_clinfo(said)
    named = [
        one
        for one in found
        if (one["platform"], one["device"]) == (wanted["platform"], wanted["device"])
    ]
    if wanted.get("pci"):
        named = [one for one in named if one["pci"] == wanted["pci"]]
    else:
        named = [one for one in named if one["twin"] == wanted.get("twin", 0)]
    if not named:
        others = "; ".join(f"{one['device']!r} of {one['platform']!r}" for one in found)
        there = f"there is {others}" if others else "there is no OpenCL device at all"
        raise OpenclError(f"{words} has vanished since discovery: {there}")
    return named[0]


def fill_in_device_numbers(load: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A load with the numbers of its OpenCL device put into its command.

    Returns:
        The load, and checks for the record; a load without a device as it is.

    Raises:
        OpenclError: the device is not there.
    """
    wanted = load["target"].get("device")
    if wanted is None:
        return dict(load), []
    found = find_opencl_device(wanted, clinfo())
    numbers = {
        PLATFORM_NUMBER: str(found["platform_number"]),
        DEVICE_NUMBER: str(found["device_number"]),
    }
    command = [numbers.get(word, word) for word in load["command"]]
    detail = (
        f"platform {found['platform_number']} ({found['platform']}), device"
        f" {found['device_number']} ({found['device']}), driver {found['driver']}"
    )
    same = found["driver"] == wanted.get("driver")
    return {**load, "command": command}, [
        make_check(f"device {wanted['name']}", same, detail, decisive=False)
    ]
