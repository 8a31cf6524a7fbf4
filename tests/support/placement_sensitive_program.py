"""A program whose speed depends on where the kernel has its pages, by a formula, on any machine.

    placement_sensitive_program.py BANDWIDTHS LATENCIES [SECONDS [MEBIBYTES [SCALE]]] [barrier]

Each pass takes the time of an imagined machine with these bandwidths and latencies by node, both
lists with a number a node: the slowest node's share over its bandwidth, and the mean latency by
shares. It asks the kernel for the shares, sleeps so long, and prints a sample. So the best
placement is known from the formula, and reached only if pages are really moved. Standard library
alone. SCALE is how many seconds a pass of time 1 by the formula takes. With `barrier` it waits for
a line once it is ready.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = 4096
# Seconds to run, MiB, seconds a unit of the formula's time.
DEFAULTS = (1e9, 16, 0.004)


def pass_time(
    shares: Mapping[int, float], bandwidths: Sequence[float], latencies: Sequence[float]
) -> float:
    """The time of a pass, by node: slowest share over bandwidth, and mean latency."""
    slowest = max(share / bandwidths[node] for node, share in shares.items())
    return slowest + sum(share * latencies[node] for node, share in shares.items())


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def shares_of(address: str) -> dict[int, float]:
    """Where the kernel has the pages of a mapping."""
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        if line.startswith(f"{address} "):
            words = [w[1:].split("=") for w in line.split() if w[0] == "N" and w[1].isdigit()]
            counts = {int(node): int(pages) for node, pages in words}
            return {node: n / sum(counts.values()) for node, n in counts.items()}
    raise SystemExit(f"the kernel has no mapping at {address}")


def say(**what: object) -> None:
    print(json.dumps(what, separators=(",", ":")), flush=True)


def main() -> None:
    waits = sys.argv[-1] == "barrier"
    given = sys.argv[1 : -1 if waits else None]
    bandwidths, latencies = numbers(given[0]), numbers(given[1])
    seconds, mebibytes, scale = map(float, (*given[2:], *DEFAULTS[len(given) - 2 :]))
    size = int(mebibytes) << 20
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # which also keeps the kernel from joining mappings
    for offset in range(0, size, PAGE):
        memory[offset] = 1
    address = f"{ctypes.addressof(ctypes.c_char.from_buffer(memory)):x}"
    say(event="ready", mapping=address)
    if waits and not sys.stdin.readline():
        return
    until = time.monotonic() + seconds
    passes = 0
    while time.monotonic() < until:
        begin = time.monotonic_ns()
        time.sleep(scale * pass_time(shares_of(address), bandwidths, latencies))
        say(event="sample", begin_ns=begin, end_ns=time.monotonic_ns(), passes=1)
        passes += 1
    say(event="done", valid=True, passes=passes, shares=shares_of(address))


if __name__ == "__main__":
    main()
