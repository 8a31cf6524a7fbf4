"""Captured /sys trees that the tests write: all kinds of nodes and drives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captured import GIB, Capture, CapturedDrive, CapturedNode

from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from chaosity.topology.topology_model import configuration_name

CPUINFO = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: {}\nmicrocode\t: 0xa0\nflags\t: b a"
)

# Half of the channels are empty: nodes 1 and 3 have processors and no memory.
MEMORY_LESS = Capture(
    {
        0: CapturedNode("0-1", 16, (10, 16, 32, 32)),
        1: CapturedNode("2-3", 0, (16, 10, 32, 32)),
        2: CapturedNode("4-5", 32, (32, 32, 10, 16)),
        3: CapturedNode("6-7", 0, (32, 32, 16, 10)),
    },
    {0: "0-3", 1: "4-7"},
)
# The memory of a GPU and the empty nodes that its partitions would get.
SUPERCHIP = Capture(
    {
        0: CapturedNode("0-7", 480, (10, 80, 80, 80)),
        1: CapturedNode("", 96, (80, 10, 255, 255)),
        2: CapturedNode("", 0, (80, 255, 10, 255)),
        3: CapturedNode("", 0, (80, 255, 255, 10)),
    },
    {0: "0-7"},
)
# Sparse and large node numbers, and CPU numbers beyond one 64-bit word.
SPARSE = Capture(
    {
        0: CapturedNode("8-15", 128, (10, 40, 80)),
        8: CapturedNode("80-87", 128, (40, 10, 80)),
        252: CapturedNode("", 16, (80, 80, 10)),
    },
    {0: "8-15", 8: "80-87"},
)


def captured(folder, capture=MEMORY_LESS, **parts):
    """The topology of a capture, with other or further parts."""
    return discover_topology(str(replace(capture, **parts).write(folder)))


def flags(topology):
    return [(n.os_index, n.initiator, n.target) for n in topology.nodes]


@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        (
            MEMORY_LESS,
            [(0, True, True), (1, True, False), (2, True, True), (3, True, False)],
        ),
        (
            SUPERCHIP,
            [(0, True, True), (1, False, True), (2, False, False), (3, False, False)],
        ),
        (SPARSE, [(0, True, True), (8, True, True), (252, False, True)]),
    ],
    ids=["memory-less", "superchip", "sparse"],
)
def test_a_capture_and_its_xml_give_equal_initiators_and_targets(capture, expected, tmp_path):
    root = capture.write(tmp_path / "root")
    found = discover_topology(str(root))
    assert flags(found) == expected
    xml = tmp_path / "topology.xml"
    xml.write_text(discover_topology_with_xml(str(root))[1])
    again = discover_topology(str(xml))
    assert flags(again) == expected
    assert [n.cpus for n in again.nodes] == [n.cpus for n in found.nodes]
    assert not found.is_restricted
    assert not again.is_restricted


def test_memory_less_nodes_have_a_row_in_the_distances(tmp_path):
    found = captured(tmp_path)
    assert found.distances.nodes == (0, 1, 2, 3)
    assert found.distances.distance_between(1, 3) == 32
    assert found.node_relation(1, 3) == "other_package"
    assert [n.tier for n in found.nodes] == [0, None, 0, None]


TIER = "sys/devices/virtual/memory_tiering/memory_tier{}/nodelist"


@pytest.mark.parametrize(
    ("files", "tiers"),
    [
        ({}, [0, 0, 1]),  # distant memory of unknown technology is a tier of its own
        ({TIER.format(4): "252", TIER.format(22): "0,8"}, [1, 1, 0]),  # the kernel decides
        ({TIER.format(4): "0,8,252"}, [0, 0, 1]),  # but not with a single tier
    ],
)
def test_memory_tiers(tmp_path, files, tiers):
    found = captured(tmp_path, SPARSE, files=files)
    assert [node.tier for node in found.nodes] == tiers
    assert [node.kind for node in found.nodes][:2] == ["DRAM", "DRAM"]
    assert files or found.nodes[2].kind == "CPU-less"


def test_drives_have_serial_size_node_and_link(tmp_path):
    drives = [
        CapturedDrive("0000:41:00.0", "nvme1n1", 2, "ABC"),
        CapturedDrive("0000:01:00.0", "nvme0n1", -1, speed="5.0 GT/s PCIe", width=2),
        CapturedDrive("0000:02:00.0", "nvme2n1", 1, speed="Unknown"),
    ]
    slow, unknown, fast = captured(tmp_path, drives=drives).drives
    assert (fast.name, fast.pci) == ("nvme1n1", "0000:41:00.0")
    assert (fast.serial, fast.model) == ("ABC", "DRIVE X")
    assert (fast.node, fast.firmware, fast.size_bytes) == (2, "1.0", 2**31 * 512)
    assert fast.link_bytes_per_second == pytest.approx(16e9 * 128 / 130 * 4 / 8, rel=1e-9)
    assert fast.link_max_bytes_per_second == pytest.approx(32e9 * 128 / 130 * 4 / 8, rel=1e-9)
    assert (slow.node, slow.link_bytes_per_second) == (None, 1_000_000_000)
    assert (unknown.node, unknown.link_bytes_per_second) == (1, None)


def test_a_memory_balloon_does_not_change_present_memory(tmp_path):
    zones = "Node 0, zone      DMA\n  pages free     3\n        present  1024\n        managed  9\n"
    zones += (
        "Node 0, zone   Normal\n        present  1048576\nNode 2, zone Normal\n        present  7"
    )
    found = captured(tmp_path, files={"proc/zoneinfo": zones})
    assert found.find_node(0).present_bytes == (1024 + 1048576) * 4096
    assert found.find_node(0).memory_bytes == 16 * GIB
    assert found.find_node(2).present_bytes == 7 * 4096
    assert found.find_node(1).present_bytes is None


def test_huge_pages_are_counted_by_node_and_size(tmp_path):
    base = "sys/devices/system/node/node0/hugepages"
    files = {
        f"{base}/hugepages-2048kB/nr_hugepages": "512",
        f"{base}/hugepages-2048kB/free_hugepages": "7",
        f"{base}/hugepages-1048576kB/nr_hugepages": "0",
    }
    pools = captured(tmp_path, files=files).huge_page_pools
    assert [(p.node, p.page_bytes, p.pages) for p in pools] == [(0, 2**21, 512), (0, 2**30, 0)]


def test_settings_that_change_measurements_are_read(tmp_path):
    files = {
        "proc/cpuinfo": CPUINFO.format("AMD EPYC 7401 24-Core Processor"),
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=2-3 mitigations=off quiet",
        "proc/sys/kernel/numa_balancing": "1",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/devices/system/cpu/smt/control": "off",
        "sys/devices/system/cpu/cpufreq/boost": "0",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "3500000",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "1234567",
        "sys/devices/system/cpu/cpu0/cpuidle/state2/name": "C2",
        "sys/devices/system/cpu/cpu0/cpuidle/state2/disable": "1",
    }
    found = captured(tmp_path, files=files)
    host = found.host
    assert host["kernel_parameters"] == ["isolcpus=2-3", "mitigations=off"]
    assert host["microcode"] == "0xa0"
    assert host["cpu_flags"] == ["a", "b"]
    assert host["smt"] == "off"
    assert host["frequency"]["governors"] == ["performance", "powersave"]
    assert host["frequency"]["upper_limits_hertz"] == [3_500_000_000]
    assert host["frequency"]["turbo"] is False
    assert host["idle"]["disabled_states"] == ["C2"]
    assert host["memory_settings"]["transparent_huge_pages"] == "madvise"
    assert host["memory_settings"]["numa_balancing"] == "1"
    assert "1234567" not in str(host)
    assert configuration_name(found) == "nps2"


def test_a_capture_directory_may_be_the_root_its_parent_or_sys_itself(tmp_path):
    root = MEMORY_LESS.write(tmp_path / "gathered" / "machine")
    for place in (root, root.parent, root / "sys"):
        assert len(discover_topology(str(place)).nodes) == 4
