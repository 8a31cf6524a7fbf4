"""Where a running program's pages are, and moving them until each node has its share.

Judged and moved is the program's own memory: anonymous mappings and huge pages. What lies behind a
file, such as libraries, is left where it is. So is what is smaller than `SMALLEST_BYTES`.
"""

from __future__ import annotations

import array
import heapq
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity.place import kernel_calls
from chaosity.place.page_shares import apportion_whole, reduce_to_attainable
from chaosity.runner import observed_placement

# 256 pages: less cannot hold shares to half a per cent, and stacks and libraries' data are less.
SMALLEST_BYTES = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Pages in one call: the kernel works for some tens of milliseconds, then signals are looked at.
_BATCH = 1 << 14
_RESIDENT = ("VmRSS", "HugetlbPages")  # the second is not in the first
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


@dataclass(frozen=True)
class MemoryArea:
    """A mapping of a process whose pages count.

    Attributes:
        pid: of the process.
        begin: first address.
        end: address behind it.
        block_bytes: what is moved as one: a page, of whichever size.
        page_bytes: what a call names: a huge page has one address, a transparent one many.
        bytes_by_node: where it is.
        single_bytes: what is not in such blocks but in single pages.
    """

    pid: int
    begin: int
    end: int
    block_bytes: int
    page_bytes: int
    bytes_by_node: Mapping[int, int]
    single_bytes: int = 0


@dataclass(frozen=True)
class BlockGroup:
    """Blocks of one size.

    Attributes:
        area: of which they are.
        block_bytes: of each.
        addresses: of each.
        where: node of each; below 0: it is on none.
    """

    area: MemoryArea
    block_bytes: int
    addresses: Sequence[int]
    where: array.array

    @property
    def there(self) -> int:
        """How many of them are on a node."""
        return sum(1 for node in self.where if node >= 0)


def find_areas(pid: int, mapping: str | None = None) -> list[MemoryArea]:
    """The mappings of a process and all that it started whose pages count.

    Args:
        pid: of its first process.
        mapping: address of the one that counts; None: all that are large enough.
    """
    return [
        area for one in observed_placement.process_tree(pid) for area in _of_process(one, mapping)
    ]


def _of_process(pid: int, mapping: str | None) -> Iterator[MemoryArea]:
    try:
        text = Path(f"/proc/{pid}/numa_maps").read_text()
        found = [one for one in observed_placement.parse_numa_maps(text) if _counts(one, mapping)]
        ends = _ends(pid) if found else {}
        merged = _transparent(pid) if found else {}
    except OSError:
        return  # it ended in between
    for one in found:
        begin = int(one.address, 16)
        if begin not in ends:
            continue  # it was unmapped in between
        whole = one.page_bytes
        huge = merged.get(begin, 0) if whole == PAGE_BYTES else 0
        block = _transparent_bytes() if huge else whole
        single = sum(one.bytes_by_node.values()) - huge if huge else 0
        yield MemoryArea(pid, begin, ends[begin], block, whole, one.bytes_by_node, single)


def _counts(one: observed_placement.MemoryMapping, mapping: str | None) -> bool:
    if mapping is not None:
        return one.address == mapping
    large = sum(one.bytes_by_node.values()) >= SMALLEST_BYTES
    return one.private and not one.of_file and large


def _ends(pid: int) -> dict[int, int]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    ranges = (line.split(" ", 1)[0].split("-") for line in lines)
    return {int(begin, 16): int(end, 16) for begin, end in ranges}


def _transparent(pid: int) -> dict[int, int]:
    """Where mappings begin that have transparent huge pages, and how many bytes are in such."""
    found, begin = {}, 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split(" ", 1)[0]
        if "-" in first:
            begin = int(first.split("-")[0], 16)
        elif first == "AnonHugePages:" and line.split()[1] != "0":
            found[begin] = int(line.split()[1]) << 10
    return found


def _transparent_bytes() -> int:
    try:
        return int(_HUGE.read_text())
    except OSError:
        return PAGE_BYTES


def resident_bytes(pid: int) -> int:
    """Memory of a process and all that it started, whatever it is for; see proc_pid_status(5).

    Far cheaper than `areas`: the kernel keeps these counts.
    """
    return sum(_resident(one) for one in observed_placement.process_tree(pid))


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0  # it ended in between
    counts = dict(line.split(":", 1) for line in lines)
    return sum(int(counts.get(name, "0 kB").split()[0]) for name in _RESIDENT) << 10


def total_bytes_by_node(found: Sequence[MemoryArea]) -> dict[int, int]:
    """Bytes on each node."""
    nodes: Counter[int] = Counter()
    for area in found:
        nodes.update(area.bytes_by_node)
    return dict(nodes)


def shares_by_node(by_node: Mapping[int, int]) -> dict[int, float]:
    """The share of each node; empty when there is nothing."""
    everything = sum(by_node.values())
    return {node: by_node[node] / everything for node in sorted(by_node)} if everything else {}


def move_to_shares(found: Sequence[MemoryArea], wanted: Mapping[int, float]) -> int:
    """Move the pages that must be moved for each node to have its share; returns how many blocks.

    Large blocks come first: what they are too coarse for, the smaller ones make up. Of equal ones
    the fewer come first.
    """
    done: Counter[int] = Counter()
    seen = moved = 0
    parts = [part for area in found for part in find_blocks(area)]
    for part in sorted(parts, key=lambda part: (-part.block_bytes, len(part.where))):
        there = part.there
        seen += there * part.block_bytes
        owed = {n: (s * seen - done[n]) / part.block_bytes for n, s in wanted.items()}
        goal = apportion_whole(there, reduce_to_attainable(there, owed))
        plan = plan_relocations(part.where, goal)
        _relocate(part, plan)
        moved += len(plan)
        for node, count in goal.items():
            done[node] += count * part.block_bytes
    return moved


def find_blocks(area: MemoryArea) -> list[BlockGroup]:
    """The blocks of an area, those of each size by themselves.

    Mostly only the ends of an area that fit no huge page are in single pages. Where there are more,
    every page is asked for, which takes seconds for some 10 GiB.
    """
    size, page = area.block_bytes, area.page_bytes
    begin = min(-(-area.begin // size) * size, area.end)
    if not area.single_bytes:
        whole = range(begin, area.end, size)
        return [BlockGroup(area, size, whole, _nodes(area, whole))]
    end = begin + (area.end - begin) // size * size
    ends = [*range(area.begin, begin, page), *range(end, area.end, page)]
    single = BlockGroup(area, page, ends, _nodes(area, ends))
    whole = range(begin, end, size)
    if page * single.there == area.single_bytes:
        return [BlockGroup(area, size, whole, _nodes(area, whole)), single]
    return _told_apart(area, whole, single)


def _told_apart(area: MemoryArea, whole: range, single: BlockGroup) -> list[BlockGroup]:
    """Huge pages and single ones, by all their pages.

    A huge page's place with pages on several nodes, or with some that are not there, is none.
    """
    each = area.block_bytes // area.page_bytes
    pages = range(whole.start, whole.stop, area.page_bytes)
    where = _nodes(area, pages)
    huge, alone = ([], array.array("i")), (list(single.addresses), single.where[:])
    for number, address in enumerate(whole):
        part = where[number * each : (number + 1) * each]
        if part[0] >= 0 and part.count(part[0]) == each:
            huge[0].append(address)
            huge[1].append(part[0])
        else:
            alone[0].extend(pages[number * each : (number + 1) * each])
            alone[1].extend(part)
    return [BlockGroup(area, area.block_bytes, *huge), BlockGroup(area, area.page_bytes, *alone)]


def _nodes(area: MemoryArea, addresses: Sequence[int]) -> array.array:
    """The node of what is at each address; below 0: it is on none."""
    where = array.array("i")
    for first in range(0, len(addresses), _BATCH):
        asked = array.array("Q", addresses[first : first + _BATCH])
        where.extend(kernel_calls.move_pages(area.pid, asked, None))
    return where


def _relocate(part: BlockGroup, plan: Sequence[tuple[int, int]]) -> None:
    page_bytes = part.area.page_bytes
    each = part.block_bytes // page_bytes
    step = max(1, _BATCH // each)
    for first in range(0, len(plan), step):
        some = plan[first : first + step]
        asked = array.array("Q")
        for index, _ in some:
            begin = part.addresses[index]
            asked.extend(range(begin, begin + part.block_bytes, page_bytes))
        kernel_calls.move_pages(
            part.area.pid, asked, [node for _, node in some for _ in range(each)]
        )


def plan_relocations(where: Sequence[int], goal: Mapping[int, int]) -> list[tuple[int, int]]:
    """Which blocks have to go where: as few as can be, spread evenly over the area.

    Args:
        where: node of each block; below 0 for one that is not there.
        goal: how many blocks each node shall have.

    Returns:
        Index of the block and its new node, in the order of the blocks.
    """
    now = Counter(node for node in where if node >= 0)
    surplus = {node: n - goal.get(node, 0) for node, n in now.items() if n > goal.get(node, 0)}
    lacking = {node: n - now[node] for node, n in goal.items() if n > now[node]}
    destinations = heapq.merge(
        *([((k + 0.5) / n, node) for k in range(n)] for node, n in sorted(lacking.items()))
    )
    found = []
    gone: Counter[int] = Counter()
    for index, node in enumerate(where):
        if node in surplus:
            gone[node] += surplus[node]
            if gone[node] >= now[node]:  # every now/surplus-th of the node's blocks
                gone[node] -= now[node]
                found.append((index, next(destinations)[1]))
    return found
