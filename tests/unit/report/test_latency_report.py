"""Test latency in the report: text tables, numbers of curves, and the resource table."""

from __future__ import annotations

import json

import pandas as pd

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.component_change_effects import component_changes
from chaosity.report.resource_table import resource_table
from chaosity.store.measurements import Measurements
from machines import measured_host
from table_rows import LATENCY


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


def test_percentiles_have_no_row():
    tidy = machine().tidy()
    tail = tidy[tidy["metric"] == LATENCY].assign(metric="latency_p99_of_block_means_ns")
    assert list(lines(pd.concat([tidy, tail]))) == list(lines(tidy))


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


def test_loads_of_the_same_name_have_separate_changes():
    rows = []
    for era, since in ((1, "1"), (2, "2")):
        for replicate in (1, 2, 3):
            rows += [
                {
                    "host": "h",
                    "configuration": "c",
                    "experiment": "e",
                    "point": "chase=all",
                    "load": "chase",
                    "initiator": f"pu{pu}",
                    "target": "node0",
                    "metric": LATENCY,
                    "replicate": replicate,
                    "status": "valid",
                    "reason": None,
                    "value": 90.0 * (1 + pu) * era + replicate,
                    "era": era,
                    "asked": "a",
                    "components": json.dumps({"node0": since}),
                }
                for pu in (0, 1)
            ]
    [change], _ = component_changes(Measurements.from_table(pd.DataFrame(rows)), {})
    assert [point.load for point in change.lowest] == [
        "chase of pu0 on node0",
        "chase of pu1 on node0",
    ]
