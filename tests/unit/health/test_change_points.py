"""Steps and drifts are found at their night; a healthy or disturbed series has none."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise

import numpy as np
import pytest

from chaosity.health import change_points
from chaosity.health.change_points import find_segments

NOISE = 0.014


def series(levels, seed=1):
    """Logarithms of noisy values around `levels`, which are shares of the first value."""
    chance = random.Random(seed)
    return [math.log(level) + chance.gauss(0.0, NOISE) for level in levels]


def segments(levels, seed=1):
    return find_segments(series(levels, seed), range(len(levels)))


@pytest.mark.parametrize("share", [0.95, 0.9, 1.08])
@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_found_at_its_night_with_an_interval(share, seed):
    before, after = segments([1.0] * 60 + [share] * 40, seed)
    first, last = after.date_interval
    assert first <= 60 <= last
    assert abs(after.begin - 60) <= 1
    assert math.exp(after.first - before.last) == pytest.approx(share, abs=0.01)
    assert not before.is_drift and not after.is_drift


def test_a_repair_is_a_second_step():
    assert [each.begin for each in segments([1.0] * 50 + [0.9] * 30 + [1.0] * 50)] == [0, 50, 80]


def test_a_smaller_step_has_a_wider_interval():
    widths = []
    for share in (0.97, 0.8):
        first, last = segments([1.0] * 60 + [share] * 60, 3)[1].date_interval
        widths.append(last - first)
    assert widths[0] > widths[1] == 0


def test_healthy_series_have_about_no_change():
    """One false change in a year is allowed; each of the 30 series has the 57 values of a year."""
    changes = sum(len(segments([1.0] * 365, seed)) - 1 for seed in range(30))
    assert changes <= 2  # of a Poisson distribution with mean 0.5, a larger number is one in 70


def test_a_drift_is_a_line_and_no_staircase():
    found = segments([1.0] * 100 + [1.0 - 0.0004 * night for night in range(200)])
    assert [each.is_drift for each in found] == [False, True]
    assert abs(found[1].begin - 100) < 25
    assert math.expm1(found[1].last - found[1].first) == pytest.approx(-0.08, abs=0.015)


def test_a_drift_by_the_time_between_checks_and_not_by_their_number():
    days = [*range(30), *range(30, 330, 10)]
    values = series([1.0 - 0.0004 * day for day in days])
    [drift] = find_segments(values, days)
    assert drift.is_drift
    assert math.expm1(drift.last - drift.first) == pytest.approx(-0.128, abs=0.02)


@pytest.mark.parametrize("nights", [[40], [40, 41], [20, 40, 60, 99]])
def test_disturbed_nights_are_no_change(nights):
    assert len(segments([0.6 if night in nights else 1.0 for night in range(100)])) == 1


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_few_checks_are_one_segment(number):
    [found] = segments([1.0] * number)
    assert (found.begin, found.end, found.is_drift) == (0, number, False)


def test_equal_values_and_equal_times_are_one_segment():
    assert len(find_segments([1.0] * 50, [7.0] * 50)) == 1


@pytest.mark.parametrize("seed", range(8))
def test_no_other_division_costs_less(seed):
    """All divisions of a short series into levels, tried one after another."""
    number = 14
    chance = np.random.default_rng(seed)
    y = chance.normal(0.0, 1.0, number) + np.repeat([0.0, chance.normal(0.0, 8.0)], 7)
    sums = change_points._RunningSums(np.arange(float(number)), y, 1.0)

    def cost(ends):
        parts = [y[begin:end] for begin, end in pairwise(ends)]
        if min(map(len, parts)) < change_points.LEAST_NIGHTS:
            return math.inf
        squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
        return squares + change_points._PENALTY * len(parts)

    cuts = (c for n in range(4) for c in combinations(range(1, number), n))
    best = min(((0, *cut, number) for cut in cuts), key=cost)
    found = change_points._best_partition(sums, number)
    assert [(begin, end) for begin, end, _ in found] == [*pairwise(best)]


def test_the_same_series_gives_the_same_segments():
    first, second = (segments([1.0] * 50 + [0.96] * 50, 8) for _ in range(2))
    assert [(e.begin, e.first, e.last) for e in first] == [
        (e.begin, e.first, e.last) for e in second
    ]
    assert all(np.array_equal(a.excess, b.excess) for a, b in zip(first, second, strict=True))
