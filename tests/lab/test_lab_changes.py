"""Machines that change or fail: drives slow down and are replaced, plugs are pulled."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_machines import FIFTH, FULL, Machine, block_device, drive_folder
from sshd import free_port, make_key_pair
from virtual_lab import power_switch, replace_or_slow_drive
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import apply_description, write_json

pytestmark = pytest.mark.lab


def speed_of(machine: Machine, serial: str) -> float:
    """Bytes per second at which a drive is read, past all caches, for a few seconds."""
    find = block_device(serial)
    machine.says(f"dd if={find} of=/dev/null bs=1M count=8 iflag=direct")  # spends the burst
    said = machine.ssh(f"dd if={find} of=/dev/null bs=1M count=64 skip=8 iflag=direct").stderr
    copied, seconds = re.search(r"(\d+) bytes.*copied, ([\d.]+) s", said).groups()
    return int(copied) / float(seconds)


def test_a_drive_becomes_slow_and_is_replaced(small: Machine) -> None:
    assert speed_of(small, "NV-1-0") == pytest.approx(FULL, rel=0.1)
    replace_or_slow_drive.limit_read_rate(small.folder, "NV-1-0", FIFTH)
    assert speed_of(small, "NV-1-0") == pytest.approx(FIFTH, rel=0.1)
    try:
        replace_or_slow_drive.replace_drive(small.folder, "NV-1-0", "NV-1-9", FULL)
        assert speed_of(small, "NV-1-9") == pytest.approx(FULL, rel=0.1)
        assert small.says(f"cat {drive_folder('NV-1-9')}/numa_node").strip() == "1"
        assert "NV-1-0" not in small.says("cat /sys/class/nvme/*/serial")
    finally:
        replace_or_slow_drive.replace_drive(small.folder, "NV-1-9", "NV-1-0", FULL)


def test_an_unknown_drive_is_refused_by_name(small: Machine) -> None:
    with pytest.raises(LabError, match="small: has no drive NV-7; it has NV-0-0, NV-1-0"):
        replace_or_slow_drive.limit_read_rate(small.folder, "NV-7", FIFTH)


@pytest.fixture
def lone(small: Machine, tmp_path: Path) -> Iterator[Path]:
    """The folder of a machine that boots only when it is asked to."""
    folder = tmp_path / "lone"
    folder.mkdir()
    make_key_pair(folder / "ssh_host_ed25519_key")
    make_key_pair(tmp_path / "id_ed25519")
    description = {
        "name": "lone",
        "image": small.described()["image"],
        "ssh_port": free_port(),
        "packages": 1,
        "modes": {"nps1": 1, "nps2": 2},
        "mode": "nps1",
        "cpus_per_package": 2,
        "memory_bytes_per_package": 2**29,
    }
    (folder / "description.json").write_text(json.dumps(description))
    apply_description(folder)
    yield folder
    power_switch.stop_machine(folder, force=True)


def test_a_plug_is_pulled_and_settings_take_hold_at_the_next_start(lone: Path) -> None:
    assert power_switch.power_state(lone) == "off"
    power_switch.start_machine(lone)
    assert power_switch.power_state(lone) == "on"
    power_switch.start_machine(lone)  # is no mistake
    nps1, nps2 = ({"NumaNodesPerSocket": name} for name in ("NPS1", "NPS2"))
    write_json(lone / "bios.json", {"current": nps1, "pending": nps2})
    power_switch.restart_machine(lone, force=True)
    assert json.loads((lone / "bios.json").read_text()) == {"current": nps2, "pending": {}}
    number = int((lone / "qemu.pid").read_text())
    assert b"nodeid=1" in Path(f"/proc/{number}/cmdline").read_bytes()
    os.kill(number, 9)
    power_switch.stop_machine(lone, force=True)
    assert power_switch.power_state(lone) == "off"


def test_settings_that_name_no_mode_are_refused(lone: Path) -> None:
    write_json(lone / "bios.json", {"current": {}, "pending": {"NumaNodesPerSocket": "NPS9"}})
    with pytest.raises(LabError, match="lone: its firmware has NumaNodesPerSocket set to 'NPS9'"):
        power_switch.start_machine(lone)
    assert power_switch.power_state(lone) == "off"


def test_a_machine_that_does_not_come_up_is_tried_again_and_said(lone: Path) -> None:
    with pytest.raises(LabError, match=r"lone: did not answer .* 2 times.*console-failed-2\.log"):
        power_switch.boot_machine(lone, seconds=3)
    assert power_switch.power_state(lone) == "off"
    assert (lone / "console-failed-1.log").exists()


def test_what_qemu_refuses_is_said(lone: Path) -> None:
    (lone / "disk.qcow2").write_bytes(b"")
    with pytest.raises(LabError, match=r"lone: QEMU did not start it: .*qcow2"):
        power_switch.start_machine(lone)
