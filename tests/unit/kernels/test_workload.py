"""Programs whose pages are placed: what they compute, who touches, and that mistakes are found."""

from __future__ import annotations

import os
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kernel_binary import (
    Built,
    Checked,
    Start,
    last_events,
    next_event,
    numa_map,
    refusal,
    run,
    waiting,
)

KERNELS = ["triad", "gather", "stencil", "spmv"]
MIB = 1 << 20
# neither whole pages nor even parts; the smallest is some rows
SIZES = [8000, 64 * 1001, 3 * MIB + 12345]


def request(kernel: str, cpus: str, size: int, *more: str) -> list[str]:
    """The three options that are always needed, and more."""
    return ["--kernel", kernel, "--cpus", cpus, "--bytes", str(size), *more]


def elements_of(ready: dict) -> int:
    """What a pass counts, by the shape that the ready line tells."""
    return {
        "triad": lambda: ready["array_bytes"] // 8,
        "gather": lambda: ready["table_elements"] // 8,
        "stencil": lambda: ready["rows"] * ready["columns"],
        "spmv": lambda: ready["nonzeros"],
    }[ready["kernel"]]()


@pytest.mark.parametrize("touch", ["own", "leader"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_and_validates(workload: Path, kernel: str, cpus: str, size: int, touch: str):
    options = ["--max-seconds", "0.02", "--sample-seconds", "0.005", "--touch", touch]
    ran = run([workload, *request(kernel, cpus, size, *options)])
    assert (ran.code, ran.stderr) == (0, "")
    assert (ran.done["valid"], ran.done["max_relative_error"]) == (True, 0)
    assert (ran.ready["bytes"], ran.ready["touch"]) == (size, touch)
    counted = sum(sample["elements"] for sample in ran.samples)
    assert counted == ran.done["passes"] * elements_of(ran.ready) > 0
    for one, next_one in pairwise(ran.samples):
        assert one["begin_ns"] < one["end_ns"] <= next_one["begin_ns"]


def shape_bytes(ready: dict) -> int:
    """The size of all arrays together, by the shape that the ready line tells."""
    return {
        "triad": lambda: 3 * ready["array_bytes"],
        "gather": lambda: 8 * ready["table_elements"],
        "stencil": lambda: 2 * 8 * ready["rows"] * ready["columns"],
        "spmv": lambda: 12 * ready["nonzeros"] + 24 * ready["rows"],
    }[ready["kernel"]]()


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_mapping_holds_everything_that_was_asked_for(
    workload: Path, start: Start, cpus: str, node: int, kernel: str
):
    size = 8 * MIB
    process, ready = waiting(start, [workload, *request(kernel, cpus, size)])
    assert 0.98 * size < shape_bytes(ready) <= size
    pages = [field for field in numa_map(process, ready) if field.startswith("N")]
    held = sum(int(field.split("=")[1]) for field in pages) * os.sysconf("SC_PAGESIZE")
    assert shape_bytes(ready) <= held <= size + 5 * os.sysconf("SC_PAGESIZE")


def policy_of(process, ready: dict) -> str:
    return numa_map(process, ready)[0]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("touch", ["own", "leader"])
def test_the_policy_of_the_process_rules(
    workload: Path, start: Start, cpus: str, node: int, kernel: str, touch: str
):
    if shutil.which("numactl") is None:
        pytest.skip("numactl is not installed")
    options = request(kernel, cpus, MIB, "--touch", touch)
    process, ready = waiting(start, ["numactl", f"--interleave={node}", workload, *options])
    assert (policy_of(process, ready), ready["policy"]) == (f"interleave:{node}", "default")
    process, ready = waiting(start, [workload, *options])
    assert policy_of(process, ready) == "default"
    process, ready = waiting(start, [workload, *options, "--memory-nodes", str(node)])
    assert (policy_of(process, ready), ready["policy"]) == (f"bind:{node}", "bind")


def faults(process, thread: dict) -> int:
    """How many pages a thread was the first to touch: its minor faults (proc(5))."""
    stat = Path(f"/proc/{process.pid}/task/{thread['tid']}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[7])


@pytest.mark.parametrize("kernel", KERNELS)
def test_who_touches_the_pages_first(
    workload: Path, start: Start, usable_cpus: list[int], kernel: str
):
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    cpus = ",".join(map(str, usable_cpus[:2]))
    pages = 16 * MIB // os.sysconf("SC_PAGESIZE")
    for touch, others_share in (("own", 0.5), ("leader", 0)):
        options = request(kernel, cpus, 16 * MIB, "--touch", touch)
        process, ready = waiting(start, [workload, *options])
        _, other = ready["threads"]
        assert others_share * pages * 0.9 <= faults(process, other) <= (others_share + 0.1) * pages


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_signal_stops_it_with_a_valid_result(
    workload: Path, start: Start, cpus: str, kernel: str
):
    options = ["--sample-seconds", "30", "--max-seconds", "60"]
    process = start([workload, *request(kernel, cpus, 4 * MIB, *options)])
    ready = next_event(process)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    *samples, done = last_events(process)
    assert (process.returncode, done["valid"], done["stopped_by"]) == (0, True, "signal")
    counted = sum(sample["elements"] for sample in samples)
    assert counted == done["passes"] * elements_of(ready) > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_end_of_input_at_the_barrier_means_stop(workload: Path, cpus: str, kernel: str):
    ran = run([workload, *request(kernel, cpus, MIB, "--barrier")])
    assert (ran.code, ran.samples, ran.done["valid"]) == (0, [], None)


WRONG = [
    ({"--kernel": "copy"}, "unknown kernel 'copy'"),
    ({"--kernel": ""}, "unknown kernel ''"),
    ({"--cpus": "0,0"}, "--cpus names 0 twice"),
    ({"--bytes": "0"}, "are needed"),
    ({"--bytes": "1e6"}, "--bytes takes a whole number"),
    ({"--bytes": str(1 << 50)}, "can give"),
    ({"--kernel": "spmv", "--bytes": str(1 << 50)}, "spmv has 32-bit columns"),
    ({"--warmup-passes": "some"}, "--warmup-passes takes a whole number"),
    ({"--touch": "first"}, "--touch takes own or leader, not 'first'"),
    ({"--memory-nodes": "1023"}, "--memory-nodes"),
    ({"--array-bytes": "64"}, "'--array-bytes=64' is not an option"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_wrong_arguments_get_a_sentence(workload: Path, cpu: str, change: dict, says: str):
    options = {"--kernel": "gather", "--cpus": cpu, "--bytes": "640000"} | change
    sentence = refusal([workload, *(f"{name}={value}" for name, value in options.items())])
    assert sentence.startswith("chaosity-workload: ")
    assert says in sentence


@pytest.mark.parametrize("kernel", KERNELS)
def test_too_little_for_its_threads_is_refused(workload: Path, cpus: str, kernel: str):
    sentence = refusal([workload, *request(kernel, cpus, 60)])
    assert "--bytes 60 is too small" in sentence


def test_a_cpu_outside_the_affinity_is_refused(workload: Path, usable_cpus: list[int]):
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    first, second = usable_cpus[:2]
    command = ["taskset", "-c", str(second), workload, *request("gather", str(first), MIB)]
    assert f"this process may not run on CPU {first}" in refusal(command)


MUTANTS = {
    "every pass leaves out an end": 1,
    "one pass leaves out an end": 2,
    "one pass is not done": 3,
    "one element is off by the last bit": 4,
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_pass_that_is_wrong_is_found_out(built: Built, cpus: str, mutant: int, kernel: str):
    binary = built("chaosity-workload", f"-DMUTANT={mutant}")
    options = ["--max-seconds", "0.02", "--warmup-passes", "9"]  # the mistakes are in pass 3
    ran = run([binary, *request(kernel, cpus, 64 * 1001, *options)])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert ran.done["max_relative_error"] > 0
    assert f"{kernel} computed wrong values" in ran.stderr


def run_clean(checked: Checked, cpus: str) -> None:
    for kernel in KERNELS:
        for touch in ("own", "leader"):
            options = ["--max-seconds", "0.02", "--barrier", "--touch", touch]
            command = [*checked("chaosity-workload"), *request(kernel, cpus, 64 * 1001)]
            ran = run([*command, *options], stdin=None, input="go\n")
            assert (ran.code, ran.stderr) == (0, ""), (kernel, touch)


@pytest.mark.thorough
def test_clean_under_address_and_undefined_behaviour_sanitizer(memory_checked: Checked, cpus: str):
    run_clean(memory_checked, cpus)


@pytest.mark.thorough
def test_clean_under_thread_sanitizer(threads_checked: Checked, cpus: str):
    run_clean(threads_checked, cpus)  # a stencil's threads read what others wrote
