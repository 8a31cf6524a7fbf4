"""The name of a configuration follows from the layout of memory, also with unknown facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaosity.topology.topology_model import Topology, configuration_name
from chaosity.topology.topology_parts import Node

EPYC, XEON, OTHER = "AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Gold 6430", "Neoverse-N1"


def machine(model: str | None, packages: list[int | None], **node: object) -> Topology:
    """A topology with a node with processors for each entry, in that package."""
    values = {"initiator": True, "target": True, "kind": "DRAM", "has_cpus": True, **node}
    nodes = tuple(
        Node(index, (index,), 1, None, tier=0, package=package, **values)
        for index, package in enumerate(packages)
    )
    return Topology("x", "xml", (), (), (), (0,), nodes, host={"cpu_model": model})


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


def beside(found: Topology, package: int | None = 0, **changed: object) -> Topology:
    """The topology with HBM without processors in a package."""
    node = Node(9, (), 1, None, False, True, 0, "HBM", package, (), False)
    return replace(found, nodes=(*found.nodes, replace(node, **changed)))


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
