"""Faults in the middle of a run, one after the other, and what they leave.

After each fault, everything that was measured is kept, and the next run measures what is missing.
After all of them, no byte of any drive has changed, and nothing was written to one.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broken_runs import start
from chaosity.records.record_format import Record
from lab_machines import Machine, drive_folder
from lab_workflow import Pipeline, good
from virtual_lab import replace_or_slow_drive
from virtual_lab.power_switch import BOOT_SECONDS
from wait_until_true import wait_until

pytestmark = pytest.mark.lab

HOST = "small"
# The faulty drive is the one that the first point of the plan reads.
FAULTY, OTHER = DRIVES = ["NV-0-0", "NV-1-0"]
# Commands in the host. The brackets keep a command from finding itself, and discovery runs
# `fio --version`.
FIO_READS = "pgrep -f '[f]io --readonly' > /dev/null"
UNTIL_FIO_READS = f"for i in $(seq 2000); do if {FIO_READS}; then break; fi; sleep 0.1; done"
RUNNER = "[c]haosity-run.pyz --tools"
# At 1 KB/s, a record takes many seconds; it is cut after two.
CUT_IN_A_RECORD = f"""
modprobe -a sch_tbf sch_netem
device=$(ip -o route get 10.0.2.2 | grep -o 'dev [^ ]*' | cut -d ' ' -f 2)
{UNTIL_FIO_READS}
tc qdisc replace dev $device root tbf rate 8kbit burst 2kb limit 8kb
while pgrep -f '{RUNNER}' > /dev/null; do sleep 0.1; done
sleep 2
tc qdisc replace dev $device root netem loss 100%
sleep 60
tc qdisc delete dev $device root
"""


class Run:
    """A run in which a fault happens; then its exit status, and what it said."""

    status: int
    said: str


class Measured(Pipeline):
    """All drives of the host measured once; each fault then strikes in a further replicate."""

    @contextmanager
    def run_with_fault(self) -> Iterator[Run]:
        """Measure a further replicate, with a fault in the block; nothing may be lost."""
        self.config["replicates"] += 1
        kept = {path: path.read_bytes() for path in self.attempts()}
        run, process = Run(), start(self, "--until", "measure")
        try:
            yield run
        finally:
            run.said = process.communicate(timeout=600)[0]
            run.status = process.returncode
            print(run.said)
        assert {path: path.read_bytes() for path in kept} == kept

    def failed(self, *drives: str) -> list[Record]:
        """The current records that are not valid, of points with one of these drives."""
        return [
            record
            for record in self.all_records()
            if not good(record) and any(drive in str(record["point"]["loads"]) for drive in drives)
        ]

    def reasons_of_faulty_drive(self) -> list[str]:
        """Why the points with the faulty drive failed in the last replicate; there are some."""
        found = [str(record["verdict"]["reason"]) for record in self.failed(FAULTY)]
        assert found
        return found

    def go_on(self, *drives: str) -> str:
        """Run again: what is missing or failed is measured, nothing else.

        Then all records of points with one of these drives are valid; by default, of all drives.
        """
        drives = drives or (*DRIVES,)
        kept = {path: record for path, record in self.records(HOST).items() if good(record)}
        said = self.measure()
        for _ in range(2):  # a busy computer may starve the emulated host
            if self.failed(*drives):
                self.measure()
        assert self.failed(*drives) == []
        assert kept.items() <= self.records(HOST).items()
        return said


def boot_id(host: Machine) -> str:
    """The identity of the host's boot; empty while the host does not answer."""
    return str(host.ssh("cat /proc/sys/kernel/random/boot_id").stdout)


@pytest.fixture(scope="module")
def host(provisioned: Machine) -> Machine:
    """The host, with random data on all of its drives."""
    for image in map(provisioned.drive_image, DRIVES):
        with image.open("r+b") as file:
            file.write(os.urandom(image.stat().st_size))
    return provisioned


@pytest.fixture(scope="module")
def before(host: Machine) -> dict[str, str]:
    return host.drive_checksums()


@pytest.fixture(scope="module")
def measured(before: dict[str, str], root: Path, tmp_path_factory) -> Measured:
    """The host measured once; tests share it in the order in which they stand here."""
    pipeline = Measured(root, tmp_path_factory.mktemp("faults"), HOST)
    pipeline.config |= {"experiments": ["storage_sample"], "sample": {"storage_sample": 1}}
    # Longer than elsewhere in the lab: the fault has to come while a drive is read.
    pipeline.config["stopping"]["storage_bandwidth"] |= {"min_seconds": 12, "max_seconds": 12}
    pipeline.go_on()
    return pipeline


def test_a_drive_disappears_and_comes_back(host: Machine, measured: Measured) -> None:
    try:
        with measured.run_with_fault() as run:
            host.says(f"{UNTIL_FIO_READS}; echo 1 > {drive_folder(FAULTY)}/device/remove")
        for reason in measured.reasons_of_faulty_drive():
            assert f"a drive with serial {FAULTY} was there at discovery" in reason
            assert reason in run.said
        assert f"(serial {FAULTY}) is missing since" in measured.go_on(OTHER)
    finally:
        host.says("echo 1 > /sys/bus/pci/rescan")
    wait_until(lambda: FAULTY in host.says("cat /sys/class/nvme/*/serial"))
    assert "is missing" not in measured.go_on()


def test_the_runner_is_killed_while_a_drive_is_read(host: Machine, measured: Measured) -> None:
    with measured.run_with_fault() as run:
        host.says(f"{UNTIL_FIO_READS}; kill -KILL $(pgrep -o -f '{RUNNER}')")
    assert run.status != 0
    assert run.said.count("the record is incomplete") == 1
    assert host.ssh(FIO_READS).returncode == 1
    measured.go_on()


def test_the_network_is_cut_in_the_middle_of_a_record(host: Machine, measured: Measured) -> None:
    with measured.run_with_fault() as run:
        host.says(f"setsid sh -c {shlex.quote(CUT_IN_A_RECORD)} > /dev/null 2>&1 &")
    assert run.status != 0
    assert f"host {HOST} is skipped: lost during a measurement: it does not answer" in run.said
    wait_until(lambda: boot_id(host))
    measured.go_on()


def test_a_drive_returns_errors(host: Machine, measured: Measured) -> None:
    replace_or_slow_drive.fail_reads(host.folder, FAULTY)
    try:
        with measured.run_with_fault() as run:
            pass
    finally:
        replace_or_slow_drive.fail_reads(host.folder, FAULTY, failing=False)
    for reason in measured.reasons_of_faulty_drive():
        assert "No data available" in reason  # ENODATA: the kernel's name for an unreadable block
        assert reason in run.said
    measured.go_on()


def test_the_host_reboots(host: Machine, measured: Measured) -> None:
    booted = boot_id(host)
    with measured.run_with_fault() as run:
        host.ssh(f"{UNTIL_FIO_READS}; systemctl reboot")
    assert run.status != 0
    assert f"host {HOST} is skipped: lost during a measurement" in run.said
    wait_until(lambda: boot_id(host) not in ("", booted), BOOT_SECONDS)
    measured.go_on()


def test_after_all_faults_every_record_is_valid_and_no_drive_was_written(
    host: Machine, before: dict[str, str], measured: Measured
) -> None:
    measured.run()
    assert measured.selected() == set()
    assert measured.failed(*DRIVES) == []
    assert host.drive_checksums() == before
    assert [replace_or_slow_drive.written_bytes(host.folder, drive) for drive in DRIVES] == [0, 0]
