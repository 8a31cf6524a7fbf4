"""Faults that a simulated machine has are found and named, and a healthy machine has none."""

from __future__ import annotations

import dataclasses
import re

import pytest

from chaosity.anomalies.anomaly_results import Findings
from chaosity.documents.machines import Fault
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS, rows_to_table
from machines import planned, shipped_machine, shipped_topology

SMALL = "xeon_8358"  # two nodes with two drives each
LARGE = "epyc_7413_nps4"
EXPERIMENTS = ["memory_bandwidth", "latency_matrix", "storage_bandwidth"]


def findings(
    machine: str, topology_name: str, *faults: Fault, experiments: list[str] | None = None
) -> Findings:
    """What the analysis finds on a machine with these faults and no others."""
    host = planned(machine, topology_name, faults, experiments=experiments or EXPERIMENTS)
    return host.without_drives_of_several_nodes().findings(seed=0)


def test_a_healthy_machine_has_no_anomaly_and_the_verdict_says_simulated():
    found = findings(SMALL, "xeon_8358")
    assert found.anomalies == ()
    assert found.verdict.startswith("SIMULATED. No problems found")
    assert re.search(r"smallest detectable loss \d+ %", found.verdict)


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

    table = rows_to_table([{"point": "a", "value": 1.0}, {"point": "b", "value": 1.0}], COLUMNS)
    simulated = Measurements.from_table(table.assign(origin="simulated"))
    with pytest.raises(UserError, match="simulated and measured values cannot be"):
        Measurements.concatenated([simulated, Measurements.from_table(table)])
    assert dataclasses.is_dataclass(simulated)


def test_a_slow_drive_is_named_with_its_loss():
    fault: Fault = {"fault": "slow_drive", "drive": "drive-0000-01-00-0", "remaining": 0.5}
    worst = findings(SMALL, "xeon_8358", fault).anomalies[0]
    assert worst.components == ("drive-0000-01-00-0",)
    assert worst.loss_percent == pytest.approx(50, abs=3)
