"""The lab's BMC over machines that are off: enough for all that needs no machine to boot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from playbooks import Outcome, play
from sshd import free_port

MODES = {"nps1": 1, "nps2": 2, "nps4": 4, "nps0": 0}


def make_machine(lab: Path, name: str, modes: dict[str, int], attribute: str) -> Path:
    """A machine's folder as the lab makes it, with its first mode current; returns the folder."""
    folder = lab / name
    folder.mkdir(parents=True)
    machine = {"name": name, "modes": modes, "firmware_attribute": attribute}
    (folder / "machine.json").write_text(json.dumps(machine))
    current = {attribute: next(iter(modes)).upper()}
    (folder / "bios.json").write_text(json.dumps({"current": current, "pending": {}}))
    return folder


class Redfish:
    """A BMC of its own in a folder, run by the role.

    Attributes:
        lab: folder with a folder for each machine.
        port: where it listens.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.lab, self.port = root, folder / "lab", free_port()
        self.folder = self.lab / "bmc"
        self.playbook = folder / "bmc.yml"
        role = str(root / "tests/lab/roles/virtual_bmc")
        tasks = [{"hosts": "localhost", "gather_facts": False, "roles": [role]}]
        self.playbook.write_text(yaml.safe_dump(tasks))

    def bring(self, state: str, *arguments: str) -> Outcome:
        """Have the role bring it to `present` or `absent`."""
        extra = {"virtual_bmc_lab": str(self.lab), "virtual_bmc_port": self.port}
        extra["virtual_bmc_state"] = state
        return play(self.root, *arguments, playbook=str(self.playbook), extra=extra)

    @property
    def password(self) -> str:
        """What the role made up."""
        return (self.folder / "password").read_text()

    def variables(self, system: str) -> dict[str, Any]:
        """What an inventory says of a host behind this BMC."""
        return {
            "firmware_bmc_address": f"127.0.0.1:{self.port}",
            "firmware_bmc_user": "lab",
            "firmware_bmc_password": self.password,
            "firmware_bmc_ca_path": str(self.folder / "certificate.pem"),
            "firmware_bmc_system": system,
        }

    def settings(self, system: str) -> dict[str, dict[str, str]]:
        """A machine's settings, current and pending."""
        settings: dict[str, dict[str, str]] = json.loads(
            (self.lab / system / "bios.json").read_text()
        )
        return settings
