"""The hosts of the inventory and what they are: read, discovered, and written down."""

from chaosity.hosts.host_discovery import (
    discover_hosts,
    read_discovered_host,
    read_discovered_hosts,
)
from chaosity.hosts.inventory import InventoryHost, read_inventory

__all__ = [
    "InventoryHost",
    "discover_hosts",
    "read_discovered_host",
    "read_discovered_hosts",
    "read_inventory",
]
