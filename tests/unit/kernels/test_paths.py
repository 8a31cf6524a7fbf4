"""Reading from all nodes in turn: what is counted where, and that mistakes are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_binary import (
    FOR_TESTS,
    Start,
    build,
    last_events,
    next_event,
    numa_map,
    run_valid,
    waiting,
)

MIB = 1 << 20
NODES = ["0", "1", "2", "5"]  # with a gap
SOON = ["--max-seconds", "0.1", "--sample-seconds", "0.005", "--turn-seconds", "0.0005"]


def request(cpus: str, nodes: str, size: int, *more: str) -> list[str]:
    """The three options that are always needed, and more."""
    return ["--cpus", cpus, "--memory-nodes", nodes, "--bytes", str(size), *more]


@pytest.fixture
def any_nodes() -> Path:
    """The program as on a machine that has every node: it binds nothing."""
    return build("chaosity-paths", FOR_TESTS)


def require_account(samples: list[dict], threads: int) -> None:
    """Samples follow each other, and what they tell of the nodes is what they tell in all."""
    assert samples
    for sample in samples:
        assert sum(sample["bytes_by_node"].values()) == sample["bytes"]
    lasted = samples[-1]["end_ns"] - samples[0]["begin_ns"]
    spent = sum(sum(sample["ns_by_node"].values()) for sample in samples)
    assert 0 < spent < threads * lasted * 1.5  # a chunk may begin before the first sample


@pytest.mark.parametrize("size", [64 * 37, 64 * 1001, 3 * MIB])
def test_every_sample_has_every_node(paths: Path, any_nodes: Path, cpus: str, node: int, size: int):
    for program, nodes in ((paths, [str(node)]), (any_nodes, NODES)):
        ran = run_valid([program, *request(cpus, ",".join(nodes), size, *SOON)])
        assert ran.done["samples"] == len(ran.samples)
        require_account(ran.samples, len(cpus.split(",")))
        for sample in ran.samples:
            assert [*sample["bytes_by_node"]] == [*sample["ns_by_node"]] == nodes
            assert size < 64 * 1001 or all(sample["bytes_by_node"].values())
            assert size < 64 * 1001 or all(sample["ns_by_node"].values())


def test_threads_begin_at_different_nodes(any_nodes: Path, start: Start, two_cpus: list[int]):
    cpus = ",".join(map(str, two_cpus))
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
