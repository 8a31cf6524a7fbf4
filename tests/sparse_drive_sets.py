"""Simulated hosts of which only some drive sets are measured, and the truth of the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from chaosity.checked_yaml_files import read_config
from chaosity.records.point_types import Point
from chaosity.rounds.point_priority import Priority, point_priority
from chaosity.simulation.machine_description import Fault, MachineDescription
from chaosity.store.left_out_points import PREDICTION_COLUMNS
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import MISSING
from chaosity.topology.topology_model import Topology
from chaosity.yaml_document_types import Config
from simulated_tables import SimulatedHost, shipped_machine, shipped_topology

RANDOM_SETS = 58
ALL_PAIRS, FEW_PAIRS, FIRST_ROUND = DESIGNS = "all pairs", "few pairs", "first round"


@dataclass(frozen=True)
class SparseHost:
    """The tables of a run with a budget, and the true bandwidth of each point."""

    measured: Measurements
    unmeasured: Measurements
    truth: pd.Series

    @classmethod
    def of(
        cls, host: SimulatedHost, seed: int, design: str = ALL_PAIRS, random: int = RANDOM_SETS
    ) -> SparseHost:
        """Measure what a design wants, and random sets among the others."""
        wanted = {point["point"]: is_wanted(point, host, design) for point in host.points}
        others = [name for name, chosen in wanted.items() if not chosen]
        draw = np.random.default_rng(seed)
        chosen = set(draw.choice(others, min(random, len(others)), replace=False))
        table = host.table(seed).rows.drop(columns="load_count")
        known = table["point"].map(lambda name: wanted[name] or name in chosen)
        missing = table[~known].assign(status=MISSING, value=np.nan, replicate=1)
        truth = host.true_table.rows.drop_duplicates("point").set_index("point")["value"]
        measured, unmeasured = map(Measurements.from_table, (table[known], missing))
        return cls(measured, unmeasured, truth)

    def errors(self, predictions: pd.DataFrame) -> pd.Series:
        """Return predicted : true bandwidth - 1."""
        return predictions["value"].astype(float) / self._true(predictions) - 1.0

    def within(self, predictions: pd.DataFrame) -> pd.Series:
        """Return whether the truth lies within each prediction interval."""
        assert list(predictions) == list(PREDICTION_COLUMNS)
        return self._true(predictions).between(predictions["low"], predictions["high"])

    def _true(self, predictions: pd.DataFrame) -> pd.Series:
        return predictions["point"].map(self.truth).astype(float)


def is_wanted(point: Point, host: SimulatedHost, design: str) -> bool:
    """Return whether a design measures a point whatever was drawn.

    `ALL_PAIRS`: drives, nodes, prefixes, pairs of nodes, packages and all drives. `FEW_PAIRS`: the
    same, but pairs from the first node of each package only. `FIRST_ROUND`: what a run with a
    budget measures before sets that other initiators measured.
    """
    if design == FIRST_ROUND:
        return point_priority(point, host.topology) <= Priority.ALONE
    [load] = point["loads"]
    packages = host.topology.package_of_node
    nodes, [reader] = set(load["target"]["nodes"]), load["initiator"]["nodes"]
    own = [node for node, package in packages.items() if package == packages[reader]]
    if len(nodes) == 2 and (design == ALL_PAIRS or reader == min(own)):
        return True
    of_package = {node for node in packages if packages[node] == packages[min(nodes)]}
    return len(nodes) == 1 or nodes in (of_package, {drive.node for drive in host.topology.drives})


def with_memory(machine: MachineDescription, times: float) -> MachineDescription:
    """Return the machine with so many times the bandwidth of its memory controllers."""
    rate = machine["memory"]["package_bytes_per_second"] * times
    return {**machine, "memory": {**machine["memory"], "package_bytes_per_second": rate}}


def storage_host(
    topology: Topology, machine: MachineDescription, faults: list[Fault], replicates: int = 3
) -> SimulatedHost:
    """Return a simulated host that reads drive sets alone."""
    config: Config = {
        **read_config(),
        "experiments": ["storage_bandwidth"],
        "replicates": replicates,
    }
    return SimulatedHost.planned(machine, topology, faults, config)


def paper_server(readers: Collection[int], memory: float = 1.0) -> SimulatedHost:
    """Return the server of the paper, whose drives are read from these nodes.

    With more memory bandwidth, paths limit its drives.
    """
    topology = shipped_topology("epyc_7413_nps4")
    machine = shipped_machine("epyc_7413_nps4", topology)
    host = storage_host(topology, with_memory(machine, memory), machine["faults"])
    points = [
        point for point in host.points if point["loads"][0]["initiator"]["nodes"][0] in readers
    ]
    return replace(host, points=tuple(points))
