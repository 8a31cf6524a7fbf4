"""A GPU that uses the memory of a node competes with its cores: table 1 of document 000."""

from __future__ import annotations

import pytest

from chaosity.simulation.machine_description import firmware_topology
from chaosity.simulation.machine_model import true_values
from machines import TODAY, planned, shipped_machine, shipped_topology


@pytest.fixture(scope="module")
def gigabytes_per_second() -> dict[tuple[str, ...], dict[str, float]]:
    """Bandwidth of each load by the initiators and devices of its point."""
    names = ["gpu_and_cpu", "unlike_cores"]
    host = planned("apple_m1_pro", all_points=True, experiments=names)
    found = {}
    for point in host.points:
        names = {
            load["name"]: "gpu" if load["target"].get("device") else load["initiator"]["cpus"]
            for load in point["loads"]
        }
        found[tuple(sorted(names.values()))] = {
            names[load]: values["bandwidth_bytes_per_second"] / 1e9
            for load, values in true_values(point, host.model).items()
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
    for name, unified in (("apple_m1_pro", True), ("desktop", None)):
        topology = shipped_topology(name)
        machine = shipped_machine(name, topology)
        [device] = firmware_topology(machine, topology, "host", TODAY).opencl_devices
        assert device.unified_memory is unified
