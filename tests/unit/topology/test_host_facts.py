"""Settings and memory modules, from real output of the kernel and dmidecode."""

from __future__ import annotations

import pytest

from chaosity.topology.host_facts import (
    bracketed_word,
    parse_dmidecode_memory_modules,
    relevant_kernel_parameters,
)
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_sources import SysfsReader, link_bytes_per_second
from shipped_data import REAL_MACHINES

DMIDECODE = """\
Memory Device
\tTotal Width: 72 bits
\tSize: 16 GB
\tForm Factor: DIMM
\tLocator: P1-DIMMA1
\tBank Locator: P0_Node0_Channel0_Dimm0
\tType: DDR4
\tSpeed: 3200 MT/s
\tManufacturer: Micron
\tSerial Number: 2F3A4B5C
\tPart Number: 18ASF2G72PZ-3G2E1
\tRank: 2
\tConfigured Memory Speed: 2933 MT/s

Memory Device
\tSize: No Module Installed
\tLocator: P1-DIMMA2
\tSpeed: Unknown
\tManufacturer: NO DIMM
"""


def test_memory_modules_and_empty_slots():
    module, empty = parse_dmidecode_memory_modules(DMIDECODE)
    assert module == {
        "size": "16 GB",
        "slot": "P1-DIMMA1",
        "bank": "P0_Node0_Channel0_Dimm0",
        "type": "DDR4",
        "speed": "3200 MT/s",
        "manufacturer": "Micron",
        "serial": "2F3A4B5C",
        "part": "18ASF2G72PZ-3G2E1",
        "ranks": "2",
        "configured_speed": "2933 MT/s",
    }
    assert (empty["slot"], empty["size"]) == ("P1-DIMMA2", "No Module Installed")
    assert empty["speed"] is empty["manufacturer"] is None


def test_unrelated_text_has_no_memory_modules():
    assert parse_dmidecode_memory_modules("# No SMBIOS nor DMI entry point found, sorry.\n") == []


def test_memory_modules_in_hwlocs_xml():
    path = REAL_MACHINES / "xml/32em64t-2n8c+dax+nvme+mic+dimms.xml"
    modules = discover_topology(str(path)).host["memory_modules"]
    assert len(modules) == 8
    assert modules[0]["slot"] == "DIMM_A1"
    assert modules[0]["part"] == "HMT351R7CFR8C-PB"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro quiet", []),
        ("ro isolcpus=1-3 nohz_full=1-3", ["isolcpus=1-3", "nohz_full=1-3"]),
        ("iommu=pt numa_balancing=disable", ["iommu=pt", "numa_balancing=disable"]),
        ("nvme.poll_queues=4 nvme-core.io=1", ["nvme.poll_queues=4", "nvme-core.io=1"]),
        ("mitigations=off -- mitigations=on", ["mitigations=off"]),
        ("console=ttyS0 splash --", []),
    ],
)
def test_kernel_parameters_that_change_measurements(line, kept):
    assert relevant_kernel_parameters(line) == kept


def test_the_chosen_word():
    assert bracketed_word("always [madvise] never") == "madvise"
    assert bracketed_word("none") == "none"
    assert bracketed_word(None) is None


@pytest.mark.parametrize(
    ("rate", "lanes", "gigabytes"),
    [
        (2.5, 1, 0.25),
        (5.0, 4, 2.0),
        (8.0, 4, 3.938),
        (16.0, 4, 7.877),
        (32.0, 4, 15.754),
        (64.0, 4, 30.25),
    ],
)
def test_pcie_links_after_encoding(rate, lanes, gigabytes):
    assert link_bytes_per_second(rate, lanes) == pytest.approx(gigabytes * 1e9, rel=1e-3)


def test_a_file_that_cannot_be_read_is_unknown(tmp_path):
    tree = SysfsReader(tmp_path)
    (tmp_path / "words").write_text("not a number\n")
    (tmp_path / "folder").mkdir()
    assert (
        tree.read_text("nothing")
        is tree.read_number("nothing")
        is tree.read_cpu_list("nothing")
        is None
    )
    assert (
        tree.read_number("words") is tree.read_cpu_list("words") is tree.read_text("folder") is None
    )
    assert tree.list_directory("nothing") == []
    assert tree.read_nodes() == ()
