"""chaosity-copies between the host and the OpenCL devices of this machine, such as PoCL's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from kernel_binary import Built, Checked, Start, last_events, next_event, refusal, run, waiting

PIECE = 64 * 4096
SMALL = ["--bytes", str(3 * PIECE), "--copy-bytes", str(PIECE), "--sample-seconds", "0.01"]
SHORT = [*SMALL, "--max-seconds", "0.1"]
# Copies to and from the device that a direction has.
DIRECTIONS = {"to_device": (True, False), "from_device": (False, True), "both_ways": (True, True)}
OF_EACH = pytest.mark.parametrize("direction", DIRECTIONS)


@pytest.fixture(scope="module", autouse=True)
def device(opencl: Path) -> None:
    said = subprocess.run([opencl, "--list"], check=True, capture_output=True, timeout=60).stdout
    if not json.loads(said)["devices"]:
        pytest.skip("this machine has no OpenCL device")


@OF_EACH
def test_each_byte_counts_once_and_all_data_is_right(copying: Path, direction: str):
    ran = run([str(copying), "--direction", direction, "--memory-nodes", "0", *SHORT])
    assert (ran.code, ran.stderr) == (0, "")
    assert (ran.ready["direction"], ran.ready["memory_nodes"]) == (direction, "0")
    assert (ran.ready["bytes"], ran.ready["copy_bytes"]) == (3 * PIECE, PIECE)
    assert (ran.done["valid"], ran.done["wrong_words"]) == (True, 0)
    counts = [ran.done["copies_to_device"], ran.done["copies_from_device"]]
    assert tuple(count > 3 for count in counts) == DIRECTIONS[direction]
    for former, sample in pairwise(ran.samples):
        assert sample["begin_ns"] == former["end_ns"]
    assert all(sample["bytes"] % PIECE == 0 for sample in ran.samples)
    # Not in a sample: the first three of each direction, and what was in flight at the end.
    copied = sum(sample["bytes"] for sample in ran.samples) // PIECE
    assert 0 < copied <= sum(counts) - 3 * sum(DIRECTIONS[direction])


MUTANTS = {"every copy leaves out a line": 1, "later copies have one line": 2}


@OF_EACH
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_copy_that_leaves_something_out_is_found(built: Built, direction: str, mutant: int):
    program = built("chaosity-copies", f"-DMUTANT={mutant}")
    ran = run([str(program), "--direction", direction, *SHORT])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert ran.done["wrong_words"] >= 2
    assert "must not be used" in ran.stderr


def test_it_waits_at_the_barrier_and_stops_on_a_signal(copying: Path, start: Start):
    command = [str(copying), "--direction", "both_ways", *SMALL, "--max-seconds", "60"]
    process, ready = waiting(start, command)
    assert ready["event"] == "ready"
    process.stdin.write("go\n")
    process.stdin.flush()
    assert next_event(process)["event"] == "sample"
    process.send_signal(signal.SIGTERM)
    *_, done = last_events(process)
    assert (done["stopped_by"], done["valid"]) == ("signal", True)
    assert process.returncode == 0


def test_the_end_of_input_at_the_barrier_is_no_measurement(copying: Path):
    ran = run([str(copying), *SHORT, "--barrier"])
    assert (ran.code, ran.samples) == (0, [])
    assert (ran.done["valid"], ran.done["stopped_by"]) == (None, "end_of_input")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--direction", "up"], "to_device, from_device or both_ways, not 'up'"),
        (["--copy-bytes", "100"], "--copy-bytes takes a multiple of 4096"),
        (["--bytes", "0"], "--bytes takes a multiple of --copy-bytes"),
        (["--bytes", str(PIECE + 4096)], "--bytes takes a multiple of --copy-bytes"),
        (["--device", "none"], "--device 'none'"),
        (["--memory-nodes", "1000"], "memory of the host lies on node 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(copying: Path, options: list[str], reason: str):
    assert reason in refusal([str(copying), *SHORT, *options])


@OF_EACH
def test_clean_under_the_sanitizers(memory_checked: Checked, direction: str):
    """Leaks are not searched, because the driver does not free all of its memory at the end."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [*memory_checked("chaosity-copies"), "--direction", direction, *SHORT]
    ran = run(command, env=environment)
    assert (ran.code, ran.stderr) == (0, "")
