"""Read the state of the host before and after a measurement, and the memory that a load can get."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.records.record_format import HostState

# Key in the record -> file with a setting or a state that can change measured values.
FACT_FILES = {
    "numa_balancing": "/proc/sys/kernel/numa_balancing",
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "transparent_hugepage_defrag": "/sys/kernel/mm/transparent_hugepage/defrag",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "no_turbo": "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "boost": "/sys/devices/system/cpu/cpufreq/boost",
    "smt": "/sys/devices/system/cpu/smt/control",
    "load_average": "/proc/loadavg",
    "boot_id": "/proc/sys/kernel/random/boot_id",
}
# The first columns of the lines "cpu", "cpu0", "cpu1", ... in /proc/stat, proc(5); in clock ticks.
STAT_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_file_if_present(path: str | Path) -> str | None:
    """Return the stripped content of a small file; None if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def read_processor_seconds() -> dict[str, float]:
    """Return kind of processor time, such as ``user`` -> seconds of the whole host since boot."""
    return _processor_seconds(read_file_if_present("/proc/stat") or "cpu", {"cpu"})


def _processor_seconds(stat: str, names: Collection[str]) -> dict[str, float]:
    """Return kind -> sum of the processor time in the lines of ``/proc/stat`` with these names."""
    ticks = [line.split()[1:] for line in stat.splitlines() if line.split(" ", 1)[0] in names]
    sums = [sum(map(int, column)) for column in zip(*ticks, strict=False)]
    return {k: s / TICKS_PER_SECOND for k, s in zip(STAT_COLUMNS, sums, strict=False)}


def units_with_siblings(units: Collection[int]) -> set[int]:
    """Return processing units and those that share a core with them (SMT).

    Source: cpu-topology in the kernel's admin guide, ``thread_siblings_list``.
    """
    folder = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    listed = (read_file_if_present(folder.format(unit)) or str(unit) for unit in units)
    return set(units).union(*map(parse_cpu_list, listed))


def read_host_state(units: Collection[int]) -> HostState:
    """Return the host's present state; `units` are the loads' units and their SMT siblings."""
    stat = read_file_if_present("/proc/stat") or "cpu"
    return {
        "taken_monotonic_seconds": time.monotonic(),
        "realtime_minus_monotonic_seconds": time.time() - time.monotonic(),
        "processor_seconds": _processor_seconds(stat, {"cpu"}),
        "load_units": format_cpu_list(units),
        "load_units_processor_seconds": _processor_seconds(stat, {f"cpu{u}" for u in units}),
        "facts": {name: read_file_if_present(path) for name, path in FACT_FILES.items()},
        "kernel": platform.release(),
    }


def available_memory_bytes() -> dict[int, int]:
    """Return node -> bytes of memory that a load can get without swapping.

    Free pages and the page cache of files count. On a host with one memory node, the kernel's own
    estimate ``MemAvailable`` is used if it is larger, since the node of a guest with a memory
    balloon shows only the memory that the guest has at this time.
    """
    free = {}
    for folder in Path("/sys/devices/system/node").glob("node[0-9]*"):
        fields = _parse_meminfo(read_file_if_present(folder / "meminfo") or "")
        if fields.get("MemTotal"):
            clean = fields.get("Inactive(file)", 0) + fields.get("Active(file)", 0)
            free[int(folder.name.removeprefix("node"))] = fields.get("MemFree", 0) + clean
    if len(free) <= 1:
        host = _parse_meminfo(read_file_if_present("/proc/meminfo") or "")
        node = next(iter(free), 0)
        free[node] = max(free.get(node, 0), host.get("MemAvailable", 0))
    return free


def _parse_meminfo(text: str) -> dict[str, int]:
    """Return field -> bytes, from the text of ``/proc/meminfo`` or of a node's ``meminfo``."""
    fields = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name.split()[-1]] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return fields


# Version 1 of cgroups has no word for "no limit"; its file then has the largest multiple of a page
# below 2^63.
_UNLIMITED_BYTES = 2**62
# File system of each version of cgroups -> its controller in /proc/self/cgroup, the files with
# limit and usage, and the keys in memory.stat with the page cache of files. This cache counts as
# usage, but the kernel drops it before it refuses memory.
_CGROUP_FILES = {
    "cgroup2": ("", "memory.max", "memory.current", ("active_file", "inactive_file")),
    "cgroup": (
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
    ),
}


class CgroupMemory(NamedTuple):
    """The memory that a cgroup still allows, in bytes, and the file that has its limit."""

    limit_file: Path
    available_bytes: int


def tightest_cgroup_memory(root: Path = Path("/")) -> CgroupMemory | None:
    """Return the cgroup of this process that allows the least memory; None if no limit exists.

    A batch system, a container or a service limits its processes to less memory than their nodes
    have, see cgroups(7). A limit also holds for the cgroups below its own. `root` is the folder
    with `proc` and `sys`.
    """
    lines = (line.split(":", 2) for line in _lines(root / "proc/self/cgroup"))
    own = {name: Path(path) for _, names, path in lines for name in names.split(",")}
    found = []
    for line in _lines(root / "proc/self/mountinfo"):  # see proc_pid_mountinfo(5)
        left, _, right = line.partition(" - ")
        file_system, _, options = right.split(maxsplit=2)
        controller, limit, usage, cache = _CGROUP_FILES.get(file_system, (None, "", "", ()))
        if controller not in own or controller not in ("", *options.split(",")):
            continue
        # A container may see only a part of the hierarchy of cgroups; then `mounted` is not `/`.
        mounted, place = left.split()[3:5]
        if not own[controller].is_relative_to(mounted):
            continue
        mount = root / place.lstrip("/")
        folder = mount / own[controller].relative_to(mounted)
        for each in (folder, *folder.parents):
            if each.is_relative_to(mount):
                available = _available_bytes(each / limit, each / usage, cache)
                found += [] if available is None else [CgroupMemory(each / limit, available)]
    return min(found, key=lambda one: one.available_bytes, default=None)


def _available_bytes(limit_file: Path, usage_file: Path, cache: Collection[str]) -> int | None:
    """Return the bytes that a cgroup still allows; None without a limit."""
    limit, usage = read_file_if_present(limit_file), read_file_if_present(usage_file)
    if not limit or not usage or limit == "max" or int(limit) >= _UNLIMITED_BYTES:
        return None
    counters = dict(line.split()[:2] for line in _lines(limit_file.with_name("memory.stat")))
    return max(0, int(limit) - int(usage) + sum(int(counters.get(name, 0)) for name in cache))


def _lines(path: Path) -> list[str]:
    return (read_file_if_present(path) or "").splitlines()
