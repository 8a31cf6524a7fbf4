"""The model of a host, the JSON of this model, and the name of the host's configuration.

All other rooms read this model, which does not depend on how the host was discovered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter
from typing_extensions import get_type_hints

from chaosity.cpusets import format_cpu_list
from chaosity.errors import malformed_as_user_error
from chaosity.records.record_files import read_regular_file
from chaosity.topology.topology_parts import (
    UNKNOWN,
    Accelerator,
    Core,
    CoreKind,
    CpuList,
    Die,
    EqualCaches,
    Gpu,
    HostFacts,
    HugePagePool,
    L3Domain,
    MemoryAttribute,
    MemoryPeak,
    Nic,
    Node,
    NvmeDrive,
    OpenclDevice,
    Package,
    PartCounts,
    Restrictions,
    SlitDistances,
    value_of_checked_json,
)

SAME_NODE, SAME_PACKAGE, OTHER_PACKAGE = "same_node", "same_package", "other_package"
RELATIONS_NEAREST_FIRST = (SAME_NODE, SAME_PACKAGE, OTHER_PACKAGE, UNKNOWN)

# NPS4 is AMD's finest NPS mode. A socket with more than 4 nodes has a node for each L3 cache.
_MOST_NODES_PER_SOCKET = 4
_ON_PACKAGE_MEMORY = frozenset({"HBM", "MCDRAM"})
# Fields of `Topology` that have the same name in its JSON, in the order of the JSON.
_JSON_PART_FIELDS = (
    *("drives", "gpus", "opencl_devices", "accelerators", "nics", "core_kinds", "distances"),
    *("l3_domains", "dies", "caches", "memory_attributes", "memory_peak", "huge_page_pools"),
)
_NUMBERS_BEFORE_PARTS = ("packages", "cores")
# Numbers that describe hardware fit into 64 bits, and tables cannot have larger numbers.
_LIMIT_OF_WHOLE_NUMBERS = 2**64


@dataclass(frozen=True)
class Topology:
    """All that is known about the structure of a host; in `Topology()` nothing is known.

    Each of the `packages`, `cores` and `l3_domains` has at least one usable processing unit.
    `nodes` has all known nodes, usable or not. `host` has facts on firmware, processor, kernel and
    settings as plain JSON values. `source` is the path of the source, or "live"; `kind` is live,
    xml or sysfs.
    """

    source: str = UNKNOWN
    kind: str = UNKNOWN
    packages: tuple[Package, ...] = ()
    l3_domains: tuple[L3Domain, ...] = ()
    cores: tuple[Core, ...] = ()
    pus: CpuList = ()
    nodes: tuple[Node, ...] = ()
    drives: tuple[NvmeDrive, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    opencl_devices: tuple[OpenclDevice, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    nics: tuple[Nic, ...] = ()
    core_kinds: tuple[CoreKind, ...] = ()
    distances: SlitDistances | None = None
    caches: tuple[EqualCaches, ...] = ()
    memory_attributes: tuple[MemoryAttribute, ...] = ()
    memory_peak: MemoryPeak = field(default_factory=MemoryPeak)
    cache_line_bytes: int | None = None
    dies: tuple[Die, ...] = ()
    huge_page_pools: tuple[HugePagePool, ...] = ()
    restrictions: Restrictions = field(default_factory=Restrictions)
    counts: PartCounts = field(default_factory=PartCounts)
    host: HostFacts = field(default_factory=HostFacts)

    @property
    def os_family(self) -> str:
        """Return `darwin` for macOS, and `linux` for any other or unknown operating system."""
        return "darwin" if self.host.get("operating_system") == "Darwin" else "linux"

    @property
    def cpu_model(self) -> str | None:
        """Return the name of the processor's model that the processor reports."""
        return self.host.get("cpu_model")

    @property
    def is_restricted(self) -> bool:
        """Return whether the machine has CPUs or memory that this process cannot use."""
        return bool(self.restrictions.missing_cpus or self.restrictions.disallowed_nodes)

    @property
    def initiator_nodes(self) -> tuple[Node, ...]:
        """Return the nodes whose processing units can issue accesses."""
        return tuple(node for node in self.nodes if node.initiator)

    @property
    def memory_nodes(self) -> tuple[Node, ...]:
        """Return the nodes whose memory can be accessed."""
        return tuple(node for node in self.nodes if node.target)

    @property
    def total_memory_bytes(self) -> int | None:
        """Return the total bytes of all nodes' memory; None if no size is known."""
        return sum(node.size_bytes or 0 for node in self.nodes) or None

    @property
    def compute_gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs without devices that only drive a display."""
        return tuple(gpu for gpu in self.gpus if gpu.compute)

    @cached_property
    def node_of_pu(self) -> Mapping[int, int]:
        """Return processing unit -> node, including units that a cgroup forbids."""
        return {pu: node.os_index for node in self.nodes for pu in (*node.shown_cpus, *node.cpus)}

    @cached_property
    def core_of_pu(self) -> Mapping[int, Core]:
        """Return usable processing unit -> its core."""
        return {pu: core for core in self.cores for pu in core.cpus}

    @cached_property
    def package_of_node(self) -> Mapping[int, int]:
        """Return node -> package, without nodes that span several packages."""
        return {node.os_index: node.package for node in self.nodes if node.package is not None}

    @cached_property
    def data_cache_bytes_of_pu(self) -> dict[tuple[int, int], int]:
        """Return (processing unit, level) -> bytes of its largest data cache of this level."""
        found: dict[tuple[int, int], int] = {}
        for group in self.caches:
            if group.kind != "instruction":
                for unit in group.cpus:
                    key = unit, group.level
                    found[key] = max(found.get(key, 0), group.size_bytes or 0)
        return found

    @cached_property
    def l3_of_pu(self) -> Mapping[int, int]:
        """Return processing unit -> L3Domain.index, for usable units that have an L3 cache."""
        return {pu: domain.index for domain in self.l3_domains for pu in domain.cpus}

    @cached_property
    def core_kind_of_pu(self) -> Mapping[int, int]:
        """Return usable processing unit -> CoreKind.index; empty if all cores are of one kind."""
        several = len(self.core_kinds) > 1
        return {pu: kind.index for kind in self.core_kinds if several for pu in kind.cpus}

    def coherence_sentences(self) -> Iterator[str]:
        """Yield a sentence on the coherence of each node whose memory is of a GPU or behind CXL."""
        gpus = {gpu.memory_node: gpu for gpu in self.gpus}
        for node in self.memory_nodes:
            if node.kind == "GPU":
                gpu = gpus.get(node.os_index)
                name = f"GPU {gpu.name or gpu.pci}" if gpu else "a GPU"
                yield (
                    f"Node {node.os_index} is the memory of {name}: hardware keeps the caches"
                    " of cores and GPU coherent."
                )
            elif node.kind == "CXL":
                yield (
                    f"Node {node.os_index} is behind CXL: hardware keeps it coherent for this"
                    " host's cores, perhaps not between hosts."
                )

    @cached_property
    def nodes_of_comparable_packages(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the sorted nodes of each package, to compare packages that should be equal.

        Nodes without processing units or without memory are ignored. The result is None if a node
        spans packages, if there is only one package, or if packages have different numbers of
        nodes.
        """
        packages: dict[int | None, list[int]] = {}
        for node in self.nodes:
            if node.initiator and node.target:
                packages.setdefault(node.package, []).append(node.os_index)
        known = {package: nodes for package, nodes in packages.items() if package is not None}
        if None in packages or len(known) < 2 or len(set(map(len, known.values()))) != 1:
            return None
        return tuple(tuple(sorted(nodes)) for _, nodes in sorted(known.items()))

    def find_node(self, os_index: int) -> Node | None:
        """Return the node with this OS index; None if the host has no such node."""
        return self._node_of_index.get(os_index)

    @cached_property
    def _node_of_index(self) -> Mapping[int, Node]:
        return {node.os_index: node for node in self.nodes}

    def nodes_of_pus(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Return the sorted OS indexes of the nodes that own these processing units."""
        return tuple(sorted({self.node_of_pu[cpu] for cpu in cpus if cpu in self.node_of_pu}))

    def node_relation(self, node_a: int | None, node_b: int | None) -> str:
        """Return the relation of two nodes: same_node, same_package, other_package or unknown."""
        if node_a is None or node_b is None:
            return UNKNOWN
        if node_a == node_b:
            return SAME_NODE
        a, b = self.package_of_node.get(node_a), self.package_of_node.get(node_b)
        if a is None or b is None:
            return UNKNOWN
        return SAME_PACKAGE if a == b else OTHER_PACKAGE


def configuration_name(topology: Topology) -> str:
    """Return the name of a host's configuration, which follows from its nodes and memory.

    | processor | name |
    |---|---|
    | AMD EPYC | `nps1`, `nps2`, `nps4`: nodes per socket; `nps0`: a node over both; `l3-as-numa` |
    | Intel Xeon | `snc1`, `snc2`, `snc4`: sub-NUMA clusters per socket, `snc1` is clustering off |
    | others, or unknown | `1node-per-package`, `2nodes-per-package`, `1-2nodes-per-package` |

    Only nodes with processors count. The name gets the ending `-flat` if a package has nodes of
    high-bandwidth memory without processors beside other nodes, `-cache` if there is a memory-side
    cache, and `-hybrid` if there are both (`snc4-flat`). hwloc guesses the kind of memory. A guess
    about a node with processors does not change the name. Slow memory, such as CXL, does not change
    the name, because slow memory is not a firmware mode.
    """
    with_cpus = [node for node in topology.nodes if node.has_cpus]
    return _layout_name(topology, with_cpus) + _memory_mode(topology)


def _layout_name(topology: Topology, with_cpus: list[Node]) -> str:
    model = topology.cpu_model or ""
    per_package = Counter(node.package for node in with_cpus)
    if None in per_package:  # a node spans packages, or there are no packages
        return "nps0" if "EPYC" in model else f"{_nodes_text(len(with_cpus))}-over-packages"
    fewest, most = min(per_package.values(), default=0), max(per_package.values(), default=0)
    if fewest == most and "EPYC" in model:
        return f"nps{most}" if most <= _MOST_NODES_PER_SOCKET else "l3-as-numa"
    if fewest == most and "Intel" in model and "Xeon" in model:
        return f"snc{most}"
    return f"{'' if fewest == most else f'{fewest}-'}{_nodes_text(most)}-per-package"


def _nodes_text(number: int) -> str:
    return f"{number}node" if number == 1 else f"{number}nodes"


def _memory_mode(topology: Topology) -> str:
    beside = {node.package for node in topology.nodes if node.has_cpus}
    flat = any(
        node.kind in _ON_PACKAGE_MEMORY and not node.has_cpus and node.package in beside
        for node in topology.memory_nodes
    )
    cached = any(node.memory_side_cache_bytes for node in topology.memory_nodes)
    return {(False, False): "", (True, False): "-flat", (False, True): "-cache"}.get(
        (flat, cached), "-hybrid"
    )


@cache
def _pydantic_adapters() -> tuple[TypeAdapter[Topology], dict[str, TypeAdapter[Any]]]:
    """Return the type adapter of a topology, and name of a host fact -> its type adapter."""
    facts = get_type_hints(HostFacts).items()
    return TypeAdapter(Topology), {name: TypeAdapter(kind) for name, kind in facts}


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """Return a topology as JSON: first the numbers of parts, then lists of the parts.

    Sets are Linux lists such as `0-3,8`. Unknown values are null. The keys `packages`, `cores` and
    `pus` have the numbers of packages, cores and processing units in the source, and `usable` has
    the numbers of usable ones. `hierarchy` lists the usable packages and cores. The `cpus` of a
    node include units that a cgroup forbids; `usable_cpus` do not include forbidden units.
    """
    parts = _pydantic_adapters()[0].dump_python(
        topology, mode="json", exclude={"host"}, warnings=False
    )
    for node, made in zip(parts["nodes"], topology.nodes, strict=True):
        usable, node["cpus"] = node["cpus"], node.pop("shown_cpus")
        node |= {"usable_cpus": usable, "coherence": made.coherent_with}
    return {
        "source": topology.source,
        "kind": topology.kind,
        "configuration": configuration_name(topology),
        **asdict(topology.counts),
        "usable": {
            "packages": len(topology.packages),
            "cores": len(topology.cores),
            "pus": len(topology.pus),
            "cpus": format_cpu_list(topology.pus),
        },
        "nodes": parts["nodes"],
        **{name: parts[name] for name in _JSON_PART_FIELDS},
        "cache_line_bytes": topology.cache_line_bytes,
        "restricted": topology.is_restricted,
        "restrictions": parts["restrictions"],
        "host": dict(topology.host),
        "hierarchy": {name: parts[name] for name in _NUMBERS_BEFORE_PARTS},
    }


def topology_from_json(values: Mapping[str, Any]) -> Topology:
    """Return the topology from the JSON that `topology_to_json` made of an equal topology.

    Parts that a file of an older version lacks are unknown. Obsolete fields of an older file are
    ignored. A host fact of the wrong type, or without one of its keys, is left out. Host facts that
    `HostFacts` does not list are kept unchanged.

    Raises:
        TypeError: a field is missing or has a value of another type.
        ValueError: a number is infinite, or does not fit into 64 bits.
    """
    adapter, facts = _pydantic_adapters()
    hierarchy = values.get("hierarchy", {})
    parts: dict[str, Any] = {
        **{name: values[name] for name in ("source", "kind") if name in values},
        **{name: values[name] for name in (*_JSON_PART_FIELDS, "restrictions") if values.get(name)},
        **{name: hierarchy[name] for name in _NUMBERS_BEFORE_PARTS if hierarchy.get(name)},
        "pus": values.get("usable", {}).get("cpus", ""),
        "nodes": [
            {**node, "cpus": node.get("usable_cpus", cpus), "shown_cpus": cpus}
            for node in values.get("nodes", ())
            for cpus in [node.get("cpus", "")]
        ],
        "cache_line_bytes": values.get("cache_line_bytes"),
        "counts": {name: values[name] for name in ("packages", "cores", "pus") if name in values},
    }
    text = json.dumps(parts, allow_nan=False)
    json.loads(text, parse_int=_checked_whole_number)
    topology = value_of_checked_json(adapter, text)
    host = {
        name: fact
        for name, fact in values.get("host", {}).items()
        if name not in facts or _is_valid_document_value(facts[name], fact)
    }
    return replace(topology, host=cast(HostFacts, host))


def _checked_whole_number(digits: str) -> int:
    if abs(number := int(digits)) >= _LIMIT_OF_WHOLE_NUMBERS:
        raise ValueError(f"the number {number} does not fit into 64 bits")
    return number


def _is_valid_document_value(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_python(value, strict=True)
        json.loads(json.dumps(value), parse_int=_checked_whole_number)
    except ValueError:  # an error of pydantic, or a number that is too large
        return False
    return True


def read_topology(path: Path) -> Topology | None:
    """Return the topology in a file `topology.json`, or None if the file does not exist.

    Raises:
        UserError: the file cannot be read or does not have a topology.
    """
    if not path.exists():
        return None
    remedy = "run snakemake, which writes the file again"
    with malformed_as_user_error("the topology is unreadable", str(path), remedy):
        return topology_from_json(json.loads(read_regular_file(path)))
