"""What earlier runs tell a run with a budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

from chaosity.errors import UserError
from chaosity.records.record_format import point_key
from chaosity.rounds.budget import Budget, replicate_counts
from chaosity.rounds.machine_so_far import MachineSoFar, cells_of_earlier_runs
from chaosity.rounds.next_round import next_round
from machines import SimulatedHost, planned
from simulated_rounds import simulate_rounds

BUDGET = Budget(400.0)
REASON = "of what departs from earlier runs"


def server(faults: list[dict[str, object]]) -> SimulatedHost:
    """A small server with its node matrices of memory."""
    names = ["memory_bandwidth", "latency_matrix"]
    return planned("two_packages", None, faults, all_points=True, experiments=names)


@pytest.fixture(scope="module")
def healthy() -> SimulatedHost:
    return server([])


@pytest.fixture(scope="module")
def earlier(healthy) -> MachineSoFar:
    """A run of an equal host with another noise."""
    return list(simulate_rounds(healthy, BUDGET, seed=1))[-1]


@pytest.fixture(scope="module")
def known(healthy, earlier):
    keys = {point_key(point) for point in healthy.points}
    return cells_of_earlier_runs(earlier.measured, keys, "host equal")


def first_round(host: SimulatedHost, seed: int) -> MachineSoFar:
    return next(simulate_rounds(host, BUDGET, seed))


def test_an_equal_host_departs_in_few_cells(healthy, known):
    so_far = replace(first_round(healthy, 2), earlier_cells=known)
    departing = so_far.cells_departing_from_earlier_runs
    assert len(departing) < 0.03 * len(so_far.cells_with_known_values)


def test_a_node_that_became_slower_is_measured_again_with_the_reason(known):
    slow = server([{"fault": "slow_node", "node": 2, "remaining": 0.6}])
    so_far = replace(first_round(slow, 2), earlier_cells=known)
    cells = so_far.cells_departing_from_earlier_runs
    bandwidth = cells[cells["experiment"] == "memory_bandwidth"]
    assert (bandwidth["target_nodes"].astype(str) == "2").mean() > 0.5
    chosen = next_round(so_far, BUDGET, 2)
    assert chosen is not None
    assert REASON in chosen.reason or "what departs from what is expected" in chosen.reason
    repeated = set(chosen.measurements)
    keys = set(zip(bandwidth["experiment"], bandwidth["point"], strict=True))
    assert len(keys & repeated) > 0.8 * len(keys)


def test_a_cell_that_scattered_in_earlier_runs_is_repeated_first(healthy, known):
    """The second round is over, so some seconds are left for the widest intervals."""
    rounds = simulate_rounds(healthy, Budget(200.0), seed=2)
    next(rounds)
    so_far = next(rounds)
    key = so_far.rounds[0].measurements[0]
    of_key = (known["experiment"] == key[0]) & (known["point"] == key[1])
    budget = Budget(so_far.spent_seconds + 20.0)
    for deviation, again in ((0.3, True), (1e-5, False)):
        other = known.assign(variance=known["variance"].mask(of_key, deviation**2))
        chosen = next_round(replace(so_far, earlier_cells=other), budget, 2)
        assert chosen is not None
        assert (key in chosen.measurements) == again


def test_what_only_differs_from_earlier_runs_is_measured_again(healthy, known):
    """Nothing is slow within this host, so only the earlier runs tell of a change."""
    so_far = first_round(healthy, 2)
    changed = {key for key in so_far.rounds[0].measurements if key[0] == "latency_matrix"}
    changed = set(sorted(changed)[:3])
    of_changed = pd.MultiIndex.from_frame(known[["experiment", "point"]]).isin(changed)
    other = known.assign(median=known["median"].mask(of_changed, 1.5 * known["median"]))
    chosen = next_round(replace(so_far, earlier_cells=other), BUDGET, 2)
    assert chosen is not None
    assert f"3 measurements {REASON}" in chosen.reason
    assert changed <= set(chosen.measurements)
    # Two runs of a cell that scatters by 12 % differ by less than 3 * 2 ** 0.5 * 12 % = 0.52.
    scattering = other.assign(variance=other["variance"].mask(of_changed, 0.015))
    chosen = next_round(replace(so_far, earlier_cells=scattering), BUDGET, 2)
    assert chosen is not None and REASON not in chosen.reason


def test_a_third_replicate_needs_three_times_the_variance_of_a_second(healthy, known):
    """A second replicate removes 1/2 of a variance, and a third 1/6."""
    rounds = simulate_rounds(healthy, Budget(200.0), seed=2)
    next(rounds)
    so_far = next(rounds)
    budget = Budget(so_far.spent_seconds + 20.0)
    counts = replicate_counts(so_far.rounds)
    of_memory = [key for key in counts if key[0] == "memory_bandwidth"]
    # Two replicates that hardly differ count like a fifth of what earlier runs tell.
    for times, expected in ((2.5, 1), (3.5, 2)):
        variances = {key: (1.0, 1.25 * times)[counts[key] - 1] * 0.1 for key in of_memory}
        places = pd.MultiIndex.from_frame(known[["experiment", "point"]])
        own = known.assign(variance=[variances.get(place, 1e-10) for place in places])
        chosen = next_round(replace(so_far, earlier_cells=own), budget, 2)
        assert chosen is not None
        [(count, _), *_] = Counter(counts[key] for key in chosen.measurements).most_common()
        assert count == expected


def test_a_machine_with_other_combinations_is_refused(healthy, earlier):
    few = {point_key(point) for point in healthy.points[:3]}
    with pytest.raises(UserError, match="the plan has only 3 of the"):
        cells_of_earlier_runs(earlier.measured, few, "host equal")
