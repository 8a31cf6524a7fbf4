"""Kinds of memory, and tiers: which memory is faster than which, 0 the fastest.

The kernel's memory tiers decide where it has several, then hwloc's, then the kind of the memory,
what the HMAT claims of its bandwidth, and last the distance.
"""

from __future__ import annotations

from chaosity.topology.hwloc_xml import HwlocTree
from chaosity.topology.known import KnownNode

DRAM, FAR = "DRAM", "CPU-less"
# From fast to slow as bandwidth goes. CPU-less memory of unknown make stands after DRAM.
_RANKS = {"HBM": 0, "MCDRAM": 0, DRAM: 1, FAR: 2, "SPM": 2, "CXL": 2, "GPU": 3, "NVM": 4}
_NAMES = {"GPUMemory": "GPU", "CXL-DRAM": "CXL", "CXL-NVM": "NVM"}
# HMAT values of one technology differ by a few per cent between nodes, of two by far more.
_CLEARLY_FASTER = 1.5


def memory_kinds(known: list[KnownNode]) -> dict[int, str]:
    """The kind of each node's memory: what hwloc says, DRAM beside processors, else CPU-less.

    Memory without processors of its own still is DRAM when processors next to it have no other.
    """
    provided = {cpu for node in known if node.memory_bytes != 0 for cpu in node.own}
    everywhere = {cpu for node in known for cpu in node.own}
    return {
        node.os_index: _kind(node, set(node.borrowed) or everywhere, provided) for node in known
    }


def _kind(node: KnownNode, near: set[int], provided: set[int]) -> str:
    """The kind of one node, `near` to processing units; `provided` are those with memory."""
    if node.memory_bytes == 0:
        return "none"
    if node.item is not None and node.special:
        name = node.item.subtype or node.item.infos["DAXType"]
        return _NAMES.get(name, name)
    if node.has_cpus:
        return DRAM
    if node.item is None:
        return "unknown"
    return FAR if near <= provided else DRAM


def memory_tiers(
    targets: list[KnownNode],
    kinds: dict[int, str],
    tree: HwlocTree,
    kernel_tiers: dict[int, int],
) -> dict[int, int]:
    """The tier of each target, counted from 0 without gaps."""
    indexes = [node.os_index for node in targets]
    stated = {
        node.os_index: int(node.item.infos["MemoryTier"])
        for node in targets
        if node.item is not None and node.item.infos.get("MemoryTier", "").isdigit()
    }
    for source in (kernel_tiers, stated):
        # One tier for all is the kernel's answer when firmware told it nothing.
        if set(indexes) <= set(source) and len({source[index] for index in indexes}) > 1:
            return _dense({index: (source[index],) for index in indexes})
    return _dense({node.os_index: _rank(node, kinds, tree, targets) for node in targets})


def _dense(keys: dict[int, tuple]) -> dict[int, int]:
    order = sorted(set(keys.values()))
    return {index: order.index(key) for index, key in keys.items()}


def _rank(
    node: KnownNode, kinds: dict[int, str], tree: HwlocTree, targets: list[KnownNode]
) -> tuple[int, int]:
    """A sorting key: the kind's rank, and for CPU-less memory how far it lies from processors."""
    kind = kinds[node.os_index]
    if kind != FAR:
        return _RANKS.get(kind, _RANKS[FAR]), 0
    bandwidth = _local_bandwidths(tree)
    ordinary = [bandwidth[i] for i, k in kinds.items() if k == DRAM and i in bandwidth]
    faster = _CLEARLY_FASTER * max(ordinary, default=float("inf"))
    if bandwidth.get(node.os_index, 0) > faster:
        return _RANKS["HBM"], 0
    return _RANKS[FAR], _distance_to_processors(node, tree, targets)


def _local_bandwidths(tree: HwlocTree) -> dict[int, float]:
    """The best bandwidth that the HMAT claims for each node."""
    best: dict[int, float] = {}
    for item in tree.memory_attributes():
        if item.name == "bandwidth_bytes_per_second":
            best[item.target] = max(item.value, best.get(item.target, 0.0))
    return best


def _distance_to_processors(node: KnownNode, tree: HwlocTree, targets: list[KnownNode]) -> int:
    table = tree.distances()
    if table is None or node.os_index not in table.nodes:
        return 0
    column = table.nodes.index(node.os_index)
    owners = {other.os_index for other in targets if other.own}
    rows = [
        row[column] for index, row in zip(table.nodes, table.matrix, strict=True) if index in owners
    ]
    return min(rows, default=0)
