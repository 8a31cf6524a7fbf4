"""What the kernel says of threads, pages and the memory that a load can get."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import MeasurementError
from chaosity.records.record_format import ThreadPlacement
from chaosity.runner import load_process, observed_state, point_measurement, record_checks
from chaosity.runner.guardian_process import with_guardian
from chaosity.runner.observed_state import CgroupMemory, tightest_cgroup_memory
from chaosity.runner.point_measurement import check_free_memory, memory_shares_by_node

NUMA_MAPS = """562f0eac8000 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4
7f2c00000000 bind:1 anon=1024 dirty=1024 active=0 N1=1000 N3=24 kernelpagesize_kB=4
7f2c40000000 bind:1 file=/anon_hugepage huge anon=3 dirty=3 N1=3 kernelpagesize_kB=2048
7ffd1d2f0000 default stack:1 anon=3 dirty=3 N0=3 kernelpagesize_kB=4
"""


def test_private_pages_are_counted_in_their_own_size():
    found = observed_state.private_bytes_by_node(NUMA_MAPS)
    assert found == {0: 3 * 4096, 1: 1000 * 4096 + 3 * 2097152, 3: 24 * 4096}


def test_available_memory_is_free_memory_with_the_cache_of_files_in_bytes(monkeypatch):
    node = (("MemTotal", 64), ("MemFree", 10), ("Active(file)", 3), ("Inactive(file)", 2))
    text = "".join(f"Node 0 {name}: {number} kB\n" for name, number in node)
    monkeypatch.setattr(
        observed_state, "read_file_if_present", lambda _: f"{text}MemAvailable: 15 kB\n"
    )
    assert set(observed_state.available_memory_bytes().values()) == {15 * 1024}


def test_this_process_is_observed_on_its_units():
    seen = observed_state.read_process_threads(os.getpid())
    allowed = {cpu for t in seen for cpu in parse_cpu_list(t["cpus_allowed"])}
    assert allowed == os.sched_getaffinity(0)


def test_an_ended_process_has_no_placement():
    assert observed_state.read_process_threads(2**22 + 1) == []
    assert observed_state.read_process_memory(2**22 + 1) is None


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
    assert observed_state.better_observation_of_threads(earlier, later) is wanted


def test_threads_and_processes_may_end_while_they_are_listed():
    """The folder of a process disappears at any time, in one of a hundred readings here."""
    with subprocess.Popen(["sh", "-c", "while true; do (true); done"]) as shell:
        try:
            for _ in range(800):
                assert observed_state.read_process_threads(shell.pid)
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
        whole = observed_state.read_process_memory(launcher.pid)
        program = observed_state.read_process_memory(launcher.pid, launcher=True)
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
        assert observed_state.private_bytes_by_node(NUMA_MAPS, mappings) == expected


def test_a_small_working_set_is_checked_by_its_own_pages(make_point):
    """Stacks and libraries are larger than a working set that fits a cache."""
    [load] = make_point(memory_bytes=16384)["loads"]
    load["placement"]["mapping"] = "mapping"
    seen = {"threads": [], "memory_bytes_by_node": {"0": 16384}}
    assert record_checks.check_page_nodes({**load, "placement_seen": seen})["passed"]
    seen = {"threads": [], "memory_bytes_by_node": {"0": 12288, "1": 4096}}
    assert not record_checks.check_page_nodes({**load, "placement_seen": seen})["passed"]


@pytest.mark.parametrize(
    ("mebibytes", "elsewhere", "passed"),
    [(16, 1.5, True), (16, 1.7, False), (64, 1.2, True), (64, 1.4, False)],
)
def test_with_little_memory_a_tenth_of_the_pages_may_be_elsewhere_and_else_a_fiftieth(
    make_point, mebibytes, elsewhere, passed
):
    """The memory of a process has pages of libraries, which are a larger share of little memory."""
    size = mebibytes * 2**20
    [load] = make_point(memory_bytes=size)["loads"]
    far = int(elsewhere * 2**20)
    seen = {"threads": [], "memory_bytes_by_node": {"0": size - far, "1": far}}
    assert record_checks.check_page_nodes({**load, "placement_seen": seen})["passed"] is passed


# Pages in shares: judged by the kernel's account, and by the last look where they move.


MIB = 2**20


def placed(make_point, wanted, seen, **placement):
    """The check of a load whose pages the kernel saw on nodes, in MiB."""
    [load] = make_point(memory_bytes=64 * MIB)["loads"]
    load["placement"] |= {"shares": wanted, "memory_nodes": [0, 1], "settles": False, **placement}
    by_node = {node: size * MIB for node, size in seen.items()}
    return record_checks.check_page_nodes(
        {**load, "placement_seen": {"threads": [], "memory_bytes_by_node": by_node}}
    )


@pytest.mark.parametrize(
    ("seen", "passed"),
    [
        ({"0": 75, "1": 25}, True),
        ({"0": 76, "1": 24}, True),
        ({"0": 77.5, "1": 22.5}, False),
        ({"0": 100}, False),
        ({"0": 75, "1": 24, "2": 1}, True),
        ({"0": 74, "1": 23, "2": 3}, False),
    ],
)
def test_every_node_has_its_share_within_two_per_cent(make_point, seen, passed):
    found = placed(make_point, {"0": 0.75, "1": 0.25}, seen)
    assert found["passed"] is passed
    assert found["decisive"]


def test_the_node_with_the_largest_deviation_is_named(make_point):
    found = placed(make_point, {"0": 0.75, "1": 0.25}, {"0": 50, "1": 40, "2": 10})
    assert found["detail"].startswith("node 0 has 50.00 % of")
    assert "requested: 75.00 %" in found["detail"]


def test_where_pages_move_only_foreign_nodes_fail(make_point):
    wanted = {"0": 0.5, "1": 0.5}
    assert placed(make_point, wanted, {"0": 99, "1": 1}, settles=True)["passed"]
    assert not placed(make_point, wanted, {"0": 50, "2": 50}, settles=True)["passed"]


def test_where_the_kernel_decides_only_nodes_count(make_point):
    assert placed(make_point, None, {"0": 3, "1": 97})["passed"]
    assert not placed(make_point, None, {"0": 3, "3": 97})["passed"]


def test_needed_memory_follows_the_shares(make_point):
    assert memory_shares_by_node({"memory_nodes": [0, 3]}) == {0: 0.5, 3: 0.5}
    shares = {"memory_nodes": [0, 3], "shares": {"0": 0.9, "3": 0.1}}
    assert memory_shares_by_node(shares) == {0: 0.9, 3: 0.1}
    point = make_point(memory_bytes=1024)
    point["loads"][0]["placement"] |= {"shares": {"77": 1.0}}
    with pytest.raises(MeasurementError, match="node 77 has no memory"):
        check_free_memory(point)


@pytest.mark.alone
@pytest.mark.parametrize("settles", [True, False])
def test_moving_pages_are_observed_again_before_the_stop(
    make_point, tmp_path, monkeypatch, settles
):
    """The first look sees all on node 0, any later one has them moved to node 1."""
    looks = iter([{"0": 4096}] + [{"1": 4096}] * 99)
    monkeypatch.setattr(load_process.observed_state, "read_process_memory", lambda *_: next(looks))
    [spec] = make_point()["loads"]
    spec["placement"] |= {"settles": settles}
    with with_guardian(lambda: None) as guardian:
        load = load_process.LoadProcess(spec, tmp_path, guardian)
        load.start_process(lock=2)  # any open file: there is nobody to keep away
        load.wait_until_ready(20)
        load.release_from_barrier()
        load.send_stop_signal()
        load.wait_for_end_or_kill()
    found = load.record_of_load()["placement_seen"]
    if settles:
        assert found["memory_bytes_by_node_at_first"] == {"0": 4096}
        assert found["memory_bytes_by_node"] == {"1": 4096}
    else:
        assert found["memory_bytes_by_node"] == {"0": 4096}
        assert "memory_bytes_by_node_at_first" not in found


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
# The working directory of the tests' processes does not matter: they read /proc and /sys alone.
PRINT_LIMIT = (
    "import sys; from pathlib import Path; from chaosity.runner import observed_state;"
    "Path(sys.argv[1]).write_text('0');"  # 0: the process itself
    "print(observed_state.tightest_cgroup_memory())"
)


def make_proc(root: Path, cgroup: str, mounts: str) -> None:
    """Write the files of /proc that say where the cgroup of a process is."""
    folder = root / "proc/self"
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mounts)


def make_cgroup(folder: Path, names: tuple[str, str, str], limit: str, used: int, cache: int = 0):
    """Write the memory files of a cgroup."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, (limit, str(used), f"anon 7\n{names[2]} {cache}"), strict=True):
        (folder / (name if "file" not in name else "memory.stat")).write_text(text + "\n")


def test_version_2_takes_the_tightest_of_the_cgroups_above(tmp_path: Path) -> None:
    make_proc(
        tmp_path, "0::/job/step\n", "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 none rw\n"
    )
    top = tmp_path / "sys/fs/cgroup"
    make_cgroup(top / "job", V2, str(100 * MIB), 70 * MIB, cache=20 * MIB)
    make_cgroup(top / "job/step", V2, "max", 70 * MIB)
    assert tightest_cgroup_memory(tmp_path) == CgroupMemory(top / "job/memory.max", 50 * MIB)


def test_version_1_without_a_limit_is_no_limit(tmp_path: Path) -> None:
    mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    make_proc(tmp_path, "5:cpu,cpuacct:/\n4:memory:/user\n0::/\n", mounts)
    folder = tmp_path / "sys/fs/cgroup/memory/user"
    make_cgroup(folder, V1, "9223372036854771712", 5)
    assert tightest_cgroup_memory(tmp_path) is None
    make_cgroup(folder, V1, str(10 * MIB), 12 * MIB)  # a limit may be set below the usage
    assert tightest_cgroup_memory(tmp_path) == CgroupMemory(folder / V1[0], 0)


def test_a_container_sees_its_part_of_the_hierarchy(tmp_path: Path) -> None:
    mounts = "35 31 0:32 /docker/c1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    make_proc(tmp_path, "4:memory:/docker/c1\n", mounts)
    make_cgroup(tmp_path / "sys/fs/cgroup/memory", V1, str(10 * MIB), 4 * MIB)
    found = tightest_cgroup_memory(tmp_path)
    assert found is not None
    assert found.available_bytes == 6 * MIB


def test_a_system_without_cgroups_has_no_limit(tmp_path: Path) -> None:
    assert tightest_cgroup_memory(tmp_path) is None


def test_a_load_beyond_the_limit_fails_with_the_file_to_change(make_point, monkeypatch) -> None:
    limit = CgroupMemory(Path("/sys/fs/cgroup/job/memory.max"), 1000)
    monkeypatch.setattr(point_measurement.observed_state, "tightest_cgroup_memory", lambda: limit)
    assert point_measurement.check_free_memory(make_point(memory_bytes=1000))["passed"]
    with pytest.raises(MeasurementError, match=r"job/memory\.max allows 1000 more bytes, 1001 are"):
        point_measurement.check_free_memory(make_point(memory_bytes=1001))


@pytest.fixture
def real_cgroup() -> Iterator[tuple[Path, str]]:
    """A cgroup of this system's kernel, and the name of the file with its limit."""
    for parent, name in ((Path("/sys/fs/cgroup/memory"), V1[0]), (Path("/sys/fs/cgroup"), V2[0])):
        folder = parent / f"chaosity-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / name).exists():
            yield folder, name
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip("this user may not make a cgroup with a memory limit")


def test_the_limit_of_a_real_cgroup_is_found(real_cgroup: tuple[Path, str]) -> None:
    folder, name = real_cgroup
    (folder / name).write_text(str(300 * MIB))
    answer = subprocess.run(
        [sys.executable, "-c", PRINT_LIMIT, str(folder / "cgroup.procs")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"{folder}/{name}" in answer
    available = int(answer.rsplit("=", 1)[1].rstrip(")\n"))
    assert 200 * MIB < available <= 300 * MIB
