"""OpenCL devices as `chaosity-opencl --list` prints them, and the devices in the topology."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chaosity.components.component_documents import make_component_documents
from chaosity.errors import MeasurementError
from chaosity.runner import describe_host, devices_of_point
from chaosity.runner.devices_of_point import find_opencl_device
from chaosity.topology.devices import make_opencl_devices as topology_devices
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from shipped_data import REAL_MACHINES

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

    topology = discover_topology(str(RECORDED.parent / "topologies" / "devices.xml"))
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
