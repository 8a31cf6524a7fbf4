"""Find the device of a load among the OpenCL devices of this host.

A point has the names and the slot of its device, by which this project's kernels choose it. Other
tools take numbers. These change when a driver is added or removed, and two loaders on one host (a
distribution's and CUDA's) number the platforms differently. So a tool gets the numbers just before
it starts, and runs with the loader that gave them.
"""

from __future__ import annotations

from chaosity.errors import MeasurementError
from chaosity.records.point_types import Load, OpenclTargetDevice
from chaosity.records.record_types import Check, make_check
from chaosity.runner.describe_host import (
    OPENCL_PROGRAM,
    ListedOpenclDevice,
    OpenclDeviceList,
    list_opencl_devices,
)

# Words of a command that are replaced by the numbers of the load's device.
PLATFORM_NUMBER, DEVICE_NUMBER = "OPENCL_PLATFORM_NUMBER", "OPENCL_DEVICE_NUMBER"


def find_opencl_device(
    wanted: OpenclTargetDevice, listed: OpenclDeviceList | None
) -> ListedOpenclDevice:
    """Return the listed device with the wanted slot or, without slot, wanted names.

    Raises:
        MeasurementError: the device is missing, or another device is in its slot.
    """
    name = f"{wanted['device']!r} of the platform {wanted['platform']!r}"
    if listed is None:
        raise MeasurementError(
            f"{name} cannot be looked up: {OPENCL_PROGRAM} lists no devices;"
            " run ansible-playbook provision.yml"
        )
    keys = ("platform", "device", "pci" if wanted["pci"] else "twin")
    for device in listed["devices"]:
        if all(device.get(key) == wanted.get(key) for key in keys):
            return device
    others = "; ".join(f"{d['device']!r} of {d['platform']!r}" for d in listed["devices"])
    raise MeasurementError(f"{name} is missing since discovery; present: {others or 'no device'}")


def fill_in_device_numbers(load: Load) -> tuple[Load, list[Check]]:
    """Return a load with its OpenCL device's numbers in its command, and checks for the record.

    A command with numbers gets the loader that gave them. A load without a device is unchanged.

    Raises:
        MeasurementError: the device is missing.
    """
    wanted = load["target"].get("device")
    if wanted is None:
        return load, []
    listed = list_opencl_devices()
    device = find_opencl_device(wanted, listed)
    platform, number = device["platform_number"], device["device_number"]
    numbers = {PLATFORM_NUMBER: str(platform), DEVICE_NUMBER: str(number)}
    detail = (
        f"platform {platform} ({device['platform']}), device {number} ({device['device']}),"
        f" driver {device['driver']}"
    )
    same = device["driver"] == wanted.get("driver")
    check = make_check(f"device {wanted['name']}", same, detail, decisive=False)
    command = [numbers.get(word, word) for word in load["command"]]
    if command != load["command"] and listed and (loader := listed["loader"]):
        environment = {"LD_PRELOAD": loader, **load["environment"]}
        return {**load, "command": command, "environment": environment}, [check]
    return load, [check]
