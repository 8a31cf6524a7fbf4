"""The hosts of the inventory and what they are: read, discovered, and written down."""

from chaosity.hosts.discovery import discover_hosts, read_host, read_hosts
from chaosity.hosts.inventory import InventoryHost, read_inventory

__all__ = ["InventoryHost", "discover_hosts", "read_host", "read_hosts", "read_inventory"]
