"""Read Ansible's inventory, the only place where hosts are described.

The program ``ansible-inventory`` reads it, so groups, group variables and vaults have the same
meaning as in the playbooks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from jinja2 import StrictUndefined, TemplateError, UndefinedError, nodes
from jinja2.sandbox import SandboxedEnvironment

from chaosity.documents.check_document import check_document
from chaosity.documents.inventory import HostVariables
from chaosity.documents.shipped_documents import ROOT, path_as_given_or_in_repository
from chaosity.errors import MALFORMED, UserError, check_allowed, malformed_as_user_error
from chaosity.hosts.ansible_programs import ansible_command
from chaosity.topology.topology_sources import LIVE

# Prefix of the workflow's own variables; all others belong to the roles and to Ansible.
_PREFIX = "chaosity_"
# Variables whose expressions are evaluated: how to connect, and the folders of runner and kernels.
_CONNECTION_VARIABLES = (
    "ansible_connection",
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_password",
    "ansible_become",
    "ansible_ssh_private_key_file",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "chaosity_directory",
    "runner_directory",
    "runner_python",
    "kernels_directory",
)
# A value of a variable that says how to connect.
Variable = str | int | float | bool
# This text in `chaosity_topology` of a simulated host stands for the run's configuration.
CONFIGURATION = "{configuration}"
# How many variables may refer to each other in a chain, and the longest value.
_LONGEST_CHAIN = 8
_LONGEST_VALUE = 10_000
# A name is the name of a folder, a part of commands and of Snakemake's rules.
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,199}")
# What an expression may consist of. Powers, products, loops and most filters could fill the memory.
_EXPRESSION = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr),
    *(nodes.Getitem, nodes.Concat, nodes.Add, nodes.CondExpr, nodes.Compare, nodes.Operand),
    *(nodes.Not, nodes.And, nodes.Or, nodes.Test, nodes.If, nodes.Keyword),
)
_FILTERS = ("default", "d", "lower", "upper", "trim", "string", "int", "first", "last")
# The variable with the path of the answer that a process above this one shares, and the name of
# the file in memory with this answer.
_SHARED_ANSWER_VARIABLE, _SHARED_ANSWER_NAME = "CHAOSITY_SHARED_INVENTORY", "chaosity-inventory"


@dataclass(frozen=True)
class InventoryHost:
    """A host of the inventory."""

    name: str  # name of the host in the inventory
    variables: HostVariables  # variables of the host that begin with ``chaosity_``
    # Its evaluated variables of `_CONNECTION_VARIABLES`.
    connection_variables: Mapping[str, Variable] = field(default_factory=dict)

    @property
    def topology_source(self) -> str:
        """Return ``live``, or the path of the file with the host's topology."""
        source = self.variables.get("chaosity_topology", LIVE)
        return source if source == LIVE else str(path_as_given_or_in_repository(source))

    @property
    def is_simulated(self) -> bool:
        """Return whether the host does not exist, so that its records come from a description."""
        return "chaosity_simulated" in self.variables

    @property
    def can_change_configuration(self) -> bool:
        """Return whether the host can be set to another configuration."""
        return self.topology_source == LIVE or CONFIGURATION in self.topology_source

    @property
    def local_or_ssh(self) -> str:
        """Return how commands reach the host: ``local`` or ``ssh``.

        Raises:
            UserError: the host has another connection of Ansible's, which is not supported.
        """
        variable = self.connection_variables.get("ansible_connection", "ssh")
        given = str(variable).removeprefix("ansible.builtin.")
        known = {"ssh": "ssh", "smart": "ssh", "local": "local"}
        if given not in known:
            wrong = f"ansible_connection {given!r} cannot carry measurements"
            raise UserError(wrong, f"host {self.name}", "allowed: local, ssh")
        return known[given]


def _render_variables(given: Mapping[str, Any], inventory: str, name: str) -> dict[str, Variable]:
    """Return a host's `_CONNECTION_VARIABLES`, with their expressions evaluated.

    ``ansible-inventory`` does not evaluate expressions. They may use the host's own variables,
    ``inventory_dir``, ``inventory_hostname``, ``playbook_dir`` and ``lookup('env', NAME)``.

    Raises:
        UserError: an expression uses anything else.
    """
    folder = Path(inventory).resolve()
    known = {
        **given,
        "inventory_hostname": name,
        "inventory_dir": str(folder if folder.is_dir() else folder.parent),
        "playbook_dir": str(ROOT),
        "lookup": _lookup_environment,
    }
    environment = SandboxedEnvironment(undefined=StrictUndefined)
    values: dict[str, Variable] = {}
    for key in _CONNECTION_VARIABLES:
        if str(values.get("ansible_connection")).endswith("local"):
            break  # no connection is needed, and the tools are on the search path
        where = f"{inventory}, host {name}, {key}"
        value = _decrypted(given.get(key), where)
        try:
            for _ in range(_LONGEST_CHAIN):
                if not (isinstance(value, str) and "{{" in value):
                    break
                template = environment.parse(value)
                _check_expression(template)
                for used in template.find_all(nodes.Name):
                    if used.name in known:
                        known[used.name] = _decrypted(known[used.name], where)
                value = environment.from_string(value).render(known)
                if len(value) > _LONGEST_VALUE:
                    raise UndefinedError(f"it has more than {_LONGEST_VALUE} characters")
            if isinstance(value, dict | list) or "\0" in str(value):
                raise UndefinedError("it is no text, number or truth value")
        except (TemplateError, *MALFORMED) as error:
            remedy = "give a value, or an expression of docs/adding-a-host.md"
            raise UserError(f"the value is wrong: {error}", where, remedy) from None
        if value not in (None, ""):
            values[key] = value
    return values


def _decrypted(value: Any, where: str) -> Any:
    """Return a variable's value, decrypted if it is an inline vault value (`!vault`).

    Raises:
        UserError: Ansible has no password that decrypts it.
    """
    encrypted = value.get("__ansible_vault") if isinstance(value, dict) else None
    return value if encrypted is None else _decrypt_vault_value(str(encrypted), where)


@lru_cache
def _decrypt_vault_value(encrypted: str, where: str) -> str:
    # In a session of its own it cannot ask for a password on the terminal and wait for ever.
    answer = subprocess.run(
        [*ansible_command("ansible-vault"), "decrypt", "--output", "-", "-"],
        input=encrypted,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    if answer.returncode:
        remedy = "name the file with the vault's password in ANSIBLE_VAULT_PASSWORD_FILE"
        raise UserError("Ansible cannot decrypt the vault value", where, remedy)
    return answer.stdout


def _check_expression(template: nodes.Template) -> None:
    """Check that a template has only names, comparisons, simple filters and `lookup`.

    Raises:
        UndefinedError: the template has anything else.
    """
    for node in template.find_all(nodes.Node):
        called = isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)
        filtered = isinstance(node, nodes.Filter) and node.name in _FILTERS
        if not (called or filtered or isinstance(node, _EXPRESSION)):
            what = getattr(node, "name", type(node).__name__.lower())
            raise UndefinedError(f"the expression has {what!r}, which is not supported")


def _lookup_environment(plugin: str, name: str) -> str:
    """Return the result of Ansible's lookup of an environment variable.

    Raises:
        UndefinedError: the plugin is not ``env``.
    """
    if plugin.removeprefix("ansible.builtin.") != "env":
        raise UndefinedError(f"lookup({plugin!r}) is not supported; allowed: lookup('env', NAME)")
    return os.environ.get(name, "")


@lru_cache(maxsize=1)
def _run_ansible_inventory(inventory: str) -> dict[str, Any]:
    """Return the whole inventory as ``ansible-inventory --list`` prints it.

    A process keeps the first answer, since Ansible takes a second for a thousand hosts. Processes
    below one that shares its answer use this answer.

    Raises:
        UserError: the inventory is missing, or Ansible cannot read it.
    """
    if not Path(inventory).exists():
        raise UserError("the inventory does not exist", inventory)
    if shared := _read_shared_answer(inventory):
        return shared
    command = [*ansible_command("ansible-inventory"), "--inventory", inventory, "--list"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        document = dict[str, Any](json.loads(answer.stdout))
    except MALFORMED:
        raise _unreadable(answer.stderr, inventory) from None
    # In a folder that others can write, Ansible ignores ansible.cfg, which makes this an error.
    if "Unable to parse" in answer.stderr:
        raise _unreadable(answer.stderr, inventory)
    return document


def _unreadable(errors: str, inventory: str) -> UserError:
    """Return the error for an inventory, with the file and reason in what Ansible printed.

    Ansible tries a file with several plugins, and tells of each why it failed. The reason is that
    of the plugin for the file's format.
    """
    failed = re.search(
        r"(?:parse inventory source|Unable to parse) (.+?)(?: as an .*)?$", errors, re.M
    )
    source = failed[1] if failed else inventory
    if source.endswith(".xml"):
        remedy = "move it out of the folder of the inventory"
        return UserError("an XML file is no inventory", source, remedy)
    reasons = dict(
        re.findall(r"^\S+ Failed to parse inventory with '(\w+)' plugin: (.+)$", errors, re.M)
    )
    plugin = "yaml" if source.endswith((".yml", ".yaml", ".json")) else "ini"
    first = (errors.strip() or "it printed no error").splitlines()[0]
    reason = reasons.get(plugin, re.sub(r"^\[\w+\]: ", "", first))
    line = re.search(rf"^Origin: {re.escape(source)}:(\d+)", errors, re.M)
    where = f"{source}, line {line[1]}" if line else source
    return UserError(f"Ansible cannot read the inventory: {reason}", where)


def share_inventory_with_processes_below(inventory: str) -> None:
    """Give the inventory, as this process has read it, to its child processes and their children.

    The answer is a file in the memory of this process, since it can have decrypted passwords: only
    processes of this user can open the file, and the file ends with this process.

    Raises:
        UserError: the inventory is missing, or Ansible cannot read it.
    """
    shared = {"inventory": os.path.realpath(inventory), "answer": _run_ansible_inventory(inventory)}
    path = Path(f"/proc/{os.getpid()}/fd/{os.memfd_create(_SHARED_ANSWER_NAME)}")
    path.write_text(json.dumps(shared), encoding="utf-8")
    os.environ[_SHARED_ANSWER_VARIABLE] = str(path)


def _read_shared_answer(inventory: str) -> dict[str, Any] | None:
    """Return the answer that a process above this one shares; None if there is none.

    On another machine, as in a job of Slurm, the path has no file, or another program's file.
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
    """Return the hosts of an inventory.

    Args:
        inventory: path of the file or folder.
        wanted: names of hosts; all hosts if empty.

    Raises:
        UserError: a wanted host is unknown, the inventory has no host, or a variable is wrong.
    """
    document = _run_ansible_inventory(inventory)
    with malformed_as_user_error("ansible-inventory prints no inventory", inventory):
        facts = {key: dict(own) for key, own in document.get("_meta", {})["hostvars"].items()}
        groups = (value.get("hosts", []) for key, value in document.items() if key != "_meta")
        names = sorted({str(name) for hosts in groups for name in hosts} | set(facts))
    if not names:
        raise UserError("the inventory has no host", inventory)
    if odd := [name for name in names if not _HOST_NAME.fullmatch(name)]:
        remedy = "use letters, digits and _ . : @ -, and put the address in ansible_host"
        raise UserError(f"the name {odd[0]!r} cannot be used for a host", inventory, remedy)
    for name in wanted:
        check_allowed(name, names, f"unknown host {name!r}", inventory)
    hosts = []
    for name in wanted or names:
        given = facts.get(name, {})
        own = {key: value for key, value in given.items() if key.startswith(_PREFIX)}
        check_document(own, HostVariables, f"{inventory}, host {name}")
        hosts.append(
            InventoryHost(name, cast(HostVariables, own), _render_variables(given, inventory, name))
        )
    return hosts
