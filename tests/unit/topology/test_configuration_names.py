"""The name of a configuration follows from the layout of memory, also with unknown facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.topology_model import Node, Topology

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


def test_on_package_memory_is_part_of_the_name():
    assert configuration_name(machine(XEON, [0], memory_side_cache_bytes=2**30)) == "snc1-cache"
    assert configuration_name(machine(XEON, [0], kind="HBM")) == "snc1-flat"
    both = machine(XEON, [0], kind="HBM", memory_side_cache_bytes=2**30)
    assert configuration_name(both) == "snc1-hybrid"


def test_memory_without_processors_does_not_count():
    cpu_less = machine(EPYC, [0, 0], has_cpus=False, initiator=False).nodes
    found = machine(EPYC, [0, 1])
    assert configuration_name(replace(found, nodes=found.nodes + cpu_less)) == "nps1"
