"""A GPU that uses the memory of a node competes with its cores: table 1 of document 000."""

from __future__ import annotations

from datetime import date

import pytest

from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import read_config
from chaosity.simulation.machine_description import firmware_topology
from chaosity.simulation.machine_model import MachineModel, true_values
from machines import TODAY, shipped_machine, shipped_topology

TOPOLOGY = shipped_topology("apple_m1_pro")
MACHINE = shipped_machine("apple_m1_pro", TOPOLOGY)


@pytest.fixture(scope="module")
def gigabytes_per_second() -> dict[tuple[str, ...], dict[str, float]]:
    """Bandwidth of each load by the initiators and devices of its point."""
    config = {**read_config(), "experiments": ["gpu_and_cpu", "unlike_cores"]}
    points = plan_host(PlannedHost("host", "one_node", TOPOLOGY), config).points
    model = MachineModel(MACHINE, TOPOLOGY, "host", date(2026, 1, 1))
    found = {}
    for point in points:
        names = {
            load["name"]: "gpu" if load["target"].get("device") else load["initiator"]["cpus"]
            for load in point["loads"]
        }
        found[tuple(sorted(names.values()))] = {
            names[load]: values["bandwidth_bytes_per_second"] / 1e9
            for load, values in true_values(point, model).items()
        }
    return found


@pytest.mark.parametrize(
    ("cpus", "published"),
    [("0", 11.7), ("0-1", 14.8), ("2", 75.2), ("2-9", 128.7), ("0-9", 138.3), ("gpu", 176.3)],
)
def test_each_alone_reaches_the_published_bandwidth(gigabytes_per_second, cpus, published):
    # The cache holds 3 % of the data.
    assert gigabytes_per_second[(cpus,)][cpus] == pytest.approx(published, rel=0.04)


@pytest.mark.parametrize(
    ("cpus", "cores", "gpu"),
    # The document has ten cores beside the GPU. Here, one of them controls the GPU.
    [("2-9", 59.8, 118.9), ("1-9", 60.8, 115.0)],
)
def test_both_lose_as_much_as_published(gigabytes_per_second, cpus, cores, gpu):
    together = gigabytes_per_second[(cpus, "gpu")]
    assert together[cpus] == pytest.approx(cores, rel=0.07)
    assert together["gpu"] == pytest.approx(gpu, rel=0.03)


def test_the_topology_says_that_the_memory_is_unified():
    [device] = firmware_topology(MACHINE, TOPOLOGY, "host", TODAY).opencl_devices
    assert device.unified_memory
    desktop = shipped_topology("desktop")
    machine = shipped_machine("desktop", desktop)
    [other] = firmware_topology(machine, desktop, "host", TODAY).opencl_devices
    assert other.unified_memory is None
