"""Model of a host: frozen dataclasses for the whole machine and each of its parts.

All other modules read this model, which does not depend on how the host was discovered.

Indexes are OS indexes, which numactl, taskset and /sys use. Only a field called `index` is the
position in hwloc's order. `cpus` always means *usable* processing units: online, and allowed to
this process by its cgroup. `None` always means unknown, never zero or "everywhere".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from chaosity.cpusets import CpuSet
from chaosity.topology.device_types import Accelerator, Gpu, Nic, NvmeDrive, OpenclDevice
from chaosity.topology.host_fact_types import HostFacts
from chaosity.units import format_quantity

SAME_NODE, SAME_PACKAGE, OTHER_PACKAGE = "same_node", "same_package", "other_package"
UNKNOWN = "unknown"

# hwloc's names for the core types of Intel's hybrid processors, slow to fast.
_CORE_TYPES = {"IntelAtom": 1, "IntelCore": 2}


@dataclass(frozen=True)
class Package:
    """A package; `nodes` are its NUMA nodes, including nodes without processing units."""

    os_index: int
    cpus: CpuSet = ()
    nodes: tuple[int, ...] = ()
    model: str | None = None


@dataclass(frozen=True)
class Die:
    """A die within a package, if firmware lists dies."""

    index: int
    cpus: CpuSet = ()
    package: int | None = None


@dataclass(frozen=True)
class L3Domain:
    """The processing units that share an L3 cache; on AMD EPYC a CCX.

    An L3 domain can span nodes (Sapphire Rapids with SNC4); a node can have several (EPYC).
    """

    index: int
    cpus: CpuSet = ()
    nodes: tuple[int, ...] = ()
    package: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Core:
    """A core; `cpus` are its SMT threads.

    `index` identifies the core, because packages can have cores of the same `os_index`. `l3` is an
    L3Domain.index, and `kind` is a CoreKind.index.
    """

    index: int
    os_index: int | None = None
    cpus: CpuSet = ()
    package: int | None = None
    l3: int | None = None
    nodes: tuple[int, ...] = ()
    kind: int = 0


@dataclass(frozen=True)
class CoreKind:
    """Cores of one design: most servers have one kind, hybrid processors have two.

    `efficiency` is hwloc's rank; faster cores that use more power have a higher rank.
    `frequency_max_hertz` is the highest frequency that all cores of the kind reach.
    """

    index: int
    cpus: CpuSet = ()
    efficiency: int | None = None
    frequency_base_hertz: int | None = None
    frequency_max_hertz: int | None = None
    name: str | None = None

    @property
    def speed_rank(self) -> tuple[int, int] | None:
        """Return the sort key that puts faster core kinds last; None if unknown.

        hwloc ranks kinds on a live machine and leaves the ranks out of its XML. From an XML the
        key follows hwloc's own rule: Intel's core type, then the frequency (hwloc/cpukinds.c).
        """
        if self.efficiency is not None:
            return (self.efficiency, 0)
        frequency = self.frequency_max_hertz or self.frequency_base_hertz
        if self.name is None and frequency is None:
            return None
        return (_CORE_TYPES.get(self.name or "", 0), frequency or 0)


@dataclass(frozen=True)
class Node:
    """A NUMA node: an initiator, a target, both, or neither (an ACPI generic initiator)."""

    os_index: int
    # Its own usable processing units. Empty for a node without processing units, although hwloc
    # gives such a node the units of a neighbour.
    cpus: CpuSet = ()
    # Size that the kernel reports now; a memory balloon changes it within minutes.
    memory_bytes: int | None = None
    present_bytes: int | None = None  # size that firmware provided; it does not change
    initiator: bool = False  # whether its processing units can issue accesses
    target: bool = False  # whether its memory can be accessed
    # 0 for the fastest memory of all targets, 1 for the next, and so on; None without memory.
    tier: int | None = None
    kind: str = UNKNOWN  # DRAM, HBM, CXL, NVM, ... or "none" without memory
    package: int | None = None  # package of the node; None when the node spans several packages
    shown_cpus: CpuSet = ()  # `cpus` and the processing units that a cgroup forbids
    has_cpus: bool = False  # whether it has processing units, usable or not
    memory_side_cache_bytes: int | None = None

    @property
    def size_bytes(self) -> int | None:
        """Return the bytes of memory that firmware provided, or else the kernel's total."""
        return self.present_bytes or self.memory_bytes


@dataclass(frozen=True)
class CacheGroup:
    """`count` equal caches of the processing units `cpus`; `pus` units share each cache.

    `kind` is unified, data or instruction; `size_bytes` is the size of a single cache.
    """

    level: int
    kind: str
    size_bytes: int | None
    line_bytes: int | None
    pus: int
    count: int
    cpus: CpuSet


@dataclass(frozen=True)
class SlitDistances:
    """The firmware's SLIT; `matrix[i][j]` is the entry from `nodes[i]` to `nodes[j]`.

    Raises:
        ValueError: the matrix has another number of rows or columns than there are nodes.
    """

    nodes: tuple[int, ...]
    matrix: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Check the shape."""
        if any(len(line) != len(self.nodes) for line in (self.matrix, *self.matrix)):
            raise ValueError(f"the matrix of distances is not one of {len(self.nodes)} nodes")

    def distance_between(self, initiator: int, target: int) -> int | None:
        """Return the distance between two nodes; None when the table lacks a node."""
        if initiator not in self.nodes or target not in self.nodes:
            return None
        return self.matrix[self.nodes.index(initiator)][self.nodes.index(target)]


@dataclass(frozen=True)
class MemoryAttribute:
    """An entry of the HMAT: what firmware claims about a target for `initiator_cpus`.

    `name` ends with the unit: bandwidth, read_bandwidth or write_bandwidth `_bytes_per_second`;
    latency, read_latency or write_latency `_ns`.
    """

    name: str
    target: int
    initiator_cpus: CpuSet
    value: float


@dataclass(frozen=True)
class HugePagePool:
    """Huge pages reserved on a node; `node` is None if only the total of the machine is known."""

    node: int | None
    page_bytes: int
    pages: int


@dataclass(frozen=True)
class MemoryPeak:
    """Bandwidths that a host's DRAM cannot exceed: of all modules, and of any one package's."""

    machine_bytes_per_second: float | None = None
    package_bytes_per_second: float | None = None
    unknown_reason: str | None = None

    @property
    def text(self) -> str:
        """Return the peak of the machine, or why it is unknown."""
        if peak := self.machine_bytes_per_second:
            return f"at most {format_quantity('peak_bytes_per_second', peak)}"
        return f"peak unknown: {self.unknown_reason or 'discovered by an older version'}"


@dataclass(frozen=True)
class PartCounts:
    """Numbers of packages, cores and processing units in the source, usable or not."""

    packages: int = 0
    cores: int = 0
    pus: int = 0


@dataclass(frozen=True)
class Restrictions:
    """The processing units and nodes of the machine that this process cannot use.

    `offline_cpus` are switched off, `disallowed_cpus` forbidden by a cgroup. An hwloc XML often
    does not say why a processing unit is missing; then only `missing_cpus` has it.
    """

    missing_cpus: CpuSet = ()
    offline_cpus: CpuSet = ()
    disallowed_cpus: CpuSet = ()
    disallowed_nodes: tuple[int, ...] = ()
    cgroup: str | None = None


@dataclass(frozen=True)
class Topology:
    """A whole host; `Topology()` is a host without any known part.

    `packages`, `cores` and `l3_domains` have at least one usable processing unit each. `nodes` are
    all known nodes. `host` has firmware, processor, kernel and settings as plain JSON values.
    `source` is the path of the file, or "live"; `kind` is live, xml or sysfs.
    """

    source: str = UNKNOWN
    kind: str = UNKNOWN
    packages: tuple[Package, ...] = ()
    l3_domains: tuple[L3Domain, ...] = ()
    cores: tuple[Core, ...] = ()
    pus: CpuSet = ()
    nodes: tuple[Node, ...] = ()
    drives: tuple[NvmeDrive, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    opencl_devices: tuple[OpenclDevice, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    nics: tuple[Nic, ...] = ()
    core_kinds: tuple[CoreKind, ...] = ()
    distances: SlitDistances | None = None
    caches: tuple[CacheGroup, ...] = ()
    memory_attributes: tuple[MemoryAttribute, ...] = ()
    memory_peak: MemoryPeak = MemoryPeak()
    cache_line_bytes: int | None = None
    dies: tuple[Die, ...] = ()
    huge_page_pools: tuple[HugePagePool, ...] = ()
    restrictions: Restrictions = Restrictions()
    counts: PartCounts = PartCounts()
    host: HostFacts = field(default_factory=HostFacts)

    @property
    def os_family(self) -> str:
        """Return the operating system: `darwin` (macOS) or else `linux`, even if unknown."""
        return "darwin" if self.host.get("operating_system") == "Darwin" else "linux"

    @property
    def cpu_model(self) -> str | None:
        """Return the processor's model, as the processor itself reports it."""
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
        """Return the total bytes of all nodes' memory; None when no size is known."""
        return sum(node.size_bytes or 0 for node in self.nodes) or None

    @property
    def compute_gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that can compute, without those that only drive a display."""
        return tuple(gpu for gpu in self.gpus if gpu.compute)

    @cached_property
    def node_of_pu(self) -> Mapping[int, int]:
        """Return processing unit -> node, also for units that a cgroup forbids."""
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
    def data_cache_bytes(self) -> dict[tuple[int, int], int]:
        """Return (processing unit, level) -> the size of its largest cache for data, in bytes."""
        found: dict[tuple[int, int], int] = {}
        for cache in self.caches:
            if cache.kind != "instruction":
                for unit in cache.cpus:
                    key = unit, cache.level
                    found[key] = max(found.get(key, 0), cache.size_bytes or 0)
        return found

    @cached_property
    def l3_of_pu(self) -> Mapping[int, int]:
        """Return processing unit -> L3Domain.index, for usable units that have an L3 cache."""
        return {pu: domain.index for domain in self.l3_domains for pu in domain.cpus}

    @cached_property
    def core_kind_of_pu(self) -> Mapping[int, int]:
        """Return usable unit -> CoreKind.index; empty if all cores are of one kind."""
        several = len(self.core_kinds) > 1
        return {pu: kind.index for kind in self.core_kinds if several for pu in kind.cpus}

    @cached_property
    def nodes_of_comparable_packages(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the nodes of each package, to compare packages that should be equal.

        Only nodes with both processing units and memory count. The result is None if a node spans
        packages, if there is only one package, or if packages have different numbers of nodes.
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
        """Return the node with this OS index, or None."""
        return self._node_of_index.get(os_index)

    @cached_property
    def _node_of_index(self) -> Mapping[int, Node]:
        return {node.os_index: node for node in self.nodes}

    def nodes_of_pus(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Return the sorted OS indexes of the nodes of these processing units."""
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
