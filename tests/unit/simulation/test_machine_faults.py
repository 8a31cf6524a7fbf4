"""Faults of a simulated machine change what their part can do, and are found."""

from __future__ import annotations

import dataclasses
from datetime import date
from typing import Any

import pytest
from machine_by_hand import MACHINE, TODAY, TOPOLOGY, drives, load, model, rate

from chaosity.anomalies.anomaly_results import Findings
from chaosity.documents.machines import Fault
from chaosity.simulation.machine_description import firmware_topology
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, rows_to_table
from machines import planned, shipped_machine, shipped_topology

FAULTS: list[tuple[Fault, Any, float]] = [
    ({"fault": "slow_node", "node": 0, "remaining": 0.5}, load("a", "0-11", 0), 20e9),
    (
        {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5},
        load("a", "0-47", 4),
        15e9,
    ),
    ({"fault": "slow_core", "core": 0, "remaining": 0.8}, load("a", "0", 0), 16e9),
    ({"fault": "slow_host", "remaining": 0.95}, load("a", "0-11", 0), 38e9),
    (
        {"fault": "slow_drive", "drive": "drive-0000-01-00-0", "remaining": 0.5},
        drives("d", 0, 0),
        3.5e9,
    ),
    (
        {
            "fault": "slow_port",
            "drives": ["drive-0000-01-00-0", "drive-0000-02-00-0"],
            "remaining": 0.6,
        },
        drives("d", 0, 0, 1),
        8.4e9,
    ),
]


@pytest.mark.parametrize(("fault", "seen_by", "expected"), FAULTS)
def test_a_fault_leaves_the_stated_share(fault, seen_by, expected):
    assert rate(model(fault), seen_by) == pytest.approx([expected])


def test_a_slow_link_limits_an_l3_domain_and_no_other():
    domain = TOPOLOGY.l3_of_pu[0]
    fault: Fault = {"fault": "slow_l3_domain", "l3_domain": domain, "remaining": 0.5}
    memory = {**MACHINE["memory"], "l3_domain_bytes_per_second": 30e9}
    other = next(unit for unit, own in TOPOLOGY.l3_of_pu.items() if own != domain)
    node = TOPOLOGY.node_of_pu[other]
    slow = model(fault, memory=memory)
    cores = [
        ",".join(str(unit) for unit, own in TOPOLOGY.l3_of_pu.items() if own == each)
        for each in (domain, TOPOLOGY.l3_of_pu[other])
    ]
    found = rate(slow, load("a", cores[0], 0), load("b", cores[1], node))
    assert found == pytest.approx([15e9, 30e9])


def test_a_shared_path_is_slow_for_the_drives_of_its_nodes_together_and_only_into_the_package():
    fault: Fault = {
        "fault": "shared_drive_path",
        "drive_nodes": [0, 3],
        "to_package": 1,
        "remaining": 0.5,
    }
    both = {**MACHINE["drives"], "remote_package_bytes_per_second": 80e9}  # 20 GB/s for each node
    slow = model(fault, drives=both)

    def together(into: int, *nodes: int) -> list[float]:
        found = [f"drive{number}" for number in range(4 * len(nodes))]
        targets = [{"component": name, "node": nodes[int(name[5:]) // 4]} for name in found]
        read = drives("d", 0, 0, into=into)
        return rate(slow, {**read, "target": {"drives": targets, "nodes": list(nodes)}})

    assert together(4, 0) == pytest.approx([20e9])
    assert together(4, 0, 3) == pytest.approx([20e9])
    assert together(4, 0, 1) == pytest.approx([30e9])  # the link between the packages
    assert together(1, 0, 3) == pytest.approx([40e9])


def test_a_fault_of_a_link_leaves_the_other_direction_whole():
    fault: Fault = {"fault": "slow_link", "from_package": 0, "to_package": 1, "remaining": 0.5}
    assert rate(model(fault), load("a", "0-47", 4)) == pytest.approx([30e9])


def test_a_fault_begins_on_its_date_and_on_its_host():
    fault: Fault = {
        "fault": "slow_node",
        "node": 0,
        "remaining": 0.5,
        "since": "2026-11-22",
        "host": "sick",
    }
    wanted = load("a", "0-11", 0)
    assert rate(model(fault, host="sick"), wanted) == pytest.approx([20e9])
    assert rate(model(fault, host="sick", today=date(2026, 11, 21)), wanted) == pytest.approx(
        [40e9]
    )
    assert rate(model(fault, host="healthy"), wanted) == pytest.approx([40e9])


def test_swapped_distances_change_what_the_firmware_says_and_no_rate():
    fault: Fault = {"fault": "swapped_distances", "nodes": [1, 4]}
    shown = firmware_topology({**MACHINE, "faults": [fault]}, TOPOLOGY, "host", TODAY)
    assert shown.distances is not None
    assert shown.distances.distance_between(0, 1) == 32
    assert shown.distances.distance_between(0, 4) == 12
    assert rate(model(fault), load("a", "0-11", 1)) == rate(model(), load("a", "0-11", 1))


LARGE = "epyc_7413_nps4"
EXPERIMENTS = ["memory_bandwidth", "latency_matrix", "storage_bandwidth"]


def findings(
    machine: str, topology_name: str, *faults: Fault, experiments: list[str] | None = None
) -> Findings:
    """What the analysis finds on a machine with these faults and no others."""
    host = planned(machine, topology_name, faults, experiments=experiments or EXPERIMENTS)
    return host.without_drives_of_several_nodes().findings(seed=0)


# tests/golden/gaps.txt has a healthy machine, tests/golden/two_packages_findings.txt a slow drive.
def test_swapped_entries_of_the_distance_table_are_found():
    fault: Fault = {"fault": "swapped_distances", "nodes": [1, 2]}
    kinds = {each.kind for each in findings("two_packages", "two_packages", fault).anomalies}
    assert "slit_mismatch" in kinds


@pytest.mark.thorough
def test_the_slow_drives_of_the_papers_server_are_found_and_a_healthy_one_has_none():
    """Document 000, figure 5: package 0 reads the drives of package 1 slowly, not the reverse."""
    planted = shipped_machine(LARGE, shipped_topology(LARGE))
    found = findings("epyc_7413", LARGE, *planted["faults"])
    assert [each.components for each in found.anomalies] == [("package0->package1",)]
    assert found.anomalies[0].loss_percent == pytest.approx(29, abs=3)
    assert findings("epyc_7413", LARGE).anomalies == ()


def test_buffers_far_from_the_cores_are_no_fault():
    """The relation of cores and drives does not tell the way of the data then."""
    assert findings("epyc_7413", LARGE, experiments=["storage_every_buffer"]).anomalies == ()


def test_measured_and_simulated_values_cannot_be_mixed():
    from chaosity.errors import UserError

    table = rows_to_table(
        [{"point": "a", "value": 1.0}, {"point": "b", "value": 1.0}], COLUMN_TYPES
    )
    simulated = Measurements.from_table(table.assign(origin="simulated"))
    with pytest.raises(UserError, match="simulated and measured values cannot be"):
        Measurements.concatenated([simulated, Measurements.from_table(table)])
    assert dataclasses.is_dataclass(simulated)
