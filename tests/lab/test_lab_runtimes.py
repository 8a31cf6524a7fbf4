"""The two runtimes on a machine with eight nodes: who touches whose memory is real there."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from chaosity.runner.values import of_record
from through_lab import SERVER, Pipeline, placed

pytestmark = pytest.mark.lab

TRAPS = "traps"
STUDY = "numa_runtime"
NODES = 8
PROGRAMS = {"stencil", "matmul", "mergesort", "spmv"}
RUNTIMES = {"vanilla", "locality"}
# Stealing at random makes 1/8 of the accesses local: 0.125. How far a share of so many blocks may
# be from that by chance: a task's blocks are in turns on the nodes and depart from 1/8 by less than
# single blocks would, and a run of 32 MiB has more than 1000 tasks; were each one block, the
# standard deviation were (1/8 x 7/8 / 1000)^(1/2) = 0.0105. Five of them.
STOLEN = (0.125 - 0.053, 0.125 + 0.053)


@pytest.fixture(scope="module")
def measured(server, root: Path, tmp_path_factory) -> Pipeline:
    """The study on the server, whole."""
    pipeline = Pipeline(root, tmp_path_factory.mktemp("runtimes"), SERVER)
    pipeline.config |= {"experiments": [STUDY], "sample": {}}
    pipeline.run_and_try_again()
    return pipeline


def shares(pipeline: Pipeline, cores: str) -> dict[tuple[str, str], list[float]]:
    """The software indicator of locality, by program and runtime."""
    found = defaultdict(list)
    for record in pipeline.all_records():
        if record["point"]["factors"]["cores"] == cores:
            [load] = record["loads"]
            share = of_record(record)[load["name"]]["locality"]
            found[load["kernel"], load["levels"]["runtime"]].append(share)
    return found


def test_threads_and_pages_are_where_they_should_be(measured: Pipeline) -> None:
    for path, record in measured.records(SERVER).items():
        assert record["verdict"]["status"] == "valid", (path, record["verdict"]["reason"])
        assert placed(record), (path, record["verdict"]["checks"])
        [load] = record["loads"]
        many = record["point"]["factors"]["cores"] == "all_cores"
        seen = load["placement_seen"]
        assert len(seen["memory_bytes_by_node"]) == (NODES if many else 1)


def test_every_program_is_measured_on_both_runtimes(measured: Pipeline) -> None:
    for cores in ("all_cores", "one_core"):
        assert set(shares(measured, cores)) == {(p, r) for p in PROGRAMS for r in RUNTIMES}


def test_the_locality_runtime_stays_at_home_and_the_other_steals_from_anywhere(
    measured: Pipeline,
) -> None:
    for (program, runtime), found in shares(measured, "all_cores").items():
        print(f"{program} on {runtime}: {', '.join(f'{share:.4f}' for share in found)}")
    for (program, runtime), found in shares(measured, "all_cores").items():
        low, high = (0.95, 1.0) if runtime == "locality" else STOLEN
        assert all(low <= share <= high for share in found), (program, runtime, found)


def test_one_core_has_only_its_own_node(measured: Pipeline) -> None:
    for found in shares(measured, "one_core").values():
        assert set(found) == {1.0}


def test_the_report_says_whether_the_runtime_matters_for_locality(measured: Pipeline) -> None:
    html = measured.path(f"{SERVER}/nps4/report.html").read_text()
    assert "Locality of task by" in html
    assert "runtime: significant" in html


def test_a_node_without_memory_keeps_no_data(lab, root: Path) -> None:
    """On the machine of traps, whose CPUs are not all on a node with memory."""
    machine = lab.up(TRAPS)
    lab.playbook("--limit", TRAPS, playbook="provision.yml")
    hosts = yaml.safe_load((root / "inventories/lab/hosts.yml").read_text())["all"]["hosts"]
    [bare, *_] = hosts[TRAPS]["virtual_lab_machine"]["memoryless_nodes"]
    [cpu, *_] = machine.says("cat", f"/sys/devices/system/node/node{bare}/cpulist").split(",")
    cpu = cpu.split("-")[0].strip()
    program = ".local/share/chaosity/kernels/chaosity-tasks"
    options = f"--program stencil --cpus {cpu} --bytes 4194304 --max-seconds 0.1"
    refused = machine.ssh(f"{program} --runtime locality {options}")
    assert refused.returncode == 2
    assert f"CPU {cpu} is on node {bare}, which has no memory" in refused.stderr
    assert machine.ssh(f"{program} --runtime vanilla {options}").returncode == 0
