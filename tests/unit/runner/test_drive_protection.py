"""Which drives may be written to, and that reading is all that happens to the others."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from chaosity.errors import MeasurementError
from chaosity.runner import devices_of_point
from loop_devices import loop_device

pytestmark = pytest.mark.alone


def check_and_link(spec, folder):
    """The checks of a load's drives, which are free again afterwards."""
    with devices_of_point.HeldDrives() as held:
        return devices_of_point.check_and_link_drives(spec, folder, held)


def load(device, *, writes=False, **drive):
    one = {"component": "disk-test", "node": None, "path": str(device), **drive}
    return {"writes": writes, "target": {"drives": [one]}}


def test_a_signature_is_a_reason(tmp_path):
    with loop_device(tmp_path / "image", filesystem=True) as device:
        [reason] = devices_of_point.reasons_against_writing(device)
        assert "TYPE=ext4" in reason


def test_a_partition_table_is_a_reason(tmp_path):
    entry = bytes([0, 0, 2, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little")
    table = entry + (65536).to_bytes(4, "little")  # one Linux partition, as an MBR has it
    image = tmp_path / "image"
    with loop_device(image) as device:
        with device.open("r+b") as stream:
            stream.write(bytes(446) + table + bytes(48) + b"\x55\xaa")
        assert any("PTTYPE=dos" in one for one in devices_of_point.reasons_against_writing(device))


@pytest.mark.parametrize(
    ("files", "swap", "expected"),
    [
        (["class/DRIVE/holders/md127"], "", ["it is held by md127"]),
        (["block/DRIVE/DRIVEp1/partition"], "", ["it has partitions (DRIVEp1)"]),
        (
            ["block/DRIVE/DRIVEp1/partition", "class/DRIVEp1/holders/dm-0"],
            "",
            ["it is held by dm-0", "it has partitions (DRIVEp1)"],
        ),
        ([], "DRIVE", ["it is mounted at swap"]),
        (
            ["block/DRIVE/DRIVEp1/partition"],
            "DRIVEp1",
            ["it is mounted at swap", "it has partitions (DRIVEp1)"],
        ),
    ],
)
def test_what_the_kernel_says_of_a_blank_drive_is_a_reason(
    tmp_path, monkeypatch, files, swap, expected
):
    """A drive that a RAID or LVM holds, or that has partitions or swap, can lack a signature."""
    with loop_device(tmp_path / "image") as device:
        for file in files:
            path = tmp_path / file.replace("DRIVE", device.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        line = f"/dev/{swap.replace('DRIVE', device.name)} partition 65532 0 -2\n" if swap else ""
        kernel = {"/proc/swaps": f"Filename Type Size Used Priority\n{line}"}
        monkeypatch.setattr(devices_of_point, "SYS_BLOCK", tmp_path / "block")
        monkeypatch.setattr(devices_of_point, "SYS_CLASS_BLOCK", tmp_path / "class")
        monkeypatch.setattr(devices_of_point, "read_file_if_present", kernel.get)
        found = devices_of_point.reasons_against_writing(device)
    assert found == [reason.replace("DRIVE", device.name) for reason in expected]


def test_a_search_for_signatures_that_fails_is_a_reason(tmp_path, monkeypatch):
    blkid = tmp_path / "blkid"
    blkid.write_text("#!/bin/sh\necho broken >&2\nexit 8\n")  # 8: the signatures are ambivalent
    blkid.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with loop_device(tmp_path / "image") as device:
        assert devices_of_point.reasons_against_writing(device) == ["blkid cannot read it (broken)"]
        monkeypatch.setattr(devices_of_point.shutil, "which", lambda *_, **__: None)
        [reason] = devices_of_point.reasons_against_writing(device)
    assert reason == "blkid, which finds file system signatures, is not installed"


def test_a_mount_is_a_reason(tmp_path):
    with loop_device(tmp_path / "image", filesystem=True) as device:
        place = tmp_path / "mounted"
        place.mkdir()
        done = subprocess.run(["mount", str(device), str(place)], check=False)
        if done.returncode:
            pytest.skip("mounting is not allowed here")
        try:
            assert any(
                f"mounted at {place}" in r for r in devices_of_point.reasons_against_writing(device)
            )
            note, _ = check_and_link(load(device), tmp_path)
            assert note["passed"] is False and not note["decisive"]
            assert f"mounted at {place}" in note["detail"]
        finally:
            subprocess.run(["umount", str(place)], check=True)


def test_a_file_must_not_be_written_to(tmp_path):
    path = tmp_path / "plain"
    path.write_text("precious")
    assert devices_of_point.reasons_against_writing(path) == ["it is not a block device"]


@pytest.mark.parametrize("destructive", [False, True])
def test_writing_needs_the_inventory_and_a_blank_device(tmp_path, destructive):
    with loop_device(tmp_path / "image", filesystem=destructive) as device:
        with pytest.raises(MeasurementError) as caught:
            check_and_link(load(device, writes=True, destructive=destructive), tmp_path)
        expected = "has a signature" if destructive else "does not name this drive"
        assert expected in str(caught.value)


def test_a_named_blank_device_may_be_written_to(tmp_path):
    with loop_device(tmp_path / "image") as device:
        check_and_link(load(device, writes=True, destructive=True), tmp_path)
        assert (tmp_path / "drives/disk-test").resolve() == device


def test_a_drive_is_held_while_a_load_writes_to_it(tmp_path):
    with loop_device(tmp_path / "image") as device:
        spec = load(device, writes=True, destructive=True)
        two_loads = tmp_path / "one", tmp_path / "other"
        with devices_of_point.HeldDrives() as held:
            for folder in two_loads:
                folder.mkdir()
                devices_of_point.check_and_link_drives(spec, folder, held)
            with pytest.raises(OSError, match="busy"):  # as mount, RAID and LVM open it
                os.open(device, os.O_RDWR | os.O_EXCL)
            os.close(os.open(device, os.O_RDWR | os.O_DIRECT))  # as fio opens it
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))


def test_a_drive_that_another_program_holds_must_not_be_written_to(tmp_path):
    with loop_device(tmp_path / "image") as device:
        holder = os.open(device, os.O_RDONLY | os.O_EXCL)
        try:
            with pytest.raises(MeasurementError, match="cannot be opened for this program alone"):
                check_and_link(load(device, writes=True, destructive=True), tmp_path)
        finally:
            os.close(holder)
        check_and_link(load(device, writes=True, destructive=True), tmp_path)


def test_a_missing_device_is_an_error(tmp_path):
    with pytest.raises(MeasurementError, match="does not exist"):
        check_and_link(load(tmp_path / "none"), tmp_path)


def test_an_nvme_slot_without_a_drive_is_an_error(tmp_path):
    drive = {"component": "d", "pci": "ffff:ff:1f.7", "serial": "S1"}
    spec = {"writes": False, "target": {"drives": [drive]}}
    with pytest.raises(MeasurementError, match=r"no NVMe drive at ffff:.*; a drive with serial S1"):
        check_and_link(spec, tmp_path)


@pytest.fixture
def block(tmp_path, monkeypatch):
    """A /sys/block with one NVMe drive, and a multipath path of another."""
    for name, pci, serial in (
        ("nvme3n1", "0000:41:00.0", "OLD"),
        ("nvme0c0n1", "0000:42:00.0", "X"),
    ):
        device = tmp_path / "sys/devices" / pci / "nvme" / name
        device.mkdir(parents=True)
        (device / "serial").write_text(f"{serial}  \n")
        (tmp_path / "sys/block" / name).mkdir(parents=True)
        (tmp_path / "sys/block" / name / "device").symlink_to(device)
    monkeypatch.setattr(devices_of_point, "SYS_BLOCK", tmp_path / "sys/block")
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda p: str(p) == "/dev/nvme3n1" or exists(p))
    return tmp_path


def test_a_drive_is_found_by_its_slot(block):
    find = devices_of_point.find_nvme_by_slot
    assert find("0000:41:00.0", "OLD") == Path("/dev/nvme3n1")
    with pytest.raises(MeasurementError, match="it was replaced after discovery"):
        find("0000:41:00.0", "NEW")
    with pytest.raises(MeasurementError, match="no NVMe drive"):  # a path of a multipath drive
        find("0000:42:00.0", None)


def test_a_drive_behind_the_address_of_a_bridge_is_not_the_drive_of_the_slot(tmp_path, monkeypatch):
    """After slots were numbered anew, a bridge can have the address that a drive had."""
    device = tmp_path / "sys/devices/pci0000:40/0000:41:00.0/0000:42:00.0/nvme/nvme3"
    device.mkdir(parents=True)
    (tmp_path / "sys/block/nvme3n1").mkdir(parents=True)
    (tmp_path / "sys/block/nvme3n1/device").symlink_to(device)
    monkeypatch.setattr(devices_of_point, "SYS_BLOCK", tmp_path / "sys/block")
    monkeypatch.setattr(Path, "exists", lambda p: True)
    assert devices_of_point.find_nvme_by_slot("0000:42:00.0", None).name == "nvme3n1"
    with pytest.raises(MeasurementError, match=r"no NVMe drive at 0000:41:00\.0"):
        devices_of_point.find_nvme_by_slot("0000:41:00.0", None)


def test_the_second_namespace_of_a_drive_is_not_the_first(block, monkeypatch):
    first = block / "sys/block/nvme3n1"
    second = first.with_name("nvme3n2")
    second.mkdir()
    (second / "device").symlink_to((first / "device").resolve())
    monkeypatch.setattr(Path, "exists", lambda p: True)
    drive = {"pci": "0000:41:00.0", "serial": "OLD"}
    found = [
        devices_of_point.find_drive_path({"component": name, **drive}).name
        for name in ("drive-0000-41-00-0", "drive-0000-41-00-0-n2")
    ]
    assert found == ["nvme3n1", "nvme3n2"]


def test_a_replacement_file_has_random_content_and_is_kept(tmp_path):
    path = tmp_path / "deep/file0"
    devices_of_point.create_random_file_as_drive(path, 5 * 2**20 + 1)
    data = path.read_bytes()
    assert len(data) == 5 * 2**20 + 1 and len(set(data)) > 200
    before = path.stat().st_mtime_ns
    devices_of_point.create_random_file_as_drive(path, 5 * 2**20 + 1)
    assert path.stat().st_mtime_ns == before


def test_a_disk_too_small_for_the_replacement_file(tmp_path):
    with pytest.raises(MeasurementError, match="are needed"):
        devices_of_point.create_random_file_as_drive(tmp_path / "file0", 2**60)
    assert list(tmp_path.iterdir()) == []


def write_blocks(device: Path, share: float) -> None:
    """Write random data to the first share of a device or image."""
    with device.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        stream.write(os.urandom(int(share * size)))


def blank_image(tmp_path: Path) -> Path:
    """Return a file of 16 MiB without any block."""
    (tmp_path / "blank").touch()
    os.truncate(tmp_path / "blank", 16 * 2**20)
    return tmp_path / "blank"


# A device of 64 MiB is smaller than the part at the beginning, so both samples are spread over it.
@pytest.mark.parametrize(
    ("share", "zeros", "passed"), [(1.0, 0, True), (0.75, 16, False), (0.0, 64, False)]
)
def test_blocks_that_were_never_written_are_noticed(tmp_path, share, zeros, passed):
    with loop_device(tmp_path / "image") as device:
        write_blocks(device, share)
        found = devices_of_point.check_drive_has_data("drive", device)
    assert (found["passed"], f"{zeros} of 64 sampled" in found["detail"]) == (passed, True)
    assert passed or "never written or trimmed" in found["detail"]


@pytest.mark.parametrize(
    ("machine", "flags", "share", "decisive"),
    [
        ("x86_64", "flags: fpu", 0.0, True),
        ("x86_64", "flags: fpu", 0.4, True),
        ("x86_64", "flags: fpu", 0.75, False),
        ("x86_64", "flags: fpu hypervisor", 0.0, False),
        ("aarch64", "Features: fp", 0.0, False),  # its flags name no hypervisor
    ],
)
def test_only_an_empty_drive_of_a_real_machine_fails_a_point(
    tmp_path, monkeypatch, machine, flags, share, decisive
):
    monkeypatch.setattr(devices_of_point.platform, "machine", lambda: machine)
    write_blocks(image := blank_image(tmp_path), share)
    monkeypatch.setattr(devices_of_point, "read_file_if_present", lambda _: flags)
    found = devices_of_point.check_drive_has_data("drive", image)
    assert found["decisive"] is decisive


def test_a_blank_begin_of_a_large_drive_is_noticed(tmp_path, monkeypatch):
    """A sequential read sees only the begin; here it is the first 64th."""
    image = blank_image(tmp_path)
    image.write_bytes(bytes(2**18) + os.urandom(2**24 - 2**18))
    monkeypatch.setattr(devices_of_point, "_BEGIN_BYTES", 2**18)
    found = devices_of_point.check_drive_has_data("drive", image)
    assert found["passed"] is False
    assert "32 of 64" in found["detail"]


def test_a_bad_block_leaves_the_answer_open(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(devices_of_point.os, "preadv", fail)
    found = devices_of_point.check_drive_has_data("drive", blank_image(tmp_path))
    assert found["passed"] is None
    assert "cannot be read: Input/output error" in found["detail"]


def test_a_load_that_writes_needs_no_data_and_a_file_has_random_data(tmp_path):
    file = {"file": str(tmp_path / "file"), "size_bytes": 2**20}
    checks = check_and_link(load("", **file), tmp_path)
    assert [check["name"] for check in checks] == ["drive disk-test"]
