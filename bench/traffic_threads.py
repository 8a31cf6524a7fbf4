"""How well the threads of chaosity-traffic start and stop together, and keep their share."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kernels import TOTAL_BYTES, own

BINARY = Path(__file__).resolve().parents[1] / "build" / "kernels" / "chaosity-traffic"
SECONDS = 0.5
SHARES = (25, 50, 75)  # per cent of the peak


def traffic_rate(cpus: list[int], share: int) -> tuple[float, dict]:
    """Return the bytes per second of one run of `read`, and the last line of its output."""
    command = [
        BINARY,
        "--kernel=read",
        f"--cpus={','.join(map(str, cpus))}",
        "--pages=thp",
        f"--array-bytes={TOTAL_BYTES // 2097152 * 2097152}",
        f"--share={share}",
        f"--max-seconds={SECONDS}",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    events = [json.loads(one) for one in text.splitlines()]
    samples = [one for one in events if one["event"] == "sample"]
    span = samples[-1]["end_ns"] - samples[0]["begin_ns"]
    return sum(one["bytes"] for one in samples) / span * 1e9, events[-1]


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield spreads in microseconds, rates achieved : asked, and `read` : chaosity-bandwidth's."""
    every = sorted(os.sched_getaffinity(0))
    ended = []
    for share in SHARES:
        runs = [traffic_rate(every, share) for _ in range(pairs)]
        ended += [done for _, done in runs]
        kept = [100 * rate / done["peak_bytes_per_second"] / share for rate, done in runs]
        name = f"read at {share} % of its peak, {len(every)} threads, achieved : asked"
        yield name, kept, ".3f", "1 is exact"
    for word in ("start", "stop"):
        spreads = [done[f"{word}_spread_ns"] / 1000 for done in ended]
        name = f"{word} of {len(every)} threads, first to last, us"
        yield name, spreads, ".1f", "goal: below 1000"
        yield f"{name}, the worst run", [max(spreads)], ".1f", "goal: below 1000"
    for cpus in (every, every[:1]):
        ratios = [traffic_rate(cpus, 100)[0] / own("read", cpus, "thp") for _ in range(pairs)]
        name = f"read : chaosity-bandwidth's, {len(cpus)} threads"
        yield name, ratios, ".3f", "goal: at least 0.95"


PARTS = {"traffic_threads": compare}
