"""The crossover of two curves of latency over bandwidth, planted and found."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from chaosity.statistics.latency_crossovers import (
    compare_latency_curves,
    mean_curve_over_places,
)
from simulated_modes import MIXES, SimulatedModes

# Latency without load and peak: the curves of the first and of the second cross at 400.
FIRST, SECOND = (100.0, 500.0), (180.0, 1000.0)
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def latency(idle: float, peak: float, x: float) -> float:
    """Queueing: the time in the queue grows as u / (1 - u)."""
    return idle + 24.0 * (x / peak) / (1.0 - x / peak)


def curve(
    idle: float,
    peak: float,
    *,
    seed: int = 1,
    noise: float = 0.005,
    n: int = 3,
    places: int = 1,
    shares: tuple[float, ...] = SHARES,
) -> pd.DataFrame:
    """Rows of some places and replicates."""
    random = np.random.default_rng([seed, int(peak)])
    rows = [
        {
            "replicate": replicate,
            "initiator": f"pu{place}",
            "target": f"node{place}",
            "x": share * peak * np.exp(random.normal(0, noise)),
            "value": latency(idle, peak, share * peak) * np.exp(random.normal(0, noise)),
        }
        for replicate in range(1, n + 1)
        for place in range(places)
        for share in shares
    ]
    return pd.DataFrame(rows)


def test_a_crossover_is_found_with_the_configuration_that_is_lower_above():
    first, second = (mean_curve_over_places(curve(*each)) for each in (FIRST, SECOND))
    found = compare_latency_curves(first, second)
    [crossover] = found.crossovers
    assert found.n == (3, 3)
    assert crossover.low <= 400.0 <= crossover.high
    assert 0.97 < crossover.bandwidth / 400.0 < 1.03
    assert crossover.lower_above == 1
    [other] = compare_latency_curves(second, first).crossovers
    assert (other.low, other.high, other.lower_above) == (crossover.low, crossover.high, 0)


def test_curves_without_noise_have_a_narrow_interval_at_the_crossover():
    first, second = (mean_curve_over_places(curve(*each, noise=0.0)) for each in (FIRST, SECOND))
    [crossover] = compare_latency_curves(first, second).crossovers
    assert crossover.bandwidth == pytest.approx(400.0, rel=0.003)
    assert crossover.high - crossover.low < 1.0


def test_a_curve_that_is_lower_everywhere_has_no_crossover():
    lower = mean_curve_over_places(curve(100.0, 1000.0))
    found = compare_latency_curves(lower, mean_curve_over_places(curve(*SECOND)))
    assert (found.crossovers, found.lower, found.reason) == ((), 0, None)
    assert found.reach == pytest.approx(950.0, rel=0.03)


def test_equal_curves_seldom_differ():
    found = [
        compare_latency_curves(
            mean_curve_over_places(curve(*FIRST, seed=2 * seed)),
            mean_curve_over_places(curve(*FIRST, seed=2 * seed + 1)),
        )
        for seed in range(200)
    ]
    assert not any(each.crossovers for each in found)
    assert sum(each.lower is not None for each in found) <= 20  # 5 %, and four deviations


def test_points_that_are_far_apart_give_a_reason():
    coarse = (0.0, 0.1, 0.5, 0.95)
    first, second = (
        mean_curve_over_places(curve(*each, shares=coarse)) for each in (FIRST, SECOND)
    )
    found = compare_latency_curves(first, second)
    assert not found.crossovers
    assert found.reason is not None and "of the peak apart" in found.reason


def test_one_replicate_gives_no_crossover():
    first, second = (mean_curve_over_places(curve(*each, n=1)) for each in (FIRST, SECOND))
    found = compare_latency_curves(first, second)
    assert found.n == (1, 1) and found.reason == "an interval needs two complete replicates of each"


def test_places_are_averaged_and_an_incomplete_block_is_left_out():
    rows = curve(*FIRST, noise=0.0, places=2)
    rows.loc[rows["target"] == "node1", "value"] *= 4.0
    rows.loc[(rows["replicate"] == 2) & (rows["x"] == 0.0), "value"] = np.nan
    found = mean_curve_over_places(rows)
    assert set(found["replicate"]) == {1, 3}
    assert found.loc[found["rank"] == 0, "value"].to_numpy() == pytest.approx([200.0, 200.0])
    assert found["rank"].max() == len(SHARES) - 1


def test_the_interval_holds_the_crossover_that_is_planted_in_a_simulated_machine():
    """NPS1 and NPS0 of the server of document 001; `make bench` has 100 seeds."""
    modes = SimulatedModes("epyc_9575f", ("nps1", "nps0"), 3)
    assert all(380e9 < planted < 420e9 for planted in modes.planted.values())
    held = []
    for seed in range(1, 11):
        for mix, found in modes.found(seed).items():
            [crossover] = found.crossovers
            assert crossover.lower_above == 1
            held.append(crossover.low <= modes.planted[mix] <= crossover.high)
    assert len(held) == 10 * len(MIXES)
    assert sum(held) >= 16  # 95 % of 20; below 16 with a probability of 0.3 %
