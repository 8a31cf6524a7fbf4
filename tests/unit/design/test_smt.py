"""SMT siblings: compared by an experiment, used by all loads, or left out where there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.errors import UserError


def planned(topology, config, *experiments):
    found = plan_host(PlannedHost("h", "c", topology), config, experiments)
    return {point["point"]: point for point in found.points}, found.notes


def without_smt(topology):
    """The same machine with its siblings switched off."""
    cores = tuple(replace(core, cpus=core.cpus[:1]) for core in topology.cores)
    pus = tuple(core.cpus[0] for core in cores)
    nodes = tuple(
        replace(node, cpus=tuple(sorted(set(node.cpus) & set(pus)))) for node in topology.nodes
    )
    return replace(topology, cores=cores, pus=pus, nodes=nodes)


def test_a_machine_without_siblings_has_nothing_to_compare(paper_host, config):
    topology = without_smt(paper_host.topology)
    points, notes = planned(topology, config, "smt_siblings", "latency_matrix")
    assert points and not any("smt" in name for name in points)
    reason = "left out, since no core of this host has several SMT threads in use"
    assert f"smt_siblings, memory_bandwidth: {reason}" in notes
    with pytest.raises(UserError, match=reason):
        planned(topology, config, "smt_siblings")


def test_the_config_gives_every_load_all_siblings_under_the_same_names(paper_host, config):
    usual, _ = planned(paper_host.topology, config, "memory_bandwidth", "interference")
    every, _ = planned(
        paper_host.topology, {**config, "threads": "all"}, "memory_bandwidth", "interference"
    )
    assert set(usual) == set(every)
    name = "memory=node0+node0+triad"
    assert usual[name]["loads"][0]["initiator"]["cpus"] == "0-5"
    assert every[name]["loads"][0]["initiator"]["cpus"] == "0-5,48-53"
    assert every[name]["loads"][0]["initiator"]["kind"] == "node"
    assert usual[name]["definition"] != every[name]["definition"]
    # A load on a single processing unit uses no sibling.
    assert (
        every["memory=pu0+node0+triad"]["definition"]
        == usual["memory=pu0+node0+triad"]["definition"]
    )
