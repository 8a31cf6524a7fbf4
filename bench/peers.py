"""The project's kernels against two programs of other authors: stream.c and multichase.

The project does not ship these programs. Name them in the environment, and run `make bench
BENCH_ARGUMENTS=peers`:

    CHAOSITY_STREAM       stream.c (J. McCalpin), or a program made of it
    CHAOSITY_MULTICHASE   multichase (Google)

The best pass of stream.c is compared with the project's best pass, and the mean with the mean of
equally many passes. Both programs have the same threads, each pinned to a unit, and the same kind
of pages. The arrays of a program have huge pages only if
/sys/kernel/mm/transparent_hugepage/enabled is `always`. gcc turns the loop of Copy into memcpy,
which has non-temporal stores. So this Copy is compared with copy_nt. The kernel copy is compared
with a stream.c that was compiled with ordinary stores.

multichase reports the best of its samples of half a second, so the project's best sample of half a
second is compared. multichase visits all lines of 64 pages before the next 64 pages, like the
project with `--block-bytes`. A chase over one block of all memory also has TLB misses.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import kernels

LATENCY = kernels.BINARY.with_name("chaosity-latency")
# Three arrays of 432 MB, beyond the last-level caches.
ELEMENTS = 54_000_000
CHASE_BYTES = 512 * 2**20
BLOCK_BYTES = 64 * 4096
# stream.c's default is ten passes, of which it does not count the first.
PASSES = 9
LONGEST_SECONDS = 3.0
COMPILER = ("gcc", "-O3", "-march=native", "-fopenmp", f"-DSTREAM_ARRAY_SIZE={ELEMENTS}")
ORDINARY_STORES = "-fno-tree-loop-distribute-patterns"
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PR_SET_THP_DISABLE = 41
# Own kernel, stream.c's kernel, and whether stream.c is compiled with ordinary stores.
STREAM_PAIRS = (("triad", "Triad", True), ("copy", "Copy", True), ("copy_nt", "Copy", False))


class Rates(NamedTuple):
    """Bytes per second of the best pass, and of all passes."""

    best: float
    mean: float


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield ratios own : other for each program that the environment names."""
    if named := os.environ.get("CHAOSITY_STREAM"):
        always = "[always]" in THP.read_text() if THP.exists() else False
        for pages in ("base", "thp") if always else ("base",):
            yield from compare_stream(named, pages, pairs)
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


def compare_stream(
    named: str, pages: str, pairs: int
) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield the ratios to stream.c with pages of one kind, and what huge pages add to our triad."""
    cpus = sorted(os.sched_getaffinity(0))
    programs = {ordinary: stream_program(named, ordinary) for ordinary in (True, False)}
    ratios: dict[str, list[float]] = {}
    for pair in range(pairs):
        theirs: dict[bool, dict[str, Rates]] = {}
        own: dict[str, Rates] = {}
        # The program that runs first changes from pair to pair, since a shared machine drifts.
        for side in ("theirs", "own") if pair % 2 else ("own", "theirs"):
            if side == "own":
                own = {kernel: own_rates(kernel, cpus, pages) for kernel, *_ in STREAM_PAIRS}
            else:
                theirs = {key: stream_rates(each, cpus, pages) for key, each in programs.items()}
        for kernel, their_kernel, ordinary in STREAM_PAIRS:
            kind = "ordinary stores" if ordinary else "memcpy"
            for name in Rates._fields:
                row = f"{kernel} : stream.c's {their_kernel}, {kind}, {name}"
                ratio = getattr(own[kernel], name) / getattr(theirs[ordinary][their_kernel], name)
                ratios.setdefault(row, []).append(ratio)
        if pages == "base":
            huge = own_rates("triad", cpus, "thp").mean / own["triad"].mean
            ratios.setdefault("triad with huge pages : triad with base pages", []).append(huge)
    for row, found in ratios.items():
        goal = "for information" if "huge" in row else "goal: 1.00"
        yield f"{row}; {len(cpus)} threads, {pages} pages", found, ".3f", goal


def stream_program(named: str, ordinary: bool) -> str:
    """Return the program that was named, or compile it if a source file was named."""
    if not named.endswith(".c"):
        return named
    program = kernels.BINARY.parents[1] / ("stream-ordinary" if ordinary else "stream-memcpy")
    flags = (ORDINARY_STORES,) if ordinary else ()
    subprocess.run([*COMPILER, *flags, named, "-o", program], check=True)
    return str(program)


def own_rates(kernel: str, cpus: list[int], pages: str) -> Rates:
    """Return the rates of one run of the project's kernel, whose samples are single passes."""
    array = ELEMENTS * 8
    command = [kernels.BINARY, f"--kernel={kernel}", f"--cpus={','.join(map(str, cpus))}"]
    command += [f"--array-bytes={array}", f"--pages={pages}"]
    command += ["--sample-seconds=1e-9", f"--max-seconds={LONGEST_SECONDS}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    samples = [json.loads(line) for line in text.splitlines() if '"sample"' in line][:PASSES]
    assert all(one["bytes"] == kernels.ARRAYS[kernel] * array for one in samples)
    seconds = [(one["end_ns"] - one["begin_ns"]) * 1e-9 for one in samples]
    return Rates(
        samples[0]["bytes"] / min(seconds), samples[0]["bytes"] * len(seconds) / sum(seconds)
    )


def stream_rates(program: str, cpus: list[int], pages: str) -> dict[str, Rates]:
    """Return the rates of each kernel of one run of stream.c."""
    pinned = {
        "OMP_NUM_THREADS": str(len(cpus)),
        "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in cpus),
        "OMP_PROC_BIND": "true",
    }
    done = subprocess.run(
        [program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **pinned},
        preexec_fn=without_huge_pages if pages == "base" else None,
    )
    arrays = int(re.search(r"Array size = (\d+)", done.stdout)[1]) * 8  # type: ignore[index]
    rows = re.findall(r"^(\w+):\s+\S+\s+(\S+)\s+(\S+)", done.stdout, re.MULTILINE)
    sizes = {"Copy": 2, "Scale": 2, "Add": 3, "Triad": 3}
    return {
        name: Rates(sizes[name] * arrays / float(least), sizes[name] * arrays / float(mean))
        for name, mean, least in rows
        if name in sizes
    }


def without_huge_pages() -> None:
    """Forbid huge pages to this process and the program that it becomes, see prctl(2)."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


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


PARTS = {"peers": compare}
