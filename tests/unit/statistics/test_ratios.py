"""Ratios of cells: in replicate blocks, together and alone, before and after a change."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from tidy_rows import tidy_rows

from chaosity.anomalies.latency_sweep_anomalies import select_latency_size_sweeps
from chaosity.statistics.cell_summary import (
    compare_latency_together_and_alone,
    compare_neighbouring_periods,
    estimate_group_ratio_paired_by_block,
    summarise_cell_ratios_paired_by_block,
    summarise_cells,
    summarise_corun_to_alone_ratios,
)
from chaosity.store.measurements import Measurements
from table_rows import sweep


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
    found = estimate_group_ratio_paired_by_block(above, rows([2.0], "c"))
    assert found.median == pytest.approx(2.0)


def test_a_cell_that_is_missing_in_a_block_does_not_shift_that_block():
    group = pd.concat([rows([10.0, 10.0], "a"), rows([1000.0, None], "b")])
    found = estimate_group_ratio_paired_by_block(group, rows([10.0, 10.0], "c"))
    assert found.median == pytest.approx(1.0)


def test_groups_without_a_common_block_have_no_ratio():
    later = rows([1.0]).assign(replicate=2)
    assert estimate_group_ratio_paired_by_block(rows([1.0]), later).n == 0
    assert math.isnan(estimate_group_ratio_paired_by_block(rows([None]), rows([1.0])).median)


def test_pairs_by_hand():
    numerator = rows([30.0, 20.0, 24.0], "together", initiator="node0")
    denominator = rows([40.0, 40.0, 40.0], "alone", initiator="node0")
    own = summarise_cell_ratios_paired_by_block(numerator, denominator, ["host", "initiator"])
    found = own.iloc[0]
    assert (found["median"], found["n"], found["point"]) == (pytest.approx(0.6), 3, "together")
    # Logarithms of 0.75, 0.5, 0.6: mean -0.497218, deviation 0.203075, half width 0.504468.
    assert (found["low"], found["high"]) == pytest.approx((0.36726, 1.00727), abs=1e-5)


def test_without_corunning_loads_there_is_no_slowdown():
    alone = Measurements.from_table(rows([1.0], benchmark="b", kernel=None))
    for measured in (alone, alone.where(load="none")):
        assert summarise_corun_to_alone_ratios(measured).empty


MIB = 2**20
CORES = {0: 0, 4: 0, 8: 1, 12: 1}


def found(changes, replicates=1):
    """The comparison of cores of which some take longer, by factors of sizes in MiB, together."""

    def latency(core, size, mode):
        grown = changes.get(core, {}) if mode == "concurrent" else {}
        return size / MIB * grown.get(size // MIB, 1.0)

    table = sweep(latency, [MIB * 2**power for power in range(4)], CORES, replicates=replicates)
    sweeps = select_latency_size_sweeps(Measurements.from_table(table))
    return compare_latency_together_and_alone(sweeps, "concurrent", "serial")


def test_the_ratio_of_a_size_is_the_geometric_mean_over_pairs():
    result = found({0: {4: 2.0}, 4: {4: 8.0}})
    assert result.ratios[4 * MIB].median == pytest.approx(2.0)
    assert result.ratios[8 * MIB].median == pytest.approx(1.0)


def test_latencies_diverge_where_all_larger_sizes_differ():
    grown = {1: 1.5, 4: 1.2, 8: 1.3}
    result = found(dict.fromkeys(CORES, grown))
    assert result.start == 4 * MIB  # 1 MiB differs, 2 MiB does not
    assert result.slow == ()
    assert result.compared == 4
    assert found({}).start is None


def test_an_initiator_that_is_slower_than_others_of_its_node_is_named():
    grown = {4: 1.6, 8: 1.6}
    result = found({0: grown, 8: {4: 1.02, 8: 1.02}}, replicates=3)
    assert [one.initiator for one in result.slow] == ["pu0"]
    [slow] = result.slow
    assert slow.together.median == pytest.approx(1.6)
    assert slow.together.low == pytest.approx(1.6)
    assert (slow.together.n, slow.alone, slow.nodes) == (3, pytest.approx(1.0), "0")


# Loads of one name that run together, each on a core of its own.


@pytest.fixture(scope="module")
def measured():
    """Four cores, each alone and all together, in which every other core takes longer."""

    def latency(pu, size, mode):
        return 100.0 * (1.5 if mode == "concurrent" and size == MIB and pu in (0, 4) else 1.0)

    return Measurements.from_table(sweep(latency, [4096, MIB], {0: 0, 2: 0, 4: 1, 6: 1}))


def test_corunning_is_compared_with_the_same_core_and_size_alone(measured):
    cells = summarise_cells(measured.where(point="together+4096"))
    assert cells["initiator"].tolist() == ["pu0", "pu2", "pu4", "pu6"]
    assert (cells["n"] == 3).all()
    slowdown = summarise_corun_to_alone_ratios(measured)
    for size, slow in ((4096, 1.0), (MIB, 1.5)):
        own = slowdown[slowdown["point"] == f"together+{size}"].set_index("initiator")["median"]
        assert own.to_dict() == pytest.approx({"pu0": slow, "pu2": 1.0, "pu4": slow, "pu6": 1.0})


def history(*periods):
    """Rows of one cell; a period is: values, start of the drive's state, request fingerprint."""
    return pd.concat(
        tidy_rows(
            values, era=number, components=json.dumps({"drive0": since, "system": "1"}), asked=asked
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


def test_a_corunning_load_is_compared_with_the_same_load_alone():
    storage = {"load": "storage", "target": "node0drives2", "benchmark": "fio", "kernel": None}
    memory = {"load": "memory", "benchmark": "b", "kernel": "triad"}
    table = pd.concat(
        [
            rows([40.0] * 3, "memory", **memory),
            rows([10.0] * 3, "storage", **storage),
            rows([30.0] * 3, "both", **memory),
            rows([9.0] * 3, "both", **storage),
            # What a search for shares of pages found is neither a loss nor a gain.
            rows([0.1] * 3, "memory", metric="dwp", **memory),
            rows([1.0] * 3, "both", metric="dwp", **memory),
        ],
        ignore_index=True,
    )
    found = summarise_corun_to_alone_ratios(Measurements.from_table(table))
    assert set(found["point"]) == {"both"}
    assert found.set_index("load")["median"].to_dict() == pytest.approx(
        {"memory": 0.75, "storage": 0.9}
    )
