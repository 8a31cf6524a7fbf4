"""Fixtures of the tests of the topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology


@pytest.fixture(scope="session")
def own(root) -> Path:
    """The folder of topologies that ship with the tests; its README.md describes each."""
    return root / "tests/data/topologies"


@pytest.fixture(scope="session")
def epyc(own) -> Topology:
    """Two sockets in NPS4 with 30 drives."""
    return discover_topology(str(own / "epyc-7413-2s-nps4-30drives.xml"))


@pytest.fixture(scope="session")
def devices(own) -> Topology:
    """Two nodes with every kind of device."""
    return discover_topology(str(own / "devices.xml"))
