"""The JSON of a topology has the documented keys and gives the same topology when read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import read_topology, topology_from_json, topology_to_json

OWN = Path(__file__).resolve().parents[2] / "data/topologies"


@pytest.mark.parametrize("source", ["live", *map(str, sorted(OWN.glob("*.xml")))])
def test_a_topology_is_equal_after_writing_and_reading_json(source):
    found = discover_topology(source)
    assert topology_from_json(json.loads(json.dumps(topology_to_json(found)))) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rubbish", "the topology is unreadable"),
        ("[]", "the topology is unreadable"),
        ("[" * 100_000, "nested too deeply"),
        *(
            (json.dumps(change), "the topology is unreadable")
            for change in (
                {"nodes": [1]},
                {"nodes": [{"os_index": "0"}]},
                {"distances": {"nodes": [0], "matrix": [["10"]]}},
                {"distances": {"nodes": [0, 1], "matrix": [[10, 20], [20]]}},
                {"memory_peak": {"machine_bytes_per_second": 10**400}},
                {"memory_attributes": [{"name": "x", "target": 0, "value": None}]},
                {"kind": ["live"]},
                {"usable": {"cpus": "0-99999999999"}},
                {"packages": "2", "cores": True},
            )
        ),
    ],
)
def test_a_file_of_another_form_is_an_error(tmp_path, text, words):
    path = tmp_path / "topology.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_topology(path)


def test_facts_of_another_type_are_unknown():
    topology = topology_from_json({"host": {"cpu_model": ["x"], "smt": "on", "own": [1]}})
    assert topology.host == {"smt": "on", "own": [1]}
