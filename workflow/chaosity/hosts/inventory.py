"""Reads Ansible's inventory, the one place where hosts are described.

``ansible-inventory`` does the reading, so that groups, group variables and vaults mean here just
what they mean to the playbooks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaosity.config import closest, validate
from chaosity.errors import UserError
from chaosity.topology import LIVE

# Variables that concern the workflow; all others are the roles' and Ansible's own.
PREFIX = "chaosity_"


@dataclass(frozen=True)
class InventoryHost:
    """A host by name, with its variables that begin with ``chaosity_``."""

    name: str
    variables: dict[str, Any]

    @property
    def topology_source(self) -> str:
        """``live``, or the file that the host's structure is read from."""
        return self.variables.get("chaosity_topology", LIVE)


def run_ansible_inventory(inventory: str) -> dict[str, Any]:
    """All that Ansible says of an inventory.

    Raises:
        UserError: it is missing or Ansible cannot read it.
    """
    if not Path(inventory).exists():
        raise UserError("the inventory does not exist", inventory)
    program = shutil.which("ansible-inventory")
    if program is None:
        raise UserError("ansible-inventory is not installed", remedy="run make in the repository")
    answer = subprocess.run(
        [program, "--inventory", inventory, "--list"], capture_output=True, text=True, check=False
    )
    try:
        document = json.loads(answer.stdout)
    except ValueError:
        said = (answer.stderr.strip() or "it said nothing").splitlines()[0]
        raise UserError(f"Ansible cannot read the inventory: {said}", inventory) from None
    if "WARNING" in answer.stderr and "Unable to parse" in answer.stderr:
        raise UserError("Ansible cannot read the inventory", inventory)
    return document


def read_inventory(inventory: str, wanted: Sequence[str] = ()) -> list[InventoryHost]:
    """The hosts of an inventory.

    Args:
        inventory: file or folder.
        wanted: names of the hosts to take; none means all.

    Raises:
        UserError: an unknown host is wanted, there is none, or a variable is wrong.
    """
    document = run_ansible_inventory(inventory)
    facts = document.get("_meta", {}).get("hostvars", {})
    groups = (value.get("hosts", []) for key, value in document.items() if key != "_meta")
    names = sorted({name for hosts in groups for name in hosts} | set(facts))
    if not names:
        raise UserError("the inventory has no host", inventory)
    for name in wanted:
        if name not in names:
            raise UserError(f"there is no host {name!r}", inventory, closest(name, names))
    hosts = []
    for name in wanted or names:
        given = facts.get(name, {})
        own = {key: value for key, value in given.items() if key.startswith(PREFIX)}
        validate(own, "host", f"{inventory}, host {name}")
        hosts.append(InventoryHost(name, own))
    return hosts
