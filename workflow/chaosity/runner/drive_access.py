"""The drives of a point: found again by slot and serial, and kept from harm.

Kernel names such as ``nvme3n1`` change from boot to boot, so a point names the PCI address and
the serial; the device is looked up here, just before the measurement. Loads reach a drive through
a symbolic link ``drives/<component>`` in their working folder, so no command holds a kernel name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

from chaosity.records import make_check
from chaosity.runner.host_state import read_text

SYS_BLOCK = Path("/sys/block")
# Large writes with real content: an all-zero or unwritten file may be answered without the drive.
FILL_BLOCK_BYTES = 4 * 1024 * 1024


class DriveError(Exception):
    """A drive cannot be used for this point; the text says which and why."""


def find_nvme_by_slot(pci: str, serial: str | None) -> Path:
    """The device file of the NVMe namespace at a PCI address.

    Raises:
        DriveError: there is none, or another drive sits there now.
    """
    for block in sorted(SYS_BLOCK.glob("nvme*n*")):
        device = block / "device"
        if f"/{pci}/" not in f"{device.resolve()}/":
            continue
        if not (Path("/dev") / block.name).exists():
            continue  # a path of a multipath drive, such as nvme0c0n1, has no device file
        found = read_text(device / "serial")
        if serial is not None and found != serial:
            raise DriveError(
                f"drive {pci} has serial {found}, not {serial}: it was replaced after discovery"
            )
        return Path("/dev") / block.name
    raise DriveError(f"no NVMe drive at {pci}")


def find_device(drive: dict[str, Any]) -> Path:
    """The device or file that a point's drive means on this host."""
    if drive.get("file"):
        return Path(drive["file"])
    if drive.get("path"):
        path = Path(drive["path"])
        if not path.exists():
            raise DriveError(f"{path} does not exist")
        return path.resolve()
    return find_nvme_by_slot(drive["pci"], drive.get("serial"))


def list_partitions(name: str) -> list[str]:
    """Names of the partitions of a block device."""
    return [p.parent.name for p in (SYS_BLOCK / name).glob(f"{name}*/partition")]


def list_mounts(device: Path) -> list[str]:
    """Mount points (and swap) of a device or of its partitions."""
    numbers = set()
    for name in [device.name, *list_partitions(device.name)]:
        path = Path("/dev") / name
        if path.exists():
            rdev = path.stat().st_rdev
            numbers.add(f"{os.major(rdev)}:{os.minor(rdev)}")
    table = (read_text(Path("/proc/self/mountinfo")) or "").splitlines()
    found = [row.split()[4] for row in table if row.split()[2] in numbers]
    swaps = (read_text(Path("/proc/swaps")) or "").splitlines()[1:]
    names = {f"/dev/{name}" for name in [device.name, *list_partitions(device.name)]}
    return found + ["swap" for row in swaps if row.split()[0] in names]


def reasons_against_writing(device: Path) -> list[str]:
    """Why a block device must not be written to; empty when nothing speaks against it.

    A mount, a holder (RAID, LVM, device mapper), a partition table or a file-system signature, as
    blkid(8) finds it on the device itself, each is reason enough.
    """
    if not stat.S_ISBLK(device.stat().st_mode):
        return ["it is no block device"]
    against = [f"it is mounted at {place}" for place in list_mounts(device)]
    names = [device.name, *list_partitions(device.name)]
    holders = [h.name for name in names for h in Path(f"/sys/class/block/{name}/holders").glob("*")]
    if holders:
        against.append(f"it is held by {', '.join(holders)}")
    if len(names) > 1:
        against.append(f"it has partitions ({', '.join(names[1:])})")
    blkid = shutil.which("blkid", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if blkid is None:
        return [*against, "blkid, which would find a signature on it, is not installed"]
    probe = subprocess.run(
        [blkid, "--probe", "--output", "export", str(device)],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode == 0:
        lines = [x for x in probe.stdout.split() if x.startswith(("TYPE=", "PTTYPE="))]
        against.append(f"it bears a signature ({' '.join(lines) or 'unknown'})")
    elif probe.returncode != 2:  # 2: nothing found; anything else: it could not be told
        against.append(f"blkid cannot read it ({probe.stderr.strip()})")
    return against


def create_random_file(path: Path, size: int) -> None:
    """Make a file of random content that stands in for a drive; kept when it is there already.

    Raises:
        DriveError: the disk is too small or the folder cannot be written.
    """
    if path.exists() and path.stat().st_size == size:
        return
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if free < size * 1.1:  # a file system that is filled to the brim slows down
            raise DriveError(f"{path.parent} has {free} bytes free, {int(size * 1.1)} are needed")
        block = os.urandom(FILL_BLOCK_BYTES)
        with part.open("wb") as stream:
            for _ in range(-(-size // FILL_BLOCK_BYTES)):
                stream.write(block)
            stream.truncate(size)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise DriveError(f"{path} cannot be made: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def check_readable(device: Path) -> None:
    """Make sure that the device can be read, without any right to write.

    Raises:
        DriveError: it cannot, mostly for want of permission.
    """
    try:
        os.close(os.open(device, os.O_RDONLY))
    except OSError as error:
        raise DriveError(
            f"{device} cannot be read: {error.strerror}; run as root or join the group 'disk'"
        ) from error


def link_drives(load: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Link a load's drives into its working folder, refusing what must not be touched.

    Returns:
        Checks for the record, one a drive.

    Raises:
        DriveError: a drive is missing, unreadable, or must not be written to.
    """
    checks = []
    links = folder / "drives"
    for drive in load["target"].get("drives", []):
        name = drive["component"]
        if drive.get("file"):
            create_random_file(Path(drive["file"]), drive["size_bytes"])
        device = find_device(drive)
        if load["writes"]:
            against = reasons_against_writing(device)
            if not drive.get("destructive"):
                against.insert(0, "chaosity_destructive_drives does not name it")
            if against:
                raise DriveError(f"{device} must not be written to: {'; '.join(against)}")
        check_readable(device)
        links.mkdir(exist_ok=True)
        (links / name).symlink_to(device.resolve())
        places = [] if drive.get("file") else list_mounts(device)
        note = f"mounted at {', '.join(places)}, read only by this point" if places else "unmounted"
        checks.append(
            make_check(f"drive {name}", not places, f"{device}: {note}", decisive=False)
            if not drive.get("file")
            else make_check(f"drive {name}", True, f"{device}: a file stands in", decisive=False)
        )
    return checks
