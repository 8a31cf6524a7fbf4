"""The fits of a small server that several files read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_server import EXPERIMENTS, fit, server

from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.simulation.machine_description import Fault
from chaosity.store.tidy_table_parquet import write_parquet_table
from chaosity.topology.topology_model import topology_to_json
from chaosity.twin.fitted_description import FittedMachine
from machines import SimulatedHost


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
def folder(host: SimulatedHost, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the server without faults."""
    folder = tmp_path_factory.mktemp("results") / "node01" / "nps1"
    for point in host.points:
        path = folder / "points" / point["experiment"] / f"{point['point']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(point))
    (folder / "topology.json").write_text(json.dumps(topology_to_json(host.topology)))
    write_parquet_table(host.table(1).rows, folder / MEASUREMENTS_FILE)
    return folder
