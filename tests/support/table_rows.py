"""Rows of tidy tables by hand, and results folders that have such a table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from chaosity.components import drive_component_name
from chaosity.records.record_format import FAILED, SIMULATED, VALID
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, Row, rows_to_table, write_parquet_table
from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from chaosity.topology.topology_model import Topology, topology_to_json
from chaosity.topology.topology_parts import NvmeDrive

BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
DAY = "2026-11-20"
GB = 1e9


def rows(
    value: Callable[[int, Any], float | None],
    initiators: Iterable[int],
    targets: Iterable[int | NvmeDrive],
    metric: str = BANDWIDTH,
    replicates: int = 3,
    *,
    spread: float = 0.01,
    noise: float | None = None,
    seed: int = 0,
    topology: Topology | None = None,
    **columns: Any,
) -> Iterator[Row]:
    """Yield a row for each node, node or drive, and replicate.

    Args:
        value: of a node and a node or drive; None is a measurement that failed.
        initiators: numbers of nodes.
        targets: numbers of nodes, or drives.
        metric: of the values.
        replicates: of each point.
        spread: by so much the second replicate is larger than the first, and the third than the
            second. The second is the value.
        noise: standard deviation of random noise in place of this spread.
        seed: of the noise.
        topology: tells the relation of a node and a drive.
        columns: other columns, the same in all rows.
    """
    random, chase = np.random.default_rng(seed), metric == LATENCY
    for initiator, target in itertools.product(initiators, list(targets)):
        drive = isinstance(target, NvmeDrive)
        node = target.node if isinstance(target, NvmeDrive) else target
        load = "chase" if chase else "storage" if drive else "memory"
        name = f"pu{initiator * 100}" if chase else f"node{initiator}"
        place = drive_component_name(target) if isinstance(target, NvmeDrive) else f"node{node}"
        relation = "same_node" if initiator == node else "other_package"
        middle = min(replicates, 2)
        for replicate in range(1, replicates + 1):
            found = value(initiator, target)
            off = spread * (replicate - middle) if noise is None else random.normal(0.0, noise)
            yield {
                "host": "h",
                "configuration": "nps4",
                "experiment": "latency_matrix" if chase else f"{load}_bandwidth",
                "point": f"{load}={name}+{place}",
                "replicate": replicate,
                "order": replicate,
                "measured_at": f"{DAY}T1{replicate}:00:00.000Z",
                "status": FAILED if found is None else VALID,
                "reason": "killed" if found is None else None,
                "load": load,
                "benchmark": "tool",
                "category": "memory_latency" if chase else f"{load}_bandwidth",
                "kernel": "triad" if load == "memory" else None,
                "initiator": name,
                "initiator_kind": "pu" if chase else "node",
                "initiator_nodes": str(initiator),
                "target": place,
                "target_kind": "drive" if drive else "node",
                "target_nodes": str(node),
                "drives": 1 if drive else None,
                "file_backed": False,
                "relation": topology.node_relation(initiator, node) if topology else relation,
                "metric": metric,
                "value": found and found * (1.0 + off if noise is None else float(np.exp(off))),
                "factors": "{}",
                "levels": "{}",
                **columns,
            }


def drive_rows(
    value: Callable[[int, NvmeDrive], float], topology: Topology, replicates: int = 3
) -> Iterator[Row]:
    """Yield a row for each node, drive and replicate."""
    nodes = [node.os_index for node in topology.initiator_nodes]
    return rows(value, nodes, topology.drives, replicates=replicates, topology=topology)


def table(*parts: Iterable[Row]) -> pd.DataFrame:
    """Return the tidy table of some rows."""
    return rows_to_table(list(itertools.chain(*parts)), COLUMN_TYPES)


def scaled(measured: Measurements, share: float, **where: object) -> Measurements:
    """Return the table with this share of the values of some rows."""
    chosen = measured.rows.index.isin(measured.where(**where).rows.index)
    assert chosen.any()
    return measured.with_columns(value=measured.rows["value"] * np.where(chosen, share, 1.0))


def folder_of(
    machine: Path | Topology,
    tidy: pd.DataFrame,
    folder: Path,
    drives: tuple[NvmeDrive, ...] | None = None,
) -> Path:
    """Write the results of a machine, a topology or an XML file; `drives` replace its drives."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(machine, Path):
        machine, text = discover_topology_with_xml(str(machine))
        (folder / "topology.xml").write_text(text)
    topology = machine if drives is None else replace(machine, drives=drives)
    (folder / "topology.json").write_text(json.dumps(topology_to_json(topology)))
    write_parquet_table(in_types_of_file(tidy), folder / "measurements.parquet")
    return folder


def in_types_of_file(tidy: pd.DataFrame) -> pd.DataFrame:
    """Return a table in the columns and types of the file, whose missing values numpy lacks."""
    found = pd.DataFrame({column: tidy.get(column) for column in COLUMN_TYPES}, dtype=object)
    reference = found["reference"].isin([True])  # a missing value is False in numpy types
    return found.assign(reference=found["reference"].where(reference, None)).astype(COLUMN_TYPES)


def measured(
    xml: Path,
    folder: Path,
    bandwidth: Callable[[int, int], float | None] | None = None,
    latency: Callable[[int, int], float | None] | None = None,
) -> Path:
    """Write the results of a machine, each initiator node on each target node."""
    topology = discover_topology(str(xml))
    initiators = [node.os_index for node in topology.initiator_nodes]
    targets = [node.os_index for node in topology.memory_nodes]
    given = ((bandwidth, BANDWIDTH), (latency, LATENCY))
    parts = (rows(value, initiators, targets, metric) for value, metric in given if value)
    return folder_of(xml, table(*parts), folder)


def whole_map(xml: Path, folder: Path, *, simulated: bool = False, host: str = "h") -> Path:
    """Write the results of a machine with all three matrices: the farther, the slower."""
    topology = discover_topology(str(xml))
    steps = {"same_node": 1.0, "same_package": 1.25, "other_package": 2.0, "unknown": 2.0}

    def step(initiator: int, target: int | None) -> float:
        return steps[topology.node_relation(initiator, target)]

    initiators = [node.os_index for node in topology.initiator_nodes]
    targets = [node.os_index for node in topology.memory_nodes]
    tidy = table(
        rows(lambda i, j: 40e9 / step(i, j), initiators, targets),
        rows(lambda i, j: 96.0 * step(i, j), initiators, targets, LATENCY),
        drive_rows(lambda i, drive: 7e9 / step(i, drive.node), topology),
    )
    tidy = tidy.assign(host=host, **({"origin": SIMULATED} if simulated else {}))
    return folder_of(xml, tidy, folder)


def equal_host(
    name: str,
    seed: int,
    *,
    nodes: int = 4,
    replicates: int = 3,
    noise: float = 0.01,
    metric: str = BANDWIDTH,
    factor: Mapping[str, float] | None = None,
    **columns: Any,
) -> pd.DataFrame:
    """Return the node matrix of one of equal hosts, quick to make in large numbers.

    Args:
        name: of the host.
        seed: of its noise.
        nodes: number of its nodes.
        replicates: of each point.
        noise: standard deviation of the noise.
        metric: of the values.
        factor: target or "initiator -> target" -> what its value is multiplied by.
        columns: other columns, the same in all rows.
    """
    own, (near, far) = factor or {}, (90.0, 140.0) if metric == LATENCY else (40e9, 28e9)

    def value(i: int, j: int) -> float:
        share = own.get(f"node{j}", 1.0) * own.get(f"node{i} -> node{j}", 1.0)
        return share * (near if i == j else far)

    tool: dict[str, Any] = {"benchmark": "chaosity_bandwidth", "threads": 6}
    places, columns = range(nodes), {"host": name, **tool, **columns}
    return table(rows(value, places, places, metric, replicates, noise=noise, seed=seed, **columns))


def _constant(value: float, *_: object) -> float:
    return value


def sweep(
    latency: Callable[[int, int, str], float],
    sizes: Iterable[int],
    node_of_core: Mapping[int, int],
    *,
    modes: Iterable[str] = ("serial", "concurrent"),
    replicates: int = 3,
) -> pd.DataFrame:
    """Return latencies of working sets: each core alone (serial), and all together (concurrent).

    Args:
        latency: of a core, a size in bytes and a mode.
        sizes: of the working sets.
        node_of_core: processing unit -> node, whose memory it reads.
        modes: serial or concurrent.
        replicates: of each point.
    """
    parts = []
    for mode, size, (pu, node) in itertools.product(modes, sizes, node_of_core.items()):
        levels = {"bytes": size, "pages": "thp"}
        columns: dict[str, Any] = {
            "experiment": "latency_by_size",
            "point": f"chase=pu{pu}+{size}" if mode == "serial" else f"together+{size}",
            "benchmark": "chaosity_latency",
            "initiator": f"pu{pu}",
            "threads": 1,
            "seen_nodes": str(node),
            "levels": json.dumps(levels),
            "factors": json.dumps({**levels, "mode": mode}),
        }
        constant = partial(_constant, latency(pu, size, mode))
        parts.append(rows(constant, [node], [node], LATENCY, replicates, **columns))
    return table(*parts)
