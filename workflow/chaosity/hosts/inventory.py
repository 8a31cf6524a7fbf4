"""Reads Ansible's inventory, the one place where hosts are described.

``ansible-inventory`` does the reading, so that groups, group variables and vaults mean here just
what they mean to the playbooks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError, UndefinedError
from jinja2.sandbox import SandboxedEnvironment

from chaosity.config import ROOT, suggest_allowed, validate_document
from chaosity.errors import UserError
from chaosity.topology import LIVE

# Variables that concern the workflow; all others are the roles' and Ansible's own.
PREFIX = "chaosity_"
# Of those, what says how the host is reached and where provisioning put the runner and the kernels.
REACH = (
    "ansible_connection",
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_password",
    "ansible_become",
    "ansible_ssh_private_key_file",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "runner_directory",
    "runner_python",
    "kernels_directory",
)
# How often a variable may refer to another one.
DEPTH = 8


@dataclass(frozen=True)
class InventoryHost:
    """A host by name.

    Args:
        name: its name in the inventory.
        variables: those that begin with ``chaosity_``.
        reach: those that say how it is reached, rendered.
    """

    name: str
    variables: dict[str, Any]
    reach: dict[str, Any] = field(default_factory=dict)

    @property
    def topology_source(self) -> str:
        """``live``, or the file that the host's structure is read from."""
        return self.variables.get("chaosity_topology", LIVE)

    @property
    def connection(self) -> str:
        """``local`` or ``ssh``.

        Raises:
            UserError: Ansible has other ways, which the workflow has not.
        """
        given = str(self.reach.get("ansible_connection", "ssh")).removeprefix("ansible.builtin.")
        if given in ("ssh", "smart"):
            return "ssh"
        if given != "local":
            raise UserError(
                f"ansible_connection {given!r} cannot carry measurements",
                f"host {self.name}",
                "allowed: local, ssh",
            )
        return "local"


def rendered(given: Mapping[str, Any], inventory: str, name: str) -> dict[str, Any]:
    """The variables of `REACH`, with the expressions in them replaced by what they mean.

    ``ansible-inventory`` leaves expressions as they are. Those may use the host's own variables,
    ``inventory_dir``, ``inventory_hostname``, ``playbook_dir`` and ``lookup('env', NAME)``.

    Raises:
        UserError: an expression needs more than that.
    """
    folder = Path(inventory).resolve()
    known = {
        **given,
        "inventory_hostname": name,
        "inventory_dir": str(folder if folder.is_dir() else folder.parent),
        "playbook_dir": str(ROOT),
        "lookup": looked_up,
    }
    environment = SandboxedEnvironment(undefined=StrictUndefined)
    found: dict[str, Any] = {}
    for key in REACH:
        if found.get(REACH[0], "").endswith("local"):
            break  # nothing leads to this machine, and its tools are on the search path
        value = given.get(key)
        try:
            for _ in range(DEPTH):
                if not (isinstance(value, str) and "{{" in value):
                    break
                value = environment.from_string(value).render(known)
        except TemplateError as error:
            where = f"{inventory}, host {name}, {key}"
            raise UserError(f"cannot be worked out: {error}", where, "give it plainly") from None
        if value not in (None, ""):
            found[key] = value
    return found


def looked_up(plugin: str, name: str) -> str:
    """What Ansible's lookup of an environment variable gives.

    Raises:
        UndefinedError: another plugin is asked for.
    """
    if plugin.removeprefix("ansible.builtin.") != "env":
        raise UndefinedError(f"the workflow knows lookup('env', ...) alone, not {plugin!r}")
    return os.environ.get(name, "")


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
            raise UserError(f"there is no host {name!r}", inventory, suggest_allowed(name, names))
    hosts = []
    for name in wanted or names:
        given = facts.get(name, {})
        own = {key: value for key, value in given.items() if key.startswith(PREFIX)}
        validate_document(own, "host", f"{inventory}, host {name}")
        hosts.append(InventoryHost(name, own, rendered(given, inventory, name)))
    return hosts
