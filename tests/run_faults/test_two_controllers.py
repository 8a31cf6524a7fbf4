"""Two runs at the same time: in one folder the second is refused, on one host it waits its turn."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from broken_runs import kill_all, record_files, start
from chaosity.records.record_format import VALID
from wait_until_true import wait_until
from workflow_folder import Workflow

pytestmark = pytest.mark.thorough


def test_two_runs_in_one_folder_do_not_meet(workflow: Workflow):
    workflow.config["experiments"] = ["memory_bandwidth"]
    workflow.config["replicates"] = 30  # the first run lasts until the second has started
    run = start(workflow)
    try:
        wait_until(lambda: len(record_files(workflow.folder / "results")) >= 1)
        done = workflow.snakemake()
        assert done.returncode != 0
        assert f"another run (process {run.pid}) writes to this folder" in done.stdout
    finally:
        # On SIGTERM, Snakemake's signal handler waits for a lock. If its main thread holds the lock
        # in that moment (scheduling/job_scheduler.py, exit_gracefully), it waits without an end.
        kill_all(run)


def test_two_controllers_measure_on_one_host_in_turn(root: Path, tmp_path: Path):
    """Two folders, as of two people: their measurements never overlap, and none fails."""
    both = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        workflow = Workflow(root, tmp_path / name)
        workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 4}}
        both.append(workflow)
    runs = [start(workflow, "--until", "measure") for workflow in both]
    for run in runs:
        said = run.communicate(timeout=300)[0]
        assert run.returncode == 0, said
    spans = []
    for workflow in both:
        for text in record_files(workflow.folder / "results").values():
            record = json.loads(text)
            assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
            spans += [
                (load["began_monotonic_seconds"], load["ended_monotonic_seconds"])
                for load in record["loads"]
            ]
    spans.sort()
    assert len(spans) == 8
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
