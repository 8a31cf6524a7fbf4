"""Read the description of a simulated machine and check that it fits a topology."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, cast

from chaosity.components import drive_component_name
from chaosity.documents.checked_yaml import check_document, read_yaml
from chaosity.documents.machines import (
    FAULT_KINDS,
    KEYS_OF_EACH_FAULT,
    PART_OF_FAULT_KEY,
    Fault,
    MachineDescription,
    MachineFile,
)
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.topology.topology_model import Topology

KIND = "simulated_machine"
# Name of the file with the checked description among the results of a host. Simulating a record
# reads this file and no YAML.
MACHINE_FILE = "machine.json"

_ALWAYS = "0001-01-01"  # a fault without `since` began before any record


def read_machine_description(path: Path, topology: Topology) -> MachineDescription:
    """Return the description of a simulated machine.

    Raises:
        UserError: the file is wrong, or it names a part that the topology does not have.
    """
    machine = _read_with_base(path)
    for key in ("memory", "latency_ns"):
        if key not in machine:
            raise UserError(f"the key {key!r} is missing", f"{path}, the document")
    _check_parts(machine, topology, str(path))
    return machine


def _read_with_base(path: Path, users: frozenset[str] = frozenset()) -> MachineDescription:
    """Return a checked description, completed by the keys of the description on which it is based.

    `users` are the names of the descriptions that are based on this one.
    """
    users |= {path.stem}
    # YAML reads 2026-01-01 as a date; here and in `machine.json` it is a text.
    document = json.loads(json.dumps(read_yaml(path), default=str))
    check_document(document, MachineFile, str(path))
    if document[KIND] != path.stem:
        found = f"the file has `{KIND}: {document[KIND]}`"
        raise UserError(found, str(path), f"the file's name requires {path.stem!r}")
    base = document.get("based_on")
    if base is None:
        return cast(MachineDescription, document)
    # Descriptions that ship, and descriptions beside the file, which take precedence.
    folders = (ROOT / "templates/machines", path.parent)
    known = {file.stem: file for folder in folders for file in folder.glob("*.yaml")}
    others = known.keys() - users
    check_name_is_allowed(base, others, f"unknown machine {base!r}", f"{path}, based_on")
    return cast(MachineDescription, {**_read_with_base(known[base], users), **document})


def _check_parts(machine: MachineDescription, topology: Topology, where: str) -> None:
    """Check that the topology has each part that the description names."""
    known = {
        "node": {str(node.os_index) for node in topology.memory_nodes},
        "package": {str(package.os_index) for package in topology.packages},
        "drive": {drive_component_name(drive) for drive in topology.drives if drive.name},
        "core": {str(core.index) for core in topology.cores},
        "L3 domain": {str(domain.index) for domain in topology.l3_domains},
    }

    def check(kind: str, name: object, key: str) -> None:
        problem = f"the topology has no {kind} {name}"
        check_name_is_allowed(str(name), known[kind], problem, f"{where}, {key}")

    for node in machine["memory"].get("nodes", {}):
        check("node", node, "memory.nodes")
    if (unified := machine.get("devices", {}).get("memory_node")) is not None:
        check("node", unified, "devices.memory_node")
    for pair in machine["latency_ns"].get("pairs", {}):
        for node in pair.split("->"):
            check("node", node, f"latency_ns.pairs.{pair}")
    for number, fault in enumerate(machine.get("faults", [])):
        place, kind = f"{where}, faults.{number}", FAULT_KINDS[fault["fault"]]
        if missing := sorted(kind.keys - fault.keys()):
            raise UserError(f"the fault {fault['fault']} needs the key {missing[0]!r}", place)
        if extra := sorted(fault.keys() - kind.keys - kind.optional_keys - KEYS_OF_EACH_FAULT):
            raise UserError(f"unknown key {extra[0]!r} of the fault {fault['fault']}", place)
        try:
            date.fromisoformat(fault.get("since", _ALWAYS))
        except ValueError as error:
            wrong = f"{fault['since']} is not a date"
            raise UserError(wrong, f"{place}.since", "write the date as 2026-11-22") from error
        for key, value in fault.items():
            for name in value if isinstance(value, list) else [value]:
                if key in PART_OF_FAULT_KEY:
                    check(PART_OF_FAULT_KEY[key], name, f"faults.{number}.{key}")
        if kind.needs_drives and "drives" not in machine:
            remedy = "add the key `drives` with their rates"
            what = f"the fault {fault['fault']} needs drives, but the description has none"
            raise UserError(what, place, remedy)
        section, capacity = kind.capacity or ("", "")
        if capacity and capacity not in cast(dict[str, Any], machine).get(section, {}):
            what = f"the fault {fault['fault']} needs the capacity {section}.{capacity}"
            raise UserError(what, place)


def current_faults(machine: MachineDescription, host: str, today: date) -> list[Fault]:
    """Return the faults that a host of this machine has on a day."""
    return [
        fault
        for fault in machine.get("faults", [])
        if fault.get("host", host) == host
        and date.fromisoformat(fault.get("since", _ALWAYS)) <= today
    ]


def firmware_topology(
    machine: MachineDescription, topology: Topology, host: str, today: date
) -> Topology:
    """Return the topology as the machine's firmware and drivers report it.

    A GPU that uses the memory of a node has unified memory. The fault `swapped_distances` names two
    nodes. In the SLIT row of every other node, the distances to these two nodes are swapped.
    """
    distances = topology.distances
    for fault in current_faults(machine, host, today):
        if fault["fault"] != "swapped_distances" or not distances:
            continue
        first, second = (distances.nodes.index(node) for node in fault["nodes"])
        rows = [list(row) for row in distances.matrix]
        for place, row in enumerate(rows):
            if place not in (first, second):
                row[first], row[second] = row[second], row[first]
        distances = replace(distances, matrix=tuple(map(tuple, rows)))
    devices = topology.opencl_devices
    if "memory_node" in machine.get("devices", {}):
        devices = tuple(replace(device, unified_memory=True) for device in devices)
    return replace(topology, distances=distances, opencl_devices=devices)
