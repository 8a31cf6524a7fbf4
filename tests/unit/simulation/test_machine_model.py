"""Rates and latencies of the model, against values by hand."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.checked_yaml_files import ROOT
from chaosity.errors import UserError
from chaosity.simulation.machine_description import (
    Fault,
    MachineDescription,
    current_faults,
    firmware_topology,
    read_machine_description,
)
from chaosity.simulation.machine_model import (
    MachineModel,
    NoiselessLoadResult,
    closed_queue_rate,
    read_written_and_counted_shares,
)
from chaosity.topology.topology_discovery import discover_topology

TOPOLOGY = discover_topology(str(ROOT / "machines/topologies/epyc_7413_nps4.xml"))
TODAY = date(2026, 11, 22)
MACHINE: MachineDescription = {
    "simulated_machine": "by_hand",
    "description": "round numbers",
    "sources": ["this test"],
    "memory": {
        "core_bytes_per_second": 20e9,
        "package_bytes_per_second": 160e9,  # 40 GB/s for each of four nodes
    },
    "links": {"package_to_package_bytes_per_second": 30e9},
    "latency_ns": {
        "l1": 1.0,
        "l2": 4.0,
        "l3": 15.0,
        "same_node": 100.0,
        "same_package": 110.0,
        "other_package": 200.0,
        "queue": 10.0,
    },
    "core_to_core_ns": {"same_l3": 25.0, "same_package": 90.0, "other_package": 210.0},
    "drives": {"read_bytes_per_second": 7e9},
}


def load(name: str, cpus: str, node: int, **changes: Any) -> Any:
    """A load of reads with a working set far beyond the caches."""
    return {
        "name": name,
        "kernel": "read",
        "memory_bytes": 2**50,
        "writes": False,
        "metrics": {"bandwidth_bytes_per_second": {}},
        "initiator": {"cpus": cpus, "nodes": [0]},
        "target": {"drives": [], "nodes": [node]},
        "placement": {"memory_nodes": [node], "cpus": cpus},
        **changes,
    }


def drives(name: str, node: int, *numbers: int, into: int | None = None) -> Any:
    """A load that reads drives of a node, given by their place in the topology."""
    found = [f"drive-0000-{address}-00-0" for address in ("01", "02", "03", "11", "12", "13", "14")]
    targets = [{"component": found[number], "node": node} for number in numbers]
    memory = node if into is None else into
    return {
        **load(name, "0-11", memory),
        "kernel": None,
        "target": {"drives": targets, "nodes": [node]},
    }


def model(*faults: Fault, host: str = "host", today: date = TODAY) -> MachineModel:
    return MachineModel({**MACHINE, "faults": list(faults)}, TOPOLOGY, host, today)


def rate(found: MachineModel, *loads: Any) -> list[float]:
    return [truth.moved_bytes_per_second for truth in found.noiseless_results(list(loads)).values()]


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
    """Random reads of 4 KiB of drives of node 0."""
    return {
        **drives("d", 0, *range(count), into=into),
        "metrics": {"read_rate_reads_per_second": {}},
        "memory_bytes": count * in_flight * 4096,
        "initiator": {"cpus": cpus, "nodes": []},
        "placement": {"memory_nodes": [into], "cpus": cpus},
    }


WITH_RANDOM_READS: MachineDescription = {
    **MACHINE,
    "drives": {**MACHINE["drives"], "read_latency_ns": 80e3, "random_reads_per_second": 1e6},
}


def read_result(load: Any, *faults: Fault) -> NoiselessLoadResult:
    machine = MachineModel({**WITH_RANDOM_READS, "faults": list(faults)}, TOPOLOGY, "host", TODAY)
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


def test_a_traffic_share_is_of_the_programs_own_peak():
    half = load("a", "0-11", 0, levels={"share": 50})
    assert rate(model(), half) == pytest.approx([20e9])


@pytest.mark.parametrize(
    ("kernel", "counted"), [("triad", 0.75), ("triad_nt", 1.0), ("copy", 2 / 3), ("read67", 1.0)]
)
def test_stores_fetch_their_lines_and_stream_does_not_count_it(kernel, counted):
    reads, writes, share = read_written_and_counted_shares(kernel)
    assert reads + writes == pytest.approx(1.0)
    assert share == pytest.approx(counted)


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


FAULTS: list[tuple[Fault, Any, float]] = [
    ({"fault": "slow_node", "node": 0, "remaining": 0.5}, load("a", "0-11", 0), 20e9),
    (
        {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5},
        load("a", "0-47", 4),
        15e9,
    ),
    ({"fault": "slow_core", "core": 0, "remaining": 0.8}, load("a", "0", 0), 16e9),
    ({"fault": "slow_host", "remaining": 0.95}, load("a", "0-11", 0), 38e9),
    (
        {"fault": "slow_drive", "drive": "drive-0000-01-00-0", "remaining": 0.5},
        drives("d", 0, 0),
        3.5e9,
    ),
    (
        {
            "fault": "slow_port",
            "drives": ["drive-0000-01-00-0", "drive-0000-02-00-0"],
            "remaining": 0.6,
        },
        drives("d", 0, 0, 1),
        8.4e9,
    ),
]


@pytest.mark.parametrize(("fault", "seen_by", "expected"), FAULTS)
def test_a_fault_leaves_the_stated_share(fault, seen_by, expected):
    assert rate(model(fault), seen_by) == pytest.approx([expected])


def test_a_shared_path_is_slow_for_the_drives_of_its_nodes_together_and_only_into_the_package():
    fault: Fault = {
        "fault": "shared_drive_path",
        "drive_nodes": [0, 3],
        "to_package": 1,
        "remaining": 0.5,
    }
    both = {**MACHINE["drives"], "remote_package_bytes_per_second": 80e9}  # 20 GB/s for each node
    machine: MachineDescription = {**MACHINE, "drives": both, "faults": [fault]}
    slow = MachineModel(machine, TOPOLOGY, "host", TODAY)

    def together(into: int, *nodes: int) -> list[float]:
        found = [f"drive{number}" for number in range(4 * len(nodes))]
        targets = [{"component": name, "node": nodes[int(name[5:]) // 4]} for name in found]
        read = drives("d", 0, 0, into=into)
        return rate(slow, {**read, "target": {"drives": targets, "nodes": list(nodes)}})

    assert together(4, 0) == pytest.approx([20e9])
    assert together(4, 0, 3) == pytest.approx([20e9])
    assert together(4, 0, 1) == pytest.approx([30e9])  # the link between the packages
    assert together(1, 0, 3) == pytest.approx([40e9])


def test_a_fault_of_a_link_leaves_the_other_direction_whole():
    fault: Fault = {"fault": "slow_link", "from_package": 0, "to_package": 1, "remaining": 0.5}
    assert rate(model(fault), load("a", "0-47", 4)) == pytest.approx([30e9])


def test_a_fault_begins_on_its_date_and_on_its_host():
    fault: Fault = {
        "fault": "slow_node",
        "node": 0,
        "remaining": 0.5,
        "since": "2026-11-22",
        "host": "sick",
    }
    wanted = load("a", "0-11", 0)
    assert rate(model(fault, host="sick"), wanted) == pytest.approx([20e9])
    assert rate(model(fault, host="sick", today=date(2026, 11, 21)), wanted) == pytest.approx(
        [40e9]
    )
    assert rate(model(fault, host="healthy"), wanted) == pytest.approx([40e9])


def test_swapped_distances_change_what_the_firmware_says_and_no_rate():
    fault: Fault = {"fault": "swapped_distances", "nodes": [1, 4]}
    shown = firmware_topology({**MACHINE, "faults": [fault]}, TOPOLOGY, "host", TODAY)
    assert shown.distances is not None
    assert shown.distances.distance_between(0, 1) == 32
    assert shown.distances.distance_between(0, 4) == 12
    assert rate(model(fault), load("a", "0-11", 1)) == rate(model(), load("a", "0-11", 1))


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


def test_copies_of_a_gpu_use_the_memory_of_the_host():
    topology = discover_topology(str(ROOT / "machines/topologies/desktop.xml"))
    machine = read_machine_description(ROOT / "machines/desktop.yaml", topology)
    metrics = {"host_to_device_bytes_per_second": {}, "device_to_host_bytes_per_second": {}}
    device = {"name": "opencl0", "node": 0}
    target = {"drives": [], "nodes": [0], "device": device}
    copy = load("copy", "0", 0, metrics=metrics, target=target)
    found = MachineModel(machine, topology, "host", TODAY)
    reader = load("a", "2-23", 0)
    [alone] = rate(found, copy)
    [beside, read] = rate(found, copy, reader)
    assert alone == 25e9
    assert beside < alone
    assert beside + read == pytest.approx(76e9)


HEAD = "simulated_machine: bad\ndescription: for a test\nsources: [this test]\n"
BODY = """memory: {core_bytes_per_second: 1.0e+10, package_bytes_per_second: 1.0e+11}
latency_ns: {l1: 1, l2: 4, l3: 15, same_node: 100}
"""
WRONG = [
    (HEAD, "the key 'memory' is missing"),
    (HEAD + BODY.replace("1.0e+11", "-1"), "package_bytes_per_second"),
    (HEAD + BODY + "faults: [{fault: slow_dram, node: 0}]", "'slow_dram' is not allowed"),
    (HEAD + BODY + "faults: [{fault: slow_node, node: 0}]", "slow_node needs the key 'remaining'"),
    (
        HEAD + BODY + "faults: [{fault: slow_node, node: 9, remaining: 0.5}]",
        "the topology has no node 9",
    ),
    (
        HEAD + BODY + "faults: [{fault: slow_node, node: 0, remaining: 0.5, core: 1}]",
        "slow_node has no key 'core'",
    ),
    (
        HEAD + BODY + "faults: [{fault: slow_drive, drive: nvme0, remaining: 0.5}]",
        "the topology has no drive nvme0",
    ),
    (
        HEAD + BODY + "faults: [{fault: slow_drive, drive: drive-0000-01-00-0, remaining: 0.5}]",
        "faults.0: slow_drive needs drives, but the description has none",
    ),
    (
        HEAD + BODY + "faults: [{fault: slow_node, node: 0, remaining: 0.5, since: '2026-13-01'}]",
        "faults.0.since: 2026-13-01 is not a date",
    ),
    (HEAD + BODY + "seed: 2026-13-01", "is not YAML: month must be in 1..12"),
    (HEAD + BODY + "based_on: bad", "unknown machine 'bad'"),
    (
        HEAD
        + BODY
        + "faults: [{fault: slow_link, from_package: 0, to_package: 1, remaining: 0.5}]",
        "slow_link needs the capacity links.package_to_package_bytes_per_second",
    ),
    (HEAD + BODY + "based_on: nothing", "unknown machine 'nothing'"),
    (HEAD + BODY + "cores: 7", "unknown key 'cores'"),
    (HEAD.replace("bad", "other") + BODY, "it must be the file's name, bad"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_wrong_description_is_refused_in_one_sentence(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_machine_description(path, TOPOLOGY)
    assert words in str(error.value)
    assert "bad.yaml" in str(error.value)


def test_a_date_may_be_written_without_quotes(tmp_path):
    path = tmp_path / "bad.yaml"
    fault = "{fault: slow_node, node: 0, remaining: 0.5, since: 2026-11-22}"
    path.write_text(HEAD + BODY + f"faults: [{fault}]")
    read = read_machine_description(path, TOPOLOGY)
    assert read["faults"][0]["since"] == "2026-11-22"
    assert current_faults(read, "host", date(2026, 11, 21)) == []
    assert current_faults(read, "host", TODAY) == read["faults"]


def test_descriptions_that_are_based_on_each_other_are_refused(tmp_path):
    for name, base in (("bad", "other"), ("other", "bad")):
        text = HEAD.replace("bad", name) + BODY + f"based_on: {base}"
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(UserError, match="unknown machine 'bad'"):
        read_machine_description(tmp_path / "bad.yaml", TOPOLOGY)
