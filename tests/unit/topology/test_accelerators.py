"""Accelerators are named where the machine shows them, and so is the coherence of memory."""

from __future__ import annotations

import re

import pytest
from captured import Capture, CapturedFunction, CapturedNode

from chaosity.topology.accelerators import accelerator_kinds, accelerator_texts
from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from chaosity.topology.topology_model import topology_from_json, topology_to_json

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
    assert [node.coherence for node in server.nodes] == ["cores", "cores", "cores and GPU", "cores"]
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
