"""What numa_maps says, from recorded lines."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.records.record_types import ThreadPlacement
from chaosity.runner import observed_placement, record_checks

NUMA_MAPS = """562f0eac8000 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4
7f2c00000000 bind:1 anon=1024 dirty=1024 active=0 N1=1000 N3=24 kernelpagesize_kB=4
7f2c40000000 bind:1 file=/anon_hugepage huge anon=3 dirty=3 N1=3 kernelpagesize_kB=2048
7ffd1d2f0000 default stack:1 anon=3 dirty=3 N0=3 kernelpagesize_kB=4
"""


def test_private_pages_are_counted_in_their_own_size():
    found = observed_placement.private_bytes_by_node(NUMA_MAPS)
    assert found == {0: 3 * 4096, 1: 1000 * 4096 + 3 * 2097152, 3: 24 * 4096}


def test_this_process_is_observed_on_its_units():
    seen = observed_placement.read_process_threads(os.getpid())
    allowed = {cpu for t in seen for cpu in parse_cpu_list(t["cpus_allowed"])}
    assert allowed == os.sched_getaffinity(0)


def test_an_ended_process_has_no_placement():
    assert observed_placement.read_process_threads(2**22 + 1) == []
    assert observed_placement.read_process_memory(2**22 + 1) is None


def seen(*allowed: str) -> list[ThreadPlacement]:
    return [{"tid": tid, "cpus_allowed": cpus, "last_cpu": 0} for tid, cpus in enumerate(allowed)]


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        # likwid-bench starts shells, then its threads, which pin themselves
        (seen(*["0-1"] * 5), seen("0-1", "0", "1"), "later"),
        # a tool ends its threads before its results are written
        (seen("0-1", "0", "1"), seen("0-1"), "earlier"),
        # of two like observations the newer; a thread more may be one that strays
        (seen("0-1", "0", "1"), seen("0-1", "0", "1", "0-3"), "later"),
        (seen("0-1", "0-1"), seen("0-1"), "earlier"),
        ([], seen("0-1"), "later"),
        (seen("0", "1"), seen("2", "3"), "later"),
        (seen("0-1", "0-1"), [], "earlier"),
    ],
)
def test_the_observation_is_kept_that_shows_the_placement(earlier, later, kept):
    wanted = {"earlier": earlier, "later": later}[kept]
    assert observed_placement.select_observation(earlier, later) is wanted


def test_threads_and_processes_may_end_while_they_are_listed():
    """The folder of a process disappears at any time, in one of a hundred readings here."""
    with subprocess.Popen(["sh", "-c", "while true; do (true); done"]) as shell:
        try:
            for _ in range(800):
                assert observed_placement.read_process_threads(shell.pid)
        finally:
            shell.kill()


def test_the_memory_of_a_launcher_does_not_count():
    """As with chaosity-place: the launcher and its fork have memory of their own."""
    launches = (
        "import os, subprocess; own = b'x' * (48 << 20); fork = os.fork();"
        " fork or os.read(0, 1) or os._exit(0);"
        " child = subprocess.Popen(['sleep', '60']); print('started', flush=True);"
        " os.read(0, 1); child.kill()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", launches], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout.readline() == b"started\n"
        whole = observed_placement.read_process_memory(launcher.pid)
        program = observed_placement.read_process_memory(launcher.pid, launcher=True)
        launcher.stdin.close()
    if whole is None:
        pytest.skip("this kernel has no numa_maps")
    assert sum(whole.values()) > 90 << 20
    assert 0 < sum(program.values()) < 4 << 20


def test_mappings_can_be_counted():
    several = ["7f2c40000000", "7f2c00000000", "7f2c50000000"]
    for mappings, expected in (
        (several[0], {1: 3 * 2097152}),
        (several[:1], {1: 3 * 2097152}),
        (several, {1: 1000 * 4096 + 3 * 2097152, 3: 24 * 4096}),
        ("7f2c4000", {}),
        ([], {}),
    ):
        assert observed_placement.private_bytes_by_node(NUMA_MAPS, mappings) == expected


def test_a_small_working_set_is_checked_by_its_own_pages(make_point):
    """Stacks and libraries are larger than a working set that fits a cache."""
    [load] = make_point(memory_bytes=16384)["loads"]
    load["placement"]["mapping"] = "mapping"
    seen = {"threads": [], "memory_bytes_by_node": {"0": 16384}}
    assert record_checks.check_pages({**load, "placement_seen": seen})["passed"]
    seen = {"threads": [], "memory_bytes_by_node": {"0": 12288, "1": 4096}}
    assert not record_checks.check_pages({**load, "placement_seen": seen})["passed"]
