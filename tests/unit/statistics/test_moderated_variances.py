"""Cells of one kind share what they say about their scatter, and a disturbed cell keeps its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tidy_rows import tidy_rows

from chaosity.statistics.cell_summary import (
    replace_values,
    summarise_cells,
    with_variance_priors,
)
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.statistics.moderated_variances import (
    FEWEST_CELLS,
    CellPriors,
    fit_variance_prior,
    variance_of_median,
)
from chaosity.store.measurements import Measurements

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
    values = noisy(FEWEST_CELLS - 1, 3)
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


def test_from_six_replicates_each_cell_keeps_its_own():
    values = noisy(40, 6)
    assert_allclose(summarise_cells(table(values))[WIDTH], own(values))


def test_a_disturbed_cell_keeps_its_own_interval():
    values = noisy(20, 3)
    values[7] = 40e9 * np.array([1.0, 0.6, 1.0])
    found = summarise_cells(table(values))
    assert_allclose(found.loc[7, WIDTH].to_numpy(dtype=float), own(values)[7])
    assert found.loc[7, "prior_cells"] == 0
    assert (found["prior_cells"].drop(7) > 0).sum() > 10


def test_equal_values_say_nothing_about_the_scatter_of_their_kind():
    values = noisy(FEWEST_CELLS + 3, 3)
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
    replaced = summarise_cells(Measurements(replace_values(rows, pd.Series(other.ravel()))))
    assert_allclose(replaced[WIDTH], summarise_cells(table(other))[WIDTH])


def test_a_group_of_several_cells_keeps_its_own_variance():
    values = noisy(30, 3)
    found = summarise_cells(table(values, host=["a", "b", "c"] * 30), by=["host"])
    assert (found["prior_cells"] == 0).all()


@settings(max_examples=25, deadline=None)
@given(
    variances=st.lists(st.floats(1e-8, 1e-2), min_size=FEWEST_CELLS, max_size=40),
    n=st.integers(2, 5),
)
def test_a_moderated_variance_is_between_its_own_and_the_typical_one(
    variances: list[float], n: int
):
    own_variance, freedom = np.array(variances), np.full(len(variances), n - 1.0)
    kinds = np.zeros(len(variances), dtype=np.intp)
    priors = CellPriors.of_kinds(own_variance, freedom, kinds)
    found, total, moderated = priors.moderate_variances(own_variance, freedom)
    least = np.minimum(own_variance, priors.variance)
    most = np.maximum(own_variance, priors.variance)
    assert (found >= least * (1 - 1e-9)).all()
    assert (found <= most * (1 + 1e-9)).all()
    assert (total[~moderated] == n - 1).all()
    assert total.max() <= (n - 1) * (len(variances) + 1)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_values_that_are_not_positive_keep_their_own(value: float):
    values = np.linspace(1.0, 2.0, 60).reshape(20, 3)
    values[3, 1] = value
    found = summarise_cells(table(values))
    assert found.loc[3, "prior_cells"] == 0
    assert_allclose(found.loc[3, WIDTH].to_numpy(dtype=float), own(values)[3])


def test_a_single_replicate_has_the_interval_of_its_kind():
    rows = table(noisy(60, 2))
    once = rows["point"].str[1:].astype(int) >= FEWEST_CELLS
    found = summarise_cells(rows[~once | (rows["replicate"] == 1)])
    single = found[found["n"] == 1]
    assert len(single) == 60 - FEWEST_CELLS
    widths = np.log(single["high"] / single["low"]).to_numpy()
    # 1.96 standard deviations of 2 % either way, and more since ten cells know them badly.
    assert ((widths > 0.06) & (widths < 0.16)).all()
    assert (single["prior_cells"] == FEWEST_CELLS).all()
    assert single["standard_deviation"].isna().all()
    held = (single["low"] <= 40e9) & (single["high"] >= 40e9)
    assert held.mean() > 0.85


def test_single_replicates_alone_have_no_interval():
    found = summarise_cells(table(noisy(60, 1)))
    assert found[WIDTH].isna().all(axis=None)
    assert found["precision"].isna().all()


def test_the_variance_prior_fits_equal_and_scattered_variances():
    random = np.random.default_rng(1)
    same = 0.04 * random.chisquare(4.0, 400) / 4.0
    prior = fit_variance_prior(same, np.full(400, 4.0))
    assert prior.freedom > 30.0 and prior.variance == pytest.approx(0.04, rel=0.15)
    # Smyth's model: 1 / variance follows a chi-square of d0 degrees of freedom over d0 s0^2.
    true = 0.04 * 6.0 / random.chisquare(6.0, 4000)
    seen = true * random.chisquare(4.0, 4000) / 4.0
    prior = fit_variance_prior(seen, np.full(4000, 4.0))
    assert prior.freedom == pytest.approx(6.0, rel=0.3)
    assert prior.variance == pytest.approx(0.04, rel=0.1)


def test_the_variance_of_a_median_is_that_of_order_statistics():
    exact = [1.0, 0.5, 0.4487, 0.2982, 0.2868, 0.2147, 0.2104]  # of samples of 1 to 7 normal values
    assert_allclose(variance_of_median(np.arange(1, 8)), exact, rtol=0.05)
    assert variance_of_median(1001) == pytest.approx(np.pi / 2002, rel=0.01)
