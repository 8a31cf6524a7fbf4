"""Programs of others whose pages are placed, from the benchmark files that ship as examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaosity.runner.metric_values import metric_values_or_reasons
from inventories import simulated_host
from workflow_folder import Workflow

pytestmark = pytest.mark.thorough


def select(workflow: Workflow, benchmark: str, **parameters: object) -> None:
    """Let the workflow measure the program of a benchmark file."""
    workflow.timeout = 900
    workflow.config |= {
        "experiments": ["program_placement"],
        "benchmarks": {"placed_workload": benchmark},
        "parameters": {benchmark: parameters},
    }


@pytest.mark.parametrize("benchmark", ["sysbench_memory", "sort_lines"])
def test_a_program_is_measured_drawn_and_reported(
    workflow: Workflow, tmp_path: Path, benchmark: str
):
    lines = 2_000_000
    numbers = tmp_path / "lines.txt"
    numbers.write_text("".join(f"{number * 7919 % lines}\n" for number in range(lines)))
    given = {
        "sysbench_memory": {"seconds": 1},
        "sort_lines": {"input": str(numbers), "lines": lines},
    }
    select(workflow, benchmark, **given[benchmark])
    workflow.run()
    [measured] = [
        record
        for path, record in workflow.records().items()
        if path.parent.name.endswith("first_touch")
    ]
    assert measured["verdict"]["status"] == "valid", measured["verdict"]["reason"]
    checks = {check["name"]: check["passed"] for check in measured["verdict"]["checks"]}
    assert checks["work: threads"] and checks["work: pages"] is not False
    [load] = measured["loads"]
    values = metric_values_or_reasons(measured)["work"]
    speed, _ = values["elements_per_second"]
    assert isinstance(speed, float) and speed > 10_000
    assert values["dwp"] == (None, "the tool reported no value")  # first touch is not searched
    if benchmark == "sort_lines":  # as a person would calculate it
        report = json.loads(load["outputs"]["place.json"])
        assert speed == pytest.approx(lines / report["program_seconds"])
    report = workflow.path("*/*/report.html").read_text()
    assert "Speed of the program by the number of its worker nodes" in report
    assert load["label"] in report


def test_a_program_is_simulated_by_the_memory_traffic_that_its_file_states(workflow: Workflow):
    workflow.host("opteron", **simulated_host("opteron_6272"))
    select(workflow, "sysbench_memory")
    workflow.config["sample"] = {"program_placement": 4}
    workflow.measure()
    verdicts = [record["verdict"] for record in workflow.records().values()]
    assert len(verdicts) == 4
    assert [verdict["reason"] for verdict in verdicts if verdict["status"] != "valid"] == []
