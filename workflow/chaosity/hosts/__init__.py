"""Reads the hosts of the inventory, discovers them, and writes the results."""

from chaosity.hosts.ansible_inventory import InventoryHost, read_inventory
from chaosity.hosts.host_discovery import (
    discover_hosts,
    read_discovered_host,
    read_discovered_hosts,
)

__all__ = [
    "InventoryHost",
    "discover_hosts",
    "read_discovered_host",
    "read_discovered_hosts",
    "read_inventory",
]
