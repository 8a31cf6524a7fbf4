"""What QEMU is asked for, mode by mode, and descriptions that no machine can be made of."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from virtual_lab.build_system_disk import image_name, packages
from virtual_lab.errors import LabError
from virtual_lab.machine_folder import complete_description
from virtual_lab.numa_layout import nodes_in_mode
from virtual_lab.qemu_arguments import qemu_arguments

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path("/lab/server")
GIB = 2**30


@pytest.fixture
def described() -> dict[str, dict[str, Any]]:
    """The complete descriptions of the inventory's machines, by name."""
    hosts = yaml.safe_load((ROOT / "tests/lab/inventory/hosts.yml").read_text())["all"]["hosts"]
    return {
        name: complete_description(
            {
                **facts["virtual_lab_machine"],
                "name": name,
                "ssh_port": facts["ansible_port"],
                "image": "/cache/image",
            }
        )
        for name, facts in hosts.items()
    }


def following(arguments: list[str], option: str) -> list[str]:
    return [value for word, value in pairwise(arguments) if word == option]


def values(arguments: list[str], option: str, pattern: str) -> list[tuple[str, ...]]:
    """The groups of a pattern in the values of an option that match it."""
    found = (re.search(pattern, value) for value in following(arguments, option))
    return [match.groups() for match in found if match]


@pytest.mark.parametrize(
    ("mode", "cpus", "memory", "bridges"),
    [
        ("nps1", [[0, 1, 2, 3], [4, 5, 6, 7]], 2 * GIB, [0, 0, 0, 0, 1, 1, 1, 1]),
        ("nps0", [[0, 1, 2, 3, 4, 5, 6, 7]], 4 * GIB, [0] * 8),
        ("nps2", [[0, 1], [2, 3], [4, 5], [6, 7]], GIB, [0, 0, 1, 1, 2, 2, 3, 3]),
        ("nps4", [[cpu] for cpu in range(8)], GIB // 2, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_a_mode_joins_units_memory_and_drives_of_neighbours(
    described, mode, cpus, memory, bridges
) -> None:
    nodes = nodes_in_mode(described["server"], mode)
    assert [node.cpus for node in nodes] == cpus
    assert {node.memory_bytes for node in nodes} == {memory}
    arguments = qemu_arguments(described["server"], mode, FOLDER)
    found = values(arguments, "-device", r"^pxb-pcie,id=bridge(\d+),.*numa_node=(\d+)$")
    assert found == [(str(part), str(node)) for part, node in enumerate(bridges)]


def test_a_drive_keeps_its_place_in_every_mode(described) -> None:
    def ports(mode: str) -> list[str]:
        words = following(qemu_arguments(described["server"], mode, FOLDER), "-device")
        return [re.sub("numa_node=.*", "", word) for word in words]

    assert ports("nps0") == ports("nps1") == ports("nps2") == ports("nps4")


def test_the_papers_server_has_its_drives(described) -> None:
    arguments = qemu_arguments(described["server"], "nps4", FOLDER)
    ports = values(arguments, "-device", r"^pcie-root-port,.*bus=bridge(\d)")
    assert [ports.count((str(node),)) for node in range(8)] == [3, 4, 4, 4, 3, 4, 4, 4]
    drives = values(arguments, "-drive", r"file=(.*),if=none,id=drive\d+,.*bps-read=(\d+)$")
    assert drives[3] == ("/lab/server/drives/NV-1-0.img", "50000000")
    assert len(values(arguments, "-device", "^(nvme),drive=drive.*serial=NV-")) == 30


@pytest.mark.parametrize("mode", ["nps0", "nps1", "nps2", "nps4"])
def test_bus_numbers_do_not_overlap(described, mode) -> None:
    arguments = qemu_arguments(described["server"], mode, FOLDER)
    bridges = values(arguments, "-device", r"id=bridge(\d),.*bus_nr=(\d+)")
    ports = values(arguments, "-device", r"^pcie-root-port,.*bus=bridge(\d)")
    # A bridge's own bus and one behind each port.
    ends = [int(first) + 1 + ports.count((number,)) for number, first in bridges]
    starts = [int(first) for _, first in bridges[1:]] + [256]
    assert all(end <= start for end, start in zip(ends, starts, strict=True))


def test_the_traps_are_there(described) -> None:
    nodes = nodes_in_mode(described["traps"], "snc2")
    assert [node.cpus for node in nodes] == [[0, 2], [1], [3, 5], [4], []]
    assert [node.memory_bytes // 2**20 for node in nodes] == [512, 0, 512, 512, 512]
    arguments = qemu_arguments(described["traps"], "snc2", FOLDER)
    numa = following(arguments, "-numa")
    assert "node,nodeid=4,memdev=memory4,initiator=2" in numa
    assert "dist,src=0,dst=4,val=28" in numa
    assert "dist,src=2,dst=4,val=17" in numa
    about = "hmat-lb,initiator=2,target=4,hierarchy=memory"
    assert f"{about},data-type=access-latency,latency=250" in numa
    assert f"{about},data-type=access-bandwidth,bandwidth=20000M" in numa
    assert not any("target=1," in word for word in numa)  # it has no memory
    assert "pcie-root-port,id=port2,bus=pcie.0,chassis=3" in following(arguments, "-device")


def test_the_distances_are_those_of_the_ways(described) -> None:
    numa = following(qemu_arguments(described["server"], "nps4", FOLDER), "-numa")
    assert {f"dist,src=0,dst={n},val={v}" for n, v in ((0, 10), (3, 12), (4, 32))} <= set(numa)


def test_no_secret_is_an_argument_and_nothing_listens_beyond_loopback(described) -> None:
    arguments = qemu_arguments(described["small"], "nps1", FOLDER)
    assert following(arguments, "-smbios") == [
        "type=11,path=/lab/server/credentials/host_key",
        "type=11,path=/lab/server/credentials/authorized_keys",
    ]
    assert following(arguments, "-netdev") == ["user,id=network,hostfwd=tcp:127.0.0.1:2201-:22"]


def test_a_comma_in_a_folder_does_not_end_an_option(described) -> None:
    arguments = qemu_arguments(described["small"], "nps1", Path("/a,b"))
    assert "type=11,path=/a,,b/credentials/host_key" in following(arguments, "-smbios")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "nps3"}, "server: mode is nps3; it has to be one of nps1, nps2, nps4, nps0"),
        ({"modes": {"nps3": 3, "nps4": 4}, "mode": "nps4"}, "mode nps3 has 3 nodes a package"),
        ({"cpus_per_package": 2}, "4 nodes need one each"),
        ({"memory_bytes_per_package": 2**30 + 1}, "multiple of 128 MiB"),
        ({"memory_only_nodes": [{"package": 2, "memory_bytes": 2**30}]}, "one of the packages"),
        ({"drives": [{"serial": "a,b", "node": 0}]}, "serial 'a,b': give up to 20"),
        ({"drives": [{"serial": "a", "node": 8}]}, "the finest mode has nodes 0 to 7"),
        ({"drives": [{"serial": "a", "node": 0}] * 2}, "serial a is given to several drives"),
        ({"drives": [{"serial": "a", "node": 0, "bytes": 5}]}, "give a multiple of 4096"),
        ({"hmat": {"same_node": {"latency_ns": 1}}}, "hmat lacks"),
    ],
)
def test_an_impossible_machine_is_refused_by_name(described, wrong, message) -> None:
    with pytest.raises(LabError, match=message):
        complete_description({**described["server"], **wrong})


def test_the_images_name_says_what_it_is_made_of() -> None:
    assert re.fullmatch(r"trixie-amd64-[0-9a-f]{12}", image_name())
    # All that role toolchain requires, so that provisioning needs no network.
    assert {"fio", "numactl", "hwloc-nox", "gcc", "libc6-dev", "liburing-dev", "make"} <= set(
        packages()
    )


@pytest.mark.parametrize(("name", "maker"), [("server", "AMD EPYC"), ("traps", "Intel Xeon")])
def test_the_processor_is_of_the_maker_whose_modes_it_has(described, name, maker) -> None:
    arguments = qemu_arguments(described[name], described[name]["mode"], FOLDER)
    assert f"model-id={maker}" in following(arguments, "-cpu")[0]
