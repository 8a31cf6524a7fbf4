"""Changes a machine's drives as happens to hardware: replaced, slow, or with errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtual_lab import power_switch
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import MACHINE, read_json, write_json
from virtual_lab.numa_layout import check_description
from virtual_lab.qemu_arguments import QMP, image_node_names, qemu_drive_name
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


def fail_reads(folder: Path, serial: str, failing: bool = True) -> None:
    """Let every read of a drive fail, or stop that; until then, or until the machine is off.

    The drive answers with the NVMe status "unrecovered read error", as a drive with worn flash.

    Args:
        folder: the folder of a machine that is on.
        serial: serial number of the drive.
        failing: whether reads fail from now on.

    Raises:
        LabError: the machine does not have this drive, or QEMU refuses.
    """
    raw, file = image_node_names(_place_of(read_json(folder / MACHINE), serial))
    errors = f"{file}-errors"
    with QemuMonitor(folder / QMP) as monitor:
        if failing:
            every_read = {"event": "none", "iotype": "read"}
            monitor.execute(
                "blockdev-add",
                **{"driver": "blkdebug", "node-name": errors, "image": file},
                **{"inject-error": [every_read]},
            )
        below = {"driver": "raw", "node-name": raw, "file": errors if failing else file}
        monitor.execute("blockdev-reopen", options=[below])
        if not failing:
            monitor.execute("blockdev-del", **{"node-name": errors})


def written_bytes(folder: Path, serial: str) -> int:
    """Return how many bytes were written to or discarded on a drive since the machine was started.

    Raises:
        LabError: the machine does not have this drive.
    """
    name = qemu_drive_name(_place_of(read_json(folder / MACHINE), serial))
    with QemuMonitor(folder / QMP) as monitor:
        drives = {drive["device"]: drive["stats"] for drive in monitor.execute("query-blockstats")}
    return int(drives[name]["wr_bytes"]) + int(drives[name]["unmap_bytes"])
