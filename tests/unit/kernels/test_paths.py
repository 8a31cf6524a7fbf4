"""Reading from all nodes in turn: what is counted where, and that mistakes are found."""

from __future__ import annotations

import os
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

MIB = 1 << 20
NODES = ["0", "1", "2", "5"]  # with a gap
SOON = ["--max-seconds", "0.1", "--sample-seconds", "0.005", "--turn-seconds", "0.0005"]


def request(cpus: str, nodes: str, size: int, *more: str) -> list[str]:
    """The three options that are always needed, and more."""
    return ["--cpus", cpus, "--memory-nodes", nodes, "--bytes", str(size), *more]


@pytest.fixture
def any_nodes(built: Built) -> Path:
    """The program as on a machine that has every node: it binds nothing."""
    return built("chaosity-paths", "-DWITHOUT_BINDING")


def require_account(samples: list[dict], threads: int) -> None:
    """Samples follow each other, and what they tell of the nodes is what they tell in all."""
    assert samples
    for sample in samples:
        assert sum(sample["bytes_by_node"].values()) == sample["bytes"]
    lasted = samples[-1]["end_ns"] - samples[0]["begin_ns"]
    spent = sum(sum(sample["ns_by_node"].values()) for sample in samples)
    assert 0 < spent < threads * lasted * 1.5  # a chunk may begin before the first sample
    for one, next_one in pairwise(samples):
        assert one["end_ns"] == next_one["begin_ns"]


@pytest.mark.parametrize("size", [64 * 37, 64 * 1001, 3 * MIB])
def test_one_node_is_read_all_the_time(paths: Path, cpus: str, node: int, size: int):
    ran = run([paths, *request(cpus, str(node), size, *SOON)])
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.done["valid"] is True
    assert ran.done["samples"] == len(ran.samples)
    assert {*ran.samples[0]["bytes_by_node"]} == {*ran.samples[0]["ns_by_node"]} == {str(node)}
    require_account(ran.samples, len(cpus.split(",")))


@pytest.mark.parametrize("size", [64 * 1001, 3 * MIB])
def test_every_sample_has_every_node(any_nodes: Path, cpus: str, size: int):
    ran = run([any_nodes, *request(cpus, ",".join(NODES), size, *SOON)])
    assert (ran.code, ran.stderr, ran.done["valid"]) == (0, "", True)
    require_account(ran.samples, len(cpus.split(",")))
    for sample in ran.samples:
        assert [*sample["bytes_by_node"]] == [*sample["ns_by_node"]] == NODES
        assert all(count > 0 for count in sample["bytes_by_node"].values())
        assert all(ns > 0 for ns in sample["ns_by_node"].values())


def test_threads_begin_at_different_nodes(any_nodes: Path, start: Start, usable_cpus: list[int]):
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    cpus = ",".join(map(str, usable_cpus[:2]))
    # three nodes and turns so long that the first rotation has only its first turn
    options = ["--sample-seconds", "1e-9", "--turn-seconds", "0.2", "--max-seconds", "60"]
    process = start([any_nodes, *request(cpus, "0-2", MIB, *options)])
    next_event(process)
    sample = next_event(process)  # of three turns, in which two threads were at every node twice
    spent = [ns / (sample["end_ns"] - sample["begin_ns"]) for ns in sample["ns_by_node"].values()]
    assert all(0.2 < share < 1.4 for share in spent)  # 2 / 3, unless others use the CPUs
    process.terminate()
    assert last_events(process)[-1]["valid"] is True


def test_each_node_has_a_mapping_of_its_own(any_nodes: Path, start: Start, cpus: str):
    process, ready = waiting(start, [any_nodes, *request(cpus, ",".join(NODES), 2 * MIB)])
    assert len(ready["mapping"]) == len(set(ready["mapping"])) == len(NODES)
    pages = 2 * MIB // os.sysconf("SC_PAGESIZE")
    for mapping in ready["mapping"]:
        assert f"anon={pages}" in numa_map(process, {"mapping": mapping})


def test_a_buffer_is_bound_to_its_node(paths: Path, start: Start, cpus: str, node: int):
    process, ready = waiting(start, [paths, *request(cpus, str(node), 2 * MIB)])
    fields = numa_map(process, ready)
    assert (fields[0], ready["policy"]) == (f"bind:{node}", "bind")
    assert f"N{node}={2 * MIB // os.sysconf('SC_PAGESIZE')}" in fields


def test_a_signal_stops_it_with_a_valid_result(any_nodes: Path, start: Start, cpus: str):
    options = ["--sample-seconds", "30", "--max-seconds", "60"]
    process = start([any_nodes, *request(cpus, "0-7", MIB, *options)])
    next_event(process)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    (done,) = last_events(process)  # no sample: none was whole
    assert (process.returncode, done["valid"], done["stopped_by"]) == (0, True, "signal")


def test_end_of_input_at_the_barrier_means_stop(paths: Path, cpus: str, node: int):
    ran = run([paths, *request(cpus, str(node), MIB, "--barrier")])
    assert (ran.code, ran.samples, ran.done["valid"]) == (0, [], None)
    assert ran.done["stopped_by"] == "end_of_input"


WRONG = [
    ({"--memory-nodes": "1023"}, "--memory-nodes"),
    ({"--memory-nodes": "0,1023"}, "--memory-nodes"),
    ({"--memory-nodes": "0,0"}, "--memory-nodes names 0 twice"),
    ({"--bytes": "0"}, "are needed"),
    ({"--bytes": "100"}, "--bytes must be a multiple of 64"),
    ({"--bytes": str(1 << 50)}, "can give"),
    ({"--turn-seconds": "0"}, "--turn-seconds takes a number of seconds"),
    ({"--kernel": "read"}, "'--kernel=read' is not an option"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_wrong_arguments_get_a_sentence(paths: Path, cpu: str, change: dict, says: str):
    options = {"--memory-nodes": "0", "--cpus": cpu, "--bytes": "640000"} | change
    sentence = refusal([paths, *(f"{name}={value}" for name, value in options.items())])
    assert sentence.startswith("chaosity-paths: ")
    assert says in sentence


def test_nodes_are_needed(paths: Path, cpu: str):
    assert "are needed" in refusal([paths, "--cpus", cpu, "--bytes", "6400"])


MUTANTS = {
    "every chunk leaves out an end": 1,
    "one chunk leaves out an end": 2,
    "one chunk is not read": 3,
    "one element is off by the last bit": 4,
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_chunk_that_is_wrong_is_found_out(built: Built, cpus: str, node: int, mutant: int):
    binary = built("chaosity-paths", f"-DMUTANT={mutant}")
    ran = run([binary, *request(cpus, str(node), MIB, *SOON)])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert "must not be used" in ran.stderr


def run_clean(checked: Checked, cpus: str, node: int) -> None:
    command = [*checked("chaosity-paths"), *request(cpus, str(node), 64 * 10001, *SOON)]
    ran = run([*command, "--barrier"], stdin=None, input="go\n")
    assert (ran.code, ran.stderr) == (0, "")


def test_clean_under_address_and_undefined_behaviour_sanitizer(
    memory_checked: Checked, cpus: str, node: int
):
    run_clean(memory_checked, cpus, node)


def test_clean_under_thread_sanitizer(threads_checked: Checked, cpus: str, node: int):
    run_clean(threads_checked, cpus, node)
