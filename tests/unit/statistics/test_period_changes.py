from __future__ import annotations

import json

import pandas as pd
import pytest
from tidy_rows import tidy_rows

from chaosity.statistics.before_and_after_change import compare_neighbouring_periods
from chaosity.store.measurements import Measurements


def history(*periods):
    """Rows of one cell; a period is: values, start of the drive's state, request fingerprint."""
    return pd.concat(
        tidy_rows(
            values,
            era=number,
            components=json.dumps({"drive0": since, "system": "1"}),
            asked=asked,
        )
        for number, (values, since, asked) in enumerate(periods, start=1)
    )


def test_before_and_after_are_neighbouring_periods():
    periods = ([1.0, 1.1], "1", "a"), ([5.0, 5.5], "2", "a"), ([5.1, 5.4], "3", "b")
    found = compare_neighbouring_periods(Measurements.from_table(history(*periods)))
    assert list(found["era"]) == [2, 3]
    assert [json.loads(text) for text in found["changed"]] == [
        {"drive0": ["1", "2"]},
        {"drive0": ["2", "3"]},
    ]
    assert list(found["comparable"]) == [True, False]  # the last request differs
    first = found.iloc[0]
    assert (first["median_before"], first["median_after"]) == pytest.approx((1.05, 5.25))
    assert (first["n_before"], first["n_after"]) == (2, 2)
    assert first["ratio"] == pytest.approx(5.0, rel=0.01)
