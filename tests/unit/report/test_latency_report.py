"""Test latency in the report: text tables, numbers of curves, and the resource table."""

from __future__ import annotations

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.resource_table import resource_table
from chaosity.store.measurements import Measurements
from machines import measured_host


def machine(name="two_packages", *, experiments=("latency_matrix",), **keys):
    return measured_host(name, *experiments, **keys)


EXPERIMENTS = [load_experiment(name) for name in ("latency_matrix", "core_to_core")]


def lines(tidy):
    return {line.name: line for line in resource_table(Measurements.from_table(tidy), EXPERIMENTS)}


def test_latency_has_rows_for_own_and_other_nodes_at_the_largest_size():
    found = lines(machine().tidy())
    own = found["Memory latency, one processing unit"]
    other = found["Memory latency of other nodes, one processing unit"]
    assert own.detail == "chaosity latency, thp pages, 4 places"
    assert own.differ is False
    assert other.best.value.endswith(" ns")
    assert float(other.best.value.split()[0]) < 115.0 < float(other.worst.value.split()[0])
    assert other.share.endswith(" times")
    assert [name for name in found if "p99" in name] == []


def test_core_to_core_latency_names_both_cores_and_the_lines_home():
    found = lines(machine(experiments=["core_to_core"]).tidy())["Core-to-core latency"]
    assert "\N{LEFT RIGHT ARROW}" in found.best.where
    assert ", line on node" in found.best.where
    assert found.differ is True


def test_the_slowdown_of_latency_is_a_ratio():
    found = lines(machine(experiments=["loaded_latency"]).tidy())["Memory latency, co-running"]
    assert found.detail.startswith("ratio to the value alone")
    assert found.worst.value.startswith(("2.", "3."))
    assert found.best.value.startswith(("0.9", "1.0"))
