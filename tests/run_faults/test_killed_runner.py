"""A killed runner, guardian or benchmark: no program stays, and the next point is measured."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaosity.records.record_format import FAILED, VALID
from chaosity.runner import load_process, lock_files
from chaosity.runner.observed_state import process_and_descendants
from chaosity.runner.point_measurement import measure_point
from wait_until_true import wait_until

pytestmark = pytest.mark.alone

# fio with two processes, which read nothing: it notices neither a reader that is gone nor a parent.
SILENT_TOOL: dict[str, Any] = {
    "command": [
        "fio",
        "--name=job",
        "--ioengine=null",
        "--size=1g",
        "--numjobs=2",
        "--time_based",
        "--runtime=120",
    ],
    "needs": {"program": "fio", "install": "-"},
    "start": "spawn",
    "stop": {"by": "self", "signal": "INT", "exit": [0]},
    "progress": None,
    "metrics": {},
    "valid": [],
}


class RunningPoint:
    """A runner, as a process, in the middle of a point whose load would run for two minutes."""

    def __init__(self, point: Any, folder: Path) -> None:
        self.temporary, self.record = folder / "temporary", folder / "rep1.json"
        self.temporary.mkdir()
        (folder / "point.json").write_text(json.dumps(point))
        self.runner = subprocess.Popen(
            [
                *(sys.executable, "-m", "chaosity.runner"),
                *(folder / "point.json", "--record", self.record),
            ],
            env={**os.environ, "TMPDIR": str(self.temporary)},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: len(self.named("fio")) >= 3)
        self.tools = self.named("fio")
        self.guardian = next(
            pid
            for pid in process_and_descendants(self.runner.pid)[1:]
            if name_of(pid) == "chaosity-guard"
        )

    def named(self, name: str) -> list[int]:
        """The processes below the runner with this name."""
        return [pid for pid in process_and_descendants(self.runner.pid) if name_of(pid) == name]

    def left(self) -> list[int]:
        """The tools that still run."""
        return [pid for pid in self.tools if name_of(pid) == "fio"]


def name_of(pid: int) -> str | None:
    """Name of a running process; None for one that has ended, also if nobody waited for it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if "State:\tZ" in status else status.split()[1]


@pytest.fixture
def running(make_point: Callable[..., Any], tmp_path: Path) -> Iterator[RunningPoint]:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    one = RunningPoint(make_point(point={"timeout_seconds": 200}, **SILENT_TOOL), tmp_path)
    yield one
    for pid in [one.runner.pid, *one.left()]:
        if name_of(pid):
            os.kill(pid, signal.SIGKILL)
    one.runner.wait()


def is_lock_free() -> bool:
    """Whether nobody measures on this machine."""
    handle = lock_files.open_lock_file(lock_files.lock_file_path(lock_files.MEASURING))
    try:
        return lock_files.try_to_lock(handle)
    finally:
        os.close(handle)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP", "Ctrl-C twice"])
def test_after_the_runner_is_killed_no_program_lock_or_folder_stays(
    running: RunningPoint, make_point, how: str
):
    assert not is_lock_free()
    if how == "Ctrl-C twice":
        for _ in range(2):
            os.killpg(running.runner.pid, signal.SIGINT)
    else:
        running.runner.send_signal(signal.Signals[how])
    running.runner.wait(30)
    wait_until(lambda: not running.left(), 20)
    wait_until(is_lock_free, 20)
    assert list(running.temporary.iterdir()) == []
    assert not running.record.exists()
    assert measure_point(make_point(), 1)["verdict"]["status"] == VALID


def test_after_runner_and_guardian_are_killed_the_load_keeps_others_away(
    running: RunningPoint, make_point, monkeypatch
):
    os.kill(running.guardian, signal.SIGKILL)
    running.runner.kill()
    running.runner.wait()
    assert running.left() == running.tools
    assert not is_lock_free()
    [leftover] = running.temporary.iterdir()
    for pid in running.left():
        os.kill(pid, signal.SIGKILL)
    wait_until(is_lock_free, 20)
    monkeypatch.setattr(tempfile, "tempdir", str(running.temporary))
    assert measure_point(make_point(), 1)["verdict"]["status"] == VALID
    assert not leftover.exists()  # the next measurement has removed it


def test_a_benchmark_that_is_killed_fails_its_point_alone(running: RunningPoint, make_point):
    for pid in running.tools:
        os.kill(pid, signal.SIGKILL)
    assert running.runner.wait(60) == 0
    verdict = json.loads(running.record.read_text())["verdict"]
    assert verdict["status"] == FAILED
    assert "ended by SIGKILL" in verdict["reason"]
    assert measure_point(make_point(), 1)["verdict"]["status"] == VALID


def test_a_program_whose_pages_are_placed_ends_with_chaosity_place():
    # A container may not change the kernel's setting, so the policy is one that needs no change.
    setting = Path("/proc/sys/kernel/numa_balancing")
    is_balancing = setting.exists() and setting.read_text().strip() == "1"
    policy = "autonuma" if is_balancing else "first_touch"
    place = subprocess.Popen(
        [
            *(sys.executable, "-m", "chaosity.place", "--workers", "0"),
            *("--policy", policy, "--", "sleep", "120"),
        ],
        start_new_session=True,
    )
    wait_until(lambda: "sleep" in map(name_of, process_and_descendants(place.pid)))
    [program] = [pid for pid in process_and_descendants(place.pid) if name_of(pid) == "sleep"]
    os.killpg(place.pid, signal.SIGKILL)
    place.wait()
    wait_until(lambda: name_of(program) is None, 20)


def test_only_folders_of_this_user_on_this_host_are_removed(make_point, tmp_path, monkeypatch):
    temporary, kept = tmp_path / "temporary", tmp_path / "kept"
    prefix = f"chaosity-point-{socket.gethostname()}-"
    for folder in (kept, temporary / f"{prefix}a", temporary / "chaosity-point-otherhost-a"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (temporary / f"{prefix}b").symlink_to(kept)
    (temporary / f"{prefix}a/link").symlink_to(kept)
    (temporary / f"{prefix}c").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    measure_point(make_point(), 1)
    left = {path.name for path in temporary.iterdir()}
    assert left == {"chaosity-point-otherhost-a", f"{prefix}b", f"{prefix}c"}
    assert (kept / "file").exists()
    own = temporary / f"{prefix}d"
    own.mkdir()
    monkeypatch.setattr(
        os, "geteuid", lambda: os.getuid() + 1
    )  # the folder belongs to another user
    measure_point(make_point(), 1)
    assert own.exists()


def test_a_load_that_ignores_the_stop_signal_is_killed(make_point, monkeypatch):
    monkeypatch.setattr(load_process, "GRACE_SECONDS", 0.2)
    verdict = measure_point(make_point("deaf"), 1)["verdict"]
    assert "it ignored the stop signal and was killed" in str(verdict["reason"])
