"""Bandwidth of the project's kernels against likwid-bench, with the same threads and size.

For data in memory, the best kernels of both programs are compared, with the instruction set that
the project's trial run chooses. For data in the second-level cache, where loops differ most, each
kernel is compared with each instruction set.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

BINARY = Path(__file__).resolve().parents[1] / "build" / "kernels" / "chaosity-bandwidth"
# Bytes in all arrays together: more than the last-level caches of the tried machines (260 MiB), but
# not much more, since a hypervisor may have to give each page to a virtual machine anew.
TOTAL_BYTES = 1_300_000_000
SECONDS = 1
# Kernels that can be the fastest: `read`, and kernels that do not fetch the lines they overwrite.
BEST = ("fill_nt", "copy_nt", "triad_nt", "read")
ARRAYS = {
    name + end: n
    for name, n in (("read", 1), ("fill", 1), ("copy", 2), ("triad", 3))
    for end in ("", "_nt")
}
LIKWID = ("store_mem", "copy_mem", "stream_mem", "load")
# glibc(7): makes malloc ask for transparent huge pages, as the project's kernel does by itself.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


# Kernels in caches: the project's name -> likwid's. Instruction sets -> ending of likwid's names.
IN_CACHE = {"read": "load", "fill": "store", "copy": "copy", "triad": "stream"}
LIKWID_SETS = {"avx512": "_avx512", "avx2": "_avx", "sse2": "_sse"}
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def own(kernel: str, cpus: list[int], pages: str, total: int = TOTAL_BYTES, *more: str) -> float:
    """Return the bytes per second of one run of the project's kernel: all bytes over all time."""
    unit = 2097152 if total == TOTAL_BYTES else 4096
    size = total // ARRAYS[kernel] // unit * unit
    command = [
        BINARY,
        f"--kernel={kernel}",
        f"--cpus={','.join(map(str, cpus))}",
        f"--array-bytes={size}",
        f"--pages={pages}",
        f"--max-seconds={SECONDS}",
        *more,
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    samples = [json.loads(one) for one in text.splitlines() if '"sample"' in one]
    moved = sum(one["bytes"] for one in samples)
    return moved / (samples[-1]["end_ns"] - samples[0]["begin_ns"]) * 1e9


def likwid(kernel: str, cpus: list[int], pages: str, total: int = TOTAL_BYTES) -> float:
    """Return the bytes per second of likwid-bench; 0 if this processor lacks the kernel."""
    listed = ",".join(map(str, cpus))
    group = f"N:{total // 1000}kB:{len(cpus)}"
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


def likwid_suffix() -> str:
    """Return likwid's name of the widest instruction set that this processor has."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return "_avx512" if "avx512f" in flags else "_avx" if "avx" in flags else ""


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield ratios own : likwid with the same pages on both sides, for all threads and for one."""
    every = sorted(os.sched_getaffinity(0))
    names = [f"{name}{likwid_suffix()}" for name in LIKWID]
    for cpus, pages in ((every, "base"), (every, "thp"), (every[:1], "thp")):
        theirs = max(names, key=lambda kernel: likwid(kernel, cpus, pages))
        ours = max(BEST, key=lambda kernel: own(kernel, cpus, pages))
        ratios = [own(ours, cpus, pages) / likwid(theirs, cpus, pages) for _ in range(pairs)]
        name = f"{ours} : {theirs}, {len(cpus)} threads, {pages} pages"
        yield name, ratios, ".3f", "goal: at least 0.95"
    yield from compare_in_cache(every[:1], pairs)


def instruction_sets() -> list[str]:
    """Return the instruction sets that the project's program has on this processor."""
    refused = subprocess.run([BINARY, "--isa", "?"], capture_output=True, text=True, check=False)
    return refused.stderr.strip().split("; it has ")[1].split(", ")


def compare_in_cache(cpus: list[int], pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield ratios own : likwid of each kernel and instruction set, by one thread in the L2."""
    total = int(CACHE.read_text().strip().removesuffix("K")) * 1024 // 2
    for isa in (one for one in instruction_sets() if one in LIKWID_SETS):
        for ours, kernel in IN_CACHE.items():
            theirs = kernel + LIKWID_SETS[isa]
            ratios = [
                own(ours, cpus, "thp", total, f"--isa={isa}") / likwid(theirs, cpus, "thp", total)
                for _ in range(pairs)
            ]
            yield f"{ours} {isa} : {theirs}, 1 thread, L2", ratios, ".3f", "goal: at least 1.00"


PARTS = {"kernels": compare}
