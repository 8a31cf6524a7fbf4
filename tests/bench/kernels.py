"""The project's best kernel against the best of likwid-bench, on the same threads and size."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

BINARY = Path(__file__).resolve().parents[2] / "build" / "kernels" / "chaosity-bandwidth"
# Bytes in all arrays together: beyond the last-level caches of the machines this was tried on
# (260 MiB), and no more, since a virtual machine may have to be lent each page anew.
TOTAL_BYTES = 1_300_000_000
SECONDS = 1
# Kernels that can be the fastest: those that do not fetch what they overwrite, and reading.
ARRAYS = {"fill_nt": 1, "copy_nt": 2, "triad_nt": 3, "read": 1}
LIKWID = ("store_mem", "copy_mem", "stream_mem", "load")
# glibc(7): makes malloc ask for transparent huge pages, as the project's kernel does by itself.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def own(kernel: str, cpus: list[int], pages: str) -> float:
    """Bytes a second of one run of the project's kernel: all bytes over all time."""
    size = TOTAL_BYTES // ARRAYS[kernel] // 2097152 * 2097152
    command = [
        BINARY,
        f"--kernel={kernel}",
        f"--cpus={','.join(map(str, cpus))}",
        f"--array-bytes={size}",
        f"--pages={pages}",
        f"--max-seconds={SECONDS}",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    samples = [json.loads(one) for one in text.splitlines() if '"sample"' in one]
    moved = sum(one["bytes"] for one in samples)
    return moved / (samples[-1]["end_ns"] - samples[0]["begin_ns"]) * 1e9


def likwid(kernel: str, cpus: list[int], pages: str) -> float:
    """Bytes a second of one run of likwid-bench; 0 where this processor lacks the kernel."""
    listed = ",".join(map(str, cpus))
    group = f"N:{TOTAL_BYTES // 1000}kB:{len(cpus)}"
    command = [
        "numactl",
        f"--physcpubind={listed}",
        "likwid-bench",
        "-t",
        kernel,
        "-s",
        str(SECONDS),
        "-W",
        group,
    ]
    environment = {**os.environ, **(HUGE if pages == "thp" else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"^MByte/s:\s+([0-9.]+)", done.stdout, re.MULTILINE)
    return float(found.group(1)) * 1e6 if found else 0.0


def suffix() -> str:
    """Widest instructions that this processor has, as likwid names them."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return "_avx512" if "avx512f" in flags else "_avx" if "avx" in flags else ""


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Ratios own : likwid with the same pages on both sides, for all threads and for one."""
    every = sorted(os.sched_getaffinity(0))
    names = [f"{name}{suffix()}" for name in LIKWID]
    for cpus, pages in ((every, "base"), (every, "thp"), (every[:1], "thp")):
        theirs = max(names, key=lambda kernel: likwid(kernel, cpus, pages))
        ours = max(ARRAYS, key=lambda kernel: own(kernel, cpus, pages))
        ratios = [own(ours, cpus, pages) / likwid(theirs, cpus, pages) for _ in range(pairs)]
        name = f"{ours} : {theirs}, {len(cpus)} threads, {pages} pages"
        yield name, ratios, ".3f", "goal: at least 0.95"
