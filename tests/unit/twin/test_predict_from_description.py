"""Loads are predicted from a description of a machine, with intervals if it keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.simulation.machine_description import read_machine_description
from chaosity.twin.fitted_description import (
    FittedMachine,
    fitted_machine_of_description,
    named_description,
)
from chaosity.twin.model_values import joined_loads, predict_loads
from machines import SMALL_MACHINES, SimulatedHost

HAND_WRITTEN = SMALL_MACHINES / "fleet.yaml"
TOPOLOGY = SMALL_MACHINES / "fleet.xml"
LOCAL, REMOTE = "memory=node0+node0+triad", "memory=node1+node0+triad"


@pytest.fixture
def twin(fitted: FittedMachine, tmp_path: Path) -> Path:
    """The file of the fitted machine."""
    path = tmp_path / "twin.yaml"
    document = named_description(fitted, "twin", "node01", "nps1", simulated=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def predict(machine: Path, *names: str, more: tuple[str, ...] = ()) -> Any:
    points = [f"--with=memory_bandwidth/{name}" for name in names]
    arguments = [f"--machine={machine}", f"--topology={TOPOLOGY}", *points, *more]
    return CliRunner().invoke(chaosity, ["predict", *arguments])


def hand_written(folder: Path, **changes: object) -> Path:
    """The description of the server with other keys; None leaves one out."""
    document = yaml.safe_load(HAND_WRITTEN.read_text()) | changes
    path = folder / HAND_WRITTEN.name
    path.write_text(yaml.safe_dump({key: own for key, own in document.items() if own is not None}))
    return path


def test_a_file_of_a_fit_predicts_as_the_fit_does(
    host: SimulatedHost, fitted: FittedMachine, twin: Path
) -> None:
    by_name = {point["point"]: point for point in host.points}
    loads = joined_loads([by_name[LOCAL], by_name[REMOTE]], host.topology)
    again = fitted_machine_of_description(
        read_machine_description(twin, host.topology), host.topology, str(twin)
    )
    for first, second in zip(
        *(predict_loads(machine, host.topology, loads) for machine in (fitted, again)), strict=True
    ):
        assert second.value == pytest.approx(first.value, rel=1e-4)
        assert (second.load, second.misfit_of) == (first.load, first.misfit_of)
        assert first.low and first.high and second.low and second.high
        ends = pytest.approx((first.low, first.high), rel=1e-3)
        assert (second.low, second.high) == ends


# What the command prints is in tests/golden/predict.txt.
def test_faults_of_the_description_count(tmp_path: Path) -> None:
    own = hand_written(tmp_path, faults=[{"fault": "slow_node", "node": 0, "remaining": 0.5}])
    right, slow = (
        json.loads(predict(path, LOCAL, more=("--json",)).output)["predicted"][0]["value"]
        for path in (HAND_WRITTEN, own)
    )
    assert slow == pytest.approx(right / 2, rel=0.01)


def test_a_changed_number_outside_of_its_interval_is_refused(twin: Path) -> None:
    document = yaml.safe_load(twin.read_text())
    document["memory"]["package_bytes_per_second"] = 1e9
    twin.write_text(yaml.safe_dump(document))
    done = predict(twin, LOCAL)
    assert isinstance(done.exception, UserError)
    assert "package_bytes_per_second is 1e+09, but its interval is" in str(done.exception)
    assert "remove the key fitted" in str(done.exception)


def test_missing_numbers_and_points_are_refused(tmp_path: Path) -> None:
    done = predict(HAND_WRITTEN, "memory=node0+node9+triad")
    assert "fleet.xml has no such point; use" in str(done.exception)
    own = hand_written(tmp_path, drives=None)
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
        done = CliRunner().invoke(chaosity, ["predict", *arguments])
        assert "--machine needs --topology and --with, and no FOLDER" in str(done.exception)
    assert "no FOLDER is named" in str(CliRunner().invoke(chaosity, ["predict"]).exception)
