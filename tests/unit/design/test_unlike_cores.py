"""Kinds of cores and OpenCL devices in experiments, and the commands of a Mac."""

from __future__ import annotations

from dataclasses import replace

import pytest
from expansions import expand, memory_load, plan_of, tried

from chaosity.design.host_resources import HostResources
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError
from chaosity.topology.topology_parts import CoreKind, OpenclDevice
from machines import shipped_topology

CPU = OpenclDevice(
    "opencl0", "Portable Computing Language", "pthread", "cpu", vendor="GenuineIntel"
)
GPU = OpenclDevice(
    "opencl0",
    "NVIDIA CUDA",
    "NVIDIA H200",
    "gpu",
    vendor="NVIDIA Corporation",
    pci="0000:01:00.0",
    uuid="u",
    node=0,
)


def loads_of(topology, config, experiment):
    points = plan_of(topology, config, experiment).points
    return {point["point"]: {load["role"]: load for load in point["loads"]} for point in points}


def two_kinds(topology, **first):
    """The server of the paper, if its first 20 cores were of another kind."""
    cores = [core.cpus for core in topology.cores]
    slow, fast = (tuple(sorted(sum(part, ()))) for part in (cores[:20], cores[20:]))
    kinds = (CoreKind(0, slow, **first), CoreKind(1, fast, frequency_max_hertz=3_000))
    return replace(topology, core_kinds=kinds)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({"frequency_max_hertz": 2_000}, "efficiency_cores"),
        ({"frequency_max_hertz": 4_000}, "performance_cores"),
        ({"frequency_max_hertz": 3_000}, "kind0"),
        ({}, "kind0"),
    ],
)
def test_kinds_are_named_for_their_rank(paper_host, first, expected):
    topology = two_kinds(paper_host.topology, **first)
    elements = HostResources(topology, ())
    assert elements.initiators_of_level("core_kind", False)[0].name == expected
    _, [fastest, *_] = elements.first_pu_of_each_group("core_kind")
    assert elements.uniform_core_kind_name(fastest) == expected
    assert elements.uniform_core_kind_name(elements.initiators_of_level("machine", True)[0]) is None


def test_three_kinds_are_numbered(paper_host):
    pus = paper_host.topology.pus
    kinds = tuple(CoreKind(i, pus[i::3], efficiency=i) for i in range(3))
    elements = HostResources(replace(paper_host.topology, core_kinds=kinds), ())
    assert [str(name) for name, _ in elements.cpu_groups_of_level("core_kind")] == [
        "kind0",
        "kind1",
        "kind2",
    ]


def test_the_cores_beside_a_device_are_those_that_do_not_drive_it(paper_host, config):
    topology = replace(
        two_kinds(paper_host.topology, frequency_max_hertz=2_000), opencl_devices=(GPU,)
    )
    loads = loads_of(topology, config, "gpu_and_cpu")
    beside = [one for one in loads if "memory" in one]
    alone = [one.replace("opencl0", "none") for one in beside if "opencl0" in one]
    assert sorted(alone) == sorted(one for one in beside if "opencl0" not in one)
    assert any("performance_cores+" in one for one in beside)  # lost none, keeps its name
    assert any("efficiency_cores_without_pu0+" in one for one in beside)
    for one in loads.values():
        if len(one) == 2:
            driving = one["device"]["initiator"]["cpus"]
            assert driving == "0"
            assert not one["memory"]["initiator"]["cpus"].startswith("0")


def test_factors_say_alone(paper_host, config):
    topology = replace(paper_host.topology, opencl_devices=(CPU,))
    points = plan_of(topology, config, "gpu_and_cpu").points
    assert [(p["factors"]["device"], p["factors"]["cores"]) for p in points] == [
        ("opencl0", "alone"),
        ("alone", "machine_without_pu0"),
        ("opencl0", "machine_without_pu0"),
    ]
    assert "opencl0" in points[2]["components"]
    assert "opencl0" not in points[1]["components"]


def test_the_only_load_is_meant_whatever_it_is_called(paper_host, config):
    load = memory_load(initiator={"each": "machine"}, target={"names": ["node3"]})
    sides = {side: {"level": f"only.{side}"} for side in ("initiator", "target")}
    document = tried(sides, a={"a": load}, b={"b": load}, both={"a": load, "b": load})
    points, _ = expand(paper_host, config, document)
    one, other, both = (point["factors"] for point in points)
    assert one == other == {"initiator": "machine", "target": "node3"}
    assert both == {"initiator": "alone", "target": "alone"}


def test_a_gpu_is_a_component_by_its_slot_too(config):
    topology = shipped_topology("devices")
    for point in plan_of(topology, config, "gpu_bandwidth").points:
        assert {"opencl0", "gpu-0000-01-00-0"} <= set(point["components"])
        [load] = point["loads"]
        assert load["target"]["device"]["pci"] == "0000:01:00.0"
        assert load["memory_bytes"] == 2**24  # on the host, to check the result
        assert load["command"][4:8] == [
            "--platform=unknown",  # in hwloc's XML
            "--device=NVIDIA H200",
            "--slot=0000:01:00.0",
            "--twin=0",
        ]


def test_a_tool_of_one_maker_leaves_the_others_devices_out(paper_host, config):
    nvidia = {**config, "benchmarks": {**config["benchmarks"], "gpu_copy": "nvbandwidth"}}
    second = replace(CPU, name="opencl1")
    topology = replace(paper_host.topology, opencl_devices=(GPU, second))
    plan = plan_of(topology, nvidia, "gpu_copies")
    assert [point["point"] for point in plan.points] == [
        f"copy=node{node}+opencl0" for node in range(8)
    ]
    assert any("so opencl1 is left out" in note for note in plan.notes)


def test_a_host_gets_commands_of_its_own_system_alone(config):
    with pytest.raises(UserError, match="is for Linux, but this host runs macOS"):
        plan_of(shipped_topology("m1-pro-by-hand"), config, "unlike_cores")
    mac = read_config(ROOT / "config/darwin.yaml")
    linux = shipped_topology("devices")
    with pytest.raises(UserError, match="is for macOS, but this host runs Linux"):
        plan_of(linux, mac, "unlike_cores")


def test_how_a_device_shares_memory_defines_no_point(paper_host, config):
    """Discovery of a later version knows it; the measured points stay valid."""
    digests = []
    for device in (GPU, replace(GPU, unified_memory=False, shared_virtual_memory="coarse_grain")):
        topology = replace(paper_host.topology, opencl_devices=(device,))
        points = plan_of(topology, config, "gpu_bandwidth").points
        digests.append([point["definition"] for point in points])
    assert digests[0] == digests[1] != []
