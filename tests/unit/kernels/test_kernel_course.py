"""The course of a run: start, samples, stop."""

from __future__ import annotations

import select
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kernel_binary import Start, arguments, catches, last_events, next_event, processor_ticks, run

LONG = ["--max-seconds", "60"]
MIB = 1 << 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("array_bytes", [64 * 1001, 64 * MIB])
def test_a_signal_stops_it_with_a_valid_result(
    bandwidth: Path, start: Start, cpus: str, array_bytes: int, number: signal.Signals
):
    # a long sample must not delay the stop
    options = ["--sample-seconds", "30", *LONG]
    process = start([bandwidth, *arguments("triad", cpus, array_bytes, *options)])
    assert next_event(process)["event"] == "ready"
    time.sleep(0.2)
    process.send_signal(number)
    *samples, done = last_events(process)
    assert process.returncode == 0
    assert done["event"] == "done"
    assert done["stopped_by"] == "signal"
    assert done["valid"] is True
    assert done["passes"] > 0
    assert sum(sample["bytes"] for sample in samples) == done["passes"] * 3 * array_bytes


def test_lines_arrive_while_it_runs(bandwidth: Path, start: Start, cpu: str):
    process = start([bandwidth, *arguments("read", cpu, MIB, *LONG)])
    assert [next_event(process)["event"] for _ in range(4)] == ["ready", *["sample"] * 3]
    assert process.poll() is None


def test_waits_at_the_barrier_for_a_line(bandwidth: Path, start: Start, cpus: str):
    options = ["--barrier", "--max-seconds", "0.1"]
    process = start([bandwidth, *arguments("copy", cpus, MIB, *options)])
    assert next_event(process)["event"] == "ready"
    assert select.select([process.stdout], [], [], 0.3)[0] == []
    go_ns = time.monotonic_ns()  # CLOCK_MONOTONIC on Linux, as in the samples
    process.stdin.write("go\n")
    process.stdin.flush()
    *samples, done = last_events(process)
    assert samples[0]["begin_ns"] >= go_ns
    assert done["valid"] is True
    assert process.returncode == 0


def test_does_not_use_the_cpus_while_it_waits(bandwidth: Path, start: Start, cpus: str):
    process = start([bandwidth, *arguments("copy", cpus, MIB, "--barrier")])
    ready = next_event(process)

    before = processor_ticks(process, ready)
    time.sleep(0.5)
    assert processor_ticks(process, ready) - before <= 2  # of 50 (at 100 Hz) a thread


def test_end_of_input_at_the_barrier_means_stop(bandwidth: Path, cpus: str):
    ran = run([bandwidth, *arguments("copy", cpus, MIB, "--barrier")])
    assert ran.code == 0
    assert ran.samples == []
    # nothing was measured, so nothing was found right
    assert ran.done["valid"] is None
    assert ran.done["passes"] == 0
    assert ran.done["stopped_by"] == "end_of_input"


def test_a_signal_at_the_barrier_means_stop(bandwidth: Path, start: Start, cpus: str):
    process = start([bandwidth, *arguments("copy", cpus, MIB, "--barrier")])
    next_event(process)
    process.terminate()
    (done,) = last_events(process)
    assert (done["passes"], done["stopped_by"], process.returncode) == (0, "signal", 0)


def test_a_signal_during_set_up_means_stop(bandwidth: Path, start: Start, cpu: str):
    process = start([bandwidth, *arguments("copy", cpu, 512 * MIB, *LONG)])
    while not catches(process, signal.SIGTERM):  # set-up then takes 100 ms or more
        time.sleep(0.001)
    process.terminate()
    done = last_events(process)[-1]
    assert (done["stopped_by"], process.returncode) == ("signal", 0)


def test_time_stops_it(bandwidth: Path, cpus: str):
    ran = run([bandwidth, *arguments("add", cpus, MIB, "--max-seconds", "0.2")])
    assert ran.done["stopped_by"] == "time"
    seconds = (ran.samples[-1]["end_ns"] - ran.samples[0]["begin_ns"]) / 1e9
    assert 0.15 < seconds < 1  # 0.2, unless others use the CPUs


@pytest.mark.alone  # a thread that waits for its CPU makes a sample longer than the whole run
@pytest.mark.parametrize("array_bytes", [64 * 100, 16 * MIB])
def test_samples_are_long_enough_and_in_order(bandwidth: Path, cpus: str, array_bytes: int):
    options = ["--sample-seconds", "0.03", "--max-seconds", "0.3"]
    samples = run([bandwidth, *arguments("scale", cpus, array_bytes, *options)]).samples
    assert len(samples) >= 2
    for sample in samples[:-1]:  # the last one ends with the measurement
        assert sample["end_ns"] - sample["begin_ns"] >= 0.03e9
    for one, next_one in pairwise(samples):
        assert one["end_ns"] <= next_one["begin_ns"]


def test_a_pass_a_sample_when_samples_are_short(bandwidth: Path, cpu: str):
    options = ["--sample-seconds", "1e-9", "--max-seconds", "0.02", "--warmup-passes", "0"]
    ran = run([bandwidth, *arguments("copy", cpu, MIB, *options)])
    assert {sample["bytes"] for sample in ran.samples} == {2 * MIB}
    assert ran.done["valid"] is True


def test_says_so_when_the_results_cannot_be_written(bandwidth: Path, cpu: str):
    with Path("/dev/full").open("w") as full:
        command = [bandwidth, *arguments("copy", cpu, MIB, "--max-seconds", "5")]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 2
    assert "could not be written" in ended.stderr


def test_ends_when_nobody_reads_any_more(bandwidth: Path, start: Start, cpu: str):
    process = start([bandwidth, *arguments("copy", cpu, MIB, *LONG)])
    next_event(process)
    process.stdout.close()
    assert process.wait(timeout=5) == -signal.SIGPIPE
