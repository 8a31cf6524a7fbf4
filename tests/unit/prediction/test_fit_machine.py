"""The description that simulated hosts are made of is found again from their records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli.fit import fit_command
from chaosity.documents.check_config import read_config
from chaosity.documents.check_document import check_document
from chaosity.documents.machines import Fault, MachineFile
from chaosity.errors import UserError
from chaosity.prediction.fit_machine import fit_machine
from chaosity.prediction.fitted_description import (
    FittedMachine,
    FittedParameter,
    named_description,
    read_fitted,
)
from chaosity.prediction.predict_loads import predict_loads, undetermined_parameters
from chaosity.records.point_types import DriveFacts
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.simulation.machine_description import read_machine_description
from chaosity.simulation.machine_model import MachineModel
from chaosity.store.tidy_table_parquet import write_parquet_table
from chaosity.topology.topology_json import topology_to_json
from machines import TODAY, SimulatedHost, planned, shipped_machine, shipped_topology

DRIVE_RATE = "drives.read_bytes_per_second"
EXPERIMENTS = ["memory_bandwidth", "latency_matrix", "storage_bandwidth", "interference"]
TOPOLOGY = shipped_topology("xeon_8358")
MACHINE = shipped_machine("xeon_8358", TOPOLOGY)


def host(*experiments: str) -> SimulatedHost:
    return planned("xeon_8358", all_points=True, experiments=list(experiments))


def truth(each: FittedParameter) -> float:
    section: dict[str, float] = dict(MACHINE).get(each.parameter.section, {})  # type: ignore
    return section.get(each.parameter.key, float("inf"))


def _drives(simulated: SimulatedHost) -> list[DriveFacts]:
    return [each for point in simulated.points for each in point["loads"][0]["target"]["drives"]]


@pytest.fixture(scope="module")
def fitted() -> FittedMachine:
    simulated = host(*EXPERIMENTS)
    return fit_machine(simulated.table_of_records(1), simulated.points, TOPOLOGY)


def test_what_the_data_determine_is_found_again(fitted: FittedMachine) -> None:
    found = {each.parameter.name: each for each in fitted.parameters if each.is_determined}
    assert set(found) == {
        "memory.core_bytes_per_second",
        "memory.package_bytes_per_second",
        "links.package_to_package_bytes_per_second",
        "drives.read_bytes_per_second",
        "latency_ns.same_node",
        "latency_ns.other_package",
    }
    for each in found.values():
        assert each.low and each.high and each.value
        assert each.value == pytest.approx(truth(each), rel=0.03)
        assert not fitted.departures
        assert each.low * 0.99 < truth(each) < each.high * 1.01


def test_no_interval_is_given_to_what_no_point_determines(fitted: FittedMachine) -> None:
    found = {each.parameter.name: each for each in fitted.parameters if not each.is_determined}
    # One core requests more than a drive gives, and no working set fits into a cache.
    assert {"drives.core_bytes_per_second", "latency_ns.l1", "latency_ns.l3"} <= set(found)
    for each in found.values():
        assert each.low is each.high is None
        assert each.at_least is None or each.at_least < 1.02 * truth(each)
    assert found["drives.core_bytes_per_second"].at_least


def faulty(*faults: Fault, seed: int = 1) -> FittedMachine:
    simulated = planned("xeon_8358", None, faults, all_points=True, experiments=EXPERIMENTS[:3])
    return fit_machine(simulated.table_of_records(seed), simulated.points, TOPOLOGY)


def test_a_slow_drive_gets_a_factor_that_the_description_and_its_simulation_have() -> None:
    slow = next(drive["component"] for drive in _drives(host("storage_bandwidth")))
    found = faulty(Fault(fault="slow_drive", drive=slow, remaining=0.6))
    [rate] = [each.value for each in found.parameters if each.parameter.name == DRIVE_RATE]
    assert rate == pytest.approx(6.8e9, rel=0.01)  # that of the drives without a fault
    [factor] = [each for each in found.parameters if each.parameter.fault]
    assert factor.parameter.name == f"faults.slow_drive {slow}"
    assert factor.low and factor.high and factor.low <= 0.6 <= factor.high < 0.65
    assert not found.departures
    document = named_description(found, "twin", "node01", "nps1", simulated=True)
    check_document(document, MachineFile, "twin.yaml")
    [fault] = document["faults"]
    assert fault == Fault(fault="slow_drive", drive=slow, remaining=fault["remaining"])
    assert document["fitted"]["parameters"][factor.parameter.name]["determined"]


def test_a_slow_memory_node_gets_a_factor() -> None:
    found = faulty(Fault(fault="slow_node", node=1, remaining=0.7))
    [factor] = [each for each in found.parameters if each.parameter.fault]
    assert factor.parameter.name == "faults.slow_node node1"
    assert factor.low and factor.high and factor.low <= 0.7 * 1.01 and factor.high >= 0.7 * 0.99


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 6))]
)
def test_no_part_of_a_healthy_machine_gets_a_factor(seed: int) -> None:
    assert not [each for each in faulty(seed=seed).parameters if each.parameter.fault]


def server(name: str = "epyc_7413") -> SimulatedHost:
    """The server of the paper without points of several loads."""
    return planned(name, "epyc_7413_nps4", None, experiments=EXPERIMENTS[:3])


def test_a_capacity_that_another_one_can_replace_has_no_value_but_counts_in_intervals() -> None:
    """The way of drives to the other package is full: a link of packages, or a path of drives."""
    whole = server()
    read = whole.without_drives_of_several_nodes()
    found = fit_machine(read.table(1), read.points, read.topology)
    by_name = {each.parameter.name: each for each in found.parameters}
    assert by_name["links.node_to_package_bytes_per_second"].is_determined
    for name, true in [
        ("links.package_to_package_bytes_per_second", 70e9),
        ("drives.remote_package_bytes_per_second", 104e9),
    ]:
        least = by_name[name].at_least
        assert not by_name[name].is_determined
        assert least and least < 1.02 * true
    # More drives fill the node, which the link would not allow. A file keeps both explanations.
    [point] = [each for each in whole.points if each["point"] == "storage=node0+nodes4-6drives"]
    model = MachineModel(whole.machine, whole.topology, whole.name, TODAY)
    true = model.noiseless_results(point["loads"])["storage"].counted_bytes_per_second
    document = named_description(found, "twin", "node01", "nps4", simulated=True)
    check_document(document, MachineFile, "twin.yaml")
    for machine in found, read_fitted(document, "twin.yaml"):
        [drives] = predict_loads(machine, whole.topology, point["loads"])
        assert drives.low and drives.high and drives.low < true < drives.high
        unsure = undetermined_parameters(machine, whole.topology, point["loads"])
        assert [own.name for own in unsure] == ["links.package_to_package_bytes_per_second"]


@pytest.mark.thorough
def test_no_factor_is_given_to_a_part_whose_capacity_another_one_can_replace() -> None:
    """Paths of drives are slow, not the link that explains the healthy ones as well."""
    simulated = server("epyc_7413_nps4").without_drives_of_several_nodes()
    found = fit_machine(simulated.table(1), simulated.points, simulated.topology)
    assert not [each for each in found.parameters if each.parameter.fault and each.is_determined]
    link = "links.package_to_package_bytes_per_second"
    assert not [each for each in found.parameters if each.parameter.name == link and each.low]
    assert any("node6drives" in place and 0.65 < r < 0.75 for place, r in found.departures.items())


@pytest.mark.thorough
def test_a_capacity_at_the_highest_measured_use_does_not_explain_noise() -> None:
    """All drives of a node bring a core just to its highest use, but its controllers are full."""
    simulated = server()
    found = fit_machine(simulated.table(6), simulated.points, simulated.topology)
    by_name = {each.parameter.name: each for each in found.parameters}
    requests = by_name["drives.core_bytes_per_second"]
    assert not requests.is_determined
    assert requests.at_least and 5e9 < requests.at_least < 9e9
    assert by_name["memory.package_bytes_per_second"].is_determined


def test_a_fit_needs_bandwidths() -> None:
    simulated = host("latency_matrix")
    with pytest.raises(UserError, match=r"no valid .*bandwidth"):
        fit_machine(simulated.true_table, simulated.points, TOPOLOGY)


def test_a_fit_without_latencies_determines_no_latency() -> None:
    simulated = host("memory_bandwidth")
    found = fit_machine(simulated.true_table, simulated.points, TOPOLOGY)
    latencies = [each for each in found.parameters if each.parameter.is_latency]
    assert latencies and not any(each.is_determined for each in latencies)
    [link] = [each for each in found.parameters if each.parameter.section == "links"][-1:]
    assert link.low and link.high and link.low < truth(link) < link.high


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of a simulated host."""
    simulated, folder = host("memory_bandwidth", "latency_matrix"), tmp_path / "node01" / "nps1"
    for point in simulated.points:
        path = folder / "points" / point["experiment"] / f"{point['point']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(point))
    (folder / "topology.json").write_text(json.dumps(topology_to_json(TOPOLOGY)))
    write_parquet_table(simulated.true_table.rows, folder / MEASUREMENTS_FILE)
    return folder


def test_the_command_writes_a_description_that_can_be_simulated(folder: Path) -> None:
    output = folder / "my_twin.yaml"
    done = CliRunner().invoke(fit_command, [str(folder), "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert "SIMULATED" in done.output
    assert "not determined" in done.output
    twin = read_machine_description(output, TOPOLOGY)
    assert twin["fitted"]["host"] == "node01"
    assert "simulated records of the host node01" in twin["description"]
    assert not twin["fitted"]["parameters"]["latency_ns.l1"]["determined"]
    copy = SimulatedHost.planned(twin, TOPOLOGY, [], read_config(), all_points=True)
    original = host(*read_config()["experiments"])
    rates = [
        each.true_table.where(experiment="memory_bandwidth").rows["value"].astype(float)
        for each in (copy, original)
    ]
    assert rates[0].tolist() == pytest.approx(rates[1].tolist(), rel=0.02)


def test_a_name_that_is_no_machine_is_refused(folder: Path) -> None:
    done = CliRunner().invoke(fit_command, [str(folder), "--output", "My-Twin.yaml"])
    assert isinstance(done.exception, UserError)
    assert "cannot name a machine" in str(done.exception)
