"""Checks of the values, the records and the host of a run."""

from __future__ import annotations

import json

import pytest
from report_inputs import change_documents, measured_results, system_document, texts, write_report

from machines import simulated

ONE_NODE = ["memory_bandwidth", "latency_matrix", "storage_bandwidth"]


@pytest.fixture
def one_node(tmp_path):
    """The results of a healthy machine with one node."""
    place = measured_results(simulated("one_node", ONE_NODE), tmp_path)
    (place / "components/system.json").write_text(json.dumps(system_document()))
    return place


def check(place, name):
    """What the report says of a check, after the severity of a problem."""
    lines = texts(write_report(place), "//section[@id='problems']//li")
    return next((line for line in lines if f"{name}:" in line), None)


def test_restrictions_of_the_machine_are_reported(one_node):
    seen = {"missing_cpus": "8-11", "disallowed_cpus": "8-11", "cgroup": "/slurm/job1"}
    change_documents(
        one_node,
        "topology.json",
        lambda document: document.update(restricted=True, restrictions=seen),
    )
    found = check(one_node, "Processors and nodes")
    assert found.startswith("warning ")
    assert "disallowed cpus 8-11, cgroup /slurm/job1." in found


def test_a_check_that_failed_and_that_was_unknown_is_reported_once(one_node):
    def change(record):
        precision = next(c for c in record["verdict"]["checks"] if "precision" in c["name"])
        if record["replicate"] == 2:
            precision |= {"passed": False, "detail": "±1.71 % in the run"}
        elif record["order"] == 0:
            precision |= {"passed": None, "detail": "too short"}

    change_documents(one_node, "*/*/rep*.json", change)
    found = check(one_node, "Precision")
    assert found.startswith("warning Precision: not met in 33 % of 24 records, for example ±1.71 %")
    assert "; could not be determined in 4.2 % of 24 records, for example too short." in found


def clocks(folder, *of_nodes):
    """Return the check of a run in which the loads on all cores of node 0, 1, ... had clocks."""
    hertz = {str(node): clock for node, clock in enumerate(of_nodes)}

    def with_clocks(table):
        return table.assign(clock_hertz=table["initiator_nodes"].map(hertz).astype("Float64"))

    def set_source(record):
        record["loads"][0]["clock"] = {"hertz": of_nodes[0], "source": "APERF and MPERF"}

    place = measured_results(simulated("fleet", ["memory_bandwidth"]), folder, with_clocks)
    change_documents(place, "*/*/rep1.json", set_source)
    return check(place, "Clock under load")


def test_equal_clocks_are_shown_for_each_node_with_their_number(tmp_path):
    found = clocks(tmp_path, 3.1e9, 3.08e9)
    assert found.startswith("Clock under load: median 3.10 GHz on node 0 (n = 12) and 3.08 GHz on")
    assert found.endswith("from APERF and MPERF.")


def test_a_node_with_a_lower_clock_is_named(tmp_path):
    found = clocks(tmp_path, 3.0e9, 2.4e9)
    assert found.startswith("warning Clock under load: 20 % lower on node 1 than on node 0: median")


def test_an_unknown_clock_has_its_reason_and_older_records_no_line(one_node):
    assert "Clock under load: unknown: simulated." in check(one_node, "Clock under load")
    change_documents(one_node, "*/*/rep*.json", lambda record: record["loads"][0].pop("clock"))
    assert check(one_node, "Clock under load") is None
