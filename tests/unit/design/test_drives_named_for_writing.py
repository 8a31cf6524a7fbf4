"""Which drives may lose their data: exactly those that the inventory names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.design.host_plan import PlannedHost
from chaosity.errors import UserError
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import NvmeDrive


def drive(number: int, serial: str | None, *, model: str | None = "ACME 1", namespace: int = 1):
    """The drive in a slot of its own; its namespaces share the number."""
    name, pci = f"nvme{number}n{namespace}", f"0000:{number:02x}:00.0"
    return NvmeDrive(name=name, pci=pci, serial=serial, model=model)


def writable(drives: list[NvmeDrive], *names: str, extra: tuple[str, ...] = ()) -> list[str]:
    """Serial numbers, or paths, of the drives that may be written to."""
    variables = {"chaosity_destructive_drives": [*names], "chaosity_extra_drives": [*extra]}
    host = PlannedHost("h", "nps1", Topology(drives=tuple(drives)), variables)
    planned = host.drives_to_measure(Path("results"))
    return [str(one.serial or one.path) for one in planned if one.destructive]


# The serial number of a drive is the end of another one.
ENDS = [drive(1, "S64GNE0T123"), drive(2, "123"), drive(3, "3")]


@pytest.mark.parametrize(
    "name",
    [
        "S64GNE0T123",
        "nvme-ACME_1_S64GNE0T123",
        "/dev/disk/by-id/nvme-ACME_1_S64GNE0T123",
        "/dev/disk/by-id/nvme-ACME_1_S64GNE0T123_1",
    ],
)
def test_a_name_frees_one_drive(name):
    assert writable(ENDS, name) == ["S64GNE0T123"]


@pytest.mark.parametrize(
    "name",
    [
        "T123",  # an end of a serial number
        "nvme-OTHER_S64GNE0T123",  # another model
        "nvme-ACME_1_S64GNE0T1234",
        "nvme-ACME_1_S64GNE0T123_2",  # another namespace
        "/dev/disk/by-id/nvme-ACME_1_S64GNE0T123-part1",
        "/dev/disk/by-path/nvme-ACME_1_S64GNE0T123",
        "/dev/nvme1n1",
        "S64GNE0T123 ",
        "{{ x }}",
        "/",
    ],
)
def test_a_name_that_fits_no_drive_is_an_error(name):
    with pytest.raises(UserError, match="names no drive of this host; give a drive's serial") as at:
        writable(ENDS, name)
    assert "host h, chaosity_destructive_drives" in str(at.value)
    assert "S64GNE0T123, 123, 3" in str(at.value)


@pytest.mark.parametrize(
    ("drives", "name"),
    [
        ([drive(1, "S1"), drive(1, "S1", namespace=2)], "S1"),
        ([drive(1, "S1"), drive(1, "S1", namespace=2)], "nvme-ACME_1_S1_2"),
        ([drive(1, "0000"), drive(2, "0000", model="B")], "nvme-B_0000"),
        ([drive(1, "B_C", model="A"), drive(2, "C", model="A_B")], "nvme-A_B_C"),
        ([drive(1, "S_1"), drive(2, "S")], "nvme-ACME_1_S_1"),
    ],
)
def test_a_name_that_fits_several_drives_is_an_error(drives, name):
    with pytest.raises(UserError, match=r"can mean several drives \(nvme1n1, nvme"):
        writable(drives, name)


def test_signs_that_udev_replaces_and_underscores_in_the_serial_number():
    drives = [drive(1, "A/B 7_x"), drive(2, "7_x"), drive(3, "x", model="ACME 1 A B 7")]
    assert writable(drives[:2], "nvme-ACME_1_A_B_7_x") == ["A/B 7_x"]
    assert writable(drives, "7_x") == ["7_x"]


def test_a_drive_without_a_model_or_serial_number_has_no_link():
    drives = [drive(1, "S1", model=None), drive(2, None), drive(3, "")]
    assert writable(drives, "S1") == ["S1"]
    for name in ("nvme-_S1", "nvme-ACME_1_", "", "nvme-"):
        with pytest.raises(UserError, match="names no drive"):
            writable(drives, name)


def test_other_block_devices_are_named_by_the_path_of_the_inventory():
    path = "/dev/disk/by-id/ata-ACME_S1"
    assert writable(ENDS, path, extra=(path, "/dev/sdb")) == [path]
    with pytest.raises(UserError, match="names no drive of this host"):
        writable(ENDS, "/dev/sdc", extra=(path,))


SERIALS = st.lists(st.text("01A_ ", min_size=1, max_size=4), min_size=1, max_size=5)


@given(SERIALS, st.text("01A_", min_size=1, max_size=4), st.text("01A_", max_size=2))
def test_no_name_frees_more_than_one_drive(serials, name, before):
    drives = [drive(number, serial) for number, serial in enumerate(serials)]
    for text in (name, f"nvme-ACME_1_{name}", f"nvme-{before}_{name}"):
        try:
            [found] = writable(drives, text)
        except UserError:
            continue
        assert found == text or text.startswith("nvme-ACME_1_")
