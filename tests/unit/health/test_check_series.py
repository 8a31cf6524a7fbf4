"""The series of checks is read as it was written, and refused in one sentence if it is damaged."""

from __future__ import annotations

import gzip
import json
from functools import cache

import pytest

from chaosity.errors import UserError
from chaosity.health.check_series import (
    SERIES_FILE,
    append_check,
    earlier_values,
    read_series,
    time_of_last_check_by_point,
)
from chaosity.health.judge_check_values import Expectation, MapValue
from nightly_checks import check_points


@cache
def known():
    """The value of each point in the map."""
    return {each.key: MapValue(100.0, 3, 1e-4) for each in check_points()}


def append(folder, moment, *values, disturbed=False):
    expectation = Expectation(known(), {})
    judged = [
        expectation.judge(check, [value], 2, disturbed=disturbed)
        for check, value in zip(check_points()[:2], values, strict=True)
    ]
    append_check(folder, moment, judged, [{"record": moment}])  # type: ignore[typeddict-item]


def test_values_are_exact_and_slow_ones_do_not_become_the_norm(tmp_path):
    append(tmp_path, "2026-11-24T01:00:00.000Z", 99.12345678901234, 101.0)
    append(tmp_path, "2026-11-25T01:00:00.000Z", 98.0, 60.0)
    rows = read_series(tmp_path)
    assert earlier_values(rows, {}) == {
        check_points()[0].key: [99.12345678901234, 98.0],
        check_points()[1].key: [101.0],
    }
    assert time_of_last_check_by_point(rows) == dict.fromkeys(
        (check_points()[0].key, check_points()[1].key), "2026-11-25T01:00:00.000Z"
    )
    assert len((tmp_path / SERIES_FILE).read_text().splitlines()) == 5
    kept = [json.loads(gzip.decompress(p.read_bytes())) for p in (tmp_path / "checks").iterdir()]
    assert len(kept) == 2


def test_values_beside_other_programs_do_not_become_the_norm(tmp_path):
    append(tmp_path, "2026-11-24T01:00:00.000Z", 99.0, 101.0)
    append(tmp_path, "2026-11-25T01:00:00.000Z", 150.0, 60.0, disturbed=True)
    rows = read_series(tmp_path)
    assert [row["clear"] for row in rows] == ["no", "no", "disturbed", "yes"]
    assert earlier_values(rows, {}) == {
        check_points()[0].key: [99.0],
        check_points()[1].key: [101.0],
    }


def test_checks_before_the_map_was_measured_again_do_not_count(tmp_path):
    """A replaced drive can be faster than the old one."""
    for night in range(1, 4):
        append(tmp_path, f"2026-11-2{night}T01:00:00.000Z", 96.0 + night, 100.0)
    mapped_at = {check_points()[0].key: "2026-11-22T12:00:00.000Z"}
    earlier = earlier_values(read_series(tmp_path), mapped_at)
    assert earlier == {check_points()[0].key: [99.0], check_points()[1].key: [100.0] * 3}


@pytest.mark.parametrize(
    "text",
    [
        "time,point\n1,2\n",
        "\x00",
        "{}",
        "time,experiment,point,metric,value,n,expected,loss,limit,clear\na,b,c,d,-1,1,1,0,0,no\n",
        "time,experiment,point,metric,value,n,expected,loss,limit,clear\na,b,c,d,nan,1,1,0,0,no\n",
        "time,experiment,point,metric,value,n,expected,loss,limit,clear\na,b\n",
    ],
)
def test_a_damaged_series_is_refused_by_name(tmp_path, text):
    (tmp_path / SERIES_FILE).write_text(text)
    with pytest.raises(UserError, match=r"checks\.csv: the file is not a series of checks"):
        read_series(tmp_path)
