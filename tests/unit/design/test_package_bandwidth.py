"""Packages and the machine on their own memory, and packages on each other's memory."""

from __future__ import annotations

import pytest

from chaosity.records.point_types import Load
from machines import planned


def loads(topology: str, machine: str) -> dict[tuple[str, str], Load]:
    """Initiator and target -> the reading load of the experiment on a machine that ships."""
    points = planned(machine, topology, experiments=["package_bandwidth"]).points
    assert len(points) == len({point["point"] for point in points})
    each = [load for point in points for load in point["loads"]]
    kernels = [load["kernel"] for load in each]
    assert kernels.count("read") == kernels.count("fill_nt") == len(points) / 2
    return {
        (load["initiator"]["name"], load["target"]["name"]): load
        for load in each
        if load["kernel"] == "read"
    }


@pytest.mark.parametrize(
    ("topology", "machine", "expected"),
    [
        (
            "epyc_7413_nps4",
            "epyc_7413",
            {
                **{("package0", "nodes0-3"): "same_nodes", ("package1", "nodes4-7"): "same_nodes"},
                ("package0", "nodes4-7"): "other_package",
                ("package1", "nodes0-3"): "other_package",
                ("machine", "nodes0-7"): "same_nodes",
            },
        ),
        # A package with one node has the name of the node.
        (
            "xeon_8358",
            "xeon_8358",
            {
                **{("node0", "node0"): "same_node", ("node1", "node1"): "same_node"},
                **{("node0", "node1"): "other_package", ("node1", "node0"): "other_package"},
                ("machine", "nodes0-1"): "same_nodes",
            },
        ),
        # Package, node and machine are the same cores.
        ("desktop", "desktop", {("node0", "node0"): "same_node"}),
    ],
)
def test_each_package_and_the_machine_are_measured_once(topology, machine, expected):
    found = loads(topology, machine)
    assert {place: load["target"]["relation"] for place, load in found.items()} == expected


def test_memory_without_cores_is_not_mixed_with_own_memory():
    found = loads("xeon_max_9480_snc4", "xeon_max_9480_snc4")
    assert ("machine", "nodes0,2,4,6,8,10,12,14") in found
    assert not any(node % 2 for load in found.values() for node in load["target"]["nodes"])


def test_pages_lie_evenly_on_the_nodes_of_another_package():
    """On own nodes, the first touch by each core spreads them."""
    found = loads("epyc_7413_nps4", "epyc_7413")
    interleaved = {place for place, load in found.items() if "--interleave" in load["command"]}
    assert interleaved == {("package0", "nodes4-7"), ("package1", "nodes0-3")}
