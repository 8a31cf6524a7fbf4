"""The lines of the resource table, of simulated machines."""

from __future__ import annotations

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.best_places_of_resources import resource_table
from chaosity.store.measurements import Measurements
from machines import measured_host


def machine(name="two_packages", *, experiments=("latency_matrix",), **keys):
    return measured_host(name, *experiments, **keys)


EXPERIMENTS = [load_experiment(name) for name in ("latency_matrix", "core_to_core")]


def lines(tidy):
    return {line.name: line for line in resource_table(Measurements.from_table(tidy), EXPERIMENTS)}


def test_latency_has_a_row_for_each_distance_near_to_far():
    found = lines(machine().tidy())
    names = ("own node", "same package", "other package")
    rows = [found[f"Memory latency, {each}"] for each in names]
    assert [name for name in found if name.startswith("Memory latency, ")][:3] == [
        row.name for row in rows
    ]
    assert rows[0].detail == "chaosity latency, thp pages, 4 places"
    assert rows[0].differ is False
    assert all(row.best.value.endswith(" ns") and row.share.endswith(" times") for row in rows)
    best = [float(row.best.value.split()[0]) for row in rows]
    worst = [float(row.worst.value.split()[0]) for row in rows]
    assert max(worst[:2]) < 115.0 < best[2] and best == sorted(best)
    assert [name for name in found if "p99" in name] == []


def test_core_to_core_latency_names_both_cores_and_the_lines_home():
    found = lines(machine(experiments=["core_to_core"]).tidy())["Core-to-core latency"]
    assert found.best.where == "processing unit 0 to processing unit 8, line on node 0"
    assert found.differ is True


def test_the_slowdown_of_latency_is_a_ratio():
    found = lines(machine(experiments=["loaded_latency"]).tidy())["Memory latency, co-running"]
    assert found.detail.startswith("ratio to the value alone")
    assert found.worst.value.startswith(("2.", "3."))
    assert found.best.value.startswith(("0.9", "1.0"))
