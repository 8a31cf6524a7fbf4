"""Sums beside their bare counterparts: in memory the kernel `read`, from a drive fio."""

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
# A drive may have cached part of so little, but both sides read the same bytes in the same order.
FILE_BYTES = 1 << 30
CHUNK_BYTES, QUEUE_DEPTH = 2 << 20, 32


def summed(options: list[str], cpus: list[int], seconds: float, pages: str = "thp") -> float:
    """Bytes a second of one run of the sum."""
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
    """The same of an array as large as that of the kernel `read`."""
    return summed([f"--array-bytes={TOTAL_BYTES // 2097152 * 2097152}"], cpus, SECONDS)


def from_drive(path: Path, cpus: list[int], pages: str) -> float:
    """The same of an array on a drive, or a file in its place."""
    options = [f"--drive={path}", f"--chunk-bytes={CHUNK_BYTES}", f"--queue-depth={QUEUE_DEPTH}"]
    return summed(options, cpus, DRIVE_SECONDS, pages)


def fio(path: Path, cpus: list[int], pages: str) -> float:
    """Bytes a second of fio, which reads the same in the same way and looks at none of it."""
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
    """Ratios in memory for all threads and for one, and from a file on this machine's disk."""
    every = sorted(os.sched_getaffinity(0))
    for cpus in (every, every[:1]):
        ratios = in_turn(pairs, partial(in_memory, cpus), partial(own, "read", cpus, "thp"))
        name = f"sum in memory : read of chaosity-bandwidth, {len(cpus)} threads"
        yield name, ratios, ".3f", "goal: at least 0.95"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # /tmp may be in memory
        path = Path(folder) / "drive"
        create_random_file_as_drive(path, FILE_BYTES)
        # A chunk in a huge page is one piece for the drive. One in base pages is as many as the
        # kernel happens not to give side by side, 1 to 512, on which the rate of a virtual drive
        # hangs more than on anything that either side does: no goal is set for it.
        for cpus, pages, goal in (
            (every, "thp", "goal: at least 0.95"),
            (every[:1], "thp", "goal: at least 0.95"),
            (every, "base", "no goal: hangs on how pages lie"),
        ):
            ours, theirs = (partial(way, path, cpus, pages) for way in (from_drive, fio))
            name = f"sum from a file : fio, 2 MiB x {QUEUE_DEPTH}, {len(cpus)} threads, {pages}"
            yield name, in_turn(pairs, ours, theirs), ".3f", goal


def in_turn(pairs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> list[float]:
    """Ratios of pairs; in every other pair the other side is first."""
    ratios = []
    for turn in range(pairs):
        early = theirs() if turn % 2 else None
        above = ours()
        ratios.append(above / (early or theirs()))
    return ratios


PARTS = {"streaming": compare}
