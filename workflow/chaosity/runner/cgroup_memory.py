"""Read how much more memory the cgroups of this process allow, see cgroups(7).

A batch system, a container or a service limits its processes to less memory than their nodes have.
A load beyond the limit would be killed, and nothing would say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
# Version 1 has no word for "no limit": it shows the largest multiple of a page below 2^63.
_UNLIMITED_BYTES = 2**62


@dataclass(frozen=True)
class CgroupMemory:
    """The memory that a cgroup allows: the file with its limit, and the bytes below the limit."""

    limit_file: Path
    available_bytes: int


@dataclass(frozen=True)
class _Version:
    """A version of cgroups: its file system, and the names of its files and of clean page cache.

    `controller` is the word in /proc/self/cgroup, which is empty in version 2.
    """

    file_system: str
    controller: str
    limit: str
    usage: str
    cache: tuple[str, str]


# Page cache counts as usage, but the kernel drops it before it refuses memory.
_VERSIONS = (
    _Version("cgroup2", "", "memory.max", "memory.current", ("active_file", "inactive_file")),
    _Version(
        "cgroup",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
    ),
)


def tightest_cgroup_memory(root: Path = ROOT) -> CgroupMemory | None:
    """Return the cgroup of this process that allows the least memory; None if none has a limit.

    A limit of a cgroup also holds for the cgroups below it.

    Args:
        root: the folder that contains `proc` and `sys`.
    """
    found = []
    for version in _VERSIONS:
        for folder in _folders_with_memory_files(version, root):
            if (available := _available_bytes(version, folder)) is not None:
                found.append(CgroupMemory(folder / version.limit, available))
    return min(found, key=lambda one: one.available_bytes, default=None)


def _folders_with_memory_files(version: _Version, root: Path) -> list[Path]:
    """Return the folder of this process's cgroup and the folders above it, up to its mount."""
    path = _path_of_this_process(version, root)
    folders: list[Path] = []
    for mounted, mount in _mounts(version, root):
        if path is None or not path.is_relative_to(mounted):
            continue
        folder = mount / path.relative_to(mounted)
        folders += [each for each in (folder, *folder.parents) if each.is_relative_to(mount)]
    return folders


def _path_of_this_process(version: _Version, root: Path) -> Path | None:
    """Return the path of the memory cgroup: `0::/path` or, in version 1, `4:memory:/path`."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if version.controller in controllers.split(","):
            return Path(path)
    return None


def _mounts(version: _Version, root: Path) -> list[tuple[Path, Path]]:
    """Return the mounts of a version: the mounted path and where it is, see proc_pid_mountinfo(5).

    A container may see only a part of the hierarchy, whose path is not `/`.
    """
    found = []
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        mounted, place = left.split()[3:5]
        file_system, _, options = right.split(maxsplit=2)
        right_controller = version.controller in ("", *options.split(","))
        if file_system == version.file_system and right_controller:
            found.append((Path(mounted), root / place.lstrip("/")))
    return found


def _available_bytes(version: _Version, folder: Path) -> int | None:
    """Return the bytes that a cgroup still allows; None without a limit."""
    try:
        limit = (folder / version.limit).read_text().strip()
        usage = int((folder / version.usage).read_text())
        counters = dict(line.split()[:2] for line in _lines(folder / "memory.stat"))
    except (OSError, ValueError):
        return None
    if limit == "max" or int(limit) >= _UNLIMITED_BYTES:
        return None
    cache = sum(int(counters.get(name, 0)) for name in version.cache)
    return max(0, int(limit) - usage + cache)


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
