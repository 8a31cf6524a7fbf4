"""A small server of which a fit takes a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chaosity.documents.config import read_config
from chaosity.simulation.machine_description import Fault
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fit_results import faults_of_findings
from chaosity.twin.fitted_description import FittedMachine
from machines import SimulatedHost, shipped_machine, shipped_topology

EXPERIMENTS = ("memory_bandwidth", "latency_matrix", "storage_bandwidth", "interference")


def server(faults: Sequence[Fault] = (), experiments: Sequence[str] = EXPERIMENTS) -> SimulatedHost:
    """A server with two nodes and four cores, and two drives, at each."""
    real = shipped_topology("fleet")
    more = [replace(drive, pci=drive.pci.replace("1:00", "2:00")) for drive in real.drives]
    more = [replace(drive, name=f"{drive.name}b") for drive in more]
    topology = replace(real, drives=(*real.drives, *more))
    config = {**read_config(), "experiments": list(experiments)}
    machine = shipped_machine("fleet", topology)
    return SimulatedHost.planned(machine, topology, faults, config, all_points=True)


def fit(host: SimulatedHost, seed: int = 1) -> FittedMachine:
    faults = faults_of_findings(host.findings(seed), host.topology)
    return fit_machine(host.table(seed), host.points, host.topology, faults)
