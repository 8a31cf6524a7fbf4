"""Changes a machine's drives as hardware does: one is replaced, one becomes slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtual_lab import power_switch
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import MACHINE, read_json, write_json
from virtual_lab.numa_layout import check
from virtual_lab.qemu_arguments import QMP, drive_id
from virtual_lab.qemu_monitor import Monitor

# What block_set_io_throttle wants named, all without a limit.
_NO_LIMITS = {f"{what}{way}": 0 for what in ("bps", "iops") for way in ("", "_rd", "_wr")}


def _place_of(machine: dict[str, Any], serial: str) -> int:
    """Where in the description's list a drive stands."""
    serials = [drive["serial"] for drive in machine["drives"]]
    if serial not in serials:
        known = ", ".join(serials) or "none"
        raise LabError(f"{machine['name']}: has no drive {serial}; it has {known}")
    return serials.index(serial)


def replace_drive(folder: Path, old: str, serial: str, speed: int | None = None) -> None:
    """Put a new, empty drive into the place of another and boot, if the machine is on.

    Args:
        folder: the machine's folder.
        old: serial of the drive that goes.
        serial: serial of the one that comes.
        speed: bytes per second that it reads, 0 for no limit; as the old one unless given.

    Raises:
        LabError: there is no such drive, or the new one cannot be.
    """
    machine = read_json(folder / MACHINE)
    drive = machine["drives"][_place_of(machine, old)]
    drive["serial"] = serial
    if speed is not None:
        drive["read_bytes_per_second"] = speed
    check(machine)
    was_on = power_switch.state(folder) == "on"
    power_switch.stop(folder)
    write_json(folder / MACHINE, machine)
    if was_on:
        power_switch.boot(folder)


def throttle(folder: Path, serial: str, speed: int) -> None:
    """Limit how fast a drive is read, at once when the machine is on, and at every later start.

    Args:
        folder: the machine's folder.
        serial: the drive's.
        speed: bytes per second, 0 for no limit.

    Raises:
        LabError: there is no such drive.
    """
    machine = read_json(folder / MACHINE)
    place = _place_of(machine, serial)
    machine["drives"][place]["read_bytes_per_second"] = speed
    check(machine)
    if power_switch.state(folder) == "on":
        with Monitor(folder / QMP) as monitor:
            limits = {**_NO_LIMITS, "bps_rd": speed}
            monitor.ask("block_set_io_throttle", device=drive_id(place), **limits)
    write_json(folder / MACHINE, machine)
