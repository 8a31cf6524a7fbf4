"""The sum of an array in memory or on drives, for which files stand in: what it reads and finds."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kernel_binary import (
    Built,
    Checked,
    Start,
    build_driver,
    last_events,
    next_event,
    refusal,
    run,
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
    ran = run([summing, "--cpus", cpus, "--array-bytes", str(array_bytes), *SHORT])
    assert (ran.code, ran.stderr) == (0, "")
    assert (ran.done["valid"], ran.done["stopped_by"]) == (True, "time")
    assert (ran.ready["drives"], ran.ready["array_bytes"]) == (0, array_bytes)
    assert 0 < sum(sample["bytes"] for sample in ran.samples) <= ran.done["bytes"]


@pytest.mark.parametrize("registered", ["yes", "no"])
@pytest.mark.parametrize("depth", [1, 3, 32])
@pytest.mark.parametrize("count", [1, 3])
def test_a_sum_from_drives_is_right(
    summing: Path, drives: list[Path], cpus: str, count: int, depth: int, registered: str
):
    needs_rings(summing, drives, cpus[0])
    options = on(drives[:count], "--queue-depth", str(depth), "--registered-buffers", registered)
    ran = run([summing, "--cpus", cpus, *options, *SHORT])
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.done["valid"] is True
    assert ran.done["compared_chunks"] > 0
    assert ran.ready["array_bytes"] == count * 24 * CHUNK
    assert (ran.ready["drives"], ran.ready["queue_depth"]) == (count, depth)
    assert ran.ready["registered_buffers"] is (registered == "yes")
    for sample in ran.samples:
        assert sample["bytes"] > 0
        assert sample["bytes"] % CHUNK == 0


def test_samples_follow_each_other_without_a_gap(summing: Path, drives: list[Path], cpus: str):
    needs_rings(summing, drives, cpus[0])
    for options in (["--array-bytes", str(MIB)], on(drives)):
        samples = run([summing, "--cpus", cpus, *options, *SHORT]).samples
        assert samples
        for one, following in pairwise(samples):
            assert one["end_ns"] == following["begin_ns"]


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_a_valid_result(
    summing: Path, drives: list[Path], start: Start, cpus: str, number: signal.Signals
):
    needs_rings(summing, drives, cpus[0])
    for options in (["--array-bytes", str(MIB)], on(drives)):
        process = start([summing, "--cpus", cpus, *options, "--max-seconds", "60"])
        assert [next_event(process)["event"] for _ in range(2)] == ["ready", "sample"]
        process.send_signal(number)
        done = last_events(process)[-1]
        assert (done["valid"], done["stopped_by"]) == (True, "signal")


def test_the_end_of_input_means_stop(summing: Path, drives: list[Path], start: Start, cpus: str):
    needs_rings(summing, drives, cpus[0])
    process, ready = waiting(start, [summing, "--cpus", cpus, *on(drives)])
    assert len(ready["threads"]) == len(cpus.split(","))
    process.stdin.close()
    process.stdin = None
    done = last_events(process)[-1]
    assert (done["valid"], done["stopped_by"]) == (None, "end_of_input")


def test_contents_that_change_are_found(summing: Path, folder: Path, start: Start, cpu: str):
    path = folder / "changing"
    path.write_bytes(bytes(CHUNK))
    needs_rings(summing, [path], cpu)
    process = start([summing, "--cpus", cpu, *on([path]), "--max-seconds", "60"])
    assert [next_event(process)["event"] for _ in range(2)] == ["ready", "sample"]
    with path.open("r+b") as file:
        file.write(bytes([1]) * CHUNK)
        os.fsync(file.fileno())
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert '"valid":false' in out
    assert "must not be used" in said


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


def test_a_drive_that_never_answers_is_named(built: Built, start: Start, cpu: str, tmp_path: Path):
    program = built("chaosity-sum", "-DSILENT_SECONDS=1")
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


def test_a_kernel_that_is_wrong_is_found_out(built: Built, drives: list[Path], cpu: str):
    wrong = built("chaosity-sum", "-DMUTANT=1")  # leaves out a line
    for options in (["--array-bytes", "6400"], on(drives)):
        ran = run([wrong, "--cpus", cpu, *options, *SHORT])
        if ran.code == 2 and options[0] == "--drive":
            pytest.skip(ran.stderr)
        assert ran.code == 1
        assert ran.done["valid"] is False
        assert "must not be used" in ran.stderr


def test_every_chunk_once_a_round_whatever_drives_threads_and_depth(tmp_path: Path):
    """The driver tries many stripes, each with several threads, and says what it saw."""
    driver = Path(__file__).with_name("stripes_driver.c")
    sources = ("drives/drive_stripes.c", "common/errors.c")
    program = build_driver(tmp_path, driver, *sources)
    ended = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "wrong 0" in ended.stdout
    assert int(ended.stdout.split()[1]) > 1000  # tried


REFUSED = {
    "no such file": (["--drive", "/nowhere/at/all"], "No such file"),
    "a device that is no drive": (["--drive", "/dev/null"], "neither a block device nor a regular"),
    "a folder": (["--drive", "/var/tmp"], "neither a block device nor a regular"),
    "nothing": ([], "--array-bytes"),
    "no depth": (["--queue-depth", "0"], "--queue-depth"),
    "no chunk": (["--chunk-bytes", "0"], "--chunk-bytes"),
    "half a line": (["--chunk-bytes", "100"], "multiple of 64"),
    "perhaps registered": (["--registered-buffers", "perhaps"], "yes or no, not 'perhaps'"),
    "buffers of memory": (["--array-bytes", "640", "--buffer-nodes", "0"], "--memory-nodes"),
    "no list": (["--drives-from", "/nowhere"], "cannot be read"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_one_sentence(summing: Path, cpu: str, options: list[str], words: str):
    assert words in refusal([summing, "--cpus", cpu, *options])


TOO_SMALL = {
    "array": (["--array-bytes", str(100 * CHUNK)], "the drive set is too small for the array"),
    "chunk": (["--chunk-bytes", str(64 * MIB)], "the drive set is too small for the array"),
    "odd array": (["--array-bytes", str(CHUNK + 4096)], "multiple of --chunk-bytes"),
    "odd chunk": (["--chunk-bytes", "192"], "logical blocks"),
    "memory nodes": (["--memory-nodes", "0"], "--buffer-nodes"),
}


@pytest.mark.parametrize(("options", "words"), TOO_SMALL.values(), ids=TOO_SMALL.keys())
def test_what_does_not_fit_the_drives_is_refused(
    summing: Path, drives: list[Path], cpu: str, options: list[str], words: str
):
    needs_rings(summing, drives, cpu)
    assert words in refusal([summing, "--cpus", cpu, *on(drives), *options])


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
    child = Path(__file__).parents[2] / "denied_system_calls.py"
    command = [sys.executable, child, "425", summing, "--cpus", cpu, *on(drives)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode == 77:
        pytest.skip("this kernel has no filter of system calls")
    assert ended.returncode == 2
    assert "io_uring is not permitted" in ended.stderr


def test_clean_under_the_sanitizers(memory_checked: Checked, drives: list[Path], cpus: str):
    [program] = memory_checked("chaosity-sum")
    needs_rings(program, drives, cpus[0])
    for options in (["--array-bytes", "64064"], on(drives), on(drives[:1], "--queue-depth", "1")):
        ran = run([program, "--cpus", cpus, *options, *SHORT])
        assert (ran.code, ran.stderr) == (0, "")
