"""What was varied is found in the tidy table itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from chaosity.statistics.anova import find_anova_studies
from chaosity.store.measurements import Measurements
from table_rows import rows as rows_of
from table_rows import table


def test_local_against_remote_by_hand():
    rows = matrix(
        {(0, 0): [10.0, 12.0], (0, 1): [5.0, 7.0], (1, 0): [6.0, 8.0], (1, 1): [20.0, 22.0]}
    )
    [study] = find_anova_studies(Measurements.from_table(rows))
    analysis = study.analyse_variance_of_table("none")
    contrast = study.contrast_of_remote_against_local(analysis).difference
    assert contrast.value == pytest.approx(6.5 - 16.0)
    # The replicates differ by 2 in every cell, which the block takes: nothing is left.
    assert contrast.low is None
    rows["value"] += [0.0, 0.5, 0.0, 0.2, 0.0, 0.1, 0.0, -0.3]
    [study] = find_anova_studies(Measurements.from_table(rows))
    analysis = study.analyse_variance_of_table("none")
    contrast = study.contrast_of_remote_against_local(analysis).difference
    assert analysis.analysed.freedom == 3
    # Each pair of cells brings its own noise: half of the degrees of freedom each, Welch's sum.
    left = pd.Series(analysis.residuals**2).groupby(study.frame["relation"].to_numpy()).sum()
    far, near = left["other_package"] / 1.5 / 4.0, left["same_node"] / 1.5 / 4.0
    freedom = (far + near) ** 2 / (far**2 / 1.5 + near**2 / 1.5)
    half = stats.t.ppf(0.975, freedom) * (far + near) ** 0.5
    assert (contrast.low, contrast.high) == pytest.approx(
        (contrast.value - half, contrast.value + half), rel=1e-6
    )


def test_a_failed_replicate_does_not_shift_the_contrast():
    # The second block is 100 faster; one remote value of it is missing.
    values = {
        (i, j): [50.0 if i == j else 30.0, 150.0 if i == j else 130.0]
        for i in range(3)
        for j in range(3)
    }
    noise = np.random.default_rng(1).normal(0.0, 0.01, 18)
    rows = matrix(values)
    rows["value"] += noise
    rows.loc[3, ["status", "value"]] = ["failed", None]
    [study] = find_anova_studies(Measurements.from_table(rows))
    contrast = study.contrast_of_remote_against_local(
        study.analyse_variance_of_table("none")
    ).difference
    assert contrast.value == pytest.approx(-20.0, abs=0.05)
    assert contrast.low < -20.0 < contrast.high


def matrix(values):
    """A tidy table of (initiator, target) -> replicates."""
    cells = [
        rows_of(lambda i, j: 1.0, [i], [j], replicates=len(column), kernel=None)
        for (i, j), column in values.items()
    ]
    return table(*cells).assign(value=[value for column in values.values() for value in column])


def test_nothing_is_found_without_a_factor_or_without_replicates():
    rows = matrix({(0, 0): [1.0, 2.0], (0, 1): [3.0, 4.0]})
    assert len(find_anova_studies(Measurements.from_table(rows))) == 1
    twin = rows.assign(point="another " + rows["point"])  # differs in nothing known
    for table_ in (
        pd.concat([rows, twin], ignore_index=True),
        rows.assign(status="failed"),
        rows.iloc[:0],
        matrix({(0, 0): [1.0, 2.0]}),
    ):
        assert find_anova_studies(Measurements.from_table(table_)) == []
