"""Loads at the same time are predicted from a fit that read none of these combinations."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli.predict import predict_command
from chaosity.documents.machines import Fault
from chaosity.errors import UserError
from chaosity.prediction.fit_machine import fit_machine
from chaosity.prediction.fitted_description import FittedMachine
from chaosity.prediction.predict_loads import (
    joined_loads,
    measured_medians,
    predict_loads,
    undetermined_parameters,
)
from chaosity.records.point_types import Load, Point
from chaosity.result_folders import MEASUREMENTS_FILE, UNMEASURED_FILE
from chaosity.simulation.machine_model import MachineModel
from chaosity.store.tidy_table_parquet import write_parquet_table
from chaosity.topology.topology_json import topology_to_json
from machines import TODAY, SimulatedHost, planned, shipped_machine, shipped_topology

TOPOLOGY = shipped_topology("xeon_8358")
MACHINE = shipped_machine("xeon_8358", TOPOLOGY)
EXPERIMENTS = ["memory_bandwidth", "latency_matrix", "storage_bandwidth"]
RATE = "bandwidth_bytes_per_second"
LOCAL, REMOTE = "memory=node0+node0+triad", "memory=node1+node0+triad"


def host(*experiments: str, faults: list[Fault] | None = None) -> SimulatedHost:
    return planned("xeon_8358", None, faults or (), all_points=True, experiments=list(experiments))


@pytest.fixture(scope="module")
def simulated() -> SimulatedHost:
    return host(*EXPERIMENTS)


@pytest.fixture(scope="module")
def fitted(simulated: SimulatedHost) -> FittedMachine:
    return fit_machine(simulated.table_of_records(1), simulated.points, TOPOLOGY)


def named(simulated: SimulatedHost, *names: str) -> list[Point]:
    by_name = {point["point"]: point for point in simulated.points}
    return [by_name[name] for name in names]


def test_what_competes_for_a_controller_shares_it(
    simulated: SimulatedHost, fitted: FittedMachine
) -> None:
    loads = joined_loads(named(simulated, LOCAL, REMOTE), TOPOLOGY)
    truth = MachineModel(MACHINE, TOPOLOGY, "host", TODAY).noiseless_results(loads)
    for each in predict_loads(fitted, TOPOLOGY, loads):
        right = truth[each.load].counted_bytes_per_second
        assert each.value < 0.8 * each.alone or each.load == REMOTE
        assert each.low <= each.value <= each.high
        assert each.low * 0.99 < right < each.high * 1.01
        assert each.value == pytest.approx(right, rel=0.03)


def test_loads_that_share_nothing_are_as_fast_as_alone(
    simulated: SimulatedHost, fitted: FittedMachine
) -> None:
    loads = joined_loads(named(simulated, LOCAL, "memory=node1+node1+triad"), TOPOLOGY)
    for each in predict_loads(fitted, TOPOLOGY, loads):
        assert each.value == pytest.approx(each.alone, rel=1e-6)


def test_draws_scatter_as_the_intervals_say(fitted: FittedMachine) -> None:
    drawn = [*fitted.draws(400, 1)]
    for each in fitted.parameters:
        if each.low and each.high:
            inside = [each.low <= values[each.parameter] <= each.high for values in drawn]
            assert 0.9 < sum(inside) / len(inside) <= 1.0, each.parameter.name
    assert [*fitted.draws(3, 7)] == [*fitted.draws(3, 7)]


def test_a_capacity_that_no_measurement_determines_widens_the_interval() -> None:
    """Without measurements from the other package, the link between packages may limit or not."""
    simulated = host(*EXPERIMENTS[:2])
    near = [
        point
        for point in simulated.points
        if point["loads"][0]["initiator"]["nodes"] == point["loads"][0]["target"]["nodes"]
        or point["experiment"] == "latency_matrix"
        or point["loads"][0]["initiator"]["threads"] == 1
    ]
    fit = fit_machine(simulated.table_of_records(1), near, TOPOLOGY)
    loads = joined_loads(named(simulated, REMOTE), TOPOLOGY)
    [each] = predict_loads(fit, TOPOLOGY, loads)
    assert "links.package_to_package_bytes_per_second" in [
        each.name for each in undetermined_parameters(fit, TOPOLOGY, loads)
    ]
    right = MachineModel(MACHINE, TOPOLOGY, "host", TODAY).noiseless_results(loads)
    assert each.low < right[each.load].counted_bytes_per_second < each.high
    assert each.high > 2 * each.low


def test_what_no_measurement_uses_is_refused(simulated: SimulatedHost) -> None:
    near = [
        point
        for point in simulated.points
        if point["loads"][0]["initiator"]["nodes"] == point["loads"][0]["target"]["nodes"]
        and not point["loads"][0]["target"]["drives"]
    ]
    fit = fit_machine(simulated.table_of_records(1), near, TOPOLOGY)
    latency = "chase=pu0+node1+pages-thp"
    drives = "storage=node0+drive-0000-01-00-0"
    for name, parameter, remedy in (
        (REMOTE, "links.node_to_package_bytes_per_second", "memory on other nodes"),
        (latency, "latency_ns.other_package", "latency by size and node"),
        (drives, "drives.read_bytes_per_second", "bandwidth of drives"),
    ):
        loads = joined_loads(named(simulated, name), TOPOLOGY)
        with pytest.raises(UserError, match=f"depends on {parameter}; measure .*{remedy}"):
            undetermined_parameters(fit, TOPOLOGY, loads)


def test_a_latency_in_unmeasured_queues_is_named(
    simulated: SimulatedHost, fitted: FittedMachine
) -> None:
    beside = joined_loads(
        named(simulated, "chase=pu0+node0+pages-thp", "memory=node1+node0+triad"), TOPOLOGY
    )
    assert "latency_ns.queue" in [
        each.name for each in undetermined_parameters(fitted, TOPOLOGY, beside)
    ]
    [chase, _] = predict_loads(fitted, TOPOLOGY, beside)
    right = MachineModel(MACHINE, TOPOLOGY, "host", TODAY).noiseless_results(beside)
    assert chase.low < (right[chase.load].latency_ns or 0.0) < chase.high


def test_a_slow_drive_stays_slow_beside_other_loads() -> None:
    drives = [
        each for p in host("storage_bandwidth").points for each in p["loads"][0]["target"]["drives"]
    ]
    slow = Fault(fault="slow_drive", drive=drives[0]["component"], remaining=0.5)
    simulated = host(*EXPERIMENTS, faults=[slow])
    fit = fit_machine(simulated.table_of_records(1), simulated.points, TOPOLOGY)
    [point] = [
        p
        for p in simulated.points
        if p["loads"][0]["target"]["drives"] == drives[:1]
        and p["loads"][0]["initiator"]["nodes"] == [0]
    ]
    loads = joined_loads([point, *named(simulated, LOCAL)], TOPOLOGY)
    # The drive has a factor; then it becomes slower still, which no parameter explains.
    for alone, departing in ((3.4e9, False), (1.7e9, True)):
        medians = {(loads[0]["name"], RATE): alone}
        found = {each.load: each for each in predict_loads(fit, TOPOLOGY, loads, medians)}
        drive = found[loads[0]["name"]]
        assert drive.departs == departing
        assert drive.alone == pytest.approx(3.4e9, rel=0.02)
        assert drive.low and drive.high and drive.low < alone < 1.03 * drive.high
        assert drive.value <= 1.01 * alone


def test_two_memory_loads_on_one_core_are_refused(simulated: SimulatedHost) -> None:
    with pytest.raises(UserError, match="both use the core of processing unit 0"):
        joined_loads(named(simulated, LOCAL, LOCAL), TOPOLOGY)
    first, *others = TOPOLOGY.cores
    with_smt = replace(TOPOLOGY, cores=(replace(first, cpus=(0, 64)), *others))
    [point] = named(simulated, LOCAL)
    [load] = point["loads"]
    sibling: Load = {**load, "initiator": {**load["initiator"], "cpus": "64"}}
    beside: Point = {**point, "loads": [sibling]}
    assert len(joined_loads([beside], with_smt)) == 1
    with pytest.raises(UserError, match="both use the core of processing unit 0"):
        joined_loads([point, beside], with_smt)


def test_what_the_model_does_not_have_is_refused() -> None:
    writes = host("storage_bandwidth").points[0]
    point: Point = {**writes, "loads": [{**writes["loads"][0], "writes": True}]}
    with pytest.raises(UserError, match=r"storage_bandwidth/storage=node0.*no GPUs, writes"):
        joined_loads([point], TOPOLOGY)


@pytest.fixture(scope="module")
def folder(simulated: SimulatedHost, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the simulated host."""
    folder = tmp_path_factory.mktemp("results") / "node01" / "nps1"
    for point in simulated.points:
        path = folder / "points" / point["experiment"] / f"{point['point']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(point))
    (folder / "topology.json").write_text(json.dumps(topology_to_json(TOPOLOGY)))
    write_parquet_table(simulated.table_of_records(1).rows, folder / MEASUREMENTS_FILE)
    return folder


def test_the_command_prints_each_load_alone_and_together(folder: Path) -> None:
    both = [f"--with=memory_bandwidth/{name}" for name in (LOCAL, REMOTE)]
    done = CliRunner().invoke(predict_command, [str(folder), *both])
    assert done.exit_code == 0, done.output
    assert "SIMULATED" in done.output
    assert "not measured" in done.output
    rows = [line.split("  ") for line in done.output.splitlines() if line.startswith("memory=")]
    assert [row[0] for row in rows] == [LOCAL, REMOTE]
    done = CliRunner().invoke(predict_command, [str(folder), *both, "--json"])
    document = json.loads(done.output)
    assert document["simulated"]
    for each in document["predicted"]:
        assert each["measured_alone"] == pytest.approx(each["alone"], rel=0.05)
    assert not list(folder.glob("predictions*"))


def test_an_unknown_point_is_refused_with_a_near_name(folder: Path) -> None:
    done = CliRunner().invoke(
        predict_command, [str(folder), "--with", "memory_bandwidth/memory=node0+node9+triad"]
    )
    assert isinstance(done.exception, UserError)
    assert "has no such point; use memory_bandwidth/memory=node0+node" in str(done.exception)
    assert len(str(done.exception)) < 400


def test_a_point_that_the_budget_left_out_is_refused(
    simulated: SimulatedHost, folder: Path, tmp_path: Path
) -> None:
    rows = simulated.true_table.rows
    shutil.copytree(folder, tmp_path / "nps1")
    path = tmp_path / "nps1/points/memory_bandwidth" / f"{LOCAL}.json"
    path.unlink()
    write_parquet_table(rows[rows["point"] == LOCAL], tmp_path / "nps1" / UNMEASURED_FILE)
    done = CliRunner().invoke(
        predict_command, [str(tmp_path / "nps1"), "--with", f"memory_bandwidth/{LOCAL}"]
    )
    assert isinstance(done.exception, UserError)
    assert "the budget left this point out" in str(done.exception)


def test_parts_of_a_measured_combination_are_found_alone_and_together() -> None:
    simulated = host("interference")
    both = next(point for point in simulated.points if len(point["loads"]) == 2)
    loads = joined_loads([both], TOPOLOGY)
    table, model = simulated.true_table, MachineModel(MACHINE, TOPOLOGY, "host", TODAY)
    for asked in (loads, loads[:1], loads[1:]):
        truth = model.noiseless_results(asked)
        assert measured_medians(table, simulated.points, asked) == pytest.approx(
            {(name, RATE): each.counted_bytes_per_second for name, each in truth.items()}
        )
    twice = [loads[0], {**loads[0], "name": "other"}]
    assert not measured_medians(table, simulated.points, twice)


def test_the_output_says_that_few_such_values_are_measured(folder: Path) -> None:
    both = [f"--with=memory_bandwidth/{name}" for name in (LOCAL, REMOTE)]
    done = CliRunner().invoke(predict_command, [str(folder), *both])
    assert "Few such values are measured" in done.output
    done = CliRunner().invoke(predict_command, [str(folder), both[0]])
    assert "Few such values are measured" not in done.output
    assert "measured together" not in done.output
