from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
from tidy_rows import tidy_rows

from chaosity.statistics.cell_summary import compute_outlier_mask, summarise_cells
from chaosity.store.tidy_table_parquet import COLUMNS


def table(values, status="valid", **columns):
    """Rows of one cell, a value a replicate."""
    own = {"label": None, "file_backed": False, "benchmark": "b", "kernel": "triad"}
    return tidy_rows(values, status=status, **{**own, **columns})


def test_a_cell_with_one_replicate_has_no_interval_and_no_spread():
    cell = summarise_cells(table([5.0])).iloc[0]
    assert cell["n"] == 1
    assert np.isnan([cell["low"], cell["high"], cell["standard_deviation"]]).all()
    assert math.isnan(cell["precision"])


def test_the_interval_of_a_median_holds_the_truth_in_95_percent():
    random = np.random.default_rng(7)
    cells, n = 4000, 3
    values = 40e9 * np.exp(random.normal(0.0, 0.02, (cells, n)))
    rows = table(values.ravel(), point=np.repeat(np.arange(cells).astype(str), n))
    found = summarise_cells(rows)
    covered = ((found["low"] <= 40e9) & (found["high"] >= 40e9)).mean()
    assert 0.93 <= covered <= 0.97


def test_outliers_are_marked_and_kept():
    random = np.random.default_rng(4)
    values = 100.0 * np.exp(random.normal(0.0, 0.01, (12, 3)))
    values[5, 2] = 50.0
    rows = table(values.ravel(), point=np.repeat(np.arange(12).astype(str), 3))
    assert np.flatnonzero(compute_outlier_mask(rows)).tolist() == [17]
    cell = summarise_cells(rows).iloc[5]
    assert (cell["outliers"], cell["n"], cell["minimum"]) == (1, 3, 50.0)


def test_what_disturbed_some_cells_widens_no_interval_of_others():
    random = np.random.default_rng(6)
    values = 100.0 * np.exp(random.normal(0.0, 0.01, 50))
    points, remarks = np.repeat(np.arange(25), 2), np.full(50, None, object)
    table_of = partial(table, point=points.astype(str))
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
        assert not compute_outlier_mask(table(values)).any()
        assert summarise_cells(table(values))["outliers"].isna().all()


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
    cells = summarise_cells(rows).set_index("point")
    assert cells["status"].to_dict() == {"p": "valid", "q": "failed", "r": "missing"}
    assert cells.loc["p", ["n", "n_failed", "n_missing"]].tolist() == [2, 1, 1]
    assert cells.loc["q", "reason"] == "first"


def test_a_label_and_a_stand_in_file_of_any_replicate_are_not_lost():
    rows = table([1.0, 2.0], label=[None, "variant of STREAM"], file_backed=[False, True])
    cell = summarise_cells(rows).iloc[0]
    assert cell["label"] == "variant of STREAM"
    assert cell["file_backed"]


def test_cells_without_a_kernel_keep_the_order_of_the_table():
    rows = pd.concat([table([2.0], point="z", kernel=None), table([1.0], point="a", kernel="add")])
    assert summarise_cells(rows)["point"].tolist() == ["z", "a"]
    assert summarise_cells(rows, by=["kernel"])["kernel"].tolist() == [None, "add"]


def test_the_store_s_nullable_types_and_an_empty_table_are_read():
    kinds = {name: kind for name, kind in COLUMNS.items() if name in table([1.0]).columns}
    rows = table([1.0, None], ["valid", "failed"]).astype(kinds)
    assert summarise_cells(rows)["n"].tolist() == [1]
    assert summarise_cells(rows.iloc[:0]).empty
    assert compute_outlier_mask(rows.iloc[:0]).empty
