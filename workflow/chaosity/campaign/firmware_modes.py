"""Which hosts can be booted into other firmware modes, and the commands that do it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chaosity.documents.config import Config
from chaosity.errors import UserError
from chaosity.hosts.ansible_inventory import CONFIGURATION, InventoryHost, read_inventory
from chaosity.hosts.ansible_programs import ansible_command
from chaosity.hosts.host_discovery import discover_hosts
from chaosity.topology.topology_sources import LIVE
from chaosity.transport.runner_command import LOCAL

Words = list[str]  # a command, as a process gets it
# In place of the commands of a host that lacks nothing in a configuration.
NO_BOOT = (["echo", "chaosity: nothing is to be measured in this configuration"], ["false"])


def hosts_with_modes(hosts: Sequence[InventoryHost], inventory: str) -> list[InventoryHost]:
    """Return the hosts that can be set to other configurations.

    Raises:
        UserError: there is none, or a host cannot be rebooted.
    """
    for host in hosts:
        if host.is_simulated and not host.can_change_configuration:
            what = "this host is simulated in a single configuration"
            remedy = f"write {CONFIGURATION} in the name of its topology file"
            raise UserError(what, f"host {host.name}", remedy)
        if host.topology_source == LIVE and host.local_or_ssh == LOCAL:
            what = "a reboot of this host into another configuration would end this run"
            remedy = "start the run on another machine, or list only other hosts in `hosts`"
            raise UserError(what, f"host {host.name}", remedy)
    found = [host for host in hosts if host.can_change_configuration]
    if not found:
        what = "the inventory has no host that can be set to other configurations"
        remedy = "list a host without chaosity_topology, or leave `configurations` empty"
        raise UserError(what, f"inventory {inventory}", remedy)
    return found


def boot_commands(
    host: InventoryHost, configuration: str, inventory: str, root: Path
) -> tuple[Words, Words]:
    """Return two commands: one sets the firmware and reboots the host, one sets the host's state.

    A simulated host needs none; `true` stands for both.

    Raises:
        UserError: Ansible is not installed.
    """
    if host.is_simulated:
        return ["true"], ["true"]
    play = [*ansible_command("ansible-playbook"), "--inventory", inventory, "--limit", host.name]
    firmware = [
        str(root / "playbooks/firmware.yml"),
        "--extra-vars",
        f"firmware_mode={configuration}",
    ]
    return [*play, *firmware], [*play, str(root / "playbooks/configure.yml")]


def discover_in_mode(config: Config, host: str, configuration: str) -> None:
    """Discover a host that was booted into a configuration, and write what is found.

    The inventory is read anew, since a reboot can change what a dynamic inventory says.

    Raises:
        UserError: the host cannot be discovered, or is in another configuration.
    """
    own = config.copy()
    own["expected_configuration"] = configuration
    discover_hosts(own, read_inventory(config["inventory"], [host]))
