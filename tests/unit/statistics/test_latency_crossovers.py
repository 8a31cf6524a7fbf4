"""Test that the crossover of two curves of latency over bandwidth is found."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.statistics.latency_crossovers import (
    compare_latency_curves,
    mean_curve_over_places,
)

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


def test_curves_without_noise_have_a_narrow_interval_at_the_crossover():
    [crossover] = compare_latency_curves(*both_curves(noise=0.0)).crossovers
    assert crossover.bandwidth == pytest.approx(400.0, rel=0.003)
    assert crossover.high - crossover.low < 1.0


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


def test_the_interval_holds_the_true_crossover():
    """`make bench` plants crossovers in simulated machines."""
    held = []
    for seed in range(20):
        [crossover] = compare_latency_curves(*both_curves(seed=seed)).crossovers
        held.append(crossover.low <= 400.0 <= crossover.high)
    assert sum(held) >= 16  # 95 % of 20; below 16 with a probability of 0.3 %
