"""Several hosts: a run of the workflow for each of them, below a small workflow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter

import pytest

from chaosity.documents.shipped_documents import ROOT
from wait_until_true import files_of_running_program, wait_until
from workflow_folder import LISTING, Workflow

MACHINE = ROOT / "tests/data/machines/fleet"
HOST = {"chaosity_topology": f"{MACHINE}.xml", "chaosity_simulated": f"{MACHINE}.yaml"}
POINTS = 16  # of the experiment on this machine


@pytest.fixture
def several(workflow: Workflow) -> Workflow:
    """Two simulated hosts with four points each."""
    workflow.hosts({"first": HOST, "second": HOST})
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 4}}
    return workflow


def attempts(workflow: Workflow, host: str) -> Counter[str]:
    """How often each point of a host was measured."""
    pattern = f"results/{host}/*/*/*/attempts/*.json"
    found = files_of_running_program(workflow.folder, pattern)
    return Counter(path.parents[1].name for path in found)


@pytest.mark.thorough
def test_each_host_is_run_as_long_as_something_of_it_is_missing_or_changed(several: Workflow):
    broken = {**HOST, "chaosity_topology": str(several.folder / "missing.xml")}
    several.hosts({"broken": broken, "second": HOST})
    done = several.snakemake()
    assert done.returncode == 1
    assert "missing.xml" in done.stdout
    assert "Traceback" not in done.stdout
    assert several.path("second/*/report.html").exists()
    assert len(attempts(several, "second")) == 4
    assert "second/" in (several.folder / "results/index.html").read_text()
    left_out = json.loads((several.folder / "results/broken/left_out.json").read_text())
    assert "missing.xml" in left_out["reason"]
    # Now it can be measured: only its points are missing.
    several.hosts({"broken": HOST, "second": HOST})
    several.run()
    assert set(attempts(several, "second").values()) == {1}
    assert len(attempts(several, "broken")) == 4
    assert "broken/" in (several.folder / "results/index.html").read_text()

    def unchanged() -> set[str]:
        """Hosts whose run the next run would not start, since the last one changed nothing."""
        text = several.run("--dry-run")
        names = ("broken", "second")
        return {host for host in names if f"{host}: Nothing to be done, unchanged" in text}

    several.run()  # changes nothing
    assert unchanged() == {"broken", "second"}
    # A lost record of one host asks for its run; another variable of the other can change its plan.
    next(several.folder.glob("results/broken/*/memory_bandwidth/*/rep1.json")).unlink()
    assert unchanged() == {"second"}
    several.hosts({"broken": HOST, "second": {**HOST, "chaosity_slurm_node": "other"}})
    assert unchanged() == set()


@pytest.mark.thorough
def test_options_that_name_rules_reach_the_run_of_each_host(several: Workflow):
    several.hosts({"first": HOST, "second": {**HOST, "chaosity_equal_hosts": "old memory"}})
    several.measure()
    for host, group in (("first", None), ("second", "old memory")):
        assert len(attempts(several, host)) == 4
        described = json.loads((several.folder / f"results/{host}/host.json").read_text())
        assert described.get("equal_hosts") == group
    assert not [*several.folder.glob("results/*/*/report.html")]
    text = several.run(*LISTING, "--forcerun", "measure")
    assert all(text.count(f"host={host},") >= 4 for host in ("first", "second"))


def test_a_dry_run_has_a_line_for_each_host_and_keeps_the_meaning_of_the_config(several: Workflow):
    several.config |= {"experiments": ["latency_by_size"], "levels": None, "sample": {}}
    text = several.run("--dry-run", "--retries", "2")
    found = re.findall(r"^(\w+): (\d+) measurements,", text, re.MULTILINE)
    # All sizes, not the five of the default config.
    [number] = {int(number) for _, number in found}
    assert [host for host, _ in found] == ["first", "second"] and number > 100
    assert "chaosity: the runs of the hosts ignore --retries\n" in text
    assert "chaosity: with --quiet reason, a dry run lists the measurements of each host" in text
    assert "replicate=" not in text


@pytest.mark.thorough
def test_the_runs_end_after_a_kill_of_the_small_workflow_and_the_next_run_continues(
    several: Workflow,
):
    several.config["sample"] = {}
    run = subprocess.Popen(
        several.command(), cwd=several.folder, start_new_session=True, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(attempts(several, "first")) >= 3)
    os.kill(run.pid, signal.SIGKILL)  # and no process below it
    run.wait()

    def lives() -> bool:
        listed = subprocess.run(
            ["pgrep", "--full", f"{several.folder}|run_config.yaml", "--session", str(run.pid)],
            capture_output=True,
            check=False,
        )
        return listed.returncode == 0

    wait_until(lambda: not lives())
    before = attempts(several, "first")
    assert 3 <= len(before) < POINTS
    several.measure()
    for host in ("first", "second"):
        # A measurement in the moment of the kill may have been complete without being noted.
        assert len(attempts(several, host)) == POINTS
        assert attempts(several, host).total() <= POINTS + 1
    assert several.selected() == set()


@pytest.mark.thorough
def test_ansible_reads_the_inventory_once_for_the_runs_of_several_hosts(several: Workflow):
    # The inventory is a program: Ansible runs it for each reading, and it counts its runs.
    names = [f"host{number}" for number in range(4)]
    answer, program = several.folder / "answer.json", several.folder / "inventory.sh"
    calls = several.folder / "calls"
    hostvars = dict.fromkeys(names, HOST)
    answer.write_text(json.dumps({"all": {"hosts": names}, "_meta": {"hostvars": hostvars}}))
    program.write_text(f"#!/bin/sh\necho read >> {calls}\ncat {answer}\n")
    program.chmod(0o755)
    several.config["inventory"] = str(program)
    text = several.run("--dry-run")
    lines = [line for line in text.splitlines() if line.startswith("host")]
    assert [line.partition(",")[0] for line in lines] == [
        f"{name}: 4 measurements" for name in sorted(names)
    ]
    assert calls.read_text().splitlines() == ["read"]
