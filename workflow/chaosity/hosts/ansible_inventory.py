"""Start Ansible's programs, and read the hosts from Ansible's inventory.

Ansible itself reads the inventory and evaluates its values, so groups, variables, expressions and
vaults have the same meaning as in the playbooks.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from chaosity.documents.checked_yaml import check_document
from chaosity.documents.inventory import HostVariables
from chaosity.documents.shipped_documents import ROOT, path_as_given_or_in_repository
from chaosity.errors import UserError, check_name_is_allowed, malformed_as_user_error
from chaosity.topology.topology_sources import LIVE_SOURCE

# Prefix of the variables that the workflow reads; all other variables are for the roles and for
# Ansible.
_PREFIX_OF_OWN_VARIABLES = "chaosity_"
# The template that Ansible evaluates, and the variable that names the folder of the runner and of
# the kernels. The variable with the folder also counts as a connection variable.
_TEMPLATE_FOR_ANSIBLE = ROOT / "templates/inventory_values.j2"
_VARIABLE_OF_PROGRAM_FOLDER = "chaosity_directory"
# The value of a connection variable, which says how to connect to a host.
Variable = str | int | float | bool
# In `chaosity_topology` of a simulated host, this text stands for the configuration of the run.
CONFIGURATION_PLACEHOLDER = "{configuration}"
# Pattern of the names of hosts. A name is also the name of a folder, and a part of commands and of
# Snakemake's rules.
_HOST_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,199}")
# A parent process shares Ansible's answer with its child processes as a file in memory. The
# environment variable contains the path of this file; the second constant is the name of the file.
_SHARED_ANSWER_VARIABLE, _SHARED_ANSWER_NAME = "CHAOSITY_SHARED_INVENTORY", "chaosity-inventory"


@dataclass(frozen=True)
class InventoryHost:
    """A host of the inventory."""

    name: str  # name of the host in the inventory
    variables: HostVariables  # variables of the host that begin with ``chaosity_``
    # Variables of the connection to the host, and paths of the programs there; for this machine
    # only the connection "local".
    connection_variables: Mapping[str, Variable] = field(default_factory=dict)

    @property
    def topology_source(self) -> str:
        """Return ``live``, or the path of the file with the host's topology."""
        source = self.variables.get("chaosity_topology", LIVE_SOURCE)
        return source if source == LIVE_SOURCE else str(path_as_given_or_in_repository(source))

    @property
    def is_simulated(self) -> bool:
        """Return whether the host is simulated, so that its records come from a description."""
        return "chaosity_simulated" in self.variables

    @property
    def can_change_configuration(self) -> bool:
        """Return whether the host can be set to another configuration."""
        return (
            self.topology_source == LIVE_SOURCE or CONFIGURATION_PLACEHOLDER in self.topology_source
        )

    @property
    def local_or_ssh(self) -> str:
        """Return how commands reach the host: ``local`` or ``ssh``.

        Raises:
            UserError: the host has another type of connection, which Ansible supports but this
                workflow does not.
        """
        variable = self.connection_variables.get("ansible_connection", "ssh")
        given = str(variable).removeprefix("ansible.builtin.")
        known = {"ssh": "ssh", "smart": "ssh", "local": "local"}
        if given not in known:
            wrong = f"ansible_connection {given!r} cannot carry measurements"
            raise UserError(wrong, f"host {self.name}", "allowed: local, ssh")
        return known[given]


@lru_cache(maxsize=1)
def _evaluated_variables(inventory: str) -> dict[str, dict[str, Any]]:
    """Return host -> variables that the workflow needs, as Ansible evaluates them.

    A process keeps Ansible's answer for later calls, since Ansible takes a second for a thousand
    hosts. A child process uses the answer that its parent process shares.

    Raises:
        UserError: the inventory is missing, or Ansible cannot read it or evaluate a value.
    """
    if not Path(inventory).exists():
        remedy = "name an inventory, such as inventories/localhost"
        raise UserError("the inventory does not exist", inventory, remedy)
    if shared := _read_shared_answer(inventory):
        return shared
    expression = (
        f"{{{{ lookup('ansible.builtin.template', {json.dumps(str(_TEMPLATE_FOR_ANSIBLE))}) }}}}"
    )
    command = [
        *(*ansible_command("ansible"), "--inventory", inventory, "--playbook-dir", str(ROOT)),
        # The action `debug` connects to no host. The action runs for a host of the inventory, since
        # Ansible evaluates connections that depend on variables such as `inventory_dir` only for a
        # host.
        *("all[0]", "-m", "ansible.builtin.debug", "-a", json.dumps({"msg": expression})),
    ]
    # Ansible's answer may contain passwords, so Ansible must not write it to a log.
    own = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_LOG_PATH": os.devnull}
    answer = subprocess.run(
        command,
        env={**os.environ, **own, "ANSIBLE_DISPLAY_OK_HOSTS": "true"},
        capture_output=True,
        text=True,
        check=False,
        # In a new session, Ansible has no terminal on which it could wait for a password.
        start_new_session=True,
    )
    # With ansible.cfg, Ansible exits with an error if it can parse no file. But in a folder that
    # others can write, Ansible ignores ansible.cfg, and only prints "Unable to parse".
    if answer.returncode or "Unable to parse" in answer.stderr:
        raise _unreadable_inventory_error(answer.stderr + answer.stdout, inventory)
    found: dict[str, dict[str, Any]] = {}
    if not answer.stdout.strip():  # the inventory has no hosts
        return found
    with malformed_as_user_error("Ansible prints no values", inventory):
        values = json.loads(answer.stdout[answer.stdout.index("{") :])["msg"] or ""
        for host, name, value in map(json.loads, values.splitlines()):
            found.setdefault(str(host), {}).update({str(name): value} if name else {})
    return found


def _unreadable_inventory_error(errors: str, inventory: str) -> UserError:
    """Return the error for an inventory that Ansible could not read, from what Ansible printed."""
    # The last line that Ansible prints on a value names the place of this value. Ansible tries to
    # read a file with several plugins, and prints for each plugin why the plugin failed. Only the
    # reason of the plugin for the file's format helps the user. Ansible gives no line numbers for a
    # JSON file.
    values = re.findall(r"^(.+)\nOrigin: ([^<\n].*?)(?::(\d+):\d+)?$", errors, re.M)
    if "Task failed" in errors and values:
        reason, source, line = values[-1]
        where = f"{source}, line {line}" if line else source
        remedy = "name the file with the vault's password in ANSIBLE_VAULT_PASSWORD_FILE"
        what = f"Ansible cannot evaluate the value: {reason}"
        return UserError(what, where, remedy if "vault" in reason else None)
    failed = re.search(
        r"(?:parse inventory source|Unable to parse) (.+?)(?: as an .*)?$", errors, re.M
    )
    source = failed[1] if failed else inventory
    if source.endswith(".xml"):
        remedy = "move it out of the folder of the inventory"
        return UserError("an XML file is not an inventory", source, remedy)
    reasons = dict(
        re.findall(r"^\S+ Failed to parse inventory with '(\w+)' plugin: (.+)$", errors, re.M)
    )
    plugin = "yaml" if source.endswith((".yml", ".yaml", ".json")) else "ini"
    first = (errors.strip() or "it printed no error").splitlines()[0]
    reason = reasons.get(plugin, re.sub(r"^\[\w+\]: ", "", first))
    line = re.search(rf"^Origin: {re.escape(source)}:(\d+)", errors, re.M)
    where = f"{source}, line {line[1]}" if line else source
    return UserError(f"Ansible cannot read the inventory: {reason}", where)


def share_inventory_with_child_processes(inventory: str) -> None:
    """Give the evaluated inventory of this process to its child processes and their children.

    The inventory can contain decrypted passwords, so it is shared as a file in memory. Only
    processes of this user can open the shared file, which vanishes when this process ends.

    Raises:
        UserError: the inventory is missing, or Ansible cannot read it.
    """
    shared = {"inventory": os.path.realpath(inventory), "answer": _evaluated_variables(inventory)}
    path = Path(f"/proc/{os.getpid()}/fd/{os.memfd_create(_SHARED_ANSWER_NAME)}")
    path.write_text(json.dumps(shared), encoding="utf-8")
    os.environ[_SHARED_ANSWER_VARIABLE] = str(path)


def _read_shared_answer(inventory: str) -> dict[str, Any] | None:
    """Return the evaluated inventory that a parent process shares in memory.

    The result is None if no parent process shares this inventory. The result is also None on
    another machine, for example in a Slurm job, where the path in the environment leads to no file
    or to a file of another program.
    """
    path = Path(os.environ.get(_SHARED_ANSWER_VARIABLE, "/"))
    try:
        if not str(path.readlink()).startswith(f"/memfd:{_SHARED_ANSWER_NAME} "):
            return None
        shared = dict[str, Any](json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        return None
    return shared["answer"] if shared["inventory"] == os.path.realpath(inventory) else None


def read_inventory(inventory: str, wanted: Sequence[str] = ()) -> list[InventoryHost]:
    """Return the hosts of an inventory (a file or folder) with the names `wanted`, by default all.

    Raises:
        UserError: a wanted host is unknown, the inventory has no host, or a variable is wrong.
    """
    found = _evaluated_variables(inventory)
    if not found:
        raise UserError("the inventory has no host", inventory, "name a host below all: hosts:")
    if odd := [name for name in found if not _HOST_NAME_PATTERN.fullmatch(name)]:
        remedy = "use letters, digits and _ . : @ -, and put the address in ansible_host"
        raise UserError(f"the name {odd[0]!r} cannot be used for a host", inventory, remedy)
    for name in wanted:
        check_name_is_allowed(name, found, f"unknown host {name!r}", inventory)
    return [_checked_host(name, found[name], inventory) for name in wanted or sorted(found)]


def _checked_host(name: str, values: Mapping[str, Any], inventory: str) -> InventoryHost:
    """Check the variables of a host and return the host; a wrong variable is a `UserError`."""
    where = f"{inventory}, host {name}"
    own = {key: value for key, value in values.items() if key.startswith(_PREFIX_OF_OWN_VARIABLES)}
    check_document(own, HostVariables, where)
    connection = {
        key: value
        for key, value in values.items()
        if (key not in own or key == _VARIABLE_OF_PROGRAM_FOLDER) and value not in (None, "")
    }
    for key, value in connection.items():
        if isinstance(value, dict | list) or "\0" in str(value):
            raise UserError("the value is not a text, a number or a truth value", f"{where}, {key}")
    return InventoryHost(name, cast(HostVariables, own), connection)


PLAYBOOK_PROGRAM = "ansible-playbook"


def ansible_command(program: str) -> list[str]:
    """Return the first words of a command that starts one of Ansible's programs.

    The program in the folder of this Python comes first, so the virtual environment need not be
    active. The command sets a locale with UTF-8, because Ansible refuses any other locale.

    Raises:
        UserError: Ansible is not installed, or this user lacks a home folder or an account.
            Ansible's error for a user without home folder or account would not name the cause.
    """
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise UserError(f"{program} is not installed", remedy="run make in the repository")
    own = Path(os.environ.get("ANSIBLE_HOME") or "~/.ansible")
    with suppress(RuntimeError):  # the user has neither the variable HOME nor an account
        own = own.expanduser()
    existing = next(folder for folder in (own, *own.parents) if folder.exists())
    if not own.is_absolute() or not os.access(existing, os.W_OK):
        what = f"the folder {own}, in which Ansible keeps files, cannot be written"
        raise UserError(what, remedy="set HOME to a folder that this user can write")
    if program == PLAYBOOK_PROGRAM and not _has_account(user := os.geteuid()):
        what = f"the user {user} has no entry in /etc/passwd, and Ansible's playbooks need one"
        remedy = "add one; in a container, mount a file with one as /etc/passwd"
        raise UserError(what, remedy=remedy)
    return ["/usr/bin/env", "LC_ALL=C.UTF-8", found]


def _has_account(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True
