"""Traffic beside a chase: what it moves, how it stops, and that mistakes are found."""

from __future__ import annotations

import platform
import subprocess
import time
from pathlib import Path

import pytest
from kernel_binary import Start, arguments, last_events, next_event, run, run_valid

MIB = 1 << 20
# arrays, lines that the memory reads and writes for a line of each
MIXES = {
    "read": (1, 1, 0),
    "copy": (2, 2, 1),
    "add_nt": (3, 2, 1),
    "fill": (1, 1, 1),
    "copy_nt": (2, 1, 1),
}
SHORT = ["--peak-seconds", "0.01", "--max-seconds", "0.03", "--sample-seconds", "0.005"]


@pytest.mark.parametrize("kernel", MIXES)
def test_what_it_leaves_is_right_and_bytes_are_what_the_chunks_moved(
    traffic: Path, kernel: str, cpus: str
):
    arrays, reads, writes = MIXES[kernel]
    lines = 16 * 1024 // 64 // arrays
    whole = 64 * lines * 40 * len(cpus.split(","))  # every chunk is a whole one
    # parts of a line or two, odd ones, and whole chunks
    for array_bytes, share in [(128, 100), (64 * 37, 40), (64 * 1001, 100), (whole, 40)]:
        ran = run_valid(
            [traffic, *arguments(kernel, cpus, array_bytes, *SHORT, "--share", str(share))]
        )
        assert ran.done["share"] == ran.ready["share"] == share
    assert ran.ready["arrays"] == arrays
    assert (ran.ready["reads_per_line"], ran.ready["writes_per_line"]) == (reads, writes)
    assert ran.ready["read_share"] == round(100 * reads / (reads + writes))
    assert ran.ready["chunk_bytes"] == lines * 64 * (reads + writes)
    assert ran.ready["bytes_per_pass"] == whole * (reads + writes)
    assert ran.done["chunks"] > 0
    assert ran.done["bytes"] == ran.done["chunks"] * ran.ready["chunk_bytes"]
    assert sum(sample["bytes"] for sample in ran.samples) == ran.done["bytes"]


def test_the_kernels_are_listed(traffic: Path):
    listed = subprocess.run([traffic, "--list"], capture_output=True, text=True, check=True)
    if platform.machine() in ("x86_64", "aarch64"):
        assert listed.stdout.splitlines() == list(MIXES)


def test_less_is_moved_when_less_is_asked_for(traffic: Path, cpu: str):
    moved = {}
    for share in ("2", "100"):
        options = ["--share", share, "--peak-seconds", "0.05", "--max-seconds", "0.2"]
        moved[share] = run([traffic, *arguments("fill", cpu, MIB, *options)]).done["bytes"]
    assert moved["2"] < moved["100"] / 4


def test_a_signal_while_the_peak_is_measured_leaves_no_samples(
    traffic: Path, start: Start, cpus: str
):
    options = ["--share", "50", "--peak-seconds", "60"]
    process = start([traffic, *arguments("copy", cpus, MIB, *options)])
    next_event(process)
    time.sleep(0.2)
    process.terminate()
    (done,) = last_events(process)
    assert (done["stopped_by"], done["valid"], process.returncode) == ("signal", True, 0)
    assert (done["bytes"], done["peak_bytes_per_second"]) == (0, None)
    assert done["warmup_chunks"] > 0
