"""``chaosity history`` on a simulated host that is checked nightly and becomes slow at a date."""

from __future__ import annotations

import csv
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broken_runs import chaosity
from chaosity.health import check_host
from chaosity.health.check_host import HostCheck
from chaosity.records.atomic_writes_and_record_files import format_utc
from simulated_map import set_faults, slow_node

QUIET_NIGHTS, SLOW_NIGHTS = 18, 8
FIRST_NIGHT = datetime(2126, 1, 1, 1, tzinfo=UTC)  # after the map


def change_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def checked(mapped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host with checks of 26 nights: a node is slow from the 19th on, with another kernel."""
    results = tmp_path_factory.mktemp("checked") / "sim"
    shutil.copytree(mapped.parent, results)
    folder = results / mapped.name
    topology = json.loads((folder / "topology.json").read_text())
    facts = topology["host"]
    with pytest.MonkeyPatch.context() as patch:
        for night in range(QUIET_NIGHTS + SLOW_NIGHTS):
            moment = format_utc(FIRST_NIGHT + timedelta(days=night))
            patch.setattr(check_host, "utc_now_text", lambda moment=moment: moment)
            kernel = "6.1.1" if night < QUIET_NIGHTS else "6.1.2"
            if night in (0, QUIET_NIGHTS):
                change_json(folder / "topology.json", host={**facts, "kernel_release": kernel})
            if night == QUIET_NIGHTS:
                set_faults(folder, slow_node(1, 0.92))
            HostCheck(folder).run()
    return folder


def test_the_node_its_date_and_the_kernel_are_told(checked: Path, tmp_path: Path):
    done = chaosity("history", checked, "--csv", tmp_path / "history.csv")
    assert done.returncode == 0, done.stdout
    first, told, *_ = done.stdout.splitlines()
    assert first.startswith("SIMULATED")
    assert told.startswith("node1: 8.")
    assert "% less bandwidth since 2126-01-19" in told
    assert "then changed: kernel release 6.1.1 → 6.1.2" in told
    assert "26 checks from 2126-01-01 to 2126-01-26 UTC" in done.stdout
    with (tmp_path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = len({(row["experiment"], row["point"]) for row in rows})
    assert len(rows) == (QUIET_NIGHTS + SLOW_NIGHTS) * values
    [change, *_] = [row for row in rows if row["change"]]
    assert (change["time"][:10], change["explained_by"]) == ("2126-01-19", "node1")
    every = chaosity("history", checked, "--all")
    assert len(every.stdout.splitlines()) > len(done.stdout.splitlines())


@pytest.mark.thorough
def test_the_report_has_a_chart_of_the_checks(checked: Path, tmp_path: Path):
    folder = tmp_path / "sim" / checked.name
    shutil.copytree(checked.parent, tmp_path / "sim")
    page = folder / "report.html"
    done = chaosity("report", folder / "plan.json", "--output", page)
    assert done.returncode == 0, done.stdout
    text = page.read_text()
    assert '<section id="checks">' in text
    assert "% less bandwidth since 2126-01-19" in text
    for kind in ("svg", "png", "csv"):
        assert (folder / "figures" / f"checks_over_time.{kind}").exists()
    # A damaged series is named, and the rest of the report is there.
    (folder / "checks.csv").write_text("time,point\n1,2\n")
    done = chaosity("report", folder / "plan.json", "--output", page)
    assert done.returncode == 0, done.stdout
    assert "the file is no series of checks" in page.read_text()


@pytest.mark.thorough
def test_a_report_without_checks_has_no_such_chart(folder: Path):
    done = chaosity("report", folder / "plan.json", "--output", folder / "report.html")
    assert done.returncode == 0, done.stdout
    assert 'id="checks"' not in (folder / "report.html").read_text()
