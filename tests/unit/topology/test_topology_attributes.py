"""Attributes of a topology that other modules read, and topologies from incomplete JSON."""

from __future__ import annotations

import json

import pytest

from chaosity.topology.topology_model import (
    Topology,
    read_topology,
    topology_from_json,
    topology_to_json,
)
from chaosity.topology.topology_parts import CoreKind, Gpu, L3Domain, Node, PartCounts


def node(index: int, package: int | None, cpus: tuple[int, ...] = (), **facts: object) -> Node:
    """Returns a node with memory, and with processing units if there are any."""
    known = {"initiator": bool(cpus), "target": True, "shown_cpus": cpus, "package": package}
    return Node(index, cpus, **{**known, **facts})


def test_packages_nodes_and_l3_domains_of_the_two_socket_epyc(epyc):
    assert epyc.package_of_node == {index: index // 4 for index in range(8)}
    assert epyc.nodes_of_comparable_packages == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert epyc.node_of_pu[18] == epyc.node_of_pu[66] == 3
    assert set(epyc.node_of_pu) == set(epyc.l3_of_pu) == set(epyc.pus)
    assert epyc.l3_of_pu[epyc.l3_domains[5].cpus[0]] == 5
    assert epyc.core_kind_of_pu == {}
    assert epyc.total_memory_bytes == 8 * 32 * 2**30
    assert epyc.cpu_model == epyc.packages[0].model


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node(0, 0, (0,)), node(1, 1, (1,))], ((0,), (1,))),
        ([node(1, 1, (1,)), node(0, 0, (0,)), node(2, 0)], ((0,), (1,))),
        ([node(0, 0, (0,)), node(1, 0, (1,))], None),
        ([node(0, 0, (0,)), node(1, 1, (1,)), node(2, 1, (2,))], None),
        ([node(0, None, (0,)), node(1, 0, (1,)), node(2, 1, (2,))], None),
        ([], None),
    ],
)
def test_packages_are_compared_only_if_they_have_equal_numbers_of_nodes(nodes, expected):
    assert Topology(nodes=tuple(nodes)).nodes_of_comparable_packages == expected


def test_processing_units_have_a_core_kind_where_there_are_several_kinds():
    kinds = (CoreKind(0, (0, 1)), CoreKind(1, (2,)))
    assert Topology(core_kinds=kinds).core_kind_of_pu == {0: 0, 1: 0, 2: 1}
    assert Topology(core_kinds=kinds[:1]).core_kind_of_pu == {}


def test_processing_units_that_a_cgroup_forbids_have_a_node_too():
    topology = Topology(nodes=(node(0, 0, (0,), shown_cpus=(0, 1)),))
    assert topology.node_of_pu == {0: 0, 1: 0}


def test_the_size_of_memory_is_what_the_firmware_gave():
    assert node(0, 0, memory_bytes=5, present_bytes=8).size_bytes == 8
    assert node(0, 0, memory_bytes=5).size_bytes == 5
    assert Topology(nodes=(node(0, 0),)).total_memory_bytes is None


def test_gpus_that_only_drive_a_display_do_not_compute():
    gpus = (Gpu("card0", compute=False), Gpu("cuda0"))
    assert Topology(gpus=gpus).compute_gpus == gpus[1:]


def test_json_without_a_key_gives_a_topology_with_unknown_parts():
    assert topology_from_json({}) == Topology()
    topology = topology_from_json(
        {
            "cores": 4,
            "nodes": [{"os_index": 1, "cpus": "0-1", "package": 0, "from_the_future": True}],
            "l3_domains": [{"index": 0, "cpus": "0-1"}],
            "host": {"cpu_model": "EPYC"},
        }
    )
    assert topology.nodes == (Node(1, (0, 1), package=0, shown_cpus=(0, 1)),)
    assert topology.l3_domains == (L3Domain(0, (0, 1)),)
    assert topology.counts == PartCounts(cores=4)
    assert topology.cpu_model == "EPYC"


def test_a_topology_is_read_from_its_file(epyc, tmp_path):
    path = tmp_path / "topology.json"
    assert read_topology(path) is None
    path.write_text(json.dumps(topology_to_json(epyc)))
    assert read_topology(path) == epyc
