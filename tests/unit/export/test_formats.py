"""The formats of ``chaosity export`` but hwloc's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from chaosity.export.formats import (
    build_placement_document,
    interleave_weights_of_host,
    prediction_limits,
)
from chaosity.export.main_matrices import memory_matrix, read_measured_host
from chaosity.statistics.estimates import Estimate
from chaosity.store.tidy_table_parquet import COLUMN_TYPES
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import NvmeDrive
from loop_devices import checksum, loop_device
from machines import (
    SMALL_MACHINES,
    MeasuredHost,
    measured_host,
    refusal_by_chaosity,
    run_chaosity,
)
from published_schemas import schema_errors, schema_validator
from table_rows import BANDWIDTH, LATENCY, drive_rows, folder_of, measured, rows, table, whole_map

XML = SMALL_MACHINES / "two_packages.xml"
NAMES = ("memory_bandwidth", "storage_bandwidth", "interference")
LATENCIES = ("latency_matrix", "loaded_latency")
FAILED = {"memory=node0+node1+triad": "placement: memory: 3 % of the pages are on node 0"}


def server(*experiments: str, **keys: Any) -> MeasuredHost:
    names = experiments or (*NAMES, *LATENCIES)
    return measured_host("two_packages", *names, **keys)


def document(tidy: pd.DataFrame, folder: Path) -> dict:
    return build_placement_document(
        read_measured_host(folder_of(XML, tidy.astype(COLUMN_TYPES), folder))
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A server with two packages; a point failed and one is missing."""
    tidy = server(failed=FAILED, missing=["memory=node3+node3+triad"]).tidy()
    return document(tidy, tmp_path_factory.mktemp("whole") / "r")


def test_the_document_matches_its_schema(whole):
    assert schema_errors(json.loads(json.dumps(whole, allow_nan=False)), "placement") == []


def test_the_schema_is_closed_everywhere():
    def objects(part):
        if isinstance(part, dict):
            if part.get("type") == "object":
                yield part
            for value in part.values():
                yield from objects(value)
        elif isinstance(part, list):
            for value in part:
                yield from objects(value)

    found = list(objects(schema_validator("placement").schema))
    free = [one for one in found if one.get("additionalProperties") is not False]
    assert len(found) > 10
    assert [one.get("description") for one in free] == [
        "factors of the point and levels of the load"
    ]


def test_placements_that_failed_are_named_with_the_reason(whole):
    left_out = {(o["initiator_node"], o["target_node"]): o for o in whole["memory"]["left_out"]}
    assert "pages are on node 0" in left_out[0, 1]["reason"]
    assert left_out[3, 3]["reason"] == "not measured yet"
    failed = next(
        p
        for p in whole["memory"]["placements"]
        if (p["initiator_node"], p["target_node"]) == (0, 1)
    )
    assert failed[BANDWIDTH] is None and failed[LATENCY] is not None


def test_interference_is_listed_by_relation(whole):
    found = {
        (one["load"], one["beside"], one["relation"]): one
        for one in whole["interference"]["by_relation"]
    }
    near = found["memory", "storage", "same_node"]
    far = found["memory", "storage", "other_package"]
    assert near["worst"]["ratio_to_alone"]["median"] < 0.7
    assert far["worst"]["ratio_to_alone"]["median"] > near["worst"]["ratio_to_alone"]["median"]
    ratio = near["worst"]["ratio_to_alone"]
    assert ratio["n"] >= 1 and near["cells"] > 1


def test_the_worst_corunning_load_for_latency_makes_it_longest(whole):
    found = [one for one in whole["interference"]["by_relation"] if one["less_is_better"]]
    assert found
    for one in found:
        own = [
            cell["ratio_to_alone"]["median"]
            for cell in whole["interference"]["cells"]
            if (cell["load"], cell["kernel"], cell["metric"])
            == (one["load"], one["kernel"], one["metric"])
            and (one["beside"], one["relation"])
            in {(other["load"], other["relation"]) for other in cell["beside"]}
        ]
        assert one["worst"]["ratio_to_alone"]["median"] == max(own)


def test_a_cache_is_not_taken_for_memory(tmp_path):
    tidy = server("memory_bandwidth", "latency_by_size").tidy()
    sized = tidy[tidy["experiment"] == "latency_by_size"]
    assert not sized.empty
    both = pd.concat([tidy[tidy["experiment"] == "memory_bandwidth"], sized])
    host = read_measured_host(folder_of(XML, both.astype(COLUMN_TYPES), tmp_path / "r"))
    assert memory_matrix(host, LATENCY) is None


def test_one_thread_is_not_taken_for_a_node(tmp_path):
    tidy = server("memory_bandwidth").tidy()
    threads = tidy[tidy["initiator_kind"] == "pu"]
    host = read_measured_host(folder_of(XML, threads, tmp_path / "r"))
    assert memory_matrix(host, BANDWIDTH) is None


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


@pytest.mark.parametrize("form", ["fio", "openmetrics", "reframe", "roofline", "slurm", "weights"])
def test_a_map_without_values_is_refused(form, tmp_path):
    other = table(rows(lambda i, j: 1.0, [0], [1], "other_metric"))
    refusal_by_chaosity("export", form, folder_of(EPYC, other, tmp_path))


def test_names_of_hosts_cannot_add_keys(tmp_path):
    tidy = table(rows(lambda i, j: 90.0, [0], [0], LATENCY))
    folder = folder_of(EPYC, tidy.assign(host='h"\nkind: Pod'), tmp_path)
    assert list(yaml.safe_load(run_chaosity("export", "reframe", folder))) == ["ChaosityMap"]


def test_a_file_gives_a_host_no_feature_of_drives(tmp_path):
    topology = discover_topology(str(EPYC))
    memory = rows(lambda i, j: 40e9, [0], [0], BANDWIDTH)
    files = ({**row, "target": "file0"} for row in drive_rows(lambda node, drive: 7e9, topology))
    text = run_chaosity("export", "slurm", folder_of(EPYC, table(memory, files), tmp_path))
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
    text = run_chaosity("export", "fio", folder_of(xml, tidy, tmp_path / "r", (drive,)))
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
    found = best_nodes(run_chaosity("export", "fio", folder_of(EPYC, tidy, tmp_path / "r")))
    # 6.99 GB/s from the drive's own node is no less than 7 GB/s at a noise of 1 %.
    assert found == {drive.name: 0 if drive.node == 0 else 3 for drive in topology.drives}


@pytest.mark.parametrize("drive", [NvmeDrive(name="nvme0n2", pci="0000:41:00.0", node=0)])
def test_a_second_namespace_has_its_own_path(tmp_path, drive):
    topology = discover_topology(str(EPYC))
    tidy = table(drive_rows(lambda n, d: 7e9, Topology(nodes=topology.nodes, drives=(drive,))))
    folder = folder_of(EPYC, tidy, tmp_path / "r", (drive,))
    assert "00.0-nvme-2\n" in run_chaosity("export", "fio", folder)


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
    text = run_chaosity("export", "reframe", whole_map(EPYC, tmp_path / "r"))
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
    said = refusal_by_chaosity("export", "reframe", folder_of(EPYC, single, tmp_path / "r"))
    assert "no value has an interval" in said


def test_imprecise_values_are_named_and_have_no_reference(tmp_path):
    """Two replicates that differ by a fifth say little, without other cells."""
    two = table(rows(lambda i, j: 30e9, [0], [0], BANDWIDTH, replicates=2))
    two.loc[two["replicate"] == 2, "value"] *= 1.2
    text = run_chaosity("export", "reframe", folder_of(EPYC, two, tmp_path / "r"))
    assert yaml.safe_load(text) == {"ChaosityMap": {"*": {}}}
    assert "# Too imprecise, measure again: memory_bandwidth_node0_node0\n" in text


HBM = EPYC.with_name("xeon-max-2s-hbm-flat.xml")


def near_and_far(initiator: int, target: int) -> float:
    return 40e9 if initiator == target else 30e9 if initiator // 4 == target // 4 else 10e9


def test_nodes_without_units_get_pages_and_are_no_workers(tmp_path):
    folder = measured(HBM, tmp_path / "r", lambda i, j: 80e9 if j >= 2 else 40e9)
    found = interleave_weights_of_host(read_measured_host(folder))
    assert set(found.sets) == {"node0", "node1", "all"}
    assert found.sets["all"].kernel_weights == {0: 1, 1: 1, 2: 2, 3: 2}


def test_a_worker_set_with_a_failed_path_is_left_out(tmp_path):
    def value(initiator: int, target: int) -> float | None:
        return None if (initiator, target) == (3, 0) else near_and_far(initiator, target)

    found = interleave_weights_of_host(read_measured_host(measured(EPYC, tmp_path / "r", value)))
    assert set(found.left_out) == {"node3", "package0", "all"}
    assert "from node 3 to node 0" in found.left_out["all"]
    assert "package1" in found.sets


def test_the_name_of_a_folder_is_in_a_comment_and_no_command(tmp_path):
    folder = measured(EPYC, tmp_path / "a\nreboot", near_and_far)
    lines = run_chaosity("export", "weights", folder, "--dwp", "1").splitlines()
    assert f"chaosity export weights '{tmp_path}/a reboot' --dwp 1" in "\n".join(lines[:3])
    assert all(line[:1] in ("", "#") or line.split()[0] in ("echo", "numactl") for line in lines)
