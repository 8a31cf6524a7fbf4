"""The rounds of a run with a budget: what they complete and measure, and when they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.design.host_plan import HostPlan, PlannedHost, plan_host
from chaosity.documents.config import check_config, read_config
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError
from chaosity.records.record_format import PointKey, point_key
from chaosity.rounds.budget import (
    OVERHEAD_SECONDS_OF_MEASUREMENT,
    OVERHEAD_SECONDS_OF_ROUND,
    Budget,
    Priority,
    Round,
    budget_of_config,
    kind_of_contention,
    least_budget_seconds,
    must_choose_rounds,
    point_priorities,
    read_round_choices,
    replicate_counts,
)
from chaosity.rounds.machine_so_far import MachineSoFar
from chaosity.rounds.next_round import (
    BUDGET_SHARE_OF_FIRST_ROUND,
    RecordState,
    next_round,
    replicates_of_rounds,
    resume_rounds,
)
from chaosity.topology.topology_model import Topology, configuration_name
from machines import SimulatedHost, planned, shipped_topology
from simulated_rounds import simulate_rounds

SECONDS = 400.0
FEW = ("memory_bandwidth", "latency_matrix", "storage_bandwidth")


def server(
    faults: Sequence[dict[str, object]] = (), experiments: Sequence[str] = FEW
) -> SimulatedHost:
    """A small server, with few experiments."""
    return planned("two_packages", None, faults, all_points=True, experiments=list(experiments))


def plan_of(topology_name: str, *experiments: str) -> HostPlan:
    """The plan of a shipped topology."""
    topology = shipped_topology(topology_name)
    config = {**read_config(), "experiments": [*experiments]}
    return plan_host(PlannedHost("host", configuration_name(topology), topology), config)


@pytest.fixture(scope="module")
def host() -> SimulatedHost:
    return server()


@pytest.fixture(scope="module")
def rounds(host: SimulatedHost) -> list[MachineSoFar]:
    return list(simulate_rounds(host, Budget(SECONDS)))


def keys_of(host: SimulatedHost, *priorities: Priority) -> set[PointKey]:
    """The points of some priorities."""
    found = point_priorities(host.points, host.topology)
    return {key for key, priority in found.items() if priority in priorities}


def test_the_first_round_measures_every_cell_of_the_node_matrices_once(host, rounds):
    first = Counter(rounds[0].rounds[0].measurements)
    assert set(first.values()) == {1}
    matrix = keys_of(host, Priority.MATRIX)
    assert matrix <= set(first)
    pairs = {(node, target) for node in range(4) for target in range(4)}
    names = {name for experiment, name in matrix if experiment == "latency_matrix"}
    assert len(names) == len(pairs)


@pytest.mark.parametrize("machine", ["epyc_7413_nps4", "epyc_9575f_nps1"])
def test_a_budget_leaves_pairs_of_cores_out_before_the_node_matrices(machine):
    plan = plan_of(machine, "core_to_core", "latency_matrix")
    topology = plan.host.topology
    priorities = point_priorities(plan.points, topology)
    counts = Counter((experiment, priority) for (experiment, _), priority in priorities.items())
    nodes, targets = len(topology.initiator_nodes), len(topology.memory_nodes)
    assert counts["latency_matrix", Priority.MATRIX] == nodes * targets
    assert counts["core_to_core", Priority.MATRIX] == 0
    of_two_nodes = counts["core_to_core", Priority.SHARED_PATHS]
    assert of_two_nodes == nodes * (nodes - 1) + 2 * (targets - 1)


def test_one_core_of_any_number_is_one_core():
    """Processing unit 84 has two digits, and it is one processing unit."""
    plan = plan_of("epyc_7413_nps4", "bandwidth_scaling")
    of_one_core = {
        point["loads"][0]["placement"]["cpus"]
        for point in plan.points
        if kind_of_contention(point, plan.host.topology) == frozenset({"one core"})
    }
    assert of_one_core == {str(node.cpus[0]) for node in plan.host.topology.initiator_nodes}


def test_what_repeats_another_point_is_measured_with_those_that_need_it():
    """An interference has references that measure what the node matrix has measured."""
    full = server(experiments=["memory_bandwidth", "interference"])
    priorities = point_priorities(full.points, full.topology)
    references = [
        point_key(point)
        for point in full.points
        if point["experiment"] == "interference" and not point["loads"][0]["target"]["drives"]
    ]
    assert references
    assert {priorities[key] for key in references} == {Priority.TOGETHER}


def test_ten_minutes_read_the_pairs_of_nodes_across_the_packages():
    """Reading the drives of two nodes together shows whether they share a path."""
    names = list(read_config()["experiments"])
    full = planned("epyc_7413", "epyc_7413_nps4", all_points=True, experiments=names)
    first = next_round(MachineSoFar(full.points, full.topology), Budget(600.0), 0)
    assert first is not None
    across = keys_of(full, Priority.SHARED_LINKS)
    assert len(across) == 2 * 6
    assert across <= set(first.measurements)


def test_whole_packages_are_measured_with_the_node_matrices():
    """No other point fills the links between packages, and there are few of them."""
    packages = server(experiments=["package_bandwidth"])
    assert len(keys_of(packages, Priority.MATRIX)) == len(packages.points) == 10


def test_twenty_minutes_measure_the_pairs_of_nodes_of_the_complete_plan():
    """Only pairs show the paths that nodes share, and caches and cores would take the time."""
    full = server(experiments=read_config()["experiments"])
    first = next_round(MachineSoFar(full.points, full.topology), Budget(SECONDS), 0)
    assert first is not None
    early = keys_of(full, Priority.DRIVES, Priority.SHARED_PATHS)
    assert early and early <= set(first.measurements)
    # A few cores alone and loads of each kind of contention tell what shared resources give.
    kinds = {point_key(p): kind_of_contention(p, full.topology) for p in full.points}
    of_one_core = [p for p in full.points if kinds[point_key(p)] == frozenset({"one core"})]
    assert all("latency_ns" not in p["loads"][0]["metrics"] for p in of_one_core)
    planned = {kind for kind in kinds.values() if kind is not None}
    measured = Counter(kinds[key] for key in first.measurements)
    assert len(planned) == 8
    assert all(measured[kind] >= 2 for kind in planned)


def test_rounds_end_within_the_budget_and_use_most_of_it(rounds):
    text = (ROOT / "docs/explanation/budget.md").read_text()
    assert (
        f"The first round uses up to {100 * BUDGET_SHARE_OF_FIRST_ROUND:.0f} % of the budget."
        in text
    )
    assert (
        rounds[0].spent_seconds <= BUDGET_SHARE_OF_FIRST_ROUND * SECONDS + OVERHEAD_SECONDS_OF_ROUND
    )
    assert 0.9 * SECONDS <= rounds[-1].spent_seconds <= SECONDS


def test_the_same_records_lead_to_the_same_rounds(host, rounds):
    again = list(islice(simulate_rounds(host, Budget(SECONDS)), 2))
    assert [each.rounds for each in again] == [each.rounds for each in rounds[:2]]
    other = next(simulate_rounds(host, Budget(SECONDS), seed=1))
    assert other.rounds[0].measurements != rounds[0].rounds[0].measurements


def test_the_second_round_audits_random_sets_that_no_round_needed(host, rounds):
    second = rounds[1].rounds[1]
    assert second.audit
    assert set(second.audit) <= keys_of(host, Priority.PREDICTED)
    assert not set(second.audit) & set(rounds[0].rounds[0].measurements)


def test_what_departs_is_measured_again_and_found():
    faulty = server([{"fault": "slow_node", "node": 3, "remaining": 0.6}])
    [*_, last] = simulate_rounds(faulty, Budget(SECONDS))
    assert last.findings is not None
    assert any("node3" in anomaly.components for anomaly in last.findings.anomalies)
    counts = replicate_counts(last.rounds)
    slow = [counts["memory_bandwidth", f"memory=node{node}+node3+triad"] for node in (0, 1, 2)]
    assert slow == [3, 3, 3]
    assert max(counts.values()) <= 3


def test_what_was_disturbed_is_measured_again_first(host):
    [first, *_] = simulate_rounds(host, Budget(SECONDS))
    rows = first.measured.rows
    some = [key for key in first.rounds[0].measurements if key[0] == "latency_matrix"][:2]
    keys = pd.MultiIndex.from_frame(rows[["experiment", "point"]])
    remarks = rows["remarks"].where(~keys.isin(some), "disturbed by other programs")
    disturbed = replace(first, measured=first.measured.with_columns(remarks=remarks))
    second = next_round(disturbed, Budget(SECONDS), 0)
    assert second is not None and set(some) <= set(second.measurements)
    assert second.reason.startswith("2 measurements of what was disturbed")


def test_records_of_earlier_runs_cost_no_time_and_a_complete_plan_needs_no_round(host):
    keys = tuple(sorted(keys_of(host, Priority.MATRIX)))
    so_far = MachineSoFar(
        host.points,
        host.topology,
        host.component_facts,
        [Round("records of earlier runs", keys, earlier=True)],
        record_seconds={key: [5.0] for key in keys},
    )
    assert so_far.spent_seconds == 0.0
    first = next_round(so_far, Budget(SECONDS), seed=0)
    assert first is not None
    assert not set(keys) & set(first.measurements)
    every = [point_key(point) for point in host.points for _ in point["orders"]]
    seconds = {key: [0.0] * count for key, count in Counter(every).items()}
    complete = replace(so_far, rounds=[Round("all", tuple(every))], record_seconds=seconds)
    assert next_round(complete, Budget(SECONDS), seed=0) is None


def test_a_target_precision_repeats_only_wide_intervals():
    noisy = {"noise": {"between_runs": 0.01, "within_runs": 0.0}}
    names = ["memory_bandwidth", "latency_matrix"]
    host = planned("fleet", change=noisy, all_points=True, experiments=names)
    few, many = (
        [*simulate_rounds(host, Budget(precision=precision))][-1] for precision in (0.05, 0.012)
    )
    assert sum(replicate_counts(few.rounds).values()) < sum(replicate_counts(many.rounds).values())
    assert max(replicate_counts(many.rounds).values()) > 3


def test_references_of_ratios_come_with_their_points():
    host = planned("two_packages", all_points=True, experiments=["page_placement"], levels={})
    points = {point_key(point): point for point in host.points}
    related = [point for point in host.points if any("to" in m for m in point.get("relative", []))]
    assert related
    for so_far in simulate_rounds(host, Budget(400.0)):
        counts = replicate_counts(so_far.rounds)
        for key, count in counts.items():
            for metric in points[key].get("relative", []):
                if "to" in metric:
                    assert counts[key[0], metric["to"]["point"]] >= count, (key, metric)


def test_the_least_budget_measures_the_matrices(host):
    least = least_budget_seconds(host.points, host.topology)
    first = next(simulate_rounds(host, Budget(least * 1.1)))
    assert keys_of(host, Priority.MATRIX) <= set(first.rounds[0].measurements)


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", '{"rounds": [], "is_last', '{"rounds": [{"reason": "x"}]}',
             '{"is_last": true, "rounds": [{"reason": "x", "measurements": [["a"]]}]}',
             "[" * 100_000]
)  # fmt: skip
def test_a_file_without_rounds_is_an_error(tmp_path, text):
    (tmp_path / "rounds").mkdir()
    (tmp_path / "rounds/1.json").write_text(text)
    with pytest.raises(UserError, match="the file has no rounds"):
        read_round_choices(tmp_path)


# The budget that a config gives a host.


@pytest.mark.parametrize(
    ("topology", "nodes_take_longer"), [("epyc_7413_nps4", False), ("sixteen_nodes", True)]
)
def test_auto_is_half_an_hour_or_what_the_node_matrices_need(
    topology: str, nodes_take_longer: bool
):
    plan = plan_of(topology, *FEW)
    config = check_config({**read_config(), "budget": "auto"})
    least = least_budget_seconds(plan.points, plan.host.topology)
    assert (1.25 * least > 1800.0) == nodes_take_longer
    assert budget_of_config(config, plan).seconds == max(1.25 * least, 1800.0)


@pytest.mark.parametrize(("seconds", "in_rounds"), [(None, True), (1800.0, True), (1801.0, False)])
def test_a_plan_that_fits_into_the_budget_is_measured_without_rounds(
    seconds: float | None, in_rounds: bool
):
    plan = plan_of("epyc_7413_nps4", *FEW)
    times = {"used_seconds": 800.0, "missing_seconds": 1000.5, "is_new": True}
    assert must_choose_rounds(plan, Budget(seconds), **times) is in_rounds


# All faults of the paper's server are found within an hour, whatever is measured by chance.


FAULTS = ({"package0->package1"}, {"node0", "node3"}, {"node4", "node7"})


@pytest.mark.thorough
def test_what_the_rounds_measure_most_does_not_become_the_norm():
    """A run measures again, and from all initiators, what departs.

    With this seed, most values of comparable pairs are those of the slow pairs.
    """
    host = planned("epyc_7413_nps4", faults=None, all_points=True)
    [*_, last] = simulate_rounds(host, Budget(3600.0), seed=9)
    assert last.findings is not None
    named = [set(each.components) for each in last.findings.anomalies]
    assert all(fault in named for fault in FAULTS), named
    assert len(named) == len(FAULTS)


GOOD, FAILED, OUTDATED = (
    RecordState(2.0, True, False),
    RecordState(2.0, False, False),
    RecordState(2.0, True, True),
)
NAMES = "abcd"
KEYS = {name: ("experiment", name) for name in NAMES}
EACH = 2.0 + OVERHEAD_SECONDS_OF_MEASUREMENT


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
    found = resumed(OVERHEAD_SECONDS_OF_ROUND * 2 + 4.5 * EACH, rounds, states)
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
    found = resumed(OVERHEAD_SECONDS_OF_ROUND * 2 + 2.9 * EACH, of("abc", "a"), states)
    assert found.rounds == of("ab")
    assert found.left_out_count == 2
    assert "leaves out 2 measurements" in found.note_on_left_out
    assert resumed(None, of("abc", "a"), states).rounds == of("abc", "a")


def test_records_that_were_there_before_the_first_round_are_chosen_anew():
    rounds, states = of("ab", earlier=True) + of("c"), {"a1": OUTDATED, "b1": GOOD}
    for seconds_left, later in ((0.9 * EACH, []), (1.1 * EACH, of("c"))):
        found = resumed(OVERHEAD_SECONDS_OF_ROUND + seconds_left, rounds, states)
        assert found.rounds == [*of("b", earlier=True), *later]


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
    done = [each for each in kept if known.get(each, FAILED).is_usable]
    assert sorted([*done, *found.lacking_measurements]) == sorted(kept)
    if found.lacking_measurements:
        used = OVERHEAD_SECONDS_OF_ROUND * len(found.rounds) + EACH * len(kept)
        assert used <= budget + 1e-9
