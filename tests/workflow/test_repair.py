"""What a person sees after a drive was replaced, and of several configurations and hosts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from chaosity.store.measurements_before_component_changes import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table
from workflow_folder import Workflow

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def repaired(root, tmp_path_factory):
    """Two files stand in for drives; the first is replaced after it was measured."""
    workflow = Workflow(root, tmp_path_factory.mktemp("repaired"))
    files = {"directory": str(workflow.folder / "drives"), "bytes": 16 * 2**20, "count": 2}
    workflow.host(chaosity_storage_file=files)
    workflow.config["experiments"] = ["storage_bandwidth"]
    workflow.config["replicates"] = 2
    workflow.run()
    component = workflow.path("localhost/*/components/file0.json")
    content = {**json.loads(component.read_text()), "serial": "new"}
    component.write_text(json.dumps(content))
    workflow.run()
    return workflow


@pytest.mark.thorough
def test_the_report_shows_before_and_after(repaired):
    html = repaired.path("localhost/*/report.html").read_text()
    assert "file0 was replaced" in html
    table = read_parquet_table(repaired.path("localhost/*/history.parquet"), HISTORY_COLUMNS)
    eras = table.groupby("point")["era"].agg(set).to_dict()
    # file1 alone was not touched; of file0 and both together there are values from both times
    assert eras == {"storage=node0+file0": {1, 2}, "storage=node0+unknowndrives": {1, 2}}
    assert len(table) == 2 * 2 * 2
    assert repaired.selected() == set()


@pytest.mark.thorough
def test_a_lost_record_is_measured_again_though_there_is_a_report(repaired):
    path = repaired.path("localhost/*/storage_bandwidth/storage=node0+file1/rep2.json")
    away = path.rename(path.with_suffix(".away"))
    assert repaired.selected() == {("storage_bandwidth", "storage=node0+file1", "2")}
    away.rename(path)
    assert repaired.counts() == {}


@pytest.mark.thorough
def test_another_configuration_asks_for_a_report_and_for_no_measurement(repaired):
    own = repaired.path("localhost/*/measurements.parquet")
    other = own.parent.parent / "other"
    assert "<h2>Comparison of configurations</h2>" not in (own.parent / "report.html").read_text()
    other.mkdir()
    table = read_parquet_table(own)
    write_parquet_table(table.assign(configuration="other"), other / own.name)
    shutil.copy(own.parent / "plan.json", other)
    assert set(repaired.counts()) - {"all", "total"} == {"report"}
    repaired.run()
    html = (own.parent / "report.html").read_text()
    assert "<h2>Comparison of configurations</h2>" in html
    assert re.search(r"no difference of 5\s% or more detected in \d+ cells?", html)
    assert not (other / "storage_bandwidth").exists()
    assert repaired.counts() == {}


@pytest.mark.thorough
def test_a_second_configuration_with_a_report_asks_for_the_overview(repaired):
    own = repaired.path("localhost/*/summary.json")
    assert not (repaired.folder / "results/index.html").exists()
    shutil.copy(own, own.parent.parent / "other")
    repaired.run()
    assert "1 host" in (repaired.folder / "results/index.html").read_text()
    assert repaired.counts() == {}


def reports(workflow, *arguments):
    """What `chaosity reports` prints in the workflow's folder, and its exit status."""
    program = "from chaosity.cli import main; main()"
    command = [sys.executable, "-c", program, "reports", *arguments]
    done = subprocess.run(
        command,
        cwd=workflow.folder,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout


@pytest.mark.thorough
def test_the_earlier_report_of_a_host_that_was_left_out_says_so(repaired):
    report = repaired.path("localhost/*/report.html")
    note = report.parent.parent / "left_out.json"
    note.write_text(json.dumps({"at": "2026-11-21T09:15:00Z", "reason": "no route to host"}))
    status, said = reports(repaired)
    assert status == 1, said
    assert "skipped: localhost, 2026-11-21 09:15 UTC: no route to host" in said
    assert said.splitlines()[-1].endswith("results/index.html")
    assert "The last run skipped this host" in report.read_text()
    assert "no route to host" in (repaired.folder / "results/index.html").read_text()
    note.unlink()
    status, said = reports(repaired, "--anew", "localhost")
    assert status == 0, said
    assert str(report) in said
    assert "skipped this host" not in report.read_text()
    assert "<h2>Comparison of configurations</h2>" in report.read_text()
    assert "file0 was replaced" in report.read_text()
