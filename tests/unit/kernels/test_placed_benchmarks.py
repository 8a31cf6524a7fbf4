"""The benchmark files of placed programs and of contended paths fit what the programs do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from chaosity.design.benchmark_templates import LoadMaker
from chaosity.documents.shipped_documents import load_benchmark
from chaosity.runner import metric_values, record_checks
from chaosity.runner.tool_output import ExtractionError, extract_number

PLACED = {"placed": True}


def load(name: str, kernel: str, cpus: str, node: int) -> dict:
    """A load of a benchmark file over one node, with base pages, which every machine has."""
    context = {
        "initiator": {"cpus": cpus, "threads": len(cpus.split(",")), "nodes": str(node)},
        "target": {
            "nodes": str(node),
            "node_count": 1,
            "policy": "uniform_all",
            "shares_text": f"{node}:1",
        },
        "kernel": kernel,
        "kernel_name": kernel,
        "bytes": 2 << 20,
        "bytes_per_node": 2 << 20,
        "memory_peak_bytes_per_second": None,
        "timeout_seconds": 1,
    }
    return LoadMaker(load_benchmark(name), {"pages": "base"}).make_load("one", context)


def ran(one: dict, folder: Path, report: dict = PLACED) -> dict:
    """The load with what its program printed, run by itself, and a report of the placement."""
    command = one["command"]
    program = command[command.index("--") + 1 :] if "--" in command else command
    ended = subprocess.run(
        [folder / program[0], *program[1:], "--max-seconds=0.1"],
        input="go\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    outputs = {"stdout": ended.stdout, "stderr": "", "place.json": json.dumps(report)}
    return {**one, "outputs": outputs}


def failed(one: dict) -> list[str]:
    return [check["name"] for check in record_checks.check_output_rules(one) if not check["passed"]]


@pytest.mark.parametrize("kernel", ["triad", "gather", "stencil", "spmv"])
def test_a_placed_program_does_what_its_file_asks(
    workload: Path, cpus: str, node: int, kernel: str
):
    one = ran(load("chaosity_workload", kernel, cpus, node), workload.parent)
    assert failed(one) == []
    assert one["memory_bytes"] == 2 << 20
    assert metric_values.samples_from_json_lines(one["progress"], one["outputs"]["stdout"])


@pytest.mark.parametrize(
    ("report", "right"), [({"placed": None}, True), ({"placed": False}, False), ({}, False)]
)
def test_pages_elsewhere_than_wanted_show(
    workload: Path, cpu: str, node: int, report: dict, right: bool
):
    one = ran(load("chaosity_workload", "triad", cpu, node), workload.parent, report)
    assert failed(one) == ([] if right else ["one: shares of the pages"])


def test_where_the_search_ended_is_a_metric_that_may_be_missing(cpu: str, node: int):
    one = load("chaosity_workload", "triad", cpu, node)
    assert "--settle" in one["command"]
    dwp = one["metrics"]["dwp"]
    assert metric_values.is_optional_metric(dwp)
    assert extract_number(dwp, {"place.json": json.dumps({"dwp": 0.0})}) == 0.0
    with pytest.raises(ExtractionError, match="reported no value"):
        extract_number(dwp, {"place.json": json.dumps({"dwp": None})})


def test_contended_paths_do_what_their_file_asks(paths: Path, cpus: str, node: int):
    one = ran(load("chaosity_paths", "read", cpus, node), paths.parent)
    assert failed(one) == []
    by_node = one["metrics"]["path_bandwidth_bytes_per_second"]["by_node"]
    samples = [json.loads(line) for line in one["outputs"]["stdout"].splitlines()][1:-1]
    assert samples
    for sample in samples:
        assert {*sample[by_node["amount"]]} == {*sample[by_node["time"]]} == {str(node)}
