"""Find the nodes of a running program's pages, and move pages until each node has its share.

Only the program's own memory is counted and moved: anonymous mappings and huge pages. Memory that a
file backs, such as libraries, and mappings below `LEAST_PLACED_MAPPING_BYTES` stay where they are.
"""

from __future__ import annotations

import array
import contextlib
import heapq
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity.place import numa_system_calls
from chaosity.place.page_placement import apportion_whole_numbers, attainable_amounts
from chaosity.runner.observed_state import (
    MemoryMapping,
    parse_numa_maps,
    process_and_descendants,
    read_file_if_present,
)

# Size in bytes of the smallest mapping that is placed. In a mapping with fewer than 256 pages,
# shares would be less precise than half a per cent. Stacks and data of libraries are smaller than
# this size.
LEAST_PLACED_MAPPING_BYTES = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Number of pages per system call. A call takes some tens of milliseconds; between two calls, this
# process can handle signals.
_PAGES_PER_SYSTEM_CALL = 1 << 14
# The resident memory is the sum of two fields, since VmRSS does not include reserved huge pages
# (HugetlbPages).
_RESIDENT_MEMORY_PATTERN = re.compile(r"^(?:VmRSS|HugetlbPages):\s*(\d+)", re.MULTILINE)
_HUGE_PAGE_SIZE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


@dataclass(frozen=True)
class MemoryArea:
    """A mapping of the process `pid`, from `begin` to below `end`, whose pages are placed."""

    pid: int
    begin: int
    end: int
    block_bytes: int  # size of a huge page or base page, which moves as one block
    # Bytes per address in a system call: a reserved huge page has one address, but a transparent
    # huge page has many addresses.
    page_bytes: int
    bytes_by_node: Mapping[int, int]  # node -> bytes of the area on this node
    single_bytes: int = 0  # bytes of the area in base pages instead of blocks of `block_bytes`


@dataclass(frozen=True)
class EqualSizedBlocks:
    """Blocks of an area that have the same size, with the address of each block.

    `nodes` has the node of each block; a number below 0 means that the block is on no node.
    """

    area: MemoryArea
    block_bytes: int
    addresses: Sequence[int]
    nodes: array.array[int]

    @property
    def present_block_count(self) -> int:
        """Return the number of blocks that are on any node."""
        return sum(1 for node in self.nodes if node >= 0)


def find_memory_areas(pid: int, mapping: str | None = None) -> list[MemoryArea]:
    """Return the areas whose pages are placed, in a process and all its descendants.

    `mapping` is the address, in the form of numa_maps, of the only mapping that counts; None
    selects all large mappings.
    """
    return [
        area
        for process in process_and_descendants(pid)
        for area in _areas_of_process(process, mapping)
    ]


def _areas_of_process(pid: int, mapping: str | None) -> Iterator[MemoryArea]:
    try:
        numa_maps = Path(f"/proc/{pid}/numa_maps").read_text()
        counted = [m for m in parse_numa_maps(numa_maps) if _is_mapping_to_place(m, mapping)]
        ends_and_huge_bytes = _ends_and_huge_bytes(pid) if counted else {}
    except OSError:
        return  # the process has just ended
    for found in counted:
        begin, page = int(found.address, 16), found.page_bytes
        if begin not in ends_and_huge_bytes:
            continue  # the program has just removed the mapping
        end, huge = ends_and_huge_bytes[begin]
        huge = huge if page == PAGE_BYTES else 0
        block = int(read_file_if_present(_HUGE_PAGE_SIZE_FILE) or PAGE_BYTES) if huge else page
        single = sum(found.bytes_by_node.values()) - huge if huge else 0
        yield MemoryArea(pid, begin, end, block, page, found.bytes_by_node, single)


def _is_mapping_to_place(found: MemoryMapping, mapping: str | None) -> bool:
    if mapping is not None:
        return found.address == mapping
    large = sum(found.bytes_by_node.values()) >= LEAST_PLACED_MAPPING_BYTES
    return found.private and not found.of_file and large


def _ends_and_huge_bytes(pid: int) -> dict[int, tuple[int, int]]:
    """Return first address of a mapping -> its end, and its bytes in transparent huge pages."""
    found, begin, end = dict[int, tuple[int, int]](), 0, 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first:
            begin, end = (int(address, 16) for address in first.split("-"))
            found[begin] = end, 0
        elif first == "AnonHugePages:":
            found[begin] = end, int(rest.split()[0]) << 10
    return found


def resident_bytes(pid: int) -> int:
    """Return the bytes of resident memory of a process and its descendants, see proc_pid_status(5).

    The kernel maintains the counts of resident memory, so reading them is much faster than
    `find_memory_areas`.
    """
    kib = 0
    for process in process_and_descendants(pid):
        with contextlib.suppress(OSError):  # the process has just ended
            kib += sum(
                map(
                    int,
                    _RESIDENT_MEMORY_PATTERN.findall(Path(f"/proc/{process}/status").read_text()),
                )
            )
    return kib << 10


def page_bytes_by_node(areas: Sequence[MemoryArea]) -> dict[int, int]:
    """Return node -> bytes of all areas on this node."""
    return dict(sum((Counter(area.bytes_by_node) for area in areas), Counter()))


def page_shares_by_node(by_node: Mapping[int, int]) -> dict[int, float]:
    """Return node -> share of the bytes of all nodes; empty if there are no bytes."""
    total = sum(by_node.values())
    return {node: by_node[node] / total for node in sorted(by_node)} if total else {}


def move_pages_to_shares(areas: Sequence[MemoryArea], wanted: Mapping[int, float]) -> int:
    """Move as few blocks as possible until each node has its share; return how many blocks moved.

    Large blocks move first; then smaller blocks correct deviations that are below the size of a
    large block. Among groups of the same block size, the group with the fewest blocks moves first.
    """
    placed: Counter[int] = Counter()
    seen = moved = 0
    groups = [group for area in areas for group in find_movable_blocks(area)]
    for group in sorted(groups, key=lambda group: (-group.block_bytes, len(group.nodes))):
        present, size = group.present_block_count, group.block_bytes
        seen += present * size
        lacking = {node: (share * seen - placed[node]) / size for node, share in wanted.items()}
        goal = apportion_whole_numbers(present, attainable_amounts(present, lacking))
        plan = plan_block_moves(group.nodes, goal)
        _move_blocks_of_group(group, plan)
        moved += len(plan)
        for node, count in goal.items():
            placed[node] += count * size
    return moved


def find_movable_blocks(area: MemoryArea) -> list[EqualSizedBlocks]:
    """Return the blocks of an area in groups: huge pages, and single base pages if any exist.

    Single pages are usually only at both ends of an area, where a huge page does not fit. If single
    pages are elsewhere, the node of each page of the area is read, which takes seconds for each 10
    GiB.
    """
    size, page = area.block_bytes, area.page_bytes
    begin = min(-(-area.begin // size) * size, area.end)
    if not area.single_bytes:
        return [_locate_blocks(area, size, range(begin, area.end, size))]
    end = begin + (area.end - begin) // size * size
    single = _locate_blocks(
        area, page, [*range(area.begin, begin, page), *range(end, area.end, page)]
    )
    whole = range(begin, end, size)
    if page * single.present_block_count == area.single_bytes:
        return [_locate_blocks(area, size, whole), single]
    return _separate_huge_pages(area, whole, single)


def _separate_huge_pages(
    area: MemoryArea, whole: range, ends: EqualSizedBlocks
) -> list[EqualSizedBlocks]:
    """Return two sets of blocks, huge pages and single pages, with the node of each block.

    A huge page that is absent in part, or on several nodes, counts as single pages.
    """
    each = area.block_bytes // area.page_bytes
    pages = range(whole.start, whole.stop, area.page_bytes)
    where = _locate_blocks(area, area.page_bytes, pages).nodes
    huge_addresses, huge_nodes = [], array.array("i")
    single_addresses, single_nodes = list(ends.addresses), ends.nodes[:]
    for number, address in enumerate(whole):
        part = where[number * each : (number + 1) * each]
        if part[0] >= 0 and part.count(part[0]) == each:
            huge_addresses.append(address)
            huge_nodes.append(part[0])
        else:
            single_addresses.extend(pages[number * each : (number + 1) * each])
            single_nodes.extend(part)
    return [
        EqualSizedBlocks(area, area.block_bytes, huge_addresses, huge_nodes),
        EqualSizedBlocks(area, area.page_bytes, single_addresses, single_nodes),
    ]


def _locate_blocks(area: MemoryArea, size: int, addresses: Sequence[int]) -> EqualSizedBlocks:
    """Return the blocks at some addresses, with the node of each block."""
    where = array.array("i")
    for first in range(0, len(addresses), _PAGES_PER_SYSTEM_CALL):
        batch = array.array("Q", addresses[first : first + _PAGES_PER_SYSTEM_CALL])
        where.extend(numa_system_calls.move_pages(area.pid, batch, None))
    return EqualSizedBlocks(area, size, addresses, where)


def _move_blocks_of_group(group: EqualSizedBlocks, plan: Sequence[tuple[int, int]]) -> None:
    """Move blocks: `plan` has the index and the new node of each block."""
    page_bytes = group.area.page_bytes
    each = group.block_bytes // page_bytes
    step = max(1, _PAGES_PER_SYSTEM_CALL // each)
    for first in range(0, len(plan), step):
        batch = plan[first : first + step]
        pages = array.array("Q")
        for index, _ in batch:
            begin = group.addresses[index]
            pages.extend(range(begin, begin + group.block_bytes, page_bytes))
        nodes = [node for _, node in batch for _ in range(each)]
        numa_system_calls.move_pages(group.area.pid, pages, nodes)


def plan_block_moves(
    present_nodes: Sequence[int], goal: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Return the index and new node of each block that must move, in the order of the blocks.

    As few blocks as possible move, spread evenly over the area. `present_nodes` has the present
    node of each block (below 0 if absent), `goal` the wanted number of blocks on each node.
    """
    now = Counter(node for node in present_nodes if node >= 0)
    surplus = {node: n - goal.get(node, 0) for node, n in now.items() if n > goal.get(node, 0)}
    lacking = {node: n - now[node] for node, n in goal.items() if n > now[node]}
    destinations = heapq.merge(
        *([((k + 0.5) / n, node) for k in range(n)] for node, n in sorted(lacking.items()))
    )
    plan = []
    credit: Counter[int] = Counter()
    for index, node in enumerate(present_nodes):
        if node in surplus:
            credit[node] += surplus[node]
            # Choose every (now / surplus)-th block, so that moved blocks are spread evenly over the
            # area.
            if credit[node] >= now[node]:
                credit[node] -= now[node]
                plan.append((index, next(destinations)[1]))
    return plan
