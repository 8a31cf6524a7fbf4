"""Read the state of the host and the placement of a load's threads and pages from the kernel.

Sources: proc(5) for ``/proc/PID/task/TID/status`` and ``stat``, numa(7) for ``numa_maps``.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.records.record_format import HostState, ThreadPlacement

# Key in the record -> file that contains a setting or a state that can change measured values.
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
# Names of the first columns, in clock ticks, of the lines "cpu", "cpu0", "cpu1", ... in /proc/stat,
# proc(5).
STAT_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_file_if_present(path: str | Path) -> str | None:
    """Return the stripped content of a small file; None if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def read_processor_seconds() -> dict[str, float]:
    """Return kind of processor time, such as ``user`` -> seconds of all processors since boot."""
    return _processor_seconds(read_file_if_present("/proc/stat") or "cpu", {"cpu"})


def _processor_seconds(stat: str, names: Collection[str]) -> dict[str, float]:
    """Return kind -> sum of the processor time in the lines of ``/proc/stat`` named `names`."""
    ticks = [line.split()[1:] for line in stat.splitlines() if line.split(" ", 1)[0] in names]
    sums = [sum(map(int, column)) for column in zip(*ticks, strict=False)]
    return {k: s / TICKS_PER_SECOND for k, s in zip(STAT_COLUMNS, sums, strict=False)}


def units_with_siblings(units: Collection[int]) -> set[int]:
    """Return processing units and their SMT siblings, which share a core with them.

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

    The result counts free pages and the page cache of files. On a host with one memory node, the
    kernel's own estimate ``MemAvailable`` is used if this estimate is larger: in a virtual machine
    with a memory balloon, the node shows only the memory that the virtual machine has at this time.
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


# Version 1 of cgroups has no word for "no limit". Without a limit, the file of the limit contains
# the largest multiple of a page below 2^63.
_UNLIMITED_BYTES = 2**62
# File system of each version of cgroups -> its controller in /proc/self/cgroup, the files with the
# limit and the usage, and the keys in memory.stat with the page cache of files. The usage includes
# the page cache, but the kernel drops the cache before it refuses memory.
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
    have, see cgroups(7). The limit of a cgroup also limits the cgroups below it. `root` is the
    folder with `proc` and `sys`.
    """
    lines = (line.split(":", 2) for line in _lines_of_file(root / "proc/self/cgroup"))
    own = {name: Path(path) for _, names, path in lines for name in names.split(",")}
    found = []
    # The columns of the file are in proc_pid_mountinfo(5).
    for line in _lines_of_file(root / "proc/self/mountinfo"):
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
                available = _bytes_that_cgroup_allows(each / limit, each / usage, cache)
                found += [] if available is None else [CgroupMemory(each / limit, available)]
    return min(found, key=lambda one: one.available_bytes, default=None)


def _bytes_that_cgroup_allows(
    limit_file: Path, usage_file: Path, cache: Collection[str]
) -> int | None:
    """Return the bytes that a cgroup still allows; None without a limit."""
    limit, usage = read_file_if_present(limit_file), read_file_if_present(usage_file)
    if not limit or not usage or limit == "max" or int(limit) >= _UNLIMITED_BYTES:
        return None
    counters = dict(
        line.split()[:2] for line in _lines_of_file(limit_file.with_name("memory.stat"))
    )
    return max(0, int(limit) - int(usage) + sum(int(counters.get(name, 0)) for name in cache))


def _lines_of_file(path: Path) -> list[str]:
    return (read_file_if_present(path) or "").splitlines()


NODES = Path("/sys/devices/system/node")
PAGE_COUNT = re.compile(r"\bN(\d+)=(\d+)")
CPUS_ALLOWED = re.compile(r"^Cpus_allowed_list:(.*)$", re.MULTILINE)
PAGE_SIZE = re.compile(r"\bkernelpagesize_kB=(\d+)")
# The pattern excludes programs of QEMU that are no user-mode emulators; a load may run these
# programs.
USER_MODE_EMULATOR = re.compile(r"qemu-(?!system-|img|io|nbd|ga$)")
# Allowed deviation of a node's share of all pages from the wanted share. The wanted shares are
# computed from bandwidths that scatter as much as this deviation. Fifty huge pages cannot be
# divided more finely.
SHARE_TOLERANCE = 0.02
# A node: its number, or the number as a text, which is a key in JSON.
Node = TypeVar("Node", int, str)
# Addresses of the mappings that a load measures, as numa_maps writes them; None if the addresses
# are unknown.
MappingAddresses = str | list[str] | None


@dataclass(frozen=True)
class MemoryMapping:
    """A memory mapping that has pages: one line of ``numa_maps``."""

    address: str  # first address, written as in ``numa_maps``
    of_file: bool  # says whether a file backs the mapping
    private: bool  # says whether the mapping has private data (``anon``) or huge pages
    page_bytes: int  # size of the pages that the kernel counts in this mapping
    bytes_by_node: dict[int, int]  # node -> bytes of the mapping


def read_cpus_by_node(nodes: Path = NODES) -> dict[int, set[int]]:
    """Return node -> processing units that are now on the node; empty for a kernel without NUMA."""
    return {
        int(folder.name.removeprefix("node")): set(parse_cpu_list((folder / "cpulist").read_text()))
        for folder in nodes.glob("node[0-9]*")
    }


def _threads_of_process(pid: int) -> list[Path]:
    """Return the folders of a process's threads; empty if the process has ended."""
    try:
        return sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda thread: int(thread.name))
    except OSError:
        return []


def process_and_descendants(pid: int) -> list[int]:
    """Return the number of a process, then the numbers of all its descendants that still run."""
    tree, queue = [], [pid]
    while queue:
        process = queue.pop()
        tree.append(process)
        for thread in _threads_of_process(process):
            try:
                queue += [int(child) for child in (thread / "children").read_text().split()]
            except (OSError, ValueError):
                continue  # the thread ended between listing and reading
    return tree


def parse_numa_maps(numa_maps: str) -> Iterator[MemoryMapping]:
    """Yield the mappings that have pages, from the text of ``numa_maps``."""
    for line in numa_maps.splitlines():
        size = PAGE_SIZE.search(line)
        page_bytes = int(size.group(1)) * 1024 if size else 4096
        by_node = {int(n): int(pages) * page_bytes for n, pages in PAGE_COUNT.findall(line)}
        if by_node:
            huge = " huge" in line
            yield MemoryMapping(
                address=line.split(" ", 1)[0],
                of_file=" file=" in line and not huge,
                private=" anon=" in line or huge,
                page_bytes=page_bytes,
                bytes_by_node=by_node,
            )


def private_bytes_by_node(numa_maps: str, addresses: MappingAddresses = None) -> dict[int, int]:
    """Return node -> bytes of private data: mappings with ``anon`` or huge pages.

    Code of shared libraries and page cache do not count, since other programs placed these pages.
    If addresses are given, only mappings with these addresses count.
    """
    counted = [addresses] if isinstance(addresses, str) else addresses
    nodes: Counter[int] = Counter()
    for mapping in parse_numa_maps(numa_maps):
        if mapping.private and (counted is None or mapping.address in counted):
            nodes.update(mapping.bytes_by_node)
    return dict(nodes)


def _read_threads(pid: int) -> list[ThreadPlacement]:
    """Return each thread's allowed processing units, and the unit on which it last ran."""
    seen: list[ThreadPlacement] = []
    for task in _threads_of_process(pid):
        try:
            status = (task / "status").read_text()
            last = int((task / "stat").read_text().rpartition(")")[2].split()[36])
        except (OSError, ValueError, IndexError):
            continue  # the thread has just ended
        match = CPUS_ALLOWED.search(status)
        allowed = match[1].strip() if match else None
        seen.append({"tid": int(task.name), "cpus_allowed": allowed, "last_cpu": last})
    return seen


def read_process_threads(pid: int) -> list[ThreadPlacement]:
    """Return the threads of a process and of its descendants; empty if all processes ended."""
    return [thread for process in process_and_descendants(pid) for thread in _read_threads(process)]


def better_observation_of_threads(
    earlier: list[ThreadPlacement], later: list[ThreadPlacement]
) -> list[ThreadPlacement]:
    """Return the observation that shows a load's placement better; of two equal ones, the later.

    A tool pins its threads after its start, so an early observation shows too few pinned threads.
    At its end, the tool may have a single thread. A few tools (likwid-bench) first start other
    programs, which have more threads than the measurement. So the number of units with a pinned
    thread is compared first, then the number of threads.
    """
    return later if _placement_shown(later) >= _placement_shown(earlier) else earlier


def _placement_shown(threads: list[ThreadPlacement]) -> tuple[int, int]:
    """Return the number of units that have a pinned thread, and the number of threads."""
    allowed = [parse_cpu_list(thread["cpus_allowed"] or "") for thread in threads]
    return len({frozenset(cpus) for cpus in allowed if len(cpus) == 1}), len(threads)


def read_emulator(pid: int) -> str | None:
    """Return the name of QEMU's user-mode emulator if it runs a process or one of its descendants.

    Linux starts the emulator by binfmt_misc, or a script starts it by name (qemu-aarch64).
    """
    for process in process_and_descendants(pid):
        try:
            program = Path(f"/proc/{process}/exe").readlink().name
        except OSError:
            continue  # the process has just ended
        if USER_MODE_EMULATOR.match(program):
            return program
    return None


def read_process_memory(
    pid: int, addresses: MappingAddresses = None, launcher: bool = False
) -> dict[str, int] | None:
    """Return node -> private bytes of a process tree.

    The result is None if no process of the tree has a readable ``numa_maps``, because the kernel
    lacks this file or the processes have ended.

    If addresses are given, only mappings with these addresses count. With `launcher`, the process
    `pid` only starts the program that is measured. So the process `pid` and its forks with the same
    command line do not count.
    """
    nodes: Counter[int] = Counter()
    readable = False
    launched = read_file_if_present(f"/proc/{pid}/cmdline") if launcher else None
    for process in process_and_descendants(pid):
        numa_maps = read_file_if_present(f"/proc/{process}/numa_maps")
        if numa_maps is None:
            continue  # this kernel has no NUMA, or the process has just ended
        readable = True
        if not launcher or read_file_if_present(f"/proc/{process}/cmdline") != launched:
            nodes.update(private_bytes_by_node(numa_maps, addresses))
    return {str(node): nodes[node] for node in sorted(nodes)} if readable else None


def page_share_deviations(
    wanted: Mapping[Node, float], seen: Mapping[Node, float]
) -> dict[Node, float]:
    """Return node -> absolute difference of the node's share of all pages from the wanted share.

    A missing node has the share 0. The result is sorted by node number.
    """
    nodes: set[Node] = set(wanted) | set(seen)
    return {n: abs(seen.get(n, 0.0) - wanted.get(n, 0.0)) for n in sorted(nodes, key=int)}
