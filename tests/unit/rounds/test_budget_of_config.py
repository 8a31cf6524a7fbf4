"""The budget that a config gives a host."""

from __future__ import annotations

import pytest

from chaosity.campaign.budgeted_plan import budget_of_config
from chaosity.design.host_plan import HostPlan, PlannedHost, plan_host
from chaosity.documents.config import check_config, read_config
from chaosity.rounds.point_priority import least_budget_seconds
from chaosity.topology.topology_model import configuration_name
from machines import shipped_topology


def plan_of(topology_name: str) -> HostPlan:
    """Return the plan of the node matrices of a shipped topology."""
    topology = shipped_topology(topology_name)
    names = ["memory_bandwidth", "latency_matrix", "storage_bandwidth"]
    config = {**read_config(), "experiments": names}
    return plan_host(PlannedHost("host", configuration_name(topology), topology, {}), config)


@pytest.mark.parametrize(
    ("topology", "nodes_take_longer"), [("epyc_7413_nps4", False), ("sixteen_nodes", True)]
)
def test_auto_is_half_an_hour_or_what_the_node_matrices_need(
    topology: str, nodes_take_longer: bool
):
    plan = plan_of(topology)
    config = check_config({**read_config(), "budget": "auto"})
    least = least_budget_seconds(plan.points, plan.host.topology)
    assert (1.25 * least > 1800.0) == nodes_take_longer
    assert budget_of_config(config, plan).seconds == max(1.25 * least, 1800.0)
