"""The search for the best data-to-worker proximity, on imagined machines with noise."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaosity.place.page_placement import shift_shares_to_workers
from chaosity.place.placement_search import DwpSearch, MeasuredRate, TimeUpError
from placement_sensitive_program import pass_time

GRID = [number / 10 for number in range(11)]


class Machine:
    """One that moves pages at once and whose rates scatter."""

    def __init__(self, rates: dict[float, float], noise: float, seed: int) -> None:
        self.rates, self.noise, self.now, self.moves = rates, noise, 0.0, []
        self.random = random.Random(seed)

    def move_to(self, dwp: float) -> None:
        self.now = dwp
        self.moves.append(dwp)

    def rate(self) -> MeasuredRate:
        # The mean of ten batches: its interval is 2.26 of its standard deviations.
        scatter = self.random.gauss(0.0, self.noise)
        return MeasuredRate(self.rates[self.now] * (1.0 + scatter), 2.262 * self.noise, 0.5)


def rates(start, bandwidths, latencies, workers) -> dict[float, float]:
    """The rate of the imagined machine at each step, from some weights on.

    From its canonical ones the time is a straight line, so the best would be an end.
    """
    weights = {node: value / sum(start) for node, value in enumerate(start)}
    return {
        dwp: 1.0 / pass_time(shift_shares_to_workers(weights, workers, dwp), bandwidths, latencies)
        for dwp in GRID
    }


MACHINES = st.tuples(
    st.lists(st.floats(0.1, 1.0), min_size=4, max_size=4),
    st.lists(st.floats(0.3, 9.0), min_size=4, max_size=4),
    st.lists(st.floats(0.05, 3.0), min_size=4, max_size=4),
    st.integers(1, 3),
)


@settings(max_examples=150)
@given(MACHINES, st.sampled_from([0.0, 0.001, 0.004]), st.integers(0, 2**20))
def test_the_best_dwp_is_found_within_a_step(machine, noise, seed):
    start, bandwidths, latencies, workers = machine
    true = rates(start, bandwidths, latencies, range(workers))
    best = max(GRID, key=true.__getitem__)
    # Neighbours that differ by less than the noise cannot be told apart.
    steps = [abs(true[b] / true[a] - 1.0) for a, b in pairwise(GRID)]
    assume(all(step > 15 * noise + 1e-6 for step in steps))
    found = Machine(true, noise, seed)
    search = DwpSearch(found.rate, found.move_to)
    assert abs(search.find_best_dwp_and_move_pages() - best) <= 0.1 + 1e-9
    assert search.settled
    assert found.now == search.best.dwp == search.present_dwp  # and the program is left there


def test_in_doubt_both_steps_are_measured_again_in_turns_and_the_search_returns():
    machine = Machine(dict.fromkeys(GRID, 7.0), 0.0, 5)
    search = DwpSearch(machine.rate, machine.move_to)
    assert search.find_best_dwp_and_move_pages() == 0.0
    tried = [dwp for dwp, _ in search.measured]
    assert tried == [0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 0.2, 0.0, 0.2, 0.0, 0.2]


def test_a_disturbance_does_not_end_the_search():
    true = {dwp: 1.0 + dwp for dwp in GRID}
    machine = Machine(true, 0.001, 1)
    calls = []

    def disturbed() -> MeasuredRate:
        calls.append(machine.now)
        rate = machine.rate()
        return MeasuredRate(0.5 * rate.value, 0.1) if len(calls) == 2 else rate

    assert DwpSearch(disturbed, machine.move_to).find_best_dwp_and_move_pages() == 1.0


def until(dwp: float, error: type[Exception]) -> tuple[Machine, DwpSearch]:
    """A machine whose rate is not to be had above a step, and a search on it."""
    machine = Machine({step: 1.0 + step for step in GRID}, 0.001, 1)

    def rate() -> MeasuredRate:
        if machine.now > dwp:
            raise error
        return machine.rate()

    return machine, DwpSearch(rate, machine.move_to)


def test_an_ended_program_keeps_its_measurements():
    _, search = until(0.35, EOFError)
    with pytest.raises(EOFError):
        search.find_best_dwp_and_move_pages()
    assert not search.settled
    assert search.best.dwp == pytest.approx(0.3)


def test_when_time_is_up_the_best_so_far_stays():
    machine, search = until(0.35, TimeUpError)
    assert search.find_best_dwp_and_move_pages() == machine.now == pytest.approx(0.3)
    assert not search.settled
