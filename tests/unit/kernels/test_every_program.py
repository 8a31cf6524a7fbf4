"""What all programs share: the course of a run, placement, refusals, memory errors."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from every_program import (
    ALL,
    BANDWIDTH,
    COPIES,
    CORE_TO_CORE,
    LATENCY,
    MIB,
    ON_CPUS,
    OPENCL,
    PATHS,
    SUM,
    TASKS,
    TRAFFIC,
    WORKLOAD,
    Program,
)
from kernel_binary import (
    MEMORY_CHECKED,
    THREADS_CHECKED,
    Start,
    build,
    catches,
    last_events,
    next_event,
    numa_map,
    processor_ticks,
    refusal,
    run,
    run_valid,
    sleeps,
    waiting,
)

LONG = ["--max-seconds", "60"]
POOLS = Path("/sys/kernel/mm/hugepages")
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ONE_MAPPING = [one for one in ON_CPUS if one.mapped_bytes]


def of(programs: list[Program]) -> pytest.MarkDecorator:
    """Run a test for these programs."""
    return pytest.mark.parametrize("program", programs, ids=lambda one: one.name)


@pytest.fixture(params=ALL, ids=lambda one: one.name)
def program(request: pytest.FixtureRequest) -> Program:
    return request.param


@pytest.fixture
def command(program: Program, options: list[str]) -> list[str]:
    return [str(build(program.name)), *options]


def require_whole(program: Program, ready: dict, samples: list[dict], done: dict) -> None:
    """The samples follow each other, and together they are all that was counted."""
    for one, following in pairwise(samples):
        assert one["begin_ns"] < one["end_ns"] <= following["begin_ns"]
        assert one["end_ns"] == following["begin_ns"] or not program.gapless
    if program.count is not None:
        counted = sum(sample[program.counted] for sample in samples)
        assert counted == program.count(ready, done)


def test_time_stops_it_and_samples_are_in_order(program: Program, command: list[str]):
    ran = run_valid([*command, "--sample-seconds", "0.02", "--max-seconds", "0.2"])
    assert ran.done["stopped_by"] == "time"
    assert len(ran.samples) >= 2
    require_whole(program, ran.ready, ran.samples, ran.done)
    seconds = (ran.samples[-1]["end_ns"] - ran.samples[0]["begin_ns"]) / 1e9
    assert 0.1 < seconds < 2  # 0.2, unless others use the CPUs


@pytest.mark.alone  # a thread that waits for its CPU makes a sample longer than the whole run
@of([BANDWIDTH, LATENCY, CORE_TO_CORE, TRAFFIC])
def test_samples_are_long_enough(command: list[str]):
    samples = run([*command, "--sample-seconds", "0.03", "--max-seconds", "0.3"]).samples
    assert len(samples) >= 2
    for sample in samples[:-1]:  # the last one ends with the measurement
        assert sample["end_ns"] - sample["begin_ns"] >= 0.03e9


@of([BANDWIDTH, LATENCY, CORE_TO_CORE])
def test_a_sample_has_one_pass_or_block_when_samples_are_short(
    program: Program, command: list[str]
):
    ran = run([*command, "--sample-seconds", "1e-9", "--max-seconds", "0.02"])
    if program is BANDWIDTH:
        assert {sample["bytes"] for sample in ran.samples} == {12 * MIB}
    else:
        assert {sum(sample["blocks"].values()) for sample in ran.samples} == {1}
    assert ran.done["valid"] is True


@of([LATENCY, CORE_TO_CORE])
@pytest.mark.parametrize("size", [16 * 1024, 64 * 1001, 512 * 1024])  # L1, odd, L2
def test_accesses_are_blocks_times_their_length(program: Program, command: list[str], size: int):
    words = [program.size, str(size)] if program.size else []
    ran = run([*command, *words, "--sample-seconds", "0.05", "--max-seconds", "0.2"])
    done = ran.done
    merged: Counter[float] = Counter()
    for sample in ran.samples:
        blocks = sum(sample["blocks"].values())
        assert sample["accesses"] == blocks * done["accesses_per_block"] > 0
        inside = sum(float(key) * count for key, count in sample["blocks"].items())
        lasted = sample["end_ns"] - sample["begin_ns"]
        assert inside * done["accesses_per_block"] < 1.001 * lasted
        merged.update({float(key): count for key, count in sample["blocks"].items()})
    assert merged.total() == done["blocks"]
    in_order = sorted(merged.elements())
    assert done["latency_ns"] == in_order[(len(in_order) - 1) // 2]
    assert 0 < done["timer_share"] < 0.01
    median_ns = done["latency_ns"] * done["accesses_per_block"]
    assert done["timer_share"] == pytest.approx(done["timer_ns"] / median_ns, rel=1e-3)
    if program is CORE_TO_CORE:
        assert done["accesses_per_block"] % 2 == 0  # two moves a round trip
        [lines] = [event for event in ran.events if event["event"] == "lines"]
        medians = sorted(lines["latency_ns"])
        assert len(medians) == 32
        assert (lines["p10_ns"], lines["p90_ns"]) == (medians[3], medians[28])
        # Each line has as many blocks as any other, to within one.
        assert medians[0] <= done["latency_ns"] <= medians[-1]


def test_a_signal_stops_it_with_a_valid_result(program: Program, command: list[str], start: Start):
    for sample_seconds, first_samples in ((30, 0), (0.01, 3)):
        # A long sample must not delay the stop. Programs on devices wait for the end of a sample.
        if first_samples == 0 and program not in ON_CPUS:
            continue
        process = start([*command, f"--sample-seconds={sample_seconds}", *LONG])
        ready = next_event(process)
        samples = [next_event(process) for _ in range(first_samples)]  # they arrive while it runs
        assert {one["event"] for one in samples} <= {"sample"}
        time.sleep(0.01 if samples else 0.2)
        process.send_signal(signal.SIGINT if samples else signal.SIGTERM)
        *rest, done = last_events(process)
        assert (process.returncode, done["valid"], done["stopped_by"]) == (0, True, "signal")
        samples += [event for event in rest if event["event"] == "sample"]
        require_whole(program, ready, samples, done)


@of([BANDWIDTH, LATENCY])
def test_a_signal_during_set_up_means_stop(program: Program, command: list[str], start: Start):
    process = start([*command, program.size, str(512 * MIB), *LONG])
    while not catches(process, signal.SIGTERM):  # set-up then takes 100 ms or more
        time.sleep(0.001)
    process.terminate()
    done = last_events(process)[-1]
    assert (done["stopped_by"], process.returncode) == ("signal", 0)


@of([LATENCY, CORE_TO_CORE])
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


def test_waits_at_the_barrier_on_its_cpus_for_a_line_without_using_them(
    program: Program, two_cpus: list[int], start: Start, node: int
):
    backwards = two_cpus[::-1]
    options = program.options.format(*backwards, node=node).split()
    process, ready = waiting(start, [str(build(program.name)), *options, "--max-seconds", "0.1"])
    if program in ON_CPUS:
        wanted = backwards[: 1 if program is LATENCY else 2]
        found = [thread["cpu"] for thread in ready["threads"]]
        assert found == wanted or (program is TASKS and sorted(found) == sorted(wanted))
        assert ready["threads"][0]["tid"] == process.pid
        for thread in ready["threads"]:
            assert os.sched_getaffinity(thread["tid"]) == {thread["cpu"]}
    before = processor_ticks(process, ready) if program in ON_CPUS else 0
    assert select.select([process.stdout], [], [], 0.3)[0] == []
    if program in ON_CPUS:
        assert processor_ticks(process, ready) - before <= 2  # of 30 (at 100 Hz) a thread
    go_ns = time.monotonic_ns()  # CLOCK_MONOTONIC on Linux, as in the samples
    process.stdin.write("go\n")
    process.stdin.flush()
    samples = [event for event in last_events(process) if event["event"] == "sample"]
    assert samples[0]["begin_ns"] >= go_ns
    assert process.returncode == 0


@pytest.mark.parametrize("stopped_by", ["end_of_input", "signal"])
def test_a_stop_at_the_barrier_is_no_measurement(
    program: Program, command: list[str], start: Start, stopped_by: str
):
    process, _ = waiting(start, command)
    if stopped_by == "signal":
        process.terminate()
    (done,) = last_events(process)  # which ends the input
    assert (done["stopped_by"], process.returncode) == (stopped_by, 0)
    # Nothing was measured, so nothing was found right.
    if program in ON_CPUS:
        empty = {"passes", "accesses", "blocks", "bytes", "runs", "samples"} & {*done}
        assert {done[key] for key in empty} <= {0}
    unknown = {"latency_ns", "timer_share", "start_spread_ns", "stop_spread_ns"} & {*done}
    assert {done[key] for key in ("valid", *unknown)} == {None}


@of([BANDWIDTH, LATENCY, CORE_TO_CORE, TASKS])
def test_results_that_cannot_be_written_end_it(command: list[str], start: Start):
    with Path("/dev/full").open("w") as full:
        pipe = subprocess.PIPE
        ended = subprocess.run([*command, *LONG], stdout=full, stderr=pipe, text=True, timeout=60)
    assert ended.returncode == 2
    assert "could not be written" in ended.stderr
    process = start([*command, *LONG])
    next_event(process)
    process.stdout.close()  # nobody reads any more
    assert process.wait(timeout=5) == -signal.SIGPIPE


@of(ON_CPUS)
def test_a_cpu_outside_the_affinity_is_refused(command: list[str], two_cpus: list[int]):
    first, second = two_cpus
    sentence = refusal(["taskset", "-c", str(second), *command])
    assert f"this process may not run on CPU {first}" in sentence


@pytest.mark.parametrize(
    ("program", "policy"),
    [
        *((one, policy) for one in ONE_MAPPING for policy in ("default", "bind")),
        (BANDWIDTH, "interleave"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_pages_lie_on_the_node_asked_for(
    program: Program, command: list[str], start: Start, node: int, policy: str
):
    bound = policy != "default"
    words = ["--memory-nodes", str(node)] if bound else []
    process, ready = waiting(start, [*command, *words, *["--interleave"][: policy == "interleave"]])
    fields = numa_map(process, ready)
    assert ready["policy"] == policy
    assert ready["memory_nodes"] == (str(node) if bound else None)
    assert fields[0] == (f"{policy}:{node}" if bound else policy)
    page_bytes = os.sysconf("SC_PAGESIZE")
    pages = -(-program.mapped_bytes // page_bytes)
    found = [field.split("=") for field in fields if re.fullmatch(r"N\d+=\d+", field)]
    assert sum(int(count) for _, count in found) == pages
    if bound:
        assert found == [[f"N{node}", str(pages)]]
    assert f"kernelpagesize_kB={page_bytes // 1024}" in fields
    assert (ready["pages"], ready["huge_page_bytes"]) == ("base", 0)
    smaps = Path(f"/proc/{process.pid}/smaps").read_text().split(f"{ready['mapping']}-")[1]
    assert "AnonHugePages:         0 kB" in smaps.split("VmFlags")[0]


# prctl(2): PR_SET_THP_DISABLE, which also what a program starts inherits
WITHOUT_HUGE_PAGES = """\
import ctypes, os, sys
ctypes.CDLL(None, use_errno=True).prctl(41, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@of(ONE_MAPPING)
def test_transparent_huge_pages_hold_everything_or_are_refused(
    program: Program, command: list[str]
):
    command = [*command, "--pages", "thp", "--max-seconds", "0.02"]
    if not THP.exists() or "[never]" in THP.read_text():
        assert "transparent huge page" in refusal(command)
        return
    ready = run(command).ready
    page_bytes = ready["page_bytes"]
    assert ready["huge_page_bytes"] == -(-program.mapped_bytes // page_bytes) * page_bytes
    sentence = refusal([sys.executable, "-c", WITHOUT_HUGE_PAGES, *command])
    assert re.search(r"transparent huge pages for 0 of \d+ bytes", sentence)


@pytest.mark.parametrize(("pages", "kib"), [("2M", 2048), ("1G", 1 << 20)])
@of([BANDWIDTH, LATENCY, CORE_TO_CORE])
def test_reserved_huge_pages_that_are_not_there_are_refused(
    program: Program, command: list[str], pages: str, kib: int
):
    pool = POOLS / f"hugepages-{kib}kB"
    free = int((pool / "free_hugepages").read_text()) if pool.exists() else 0
    needed = free + 1
    command = [*command, "--pages", pages]
    if program is LATENCY:
        command += [program.size, str(needed * kib * 1024)]
    elif program is BANDWIDTH:
        command += ["--kernel", "fill", program.size, str(needed * kib * 1024)]
    elif free > 0:  # the line needs one page only
        pytest.skip("this machine has the page reserved")
    sentence = refusal(command)
    assert f"--pages {pages}: " in sentence
    if pool.exists():
        assert f"{needed} huge pages are needed and {free} are free" in sentence


def test_more_memory_than_there_is_is_refused(program: Program, command: list[str], node: int):
    if not program.size:
        return  # its size is that of one line, or of a copy
    words = "no memory for a matrix" if program is OPENCL else "can give"
    sentence = refusal([*command, program.size, str(1 << (48 if program is OPENCL else 50))])
    assert words in sentence
    if program is LATENCY:
        bound = [*command, program.size, str(1 << 50), "--memory-nodes", str(node)]
        assert re.search(rf"memory nodes {node} can give \d+ MiB", refusal(bound))


OF_ALL = {
    "--sample-seconds=0": "--sample-seconds takes a number of seconds",
    "--max-seconds=-1": "--max-seconds takes a number of seconds",
    "--max-seconds=nan": "--max-seconds takes a number of seconds",
    "--threads=2": "'--threads=2' is not an option",
    "--ba=now": "'--ba=now' is not an option",
    "fast": "'fast' does not belong to an option",
}
OF_MEMORY = {
    "--memory-nodes=1023": "--memory-nodes",
    "--memory-nodes=0,1023": "--memory-nodes",
    "--memory-nodes=": "--memory-nodes takes a list",
    "--memory-nodes=1024": "is above 1023",
    "--pages=4K": "--pages takes base, thp, 2M or 1G",
}
OF_CPUS = {
    "--cpus=": "--cpus takes a list",
    "--cpus=0-": "--cpus takes a list",
    "--cpus=1-0": "--cpus takes a list",
    "--cpus=0,0": "--cpus names 0 twice",
    "--cpus=99999999999999999999": "is above",
}
OF_ARRAYS = {
    "--array-bytes=0": "are needed",
    "--array-bytes=100": "multiple of 64",
    "--array-bytes=1e6": "--array-bytes takes a whole number",
    "--array-bytes=-64": "--array-bytes takes a whole number",
}
OF_LINES = {
    "--line-bytes=0": "a power of two and at least 16",
    "--line-bytes=8": "a power of two and at least 16",
    "--line-bytes=96": "a power of two and at least 16",
    "--cpu=all": "--cpu takes a whole number",
    "--cpu=0-1": "--cpu takes a whole number",
    "--cpu=8191": "this process may not run on CPU 8191",
}
OF_DEVICES = {
    "--platform=none": "--platform 'none' --device '' --slot '' --twin 0: this host has '",
    "--device=none": "--device 'none'",
    "--slot=0000:00:00.0": "--slot '0000:00:00.0'",
    "--twin=250": "--twin 250",
}
# What each program refuses, and words of the sentence.
REFUSED: dict[str, dict[str, str]] = {
    BANDWIDTH.name: {
        **(OF_ALL | OF_MEMORY | OF_CPUS | OF_ARRAYS),
        "--kernel=stream": "unknown kernel 'stream'",
        "--warmup-passes=some": "--warmup-passes takes a whole number",
        "--interleave": "needs --memory-nodes",
    },
    LATENCY.name: {
        **(OF_ALL | OF_MEMORY | OF_LINES),
        "--bytes=64": "at least two lines",
        "--bytes=100": "multiple of the cache line",
        "--bytes=0": "are needed",
        "--bytes=1e6": "--bytes takes a whole number",
        "--bytes=192 --line-bytes=128": "multiple of the cache line",
        "--seed=-1": "--seed takes a whole number",
        "--warmup-bytes=all": "--warmup-bytes takes a whole number",
        "--block-bytes=1000": "--block-bytes must be a multiple of the cache line",
    },
    CORE_TO_CORE.name: {
        **(OF_ALL | OF_MEMORY | OF_LINES),
        "--responder=0 --cpu=0": "must be two CPUs",
        "--responder=8191": "this process may not run on CPU 8191",
    },
    TRAFFIC.name: {
        **(OF_ALL | OF_MEMORY | OF_CPUS | OF_ARRAYS),
        "--kernel=triad": "unknown kernel 'triad'",
        "--share=0": "--share takes 1 to 100 per cent",
        "--share=101": "--share takes a whole number",
        "--share=12.5": "--share takes a whole number",
        "--peak-seconds=0": "--peak-seconds takes a number of seconds",
    },
    WORKLOAD.name: {
        **(OF_ALL | OF_MEMORY | OF_CPUS),
        "--kernel=copy": "unknown kernel 'copy'",
        "--kernel=": "unknown kernel ''",
        "--bytes=0": "are needed",
        "--bytes=60": "--bytes 60 is too small",
        "--bytes=1e6": "--bytes takes a whole number",
        f"--kernel=spmv --bytes={1 << 50}": "spmv has 32-bit columns",
        "--warmup-passes=some": "--warmup-passes takes a whole number",
        "--touch=first": "--touch takes own or leader, not 'first'",
    },
    PATHS.name: {
        **(OF_ALL | OF_MEMORY | OF_CPUS),
        "--memory-nodes=0,0": "--memory-nodes names 0 twice",
        "--bytes=0": "are needed",
        "--bytes=100": "--bytes must be a multiple of 64",
        "--turn-seconds=0": "--turn-seconds takes a number of seconds",
        "--kernel=read": "'--kernel=read' is not an option",
    },
    SUM.name: {
        **(OF_ALL | OF_MEMORY | OF_CPUS | OF_ARRAYS),
        "--array-bytes=0": "--array-bytes",
        "--drive=/nowhere/at/all": "No such file",
        "--drive=/dev/null": "neither a block device nor a regular",
        "--drive=/var/tmp": "neither a block device nor a regular",
        "--queue-depth=0": "--queue-depth",
        "--chunk-bytes=0": "--chunk-bytes",
        "--chunk-bytes=100": "multiple of 64",
        "--registered-buffers=perhaps": "yes or no, not 'perhaps'",
        "--buffer-nodes=0": "--memory-nodes",
        "--drives-from=/nowhere": "cannot be read",
    },
    TASKS.name: {
        **(OF_ALL | OF_MEMORY | OF_CPUS),
        "--program=quicksort": "--program takes stencil, matmul, mergesort or spmv",
        "--runtime=fast": "--runtime takes vanilla or locality, not 'fast'",
        "--bytes=0": "--bytes must be at least 524288, 256 KiB for each of 2 CPUs",
        "--bytes=524287": "--bytes must be at least 524288",
        "--bytes=4MiB": "--bytes takes a whole number",
        "--runtime=vanilla --data=somewhere": "--data takes spread or one_node",
        "--data=spread": "--data is for the vanilla runtime",
    },
    OPENCL.name: {
        **(OF_ALL | OF_DEVICES),
        "--elements=6": "--elements takes a multiple of 4",
        "--elements=0": "--elements takes a multiple of 4",
    },
    COPIES.name: {
        **OF_ALL,
        "--device=none": "--device 'none'",
        "--direction=up": "to_device, from_device or both_ways, not 'up'",
        "--copy-bytes=100": "--copy-bytes takes a multiple of 4096",
        "--bytes=0": "--bytes takes a multiple of --copy-bytes",
        f"--bytes={64 * 4096 + 4096}": "--bytes takes a multiple of --copy-bytes",
        "--memory-nodes=1000": "memory of the host lies on node 0",
    },
}


def test_wrong_options_get_a_sentence(program: Program, command: list[str]):
    for change, words in REFUSED[program.name].items():
        sentence = refusal([*command, *change.split()])
        assert sentence.startswith(f"{program.name}: "), change
        assert words in sentence, change
    if program not in (SUM, TASKS, OPENCL, COPIES):
        assert "are needed, see --help" in refusal(command[:1])
        assert "are needed" in refusal(command[:3])


def test_says_its_version_and_its_options(program: Program, command: list[str]):
    said = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True)
    version = re.fullmatch(rf"{program.name} (\d+\.\d+\.\d+\+[0-9a-f]{{12}}) \(.+\)\n", said.stdout)
    ready = run([*command, "--max-seconds", "0.01"]).ready
    assert ready["version"] == version[1]
    assert ready["compiler"]
    text = subprocess.run([command[0], "--help"], capture_output=True, text=True, check=True).stdout
    described, example = text.split("Example:")
    for option in re.findall(r"--[a-z-]+", example.partition(program.name)[2]):
        assert f"  {option} " in described


# What one program does in several ways, which the sanitizers have to see.
WAYS = {
    BANDWIDTH.name: [
        *(f"--kernel {name}" for name in ("read", "copy", "scale", "add", "triad", "fill")),
        *(f"--kernel {name}_nt" for name in ("copy", "scale", "add", "triad", "fill")),
        "--pages thp",
    ],
    LATENCY.name: ["", "--pages thp"],
    CORE_TO_CORE.name: ["", "--pages thp"],
    TRAFFIC.name: [
        *(f"--kernel {name} --share 30" for name in ("read", "copy", "add_nt", "fill", "copy_nt")),
        "",
    ],
    WORKLOAD.name: [
        f"--kernel {kernel} --touch {touch}"
        for kernel in ("triad", "gather", "stencil", "spmv")
        for touch in ("own", "leader")
    ],
    COPIES.name: [f"--direction {way}" for way in ("to_device", "from_device", "both_ways")],
}


def run_clean(command: list[str], program: Program) -> None:
    """Run a program that was built under a sanitizer in all of its ways."""
    # The drivers of devices do not free all of their memory at the end.
    leaks = {} if program in ON_CPUS else {"ASAN_OPTIONS": "detect_leaks=0"}
    for way in WAYS.get(program.name, [""]):
        words = [*command, *way.split(), "--max-seconds", "0.03", "--barrier"]
        ran = run(words, stdin=None, input="go\n", env=os.environ | leaks)
        if "thp" in way and ran.code == 2:
            continue  # this machine has none; what it says then is tested above
        assert (ran.code, ran.stderr, ran.done["valid"]) == (0, "", True), way


@of(
    [
        *(TRAFFIC, PATHS, SUM, OPENCL, COPIES),
        *(
            pytest.param(one, marks=pytest.mark.thorough)
            for one in (BANDWIDTH, LATENCY, CORE_TO_CORE, WORKLOAD)
        ),
    ]
)
def test_clean_under_address_and_undefined_behaviour_sanitizer(
    program: Program, options: list[str]
):
    run_clean([str(build(program.name, MEMORY_CHECKED)), *options], program)


@pytest.mark.thorough
@of([BANDWIDTH, LATENCY, CORE_TO_CORE, TRAFFIC, WORKLOAD, PATHS])
def test_clean_under_thread_sanitizer(program: Program, options: list[str]):
    # Without random addresses: GCC 12's sanitizer cannot place its shadow memory with the wide
    # randomisation of newer kernels.
    setarch = shutil.which("setarch")
    command = [*([setarch, "-R"] if setarch else []), str(build(program.name, THREADS_CHECKED))]
    tried = subprocess.run([*command, "--version"], capture_output=True, text=True)
    if "unexpected memory mapping" in tried.stderr or "Operation not permitted" in tried.stderr:
        pytest.skip("the thread sanitizer cannot run here")
    run_clean([*command, *options], program)
