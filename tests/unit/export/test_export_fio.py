"""fio takes the exported job file, reads each drive from the named node, and writes nothing."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import NvmeDrive
from loop_devices import checksum, loop_device
from table_rows import drive_rows, folder_of, table

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"


def exported(folder: Path) -> str:
    output = folder / "drives.fio"
    arguments = ["export", "fio", str(folder)]
    found = CliRunner().invoke(chaosity, arguments)
    assert found.exit_code == 0, found.output
    assert CliRunner().invoke(chaosity, [*arguments, "--output", str(output)]).exit_code == 0
    assert output.read_text() == found.output
    return found.output


def best_nodes(job_file: str) -> dict[str, int]:
    """Kernel's name of each drive -> its node."""
    found = re.findall(r"\[(nvme\w+)\]\nfilename=.*\nnuma_cpu_nodes=(\d+)\n", job_file)
    return {name: int(node) for name, node in found}


def test_fio_reads_a_drive_and_writes_nothing(tmp_path):
    """The topology has one node, as this machine may have, since fio refuses absent nodes."""
    drive = NvmeDrive(name="nvme0n1", pci="0000:41:00.0", model="A drive\nrw=write", node=0)
    xml = tmp_path / "one.xml"
    subprocess.run(["lstopo", "-i", "package:1 [numa] core:2 pu:1", "--of", "xml", xml], check=True)
    topology = discover_topology(str(xml))
    with_drive = Topology(nodes=topology.nodes, drives=(drive,))
    tidy = table(drive_rows(lambda node, drive: 7e9, with_drive))
    text = exported(folder_of(xml, tidy, tmp_path / "r", (drive,)))
    # Only the folder of the drives' names is another one.
    names = tmp_path / "names"
    names.mkdir()
    assert "filename=/dev/disk/by-path/pci-0000\\:41\\:00.0-nvme-1\n" in text
    job_file = tmp_path / "drives.fio"
    job_file.write_text(text.replace("/dev/disk/by-path", str(names)).replace("me=10", "me=1"))
    with loop_device(tmp_path / "image") as device:
        (names / "pci-0000:41:00.0-nvme-1").symlink_to(device)
        before = checksum(device)
        subprocess.run(["fio", "--parse-only", job_file], check=True)
        done = subprocess.run(
            ["fio", "--readonly", "--section=nvme0n1", "--output-format=json", job_file],
            capture_output=True,
            text=True,
            check=True,
        )
        assert checksum(device) == before
    [job] = json.loads(done.stdout)["jobs"]
    assert job["jobname"] == "nvme0n1" and job["error"] == 0
    assert job["read"]["io_bytes"] > 0 and job["write"]["io_bytes"] == 0
    options = job["job options"]
    assert (options["numa_cpu_nodes"], options["numa_mem_policy"]) == ("0", "bind:0")


def test_a_farther_node_is_chosen_if_it_is_clearly_faster(tmp_path):
    def value(node: int, drive: NvmeDrive) -> float:
        return 7e9 if node == 3 else 6.99e9 if node == 0 else 4e9

    topology = discover_topology(str(EPYC))
    tidy = table(drive_rows(value, topology))
    found = best_nodes(exported(folder_of(EPYC, tidy, tmp_path / "r")))
    # 6.99 GB/s from the drive's own node is no less than 7 GB/s at a noise of 1 %.
    assert found == {drive.name: 0 if drive.node == 0 else 3 for drive in topology.drives}


@pytest.mark.parametrize("drive", [NvmeDrive(name="nvme0n2", pci="0000:41:00.0", node=0)])
def test_a_second_namespace_has_its_own_path(tmp_path, drive):
    topology = discover_topology(str(EPYC))
    tidy = table(drive_rows(lambda n, d: 7e9, Topology(nodes=topology.nodes, drives=(drive,))))
    assert "00.0-nvme-2\n" in exported(folder_of(EPYC, tidy, tmp_path / "r", (drive,)))
