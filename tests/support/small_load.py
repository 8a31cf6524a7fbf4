"""Points with a real small program as load, for tests of the runner."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

# A load that behaves like a kernel: ready line, barrier, samples, stop on a signal. What it does
# wrong can be chosen, which a real tool would not do on demand.
PROGRAM = """
import json, os, random, signal, sys, time
wrong = sys.argv[1]
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1) if wrong != "deaf" else None)
if wrong == "dies": sys.exit("cannot allocate")
if wrong == "silent":
    time.sleep(0.3)
    sys.exit()
keep = b"x" * (40 << 20)
if wrong != "unready":
    print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
    if not sys.stdin.readline(): stop.append(1)
if wrong == "slow": time.sleep(1.5)  # a first pass, of which nothing is reported
while not stop and wrong != "early":
    begin = time.monotonic_ns(); time.sleep(0.005); end = time.monotonic_ns()
    size = random.choice([1000, 9000]) if wrong == "noisy" else (end - begin) // 1000
    sample = json.dumps({"event": "sample", "begin_ns": begin, "end_ns": end, "bytes": size,
                      "bytes_by_node": {"0": size}, "ns_by_node": {"0": end - begin}})
    if wrong != "mute": print(sample, flush=True)
    if wrong == "crash": sys.exit(3)
if wrong == "rubbish": print("{{{ rubbish")
print(json.dumps({"event": "done", "valid": wrong != "invalid"}), flush=True)
"""

# Where the samples of such a program have their times and amounts.
SAMPLES = {
    "event": "sample",
    "begin": "begin_ns",
    "end": "end_ns",
    "amount": "bytes",
    "time_scale": 1e-9,
}
# What replaces parts of a load whose program reports nothing and ends by itself.
WITHOUT_PROGRESS: dict[str, Any] = {
    "start": "spawn",
    "stop": {"by": "self", "signal": "TERM", "exit": [0]},
    "progress": None,
    "metrics": {},
    "valid": [],
}


def small_point(wrong: str = "", point: dict[str, Any] | None = None, **load: Any) -> Any:
    """Return a point with one load; keyword arguments replace parts of the load."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    base = {
        "name": "memory",
        "benchmark": "test",
        "category": "memory_bandwidth",
        "label": None,
        "kernel": "triad",
        "needs": {"program": sys.executable, "install": "-"},
        "memory_bytes": 1024,
        "writes": False,
        "files": {},
        "environment": {},
        "command": [sys.executable, "-c", PROGRAM, wrong],
        "start": "barrier",
        "stop": {"by": "runner", "signal": "TERM", "exit": [0]},
        "progress": SAMPLES,
        "metrics": {"bandwidth_bytes_per_second": {"progress": True, "at_most": None}},
        "valid": [{"name": "right", "event": "done", "key": "valid", "equals": "True"}],
        "placement": {"memory_nodes": [0], "pinned": False, "cpus": cpus},
        "initiator": {
            "name": "machine",
            "kind": "machine",
            "nodes": [0],
            "cpus": cpus,
            "threads": 1,
        },
        "target": {
            "name": "node0",
            "kind": "node",
            "nodes": [0],
            "drives": [],
            "relation": "same_node",
        },
    }
    return {
        "host": "here",
        "configuration": "test",
        "experiment": "test",
        "point": "memory=machine+node0+triad",
        "definition": "d",
        "orders": [0],
        "factors": {},
        "components": ["system"],
        "stopping": {"relative_precision": 0.5, "min_seconds": 0.2, "max_seconds": 1.0},
        "timeout_seconds": 30,
        "loads": [{**base, **load}],
        **(point or {}),
    }


@pytest.fixture
def make_point() -> Callable[..., Any]:
    """Builds a point with one load; keyword arguments replace parts of the load."""
    return small_point
