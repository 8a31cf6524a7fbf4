"""The node of the buffers as a level of loads on drives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from expansions import expansion, tried
from hypothesis import given
from hypothesis import strategies as st

from chaosity.design.benchmark_templates import LoadMaker, load_benchmark_of_each_category
from chaosity.design.chosen_loads import PlannedDrive
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.design.host_resources import HostResources
from chaosity.design.selectors import first_of_each_relation
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology

TOPOLOGIES = Path(__file__).resolve().parents[3] / "templates/machines" / "topologies"


@pytest.fixture(scope="module")
def resources(paper_host, tmp_path_factory):
    drives = paper_host.drives_to_measure(tmp_path_factory.mktemp("results"))
    return HostResources(paper_host.topology, drives)


def expand(resources, document, **changed):
    """The points of an experiment, and the notes."""
    made = expansion(resources, read_config(), **changed)
    return made.expand_experiment(document), made.plan_notes.note_texts


def design(**load: Any):
    """An experiment with one load; a key replaces a key of the usual load."""
    usual = {
        "category": "storage_bandwidth",
        "initiator": {"names": ["node3"]},
        "target": {"drives": {"all_of": "node", "at_most_sets": 1}},
    }
    return tried(d={"storage": {**usual, **load}})


def membind(load):
    [option] = [word for word in load["command"] if word.startswith("--membind=")]
    return option.removeprefix("--membind=")


def test_the_sample_has_every_node_of_buffers_for_drives_of_two_nodes(resources):
    points, _ = expand(resources, load_experiment("storage_buffers"))
    assert len(points) == 4 * 2 * 8
    for point in points:
        [load] = point["loads"]
        node = load["levels"]["buffers"].removeprefix("node")
        assert membind(load) == node
        assert load["placement"]["memory_nodes"] == [int(node)]
        assert f"node{node}" in point["components"]
        assert point["point"].endswith(f"+buffers-node{node}")
        [drives] = load["target"]["nodes"]
        near = "same_node" if int(node) == drives else "same_package"
        relation = near if int(node) // 4 == drives // 4 else "other_package"
        assert point["factors"]["drives_to_buffers"] == relation
    whole, _ = expand(resources, load_experiment("storage_every_buffer"))
    assert len(whole) == 8**3
    assert {point["point"] for point in points} <= {point["point"] for point in whole}


def test_without_the_key_buffers_are_local_and_definitions_are_those_of_before():
    topology = discover_topology(str(TOPOLOGIES / "epyc_7413_nps4.xml"))
    host = PlannedHost("host", "nps4", topology, {"chaosity_simulated": "epyc_7413_nps4"})
    points = plan_host(host, read_config(), ["storage_bandwidth"]).points
    for point in points[::50]:
        [load] = point["loads"]
        assert membind(load) == load["initiator"]["name"].removeprefix("node")
        assert "buffers" not in load["levels"]
    by_name = {point["point"]: point["definition"] for point in points}
    assert by_name["storage=node3+node7drives"] == "d3bd1878fc9084a5"


def test_buffers_can_be_local_to_the_cores_or_to_the_drives(resources):
    buffers = [{"local_to": "storage.initiator"}, {"local_to": "storage.target"}]
    points, _ = expand(resources, design(buffers=buffers))
    assert [point["loads"][0]["placement"]["memory_nodes"] for point in points] == [[3], [0]]


def test_drives_of_an_unknown_node_have_no_local_buffers(resources):
    unknown = [PlannedDrive("disk-a", None, path="/dev/a")]
    lost = HostResources(resources.topology, tuple(unknown))
    found, _ = expand(lost, design(buffers={"local_to": "storage.target"}))
    assert found == []


@given(st.integers(0, 7), st.integers(0, 7))
def test_one_node_of_each_relation_is_taken_from_the_endpoint_on(resources, node, other):
    end = resources.target_of_nodes([node])
    nodes = [resources.target_of_nodes([number]) for number in range(8)]
    found = first_of_each_relation(end, nodes, resources.endpoint_relation)
    seen = [resources.endpoint_relation(end, one) for one in found]
    assert sorted(seen) == ["other_package", "same_node", "same_package"]
    own = resources.endpoint_relation(end, nodes[other])
    chosen = found[seen.index(own)].nodes[0]
    assert (chosen - node) % 8 <= (other - node) % 8


def test_a_machine_with_one_node_compares_nothing_and_says_so():
    desktop = discover_topology(str(TOPOLOGIES / "desktop.xml"))
    drive = PlannedDrive("disk-a", 0, path="/dev/a")
    host = HostResources(desktop, (drive,))
    points, [note] = expand(host, load_experiment("storage_buffers"))
    assert points == []
    assert "one node has all memory" in note


def test_a_benchmark_that_does_not_place_its_buffers_is_left_out_with_a_note(resources):
    known = load_benchmark_of_each_category(read_config())["storage_bandwidth"]
    command = [word for word in known.document["command"] if "page_nodes" not in word]
    blind = LoadMaker({**known.document, "command": command}, {})
    points, [note] = expand(resources, design(buffers={"each": "node"}), storage_bandwidth=blind)
    assert points == []
    assert "fio_sequential_read does not place its buffers" in note


def test_a_sum_over_an_array_on_drives_can_have_the_same_buffers(resources):
    summed = design(category="streaming_compute", buffers={"names": ["node5"]})
    found, _ = expand(resources, summed)
    [load] = found[0]["loads"]
    assert "--buffer-nodes=5" in load["command"]


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"target": {"each": "node"}, "buffers": {"each": "node"}}, "only loads on drives"),
        (
            {
                "category": "streaming_compute",
                "vary": {"buffers": ["own"]},
                "buffers": {"each": "node"},
            },
            "vary also has the key buffers",
        ),
        ({"buffers": {"names": ["node9"]}}, "no memory node 'node9'"),
    ],
)
def test_impossible_buffers_are_refused_in_one_sentence(resources, load, message):
    with pytest.raises(UserError, match=message):
        expand(resources, design(**load))


def test_at_most_so_many_drives_and_drive_sets_are_evenly_spread(resources):
    for selector, expected in (("each", 5), ("all_of", 3)):
        kind = "drive" if selector == "each" else "node"
        target = {"drives": {selector: kind, "at_most_sets": expected}}
        points, _ = expand(resources, design(target=target))
        assert len(points) == expected
        nodes = Counter(point["loads"][0]["target"]["nodes"][0] for point in points)
        assert {0, 7} <= set(nodes)
