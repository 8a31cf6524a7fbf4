"""Each benchmark of the repository serves its category by one line of config."""

from __future__ import annotations

import json
import shutil

import pytest

pytestmark = pytest.mark.alone


def verdicts(workflow):
    records = workflow.records()
    assert records
    return {r["point"]["point"]: r["verdict"]["reason"] or "valid" for r in records.values()}


@pytest.mark.thorough
def test_random_reads_of_fio_obey_littles_law(workflow):
    """Reads in flight = reads per second x mean time of a read, in the output of the real fio."""
    workflow.config |= {"experiments": ["storage_latency"], "sample": {"storage_latency": 3}}
    workflow.measure()
    assert set(verdicts(workflow).values()) == {"valid"}
    for path, record in workflow.records().items():
        [load] = record["loads"]
        [group] = json.loads(load["outputs"]["result.json"])["jobs"]
        in_flight = group["read"]["iops"] * group["read"]["lat_ns"]["mean"] * 1e-9
        wanted = load["levels"]["queue_depth"] * load["levels"]["jobs"]
        assert in_flight == pytest.approx(wanted, rel=0.25), path


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
    workflow.measure()
    assert set(verdicts(workflow).values()) == {"valid"}
