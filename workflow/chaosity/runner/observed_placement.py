"""Where the kernel reports a load's threads and pages.

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
from chaosity.records.record_types_and_verdict import ThreadPlacement

NODES = Path("/sys/devices/system/node")
PAGE_COUNT = re.compile(r"\bN(\d+)=(\d+)")
PAGE_SIZE = re.compile(r"\bkernelpagesize_kB=(\d+)")
# Tolerance of a node's share, as a part of all pages. The bandwidths from which shares follow
# scatter as much, and fifty huge pages cannot be divided more finely.
SHARE_TOLERANCE = 0.02
# A node: its number, or that number as a JSON key.
Node = TypeVar("Node", int, str)
# Addresses of the mappings that a load measures, as numa_maps writes them; None when unknown.
MappingAddresses = str | list[str] | None


@dataclass(frozen=True)
class MemoryMapping:
    """A line of ``numa_maps`` that has pages.

    Attributes:
        address: begin, as the file writes it.
        of_file: whether a file backs it.
        private: whether it holds data of the process alone (``anon``) or huge pages.
        page_bytes: size of the pages that the kernel counts here.
        bytes_by_node: its bytes on each node.
    """

    address: str
    of_file: bool
    private: bool
    page_bytes: int
    bytes_by_node: dict[int, int]


def read_cpus_by_node(nodes: Path = NODES) -> dict[int, set[int]]:
    """Return the processing units of every node at this time; empty if the kernel has no NUMA."""
    return {
        int(folder.name.removeprefix("node")): set(parse_cpu_list((folder / "cpulist").read_text()))
        for folder in nodes.glob("node[0-9]*")
    }


def process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants that still live; the process itself comes first."""
    tree, queue = [], [pid]
    while queue:
        process = queue.pop()
        tree.append(process)
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                queue += [int(child) for child in children.read_text().split()]
            except (OSError, ValueError):
                continue  # the thread ended between listing and reading
    return tree


def parse_numa_maps(numa_maps: str) -> Iterator[MemoryMapping]:
    """Return the mappings that have pages."""
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
    """Return the bytes of private data on each node: mappings with ``anon`` or huge pages.

    Text of shared libraries and page cache do not count: other programs placed them.

    Args:
        numa_maps: text of the file.
        addresses: the mappings that count; None: all.
    """
    counted = [addresses] if isinstance(addresses, str) else addresses
    nodes: Counter[int] = Counter()
    for mapping in parse_numa_maps(numa_maps):
        if mapping.private and (counted is None or mapping.address in counted):
            nodes.update(mapping.bytes_by_node)
    return dict(nodes)


def _read_status_field(status: str, name: str) -> str | None:
    """One field of a ``status`` file."""
    match = re.search(rf"^{name}:\s*(.*)$", status, re.MULTILINE)
    return match.group(1).strip() if match else None


def _read_threads(pid: int) -> list[ThreadPlacement]:
    """The allowed processing units of each thread of a process, and the unit it last ran on."""
    seen: list[ThreadPlacement] = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda p: int(p.name)):
        try:
            status = (task / "status").read_text()
            last = int((task / "stat").read_text().rpartition(")")[2].split()[36])
        except (OSError, ValueError, IndexError):
            continue  # the thread has just ended
        allowed = _read_status_field(status, "Cpus_allowed_list")
        seen.append({"tid": int(task.name), "cpus_allowed": allowed, "last_cpu": last})
    return seen


def read_process_threads(pid: int) -> list[ThreadPlacement]:
    """Return the threads of a process and all its descendants; empty after its end."""
    return [thread for process in process_tree(pid) for thread in _read_threads(process)]


def read_process_memory(pid: int, addresses: MappingAddresses = None) -> dict[str, int] | None:
    """Private bytes of a process and its descendants on each node; None without ``numa_maps``.

    Args:
        pid: the process.
        addresses: the mappings that count; None: all private memory.
    """
    nodes: Counter[int] = Counter()
    readable = False
    for process in process_tree(pid):
        try:
            numa_maps = Path(f"/proc/{process}/numa_maps").read_text()
        except OSError:
            continue  # no NUMA in this kernel, or the process has just ended
        nodes.update(private_bytes_by_node(numa_maps, addresses))
        readable = True
    return {str(node): nodes[node] for node in sorted(nodes)} if readable else None


def share_deviations(wanted: Mapping[Node, float], seen: Mapping[Node, float]) -> dict[Node, float]:
    """Return how far the share of each node is from the wanted share, as a part of all pages.

    Args:
        wanted: share by node; a missing node has the share 0.
        seen: the actual share by node, likewise.

    Returns:
        The absolute deviation by node, in the order of the numbers.
    """
    nodes: set[Node] = set(wanted) | set(seen)
    return {
        node: abs(seen.get(node, 0.0) - wanted.get(node, 0.0)) for node in sorted(nodes, key=int)
    }
