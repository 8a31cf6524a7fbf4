"""Curves of latency over bandwidth, their crossovers, and steps of latency over sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidy_rows import tidy_rows

from chaosity.anomalies.anomaly_results import AnomalyKind
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.config import read_config
from chaosity.statistics.curves import (
    CURVE_QUANTITIES,
    compare_latency_curves,
    find_latency_steps,
    latency_curve_quantities,
    mean_curve_over_places,
    repeat_unloaded_points_on_each_line,
)
from chaosity.store.measurements import Measurements
from machines import planned
from shipped_data import PUBLISHED_TABLES
from table_rows import sweep


def curves(*blocks, **columns):
    """Rows of one curve: (bandwidth, latency) of each point, a list a replicate."""
    points = [(*point, number) for block in blocks for number, point in enumerate(block)]
    return tidy_rows(
        [latency for _, latency, _ in points],
        x=[x for x, _, _ in points],
        point=[f"p{number}" for _, _, number in points],
        replicate=[k for k, block in enumerate(blocks, start=1) for _ in block],
        **columns,
    )


def numbers(table, by=()):
    found = latency_curve_quantities(table, by)
    assert list(dict.fromkeys(found["quantity"])) == list(CURVE_QUANTITIES)
    return found.set_index("quantity")


CURVE = [(0.0, 80.0), (40.0, 100.0), (80.0, 140.0), (100.0, 240.0)]


# 160 is a fifth of the way from 140 to 240; 50 is a quarter of the way from 40 to 80.
WHOLE = {
    "unloaded": 80.0,
    "peak": 100.0,
    "knee": 84.0,
    "latency_at_50": 110.0,
    "latency_at_75": 135.0,
    "latency_at_90": 190.0,
}
SLOWER = [(x * 0.9, y * 1.1) for x, y in CURVE]
BROKEN = [*CURVE[:3], (100.0, None)]


@pytest.mark.parametrize(
    ("blocks", "expected", "texts"),
    [
        ([CURVE], WHOLE, {}),
        # Behind saturation, the lower latency counts.
        ([[*CURVE, (70.0, 300.0), (60.0, 400.0)]], WHOLE, {}),
        # Each block has a curve of its own.
        ([CURVE, SLOWER], {"peak": 95.0, "knee": (84.0 + 75.6) / 2.0}, {}),
        ([CURVE[:3]], {"knee": 80.0}, {"knee": "latency did not double"}),
        # Twice the latency without a byte more is doubled at the peak.
        ([[*CURVE[:3], (79.0, 300.0)]], {"knee": 80.0}, {"knee": None}),
        (
            [[(60.0, 90.0), (100.0, 150.0)]],
            {"unloaded": None, "knee": None, "latency_at_50": None, "latency_at_75": 112.5},
            {
                "unloaded": "no point without load or below 5 % of the peak",
                "latency_at_50": "no point below 50 % of the peak",
            },
        ),
        ([[(0.0, 90.0)]], {"peak": None}, {"peak": "no point with load"}),
        (
            [[(0.0, 90.0), (100.0, 400.0)]],
            {"knee": None},
            {"knee": "the points on both sides are 100 % of the peak apart"},
        ),
        # A block with a failed point does not count, but a point that always failed is noted.
        ([CURVE, BROKEN], {"peak": 100.0}, {"peak": None}),
        ([BROKEN, [(0.0, None), *CURVE[1:]]], {"peak": None}, {"peak": "no replicate is complete"}),
        ([BROKEN, BROKEN], {"peak": 80.0}, {"peak": "1 of the curve's points have no value"}),
    ],
)
def test_quantities_of_curves_by_hand(blocks, expected, texts):
    found = numbers(curves(*blocks)).astype(object)
    found = found.where(found.notna(), None)
    medians = {name: found.loc[name, "median"] for name in expected}
    assert medians == pytest.approx(expected)
    said = {name: found.loc[name, "note"] or found.loc[name, "reason"] for name in texts}
    assert said == texts


def test_the_interval_is_of_the_numbers_of_the_blocks():
    found = numbers(curves(CURVE, SLOWER))
    assert (found["n"] == 2).all()
    assert (found["low"] < found["median"]).all()
    assert numbers(curves(CURVE))["low"].isna().all()


def test_points_without_other_loads_belong_to_every_line():
    table = pd.concat(
        [
            curves(CURVE[:1], series=None),
            curves(CURVE[1:], series="read").replace("p0", "q0"),
            curves(CURVE[1:3], series="copy").replace("p0", "r0"),
        ]
    )
    found = latency_curve_quantities(repeat_unloaded_points_on_each_line(table), ["series"])
    peaks = found[found["quantity"] == "peak"].set_index("series")["median"].to_dict()
    assert peaks == {"read": 100.0, "copy": 80.0}
    assert (found.loc[found["quantity"] == "unloaded", "median"] == 80.0).all()


def test_loaded_latency_of_published_servers():
    csv = pd.read_csv(PUBLISHED_TABLES / "mlc_vsc_loaded_latency.csv")
    columns = {"host": csv["source"], "point": csv["inject_delay"], "x": csv["bandwidth_MBps"]}
    table = tidy_rows(csv["latency_ns"].tolist(), **columns, replicate=1)
    found = latency_curve_quantities(table, [])
    assert found["reason"].isna().all()
    broadwell = found[found["host"].str.contains("broadwell")].set_index("quantity")["median"]
    # By hand: 148.24 ns lie between 115424.2 (103.73) and 144868.6 MB/s (164.33).
    assert broadwell["knee"] == pytest.approx(137050.8, abs=1.0)
    assert broadwell["peak"] == 145314.3
    assert broadwell["unloaded"] == 74.12
    notes = found[found["quantity"] == "knee"].set_index("host")["note"]
    assert notes.notna().sum() == 3  # no doubling on three of the seven


# Latency without load and peak: the curves of the first and of the second cross at 400.
FIRST, SECOND = (100.0, 500.0), (180.0, 1000.0)
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def latency(idle: float, peak: float, x: float) -> float:
    """Queueing: the time in the queue grows as u / (1 - u)."""
    return idle + 24.0 * (x / peak) / (1.0 - x / peak)


def curve(
    idle: float, peak: float, seed: int = 1, noise: float = 0.005, n: int = 3, places: int = 1
) -> pd.DataFrame:
    """Rows of a curve of latency over bandwidth, for so many places and replicates."""
    random = np.random.default_rng([seed, int(peak)])
    rows = [
        {
            "replicate": replicate,
            "point": f"share{share}",
            "initiator": f"pu{place}",
            "target": f"node{place}",
            "x": share * peak * np.exp(random.normal(0, noise)),
            "value": latency(idle, peak, share * peak) * np.exp(random.normal(0, noise)),
        }
        for replicate in range(1, n + 1)
        for place in range(places)
        for share in SHARES
    ]
    return pd.DataFrame(rows)


def both_curves(**options: float) -> list[pd.DataFrame]:
    """The first and the second curve, each the mean over its places."""
    return [mean_curve_over_places(curve(*each, **options)) for each in (FIRST, SECOND)]


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.floats(0.001, 0.008), places=st.integers(1, 2))
def test_a_planted_crossover_is_found_from_both_sides(seed, noise, places):
    first, second = both_curves(seed=seed, noise=noise, places=places)
    found = compare_latency_curves(first, second)
    [crossover] = found.crossovers
    assert found.n == (3, 3)
    assert crossover.low <= crossover.bandwidth <= crossover.high
    assert 0.94 < crossover.bandwidth / 400.0 < 1.06
    assert crossover.lower_above == 1
    [other] = compare_latency_curves(second, first).crossovers
    assert (other.low, other.high, other.lower_above) == (crossover.low, crossover.high, 0)


def test_a_curve_that_is_lower_everywhere_has_no_crossover():
    lower = mean_curve_over_places(curve(100.0, 1000.0))
    found = compare_latency_curves(lower, mean_curve_over_places(curve(*SECOND)))
    assert (found.crossovers, found.lower, found.reason) == ((), 0, None)
    assert found.reach == pytest.approx(950.0, rel=0.03)


def test_equal_curves_seldom_differ():
    # With a single place, the rows are their own mean over places.
    curves = [curve(*FIRST, seed=seed) for seed in range(120)]
    found = [compare_latency_curves(*pair) for pair in zip(curves[::2], curves[1::2], strict=True)]
    assert not any(each.crossovers for each in found)
    assert sum(each.lower is not None for each in found) <= 9  # 5 % of 60, and four deviations


def test_points_that_are_far_apart_give_a_reason():
    coarse = [SHARES.index(share) for share in (0.0, 0.2, 0.5, 0.95)]
    first, second = (each[each["rank"].isin(coarse)] for each in both_curves())
    found = compare_latency_curves(first, second)
    assert not found.crossovers
    assert found.reason is not None and "of the peak apart" in found.reason


def test_one_replicate_gives_no_crossover():
    found = compare_latency_curves(*both_curves(n=1))
    assert found.n == (1, 1) and found.reason == "an interval needs two complete replicates of each"


def test_places_are_averaged_and_incomplete_blocks_are_left_out():
    rows = curve(*FIRST, noise=0.0, places=2)
    rows.loc[rows["target"] == "node1", "value"] *= 4.0
    rows.loc[(rows["replicate"] == 2) & (rows["x"] == 0.0), "value"] = np.nan
    found = mean_curve_over_places(rows)
    assert set(found["replicate"]) == {1, 3}
    assert found.loc[found["rank"] == 0, "value"].to_numpy() == pytest.approx([200.0, 200.0])
    assert found["rank"].max() == len(SHARES) - 1
    rows.loc[(rows["replicate"] != 2) & (rows["x"] == rows["x"].max()), "value"] = np.nan
    assert mean_curve_over_places(rows).empty  # the blocks lack different points


KIB, MIB, GIB = 2**10, 2**20, 2**30
# Document 003, serial mode: medians of the eight ranks for 1 MB to 16384 MB.
DOCUMENT_003_NS = [
    *(10.36, 12.945, 14.245, 14.945, 18.62, 35.7, 67.55, 85.95, 95.43, 101.2, 104.195),
    *(107.38, 110.88, 112.58, 130.32),
]


def sizes_and(latencies: dict[float, float], noise: float = 0.0) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {"x": size, "replicate": replicate, "value": value * np.exp(random.normal(0, noise))}
        for replicate in range(1, 4)
        for size, value in latencies.items()
    )


def test_the_published_sweep_has_the_end_of_its_l3_cache():
    sizes = [MIB * 2**power for power in range(15)]
    first, l3 = find_latency_steps(sizes_and(dict(zip(sizes, DOCUMENT_003_NS, strict=True)), 0.005))
    assert first.is_open_below  # the smallest size is larger than the L2 cache
    assert (l3.first_bytes, l3.last_bytes) == (8 * MIB, 128 * MIB)
    assert (l3.below_bytes, l3.above_bytes) == (32 * MIB, 64 * MIB)
    assert l3.end_bytes.low < l3.end_bytes.median < l3.end_bytes.high
    assert l3.end_bytes.low > 34 * MIB and l3.end_bytes.high < 40 * MIB
    assert (l3.lower_ns, l3.upper_ns) == pytest.approx((14.2, 105.8), rel=0.02)
    assert not (l3.is_open_below or l3.is_open_above)


def test_no_step_without_a_clear_rise():
    flat = {KIB * 2**power: 100.0 for power in range(10)}
    assert find_latency_steps(sizes_and(flat, 0.03)) == ()
    slow_rise = {KIB * 2**power: 10.0 * 1.1**power for power in range(20)}
    assert find_latency_steps(sizes_and(slow_rise, 0.01)) == ()
    once = {**flat, KIB * 512: 130.0}
    [step] = find_latency_steps(sizes_and(once))
    assert (step.is_open_above, step.upper_ns) == (True, pytest.approx(130.0))
    torn = sizes_and(once)
    torn.loc[(torn["x"] == KIB * 512) & (torn["replicate"] == 1), "value"] = 90.0
    assert find_latency_steps(torn) == ()  # one of three replicates shows the reverse
    assert find_latency_steps(sizes_and({KIB: 1.0})) == ()
    assert find_latency_steps(sizes_and(flat).assign(value=np.nan)) == ()


@pytest.mark.parametrize(
    ("sizes", "modes", "cores", "notes"),
    [
        (
            [4096, MIB],
            ["serial", "concurrent"],
            {0: 0, 4: 0},
            "Not tested: inversions, .* number of measured sizes: 1$",
        ),
        (
            [4096, MIB],
            ["serial"],
            {0: 0, 4: 0},
            "Not tested: contention. .* measured: serial Not tested: inv",
        ),
        ([4096, MIB], ["serial"], {0: 0, 4: 1}, "Not tested: contention and inversions"),
    ],
)
def test_the_analysis_says_which_anomalies_of_size_it_could_not_find(sizes, modes, cores, notes):
    table = sweep(lambda pu, size, mode: size**0.25, sizes, cores, modes=modes)
    found = analyse_host(Measurements.from_table(table))
    assert re.match(notes, " ".join(found.notes))
    assert any("latency over sizes" in tested for tested in found.checked) == (len(modes) > 1)


def test_half_of_the_l3_domains_wait_beside_others_as_the_document_shows():
    """The means of ranks 0, 2, 4 and 6 in concurrent mode over serial mode, and the inversion."""
    working_set = {**read_config()["working_set"], "sweep_at_most_bytes": 16 * GIB}
    config: Any = {"working_set": working_set, "levels": {"latency_by_size": {"pages": 1}}}
    host = planned(
        "epyc_7a53", faults=None, all_points=True, experiments=["latency_by_size"], **config
    )
    rows = host.true_table.where(replicate=1, metric="latency_ns")
    levels = {name: rows.factor_level_of_each_row(name) for name in ("mode", "bytes")}
    for size, expected in ((128 * MIB, 12), (GIB, 46), (2 * GIB, 55), (4 * GIB, 68)):
        same = levels["bytes"].astype(float) == size
        serial, concurrent = (
            rows.select(same & (levels["mode"] == mode)).rows.set_index("initiator")["value"]
            for mode in ("serial", "concurrent")
        )
        waits = (concurrent - serial).sort_index(key=lambda names: names.str[2:].astype(int))
        assert waits.to_numpy()[::2] == pytest.approx(expected, abs=12)
        assert waits.to_numpy()[1::2] == pytest.approx(0, abs=0.5)
    inversions = [
        found.components
        for found in host.findings(1).anomalies
        if found.kind == AnomalyKind.INVERSION
    ]
    assert inversions == [("node0",)]


def test_curves_without_noise_have_a_narrow_interval_at_the_crossover():
    [crossover] = compare_latency_curves(*both_curves(noise=0.0)).crossovers
    assert crossover.bandwidth == pytest.approx(400.0, rel=0.003)
    assert crossover.high - crossover.low < 1.0


def test_the_interval_holds_the_true_crossover():
    """`make bench` plants crossovers in simulated machines."""
    held = []
    for seed in range(20):
        [crossover] = compare_latency_curves(*both_curves(seed=seed)).crossovers
        held.append(crossover.low <= 400.0 <= crossover.high)
    assert sum(held) >= 16  # 95 % of 20; below 16 with a probability of 0.3 %
