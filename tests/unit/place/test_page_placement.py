"""Shares: read, refused, as whole numbers, moved, and which pages have to go where for them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chaosity.errors import UserError
from chaosity.place.page_migration import plan_block_moves
from chaosity.place.page_placement import (
    apportion_whole_numbers,
    attainable_amounts,
    format_shares,
    integer_weights,
    largest_share_deviation,
    parse_shares,
    uniform_shares,
)

PARTS = st.dictionaries(st.integers(0, 70), st.floats(0.01, 1.0), min_size=1, max_size=8)


def normal(parts: dict[int, float]) -> dict[int, float]:
    total = sum(parts.values())
    return {node: part / total for node, part in parts.items()}


@given(PARTS)
def test_formatted_shares_parse_to_the_same_shares(parts):
    shares = normal(parts)
    assert parse_shares(format_shares(shares)) == pytest.approx(shares, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:0.5,1:0.4", ["add up to 0.9", "--shares"]),
        ("0:0.5,1:0.6", ["add up to 1.1"]),
        ("0:0.5,0:0.5", ["node 0 occurs twice"]),
        ("0:-1,1:2", ["'0:-1' is not a share"]),
        ("0:nan,1:1", ["not a share"]),
        ("0=1", ["'0=1' is not a share", "0:0.25,1:0.75"]),
        ("0:1.2.3", ["not a share"]),
        ("", ["not a share"]),
    ],
)
def test_other_texts_are_refused(text, words):
    with pytest.raises(UserError) as caught:
        parse_shares(text)
    assert all(word in str(caught.value) for word in words)


def test_a_sum_within_a_hundredth_is_scaled_to_1():
    assert parse_shares("0:0.33,1:0.33,2:0.33") == pytest.approx(uniform_shares(range(3)))


@given(PARTS)
def test_integer_weights_have_the_stated_error(parts):
    shares = normal(parts)
    numbers, error = integer_weights(shares)
    assert all(1 <= number <= 255 for number in numbers.values())
    total = sum(numbers.values())
    off = [abs(number / total / shares[node] - 1.0) for node, number in numbers.items()]
    assert error == pytest.approx(max(off), abs=1e-9)


@given(st.lists(st.integers(-3, 7), max_size=400), PARTS)
def test_as_few_pages_as_possible_move(where, parts):
    there = [node for node in where if node >= 0]
    goal = apportion_whole_numbers(len(there), normal(parts))
    assert sum(goal.values()) == len(there)
    plan = plan_block_moves(where, goal)
    after = list(where)
    for index, node in plan:
        assert after[index] not in (node, -1)
        assert where[index] >= 0
        after[index] = node
    counts = Counter(node for node in after if node >= 0)
    assert counts == Counter({node: n for node, n in goal.items() if n})
    now = Counter(there)
    assert len(plan) == sum(max(0, n - goal.get(node, 0)) for node, n in now.items())


@given(st.integers(50, 500), PARTS)
def test_whole_numbers_are_within_one_of_the_shares(count, parts):
    shares = normal(parts)
    for node, n in apportion_whole_numbers(
        count, {k: s * count for k, s in shares.items()}
    ).items():
        assert abs(n - shares[node] * count) < 1.0


@given(st.integers(2, 6), st.integers(200, 600))
def test_moved_pages_are_spread_over_the_whole_area(nodes, count):
    where = [0] * count
    goal = apportion_whole_numbers(count, dict.fromkeys(range(nodes), count / nodes))
    after = list(where)
    for index, node in plan_block_moves(where, goal):
        after[index] = node
    half = Counter(after[: count // 2])
    assume(count // 2 >= 20 * nodes)
    for node in range(nodes):
        assert abs(half[node] / (count // 2) - 1 / nodes) < 0.1


def test_a_deviation_counts_nodes_of_one_side_only():
    assert largest_share_deviation({0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}) == pytest.approx(0.5)
    assert largest_share_deviation({}, {}) == 0.0


@given(st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=8), st.integers(1, 100))
def test_unattainable_amounts_are_reduced_equally(owed, count):
    more = (count - sum(owed)) / len(owed)  # so that they add up to what there is
    owed = {node: value + more for node, value in enumerate(owed)}
    given = attainable_amounts(count, owed)
    assert sum(given.values()) == pytest.approx(count)
    less = max(owed[node] - given[node] for node in owed)
    assert less >= -1e-9
    for node, value in given.items():
        assert value == pytest.approx(max(0.0, owed[node] - less), abs=1e-9)
