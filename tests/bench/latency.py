"""The project's pointer chase against a naive loop over the same chain, and its timer's share.

Both sides are processes of their own that make the same chain (chase.c, same seed) in transparent
huge pages, so that neither has the luck of better placed small pages, and walk as many lines before
they measure. Both are set up before either starts, so that they run one right after the other, and
they take turns in going first: a drift of the machine favours neither.

Medians are compared: a shared machine now and then takes the CPU away or lets others use its caches
for some milliseconds, which hits either side by chance. A median over short pieces leaves out the
pieces that were hit, a mean over the whole run counts them; the means are printed beside it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "build" / "kernels" / "chaosity-latency"
SOURCES = ROOT / "roles" / "kernels" / "files"
REFERENCE = ROOT / "build" / "bench" / "chase_reference"
SECONDS = 0.5  # of measurement a process; some ten thousand blocks
HUGE_PAGE = 2**21


def build() -> None:
    """Compile the reference with the project's chain and memory, as anybody would: ``-O2``."""
    REFERENCE.parent.mkdir(parents=True, exist_ok=True)
    shared = [SOURCES / f"{name}.c" for name in ("chase", "common", "cpus", "memory")]
    source = Path(__file__).with_name("chase_reference.c")
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{SOURCES}", "-pthread", "-o"]
    subprocess.run([*command, REFERENCE, source, *shared], check=True)


def caches(cpu: int) -> dict[int, int]:
    """Bytes of the CPU's data caches by level."""
    folders = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")
    found = {}
    for folder in folders:
        if (folder / "type").read_text().strip() != "Instruction":
            size = (folder / "size").read_text().strip()
            found[int((folder / "level").read_text())] = int(size.removesuffix("K")) * 1024
    return found


def sizes(cpu: int) -> dict[str, int]:
    """Bytes that surely lie in the L2, in the L3 and in memory.

    Half an L2; halfway between L2 and L3, in powers; four times the last level.
    """
    by_level = caches(cpu)
    last = max(by_level.values())
    found = {"L2": by_level[2] // 2}
    if 3 in by_level:
        found["L3"] = int(math.sqrt(by_level[2] * by_level[3])) // HUGE_PAGE * HUGE_PAGE
    found["DRAM"] = 4 * last // HUGE_PAGE * HUGE_PAGE
    return found


class Side:
    """A process that is set up and waits for a line on its input."""

    def __init__(self, *command: object) -> None:
        pipe = subprocess.PIPE
        words = list(map(str, command))
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.ready = json.loads(self.process.stdout.readline())

    def measure(self) -> list[dict]:
        """What it prints after its start; the last line is its result."""
        text, _ = self.process.communicate("go\n")
        if self.process.returncode != 0:
            raise subprocess.CalledProcessError(self.process.returncode, self.process.args)
        return [json.loads(line) for line in text.splitlines()]


def own(cpu: int, size: int) -> Side:
    """The project's chase."""
    return Side(BINARY, f"--cpu={cpu}", f"--bytes={size}", "--pages=thp",
                f"--max-seconds={SECONDS}", "--barrier")  # fmt: skip


def naive(cpu: int, ready: dict) -> Side:
    """The reference, set up like the chase with this ready line."""
    return Side(REFERENCE, cpu, ready["bytes"], ready["line_bytes"], ready["seed"], "thp",
                ready["warmup_bytes"], SECONDS)  # fmt: skip


def mean_ns(samples: list[dict]) -> float:
    """Nanoseconds an access over all blocks, which have the same number of accesses."""
    pairs = [(float(key), count) for one in samples for key, count in one["blocks"].items()]
    return sum(key * count for key, count in pairs) / sum(count for _, count in pairs)


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Ratios chase : naive loop, and the timer's share of a block, by size."""
    build()
    cpu = min(os.sched_getaffinity(0))
    for name, size in sizes(cpu).items():
        medians, means, shares = [], [], []
        for pair in range(pairs):
            mine = own(cpu, size)
            theirs = naive(cpu, mine.ready)
            if pair % 2 == 0:
                *samples, done = mine.measure()
                [plain] = theirs.measure()
            else:
                [plain] = theirs.measure()
                *samples, done = mine.measure()
            medians.append(done["latency_ns"] / plain["median_ns"])
            means.append(mean_ns(samples) / plain["mean_ns"])
            shares.append(done["timer_share"] * 100)
        where = f"{name}, {size / 2**20:g} MiB"
        yield f"chase : naive loop, medians, {where}", medians, ".4f", "goal: within 2 %"
        yield f"chase : naive loop, means, {where}", means, ".4f", "no goal: interruptions count"
        yield f"timer's share of a block, %, {where}", shares, ".3f", "goal: below 1"
