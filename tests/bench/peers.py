"""The project's kernels against programs that others wrote: stream.c and multichase.

Build them first, since the project does not ship them, and name the programs in the environment:

    CHAOSITY_STREAM       stream.c (J. McCalpin), e.g. gcc -O3 -march=native -fopenmp
                          -mcmodel=medium -DSTREAM_ARRAY_SIZE=54000000
    CHAOSITY_MULTICHASE   multichase (Google)

stream.c has ordinary stores and reports the mean time of a kernel. Its threads take all processing
units, as those of the project. multichase reports the best of its samples of half a second, so the
best of such samples of the project is compared. It finishes blocks of 64 pages, as the project does
with `--block-bytes`; with one block of all memory it has TLB misses, too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import kernels

LATENCY = kernels.BINARY.with_name("chaosity-latency")
# As stream.c above: three arrays of 432 MB, beyond the last-level cache.
STREAM_BYTES = 3 * 54_000_000 * 8
CHASE_BYTES = 512 * 2**20
BLOCK_BYTES = 64 * 4096
STREAM_KERNELS = {"copy": 2, "triad": 3}


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield ratios own : other; nothing for a program that the environment does not name."""
    if program := os.environ.get("CHAOSITY_STREAM"):
        cpus = sorted(os.sched_getaffinity(0))
        ratios: dict[str, list[float]] = {kernel: [] for kernel in STREAM_KERNELS}
        for _ in range(pairs):
            theirs = stream_rates(program)
            for kernel, arrays in STREAM_KERNELS.items():
                own = kernels.own(kernel, cpus, "base", STREAM_BYTES * arrays // 3)
                ratios[kernel].append(own / theirs[kernel.capitalize()])
        for kernel, found in ratios.items():
            yield (
                f"{kernel} : stream.c, {len(cpus)} threads, base pages",
                found,
                ".3f",
                "goal: 1.00",
            )
    if program := os.environ.get("CHAOSITY_MULTICHASE"):
        for pages in ("base", "thp"):
            for block in (BLOCK_BYTES, CHASE_BYTES):
                found = [
                    own_latency(pages, block) / their_latency(program, pages, block)
                    for _ in range(pairs)
                ]
                where = "blocks of 64 pages" if block == BLOCK_BYTES else "no blocks"
                name = f"chase : multichase, {pages} pages, {where}"
                yield name, found, ".3f", "goal: 0.98 to 1.02"


def stream_rates(program: str) -> dict[str, float]:
    """Return the mean bytes per second of each kernel of one run of stream.c."""
    text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    arrays = int(re.search(r"Array size = (\d+)", text)[1]) * 8  # type: ignore[index]
    rows = re.findall(r"^(\w+):\s+\S+\s+(\S+)", text, re.MULTILINE)
    sizes = {"Copy": 2, "Scale": 2, "Add": 3, "Triad": 3}
    return {name: sizes[name] * arrays / float(mean) for name, mean in rows if name in sizes}


def own_latency(pages: str, block: int) -> float:
    """Return the mean latency in nanoseconds of the best of four samples of half a second."""
    command = [LATENCY, "--cpu=0", f"--bytes={CHASE_BYTES}", f"--pages={pages}"]
    command += ["--max-seconds=2.1", "--sample-seconds=0.5", f"--block-bytes={block}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    samples = [json.loads(line) for line in text.splitlines() if '"sample"' in line]
    return min((one["end_ns"] - one["begin_ns"]) / one["accesses"] for one in samples)


def their_latency(program: str, pages: str, block: int) -> float:
    """Return the best latency in nanoseconds of four samples of half a second of multichase."""
    command = [program, "-s", "64", "-m", str(CHASE_BYTES), "-T", str(block), "-n", "4"]
    command += ["-H"] if pages == "thp" else []
    pinned = ["taskset", "--cpu-list", "0", *command]
    text = subprocess.run(pinned, check=True, capture_output=True, text=True).stdout
    return float(text.split()[-1])
