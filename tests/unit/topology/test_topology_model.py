"""The model of a host, its JSON, and what ``chaosity topology`` prints of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import (
    Topology,
    configuration_name,
    read_topology,
    topology_from_json,
    topology_to_json,
)
from chaosity.topology.topology_parts import CoreKind, L3Domain, Node, PartCounts
from machines import OWN_TOPOLOGIES, run_chaosity


def node(index: int, package: int | None, cpus: tuple[int, ...] = (), **facts: object) -> Node:
    """Returns a node with memory, and with processing units if there are any."""
    known = {"initiator": bool(cpus), "target": True, "shown_cpus": cpus, "package": package}
    return Node(index, cpus, **{**known, **facts})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node(0, 0, (0,)), node(1, 1, (1,))], ((0,), (1,))),
        ([node(1, 1, (1,)), node(0, 0, (0,)), node(2, 0)], ((0,), (1,))),
        ([node(0, 0, (0,)), node(1, 0, (1,))], None),
        ([node(0, 0, (0,)), node(1, 1, (1,)), node(2, 1, (2,))], None),
        ([node(0, None, (0,)), node(1, 0, (1,)), node(2, 1, (2,))], None),
        ([], None),
    ],
)
def test_packages_are_compared_only_if_they_have_equal_numbers_of_nodes(nodes, expected):
    assert Topology(nodes=tuple(nodes)).nodes_of_comparable_packages == expected


def test_processing_units_have_a_core_kind_where_there_are_several_kinds():
    kinds = (CoreKind(0, (0, 1)), CoreKind(1, (2,)))
    assert Topology(core_kinds=kinds).core_kind_of_pu == {0: 0, 1: 0, 2: 1}
    assert Topology(core_kinds=kinds[:1]).core_kind_of_pu == {}


def test_processing_units_that_a_cgroup_forbids_have_a_node_too():
    topology = Topology(nodes=(node(0, 0, (0,), shown_cpus=(0, 1)),))
    assert topology.node_of_pu == {0: 0, 1: 0}


def test_the_size_of_memory_is_what_the_firmware_gave():
    assert node(0, 0, memory_bytes=5, present_bytes=8).size_bytes == 8
    assert node(0, 0, memory_bytes=5).size_bytes == 5
    assert Topology(nodes=(node(0, 0),)).total_memory_bytes is None


def test_json_without_a_key_gives_a_topology_with_unknown_parts():
    assert topology_from_json({}) == Topology()
    topology = topology_from_json(
        {
            "cores": 4,
            "nodes": [{"os_index": 1, "cpus": "0-1", "package": 0, "from_the_future": True}],
            "l3_domains": [{"index": 0, "cpus": "0-1"}],
            "host": {"cpu_model": "EPYC"},
        }
    )
    assert topology.nodes == (Node(1, (0, 1), package=0, shown_cpus=(0, 1)),)
    assert topology.l3_domains == (L3Domain(0, (0, 1)),)
    assert topology.counts == PartCounts(cores=4)
    assert topology.cpu_model == "EPYC"


# The JSON of a topology has the documented keys and gives the same topology when read.


@pytest.mark.parametrize("source", ["live", *map(str, sorted(OWN_TOPOLOGIES.glob("*.xml")))])
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


# The name of a configuration follows from the layout of memory, also with unknown facts.


EPYC, XEON, OTHER = "AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Gold 6430", "Neoverse-N1"


def machine(model: str | None, packages: list[int | None], **facts: object) -> Topology:
    """A topology with a node with processors for each entry, in that package."""
    known = {"kind": "DRAM", "has_cpus": True, **facts}
    nodes = (node(index, package, (index,), **known) for index, package in enumerate(packages))
    return Topology(nodes=tuple(nodes), host={"cpu_model": model})


@pytest.mark.parametrize(
    ("model", "packages", "name"),
    [
        (EPYC, [0, 1], "nps1"),
        (EPYC, [0, 0, 1, 1], "nps2"),
        (EPYC, [0] * 4 + [1] * 4, "nps4"),
        (EPYC, [None], "nps0"),
        (EPYC, [0] * 12, "l3-as-numa"),
        (XEON, [0, 1], "snc1"),
        (XEON, [0] * 4, "snc4"),
        ("Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz", [0] * 4, "snc4"),
        ("13th Gen Intel(R) Core(TM) i7-1370P", [0], "1node-per-package"),
        (OTHER, [0, 1], "1node-per-package"),
        (None, [0, 0, 1, 1], "2nodes-per-package"),
        (None, [0, 0, 1], "1-2nodes-per-package"),
        (EPYC, [0, 0, 1], "1-2nodes-per-package"),
        (None, [None], "1node-over-packages"),
        (None, [None, None], "2nodes-over-packages"),
    ],
)
def test_names_of_memory_layouts(model, packages, name):
    assert configuration_name(machine(model, packages)) == name


def beside(found: Topology, package: int | None = 0) -> Topology:
    """The topology with HBM without processors in a package."""
    return replace(found, nodes=(*found.nodes, node(9, package, kind="HBM")))


def test_on_package_memory_is_part_of_the_name():
    cached = machine(XEON, [0], memory_side_cache_bytes=2**30)
    assert configuration_name(cached) == "snc1-cache"
    assert configuration_name(beside(machine(XEON, [0]))) == "snc1-flat"
    assert configuration_name(beside(cached)) == "snc1-hybrid"
    assert configuration_name(beside(machine(None, [None]), None)) == "1node-over-packages-flat"


def test_a_guessed_kind_of_memory_with_processors_is_not_part_of_the_name():
    assert configuration_name(machine(XEON, [0, 1], kind="HBM")) == "snc1"
    one = machine(OTHER, [0, 0])
    guessed = replace(one, nodes=(one.nodes[0], replace(one.nodes[1], kind="HBM")))
    assert configuration_name(guessed) == configuration_name(one) == "2nodes-per-package"
    assert configuration_name(beside(one, package=1)) == "2nodes-per-package"


def test_memory_without_processors_does_not_count():
    cpu_less = machine(EPYC, [0, 0], has_cpus=False, initiator=False).nodes
    found = machine(EPYC, [0, 1])
    assert configuration_name(replace(found, nodes=found.nodes + cpu_less)) == "nps1"


@pytest.fixture
def shown(monkeypatch):
    """Runs the command and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "100")
    return partial(run_chaosity, "topology")


def test_the_summary_fits_on_100_columns(shown):
    for path in OWN_TOPOLOGIES.glob("*.xml"):
        lines = shown(path).splitlines()
        assert max(map(len, lines)) <= 100
        assert "…" not in "".join(lines)


def test_this_machine_is_the_default(shown):
    values = json.loads(shown("--json"))
    assert values["kind"] == "live"
    assert values["pus"] >= 1
    assert f"{values['usable']['pus']} PU" in shown()
