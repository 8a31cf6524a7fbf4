"""Read the state of the host before and after a measurement."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from pathlib import Path

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.records.record_types import HostState

# Files whose content can change a measured value, by the key of the record.
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
    """Return kind -> processor time of the whole host since boot, in seconds."""
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
    """Return the host's state at this time.

    Args:
        units: the processing units of the loads, with their siblings.
    """
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


def free_memory_bytes() -> dict[int, int]:
    """Return node -> bytes of memory that a load can get without swapping.

    Free pages and clean page cache count. On a host with one memory node, the kernel's own
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
