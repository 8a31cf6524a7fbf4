"""Define a program's request, the programs that run already, and a place for a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from chaosity.cpusets import CpuSet

Goal = Literal["bandwidth", "latency", "drives"]
# Default size of a program's data in bytes: more than the caches of every known server, and less
# than the memory of a node.
DEFAULT_MEMORY_BYTES = 4 << 30
BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"


@dataclass(frozen=True)
class Place:
    """Cores, and where the pages of their data are.

    `shares` is node -> share of the pages. `shares` is empty if each thread accesses only data on
    its own node. `drives` are the names of the drives that are read; the pages are then the buffers
    of these drives.
    """

    cpus: CpuSet
    shares: Mapping[int, float] = field(default_factory=dict)
    drives: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunningLoad:
    """A program that runs on the machine already.

    Without drives, the program accesses the memory of its place as fast as it can, or at `percent`
    of that rate. `kernel` names its accesses: read, triad, ... or read67 for 67 % reads.
    """

    place: Place
    kernel: str = "read"
    percent: float = 100.0


@dataclass(frozen=True)
class Request:
    """What a program needs.

    Attributes:
        cores: number of cores, with one thread on each.
        memory_bytes: size of the program's data, or of its buffers if the program reads drives.
        goal: the highest bandwidth of memory, the shortest latency of memory, or the highest
            bandwidth of drives.
        kernel: the program's accesses of memory, see `RunningLoad`.
        drives: for the goal `drives`, names of drives, such as nvme0n1, or the number of drives.
        partitioned: whether each thread accesses only data that it touched first.
        beside: the programs that run already.
    """

    cores: int = 1
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    goal: Goal = "bandwidth"
    kernel: str = "read"
    drives: int | tuple[str, ...] = 0
    partitioned: bool = False
    beside: tuple[RunningLoad, ...] = ()
