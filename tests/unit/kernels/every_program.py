"""What a test must know of each program to run it like all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MIB = 1 << 20
Count = Callable[[dict, dict], int]


def elements_of(ready: dict) -> int:
    """What a pass of chaosity-workload counts, by the shape that its ready line tells."""
    return {
        "triad": lambda: ready["array_bytes"] // 8,
        "gather": lambda: ready["table_elements"] // 8,
        "stencil": lambda: ready["rows"] * ready["columns"],
        "spmv": lambda: ready["nonzeros"],
    }[ready["kernel"]]()


@dataclass(frozen=True)
class Program:
    """One of the programs, with options for a run that ends only when it is reported to."""

    name: str
    options: str  # {0} and {1} stand for two CPUs, {node} for a node with memory
    counted: str = ""  # what a sample counts, if the whole run is the sum of its samples
    count: Count | None = None  # the same number by the ready and the last line
    gapless: bool = False  # a sample begins where the one before ended
    size: str = "--array-bytes"  # the option that makes it need more memory
    mapped_bytes: int = 0  # of the memory that it measures, if this is one mapping


BANDWIDTH = Program(
    "chaosity-bandwidth",
    f"--kernel triad --cpus {{0}},{{1}} --array-bytes {4 * MIB}",
    *("bytes", lambda ready, done: done["passes"] * ready["bytes_per_pass"]),
    mapped_bytes=12 * MIB,
)
LATENCY = Program(
    "chaosity-latency",
    f"--cpu {{0}} --bytes {4 * MIB}",
    *("accesses", lambda _, done: done["accesses"]),
    size="--bytes",
    mapped_bytes=4 * MIB,
)
CORE_TO_CORE = Program(
    "chaosity-core-to-core",
    "--cpu {0} --responder {1}",
    *("accesses", lambda _, done: done["accesses"]),
    size="",
    mapped_bytes=4096,
)
TRAFFIC = Program(
    "chaosity-traffic",
    f"--kernel copy --cpus {{0}},{{1}} --array-bytes {4 * MIB} --peak-seconds 0.05",
    *("bytes", lambda _, done: done["bytes"]),
    gapless=True,
    mapped_bytes=8 * MIB,
)
WORKLOAD = Program(
    "chaosity-workload",
    f"--kernel stencil --cpus {{0}},{{1}} --bytes {MIB}",
    *("elements", lambda ready, done: done["passes"] * elements_of(ready)),
    size="--bytes",
)
PATHS = Program(
    "chaosity-paths",
    f"--memory-nodes {{node}} --cpus {{0}},{{1}} --bytes {2 * MIB} --turn-seconds 0.0005",
    gapless=True,
    size="--bytes",
)
SUM = Program(
    "chaosity-sum",
    f"--cpus {{0}},{{1}} --array-bytes {4 * MIB} --warmup-seconds 0.01",
    gapless=True,
    mapped_bytes=4 * MIB,
)
TASKS = Program(
    "chaosity-tasks",
    f"--program matmul --runtime locality --cpus {{0}},{{1}} --bytes {4 * MIB}",
    *("runs", lambda _, done: done["runs"]),
    gapless=True,
    size="--bytes",
)
OPENCL = Program("chaosity-opencl", f"--elements {MIB}", gapless=True, size="--elements")
COPIES = Program(
    "chaosity-copies",
    f"--direction both_ways --bytes {3 * 64 * 4096} --copy-bytes {64 * 4096}",
    gapless=True,
    size="",
)
ON_CPUS = [BANDWIDTH, LATENCY, CORE_TO_CORE, TRAFFIC, WORKLOAD, PATHS, SUM, TASKS]
ALL = [*ON_CPUS, OPENCL, COPIES]
