"""What of a host's measurements is handed on: memory of each node, seen from each node, alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.statistics import load_counts, plain, summarise, valid
from chaosity.store import read_table
from chaosity.store.measurements import SLICE
from chaosity.store.node_matrix import BANDWIDTH, LATENCY, NodeMatrix
from chaosity.store.result_folders import TABLE
from chaosity.topology import Topology, topology_from_json

# How categories of benchmarks begin that measure memory: moving a line between cores has a latency
# and a node too.
_MEMORY = "memory_"
# Initiators that stand for a node: bandwidth takes all its cores, idle latency is what one sees.
_STANDS_FOR_NODE = {BANDWIDTH: ("node",), LATENCY: ("node", "pu")}
# Reads two bytes for each that it writes. hwloc's Bandwidth is the mean of reads and writes, and
# programs do both. Only where several kernels were measured in as many places does this decide.
_KERNEL = "triad"
# Where an experiment varies the working set, some of its values are those of caches.
_WORKING_SET = "bytes"


@dataclass(frozen=True)
class MeasuredHost:
    """A folder of results.

    Attributes:
        folder: ``results/<host>/<configuration>``.
        tidy: its tidy table, in numpy's types.
        topology: what discovery found.
    """

    folder: Path
    tidy: pd.DataFrame
    topology: Topology

    @property
    def origin(self) -> dict[str, str | None]:
        """Where the values are from, for a document that leaves this folder; times are UTC."""
        measured = self.tidy[self.tidy["status"] == "valid"]
        return {
            "host": str(measured["host"].iloc[0]),
            "configuration": str(measured["configuration"].iloc[0]),
            "cpu_model": self.topology.host.get("cpu_model"),
            "kernel_release": self.topology.host.get("kernel_release"),
            "measured_at_first": min(measured["measured_at"].dropna(), default=None),
            "measured_at_last": max(measured["measured_at"].dropna(), default=None),
            "chaosity_version": __version__,
        }

    @property
    def alone(self) -> pd.DataFrame:
        """Rows of points that had a single load."""
        return self.tidy[load_counts(self.tidy) == 1.0]


@dataclass(frozen=True)
class NodeMeasurements:
    """Memory from each initiator node to each target node.

    Attributes:
        said: what was measured: experiment, load, benchmark, kernel, metric and so on.
        cells: as `summarise`, with columns `initiator_node` and `target_node`; those without a
            valid replicate too.
        matrix: the valid replicates.
    """

    said: Mapping[str, str | None]
    cells: pd.DataFrame
    matrix: NodeMatrix

    @property
    def valid(self) -> Iterator[tuple[int, int, pd.Series]]:
        """Initiator node, target node and cell of what was measured, in that order."""
        for _, cell in self.cells[self.cells["n"] > 0].iterrows():
            yield int(cell["initiator_node"]), int(cell["target_node"]), cell

    @property
    def missing(self) -> list[tuple[int, int, str]]:
        """Initiator node, target node and reason of what was planned and has no value."""
        cells = self.cells[self.cells["n"] == 0]
        columns = (cells[name] for name in ("initiator_node", "target_node", "reason"))
        rows = zip(*columns, strict=True)
        return [
            (int(row), int(column), text(reason) or "not measured yet")
            for row, column, reason in rows
        ]

    @property
    def words(self) -> str:
        """What it is, such as "triad of memory_bandwidth, chaosity_bandwidth"."""
        kernel = f"{self.said['kernel']} of " if self.said["kernel"] else ""
        return f"{kernel}{self.said['experiment']}, {self.said['benchmark']}"


def read_measured_host(folder: Path) -> MeasuredHost:
    """A folder of results, ``results/<host>/<configuration>``.

    Raises:
        UserError: it is none, or nothing in it was measured.
    """
    table, topology = folder / TABLE, folder / "topology.json"
    for path in (topology, folder / "topology.xml", table):
        if not path.exists():
            raise UserError(
                f"there is no {path.name}",
                str(folder),
                "give a folder results/HOST/CONFIGURATION that was measured",
            )
    tidy = plain(read_table(table))
    if not (tidy["status"] == "valid").any():
        raise UserError("nothing was measured yet", str(table), "run `make run`")
    try:
        found = topology_from_json(json.loads(topology.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("is no topology", str(topology)) from error
    return MeasuredHost(folder, tidy, found)


def select_node_measurements(host: MeasuredHost, metric: str) -> NodeMeasurements | None:
    """The measurements that tell most of memory by node; None when there are none.

    Of several (kernels, experiments) the one with the most pairs of nodes, then triad, then the one
    of the larger experiment, then the one with the most replicates.

    Args:
        host: what was measured.
        metric: bandwidth or latency, by its full name.
    """
    rows = host.alone
    rows = rows[(rows["metric"] == metric) & rows["category"].str.startswith(_MEMORY, na=False)]
    rows = rows[(rows["target_kind"] == "node") & rows["drives"].isna()]
    rows = rows[rows["initiator_kind"].isin(_STANDS_FOR_NODE[metric])]
    for column in ("initiator_nodes", "target_nodes"):
        rows = rows[rows[column].astype(str).str.fullmatch(r"\d+")]
    rows = rows.assign(
        levels=rows["levels"].fillna("{}"),
        initiator_node=rows["initiator_nodes"].astype(int),
        target_node=rows["target_nodes"].astype(int),
    )
    found: list[tuple[int, NodeMeasurements]] = []
    sizes = rows["experiment"].value_counts()
    sweeps = _sweeps(rows)
    for key, own in rows.groupby(list(SLICE), sort=False, dropna=False):
        said = dict(zip(SLICE, (None if pd.isna(part) else part for part in key), strict=True))
        several = own.groupby("initiator_node")["initiator"].nunique().max() > 1
        if not several and said["experiment"] not in sweeps:
            found.append((int(sizes[said["experiment"]]), _of_slice(said, own)))
    best = max(found, key=_told, default=None)
    return best[1] if best and best[1].matrix.samples else None


def select_node_bandwidths(host: MeasuredHost) -> NodeMeasurements:
    """The bandwidths that weights are computed from.

    Raises:
        UserError: there are none.
    """
    found = select_node_measurements(host, BANDWIDTH)
    if found is None:
        raise UserError(
            "no bandwidth from a node to a node was measured", str(host.folder), "run `make run`"
        )
    return found


def _sweeps(rows: pd.DataFrame) -> set[str]:
    """Experiments in which the working set has several sizes."""
    working_set = rows["levels"].map(lambda levels: json.loads(levels).get(_WORKING_SET))
    sizes = working_set.groupby(rows["experiment"]).nunique()
    return set(sizes[sizes > 1].index)


def _told(one: tuple[int, NodeMeasurements]) -> tuple[int, bool, int, int]:
    size, cells = one
    pairs, triad = len(cells.matrix.samples), cells.said["kernel"] == _KERNEL
    return pairs, triad, size, int(cells.cells["n"].sum())


def _of_slice(said: dict[str, Any], rows: pd.DataFrame) -> NodeMeasurements:
    cells = summarise(rows).sort_values(["initiator_node", "target_node"], ignore_index=True)
    samples = {
        (int(row), int(column)): tuple(cell["value"].astype(float))
        for (row, column), cell in valid(rows).groupby(["initiator_node", "target_node"])
    }
    matrix = NodeMatrix(
        metric=said["metric"],
        initiators=tuple(sorted({row for row, _ in samples})),
        targets=tuple(sorted({column for _, column in samples})),
        samples=samples,
        blocks={},
        source=said["experiment"],
    )
    return NodeMeasurements(said, cells, matrix)


def text(value: object) -> str | None:
    """A text of a table; pandas may have made a number of what is missing."""
    return value if isinstance(value, str) else None


def interval(cell: pd.Series) -> dict[str, float | int | None]:
    """A cell's median with its 95 % interval and n, in the metric's unit; null is no interval."""
    several = cell["n"] > 1
    return {
        "median": float(cell["median"]),
        "low": float(cell["low"]) if several else None,
        "high": float(cell["high"]) if several else None,
        "n": int(cell["n"]),
    }
