"""What each fault of a description changes in the model."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from machine_by_hand import MACHINE, TODAY, TOPOLOGY, drives, load, model, rate

from chaosity.documents.machines import Fault, MachineDescription
from chaosity.simulation.machine_description import firmware_topology
from chaosity.simulation.machine_model import MachineModel

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


def test_a_shared_path_is_slow_for_the_drives_of_its_nodes_together_and_only_into_the_package():
    fault: Fault = {
        "fault": "shared_drive_path",
        "drive_nodes": [0, 3],
        "to_package": 1,
        "remaining": 0.5,
    }
    both = {**MACHINE["drives"], "remote_package_bytes_per_second": 80e9}  # 20 GB/s for each node
    machine: MachineDescription = {**MACHINE, "drives": both, "faults": [fault]}
    slow = MachineModel(machine, TOPOLOGY, "host", TODAY)

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
