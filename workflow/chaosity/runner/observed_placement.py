"""Read from the kernel on which units a load's threads are, and on which nodes its pages are.

Sources: proc(5) for ``/proc/PID/task/TID/status`` and ``stat``, numa(7) for ``numa_maps``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from chaosity.cpusets import parse_cpu_list
from chaosity.records.record_format import ThreadPlacement
from chaosity.runner.host_state import read_file_if_present

NODES = Path("/sys/devices/system/node")
PAGE_COUNT = re.compile(r"\bN(\d+)=(\d+)")
CPUS_ALLOWED = re.compile(r"^Cpus_allowed_list:(.*)$", re.MULTILINE)
PAGE_SIZE = re.compile(r"\bkernelpagesize_kB=(\d+)")
# QEMU's other programs are not user-mode emulators; they may be a load of their own.
USER_MODE_EMULATOR = re.compile(r"qemu-(?!system-|img|io|nbd|ga$)")
# Allowed deviation of a node's share of all pages from the wanted share. The bandwidths behind the
# wanted shares scatter as much, and fifty huge pages cannot be divided more finely.
SHARE_TOLERANCE = 0.02
# A node: its number, or that number as a JSON key.
Node = TypeVar("Node", int, str)
# Addresses of the mappings that a load measures, as numa_maps writes them; None if the addresses
# are unknown.
MappingAddresses = str | list[str] | None


@dataclass(frozen=True)
class MemoryMapping:
    """A mapping with pages: a line of ``numa_maps``."""

    address: str  # first address, as text in the form of the file
    of_file: bool  # whether a file backs the mapping
    private: bool  # whether the mapping has private data of the process (``anon``) or huge pages
    page_bytes: int  # size of the pages that the kernel counts here
    bytes_by_node: dict[int, int]  # node -> bytes of the mapping


def read_cpus_by_node(nodes: Path = NODES) -> dict[int, set[int]]:
    """Return node -> its processing units at this time; empty if the kernel has no NUMA."""
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
    """Return the number of a process, then those of all its descendants that still run."""
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

    Code of shared libraries and page cache do not count, since other programs placed them. If
    addresses are given, only mappings with these addresses count.
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
    """Return the threads of a process and all its descendants; empty after its end."""
    return [thread for process in process_and_descendants(pid) for thread in _read_threads(process)]


def better_observation_of_threads(
    earlier: list[ThreadPlacement], later: list[ThreadPlacement]
) -> list[ThreadPlacement]:
    """Return the observation that shows the placement of a load best; of equal ones the later.

    A tool pins its threads after its start and may end with a single thread. A few (likwid-bench)
    first start other programs, with more threads than they measure with. So the number of units
    with a pinned thread decides first, then the number of threads.
    """
    return later if _placement_shown(later) >= _placement_shown(earlier) else earlier


def _placement_shown(threads: list[ThreadPlacement]) -> tuple[int, int]:
    """Return the number of units that have a pinned thread, and the number of threads."""
    allowed = [parse_cpu_list(thread["cpus_allowed"] or "") for thread in threads]
    return len({frozenset(cpus) for cpus in allowed if len(cpus) == 1}), len(threads)


def read_emulator(pid: int) -> str | None:
    """Return the name of QEMU's user-mode emulator if a process or a descendant runs in it.

    Linux starts such a program by binfmt_misc, or a script starts the emulator (qemu-aarch64).
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
    """Return node -> private bytes of a process tree; None if the kernel has no ``numa_maps``.

    If addresses are given, only mappings with these addresses count. With `launcher`, the process
    `pid` only starts a program, so this process and its forks with its command line do not count.
    """
    nodes: Counter[int] = Counter()
    readable = False
    launched = read_file_if_present(f"/proc/{pid}/cmdline") if launcher else None
    for process in process_and_descendants(pid):
        numa_maps = read_file_if_present(f"/proc/{process}/numa_maps")
        if numa_maps is None:
            continue  # no NUMA in this kernel, or the process has just ended
        readable = True
        if not launcher or read_file_if_present(f"/proc/{process}/cmdline") != launched:
            nodes.update(private_bytes_by_node(numa_maps, addresses))
    return {str(node): nodes[node] for node in sorted(nodes)} if readable else None


def page_share_deviations(
    wanted: Mapping[Node, float], seen: Mapping[Node, float]
) -> dict[Node, float]:
    """Return node -> absolute deviation of its share of all pages from the wanted share.

    A missing node has the share 0. The result is sorted by node number.
    """
    nodes: set[Node] = set(wanted) | set(seen)
    return {n: abs(seen.get(n, 0.0) - wanted.get(n, 0.0)) for n in sorted(nodes, key=int)}
