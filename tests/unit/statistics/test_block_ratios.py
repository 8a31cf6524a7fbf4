from __future__ import annotations

import math

import pandas as pd
import pytest
from tidy_rows import tidy_rows

from chaosity.statistics.block_ratios import (
    estimate_group_ratio_paired_by_block,
    summarise_cell_ratios_paired_by_block,
)
from chaosity.statistics.corun_interference import summarise_corun_to_alone_ratios
from chaosity.store.measurements import Measurements


def rows(values, point="p", **columns):
    """Rows of a cell: values by replicate, None for a failed one."""
    return tidy_rows(values, point=point, **columns)


def test_a_drift_between_blocks_cancels_in_ratios():
    near = rows([100.0, 50.0, 25.0], "near")
    far = rows([50.0, 25.0, 12.5], "far")
    found = estimate_group_ratio_paired_by_block(far, near)
    assert (found.median, found.low, found.high, found.n) == pytest.approx((0.5, 0.5, 0.5, 3))


def test_groups_are_compared_by_their_geometric_means():
    above = pd.concat([rows([2.0], "a"), rows([8.0], "b")])
    assert estimate_group_ratio_paired_by_block(above, rows([2.0], "c")).median == pytest.approx(
        2.0
    )


def test_a_cell_that_is_missing_in_a_block_does_not_shift_that_block():
    group = pd.concat([rows([10.0, 10.0], "a"), rows([1000.0, None], "b")])
    assert estimate_group_ratio_paired_by_block(
        group, rows([10.0, 10.0], "c")
    ).median == pytest.approx(1.0)


def test_groups_without_a_common_block_have_no_ratio():
    later = rows([1.0]).assign(replicate=2)
    assert estimate_group_ratio_paired_by_block(rows([1.0]), later).n == 0
    assert math.isnan(estimate_group_ratio_paired_by_block(rows([None]), rows([1.0])).median)


def test_pairs_by_hand():
    numerator = rows([30.0, 20.0, 24.0], "together", initiator="node0")
    denominator = rows([40.0, 40.0, 40.0], "alone", initiator="node0")
    found = summarise_cell_ratios_paired_by_block(
        numerator, denominator, ["host", "initiator"]
    ).iloc[0]
    assert (found["median"], found["n"], found["point"]) == (pytest.approx(0.6), 3, "together")
    # Logarithms of 0.75, 0.5, 0.6: mean -0.497218, deviation 0.203075, half width 0.504468.
    assert (found["low"], found["high"]) == pytest.approx((0.36726, 1.00727), abs=1e-5)


def test_a_corunning_load_is_compared_with_the_same_load_alone():
    storage = {"load": "storage", "target": "node0drives2", "benchmark": "fio", "kernel": None}
    memory = {"load": "memory", "benchmark": "b", "kernel": "triad"}
    table = pd.concat(
        [
            rows([40.0] * 3, "memory", **memory),
            rows([10.0] * 3, "storage", **storage),
            rows([30.0] * 3, "both", **memory),
            rows([9.0] * 3, "both", **storage),
        ],
        ignore_index=True,
    )
    found = summarise_corun_to_alone_ratios(Measurements.from_table(table))
    assert set(found["point"]) == {"both"}
    assert found.set_index("load")["median"].to_dict() == pytest.approx(
        {"memory": 0.75, "storage": 0.9}
    )


def test_without_corunning_loads_there_is_no_slowdown():
    alone = Measurements.from_table(rows([1.0], benchmark="b", kernel=None))
    for measured in (alone, alone.where(load="none")):
        assert summarise_corun_to_alone_ratios(measured).empty
