"""The topology of this machine, compared with tools that discovery does not use."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from machines import OWN_TOPOLOGIES


@pytest.fixture(scope="module")
def live():
    return discover_topology("live")


def test_processing_units_are_those_that_this_process_may_use(live):
    assert set(os.sched_getaffinity(0)) <= set(live.pus)


def test_nodes_and_distances_equal_those_of_numactl(live):
    text = subprocess.run(["numactl", "-H"], capture_output=True, text=True, check=True).stdout
    listed = {
        int(i): tuple(map(int, cpus.split()))
        for i, cpus in re.findall(r"node (\d+) cpus:(.*)", text)
    }
    assert {n.os_index: n.cpus for n in live.nodes if n.has_cpus or n.target} == listed
    row = re.search(r"^\s*0:\s+([\d ]+)$", text, re.MULTILINE)
    assert list(live.distances.matrix[0]) == list(map(int, row[1].split()))


def test_cores_equal_those_of_lscpu(live):
    command = ["lscpu", "--parse=CPU,CORE,SOCKET"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert len(live.cores) == len({(core, socket) for _, core, socket in rows})
    assert len(live.packages) == len({socket for _, _, socket in rows})
    assert live.pus == tuple(sorted(int(cpu) for cpu, _, _ in rows))


def test_the_cache_line_equals_that_of_the_c_library(live):
    command = ["getconf", "LEVEL1_DCACHE_LINESIZE"]
    size = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert live.cache_line_bytes == size or size == 0  # 0: the C library does not know


def test_present_memory_is_at_least_the_kernels_total(live):
    total = int(re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1]) * 1024
    assert sum(node.present_bytes for node in live.memory_nodes) >= 0.95 * total


def test_drives_are_the_nvme_disks_that_lsblk_lists(live):
    command = ["lsblk", "--nodeps", "--noheadings", "--output", "NAME"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    disks = {name for name in listed if name.startswith("nvme")}
    assert {drive.name for drive in live.drives if drive.name} == disks


def test_environment_variables_of_hwloc_are_ignored(live, monkeypatch):
    monkeypatch.setenv("HWLOC_XMLFILE", str(OWN_TOPOLOGIES / "devices.xml"))
    monkeypatch.setenv("HWLOC_SYNTHETIC", "pack:3 core:5 pu:1")
    assert discover_topology("live").pus == live.pus


def test_the_xml_of_this_machine_is_the_same_every_time(tmp_path, live):
    first = discover_topology_with_xml("live")[1]
    assert discover_topology_with_xml("live")[1] == first
    path = tmp_path / "live.xml"
    path.write_text(first)
    again = discover_topology(str(path))
    assert [n.memory_bytes for n in again.memory_nodes] == [
        n.present_bytes for n in live.memory_nodes
    ]
    assert again.cores == live.cores
