"""Metrics by node: from samples to values, checks and rows of the table."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.records.record_types import VALID
from chaosity.runner import metric_values, progress_rates, record_checks
from chaosity.runner.point_measurement import measure_point
from chaosity.runner.tool_output import ExtractionError
from chaosity.store.tidy_table_from_records import ReplicateOutcome, tidy_rows_of_outcome

SPEC = {
    "event": "sample",
    "begin": "begin_ns",
    "end": "end_ns",
    "amount": "bytes",
    "time_scale": 1e-9,
}
SOURCE = {
    "progress": True,
    "at_most": None,
    "by_node": {"amount": "bytes_by_node", "time": "ns_by_node"},
}
METRIC = "path_bandwidth_bytes_per_second"


def lines(*samples):
    """Output of a load: begin and end in seconds, and bytes and nanoseconds of nodes."""
    found = [
        {
            "event": "sample",
            "begin_ns": begin * 10**9,
            "end_ns": end * 10**9,
            "bytes": sum(moved.values()),
            "bytes_by_node": moved,
            "ns_by_node": spent,
        }
        for begin, end, moved, spent in samples
    ]
    return "".join(json.dumps(line) + "\n" for line in [{"event": "ready"}, *found])


TEXT = lines(
    (0, 1, {"0": 100, "3": 10}, {"0": 5 * 10**8, "3": 5 * 10**8}),
    (1, 2, {"0": 300, "3": 30}, {"0": 5 * 10**8, "3": 15 * 10**8}),
)


def test_a_node_rate_is_the_rate_of_a_thread_times_the_threads():
    found = progress_rates.rates_if_all_threads_used_one_node(
        SPEC, SOURCE, TEXT, 0.0, 2.0, [0, 3], 4
    )
    assert found == pytest.approx({"0": 400 / 1.0 * 4, "3": 40 / 2.0 * 4})


def test_samples_at_the_edges_of_the_window_count_in_part():
    found = progress_rates.rates_if_all_threads_used_one_node(
        SPEC, SOURCE, TEXT, 0.5, 1.0, [0, 3], 1
    )
    assert found == pytest.approx({"0": 100 / 0.5, "3": 10 / 0.5})
    found = progress_rates.rates_if_all_threads_used_one_node(SPEC, SOURCE, TEXT, 0.5, 1.5, [0], 1)
    assert found == pytest.approx({"0": 200 / 0.5})


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8), st.integers(1, 64))
def test_a_steady_node_rate_does_not_depend_on_the_samples(times, threads):
    """Every node moves 3 bytes a nanosecond while a thread is at it."""
    samples = [(i, i + 1, {"2": 3 * time}, {"2": time}) for i, time in enumerate(times)]
    found = progress_rates.rates_if_all_threads_used_one_node(
        SPEC, SOURCE, lines(*samples), 0.0, len(times) - 0.3, [2], threads
    )
    assert found["2"] == pytest.approx(3e9 * threads)


@pytest.mark.parametrize(
    ("text", "nodes", "message"),
    [
        (TEXT, [0, 1], "node 1 was not accessed within the common window"),
        (lines((5, 6, {"0": 1}, {"0": 1})), [0], "node 0 was not accessed"),
        (TEXT.replace("ns_by_node", "times"), [0], "no bytes_by_node or no ns_by_node"),
    ],
)
def test_samples_with_missing_keys_are_an_error(text, nodes, message):
    with pytest.raises(ExtractionError, match=message):
        progress_rates.rates_if_all_threads_used_one_node(SPEC, SOURCE, text, 0.0, 2.0, nodes, 1)


@pytest.fixture
def point(make_point):
    """A load on node 0 that reads from nodes 0 and 3."""
    place = {
        "0": {"relation": "same_node", "distance": 10},
        "3": {"relation": "other_package", "distance": 32},
    }
    target = {
        "name": "nodes0,3",
        "kind": "nodes",
        "nodes": [0, 3],
        "drives": [],
        "relation": "other_package",
        "distance": 32,
        "by_node": place,
    }
    total = {"progress": True, "at_most": None}
    metrics = {METRIC: SOURCE, "bandwidth_bytes_per_second": total}
    return make_point(metrics=metrics, target=target, progress=SPEC)


def record(point):
    [load] = point["loads"]
    return {
        "environment_before": {"realtime_minus_monotonic_seconds": 0.0},
        "loads": [{**load, "outputs": {"stdout": TEXT}}],
    }


def test_a_record_has_a_value_for_each_node(point):
    read = metric_values.metric_values_or_reasons(record(point))["memory"]
    assert read[METRIC][0] == pytest.approx({"0": 400.0, "3": 20.0})
    assert read["bandwidth_bytes_per_second"][0] == pytest.approx(440 / 2)
    checks = record_checks.check_metric_bounds(point["loads"][0], read)
    assert [c["name"] for c in checks] == [
        f"memory: {METRIC} of node 0",
        f"memory: {METRIC} of node 3",
        "memory: bandwidth_bytes_per_second",
    ]
    assert all(c["passed"] for c in checks)


def test_each_node_is_checked_against_the_bound(point):
    [load] = point["loads"]
    load["metrics"] = {METRIC: {**SOURCE, "at_most": 100.0}}
    checks = record_checks.check_metric_bounds(load, {METRIC: ({"0": 400.0, "3": 20.0}, None)})
    assert [c["passed"] for c in checks] == [False, True]
    for impossible in (0.0, -1.0, float("nan"), float("inf")):
        checks = record_checks.check_metric_bounds(load, {METRIC: ({"0": impossible}, None)})
        assert not checks[0]["passed"]


@pytest.mark.parametrize("status", ["valid", "failed", "missing"])
def test_the_tidy_table_has_a_row_for_each_node(point, status):
    total = {"bandwidth_bytes_per_second": (220.0, None)}
    found = {"memory": {METRIC: ({"0": 400.0, "3": 20.0}, None), **total}}
    outcome = ReplicateOutcome(status, readings=found if status == "valid" else {})
    rows = list(tidy_rows_of_outcome(point, 1, outcome))
    assert [(row["metric"], row["target"]) for row in rows] == [
        (METRIC, "node0"),
        (METRIC, "node3"),
        ("bandwidth_bytes_per_second", "nodes0,3"),
    ]
    [near, far, whole] = rows
    columns = ("target_kind", "target_nodes", "relation", "distance")
    assert [near[name] for name in columns] == ["node", "0", "same_node", 10]
    assert [far[name] for name in columns] == ["node", "3", "other_package", 32]
    assert [whole[name] for name in columns] == ["nodes", "0,3", "other_package", 32]
    wanted = [400.0, 20.0, 220.0] if status == "valid" else [None] * 3
    assert [row["value"] for row in rows] == wanted


# Its one thread is at node 0 all the time and moves 2 bytes a nanosecond.
PROGRAM = """
import json, signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
keep = b"x" * (40 << 20)
print(json.dumps({"event": "ready"}), flush=True)
sys.stdin.readline()
while not stop:
    begin = time.monotonic_ns(); time.sleep(0.005); end = time.monotonic_ns()
    size = 2 * (end - begin)
    print(json.dumps({"event": "sample", "begin_ns": begin, "end_ns": end, "bytes": size,
                      "bytes_by_node": {"0": size}, "ns_by_node": {"0": end - begin}}), flush=True)
print(json.dumps({"event": "done", "valid": True}), flush=True)
"""


@pytest.mark.alone
def test_real_loads_have_values_by_node(make_point):
    given = make_point(metrics={METRIC: SOURCE}, command=[sys.executable, "-c", PROGRAM])
    one = given["loads"][0]
    given["loads"] = [{**one, "name": f"memory{number}"} for number in range(2)]
    record = measure_point(given, 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    for found in metric_values.metric_values_or_reasons(record).values():
        assert found[METRIC][0] == pytest.approx({"0": 2e9})
