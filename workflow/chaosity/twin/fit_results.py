"""Fit the model to the results and findings of a host, or read the description of a machine.

A fault concerns one part of the machine. A finding names the initiators and targets of the slow
cells. The faulty part is the part of the model that all these cells use: the controllers of a node,
a core, a drive, a link between packages, or a path from drives to the memory of a package. The fit
determines which share of the part's capacity remains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, Findings
from chaosity.anomalies.host_anomalies import (
    analyse_host,
    host_component_facts,
    why_results_are_unusable,
)
from chaosity.components import drive_component_name, read_component_documents
from chaosity.documents.machines import Fault
from chaosity.errors import UserError
from chaosity.place_names import PlaceName, packages_of_link, parse_place_name
from chaosity.records.record_format import Point
from chaosity.result_folders import existing_tidy_table
from chaosity.simulation.machine_description import read_machine_description
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.store.tidy_table_from_records import read_points
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fitted_description import FittedMachine, fitted_machine_of_description


def faults_of_findings(findings: Findings, topology: Topology) -> list[Fault]:
    """Return the faults that can explain the findings of a host, without the key `remaining`.

    Suspicions are included, and each path between packages is returned in both directions. The fit
    then drops the faults that explain nothing. Findings on latency are skipped, since the returned
    faults make no latency longer.
    """
    found: dict[str, Fault] = {}
    for anomaly in (*findings.anomalies, *findings.suspicions):
        if not less_is_better(anomaly.metric):
            for fault in _faults_of_anomaly(anomaly, topology):
                found.setdefault(json.dumps(fault, sort_keys=True), fault)
    return list(found.values())


def _faults_of_anomaly(anomaly: Anomaly, topology: Topology) -> Iterator[Fault]:
    """Yield the faults that can explain an anomaly."""
    if anomaly.kind not in (AnomalyKind.SLOW_COMPONENT, AnomalyKind.SLOW_PATH):
        return
    initiators, targets = zip(*anomaly.cells, strict=True)
    places = [parse_place_name(end) for end in dict.fromkeys(targets)]
    drives = [own for own in places if own and own.has_drives]
    packages = {
        package
        for end in initiators
        for package in _packages_of_place(parse_place_name(end), topology)
    }
    if drives and anomaly.kind == AnomalyKind.SLOW_PATH:
        yield from _faults_of_drive_paths(anomaly, drives, packages, topology)
        return
    for name in anomaly.components:
        place = parse_place_name(name)
        if link := packages_of_link(name):
            yield Fault(fault="slow_link", from_package=link[0], to_package=link[1])
        elif place is None:
            # The finding names a path from the cores of a place to the memory of another place.
            ends = [_packages_of_place(parse_place_name(end), topology) for end in name.split("->")]
            for begin, end in (ends, ends[::-1]) if len(ends) == 2 else ():
                if len(begin) == len(end) == 1 and begin != end:
                    yield Fault(fault="slow_link", from_package=min(begin), to_package=min(end))
        elif place.is_single_drive:
            yield Fault(fault="slow_drive", drive=name)
        elif place.kind == "core":
            yield Fault(fault="slow_core", core=place.indices[0])
        elif place.kind == "pu":
            yield Fault(fault="slow_core", core=topology.core_of_pu[place.indices[0]].index)
        elif place.kind == "l3":
            yield Fault(fault="slow_l3_domain", l3_domain=place.indices[0])
        elif place.kind == "node" and all(target == place for target in places):
            yield Fault(fault="slow_node", node=place.indices[0])


def _faults_of_drive_paths(
    anomaly: Anomaly, targets: list[PlaceName], readers: set[int], topology: Topology
) -> Iterator[Fault]:
    """Yield the faults that can explain why packages (the readers) read drives slowly.

    Args:
        anomaly: names the drives that share a part, their nodes, or two packages.
        targets: the drives and drive sets that are slow.
        readers: packages of the initiators.
        topology: the topology of the host.
    """
    named = [place for name in anomaly.components if (place := parse_place_name(name))]
    drives = [str(place) for place in named if place.is_single_drive]
    nodes = [node for place in named for node in _nodes_of_drives(place, topology)]
    if len(drives) > 1:
        yield Fault(fault="slow_port", drives=drives)
        return
    of_sets = [set(_nodes_of_drives(place, topology)) for place in targets]
    nodes = nodes or sorted(set().union(*of_sets))  # the finding names no drive and no node
    own = {
        package
        for node in nodes
        for package in _packages_of_place(parse_place_name(node), topology)
    }
    is_shared = len(named) > 1 or not (named or all({node} in of_sets for node in nodes))
    for reader in sorted(readers - own):
        if is_shared:
            yield Fault(fault="shared_drive_path", drive_nodes=nodes, to_package=reader)
        else:
            for node in nodes:
                yield Fault(fault="slow_drive_path", drive_node=node, to_package=reader)


def _packages_of_place(place: PlaceName | None, topology: Topology) -> set[int]:
    """Return the packages to which the cores or the memory of a place belong."""
    if place is None:
        return set()
    if place.kind == "package":
        return {*place.indices}
    if place.kind in ("pu", "core"):
        cores = (core for core in topology.cores if core.index in place.indices)
        units = (
            place.indices if place.kind == "pu" else [unit for own in cores for unit in own.cpus]
        )
        nodes = topology.nodes_of_pus(units)
    else:
        nodes = place.nodes_in_name
    found = {topology.package_of_node[node] for node in nodes if node in topology.package_of_node}
    return found.union(*(_packages_of_place(group, topology) for group in place.groups))


def _nodes_of_drives(place: PlaceName, topology: Topology) -> tuple[int, ...]:
    """Return the nodes of a drive or drive set, or the given node; empty for unknown nodes."""
    if place.is_single_drive:
        found = (each for each in topology.drives if drive_component_name(each) == str(place))
        return tuple(drive.node for drive in found if drive.node is not None)
    return place.nodes_in_name


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
        """Return the results of a host that are in a folder.

        Raises:
            UserError: the folder has no results of a run.
        """
        measured = Measurements.read(existing_tidy_table(folder))
        topology = read_topology(folder / "topology.json")
        if topology is None:
            remedy = "name a folder results/HOST/CONFIGURATION of a run"
            raise UserError("topology.json is missing", str(folder), remedy)
        return cls(folder, measured, list(read_points(folder / "points")), topology)

    @cached_property
    def unusable(self) -> str:
        """Return the report's text on useless results and what to do; "" for usable results."""
        return why_results_are_unusable(self.measured)

    def fit(self) -> FittedMachine:
        """Return the machine that fits the results best.

        Only parts that the findings of the host name can be faulty.
        """
        components = read_component_documents(self.folder / "components")
        facts = host_component_facts(self.topology, components)
        faults = faults_of_findings(analyse_host(self.measured, facts), self.topology)
        return fit_machine(self.measured, self.points, self.topology, faults)


def read_described_machine(machine: Path, topology_file: Path) -> tuple[FittedMachine, Topology]:
    """Return the machine of a description, such as the output of `chaosity fit`, and its topology.

    Args:
        machine: the description, a YAML file.
        topology_file: the topology of the machine, an XML file of hwloc.

    Raises:
        UserError: a file is not readable or wrong.
    """
    topology = discover_topology(str(topology_file))
    description = read_machine_description(machine, topology)
    return fitted_machine_of_description(description, topology, str(machine)), topology
