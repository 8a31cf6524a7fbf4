"""The node of the buffers as a level of loads on drives."""

from __future__ import annotations

from collections import Counter
from typing import Any

from expansions import expand, plan_of, tried
from hypothesis import given
from hypothesis import strategies as st

from chaosity.design.benchmark_templates import LoadMaker, load_benchmark_of_each_category
from chaosity.design.host_resources import HostResources
from chaosity.design.selectors import first_of_each_relation
from chaosity.documents.shipped_documents import load_experiment
from machines import shipped_topology


def design(**load: Any):
    """An experiment with one load; a key replaces a key of the usual load."""
    target = {"drives": {"all_of": "node", "at_most_sets": 1}}
    usual = {"category": "storage_bandwidth", "initiator": {"names": ["node3"]}, "target": target}
    return tried(d={"storage": {**usual, **load}})


def membind(load):
    [option] = [word for word in load["command"] if word.startswith("--membind=")]
    return option.removeprefix("--membind=")


def test_the_sample_has_every_node_of_buffers_for_drives_of_two_nodes(resources, config):
    points, _ = expand(resources, config, load_experiment("storage_buffers"))
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
    whole, _ = expand(resources, config, load_experiment("storage_every_buffer"))
    assert len(whole) == 8**3
    assert {point["point"] for point in points} <= {point["point"] for point in whole}


def test_without_the_key_buffers_are_local_and_definitions_are_those_of_before(config):
    simulated = {"chaosity_simulated": "epyc_7413_nps4"}
    topology = shipped_topology("epyc_7413_nps4")
    points = plan_of(topology, config, "storage_bandwidth", **simulated).points
    for point in points[::50]:
        [load] = point["loads"]
        assert membind(load) == load["initiator"]["name"].removeprefix("node")
        assert "buffers" not in load["levels"]
    by_name = {point["point"]: point["definition"] for point in points}
    assert by_name["storage=node3+node7drives"] == "d3bd1878fc9084a5"


def test_buffers_can_be_local_to_the_cores_or_to_the_drives(resources, config):
    buffers = [{"local_to": "storage.initiator"}, {"local_to": "storage.target"}]
    points, _ = expand(resources, config, design(buffers=buffers))
    assert [point["loads"][0]["placement"]["memory_nodes"] for point in points] == [[3], [0]]


def test_drives_of_an_unknown_node_have_no_local_buffers(resources, config):
    unknown = {"component": "disk-a", "node": None, "path": "/dev/a"}
    lost = HostResources(resources.topology, (unknown,))
    found, _ = expand(lost, config, design(buffers={"local_to": "storage.target"}))
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


def test_a_machine_with_one_node_compares_nothing_and_says_so(config):
    drive = {"component": "disk-a", "node": 0, "path": "/dev/a"}
    host = HostResources(shipped_topology("desktop"), (drive,))
    points, [note] = expand(host, config, load_experiment("storage_buffers"))
    assert points == []
    assert "one node has all memory" in note


def test_a_benchmark_that_does_not_place_its_buffers_is_left_out_with_a_note(resources, config):
    known = load_benchmark_of_each_category(config)["storage_bandwidth"]
    command = [word for word in known.document["command"] if "page_nodes" not in word]
    blind = LoadMaker({**known.document, "command": command}, {})
    points, [note] = expand(
        resources, config, design(buffers={"each": "node"}), storage_bandwidth=blind
    )
    assert points == []
    assert "fio_sequential_read does not place its buffers" in note


def test_a_sum_over_an_array_on_drives_can_have_the_same_buffers(resources, config):
    summed = design(category="streaming_compute", buffers={"names": ["node5"]})
    found, _ = expand(resources, config, summed)
    [load] = found[0]["loads"]
    assert "--buffer-nodes=5" in load["command"]


def test_at_most_so_many_drives_and_drive_sets_are_evenly_spread(resources, config):
    for selector, expected in (("each", 5), ("all_of", 3)):
        kind = "drive" if selector == "each" else "node"
        target = {"drives": {selector: kind, "at_most_sets": expected}}
        points, _ = expand(resources, config, design(target=target))
        assert len(points) == expected
        nodes = Counter(point["loads"][0]["target"]["nodes"][0] for point in points)
        assert {0, 7} <= set(nodes)
