"""Inventories of tests, whose hosts are this machine or simulated."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from chaosity.documents.shipped_documents import ROOT

# The variables of a host that is this machine.
THIS_MACHINE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
SMALL_MACHINES = ROOT / "tests/data/machines"
SHIPPED_MACHINES = ROOT / "templates/machines"
# Its README.md describes each.
OWN_TOPOLOGIES = ROOT / "tests/data/topologies"
SHIPPED_TOPOLOGIES = SHIPPED_MACHINES / "topologies"


def write_inventory(path: Path, hosts: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write an inventory with these hosts and their variables, and return its path."""
    document = {"all": {"hosts": {name: dict(variables) for name, variables in hosts.items()}}}
    path.write_text(yaml.safe_dump(document))
    return path


def machine_file(name: str) -> Path:
    """Return the file that describes a simulated machine."""
    return _first(name, "yaml", (SMALL_MACHINES, SHIPPED_MACHINES))


def topology_file(name: str) -> Path:
    """Return the file with the topology of a simulated machine."""
    return _first(name, "xml", (SMALL_MACHINES, SHIPPED_TOPOLOGIES, OWN_TOPOLOGIES))


def simulated_host(machine: str, topology: str | None = None) -> dict[str, str]:
    """Return the variables of a simulated host; its topology has by default the machine's name."""
    return {
        "chaosity_topology": str(topology_file(topology or machine)),
        "chaosity_simulated": str(machine_file(machine)),
    }


def _first(name: str, kind: str, folders: tuple[Path, ...]) -> Path:
    return next(path for folder in folders if (path := folder / f"{name}.{kind}").exists())
