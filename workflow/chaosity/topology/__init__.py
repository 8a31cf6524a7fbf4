"""What a host is: one frozen model, from the live machine, an hwloc XML file or a captured /sys."""

from chaosity.cpusets import (
    CpuSet,
    cpu_set,
    format_cpu_list,
    format_mask,
    parse_cpu_list,
    parse_mask,
)
from chaosity.topology.configuration import configuration_name
from chaosity.topology.discovery import discover, discover_with_xml, topology_xml
from chaosity.topology.model import (
    Accelerator,
    Cache,
    Core,
    CoreKind,
    Counts,
    Die,
    Distances,
    Drive,
    Gpu,
    HugePagePool,
    L3Domain,
    MemoryAttribute,
    Node,
    OpenclDevice,
    Package,
    Restrictions,
    Topology,
)
from chaosity.topology.serialise import topology_from_json
from chaosity.topology.sources import LIVE

__all__ = [
    "LIVE",
    "Accelerator",
    "Cache",
    "Core",
    "CoreKind",
    "Counts",
    "CpuSet",
    "Die",
    "Distances",
    "Drive",
    "Gpu",
    "HugePagePool",
    "L3Domain",
    "MemoryAttribute",
    "Node",
    "OpenclDevice",
    "Package",
    "Restrictions",
    "Topology",
    "configuration_name",
    "cpu_set",
    "discover",
    "discover_with_xml",
    "format_cpu_list",
    "format_mask",
    "parse_cpu_list",
    "parse_mask",
    "topology_from_json",
    "topology_xml",
]
