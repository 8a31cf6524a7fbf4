"""Loads that a fitted or a described machine predicts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from small_server import EXPERIMENTS, server

from chaosity.errors import UserError
from chaosity.records.record_format import Load, Point
from chaosity.result_folders import UNMEASURED_FILE
from chaosity.simulation.machine_description import read_machine_description
from chaosity.store.tidy_table_parquet import write_parquet_table
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fitted_description import (
    FittedMachine,
    fitted_machine_of_description,
    named_description,
)
from chaosity.twin.model_values import (
    loads_at_the_same_time,
    measured_medians,
    predict_loads,
    undetermined_parameters,
)
from machines import SMALL_MACHINES, SimulatedHost, refusal_by_chaosity, run_chaosity

RATE = "bandwidth_bytes_per_second"
LOCAL, REMOTE = "memory=node0+node0+triad", "memory=node1+node0+triad"
CHASE = "chase=pu0+node0+pages-thp"
LINK = "links.package_to_package_bytes_per_second"


def named(host: SimulatedHost, *names: str) -> list[Point]:
    by_name = {point["point"]: point for point in host.points}
    return [by_name[name] for name in names]


def loads_of(host: SimulatedHost, *names: str) -> list[Load]:
    return loads_at_the_same_time(named(host, *names), host.topology)


def unsure(fitted: FittedMachine, host: SimulatedHost, loads: list[Load]) -> list[str]:
    return [each.name for each in undetermined_parameters(fitted, host.topology, loads)]


def fit_of(host: SimulatedHost, is_measured: Callable[[Point], bool]) -> FittedMachine:
    """The fit of the measurements of some points."""
    points = [*filter(is_measured, host.points)]
    return fit_machine(host.table(1), points, host.topology)


def is_local(point: Point) -> bool:
    load = point["loads"][0]
    return load["initiator"]["nodes"] == load["target"]["nodes"]


def test_what_competes_for_a_controller_shares_it(
    host: SimulatedHost, fitted: FittedMachine
) -> None:
    loads = loads_of(host, LOCAL, REMOTE)
    truth = host.model.noiseless_results(loads)
    for each in predict_loads(fitted, host.topology, loads):
        right = truth[each.load].counted_bytes_per_second
        assert each.value < 0.8 * each.alone or each.load == REMOTE
        assert each.low <= each.value <= each.high
        assert each.low * 0.99 < right < each.high * 1.01
        assert each.value == pytest.approx(right, rel=0.03)
        assert each.misfit_of == "all values"  # of few loads together the fit knows the values


def test_loads_that_share_nothing_are_as_fast_as_alone(
    host: SimulatedHost, fitted: FittedMachine
) -> None:
    loads = loads_of(host, LOCAL, "memory=node1+node1+triad")
    for each in predict_loads(fitted, host.topology, loads):
        assert each.value == pytest.approx(each.alone, rel=1e-6)
    [alone] = predict_loads(fitted, host.topology, loads[:1])
    assert alone.misfit_of == "memory alone"


def test_draws_scatter_as_the_intervals_say(fitted: FittedMachine) -> None:
    drawn = [*fitted.draws(400, 1)]
    for each in fitted.parameters:
        if each.low and each.high:
            inside = [each.low <= values[each.parameter] <= each.high for values in drawn]
            assert 0.9 < sum(inside) / len(inside) <= 1.0, each.parameter.name
    assert [*fitted.draws(3, 7)] == [*fitted.draws(3, 7)]


def test_a_capacity_that_no_measurement_determines_widens_the_interval() -> None:
    """Without measurements from the other package, the link between packages may limit or not."""
    host = server(experiments=EXPERIMENTS[:2])

    def is_near(point: Point) -> bool:
        one = point["loads"][0]["initiator"]["threads"] == 1
        return is_local(point) or one or point["experiment"] == "latency_matrix"

    fitted, loads = fit_of(host, is_near), loads_of(host, REMOTE)
    [each] = predict_loads(fitted, host.topology, loads)
    assert LINK in unsure(fitted, host, loads)
    assert (
        each.low
        < host.model.noiseless_results(loads)[each.load].counted_bytes_per_second
        < each.high
    )
    assert each.high > 1.3 * each.low


def test_what_no_measurement_uses_is_refused(host: SimulatedHost) -> None:
    fitted = fit_of(host, lambda point: is_local(point) and "storage" not in point["point"])
    for name, parameter, remedy in (
        (REMOTE, "links.node_to_package_bytes_per_second", "memory on other nodes"),
        ("chase=pu0+node1+pages-thp", "latency_ns.other_package", "latency by size and node"),
        (
            "storage=node0+drive-0000-01-00-0",
            "drives.read_bytes_per_second",
            "bandwidth of drives",
        ),
    ):
        with pytest.raises(UserError, match=f"depends on {parameter}; measure .*{remedy}"):
            unsure(fitted, host, loads_of(host, name))


def test_a_latency_in_unmeasured_queues_is_named(
    host: SimulatedHost, fitted: FittedMachine
) -> None:
    loads = loads_of(host, CHASE, REMOTE)
    assert "latency_ns.queue" in unsure(fitted, host, loads)
    [chase, _] = predict_loads(fitted, host.topology, loads)
    assert (
        chase.low < (host.model.noiseless_results(loads)[chase.load].latency_ns or 0.0) < chase.high
    )


def test_a_slow_drive_stays_slow_beside_other_loads(
    host: SimulatedHost, slow_drive: str, fitted_with_slow_drive: FittedMachine
) -> None:
    loads = loads_of(host, f"storage=node0+{slow_drive}", LOCAL)
    # The drive has a factor; then it becomes slower still, which no parameter explains.
    for alone, departing in ((4.08e9, False), (2e9, True)):
        medians = {(loads[0]["name"], RATE): alone}
        [drive, _] = predict_loads(fitted_with_slow_drive, host.topology, loads, medians)
        assert drive.departs == departing
        assert drive.alone == pytest.approx(4.08e9, rel=0.02)
        assert drive.low and drive.high and drive.low < alone < 1.03 * drive.high
        assert drive.value <= 1.01 * alone


def test_loads_that_cannot_be_predicted_are_refused(host: SimulatedHost) -> None:
    both = "both use the core of processing unit 0"
    with pytest.raises(UserError, match=both):
        loads_of(host, LOCAL, LOCAL)
    first, *others = host.topology.cores
    with_smt = replace(host.topology, cores=(replace(first, cpus=(0, 64)), *others))
    [point] = named(host, LOCAL)
    [load] = point["loads"]
    sibling: Load = {**load, "initiator": {**load["initiator"], "cpus": "64"}}
    beside: Point = {**point, "loads": [sibling]}
    assert len(loads_at_the_same_time([beside], with_smt)) == 1
    with pytest.raises(UserError, match=both):
        loads_at_the_same_time([point, beside], with_smt)
    [point] = named(host, "storage=node0+drive-0000-01-00-0")
    writes: Point = {**point, "loads": [{**point["loads"][0], "writes": True}]}
    with pytest.raises(UserError, match=r"storage_bandwidth/storage=node0.*no GPUs, writes"):
        loads_at_the_same_time([writes], host.topology)


def test_parts_of_a_measured_combination_are_found_alone_and_together(host: SimulatedHost) -> None:
    both = next(point for point in host.points if len(point["loads"]) == 2)
    loads = loads_at_the_same_time([both], host.topology)
    for asked in (loads, loads[:1], loads[1:]):
        assert measured_medians(host.true_table, host.points, asked) == pytest.approx(
            {
                (name, RATE): each.counted_bytes_per_second
                for name, each in host.model.noiseless_results(asked).items()
            }
        )
    twice = [loads[0], {**loads[0], "name": "other"}]
    assert not measured_medians(host.true_table, host.points, twice)


def test_points_that_cannot_be_predicted_are_refused(
    host: SimulatedHost, folder: Path, tmp_path: Path
) -> None:
    said = refusal_by_chaosity(
        "predict", folder, "--with=memory_bandwidth/memory=node0+node9+triad"
    )
    assert "has no such point; use memory_bandwidth/memory=node0+node" in said
    assert len(said) < 400
    rows = host.true_table.rows
    left = shutil.copytree(folder, tmp_path / "nps1")
    (left / "points/memory_bandwidth" / f"{LOCAL}.json").unlink()
    write_parquet_table(rows[rows["point"] == LOCAL], left / UNMEASURED_FILE)
    said = refusal_by_chaosity("predict", left, f"--with=memory_bandwidth/{LOCAL}")
    assert "the budget left this point out" in said


HAND_WRITTEN = SMALL_MACHINES / "fleet.yaml"
TOPOLOGY = SMALL_MACHINES / "fleet.xml"


@pytest.fixture
def twin(fitted: FittedMachine, tmp_path: Path) -> Path:
    """The file of the fitted machine."""
    path = tmp_path / "twin.yaml"
    document = named_description(fitted, "twin", "node01", "nps1", simulated=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def asked(machine: Path, name: str, *more: str) -> list[str]:
    """The command that asks a description for a load on memory."""
    given = [f"--machine={machine}", f"--topology={TOPOLOGY}"]
    return ["predict", *given, f"--with=memory_bandwidth/{name}", *more]


def hand_written(folder: Path, **changes: object) -> Path:
    """The description of the server with other keys; None leaves one out."""
    document = yaml.safe_load(HAND_WRITTEN.read_text()) | changes
    path = folder / HAND_WRITTEN.name
    path.write_text(yaml.safe_dump({key: own for key, own in document.items() if own is not None}))
    return path


def test_a_file_of_a_fit_predicts_as_the_fit_does(
    host: SimulatedHost, fitted: FittedMachine, twin: Path
) -> None:
    loads = loads_of(host, LOCAL, REMOTE)
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
        json.loads(run_chaosity(*asked(path, LOCAL, "--json")))["predicted"][0]["value"]
        for path in (HAND_WRITTEN, own)
    )
    assert slow == pytest.approx(right / 2, rel=0.01)


def test_a_changed_number_outside_of_its_interval_is_refused(twin: Path) -> None:
    document = yaml.safe_load(twin.read_text())
    document["memory"]["package_bytes_per_second"] = 1e9
    twin.write_text(yaml.safe_dump(document))
    said = refusal_by_chaosity(*asked(twin, LOCAL))
    assert "package_bytes_per_second is 1e+09, but its interval is" in said
    assert "remove the key fitted" in said


def test_missing_numbers_and_points_are_refused(tmp_path: Path) -> None:
    said = refusal_by_chaosity(*asked(HAND_WRITTEN, "memory=node0+node9+triad"))
    assert "fleet.xml has no such point; use" in said
    own = hand_written(tmp_path, drives=None)
    drive = "--with=storage_bandwidth/storage=node0+drive-0000-01-00-0"
    said = refusal_by_chaosity(*asked(own, LOCAL, drive))
    assert "no drives.read_bytes_per_second" in said


def test_contradicting_arguments_are_refused(tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    for arguments in (
        [f"--machine={HAND_WRITTEN}", "--with=memory_bandwidth/x"],
        [f"--machine={HAND_WRITTEN}", f"--topology={HAND_WRITTEN}"],
        [str(tmp_path), f"--machine={HAND_WRITTEN}"],
    ):
        said = refusal_by_chaosity("predict", *arguments)
        assert "--machine needs --topology and --with, and no FOLDER" in said
    assert "no FOLDER is named" in refusal_by_chaosity("predict")
