"""Traffic in NPS0, where one node spans both packages, and in modes whose nodes do not."""

from __future__ import annotations

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.records.point_types import Point
from machines import planned

CORES = 128


def points(mode: int, experiment: str) -> list[Point]:
    """The points of an experiment on the server of document 001."""
    config = {"experiments": [experiment], "replicates": 1}
    host = planned("epyc_9575f", f"epyc_9575f_nps{mode}", all_points=True, **config)
    return list(host.points)


def traffic_cores(point: Point) -> int:
    """Number of cores with traffic, without SMT siblings."""
    loads = [load for load in point["loads"] if load["role"] == "traffic"]
    return sum(len(parse_cpu_list(load["initiator"]["cpus"])) for load in loads)


@pytest.mark.parametrize(("mode", "cores"), [(0, CORES), (1, CORES // 2), (4, CORES // 2)])
def test_loaded_latency_loads_the_package_or_the_whole_node(mode: int, cores: int) -> None:
    found = {traffic_cores(point) for point in points(mode, "loaded_latency")}
    assert found == {0, cores - 1}  # without traffic, and all cores but that of the chase


@pytest.mark.parametrize(("mode", "of_node"), [(0, CORES), (1, CORES // 2), (4, CORES // 8)])
def test_modes_are_compared_by_one_node_and_by_the_machine(mode: int, of_node: int) -> None:
    found: dict[object, set[int]] = {}
    for point in points(mode, "modes_under_load"):
        found.setdefault(point["factors"]["traffic_of"], set()).add(traffic_cores(point))
    assert found == {"idle": {0}, "one_node": {of_node - 1}, "machine": {CORES - 1}}
