"""The sum of an array in memory or on drives, for which files stand in: what it reads and finds."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kernel_binary import (
    FOR_TESTS,
    MEMORY_CHECKED,
    Start,
    build,
    build_driver,
    next_event,
    refusal,
    run,
    run_valid,
    waiting,
)

from throttled_drive import throttled_drive

KIB, MIB = 1 << 10, 1 << 20
CHUNK = 64 * KIB
SHORT = ["--warmup-seconds", "0.01", "--max-seconds", "0.05", "--sample-seconds", "0.01"]


@pytest.fixture(scope="module")
def folder(bandwidth: Path) -> Path:
    """Where files past the page cache can be: a real file system, as the build's is not always."""
    place = Path("/var/tmp") / f"chaosity-test-{os.getpid()}"
    place.mkdir()
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def drives(folder: Path) -> list[Path]:
    """Three files of known random content, of 24 chunks each."""
    found = [folder / f"drive{number}" for number in range(3)]
    for number, path in enumerate(found):
        path.write_bytes(random.Random(number).randbytes(24 * CHUNK))
    return found


def on(paths: list[Path], *more: str) -> list[str]:
    """Options for an array on drives."""
    listed = [option for path in paths for option in ("--drive", str(path))]
    return [*listed, "--chunk-bytes", str(CHUNK), *more]


def needs_rings(program: Path, paths: list[Path], cpu: str) -> None:
    tried = subprocess.run(
        [program, "--cpus", cpu, *on(paths), *SHORT], capture_output=True, text=True
    )
    if "io_uring" in tried.stderr or "O_DIRECT" in tried.stderr:
        pytest.skip(tried.stderr.strip())


@pytest.mark.parametrize("array_bytes", [128, 64 * 37, 64 * 1001, 3 * MIB])
def test_a_sum_in_memory_is_right(summing: Path, cpus: str, array_bytes: int):
    ran = run_valid([summing, "--cpus", cpus, "--array-bytes", str(array_bytes), *SHORT])
    assert (ran.ready["drives"], ran.ready["array_bytes"]) == (0, array_bytes)
    assert 0 < sum(sample["bytes"] for sample in ran.samples) <= ran.done["bytes"]


@pytest.mark.parametrize(
    ("count", "depth", "registered"),
    [(1, 1, "no"), (1, 32, "yes"), (3, 1, "yes"), (3, 3, "no"), (3, 3, "yes"), (3, 32, "no")],
)
def test_a_sum_from_drives_is_right(
    summing: Path, drives: list[Path], cpus: str, count: int, depth: int, registered: str
):
    needs_rings(summing, drives, cpus[0])
    options = on(drives[:count], "--queue-depth", str(depth), "--registered-buffers", registered)
    ran = run_valid([summing, "--cpus", cpus, *options, *SHORT])
    assert ran.done["compared_chunks"] > 0
    assert ran.ready["array_bytes"] == count * 24 * CHUNK
    assert (ran.ready["drives"], ran.ready["queue_depth"]) == (count, depth)
    assert ran.ready["registered_buffers"] is (registered == "yes")
    assert ran.samples
    for sample in ran.samples:
        assert sample["bytes"] > 0
        assert sample["bytes"] % CHUNK == 0


def test_a_list_of_drives_is_the_same_and_an_empty_one_is_memory(
    summing: Path, drives: list[Path], cpu: str, tmp_path: Path
):
    needs_rings(summing, drives, cpu)
    listed, empty = tmp_path / "drives", tmp_path / "none"
    listed.write_text("".join(f"{path}\n" for path in drives))
    empty.write_text("")
    options = ["--cpus", cpu, "--array-bytes", str(6 * CHUNK), "--chunk-bytes", str(CHUNK), *SHORT]
    assert run([summing, *options, "--drives-from", listed]).ready["drives"] == 3
    assert run([summing, *options, "--drives-from", empty]).ready["drives"] == 0


def test_a_signal_stops_reads_with_a_valid_result_unless_contents_have_changed(
    summing: Path, folder: Path, start: Start, cpu: str
):
    path = folder / "changing"
    path.write_bytes(bytes(CHUNK))
    needs_rings(summing, [path], cpu)
    for changed in (False, True):
        process = start([summing, "--cpus", cpu, *on([path]), "--max-seconds", "60"])
        assert [next_event(process)["event"] for _ in range(2)] == ["ready", "sample"]
        if changed:
            with path.open("r+b") as file:
                file.write(bytes([1]) * CHUNK)
                os.fsync(file.fileno())
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=10)
        done = json.loads(out.splitlines()[-1])
        assert (process.returncode, done["valid"]) == (int(changed), not changed)
        assert done["stopped_by"] == "signal"
        assert ("must not be used" in said) == changed


def test_a_read_that_gives_less_than_a_chunk_ends_it(
    summing: Path, folder: Path, start: Start, cpu: str
):
    path = folder / "shrinking"
    path.write_bytes(bytes(4 * CHUNK))
    needs_rings(summing, [path], cpu)
    process, _ = waiting(start, [summing, "--cpus", cpu, *on([path]), "--max-seconds", "60"])
    os.truncate(path, 2 * CHUNK + 4096)
    out, said = process.communicate("go\n", timeout=10)
    assert process.returncode == 1
    assert '"stopped_by":"error"' in out
    assert str(path) in said


def test_a_drive_that_never_answers_is_named(start: Start, cpu: str, tmp_path: Path):
    program = build("chaosity-sum", FOR_TESTS)
    with throttled_drive(tmp_path, 100 * MIB) as drive:
        options = [*on([drive.device]), "--queue-depth", "4", "--max-seconds", "60"]
        needs_rings(program, [drive.device], cpu)
        process = start([program, "--cpus", cpu, *options])
        assert [next_event(process)["event"] for _ in range(2)] == ["ready", "sample"]
        os.kill(drive.pid, signal.SIGSTOP)  # from now on the drive is silent
        try:
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            os.kill(drive.pid, signal.SIGCONT)
    assert process.returncode == 2
    device = re.escape(str(drive.device))
    missing = re.search(
        f"{device} does not answer: the read at ([0-9]+) is missing after 1 s", said
    )
    assert missing, said
    assert int(missing[1]) % CHUNK == 0


def test_reads_are_clean_under_the_sanitizers(drives: list[Path], cpus: str):
    program = build("chaosity-sum", MEMORY_CHECKED)
    needs_rings(program, drives, cpus[0])
    for options in (on(drives), on(drives[:1], "--queue-depth", "1")):
        run_valid([program, "--cpus", cpus, *options, *SHORT])


def test_every_chunk_once_a_round_whatever_drives_threads_and_depth():
    """The driver tries many stripes, each with several threads, and says what it saw."""
    program = build_driver("stripes_driver.c", "drives/drive_stripes.c", "common/errors.c")
    ended = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "wrong 0" in ended.stdout
    assert int(ended.stdout.split()[1]) > 1000  # tried


TOO_SMALL = [
    (["--array-bytes", str(100 * CHUNK)], "the drive set is too small for the array"),
    (["--chunk-bytes", str(64 * MIB)], "the drive set is too small for the array"),
    (["--array-bytes", str(CHUNK + 4096)], "multiple of --chunk-bytes"),
    (["--chunk-bytes", "192"], "logical blocks"),
    (["--memory-nodes", "0"], "--buffer-nodes"),
]


def test_what_does_not_fit_the_drives_is_refused(summing: Path, drives: list[Path], cpu: str):
    needs_rings(summing, drives, cpu)
    for options, words in TOO_SMALL:
        assert words in refusal([summing, "--cpus", cpu, *on(drives), *options]), options


def test_too_little_memory_that_may_be_locked_is_said(summing: Path, drives: list[Path], cpu: str):
    needs_rings(summing, drives, cpu)
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root to become somebody else")

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [*other, summing, "--cpus", cpu, *on(drives), "--registered-buffers", "yes"]
    ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=little)
    if "Permission denied" in ended.stderr:
        pytest.skip("another user may not run what these tests build")
    assert ended.returncode == 2
    assert "--registered-buffers" in ended.stderr
    assert "ulimit -l" in ended.stderr


def test_rings_that_are_forbidden_are_said(summing: Path, drives: list[Path], cpu: str):
    """A filter of system calls, as containers have, in a child that starts the program."""
    needs_rings(summing, drives, cpu)
    child = Path(__file__).parents[2] / "support/denied_system_calls.py"
    command = [sys.executable, child, "425", summing, "--cpus", cpu, *on(drives)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode == 77:
        pytest.skip("this kernel has no filter of system calls")
    assert ended.returncode == 2
    assert "io_uring is not permitted" in ended.stderr
