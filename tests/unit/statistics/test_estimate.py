"""Medians and ratios with their intervals, and the texts of both."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from chaosity.statistics.estimates_and_ratios import Estimate, Ratio, change_text

POSITIVE = st.floats(min_value=1e-3, max_value=1e12)


def test_one_replicate_has_no_interval():
    assert (
        Estimate.of_values([5.0])
        == Estimate.of_values([math.nan, 5.0])
        == Estimate(5.0, None, None, 1)
    )
    assert Estimate.of_values([5.0]).low_and_high is None and not Estimate.of_values(
        [5.0]
    ).is_outside_interval(1.0)


def test_values_without_any_scatter_are_certain():
    found = Ratio.of_runs([2.0, 2.0], [1.0, 1.0])
    assert (found.low, found.high) == (2.0, 2.0)
    assert (found.p, Ratio.of_runs([2.0, 2.0], [2.0, 2.0]).p) == (0.0, 1.0)


def test_the_typical_ratio_of_reciprocals_is_the_reciprocal():
    ratios = np.array([0.5, 0.8, 0.9, 1.2])
    found, reciprocal = Ratio.of_many_cells(ratios), Ratio.of_many_cells(1.0 / ratios)
    assert found.ratio == pytest.approx(1.0 / reciprocal.ratio)
    assert found.low == pytest.approx(1.0 / reciprocal.high)
    assert Ratio.of_many_cells([0.5, 0.8]).low_and_high is None


def test_a_ratio_writes_its_interval():
    found = Ratio(0.934, 0.911, 0.95, 3, 3)
    assert found.interval_and_n_text() == "95 % interval 0.91 to 0.95, n = 3"
    assert found.interval_and_n_text(change_text) == "95 % interval -8.9 % to -5.0 %, n = 3"
    assert Ratio(0.5, None, None, 1, 4).interval_and_n_text() == "no interval: n = 1 and 4"
    assert [change_text(ratio) for ratio in (1.053, 0.5, 1.0)] == ["+5.3 %", "-50 %", "+0.0 %"]


def test_an_estimate_is_made_of_a_cell():
    cell = {"median": 2.0, "low": np.nan, "high": np.nan, "n": np.int64(1), "unit": "x"}
    assert Estimate.of_cell(cell) == Estimate(2.0, None, None, 1)
    cell |= {"low": 1.0, "high": np.float64(3.0), "n": 3}
    assert asdict(Estimate.of_cell(cell)) == {"median": 2.0, "low": 1.0, "high": 3.0, "n": 3}


def test_three_replicates_by_hand():
    # Logarithms 4.499810, 4.605170, 4.700480: mean 4.601820, deviation 0.100377;
    # t(0.975, 2) = 4.302653, so the half width is 0.249350.
    found = Estimate.of_values([110.0, 90.0, 100.0])
    assert found.median == 100.0
    assert found.low == pytest.approx(77.67, abs=0.01)
    assert found.high == pytest.approx(127.89, abs=0.01)
    assert found.n == 3


def test_values_that_are_not_all_positive_get_an_interval_on_their_own_scale():
    # Mean 1, deviation 2, half width 4.302653 * 2 / sqrt(3) = 4.968275.
    found = Estimate.of_values([-1.0, 1.0, 3.0])
    assert (found.low, found.high) == pytest.approx((-3.968275, 5.968275), abs=1e-5)


def test_the_median_of_no_values_is_nan():
    assert math.isnan(Estimate.of_values([]).median)
    assert Estimate.of_values([]).n == 0


@given(st.lists(POSITIVE, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_order_of_replicates_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    one, other = Estimate.of_values(values), Estimate.of_values(shuffled)
    assert one.median == other.median
    if one.low is not None:
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9)


@given(st.lists(POSITIVE, min_size=2, max_size=20))
def test_the_interval_contains_the_median_and_is_positive(values):
    found = Estimate.of_values(values)
    assert 0.0 < found.low <= found.median <= found.high


@given(POSITIVE, st.lists(st.floats(0.0, 2.0), min_size=1, max_size=6))
def test_the_interval_of_symmetric_data_is_centred_on_the_median(centre, steps):
    values = [centre * math.exp(sign * step) for step in steps for sign in (-1.0, 1.0)]
    found = Estimate.of_values(values)
    assert found.median >= found.low
    assert math.sqrt(found.low * found.high) == pytest.approx(centre, rel=1e-6)


def test_the_interval_of_two_runs_is_welchs_on_logarithms():
    a, b = np.array([10.0, 11.0, 12.5, 10.7]), np.array([20.0, 26.0, 23.0])
    found = Ratio.of_runs(a, b)
    interval = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    assert found.ratio == pytest.approx(np.exp(np.median(np.log(a)) - np.median(np.log(b))))
    assert found.is_outside_interval(1.0)
    p = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).pvalue
    assert found.p == pytest.approx(p, rel=1e-12)
    assert (found.n, found.n_reference) == (4, 3)


def test_a_single_replicate_gives_no_interval_of_a_ratio():
    found = Ratio.of_runs([10.0], [5.0, 6.0])
    assert found.low is found.high is None
    assert math.isnan(Ratio.of_runs([], [1.0]).ratio)
    assert math.isnan(Ratio.of_runs([math.nan], [1.0]).ratio)
