"""Fit the model to the results of a host, or read a machine that was described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from chaosity.anomalies.host_anomalies import (
    analyse_host,
    host_component_facts,
    why_results_are_unusable,
)
from chaosity.components.component_documents import read_component_documents
from chaosity.errors import UserError
from chaosity.records.record_format import Point
from chaosity.result_folders import existing_tidy_table
from chaosity.simulation.machine_description import read_machine_description
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import read_points
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.twin.faults_of_findings import faults_of_findings
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fitted_description import FittedMachine, fitted_machine_of_description


@dataclass(frozen=True)
class ResultsToFit:
    """The results of a host in one configuration, to which the model is fitted.

    Attributes:
        folder: ``results/HOST/CONFIGURATION``.
        measured: the tidy table.
        points: the planned points.
        topology: the topology of the host.
    """

    folder: Path
    measured: Measurements
    points: Sequence[Point]
    topology: Topology

    @classmethod
    def read(cls, folder: Path) -> ResultsToFit:
        """Return the results in a folder.

        Raises:
            UserError: the folder is not that of a run.
        """
        measured = Measurements.read(existing_tidy_table(folder))
        topology = read_topology(folder / "topology.json")
        if topology is None:
            remedy = "name a folder results/HOST/CONFIGURATION of a run"
            raise UserError("topology.json is missing", str(folder), remedy)
        return cls(folder, measured, list(read_points(folder / "points")), topology)

    @cached_property
    def unusable(self) -> str:
        """Return why the results are useless and what to do, as the report says it; or ""."""
        return why_results_are_unusable(self.measured)

    def fit(self) -> FittedMachine:
        """Return the machine that fits the results best.

        The faulty parts are those that the findings of the host name.
        """
        components = read_component_documents(self.folder / "components")
        facts = host_component_facts(self.topology, components)
        faults = faults_of_findings(analyse_host(self.measured, facts), self.topology)
        return fit_machine(self.measured, self.points, self.topology, faults)


def read_described_machine(machine: Path, topology_file: Path) -> tuple[FittedMachine, Topology]:
    """Return the machine of a description, such as the output of `chaosity fit`, and its topology.

    Args:
        machine: the description, a YAML file.
        topology_file: its topology, an XML file of hwloc.

    Raises:
        UserError: a file is not readable or wrong.
    """
    topology = discover_topology(str(topology_file))
    description = read_machine_description(machine, topology)
    return fitted_machine_of_description(description, topology, str(machine)), topology
