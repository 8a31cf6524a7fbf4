"""Describe a load for the simulation: its units, its reads and writes, and its program.

The key `simulation` of a benchmark's file describes how its programs use a simulated machine.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, cast

from chaosity.cpusets import parse_cpu_list
from chaosity.documents.benchmarks import BenchmarkDocument, SimulatedProgram, SimulatedPrograms
from chaosity.documents.shipped_documents import load_benchmark
from chaosity.place.page_placement import FIRST_TOUCH, shift_shares_to_workers
from chaosity.records.record_format import Load
from chaosity.runner.point_measurement import memory_shares_by_node

# Bytes that kernels like STREAM read and write for each element, as STREAM counts bytes. An
# ordinary store also fetches the line first; a non-temporal store (_nt) fetches no line.
_READS_AND_WRITES_OF_KERNEL = {
    "copy": (1, 1),
    "scale": (1, 1),
    "add": (2, 1),
    "triad": (2, 1),
    "read": (1, 0),
    "fill": (0, 1),
}
# Kernels of traffic; their names contain the share of reads among the accesses, in per cent.
_KERNEL_WITH_SHARE_OF_READS = re.compile(r"read([0-9]+)")
# Reads and writes of all programs that are not named here: three reads for each write.
_READS_AND_WRITES_OF_OTHER_PROGRAMS = (3, 1)
# Block size of random reads if the experiment does not name a block size.
_RANDOM_READ_BYTES = 4096
# Description of a program whose benchmark file has none: the program waits for memory all the time,
# and a run moves its data once.
_UNKNOWN_PROGRAM = SimulatedProgram(moves=1.0, time_in_memory=1.0)


@cache
def _read_benchmark(name: str) -> BenchmarkDocument:
    """Return the document of a benchmark; empty for "", which names programs without benchmark.

    A process reads each file only once, since reading a file takes longer than making a record.
    """
    return load_benchmark(name) if name else cast(BenchmarkDocument, {})


def _simulation_of_benchmark(load: Load) -> SimulatedPrograms:
    """Return what the benchmark's file says about its programs for simulated machines."""
    return _read_benchmark(load["benchmark"]).get("simulation", {})


def simulated_program(load: Load) -> SimulatedProgram:
    """Return what the benchmark's file says about the program that a load runs."""
    programs = _simulation_of_benchmark(load).get("programs", {})
    return programs.get(load["kernel"] or "", _UNKNOWN_PROGRAM)


def accesses_own_node_only(load: Load) -> bool:
    """Return whether each core of a load accesses only the memory of its own node.

    If the request has shares of pages for each node, all cores access all nodes.
    """
    return "shares" not in load["placement"] and _has_all_levels(load, "own_node_if")


def _has_all_levels(load: Load, key: Literal["own_node_if", "one_thread_touches_if"]) -> bool:
    """Return whether a load has all levels that its benchmark's file lists below a key."""
    parameters = _read_benchmark(load["benchmark"]).get("parameters", {})
    values = {**parameters, **load.get("levels", {})}
    wanted = _simulation_of_benchmark(load).get(key)
    return wanted is not None and all(values.get(name) == wanted[name] for name in wanted)


def page_shares_by_node(load: Load) -> dict[int, float]:
    """Return node -> share of a load's pages, as the kernel of a simulated machine places them.

    If one thread touches all pages first, all pages are on the node of this thread, the first
    worker. AutoNUMA has moved the pages to the nodes of all workers before the measurement begins.
    """
    policy, workers = load["target"].get("name"), load["initiator"]["nodes"]
    if policy == FIRST_TOUCH and workers and _has_all_levels(load, "one_thread_touches_if"):
        return {workers[0]: 1.0}
    return memory_shares_by_node(load["placement"])


def shared_access_share(load: Load) -> float:
    """Return the share of a load's accesses that go to data which all its cores use."""
    if not accesses_own_node_only(load):
        return 1.0
    return _simulation_of_benchmark(load).get("own_node_but", 0.0)


def shares_work(load: Load) -> bool:
    """Return whether the threads of a load do equal work and so wait for the slowest thread."""
    return _simulation_of_benchmark(load).get("shares_work", False)


def processing_units_of_load(load: Load) -> frozenset[int]:
    """Return the processing units of a load's initiator."""
    return processing_units(load["initiator"]["cpus"])


@cache
def processing_units(cpus: str) -> frozenset[int]:
    """Return the units in a Linux list; cached, since a fit needs the same lists often."""
    return frozenset(parse_cpu_list(cpus))


def block_bytes(load: Load) -> int:
    """Return the size of a random read in bytes."""
    return int(load.get("levels", {}).get("block_bytes", _RANDOM_READ_BYTES))


def share_of_peak_rate(load: Load) -> float:
    """Return the share of its peak rate to which a load is limited; 1 without a limit."""
    return float(load.get("levels", {}).get("share", 100)) / 100


def _kernel_of_load(load: Load) -> str:
    """Return a load's kernel, or a kernel with the same accesses as its program; else ""."""
    return load["kernel"] or _simulation_of_benchmark(load).get("accesses_as", "")


def read_written_and_counted_shares(load: Load) -> tuple[float, float, float]:
    """Return the bytes that a load reads, writes and counts, as shares of all bytes moved.

    The kernel of a load is a name such as ``triad_nt``, or a share of reads such as ``read67``.
    """
    name = _kernel_of_load(load)
    plain = name.removesuffix("_nt")
    if share := _KERNEL_WITH_SHARE_OF_READS.fullmatch(plain):
        reads = int(share[1]) / 100
        return reads, 1 - reads, 1.0
    reads, writes = _READS_AND_WRITES_OF_KERNEL.get(plain, _READS_AND_WRITES_OF_OTHER_PROGRAMS)
    fetched = 0 if name.endswith("_nt") or plain not in _READS_AND_WRITES_OF_KERNEL else writes
    moved = reads + writes + fetched
    return (reads + fetched) / moved, writes / moved, (reads + writes) / moved


def passes_over_arrays(load: Load) -> bool:
    """Return whether a load passes over its arrays from begin to end, as STREAM does."""
    plain = _kernel_of_load(load).removesuffix("_nt")
    return (
        plain in _READS_AND_WRITES_OF_KERNEL
        or _KERNEL_WITH_SHARE_OF_READS.fullmatch(plain) is not None
    )


def begins_with_placement_search(load: Load) -> bool:
    """Return whether a load begins with a search for a placement of its pages.

    A load with the policy AutoNUMA begins without a search, because AutoNUMA has no shares from
    which a search could begin.
    """
    return bool(load["placement"].get("settles") and load["placement"].get("shares"))


def with_data_to_worker_proximity(load: Load, dwp: float) -> Load:
    """Return the load with its pages moved towards its workers by a data-to-worker proximity."""
    shares = page_shares_by_node(load)
    moved = shift_shares_to_workers(shares, load["initiator"]["nodes"], dwp)
    by_node = {str(node): share for node, share in moved.items()}
    return {**load, "placement": {**load["placement"], "shares": by_node}}
