"""Find the drives and OpenCL devices of a point, and refuse writes that destroy data.

Kernel names such as ``nvme3n1`` change from boot to boot. So a point names a drive's PCI address
and serial number, and the runner looks for the device just before the measurement. Loads use a
symbolic link ``drives/<component>`` in their working folder, so no command contains a kernel name.

A point contains the names and the PCI slot of its OpenCL device, and the OpenCL programs of
Chaosity choose the device by these facts. Other tools choose a device by numbers, which change when
a driver is added or removed. Two loaders on one host (a distribution's and CUDA's) also number the
platforms differently. So the runner looks up the numbers for another tool just before the tool
starts, and the tool runs with the loader that gave these numbers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from chaosity.errors import MeasurementError, UserError, check_free_space
from chaosity.records.record_format import Check, DriveFacts, Load, OpenclTargetDevice, make_check
from chaosity.runner.describe_host import (
    OPENCL_PROGRAM,
    ListedOpenclDevice,
    OpenclDeviceList,
    list_opencl_devices,
)
from chaosity.runner.observed_state import read_file_if_present

SYS_BLOCK = Path("/sys/block")
# The kernel's folder with a link to each block device and to each partition.
SYS_CLASS_BLOCK = Path("/sys/class/block")
# Size in bytes of the blocks of random data that fill a file. The data is random, since a drive may
# answer reads of zeros, or of blocks that were never written, without reading its flash.
FILL_BLOCK_BYTES = 4 * 1024 * 1024
# Number of blocks of a drive that are read as a sample before a load reads the drive. Half of these
# blocks are spread over the drive, and half over its first 64 GiB, where a sequential read of 10 s
# stays. If a tenth of the drive or of its first 64 GiB was never written, two or more sampled
# blocks are zeros with a probability of 84 %. If a tenth of both was never written, the probability
# is 99 %.
SAMPLED_BLOCKS, SAMPLED_BLOCK_BYTES = 64, 4096
_BEGIN_BYTES = 64 * 1024**3
# A drive that is in use contains a few blocks of zeros. A larger share of zeros among the sampled
# blocks means that parts of the drive were never written.
_MOST_ZERO_BLOCKS_SHARE = 0.02
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# The end of the name of a drive's component: `drive-0000-41-00-0-n2` is the second namespace of the
# drive.
_NAMESPACE_IN_COMPONENT_NAME = re.compile(r"-n(\d+)$")


def find_nvme_by_slot(pci: str, serial: str | None, namespace: str | None = None) -> Path:
    """Return the device file of the NVMe namespace at a PCI address.

    `serial` is the expected serial number; None if it is unknown. `namespace` is the number after
    ``n`` in the device's kernel name; with None, the first namespace is taken.

    Raises:
        MeasurementError: the slot has no drive, or a drive with another serial number.
    """
    for block in sorted(SYS_BLOCK.glob(f"nvme*n{namespace or '*'}")):
        device = block / "device"
        # The path also contains the addresses of the bridges above the drive. The last address is
        # the address of the drive.
        addresses = [part for part in device.resolve().parts if _PCI_ADDRESS.fullmatch(part)]
        if addresses[-1:] != [pci]:
            continue
        if not (Path("/dev") / block.name).exists():
            continue  # nvme0c0n1 is one path to a multipath drive, and has no device file
        found = read_file_if_present(device / "serial")
        if serial is not None and found != serial:
            raise MeasurementError(
                f"drive {pci} has serial {found}, not {serial}: it was replaced after discovery"
            )
        return Path("/dev") / block.name
    which = f" with serial {serial}" if serial else ""
    raise MeasurementError(f"no NVMe drive at {pci}; a drive{which} was there at discovery")


def find_drive_path(drive: DriveFacts) -> Path:
    """Return the path of the device or file of a point's drive on this host.

    Raises:
        MeasurementError: the drive is missing, or another drive is in its slot.
    """
    if file := drive.get("file"):
        return Path(file)
    if device := drive.get("path"):
        path = Path(device)
        if not path.exists():
            raise MeasurementError(f"{path} does not exist")
        return path.resolve()
    further = _NAMESPACE_IN_COMPONENT_NAME.search(drive["component"])
    return find_nvme_by_slot(drive["pci"], drive.get("serial"), further[1] if further else None)


def _list_partitions(name: str) -> list[str]:
    """Return the names of the partitions of a block device."""
    return [p.parent.name for p in (SYS_BLOCK / name).glob(f"{name}*/partition")]


def _list_mounts(device: Path) -> list[str]:
    """Return the mount points of a device and its partitions; "swap" for swap space."""
    paths = [Path("/dev") / name for name in (device.name, *_list_partitions(device.name))]
    devices = [path.stat().st_rdev for path in paths if path.exists()]
    numbers = {f"{os.major(number)}:{os.minor(number)}" for number in devices}
    mounts = (read_file_if_present("/proc/self/mountinfo") or "").splitlines()
    swaps = (read_file_if_present("/proc/swaps") or "").splitlines()[1:]
    return [row[4] for row in map(str.split, mounts) if row[2] in numbers] + [
        "swap" for row in swaps if Path(row.split()[0]) in paths
    ]


def reasons_against_writing(device: Path) -> list[str]:
    """Return all reasons why a block device must not be written to; empty if there is none.

    Reasons are a mount, a use by RAID, LVM or device mapper, a partition table, or a file system
    signature on the device itself (blkid(8)).
    """
    if not stat.S_ISBLK(device.stat().st_mode):
        return ["it is not a block device"]
    reasons = [f"it is mounted at {place}" for place in _list_mounts(device)]
    names = [device.name, *_list_partitions(device.name)]
    folders = [SYS_CLASS_BLOCK / name / "holders" for name in names]
    if holders := [holder.name for folder in folders for holder in folder.glob("*")]:
        reasons.append(f"it is held by {', '.join(holders)}")
    if len(names) > 1:
        reasons.append(f"it has partitions ({', '.join(names[1:])})")
    blkid = shutil.which("blkid", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if blkid is None:
        return [*reasons, "blkid, which finds file system signatures, is not installed"]
    probe = subprocess.run(
        [blkid, "--probe", "--output", "export", str(device)],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode == 0:
        lines = [x for x in probe.stdout.split() if x.startswith(("TYPE=", "PTTYPE="))]
        reasons.append(f"it has a signature ({' '.join(lines) or 'unknown'})")
    elif probe.returncode != 2:
        # blkid ends with status 2 if it finds no signature, and with other statuses if it fails.
        reasons.append(f"blkid cannot read it ({probe.stderr.strip()})")
    return reasons


def create_random_file_as_drive(path: Path, size: int) -> None:
    """Create a file of `size` random bytes that replaces a drive, unless it has this size already.

    Raises:
        MeasurementError: the disk is too small or the folder is not writable.
    """
    if path.exists() and path.stat().st_size == size:
        return
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The disk needs a tenth more space, because a nearly full file system is slow.
        check_free_space(path.parent, int(size * 1.1))
        block = os.urandom(FILL_BLOCK_BYTES)
        with part.open("wb") as stream:
            for _ in range(-(-size // FILL_BLOCK_BYTES)):
                stream.write(block)
            stream.truncate(size)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except (OSError, UserError) as error:
        raise MeasurementError(f"{path} cannot be created: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _check_device_readable(device: Path) -> None:
    """Check that this user may read a device."""
    try:
        os.close(os.open(device, os.O_RDONLY))
    except OSError as error:
        raise MeasurementError(
            f"{device} cannot be read: {error.strerror}; run as root or join the group 'disk'"
        ) from error


class HeldDrives(contextlib.ExitStack):
    """A context manager that holds drives open while loads write to these drives.

    While a drive is held open, the kernel refuses mounts and other exclusive uses (open(2),
    O_EXCL). The kernel allows the loads to open the drive, because the loads do not use O_EXCL.
    """

    def __init__(self) -> None:
        super().__init__()
        self._devices: set[Path] = set()

    def hold(self, device: Path) -> list[str]:
        """Open a block device exclusively until the context ends.

        Return an empty list, or a list with the reason why the device cannot be opened.
        """
        if device not in self._devices:
            try:
                self.callback(os.close, os.open(device, os.O_RDONLY | os.O_EXCL))
            except OSError as error:
                return [f"it cannot be opened for this program alone ({error.strerror})"]
            self._devices.add(device)
        return []


def check_and_link_drives(load: Load, folder: Path, held: HeldDrives) -> list[Check]:
    """Link a load's drives into its working folder, and return a check of each drive.

    The drives that the load writes to stay open until the context `held` ends.

    Raises:
        MeasurementError: a drive is missing, unreadable, or must not be written to.
    """
    checks = []
    links = folder / "drives"
    for drive in load["target"].get("drives", []):
        file = drive.get("file")
        if file:
            create_random_file_as_drive(Path(file), drive["size_bytes"])
        device = find_drive_path(drive)
        if load["writes"]:
            if drive.get("destructive"):
                # The drive is opened before the checks, so that nobody can mount the drive after
                # the checks.
                reasons = held.hold(device)
            else:
                reasons = ["chaosity_destructive_drives does not name this drive"]
            if reasons := reasons + reasons_against_writing(device):
                raise MeasurementError(f"{device} must not be written to: {'; '.join(reasons)}")
        _check_device_readable(device)
        links.mkdir(exist_ok=True)
        (links / drive["component"]).symlink_to(device.resolve())
        places = [] if file else _list_mounts(device)
        state = f"mounted at {', '.join(places)}; this point only reads" if places else "unmounted"
        detail = f"{device}: {'a file replaces the drive' if file else state}"
        name = f"drive {drive['component']}"
        checks.append(make_check(name, not places, detail, decisive=False))
        if not file and not load["writes"]:
            checks.append(check_drive_has_data(f"{name}: has data", device))
    return checks


def check_drives_are_still_there(loads: Iterable[Load]) -> list[Check]:
    """Return a failed check for each drive that disappeared during the measurement.

    A tool that reads a drive which disappears reports only a read error, not this cause.
    """
    checks = []
    for drive in (drive for load in loads for drive in load["target"].get("drives", [])):
        try:
            find_drive_path(drive)
        except MeasurementError as error:
            checks.append(make_check(f"drive {drive['component']}: still there", False, str(error)))
    return checks


def check_drive_has_data(name: str, device: Path) -> Check:
    """Check by sampled blocks that data was written to a drive.

    A drive answers the read of a block that was never written without reading its flash.

    If half of the blocks are zeros, the point fails on a machine that is certainly not virtual: an
    x86 processor that shows no hypervisor. A virtual machine only gets a note, because a virtual
    drive has no flash.
    """
    zeros, each = 0, SAMPLED_BLOCKS // 2
    with _open_without_page_cache(device) as handle, mmap.mmap(-1, SAMPLED_BLOCK_BYTES) as block:
        size = os.lseek(handle, 0, os.SEEK_END)
        parts = (size, min(size, _BEGIN_BYTES))
        for position in (part * (2 * i + 1) // (2 * each) for part in parts for i in range(each)):
            begin = position // SAMPLED_BLOCK_BYTES * SAMPLED_BLOCK_BYTES
            try:
                length = os.preadv(handle, [block], begin)
            except OSError as error:
                detail = f"the block at byte {begin} cannot be read: {error.strerror}"
                return make_check(name, None, detail, decisive=False)
            zeros += not any(block[:length])
    flags = (read_file_if_present("/proc/cpuinfo") or "").split()
    real = platform.machine() == "x86_64" and "hypervisor" not in flags
    detail = f"{zeros} of {SAMPLED_BLOCKS} sampled blocks are zeros"
    if not (passed := zeros <= _MOST_ZERO_BLOCKS_SHARE * SAMPLED_BLOCKS):
        detail += ", as if never written or trimmed: a drive answers without reading its flash"
    return make_check(name, passed, detail, decisive=real and zeros >= each)


@contextlib.contextmanager
def _open_without_page_cache(device: Path) -> Iterator[int]:
    """Open a drive for reads that bypass the page cache, or else for ordinary reads.

    Files in memory need ordinary reads, because the page cache is their only storage.
    """
    try:
        handle = os.open(device, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        handle = os.open(device, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


# Words in a command that stand for the numbers of the load's OpenCL device and its platform.
PLATFORM_NUMBER, DEVICE_NUMBER = "OPENCL_PLATFORM_NUMBER", "OPENCL_DEVICE_NUMBER"


def find_opencl_device(
    wanted: OpenclTargetDevice, listed: OpenclDeviceList | None
) -> ListedOpenclDevice:
    """Return the listed device with the wanted names and PCI slot.

    If the wanted device has no PCI slot, its number among devices with equal names (`twin`)
    decides.

    Raises:
        MeasurementError: the devices cannot be listed, or the wanted device is not among them.
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

    If the command contains numbers, the environment of the load names the loader that gave these
    numbers. A load without OpenCL device is returned unchanged.

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
