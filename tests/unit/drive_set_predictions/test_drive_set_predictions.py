"""Bounds and predictions of drive sets that were not measured."""

from __future__ import annotations

from functools import partial
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.cpusets import parse_cpu_list
from chaosity.drive_set_predictions import (
    NoisyValue,
    audit_predictions,
    bound_drive_set,
    drive_set_models,
    find_contradicted_drive_sets,
    lowest_sum_of_cover,
    predict_drive_sets,
    values_raised_to_best_subset,
)
from chaosity.store.measurements import PREDICTION_COLUMNS
from machines import is_small_drive_set, leave_out, planned, refusal_by_chaosity

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


@pytest.fixture(scope="module")
def server():
    """The server of the paper; with much memory bandwidth, so that paths limit its drives."""
    host = planned("epyc_7413_nps4", faults=None, experiments=["storage_bandwidth"], replicates=3)
    host = host.where(lambda point: point["loads"][0]["initiator"]["nodes"][0] in (4, 5))
    return host.with_memory(4.0)


@pytest.fixture(scope="module")
def sparse(server):
    of_node5 = server.where(lambda point: point["loads"][0]["initiator"]["nodes"] == [5])
    return leave_out(of_node5, 1, is_small_drive_set)


@pytest.fixture(scope="module")
def predictions(sparse):
    return predict_drive_sets(drive_set_models(*sparse))


def with_values(sparse, factors):
    """The same tables with the values of some points multiplied."""
    measured, unmeasured = sparse
    values = measured.rows["value"] * measured.rows["point"].map(factors).fillna(1.0)
    return measured.with_columns(value=values), unmeasured


def true_values(server, predictions):
    truth = server.true_table.rows.drop_duplicates("point").set_index("point")["value"]
    return predictions["point"].map(truth).astype(float)


def errors(server, predictions):
    """Predicted : true bandwidth - 1."""
    return predictions["value"].astype(float) / true_values(server, predictions) - 1.0


def within(server, predictions):
    """The share of predictions of which the interval holds the truth."""
    assert list(predictions) == list(PREDICTION_COLUMNS)
    held = true_values(server, predictions).between(predictions["low"], predictions["high"])
    return held.mean()


def test_each_unmeasured_set_is_predicted_with_a_small_error(server, sparse, predictions):
    assert set(predictions["point"]) == set(sparse[1].rows["point"])
    assert not predictions["point"].duplicated().any()
    off = errors(server, predictions).abs()
    assert off.median() < 0.01
    assert off.max() < 0.05
    assert within(server, predictions) >= 0.95


def test_predictions_say_what_they_are(predictions):
    assert set(predictions["origin"]) == {"predicted"}
    assert predictions["method"].eq("limits of measured drive sets").all()
    assert not {"replicate", "order", "measured_at", "status", "reason"} & set(predictions)
    ordered = predictions[["low", "value", "high"]].astype(float).diff(axis=1).iloc[:, 1:]
    assert (ordered >= 0).all(axis=None)
    assert (predictions["lower_bound"] <= predictions["upper_bound"]).all()


def test_intervals_are_no_narrower_than_the_noise(predictions):
    half = (predictions["high"] - predictions["low"]) / predictions["value"] / 2
    assert half.median() > 0.003


def test_pairs_of_other_initiators_of_a_package_are_predicted_by_analogy(server):
    predictions = predict_drive_sets(
        drive_set_models(*leave_out(server, 2, partial(is_small_drive_set, few=True)))
    )
    slow = predictions[predictions["target"].eq("nodes0,3drives")]
    assert len(slow) == 1
    assert errors(server, slow).abs().max() < 0.03
    assert within(server, predictions) >= 0.95


def test_the_audit_counts_the_sets_that_were_drawn(sparse):
    audit = audit_predictions(drive_set_models(*sparse))
    assert 55 <= audit.sets <= 60
    assert audit.within >= 0.9 * audit.sets
    assert audit.median_error < 0.01
    assert audit.median_error <= audit.error_of_95_percent


def test_a_wrong_model_fails_its_own_audit_and_widens_the_intervals(sparse, predictions):
    drawn = np.random.default_rng(1)
    large = sparse[0].rows.query("target_kind == 'all_of_nodes'")["point"].unique()
    wild = with_values(sparse, {name: drawn.uniform(0.5, 1.0) for name in large})
    audit = audit_predictions(drive_set_models(*wild))
    assert audit.error_of_95_percent > 0.05
    wider = predict_drive_sets(drive_set_models(wild[0], wild[1].rows[:300]))
    half, before = ((each["high"] / each["low"]).median() for each in (wider, predictions))
    assert half - 1 > 2 * (before - 1)


def test_a_pair_that_shares_a_path_surprises_and_names_its_neighbours(sparse):
    surprises = find_contradicted_drive_sets(drive_set_models(*sparse))
    pairs = {each.point: each for each in surprises if "nodes" in each.point}
    [slow] = pairs.values()
    assert slow.point == "storage=node5+nodes0,3drives"
    assert slow.experiment == "storage_bandwidth"
    assert slow.ratio == pytest.approx(0.56, abs=0.02)  # 26 GB/s instead of twice 23
    others = sparse[1].rows
    nodes = dict(zip(others["point"], map(parse_cpu_list, others["target_nodes"]), strict=True))
    assert set(slow.neighbours) == {name for name, own in nodes.items() if {0, 3} <= set(own)}
    assert len(nodes[slow.neighbours[0]]) == 3
    # Nothing else surprises.
    rows = sparse[0].rows.drop_duplicates("point").set_index("point")
    for each in surprises:
        assert {0, 3} <= set(parse_cpu_list(rows.loc[each.point, "target_nodes"]))


@pytest.mark.parametrize(
    "factor, reason", [(0.5, "less than a part"), (1.5, "more than its parts")]
)
def test_a_set_outside_its_bounds_surprises(sparse, factor, reason):
    name = "storage=node5+nodes0-1drives"
    before = {each.point for each in find_contradicted_drive_sets(drive_set_models(*sparse))}
    assert name not in before
    changed = with_values(sparse, {name: factor})
    [found] = [
        each
        for each in find_contradicted_drive_sets(drive_set_models(*changed))
        if each.point == name
    ]
    assert found.reason.startswith(reason)
    assert found.neighbours


def test_what_lacks_its_parts_or_its_larger_sets_is_not_predicted(sparse):
    measured, unmeasured = sparse[0].rows, sparse[1].rows
    assert predict_drive_sets(drive_set_models(measured, unmeasured[:0])).empty
    assert audit_predictions(drive_set_models(measured, unmeasured[:0])).sets == 0
    assert predict_drive_sets(drive_set_models(measured[:0], unmeasured)).empty
    # Without any set of several drives, its own path can limit a set to a third of its parts.
    assert predict_drive_sets(
        drive_set_models(measured[measured["target_kind"] == "drive"], unmeasured)
    ).empty
    whole = measured[measured["target_kind"].isin(["all_of_node", "all"])]
    drives = measured.query("target_kind == 'drive'").assign(status="missing")
    assert predict_drive_sets(drive_set_models(whole, drives)).empty
    has_node_2 = np.array([2 in parse_cpu_list(nodes) for nodes in measured["target_nodes"]])
    predicted = predict_drive_sets(drive_set_models(measured[~has_node_2], unmeasured[:300]))
    assert len(predicted) > 20
    assert not any(2 in parse_cpu_list(nodes) for nodes in predicted["target_nodes"])


def test_a_folder_without_measurements_is_refused(tmp_path):
    (tmp_path / "points").mkdir()
    assert "measurements.parquet is missing" in refusal_by_chaosity("predict", tmp_path)
