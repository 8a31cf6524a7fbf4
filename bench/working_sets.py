"""How large data must be so that the last-level cache has no effect: chase and read by size.

Sizes are multiples of the last-level cache, in a new random order each round. Each value has its
ratio to the value at the largest size in the same round. At a ratio of 1, larger data changes
nothing. The ratio of the largest size is 1 by definition. If the values of the largest sizes still
differ, none of the sizes is large enough.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kernels import BINARY
from latency import HUGE_PAGE, block_latencies, cache_bytes

FACTORS = (1, 2, 4, 8, 16, 32)
SECONDS = 1


def kernel_samples(program: str, *options: str) -> list[dict]:
    """Return the samples of one run of a kernel of this project, on huge pages."""
    command = [
        BINARY.with_name(program),
        *options,
        "--pages=thp",
        f"--max-seconds={SECONDS}",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines() if '"sample"' in line]


def chase_latency(size: int, cpus: list[int]) -> float:
    """Return the median nanoseconds of a dependent load by one core."""
    found = kernel_samples("chaosity-latency", f"--cpu={cpus[0]}", f"--bytes={size}")
    return statistics.median(value for sample in found for value in block_latencies(sample))


def read_rate(size: int, cpus: list[int]) -> float:
    """Return the GB/s of the kernel `read` by all cores."""
    listed = ",".join(map(str, cpus))
    found = kernel_samples(
        "chaosity-bandwidth", "--kernel=read", f"--cpus={listed}", f"--array-bytes={size}"
    )
    return sum(one["bytes"] for one in found) / (found[-1]["end_ns"] - found[0]["begin_ns"])


def available_bytes() -> int:
    """Return the bytes of memory that programs can still get."""
    words = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(words["MemAvailable"].split()[0]) * 1024


def compare(rounds: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield the values of each working set, and their ratios to the values of the largest."""
    cpus = sorted(os.sched_getaffinity(0))
    last = max(cache_bytes(cpus[0]).values()) // HUGE_PAGE * HUGE_PAGE
    sizes = {factor: factor * last for factor in FACTORS if factor * last < available_bytes() / 2}
    kinds = {"chase, ns": chase_latency, "read, GB/s": read_rate}
    found = {(kind, factor): [] for kind in kinds for factor in sizes}
    for number in range(rounds):
        turns = list(found)
        random.Random(number).shuffle(turns)
        for kind, factor in turns:
            found[kind, factor].append(kinds[kind](sizes[factor], cpus))
    largest = max(sizes)
    for (kind, factor), values in found.items():
        name = f"{kind}, {factor} x LLC, {sizes[factor] / 2**20:g} MiB"
        yield name, values, ".2f", "no goal"
        pairs = zip(values, found[kind, largest], strict=True)
        ratios = [value / there for value, there in pairs]
        yield f"{name} : {largest} x", ratios, ".3f", "1: the cache is left behind"


PARTS = {"working_sets": compare}
