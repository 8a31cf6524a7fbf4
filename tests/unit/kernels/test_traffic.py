"""Traffic beside a chase: what it moves, how it stops, and that mistakes are found."""

from __future__ import annotations

import platform
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kernel_binary import (
    Built,
    Checked,
    Run,
    Start,
    arguments,
    last_events,
    next_event,
    numa_map,
    refusal,
    run,
    waiting,
)

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


@pytest.mark.parametrize("share", ["100", "40"])
# parts of a line or two, odd ones, and whole chunks
@pytest.mark.parametrize("array_bytes", [128, 64 * 37, 64 * 1001, 4 * MIB])
@pytest.mark.parametrize("kernel", MIXES)
def test_what_it_leaves_is_right(
    traffic: Path, kernel: str, cpus: str, array_bytes: int, share: str
):
    ran = run([traffic, *arguments(kernel, cpus, array_bytes, *SHORT, "--share", share)])
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.done["valid"] is True
    assert ran.done["max_relative_error"] == 0
    assert ran.done["share"] == ran.ready["share"] == int(share)
    assert ran.done["stopped_by"] == "time"


@pytest.mark.parametrize("kernel", MIXES)
def test_bytes_are_what_the_chunks_moved(traffic: Path, kernel: str, cpus: str):
    arrays, reads, writes = MIXES[kernel]
    lines = 16 * 1024 // 64 // arrays
    array_bytes = 64 * lines * 40 * len(cpus.split(","))  # every chunk is a whole one
    ran = run([traffic, *arguments(kernel, cpus, array_bytes, *SHORT)])
    assert ran.ready["arrays"] == arrays
    assert (ran.ready["reads_per_line"], ran.ready["writes_per_line"]) == (reads, writes)
    assert ran.ready["chunk_bytes"] == lines * 64 * (reads + writes)
    assert ran.ready["bytes_per_pass"] == array_bytes * (reads + writes)
    assert ran.done["chunks"] > 0
    assert ran.done["bytes"] == ran.done["chunks"] * ran.ready["chunk_bytes"]
    assert sum(sample["bytes"] for sample in ran.samples) == ran.done["bytes"]


def test_the_kernels_cover_three_shares_of_reads(traffic: Path, cpu: str):
    listed = subprocess.run([traffic, "--list"], capture_output=True, text=True, check=True)
    kernels = listed.stdout.splitlines()
    if platform.machine() in ("x86_64", "aarch64"):
        assert kernels == list(MIXES)
    shares = {"read": 100, "copy": 67, "add_nt": 67, "fill": 50, "copy_nt": 50}
    for kernel in kernels:
        ready = run([traffic, *arguments(kernel, cpu, 6400, *SHORT)]).ready
        assert ready["read_share"] == shares[kernel]


def test_samples_follow_each_other_without_a_gap(traffic: Path, cpus: str):
    options = ["--share", "50", "--sample-seconds", "0.01", "--max-seconds", "0.1"]
    samples = run([traffic, *arguments("copy", cpus, MIB, *options)]).samples
    assert len(samples) >= 2
    for sample in samples[:-1]:  # the last one ends with the measurement
        assert sample["end_ns"] - sample["begin_ns"] >= 0.01e9
    for one, following in pairwise(samples):
        assert one["end_ns"] == following["begin_ns"]


def test_share_is_told_beside_the_peak(traffic: Path, cpus: str):
    options = ["--peak-seconds", "0.1", "--max-seconds", "0.2", "--share"]
    for share in (25, 50, 75, 100):
        ran = run([traffic, *arguments("read", cpus, 64 * MIB, *options, str(share))])
        peak = ran.done["peak_bytes_per_second"]
        assert peak > 0
        seconds = (ran.samples[-1]["end_ns"] - ran.samples[0]["begin_ns"]) / 1e9
        # how fast it was is nothing to insist on; pytest -s shows it
        print(f"{share} % asked: {100 * ran.done['bytes'] / seconds / peak:.1f} % of peak")


def test_less_is_moved_when_less_is_asked_for(traffic: Path, cpu: str):
    moved = {}
    for share in ("2", "100"):
        options = ["--share", share, "--peak-seconds", "0.05", "--max-seconds", "0.2"]
        moved[share] = run([traffic, *arguments("fill", cpu, MIB, *options)]).done["bytes"]
    assert moved["2"] < moved["100"] / 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("share", ["1", "100"])
@pytest.mark.parametrize("kernel", ["read", "copy", "fill", "copy_nt"])
def test_a_signal_stops_it_with_a_valid_result(
    traffic: Path, start: Start, cpus: str, kernel: str, share: str, number: signal.Signals
):
    options = ["--share", share, "--peak-seconds", "0.05", "--max-seconds", "60"]
    process = start([traffic, *arguments(kernel, cpus, 16 * MIB, *options)])
    assert [next_event(process)["event"] for _ in range(2)] == ["ready", "sample"]
    process.send_signal(number)
    done = last_events(process)[-1]
    assert process.returncode == 0
    assert (done["stopped_by"], done["valid"]) == ("signal", True)
    assert done["start_spread_ns"] >= 0
    assert done["stop_spread_ns"] >= 0


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


def test_waits_at_the_barrier_for_a_line(traffic: Path, start: Start, cpus: str):
    process, _ = waiting(start, [traffic, *arguments("copy", cpus, MIB, *SHORT)])
    go_ns = time.monotonic_ns()  # CLOCK_MONOTONIC on Linux, as in the samples
    process.stdin.write("go\n")
    process.stdin.flush()
    *samples, done = last_events(process)
    assert samples[0]["begin_ns"] >= go_ns + 0.01e9  # the peak comes before
    assert done["valid"] is True


def test_end_of_input_at_the_barrier_means_stop(traffic: Path, cpus: str):
    ran = run([traffic, *arguments("copy", cpus, MIB, "--barrier")])
    assert (ran.code, ran.samples) == (0, [])
    assert ran.done["valid"] is None  # nothing ran, so nothing was found right
    assert (ran.done["bytes"], ran.done["stopped_by"]) == (0, "end_of_input")
    assert ran.done["start_spread_ns"] is ran.done["stop_spread_ns"] is None


def test_threads_and_pages_are_where_they_were_asked_to_be(
    traffic: Path, start: Start, cpus: str, node: int
):
    command = [traffic, *arguments("add_nt", cpus, 4 * MIB, "--memory-nodes", str(node))]
    process, ready = waiting(start, command)
    assert [str(thread["cpu"]) for thread in ready["threads"]] == cpus.split(",")
    assert (ready["policy"], ready["memory_nodes"]) == ("bind", str(node))
    fields = numa_map(process, ready)
    assert fields[0] == f"bind:{node}"
    assert f"N{node}={3 * 4 * MIB // ready['page_bytes']}" in fields


WRONG = [
    ({"--kernel": "triad"}, "unknown kernel 'triad'"),
    ({"--cpus": "0,0"}, "--cpus names 0 twice"),
    ({"--array-bytes": "0"}, "are needed"),
    ({"--array-bytes": "100"}, "multiple of 64"),
    ({"--memory-nodes": "1023"}, "--memory-nodes"),
    ({"--pages": "4K"}, "--pages takes base, thp, 2M or 1G"),
    ({"--share": "0"}, "--share takes 1 to 100 per cent"),
    ({"--share": "101"}, "--share takes a whole number"),
    ({"--share": "12.5"}, "--share takes a whole number"),
    ({"--peak-seconds": "0"}, "--peak-seconds takes a number of seconds"),
    ({"--sample-seconds": "-1"}, "--sample-seconds takes a number of seconds"),
    ({"--max-seconds": "nan"}, "--max-seconds takes a number of seconds"),
    ({"--threads": "2"}, "'--threads=2' is not an option"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_wrong_arguments_get_a_sentence(traffic: Path, cpu: str, change: dict, says: str):
    options = {"--kernel": "copy", "--cpus": cpu, "--array-bytes": "6400"} | change
    sentence = refusal([traffic, *(f"{name}={value}" for name, value in options.items())])
    assert sentence.startswith("chaosity-traffic: ")
    assert says in sentence


def test_more_memory_than_there_is_is_refused(traffic: Path, cpu: str):
    assert "can give" in refusal([traffic, *arguments("fill", cpu, 1 << 50)])


MUTANTS = {
    "every chunk leaves out its last cache line": 1,
    "one chunk leaves out its last cache line": 2,
    "one chunk is not done": 3,
    "one element is off by the last bit": 4,
}


def shorter_than_a_pass(binary: Path, kernel: str, cpus: str) -> Run:
    """A run in which no thread came to a chunk twice, so that nothing closes a gap."""
    options = ["--peak-seconds", "1e-6", "--max-seconds", "1e-6"]
    while True:  # a thread that waits for its processor lets the others go on for milliseconds
        ran = run([binary, *arguments(kernel, cpus, 64 * MIB, *options)])
        chunks = ran.done["chunks"] + ran.done["warmup_chunks"]
        chunks_a_pass = MIXES[kernel][0] * 64 * MIB / ran.ready["chunk_bytes"]
        if chunks < chunks_a_pass / len(cpus.split(",")):
            return ran


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_chunk_that_is_wrong_is_found_out(built: Built, cpus: str, mutant: int):
    binary = built("chaosity-traffic", f"-DMUTANT={mutant}")
    for kernel in MIXES:
        ran = shorter_than_a_pass(binary, kernel, cpus)
        assert ran.code == 1, kernel
        assert ran.done["valid"] is False
        assert ran.done["max_relative_error"] > 0
        assert "must not be used" in ran.stderr


@pytest.mark.parametrize("kernel", ["read", "fill", "copy"])
def test_a_chunk_left_out_shows_though_later_passes_do_it(built: Built, cpu: str, kernel: str):
    binary = built("chaosity-traffic", "-DMUTANT=3")
    options = ["--peak-seconds", "0.01", "--max-seconds", "0.03"]
    ran = run([binary, *arguments(kernel, cpu, MIB, *options)])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert ran.done["bytes"] > 4 * MIB


def run_clean(checked: Checked, cpus: str, kernels: list[str]) -> None:
    for kernel in kernels:
        for share in ("100", "30"):
            options = [*SHORT, "--barrier", "--share", share]
            words = arguments(kernel, cpus, 64 * 10001, *options)
            ran = run([*checked("chaosity-traffic"), *words], stdin=None, input="go\n")
            assert (ran.code, ran.stderr) == (0, ""), (kernel, share)


def test_clean_under_address_and_undefined_behaviour_sanitizer(memory_checked: Checked, cpus: str):
    run_clean(memory_checked, cpus, list(MIXES))


@pytest.mark.thorough
def test_clean_under_thread_sanitizer(threads_checked: Checked, cpus: str):
    # what threads share is the same for all
    run_clean(threads_checked, cpus, ["read", "copy_nt"])
