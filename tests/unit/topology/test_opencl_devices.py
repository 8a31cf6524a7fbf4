"""OpenCL devices: complete and broken output of clinfo, and the devices in the topology."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.components.make_component_documents import make_component_documents
from chaosity.errors import MeasurementError
from chaosity.runner import opencl_device_lookup
from chaosity.runner.opencl_device_lookup import find_opencl_device, parse_clinfo
from chaosity.topology.drives_gpus_and_accelerators import list_opencl_devices as topology_devices
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_json import topology_from_json, topology_to_json
from chaosity.topology.topology_model import Topology
from shipped_data import REAL_MACHINES

RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded"
POCL = (RECORDED / "clinfo-3.0.23_pocl-3.1.txt").read_text()
NO_PLATFORM = (RECORDED / "clinfo-3.0.23_no_platform.txt").read_text()
NAME = "pthread-skylake-avx512-Intel(R) Xeon(R) Processor"
# Two GPUs of the same model, and a platform whose name begins like another's, in clinfo's format.
GPUS = """\
#PLATFORMS                                        2
  CL_PLATFORM_NAME                                NVIDIA CUDA

[INTEL/*]    CL_PLATFORM_NAME                                Intel(R) OpenCL
[INTEL/*]  #DEVICES                                          1
[INTEL/0]    CL_DEVICE_NAME                                  Some Xeon
[INTEL/0]    CL_DEVICE_TYPE                                  CL_DEVICE_TYPE_CPU
[NV/*]    CL_PLATFORM_NAME                                NVIDIA CUDA
[NV/0]    CL_DEVICE_NAME                                  NVIDIA H100
[NV/0]    CL_DEVICE_TYPE                                  CL_DEVICE_TYPE_GPU
[NV/0]    CL_DEVICE_PCI_BUS_ID_NV                         PCI-E, 0000:C1:00.0
[NV/0]    CL_DEVICE_UUID_KHR                              0123ABCD-0000-1111-2222-333344445555
[NV/1]    CL_DEVICE_NAME                                  NVIDIA H100
[NV/1]    CL_DEVICE_TYPE                                  CL_DEVICE_TYPE_GPU
[NV/1]    CL_DEVICE_TOPOLOGY_AMD                          PCI-E, 41:00.0
"""


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


def test_all_facts_that_pocl_prints_are_read():
    [one] = parse_clinfo(POCL)
    assert (one["platform"], one["device"]) == ("Portable Computing Language", NAME)
    assert (one["type"], one["pci"], one["compute_units"]) == ("cpu", None, 2)
    assert (one["platform_number"], one["device_number"]) == (0, 0)
    assert one["driver"] == "3.1+debian"


@pytest.mark.parametrize("said", [None, "", NO_PLATFORM, "clinfo: error -1001", POCL[:900]])
def test_output_without_devices_gives_no_device(said):
    assert parse_clinfo(said) == []


def test_platforms_with_equal_prefixes_differ_and_equal_devices_are_numbered():
    found = parse_clinfo(GPUS)
    assert [(one["platform_number"], one["device_number"]) for one in found] == [
        (0, 0),
        (1, 0),
        (1, 1),
    ]
    assert [one["twin"] for one in found] == [0, 0, 1]
    assert [one["pci"] for one in found] == [None, "0000:c1:00.0", "0000:41:00.0"]
    assert found[1]["uuid"] == "0123abcd-0000-1111-2222-333344445555"


@given(st.integers(0, len(POCL)), st.text(max_size=40))
def test_no_text_breaks_the_reader(cut, rubbish):
    for one in parse_clinfo(POCL[:cut] + rubbish + POCL[cut:]):
        assert one["type"] in ("cpu", "gpu", "accelerator", "other")


def test_a_device_is_found_again_under_its_new_numbers():
    assert find_opencl_device(wanted_device(), GPUS + POCL)["platform_number"] == 2
    slot = wanted_device(platform="NVIDIA CUDA", device="NVIDIA H100", pci="0000:41:00.0")
    assert find_opencl_device(slot, GPUS)["device_number"] == 1


@pytest.mark.parametrize(
    ("wanted", "said", "words"),
    [
        (
            wanted_device(),
            NO_PLATFORM,
            "is missing since discovery; present: no device",
        ),
        (wanted_device(device="Other"), POCL, f"is missing since discovery; present: '{NAME}'"),
        (wanted_device(twin=1), POCL, "is missing since discovery"),
        (wanted_device(pci="0000:01:00.0"), POCL, "is missing since discovery"),
        (wanted_device(), None, "cannot be looked up: clinfo is not installed"),
    ],
)
def test_a_missing_device_is_an_error_that_names_it(wanted, said, words):
    with pytest.raises(MeasurementError, match=r"missing since|cannot be looked up") as error:
        find_opencl_device(wanted, said)
    assert words in str(error.value)
    assert repr(wanted["device"]) in str(error.value)


def test_the_command_gets_platform_and_device_numbers(monkeypatch):
    monkeypatch.setattr(opencl_device_lookup, "read_clinfo_output", lambda: GPUS + POCL)
    command = [
        "tool",
        opencl_device_lookup.PLATFORM_NUMBER,
        opencl_device_lookup.DEVICE_NUMBER,
        "rest",
    ]
    load, [told] = opencl_device_lookup.fill_in_device_numbers(
        {"command": command, "target": {"device": wanted_device()}}
    )
    assert load["command"] == ["tool", "2", "0", "rest"]
    assert told["passed"]
    assert "platform 2 (Portable Computing Language)" in told["detail"]
    _, [changed] = opencl_device_lookup.fill_in_device_numbers(
        {"command": [], "target": {"device": wanted_device(driver="2.0")}}
    )
    assert not changed["passed"]
    assert not changed["decisive"]


def test_a_load_without_a_device_does_not_run_clinfo(monkeypatch):
    monkeypatch.setattr(opencl_device_lookup, "read_clinfo_output", lambda: pytest.fail("asked"))
    load = {"command": ["tool"], "target": {"drives": []}}
    assert opencl_device_lookup.fill_in_device_numbers(load) == (load, [])


def test_gpus_come_first_and_their_slots_give_the_node():
    class Tree:
        machine = None

    topology = discover_topology(str(RECORDED.parent / "topologies" / "devices.xml"))
    nodes, gpus = topology.nodes, topology.gpus
    text = GPUS.replace("C1:00.0", gpus[0].pci.removeprefix("0000:"))
    found = topology_devices(text, Tree(), gpus, nodes)
    assert [(one.name, one.type) for one in found] == [
        ("opencl0", "gpu"),
        ("opencl1", "gpu"),
        ("opencl2", "cpu"),
    ]
    assert found[0].node == gpus[0].node
    assert [one.node for one in found[1:]] == [None, None]  # two nodes have processors
    assert [one.is_processor for one in found] == [False, False, True]
    [alone] = topology_devices(POCL, Tree(), (), nodes[:1])
    assert alone.node == nodes[0].os_index


def test_hwloc_shows_devices_too():
    topology = discover_topology(str(RECORDED.parent / "topologies" / "devices.xml"))
    [one] = topology.opencl_devices
    assert (one.device, one.pci) == ("NVIDIA H200", "0000:01:00.0")
    assert topology_from_json(topology_to_json(topology)).opencl_devices == (one,)
    document = make_component_documents(topology)["opencl0"]
    assert document["component"] == "opencl_device"
    assert document["pci"] == one.pci


def test_four_real_gpus_are_on_their_nodes():
    found = discover_topology(
        str(REAL_MACHINES / "xml/mpibind_naples-2s-7401-8n.xml")
    ).opencl_devices
    assert [one.node for one in found] == [1, 2, 5, 7]
    assert {one.platform for one in found} == {"AMD Accelerated Parallel Processing"}


@pytest.mark.parametrize(
    ("line", "unified", "shared", "text"),
    [
        ("HOST_UNIFIED_MEMORY  CL_FALSE", False, None, "its own memory"),
        ("HOST_UNIFIED_MEMORY  CL_TRUE", True, None, "the host's memory"),
        (
            "SVM_CAPABILITIES  CL_DEVICE_SVM_COARSE_GRAIN_BUFFER | CL_DEVICE_SVM_FINE_GRAIN_SYSTEM",
            None,
            "fine_grain_system",
            "shared fine grain system",
        ),
        ("SVM_CAPABILITIES  (none)", None, "none", ""),
        ("OTHER  CL_TRUE", None, None, ""),
    ],
)
def test_how_host_and_device_share_memory(line, unified, shared, text):
    lines = ["[NV/*] CL_PLATFORM_NAME p", "[NV/0] CL_DEVICE_NAME d", f"[NV/0] CL_DEVICE_{line}"]
    [device] = topology_devices("\n".join(lines), None, (), ())
    assert (device.unified_memory, device.shared_virtual_memory) == (unified, shared)
    assert device.memory_text == text


def test_pocl_shares_the_hosts_memory_and_that_defines_no_component():
    [device] = topology_devices(POCL, None, (), ())
    assert device.memory_text == "the host's memory, shared fine grain"
    topology = replace(Topology(), opencl_devices=(device,))
    document = make_component_documents(topology)["opencl0"]
    assert not {"unified_memory", "shared_virtual_memory"} & set(document)


@pytest.mark.parametrize("number", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", "many"])
def test_an_odd_number_of_compute_units_is_unknown(number):
    output = (
        "[P/*] CL_PLATFORM_NAME P\n[P/0] CL_DEVICE_NAME D\n"
        f"[P/0] CL_DEVICE_MAX_COMPUTE_UNITS {number}\n[P/{number}] CL_DEVICE_NAME E\n"
    )
    assert parse_clinfo(output)[0]["compute_units"] is None
