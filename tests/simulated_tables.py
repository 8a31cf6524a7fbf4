"""Tidy tables of a simulated host for many seeds: its plan and true values are computed once.

`SimulatedHost.table` multiplies the true values by the noise of their runs, which is the same as in
the records of these runs. So a table takes milliseconds. This is exact for points with one load,
and for chases that run at the same time; the search for anomalies reads no others, so a host has
only these points unless all are requested. `SimulatedHost.table_of_records` works for all points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import compress
from statistics import fmean

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host, host_component_facts
from chaosity.checked_yaml_files import ROOT, read_config
from chaosity.components.make_component_documents import make_component_documents
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.records.atomic_writes_and_record_files import replicate_numbers
from chaosity.records.point_types import MetricSourceWithUpperBound, Point
from chaosity.records.record_types_and_verdict import SIMULATED, VALID
from chaosity.simulation.machine_description import (
    Fault,
    MachineDescription,
    firmware_topology,
    read_machine_description,
)
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_records import draw_noise, simulate_replicate
from chaosity.simulation.true_values import true_values
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.store.tidy_table_from_records import (
    ReplicateOutcome,
    status_and_values_of_record,
    tidy_rows_of_outcome,
)
from chaosity.store.tidy_table_parquet import COLUMNS, Row, rows_to_table
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from chaosity.yaml_document_types import Config, HostVariables

MACHINES = ROOT / "machines"
TODAY = date(2026, 11, 22)


def shipped_topology(name: str) -> Topology:
    """Return a topology that ships with the project."""
    return discover_topology(str(MACHINES / "topologies" / f"{name}.xml"))


def shipped_machine(name: str, topology: Topology) -> MachineDescription:
    """Return the description of a machine that ships with the project."""
    return read_machine_description(MACHINES / f"{name}.yaml", topology)


@dataclass(frozen=True)
class SimulatedHost:
    """A simulated host and its plan.

    Attributes:
        machine: its description.
        topology: its topology, as its firmware shows it.
        points: the planned points.
        name: its name, on which its random numbers and the fault of one host of a fleet depend.
    """

    machine: MachineDescription
    topology: Topology
    points: tuple[Point, ...]
    name: str

    @classmethod
    def planned(
        cls,
        machine: MachineDescription,
        topology: Topology,
        faults: list[Fault],
        config: Config | None = None,
        name: str = "host",
        *,
        all_points: bool = False,
    ) -> SimulatedHost:
        """Return a machine with these faults and no others, planned by a config."""
        faulty: MachineDescription = {**machine, "faults": faults}
        shown = firmware_topology(faulty, topology, name, TODAY)
        variables: HostVariables = {"chaosity_simulated": machine["simulated_machine"]}
        host = PlannedHost(name, configuration_name(topology), shown, variables)
        points = plan_host(host, config or read_config()).points
        wanted = points if all_points else filter(_is_read, points)
        return cls(faulty, shown, tuple(wanted), name)

    def without_drives_of_several_nodes(self) -> SimulatedHost:
        """Return the host without reads from drives of several nodes: most points of a server."""
        kinds = [point["loads"][0]["target"]["kind"] for point in self.points]
        kept = [kind != "all_of_nodes" for kind in kinds]
        return replace(self, points=tuple(compress(self.points, kept)))

    @cached_property
    def true_table(self) -> Measurements:
        """The tidy table without noise."""
        model = MachineModel(self.machine, self.topology, self.name, TODAY)
        rows: list[Row] = []
        for point in self.points:
            readings = {
                load: {metric: (value, None) for metric, value in values.items()}
                for load, values in true_values(point, model).items()
            }
            for replicate in replicate_numbers(point):
                order = point["orders"][replicate - 1]
                outcome = ReplicateOutcome(VALID, order=order, readings=readings, origin=SIMULATED)
                rows += tidy_rows_of_outcome(point, replicate, outcome)
        return Measurements.from_table(rows_to_table(rows, COLUMNS))

    def table(self, seed: int) -> Measurements:
        """Return the tidy table of a seed; without samples, no row can be "imprecise"."""
        factors, remarks = zip(*self._factors_and_remarks(seed), strict=True)
        values = self.true_table.rows["value"] * np.array(factors)
        remarked = pd.Series(remarks, index=values.index, dtype=object)
        return self.true_table.with_columns(value=values, remarks=remarked)

    def table_of_records(self, seed: int) -> Measurements:
        """Return the tidy table of a seed, by the records of all its points."""
        machine: MachineDescription = {**self.machine, "seed": seed}
        model = MachineModel(machine, self.topology, self.name, TODAY)
        rows: list[Row] = []
        for point in self.points:
            for replicate in replicate_numbers(point):
                record = simulate_replicate(point, replicate, model)
                rows += tidy_rows_of_outcome(point, replicate, status_and_values_of_record(record))
        return Measurements.from_table(rows_to_table(rows, COLUMNS))

    def findings(self, seed: int) -> Findings:
        """Return what the analysis finds, as for the report."""
        return analyse_host(self.table(seed), self.component_facts)

    @cached_property
    def component_facts(self) -> HostComponentFacts:
        """Packages, models and core kinds, for the search for anomalies."""
        return host_component_facts(self.topology, make_component_documents(self.topology))

    def _factors_and_remarks(self, seed: int) -> Iterator[tuple[float, str | None]]:
        """Yield the factor of each row of the table, and what its record remarks."""
        machine: MachineDescription = {**self.machine, "seed": seed}
        for point in self.points:
            for replicate in replicate_numbers(point):
                noise = draw_noise(point, replicate, machine)
                loads = zip(point["loads"], noise.qualities, noise.samples, strict=True)
                for load, quality, samples in loads:
                    for metric, source in load["metrics"].items():
                        factor = _factor(metric, source, quality, samples)
                        yield factor, "disturbed" if noise.lost else None


def _is_read(point: Point) -> bool:
    """Return whether the search for anomalies uses a point."""
    metrics = [load["metrics"] for load in point["loads"]]
    by_node = any("by_node" in source for own in metrics for source in own.values())
    return not by_node and (len(metrics) == 1 or all("latency_ns" in own for own in metrics))


def _factor(
    metric: str, source: MetricSourceWithUpperBound, quality: float, samples: list[float]
) -> float:
    """Return the factor by which the noise of a run changes a metric, see `draw_noise`."""
    if metric in ("locality", "dwp"):
        return 1.0
    if less_is_better(metric):
        return 1.0 / quality
    return quality * fmean(samples) if source.get("progress") else quality
