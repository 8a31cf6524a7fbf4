"""Memory that cgroups allow: both versions, containers, and a real cgroup with a limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaosity.errors import MeasurementError
from chaosity.runner import point_measurement
from chaosity.runner.observed_state import CgroupMemory, tightest_cgroup_memory

MIB = 2**20
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
