"""Slow links between packages, seen in reads and writes of whole packages."""

from __future__ import annotations

from functools import cache

import pytest

from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.machines import Fault
from chaosity.store.measurements import Measurements
from machines import SimulatedHost, planned
from table_rows import scaled

SERVER = "epyc_7413_nps4"  # two packages with four nodes each
ONE_NODE = "xeon_8358"  # two packages with one node each
FOUR = "xeon_e5_4620"  # four packages with one node each
MACHINES = {SERVER: "epyc_7413"}


def half_width(source: int, target: int) -> Fault:
    return {"fault": "slow_link", "from_package": source, "to_package": target, "remaining": 0.5}


@cache
def healthy(topology: str) -> SimulatedHost:
    return host(topology)


def host(topology: str, *faults: Fault, replicates: int = 3) -> SimulatedHost:
    config = {"experiments": ["memory_bandwidth", "package_bandwidth"], "replicates": replicates}
    whole = planned(MACHINES.get(topology, topology), topology, faults, **config)
    return whole.where(
        lambda point: (
            point["experiment"] == "package_bandwidth" or point["loads"][0]["kernel"] == "triad"
        )
    )


def analysed(table: Measurements) -> Findings:
    return analyse_host(table, healthy(SERVER).component_facts)


@pytest.mark.parametrize("topology", [SERVER, ONE_NODE, FOUR])
def test_links_of_a_healthy_machine_are_tested_and_not_reported(topology):
    found = healthy(topology).findings(1)
    packages = len(healthy(topology).topology.packages)
    assert found.anomalies == ()
    tested = f"{packages * (packages - 1)} directions of links between {packages} packages"
    assert any(tested in text for text in found.checked)


@pytest.mark.parametrize(
    ("topology", "source", "target", "replicates"),
    [(SERVER, 0, 1, 1), (ONE_NODE, 1, 0, 3), (FOUR, 2, 0, 3)],
)
def test_a_link_at_half_width_is_one_finding_with_its_direction(
    topology, source, target, replicates
):
    found = host(topology, half_width(source, target), replicates=replicates).findings(1)
    (one,) = found.anomalies
    assert one.kind == "slow_component"
    assert one.components == (f"link package{source}->package{target}",)
    assert one.sentence.startswith(f"The link from package {source} to package {target} is slow")
    assert one.loss_percent == pytest.approx(50, abs=3)
    assert "width" in one.advice


def test_of_four_packages_also_a_link_that_is_slow_in_both_directions_is_reported():
    (one,) = host(FOUR, half_width(1, 0), half_width(0, 1)).findings(1).anomalies
    assert "between package 0 and package 1 is slow in both directions" in one.sentence
    assert set(one.components) == {"link package0->package1", "link package1->package0"}


def test_of_two_packages_a_link_that_is_slow_in_both_directions_has_no_reference():
    assert host(SERVER, half_width(1, 0), half_width(0, 1)).findings(1).anomalies == ()


@pytest.mark.parametrize("remaining", [0.2, 0.7])
def test_slow_memory_of_one_node_is_not_reported_as_a_link(remaining):
    """Pages lie on all nodes in turn, so the slow node limits each load from the other package."""
    fault: Fault = {"fault": "slow_node", "node": 5, "remaining": remaining}
    found = host(SERVER, fault).findings(1).anomalies
    assert ("node5",) in [each.components for each in found]
    assert not any("link" in name for each in found for name in each.components)


def test_slow_paths_to_one_node_explain_what_looks_like_a_slow_link():
    """Reads and writes use both directions of the link, so both seem slow."""
    table = scaled(
        healthy(SERVER).table(1),
        0.5,
        target="node4",
        initiator=["node0", "node1", "node2", "node3", "package0", "pu0", "pu6", "pu12", "pu18"],
    )
    table = scaled(table, 0.5, initiator="package0", target="nodes4-7")
    found = analysed(table).anomalies
    assert found
    assert not any("link" in name for each in found for name in each.components)
    said = [sentence for each in found for sentence in each.also]
    assert any("by package 0 from the memory of package 1 are slow" in text for text in said)


def test_a_path_that_is_slower_than_its_link_is_a_finding_of_its_own():
    table = host(SERVER, half_width(1, 0)).table(1)
    names = [
        each.components
        for each in analysed(scaled(table, 0.7, initiator="node2", target="node6")).anomalies
    ]
    assert names.count(("link package1->package0",)) == 1
    assert ("node2->node6",) in names


def test_slow_reads_alone_are_reported_without_naming_the_link():
    """Writes use the same direction of the link and are as fast as in the other direction."""
    table = scaled(
        healthy(SERVER).table(1), 0.6, initiator="package0", target="nodes4-7", kernel="read"
    )
    (one,) = analysed(table).anomalies
    assert one.kind == "slow_path"
    assert one.sentence.startswith("Reads by package 0 from the memory of package 1 are slow")


def test_without_writes_links_are_not_searched():
    table = healthy(SERVER).table(1)
    reads = analysed(table.select(table.rows["kernel"] != "fill_nt"))
    assert not any("directions of links" in text for text in reads.checked)
