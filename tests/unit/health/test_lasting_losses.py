"""A lasting loss in a series of checks has a date; noise and single odd nights have none."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from chaosity.errors import UserError
from chaosity.health.check_history import lasting_losses

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
    with pytest.raises(UserError, match=r"checks\.csv: a time is wrong"):
        lasting_losses(rows)
