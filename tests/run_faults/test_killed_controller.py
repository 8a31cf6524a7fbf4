"""The controller is killed or interrupted, in each phase: the next run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from broken_runs import ResultsFolder, kill_all, record_files, start, start_program
from wait_until_true import files_of_running_program, wait_until
from workflow_folder import Workflow


def test_kill_in_the_middle_and_go_on(workflow: Workflow):
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 4}}
    results = workflow.folder / "results"
    run = start(workflow)
    wait_until(lambda: len(workflow.records()) >= 2)
    kill_all(run)
    kept = record_files(results)
    workflow.measure()
    after = record_files(results)
    assert len(after) == len([*results.glob("*/*/points/*/*.json")]) > len(kept)
    check_nothing_lost(kept, after)


# A file that exists while, or shortly after, a phase of a run.
PHASES = {
    "planning": "*/*/topology.json",
    "report": "*/*/figures/*.svg",
}


@pytest.mark.thorough
def test_the_controller_is_killed_while(simulated: Workflow):
    """Each run goes on after the kill of the run before, and is killed in a later phase."""
    results = simulated.folder / "results"
    kept: dict[Path, bytes] = {}
    for pattern in PHASES.values():
        run = start(simulated)
        wait_until(lambda pattern=pattern: files_of_running_program(results, pattern))
        kill_all(run)
        after = record_files(results)
        check_nothing_lost(kept, after)
        kept = after
        assert not list(results.glob("*/*/report.html"))
    simulated.run()
    after = record_files(results)
    assert len(after) == 8
    check_nothing_lost(kept, after)
    [report] = results.glob("*/*/report.html")
    assert report.read_text().rstrip().endswith("</html>")


@pytest.mark.thorough
def test_ctrl_c_twice_leaves_no_process_and_the_next_run_goes_on(workflow: Workflow):
    workflow.config["experiments"] = ["memory_bandwidth"]
    results = workflow.folder / "results"
    run = start(workflow)
    wait_until(lambda: len(workflow.records()) >= 2)
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(0.5)  # so that the second interrupts what the first has begun
    os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=120)
    assert run.returncode != 0
    wait_until(lambda: not processes_of_session(run.pid), 60)
    kept = record_files(results)
    assert len(kept) >= 2
    workflow.measure()
    after = record_files(results)
    assert len(after) == len([*results.glob("*/*/points/*/*.json")]) > len(kept)
    check_nothing_lost(kept, after)


@pytest.mark.thorough
def test_a_kill_of_snakemake_alone_leaves_no_measurement(workflow: Workflow):
    for key in ("stopping", "working_set"):
        del workflow.config[key]
    workflow.config |= {"experiments": ["latency_matrix"], "budget": "10m", "replicates": 3}
    minute = {"relative_precision": None, "min_seconds": 60, "max_seconds": 60}
    workflow.config["stopping"] = {"memory_latency": minute}
    run = start(workflow)

    def found(word: str) -> bool:
        """Whether the run has a process whose command line has this word."""
        return any(word in line for line in processes_of_session(run.pid))

    wait_until(lambda: found("chaosity-measure"))
    run.kill()
    run.wait()
    # The measurement would take a minute.
    wait_until(lambda: not found("chaosity-measure"), 30)
    wait_until(lambda: not processes_of_session(run.pid), 120)
    assert not workflow.records()


def check_nothing_lost(kept: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> None:
    """At most the record that was written in the moment of the end is measured again."""
    assert len([path for path, text in kept.items() if after[path] != text]) <= 1
    for path, text in kept.items():  # and its first attempt is kept, too
        attempts = path.parent.glob(f"attempts/{path.stem}.*")
        assert text in [one.read_bytes() for one in attempts]


def processes_of_session(session: int) -> list[str]:
    """The command lines of the processes of a session that still run."""
    words = ["ps", "-ww", "-o", "stat=,pid=,args=", "--sid", str(session)]
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return [line for line in listed.splitlines() if not line.startswith("Z")]


def test_a_killed_stage_leaves_the_older_file_or_none(results: ResultsFolder):
    """Killed while it starts or calculates; then it may end."""
    words = ["--output", "measurements.parquet", "--history", "history.parquet"]
    path = results.folder / "measurements.parquet"
    path.write_bytes(b"the older file")
    for seconds in (2.0, 300.0):
        run = start_program("chaosity", "tidy", "plan.json", *words, folder=results.folder)
        try:
            run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            if path.read_bytes() != b"the older file":
                break  # it was written before the kill
        else:
            break
    text = path.read_bytes()
    assert text.startswith(b"PAR1") and text.endswith(b"PAR1")
    assert len(record_files(results.results)) == len(results.points)
