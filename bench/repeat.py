"""Do intervals of DRAM latency agree if all replicates are measured three times?

Each repeat measures all points in the random order of its blocks, like a run of the workflow. So
the repeats are as far apart in time as separate runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations

from chaosity.design.benchmark_templates import load_benchmark_of_each_category
from chaosity.design.host_plan import positions_in_random_order
from chaosity.design.host_resources import HostResources
from chaosity.design.point_expansion import PointExpansion
from chaosity.documents.config import read_config
from chaosity.runner import metric_values
from chaosity.runner.point_measurement import measure_point
from chaosity.statistics.estimates import Estimate
from chaosity.topology.topology_discovery import discover_topology

REPEATS = 3
SIZES = 5  # for each of two cores: ten points
MIB = 2**20


def chase_points(config: dict) -> list[dict]:
    """Return ten chases beyond the caches: of two cores, with 2 to 4 times the last-level cache."""
    topology = discover_topology("live")
    host = HostResources(topology, ())
    cpus = sorted(os.sched_getaffinity(0))[:2]
    last = max((one.size_bytes or 0 for one in topology.l3_domains), default=32 * MIB)
    sizes = [int(last * (2 + 2 * step / (SIZES - 1))) // MIB * MIB for step in range(SIZES)]
    loads = {
        "chase": {
            "category": "memory_latency",
            "initiator": {"names": [f"pu{cpu}" for cpu in cpus]},
            "target": {"local_to": "chase.initiator"},
            "sizes": sizes,
        }
    }
    config = {**config, "working_set": {**config["working_set"], "sweep_at_most_bytes": None}}
    expansion = PointExpansion(host, load_benchmark_of_each_category(config), config)
    document = {"experiment": "repeat", "designs": {"dram": {"loads": loads}}}
    here = {"host": "here", "configuration": "bench"}
    return [{**here, **point} for point in expansion.expand_experiment(document)]


def measure_repeat(config: dict, repeat: int) -> dict[str, Estimate]:
    """Return point -> its median and interval, in one repeat."""
    chosen = chase_points(config)
    orders = positions_in_random_order([config["replicates"]] * len(chosen), repeat)
    turns = sorted(
        (order, replicate, number)
        for number, own in enumerate(orders)
        for replicate, order in enumerate(own, start=1)
    )
    seen: dict[str, list[float]] = {}
    for _, replicate, number in turns:
        record = measure_point(chosen[number], replicate)
        if record["verdict"]["status"] == "valid":
            value = metric_values.metric_values_or_reasons(record)["chase"]["latency_ns"][0]
            seen.setdefault(chosen[number]["point"], []).append(value)
    return {name: Estimate.of_values(found) for name, found in seen.items()}


def compare(_pairs: int) -> Iterator[tuple[str, list[float], str, str]]:
    """Yield the per cent of points whose medians agree within their intervals, by two criteria."""
    config = read_config()
    repeats = [measure_repeat(config, repeat) for repeat in range(REPEATS)]
    whole = [name for name in repeats[0] if all(name in one for one in repeats)]
    within = inside = 0
    for name in whole:
        pairs = list(combinations([one[name] for one in repeats], 2))
        within += all(abs(a.median - b.median) < min(width(a), width(b)) for a, b in pairs)
        inside += all(b.low <= a.median <= b.high and a.low <= b.median <= a.high for a, b in pairs)
        reported = ", ".join(
            f"{x.median:.1f} ({x.low:.1f} to {x.high:.1f})" for x in (one[name] for one in repeats)
        )
        print(f"  {name}: {reported} ns")
    of = f"of {len(whole)} DRAM points, {REPEATS} times n = {config['replicates']}"
    yield (
        f"% {of}: differ by less than the interval",
        [100 * within / len(whole)],
        ".0f",
        "goal: at least 90",
    )
    yield (
        f"% {of}: each within the others' intervals",
        [100 * inside / len(whole)],
        ".0f",
        "no goal",
    )


def width(one: Estimate) -> float:
    """Width of an interval; nothing when there is none."""
    return 0.0 if one.low is None or one.high is None else one.high - one.low


PARTS = {"repeat": compare}
