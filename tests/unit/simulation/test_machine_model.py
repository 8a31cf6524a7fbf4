"""Rates and latencies of the model, against values by hand."""

from __future__ import annotations

from typing import Any

import pytest
from machine_by_hand import MACHINE, load, model, rate

from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_loads import read_written_and_counted_shares
from machines import planned


def test_one_core_has_its_own_rate_and_all_cores_that_of_the_controllers():
    assert rate(model(), load("a", "0", 0)) == pytest.approx([20e9])
    assert rate(model(), load("a", "0-11", 0)) == pytest.approx([40e9])


def test_two_threads_of_a_core_share_it():
    assert rate(model(), load("a", "0-1", 0)) == pytest.approx([20e9])


def test_cores_of_a_package_share_the_link_to_the_other():
    assert rate(model(), load("a", "0-47", 4)) == pytest.approx([30e9])


def test_two_programs_share_a_node_by_their_threads():
    both = rate(model(), load("a", "0,2,4", 0), load("b", "6", 0))
    assert both == pytest.approx([30e9, 10e9])


def test_a_traffic_share_is_of_the_programs_own_peak():
    half = load("a", "0-11", 0, levels={"share": 50})
    assert rate(model(), half) == pytest.approx([20e9])


def test_a_program_beside_limited_traffic_gets_what_the_traffic_leaves():
    """Half of the 20 GB/s that the traffic has beside the program: 30 of 40 GB/s are left."""
    traffic = load("b", "6,8", 0, levels={"share": 50})
    assert rate(model(), load("a", "0,2", 0), traffic) == pytest.approx([30e9, 10e9])


def test_threads_that_share_the_work_wait_for_the_slowest():
    threads = load("a", "0,48,50,52,54", 0)  # four of them share the link, with 30 GB/s
    assert rate(model(), threads) == pytest.approx([40e9])
    assert rate(model(), {**threads, "benchmark": "stream"}) == pytest.approx([5 * 7.5e9])


@pytest.mark.parametrize(("far", "expected"), [(0.0, 20e9), (0.2, 20e9), (0.5, 16e9), (1.0, 12e9)])
def test_a_core_handles_near_lines_while_far_ones_are_on_the_way(far, expected):
    """2,400 bytes in flight: 24 GB/s from 100 ns away, more than the core reads, 12 from 200 ns."""
    memory = {**MACHINE["memory"], "core_bytes_in_flight": 2400.0}
    waiting = model(memory=memory)
    shares = {"0": 1 - far, "4": far}
    placement = {"memory_nodes": [0, 4], "cpus": "0", "shares": shares}
    assert rate(waiting, load("a", "0", 0, placement=placement)) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("kernel", "counted"), [("triad", 0.75), ("triad_nt", 1.0), ("copy", 2 / 3), ("read67", 1.0)]
)
def test_stores_fetch_their_lines_and_stream_does_not_count_it(kernel, counted):
    reads, writes, share = read_written_and_counted_shares(load("a", "0", 0, kernel=kernel))
    assert reads + writes == pytest.approx(1.0)
    assert share == pytest.approx(counted)


def test_a_sum_over_an_array_only_reads():
    summed = load("a", "0", 0, kernel=None, benchmark="chaosity_sum")
    assert read_written_and_counted_shares(summed) == (1, 0, 1)


def chase(node: int, size: int, **changes: Any) -> Any:
    return load("chase", "0", node, memory_bytes=size, metrics={"latency_ns": {}}, **changes)


def latency(found: MachineModel, *loads: Any) -> float | None:
    return found.noiseless_results(list(loads))["chase"].latency_ns


@pytest.mark.parametrize(("node", "expected"), [(0, 100), (1, 110), (4, 200)])
def test_latency_of_memory_follows_the_distance(node, expected):
    assert latency(model(), chase(node, 2**36)) == pytest.approx(expected, rel=0.01)


def test_latency_grows_with_the_working_set_and_begins_in_the_first_cache():
    found = [latency(model(), chase(0, 2**power)) for power in range(12, 32)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(1.0, rel=0.02)


def test_latency_grows_with_the_traffic_on_the_way():
    shares = [
        latency(model(), chase(0, 2**36), load("t", "2-11", 0, levels={"share": share}))
        for share in (10, 50, 100)
    ]
    assert shares == sorted(shares)
    assert shares[2] > 2 * shares[0]


@pytest.mark.parametrize(("responder", "expected"), [(2, 25), (14, 90), (50, 210)])
def test_transfer_between_cores_depends_on_what_they_share(responder, expected):
    pair = chase(0, 64, placement={"memory_nodes": [0], "cpus": f"0,{responder}"})
    assert latency(model(), pair) == pytest.approx(expected)


def neighbour(unit: int, size: int) -> Any:
    """A chase of another unit."""
    return {**chase(0, size), "name": "neighbour", "initiator": {"cpus": str(unit), "nodes": [0]}}


def test_working_sets_that_share_an_l3_cache_find_as_much_there_as_one_of_their_total_size():
    found, size = model(), 10 * 2**20
    alone = latency(found, chase(0, 2 * size))
    assert latency(found, chase(0, 2 * size), neighbour(12, size)) == pytest.approx(alone, 1e-3)
    together = latency(found, chase(0, 2 * size), neighbour(2, size))
    assert together == pytest.approx(latency(found, chase(0, 3 * size)), 0.01)
    assert together > 1.2 * alone


def test_a_working_set_beyond_the_l3_cache_takes_nothing_from_its_neighbours():
    alone = latency(model(), chase(0, 2**20))
    assert latency(model(), chase(0, 2**20), neighbour(2, 2**30)) == pytest.approx(alone, 1e-3)


def test_equal_chases_share_the_l3_cache_at_every_size():
    found, sizes = model(), [2**exponent for exponent in range(24, 31)]
    together = [latency(found, chase(0, size), neighbour(2, size)) for size in sizes]
    assert together == sorted(together)
    twice = [latency(found, chase(0, 2 * size)) for size in sizes]
    assert together == pytest.approx(twice, 0.01)


def test_copies_of_a_gpu_use_the_memory_of_the_host():
    metrics = {"host_to_device_bytes_per_second": {}, "device_to_host_bytes_per_second": {}}
    device = {"name": "opencl0", "node": 0}
    target = {"drives": [], "nodes": [0], "device": device}
    copy = load("copy", "0", 0, metrics=metrics, target=target)
    found = planned("desktop").model
    reader = load("a", "2-23", 0)
    [alone] = rate(found, copy)
    [beside, read] = rate(found, copy, reader)
    assert alone == 25e9
    assert beside < alone
    assert beside + read == pytest.approx(76e9)
