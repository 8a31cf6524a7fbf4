"""The description that simulated hosts are made of is found again from their records."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_server import EXPERIMENTS, fit, server

from chaosity.documents.checked_yaml import check_document
from chaosity.documents.machines import MachineFile
from chaosity.errors import UserError
from chaosity.simulation.machine_description import Fault
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fitted_description import (
    FittedMachine,
    FittedParameter,
    fitted_machine_of_description,
    named_description,
)
from chaosity.twin.machine_parameters import with_capacity_and_same_slow_parts
from chaosity.twin.model_values import predict_loads, undetermined_parameters
from machines import SimulatedHost, planned, refusal_by_chaosity

LINK = "links.package_to_package_bytes_per_second"
DRIVE_PATH = "drives.remote_package_bytes_per_second"


def truth(host: SimulatedHost, each: FittedParameter) -> float:
    section: dict[str, float] = dict(host.machine).get(each.parameter.section, {})
    return section.get(each.parameter.key, float("inf"))


def test_what_the_data_determine_is_found_again(host: SimulatedHost, fitted: FittedMachine) -> None:
    found = {each.parameter.name: each for each in fitted.parameters if each.is_determined}
    assert set(found) == {
        "memory.core_bytes_per_second",
        "memory.package_bytes_per_second",
        "memory.write_cost",
        LINK,
        "drives.read_bytes_per_second",
        "latency_ns.same_node",
        "latency_ns.other_package",
    }
    for each in found.values():
        assert each.low and each.high and each.value
        assert each.value == pytest.approx(truth(host, each), rel=0.03)
        assert each.low * 0.99 < truth(host, each) < each.high * 1.01
    assert not fitted.departures


def test_no_interval_is_given_to_what_no_point_determines(
    host: SimulatedHost, fitted: FittedMachine
) -> None:
    found = {each.parameter.name: each for each in fitted.parameters if not each.is_determined}
    # One core requests more than a drive gives, and no working set fits into a cache.
    assert {"drives.core_bytes_per_second", "latency_ns.l1", "latency_ns.l3"} <= set(found)
    for each in found.values():
        assert each.low is each.high is None
        assert each.at_least is None or each.at_least < 1.02 * truth(host, each)
    assert found["drives.core_bytes_per_second"].at_least


def test_a_slow_drive_gets_a_factor_that_the_description_and_its_simulation_have(
    slow_drive: str, fitted_with_slow_drive: FittedMachine
) -> None:
    found = {each.parameter.name: each for each in fitted_with_slow_drive.parameters}
    rate = found["drives.read_bytes_per_second"].value
    assert rate == pytest.approx(6.8e9, rel=0.01)  # that of the drives without a fault
    [factor] = [each for each in found.values() if each.parameter.fault]
    assert factor.parameter.name == f"faults.slow_drive {slow_drive}"
    assert factor.low and factor.high and factor.low <= 0.6 <= factor.high < 0.65
    assert not fitted_with_slow_drive.departures
    document = named_description(fitted_with_slow_drive, "twin", "node01", "nps1", simulated=True)
    check_document(document, MachineFile, "twin.yaml")
    [fault] = document["faults"]
    assert fault == Fault(fault="slow_drive", drive=slow_drive, remaining=fault["remaining"])
    assert document["fitted"]["parameters"][factor.parameter.name]["determined"]


# A slow memory node is in tests/golden/fit.txt.
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [2, 3])
def test_no_part_of_a_healthy_machine_gets_a_factor(seed: int) -> None:
    found = fit(server(experiments=EXPERIMENTS[:3]), seed)
    assert not [each for each in found.parameters if each.parameter.fault]


def with_a_full_drive_path(*faults: Fault) -> SimulatedHost:
    """A server whose link of packages only drives of several nodes fill."""
    links = {
        "node_to_node_bytes_per_second": 3e10,
        "node_to_package_bytes_per_second": 6e9,
        "package_to_package_bytes_per_second": 6e10,
    }
    drives = {
        "read_bytes_per_second": 6.9e9,
        "core_bytes_per_second": 9e9,
        "package_bytes_per_second": 5.6e10,
        "remote_package_bytes_per_second": 2.6e10,
    }
    change = {"links": links, "drives": drives}
    names = ["memory_bandwidth", "storage_bandwidth"]
    return planned("two_packages", faults=faults, change=change, experiments=names)


def test_a_capacity_that_another_one_can_replace_has_no_value_but_counts_in_intervals() -> None:
    """The way of drives to the other package is full: a link of packages, or a path of drives."""
    whole = with_a_full_drive_path()
    read = whole.without_drives_of_several_nodes()
    found = fit_machine(read.table(1), read.points, read.topology)
    by_name = {each.parameter.name: each for each in found.parameters}
    assert by_name["links.node_to_package_bytes_per_second"].is_determined
    for name in (LINK, DRIVE_PATH):
        least = by_name[name].at_least
        assert not by_name[name].is_determined
        assert least and least < 1.02 * truth(whole, by_name[name])
    # More drives fill the path, which the link would not allow. A file keeps both explanations.
    [point] = [each for each in whole.points if each["point"] == "storage=node0+nodes2-3drives"]
    true = whole.model.noiseless_results(point["loads"])["storage"].counted_bytes_per_second
    document = named_description(found, "twin", "node01", "nps4", simulated=True)
    check_document(document, MachineFile, "twin.yaml")
    for machine in found, fitted_machine_of_description(document, whole.topology, "twin.yaml"):
        [drives] = predict_loads(machine, whole.topology, point["loads"])
        assert drives.low and drives.high and drives.low < 0.6 * true < true < drives.high
        unsure = undetermined_parameters(machine, whole.topology, point["loads"])
        assert {LINK, DRIVE_PATH} <= {own.name for own in unsure}


@pytest.mark.thorough
def test_a_slow_part_keeps_what_it_gives_although_nothing_determines_what_the_others_give() -> None:
    """A path of drives is slow; the link of the packages explains the healthy paths as well."""
    slow: Fault = {"fault": "slow_drive_path", "drive_node": 2, "to_package": 0}
    host = with_a_full_drive_path({**slow, "remaining": 0.7})
    read = host.without_drives_of_several_nodes()
    found = fit_machine(read.table(1), read.points, read.topology, [slow])
    [factor] = [each for each in found.parameters if each.parameter.fault]
    assert not factor.is_determined
    assert not [each for each in found.parameters if each.parameter.name == LINK and each.low]
    [capacity] = [each for each in found.values if factor.parameter.is_share_of(each)]
    true = 0.7 * host.machine["drives"]["remote_package_bytes_per_second"]
    assert found.values[factor.parameter] * found.values[capacity] == pytest.approx(true, rel=0.02)
    # A description keeps it, and other values of the capacity leave it as it is.
    document = named_description(found, "twin", "node01", "nps4", simulated=True)
    for machine in found, fitted_machine_of_description(document, read.topology, "twin.yaml"):
        changed = with_capacity_and_same_slow_parts(
            machine.values, capacity, 2 * machine.values[capacity]
        )
        assert changed[factor.parameter] * changed[capacity] == pytest.approx(true, rel=0.02)


def test_memory_without_cores_has_a_capacity_of_its_own() -> None:
    """A node behind a CXL link; the nodes with cores share what their packages give."""
    host = planned("epyc_9554_cxl", all_points=True, experiments=["memory_bandwidth"])
    found = fit_machine(host.table(1), host.points, host.topology)
    by_name = {each.parameter.name: each for each in found.parameters}
    cxl, ddr = by_name["memory.nodes 2"], by_name["memory.package_bytes_per_second"]
    assert cxl.low and cxl.high and cxl.low < 2.6e10 < cxl.high < 2.7e10
    assert ddr.value == pytest.approx(3.6e11, rel=0.01)
    assert not found.departures
    document = named_description(found, "twin", "node01", "nps1", simulated=True)
    check_document(document, MachineFile, "twin.yaml")
    assert document["memory"]["nodes"]["2"] == pytest.approx(2.6e10, rel=0.01)
    again = fitted_machine_of_description(document, host.topology, "twin.yaml")
    assert again.values[cxl.parameter] == pytest.approx(cxl.value, rel=1e-4)


def test_a_fit_needs_bandwidths() -> None:
    latencies = server(experiments=["latency_matrix"])
    with pytest.raises(UserError, match=r"no valid .*bandwidth"):
        fit_machine(latencies.true_table, latencies.points, latencies.topology)


def test_a_fit_without_latencies_determines_no_latency() -> None:
    bandwidths = server(experiments=["memory_bandwidth"])
    found = fit_machine(bandwidths.true_table, bandwidths.points, bandwidths.topology)
    latencies = [each for each in found.parameters if each.parameter.is_latency]
    assert latencies and not any(each.is_determined for each in latencies)
    [link] = [each for each in found.parameters if each.parameter.section == "links"][-1:]
    assert link.low and link.high and link.low < truth(bandwidths, link) < link.high


def test_a_name_that_is_no_machine_is_refused(folder: Path) -> None:
    said = refusal_by_chaosity("fit", folder, "--output", "My-Twin.yaml")
    assert "cannot name a machine" in said


def test_a_missing_folder_of_the_output_is_refused_before_the_fit(folder: Path) -> None:
    said = refusal_by_chaosity("fit", folder, "--output", "no_folder/my_twin.yaml")
    assert "no_folder" in said
