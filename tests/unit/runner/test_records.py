"""The verdict of a record, and attempts that an earlier try of the same run has left."""

from __future__ import annotations

import pytest

from chaosity.records.record_files import (
    RUN_BEGAN_VARIABLE,
    SCHEMA_VERSION,
    current_record_path,
    has_valid_record,
    link_current_record,
    newest_attempt_since_run_began,
    save_record,
)
from chaosity.records.record_format import FAILED, VALID, make_check, make_verdict


def test_a_record_is_valid_unless_a_decisive_check_failed():
    checks = [
        make_check("memory: threads", None, "unknown"),
        make_check("undisturbed", False, "-", decisive=False),
    ]
    assert make_verdict(checks) == {"status": VALID, "reason": None, "checks": checks}


def test_what_follows_from_a_load_that_did_not_end_well_is_counted():
    checks = [
        make_check("storage: ended well", False, "exit status 1: no space left"),
        make_check("storage: no error", False, "the tool wrote no output result.json"),
        make_check("storage: threads", False, "the load ended before its threads were seen"),
        make_check("storage: block size", True, "131072"),
        make_check("storage2: threads", False, "2 of 4 threads may leave [0]"),
        make_check("values", False, "the tool wrote no output result.json"),
    ]
    verdict = make_verdict(checks)
    assert (verdict["status"], verdict["checks"]) == (FAILED, checks)
    assert verdict["reason"] == (
        "storage: exit status 1: no space left; storage2: threads: 2 of 4 threads may leave [0];"
        " 3 other checks failed too"
    )


# A record that an earlier try of the same run has left is taken over, no other one is.


BEGAN = "2026-11-21T07:00:00.000Z"
LATER = "2026-11-21T07:30:00.000Z"
BEFORE = "2026-11-20T07:30:00.000Z"


def record(began_at, definition="d", replicate=1):
    return {
        "schema_version": SCHEMA_VERSION,
        "point": {"definition": definition},
        "replicate": replicate,
        "began_at": began_at,
        "finished_at": began_at,
        "verdict": {"status": "valid"},
    }


@pytest.fixture(autouse=True)
def run(monkeypatch):
    monkeypatch.setenv(RUN_BEGAN_VARIABLE, BEGAN)


def test_an_attempt_of_this_run_is_reused(tmp_path):
    path = tmp_path / "rep1.json"
    save_record(record(LATER), path)
    path.unlink()  # as Snakemake does with the outputs of a job that was cut short
    attempt = newest_attempt_since_run_began({"definition": "d"}, 1, path)
    link_current_record(attempt, path)
    assert path.samefile(attempt)


@pytest.mark.parametrize(
    "other",
    [record(BEFORE), record(LATER, definition="e"), record(LATER, replicate=2)],
    ids=["an earlier run's", "another point's", "another replicate's"],
)
def test_other_attempts_are_not_reused(tmp_path, other):
    path = tmp_path / "rep1.json"
    save_record(other, tmp_path / f"rep{other['replicate']}.json")
    assert newest_attempt_since_run_began({"definition": "d"}, 1, path) is None


def test_neither_an_incomplete_record_is_reused_nor_one_outside_a_run(tmp_path, monkeypatch):
    path = tmp_path / "rep1.json"
    save_record(record(LATER), path)
    monkeypatch.delenv(RUN_BEGAN_VARIABLE)
    assert newest_attempt_since_run_began({"definition": "d"}, 1, path) is None
    monkeypatch.setenv(RUN_BEGAN_VARIABLE, BEGAN)
    assert newest_attempt_since_run_began({"definition": "d"}, 1, path) is not None
    [attempt] = (tmp_path / "attempts").glob("*.json")
    attempt.write_text(attempt.read_text()[:40])
    assert newest_attempt_since_run_began({"definition": "d"}, 1, path) is None


@pytest.mark.parametrize(
    ("definition", "status", "is_kept"),
    [("d", "valid", True), ("d", "failed", False), ("e", "valid", False)],
)
def test_only_a_valid_record_of_the_same_definition_needs_no_measurement(
    tmp_path, definition, status, is_kept
):
    point = {"experiment": "memory", "point": "one", "definition": "d"}
    assert not has_valid_record(tmp_path, point, 1)
    saved = {**record(LATER, definition), "verdict": {"status": status}}
    save_record(saved, tmp_path / current_record_path("memory", "one", 1))
    assert has_valid_record(tmp_path, point, 1) is is_kept
