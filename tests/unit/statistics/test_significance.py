"""Tests over many cells, against statsmodels and by hand."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

from chaosity.statistics.significance_tests import (
    adjust_false_discovery_rate,
    adjust_family_wise_error,
    is_variation_between_cells_significant,
)


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


def test_cells_differ_when_they_scatter_more_than_their_replicates():
    assert (
        is_variation_between_cells_significant(cells([1.0, 1.1, 0.9], [2.0, 2.1, 1.9]), ["cell"])
        is True
    )
    assert (
        is_variation_between_cells_significant(cells([1.0, 1.1, 0.9], [1.05, 0.95, 1.0]), ["cell"])
        is False
    )
    assert is_variation_between_cells_significant(cells([1.0, 1.0], [2.0, 2.0]), ["cell"]) is True
    assert is_variation_between_cells_significant(cells([1.0, 1.0], [1.0, 1.0]), ["cell"]) is False


def test_whether_cells_differ_is_unknown_without_replicates():
    assert is_variation_between_cells_significant(cells([1.0], [2.0]), ["cell"]) is None
    assert is_variation_between_cells_significant(cells([1.0, 2.0]), ["cell"]) is None
    assert is_variation_between_cells_significant(cells([np.nan], [np.nan]), ["cell"]) is None
