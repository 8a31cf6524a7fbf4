"""What both programs that measure latency share: course, placement, refusals, memory errors."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kernel_binary import (
    Checked,
    Start,
    catches,
    last_events,
    next_event,
    numa_map,
    processor_ticks,
    refusal,
    run,
    sleeps,
    waiting,
)

MIB = 1 << 20
LONG = ["--max-seconds", "60"]
PROGRAMS = ["chaosity-latency", "chaosity-core-to-core"]
POOLS = Path("/sys/kernel/mm/hugepages")


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def options(program: str, usable_cpus: list[int]) -> list[str]:
    """What the program needs to run at all."""
    if program == "chaosity-latency":
        return ["--cpu", str(usable_cpus[0]), "--bytes", str(4 * MIB)]
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    return ["--cpu", str(usable_cpus[0]), "--responder", str(usable_cpus[1])]


@pytest.fixture
def command(programs: Path, program: str, options: list[str]) -> list[str]:
    return [str(programs / program), *options]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after", ["ready", "sample"])
def test_a_signal_stops_it_with_a_valid_result(
    command: list[str], start: Start, after: str, number: signal.Signals
):
    # a long sample must not delay the stop
    sample_seconds = "30" if after == "ready" else "0.01"
    process = start([*command, "--sample-seconds", sample_seconds, *LONG])
    assert next_event(process)["event"] == "ready"
    seen = [next_event(process)] if after == "sample" else []
    time.sleep(0.2)
    process.send_signal(number)
    *rest, done = last_events(process)
    assert process.returncode == 0
    assert (done["valid"], done["stopped_by"]) == (True, "signal")
    assert (
        sum(sample["accesses"] for sample in seen + rest if sample["event"] == "sample")
        == done["accesses"]
    )
    assert done["accesses"] > 0 or after == "ready"  # may still find out how long a block is


def test_a_signal_does_not_break_off_a_result_that_a_slow_reader_delays(
    command: list[str], start: Start
):
    process = start([*command, "--sample-seconds", "1e-6", *LONG])
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, os.sysconf("SC_PAGESIZE"))
    while next_event(process)["event"] != "sample":  # it may sleep while it is set up
        pass
    while not sleeps(process):  # as it does once the pipe is full
        time.sleep(0.001)
    process.terminate()
    time.sleep(0.1)
    *_, done = last_events(process)
    assert (done["valid"], done["stopped_by"], process.returncode) == (True, "signal", 0)


def test_a_signal_during_set_up_means_stop(latency: Path, start: Start, cpu: str):
    process = start([latency, "--cpu", cpu, "--bytes", str(512 * MIB), *LONG])
    while not catches(process, signal.SIGTERM):  # set-up then takes 100 ms or more
        time.sleep(0.001)
    process.terminate()
    done = last_events(process)[-1]
    assert (done["stopped_by"], process.returncode) == ("signal", 0)


def test_waits_at_the_barrier_for_a_line(command: list[str], start: Start):
    process, _ = waiting(start, [*command, "--max-seconds", "0.1"])
    assert select.select([process.stdout], [], [], 0.3)[0] == []
    go_ns = time.monotonic_ns()  # CLOCK_MONOTONIC on Linux, as in the samples
    process.stdin.write("go\n")
    process.stdin.flush()
    *samples, done = last_events(process)
    assert samples[0]["begin_ns"] >= go_ns
    assert (done["valid"], process.returncode) == (True, 0)


def test_does_not_use_the_cpus_while_it_waits(command: list[str], start: Start):
    process, ready = waiting(start, command)
    before = processor_ticks(process, ready)
    time.sleep(0.5)
    assert processor_ticks(process, ready) - before <= 2  # of 50 (at 100 Hz) a thread


def test_end_of_input_at_the_barrier_means_stop(command: list[str]):
    ran = run([*command, "--barrier"])
    assert (ran.code, ran.samples) == (0, [])
    # nothing was measured, so nothing was found right
    nothing = {"valid": None, "accesses": 0, "blocks": 0, "latency_ns": None, "timer_share": None}
    assert {key: ran.done[key] for key in nothing} == nothing
    assert ran.done["stopped_by"] == "end_of_input"


def test_a_signal_at_the_barrier_means_stop(command: list[str], start: Start):
    process, _ = waiting(start, command)
    process.terminate()
    (done,) = last_events(process)
    assert (done["accesses"], done["stopped_by"], process.returncode) == (0, "signal", 0)


def test_samples_are_long_enough_and_in_order(command: list[str]):
    samples = run([*command, "--sample-seconds", "0.03", "--max-seconds", "0.3"]).samples
    assert len(samples) >= 2
    for sample in samples[:-1]:  # the last one ends with the measurement
        assert sample["end_ns"] - sample["begin_ns"] >= 0.03e9
    for one, next_one in pairwise(samples):
        assert one["end_ns"] <= next_one["begin_ns"]


def test_a_block_a_sample_when_samples_are_short(command: list[str]):
    ran = run([*command, "--sample-seconds", "1e-9", "--max-seconds", "0.02"])
    assert {sum(sample["blocks"].values()) for sample in ran.samples} == {1}
    assert ran.done["valid"] is True


def test_says_so_when_the_results_cannot_be_written(command: list[str]):
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [*command, "--max-seconds", "5"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert process.returncode == 2
    assert "could not be written" in process.stderr


def test_ends_when_nobody_reads_any_more(command: list[str], start: Start):
    process = start([*command, *LONG])
    next_event(process)
    process.stdout.close()
    assert process.wait(timeout=5) == -signal.SIGPIPE


def test_threads_are_pinned_where_they_say(command: list[str], options: list[str], start: Start):
    process, ready = waiting(start, command)
    cpus = [
        int(options[i + 1]) for i, word in enumerate(options) if word in ("--cpu", "--responder")
    ]
    assert [thread["cpu"] for thread in ready["threads"]] == cpus
    assert ready["threads"][0]["tid"] == process.pid
    for thread in ready["threads"]:
        assert os.sched_getaffinity(thread["tid"]) == {thread["cpu"]}


@pytest.mark.parametrize("bound", [False, True])
def test_pages_lie_on_the_node_asked_for(
    program: str, command: list[str], start: Start, node: int, bound: bool
):
    process, ready = waiting(start, [*command, *(["--memory-nodes", str(node)] if bound else [])])
    fields = numa_map(process, ready)
    assert ready["policy"] == ("bind" if bound else "default")
    assert ready["memory_nodes"] == (str(node) if bound else None)
    assert fields[0] == (f"bind:{node}" if bound else "default")
    page_bytes = os.sysconf("SC_PAGESIZE")
    pages = 4 * MIB // page_bytes if program == "chaosity-latency" else 1
    found = [field.split("=") for field in fields if re.fullmatch(r"N\d+=\d+", field)]
    assert sum(int(count) for _, count in found) == pages
    if bound:
        assert found == [[f"N{node}", str(pages)]]
    assert f"kernelpagesize_kB={page_bytes // 1024}" in fields


def test_transparent_huge_pages_hold_everything_or_are_refused(command: list[str]):
    command = [*command, "--pages", "thp", "--max-seconds", "0.02"]
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        assert "transparent huge page" in refusal(command)
        return
    ready = run(command).ready
    page_bytes = ready["page_bytes"]
    assert ready["huge_page_bytes"] == -(-ready.get("bytes", 1) // page_bytes) * page_bytes


# prctl(2): PR_SET_THP_DISABLE, which also what a program starts inherits
WITHOUT_HUGE_PAGES = """\
import ctypes, os, sys
ctypes.CDLL(None, use_errno=True).prctl(41, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_transparent_huge_pages_that_were_not_got_are_refused(command: list[str]):
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no transparent huge pages")
    sentence = refusal([sys.executable, "-c", WITHOUT_HUGE_PAGES, *command, "--pages", "thp"])
    assert re.search(r"transparent huge pages for 0 of \d+ bytes", sentence)


@pytest.mark.parametrize(("pages", "kib"), [("2M", 2048), ("1G", 1 << 20)])
def test_reserved_huge_pages_that_are_not_there_are_refused(
    program: str, command: list[str], pages: str, kib: int
):
    pool = POOLS / f"hugepages-{kib}kB"
    free = int((pool / "free_hugepages").read_text()) if pool.exists() else 0
    command = [*command, "--pages", pages]
    if program == "chaosity-latency":  # a page more than there are; else the line needs one page
        command += ["--bytes", str((free + 1) * kib * 1024)]
    elif free > 0:
        pytest.skip("this machine has the page reserved")
    sentence = refusal(command)
    assert f"--pages {pages}: " in sentence
    if pool.exists():
        assert f"{free + 1} huge pages are needed and {free} are free" in sentence


WRONG = [
    ({"--memory-nodes": "1023"}, "--memory-nodes"),
    ({"--memory-nodes": ""}, "--memory-nodes takes a list"),
    ({"--line-bytes": "0"}, "a power of two and at least 16"),
    ({"--line-bytes": "8"}, "a power of two and at least 16"),
    ({"--line-bytes": "96"}, "a power of two and at least 16"),
    ({"--pages": "4K"}, "--pages takes base, thp, 2M or 1G"),
    ({"--sample-seconds": "0"}, "--sample-seconds takes a number of seconds"),
    ({"--max-seconds": "nan"}, "--max-seconds takes a number of seconds"),
    ({"--cpu": "all"}, "--cpu takes a whole number"),
    ({"--threads": "2"}, "'--threads=2' is not an option"),
    ({"--ba": "now"}, "'--ba=now' is not an option"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_wrong_arguments_get_a_sentence(command: list[str], change: dict[str, str], says: str):
    assert says in refusal([*command, *(f"{name}={value}" for name, value in change.items())])


def test_a_word_that_belongs_to_no_option_is_refused(command: list[str]):
    assert "'fast' does not belong to an option" in refusal([*command, "fast"])


def test_nothing_at_all_is_refused(command: list[str]):
    assert "are needed, see --help" in refusal(command[:1])


def test_a_cpu_outside_the_affinity_is_refused(command: list[str], usable_cpus: list[int]):
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    sentence = refusal(["taskset", "-c", str(usable_cpus[1]), *command])
    assert f"this process may not run on CPU {usable_cpus[0]}" in sentence


def test_says_its_version_and_name(program: str, command: list[str]):
    said = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True)
    version = re.fullmatch(rf"{program} (\d+\.\d+\.\d+\+[0-9a-f]{{12}}) \(.+\)\n", said.stdout)
    ready = run([*command, "--max-seconds", "0.01"]).ready
    assert ready["version"] == version[1]
    assert ready["compiler"]


def test_help_has_an_example_that_names_only_options_there_are(command: list[str]):
    text = subprocess.run([command[0], "--help"], capture_output=True, text=True, check=True).stdout
    described, example = text.split("Example:")
    for option in re.findall(r"--[a-z-]+", example):
        assert f"  {option} " in described


@pytest.fixture(params=["memory_checked", "threads_checked"])
def checked(request: pytest.FixtureRequest) -> Checked:
    """A build under sanitizers."""
    return request.getfixturevalue(request.param)


@pytest.mark.thorough
@pytest.mark.parametrize("pages", ["base", "thp"])
def test_clean_under_sanitizers(checked: Checked, program: str, options: list[str], pages: str):
    more = ["--max-seconds", "0.1", "--pages", pages, "--barrier"]
    ran = run([*checked(program), *options, *more], stdin=None, input="go\n")
    if pages == "thp" and ran.code == 2:
        return  # this machine has none; what it says then is tested above
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.done["valid"] is True
