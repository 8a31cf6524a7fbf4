"""Bounds of drive sets hold for every machine whose paths limit the sum of their drives."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.prediction.drive_set_bounds import (
    NoisyValue,
    bound_drive_set,
    lowest_sum_of_cover,
    values_raised_to_best_subset,
)

NODE_OF = {f"{node}{drive}": node for node in range(4) for drive in "ab"}
DRIVES = sorted(NODE_OF)
rates = st.integers(1, 20)


def exact(value: float) -> NoisyValue:
    return NoisyValue(float(value), 0.0)


def sets_of(elements, least=1):
    return st.frozensets(st.sampled_from(elements), min_size=least)


@st.composite
def machines(draw):
    """A function: what a machine with random limits of drives, nodes, packages and all gives."""
    drive = {name: draw(rates) for name in DRIVES}
    node, package = [draw(rates) for _ in range(4)], [draw(rates) for _ in range(2)]
    everything = draw(rates)

    def gives(drives):
        of_node = [min(node[n], sum(drive[d] for d in drives if NODE_OF[d] == n)) for n in range(4)]
        return min(
            everything, sum(min(package[p], sum(of_node[2 * p : 2 * p + 2])) for p in (0, 1))
        )

    return gives


@given(machines(), st.sets(sets_of(DRIVES, 2), max_size=8), sets_of(DRIVES, 2))
def test_the_truth_lies_within_the_bounds(gives, chosen, wanted):
    known = {frozenset({name}) for name in DRIVES} | chosen
    measured = {drives: exact(gives(drives)) for drives in known}
    bounds = bound_drive_set(wanted, measured, NODE_OF, values_raised_to_best_subset(measured))
    truth = gives(wanted) * (1 + 1e-12)
    assert bounds.upper.value * (1 + 1e-12) >= gives(wanted)
    assert bounds.lower is None or bounds.lower.value <= truth
    lower = bounds.lower.value if bounds.lower else 0.0
    assert lower * (1 - 1e-12) <= bounds.expected.value <= bounds.upper.value * (1 + 1e-12)


@given(
    machines(),
    st.sets(sets_of(DRIVES, 2), max_size=6),
    st.sets(sets_of(DRIVES, 2), max_size=3),
    sets_of(DRIVES, 2),
)
def test_more_measured_sets_never_widen_the_bounds(gives, few, more, wanted):
    single = {frozenset({name}) for name in DRIVES}
    ends = []
    for known in (single | few, single | few | more):
        measured = {drives: exact(gives(drives)) for drives in known}
        bounds = bound_drive_set(wanted, measured, NODE_OF, {})
        ends.append((bounds.lower.value if bounds.lower else 0.0, bounds.upper.value))
    assert ends[1][0] >= ends[0][0]
    assert ends[1][1] <= ends[0][1] * (1 + 1e-12)


@given(machines(), sets_of(DRIVES, 2), sets_of(DRIVES, 2))
def test_bounds_are_monotone_and_a_union_has_at_most_the_sum(gives, one, other):
    singles = {frozenset({name}): exact(gives(frozenset({name}))) for name in DRIVES}

    def upper(drives):
        return bound_drive_set(drives, singles, NODE_OF, {}).upper.value

    union = upper(one | other)
    assert max(upper(one), upper(other)) <= union * (1 + 1e-12)
    assert union <= (upper(one) + upper(other)) * (1 + 1e-12)


@given(st.dictionaries(sets_of("abcd"), rates, min_size=1, max_size=7), sets_of("abcd"))
def test_lowest_cover_is_that_of_all_combinations(family, wanted):
    covers = [
        sum(family[part] for part in parts)
        for parts in chain.from_iterable(combinations(family, n) for n in range(1, len(family) + 1))
        if wanted <= frozenset().union(*parts)
    ]
    found = lowest_sum_of_cover(wanted, {own: exact(value) for own, value in family.items()})
    assert (found.value if found else None) == (min(covers) if covers else None)


def test_bounds_of_named_sets():
    measured = {
        frozenset(own): exact(value)
        for own, value in {
            ("0a",): 7, ("0b",): 7, ("1a",): 7, ("1b",): 7, ("2a",): 7,
            ("0a", "0b"): 13, ("0a", "0b", "1a", "1b"): 20,
        }.items()
    }  # fmt: skip
    own = frozenset({"0a", "0b", "2a"})
    bounds = bound_drive_set(own, measured, NODE_OF, {})
    assert (bounds.lower.value, bounds.upper.value) == (13, 20)
    within = bound_drive_set(frozenset({"0a", "0b", "1a"}), measured, NODE_OF, {})
    assert within.upper.value == 20
    unknown = bound_drive_set(frozenset({"0a", "3a"}), measured, NODE_OF, {})
    assert (unknown.lower.value, unknown.upper, unknown.expected) == (7, None, None)


def test_a_disturbed_large_set_limits_no_smaller_set_to_less_than_was_measured():
    values = {("0a",): 7, ("1a",): 7, ("0a", "1a"): 14, ("0a", "1a", "2a", "3a"): 9}
    measured = {frozenset(own): NoisyValue(value, 0.01) for own, value in values.items()}
    raised = values_raised_to_best_subset(measured)
    assert raised == {frozenset({"0a", "1a", "2a", "3a"}): measured[frozenset({"0a", "1a"})]}
    bounds = bound_drive_set(frozenset({"0a", "1a", "2a"}), measured, NODE_OF, raised)
    assert bounds.upper.value == pytest.approx(14)


def test_errors_of_a_sum_are_independent():
    total = NoisyValue.total([NoisyValue(30.0, 0.01), NoisyValue(40.0, 0.01)])
    assert total == pytest.approx((70.0, 0.5 / 70.0))
