from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from chaosity.statistics import before_and_after, run_ratio


def test_the_interval_is_welchs_on_logarithms():
    a, b = np.array([10.0, 11.0, 12.5, 10.7]), np.array([20.0, 26.0, 23.0])
    found = run_ratio(a, b)
    interval = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    assert found.ratio == pytest.approx(np.exp(np.median(np.log(a)) - np.median(np.log(b))))
    assert not found.low <= 1.0 <= found.high
    assert (found.n, found.n_reference) == (4, 3)


def test_what_lies_within_the_scatter_does_not_differ():
    found = run_ratio([10.0, 11.0, 12.0], [10.5, 11.5, 11.0])
    assert found.low <= 1.0 <= found.high


def test_a_single_replicate_gives_no_interval():
    found = run_ratio([10.0], [5.0, 6.0])
    assert found.low is found.high is None
    assert math.isnan(run_ratio([], [1.0]).ratio)
    assert math.isnan(run_ratio([math.nan], [1.0]).ratio)


def test_values_without_any_scatter_have_an_interval_of_no_width():
    found = run_ratio([2.0, 2.0], [1.0, 1.0])
    assert (found.low, found.high) == (2.0, 2.0)


def test_over_many_samples_the_interval_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(3)
    held = 0
    for _ in range(600):
        a, b = random.lognormal(0.5, 0.1, 3), random.lognormal(0.0, 0.02, 4)
        found = run_ratio(a, b)
        held += found.low <= math.exp(0.5) <= found.high
    assert 0.92 < held / 600 < 0.99


def history(*eras):
    """Rows of one cell; an era is: values, since when the drive was so, what was asked."""
    rows = [
        {"host": "h", "configuration": "c", "experiment": "e", "point": "p", "load": "l",
         "initiator": "i", "target": "t",
         "metric": "m_bytes_per_second", "replicate": replicate, "status": "valid",
         "reason": None, "value": value, "era": number,
         "components": json.dumps({"drive0": since, "system": "1"}), "asked": asked}
        for number, (values, since, asked) in enumerate(eras, start=1)
        for replicate, value in enumerate(values, start=1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_before_and_after_are_neighbours():
    found = before_and_after(
        history(([1.0, 1.1], "1", "a"), ([5.0, 5.5], "2", "a"), ([5.1, 5.4], "3", "a"))
    )
    assert list(found["era"]) == [2, 3]
    assert [json.loads(text) for text in found["changed"]] == [
        {"drive0": ["1", "2"]}, {"drive0": ["2", "3"]},
    ]  # fmt: skip
    first = found.iloc[0]
    assert (first["median_before"], first["median_after"]) == pytest.approx((1.05, 5.25))
    assert (first["n_before"], first["n_after"]) == (2, 2)
    assert first["ratio"] == pytest.approx(5.0, rel=0.01)
    assert found["comparable"].all()


def test_another_question_is_not_compared():
    found = before_and_after(history(([1.0, 1.1], "1", "a"), ([5.0, 5.5], "2", "b")))
    assert list(found["comparable"]) == [False]
