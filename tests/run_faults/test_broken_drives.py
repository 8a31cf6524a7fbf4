"""A drive with errors, and one that is gone: its point fails with the reason, and others go on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaosity.records.record_format import FAILED, VALID, RecordVerdict
from chaosity.runner.point_measurement import measure_point
from loop_devices import loop_device, system_program
from wait_until_true import wait_until

pytestmark = pytest.mark.alone

SIZE = 16 * 2**20
READS = [
    *("fio", "--name=job", "--rw=read", "--bs=1m", "--direct=1", "--readonly"),
    *("--filename=drives/drive0", "--output=result.json", "--output-format=json"),
]


def point_on(make_point: Callable[..., Any], device: Path, *options: str) -> Any:
    """A point that reads a drive with fio."""
    point = make_point(
        category="storage_bandwidth",
        command=[*READS, *options],
        needs={"program": "fio", "install": "-"},
        start="spawn",
        stop={"by": "self", "signal": "INT", "exit": [0]},
        progress=None,
        valid=[],
        metrics={
            "bandwidth_bytes_per_second": {
                "in": "result.json",
                "json": "jobs[*].read.bw_bytes",
                "combine": "sum",
                "at_most": None,
            }
        },
    )
    drive = {"component": "drive0", "pci": None, "serial": None, "path": str(device)}
    target = {"name": "drive0", "kind": "drive", "drives": [drive]}
    point["loads"][0]["target"] |= target
    return point


def verdict_of(point: Any) -> RecordVerdict:
    """The verdict of a measurement."""
    return measure_point(point, 1)["verdict"]


def while_it_is_read(script: str, path: Path) -> subprocess.Popen[bytes]:
    """Start a script that waits for fio and then changes `path`, its $0."""
    # The brackets keep the pattern from matching this shell.
    wait = 'until pgrep -f "[f]io.*drives/drive0" > /dev/null; do sleep 0.1; done; '
    return subprocess.Popen(["sh", "-c", wait + script, path])


def test_a_drive_returns_errors_and_is_repaired(make_point, tmp_path: Path):
    """Behind its end, a loop device over a file that became shorter returns I/O errors."""
    image = tmp_path / "image"
    with loop_device(image, size=SIZE) as device:
        image.write_bytes(os.urandom(SIZE))
        verdict = verdict_of(point_on(make_point, device))
        assert verdict["status"] == VALID, verdict["reason"]
        os.truncate(image, SIZE // 2)
        verdict = verdict_of(point_on(make_point, device))
        assert verdict["status"] == FAILED
        assert "Input/output error" in str(verdict["reason"])
        image.write_bytes(os.urandom(SIZE))
        verdict = verdict_of(point_on(make_point, device))
        assert verdict["status"] == VALID, verdict["reason"]


def test_a_drive_breaks_while_it_is_read(make_point, tmp_path: Path):
    image = tmp_path / "image"
    with loop_device(image, size=SIZE) as device:
        image.write_bytes(os.urandom(SIZE))
        runs = point_on(make_point, device, "--time_based", "--runtime=60", "--rate=16m")
        breaker = while_it_is_read('sleep 0.5; truncate --size=0 "$0"', image)
        verdict = verdict_of(runs)
        breaker.wait()
        assert verdict["status"] == FAILED
        assert "Input/output error" in str(verdict["reason"])


def test_a_drive_is_gone(make_point, tmp_path: Path):
    image = tmp_path / "image"
    with loop_device(image, size=SIZE) as device:
        gone = tmp_path / "nvme0n1"
        gone.symlink_to(device)
        point = point_on(make_point, gone)
    wait_until(lambda: not is_attached(device))
    verdict = verdict_of(point)
    assert verdict["status"] == FAILED
    assert "drive0" in str(verdict["reason"]) or "nvme0n1" in str(verdict["reason"])
    gone.unlink()
    verdict = verdict_of(point)
    assert verdict["status"] == FAILED
    assert f"{gone} does not exist" in str(verdict["reason"])
    assert verdict_of(make_point())["status"] == VALID


def test_a_drive_disappears_while_it_is_read(make_point, tmp_path: Path):
    """A tool that has opened the drive may not notice, or prints a number that says nothing."""
    with loop_device(tmp_path / "image", size=SIZE) as device:
        gone = tmp_path / "nvme0n1"
        gone.symlink_to(device)
        runs = point_on(make_point, gone, "--time_based", "--runtime=2")
        remover = while_it_is_read('sleep 0.5; rm "$0"', gone)
        verdict = verdict_of(runs)
        remover.wait()
    assert verdict["status"] == FAILED
    assert f"drive drive0: still there: {gone} does not exist" in str(verdict["reason"])


def is_attached(device: Path) -> bool:
    """Whether a loop device still has a file."""
    listed = subprocess.run(
        [system_program("losetup"), "--list", "--noheadings", "--output", "NAME"],
        capture_output=True,
        text=True,
        check=True,
    )
    return str(device) in listed.stdout.split()
