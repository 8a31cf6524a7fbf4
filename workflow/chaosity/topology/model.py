"""The model of a host that everything else reads: frozen, and without a trace of how it was found.

Indexes are OS indexes (what numactl, taskset and /sys say) unless a field is called `index`, which
is the position in hwloc's order. `cpus` always means *usable* processing units: online, and allowed
to this process by its cgroup. `None` always means unknown, never zero or "everywhere".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chaosity.cpusets import CpuSet

SAME_NODE, SAME_PACKAGE, OTHER_PACKAGE, UNKNOWN = (
    "same_node",
    "same_package",
    "other_package",
    "unknown",
)


_CORE_TYPES = {"IntelAtom": 1, "IntelCore": 2}


@dataclass(frozen=True)
class Package:
    """A socket. `nodes` are the NUMA nodes that lie in it, CPU-less ones too."""

    os_index: int
    cpus: CpuSet
    nodes: tuple[int, ...]
    model: str | None = None


@dataclass(frozen=True)
class Die:
    """A die within a package, where firmware tells of dies."""

    index: int
    cpus: CpuSet
    package: int | None


@dataclass(frozen=True)
class L3Domain:
    """The processing units that share one L3 cache: on AMD EPYC a CCX.

    One may span nodes (Sapphire Rapids with SNC4), and one node usually has several (EPYC).
    """

    index: int
    cpus: CpuSet
    nodes: tuple[int, ...]
    package: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class Core:
    """A core with its SMT siblings as `cpus`.

    `os_index` repeats from package to package, so `index` is the one that names a core. `l3` is an
    L3Domain.index and `kind` a CoreKind.index.
    """

    index: int
    os_index: int | None
    cpus: CpuSet
    package: int | None
    l3: int | None
    nodes: tuple[int, ...]
    kind: int


@dataclass(frozen=True)
class CoreKind:
    """Cores that are built alike: one on most servers, two on hybrid processors.

    `efficiency` is hwloc's rank, higher for faster and hungrier cores; `frequency_max_hertz` is the
    highest frequency that all of the kind reach.
    """

    index: int
    cpus: CpuSet
    efficiency: int | None = None
    frequency_base_hertz: int | None = None
    frequency_max_hertz: int | None = None
    name: str | None = None

    @property
    def rank(self) -> tuple[int, int] | None:
        """Orders the kinds of one machine, faster ones last; None where nothing tells.

        hwloc ranks them when it explores and leaves the ranks out of its XML; there the same rule
        is followed: Intel's own words for them, then their frequency (hwloc/cpukinds.c).
        """
        if self.efficiency is not None:
            return (self.efficiency, 0)
        frequency = self.frequency_max_hertz or self.frequency_base_hertz
        if self.name is None and frequency is None:
            return None
        return (_CORE_TYPES.get(self.name or "", 0), frequency or 0)


@dataclass(frozen=True)
class Node:
    """A NUMA node; it can be an initiator, a target, both, or (a generic initiator) neither.

    `cpus` are its own usable processing units, empty for CPU-less nodes even though hwloc lends
    them a neighbour's; `shown_cpus` also counts those that a cgroup forbids. `memory_bytes` is
    what the kernel says now, which a memory balloon changes from minute to minute;
    `present_bytes` is what the firmware gave and stays. `tier` ranks targets, 0 the fastest, and
    is None where there is no memory. `package` is None when the node spans several. `has_cpus`
    says whether it has processing units at all, be they offline or forbidden.
    """

    os_index: int
    cpus: CpuSet
    memory_bytes: int | None
    present_bytes: int | None
    initiator: bool
    target: bool
    tier: int | None
    kind: str
    package: int | None
    shown_cpus: CpuSet = ()
    has_cpus: bool = False
    memory_side_cache_bytes: int | None = None


@dataclass(frozen=True)
class Drive:
    """An NVMe namespace, or (`name` None) an NVMe function that has no block device here.

    `name` may change from boot to boot; the PCI address is the slot and the serial the drive.
    `link_bytes_per_second` is the PCI link after encoding, an upper bound of any bandwidth;
    `link_max_bytes_per_second` is what drive and slot could have negotiated.
    """

    name: str | None
    pci: str | None
    serial: str | None = None
    model: str | None = None
    firmware: str | None = None
    node: int | None = None
    size_bytes: int | None = None
    link_bytes_per_second: int | None = None
    link_max_bytes_per_second: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU, however many libraries show it. `compute` is False for a mere display adapter."""

    name: str | None
    pci: str | None
    backends: tuple[str, ...]
    node: int | None
    model: str | None = None
    serial: str | None = None
    memory_bytes: int | None = None
    compute: bool = True


@dataclass(frozen=True)
class OpenclDevice:
    """A device as OpenCL shows it: a GPU, an accelerator, or (`type` cpu) the processor itself.

    `name` is the one that points use; what OpenCL calls it are `platform` and `device`, and `twin`
    counts devices that these two do not tell apart. `pci` is unknown for a processor, and then a
    device stands by itself; with one it may be a `Gpu` too.
    """

    name: str
    platform: str
    device: str
    type: str
    twin: int = 0
    vendor: str | None = None
    driver: str | None = None
    compute_units: int | None = None
    memory_bytes: int | None = None
    pci: str | None = None
    uuid: str | None = None
    node: int | None = None

    @property
    def is_processor(self) -> bool:
        """Whether its units are those of the host's own processor, as PoCL's are."""
        return self.type == "cpu"


@dataclass(frozen=True)
class Accelerator:
    """An engine beside the cores: for copies, compression or cryptography, or a coprocessor."""

    name: str
    kind: str
    pci: str | None
    node: int | None


@dataclass(frozen=True)
class Cache:
    """Caches that are alike: `count` of them, each shared by `pus` of the processing units `cpus`.

    `kind` is unified, data or instruction; `size_bytes` is that of one.
    """

    level: int
    kind: str
    size_bytes: int | None
    line_bytes: int | None
    pus: int
    count: int
    cpus: CpuSet


@dataclass(frozen=True)
class Distances:
    """The SLIT as firmware wrote it: `matrix[i][j]` from `nodes[i]` to `nodes[j]`, 10 is local."""

    nodes: tuple[int, ...]
    matrix: tuple[tuple[int, ...], ...]

    def between(self, initiator: int, target: int) -> int | None:
        """The distance from one node to another, or None when the table does not have them."""
        if initiator not in self.nodes or target not in self.nodes:
            return None
        return self.matrix[self.nodes.index(initiator)][self.nodes.index(target)]


@dataclass(frozen=True)
class MemoryAttribute:
    """One entry of the HMAT: what firmware claims of a target, seen from `initiator_cpus`.

    `name` carries the unit: bandwidth, read_bandwidth or write_bandwidth `_bytes_per_second`;
    latency, read_latency or write_latency `_ns`.
    """

    name: str
    target: int
    initiator_cpus: CpuSet
    value: float


@dataclass(frozen=True)
class HugePagePool:
    """Huge pages reserved on one node; `node` is None when only the machine's total is known."""

    node: int | None
    page_bytes: int
    pages: int


@dataclass(frozen=True)
class Counts:
    """How many packages, cores and processing units the source shows, usable or not."""

    packages: int
    cores: int
    pus: int


@dataclass(frozen=True)
class Restrictions:
    """What the machine has and this process cannot use.

    An hwloc XML often tells only *that* a processing unit is missing; then it is in `missing_cpus`
    alone, else in `offline_cpus` (switched off) or `disallowed_cpus` (taken by a cgroup) as well.
    """

    missing_cpus: CpuSet = ()
    offline_cpus: CpuSet = ()
    disallowed_cpus: CpuSet = ()
    disallowed_nodes: tuple[int, ...] = ()
    cgroup: str | None = None

    def __bool__(self) -> bool:
        return bool(self.missing_cpus or self.disallowed_nodes)


@dataclass(frozen=True)
class Topology:
    """A whole host. `host` holds firmware, processor, kernel and settings as plain JSON values.

    `packages`, `cores` and `l3_domains` are those with at least one usable processing unit;
    `nodes` are all that are known.
    """

    source: str
    kind: str
    packages: tuple[Package, ...]
    l3_domains: tuple[L3Domain, ...]
    cores: tuple[Core, ...]
    pus: CpuSet
    nodes: tuple[Node, ...]
    drives: tuple[Drive, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    opencl_devices: tuple[OpenclDevice, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    core_kinds: tuple[CoreKind, ...] = ()
    distances: Distances | None = None
    caches: tuple[Cache, ...] = ()
    memory_attributes: tuple[MemoryAttribute, ...] = ()
    cache_line_bytes: int | None = None
    dies: tuple[Die, ...] = ()
    huge_page_pools: tuple[HugePagePool, ...] = ()
    restrictions: Restrictions = field(default_factory=Restrictions)
    counts: Counts = Counts(0, 0, 0)
    host: Mapping[str, Any] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """Whose commands this host takes: `darwin` (macOS) or `linux`, also where nothing tells."""
        return "darwin" if self.host.get("operating_system") == "Darwin" else "linux"

    @property
    def restricted(self) -> bool:
        """Whether the machine has processing units or memory that cannot be used."""
        return bool(self.restrictions)

    @property
    def initiators(self) -> tuple[Node, ...]:
        """Nodes whose processing units can issue accesses."""
        return tuple(node for node in self.nodes if node.initiator)

    @property
    def targets(self) -> tuple[Node, ...]:
        """Nodes whose memory can be accessed."""
        return tuple(node for node in self.nodes if node.target)

    @cached_property
    def _nodes_by_index(self) -> dict[int, Node]:
        return {node.os_index: node for node in self.nodes}

    @cached_property
    def _node_of_cpu(self) -> dict[int, int]:
        return {cpu: node.os_index for node in self.nodes for cpu in node.cpus}

    def node(self, os_index: int) -> Node | None:
        """The node with this OS index, or None."""
        return self._nodes_by_index.get(os_index)

    def nodes_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """OS indexes of the nodes that the processing units belong to, without those of none."""
        return tuple(sorted({self._node_of_cpu[cpu] for cpu in cpus if cpu in self._node_of_cpu}))

    def relation(self, node_a: int | None, node_b: int | None) -> str:
        """How two nodes lie to each other: same_node, same_package, other_package or unknown."""
        if node_a is None or node_b is None:
            return UNKNOWN
        if node_a == node_b:
            return SAME_NODE
        a, b = self.node(node_a), self.node(node_b)
        if a is None or b is None or a.package is None or b.package is None:
            return UNKNOWN
        return SAME_PACKAGE if a.package == b.package else OTHER_PACKAGE

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values for `chaosity topology --json`."""
        from chaosity.topology.serialise import topology_to_json

        return topology_to_json(self)
