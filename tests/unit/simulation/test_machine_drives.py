"""Drives of the model: their rates, and the completion latency of random reads."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_by_hand import MACHINE, TOPOLOGY, drives, load, model, rate

from chaosity.documents.machines import Fault
from chaosity.simulation.access_paths import closed_queue_rate
from chaosity.simulation.machine_model import NoiselessLoadResult


def test_drives_and_cores_compete_for_the_controllers():
    alone = rate(model(), drives("d", 0, 0, 1, 2))
    assert alone == pytest.approx([21e9])
    memory, storage = rate(model(), load("m", "0,2,4,6,8,10", 0), drives("d", 0, 0, 1, 2))
    assert storage == pytest.approx(21e9)
    assert memory == pytest.approx(19e9)


@pytest.mark.parametrize("cores", ["0-11", "36-47", "84-95"])
def test_the_way_of_the_data_limits_drives_and_not_the_distance_of_the_cores(cores):
    slow = model()
    slow.capacities["drives0->package1"] = 10e9
    for into, expected in ((0, 21e9), (3, 21e9), (4, 10e9), (7, 10e9)):
        read = drives("d", 0, 0, 1, 2, into=into)
        read["placement"]["cpus"] = cores
        found = rate(slow, {**read, "initiator": {"cpus": cores, "nodes": []}})
        assert found == pytest.approx([expected])


def random_reads(in_flight: int, cpus: str = "0-11", into: int = 0, count: int = 1) -> Any:
    """A load that reads blocks of 4 KiB at random from drives of node 0."""
    return {
        **drives("d", 0, *range(count), into=into),
        "metrics": {"read_rate_reads_per_second": {}},
        "memory_bytes": count * in_flight * 4096,
        "initiator": {"cpus": cpus, "nodes": []},
        "placement": {"memory_nodes": [into], "cpus": cpus},
    }


RANDOM_READS = {"read_latency_ns": 80e3, "random_reads_per_second": 1e6}


def read_result(load: Any, *faults: Fault) -> NoiselessLoadResult:
    machine = model(*faults, drives={**MACHINE["drives"], **RANDOM_READS})
    return machine.noiseless_results([load])["d"]


def test_one_read_takes_the_time_of_the_drive_and_of_both_ways():
    far = TOPOLOGY.nodes[4].cpus[0]
    for cpus, into, ways in (("0-11", 0, 200.0), (str(far), 0, 300.0), (str(far), 4, 400.0)):
        result = read_result(random_reads(1, cpus, into))
        assert result.completion_latency_ns == pytest.approx(80e3 + ways)
        assert result.completion_latency_p99_ns == pytest.approx(80e3 + ways)
        assert result.read_rate_reads_per_second == pytest.approx(1e9 / (80e3 + ways))


def test_many_reads_fill_the_drive_and_then_wait():
    few, many = read_result(random_reads(16)), read_result(random_reads(1024))
    assert few.read_rate_reads_per_second == pytest.approx(16 / 80.2e-6, rel=0.01)
    assert many.read_rate_reads_per_second == pytest.approx(1e6, rel=0.01)
    assert many.completion_latency_ns == pytest.approx(
        80.2e3 + math.log(2) * (1024e3 - 80.2e3), rel=0.01
    )
    assert read_result(random_reads(1024, count=2)).read_rate_reads_per_second == pytest.approx(
        2e6, 0.01
    )
    fault: Fault = {"fault": "slow_drive", "drive": "drive-0000-01-00-0", "remaining": 0.5}
    slow = read_result(random_reads(1024), fault)
    assert slow.read_rate_reads_per_second == pytest.approx(0.5e6, rel=0.01)


def test_a_machine_whose_description_has_no_random_reads_gives_none():
    assert model().noiseless_results([random_reads(4)])["d"].completion_latency_ns is None


@given(st.integers(1, 300), st.floats(1e-6, 1e-3), st.floats(1e-7, 1e-3))
def test_a_closed_queue_is_bounded_by_its_latency_and_its_device(in_flight, idle, busy):
    found = closed_queue_rate(in_flight, idle, busy)
    assert found <= min(in_flight / max(idle, busy), 1 / busy) * (1 + 1e-9)
    assert found <= closed_queue_rate(in_flight + 1, idle, busy) * (1 + 1e-9)
    # Never below the rate of a device that finds all other requests before each request.
    assert found >= in_flight / (max(idle, busy) + in_flight * busy) * (1 - 1e-9)
    assert closed_queue_rate(1, idle, busy) == pytest.approx(1 / max(idle, busy))
