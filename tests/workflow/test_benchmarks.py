"""Each benchmark of the repository serves its category by one line of config."""

from __future__ import annotations

import json
import shutil

import pytest

pytestmark = pytest.mark.alone


def verdicts(workflow):
    found = (workflow.folder / "results").glob("localhost/*/*/*/rep*.json")
    records = [json.loads(path.read_text()) for path in found]
    assert records
    return {r["point"]["point"]: r["verdict"]["reason"] or "valid" for r in records}


@pytest.mark.thorough
def test_likwid_bench_alone_and_beside_fio(workflow):
    if shutil.which("likwid-bench") is None:
        pytest.skip("likwid-bench is not packaged for this machine")
    workflow.config["benchmarks"] = {"memory_bandwidth": "likwid_bench"}
    # fio must outlast likwid-bench, which takes several seconds to measure one.
    workflow.config["stopping"] = {
        "memory_bandwidth": {"relative_precision": None, "min_seconds": 1, "max_seconds": 1},
        "storage_bandwidth": {"relative_precision": None, "min_seconds": 15, "max_seconds": 15},
    }
    workflow.config["experiments"] = ["interference"]
    workflow.run()
    assert set(verdicts(workflow).values()) == {"valid"}


@pytest.mark.thorough
def test_a_load_without_progress_that_is_not_enclosed_fails(workflow):
    if shutil.which("likwid-bench") is None:
        pytest.skip("likwid-bench is not packaged for this machine")
    workflow.config["benchmarks"] = {"memory_bandwidth": "likwid_bench"}
    workflow.config["stopping"] = {
        "memory_bandwidth": {"relative_precision": None, "min_seconds": 4, "max_seconds": 4},
        "storage_bandwidth": {"relative_precision": None, "min_seconds": 1, "max_seconds": 1},
    }
    workflow.config["experiments"] = ["interference"]
    workflow.run()
    [reason] = [r for p, r in verdicts(workflow).items() if "triad.storage=node0+unknown" in p]
    assert reason != "valid"
