"""Changes a machine's drives as happens to hardware: a drive is replaced or becomes slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtual_lab import power_switch
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import MACHINE, read_json, write_json
from virtual_lab.numa_layout import check_description
from virtual_lab.qemu_arguments import QMP, qemu_drive_name
from virtual_lab.qemu_monitor import QemuMonitor

# All limits that block_set_io_throttle requires; 0 means unlimited.
_NO_LIMITS = {f"{what}{way}": 0 for what in ("bps", "iops") for way in ("", "_rd", "_wr")}


def _place_of(machine: dict[str, Any], serial: str) -> int:
    """Return the index of a drive in the description's list."""
    serials = [drive["serial"] for drive in machine["drives"]]
    if serial not in serials:
        known = ", ".join(serials) or "none"
        raise LabError(f"{machine['name']}: has no drive {serial}; it has {known}")
    return serials.index(serial)


def replace_drive(folder: Path, old: str, serial: str, speed: int | None = None) -> None:
    """Replace a drive by a new, empty drive; a machine that is on is booted again.

    Args:
        folder: the machine's folder.
        old: serial number of the drive that is removed.
        serial: serial number of the new drive.
        speed: read limit of the new drive in bytes per second; 0: unlimited; None: as before.

    Raises:
        LabError: the machine lacks the old drive, or the new drive is not possible.
    """
    machine = read_json(folder / MACHINE)
    drive = machine["drives"][_place_of(machine, old)]
    drive["serial"] = serial
    if speed is not None:
        drive["read_bytes_per_second"] = speed
    check_description(machine)
    was_on = power_switch.power_state(folder) == "on"
    power_switch.stop_machine(folder)
    write_json(folder / MACHINE, machine)
    if was_on:
        power_switch.boot_machine(folder)


def limit_read_rate(folder: Path, serial: str, speed: int) -> None:
    """Limit how fast a drive is read: now if the machine is on, and after every later start.

    Args:
        folder: the machine's folder.
        serial: serial number of the drive.
        speed: bytes per second; 0: unlimited.

    Raises:
        LabError: the machine does not have this drive.
    """
    machine = read_json(folder / MACHINE)
    place = _place_of(machine, serial)
    machine["drives"][place]["read_bytes_per_second"] = speed
    check_description(machine)
    if power_switch.power_state(folder) == "on":
        with QemuMonitor(folder / QMP) as monitor:
            limits = {**_NO_LIMITS, "bps_rd": speed}
            monitor.execute("block_set_io_throttle", device=qemu_drive_name(place), **limits)
    write_json(folder / MACHINE, machine)
