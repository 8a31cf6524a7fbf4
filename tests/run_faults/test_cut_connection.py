"""The connection to a host is cut while its record is transferred, and the host boots again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broken_runs import ResultsFolder, record_files, run_program, start_program
from chaosity.hosts.runner_command import ssh_transport
from chaosity.runner.observed_state import process_and_descendants
from sshd import Server, running_server
from wait_until_true import wait_until

# In place of the runner: sends half of a real record, and then waits as on a connection that hangs.
HALF = """
import pathlib, sys, time
text = pathlib.Path({record!r}).read_text()
if "--help" in sys.argv:
    sys.exit(0)
sys.stdin.read()
sys.stdout.write(text[:len(text) // 2] if pathlib.Path({cut!r}).exists() else text)
sys.stdout.flush()
pathlib.Path({sent!r}).touch()
time.sleep(60 if pathlib.Path({cut!r}).exists() else 0)
"""


class FarHost:
    """A host behind a real sshd; while `cut` exists, its runner sends half a record."""

    def __init__(self, server: Server, results: ResultsFolder, folder: Path) -> None:
        self.server, self.results = server, results
        self.point = results.points[0]
        self.record = results.record(self.point)
        self.cut, self.sent = folder / "cut", folder / "sent"
        whole = folder / "whole.json"
        shutil.copy(self.record, whole)
        runner = folder / "runner/chaosity-run.pyz"
        runner.parent.mkdir()
        names = {"record": str(whole), "cut": str(self.cut), "sent": str(self.sent)}
        runner.write_text(HALF.format(**names))
        variables = {**server.variables, "runner_directory": str(runner.parent)}
        self.host_file = results.folder.parent / "host.json"
        host = json.loads(self.host_file.read_text())
        host["transport"] = ssh_transport("sim", {**variables, "runner_python": sys.executable})
        self.host_file.write_text(json.dumps(host))
        shutil.rmtree(self.record.parent)

    @property
    def command(self) -> list[str | Path]:
        return ["chaosity-measure", self.host_file, self.point, "--record", self.record]


@pytest.fixture
def far(results: ResultsFolder, tmp_path: Path) -> Iterator[FarHost]:
    with running_server(tmp_path / "sshd") as server:
        yield FarHost(server, results, tmp_path)


@pytest.mark.parametrize("what", ["session", "server"])
def test_the_connection_is_cut_in_the_middle_of_a_record(far: FarHost, what: str):
    far.cut.touch()
    run = start_program(*far.command)
    wait_until(far.sent.exists)
    if what == "server":
        far.server.stop()  # the host is gone
    else:
        for pid in process_and_descendants(far.server.process.pid)[1:]:
            os.kill(pid, signal.SIGKILL)  # the host is still there
    said = run.communicate(timeout=60)[0]
    lost = "host sim is skipped: lost during a measurement: nothing listens at its address"
    broken = "(status 255): the runner was killed, or the connection was cut"
    assert (lost if what == "server" else broken) in said
    assert run.returncode == (3 if what == "server" else 1)
    assert not far.record.parent.exists()  # no part of it is kept
    assert len(record_files(far.results.results)) == len(far.results.points) - 1
    far.cut.unlink()
    if what == "server":
        far.server.start()
        (far.host_file.parent / "left_out.json").unlink()  # as discovery does in the next run
    done = run_program(*far.command)
    assert done.returncode == 0, done.stdout
    assert far.record in record_files(far.results.results)


def test_a_point_of_another_firmware_mode_is_not_measured(results: ResultsFolder):
    host_file = results.folder.parent / "host.json"
    host = json.loads(host_file.read_text())
    host_file.write_text(json.dumps(host | {"configuration": "nps4"}))
    kept = record_files(results.results)
    done = results.measure(results.points[0])
    assert done.returncode == 1
    assert "the host is in configuration nps4, not" in done.stdout
    assert record_files(results.results) == kept


def test_a_host_that_has_booted_again_is_skipped_until_it_is_discovered_again(
    results: ResultsFolder,
):
    """A boot can change the topology, so its records belong to another configuration."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text()
    point, host_file = results.points[0], results.folder.parent / "host.json"
    host = json.loads(host_file.read_text())
    # Discovered before its last boot, as this machine is measured.
    host |= {"boot_id": "0" * 8 + boot_id[8:], "transport": {"kind": "local", "way": []}}
    host_file.write_text(json.dumps(host | {"transport": {**host["transport"], "runner": []}}))
    kept = record_files(results.results)
    done = results.measure(point)
    assert done.returncode == 3
    assert (
        "host sim is skipped: lost during a measurement: the host has booted again" in done.stdout
    )
    done = results.measure(results.points[1])
    assert done.returncode == 3  # at once, without a measurement
    assert record_files(results.results) == kept
