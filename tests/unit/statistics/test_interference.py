from __future__ import annotations

import pandas as pd
import pytest
from tidy_rows import tidy_rows

from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.corun_interference import (
    compare_latency_together_and_alone,
    summarise_corun_to_alone_ratios,
)
from chaosity.store.measurements import Measurements
from shipped_data import PUBLISHED_TABLES
from table_rows import sweep

SWEEP = PUBLISHED_TABLES / "numa_bench_epyc7a53_latency_sweep_ns.csv"
MIB = 2**20


def rows(found, level, replicates=1):
    """Rows of initiators of two nodes: latency by (initiator, size in MiB)."""
    cells = [(*key, value, k) for key, value in found.items() for k in range(1, replicates + 1)]
    names = [name for name, *_ in cells]
    return tidy_rows(
        [value * (1.0 + 0.001 * k) for _, _, value, k in cells],
        initiator=names,
        target=[f"node{name[-1]}" for name in names],
        initiator_nodes=[name[-1] for name in names],
        replicate=[k for *_, k in cells],
        x=[size * MIB for _, size, *_ in cells],
        level=level,
    )


CORES = ("a0", "b0", "a1", "b1")
ALONE = {(core, size): 10.0 * size for core in CORES for size in (1, 2, 4, 8)}


def together(**changes):
    """As alone, with each core's factors by size."""
    return {
        (core, size): value * changes.get(core, {}).get(size, 1.0)
        for (core, size), value in ALONE.items()
    }


def found(changes, replicates=1):
    table = pd.concat(
        [rows(ALONE, "serial", replicates), rows(together(**changes), "concurrent", replicates)]
    )
    return compare_latency_together_and_alone(table, "concurrent", "serial")


def test_the_ratio_of_a_size_is_the_geometric_mean_over_pairs():
    result = found({"a0": {4: 2.0}, "b0": {4: 8.0}})
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
    result = found({"a0": grown, "a1": {4: 1.02, 8: 1.02}}, replicates=3)
    assert [one.initiator for one in result.slow] == ["a0"]
    [slow] = result.slow
    assert slow.together.median == pytest.approx(1.6)
    assert slow.together.low == pytest.approx(1.6)
    assert (slow.together.n, slow.alone, slow.nodes) == (3, pytest.approx(1.0), "0")


def test_without_pairs_there_is_no_divergence():
    result = compare_latency_together_and_alone(rows(ALONE, "serial"), "concurrent", "serial")
    assert (result.ratios, result.start, result.slow) == ({}, None, ())


def test_the_published_sweep_diverges_at_128_mb_with_slow_even_ranks():
    table = pd.read_csv(SWEEP)
    sweep = tidy_rows(
        table["latency_ns"].tolist(),
        initiator="pu" + table["core"].astype(str),
        initiator_nodes=table["cpu_node"].astype(str),
        target="node" + table["mem_node"].astype(str),
        replicate=1,
        x=table["size_MB"] * 2.0**20,
        level=table["mode"],
    )
    result = compare_latency_together_and_alone(sweep, "concurrent", "serial")
    assert result.start == 128 * MIB
    assert sorted(one.initiator for one in result.slow) == ["pu1", "pu17", "pu33", "pu49"]
    assert all(1.2 < one.together.median < 1.35 for one in result.slow)
    assert all(0.98 < one.alone < 1.02 for one in result.slow)


# Loads of one name that run together, each on a core of its own.


@pytest.fixture(scope="module")
def measured():
    """Four cores, each alone and all together, in which every other core takes longer."""

    def latency(pu, size, mode):
        return 100.0 * (1.5 if mode == "concurrent" and size == MIB and pu in (0, 4) else 1.0)

    return Measurements.from_table(sweep(latency, [4096, MIB], {0: 0, 2: 0, 4: 1, 6: 1}))


def test_loads_with_one_name_are_separate_cells(measured):
    cells = summarise_cells(measured.where(point="together+4096"))
    assert cells["initiator"].tolist() == ["pu0", "pu2", "pu4", "pu6"]
    assert (cells["n"] == 3).all()


def test_corunning_is_compared_with_the_same_core_and_size_alone(measured):
    slowdown = summarise_corun_to_alone_ratios(measured)
    for size, slow in ((4096, 1.0), (MIB, 1.5)):
        own = slowdown[slowdown["point"] == f"together+{size}"].set_index("initiator")["median"]
        assert own.to_dict() == pytest.approx({"pu0": slow, "pu2": 1.0, "pu4": slow, "pu6": 1.0})
