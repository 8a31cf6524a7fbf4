"""Records that a person edited, and results of older versions: noticed, read or refused by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from broken_runs import SIMULATED_HOST, ResultsFolder, record_files
from chaosity.records.record_files import load_record
from chaosity.store.tidy_table_from_records import HISTORY_COLUMNS
from chaosity.store.tidy_table_parquet import read_parquet_table
from workflow_folder import Workflow

# Four points of a simulated host, written by the version of 2026-11-22, commit 805c648, with
# `chaosity simulate`: the default config, `sample: {memory_bandwidth: 4}`, one replicate.
OLD = Path(__file__).parent.parent / "data/results_of_2026-11-22.tar.gz"


def edit_value(record: dict) -> None:
    """Let the benchmark have written a larger number."""
    outputs = record["loads"][0]["outputs"]
    outputs["stdout"] = outputs["stdout"].replace('"bytes": ', '"bytes": 9')


def edit_time(record: dict) -> None:
    """Let the measurement have ended on another day."""
    record["finished_at"] = "2020" + record["finished_at"][4:]


def edit_verdict(record: dict) -> None:
    """Let the measurement have failed."""
    record["verdict"] |= {"status": "failed", "reason": "it was too slow"}


def test_a_record_edited_by_hand_has_no_value(results: ResultsFolder):
    edited = results.points[:3]
    for point, edit in zip(edited, (edit_value, edit_time, edit_verdict), strict=True):
        path = results.record(point)
        record = json.loads(path.read_text())
        edit(record)
        if edit is not edit_value:
            path.unlink()  # as editors do that write a new file
        path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        with pytest.raises(ValueError, match="was edited after its measurement"):
            load_record(path)
    assert results.write("tidy").returncode == 0
    table = read_parquet_table(results.folder / "measurements.parquet").set_index("point")
    names = [point.stem for point in edited]
    assert set(table.loc[names, "status"]) == {"failed"}
    assert all("delete it to measure the point again" in why for why in table.loc[names, "reason"])
    assert set(table.drop(names)["status"]) == {"valid"}
    path = results.record(edited[0])
    path.unlink()
    assert results.measure(edited[0]).returncode == 0
    load_record(path)


def test_digests_are_those_of_sha256sum(results: ResultsFolder):
    for attempts in results.folder.glob("*/*/attempts"):
        command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
        subprocess.run(command, cwd=attempts, check=True, capture_output=True)


@pytest.fixture
def old(tmp_path: Path) -> ResultsFolder:
    """Results that a version of 2026-11-22 wrote."""
    results = tmp_path / "results"
    results.mkdir()
    subprocess.run(["tar", "-xzf", OLD, "-C", results], check=True)
    return ResultsFolder(results)


def test_results_of_an_older_version_are_read_and_called_not_verifiable(old: ResultsFolder):
    assert len(record_files(old.results)) == 4
    done = old.write("tidy")
    assert done.returncode == 0, done.stdout
    assert "4 of 4 records are not verifiable: an older version wrote no digest" in done.stdout
    table = read_parquet_table(old.folder / "measurements.parquet")
    assert set(table["status"]) == {"valid"}
    assert table["value"].notna().all()


@pytest.mark.thorough
def test_a_run_goes_on_with_the_results_of_an_older_version(workflow: Workflow, old: ResultsFolder):
    kept = record_files(old.results)
    workflow.host("old", **SIMULATED_HOST)
    for key in ("stopping", "working_set"):
        del workflow.config[key]
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 4}}
    workflow.run("--until", "tidy")
    # The description of the simulated machine has changed since, so its points are measured again.
    attempts = [*old.results.glob("*/*/*/*/attempts/*.json")]
    assert {path.read_bytes() for path in attempts} >= set(kept.values())
    for path, text in kept.items():
        before, now = json.loads(text), json.loads(path.read_text())
        assert now["point"]["definition"] == before["point"]["definition"]
    history = read_parquet_table(old.folder / "history.parquet", HISTORY_COLUMNS)
    assert set(history["era"]) == {1, 2}
    assert workflow.selected() == set()


def test_a_record_of_an_unknown_version_is_refused_by_name(results: ResultsFolder):
    path = results.record(results.points[0])
    record = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps(record | {"schema_version": 99}))
    with pytest.raises(ValueError, match=r"rep1\.json has record version 99, not 1; read it with"):
        load_record(path)
