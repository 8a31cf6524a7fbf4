"""What a run with a budget does first: earlier rounds, as far as they fit into the budget."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.rounds.resumed_rounds import RecordState, replicates_of_rounds, resume_rounds
from chaosity.rounds.round_types import OVERHEAD_SECONDS, ROUND_SECONDS, Budget, Round
from chaosity.topology.topology_model import Topology

GOOD, FAILED, OUTDATED = (
    RecordState(2.0, True, False),
    RecordState(2.0, False, False),
    RecordState(2.0, True, True),
)
NAMES = "abcd"
KEYS = {name: ("experiment", name) for name in NAMES}
EACH = 2.0 + OVERHEAD_SECONDS


def point(name: str) -> Any:
    """A point with one load of memory, of the same priority as the others."""
    load = {
        "initiator": {"nodes": [0], "kind": "node"},
        "target": {"nodes": [0, 1], "kind": "nodes", "drives": []},
        "metrics": {},
        "placement": {"cpus": [0, 1]},
        "command": [name],
        "files": {},
        "environment": {},
    }
    return {"experiment": "experiment", "point": name, "loads": [load], "estimated_seconds": 2.0}


POINTS = [point(name) for name in NAMES]


def resumed(budget: float | None, rounds: list[Round], states: dict[str, RecordState]) -> Any:
    """The rounds that are left; `states` has the records by name and number, such as a1."""
    known = {(KEYS[name[0]], int(name[1:])): state for name, state in states.items()}
    return resume_rounds(POINTS, Topology(), Budget(budget), rounds, known)


def of(*words: str, earlier: bool = False) -> list[Round]:
    """Rounds of single letters, each the name of a point."""
    return [Round("", tuple(KEYS[name] for name in word), earlier=earlier) for word in words]


def test_complete_rounds_stay_and_nothing_is_measured_first():
    rounds = of("ab", "a")
    found = resumed(1.0, rounds, {"a1": GOOD, "b1": GOOD, "a2": GOOD})
    assert (found.rounds, found.lacking_measurements, found.first_measurements_text) == (
        rounds,
        [],
        None,
    )


def test_what_is_missing_failed_or_outdated_is_measured_again_in_its_round():
    rounds = of("abc", "a")
    states = {"a1": GOOD, "b1": FAILED, "c1": OUTDATED}
    found = resumed(ROUND_SECONDS * 2 + 4.5 * EACH, rounds, states)
    assert found.rounds == rounds
    assert {(key[1], number) for key, number in found.lacking_measurements} == {
        ("b", 1),
        ("c", 1),
        ("a", 2),
    }
    assert found.outdated_count == 1
    assert "first 3 measurements of earlier rounds" in found.first_measurements_text
    assert "1 older than a change" in found.first_measurements_text
    assert "2 missing or failed" in found.first_measurements_text


def test_an_upgrade_asks_for_no_more_than_the_budget_allows():
    states = dict.fromkeys(("a1", "b1", "c1", "a2"), OUTDATED)
    found = resumed(ROUND_SECONDS * 2 + 2.5 * EACH, of("abc", "a"), states)
    assert found.rounds == of("ab")
    assert found.left_out_count == 2
    assert "leaves out 2 measurements" in found.note_on_left_out
    assert resumed(None, of("abc", "a"), states).rounds == of("abc", "a")


def test_records_that_were_there_before_the_first_round_are_chosen_anew():
    found = resumed(1000.0, of("ab", earlier=True) + of("c"), {"a1": OUTDATED, "b1": GOOD})
    assert found.rounds == [*of("b", earlier=True), *of("c")]


@settings(max_examples=40)
@given(
    rounds=st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=4),
    drawn=st.dictionaries(
        st.tuples(st.sampled_from(NAMES), st.integers(1, 4)),
        st.sampled_from([GOOD, FAILED, OUTDATED]),
    ),
    budget=st.floats(1.0, 60.0),
)
def test_the_time_of_what_is_measured_first_fits_beside_what_counts(rounds, drawn, budget):
    listed = of(*("".join(sorted(each)) for each in rounds))
    states = {f"{name}{number}": state for (name, number), state in drawn.items()}
    found = resumed(budget, listed, states)
    kept = [replicate for _, replicate in replicates_of_rounds(found.rounds)]
    assert set(kept) <= {replicate for _, replicate in replicates_of_rounds(listed)}
    assert set(found.lacking_measurements) <= set(kept)
    known = {(KEYS[name], number): state for (name, number), state in drawn.items()}
    done = [each for each in kept if known.get(each, FAILED).counts]
    assert sorted([*done, *found.lacking_measurements]) == sorted(kept)
    if found.lacking_measurements:
        used = ROUND_SECONDS * len(found.rounds) + EACH * len(kept)
        assert used <= budget + 1e-9
