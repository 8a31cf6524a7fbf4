"""The lab's machines, booted when a test wants them and taken down again if they were not up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

import playbooks
from lab_workflow import INVENTORY, SERVER
from virtual_lab import power_switch


class Machine:
    """A host of the lab's inventory that is up."""

    def __init__(self, root: Path, name: str) -> None:
        self.name, self.folder = name, root / "build/lab" / name
        hosts = yaml.safe_load((root / INVENTORY / "hosts.yml").read_text())["all"]["hosts"]
        self.port = hosts[name]["ansible_port"]
        self.drives = hosts[name]["virtual_lab_machine"]["drives"]

    def ssh(
        self,
        *command: str,
        known_hosts: Path | None = None,
        user: str = "root",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.CompletedProcess:
        """Run a command on it, over a connection of its own."""
        lab = self.folder.parent
        options = {
            "UserKnownHostsFile": known_hosts or lab / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
        }
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        where = ["-i", lab / "id_ed25519", "-p", str(self.port), f"{user}@127.0.0.1"]
        return subprocess.run(
            ["ssh", "-F", "none", *given, *where, *command],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def says(self, *command: str, user: str = "root") -> str:
        """What a command on it prints."""
        answer = self.ssh(*command, user=user)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def described(self) -> dict[str, Any]:
        """What is true of it at its next start."""
        return json.loads((self.folder / "machine.json").read_text())


class Lab:
    """All machines of the inventory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.booted: list[str] = []

    def up(self, name: str) -> Machine:
        """A machine, booted unless it was on."""
        machine = Machine(self.root, name)
        if power_switch.power_state(machine.folder) == "off":
            self.booted.append(name)
        self.playbook("--limit", name)
        return machine

    def playbook(self, *arguments: str, playbook: str = "tests/lab/lab.yml") -> playbooks.Outcome:
        """Run a playbook, which has to succeed."""
        outcome = playbooks.play(self.root, "-i", INVENTORY, *arguments, playbook=playbook)
        assert outcome.status == 0, outcome.said
        return outcome

    def down(self) -> None:
        """Take down what was booted here."""
        for name in self.booted:
            self.playbook("--limit", name, "-e", "virtual_lab_state=absent")


@pytest.fixture(scope="session")
def lab(root: Path) -> Iterator[Lab]:
    """The lab, left as it was found."""
    found = Lab(root)
    yield found
    found.down()


@pytest.fixture(scope="session")
def small(lab: Lab) -> Machine:
    """The host with two nodes and two drives."""
    return lab.up("small")


@pytest.fixture(scope="session")
def provisioned(lab: Lab, small: Machine) -> Machine:
    """The host with two nodes and two drives, provisioned."""
    lab.playbook("--limit", "small", playbook="provision.yml")
    return small


@pytest.fixture(scope="session")
def server(lab: Lab) -> Machine:
    """The paper's server, provisioned."""
    machine = lab.up(SERVER)
    lab.playbook("--limit", SERVER, playbook="provision.yml")
    return machine
