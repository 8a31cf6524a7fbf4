"""The verdict of the checks of a record."""

from __future__ import annotations

from chaosity.records.record_types import FAILED, VALID, make_check, make_verdict


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
