"""Discovers the topology of a host, from a live machine, an hwloc XML file or a captured /sys."""

from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.device_types import Accelerator, Drive, Gpu, OpenclDevice
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_discovery import discover, discover_with_xml, topology_xml
from chaosity.topology.topology_json import read_topology, topology_from_json, topology_to_json
from chaosity.topology.topology_model import (
    Cache,
    Core,
    CoreKind,
    Counts,
    Die,
    Distances,
    HugePagePool,
    L3Domain,
    MemoryAttribute,
    Node,
    Package,
    Restrictions,
    Topology,
)
from chaosity.topology.topology_sources import LIVE

__all__ = [
    "LIVE",
    "Accelerator",
    "Cache",
    "Core",
    "CoreKind",
    "Counts",
    "Die",
    "Distances",
    "Drive",
    "Gpu",
    "HostFacts",
    "HugePagePool",
    "L3Domain",
    "MemoryAttribute",
    "Node",
    "OpenclDevice",
    "Package",
    "Restrictions",
    "Topology",
    "configuration_name",
    "discover",
    "discover_with_xml",
    "read_topology",
    "topology_from_json",
    "topology_to_json",
    "topology_xml",
]
