"""Discovers the topology of a host, from a live machine, an hwloc XML file or a captured /sys."""

from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.device_types import Accelerator, Drive, Gpu, OpenclDevice
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_discovery import (
    discover_topology,
    discover_topology_with_xml,
    make_topology_xml,
)
from chaosity.topology.topology_json import read_topology, topology_from_json, topology_to_json
from chaosity.topology.topology_model import (
    Cache,
    Core,
    CoreKind,
    Die,
    HugePagePool,
    L3Domain,
    MemoryAttribute,
    Node,
    Package,
    PartCounts,
    Restrictions,
    SlitDistances,
    Topology,
)
from chaosity.topology.topology_sources import LIVE

__all__ = [
    "LIVE",
    "Accelerator",
    "Cache",
    "Core",
    "CoreKind",
    "Die",
    "Drive",
    "Gpu",
    "HostFacts",
    "HugePagePool",
    "L3Domain",
    "MemoryAttribute",
    "Node",
    "OpenclDevice",
    "Package",
    "PartCounts",
    "Restrictions",
    "SlitDistances",
    "Topology",
    "configuration_name",
    "discover_topology",
    "discover_topology_with_xml",
    "make_topology_xml",
    "read_topology",
    "topology_from_json",
    "topology_to_json",
]
