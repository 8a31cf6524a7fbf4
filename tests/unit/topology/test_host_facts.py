"""Facts on a host, and the peak bandwidth of its memory.

Tables are built field by field as DMTF DSP0134 defines type 17.
"""

from __future__ import annotations

from dataclasses import replace
from struct import pack_into

import pytest

from chaosity.components import make_component_documents
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.runner import describe_host
from chaosity.runner.describe_host import parse_memory_modules
from chaosity.topology import topology_discovery
from chaosity.topology.host_facts import (
    bracketed_word,
    find_memory_peak,
    parse_dmidecode_memory_modules,
    relevant_kernel_parameters,
)
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_parts import MemoryPeak, Node
from chaosity.topology.topology_sources import SysfsReader, link_bytes_per_second
from machines import shipped_topology
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


DDR4, DDR5, LPDDR5, HBM2, PERSISTENT = 0x1A, 0x22, 0x23, 0x21, 0x1F
GIB = 2**30
END = bytes([127, 4, 0, 0, 0, 0])
BIOS = bytes([0, 4, 1, 0]) + b"Vendor\0" + b"1.0\0\0"


def device(
    kind=DDR4, size_mib=16384, rate=3200, width=64, slot="P0 CHANNEL A", bank="BANK 0", length=0x5C
):
    """A structure "Memory Device"; sizes and speeds are in the extended fields if they must be."""
    fields = bytearray(0x5C)
    pack_into("<BBH", fields, 0, 17, length, 0x1100)
    pack_into("<HH", fields, 0x08, 72, width)
    pack_into("<H", fields, 0x0C, min(size_mib, 0x7FFF))
    pack_into("<BBB", fields, 0x10, 1, 2, kind)
    pack_into("<H", fields, 0x15, 1)  # the highest speed that the module allows counts for nothing
    pack_into("<I", fields, 0x1C, size_mib if size_mib >= 0x7FFF else 0)
    pack_into("<H", fields, 0x20, min(rate, 0xFFFF))
    pack_into("<I", fields, 0x58, rate if rate >= 0xFFFF else 0)
    return bytes(fields[:length]) + f"{slot}\0{bank}\0\0".encode()


def table(*devices):
    return BIOS + b"".join(devices) + END


def test_modules_of_two_generations():
    # 3200 MT/s x 8 bytes; 128 GiB is in the extended field.
    assert parse_memory_modules(table(device(), device(DDR5, 131072, 4800, slot="", bank="B"))) == [
        (16 * GIB, 25_600_000_000, "P0 CHANNEL A BANK 0"),
        (128 * GIB, 38_400_000_000, " B"),
    ]


def test_speeds_and_sizes_in_other_fields():
    [(size, peak, _)] = parse_memory_modules(table(device(DDR5, 16384, 70_000)))
    assert (size, peak) == (16 * GIB, 560_000_000_000)  # no such module, but such a field
    kib = bytearray(device())
    pack_into("<H", kib, 0x0C, 0x8000 | 512)
    assert parse_memory_modules(table(bytes(kib)))[0][0] == 512 * 1024


@pytest.mark.parametrize("width", [0, 32, 64, 0xFFFF])
def test_a_dimm_has_64_bits(width):
    assert parse_memory_modules(table(device(width=width)))[0][1] == 25_600_000_000


def test_a_clock_is_doubled_and_a_data_rate_is_not():
    rates = [(DDR4, 1600), (DDR4, 2133), (0x18, 667), (0x18, 1333), (DDR5, 4400)]
    found = parse_memory_modules(table(*(device(kind, rate=rate) for kind, rate in rates)))
    assert [peak // 8_000_000 for _, peak, _ in found] == [3200, 2133, 1334, 1333, 4400]


def test_empty_slots_and_persistent_memory_add_nothing():
    devices = device(size_mib=0, rate=0), device(), device(PERSISTENT, 131072)
    assert len(parse_memory_modules(table(*devices))) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (b"garbage, which is no table at all", "damaged"),
        (table(device(), device())[:150], "damaged"),
        (table(device())[: -len(END)], "damaged"),  # cut off between structures
        (table(), "no memory module"),
        (table(device(size_mib=0)), "no memory module"),
        (table(device(rate=0)), "does not state"),
        (table(device(length=0x1B)), "does not state"),  # SMBIOS 2.3 has no configured speed
        (table(device(), device(HBM2)), "another type"),
        (table(device(LPDDR5)), "another type"),
    ],
)
def test_tables_without_a_peak_have_a_reason(content, reason):
    assert reason in parse_memory_modules(content)


def nodes(*packages, gib=16, kind="DRAM"):
    return [
        Node(os_index=index, memory_bytes=gib * GIB, target=True, kind=kind, package=package)
        for index, package in enumerate(packages)
    ]


def peak(*slots, of=(0, 1), packages=2, may_be_virtual=False):
    modules = parse_memory_modules(table(*(device(slot=slot) for slot in slots)))
    found = find_memory_peak(modules, nodes(*of), packages, may_be_virtual)
    return found.machine_bytes_per_second, found.package_bytes_per_second


@pytest.mark.parametrize(
    "form",
    ["P{} CHANNEL A", "CPU{}_DIMM_A1", "PROC {} DIMM 2", "NODE {}", "DIMM_P{}_A0", "P{}-DIMMA1"],
)
def test_locators_tell_the_packages(form):
    assert peak(form.format(1), form.format(2)) == (51.2e9, 25.6e9)
    # The package with more modules bounds both: the numbers need not be those of the kernel.
    assert peak(form.format(1), form.format(1), form.format(2)) == (76.8e9, 51.2e9)


@pytest.mark.parametrize(
    "slots", [("A1", "B1"), ("CPU1 A", "B1"), ("CPU1 A", "CPU1 B"), ("DIMM 1", "DIMM 2")]
)
def test_other_locators_do_not(slots):
    assert peak(*slots) == (51.2e9, None)


def test_numbers_that_contradict_the_memory_are_no_packages():
    # Both nodes are in package 0, whose 32 GiB cannot be in the one module of "CPU0".
    assert peak("CPU0 A", "CPU1 A", of=(0, 0)) == (51.2e9, None)


def test_a_virtual_machine_and_an_incomplete_table_have_no_peak():
    assert peak("CPU0 A", "CPU1 A", may_be_virtual=True) == (None, None)
    assert peak("CPU0 A", of=(0, 1)) == (None, None)
    found = find_memory_peak("only root", nodes(0), 1, may_be_virtual=False)
    assert found == MemoryPeak(unknown_reason="only root")
    assert "only root" in found.text


def test_memory_of_other_kinds_is_not_on_these_modules():
    modules = parse_memory_modules(table(device()))
    mixed = [*nodes(0), *nodes(0, 0, gib=64, kind="HBM")]
    assert find_memory_peak(modules, mixed, 1, may_be_virtual=False).machine_bytes_per_second


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        ({"architecture": "x86_64", "hypervisor": False}, True),
        ({"architecture": "x86_64", "hypervisor": True}, False),
        ({"architecture": "aarch64", "hypervisor": False}, False),  # its flags name no hypervisor
    ],
)
def test_discovery_believes_only_a_real_machine(monkeypatch, facts, known):
    modules = [(2**50, 25_600_000_000, "DIMM 1")]  # more memory than any machine has
    monkeypatch.setattr(describe_host, "read_memory_modules", lambda: modules)
    read = topology_discovery.read_host_facts
    monkeypatch.setattr(
        topology_discovery, "read_host_facts", lambda tree, source: {**read(tree, source), **facts}
    )
    found = discover_topology("live").memory_peak
    assert found.machine_bytes_per_second == (25.6e9 if known else None)
    assert found.text == "at most 25.6 GB/s" if known else "virtual machine" in found.text


@pytest.fixture(scope="module")
def paper():
    return shipped_topology("epyc-7413-2s-nps4-30drives")


KNOWN = MemoryPeak(400e9, 210e9)


def planned(topology, experiment="memory_bandwidth", **config):
    wanted = {**read_config(), **config}
    return plan_host(PlannedHost("host", "nps4", topology), wanted, [experiment]).points


def bounds(points):
    """Point -> bounds of the metrics of its loads."""
    return {
        point["point"]: {m["at_most"] for load in point["loads"] for m in load["metrics"].values()}
        for point in points
    }


def test_a_points_definition_does_not_depend_on_the_modules(paper):
    with_modules = replace(paper, memory_peak=KNOWN)
    for experiment in ("memory_bandwidth", "loaded_latency"):
        before, after = planned(paper, experiment), planned(with_modules, experiment)
        assert [p["definition"] for p in before] == [p["definition"] for p in after]
    assert make_component_documents(paper) == make_component_documents(with_modules)
    assert set().union(*bounds(planned(paper)).values()) == {None}
    # The link of a drive is still part of it.
    drives = [p for p in planned(paper, "storage_buffers") if p["loads"][0]["target"]["drives"]]
    assert None not in set().union(*bounds(drives).values())


def test_the_bound_is_that_of_the_package(paper):
    found = bounds(planned(replace(paper, memory_peak=KNOWN)))
    assert found["memory=node0+node0+triad"] == {210e9}
    only_machine = replace(paper, memory_peak=MemoryPeak(400e9))
    assert bounds(planned(only_machine))["memory=node0+node0+triad"] == {400e9}


def test_other_memory_and_data_in_caches_have_no_bound(paper):
    small = {**read_config()["working_set"], "times_last_level_cache": 0.05}
    in_caches = planned(replace(paper, memory_peak=KNOWN), working_set=small)
    assert set().union(*bounds(in_caches).values()) == {None}
    hbm = shipped_topology("xeon-max-2s-hbm-flat")
    points = planned(replace(hbm, memory_peak=KNOWN))
    kinds = {
        (hbm.find_node(node).kind, bound)
        for point in points
        for load in point["loads"]
        for node in load["target"]["nodes"]
        for bound in bounds([point])[point["point"]]
    }
    assert kinds == {("DRAM", 210e9), ("HBM", None)}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(), "the firmware of this host has no SMBIOS table"),
        (PermissionError(), "only root can read the SMBIOS table"),
        (OSError(5, "I/O error"), "the SMBIOS table could not be read: I/O error"),
    ],
)
def test_an_unreadable_table_has_a_reason(monkeypatch, error, reason):
    def fail(_):
        raise error

    monkeypatch.setattr(describe_host.Path, "read_bytes", fail)
    assert describe_host.read_memory_modules() == reason
