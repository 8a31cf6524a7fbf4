"""The project's best kernel against the best of likwid-bench, on the same threads and size."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

BINARY = Path(__file__).resolve().parents[2] / "build" / "kernels" / "chaosity-bandwidth"
# Bytes in all arrays together: well beyond any last-level cache that this runs on.
TOTAL_BYTES = 3 * 2**30
SECONDS = 1.0
# Kernels of likwid-bench that a first look picks the best from; one without AVX-512 lacks some.
LIKWID = [f"{kernel}{suffix}" for kernel in ("load", "copy_mem", "stream_mem", "triad_mem")
          for suffix in ("_avx512", "_avx", "")]  # fmt: skip
ARRAYS = {"read": 1, "copy_nt": 2, "scale_nt": 2, "add_nt": 3, "triad_nt": 3,
          "copy": 2, "triad": 3}  # fmt: skip


def own(kernel: str, cpus: list[int], pages: str) -> float:
    """Bytes a second of one run of the project's kernel: all bytes over all time."""
    size = TOTAL_BYTES // ARRAYS[kernel] // 2097152 * 2097152
    command = [BINARY, f"--kernel={kernel}", f"--cpus={','.join(map(str, cpus))}",
               f"--array-bytes={size}", f"--pages={pages}", f"--max-seconds={SECONDS}"]  # fmt: skip
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    samples = [json.loads(one) for one in text.splitlines() if '"sample"' in one]
    moved = sum(one["bytes"] for one in samples)
    return moved / (samples[-1]["end_ns"] - samples[0]["begin_ns"]) * 1e9


def likwid(kernel: str, cpus: list[int]) -> float:
    """Bytes a second of one run of likwid-bench; 0 where this processor lacks the kernel."""
    group = f"N:{TOTAL_BYTES // 1000}kB:{len(cpus)}"
    command = ["likwid-bench", "-t", kernel, "-s", str(int(SECONDS)), "-w", group]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^MByte/s:\s+([0-9.]+)", done.stdout, re.MULTILINE)
    return float(found.group(1)) * 1e6 if found else 0.0


def compare(pairs: int) -> list[tuple[str, list[float], str, str]]:
    """Ratios own : likwid for one thread and for all, with base pages on both sides and with ours
    transparently huge."""
    figures = []
    every = sorted(os.sched_getaffinity(0))
    for cpus in ([every[0]], every):
        theirs = max(LIKWID, key=lambda kernel: likwid(kernel, cpus))
        ours = max(ARRAYS, key=lambda kernel: own(kernel, cpus, "thp"))
        for pages in ("base", "thp"):
            ratios = [own(ours, cpus, pages) / likwid(theirs, cpus) for _ in range(pairs)]
            name = f"{ours} ({pages}) : likwid {theirs}, {len(cpus)} thread(s)"
            figures.append((name, ratios, ".3f", "goal: at least 0.95"))
    return figures
