"""Hosts for design tests: made by hwloc, so that they mean something anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaosity.design.host_plan import PlannedHost
from chaosity.design.host_resources import HostResources
from chaosity.documents.config import read_config
from chaosity.topology.topology_model import configuration_name
from machines import shipped_topology


@pytest.fixture(scope="session")
def config():
    return read_config()


@pytest.fixture(scope="session")
def paper_host() -> PlannedHost:
    """The server of document 000: 2 packages, 8 nodes, drives 3,4,4,4,3,4,4,4."""
    topology = shipped_topology("epyc-7413-2s-nps4-30drives")
    return PlannedHost("milan", configuration_name(topology), topology)


@pytest.fixture(scope="session")
def resources(paper_host) -> HostResources:
    """The parts of the server of document 000, with its drives."""
    return HostResources(paper_host.topology, paper_host.drives_to_measure(Path("results")))
