"""Topologies that ship with the tests, and those of machines that others published."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from captured import Capture, CapturedNode

from chaosity.cpusets import parse_cpu_list
from chaosity.store.profile_anonymisation import topology_without_private_facts
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, configuration_name, topology_to_json
from chaosity.topology.topology_sources import SysfsReader
from machines import OWN_TOPOLOGIES, shipped_topology
from shipped_data import REAL_MACHINES


@pytest.fixture
def synthetic(tmp_path):
    """Makes a topology of hwloc's synthetic description."""

    def make(description: str, flags: int = 0):
        path = tmp_path / "synthetic.xml"
        command = ["lstopo-no-graphics", "--input", description, "--of", "xml", "-f"]
        subprocess.run([*command, "--export-xml-flags", str(flags), path], check=True)
        return discover_topology(str(path))

    return make


def test_relations_and_nodes_of_processing_units():
    epyc = shipped_topology("epyc-7413-2s-nps4-30drives")
    assert epyc.node_relation(3, 3) == "same_node"
    assert epyc.node_relation(0, 3) == "same_package"
    assert epyc.node_relation(3, 4) == epyc.node_relation(4, 3) == "other_package"
    assert epyc.node_relation(0, 99) == epyc.node_relation(None, 0) == "unknown"
    assert epyc.nodes_of_pus([0, 48, 12]) == (0, 2)
    assert epyc.nodes_of_pus([]) == ()
    assert epyc.distances.distance_between(0, 4) == 32
    assert epyc.distances.distance_between(0, 99) is None


@pytest.mark.parametrize("name", ["epyc-7413-2s-nps4-30drives", "xeon-max-2s-hbm-flat"])
def test_packages_without_numbers_are_numbered_in_their_order(tmp_path, name):
    path = tmp_path / "unnumbered.xml"
    numbered = (OWN_TOPOLOGIES / f"{name}.xml").read_text()
    path.write_text(re.sub(r'(type="Package") os_index="\d+"', r"\1", numbered))
    found, wanted = (discover_topology(str(one)) for one in (path, OWN_TOPOLOGIES / f"{name}.xml"))
    assert found == replace(wanted, source=str(path))


def test_a_device_of_a_machine_with_one_node_is_near_it(tmp_path):
    devices, single = OWN_TOPOLOGIES / "devices.xml", tmp_path / "single.xml"
    command = ["lstopo-no-graphics", "--if", "xml", "--input", devices, "-f"]
    subprocess.run([*command, "--filter", "io:all", "--restrict", "0x3", single], check=True)
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


FACTS = json.loads((REAL_MACHINES / "facts.json").read_text())
XMLS = sorted(name for name in FACTS if name.startswith("xml/"))
# Not those that take long to unpack and are like others.
LONG = ("48amd64-4pa2n6c-sparse.tar.bz2", "memorysidecaches.tar.bz2")
CAPTURES = sorted(path.name for path in REAL_MACHINES.glob("sysfs/*") if path.name not in LONG)

# Initiators and targets of machines where hwloc's output does not separate them.
TRUTH = {
    "16amd64-8n2c-cpusets": ("0-3,6-7", "1-4"),
    "16amd64-8n2c-cpusets-disallowed": ("0-3,6-7", "1-4"),
    "fakememinitiators-1np2c+1npp+gi": ("0-3", "5-10"),
    "mpibind_knl7250-snc4-flat": ("0-3", "0-7"),
    "nri_clx-2s-snc2-pmem-8n": ("0-3", "0-7"),
}
RESTRICTED = {
    "16amd64-8n2c-cpusets",
    "16amd64-8n2c-cpusets-disallowed",
    "offline-cpu0-node0",
}
CONFIGURATIONS = {
    "mpibind_trento-7A53-nps4": "nps4",
    "mpibind_naples-2s-7401-8n": "nps4",
    "prrte_turin-2s-9555-nps4": "nps4",
    "memorysidecaches": "snc2-cache",
    "mpibind_knl7250-snc4-flat": "snc4-flat",
    "192em64t-12gr2n8c2t": "snc1",
    "48amd64-4pa2n6c-sparse": "2nodes-per-package",
    "nri_clx-2s-snc2-pmem-8n": "2nodes-per-package",  # the file does not name the processor
    "20em64t-hybrid-1p6c2t+2ca4co1t": "1node-per-package",
}


@cache
def topology(file: str) -> Topology:
    if not file.startswith("sysfs/"):
        return discover_topology(str(REAL_MACHINES / file))
    with tempfile.TemporaryDirectory() as folder:
        unpack(REAL_MACHINES / file, Path(folder))
        return discover_topology(folder)


def unpack(archive: Path, folder: Path) -> None:
    """Without owners and times of the files, and without bzip2, which a fresh machine lacks."""
    with tarfile.open(archive) as members:
        for member in members:
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                path.symlink_to(member.linkname)
            elif content := members.extractfile(member):
                path.write_bytes(content.read())
            else:
                path.mkdir(exist_ok=True)


def stem(file: str) -> str:
    return Path(file).name.removesuffix(".xml").partition(".tar")[0]


def flagged(found: Topology, flag: str) -> tuple[int, ...]:
    return tuple(node.os_index for node in found.nodes if getattr(node, flag))


def partition(found: Topology) -> None:
    """Every usable unit is of one core and one package, and of one node at most."""
    assert sorted(cpu for core in found.cores for cpu in core.cpus) == list(found.pus)
    assert sorted(cpu for package in found.packages for cpu in package.cpus) == list(found.pus)
    owners = [cpu for node in found.nodes for cpu in node.cpus]
    assert len(owners) == len(set(owners))


@pytest.mark.parametrize("xml", XMLS)
def test_the_topology_is_what_hwloc_shows(xml: str):
    found, view = topology(xml), FACTS[xml]["hwloc_2_9_0_view"]
    values, counts = topology_to_json(found), view["counts"]
    shown = {key: values[key] for key in ("packages", "cores", "pus")}
    assert shown == {"packages": counts["Package"], "cores": counts["Core"], "pus": counts["PU"]}
    assert len(values["l3_domains"]) == counts.get("L3Cache", 0)
    partition(found)
    # Usable are the units that are shown and not forbidden.
    visible, forbidden = (
        parse_cpu_list(view[key].replace("-", "", view[key] == "-"))
        for key in ("cpus", "disallowed_cpus")
    )
    assert set(found.pus) == set(visible) - set(forbidden)
    listed = {node["os_index"]: node for node in values["nodes"]}
    for fact in view["nodes"]:
        node = listed[fact["os"]]
        assert node["memory_bytes"] == fact["mem"]
        if node["cpus"]:  # CPU-less nodes show a neighbour's in hwloc
            assert node["cpus"] == fact["cpus"]
    expected = TRUTH.get(stem(xml))
    nodes = tuple(node["os"] for node in view["nodes"])
    initiators, targets = map(parse_cpu_list, expected) if expected else (nodes, nodes)
    assert (flagged(found, "initiator"), flagged(found, "target")) == (initiators, targets)
    assert found.is_restricted is (stem(xml) in RESTRICTED)
    # The qemu machine shows no caches.
    assert found.cache_line_bytes == (None if "fakememinitiators" in xml else 64)


@pytest.mark.parametrize("xml", XMLS)
def test_distances_attributes_and_kinds_of_cores_are_those_of_the_file(xml: str):
    found, view = topology(xml), FACTS[xml]["hwloc_2_9_0_view"]
    slit = view.get("slit")
    if slit is None:
        assert found.distances is None
    else:
        assert list(found.distances.nodes) == slit["idx"]
        assert [list(row) for row in found.distances.matrix] == slit["m"]
    expected = {
        name: int(count.rstrip(")"))
        for name, _, count in (text.partition("(") for text in view["memattrs"])
    }
    assert len(found.memory_attributes) == sum(expected.values())
    for item in found.memory_attributes:  # of the HMAT, in SI units
        assert 10 < item.value < 1000 if item.name.endswith("_ns") else 1e9 < item.value < 1e12
    assert len(found.core_kinds) == max(1, len(view["cpukinds"]))
    for kind, fact in zip(found.core_kinds, view["cpukinds"], strict=False):
        assert kind.cpus == parse_cpu_list(fact["cpus"])
        frequency = fact.get("FrequencyMaxMHz")
        assert kind.frequency_max_hertz == (int(frequency) * 10**6 if frequency else None)


@pytest.mark.parametrize("xml", XMLS)
def test_drives_and_gpus_are_those_of_the_file(xml: str):
    found, view = topology(xml), FACTS[xml]["hwloc_2_9_0_view"]
    assert [f"{one.pci}@N{one.node}" for one in found.drives] == sorted(view["nvme_pci"])
    disks = {name.partition("(")[0] for name in view["block"] if name.startswith("nvme")}
    renamed = {"nvme0c0n1": "nvme0n1"}
    assert {d.name for d in found.drives if d.name} == {renamed.get(disk, disk) for disk in disks}
    places = {text.partition("(")[0].partition("@")[0]: text for text in view["gpu"]}
    for gpu in found.gpus:
        assert gpu.node == min(parse_cpu_list(places[gpu.name].partition("@N")[2]))


def test_each_physical_gpu_is_listed_once():
    physical = {
        "xml/mpibind_trento-7A53-nps4.xml": 8,
        "xml/mpibind_naples-2s-7401-8n.xml": 4,
        "xml/prrte_turin-2s-9555-nps4.xml": 4,
    }
    for xml in XMLS:
        compute = [gpu for gpu in topology(xml).gpus if gpu.compute]
        assert len(compute) == physical.get(xml, 0), xml


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_and_its_xml_agree(name: str):
    ours, theirs = topology(f"sysfs/{name}"), topology(f"xml/{stem(name)}.xml")
    partition(ours)
    assert ours.counts == theirs.counts
    assert ours.cores == theirs.cores
    assert ours.core_kinds == theirs.core_kinds
    assert [(n.os_index, n.cpus, n.tier) for n in ours.nodes] == [
        (n.os_index, n.cpus, n.tier) for n in theirs.nodes
    ]
    assert [(d.name, d.pci, d.node) for d in ours.drives] == [
        (d.name, d.pci, d.node) for d in theirs.drives
    ]
    assert configuration_name(ours) == configuration_name(theirs)
    everything = tuple(node.os_index for node in ours.nodes)
    expected = TRUTH.get(stem(name))
    wanted = tuple(map(parse_cpu_list, expected)) if expected else (everything, everything)
    assert (flagged(ours, "initiator"), flagged(ours, "target")) == wanted
    assert ours.is_restricted is (stem(name) in RESTRICTED)
    view = FACTS[f"xml/{stem(name)}.xml"]["sysfs_view"]  # of the kernel
    assert list(everything) == [node["node"] for node in view["nodes"]]
    for node, kernel in zip(ours.nodes, view["nodes"], strict=True):
        listed = parse_cpu_list("" if kernel["cpus"] == "-" else kernel["cpus"])
        assert set(node.cpus) == set(listed) & set(ours.pus)
        assert node.memory_bytes == kernel["mem_kB"] * 1024
        if ours.distances and ours.distances.nodes == everything:
            row = ours.distances.matrix[ours.distances.nodes.index(node.os_index)]
            assert list(row) == kernel["distance"]


@pytest.mark.parametrize(("name", "expected"), CONFIGURATIONS.items())
def test_configurations(name, expected):
    assert configuration_name(topology(f"xml/{name}.xml")) == expected


def test_persistent_memory_belongs_to_the_nearest_node():
    found = topology("sysfs/nri_clx-2s-snc2-pmem-8n.tar.bz2")
    nearest = {
        far.os_index: min(
            found.initiator_nodes,
            key=lambda n: found.distances.distance_between(n.os_index, far.os_index),
        ).os_index
        for far in found.nodes
        if not far.initiator
    }
    assert nearest == {4: 0, 5: 2, 6: 1, 7: 3}
    assert [node.tier for node in found.nodes] == [0] * 4 + [1] * 4
    assert found.node_relation(0, 2) == "same_package"
    assert found.node_relation(0, 4) == "same_package"
    assert found.node_relation(0, 1) == "other_package"


def test_fast_memory_is_the_first_tier():
    found = topology("xml/mpibind_knl7250-snc4-flat.xml")
    assert {node.kind: node.tier for node in found.nodes} == {"MCDRAM": 0, "DRAM": 1}


def test_memory_less_nodes_and_generic_initiators():
    found = topology("sysfs/fakememinitiators-1np2c+1npp+gi.tar.bz2")
    assert [node.os_index for node in found.nodes if node.memory_bytes == 0] == [0, 1, 2, 3, 4]
    assert found.find_node(4).initiator is found.find_node(4).target is False
    assert {node.os_index: node.kind for node in found.memory_nodes} == {
        5: "DRAM",
        6: "DRAM",
        7: "NVM",
        8: "DRAM",
        9: "DRAM",
        10: "NVM",
    }
    assert found.distances.distance_between(0, 5) == 11


def test_memory_side_caches_are_known():
    found = topology("xml/memorysidecaches.xml")
    assert {node.memory_side_cache_bytes for node in found.nodes} == {96 * 2**30}


def test_offline_and_forbidden_units_are_separated_where_possible():
    offline = topology("sysfs/offline-cpu0-node0.tar.bz2").restrictions
    assert offline.offline_cpus == parse_cpu_list("0-3,21-23")
    assert offline.disallowed_cpus == ()
    held = topology("sysfs/16amd64-8n2c-cpusets.tar.bz2").restrictions
    assert (held.offline_cpus, held.disallowed_cpus) == ((4,), (7, 8, 9, 10, 11))
    assert held.disallowed_nodes == (0, 5, 6, 7)
    xml = topology("xml/16amd64-8n2c-cpusets.xml").restrictions
    assert xml.missing_cpus == (4, 7, 8, 9, 10, 11)
    assert xml.offline_cpus == xml.disallowed_cpus == ()
    assert topology("xml/16amd64-8n2c-cpusets-disallowed.xml").restrictions == held


def test_a_multipath_disk_has_the_name_that_programs_can_open():
    drives = topology("xml/prrte_turin-2s-9555-nps4.xml").drives
    assert [(d.name, d.pci) for d in drives] == [
        ("nvme1n1", "0000:71:00.0"),
        ("nvme0n1", "0000:72:00.0"),
    ]


def test_nvme_functions_without_a_block_device_have_no_name():
    drives = topology("xml/mpibind_trento-7A53-nps4.xml").drives
    assert len(drives) == 16
    assert {(drive.name, drive.node) for drive in drives} == {(None, 0)}


def test_interleaved_cores_of_a_risc_v_server(tmp_path):
    """The nodes of a Milk-V Pioneer, of which its kernel tells the CPUs alone."""
    nodes = ["0-7,16-23", "8-15,24-31", "32-39,48-55", "40-47,56-63"]
    captured = {index: CapturedNode(cpus, 0) for index, cpus in enumerate(nodes)}
    Capture(captured, {0: "0-63"}).write(tmp_path)
    for folder in tmp_path.glob("sys/devices/system/node/node*"):
        (folder / "cpulist").unlink()
        (folder / "meminfo").unlink()
    found = discover_topology(str(tmp_path))
    assert [node.cpus for node in found.nodes] == [parse_cpu_list(cpus) for cpus in nodes]
    assert flagged(found, "initiator") == flagged(found, "target") == (0, 1, 2, 3)
    assert {node.memory_bytes for node in found.nodes} == {None}


# Network cards get their node and rate; their hardware addresses are never read.


HARDWARE_ADDRESS = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


def test_an_interface_and_its_openfabrics_device_are_one_card():
    found = topology("xml/mpibind_naples-2s-7401-8n.xml").nics
    assert [(nic.name, nic.kind, nic.node) for nic in found] == [
        ("enp3s0f0", "ethernet", 0),
        ("enp3s0f1", "ethernet", 0),
        ("hsi0", "infiniband", 3),
    ]
    assert found[2].model == "MT28908 Family [ConnectX-6]"


def test_four_cards_of_a_node_with_four_gpus_are_on_four_nodes():
    found = topology("xml/mpibind_trento-7A53-nps4.xml").nics
    places = {nic.name: nic.node for nic in found if nic.name.startswith("hsi")}
    assert sorted(places) == ["hsi0", "hsi1", "hsi2", "hsi3"]
    assert len(set(places.values())) == 4


def test_no_address_is_stored_and_names_are_not_published():
    """The XML of the topology has the addresses; what a profile holds comes from the JSON."""
    naples = "xml/mpibind_naples-2s-7401-8n.xml"
    assert HARDWARE_ADDRESS.search((REAL_MACHINES / naples).read_text())
    stored = topology_to_json(topology(naples))
    assert not HARDWARE_ADDRESS.search(str(stored))
    public = topology_without_private_facts(stored)["nics"]
    assert [set(nic) for nic in public] == [{"kind", "model", "node", "link_bytes_per_second"}] * 3
    assert "hsi0" not in str(public)


def test_the_rate_is_that_of_the_kernel_in_bytes(tmp_path):
    for name, text in {"up": "100000\n", "down": "-1\n", "empty": ""}.items():
        folder = tmp_path / "sys/class/net" / name
        folder.mkdir(parents=True)
        (folder / "speed").write_text(text)
    sysfs = SysfsReader(tmp_path)
    rates = [sysfs.network_bytes_per_second(name) for name in ("up", "down", "empty", "none")]
    assert rates == [12_500_000_000, None, None, None]
