"""Find the bandwidth that a host's memory modules cannot exceed: their speed x width, summed.

Modules may share a channel, so the sum can be too high. It must never be too low, since it refuses
values: where in doubt, it is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from chaosity.runner.memory_module_table import MemoryModule
from chaosity.topology.numa_nodes import DRAM
from chaosity.topology.topology_model import MemoryPeak, Node

# "P0 CHANNEL A", "CPU1_DIMM_A1", "PROC 1 DIMM 2", "NODE 0"
_PACKAGE = re.compile(r"(?<![A-Z0-9])(?:P|CPU|PROC|SOCKET|NODE)[ _-]?\d+", re.IGNORECASE)


def find_memory_peak(
    modules: list[MemoryModule] | str,
    nodes: Iterable[Node],
    packages: int,
    may_be_virtual: bool,
) -> MemoryPeak:
    """Return the upper bounds of the bandwidth of a host's DRAM, or why they are unknown."""
    if isinstance(modules, str):
        return MemoryPeak(None, None, modules)
    if may_be_virtual:  # a cloud's table lists, for example, one module for any size of machine
        return MemoryPeak(None, None, "a table of modules in a virtual machine may be invented")
    held = Counter[int | None]({None: 0})
    size, rate = Counter[str](), Counter[str]()
    for node in nodes:
        held[node.package] += (node.size_bytes or 0) if node.kind == DRAM else 0
    for size_bytes, bytes_per_second, locator in modules:
        package = named[0] if (named := _PACKAGE.search(locator)) else ""
        size[package] += size_bytes
        rate[package] += bytes_per_second
    if size.total() < held.total():
        return MemoryPeak(None, None, "the table lists less memory than the host has")
    # The numbers in locators need not be the kernel's, so the largest share bounds every package.
    told = "" not in size and len(size) == packages and max(size.values()) >= max(held.values())
    return MemoryPeak(rate.total(), max(rate.values()) if told else None)
