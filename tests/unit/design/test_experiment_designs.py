"""Which points some experiments have, by the topology of the host."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from expansions import expand, plan_of
from hypothesis import given
from hypothesis import strategies as st

from chaosity.cpusets import parse_cpu_list
from chaosity.design.host_plan import HostPlan
from chaosity.design.host_resources import HostResources
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError
from chaosity.records.record_format import Point
from chaosity.topology.topology_discovery import discover_topology
from machines import planned as simulated
from machines import shipped_topology


def planned(machine: str, experiment: str, writable: int = 0) -> HostPlan:
    """The plan of an experiment; `writable` drives may lose their data."""
    topology = shipped_topology(machine)
    named = [drive.serial for drive in topology.drives][:writable]
    variables = {"chaosity_simulated": "none", "chaosity_destructive_drives": named}
    return plan_of(topology, read_config(), experiment, **variables)


@pytest.mark.parametrize("machine", ["epyc_7413_nps2", "desktop", "xeon_8358"])
def test_a_reader_and_a_writer_have_half_of_the_cores_of_a_node_each(machine: str):
    topology = shipped_topology(machine)
    for point in planned(machine, "interference_memory").points:
        cpus = {load["role"]: parse_cpu_list(load["initiator"]["cpus"]) for load in point["loads"]}
        if cpus.keys() == {"reader", "writer"}:
            cores = [
                {core.index for core in topology.cores if set(core.cpus) & set(own)}
                for own in cpus.values()
            ]
            assert not cores[0] & cores[1]
            assert len(cores[0]) == len(cores[1])


@pytest.mark.parametrize(
    ("machine", "experiment"),
    [
        ("epyc_7413_nps4", "interference_remote"),
        ("xeon_8358", "interference_remote"),
        ("epyc_7413_nps4", "interference_memory"),
        ("epyc_9554_cxl", "interference_memory"),
        ("epyc_7413_nps4", "interference_writes"),
        ("desktop", "interference_writes"),
    ],
)
def test_each_load_of_each_pair_is_also_measured_alone(machine: str, experiment: str):
    points = planned(machine, experiment, writable=4).points
    loads = [
        [
            (load["kernel"], load["initiator"]["name"], load["target"]["name"])
            for load in point["loads"]
        ]
        for point in points
    ]
    alone = {own[0] for own in loads if len(own) == 1}
    assert {load for own in loads for load in own if len(own) > 1} <= alone


def test_drives_are_written_only_where_the_inventory_names_them():
    with pytest.raises(UserError, match="chaosity_destructive_drives names none"):
        planned("epyc_7413_nps4", "interference_writes")
    # Node 0 has three drives, of which two are named; no other node may be written.
    plan = planned("epyc_7413_nps4", "interference_writes", writable=2)
    loads = [load for point in plan.points for load in point["loads"]]
    assert len({drive["component"] for load in loads for drive in load["target"]["drives"]}) == 2
    assert [point["point"] for point in plan.points] == [
        "storage=node0+node0drives1",
        "storage=node0+node0drives",
        "memory=node0+node0+read.storage=node0+none",
        "memory=node0+node0+read.storage=node0+node0drives1",
        "memory=node0+node0+read.storage=node0+node0drives",
    ]


def test_neighbours_share_an_l3_domain_or_lie_in_another():
    found: dict[str, set[str]] = {}
    for point in planned("epyc_7413_nps2", "interference_cache").points:
        [chase, *neighbours] = point["loads"]
        if neighbours:
            relation = str(point["factors"]["neighbour"])
            found.setdefault(relation, set()).add(neighbours[0]["initiator"]["cpus"])
            assert neighbours[0]["initiator"]["cpus"] != chase["initiator"]["cpus"]
    assert found.keys() == {"same_l3_domain", "same_node", "same_package", "other_package"}
    # PU 1 is a sibling of PU 0 and no neighbour: the first other core of its L3 domain is PU 2.
    assert "2" in found["same_l3_domain"]
    assert "1" not in found["same_l3_domain"]


def test_working_sets_fit_into_the_l3_cache_alone_and_not_together():
    plan = planned("epyc_7413_nps4", "interference_cache")
    cache = 32 * 2**20
    pairs = [
        [load["memory_bytes"] for load in point["loads"]]
        for point in plan.points
        if len(point["loads"]) > 1
    ]
    assert all(max(own) < cache for own in pairs)
    assert min(map(sum, pairs)) < cache < max(map(sum, pairs))


# Traffic in NPS0, where one node spans both packages, and in modes whose nodes do not.


CORES = 128


def points_in_mode(mode: int, experiment: str) -> list[Point]:
    """The points of an experiment on the server of document 001."""
    config = {"experiments": [experiment], "replicates": 1}
    host = simulated("epyc_9575f", f"epyc_9575f_nps{mode}", all_points=True, **config)
    return list(host.points)


def traffic_cores(point: Point) -> int:
    """Number of cores with traffic, without SMT siblings."""
    loads = [load for load in point["loads"] if load["role"] == "traffic"]
    return sum(len(parse_cpu_list(load["initiator"]["cpus"])) for load in loads)


@pytest.mark.parametrize(("mode", "cores"), [(0, CORES), (1, CORES // 2), (4, CORES // 2)])
def test_loaded_latency_loads_the_package_or_the_whole_node(mode: int, cores: int) -> None:
    found = {traffic_cores(point) for point in points_in_mode(mode, "loaded_latency")}
    assert found == {0, cores - 1}  # without traffic, and all cores but that of the chase


@pytest.mark.parametrize(("mode", "of_node"), [(0, CORES), (1, CORES // 2), (4, CORES // 8)])
def test_modes_are_compared_by_one_node_and_by_the_machine(mode: int, of_node: int) -> None:
    found: dict[object, set[int]] = {}
    for point in points_in_mode(mode, "modes_under_load"):
        found.setdefault(point["factors"]["traffic_of"], set()).add(traffic_cores(point))
    assert found == {"idle": {0}, "one_node": {of_node - 1}, "machine": {CORES - 1}}


# SMT siblings: compared by an experiment, used by all loads, or left out where there are none.


def without_smt(topology):
    """The same machine with its siblings switched off."""
    cores = tuple(replace(core, cpus=core.cpus[:1]) for core in topology.cores)
    pus = tuple(core.cpus[0] for core in cores)
    nodes = tuple(
        replace(node, cpus=tuple(sorted(set(node.cpus) & set(pus)))) for node in topology.nodes
    )
    return replace(topology, cores=cores, pus=pus, nodes=nodes)


def test_a_machine_without_siblings_has_nothing_to_compare(paper_host, config):
    topology = without_smt(paper_host.topology)
    plan = plan_of(topology, config, "smt_siblings", "latency_matrix")
    assert plan.points and not any("smt" in point["point"] for point in plan.points)
    reason = "left out, since no core of this host has several SMT threads in use"
    assert f"smt_siblings, memory_bandwidth: {reason}" in plan.notes
    with pytest.raises(UserError, match=reason):
        plan_of(topology, config, "smt_siblings")


def test_the_config_gives_every_load_all_siblings_under_the_same_names(paper_host, config):
    usual, every = (
        {
            point["point"]: point
            for point in plan_of(
                paper_host.topology, used, *("memory_bandwidth", "interference")
            ).points
        }
        for used in (config, {**config, "threads": "all"})
    )
    assert set(usual) == set(every)
    name = "memory=node0+node0+triad"
    assert usual[name]["loads"][0]["initiator"]["cpus"] == "0-5"
    assert every[name]["loads"][0]["initiator"]["cpus"] == "0-5,48-53"
    assert every[name]["loads"][0]["initiator"]["kind"] == "node"
    assert usual[name]["definition"] != every[name]["definition"]
    # A load on a single processing unit uses no sibling.
    assert (
        every["memory=pu0+node0+triad"]["definition"]
        == usual["memory=pu0+node0+triad"]["definition"]
    )


# Streaming compute: drives by package, where buffers lie, and the program's command line.


NAME = "streaming_compute"


@pytest.fixture(scope="module")
def points(resources, config):
    found, _ = expand(resources, config, load_experiment(NAME))
    return {point["point"]: point for point in found}


def option(load, name):
    [value] = [one.split("=", 1)[1] for one in load["command"] if one.startswith(f"--{name}=")]
    return value


def test_drives_of_a_package_are_taken_from_each_node_in_turn(resources):
    by_package = resources.drives_by_package()
    assert {package: len(drives) for package, drives in by_package.items()} == {0: 15, 1: 15}
    assert [drive["node"] for drive in by_package[0][:5]] == [0, 1, 2, 3, 0]
    assert [drive["node"] for drive in by_package[1][-3:]] == [5, 6, 7]


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
    host = HostResources(one, ({"component": "file0", "node": None, "file": "/x"},))
    found, notes = expand(host, config, load_experiment(NAME))
    assert all("buffers-other" not in point["point"] for point in found)
    assert any("buffers other left out" in note for note in notes)
    assert {point["factors"]["placement"] for point in found} == {"same_package", "unknown"}
    assert json.dumps(found)  # all of it can be written down


@given(st.sets(st.integers(0, 7), min_size=1), st.sets(st.integers(0, 7), min_size=1))
def test_packages_of_two_sides_are_the_same_other_or_both(resources, a, b):
    own, there = resources.target_of_nodes(a), resources.target_of_nodes(b)
    packages = [{node // 4 for node in nodes} for nodes in (a, b)]
    said = resources.relation_by_package(own, there)
    assert (said == "same_package") == (packages[1] <= packages[0])
    assert (said == "other_package") == (not packages[0] & packages[1])
    assert said in ("same_package", "other_package", "both_packages")
