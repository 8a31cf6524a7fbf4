"""Streaming compute: drives by package, where buffers lie, and the program's command line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from expansions import expansion
from hypothesis import given
from hypothesis import strategies as st

from chaosity.design.chosen_loads import PlannedDrive
from chaosity.design.host_resources import HostResources
from chaosity.documents.shipped_documents import load_experiment
from chaosity.topology.topology_discovery import discover_topology

NAME = "streaming_compute"


@pytest.fixture(scope="module")
def elements(paper_host, tmp_path_factory):
    return HostResources(
        paper_host.topology, paper_host.drives_to_measure(tmp_path_factory.mktemp("results"))
    )


@pytest.fixture(scope="module")
def points(elements, config):
    found = expansion(elements, config).expand_experiment(load_experiment(NAME))
    return {point["point"]: point for point in found}


def option(load, name):
    [value] = [one.split("=", 1)[1] for one in load["command"] if one.startswith(f"--{name}=")]
    return value


def test_drives_of_a_package_are_taken_from_each_node_in_turn(elements):
    by_package = elements.drives_by_package()
    assert {package: len(drives) for package, drives in by_package.items()} == {0: 15, 1: 15}
    assert [drive.node for drive in by_package[0][:5]] == [0, 1, 2, 3, 0]
    assert [drive.node for drive in by_package[1][-3:]] == [5, 6, 7]


def test_what_the_drives_give_alone_is_measured_over_the_same_sets(points):
    sets = {
        role: {
            (load["initiator"]["name"], load["target"]["name"])
            for point in points.values()
            for load in point["loads"]
            if load["role"] == role
            and load["target"]["drives"]
            and "queue_depth" not in load["levels"]
        }
        for role in ("sum", "drives")
    }
    assert sets["sum"] == sets["drives"]
    assert len(sets["sum"]) == 2 * 31


def test_what_the_drives_give_alone_is_read_as_the_sum_reads(points):
    """As much at once, as many at once, into the same kind of pages: else it is no bound."""
    [summed] = points["sum=package0+package0drives7"]["loads"]
    [alone] = [
        load
        for point in points.values()
        for load in point["loads"]
        if load["role"] == "drives"
        and load["initiator"]["name"] == "package0"
        and load["target"]["name"] == "package0drives7"
    ]
    job = alone["files"]["job.fio"].splitlines()
    assert f"bs={option(summed, 'chunk-bytes')}" in job
    assert f"iodepth={option(summed, 'queue-depth')}" in job
    assert option(summed, "pages") == alone["levels"]["pages"] == "thp"
    assert alone["environment"] == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def test_a_machine_with_one_node_has_no_other_for_the_buffers(config):
    topology = discover_topology("live")
    one = replace(topology, nodes=topology.nodes[:1])
    host = HostResources(one, (PlannedDrive("file0", None, file="/x", size_bytes=2**30),))
    made = expansion(host, config)
    found = made.expand_experiment(load_experiment(NAME))
    assert all("buffers-other" not in point["point"] for point in found)
    assert any("buffers other left out" in note for note in made.plan_notes.note_texts)
    assert {point["factors"]["placement"] for point in found} == {"same_package", "unknown"}
    assert json.dumps(found)  # all of it can be written down


@given(st.sets(st.integers(0, 7), min_size=1), st.sets(st.integers(0, 7), min_size=1))
def test_packages_of_two_sides_are_the_same_other_or_both(elements, a, b):
    own, there = elements.target_of_nodes(a), elements.target_of_nodes(b)
    packages = [{node // 4 for node in nodes} for nodes in (a, b)]
    said = elements.package_relation(own, there)
    assert (said == "same_package") == (packages[1] <= packages[0])
    assert (said == "other_package") == (not packages[0] & packages[1])
    assert said in ("same_package", "other_package", "both_packages")
