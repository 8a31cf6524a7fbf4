"""A run with a budget: its rounds, a kill in the middle, a replaced drive, an upgrade, failures."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from broken_runs import kill_all, start
from chaosity.records.record_files import utc_now_text
from inventories import simulated_host
from wait_until_true import wait_until
from workflow_folder import Workflow

EXPERIMENTS = ["memory_bandwidth", "storage_bandwidth"]
REPLICATES, MEMORY_POINTS = 3, 6  # of the plan, besides one point of the drive
BUDGET, LESS = 28, 16  # s


class RunWithBudget(Workflow):
    """The run of a small simulated host, whose plan takes longer than the budget."""

    def __init__(self, root: Path, folder: Path) -> None:
        super().__init__(root, folder)
        self.host("imagined", **simulated_host("one_node"))
        self.config |= {"experiments": EXPERIMENTS, "replicates": REPLICATES}
        self.config["budget"] = f"{BUDGET}s"
        for key in ("stopping", "working_set"):
            del self.config[key]

    def rounds(self) -> list[dict[str, Any]]:
        """The rounds so far."""
        found: list[dict[str, Any]] = []
        for path in sorted(self.folder.glob("results/imagined/*/rounds/[0-9].json")):
            found += json.loads(path.read_text())["rounds"]
        return found

    def chosen(self) -> Counter[tuple[str, str]]:
        """How often the rounds measure each point."""
        return Counter(tuple(point) for each in self.rounds() for point in each["measurements"])

    def counted_attempts(self) -> Counter[str]:
        """How often each replicate was measured."""
        return Counter(
            f"{path.parents[1].name}/{path.name.split('.')[0]}" for path in self.attempts()
        )

    def is_in_second_round(self) -> bool:
        """Whether a measurement of the second round is complete."""
        [first, *others] = self.rounds() or [{"measurements": ()}]
        return bool(others) and len(self.attempts()) > len(first["measurements"])

    def measurements_of_a_run(self) -> int:
        """Measure; return how many measurements this took."""
        before = len(self.attempts())
        self.measure()
        return len(self.attempts()) - before


@pytest.mark.thorough
def test_rounds_go_on_after_a_kill_a_repair_another_run_and_an_upgrade(root: Path, tmp_path: Path):
    workflow = RunWithBudget(root, tmp_path)
    run = start(workflow, "--", "measurements")
    wait_until(lambda: run.poll() is not None or workflow.is_in_second_round(), seconds=200)
    kill_all(run)
    before, done = workflow.rounds(), workflow.counted_attempts()
    folder = workflow.path("imagined/*/plan.json").parent

    # The next run goes on in this round and measures nothing twice.
    text = workflow.measure()
    chosen, finished = workflow.chosen(), workflow.counted_attempts()
    assert workflow.rounds()[: len(before)] == before
    assert len(finished) == chosen.total() < REPLICATES * (MEMORY_POINTS + 1)
    # The measurement in the moment of the kill may have been complete without being noted.
    assert finished.total() <= chosen.total() + 1
    assert done <= finished
    assert f"of {BUDGET} s used; " in text and "Known so far" in text

    # After a repair, what touches the drive is measured again, and nothing else.
    [drive] = folder.glob("components/drive*.json")
    drive.write_text(json.dumps({**json.loads(drive.read_text()), "note": "replaced"}))
    touched = {
        (path.parent.name, path.stem)
        for path in folder.glob("points/*/*.json")
        if drive.stem in json.loads(path.read_text())["components"]
    }
    assert touched and touched < set(chosen)
    assert workflow.measurements_of_a_run() == sum(chosen[point] for point in touched)

    # After an upgrade, which touches all, a dry run says what is measured again.
    system = folder / "components/system.json"
    document = json.loads(system.read_text())
    document["tools"] |= {"simulated machine": "newer"}
    changed_at = utc_now_text()
    system.write_text(json.dumps(document))
    every = workflow.chosen().total()
    there = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    text = workflow.run("--dry-run")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == there
    assert f"first {every} measurements of earlier rounds" in text
    assert f"{every} older than a change" in text and "no further round" not in text
    # A run with less time measures a part, and its table has nothing else.
    workflow.config["budget"] = f"{LESS}s"
    before = len(workflow.attempts())
    text = workflow.run()
    again = len(workflow.attempts()) - before
    assert 0 < again == workflow.chosen().total() < every
    assert f"leaves out {every - again} measurements from before a change" in text
    points = [json.loads(path.read_text()) for path in folder.glob("points/*/*.json")]
    assert again * min(point["estimated_seconds"] for point in points) <= LESS
    table = duckdb.sql(f"SELECT measured_at FROM '{folder}/measurements.parquet'").fetchall()
    assert all(moment >= changed_at for (moment,) in table)
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["measurements"] == again
    assert any("before a change of a component" in note for note in plan["notes"])
    written = [(folder / name).stat().st_mtime for name in ("rounds/1.json", "report.html")]
    assert written == sorted(written)

    # A run without a budget measures what is missing. That costs no time of a budget.
    chosen = workflow.chosen()
    workflow.config |= {"budget": None, "experiments": EXPERIMENTS[:1], "replicates": 2}
    measured = [min(n, 2) for (experiment, _), n in chosen.items() if experiment == EXPERIMENTS[0]]
    assert workflow.measurements_of_a_run() == 2 * MEMORY_POINTS - sum(measured)
    workflow.config |= {"budget": f"{LESS}s", "experiments": EXPERIMENTS, "replicates": REPLICATES}
    assert workflow.measurements_of_a_run() == 0
    [earlier] = [each for each in workflow.rounds() if each["earlier"]]
    assert {name for name, _ in earlier["measurements"]} == {EXPERIMENTS[0]}


@pytest.mark.thorough
def test_what_fails_is_measured_once_a_run(root: Path, tmp_path: Path):
    workflow = Workflow(root, tmp_path)
    # A folder that cannot be created: below a file.
    (tmp_path / "blocked").write_text("")
    files = {"directory": str(tmp_path / "blocked/in"), "bytes": 16 * 2**20}
    workflow.host(chaosity_storage_file=files)
    workflow.config |= {"experiments": EXPERIMENTS[1:], "replicates": 3, "precision": 0.2}
    for runs in (1, 2):
        text = workflow.measure()
        assert [path.name.split(".")[-2] for path in workflow.attempts()] == ["failed"] * runs
        assert [*tmp_path.glob("results/localhost/*/rounds/1.json")]
        assert "choose round 2 of localhost" in text
