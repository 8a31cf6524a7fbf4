"""Network cards get their node and rate; their hardware addresses are never read."""

from __future__ import annotations

import re

from chaosity.store.profile_anonymisation import topology_without_private_facts
from chaosity.topology.sysfs_reader import SysfsReader
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import topology_from_json, topology_to_json
from shipped_data import REAL_MACHINES

NAPLES = REAL_MACHINES / "xml" / "mpibind_naples-2s-7401-8n.xml"
TRENTO = REAL_MACHINES / "xml" / "mpibind_trento-7A53-nps4.xml"
HARDWARE_ADDRESS = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


def test_an_interface_and_its_openfabrics_device_are_one_card():
    found = discover_topology(str(NAPLES)).nics
    assert [(nic.name, nic.kind, nic.node) for nic in found] == [
        ("enp3s0f0", "ethernet", 0),
        ("enp3s0f1", "ethernet", 0),
        ("hsi0", "infiniband", 3),
    ]
    assert found[2].model == "MT28908 Family [ConnectX-6]"


def test_four_cards_of_a_node_with_four_gpus_are_on_four_nodes():
    found = discover_topology(str(TRENTO)).nics
    places = {nic.name: nic.node for nic in found if nic.name.startswith("hsi")}
    assert sorted(places) == ["hsi0", "hsi1", "hsi2", "hsi3"]
    assert len(set(places.values())) == 4


def test_no_address_is_stored_and_names_are_not_published():
    """The XML of the topology has the addresses; what a profile holds comes from the JSON."""
    assert HARDWARE_ADDRESS.search(NAPLES.read_text())
    stored = topology_to_json(discover_topology(str(NAPLES)))
    assert not HARDWARE_ADDRESS.search(str(stored))
    public = topology_without_private_facts(stored)["nics"]
    assert [set(nic) for nic in public] == [{"kind", "model", "node", "link_bytes_per_second"}] * 3
    assert "hsi0" not in str(public)


def test_the_rate_is_that_of_the_kernel_in_bytes(tmp_path):
    for name, text in {"up": "100000\n", "down": "-1\n", "empty": ""}.items():
        folder = tmp_path / "sys/class/net" / name
        folder.mkdir(parents=True)
        (folder / "speed").write_text(text)
    sysfs = SysfsReader(tmp_path)
    rates = [sysfs.network_bytes_per_second(name) for name in ("up", "down", "empty", "none")]
    assert rates == [12_500_000_000, None, None, None]


def test_cards_survive_the_file():
    topology = discover_topology(str(NAPLES))
    assert topology_from_json(topology_to_json(topology)).nics == topology.nics
