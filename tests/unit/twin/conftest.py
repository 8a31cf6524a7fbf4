"""The fits of a small server that several files read."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_server import EXPERIMENTS, fit, server

from chaosity.simulation.machine_description import Fault
from chaosity.twin.fitted_description import FittedMachine
from machines import SimulatedHost, configuration_folder, simulated


@pytest.fixture(scope="session")
def host() -> SimulatedHost:
    return server()


@pytest.fixture(scope="session")
def fitted(host: SimulatedHost) -> FittedMachine:
    return fit(host)


@pytest.fixture(scope="session")
def slow_drive(host: SimulatedHost) -> str:
    return min(d["component"] for p in host.points for d in p["loads"][0]["target"]["drives"])


@pytest.fixture(scope="session")
def fitted_with_slow_drive(slow_drive: str) -> FittedMachine:
    fault: Fault = {"fault": "slow_drive", "drive": slow_drive, "remaining": 0.6}
    return fit(server([fault], EXPERIMENTS[:3]))


@pytest.fixture(scope="session")
def folder() -> Path:
    """Results of a server without faults."""
    return configuration_folder(simulated("fleet", ["memory_bandwidth"]))
