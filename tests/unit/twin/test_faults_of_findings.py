"""The findings of a simulated host name the fault that its description has."""

from __future__ import annotations

import pytest

from chaosity.documents.machines import Fault
from chaosity.twin.fit_results import faults_of_findings
from chaosity.twin.machine_parameters import factor_of_fault
from machines import planned, shipped_topology

DRIVE = "drive-0000-22-00-0"


@pytest.mark.parametrize(
    ("fault", "remaining"),
    [
        (Fault(fault="slow_node", node=3), 0.7),
        (Fault(fault="slow_drive", drive=DRIVE), 0.5),
        (Fault(fault="slow_drive_path", drive_node=0, to_package=1), 0.5),
        (Fault(fault="shared_drive_path", drive_nodes=[0, 1], to_package=1), 0.7),
    ],
    ids=lambda own: own["fault"] if isinstance(own, dict) else "",
)
def test_a_fault_is_named_by_the_findings(fault: Fault, remaining: float) -> None:
    drives = {
        "read_bytes_per_second": 6.9e9,
        "remote_package_bytes_per_second": 2.6e10,
    }
    faulty: Fault = {**fault, "remaining": remaining}
    host = planned("two_packages", faults=[faulty], change={"drives": drives})
    assert faults_of_findings(host.findings(1), host.topology) == [fault]


def test_a_slow_link_of_an_l3_domain_is_named_by_the_findings() -> None:
    fault = Fault(fault="slow_l3_domain", l3_domain=5)
    experiments = ["memory_bandwidth", "l3_domain_bandwidth"]
    faulty: Fault = {**fault, "remaining": 0.6}
    host = planned("epyc_7413", "epyc_7413_nps4", [faulty], experiments=experiments)
    assert faults_of_findings(host.findings(1), host.topology) == [fault]


def test_a_healthy_host_has_no_fault() -> None:
    host = planned("two_packages")
    assert faults_of_findings(host.findings(1), host.topology) == []


@pytest.mark.parametrize("machine", ["desktop", "xeon_e5_4620"])
def test_slow_paths_to_several_packages_or_to_none_have_no_factor(machine: str) -> None:
    fault = Fault(fault="slow_drive_path", drive_node=0)
    assert factor_of_fault(fault, shipped_topology(machine)) is None
