"""Simulated hosts of which only some drive sets are measured, and the truth of the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from chaosity.checked_yaml_files import read_config
from chaosity.prediction.predict_drive_sets import PREDICTION_COLUMNS
from chaosity.records.point_types import Point
from chaosity.simulation.machine_description import Fault, MachineDescription
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import MISSING
from chaosity.topology.topology_model import Topology
from chaosity.yaml_document_types import Config
from simulated_tables import SimulatedHost, shipped_machine, shipped_topology

RANDOM_SETS = 58


@dataclass(frozen=True)
class SparseHost:
    """The tables of a run with a budget, and the true bandwidth of each point."""

    measured: Measurements
    unmeasured: Measurements
    truth: pd.Series

    @classmethod
    def of(
        cls, host: SimulatedHost, seed: int, *, all_pairs: bool = True, random: int = RANDOM_SETS
    ) -> SparseHost:
        """Measure drives, nodes, prefixes, pairs, packages, all drives and random other sets.

        Without `all_pairs`, only the first node of each package measures pairs of nodes.
        """
        wanted = {point["point"]: is_wanted(point, host, all_pairs) for point in host.points}
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


def is_wanted(point: Point, host: SimulatedHost, all_pairs: bool) -> bool:
    """Return whether a sparse design measures a point whatever was drawn."""
    [load] = point["loads"]
    packages = host.topology.package_of_node
    nodes, [reader] = set(load["target"]["nodes"]), load["initiator"]["nodes"]
    own = [node for node, package in packages.items() if package == packages[reader]]
    if len(nodes) == 2 and (all_pairs or reader == min(own)):
        return True
    of_package = {node for node in packages if packages[node] == packages[min(nodes)]}
    return len(nodes) == 1 or nodes in (of_package, {drive.node for drive in host.topology.drives})


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
    rate = machine["memory"]["package_bytes_per_second"] * memory
    faster: MachineDescription = {
        **machine,
        "memory": {**machine["memory"], "package_bytes_per_second": rate},
    }
    host = storage_host(topology, faster, machine["faults"])
    points = [
        point for point in host.points if point["loads"][0]["initiator"]["nodes"][0] in readers
    ]
    return replace(host, points=tuple(points))
