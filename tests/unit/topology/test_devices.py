"""Accelerators and OpenCL devices of a host, named and with their node."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from captured import Capture, CapturedFunction, CapturedNode

from chaosity.components import make_component_documents
from chaosity.errors import MeasurementError
from chaosity.runner import describe_host, devices_of_point
from chaosity.runner.devices_of_point import find_opencl_device
from chaosity.topology.devices import accelerator_kinds, accelerator_texts
from chaosity.topology.devices import make_opencl_devices as topology_devices
from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from chaosity.topology.topology_model import Topology, topology_from_json, topology_to_json
from machines import shipped_topology
from shipped_data import REAL_MACHINES

# A server with Intel's engines, whose kernel knows one of them by its driver alone, a GPU with
# coherent memory, and memory behind CXL.
SERVER = Capture(
    {
        0: CapturedNode("0-3", 64, (10, 21, 40, 24)),
        1: CapturedNode("4-7", 64, (21, 10, 40, 24)),
        2: CapturedNode("", 96, (40, 40, 10, 40)),
        3: CapturedNode("", 128, (24, 24, 40, 10)),
    },
    {0: "0-3", 1: "4-7"},
    functions=[
        CapturedFunction("0000:6a:01.0", "8086:0b25", "0880", 0, "idxd", "dsa0"),
        CapturedFunction("0000:6a:02.0", "8086:0cfe", "0880", 0, "idxd", "iax1"),
        CapturedFunction("0000:6b:00.0", "8086:4940", "0b40", 0, "4xxx"),
        CapturedFunction("0000:6d:00.0", "8086:2710", "0b40", 0),
        CapturedFunction("0000:e7:01.0", "8086:0b25", "0880", 1),
        CapturedFunction("0000:e7:02.0", "8086:beef", "0880", 1, "idxd", "iax3"),
        CapturedFunction("0000:e8:00.0", "8086:beef", "0b40", 1, "420xx"),
        CapturedFunction("0000:e9:00.0", "1022:1486", "1080", 1, "ccp"),
        CapturedFunction("0000:01:00.0", "10de:2342", "0302", 0, "nvidia"),
    ],
    files={
        "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu amx_bf16 avx512_fp16 amx_tile amx_int8",
        "proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node: 2\nStatus: online",
        "sys/bus/dax/devices/dax0.0/target_node": "3",
    },
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return discover_topology(str(SERVER.write(tmp_path_factory.mktemp("server"))))


def test_each_accelerator_has_kind_name_node_and_driver(server):
    found = [(each.kind, each.name, each.node, each.driver) for each in server.accelerators]
    assert found == [
        ("AMX", "amx_tile amx_int8 amx_bf16", None, None),
        ("DSA", "dsa0", 0, "idxd"),
        ("IAA", "iax1", 0, "idxd"),
        ("QAT", "0000:6b:00.0", 0, "4xxx"),
        ("DLB", "0000:6d:00.0", 0, "none"),
        ("DSA", "0000:e7:01.0", 1, "none"),
        ("IAA", "iax3", 1, "idxd"),  # its number is unknown, its name is not
        ("QAT", "0000:e8:00.0", 1, "420xx"),  # known by its driver
        ("encryption", "0000:e9:00.0", 1, "ccp"),
    ]
    places = {kind: where for kind, where, _ in accelerator_texts(server)}
    assert places["DSA (Data Streaming Accelerator)"] == (
        "1 on node 0 and 1 on node 1, driver idxd, some without a driver"
    )


def test_coherence_of_memory_of_a_gpu_and_of_ordinary_memory(server):
    assert [node.kind for node in server.nodes] == ["DRAM", "DRAM", "GPU", "CPU-less"]
    assert [node.coherent_with for node in server.nodes] == [
        "cores",
        "cores",
        "cores and GPU",
        "cores",
    ]
    [gpu] = server.gpus
    assert gpu.memory_node == 2
    assert [*server.coherence_sentences()] == [
        "Node 2 is the memory of GPU 0000:01:00.0: hardware keeps the caches of cores and GPU"
        " coherent."
    ]


def test_accelerators_and_coherence_are_in_the_json_and_in_the_xml(server, tmp_path):
    document = topology_to_json(server)
    assert document["nodes"][2]["coherence"] == "cores and GPU"
    assert topology_from_json(document) == server
    xml = tmp_path / "server.xml"
    xml.write_text(discover_topology_with_xml(str(SERVER.write(tmp_path / "root")))[1])
    again = discover_topology(str(xml))  # without names of devices, drivers and flags
    assert [each.kind for each in again.accelerators] == [
        *("DSA", "IAA", "QAT", "DLB", "DSA", "coprocessor", "encryption")
    ]
    assert again.gpus[0].memory_node == 2


def test_kinds_differ_in_what_shows_them_and_say_what_is_not_measured():
    shown = [
        text
        for kind in accelerator_kinds()
        for text in (*kind.get("pci", ()), *kind.get("drivers", ()), *kind.get("flags", ()))
    ]
    assert len(shown) == len(set(shown))
    for kind in accelerator_kinds():
        assert re.fullmatch(r"Not measured: .+; .+\.", kind["not_measured"]), kind
        assert len(kind["not_measured"]) <= 100
        assert {"flags", "cpu_model", "pci"} & kind.keys()


RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded"
POCL = json.loads((RECORDED / "opencl-devices_pocl-3.1.json").read_text())
[PROCESSOR] = POCL["devices"]
NAME = "pthread-haswell-AMD EPYC"


def gpu(number, pci):
    """One of two GPUs of the same model, on the second platform."""
    place = {"platform_number": 1, "device_number": number, "twin": number, "pci": pci}
    names = {"platform": "NVIDIA CUDA", "device": "NVIDIA H100", "type": "gpu"}
    return {**PROCESSOR, **names, **place, "uuid": "0123abcd-0000-1111-2222-333344445555"}


GPUS = {
    "loader": "/usr/lib/libOpenCL.so.1",
    "devices": [PROCESSOR, gpu(0, "0000:c1:00.0"), gpu(1, "0000:41:00.0")],
}


def wanted_device(**changed):
    return {
        "name": "opencl0",
        "platform": "Portable Computing Language",
        "device": NAME,
        "twin": 0,
        "pci": None,
        "driver": "3.1+debian",
        **changed,
    }


def test_a_device_is_found_again_under_its_new_numbers():
    moved = {**GPUS, "devices": [{**PROCESSOR, "platform_number": 2}]}
    assert find_opencl_device(wanted_device(), moved)["platform_number"] == 2
    slot = wanted_device(platform="NVIDIA CUDA", device="NVIDIA H100", pci="0000:41:00.0")
    assert find_opencl_device(slot, GPUS)["device_number"] == 1


@pytest.mark.parametrize(
    ("wanted", "listed", "words"),
    [
        (
            wanted_device(),
            {"loader": None, "devices": []},
            "is missing since discovery; present: no device",
        ),
        (wanted_device(device="Other"), POCL, f"is missing since discovery; present: '{NAME}'"),
        (wanted_device(twin=1), POCL, "is missing since discovery"),
        (wanted_device(pci="0000:01:00.0"), POCL, "is missing since discovery"),
        (wanted_device(), None, "cannot be looked up: chaosity-opencl lists no devices"),
    ],
)
def test_a_missing_device_is_an_error_that_names_it(wanted, listed, words):
    with pytest.raises(MeasurementError, match=r"missing since|cannot be looked up") as error:
        find_opencl_device(wanted, listed)
    assert words in str(error.value)
    assert repr(wanted["device"]) in str(error.value)


def test_a_command_with_numbers_gets_them_and_their_loader(monkeypatch):
    monkeypatch.setattr(devices_of_point, "list_opencl_devices", lambda: GPUS)
    slot = wanted_device(platform="NVIDIA CUDA", device="NVIDIA H100", pci="0000:41:00.0")
    numbers = [devices_of_point.PLATFORM_NUMBER, devices_of_point.DEVICE_NUMBER]
    load, [reported] = devices_of_point.fill_in_device_numbers(
        {"command": ["tool", *numbers, "rest"], "environment": {}, "target": {"device": slot}}
    )
    assert load["command"] == ["tool", "1", "1", "rest"]
    assert load["environment"] == {"LD_PRELOAD": GPUS["loader"]}
    assert reported["passed"]
    assert "platform 1 (NVIDIA CUDA), device 1 (NVIDIA H100)" in reported["detail"]


def test_a_command_with_names_stays_and_a_new_driver_is_reported(monkeypatch):
    monkeypatch.setattr(devices_of_point, "list_opencl_devices", lambda: GPUS)
    target = {"device": wanted_device(driver="2.0")}
    asked = {"command": ["tool", f"--device={NAME}"], "environment": {}, "target": target}
    load, [changed] = devices_of_point.fill_in_device_numbers(asked)
    assert load == asked
    assert not changed["passed"]
    assert not changed["decisive"]


def test_a_load_without_a_device_lists_none(monkeypatch):
    monkeypatch.setattr(devices_of_point, "list_opencl_devices", lambda: pytest.fail("asked"))
    load = {"command": ["tool"], "target": {"drives": []}}
    assert devices_of_point.fill_in_device_numbers(load) == (load, [])


@pytest.mark.parametrize("answer", [None, "exit 2", "echo half '{'", "printf '\\377'"])
def test_a_host_that_lists_no_devices_is_described_all_the_same(answer, tmp_path, monkeypatch):
    """Before provisioning there is no program; an old one refuses the option."""
    if answer:
        program = tmp_path / "chaosity-opencl"
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_host.list_opencl_devices() is None


def test_gpus_come_first_and_their_slots_give_the_node():
    class Tree:
        machine = None

    topology = shipped_topology("devices")
    nodes, gpus = topology.nodes, topology.gpus
    listed = [PROCESSOR, gpu(0, gpus[0].pci), gpu(1, "0000:41:00.0")]
    found = topology_devices(listed, Tree(), gpus, nodes)
    assert [(one.name, one.type) for one in found] == [
        ("opencl0", "gpu"),
        ("opencl1", "gpu"),
        ("opencl2", "cpu"),
    ]
    assert found[0].node == gpus[0].node
    assert [one.node for one in found[1:]] == [None, None]  # two nodes have processors
    assert [one.is_processor for one in found] == [False, False, True]
    [alone] = topology_devices([PROCESSOR], Tree(), (), nodes[:1])
    assert alone.node == nodes[0].os_index


def test_four_real_gpus_are_on_their_nodes():
    found = discover_topology(
        str(REAL_MACHINES / "xml/mpibind_naples-2s-7401-8n.xml")
    ).opencl_devices
    assert [one.node for one in found] == [1, 2, 5, 7]
    assert {one.platform for one in found} == {"AMD Accelerated Parallel Processing"}


@pytest.mark.parametrize(
    ("unified", "shared", "text"),
    [
        (False, None, "its own memory"),
        (True, None, "the host's memory"),
        (None, "fine_grain_system", "shared fine grain system"),
        (None, "none", ""),
        (None, None, ""),
    ],
)
def test_how_host_and_device_share_memory(unified, shared, text):
    facts = {"unified_memory": unified, "shared_virtual_memory": shared}
    [device] = topology_devices([{**PROCESSOR, **facts}], None, (), ())
    assert device.memory_sharing_text == text


def test_pocl_shares_the_hosts_memory_and_that_defines_no_component():
    [device] = topology_devices([PROCESSOR], None, (), ())
    assert (device.platform, device.device) == ("Portable Computing Language", NAME)
    assert (device.type, device.pci, device.compute_units) == ("cpu", None, 2)
    assert device.memory_sharing_text == "the host's memory, shared fine grain"
    topology = replace(Topology(), opencl_devices=(device,))
    document = make_component_documents(topology)["opencl0"]
    assert not {"unified_memory", "shared_virtual_memory"} & set(document)
