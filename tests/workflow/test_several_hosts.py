"""Several hosts in one run: what a dry run lists, a host that is left out, and paths as targets."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter

import pytest

from inventories import simulated_host
from workflow_folder import LISTING, Workflow

HOST = simulated_host("fleet")


@pytest.fixture
def several(workflow: Workflow) -> Workflow:
    """Two simulated hosts with four points each."""
    workflow.hosts({"first": HOST, "second": HOST})
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 4}}
    return workflow


def attempts(workflow: Workflow, host: str) -> Counter[str]:
    """How often each point of a host was measured."""
    return Counter(path.parents[1].name for path in workflow.attempts(host))


def test_a_dry_run_lists_the_measurements_of_every_host_and_writes_nothing(several: Workflow):
    several.config |= {"experiments": ["latency_by_size"], "levels": None, "sample": {}}
    text = several.run(*LISTING, "--retries", "2")
    found = re.findall(r"wildcards: host=(\w+), .*replicate=", text)
    # All sizes, not the five of the default config.
    assert Counter(found)["first"] == Counter(found)["second"] > 100
    assert not (several.folder / "results").exists()
    [line] = re.findall(r"^first, second: (\d+) measurements, about", several.run("-nq"), re.M)
    assert int(line) == len(found)


@pytest.mark.thorough
def test_only_what_is_missing_is_measured_and_a_host_left_out_fails_the_run(several: Workflow):
    broken = {**HOST, "chaosity_topology": str(several.folder / "missing.xml")}
    second = {**HOST, "chaosity_equal_hosts": "old memory"}
    several.hosts({"broken": broken, "second": second})
    done = several.snakemake()
    assert done.returncode == 1
    assert "missing.xml" in done.stdout
    assert "Traceback" not in done.stdout
    assert several.path("second/*/report.html").exists()
    assert "second/" in (several.folder / "results/index.html").read_text()
    described = json.loads((several.folder / "results/second/host.json").read_text())
    assert described["equal_hosts"] == "old memory"
    left_out = json.loads((several.folder / "results/broken/left_out.json").read_text())
    assert "missing.xml" in left_out["reason"]
    # Now it can be measured: only its points are missing, and the file of its report is a target.
    several.hosts({"broken": HOST, "second": second})
    several.run("--", "results/broken/1node-per-package/report.html")
    several.run()
    assert "broken/" in (several.folder / "results/index.html").read_text()
    assert several.selected() == set()
    # A lost record of one host asks for its measurement.
    next(iter(several.records("broken"))).unlink()
    several.run()
    for host in ("broken", "second"):
        assert len(attempts(several, host)) == 4
    assert attempts(several, "second").total() == 4
    assert attempts(several, "broken").total() == 5
    # Snakemake's own report has the figures of both hosts.
    several.run("--report", "report.zip")
    with zipfile.ZipFile(several.folder / "report.zip") as archive:
        assert sum(name.endswith(".svg") for name in archive.namelist()) >= 2 * 3
    text = several.run(*LISTING, "--forcerun", "measure")
    assert all(text.count(f"host={host},") >= 4 for host in ("broken", "second"))
