"""A program for another architecture may run emulated, and then its figures count for nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaosity.records.record_format import FAILED
from chaosity.runner.observed_state import read_emulator
from chaosity.runner.point_measurement import measure_point
from wait_until_true import wait_until

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"


@pytest.mark.parametrize(
    ("name", "emulator"),
    [(EMULATOR, EMULATOR), ("qemu-x86_64-static", "qemu-x86_64-static")]
    + [(name, None) for name in ("qemu-system-x86_64", "qemu-img", "sleep")],
)
def test_a_user_mode_emulator_is_seen_below_a_launcher(
    tmp_path: Path, name: str, emulator: str | None
) -> None:
    program = shutil.copy(shutil.which("sleep"), tmp_path / name)
    launcher = subprocess.Popen(["sh", "-c", f"{program} 60 & wait"], start_new_session=True)
    try:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        wait_until(
            lambda: any(
                Path(f"/proc/{child}/exe").readlink().name == name
                for child in children.read_text().split()
            )
        )
        assert read_emulator(launcher.pid) == emulator
    finally:
        os.killpg(launcher.pid, 15)
        launcher.wait()


needs_emulator = [
    pytest.mark.thorough,
    pytest.mark.skipif(platform.machine() == "aarch64", reason="here AArch64 is not emulated"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason="no compiler for AArch64"),
    pytest.mark.skipif(shutil.which(EMULATOR) is None, reason="no QEMU for AArch64"),
]


@pytest.fixture(scope="module", params=[pytest.param(None, marks=needs_emulator)])
def emulated(tmp_path_factory: pytest.TempPathFactory, root: Path) -> list[str]:
    """Command line of a kernel for AArch64, without the time that it measures."""
    folder, cpu = tmp_path_factory.mktemp("aarch64"), min(os.sched_getaffinity(0))
    program = str(folder / "chaosity-bandwidth")
    build = ["make", "-s", "-C", root / "roles/kernels/files", f"BUILD={folder}"]
    subprocess.run([*build, f"CC={COMPILER}", "CXX=false", program], check=True)
    emulator = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", "-cpu", "max"]
    return [*emulator, program, "--kernel=triad", f"--cpus={cpu}", "--array-bytes=6400000"]


def test_a_kernel_that_is_emulated_is_right_and_its_record_fails(
    make_point, emulated: list[str]
) -> None:
    record = measure_point(make_point(command=[*emulated, "--barrier"]), 1)
    (load,) = record["loads"]
    assert load["program"]["emulator"] == EMULATOR
    events = [json.loads(line) for line in load["outputs"]["stdout"].splitlines()]
    assert events[0]["isa"] in ("sve", "neon")
    checks = {check["name"]: check["passed"] for check in record["verdict"]["checks"]}
    assert checks["memory: right"] is True
    assert checks["memory: not emulated"] is False
    assert record["verdict"]["status"] == FAILED
    assert "so its figures are meaningless" in record["verdict"]["reason"]


def test_a_kernel_that_is_emulated_is_placed_and_the_report_says_so(
    tmp_path: Path, emulated: list[str]
) -> None:
    place = [sys.executable, "-m", "chaosity.place", "--policy=first_touch", "--workers=0"]
    command = [*place, f"--report={tmp_path / 'report'}", "--", *emulated, "--max-seconds=0.5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["valid"] is True
    assert json.loads((tmp_path / "report").read_text())["emulator"] == EMULATOR
