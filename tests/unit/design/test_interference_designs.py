"""Which points the experiments on interference have, by the topology of the host."""

from __future__ import annotations

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.design.host_plan import HostPlan, PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import configuration_name


def planned(machine: str, experiment: str, writable: int = 0) -> HostPlan:
    """The plan of an experiment; `writable` drives may lose their data."""
    topology = discover_topology(str(ROOT / f"templates/machines/topologies/{machine}.xml"))
    serials = [drive.serial for drive in topology.drives][:writable]
    variables = {"chaosity_simulated": "none", "chaosity_destructive_drives": serials}
    host = PlannedHost("host", configuration_name(topology), topology, variables)
    return plan_host(host, read_config(), [experiment])


@pytest.mark.parametrize("machine", ["epyc_7413_nps2", "desktop", "xeon_8358"])
def test_a_reader_and_a_writer_have_half_of_the_cores_of_a_node_each(machine: str):
    topology = discover_topology(str(ROOT / f"templates/machines/topologies/{machine}.xml"))
    for point in planned(machine, "interference_memory").points:
        cpus = {load["role"]: parse_cpu_list(load["initiator"]["cpus"]) for load in point["loads"]}
        if cpus.keys() == {"reader", "writer"}:
            cores = [
                {core.index for core in topology.cores if set(core.cpus) & set(own)}
                for own in cpus.values()
            ]
            assert not cores[0] & cores[1]
            assert len(cores[0]) == len(cores[1])


@pytest.mark.parametrize(
    ("machine", "experiment"),
    [
        ("epyc_7413_nps4", "interference_remote"),
        ("xeon_8358", "interference_remote"),
        ("epyc_7413_nps4", "interference_memory"),
        ("epyc_9554_cxl", "interference_memory"),
        ("epyc_7413_nps4", "interference_writes"),
        ("desktop", "interference_writes"),
    ],
)
def test_each_load_of_each_pair_is_also_measured_alone(machine: str, experiment: str):
    points = planned(machine, experiment, writable=4).points
    loads = [
        [
            (load["kernel"], load["initiator"]["name"], load["target"]["name"])
            for load in point["loads"]
        ]
        for point in points
    ]
    alone = {own[0] for own in loads if len(own) == 1}
    assert {load for own in loads for load in own if len(own) > 1} <= alone


def test_drives_are_written_only_where_the_inventory_names_them():
    with pytest.raises(UserError, match="chaosity_destructive_drives names none"):
        planned("epyc_7413_nps4", "interference_writes")
    # Node 0 has three drives, of which two are named; no other node may be written.
    plan = planned("epyc_7413_nps4", "interference_writes", writable=2)
    loads = [load for point in plan.points for load in point["loads"]]
    assert len({drive["component"] for load in loads for drive in load["target"]["drives"]}) == 2
    assert [point["point"] for point in plan.points] == [
        "storage=node0+node0drives1",
        "storage=node0+node0drives",
        "memory=node0+node0+read.storage=node0+none",
        "memory=node0+node0+read.storage=node0+node0drives1",
        "memory=node0+node0+read.storage=node0+node0drives",
    ]


def test_neighbours_share_an_l3_domain_or_lie_in_another():
    found: dict[str, set[str]] = {}
    for point in planned("epyc_7413_nps2", "interference_cache").points:
        [chase, *neighbours] = point["loads"]
        if neighbours:
            relation = str(point["factors"]["neighbour"])
            found.setdefault(relation, set()).add(neighbours[0]["initiator"]["cpus"])
            assert neighbours[0]["initiator"]["cpus"] != chase["initiator"]["cpus"]
    assert found.keys() == {"same_l3_domain", "same_node", "same_package", "other_package"}
    # PU 1 is a sibling of PU 0 and no neighbour: the first other core of its L3 domain is PU 2.
    assert "2" in found["same_l3_domain"]
    assert "1" not in found["same_l3_domain"]


def test_working_sets_fit_into_the_l3_cache_alone_and_not_together():
    plan = planned("epyc_7413_nps4", "interference_cache")
    cache = 32 * 2**20
    pairs = [
        [load["memory_bytes"] for load in point["loads"]]
        for point in plan.points
        if len(point["loads"]) > 1
    ]
    assert all(max(own) < cache for own in pairs)
    assert min(map(sum, pairs)) < cache < max(map(sum, pairs))
