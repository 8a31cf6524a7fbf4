"""The task-parallel programs compute what they should, on both runtimes, and tell where."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kernel_binary import Start, build_driver, next_event, numa_map, refusal, run_valid, waiting

MIB = 1 << 20
NODES = Path("/sys/devices/system/node")
PROGRAMS = ["stencil", "matmul", "mergesort", "spmv"]
RUNTIMES = ["vanilla", "locality"]
# So that every test ends soon, however many CPUs there are.
SHORT = ["--max-seconds", "0.05", "--sample-seconds", "0.01"]


def arguments(program: str, runtime: str, cpus: str, *more: str) -> list[str]:
    """The options that are always needed, for 4 MiB, and more."""
    given = {"--program": program, "--runtime": runtime, "--cpus": cpus, "--bytes": 4 * MIB}
    return [*(str(word) for pair in given.items() for word in pair), *more]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_is_right_on_every_runtime(
    tasks: Path, cpus: str, program: str, runtime: str
):
    ran = run_valid([tasks, *arguments(program, runtime, cpus, *SHORT)])
    assert (ran.ready["program"], ran.ready["runtime"]) == (program, runtime)
    assert ran.ready["data_bytes"] >= ran.ready["bytes"] == 4 * MIB
    done = ran.done
    assert done["runs"] > done["moved_blocks"] == 0
    assert done["locality"] == pytest.approx(
        done["local_block_accesses"] / done["block_accesses"], abs=1e-6
    )
    if len(list(NODES.glob("node[0-9]*"))) <= 1:
        assert done["locality"] == 1.0
    if runtime == "locality":
        return
    # All data are read and written in each run, so a run notes the data's blocks at least once.
    blocks = ran.ready["data_bytes"] // ran.ready["block_bytes"]
    assert sum(ran.ready["blocks_by_node"].values()) == blocks
    noted, left = divmod(done["block_accesses"], done["runs"] + 1)
    assert left == 0 or program == "mergesort"  # whose merges fall differently on pages
    # B of matmul is read by every task, a stencil reads neighbours, mergesort goes through its
    # keys level by level, and spmv's tasks read all of its vector.
    assert noted >= 0.99 * blocks


def test_all_threads_stay_on_the_cpus_while_it_runs(tasks: Path, start: Start, cpus: str):
    process, ready = waiting(start, [tasks, *arguments("mergesort", "vanilla", cpus)])
    wanted = {int(cpu) for cpu in cpus.split(",")}
    assert len(ready["threads"]) == len(wanted)
    process.stdin.write("go\n")
    process.stdin.flush()
    next_event(process)  # after some runs, in which threads come and go
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        assert os.sched_getaffinity(int(task.name)) <= wanted


@pytest.mark.parametrize("data", [[], ["--data", "one_node"]])
def test_pages_are_where_the_line_says(
    tasks: Path, start: Start, cpu: str, node: int, data: list[str]
):
    options = [*data, "--memory-nodes", str(node)]
    process, ready = waiting(start, [tasks, *arguments("stencil", "vanilla", cpu, *options)])
    assert ready["policy"] == ("bind" if data else "interleave")
    fields = numa_map(process, ready)
    assert f"N{node}={ready['data_bytes'] // ready['block_bytes']}" in fields
    assert ready["blocks_by_node"] == {str(node): ready["data_bytes"] // ready["block_bytes"]}


@pytest.fixture(scope="module")
def driver() -> Path:
    """The programs with nodes that are made up, under the sanitizers."""
    sources = ["pinned_teams", "task_stencil", "task_matmul", "task_mergesort", "task_spmv"]
    shared = [
        "common/cpu_lists_and_pinning.c",
        "common/errors.c",
        "common/start_line_and_signals.c",
    ]
    return build_driver("tasks_driver.cpp", *(f"tasks/{one}.cpp" for one in sources), *shared)


def by_teams(
    driver: Path, program: str, mib: float, teams: list[str], spread: int = 0
) -> tuple[int, float]:
    """How many values are wrong after two runs, and the share of blocks that were local."""
    command = [driver, program, str(int(mib * MIB)), "2", str(spread), *teams]
    # oneTBB's threads outlive main(), and what they still hold passes for leaked now and then
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    wrong, noted, near = map(int, ended.stdout.split())
    return wrong, near / noted


@pytest.mark.thorough
@pytest.mark.parametrize("program", PROGRAMS)
def test_teams_compute_together_and_stay_with_their_own_blocks(
    driver: Path, usable_cpus: list[int], program: str
):
    """As on a server with eight nodes, however many this machine has, and with unequal teams."""
    first, last = usable_cpus[0], usable_cpus[-1]
    unequal = [f"{first},{last}" if first != last else str(first), str(last), str(first)]
    for mib in (1, 3.3):
        assert by_teams(driver, program, mib, unequal)[0] == 0
    wrong, share = by_teams(driver, program, 16, [str(first)] * 8)
    assert (wrong, share >= 0.94) == (0, True), share
    assert share < 1.0 or program == "matmul"  # the others need something of their neighbours
    # Of pages in turns, one in eight is local for a core of the first node: tasks begin where the
    # turns do and touch a block more than whole turns have, so it has a little more.
    wrong, share = by_teams(driver, program, 4, [str(first)], spread=8)
    assert (wrong, share) == (0, pytest.approx(1 / 8, rel=0.2))


def test_a_node_without_memory_cannot_keep_data(tasks: Path, cpu: str, node: int):
    """Such a node is none of --memory-nodes; one that is not there stands in for it."""
    home = next(n for n in NODES.glob("node[0-9]*") if (n / f"cpu{cpu}").exists())
    other = str(int(home.name.removeprefix("node")) + 1)
    sentence = refusal([tasks, *arguments("spmv", "locality", cpu, "--memory-nodes", other)])
    assert f"CPU {cpu} is on node {home.name.removeprefix('node')}, which has no memory" in sentence
