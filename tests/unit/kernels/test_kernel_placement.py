"""Threads and pages are where they were asked to be, or there is a clear refusal."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest
from kernel_binary import Start, arguments, numa_map, refusal, run, waiting

MIB = 1 << 20
NODES = Path("/sys/devices/system/node")
POOLS = Path("/sys/kernel/mm/hugepages")


def test_threads_are_pinned_where_they_say(bandwidth: Path, start: Start, cpus: str):
    backwards = ",".join(reversed(cpus.split(",")))
    process, ready = waiting(start, [bandwidth, *arguments("copy", backwards, MIB)])
    assert [thread["cpu"] for thread in ready["threads"]] == [int(c) for c in backwards.split(",")]
    assert ready["threads"][0]["tid"] == process.pid
    for thread in ready["threads"]:
        assert os.sched_getaffinity(thread["tid"]) == {thread["cpu"]}


@pytest.mark.parametrize("policy", ["default", "bind", "interleave"])
def test_pages_lie_on_the_nodes_asked_for(
    bandwidth: Path, start: Start, cpus: str, node: int, policy: str
):
    options = {"default": [], "bind": ["--memory-nodes", str(node)]}
    options["interleave"] = [*options["bind"], "--interleave"]
    command = [bandwidth, *arguments("triad", cpus, 4 * MIB, *options[policy])]
    process, ready = waiting(start, command)
    fields = numa_map(process, ready)
    assert ready["policy"] == policy
    assert ready["memory_nodes"] == (None if policy == "default" else str(node))
    assert fields[0] == (policy if policy == "default" else f"{policy}:{node}")
    if policy == "default" and len(list(NODES.glob("node[0-9]*"))) > 1:
        return  # first touch: which node, is up to the CPUs
    page_bytes = os.sysconf("SC_PAGESIZE")
    assert f"N{node}={3 * 4 * MIB // page_bytes}" in fields
    assert f"kernelpagesize_kB={page_bytes // 1024}" in fields


def test_base_pages_are_never_huge(bandwidth: Path, start: Start, cpu: str):
    process, ready = waiting(start, [bandwidth, *arguments("copy", cpu, 8 * MIB)])
    assert (ready["pages"], ready["huge_page_bytes"]) == ("base", 0)
    smaps = Path(f"/proc/{process.pid}/smaps").read_text().split(f"{ready['mapping']}-")[1]
    assert "AnonHugePages:         0 kB" in smaps.split("VmFlags")[0]


def test_transparent_huge_pages_hold_everything_or_are_refused(bandwidth: Path, cpus: str):
    command = arguments("triad", cpus, 8 * MIB, "--pages", "thp", "--max-seconds", "0.02")
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        assert "transparent huge page" in refusal([bandwidth, *command])
        return
    ready = run([bandwidth, *command]).ready
    page_bytes = ready["page_bytes"]
    assert ready["huge_page_bytes"] == -(-24 * MIB // page_bytes) * page_bytes


@pytest.mark.parametrize(("pages", "kib"), [("2M", 2048), ("1G", 1 << 20)])
def test_reserved_huge_pages_that_are_not_there_are_refused(
    bandwidth: Path, cpu: str, pages: str, kib: int
):
    pool = POOLS / f"hugepages-{kib}kB"
    free = int((pool / "free_hugepages").read_text()) if pool.exists() else 0
    # a page more than there are
    command = arguments("fill", cpu, (free + 1) * kib * 1024, "--pages", pages)
    sentence = refusal([bandwidth, *command])
    assert f"--pages {pages}: " in sentence
    if pool.exists():
        assert f"{free + 1} huge pages are needed and {free} are free" in sentence


def test_a_cpu_outside_the_affinity_is_refused(bandwidth: Path, usable_cpus: list[int]):
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    first, second = usable_cpus[:2]
    command = ["taskset", "-c", str(second), bandwidth, *arguments("copy", str(first), 6400)]
    assert f"this process may not run on CPU {first}" in refusal(command)


def test_the_sites_openmp_variables_change_nothing(bandwidth: Path, cpus: str):
    site = {
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": "cores",
        "OMP_NUM_THREADS": "1",
        "OMP_THREAD_LIMIT": "1",
        "GOMP_CPU_AFFINITY": cpus.split(",")[-1],
    }
    command = [bandwidth, *arguments("triad", cpus, 1 << 20, "--max-seconds", "0.05")]
    ran = run(command, env=os.environ | site)
    assert (ran.code, ran.stderr, ran.done["valid"]) == (0, "", True)
    assert [thread["cpu"] for thread in ran.ready["threads"]] == [int(c) for c in cpus.split(",")]


def test_more_memory_than_there_is_is_refused(bandwidth: Path, cpu: str):
    assert "can give" in refusal([bandwidth, *arguments("fill", cpu, 1 << 50)])


WRONG = [
    ({"--kernel": "stream"}, "unknown kernel 'stream'"),
    ({"--cpus": ""}, "--cpus takes a list"),
    ({"--cpus": "0-"}, "--cpus takes a list"),
    ({"--cpus": "1-0"}, "--cpus takes a list"),
    ({"--cpus": "0,0"}, "--cpus names 0 twice"),
    ({"--cpus": "99999999999999999999"}, "is above"),
    ({"--array-bytes": "0"}, "are needed"),
    ({"--array-bytes": "100"}, "multiple of 64"),
    ({"--array-bytes": "1e6"}, "--array-bytes takes a whole number"),
    ({"--array-bytes": "-64"}, "--array-bytes takes a whole number"),
    ({"--memory-nodes": "1023"}, "--memory-nodes"),
    ({"--memory-nodes": "0,1023"}, "--memory-nodes"),
    ({"--memory-nodes": "1024"}, "is above 1023"),
    ({"--pages": "4K"}, "--pages takes base, thp, 2M or 1G"),
    ({"--sample-seconds": "0"}, "--sample-seconds takes a number of seconds"),
    ({"--max-seconds": "-1"}, "--max-seconds takes a number of seconds"),
    ({"--max-seconds": "nan"}, "--max-seconds takes a number of seconds"),
    ({"--warmup-passes": "some"}, "--warmup-passes takes a whole number"),
    ({"--threads": "2"}, "'--threads=2' is not an option"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_wrong_arguments_get_a_sentence(
    bandwidth: Path, cpu: str, change: dict[str, str], says: str
):
    options = {"--kernel": "copy", "--cpus": cpu, "--array-bytes": "6400"} | change
    sentence = refusal([bandwidth, *(f"{name}={value}" for name, value in options.items())])
    assert says in sentence


def test_interleave_without_nodes_is_refused(bandwidth: Path, cpu: str):
    assert "needs --memory-nodes" in refusal(
        [bandwidth, *arguments("copy", cpu, 64, "--interleave")]
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="mbind has another number")
def test_a_container_that_forbids_memory_policies_is_named(bandwidth: Path, cpu: str, root: Path):
    filtered = [sys.executable, root / "tests/denied_system_calls.py", "237"]
    command = [bandwidth, *arguments("copy", cpu, MIB, "--memory-nodes", "0")]
    said = refusal([*filtered, *command])
    assert "the container forbids memory policies; add CAP_SYS_NICE" in said
