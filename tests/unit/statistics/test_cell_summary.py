"""Cells and their noise: cells of one kind share it, and disturbed runs do not count."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from tidy_rows import tidy_rows

from chaosity.statistics.cell_summary import (
    compute_outlier_mask,
    replace_values_and_drop_priors,
    summarise_cells,
    with_variance_priors,
)
from chaosity.statistics.estimates import (
    FEWEST_CELLS_FOR_PRIOR,
    Estimate,
    Ratio,
    VariancePrior,
    estimate_noise,
    fit_priors_of_kinds,
)
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMN_TYPES

WIDTH = ["low", "high"]


def table(values: np.ndarray, **columns: object) -> pd.DataFrame:
    """Rows of cells of one kind; `values` has one line for each cell."""
    cells, n = values.shape
    own = {
        "point": np.repeat([f"p{cell}" for cell in range(cells)], n),
        "target": np.repeat([f"node{cell}" for cell in range(cells)], n),
        "replicate": np.tile(np.arange(1, n + 1), cells),
        **dict.fromkeys(("benchmark", "kernel"), "any"),
        "levels": None,
    }
    return tidy_rows(values.ravel(), **{**own, **columns})


def noisy(cells: int, n: int, seed: int = 1) -> np.ndarray:
    return 40e9 * np.exp(np.random.default_rng(seed).normal(0.0, 0.02, (cells, n)))


def own(values: np.ndarray) -> np.ndarray:
    estimates = [Estimate.of_values(line) for line in values]
    return np.array([(estimate.low, estimate.high) for estimate in estimates])


def test_too_few_cells_have_students_t_interval():
    values = noisy(FEWEST_CELLS_FOR_PRIOR - 1, 3)
    found = summarise_cells(table(values))
    assert_allclose(found[WIDTH], own(values))
    assert (found["prior_cells"] == 0).all()


def test_enough_cells_have_narrower_intervals_and_name_their_prior():
    values = noisy(40, 3)
    found = summarise_cells(table(values))
    widths = [np.log(ends[:, 1] / ends[:, 0]) for ends in (own(values), found[WIDTH].to_numpy())]
    assert np.median(widths[0] / widths[1]) > 1.5
    assert set(found["prior_cells"]) <= {0, 40}
    assert found["prior_freedom"].max() > 5
    assert_allclose(np.sqrt(found["prior_variance"].max()), 0.02, rtol=0.2)


def test_a_disturbed_replicate_does_not_count():
    values = noisy(20, 3)
    quiet = summarise_cells(table(values))
    values[7, 1] *= 0.6
    found = summarise_cells(table(values))
    assert found["outliers"].tolist() == [0] * 7 + [1] + [0] * 12
    assert np.flatnonzero(compute_outlier_mask(table(values))).tolist() == [22]
    assert (found.loc[7, "n"], found.loc[7, "counted"]) == (3, 2)
    # The median and the extremes are those of all replicates.
    assert found.loc[7, "median"] == np.median(values[7])
    assert found.loc[7, "minimum"] == values[7, 1]
    # The interval is that of two replicates, and so is the prior of the others.
    assert found.loc[7, "low"] > 0.9 * 40e9
    widths = [np.log(cells["high"] / cells["low"]) for cells in (quiet, found)]
    assert_allclose(widths[1].drop(7), widths[0].drop(7), rtol=0.1)


@pytest.mark.parametrize("cell", [[1.0, 0.8, 0.6], [1.0, 0.6]])
def test_replicates_that_contradict_each_other_keep_their_own_variance(cell: list[float]):
    values = noisy(20, len(cell))
    values[7] = 40e9 * np.array(cell)
    found = summarise_cells(table(values))
    assert found.loc[7, "counted"] == len(cell) and not found["outliers"].sum()
    assert_allclose(found.loc[7, WIDTH].to_numpy(dtype=float), own(values)[7])
    assert found.loc[7, "prior_cells"] == 0
    assert (found["prior_cells"].drop(7) > 0).sum() > 10


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(3, 6),
    cell=st.integers(0, 19),
    far=st.floats(0.05, 0.9),
)
def test_a_worse_disturbance_does_not_change_an_interval(seed: int, n: int, cell: int, far: float):
    values = noisy(20, n, seed)
    found = []
    for disturbance in (0.4, 0.4 * far):
        values[cell, 0] = disturbance * 40e9
        found.append(summarise_cells(table(values)))
    assert_allclose(found[0][WIDTH], found[1][WIDTH], rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.floats(-5.0, 5.0), scale=st.floats(0.1, 10.0))
def test_noise_follows_the_unit_and_the_scale_of_the_values(seed: int, shift: float, scale: float):
    random = np.random.default_rng(seed)
    cells, kinds = np.repeat(np.arange(24), 3), np.repeat([0, -1], [18, 6])
    logs = 0.05 * random.standard_t(3, 72)
    one, other = (
        estimate_noise(values, cells, 24, fit_priors_of_kinds(values, cells, kinds))
        for values in (logs, shift + scale * logs)
    )
    assert (one.counted == other.counted).all() and one.counted[54:].all()
    assert_allclose(other.variance, scale**2 * one.variance, rtol=1e-6)
    assert_allclose(other.freedom, one.freedom, rtol=1e-6)
    assert_allclose(other.mean, shift + scale * one.mean, rtol=1e-6, atol=1e-9)


def test_moderation_by_hand():
    # Values 0 and 0.2 have variance 0.02 with one degree of freedom; the prior has 0.01 with 4.
    prior = VariancePrior(np.full(3, 4.0), np.full(3, 0.01), np.array([10.0, 10.0, 0.0]))
    found = estimate_noise(np.array([0.0, 0.2, 1.0, 0.0, 0.2]), np.array([0, 0, 1, 2, 2]), 3, prior)
    assert_allclose(found.variance, [0.012, 0.01, 0.02])
    assert found.freedom.tolist() == [5.0, 4.0, 1.0]
    assert found.moderated.tolist() == [True, True, False]


def test_a_disturbed_replicate_by_hand():
    # The others are 0 and 0.01: mean 0.005, moderated variance (6 x 1e-4 + 5e-5) / 7. So t is 0.1 /
    # (0.00964 x sqrt(1.5)) = 8.47 with 7 degrees of freedom, and three times p is 0.0002. At half
    # the distance t is 4.24, and three times p is 0.011.
    prior = VariancePrior(*(np.array([number]) for number in (6.0, 1e-4, 10.0)))
    for farthest, counted in ((0.105, 2), (0.055, 3)):
        values, cell = np.array([0.0, farthest, 0.01]), np.zeros(3, dtype=np.intp)
        found = estimate_noise(values, cell, 1, prior)
        assert found.n[0] == counted
        assert found.counted[[0, 2]].all()


def test_equal_values_say_nothing_about_the_scatter_of_their_kind():
    values = noisy(FEWEST_CELLS_FOR_PRIOR + 3, 3)
    values[:4] = 40e9
    found = summarise_cells(table(values))
    assert_allclose(found.loc[:3, "low"].to_numpy(dtype=float), 40e9)
    assert (found["prior_cells"] == 0).all()


def test_kinds_do_not_mix():
    quiet, loud = noisy(12, 3), 40e9 * (noisy(12, 3, seed=2) / 40e9) ** 10
    both = pd.concat([table(quiet), table(loud, kernel="other", experiment="other")])
    found = summarise_cells(both)
    assert_allclose(found[WIDTH][:12], summarise_cells(table(quiet))[WIDTH])
    assert_allclose(found[WIDTH][12:], summarise_cells(table(loud, kernel="other"))[WIDTH])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 5), first=st.integers(0, 29))
def test_any_selection_of_rows_has_the_same_intervals(seed: int, n: int, first: int):
    rows = with_variance_priors(Measurements.from_table(table(noisy(30, n, seed))))
    whole = summarise_cells(rows).set_index("point")
    part = rows.where(point=[f"p{cell}" for cell in range(first, 30, 4)])
    for by in ({}, {"by": ["host", "target"]}):
        found = summarise_cells(part, **by).set_index("point")
        assert_allclose(found[WIDTH], whole.loc[found.index, WIDTH])


def test_other_values_have_other_priors():
    rows = with_variance_priors(Measurements.from_table(table(noisy(30, 3)))).rows
    other = 1e-9 * noisy(30, 3, seed=5) ** 2
    replaced = summarise_cells(
        Measurements(replace_values_and_drop_priors(rows, pd.Series(other.ravel())))
    )
    assert_allclose(replaced[WIDTH], summarise_cells(table(other))[WIDTH])


def test_a_group_of_several_cells_keeps_its_own_variance():
    values = noisy(30, 3)
    found = summarise_cells(table(values, host=["a", "b", "c"] * 30), by=["host"])
    assert (found["prior_cells"] == 0).all()


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_values_that_are_not_positive_keep_their_own(value: float):
    values = np.linspace(1.0, 2.0, 60).reshape(20, 3)
    values[3, 1] = value
    found = summarise_cells(table(values))
    assert found.loc[3, "prior_cells"] == 0
    assert_allclose(found.loc[3, WIDTH].to_numpy(dtype=float), own(values)[3])


def test_a_single_replicate_has_the_interval_of_its_kind():
    rows = table(noisy(60, 2))
    once = rows["point"].str[1:].astype(int) >= FEWEST_CELLS_FOR_PRIOR
    found = summarise_cells(rows[~once | (rows["replicate"] == 1)])
    single = found[found["n"] == 1]
    assert len(single) == 60 - FEWEST_CELLS_FOR_PRIOR
    widths = np.log(single["high"] / single["low"]).to_numpy()
    # 1.96 standard deviations of 2 % either way, and more since ten cells know them badly.
    assert ((widths > 0.06) & (widths < 0.16)).all()
    assert (single["prior_cells"] == FEWEST_CELLS_FOR_PRIOR).all()
    assert single["standard_deviation"].isna().all()
    held = (single["low"] <= 40e9) & (single["high"] >= 40e9)
    assert held.mean() > 0.85


def test_single_replicates_alone_have_no_interval():
    found = summarise_cells(table(noisy(60, 1)))
    assert found[WIDTH].isna().all(axis=None)
    assert found["precision"].isna().all()


def test_the_ratio_of_two_cells_alone_is_that_of_their_samples():
    values = noisy(2, 5)
    one, other = summarise_cells(table(values)).to_dict("records")
    found = Ratio.of_cells(one, other)
    expected = Ratio.of_samples(*values, paired=False)
    assert (found.n, found.n_reference) == (5, 5)
    for name in ("ratio", "low", "high", "p"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)


def test_a_disturbed_replicate_does_not_widen_a_ratio():
    values = noisy(20, 3)
    quiet = summarise_cells(table(values)).to_dict("records")
    values[7, 1] *= 0.5
    one, other = (summarise_cells(table(values)).to_dict("records")[cell] for cell in (7, 8))
    found, without = Ratio.of_cells(one, other), Ratio.of_cells(quiet[7], quiet[8])
    assert np.log(found.high / found.low) < 1.5 * np.log(without.high / without.low)
    # Samples alone do not show which replicate is the disturbed one.
    alone = Ratio.of_samples(values[7], values[8], paired=False)
    assert np.log(alone.high / alone.low) > 1.0


def test_cells_with_a_zero_have_no_ratio():
    found = summarise_cells(table(np.array([[1.0, 0.0], [1.0, 2.0]]))).to_dict("records")
    assert np.isnan(Ratio.of_cells(*found).ratio)


# Returns rows of one cell, a value for each replicate.
one_cell = partial(
    tidy_rows, status="valid", label=None, file_backed=False, benchmark="b", kernel="triad"
)


def test_what_disturbed_some_cells_widens_no_interval_of_others():
    random = np.random.default_rng(6)
    values = 100.0 * np.exp(random.normal(0.0, 0.01, 50))
    points, remarks = np.repeat(np.arange(25), 2), np.full(50, None, object)
    table_of = partial(one_cell, point=points.astype(str))
    quiet = summarise_cells(table_of(values, remarks=remarks))["precision"]
    values[:20:2], remarks[:20:2] = values[:20:2] / 2.0, "disturbed"
    values[49], remarks[48:] = np.nan, "disturbed"
    found = summarise_cells(table_of(values, remarks=remarks))["precision"]
    assert found[:10].min() > 0.5
    np.testing.assert_allclose(found[10:24], quiet[10:24], rtol=0.5)
    # Nobody knows how much the others of a disturbed cell were disturbed.
    assert found[24] > 10.0 * quiet.median()


def test_without_similar_cells_or_a_third_replicate_no_outlier_is_marked():
    for values in ([100.0, 101.0, 100.5, 99.0, 1.0], [100.0, 1.0]):
        assert not compute_outlier_mask(one_cell(values)).any()
        assert summarise_cells(one_cell(values))["outliers"].isna().all()


def test_failed_and_missing_replicates_are_counted_apart():
    rows = pd.concat(
        [
            one_cell([1.0, 2.0]),
            one_cell([None], status="failed", reason="killed", replicate=3),
            one_cell([None], status="missing", replicate=4),
            one_cell([None, None], status="failed", point="q", reason=["first", "second"]),
            one_cell([None], status="missing", point="r"),
        ]
    )
    cells = summarise_cells(rows).set_index("point")
    assert cells["status"].to_dict() == {"p": "valid", "q": "failed", "r": "missing"}
    assert cells.loc["p", ["n", "n_failed", "n_missing"]].tolist() == [2, 1, 1]
    assert cells.loc["q", "reason"] == "first"


def test_a_label_and_a_stand_in_file_of_any_replicate_are_not_lost():
    rows = one_cell([1.0, 2.0], label=[None, "variant of STREAM"], file_backed=[False, True])
    cell = summarise_cells(rows).iloc[0]
    assert cell["label"] == "variant of STREAM"
    assert cell["file_backed"]


def test_cells_without_a_kernel_keep_the_order_of_the_table():
    rows = pd.concat(
        [one_cell([2.0], point="z", kernel=None), one_cell([1.0], point="a", kernel="add")]
    )
    assert summarise_cells(rows)["point"].tolist() == ["z", "a"]
    assert summarise_cells(rows, by=["kernel"])["kernel"].tolist() == [None, "add"]


def test_the_store_s_nullable_types_and_an_empty_table_are_read():
    kinds = {name: kind for name, kind in COLUMN_TYPES.items() if name in one_cell([1.0]).columns}
    rows = one_cell([1.0, None], status=["valid", "failed"]).astype(kinds)
    assert summarise_cells(rows)["n"].tolist() == [1]
    assert summarise_cells(rows.iloc[:0]).empty
    assert compute_outlier_mask(rows.iloc[:0]).empty


def test_the_interval_of_a_median_holds_the_truth_in_95_percent():
    random = np.random.default_rng(7)
    values = 40e9 * np.exp(random.normal(0.0, 0.02, (4000, 3)))
    found = summarise_cells(table(values))
    covered = ((found["low"] <= 40e9) & (found["high"] >= 40e9)).mean()
    assert 0.93 <= covered <= 0.97


@settings(max_examples=25, deadline=None)
@given(
    variances=st.lists(st.floats(1e-8, 1e-2), min_size=FEWEST_CELLS_FOR_PRIOR, max_size=40),
    n=st.integers(2, 5),
)
def test_a_moderated_variance_is_between_its_own_and_the_typical_one(
    variances: list[float], n: int
):
    values = np.sqrt(np.array(variances))[:, np.newaxis] * stats.norm.ppf((np.arange(n) + 0.5) / n)
    cells, kinds = np.repeat(np.arange(len(values)), n), np.zeros(len(values), dtype=np.intp)
    prior = fit_priors_of_kinds(values.ravel(), cells, kinds)
    found = estimate_noise(values.ravel(), cells, len(values), prior)
    assert (found.variance >= np.minimum(found.own_variance, prior.variance) * (1 - 1e-9)).all()
    assert (found.variance <= np.maximum(found.own_variance, prior.variance) * (1 + 1e-9)).all()
    assert (found.freedom[~found.moderated] == found.n[~found.moderated] - 1).all()
    assert found.freedom.max() <= (n - 1) * (len(variances) + 1)
