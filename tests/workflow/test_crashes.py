"""Whatever ends a run, nothing is lost and running again goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from chaosity.checked_yaml_files import schema_validator
from wait_until_true import wait_until

pytestmark = pytest.mark.alone


def records(workflow):
    return sorted((workflow.folder / "results").glob("localhost/*/*/*/rep*.json"))


def start(workflow):
    """Snakemake in the background, in a process group of its own."""
    return subprocess.Popen(
        workflow.command(),
        cwd=workflow.folder,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def test_kill_in_the_middle_and_go_on(workflow):
    workflow.config["experiments"] = ["memory_bandwidth"]
    run = start(workflow)
    wait_until(lambda: len(records(workflow)) >= 3)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    kept = {path: path.read_bytes() for path in records(workflow)}
    workflow.measure()
    assert workflow.selected() == set()
    after = records(workflow)
    assert len(after) > len(kept)
    for path in after:
        assert list(schema_validator("record").iter_errors(json.loads(path.read_text()))) == []
    # What was whole before the kill was not measured again.
    same = [path for path, text in kept.items() if path.read_bytes() == text]
    assert len(same) >= len(kept) - 1  # the last may have been written in the moment of the kill


@pytest.mark.thorough
def test_two_runs_in_one_folder_do_not_meet(workflow):
    workflow.config["experiments"] = ["memory_bandwidth"]
    workflow.config["replicates"] = 30  # the first run lasts until the second has started
    run = start(workflow)
    try:
        wait_until(lambda: len(records(workflow)) >= 1)
        done = workflow.snakemake()
        assert done.returncode != 0
        assert "writes to this folder" in done.stdout
    finally:
        # On SIGTERM, Snakemake's signal handler waits for a lock. If its main thread holds the lock
        # in that moment (scheduling/job_scheduler.py, exit_gracefully), it waits without an end.
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


@pytest.mark.thorough
def test_a_tool_that_prints_rubbish_fails_its_points_alone(workflow, monkeypatch):
    tools = workflow.folder / "bin"
    tools.mkdir()
    fio = tools / "fio"
    fio.write_text(
        "#!/bin/sh\ncase $1 in --version) echo fio-3.33;; *) echo rubbish; sleep 1;; esac\n"
    )
    fio.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    said = workflow.run()
    assert "failed: storage=node0+file0: " in said
    report = workflow.path("localhost/*/report.html").read_text()
    assert "wrote no output result.json" in report
    verdicts = {
        path.parent.parent.name: json.loads(path.read_text())["verdict"]["status"]
        for path in records(workflow)
    }
    assert verdicts["memory_bandwidth"] == "valid"
    assert verdicts["storage_bandwidth"] == "failed"
