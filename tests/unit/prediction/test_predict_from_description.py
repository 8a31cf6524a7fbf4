"""Loads are predicted from a description of a machine, with intervals if it keeps them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from chaosity.cli.predict import predict_command
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError
from chaosity.prediction.fit_machine import fit_machine
from chaosity.prediction.fitted_description import (
    FittedMachine,
    named_description,
    read_fitted,
)
from chaosity.prediction.predict_loads import joined_loads, predict_loads
from chaosity.simulation.machine_description import read_machine_description
from machines import SimulatedHost, planned, shipped_topology

TOPOLOGY = shipped_topology("xeon_8358")
HAND_WRITTEN = ROOT / "machines/xeon_8358.yaml"
LOCAL, REMOTE = "memory=node0+node0+triad", "memory=node1+node0+triad"


@pytest.fixture(scope="module")
def simulated() -> SimulatedHost:
    names = ["memory_bandwidth", "latency_matrix"]
    return planned("xeon_8358", all_points=True, experiments=names)


@pytest.fixture(scope="module")
def fitted(simulated: SimulatedHost) -> FittedMachine:
    return fit_machine(simulated.table_of_records(1), simulated.points, TOPOLOGY)


@pytest.fixture
def twin(fitted: FittedMachine, tmp_path: Path) -> Path:
    """The file of the fitted machine."""
    path = tmp_path / "twin.yaml"
    document = named_description(fitted, "twin", "node01", "nps1", simulated=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def predict(machine: Path, *names: str, more: tuple[str, ...] = ()) -> Any:
    topology = ROOT / "machines/topologies/xeon_8358.xml"
    points = [f"--with=memory_bandwidth/{name}" for name in names]
    arguments = [f"--machine={machine}", f"--topology={topology}", *points, *more]
    return CliRunner().invoke(predict_command, arguments)


def changed(path: Path, section: str, key: str, value: object) -> Path:
    document = yaml.safe_load(path.read_text())
    document[section][key] = value
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_file_of_a_fit_predicts_as_the_fit_does(
    simulated: SimulatedHost, fitted: FittedMachine, twin: Path
) -> None:
    by_name = {point["point"]: point for point in simulated.points}
    loads = joined_loads([by_name[LOCAL], by_name[REMOTE]], TOPOLOGY)
    again = read_fitted(read_machine_description(twin, TOPOLOGY), str(twin))
    for first, second in zip(
        *(predict_loads(machine, TOPOLOGY, loads) for machine in (fitted, again)), strict=True
    ):
        assert second.value == pytest.approx(first.value, rel=1e-4)
        assert (second.load, second.misfit_of) == (first.load, first.misfit_of)
        assert first.low and first.high and second.low and second.high
        ends = pytest.approx((first.low, first.high), rel=1e-3)
        assert (second.low, second.high) == ends


def test_the_command_prints_intervals_of_a_fitted_file_only(twin: Path) -> None:
    done = predict(twin, LOCAL, REMOTE)
    assert done.exit_code == 0, done.output
    assert "SIMULATED" in done.output
    assert "95 % interval" in done.output
    assert "No intervals" not in done.output
    done = predict(HAND_WRITTEN, LOCAL, REMOTE)
    assert done.exit_code == 0, done.output
    assert "95 % interval" not in done.output
    assert "No intervals" in done.output
    rows = json.loads(predict(HAND_WRITTEN, LOCAL, REMOTE, more=("--json",)).output)["predicted"]
    assert [row["load"] for row in rows] == [LOCAL, REMOTE]
    assert all(row["low"] is None and row["high"] is None for row in rows)


def test_faults_of_the_description_count(tmp_path: Path) -> None:
    own = Path(shutil.copy(HAND_WRITTEN, tmp_path / "xeon_8358.yaml"))
    document = yaml.safe_load(own.read_text())
    document["faults"] = [{"fault": "slow_node", "node": 0, "remaining": 0.5}]
    own.write_text(yaml.safe_dump(document))
    right, slow = (
        json.loads(predict(path, LOCAL, more=("--json",)).output)["predicted"][0]["value"]
        for path in (HAND_WRITTEN, own)
    )
    assert slow == pytest.approx(right / 2, rel=0.01)


def test_a_changed_number_outside_of_its_interval_is_refused(twin: Path) -> None:
    done = predict(changed(twin, "memory", "package_bytes_per_second", 1e9), LOCAL)
    assert isinstance(done.exception, UserError)
    assert "package_bytes_per_second is 1e+09, but its interval is" in str(done.exception)
    assert "remove the key fitted" in str(done.exception)


def test_missing_numbers_and_points_are_refused(tmp_path: Path) -> None:
    done = predict(HAND_WRITTEN, "memory=node0+node9+triad")
    assert "machines/topologies/xeon_8358.xml has no such point; use" in str(done.exception)
    own = Path(shutil.copy(HAND_WRITTEN, tmp_path / "xeon_8358.yaml"))
    document = yaml.safe_load(own.read_text())
    del document["drives"]
    own.write_text(yaml.safe_dump(document))
    drive = "--with=storage_bandwidth/storage=node0+drive-0000-01-00-0"
    done = predict(own, LOCAL, more=(drive,))
    assert "no drives.read_bytes_per_second" in str(done.exception)


def test_contradicting_arguments_are_refused(tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    for arguments in (
        [f"--machine={HAND_WRITTEN}", "--with=memory_bandwidth/x"],
        [f"--machine={HAND_WRITTEN}", f"--topology={HAND_WRITTEN}"],
        [str(tmp_path), f"--machine={HAND_WRITTEN}"],
    ):
        done = CliRunner().invoke(predict_command, arguments)
        assert "--machine needs --topology and --with, and no FOLDER" in str(done.exception)
    assert "no FOLDER is named" in str(CliRunner().invoke(predict_command, []).exception)
