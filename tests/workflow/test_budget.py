"""A run with a budget: its rounds, a kill in the middle, a replaced drive, bad budgets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from chaosity.documents.shipped_documents import ROOT
from chaosity.records.atomic_writes_and_record_files import utc_now_text
from wait_until_true import files_of_running_program, wait_until
from workflow_folder import Workflow

HOST = {
    "chaosity_topology": str(ROOT / "machines/topologies/xeon_8358.xml"),
    "chaosity_simulated": str(ROOT / "machines/xeon_8358.yaml"),
}


def rounds_of(folder: Path) -> list[dict[str, object]]:
    """The rounds so far."""
    [path] = folder.glob("results/imagined/*/rounds.json")
    listed: list[dict[str, object]] = json.loads(path.read_text())
    return listed


def attempts(folder: Path) -> Counter[str]:
    """How often each replicate was measured."""
    found = files_of_running_program(folder, "results/imagined/*/*/*/attempts/*.json")
    return Counter(f"{path.parents[1].name}/{path.name.split('.')[0]}" for path in found)


def measured(workflow: Workflow) -> Counter[tuple[str, str]]:
    """How often the rounds measure each point."""
    rounds = rounds_of(workflow.folder)
    return Counter(point for each in rounds for point in map(tuple, each["measurements"]))


@pytest.fixture(scope="module")
def killed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """A run that was killed in the middle of its second round."""
    workflow = Workflow(root, tmp_path_factory.mktemp("budget"))
    workflow.host("imagined", **HOST)
    workflow.config |= {"experiments": ["memory_bandwidth", "storage_bandwidth"], "replicates": 3}
    for key in ("stopping", "working_set"):
        del workflow.config[key]
    workflow.config["budget"] = "1m50s"
    log = (workflow.folder / "first.log").open("w")
    run = subprocess.Popen(
        workflow.command(), cwd=workflow.folder, start_new_session=True, stderr=log, stdout=log
    )

    def in_second_round() -> bool:
        files = list(workflow.folder.glob("results/imagined/*/rounds.json"))
        if run.poll() is not None:
            raise AssertionError((workflow.folder / "first.log").read_text())
        if not files or len(rounds := rounds_of(workflow.folder)) < 2:
            return False
        return len(attempts(workflow.folder)) > len(rounds[0]["measurements"]) + 1

    wait_until(in_second_round, seconds=200)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return workflow


@pytest.mark.thorough
def test_a_killed_run_continues_in_its_round_and_measures_nothing_twice(killed: Workflow):
    before, done = rounds_of(killed.folder), attempts(killed.folder)
    text = killed.run()
    after = rounds_of(killed.folder)
    assert after[: len(before)] == before
    every = [tuple(key) for each in after for key in each["measurements"]]
    finished = attempts(killed.folder)
    assert len(finished) == len(every)
    # The measurement in the moment of the kill may have been complete without being noted.
    assert sum(finished.values()) <= len(every) + 1
    assert all(finished[name] >= count for name, count in done.items())
    assert "of 1 min 50 s used; round" in text
    assert "Known so far" in text
    plan = json.loads(killed.path("imagined/*/plan.json").read_text())
    assert plan["measurements"] == len(every)
    assert (
        killed.path("imagined/*/report.html").stat().st_mtime
        > killed.path("imagined/*/rounds.json").stat().st_mtime
    )


@pytest.mark.thorough
def test_a_replaced_drive_is_measured_again_and_nothing_else(killed: Workflow):
    killed.run()
    folder = killed.path("imagined/*/rounds.json").parent
    drive = sorted(folder.glob("components/drive*.json"))[0]
    drive.write_text(json.dumps({**json.loads(drive.read_text()), "note": "replaced"}))
    touched = {
        (path.parent.name, path.stem)
        for path in folder.glob("points/*/*.json")
        if drive.stem in json.loads(path.read_text())["components"]
    }
    counts = measured(killed)
    assert touched
    assert touched < set(counts)
    killed.config |= {"rounds": "2026-11-23T00:00:00.000Z", "budget": None}
    again = {(experiment, point) for experiment, point, _ in killed.selected()}
    killed.config |= {"rounds": None, "budget": "1m50s"}
    assert again == touched
    before = sum(attempts(killed.folder).values())
    killed.run()
    repeated = sum(attempts(killed.folder).values()) - before
    assert repeated == sum(counts[point] for point in touched)


@pytest.mark.thorough
def test_without_a_budget_only_what_is_missing_is_measured(killed: Workflow):
    killed.run()
    killed.config["budget"] = None
    missing = killed.selected()
    killed.config["budget"] = "1m50s"
    assert len(missing) == 90 - sum(measured(killed).values())
    # Records of other runs count from then on, and cost no time.
    killed.config |= {"budget": None, "experiments": ["memory_bandwidth"]}
    killed.measure()
    killed.config |= {"budget": "1m50s", "experiments": ["memory_bandwidth", "storage_bandwidth"]}
    before = sum(attempts(killed.folder).values())
    killed.run()
    assert sum(attempts(killed.folder).values()) == before
    other = rounds_of(killed.folder)[-1]
    assert other["earlier"]
    assert {experiment for experiment, _ in other["measurements"]} == {"memory_bandwidth"}
    plan = json.loads(killed.path("imagined/*/plan.json").read_text())
    assert plan["measurements"] == len(attempts(killed.folder))


def upgrade(workflow: Workflow, version: str) -> Path:
    """Note another version of a tool, which every point uses; return the folder of the results."""
    folder = workflow.path("imagined/*/rounds.json").parent
    system = folder / "components/system.json"
    document = json.loads(system.read_text())
    tools = {**document["tools"], "simulated machine": version}
    system.write_text(json.dumps({**document, "tools": tools}))
    return folder


def test_after_an_upgrade_a_dry_run_counts_what_is_measured_again(killed: Workflow):
    killed.run()
    upgrade(killed, "newer")
    every = measured(killed).total()
    whole = killed.run("--dry-run")
    assert f"first {every} measurements of earlier rounds" in whole
    assert f"{every} older than a change" in whole
    killed.config["budget"] = "1m"
    part = killed.run("--dry-run")
    killed.config["budget"] = "1m50s"
    [first] = re.findall(r"first (\d+) measurements of earlier rounds", part)
    assert 0 < int(first) < every
    assert f"leaves out {every - int(first)} measurements from before a change" in part
    assert "no further round" not in whole + part


@pytest.mark.thorough
def test_after_an_upgrade_a_run_stays_within_its_budget(killed: Workflow):
    killed.run()
    changed_at = utc_now_text()
    folder = upgrade(killed, "newest")
    before = sum(attempts(killed.folder).values())
    killed.config["budget"] = "1m"
    text = killed.run()
    killed.config["budget"] = "1m50s"
    again = sum(attempts(killed.folder).values()) - before
    assert again == measured(killed).total()
    seconds = [
        json.loads(path.read_text())["estimated_seconds"] for path in folder.glob("points/*/*.json")
    ]
    assert again * min(seconds) <= 60
    assert "leaves out" in text
    table = duckdb.sql(f"SELECT measured_at FROM '{folder}/measurements.parquet'").fetchall()
    assert all(moment >= changed_at for (moment,) in table)
    notes = json.loads((folder / "plan.json").read_text())["notes"]
    assert any("before a change of a component" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"budget": "3s"}, "measuring each cell of the node matrices once takes about"),
        ({"budget": "1m", "known_from": ["/none"]}, "/none: file or folder not found"),
    ],
)
def test_a_budget_that_the_plan_does_not_allow_is_refused_in_one_sentence(
    root: Path, tmp_path: Path, changes: dict[str, object], sentence: str
):
    workflow = Workflow(root, tmp_path)
    workflow.host("imagined", **HOST)
    workflow.config |= {"experiments": ["memory_bandwidth"], "replicates": 3} | changes
    done = workflow.snakemake("--dry-run")
    assert done.returncode == 2
    assert sentence in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.thorough
def test_what_fails_is_measured_once_a_run(root: Path, tmp_path: Path):
    workflow = Workflow(root, tmp_path)
    workflow.config |= {"experiments": ["memory_bandwidth", "storage_bandwidth"], "replicates": 3}
    # A folder that cannot be created: below a file.
    (tmp_path / "blocked").write_text("")
    files = {"directory": str(tmp_path / "blocked/in"), "bytes": 16 * 2**20}
    workflow.host(chaosity_storage_file=files)
    workflow.config |= {"precision": 0.2, "levels": {"memory_bandwidth": {"kernel": 1}}}
    for runs in (1, 2):
        text = workflow.run()
        failed = [*workflow.folder.glob("results/localhost/*/storage_bandwidth/*/attempts/*.json")]
        assert [path.name.split(".")[-2] for path in failed] == ["failed"] * runs
        assert len([*workflow.folder.glob("results/localhost/*/rounds.json")]) == 1
        assert text.count("measurements to take") > 1 and "\nall\n" not in text
