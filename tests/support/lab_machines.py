"""The lab's machines, booted when a test wants them and taken down again if they were not up."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import IO, Any

import yaml

import playbooks
from chaosity.hosts.runner_command import HOME_DIRECTORY
from lab_workflow import INVENTORY
from virtual_lab import power_switch

# Bytes per second at which each drive of the inventory is read, and a drive that became slow.
FULL, FIFTH = 50_000_000, 10_000_000
KERNELS = f"{HOME_DIRECTORY}/kernels"  # seen from root's home, where commands run


def drive_folder(serial: str) -> str:
    """What a shell on a machine replaces by the folder in sysfs of the drive with a serial."""
    return f"$(dirname $(grep -lw {serial} /sys/class/nvme/*/serial))"


def block_device(serial: str) -> str:
    """What a shell on a machine replaces by the device of the drive with a serial."""
    return f"/dev/$(basename {drive_folder(serial)})n1"


class Machine:
    """A host of the lab's inventory that is up."""

    def __init__(self, root: Path, name: str) -> None:
        self.name, self.folder = name, root / "build/lab" / name
        variables = yaml.safe_load((root / INVENTORY / "hosts.yml").read_text())["all"]["hosts"]
        self.port: int = variables[name]["ansible_port"]
        self.inventory: dict[str, Any] = variables[name]["virtual_lab_machine"]

    def ssh(
        self,
        *command: str,
        known_hosts: Path | None = None,
        user: str = "root",
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    ) -> subprocess.CompletedProcess[str]:
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
        where: list[str | Path] = [
            "-i",
            lab / "id_ed25519",
            "-p",
            str(self.port),
            f"{user}@127.0.0.1",
        ]
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
        description: dict[str, Any] = json.loads((self.folder / "machine.json").read_text())
        return description

    def drive_image(self, serial: str) -> Path:
        """The file behind the drive with a serial."""
        return self.folder / "drives" / f"{serial}.img"

    def drive_checksums(self) -> dict[str, str]:
        """The checksum of each drive, by its serial."""
        images = sorted((self.folder / "drives").glob("*.img"))
        return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in images}


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

    def provisioned(self, name: str) -> Machine:
        """A machine with all that measures, booted unless it was on."""
        machine = self.up(name)
        self.playbook("--limit", name, playbook="provision.yml")
        return machine

    def playbook(
        self, *arguments: str, playbook: str = "tests/lab/lab.yml", **extra: Any
    ) -> playbooks.Outcome:
        """Run a playbook, which has to succeed."""
        words = ("-i", INVENTORY, *arguments)
        outcome = playbooks.play(self.root, *words, playbook=playbook, extra=extra)
        assert outcome.status == 0, outcome.said
        return outcome

    def down(self) -> None:
        """Take down what was booted here."""
        for name in self.booted:
            self.playbook("--limit", name, "-e", "virtual_lab_state=absent")
