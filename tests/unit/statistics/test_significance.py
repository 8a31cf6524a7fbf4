"""Tests over many cells, against statsmodels and by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from statsmodels.stats.multitest import multipletests

from chaosity.statistics.significance_tests import (
    adjust_false_discovery_rate,
    adjust_family_wise_error,
    is_variation_between_cells_significant,
)

CHANCES = arrays(float, st.integers(1, 40), elements=st.floats(0.0, 1.0))


@pytest.mark.thorough
@given(CHANCES)
def test_holms_method_equals_that_of_statsmodels(chances):
    expected = multipletests(chances, method="holm")[1]
    assert adjust_family_wise_error(chances) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(CHANCES)
def test_benjamini_and_hochbergs_method_equals_that_of_statsmodels(chances):
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
