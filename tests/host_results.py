"""A folder of results with made-up values, for a machine from an hwloc XML file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.components.make_component_documents import drive_component_name
from chaosity.store.tidy_table_parquet import COLUMNS, write_parquet_table
from chaosity.topology.device_types import NvmeDrive
from chaosity.topology.topology_discovery import discover_topology_with_xml
from chaosity.topology.topology_json import topology_to_json
from chaosity.topology.topology_model import Topology

BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
Value = Callable[[int, int], float | None]


def rows(
    value: Value, initiators: list[int], targets: list[int], metric: str, replicates: int = 3
) -> Iterator[dict[str, Any]]:
    """A row for each pair of nodes and replicate; None is a measurement that failed."""
    chase = metric == LATENCY
    for initiator in initiators:
        for target in targets:
            for replicate in range(1, replicates + 1):
                found = value(initiator, target)
                kind = "pu" if chase else "node"
                name = f"pu{initiator * 100}" if chase else f"node{initiator}"
                yield {
                    "host": "h",
                    "configuration": "nps4",
                    "experiment": "latency_matrix" if chase else "memory_bandwidth",
                    "point": f"x={name}+node{target}",
                    "replicate": replicate,
                    "measured_at": f"2026-11-20T1{replicate}:00:00.000Z",
                    "status": "failed" if found is None else "valid",
                    "reason": "killed" if found is None else None,
                    "load": "chase" if chase else "memory",
                    "benchmark": "tool",
                    "category": "memory_latency" if chase else "memory_bandwidth",
                    "kernel": None if chase else "triad",
                    "initiator": name,
                    "initiator_kind": kind,
                    "initiator_nodes": str(initiator),
                    "target": f"node{target}",
                    "target_kind": "node",
                    "target_nodes": str(target),
                    "file_backed": False,
                    "metric": metric,
                    # The median is what was given; the others are a little off.
                    "value": found and found * (1.0 + 0.01 * (replicate - 2)),
                    "factors": "{}",
                    "levels": "{}",
                }


def drive_rows(
    value: Callable[[int, NvmeDrive], float], topology: Topology, replicates: int = 3
) -> Iterator[dict[str, Any]]:
    """A row for each node, drive and replicate."""
    for node in (node.os_index for node in topology.initiator_nodes):
        for drive in topology.drives:
            name = drive_component_name(drive)
            for replicate in range(1, replicates + 1):
                yield {
                    "host": "h",
                    "configuration": "nps4",
                    "experiment": "storage_bandwidth",
                    "point": f"x=node{node}+{name}",
                    "replicate": replicate,
                    "measured_at": f"2026-11-20T1{replicate}:30:00.000Z",
                    "status": "valid",
                    "load": "storage",
                    "benchmark": "tool",
                    "category": "storage_bandwidth",
                    "initiator": f"node{node}",
                    "initiator_kind": "node",
                    "initiator_nodes": str(node),
                    "target": name,
                    "target_kind": "drive",
                    "target_nodes": str(drive.node),
                    "drives": 1,
                    "file_backed": False,
                    "relation": topology.node_relation(node, drive.node),
                    "metric": BANDWIDTH,
                    "value": value(node, drive) * (1.0 + 0.01 * (replicate - 2)),
                    "factors": "{}",
                    "levels": "{}",
                }


def table(*parts: Iterator[dict[str, Any]]) -> pd.DataFrame:
    """The tidy table of some rows."""
    found = [row for part in parts for row in part]
    return pd.DataFrame(found, columns=list(COLUMNS)).astype(COLUMNS)


def folder_of(
    xml: Path, tidy: pd.DataFrame, folder: Path, drives: tuple[NvmeDrive, ...] | None = None
) -> Path:
    """The results of a machine; `drives` replace those of the XML."""
    topology, text = discover_topology_with_xml(str(xml))
    topology = topology if drives is None else replace(topology, drives=drives)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "topology.xml").write_text(text)
    (folder / "topology.json").write_text(json.dumps(topology_to_json(topology)))
    write_parquet_table(tidy, folder / "measurements.parquet")
    return folder


def measured(
    xml: Path, folder: Path, bandwidth: Value | None = None, latency: Value | None = None
) -> Path:
    """The results of a machine, each initiator node on each target node."""
    topology, _ = discover_topology_with_xml(str(xml))
    initiators = [node.os_index for node in topology.initiator_nodes]
    targets = [node.os_index for node in topology.memory_nodes]
    given = ((bandwidth, BANDWIDTH), (latency, LATENCY))
    parts = (rows(value, initiators, targets, metric) for value, metric in given if value)
    return folder_of(xml, table(*parts), folder)


def whole_map(xml: Path, folder: Path, *, simulated: bool = False, host: str = "h") -> Path:
    """The results of a machine with all three matrices: the farther, the slower."""
    topology, _ = discover_topology_with_xml(str(xml))
    steps = {"same_node": 1.0, "same_package": 1.25, "other_package": 2.0, "unknown": 2.0}

    def step(initiator: int, target: int | None) -> float:
        return steps[topology.node_relation(initiator, target)]

    initiators = [node.os_index for node in topology.initiator_nodes]
    targets = [node.os_index for node in topology.memory_nodes]
    tidy = table(
        rows(lambda i, j: 40e9 / step(i, j), initiators, targets, BANDWIDTH),
        rows(lambda i, j: 96.0 * step(i, j), initiators, targets, LATENCY),
        drive_rows(lambda i, drive: 7e9 / step(i, drive.node), topology),
    )
    tidy = tidy.assign(host=host, **({"origin": "simulated"} if simulated else {}))
    return folder_of(xml, tidy, folder)
