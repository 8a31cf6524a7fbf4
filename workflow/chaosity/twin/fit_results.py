"""Fit the model to the results of a host, or read a machine that was described."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chaosity.anomalies.host_anomalies import analyse_host, host_component_facts
from chaosity.components.component_files import read_component_documents
from chaosity.errors import UserError
from chaosity.records.point_types import Point
from chaosity.result_folders import measured_table
from chaosity.simulation.machine_description import read_machine_description
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import read_points
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.twin.faults_of_findings import faults_of_findings
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fitted_description import FittedMachine, read_fitted


def read_folder_to_fit(folder: Path) -> tuple[Measurements, list[Point], Topology]:
    """Return the tidy table, the planned points and the topology of a host.

    Raises:
        UserError: the folder is not that of a run.
    """
    measured = Measurements.read(measured_table(folder))
    topology = read_topology(folder / "topology.json")
    if topology is None:
        remedy = "name a folder results/HOST/CONFIGURATION of a run"
        raise UserError("topology.json is missing", str(folder), remedy)
    return measured, list(read_points(folder / "points")), topology


def fit_results(
    folder: Path, measured: Measurements, points: Sequence[Point], topology: Topology
) -> FittedMachine:
    """Return the machine that fits the results in a folder best, see `read_folder_to_fit`.

    The faulty parts are those that the findings of the host name.
    """
    components = read_component_documents(folder / "components")
    findings = analyse_host(measured, host_component_facts(topology, components))
    return fit_machine(measured, points, topology, faults_of_findings(findings, topology))


def read_described_machine(machine: Path, topology_file: Path) -> tuple[FittedMachine, Topology]:
    """Return the machine of a description, such as the output of `chaosity fit`, and its topology.

    Args:
        machine: the description, a YAML file.
        topology_file: its topology, an XML file of hwloc.

    Raises:
        UserError: a file is not readable or wrong.
    """
    topology = discover_topology(str(topology_file))
    return read_fitted(read_machine_description(machine, topology), str(machine)), topology
