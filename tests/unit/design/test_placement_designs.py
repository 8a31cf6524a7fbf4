"""Sets of workers, placements of pages as targets, and loads on each node of a set."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from expansions import expand, memory_load, tried
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaosity.design.benchmark_templates import LoadMaker, load_benchmark_of_each_category
from chaosity.design.host_plan import PlannedHost
from chaosity.design.host_resources import HostResources
from chaosity.design.samples import sample_sets_of_every_size
from chaosity.design.selectors import page_placement_target, round_page_shares
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, yaml_file_names
from chaosity.errors import UserError
from chaosity.place.page_placement import POLICIES
from chaosity.topology.topology_model import configuration_name
from machines import shipped_topology

ALL = list(POLICIES)


@pytest.fixture(scope="module")
def hbm_host() -> PlannedHost:
    """2 packages with a node each and 2 nodes of HBM, which have no processing units."""
    topology = shipped_topology("xeon-max-2s-hbm-flat")
    return PlannedHost("max", configuration_name(topology), topology)


FACTORS = {"workers": {"level": "work.initiator"}, "policy": {"level": "work.target"}}


def work(policies, initiator=None, **more):
    """An experiment with a load for each policy."""
    target = {"policies": policies, "weights_from": {"canonical": "memory_bandwidth"}}
    workers = initiator or {"each_set_of": "node", "at_most_sets": 12}
    return tried(FACTORS, d={"work": memory_load(initiator=workers, target=target, **more)})


def even(name, workers):
    """Weights that were measured for everybody: more on the workers."""
    return {node: 3.0 if node in workers else 1.0 for node in range(8)}


@given(st.integers(1, 12), st.integers(1, 300))
def test_sets_are_of_every_size_different_and_no_more_than_asked(count, at_most):
    found = sample_sets_of_every_size(range(count), at_most)
    assert found == sample_sets_of_every_size(range(count), at_most)
    assert len(set(found)) == len(found) == min(at_most, 2**count - 1)
    assert found == sorted(found, key=len)
    assert all(list(one) == sorted(set(one)) for one in found)
    sizes = {len(one) for one in found}
    if at_most >= count:
        assert sizes == set(range(1, count + 1))
    elif at_most > 1:
        assert {1, count} <= sizes


@given(st.dictionaries(st.integers(0, 200), st.floats(0.0, 1e12), min_size=1))
@example({0: 1e-308})
def test_shares_are_whole_parts_that_add_up_to_one(shares):
    if not sum(shares.values()) > 0:
        return
    found = dict(round_page_shares(shares))
    assert sum(round(share * 10_000) for share in found.values()) == 10_000
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    total = sum(shares.values())
    for node, share in shares.items():
        assert abs(found.get(node, 0.0) - share / total) <= 1e-4


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_pages_lie_on_nodes_with_memory_alone(data, hbm_host):
    host = HostResources(hbm_host.topology, ())
    with_units = [node.os_index for node in host.topology.initiator_nodes]
    with_memory = {node.os_index for node in host.topology.memory_nodes}
    workers = host.worker_initiator(data.draw(st.sets(st.sampled_from(with_units), min_size=1)))
    name = data.draw(st.sampled_from(ALL))
    measured = {node: st.floats(0.1, 10.0) for node in sorted(with_memory)}
    weights = data.draw(st.fixed_dictionaries(measured))
    target = page_placement_target(name, workers, host, lambda *_: weights)
    assert set(target.nodes) <= with_memory
    assert set(workers.nodes) <= set(with_units)
    if target.shares is not None:
        assert {node for node, _ in target.shares} <= set(target.nodes)
        assert sum(share for _, share in target.shares) == pytest.approx(1.0)
    if not POLICIES[name].uses_all_nodes:
        assert set(target.nodes) == set(workers.nodes)


def test_a_worker_without_memory_takes_its_nearest_nodes(paper_host):
    nodes = tuple(
        replace(node, target=False, memory_bytes=0) if node.os_index == 3 else node
        for node in paper_host.topology.nodes
    )
    host = HostResources(replace(paper_host.topology, nodes=nodes), ())
    [near] = host.worker_memory_nodes(host.worker_initiator([3]))
    table = host.topology.distances
    assert near != 3
    assert table.distance_between(3, near) == min(
        table.distance_between(3, n) for n in range(8) if n != 3
    )
    both = page_placement_target("uniform_workers", host.worker_initiator([3, 6]), host, None)
    assert both.nodes == tuple(sorted({near, 6}))
    assert page_placement_target("uniform_all", host.worker_initiator([3]), host, None).nodes == (
        0,
        1,
        2,
        4,
        5,
        6,
        7,
    )


def test_a_set_that_makes_up_a_package_is_called_by_its_nodes(config, paper_host):
    [point], _ = expand(paper_host, config, work(["uniform_all"], {"names": ["nodes0-3"]}))
    package = paper_host.topology.packages[0]
    assert package.nodes == (0, 1, 2, 3)
    assert point["loads"][0]["initiator"]["name"] == "nodes0-3"
    assert point["loads"][0]["initiator"]["threads"] == len(package.cpus) // 2


def test_a_placement_is_told_to_template_runner_and_table(config, paper_host):
    points, _ = expand(paper_host, config, work(ALL, {"names": ["nodes0-1"]}), even)
    loads = {point["factors"]["policy"]: point["loads"][0] for point in points}
    assert loads["uniform_workers"]["target"]["shares"] == {"0": 0.5, "1": 0.5}
    assert loads["uniform_workers"]["placement"]["shares"] == {"0": 0.5, "1": 0.5}
    assert loads["uniform_all"]["target"]["shares"] == {str(n): 0.125 for n in range(8)}
    assert loads["canonical"]["target"]["shares"]["0"] == 0.25
    assert loads["bwap"]["target"]["shares"] == loads["canonical"]["target"]["shares"]
    assert loads["bwap_uniform"]["target"]["shares"] == loads["uniform_all"]["target"]["shares"]
    for name in ("first_touch", "autonuma"):
        assert loads[name]["placement"]["shares"] is None
        assert loads[name]["placement"]["memory_nodes"] == [0, 1]
    settling = {name for name, load in loads.items() if load["placement"]["settles"]}
    assert settling == {"autonuma", "bwap", "bwap_uniform"}
    assert {load["target"]["kind"] for load in loads.values()} == {"policy"}
    # The same work for all, or speeds would not compare.
    assert len({load["memory_bytes"] for load in loads.values()}) == 1


def test_weights_that_lack_a_node_are_not_known(config, paper_host):
    policies = work(["canonical", "uniform_all"])
    points, _ = expand(paper_host, config, policies, lambda *_: {0: 1.0, 1: 1.0})
    assert {point["factors"]["policy"] for point in points} == {"uniform_all"}


@pytest.mark.parametrize("name", ["node2", "nodes0,2", "nodes2-3"])
def test_workers_need_processing_units(config, hbm_host, name):
    known = "usable nodes: node0, node1"
    with pytest.raises(UserError, match=f"node 2 has no processing units; {known}"):
        expand(hbm_host, config, work(["uniform_all"], {"names": [name]}))


def test_each_set_has_a_load_on_each_of_its_nodes(config, paper_host):
    spec = memory_load(
        category="contended_paths",
        initiator={"each": "node", "in_each_set_of": "node", "at_most_sets": 9},
        target={"all": "node"},
        together=True,
        kernel=["read"],
    )
    rule = {**config["working_set"], "times_last_level_cache": 0, "at_least_bytes": 2**50}
    sets = tried(FACTORS, d={"work": spec})
    points, _ = expand(paper_host, {**config, "working_set": rule}, sets)
    assert len(points) == 9
    memory = sum(node.memory_bytes for node in paper_host.topology.memory_nodes)
    seen = {len(point["loads"]): point for point in points}
    assert set(seen) == set(range(1, 9))
    assert seen[2]["point"] == "work=nodes0-1+nodes0-7+read"
    assert seen[1]["point"] == "work=node0+nodes0-7+read"
    assert seen[2]["factors"]["workers"] == "nodes0-1"
    for point in points:
        names = [load["initiator"]["name"] for load in point["loads"]]
        assert len(set(names)) == len(names)
        assert all(load["target"]["nodes"] == list(range(8)) for load in point["loads"])
        # On each node, the buffers of all loads have as much room as that of a single load.
        used = sum(load["memory_bytes"] for load in point["loads"])
        assert used == pytest.approx(memory / 2, rel=0.01)
        assert point["point"].startswith(f"work={point['factors']['workers']}+")


def test_nodes_of_a_metric_by_node_are_told_where_they_lie(config, paper_host):
    known = load_benchmark_of_each_category(config)["memory_bandwidth"]
    source = {"progress": True, "by_node": {"amount": "bytes_by_node", "time": "ns_by_node"}}
    metrics = {"path_bandwidth_bytes_per_second": source}
    maker = LoadMaker({**known.document, "metrics": metrics}, {})
    spec = memory_load(initiator={"names": ["node1"]}, target={"all": "node"})
    [point], _ = expand(paper_host, config, tried(d={"work": spec}), memory_bandwidth=maker)
    by_node = point["loads"][0]["target"]["by_node"]
    assert by_node["1"] == {"relation": "same_node", "distance": 10}
    assert by_node["0"]["relation"] == "same_package"
    assert by_node["7"] == {
        "relation": "other_package",
        "distance": paper_host.topology.distances.distance_between(1, 7),
    }


def test_a_note_is_in_a_point_but_asks_for_no_new_measurement(config, paper_host):
    noted = load_benchmark_of_each_category(config)["placed_workload"]
    assert noted.document["notes"]
    document = {key: part for key, part in noted.document.items() if key != "notes"}
    design = work(["bwap_uniform"], {"each": "machine"}, category="placed_workload")
    [one], [other] = (
        expand(paper_host, config, design, placed_workload=used)[0]
        for used in (noted, LoadMaker(document, {}))
    )
    assert one["loads"][0]["notes"] == noted.document["notes"]
    assert "notes" not in other["loads"][0]
    assert one["definition"] == other["definition"]


def test_weights_are_measured_for_the_sets_that_are_placed():
    """The notes of a plan name the experiments, and these measure just those sets."""
    read = {
        name: yaml.safe_load((EXPERIMENTS_FOLDER / f"{name}.yaml").read_text())
        for name in yaml_file_names(EXPERIMENTS_FOLDER)
    }
    placed = 0
    for document in read.values():
        for design in document["designs"].values():
            for load in design["loads"].values():
                target = load["target"] if isinstance(load["target"], dict) else {}
                for source in target.get("weights_from", {}).values():
                    assert source in read
                    placed += 1
                    for other in read[source]["designs"].values():
                        for paths in other["loads"].values():
                            sets = paths["initiator"]
                            if "in_each_set_of" in sets and "each_set_of" in load["initiator"]:
                                assert sets["at_most_sets"] == load["initiator"]["at_most_sets"]
    assert placed


def test_pages_are_spread_over_each_kind_of_memory_of_the_own_package(config, paper_host, hbm_host):
    def spread(host):
        load = memory_load(initiator={"each": "l3_domain"}, target={"spread_over": "package"})
        points, _ = expand(host, config, tried(d={"memory": load}))
        loads = [point["loads"][0] for point in points]
        return [(x["initiator"]["name"], x["target"]["name"], x["placement"]) for x in loads]

    own = {name: (target, placement["shares"]) for name, target, placement in spread(paper_host)}
    assert len(own) == 8
    assert own["node6"] == ("uniform_package_dram", dict.fromkeys("4567", 0.25))
    # A single node needs no shares: it is the node as in all other experiments.
    near = [
        (name, target, placement["memory_nodes"]) for name, target, placement in spread(hbm_host)
    ]
    assert near == [
        ("node0", "node0", [0]),
        ("node0", "node2", [2]),
        ("node1", "node1", [1]),
        ("node1", "node3", [3]),
    ]
