from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.statistics import estimate, mark_outliers, summarise
from chaosity.store.tidy_table import COLUMNS

POSITIVE = st.floats(min_value=1e-3, max_value=1e12)


def table(values, status="valid", **columns):
    """Tidy rows of one cell, a value a replicate."""
    number = len(values)
    return pd.DataFrame(
        {
            "host": "h", "configuration": "c", "experiment": "e", "point": "p", "load": "memory",
            "metric": "bandwidth_bytes_per_second", "replicate": range(1, number + 1),
            "status": status, "reason": None, "value": values, "label": None, "file_backed": False,
            "benchmark": "b", "kernel": "triad", "initiator": "node0", "target": "node0", **columns,
        }
    )  # fmt: skip


def test_three_replicates_by_hand():
    # Logarithms 4.499810, 4.605170, 4.700480: mean 4.601820, deviation 0.100377;
    # t(0.975, 2) = 4.302653, so the half width is 0.249350.
    found = estimate([110.0, 90.0, 100.0])
    assert found.median == 100.0
    assert found.low == pytest.approx(77.67, abs=0.01)
    assert found.high == pytest.approx(127.89, abs=0.01)
    assert found.n == 3


def test_values_that_are_not_all_positive_get_an_interval_on_their_own_scale():
    # Mean 1, deviation 2, half width 4.302653 * 2 / sqrt(3) = 4.968275.
    found = estimate([-1.0, 1.0, 3.0])
    assert (found.low, found.high) == pytest.approx((-3.968275, 5.968275), abs=1e-5)


def test_one_replicate_has_no_interval_and_no_spread():
    assert estimate([5.0]) == estimate([math.nan, 5.0])
    assert (estimate([5.0]).low, estimate([5.0]).high) == (None, None)
    cell = summarise(table([5.0])).iloc[0]
    assert cell["n"] == 1
    assert np.isnan([cell["low"], cell["high"], cell["standard_deviation"]]).all()
    assert math.isnan(cell["precision"])


def test_nothing_measured_is_not_a_number():
    assert math.isnan(estimate([]).median)
    assert estimate([]).n == 0


@given(st.lists(POSITIVE, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_order_of_replicates_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    one, other = estimate(values), estimate(shuffled)
    assert one.median == other.median
    if one.low is not None:
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9)


@given(st.lists(POSITIVE, min_size=2, max_size=20))
def test_the_interval_contains_the_median_and_is_positive(values):
    found = estimate(values)
    assert 0.0 < found.low <= found.median <= found.high


@given(POSITIVE, st.lists(st.floats(0.0, 2.0), min_size=1, max_size=6))
def test_of_symmetric_data_the_middle_is_the_median(centre, steps):
    values = [centre * math.exp(sign * step) for step in steps for sign in (-1.0, 1.0)]
    found = estimate(values)
    assert found.median >= found.low
    assert math.sqrt(found.low * found.high) == pytest.approx(centre, rel=1e-6)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(7)
    cells, n = 4000, 3
    values = 40e9 * np.exp(random.normal(0.0, 0.02, (cells, n)))
    rows = table(values.ravel(), point=np.repeat(np.arange(cells).astype(str), n))
    found = summarise(rows)
    covered = ((found["low"] <= 40e9) & (found["high"] >= 40e9)).mean()
    assert 0.93 <= covered <= 0.97


def test_outliers_are_marked_and_kept():
    # Quartiles 99 and 100.5, so the fences stand at 96.75 and 102.75.
    rows = table([100.0, 101.0, 99.0, 100.5, 50.0])
    assert mark_outliers(rows).tolist() == [False, False, False, False, True]
    cell = summarise(rows).iloc[0]
    assert (cell["outliers"], cell["n"], cell["minimum"]) == (1, 5, 50.0)


def test_with_fewer_than_five_replicates_no_outlier_can_be_told():
    rows = table([100.0, 101.0, 100.5, 1.0])
    assert not mark_outliers(rows).any()
    assert summarise(rows)["outliers"].isna().all()


def test_failed_and_missing_replicates_are_counted_apart():
    rows = pd.concat(
        [
            table([1.0, 2.0]),
            table([None], "failed", reason="killed", replicate=3),
            table([None], "missing", replicate=4),
            table([None, None], "failed", point="q", reason=["first", "second"]),
            table([None], "missing", point="r"),
        ]
    )
    cells = summarise(rows).set_index("point")
    assert cells["status"].to_dict() == {"p": "valid", "q": "failed", "r": "missing"}
    assert cells.loc["p", ["n", "n_failed", "n_missing"]].tolist() == [2, 1, 1]
    assert cells.loc["q", "reason"] == "first"


def test_a_label_and_a_stand_in_file_of_any_replicate_are_not_lost():
    rows = table([1.0, 2.0], label=[None, "variant of STREAM"], file_backed=[False, True])
    cell = summarise(rows).iloc[0]
    assert cell["label"] == "variant of STREAM"
    assert cell["file_backed"]


def test_cells_without_a_kernel_are_cells_and_stand_in_the_order_of_the_table():
    rows = pd.concat([table([2.0], point="z", kernel=None), table([1.0], point="a", kernel="add")])
    assert summarise(rows)["point"].tolist() == ["z", "a"]
    assert summarise(rows, by=["kernel"])["kernel"].tolist() == [None, "add"]


def test_the_store_s_nullable_types_and_an_empty_table_are_read():
    kinds = {name: kind for name, kind in COLUMNS.items() if name in table([1.0]).columns}
    rows = table([1.0, None], ["valid", "failed"]).astype(kinds)
    assert summarise(rows)["n"].tolist() == [1]
    assert summarise(rows.iloc[:0]).empty
    assert mark_outliers(rows.iloc[:0]).empty


def test_ten_thousand_cells_take_less_than_a_second():
    rows = table(np.full(50_000, 3.0), point=np.repeat(np.arange(10_000).astype(str), 5))
    began = time.perf_counter()
    assert len(summarise(rows)) == 10_000
    assert time.perf_counter() - began < 1.0
