"""The JSON of a topology has the documented keys and gives the same topology when read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_json import (
    read_topology,
    topology_from_json,
    topology_to_json,
)

OWN = Path(__file__).resolve().parents[2] / "data/topologies"


@pytest.mark.parametrize("source", ["live", *map(str, sorted(OWN.glob("*.xml")))])
def test_a_topology_is_equal_after_writing_and_reading_json(source):
    found = discover_topology(source)
    assert topology_from_json(json.loads(json.dumps(topology_to_json(found)))) == found


def test_keys_and_values_of_the_json(epyc):
    values = topology_to_json(epyc)
    assert (values["packages"], values["cores"], values["pus"]) == (2, 48, 96)
    node = values["nodes"][3]
    assert (node["os_index"], node["cpus"], node["tier"]) == (3, "18-23,66-71", 0)
    assert (node["memory_bytes"], node["initiator"], node["target"]) == (32 * 2**30, True, True)
    drive = values["drives"][0]
    assert {key: drive[key] for key in ("name", "pci", "serial", "node")} == {
        "name": "nvme0n1",
        "pci": "0000:01:00.0",
        "serial": "SERIAL00",
        "node": 0,
    }
    assert values["distances"]["nodes"] == list(range(8))
    assert values["distances"]["matrix"][0] == [10, 12, 12, 12, 32, 32, 32, 32]
    assert (len(values["l3_domains"]), len(values["core_kinds"])) == (8, 1)
    assert values["gpus"] == values["accelerators"] == []
    assert (values["cache_line_bytes"], values["restricted"]) == (64, False)
    assert values["configuration"] == "nps4"
    assert len(values["hierarchy"]["cores"]) == 48


def test_unknown_values_are_null(devices):
    values = topology_to_json(devices)
    assert values["distances"] is None
    fabric = values["drives"][-1]
    assert fabric["pci"] is fabric["node"] is fabric["model"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": [{"os_index": "0"}]},
        {"distances": {"nodes": [0], "matrix": [["10"]]}},
        {"distances": {"nodes": [0, 1], "matrix": [[10, 20], [20]]}},
        {"memory_peak": {"machine_bytes_per_second": 10**400}},
        {"memory_attributes": [{"name": "x", "target": 0, "initiator_cpus": "0", "value": None}]},
        {"kind": ["live"]},
        {"usable": {"cpus": "0-99999999999"}},
        {"packages": "2", "cores": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_values_of_another_type_are_an_error(tmp_path, change):
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(change))
    with pytest.raises(UserError, match="the topology is unreadable"):
        read_topology(path)


def test_a_file_that_is_nested_too_deeply_is_an_error(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match="nested too deeply"):
        read_topology(path)


def test_facts_of_another_type_are_unknown():
    topology = topology_from_json({"host": {"cpu_model": ["x"], "smt": "on", "own": [1]}})
    assert topology.host == {"smt": "on", "own": [1]}
