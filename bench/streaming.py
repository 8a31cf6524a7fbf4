"""chaosity-sum against programs that only read: the kernel `read` in memory, fio on a drive."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from chaosity.runner.devices_of_point import create_random_file_as_drive
from kernels import BINARY, HUGE, TOTAL_BYTES, own

SUM = BINARY.with_name("chaosity-sum")
SECONDS = 1
DRIVE_SECONDS = 2
# A drive may cache a part of so few bytes. This is fair, since both programs read the same bytes in
# the same order.
FILE_BYTES = 1 << 30
CHUNK_BYTES, QUEUE_DEPTH = 2 << 20, 32


def sum_rate(options: list[str], cpus: list[int], seconds: float, pages: str = "thp") -> float:
    """Return the bytes per second of one run of chaosity-sum."""
    command = [
        SUM,
        f"--cpus={','.join(map(str, cpus))}",
        f"--pages={pages}",
        f"--max-seconds={seconds}",
        *options,
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    samples = [json.loads(one) for one in text.splitlines() if '"sample"' in one]
    moved = sum(one["bytes"] for one in samples)
    return moved / (samples[-1]["end_ns"] - samples[0]["begin_ns"]) * 1e9


def in_memory(cpus: list[int]) -> float:
    """Return the bytes per second of an array in memory, as large as the array of `read`."""
    return sum_rate([f"--array-bytes={TOTAL_BYTES // 2097152 * 2097152}"], cpus, SECONDS)


def from_drive(path: Path, cpus: list[int], pages: str) -> float:
    """Return the bytes per second of an array on a drive, or in a file in place of the drive."""
    options = [f"--drive={path}", f"--chunk-bytes={CHUNK_BYTES}", f"--queue-depth={QUEUE_DEPTH}"]
    return sum_rate(options, cpus, DRIVE_SECONDS, pages)


def fio_rate(path: Path, cpus: list[int], pages: str) -> float:
    """Return the bytes per second of fio, which reads the same data but sums nothing."""
    aligned = ["--iomem_align=2m"] if pages == "thp" else []  # as the sum's buffers are
    command = [
        "fio",
        "--name=bench",
        f"--filename={path}",
        "--readonly",
        "--rw=read",
        "--ioengine=io_uring",
        "--direct=1",
        f"--bs={CHUNK_BYTES}",
        "--thread=1",
        f"--iodepth={QUEUE_DEPTH}",
        "--time_based=1",
        f"--runtime={DRIVE_SECONDS}",
        f"--cpus_allowed={','.join(map(str, cpus))}",
        "--ramp_time=0.1",
        "--output-format=json",
        *aligned,
    ]
    environment = {**os.environ, **(HUGE if pages == "thp" else {})}
    text = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout
    return json.loads(text)["jobs"][0]["read"]["bw_bytes"]


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield ratios in memory, for all threads and for one, and from a file on the disk."""
    every = sorted(os.sched_getaffinity(0))
    for cpus in (every, every[:1]):
        ratios = in_turn(pairs, partial(in_memory, cpus), partial(own, "read", cpus, "thp"))
        name = f"sum in memory : read of chaosity-bandwidth, {len(cpus)} threads"
        yield name, ratios, ".3f", "goal: at least 0.95"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # /tmp may be in memory
        path = Path(folder) / "drive"
        create_random_file_as_drive(path, FILE_BYTES)
        # A chunk in a huge page is a single piece for the drive. A chunk in base pages has 1 to 512
        # pieces, depending on how many of its pages are side by side in memory. The rate of a
        # virtual drive depends more on this number than on the programs, so there is no goal.
        for cpus, pages, goal in (
            (every, "thp", "goal: at least 0.95"),
            (every[:1], "thp", "goal: at least 0.95"),
            (every, "base", "no goal: hangs on how pages lie"),
        ):
            ours, theirs = (partial(way, path, cpus, pages) for way in (from_drive, fio_rate))
            name = f"sum from a file : fio, 2 MiB x {QUEUE_DEPTH}, {len(cpus)} threads, {pages}"
            yield name, in_turn(pairs, ours, theirs), ".3f", goal


def in_turn(pairs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> list[float]:
    """Return the ratios of pairs; the program that runs first changes from pair to pair."""
    ratios = []
    for turn in range(pairs):
        early = theirs() if turn % 2 else None
        above = ours()
        ratios.append(above / (early or theirs()))
    return ratios


PARTS = {"streaming": compare}
