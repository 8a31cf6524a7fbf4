"""The history of checks: its file, also with any content, and since when a host is slow."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from chaosity.components import (
    COMPONENTS_SEEN_BY_CHECKS_FILE,
    ComponentLog,
    record_components_of_check,
)
from chaosity.errors import UserError
from chaosity.figures.figure_files import draw_checks_over_time
from chaosity.health.check_history import (
    SERIES_COLUMNS,
    SERIES_FILE,
    append_check,
    earlier_normal_values,
    lasting_losses,
    read_check_history,
    read_series,
    time_of_last_check_by_point,
)
from chaosity.health.check_points import CheckedValue, CheckPoint, Expectation, MapValue
from chaosity.store.measurements import less_is_better
from nightly_checks import check_points, known, time_of_night, write_points
from strategies import change_text, changed, check_any_input, simulated_records, write_text

NIGHTS = 60
OLD, NEW = ({"component": "system", "kernel_release": name} for name in ("6.1.1", "6.1.2"))


@cache
def few_checks() -> list[CheckPoint]:
    """The checks of all nodes, and of four of the 30 drives, which are enough."""
    drives = [each for each in check_points() if each.parts[0].startswith("drive-")]
    return [each for each in check_points() if each not in drives] + drives[:4]


@cache
def a_drive() -> str:
    """The name of the first drive."""
    return next(part for each in few_checks() for part in each.parts if part.startswith("drive-"))


def checks(folder, loss, nights=NIGHTS, noise=0.01):
    """Write checks; `loss` gives the loss of a point in a night."""
    values = []
    for number, check in enumerate(few_checks()):
        chance = random.Random(number)
        sign = -1.0 if less_is_better(check.metric) else 1.0
        values.append(
            [
                100.0 * (1.0 - loss(check, night)) ** sign * math.exp(chance.gauss(0.0, noise))
                for night in range(nights)
            ]
        )
    write_points(folder, few_checks())
    for night in range(nights):
        own = [
            CheckedValue(check, (each[night],), each[0], 0.0)
            for check, each in zip(few_checks(), values, strict=True)
        ]
        append_check(folder, time_of_night(night), own, [])
    return read_check_history(folder)


def test_a_slow_node_is_one_change_with_the_kernel_that_changed_then(tmp_path):
    for night, system in ((0, OLD), (10, OLD), (40, NEW)):
        record_components_of_check(tmp_path, time_of_night(night), {"system": system})
    found = checks(tmp_path, lambda c, night: 0.08 * ("node3" in c.parts and night >= 40))
    [change] = found.changes
    assert change.parts == ("node3",)
    assert change.is_worse and not change.is_drift
    assert change.since == change.first == change.last == time_of_night(40)
    assert len(change.values) == sum("node3" in check.parts for check in few_checks())
    assert re.fullmatch(
        r"node3: \d\.\d % more latency since 2026-02-10, the largest change of \d+ values; "
        r"then changed: kernel release 6\.1\.1 → 6\.1\.2\.",
        found.sentences()[0],
    )
    assert found.component_changes == ((time_of_night(40), "kernel release 6.1.1 → 6.1.2"),)
    assert len((tmp_path / COMPONENTS_SEEN_BY_CHECKS_FILE).read_text().splitlines()) == 2


def test_a_change_of_components_on_another_night_is_not_blamed(tmp_path):
    for night, system in ((0, OLD), (30, NEW)):
        record_components_of_check(tmp_path, time_of_night(night), {"system": system})
    found = checks(tmp_path, lambda c, night: 0.1 * (c.parts == (a_drive(),) and night >= 40))
    [change] = found.changes
    assert change.components == ()
    assert "no change of a component is known" in found.sentences()[0]


def test_a_repair_is_reported_first_and_as_a_gain(tmp_path):
    found = checks(tmp_path, lambda c, night: 0.2 * (a_drive() in c.parts and 20 <= night < 40))
    assert [(each.parts, each.is_worse) for each in found.changes] == [
        ((a_drive(),), False),
        ((a_drive(),), True),
    ]
    assert found.sentences()[0].startswith(f"{a_drive()}: 2")
    assert " more bandwidth since 2026-02-10" in found.sentences()[0]


def test_two_parts_that_change_in_different_nights_are_two_changes(tmp_path):
    nights = {"node1": 20, a_drive(): 40}
    found = checks(
        tmp_path, lambda c, n: 0.1 * any(n >= nights.get(part, NIGHTS) for part in c.parts)
    )
    assert [each.parts for each in found.changes] == [(a_drive(),), ("node1",)]


def test_if_all_is_slow_no_single_part_is_named(tmp_path):
    found = checks(tmp_path, lambda _, night: 0.06 * (night >= 30))
    [change] = found.changes
    assert change.parts == ()
    assert found.sentences()[0].startswith("most parts: ")


def test_a_drift_is_reported_as_a_drift(tmp_path):
    found = checks(tmp_path, lambda c, night: 0.001 * night * (c.parts == (a_drive(),)), 120)
    [change] = found.changes
    assert change.is_drift and change.parts == (a_drive(),)
    assert " less bandwidth little by little from 2026-" in found.sentences()[0]


def test_values_that_are_checked_every_second_night_change_with_the_others(tmp_path):
    """If a check has no time for all points, the last nights of two points differ."""
    checks(tmp_path, lambda c, night: 0.1 * ("node3" in c.parts and night >= 41), noise=0.003)
    lines = (tmp_path / SERIES_FILE).read_text().splitlines(keepends=True)
    [late] = {"/".join(c.key) for c in few_checks() if c.parts == ("node3", "node4")} or {""}
    left = [
        line
        for line in lines
        if not ("/".join(line.split(",")[1:3]) == late and line.startswith(odd_days()))
    ]
    (tmp_path / SERIES_FILE).write_text("".join(left))
    [change] = read_check_history(tmp_path).changes
    assert change.parts == ("node3",)
    assert change.since == time_of_night(41)


def odd_days():
    return tuple(time_of_night(night) for night in range(1, NIGHTS, 2))


def test_a_replaced_drive_begins_a_new_series(tmp_path):
    drive = {"component": "drive", "firmware": "1"}
    for night, serial in ((0, "OLD1"), (30, "NEW2")):
        record_components_of_check(
            tmp_path, time_of_night(night), {a_drive(): {**drive, "serial": serial}}
        )
    found = checks(tmp_path, lambda c, night: 0.3 * (c.parts == (a_drive(),) and night >= 30))
    assert found.changes == ()
    own = [each for each in found.series if each.check.parts == (a_drive(),)]
    assert [(len(each.times), each.replaced is not None) for each in own] == [
        (30, False),
        (30, True),
    ]
    words = f"{a_drive()} was replaced, serial OLD1 → NEW2: its values begin anew."
    assert words in found.sentences()


def test_a_drive_that_only_a_run_saw_replaced_begins_a_new_series(tmp_path):
    history = tmp_path / "components" / ".history" / f"{a_drive()}.jsonl"
    history.parent.mkdir(parents=True)
    history.write_text(
        "".join(
            json.dumps({"since": time_of_night(night), "content": {"serial": serial}}) + "\n"
            for night, serial in ((0, "A"), (30, "B"))
        )
    )
    found = checks(tmp_path, lambda c, night: 0.3 * (c.parts == (a_drive(),) and night >= 30))
    assert found.changes == ()
    assert f"{a_drive()} was replaced, serial A → B: its values begin anew." in found.sentences()


@pytest.mark.parametrize("nights", [1, 2, 5, 6])
def test_a_change_can_be_seen_from_three_checks_before_and_three_after_it(tmp_path, nights):
    found = checks(tmp_path, lambda c, night: 0.5 * (night >= 3), nights)
    assert bool(found.changes) == (nights == 6)
    too_few = f"{nights} check{'s' * (nights > 1)}: too few to see a change"
    assert (too_few in found.sentences()[0]) == (nights < 6)
    draw_checks_over_time(found, "host", tmp_path)
    assert (tmp_path / "checks_over_time.svg").exists()


def test_points_that_the_plan_does_not_have_are_named(tmp_path):
    checks(tmp_path, lambda *_: 0.0, 5)
    with (tmp_path / SERIES_FILE).open("a") as file:
        file.write(f"{time_of_night(5)},old,=point,bandwidth_bytes_per_second,1,1,1,0,0,no\n")
    found = read_check_history(tmp_path)
    assert found.unknown == ("old/=point",)
    assert len(found.series) == len(few_checks())


@pytest.mark.parametrize("time", ["yesterday", "", "2026-13-01T00:00:00Z", "=1"])
def test_a_wrong_time_is_refused(tmp_path, time):
    write_points(tmp_path, few_checks())
    check = few_checks()[0]
    row = f"{time},{','.join(check.key)},{check.metric},1,1,1,0,0,no"
    (tmp_path / SERIES_FILE).write_text(f"{','.join(SERIES_COLUMNS)}\n{row}\n")
    with pytest.raises(UserError, match=r"checks\.csv: a time does not have the form"):
        read_check_history(tmp_path)


@pytest.mark.parametrize(
    "text", ['{"since": "x", "content": 3}\n', '{"since": 1, "content": ["a"]}']
)
def test_damaged_components_are_refused_by_name(tmp_path, text):
    (tmp_path / COMPONENTS_SEEN_BY_CHECKS_FILE).write_text(text)
    with pytest.raises(UserError, match="the file has no components of checks"):
        checks(tmp_path, lambda *_: 0.0, 3)


FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)


def series(values, point="a", metric="bandwidth_bytes_per_second"):
    """Rows of a series, one each night."""
    fixed = {"experiment": "e", "point": point, "metric": metric}
    times = [(FIRST + timedelta(days=night)).isoformat() for night in range(len(values))]
    return [{"time": time, "value": str(v), **fixed} for time, v in zip(times, values, strict=True)]


def night_of(step):
    return (datetime.fromisoformat(step.since) - FIRST).days


def noisy(levels, seed=1, deviation=0.014):
    chance = random.Random(seed)
    return [level * (1.0 + chance.gauss(0.0, deviation)) for level in levels]


def test_a_step_has_its_date_and_size():
    [step] = lasting_losses(series(noisy([100.0] * 60 + [92.0] * 20)))
    assert abs(night_of(step) - 60) <= 1
    assert step.loss == pytest.approx(0.08, abs=0.01)


def test_more_latency_is_a_loss_and_less_is_none():
    worse, better = ([100.0] * 30 + [level] * 10 for level in (110.0, 90.0))
    [step] = lasting_losses(series(noisy(worse), metric="latency_ns"))
    assert (night_of(step), round(step.loss, 1)) == (30, 0.1)
    assert lasting_losses(series(noisy(better), metric="latency_ns")) == []


def test_noise_and_a_single_odd_night_are_no_step():
    many = [row for seed in range(40) for row in series(noisy([100.0] * 90, seed), f"p{seed}")]
    assert lasting_losses(many) == []
    assert lasting_losses(series([*noisy([100.0] * 40), 60.0, *noisy([100.0] * 10)])) == []
    assert lasting_losses(series([*noisy([100.0] * 40), 60.0])) == []


def test_equal_values_and_short_series_are_no_step():
    assert lasting_losses(series([5.0] * 30)) == []
    assert lasting_losses(series([100.0, 50.0, 50.0])) == []
    assert lasting_losses([]) == []


def test_the_largest_loss_comes_first():
    rows = series(noisy([100.0] * 30 + [95.0] * 30), "a") + series(
        noisy([100.0] * 30 + [80.0] * 30, 2), "b"
    )
    assert [step.point for step in lasting_losses(rows)] == ["b", "a"]


def test_a_wrong_time_is_one_sentence():
    rows = [row | {"time": f"x{row['time']}"} for row in series([100.0] * 30 + [50.0] * 10)]
    with pytest.raises(UserError, match=r"checks\.csv: a time does not have the form"):
        lasting_losses(rows)


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
    assert earlier_normal_values(rows, {}) == {
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
    assert earlier_normal_values(rows, {}) == {
        check_points()[0].key: [99.0],
        check_points()[1].key: [101.0],
    }


def test_checks_before_the_map_was_measured_again_do_not_count(tmp_path):
    """A replaced drive can be faster than the old one."""
    for night in range(1, 4):
        append(tmp_path, f"2026-11-2{night}T01:00:00.000Z", 96.0 + night, 100.0)
    mapped_at = {check_points()[0].key: "2026-11-22T12:00:00.000Z"}
    earlier = earlier_normal_values(read_series(tmp_path), mapped_at)
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


KEY = ("memory_bandwidth", "memory=node0+node0+triad")
CHECKS = ",".join(SERIES_COLUMNS) + "".join(
    f"\n2026-11-2{night}T01:00:00.000Z,{experiment},{name},bandwidth_bytes_per_second,"
    f"{4e10 + night},1,4e10,0.01,0.05,no"
    for night in range(4)
    for experiment, name in (KEY, (KEY[0], "memory=node1+node1+triad"))
)
STATES = "".join(
    json.dumps(
        {
            "since": f"2026-11-{day}T01:00:00.000Z",
            "content": {
                "system": {"component": "system", "kernel_release": f"6.1.{day}"},
                "drive-0": {"component": "drive", "serial": f"S{day}", "size_bytes": 1},
            },
        }
    )
    + "\n"
    for day in ("01", "24")
)


def parse_series(text: str, folder: Path) -> None:
    write_text(folder / SERIES_FILE, text)
    rows = read_series(folder)
    time_of_last_check_by_point(rows)
    Expectation({KEY: MapValue(4e10, 3, 1e-4)}, earlier_normal_values(rows, {}))
    if rows:
        point = {**simulated_records()[0]["point"], "experiment": KEY[0], "point": KEY[1]}
        write_text(folder / "points" / KEY[0] / f"{KEY[1]}.json", json.dumps(point))
        read_check_history(folder).sentences()


def parse_states(text: str, folder: Path) -> None:
    write_text(folder / COMPONENTS_SEEN_BY_CHECKS_FILE, text)
    log = ComponentLog(folder)
    log.changes_between("2026-11-01T01:00:00.000Z", "2026-11-30T01:00:00.000Z")
    list(log.replacements("drive-0"))


def test_any_series_is_read_or_refused(tmp_path: Path) -> None:
    check_any_input(changed([CHECKS], change_text, 3), parse_series, tmp_path, 0.4)


def test_any_log_of_components_is_read_or_refused(tmp_path: Path) -> None:
    check_any_input(changed([STATES], change_text), parse_states, tmp_path, 0.2)
