"""A machine's firmware mode, changed through its BMC: what the machine itself shows afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import playbooks
from inventories import write_inventory
from lab_bmc import Redfish
from playbooks import Outcome
from sshd import free_port
from workflow_folder import Workflow

pytestmark = pytest.mark.lab

# Packages that can be divided or joined, with as few processing units as that takes: it boots soon.
MACHINE = {
    "packages": 2,
    "modes": {"nps1": 1, "nps2": 2, "nps0": 0},
    "mode": "nps1",
    "cpus_per_package": 2,
    "memory_bytes_per_package": 2 * 384 * 2**20,
    "drive": {"bytes": 2**28, "read_bytes_per_second": 50_000_000},
    "drives": [{"node": 0, "serial": "NV-0"}],
}
NAME = "divisible"


class Divisible:
    """The machine, its BMC, and an inventory of just the two."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.inventory = root, folder / "hosts.yml"
        self.bmc = Redfish(root, folder)
        lab = self.bmc.lab
        lab.mkdir()
        self.variables = {
            "ansible_host": "127.0.0.1",
            "ansible_port": free_port(),
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": f"{lab}/id_ed25519",
            "ansible_ssh_common_args": (
                f"-o UserKnownHostsFile={lab}/known_hosts -o StrictHostKeyChecking=yes"
                " -o IdentitiesOnly=yes -o HostKeyAlgorithms=ssh-ed25519"
            ),
            "virtual_lab_machine": MACHINE,
            "virtual_lab_directory": str(lab),
            "virtual_bmc_port": self.bmc.port,
        }
        self.describe()

    def describe(self) -> None:
        """Write the inventory."""
        write_inventory(self.inventory, {NAME: self.variables})

    def lab(self, state: str) -> None:
        """Bring the machine and its BMC up or take them down."""
        extra = {"virtual_lab_state": state}
        outcome = playbooks.play(
            self.root, "-i", self.inventory, playbook="tests/lab/lab.yml", extra=extra
        )
        assert outcome.status == 0, outcome.said

    def set(self, mode: str) -> Outcome:
        """Have firmware.yml set a mode, with consent."""
        extra = {"firmware_mode": mode, "firmware_reboot_allowed": True}
        extra |= {"firmware_reboot_timeout": 600}
        return playbooks.play(
            self.root, "-i", self.inventory, playbook="playbooks/firmware.yml", extra=extra
        )

    def ask(self, *command: str) -> str:
        """What a program on the machine prints."""
        answer = subprocess.run(
            [
                Path(sys.executable).parent / "ansible",
                "-i",
                self.inventory,
                NAME,
                "-m",
                "ansible.builtin.command",
                "-a",
                " ".join(command),
            ],
            cwd=self.root,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=True,
        )
        return answer.stdout

    def copy_kernels(self) -> None:
        """Copy the programs of this machine to where provisioning would build them."""
        folder, lab = ".local/share/chaosity/kernels", self.bmc.lab
        self.ask("mkdir", "-p", folder)
        programs = (self.root / "build/kernels").glob("chaosity-*")
        options = f"-o UserKnownHostsFile={lab}/known_hosts -o StrictHostKeyChecking=yes".split()
        key = ["-i", lab / "id_ed25519", "-P", str(self.variables["ansible_port"])]
        where = f"root@127.0.0.1:{folder}"
        subprocess.run(["scp", "-F", "none", *options, *key, *programs, where], check=True)

    def nodes(self) -> int:
        """NUMA nodes as hwloc sees them on the machine."""
        return self.ask("lstopo-no-graphics", "--only", "numanode").count("NUMANode")

    def boot(self) -> str:
        """Which boot it is."""
        return self.ask("cat", "/proc/sys/kernel/random/boot_id").splitlines()[-1]


@pytest.fixture(scope="module")
def machine(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divisible]:
    found = Divisible(root, tmp_path_factory.mktemp("firmware"))
    try:
        found.lab("present")
        found.variables |= found.bmc.variables(NAME)
        found.describe()
        yield found
    finally:
        found.lab("absent")


def test_two_nodes_become_four(machine: Divisible) -> None:
    nodes, boot = machine.nodes(), machine.boot()
    outcome = machine.set("nps2")
    assert (outcome.status, outcome.count("changed")) == (0, 2), outcome.said
    assert (nodes, machine.nodes()) == (2, 4)
    assert machine.boot() != boot
    assert machine.bmc.settings(NAME) == {"current": {"NumaNodesPerSocket": "NPS2"}, "pending": {}}


def test_all_nodes_become_one_over_both_packages(machine: Divisible) -> None:
    outcome = machine.set("nps0")
    assert (outcome.status, outcome.count("changed")) == (0, 2), outcome.said
    assert machine.nodes() == 1
    assert machine.set("nps0").count("changed") == 0


def test_a_mode_that_is_there_costs_no_reboot(machine: Divisible) -> None:
    machine.set("nps2")
    boot = machine.boot()
    outcome = machine.set("nps2")
    assert (outcome.status, outcome.count("changed")) == (0, 0), outcome.said
    assert machine.boot() == boot


def test_two_modes_are_measured_in_one_run(machine: Divisible, tmp_path: Path) -> None:
    """The kernels are copied from this machine: to compile them in an emulated one takes long."""
    machine.variables |= {"firmware_reboot_allowed": True, "firmware_reboot_timeout": 600}
    machine.describe()
    # fio is in the machine's image.
    runner = ("-i", machine.inventory, "--tags", "runner")
    provisioned = playbooks.play(machine.root, *runner, playbook="provision.yml")
    assert provisioned.status == 0, provisioned.said
    machine.copy_kernels()
    workflow = Workflow(machine.root, tmp_path)
    workflow.timeout = 3000
    modes = {"nps2": 4, "nps1": 2}
    workflow.config |= {
        "inventory": str(machine.inventory),
        "configurations": [*modes],
        "experiments": ["storage_sample"],
        "sample": {"storage_sample": 3},
    }
    workflow.run()
    for mode, nodes in modes.items():
        folder = tmp_path / "results" / NAME / mode
        assert len(json.loads((folder / "topology.json").read_text())["nodes"]) == nodes
        records = [json.loads(path.read_text()) for path in folder.glob("*/*/rep1.json")]
        assert len(records) == 3
        # An emulated machine that gets little time may see the pages of a load too late.
        assert "valid" in [record["verdict"]["status"] for record in records]
        [other] = modes.keys() - {mode}
        assert other in (folder / "report.html").read_text()


def test_a_mode_that_does_not_come_is_rolled_back(machine: Divisible) -> None:
    machine.set("nps2")
    path = machine.bmc.lab / NAME / "machine.json"
    described = path.read_text()
    broken = json.loads(described)
    # As firmware does whose memory modules do not allow the mode: it takes the setting, no more.
    broken["modes"]["nps0"] = 1
    path.write_text(json.dumps(broken))
    boot = machine.boot()
    outcome = machine.set("nps0")
    path.write_text(described)
    assert outcome.status != 0
    assert outcome.says(
        f"{NAME} was asked for nps0 and showed 1 node in each package after NumaNodesPerSocket was"
        " set to NPS0 and the host rebooted. It was rolled back to NPS2 and shows 2 nodes in each"
        " package, as before."
    ), outcome.said
    assert machine.nodes() == 4
    assert machine.boot() != boot
