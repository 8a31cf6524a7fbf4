"""Programs of others on a simulated host: their speed follows from the traffic that is stated."""

from __future__ import annotations

import copy

import pytest

from chaosity.documents.config import read_config
from chaosity.errors import UserError
from chaosity.simulation.machine_model import check_programs_can_be_simulated, true_values
from machines import SimulatedHost, planned


@pytest.fixture(scope="module")
def host() -> SimulatedHost:
    benchmarks = {**read_config()["benchmarks"], "placed_workload": "sysbench_memory"}
    config = {"experiments": ["program_placement"], "benchmarks": benchmarks}
    return planned("xeon_e5_2660_v4", all_points=True, **config)


def test_the_speed_follows_from_the_stated_traffic(host: SimulatedHost):
    check_programs_can_be_simulated(host.points, host.model)
    point = copy.deepcopy(host.points[0])
    one = true_values(point, host.model)["work"]["elements_per_second"]
    [load] = point["loads"]
    load["metrics"]["elements_per_second"]["simulated_bytes_per_unit"] = 8
    assert true_values(point, host.model)["work"]["elements_per_second"] == pytest.approx(one / 8)


def test_a_program_without_stated_traffic_is_refused(host: SimulatedHost):
    points = copy.deepcopy(host.points)
    for point in points:
        for load in point["loads"]:
            load["metrics"].get("elements_per_second", {}).pop("simulated_bytes_per_unit", None)
    with pytest.raises(UserError) as caught:
        check_programs_can_be_simulated(points, host.model)
    assert str(caught.value) == (
        "host host, templates/benchmarks/sysbench_memory.yaml: the simulation does not know how"
        " fast sysbench_memory is; state the memory traffic of an element as"
        " simulated_bytes_per_unit."
    )
