"""Classes for the parts of a host: packages, cores, nodes, caches, firmware tables, devices, facts.

Numbers of nodes, packages and processing units are OS indexes, which numactl, taskset and /sys use.
Only a field with the name `index` has a position in hwloc's order. `cpus` always means *usable*
processing units, which are online and which the cgroup allows to this process. `None` always means
unknown, never zero or "everywhere". For example, the `node` of a device is None if its nearest node
is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from chaosity.cpusets import CpuSet, format_cpu_list, parse_cpu_list
from chaosity.units import format_quantity

T = TypeVar("T")


def value_of_checked_json(adapter: TypeAdapter[T], text: str) -> T:
    """Return the value of a JSON text, which must have exactly the type that the adapter checks.

    Raises:
        TypeError: a field is missing or has a value of another type.
    """
    try:
        return adapter.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TypeError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


UNKNOWN = "unknown"
# The most frequent kind of a node's memory.
DRAM = "DRAM"


def _parse_cpu_list_or_set(value: object) -> object:
    return parse_cpu_list(value) if isinstance(value, str) else value


# In JSON, a set of processing units is a Linux list such as `0-3,8`.
CpuList = Annotated[
    CpuSet, BeforeValidator(_parse_cpu_list_or_set), PlainSerializer(format_cpu_list)
]

# A number that is a whole number in JSON stays a whole number.
Number = int | float
# hwloc's name of a core type of Intel's hybrid processors -> rank; a faster type has a higher rank.
_SPEED_RANK_OF_INTEL_CORE = {"IntelAtom": 1, "IntelCore": 2}


@dataclass(frozen=True)
class Package:
    """A package; `nodes` has all its NUMA nodes, including nodes without processing units."""

    os_index: int
    cpus: CpuList = ()
    nodes: tuple[int, ...] = ()
    model: str | None = None


@dataclass(frozen=True)
class Die:
    """A die within a package; only some firmware lists dies."""

    index: int
    cpus: CpuList = ()
    package: int | None = None


@dataclass(frozen=True)
class L3Domain:
    """The processing units that share an L3 cache; on AMD EPYC, an L3 domain is a CCX.

    An L3 domain can span nodes (Sapphire Rapids with SNC4). A node can have several L3 domains
    (EPYC).
    """

    index: int
    cpus: CpuList = ()
    nodes: tuple[int, ...] = ()
    package: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class Core:
    """A core; `cpus` has the processing units (SMT threads) of the core.

    Only `index` identifies the core, because cores of different packages can have the same
    `os_index`. `l3` is an L3Domain.index, and `kind` is a CoreKind.index.
    """

    index: int
    os_index: int | None = None
    cpus: CpuList = ()
    package: int | None = None
    l3: int | None = None
    nodes: tuple[int, ...] = ()
    kind: int = 0


@dataclass(frozen=True)
class CoreKind:
    """Cores of one design; most servers have one core kind, and hybrid processors have two.

    `efficiency` is hwloc's rank of the kind; faster cores, which use more power, have a higher
    rank. `frequency_max_hertz` is the highest frequency that all cores of the kind reach.
    """

    index: int
    cpus: CpuList = ()
    efficiency: int | None = None
    frequency_base_hertz: int | None = None
    frequency_max_hertz: int | None = None
    name: str | None = None

    @property
    def speed_rank(self) -> tuple[int, int] | None:
        """Return a sort key that puts faster core kinds last; None if the speed is unknown.

        hwloc ranks core kinds on a live machine, but does not write the ranks into its XML. For an
        XML, the sort key follows the rule of hwloc: compare Intel's core types, then the
        frequencies (hwloc/cpukinds.c).
        """
        if self.efficiency is not None:
            return (self.efficiency, 0)
        frequency = self.frequency_max_hertz or self.frequency_base_hertz
        if self.name is None and frequency is None:
            return None
        return (_SPEED_RANK_OF_INTEL_CORE.get(self.name or "", 0), frequency or 0)


@dataclass(frozen=True)
class Node:
    """A NUMA node, which is an initiator, a target, both, or neither (ACPI generic initiator)."""

    os_index: int
    # The usable processing units that the node owns. A node without processing units has an empty
    # set here, although hwloc gives the node the units of a neighbour.
    cpus: CpuList = ()
    # Memory size that the kernel reports at discovery. In a virtual machine, the hypervisor can
    # change this size within minutes.
    memory_bytes: int | None = None
    present_bytes: int | None = None  # memory size that firmware provided; a constant
    initiator: bool = False  # whether the node's processing units can issue accesses
    target: bool = False  # whether the node's memory can be accessed
    # Memory tier: tier 0 has the fastest memory of the host, tier 1 the next; None without memory.
    tier: int | None = None
    kind: str = UNKNOWN  # DRAM, HBM, CXL, NVM, ... or "none" without memory
    package: int | None = None  # package of the node; None if the node spans several packages
    shown_cpus: CpuList = ()  # `cpus` and the processing units that a cgroup forbids
    has_cpus: bool = False  # whether the node has processing units, usable or not
    memory_side_cache_bytes: int | None = None

    @property
    def size_bytes(self) -> int | None:
        """Return the bytes of memory that firmware provided, or else the kernel's total."""
        return self.present_bytes or self.memory_bytes

    @property
    def coherent_with(self) -> str | None:
        """Return whose caches the hardware keeps coherent with this memory; None without memory.

        The kernel makes a node only from memory that the host's cores may cache. The memory of a
        GPU is a node if the link between GPU and processor is coherent in both directions.
        """
        if self.kind == "none":
            return None
        return "cores and GPU" if self.kind == "GPU" else "cores"


@dataclass(frozen=True)
class EqualCaches:
    """A number `count` of equal caches; they serve the PUs `cpus`, and `pus` PUs share each.

    `kind` is unified, data or instruction; `size_bytes` is the size of a single cache.
    """

    level: int
    kind: str
    size_bytes: int | None
    line_bytes: int | None
    pus: int
    count: int
    cpus: CpuList


@dataclass(frozen=True)
class SlitDistances:
    """The firmware's SLIT; `matrix[i][j]` is the distance from `nodes[i]` to `nodes[j]`.

    Raises:
        ValueError: the number of rows or columns of the matrix is not the number of nodes.
    """

    nodes: tuple[int, ...]
    matrix: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Check that the matrix has a row and a column for each node."""
        if any(len(line) != len(self.nodes) for line in (self.matrix, *self.matrix)):
            raise ValueError(f"the matrix of distances does not fit {len(self.nodes)} nodes")

    def distance_between(self, initiator: int, target: int) -> int | None:
        """Return the distance from one node to another; None if the table lacks one of both."""
        if initiator not in self.nodes or target not in self.nodes:
            return None
        return self.matrix[self.nodes.index(initiator)][self.nodes.index(target)]


@dataclass(frozen=True)
class MemoryAttribute:
    """An entry of the HMAT: what firmware claims for accesses of `initiator_cpus` to a node.

    `name` is bandwidth, read_bandwidth or write_bandwidth, followed by `_bytes_per_second`; or
    latency, read_latency or write_latency, followed by `_ns`.
    """

    name: str
    target: int
    initiator_cpus: CpuList
    value: Number


@dataclass(frozen=True)
class HugePagePool:
    """Huge pages reserved on a node; `node` is None if only the total of the machine is known."""

    node: int | None
    page_bytes: int
    pages: int


@dataclass(frozen=True)
class MemoryPeak:
    """Upper bounds of the bandwidth of a host's DRAM, for all packages and for one package."""

    machine_bytes_per_second: Number | None = None
    package_bytes_per_second: Number | None = None
    unknown_reason: str | None = None

    @property
    def text(self) -> str:
        """Return the peak bandwidth of the machine as text, or why the peak is unknown."""
        if peak := self.machine_bytes_per_second:
            return f"at most {format_quantity('peak_bytes_per_second', peak)}"
        return f"peak unknown: {self.unknown_reason or 'discovered by an older version'}"


@dataclass(frozen=True)
class PartCounts:
    """The numbers of packages, cores and processing units in the source, usable or not."""

    packages: int = 0
    cores: int = 0
    pus: int = 0


@dataclass(frozen=True)
class Restrictions:
    """The processing units and nodes of the machine that this process cannot use.

    `offline_cpus` are switched off. A cgroup forbids `disallowed_cpus`. `missing_cpus` has all
    processing units that cannot be used, since an hwloc XML often does not say why a unit is
    missing.
    """

    missing_cpus: CpuList = ()
    offline_cpus: CpuList = ()
    disallowed_cpus: CpuList = ()
    disallowed_nodes: CpuList = ()
    cgroup: str | None = None


# Devices

# Facts of an OpenCL device that no point contains, so a change of these facts causes no new
# measurement.
OPENCL_FACTS_NOT_IN_POINTS = ("unified_memory", "shared_virtual_memory")


@dataclass(frozen=True)
class NvmeDrive:
    """An NVMe namespace, or (with `name` None) an NVMe function without a block device.

    A reboot may change `name`; `pci` identifies the slot and `serial` identifies the drive.
    `link_bytes_per_second` is the bandwidth of the PCI link without encoding overhead, which no
    measured bandwidth can exceed. `link_max_bytes_per_second` is the bandwidth of the fastest link
    that drive and slot support.
    """

    name: str | None = None
    pci: str | None = None
    serial: str | None = None
    model: str | None = None
    firmware: str | None = None
    node: int | None = None
    size_bytes: int | None = None
    link_bytes_per_second: int | None = None
    link_max_bytes_per_second: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU, listed once even if several libraries (`backends`) show it.

    `compute` is False for a device that only drives a display. `memory_node` is the NUMA node whose
    memory is the GPU's memory. `memory_node` is None if the GPU's memory is not a node, or if the
    host does not show which node it is.
    """

    name: str | None = None
    pci: str | None = None
    backends: tuple[str, ...] = ()
    node: int | None = None
    model: str | None = None
    serial: str | None = None
    memory_bytes: int | None = None
    compute: bool = True
    memory_node: int | None = None


@dataclass(frozen=True)
class OpenclDevice:
    """A device that OpenCL shows: a GPU, an accelerator, or (`type` cpu) the host's processor.

    Points use `name`. The names that OpenCL shows are `platform` and `device`; `twin` is a number
    that distinguishes devices with equal names. A device and a `Gpu` with the same `pci` address
    are the same GPU. A processor has no `pci` address.

    `unified_memory` says whether the host and the device use the same memory.
    `shared_virtual_memory` says how host and device can share memory: coarse_grain (host and device
    use a buffer in turn), fine_grain (both use a buffer at the same time), fine_grain_system (both
    use all memory of the host at the same time) or none. Each attribute is None if unknown.
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
    unified_memory: bool | None = None
    shared_virtual_memory: str | None = None

    @property
    def memory_sharing_text(self) -> str:
        """Return as text whether the device has separate memory or uses the host's memory."""
        unified = {True: "the host's memory", False: "its own memory", None: ""}
        shared = self.shared_virtual_memory
        sharing = f"shared {shared.replace('_', ' ')}" if shared not in (None, "none") else ""
        return ", ".join(filter(None, (unified[self.unified_memory], sharing)))

    @property
    def is_processor(self) -> bool:
        """Return whether the device is the host's processor, which PoCL shows to OpenCL."""
        return self.type == "cpu"


@dataclass(frozen=True)
class Nic:
    """A port of a network card, without its MAC address; `name` is the kernel's name.

    `link_bytes_per_second` is the negotiated rate in one direction; None without a link.
    """

    name: str
    kind: str
    pci: str | None = None
    model: str | None = None
    node: int | None = None
    link_bytes_per_second: int | None = None


@dataclass(frozen=True)
class Accelerator:
    """An engine for copies, compression, cryptography or matrices, or a coprocessor.

    `name` is the kernel's name or the slot. An accelerator that is a part of each core or of the
    processor (`part_of`) has neither slot nor node; its `name` is the processor's flag or model
    that reveals the accelerator. `driver` is the kernel's driver, "none" without a driver, and None
    if unknown.
    """

    name: str
    kind: str
    pci: str | None
    node: int | None
    driver: str | None = None
    part_of: str | None = None


# The following classes have the keys of facts in JSON. A key is missing if this kind of source
# cannot have the fact: an hwloc XML file has no kernel settings. The value None means that this
# source lacks the fact.


class MemoryModuleSlot(TypedDict, total=False):
    """A slot for a memory module, with values from SMBIOS; an empty slot has no `size`."""

    slot: str | None
    bank: str | None
    size: str | None
    type: str | None
    ranks: str | None
    speed: str | None
    configured_speed: str | None
    manufacturer: str | None
    part: str | None
    serial: str | None


class FrequencySettings(TypedDict):
    """How the kernel chooses frequencies; the lists have distinct values of all PUs."""

    drivers: list[str]
    governors: list[str]
    energy_preferences: list[str]
    lower_limits_hertz: list[int]
    upper_limits_hertz: list[int]
    turbo: bool | None


class IdleSettings(TypedDict):
    """The idle driver and governor, and the sleep states that are switched off."""

    driver: str | None
    governor: str | None
    disabled_states: list[str]


class HostFacts(TypedDict, total=False):
    """All facts about a host; `name` is the host name that the host itself reports."""

    name: str | None
    firmware: dict[str, str | None]
    cpu_model: str | None
    cpu_vendor: str | None
    cpu_family: str | None
    cpu_model_number: str | None
    cpu_stepping: str | None
    architecture: str | None
    operating_system: str | None
    cpu_flags: list[str]
    kernel_release: str | None
    kernel_version: str | None
    memory_modules: list[MemoryModuleSlot] | None
    microcode: str | None
    hypervisor: bool
    kernel_parameters: list[str]
    smt: str | None
    frequency: FrequencySettings
    idle: IdleSettings
    memory_settings: dict[str, str | None]
    mitigations: dict[str, str | None]
