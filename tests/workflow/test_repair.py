"""What a person sees after a drive was replaced, and of several configurations and hosts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from broken_runs import chaosity
from chaosity.store.tidy_table_from_records import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table
from inventories import simulated_host
from workflow_folder import Workflow

HOST = simulated_host("fleet")


@pytest.mark.thorough
def test_the_report_after_a_repair_of_another_configuration_and_of_a_host_left_out(
    root: Path, tmp_path: Path
):
    workflow = Workflow(root, tmp_path)
    workflow.host("imagined", **HOST)
    workflow.config |= {"experiments": ["storage_bandwidth"], "replicates": 2}
    workflow.measure()
    folder = workflow.path("imagined/*/plan.json").parent
    [drive, *_] = sorted(folder.glob("components/drive-*.json"))
    drive.write_text(json.dumps({**json.loads(drive.read_text()), "serial": "new"}))
    touched = {
        path.stem
        for path in folder.glob("points/*/*.json")
        if drive.stem in json.loads(path.read_text())["components"]
    }
    workflow.run()
    html = (folder / "report.html").read_text()
    assert f"{drive.stem} was replaced" in html
    assert "<h2>Comparison of configurations</h2>" not in html
    # Of what uses the drive there are values from both times; nothing else was measured again.
    table = read_parquet_table(folder / "history.parquet", HISTORY_COLUMNS)
    eras = table.groupby("point")["era"].agg(set).to_dict()
    assert eras == {point: {1, 2} for point in touched}
    assert len(table) == 2 * 2 * len(touched)
    assert len([*folder.glob("points/*/*.json")]) > len(touched)

    # Another configuration with a report asks for a report and the overview, and for nothing else.
    other, overview = folder.parent / "other", tmp_path / "results/index.html"
    assert not overview.exists()
    other.mkdir()
    own = read_parquet_table(folder / "measurements.parquet")
    write_parquet_table(own.assign(configuration="other"), other / "measurements.parquet")
    for name in ("plan.json", "summary.json"):
        shutil.copy(folder / name, other)
    assert {"report"} <= set(workflow.counts()) <= {"all", "total", "report", "overview"}
    workflow.run()
    html = (folder / "report.html").read_text()
    assert "<h2>Comparison of configurations</h2>" in html
    assert re.search(r"no difference of 5\s% or more detected in \d+ cells?", html)
    assert not (other / "storage_bandwidth").exists()
    assert "1 host" in overview.read_text()
    assert workflow.counts() == {}

    # The earlier report of a host that the last run left out says so.
    note = folder.parent / "left_out.json"
    note.write_text(json.dumps({"at": "2026-11-21T09:15:00Z", "reason": "no route to host"}))
    done = chaosity("reports", folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "skipped: imagined, 2026-11-21 09:15 UTC: no route to host" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("results/index.html")
    assert "The last run skipped this host" in (folder / "report.html").read_text()
    assert "no route to host" in overview.read_text()
    note.unlink()
    done = chaosity("reports", "--anew", "imagined", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert str(folder / "report.html") in done.stdout
    html = (folder / "report.html").read_text()
    assert "skipped this host" not in html
    assert "<h2>Comparison of configurations</h2>" in html
    assert f"{drive.stem} was replaced" in html
