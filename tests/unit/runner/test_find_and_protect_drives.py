"""Which drives may be written to, and that reading is all that happens to the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chaosity.errors import MeasurementError
from chaosity.runner import find_and_protect_drives
from loop_devices import loop_device

pytestmark = pytest.mark.alone


def load(device, *, writes=False, **drive):
    one = {"component": "disk-test", "node": None, "path": str(device), **drive}
    return {"writes": writes, "target": {"drives": [one]}}


def test_a_blank_device_may_be_written_to(tmp_path):
    with loop_device(tmp_path / "image") as device:
        assert find_and_protect_drives.reasons_against_writing(device) == []


def test_a_signature_is_a_reason(tmp_path):
    with loop_device(tmp_path / "image", filesystem=True) as device:
        [reason] = find_and_protect_drives.reasons_against_writing(device)
        assert "TYPE=ext4" in reason


def test_a_partition_table_is_a_reason(tmp_path):
    entry = bytes([0, 0, 2, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little")
    table = entry + (65536).to_bytes(4, "little")  # one Linux partition, as an MBR has it
    image = tmp_path / "image"
    with loop_device(image) as device:
        with device.open("r+b") as stream:
            stream.write(bytes(446) + table + bytes(48) + b"\x55\xaa")
        assert any(
            "PTTYPE=dos" in one for one in find_and_protect_drives.reasons_against_writing(device)
        )


def test_a_mount_is_a_reason(tmp_path):
    with loop_device(tmp_path / "image", filesystem=True) as device:
        place = tmp_path / "mounted"
        place.mkdir()
        done = subprocess.run(["mount", str(device), str(place)], check=False)
        if done.returncode:
            pytest.skip("mounting is not allowed here")
        try:
            assert any(
                f"mounted at {place}" in r
                for r in find_and_protect_drives.reasons_against_writing(device)
            )
            [note] = find_and_protect_drives.check_and_link_drives(load(device), tmp_path)
            assert note["passed"] is False and not note["decisive"]
            assert f"mounted at {place}" in note["detail"]
        finally:
            subprocess.run(["umount", str(place)], check=True)


def test_a_file_must_not_be_written_to(tmp_path):
    path = tmp_path / "plain"
    path.write_text("precious")
    assert find_and_protect_drives.reasons_against_writing(path) == ["it is not a block device"]


@pytest.mark.parametrize("destructive", [False, True])
def test_writing_needs_the_inventory_and_a_blank_device(tmp_path, destructive):
    with loop_device(tmp_path / "image", filesystem=destructive) as device:
        with pytest.raises(MeasurementError) as caught:
            find_and_protect_drives.check_and_link_drives(
                load(device, writes=True, destructive=destructive), tmp_path
            )
        expected = "has a signature" if destructive else "does not name it"
        assert expected in str(caught.value)


def test_a_named_blank_device_may_be_written_to(tmp_path):
    with loop_device(tmp_path / "image") as device:
        find_and_protect_drives.check_and_link_drives(
            load(device, writes=True, destructive=True), tmp_path
        )
        assert (tmp_path / "drives/disk-test").resolve() == device


def test_a_missing_device_is_an_error(tmp_path):
    with pytest.raises(MeasurementError, match="does not exist"):
        find_and_protect_drives.check_and_link_drives(load(tmp_path / "none"), tmp_path)


def test_an_nvme_slot_without_a_drive_is_an_error(tmp_path):
    spec = {"writes": False, "target": {"drives": [{"component": "d", "pci": "ffff:ff:1f.7"}]}}
    with pytest.raises(MeasurementError, match="no NVMe drive at"):
        find_and_protect_drives.check_and_link_drives(spec, tmp_path)


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
    monkeypatch.setattr(find_and_protect_drives, "SYS_BLOCK", tmp_path / "sys/block")
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda p: str(p) == "/dev/nvme3n1" or exists(p))
    return tmp_path


def test_a_drive_is_found_by_its_slot(block):
    assert find_and_protect_drives.find_nvme_by_slot("0000:41:00.0", "OLD") == Path("/dev/nvme3n1")


def test_a_replaced_drive_is_an_error(block):
    with pytest.raises(MeasurementError, match="it was replaced after discovery"):
        find_and_protect_drives.find_nvme_by_slot("0000:41:00.0", "NEW")


def test_a_path_of_a_multipath_drive_is_skipped(block):
    with pytest.raises(MeasurementError, match="no NVMe drive"):
        find_and_protect_drives.find_nvme_by_slot("0000:42:00.0", None)


def test_a_replacement_file_has_random_content_and_is_kept(tmp_path):
    path = tmp_path / "deep/file0"
    find_and_protect_drives.create_random_file_as_drive(path, 5 * 2**20 + 1)
    data = path.read_bytes()
    assert len(data) == 5 * 2**20 + 1 and len(set(data)) > 200
    before = path.stat().st_mtime_ns
    find_and_protect_drives.create_random_file_as_drive(path, 5 * 2**20 + 1)
    assert path.stat().st_mtime_ns == before


def test_a_disk_too_small_for_the_replacement_file(tmp_path):
    with pytest.raises(MeasurementError, match="are needed"):
        find_and_protect_drives.create_random_file_as_drive(tmp_path / "file0", 2**60)
    assert list(tmp_path.iterdir()) == []
