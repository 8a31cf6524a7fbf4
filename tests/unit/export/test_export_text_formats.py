"""Readers of each format take the exported text, and each text says where its values are from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.export.formats import prediction_limits
from chaosity.statistics.estimates import Estimate
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import NvmeDrive
from loop_devices import checksum, loop_device
from table_rows import BANDWIDTH, LATENCY, drive_rows, folder_of, rows, table, whole_map

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"
CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class ChaosityMap(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "cat"
    executable_opts = [{values!r}]
    reference = {{"$ref": "references.yaml"}}

    @sanity_function
    def has_values(self):
        return sn.assert_found("GB/s", self.stdout)

    @run_before("performance")
    def read_values(self):
        for line in open({values!r}):
            name, value, unit = line.split()
            of_line = sn.extractsingle(name + r" (\\S+)", self.stdout, 1, float)
            self.perf_variables[name] = sn.make_performance_function(of_line, unit)
"""


def exported(form: str, folder: Path) -> str:
    found = CliRunner().invoke(chaosity, ["export", form, str(folder)])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture(scope="module")
def epyc(tmp_path_factory) -> Path:
    return whole_map(EPYC, tmp_path_factory.mktemp("measured") / "r")


@pytest.mark.parametrize("form", ["fio", "openmetrics", "reframe", "roofline", "slurm"])
def test_a_map_without_values_is_refused(form, tmp_path):
    other = table(rows(lambda i, j: 1.0, [0], [1], "other_metric"))
    found = CliRunner().invoke(chaosity, ["export", form, str(folder_of(EPYC, other, tmp_path))])
    assert isinstance(found.exception, UserError)


def test_duckdb_reads_the_roofline_with_types(epyc, tmp_path):
    (tmp_path / "roofline.csv").write_text(exported("roofline", epyc))
    found = duckdb.connect().execute(
        "SELECT initiator, target, kernel, bandwidth_bytes_per_second, low_bytes_per_second, n "
        "FROM read_csv(?, strict_mode = true) ORDER BY ALL",
        [str(tmp_path / "roofline.csv")],
    )
    read = found.fetchall()
    assert len(read) == 64
    initiator, target, kernel, bandwidth, low, n = read[1]
    assert (initiator, target, kernel, n) == ("node0", "node1", "triad", 3)
    assert bandwidth == pytest.approx(32e9) and low < bandwidth


def test_prometheus_reads_the_map(epyc):
    text = exported("openmetrics", epyc)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    latency = families["chaosity_map_memory_latency_seconds"]
    assert (latency.type, latency.unit, len(latency.samples)) == ("gauge", "seconds", 64)
    values = {
        (sample.labels["initiator"], sample.labels["target"]): sample.value
        for sample in latency.samples
    }
    assert values["node0", "node4"] == pytest.approx(192e-9)
    drives = families["chaosity_map_drive_bandwidth_low_bytes_per_second"].samples
    assert len(drives) == 240 and all(0 < sample.value < 7e9 for sample in drives)
    assert drives[0].labels["origin"] == "measured"
    # The textfile collector of node_exporter reads Prometheus's own format.
    assert sum(len(family.samples) for family in plain_families(text)) == 3 * (64 + 64 + 240) + 1


def test_names_of_hosts_cannot_add_keys(tmp_path):
    tidy = table(rows(lambda i, j: 90.0, [0], [0], LATENCY))
    folder = folder_of(EPYC, tidy.assign(host='h"\nkind: Pod'), tmp_path)
    assert list(yaml.safe_load(exported("reframe", folder))) == ["ChaosityMap"]


def test_a_file_gives_a_host_no_feature_of_drives(tmp_path):
    topology = discover_topology(str(EPYC))
    memory = rows(lambda i, j: 40e9, [0], [0], BANDWIDTH)
    files = ({**row, "target": "file0"} for row in drive_rows(lambda node, drive: 7e9, topology))
    text = exported("slurm", folder_of(EPYC, table(memory, files), tmp_path))
    assert "local_memory_ge_20GBps" in text and "drive_ge_" not in text


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
    text = exported("fio", folder_of(xml, tidy, tmp_path / "r", (drive,)))
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
    found = best_nodes(exported("fio", folder_of(EPYC, tidy, tmp_path / "r")))
    # 6.99 GB/s from the drive's own node is no less than 7 GB/s at a noise of 1 %.
    assert found == {drive.name: 0 if drive.node == 0 else 3 for drive in topology.drives}


@pytest.mark.parametrize("drive", [NvmeDrive(name="nvme0n2", pci="0000:41:00.0", node=0)])
def test_a_second_namespace_has_its_own_path(tmp_path, drive):
    topology = discover_topology(str(EPYC))
    tidy = table(drive_rows(lambda n, d: 7e9, Topology(nodes=topology.nodes, drives=(drive,))))
    assert "00.0-nvme-2\n" in exported("fio", folder_of(EPYC, tidy, tmp_path / "r", (drive,)))


def judged(folder: Path, values: dict[str, tuple[float, str]]) -> tuple[int, str]:
    """Exit status and output of ReFrame, whose test reports these values."""
    lines = [f"{name} {value} {unit}\n" for name, (value, unit) in values.items()]
    (folder / "values").write_text("".join(lines))
    (folder / "check.py").write_text(CHECK.format(values=str(folder / "values")))
    command = ["reframe", "-c", "check.py", "--prefix", "run", "-r", "--performance-report"]
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_reframe_accepts_the_map_itself_and_refuses_a_slow_node(tmp_path):
    text = exported("reframe", whole_map(EPYC, tmp_path / "r"))
    (tmp_path / "references.yaml").write_text(text)
    references = yaml.safe_load(text)["ChaosityMap"]["*"]
    assert len(references) == 64 + 64 + 8 * 30
    same = {name: (value, unit) for name, (value, _, _, unit) in references.items()}
    assert same["memory_bandwidth_node0_node4"] == (20.0, "GB/s")
    assert same["memory_latency_node0_node0"] == (96.0, "ns")
    status, said = judged(tmp_path, same)
    assert status == 0, said
    status, said = judged(tmp_path, same | {"memory_bandwidth_node2_node2": (32.0, "GB/s")})
    assert status == 1 and "memory_bandwidth_node2_node2=32.0" in said, said


def test_limits_hold_a_further_measurement_of_the_same_host():
    """The interval of three values in logarithms, times the square root of four."""
    low, high = prediction_limits(Estimate(100.0, 98.0, 102.0, 3))
    assert (low, high) == pytest.approx((0.98**2 - 1.0, 1.02**2 - 1.0))


def test_values_without_an_interval_have_no_reference(tmp_path):
    single = table(rows(lambda i, j: 30e9, [0], [0], BANDWIDTH, replicates=1))
    arguments = ["export", "reframe", str(folder_of(EPYC, single, tmp_path / "r"))]
    found = CliRunner().invoke(chaosity, arguments)
    assert isinstance(found.exception, UserError)
    assert "no value has an interval" in str(found.exception)


def test_imprecise_values_are_named_and_have_no_reference(tmp_path):
    """Two replicates that differ by a fifth say little, without other cells."""
    two = table(rows(lambda i, j: 30e9, [0], [0], BANDWIDTH, replicates=2))
    two.loc[two["replicate"] == 2, "value"] *= 1.2
    text = exported("reframe", folder_of(EPYC, two, tmp_path / "r"))
    assert yaml.safe_load(text) == {"ChaosityMap": {"*": {}}}
    assert "# Too imprecise, measure again: memory_bandwidth_node0_node0\n" in text
