"""The lab's machines as one who logs in sees them: nodes, drives, identity."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import playbooks
from lab_machines import Lab, Machine
from sshd import make_key_pair

pytestmark = pytest.mark.lab

# Serial and node of every drive, as the kernel tells them; -1 is no node.
ASK_DRIVES = "cd /sys/class/nvme; for d in nvme*; do echo $(cat $d/serial $d/numa_node); done"
ASK_PATHS = "cd /sys/class/nvme; for d in nvme*; do echo $(cat $d/serial $d/address); done"
SYSTEM = ("system", "-1")


def pairs(text: str) -> set[tuple[str, ...]]:
    return {tuple(line.split()) for line in text.splitlines()}


def wanted(machine: Machine) -> set[tuple[str, ...]]:
    """What the inventory says of the drives, in the mode with most nodes."""
    drives = machine.inventory["drives"]
    return {(d["serial"], str(-1 if d["node"] is None else d["node"])) for d in drives}


def hwloc_nodes_of_drives(machine: Machine) -> dict[str, str]:
    """The node set that each drive's PCI function has in hwloc's view, by serial."""
    functions = {address: serial for serial, address in pairs(machine.says(ASK_PATHS))}
    tree = ElementTree.fromstring(machine.says("lstopo-no-graphics", "--of", "xml", "--whole-io"))
    found = {}

    def walk(item: ElementTree.Element, nodes: str) -> None:
        nodes = item.get("nodeset", nodes)
        if item.get("pci_busid") in functions:
            found[functions[item.get("pci_busid")]] = nodes
        for child in item.findall("object"):
            walk(child, nodes)

    for item in tree.findall("object"):
        walk(item, "")
    return found


def test_it_is_who_it_should_be(small: Machine) -> None:
    assert small.says("hostname").strip() == "small"
    assert small.says("systemctl", "is-system-running").strip() == "running"


def test_another_host_key_is_refused(small: Machine, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    public = make_key_pair(tmp_path / "other").with_suffix(".pub").read_text()
    known_hosts.write_text(f"[127.0.0.1]:{small.port} {public}")
    answer = small.ssh("true", known_hosts=known_hosts)
    assert answer.returncode == 255
    assert "Host key verification failed" in answer.stderr


def test_the_image_that_machines_share_holds_no_key(small: Machine) -> None:
    image = Path(small.described()["image"]) / "root.img"
    for path in ("/etc/ssh", "/root/.ssh"):
        listing = subprocess.run(
            ["debugfs", "-R", f"ls -p {path}", f"{image}?offset={2**20}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "sshd_config" in listing or path == "/root/.ssh"
        assert not re.search(r"host_.*key|authorized_keys", listing), listing


def test_a_second_run_changes_nothing(lab: Lab, small: Machine) -> None:
    assert lab.playbook("--limit", "small").count("changed") == 0
    assert lab.playbook("--limit", "small", "--check").count("changed") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-e", "virtual_lab_sate=absent"], "virtual_lab_sate"),
        (["-e", '{"virtual_lab_machine": {"packagse": 1}}'], "packagse"),
        (["-e", "ansible_port=22"], "an ansible_port above 1023"),
    ],
)
def test_what_is_misspelt_is_refused(root: Path, arguments: list[str], message: str) -> None:
    given = ["-i", "tests/lab/inventory", "--limit", "small", "--check", *arguments]
    outcome = playbooks.play(root, *given, playbook="tests/lab/lab.yml")
    assert outcome.status != 0
    assert outcome.says(message)


def test_small_has_its_drives_under_its_nodes(small: Machine) -> None:
    assert pairs(small.says(ASK_DRIVES)) == wanted(small) | {SYSTEM}
    assert "available: 2 nodes (0-1)" in small.says("numactl", "--hardware")


def test_the_server_has_eight_nodes_and_the_papers_drives(lab: Lab) -> None:
    server = lab.up("server")
    assert pairs(server.says(ASK_DRIVES)) == wanted(server) | {SYSTEM}
    seen = hwloc_nodes_of_drives(server)
    assert seen.pop("system") == "0x000000ff"
    assert seen == {d["serial"]: f"0x{1 << d['node']:08x}" for d in server.inventory["drives"]}
    hardware = server.says("numactl", "--hardware")
    assert "available: 8 nodes (0-7)" in hardware
    assert re.search(r"^ *0: +10 +12 +12 +12 +32 +32 +32 +32 *$", hardware, re.MULTILINE)
    counted = server.says("lstopo-no-graphics", "--only", "Package").splitlines()
    assert len(counted) == 2
    # The L3 domain of each node is its own.
    assert len(server.says("lstopo-no-graphics", "--only", "L3").splitlines()) == 8


def test_the_traps_are_set(lab: Lab) -> None:
    traps = lab.up("traps")
    assert pairs(traps.says(ASK_DRIVES)) == wanted(traps) | {SYSTEM}
    sysfs = "/sys/devices/system/node"
    assert traps.says("cat", f"{sysfs}/has_cpu").strip() == "0-3"
    assert traps.says("cat", f"{sysfs}/has_memory").strip() == "0,2-4"
    assert traps.says("cat", f"{sysfs}/node0/cpulist").strip() == "0,2"
    assert traps.says("cat", f"{sysfs}/node4/distance").split() == ["28", "28", "17", "17", "10"]
    # hwloc leaves the node without memory out, and counts in another order than the kernel does.
    listed = traps.says("lstopo-no-graphics", "--only", "NUMANode")
    assert re.findall(r"P#(\d+)", listed) == ["0", "2", "4", "3"]
    access = f"{sysfs}/node4/access0/initiators/read_bandwidth"
    assert traps.says("cat", access).strip() == "20000"
    # Drives go by the names of their paths.
    assert re.search(r'Disk. "nvme\d+c\d+n1"', traps.says("lstopo-no-graphics", "--of", "console"))
