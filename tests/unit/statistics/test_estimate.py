"""Medians, ratios and tests over many cells: by hand, and against scipy and statsmodels."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from chaosity.statistics.estimates import (
    Estimate,
    Ratio,
    adjust_false_discovery_rate,
    adjust_family_wise_error,
    change_text,
    is_variation_between_cells_significant,
    variance_of_median,
)

POSITIVE = st.floats(min_value=1e-3, max_value=1e12)


def test_one_replicate_has_no_interval():
    found = Estimate.of_values([math.nan, 5.0])
    assert found == Estimate.of_values([5.0]) == Estimate(5.0, None, None, 1)
    assert math.isnan(Estimate.of_values([]).median) and Estimate.of_values([]).n == 0
    assert found.low_and_high is None and not found.is_outside_interval(1.0)


def test_the_ratio_of_pairs_has_students_interval_on_logarithms():
    a, b = np.array([30.0, 20.0, 24.0]), np.array([40.0, 40.0, 40.0])
    found = Ratio.of_samples(a, b, paired=True)
    logs = np.log(a / b)
    ends = np.exp(stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs)))
    assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-12)
    assert found.p == pytest.approx(stats.ttest_1samp(logs, 0.0).pvalue)
    assert (found.ratio, found.n, found.n_reference) == (pytest.approx(0.6), 3, 3)
    assert Ratio.of_samples([2.0], [1.0], paired=True) == Ratio(2.0, None, None, 1, 1)


def test_values_without_any_scatter_are_certain():
    found = Ratio.of_samples([2.0, 2.0], [1.0, 1.0], paired=False)
    assert (found.low, found.high) == (2.0, 2.0)
    for reference, p in (([1.0, 1.0], 0.0), ([2.0, 2.0], 1.0)):
        for paired in (True, False):
            assert Ratio.of_samples([2.0, 2.0], reference, paired=paired).p == p


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
    found = Ratio.of_samples(a, b, paired=False)
    interval = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    assert found.ratio == pytest.approx(np.exp(np.median(np.log(a)) - np.median(np.log(b))))
    assert found.is_outside_interval(1.0)
    p = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).pvalue
    assert found.p == pytest.approx(p, rel=1e-12)
    assert (found.n, found.n_reference) == (4, 3)


def test_a_single_replicate_gives_no_interval_of_a_ratio():
    found = Ratio.of_samples([10.0], [5.0, 6.0], paired=False)
    assert found.low is found.high is None
    assert math.isnan(Ratio.of_samples([], [1.0], paired=False).ratio)
    assert math.isnan(Ratio.of_samples([math.nan], [1.0], paired=False).ratio)


def test_holms_method_by_hand():
    # 4 x 0.01, 3 x 0.02, 2 x 0.02, which is below it, and 0.9; in any order.
    assert adjust_family_wise_error([0.02, 0.9, 0.01, 0.02]).tolist() == [0.06, 0.9, 0.04, 0.06]
    assert adjust_family_wise_error([0.6, 0.7]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_benjamini_and_hochbergs_method_equals_that_of_statsmodels(count):
    chances = np.random.default_rng(count).uniform(size=count).round(1) ** 3  # some are equal
    expected = multipletests(chances, method="fdr_bh")[1]
    assert adjust_false_discovery_rate(chances) == pytest.approx(list(expected), rel=1e-12)


def test_cells_without_a_p_value_stay_without():
    assert adjust_false_discovery_rate([None, 0.01, None, 0.04]) == [None, 0.02, None, 0.04]
    assert adjust_false_discovery_rate([None]) == [None] and adjust_false_discovery_rate([]) == []
    assert adjust_family_wise_error([]).size == 0


def cells(*samples):
    return pd.concat(
        [
            pd.DataFrame({"status": "valid", "value": sample, "cell": number})
            for number, sample in enumerate(samples)
        ]
    )


@pytest.mark.parametrize(
    ("samples", "differ"),
    [
        ([[1.0, 1.1, 0.9], [2.0, 2.1, 1.9]], True),
        ([[1.0, 1.1, 0.9], [1.05, 0.95, 1.0]], False),
        ([[1.0, 1.0], [2.0, 2.0]], True),
        ([[1.0, 1.0], [1.0, 1.0]], False),
        # Unknown without replicates.
        ([[1.0], [2.0]], None),
        ([[1.0, 2.0]], None),
        ([[np.nan], [np.nan]], None),
    ],
)
def test_cells_differ_when_they_scatter_more_than_their_replicates(samples, differ):
    assert is_variation_between_cells_significant(cells(*samples), ["cell"]) is differ


@given(st.lists(POSITIVE, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_order_of_replicates_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    one, other = Estimate.of_values(values), Estimate.of_values(shuffled)
    assert one.median == other.median
    if one.low is not None:
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9)


def test_the_variance_of_a_median_is_near_the_exact_one_of_normal_values():
    exact = [1.0, 0.5, 0.449, 0.298, 0.287, 0.215]  # Arnold et al., 1992, for 1 to 6 values
    assert variance_of_median(range(1, 7)) == pytest.approx(exact, rel=0.05)
