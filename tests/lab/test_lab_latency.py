"""Latency on a machine with eight nodes: every kind of point, and where the kernel says it was.

How long a load takes means nothing in an emulated machine. Who reads whose memory is real.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab_workflow import SERVER, Pipeline, placed

pytestmark = pytest.mark.lab

TRAPS = "traps"
# As many points of each as minutes allow, from the first to the last.
SAMPLE = {
    "latency_matrix": 16,
    "latency_by_size": 24,
    "loaded_latency": 12,
    "core_to_core": 12,
    "l3_domain_bandwidth": 10,
    "bandwidth_scaling": 8,
}


@pytest.fixture(scope="module")
def measured(server, root: Path, tmp_path_factory) -> Pipeline:
    """The server with all latency experiments measured."""
    pipeline = Pipeline(root, tmp_path_factory.mktemp("latency"), SERVER)
    pipeline.config |= {"experiments": list(SAMPLE), "sample": SAMPLE}
    pipeline.run_and_try_again()
    return pipeline


def test_every_record_is_valid_and_where_it_was_asked_to_be(measured: Pipeline) -> None:
    records = measured.records(SERVER)
    assert {record["point"]["experiment"] for record in records.values()} == set(SAMPLE)
    for path, record in records.items():
        assert record["verdict"]["status"] == "valid", (path, record["verdict"]["reason"])
        assert placed(record), (path, record["verdict"]["checks"])
    print(f"{len(records)} records, {sum(len(r['loads']) for r in records.values())} loads")


def test_pages_are_seen_on_the_asked_node_alone(measured: Pipeline) -> None:
    """Not 98 %: the kernels' own mapping is looked at, without stacks and libraries."""
    for record in measured.all_records():
        for load in record["loads"]:
            asked = {str(node) for node in load["placement"]["memory_nodes"]}
            seen = load["placement_seen"]["memory_bytes_by_node"]
            assert set(seen) == asked, (record["point"]["point"], load["name"], seen)


def test_cores_measure_at_the_same_time(measured: Pipeline) -> None:
    together = [r for r in measured.all_records() if len(r["loads"]) == 8]
    assert together
    for record in together:
        cpus = {load["placement"]["cpus"] for load in record["loads"]}
        nodes = {load["placement"]["memory_nodes"][0] for load in record["loads"]}
        assert (len(cpus), len(nodes)) == (8, 8)


def test_memory_without_processing_units_is_reached_from_every_node(
    lab, root: Path, tmp_path: Path
) -> None:
    """On the machine of traps: one node has no units, one no memory."""
    lab.up(TRAPS)
    lab.playbook("--limit", TRAPS, playbook="provision.yml")
    pipeline = Pipeline(root, tmp_path, TRAPS)
    pipeline.config |= {"experiments": ["latency_matrix", "loaded_latency"], "sample": {}}
    pipeline.run_and_try_again()
    topology = json.loads(pipeline.path(f"{TRAPS}/*/topology.json").read_text())
    nodes = {node["os_index"]: node for node in topology["nodes"]}
    targets = {index for index, node in nodes.items() if node["target"]}
    cpuless = {index for index in targets if not nodes[index]["initiator"]}
    assert cpuless
    seen = set()
    for record in pipeline.all_records():
        assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
        assert placed(record)
        chase = next(load for load in record["loads"] if load["role"] == "chase")
        seen.add((record["point"]["experiment"], chase["placement"]["memory_nodes"][0]))
    assert {node for name, node in seen if name == "latency_matrix"} == targets
    assert {node for name, node in seen if name == "loaded_latency"} == targets
