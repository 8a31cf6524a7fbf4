"""The latency experiments on this machine, from the plan to the report."""

from __future__ import annotations

import re

import pytest

from machines import run_chaosity

EXPERIMENTS = [
    "latency_matrix",
    "latency_by_size",
    "loaded_latency",
    "core_to_core",
    "l3_domain_bandwidth",
    "bandwidth_scaling",
]


@pytest.fixture
def latency(workflow):
    workflow.config |= {
        "experiments": EXPERIMENTS,
        "levels": {
            "latency_by_size": {"bytes": 2, "pages": 2},
            "loaded_latency": {"kernel": 1, "share": 1},
        },
    }
    return workflow


@pytest.mark.thorough
def test_every_kind_of_point_is_measured_and_shown(latency):
    latency.run()
    results = latency.folder / "results/localhost"
    records = latency.records().values()
    verdicts = {record["point"]["point"]: record["verdict"] for record in records}
    assert {v["status"] for v in verdicts.values()} == {"valid"}, verdicts
    assert {record["point"]["experiment"] for record in records} == set(EXPERIMENTS)
    [report] = results.glob("*/report.html")
    html = report.read_text()
    assert all(name in html for name in EXPERIMENTS)
    assert "no huge page of 2 MiB is reserved" in html  # said, and not swapped for others
    explain_a_point_of_each_experiment(report.parent)


def explain_a_point_of_each_experiment(folder):
    """Compute rates again from what `chaosity explain` prints of real records."""
    for experiment in EXPERIMENTS:
        point = next(folder.glob(f"points/{experiment}/*.json")).stem
        command = (folder, point, "--experiment", experiment, "--replicate", "1")
        text = run_chaosity("explain", *command)
        assert "check met" in text
        values = r"\((\S+)\)\n(?:    .*\n)*?    formula: amount / .*\n    inputs: (\S+) in (\S+) s"
        for value, amount, seconds in re.findall(values, text):
            # The command prints 12 digits of each number.
            assert float(value) == pytest.approx(float(amount) / float(seconds), rel=2e-11)


@pytest.mark.thorough
def test_huge_pages_that_are_not_reserved_are_refused_before_anything_runs(latency):
    latency.config["parameters"] = {"chaosity_latency": {"pages": "1G"}}
    latency.config["experiments"] = ["core_to_core", "latency_matrix", "loaded_latency"]
    done = latency.snakemake()
    assert done.returncode != 0
    assert "no huge page of 1 GiB is reserved on node0" in done.stdout
    assert not latency.records()


@pytest.mark.thorough
def test_a_size_that_does_not_fit_the_free_memory_is_a_failed_point(latency):
    """The node is large enough, but somebody else has the memory: found just before it runs."""
    latency.config |= {
        "experiments": ["latency_matrix"],
        "working_set": {
            "times_last_level_cache": 1e-6,
            "at_least_bytes": 2**50,
            "at_most_share_of_node": 1,
            "sweep_at_most_bytes": None,
        },
    }
    latency.measure()
    [record] = latency.records().values()
    assert record["verdict"]["status"] == "failed"
    assert "bytes free" in record["verdict"]["reason"]
