"""The project's pointer chase against a naive loop over the same chain, and its timer's share.

Both loops run in one process, on the same pages, in short turns of alternating order
(chase_reference.c). On a shared machine, the pages of two processes are not equally fast, and their
speed drifts.

Medians are compared. On a shared machine, other programs sometimes take the CPU or its caches for
some milliseconds, and disturb one of the loops by chance. A median over short pieces leaves out the
disturbed pieces. The means over the whole turns, which count these pieces, are printed, too.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "roles" / "kernels" / "files"
BUILD = ROOT / "build" / "bench"
REFERENCE = BUILD / "chase_reference"
TURNS, SECONDS = 10, 0.05  # of a process: each side for half a second
HUGE_PAGE = 2**21


def compile_reference() -> None:
    """Compile the reference, as anybody would (``-O2``), with the objects of chaosity-latency."""
    subprocess.run(["make", "-s", "-C", SOURCES, f"BUILD={BUILD}"], check=True)
    latency = [f"latency/{name}.o" for name in ("cache_sizes", "pointer_chase", "timed_blocks")]
    names = (
        "cpu_lists_and_pinning",
        "errors",
        "parse_numbers",
        "placed_memory",
        "start_line_and_signals",
    )
    objects = [BUILD / name for name in (*latency, *(f"common/{name}.o" for name in names))]
    source = Path(__file__).with_name("chase_reference.c")
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{SOURCES}", "-pthread", "-o"]
    subprocess.run([*command, REFERENCE, source, *objects, "-lm"], check=True)


def cache_bytes(cpu: int) -> dict[int, int]:
    """Return level -> bytes of the CPU's data cache."""
    folders = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")
    found = {}
    for folder in folders:
        if (folder / "type").read_text().strip() != "Instruction":
            size = (folder / "size").read_text().strip()
            found[int((folder / "level").read_text())] = int(size.removesuffix("K")) * 1024
    return found


def data_sizes(cpu: int) -> dict[str, int]:
    """Return sizes in bytes of data that surely lie in the L2, in the L3 and in memory.

    The sizes are half of the L2, the geometric mean of L2 and L3, and four times the last level.
    """
    by_level = cache_bytes(cpu)
    last = max(by_level.values())
    found = {"L2": by_level[2] // 2}
    if 3 in by_level:
        found["L3"] = int(math.sqrt(by_level[2] * by_level[3])) // HUGE_PAGE * HUGE_PAGE
    found["DRAM"] = 4 * last // HUGE_PAGE * HUGE_PAGE
    return found


def run_reference(cpu: int, size: int) -> list[dict]:
    """Return the output lines of one process of the reference."""
    warmup = min(size, max(cache_bytes(cpu).values()))
    given = [cpu, size, 64, 1, "thp", warmup, TURNS, SECONDS]
    text = subprocess.run(
        [REFERENCE, *map(str, given)], check=True, capture_output=True, text=True
    ).stdout
    return [json.loads(line) for line in text.splitlines()]


def block_latencies(sample: dict) -> list[float]:
    """Return the nanoseconds per access of each block of a sample, ascending."""
    pairs = sorted((float(key), count) for key, count in sample["blocks"].items())
    return [value for value, count in pairs for _ in range(count)]


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield the ratios chase : naive loop, and the timer's share of a block, for each size."""
    compile_reference()
    cpu = min(os.sched_getaffinity(0))
    for name, size in data_sizes(cpu).items():
        medians, means, shares = [], [], []
        for _ in range(pairs):
            lines = run_reference(cpu, size)
            own = [block_latencies(line) for line in lines if line["event"] == "sample"]
            naive = [line for line in lines if line["event"] == "naive"]
            turns = list(zip(own, naive, strict=True))
            medians.append(
                statistics.median(statistics.median_low(a) / b["median_ns"] for a, b in turns)
            )
            means.append(statistics.median(statistics.fmean(a) / b["mean_ns"] for a, b in turns))
            shares.append(100 * lines[-1]["timer_share"])
        where = f"{name}, {size / 2**20:g} MiB"
        yield f"chase : naive loop, medians, {where}", medians, ".4f", "goal: within 2 %"
        yield f"chase : naive loop, means, {where}", means, ".4f", "no goal: interruptions count"
        yield f"timer's share of a block, %, {where}", shares, ".3f", "goal: below 1"


PARTS = {"latency": compare}
