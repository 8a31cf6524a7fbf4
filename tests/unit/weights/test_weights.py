"""Weights: computed by hand, properties for every matrix, and published measurements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from chaosity.cli import chaosity
from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.place.page_placement import integer_weights, shift_shares_to_workers, uniform_shares
from chaosity.store.csv_tables import NodeMatrix, read_matrix_csv, read_published_csv
from chaosity.weights import advise_interleave_weights, canonical_weights, expected_bandwidth
from faulty_machines import BANDWIDTH, matrix_of
from shipped_data import PUBLISHED_TABLES

PENGUIN = PUBLISHED_TABLES / "nes_penguin_stream_triad_5gb_8t.csv"
PLACEMENTS = PUBLISHED_TABLES / "nes_penguin_stream_16t_placement_long.csv"


def matrix(rows: list[list[float | None]], metric: str = BANDWIDTH) -> NodeMatrix:
    """A matrix in GB/s whose initiators and targets are numbered from 0."""
    return matrix_of(np.array(rows, dtype=float) * 1e9, metric=metric)


TWO = matrix([[40.0, 10.0], [20.0, 40.0]])
FOUR = matrix(
    [
        [40.0, 25.0, 10.0, 10.0],
        [25.0, 40.0, 10.0, 10.0],
        [10.0, 10.0, 40.0, 25.0],
        [10.0, 10.0, 25.0, 40.0],
    ]
)

bandwidths = st.floats(0.5, 500.0)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """A matrix of any shape, and some of its initiators."""
    targets = draw(st.integers(1, 6))
    initiators = draw(st.integers(1, 6))
    row = st.lists(bandwidths, min_size=targets, max_size=targets)
    rows = draw(st.lists(row, min_size=initiators, max_size=initiators))
    workers = draw(st.lists(st.integers(0, initiators - 1), min_size=1, unique=True))
    return rows, workers


@pytest.mark.parametrize(
    ("workers", "shares"), [([0], {0: 0.8, 1: 0.2}), ([0, 1], {0: 2 / 3, 1: 1 / 3})]
)
def test_the_worker_with_the_least_bandwidth_counts(workers, shares):
    assert canonical_weights(TWO, workers) == pytest.approx(shares)


@given(problems(), st.floats(0.01, 100.0), st.data())
def test_weights_are_shares_and_neither_unit_nor_order_matters(problem, factor, data):
    rows, workers = problem
    found = canonical_weights(matrix(rows), workers)
    assert sum(found.values()) == pytest.approx(1.0)
    assert min(found.values()) > 0.0
    assert canonical_weights(matrix(rows), workers[::-1]) == found
    order = data.draw(st.permutations(range(len(rows[0]))))
    shuffled = matrix([[factor * row[node] for node in order] for row in rows])
    other = canonical_weights(shuffled, workers)
    assert {order[place]: share for place, share in other.items()} == pytest.approx(found)


@given(problems(), st.data())
def test_no_other_shares_are_expected_to_serve_a_worker_better(problem, data):
    rows, workers = problem
    found, worker = matrix(rows), workers[:1]
    nodes = len(rows[0])
    shares = data.draw(st.lists(st.floats(0.01, 1.0), min_size=nodes, max_size=nodes))
    best = expected_bandwidth(found, worker, canonical_weights(found, worker))
    assert best * (1 + 1e-9) >= expected_bandwidth(found, worker, dict(enumerate(shares)))
    assert best == pytest.approx(1e9 * sum(rows[worker[0]]))


@given(problems(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_dwp_moves_pages_to_the_workers_and_keeps_ratios(problem, a, b):
    rows, workers = problem
    workers = [worker for worker in workers if worker < len(rows[0])]
    assume(workers)
    weights = canonical_weights(matrix(rows), workers)
    low, high = (shift_shares_to_workers(weights, workers, dwp) for dwp in sorted((a, b)))
    for node in weights:
        less, more = (low, high) if node in workers else (high, low)
        assert less[node] <= more[node] + 1e-12
    assert sum(high.values()) == pytest.approx(1.0)
    for group in (workers, [node for node in weights if node not in workers]):
        for node in group[1:]:
            assert high[node] * weights[group[0]] == pytest.approx(high[group[0]] * weights[node])


def test_dwp_goes_from_the_canonical_weights_to_the_workers_alone():
    weights = {0: 0.3, 1: 0.2, 2: 0.4, 3: 0.1}
    assert shift_shares_to_workers(weights, [0, 1], 0.0) == weights
    assert shift_shares_to_workers(weights, [0, 1], 1.0) == pytest.approx(
        {0: 0.6, 1: 0.4, 2: 0.0, 3: 0.0}
    )
    half = shift_shares_to_workers(weights, [0, 1], 0.5)
    assert half == pytest.approx({0: 0.45, 1: 0.3, 2: 0.2, 3: 0.05})


def test_dwp_is_a_share_and_pages_cannot_move_to_workers_without_memory():
    for dwp in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="data-to-worker proximity"):
            shift_shares_to_workers({0: 1.0}, [0], dwp)
    weights = canonical_weights(matrix([[40.0, 20.0], [40.0, 20.0], [30.0, 30.0]]), [2])
    assert shift_shares_to_workers(weights, [2], 0.0) == weights
    with pytest.raises(UserError, match="no memory"):
        shift_shares_to_workers(weights, [2], 0.5)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([4], "synthetic: node 4 is not an initiator; initiators: 0, 1"),
        ([0, 0], "worker 0 is named twice"),
        ([], "no worker is given"),
    ],
)
def test_workers_outside_the_matrix_are_refused(workers, said):
    with pytest.raises(UserError, match=said):
        canonical_weights(TWO, workers)


def test_a_path_that_was_not_measured_is_named_unless_no_worker_needs_it():
    holed = matrix([[40.0, 10.0], [None, 40.0]])
    assert canonical_weights(holed, [0]) == pytest.approx({0: 0.8, 1: 0.2})
    with pytest.raises(UserError, match="from node 1 to node 0"):
        canonical_weights(holed, [0, 1])
    with pytest.raises(UserError, match="has the metric latency_ns"):
        canonical_weights(matrix([[80.0, 120.0]], "latency_ns"), [0])


CLOSE = matrix([[40.0, 30.0], [30.0, 40.0]])


@pytest.mark.parametrize(
    ("found", "workers", "shares", "expected"),
    [
        (TWO, [0], {1: 1.0}, 10e9),
        (TWO, [0], {0: 1, 1: 1}, 20e9),
        (TWO, [0, 1], {0: 0.5, 1: 0.5}, 40e9),
        (CLOSE, [0, 1], {0: 1.0}, 40e9),  # a node's memory gives all no more than it gave one
    ],
)
def test_a_placement_waits_for_its_slowest_path(found, workers, shares, expected):
    assert expected_bandwidth(found, workers, shares) == pytest.approx(expected)


@pytest.mark.parametrize("shares", [{}, {0: 0.0}, {0: -1.0, 1: 2.0}, {0: float("nan")}])
def test_bad_shares_are_refused(shares):
    for function in (lambda: expected_bandwidth(TWO, [0], shares), lambda: integer_weights(shares)):
        with pytest.raises(UserError, match="above 0"):
            function()


@pytest.mark.parametrize(
    ("shares", "numbers"),
    [
        ({0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}, {0: 1, 1: 1, 2: 1, 3: 1}),
        ({0: 0.75, 1: 0.25}, {0: 3, 1: 1}),
        ({0: 0.4, 5: 0.6}, {0: 2, 5: 3}),
        ({0: 0.501, 1: 0.499}, {0: 1, 1: 1}),
        ({0: 0.6, 1: 0.4, 2: 0.0}, {0: 3, 1: 2}),
    ],
)
def test_the_kernel_gets_small_whole_numbers(shares, numbers):
    assert integer_weights(shares)[0] == numbers


def test_a_share_below_the_range_of_kernel_weights_is_noted():
    found = advise_interleave_weights(matrix([[500.0, 0.5]]), [0])
    assert found.kernel_weights[1] == 1 and found.kernel_weights[0] >= 250
    assert found.error_percent > 100
    assert "the error is large" in " ".join(found.sentences_before_commands)


def test_nodes_without_pages_have_no_kernel_weight():
    found = advise_interleave_weights(FOUR, [0, 1], dwp=1.0)
    assert found.kernel_weights == {0: 1, 1: 1}
    assert found.commands_to_copy[-1].endswith("--weighted-interleave=0-1 PROGRAM")
    assert "A weight of 0 cannot be written" in " ".join(found.sentences_before_commands)
    assert "A weight of 0" not in " ".join(
        advise_interleave_weights(FOUR, [0, 1]).sentences_before_commands
    )


@pytest.mark.parametrize(
    ("workers", "said"), [("x", "'x'"), ("5", "node 5"), ("", "no worker"), ("1-0", "backwards")]
)
def test_the_command_refuses_workers(tmp_path, workers, said):
    path = tmp_path / "m_GBps.csv"
    path.write_text("from,0,1\n0,40,10\n1,20,40\n")
    with pytest.raises(UserError, match=said):
        chaosity.main(["weights", str(path), "--workers", workers], standalone_mode=False)


# What others measured: 16 threads on pairs of nodes, memory on one node or interleaved over two.


@pytest.mark.parametrize(("interleaved", "n", "correlation"), [(False, 42, 0.85), (True, 18, 0.38)])
def test_published_placements_rank_as_expected(interleaved, n, correlation):
    found = read_matrix_csv(PENGUIN, "bandwidth")
    rows = read_published_csv(PLACEMENTS, "stream_placement", "published")
    medians = rows.groupby(["initiator_nodes", "target_nodes"])["value"].median()
    placements = [
        (*map(parse_cpu_list, nodes), value)
        for nodes, value in medians.items()
        if not interleaved or len(parse_cpu_list(nodes[1])) > 1
    ]
    expected = [
        expected_bandwidth(found, workers, uniform_shares(targets))
        for workers, targets, _ in placements
    ]
    ranks = stats.spearmanr(expected, [value for _, _, value in placements])
    assert (len(placements), ranks.statistic) == (n, pytest.approx(correlation, abs=0.005))
