"""Latency measurements of a synthetic machine.

Shapes as measured ones have: steps at the sizes of caches, a rise with distance, a queue that
grows as bandwidth nears its peak, and cores that suffer when all of them chase.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import synthetic
from synthetic import GB, Machine

from chaosity.cpusets import format_cpu_list
from chaosity.store.tidy_table_parquet import COLUMNS

LATENCY = "latency_ns"
TRAFFIC = "traffic_bytes_per_second"
TYPES = {**COLUMNS, "distance": "Float64", "seen_nodes": "string"}
SIZES = tuple(2**power for power in range(12, 31))
GIB = 2**30
KERNELS = ("read", "copy", "add_nt")
SHARES = (10, 25, 40, 55, 70, 80, 90, 95, 100)
SLIT = {"same_node": 10, "same_package": 12, "other_package": 32}
# What the links really do, in ns beyond the 90 of a node's own memory.
BEYOND = {"same_node": 0.0, "same_package": 12.0, "other_package": 75.0}
_CACHES = ((32 * 2**10, 1.2), (512 * 2**10, 4.0), (16 * 2**20, 14.0))


def latency_of(size: int, memory: float = 90.0) -> float:
    """Latency of a working set in ns, smooth over the sizes of the caches."""
    value = _CACHES[0][1]
    steps = [*(latency for _, latency in _CACHES[1:]), memory]
    for (limit, _), beyond in zip(_CACHES, steps, strict=True):
        share = 1.0 / (1.0 + (limit / size) ** 2)
        value += share * (beyond - value)
    return value


def cores(machine: Machine) -> list[tuple[int, int]]:
    """The first processing unit of each half of a node with its node: two L3 domains per node."""
    width, places = machine.cores_per_node, enumerate(machine.nodes)
    return [
        (place * width + half * (width // 2), node) for place, node in places for half in (0, 1)
    ]


def distance_of(machine: Machine, node: int, target: int) -> int:
    """The SLIT: the firmware's distance of two nodes."""
    return SLIT[machine.relation(node, target)]


def rows(machine: Machine, *, lies: bool = False) -> Iterator[dict[str, Any]]:
    """All rows; with `lies` the SLIT swaps the nearest and the farthest other node."""
    yield from by_size(machine)
    yield from matrix(machine, lies)
    yield from loaded(machine)
    yield from core_to_core(machine)


def tidy(machine: Machine, *, lies: bool = False, more: bool = False) -> pd.DataFrame:
    """The tidy table of these rows; with `more` the rows of `Machine.tidy` too."""
    found = [*rows(machine, lies=lies), *(machine.rows() if more else ())]
    return pd.DataFrame(found, columns=list(TYPES)).astype(TYPES)


def topology(machine: Machine) -> dict[str, Any]:
    """The JSON of `Machine.topology`, with two L3 domains per node."""
    width = machine.cores_per_node
    domains = [
        {"index": number, "cpus": format_cpu_list(range(pu, pu + width // 2))}
        for number, (pu, _) in enumerate(cores(machine))
    ]
    return {**machine.topology(), "l3_domains": domains}


def chase(machine: Machine, pu: int, node: int, target: int, value: float, **levels: Any) -> Any:
    """A load that chases pointers: its columns, value and levels."""
    load = machine.memory_load(f"pu{pu}", "pu", node, target, "", value)
    return {
        **load,
        "load": "chase",
        "benchmark": "chaosity_latency",
        "category": "memory_latency",
        "kernel": None,
        "label": None,
        "metric": LATENCY,
        "levels": levels,
        "distance": distance_of(machine, node, target),
        "seen_nodes": str(target),
    }


def point(
    machine: Machine, experiment: str, name: str, loads: list[dict[str, Any]], **factors: Any
) -> Iterator[dict[str, Any]]:
    """The rows of all replicates of a point."""
    status = "failed" if name in machine.failed else "valid"
    for replicate in range(1, machine.replicates + 1):
        for load in loads:
            noise = float(np.exp(machine.random.normal(0.0, machine.noise)))
            given = {key: value for key, value in load.items() if key not in ("rate", "levels")}
            yield {
                **given,
                "host": machine.host,
                "configuration": machine.configuration,
                "experiment": experiment,
                "point": name,
                "replicate": replicate,
                "order": 1,
                "measured_at": f"{machine.day}T1{replicate}:00:00.000Z",
                "status": status,
                "reason": machine.failed.get(name),
                "value": load["rate"] * noise if status == "valid" else None,
                "factors": json.dumps({**factors, **load["levels"]}, sort_keys=True),
                "levels": json.dumps(load["levels"], sort_keys=True),
            }


def by_size(machine: Machine) -> Iterator[dict[str, Any]]:
    """Each core alone and all together; together each node's first core is slow from 32 MiB on."""
    for size in SIZES:
        alone = [
            chase(machine, pu, node, node, latency_of(size), bytes=size, pages="thp")
            for pu, node in cores(machine)
        ]
        for load in alone:
            name = f"chase={load['initiator']}+{load['target']}+{size}"
            yield from point(machine, "latency_by_size", name, [load], mode="serial")
        grown = 1.0 + 0.5 / (1.0 + (2.0**25 / size) ** 6)
        together = [
            {**load, "rate": load["rate"] * (grown if number % 2 == 0 else 1.01)}
            for number, load in enumerate(alone)
        ]
        name = f"together+{size}"
        yield from point(machine, "latency_by_size", name, together, mode="concurrent")


def matrix(machine: Machine, lies: bool) -> Iterator[dict[str, Any]]:
    """One core of each node against each node."""
    for pu, node in cores(machine)[::2]:
        for target in machine.nodes:
            value = 90.0 + BEYOND[machine.relation(node, target)]
            load = chase(machine, pu, node, target, value, bytes=GIB, pages="2M")
            if lies and node != target:
                load["distance"] = 44 - load["distance"]
            name = f"chase=pu{pu}+node{target}"
            yield from point(machine, "latency_matrix", name, [load])


def loaded(machine: Machine) -> Iterator[dict[str, Any]]:
    """A chase that co-runs with traffic; more reads in the traffic give more latency."""
    for place, node in enumerate(machine.nodes):
        pu = place * machine.cores_per_node
        idle = chase(machine, pu, node, node, 90.0, bytes=GIB, pages="2M")
        yield from point(machine, "loaded_latency", f"chase=pu{pu}", [idle])
        for number, kernel in enumerate(KERNELS):
            peak = (40.0 - 4.0 * number) * GB
            for share in SHARES:
                used = 0.97 * share / 100.0
                slow = {**idle, "rate": 90.0 * (1.0 + 0.12 * used / (1.0 - used) ** 0.8)}
                load = machine.memory_load(f"others{node}", "node", node, node, kernel, peak * used)
                load |= {
                    "load": "load",
                    "metric": TRAFFIC,
                    "levels": {"share": share},
                    "category": "memory_traffic",
                    "label": None,
                    "benchmark": "chaosity_traffic",
                }
                name = f"chase=pu{pu}.load=node{node}+{kernel}+{share}"
                yield from point(machine, "loaded_latency", name, [slow, load])


def core_to_core(machine: Machine) -> Iterator[dict[str, Any]]:
    """A cache line that moves between two cores; its memory is on the node of the first core."""
    places = cores(machine)
    for pu, node in places:
        for other, far in places:
            if pu == other:
                continue
            value = 40.0 + 1.3 * BEYOND[machine.relation(node, far)]
            load = chase(machine, pu, node, node, value, responder=f"pu{other}")
            load |= {
                "load": "line",
                "category": "core_to_core",
                "benchmark": "chaosity_core_to_core",
            }
            yield from point(machine, "core_to_core", f"line=pu{pu}+pu{other}", [load])


def small(replicates: int = 3) -> Machine:
    """A host with one node."""
    return synthetic.small(replicates)


def epyc(replicates: int = 3) -> Machine:
    """A host with eight nodes in two packages; a point of each experiment failed."""
    failed = {
        "chase=pu0+node5": "pages: 1000 of 1024 MiB are huge",
        "chase=pu6.load=node1+copy+70": "placement: load: 3 % of the pages are on node 4",
        "line=pu3+pu9": "measured: not finished after 20 s",
    }
    return Machine("epyc7413", ((0, 1, 2, 3), (4, 5, 6, 7)), {}, 6, replicates, failed=failed)


def _figure(name: str, kind: str, title: str, load: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "title": title, "load": load, "metric": LATENCY, **keys}


COMPARE = {"column": "mode", "level": "concurrent", "to": "serial"}
EXPERIMENTS = [
    {
        "experiment": "latency_by_size",
        "question": "How long does a load take, by core, size, and what others do?",
        "figures": [
            _figure(
                "latency_by_size",
                "lines",
                "Latency by working set",
                "chase",
                x="bytes",
                x_scale="log2",
                value_scale="log",
                series="mode",
                panels="initiator",
            ),
            _figure(
                "latency_together",
                "lines",
                "Latency alone and all together",
                "chase",
                x="bytes",
                x_scale="log2",
                series="mode",
                combine="median",
                compare=COMPARE,
            ),
            _figure(
                "latency_by_core",
                "table",
                "Latency by core and size",
                "chase",
                rows="initiator",
                columns="bytes",
                panels="mode",
                compare=COMPARE,
            ),
        ],
    },
    {
        "experiment": "latency_matrix",
        "question": "What does distance cost, and does the firmware's table tell?",
        "figures": [
            _figure(
                "latency_matrix",
                "heatmap",
                "Idle latency by core and node",
                "chase",
                rows="initiator",
                columns="target",
                cell_note="distance",
            ),
            _figure(
                "latency_by_distance",
                "scatter",
                "Idle latency by distance",
                "chase",
                x="distance",
                series="relation",
            ),
        ],
    },
    {
        "experiment": "loaded_latency",
        "question": "What does a load take while others move data?",
        "figures": [
            _figure(
                "loaded_latency",
                "curve",
                "Latency beside traffic",
                "chase",
                x=f"load.{TRAFFIC}",
                series="load.kernel",
                panels="target",
                where={"load.kernel": [*KERNELS, None]},
            ),
        ],
    },
    {
        "experiment": "core_to_core",
        "question": "What does it take to hand a line over?",
        "figures": [
            _figure(
                "core_to_core",
                "heatmap",
                "Core-to-core latency",
                "line",
                rows="initiator",
                columns="responder",
            ),
        ],
    },
]
