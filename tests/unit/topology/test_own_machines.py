"""Topologies that ship with the tests, and synthetic topologies that hwloc makes."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import configuration_name


@pytest.fixture
def synthetic(tmp_path):
    """Makes a topology of hwloc's synthetic description."""

    def make(description: str, flags: int = 0):
        path = tmp_path / "synthetic.xml"
        command = ["lstopo-no-graphics", "--input", description, "--of", "xml", "-f"]
        subprocess.run([*command, "--export-xml-flags", str(flags), path], check=True)
        return discover_topology(str(path))

    return make


def test_relations_and_nodes_of_processing_units(epyc):
    assert epyc.node_relation(3, 3) == "same_node"
    assert epyc.node_relation(0, 3) == "same_package"
    assert epyc.node_relation(3, 4) == epyc.node_relation(4, 3) == "other_package"
    assert epyc.node_relation(0, 99) == epyc.node_relation(None, 0) == "unknown"
    assert epyc.nodes_of_pus([0, 48, 12]) == (0, 2)
    assert epyc.nodes_of_pus([]) == ()
    assert epyc.distances.distance_between(0, 4) == 32
    assert epyc.distances.distance_between(0, 99) is None


@pytest.mark.parametrize("name", ["epyc-7413-2s-nps4-30drives", "xeon-max-2s-hbm-flat"])
def test_packages_without_numbers_are_numbered_in_their_order(own, tmp_path, name):
    path = tmp_path / "unnumbered.xml"
    numbered = (own / f"{name}.xml").read_text()
    path.write_text(re.sub(r'(type="Package") os_index="\d+"', r"\1", numbered))
    found, wanted = (discover_topology(str(one)) for one in (path, own / f"{name}.xml"))
    assert found == replace(wanted, source=str(path))


def test_a_device_of_a_machine_with_one_node_is_near_it(own, tmp_path):
    text = (own / "devices.xml").read_text()
    single = tmp_path / "single.xml"
    command = ["lstopo-no-graphics", "--if", "xml", "--input", str(own / "devices.xml"), "-f"]
    subprocess.run([*command, "--filter", "io:all", "--restrict", "0x3", single], check=True)
    assert "nvme4n1" in text
    found = discover_topology(str(single))
    assert len(found.initiator_nodes) == 1
    assert {drive.node for drive in found.drives if drive.name == "nvme4n1"} == {0}


@pytest.mark.parametrize(
    ("description", "flags", "counts", "nodes", "name"),
    [
        ("pack:2 numa:2 core:6 pu:2", 0, (2, 4, 24, 48), [(0, 1), (2, 3)], "2nodes-per-package"),
        # A file of version 1.
        ("pack:2 numa:2 core:3 pu:2", 1, (2, 4, 12, 24), [(0, 1), (2, 3)], "2nodes-per-package"),
        # A node may span packages.
        ("numa:1 pack:2 core:2 pu:1", 0, (2, 1, 4, 4), [(), ()], "1node-over-packages"),
        # Without cores, each processing unit is a core.
        ("numa:2 pu:3", 0, (0, 2, 6, 6), [], "2nodes-over-packages"),
    ],
)
def test_synthetic_machines(synthetic, description, flags, counts, nodes, name):
    found = synthetic(description, flags)
    parts = (found.packages, found.nodes, found.cores, found.pus)
    assert tuple(map(len, parts)) == counts
    assert [package.nodes for package in found.packages] == nodes
    assert all(node.initiator and node.target for node in found.nodes)
    assert configuration_name(found) == name
    assert found.node_relation(0, 0) == "same_node"


def test_cpu_less_memory_next_to_each_package(synthetic):
    found = synthetic("pack:2 [numa(memory=1GB)] [numa(memory=4GB)] core:2 pu:1")
    kinds = [(n.initiator, n.kind) for n in found.nodes]
    assert kinds == [(True, "DRAM"), (False, "CPU-less")] * 2
    assert [node.tier for node in found.nodes] == [0, 1, 0, 1]


def test_an_l3_domain_may_span_nodes(synthetic):
    found = synthetic("pack:1 l3:1 numa:4 core:2 pu:1")
    assert [domain.nodes for domain in found.l3_domains] == [(0, 1, 2, 3)]
    assert {core.l3 for core in found.cores} == {0}
