"""Where the kernel says that a load's threads and pages are.

Sources: proc(5) for ``/proc/PID/task/TID/status`` and ``stat``, numa(7) for ``numa_maps``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

NODES = Path("/sys/devices/system/node")
PAGE_COUNT = re.compile(r"\bN(\d+)=(\d+)")
PAGE_SIZE = re.compile(r"\bkernelpagesize_kB=(\d+)")
# A node's share may be off by this much of all pages. The bandwidths that shares follow from
# scatter as much, and fifty huge pages cannot be spread more finely.
SHARE_TOLERANCE = 0.02
Node = TypeVar("Node", int, str)  # its number, or that as a key of JSON


def parse_cpus(text: str) -> set[int]:
    """The numbers of a Linux list such as ``0-3,8``."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def read_cpus_by_node(nodes: Path = NODES) -> dict[int, set[int]]:
    """The processing units of every node as the kernel has them now; empty without NUMA in it."""
    found = {}
    for folder in nodes.glob("node[0-9]*"):
        cpus = (folder / "cpulist").read_text()
        found[int(folder.name.removeprefix("node"))] = parse_cpus(cpus)
    return found


def process_tree(pid: int) -> list[int]:
    """A process and all that it started, as far as they still live."""
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        found.append(one)
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                queue += [int(child) for child in children.read_text().split()]
            except (OSError, ValueError):
                continue  # the thread ended between listing and reading
    return found


# Where a load says that its memory is: the address of one mapping or of several, as the file writes
# them; None where it does not say.
MappingAddresses = str | list[str] | None


@dataclass(frozen=True)
class MemoryMapping:
    """A line of ``numa_maps`` that has pages.

    Attributes:
        address: where it begins, as the file writes it.
        of_file: whether a file lies behind it.
        private: whether it holds data of the process alone (``anon``) or huge pages.
        page_bytes: of the pages in which the kernel counts here.
        bytes_by_node: where its pages are.
    """

    address: str
    of_file: bool
    private: bool
    page_bytes: int
    bytes_by_node: dict[int, int]


def parse_numa_maps(numa_maps: str) -> Iterator[MemoryMapping]:
    """The mappings that have pages."""
    for line in numa_maps.splitlines():
        size = PAGE_SIZE.search(line)
        page_bytes = int(size.group(1)) * 1024 if size else 4096
        counts = {int(n): int(pages) * page_bytes for n, pages in PAGE_COUNT.findall(line)}
        if counts:
            huge = " huge" in line
            yield MemoryMapping(
                address=line.split(" ", 1)[0],
                of_file=" file=" in line and not huge,
                private=" anon=" in line or huge,
                page_bytes=page_bytes,
                bytes_by_node=counts,
            )


def private_bytes_by_node(numa_maps: str, mapping: MappingAddresses = None) -> dict[int, int]:
    """Bytes of private data on each node: mappings with ``anon`` or huge pages.

    Shared library text and page cache are left out: they are where somebody else put them.

    Args:
        numa_maps: text of the file.
        mapping: what counts; None: all mappings.
    """
    nodes: Counter[int] = Counter()
    addresses = [mapping] if isinstance(mapping, str) else mapping
    for one in parse_numa_maps(numa_maps):
        if one.private and (addresses is None or one.address in addresses):
            nodes.update(one.bytes_by_node)
    return dict(nodes)


def read_status_field(status: str, name: str) -> str | None:
    """One field of a ``status`` file."""
    match = re.search(rf"^{name}:\s*(.*)$", status, re.MULTILINE)
    return match.group(1).strip() if match else None


def read_threads(pid: int) -> list[dict[str, Any]]:
    """Each thread's allowed processing units and the one it last ran on."""
    seen = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda p: int(p.name)):
        try:
            status = (task / "status").read_text()
            last = int((task / "stat").read_text().rpartition(")")[2].split()[36])
        except (OSError, ValueError, IndexError):
            continue
        allowed = read_status_field(status, "Cpus_allowed_list")
        seen.append({"tid": int(task.name), "cpus_allowed": allowed, "last_cpu": last})
    return seen


def read_process_threads(pid: int) -> list[dict[str, Any]]:
    """The threads of a load and of all that it started; none once it is gone."""
    return [thread for one in process_tree(pid) for thread in read_threads(one)]


def read_process_memory(pid: int, mapping: MappingAddresses = None) -> dict[str, int] | None:
    """A load's bytes on each node; None where the kernel has no ``numa_maps`` to read.

    Args:
        pid: of its first process.
        mapping: what counts; None: all private memory.
    """
    nodes: Counter[int] = Counter()
    readable = False
    for one in process_tree(pid):
        try:
            nodes.update(private_bytes_by_node(Path(f"/proc/{one}/numa_maps").read_text(), mapping))
            readable = True
        except OSError:
            continue  # no NUMA in this kernel, or the process ended in between
    return {str(node): nodes[node] for node in sorted(nodes)} if readable else None


def share_deviations(wanted: Mapping[Node, float], seen: Mapping[Node, float]) -> dict[Node, float]:
    """How far the share of each node is from what was wanted, as a part of all pages.

    Args:
        wanted: by node; one that is not named has no share.
        seen: the same, as it is.

    Returns:
        By node, in the order of their numbers.
    """
    nodes = sorted({*wanted, *seen}, key=int)
    return {node: abs(seen.get(node, 0.0) - wanted.get(node, 0.0)) for node in nodes}
