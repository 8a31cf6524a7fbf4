"""Descriptions of simulated machines: capacities of their parts, latencies, noise and faults."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from annotated_types import Ge, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import (
    NO_DUPLICATES,
    Count,
    Index,
    NotNegative,
    Positive,
    Share,
    Text,
    key_requires_other_key,
)

MachineName = Annotated[str, Field(pattern="^[a-z0-9_]+$")]
NodeNumber = Annotated[str, Field(pattern="^[0-9]+$")]
PairOfNodes = Annotated[str, Field(pattern="^[0-9]+->[0-9]+$")]
# A standard deviation as a share of the value, or a share of runs. Unlike a `Share`, it can be 0.
ShareOrZero = Annotated[float, Ge(0), Le(1)]


class MemoryCapacities(TypedDict):
    """Capacities in bytes per second of the parts that memory accesses use."""

    core_bytes_per_second: Positive
    """Bandwidth that one core alone gets from the memory of its own node."""
    slow_core_share: NotRequired[Share]
    """Bandwidth of a core of the slower kind, as a share of the bandwidth of a fast core."""
    fast_cores_bytes_per_second: NotRequired[Positive]
    """Bandwidth that all cores of the fastest kind get together."""
    slow_cores_bytes_per_second: NotRequired[Positive]
    """Bandwidth that all cores of the slower kinds get together."""
    core_bytes_in_flight: NotRequired[Positive]
    """Bytes for which a core waits at the same time; these bytes / latency limit its bandwidth."""
    l3_domain_bytes_per_second: NotRequired[Positive]
    """Bandwidth that all cores that share one L3 cache get together."""
    package_bytes_per_second: Positive
    """Bandwidth of all memory controllers of a package together; its nodes have equal shares."""
    write_cost: NotRequired[Annotated[float, Ge(1)]]
    """Time to write a byte, divided by the time to read a byte."""
    nodes: NotRequired[dict[NodeNumber, Positive]]
    """Node -> capacity of its memory controllers, if they are separate (HBM, CXL)."""


class LinkCapacities(TypedDict, total=False):
    """Capacity in bytes per second of a link in each direction; a missing link has no limit."""

    node_to_node_bytes_per_second: Positive
    """Capacity from a node to another node of the same package."""
    node_to_package_bytes_per_second: Positive
    """Capacity from the cores of a node to another package."""
    package_to_package_bytes_per_second: Positive
    """Capacity from all cores of a package to the memory of another package."""


class Latencies(TypedDict):
    """Latencies of an access in an idle machine, and times that pages and queues add, in ns."""

    l1: Positive
    """Latency of a hit in the L1 cache."""
    l2: Positive
    """Latency of a hit in the L2 cache."""
    l3: Positive
    """Latency of a hit in the L3 cache."""
    same_node: Positive
    """Latency of the memory of the core's own node.

    A pointer chase measures less, since some of the cache lines are in caches: 12 % of the lines if
    the working set is eight times as large as the last-level cache.
    """
    same_package: NotRequired[Positive]
    """Latency of the memory of another node of the package."""
    other_package: NotRequired[Positive]
    """Latency of the memory of another package."""
    pairs: NotRequired[dict[PairOfNodes, Positive]]
    """Pair of nodes, such as 0->5 -> latency, for pairs that differ from the other pairs."""
    base_pages: NotRequired[NotNegative]
    """Time that base pages add if the working set is too large for the TLB."""
    queue: NotRequired[NotNegative]
    """Time that one access waits in the queue of a busy resource."""


class CoreToCoreLatencies(TypedDict):
    """Time of the transfer of a cache line between two cores, in nanoseconds."""

    same_l3: Positive
    """Time of a transfer between cores that share an L3 cache."""
    same_package: NotRequired[Positive]
    """Time of a transfer between cores of different L3 caches of one package."""
    other_package: NotRequired[Positive]
    """Time of a transfer between cores of different packages."""


class DriveCapacities(TypedDict):
    """Capacities in bytes per second of drives and of their paths to memory."""

    read_bytes_per_second: Positive
    """Bandwidth of one drive for sequential reads."""
    write_bytes_per_second: NotRequired[Positive]
    """Bandwidth of one drive for sequential writes."""
    core_bytes_per_second: NotRequired[Positive]
    """Bandwidth at which one core can read from all drives together."""
    package_bytes_per_second: NotRequired[Positive]
    """Bandwidth of all drives of a package together; its nodes have equal shares."""
    remote_package_bytes_per_second: NotRequired[Positive]
    """Bandwidth of all drives of a package together to the memory of another package."""
    read_latency_ns: NotRequired[Positive]
    """Latency of a small random read of a drive, without the path to cores and memory."""
    random_reads_per_second: NotRequired[Positive]
    """The most small random reads that a drive serves in a second."""


CHECKS_OF_RANDOM_READ_KEYS = (
    key_requires_other_key("read_latency_ns", "random_reads_per_second"),
    key_requires_other_key("random_reads_per_second", "read_latency_ns"),
)


class GpuBandwidths(TypedDict):
    """Capacities in bytes per second of a GPU's memory and of its link in each direction."""

    memory_bytes_per_second: Positive
    """Capacity of the GPU's own memory, or of unified memory while no core uses it."""
    link_bytes_per_second: Positive
    """Capacity for copies between the memory of the host and that of the GPU."""
    memory_node: NotRequired[Index]
    """With unified memory: the node whose memory the GPU uses."""
    competes_as_cores: NotRequired[Positive]
    """Number of cores that together get as much bandwidth as the GPU from full controllers.

    Default: 1.
    """


class Noise(TypedDict, total=False):
    """Standard deviations of values as shares of the value, and the share of disturbed runs."""

    between_runs: ShareOrZero
    """Standard deviation of the values of runs, as a share of the value."""
    within_runs: ShareOrZero
    """Standard deviation of the samples within a run, as a share of the value."""
    drift: Annotated[float, Ge(-1), Le(1)]
    """Change of the values from the first to the last run, as a share of the value."""
    disturbed_runs: ShareOrZero
    """Share of the runs that another program disturbs."""
    disturbed_loss: Share
    """Share of the value that is lost in a disturbed run."""


FaultName = Literal[
    "slow_node",
    "slow_link",
    "slow_drive",
    "slow_port",
    "slow_drive_path",
    "shared_drive_path",
    "slow_core",
    "slow_l3_domain",
    "slow_host",
    "swapped_distances",
    "waiting_l3_domains",
]
SomeIndexes = Annotated[list[Index], NO_DUPLICATES]


class FaultKind(NamedTuple):
    """The keys of a fault of one kind, and the key that a description with this fault needs."""

    keys: frozenset[str]  # keys that a fault of this kind must have in addition to `fault`
    optional_keys: frozenset[str] = frozenset()
    # Section and key of the capacity that the fault reduces, if the fault concerns a single part.
    # A description with this fault must have the key, since the part would otherwise have no limit.
    capacity: tuple[str, str] | None = None


def _make_fault_kind(keys: str, **others: Any) -> FaultKind:
    return FaultKind(frozenset(keys.split()), **others)


_DRIVE_READ_CAPACITY = ("drives", "read_bytes_per_second")
_REMOTE_DRIVE_CAPACITY = ("drives", "remote_package_bytes_per_second")
# Kind of a fault -> its keys. The function `affected_resources` in
# simulation/machine_description.py contains the effects of faults that leave a share of a capacity.
# Other functions of that module contain the effects of the other faults.
FAULT_KINDS: dict[FaultName, FaultKind] = {
    "slow_node": _make_fault_kind(
        "node remaining", capacity=("memory", "package_bytes_per_second")
    ),
    "slow_link": _make_fault_kind(
        "from_package to_package remaining",
        capacity=("links", "package_to_package_bytes_per_second"),
    ),
    "slow_drive": _make_fault_kind("drive remaining", capacity=_DRIVE_READ_CAPACITY),
    "slow_port": _make_fault_kind("drives remaining", capacity=_DRIVE_READ_CAPACITY),
    "slow_drive_path": _make_fault_kind(
        "drive_node remaining",
        optional_keys=frozenset({"to_package"}),
        capacity=_REMOTE_DRIVE_CAPACITY,
    ),
    "shared_drive_path": _make_fault_kind(
        "drive_nodes to_package remaining", capacity=_REMOTE_DRIVE_CAPACITY
    ),
    "slow_core": _make_fault_kind("core remaining", capacity=("memory", "core_bytes_per_second")),
    "slow_l3_domain": _make_fault_kind(
        "l3_domain remaining", capacity=("memory", "l3_domain_bytes_per_second")
    ),
    "slow_host": _make_fault_kind("remaining"),
    "swapped_distances": _make_fault_kind("nodes"),
    "waiting_l3_domains": _make_fault_kind(
        "l3_domains wait_ns from_bytes",
        optional_keys=frozenset({"smallest_bytes", "largest_bytes"}),
    ),
}
# Keys that every fault may have.
KEYS_OF_ALL_FAULTS = frozenset({"fault", "host", "since"})
# Key of a fault -> the kind of the parts that the values of this key name.
PART_KIND_BY_FAULT_KEY = {
    **dict.fromkeys(("node", "nodes", "drive_node", "drive_nodes"), "node"),
    **dict.fromkeys(("from_package", "to_package"), "package"),
    **dict.fromkeys(("drive", "drives"), "drive"),
    "core": "core",
    **dict.fromkeys(("l3_domain", "l3_domains"), "L3 domain"),
}


class Fault(TypedDict):
    """A fault of a simulated machine; `FAULT_KINDS` says which keys each kind of fault needs."""

    fault: FaultName
    """What is wrong; docs/explanation/simulated-machine.md describes each kind."""
    remaining: NotRequired[Share]
    """Share of the capacity that the fault leaves."""
    node: NotRequired[Index]
    """Number of the slow node."""
    from_package: NotRequired[Index]
    """Package at which the data of the slow link start."""
    to_package: NotRequired[Index]
    """Package at which the data of the slow link or path arrive."""
    drive: NotRequired[str]
    """Name of the component of the slow drive, such as drive-0000-41-00-0."""
    drives: NotRequired[Annotated[list[str], MinLen(2)]]
    """Names of the components of the drives behind the slow port."""
    drive_node: NotRequired[Index]
    """Node of the drives with the slow path."""
    drive_nodes: NotRequired[Annotated[SomeIndexes, MinLen(2)]]
    """Nodes whose drives share the path."""
    core: NotRequired[Index]
    """Number of the slow core."""
    nodes: NotRequired[Annotated[list[Index], Field(min_length=2, max_length=2)]]
    """The two nodes whose rows in the SLIT are swapped."""
    l3_domain: NotRequired[Index]
    """Number of the L3 domain with the slow link."""
    l3_domains: NotRequired[Annotated[SomeIndexes, MinLen(1)]]
    """Numbers of the L3 domains whose accesses wait."""
    wait_ns: NotRequired[Positive]
    """Time in ns that is added to each access of a large working set."""
    from_bytes: NotRequired[Positive]
    """Size in bytes of the working set whose accesses wait for a fifth of `wait_ns`."""
    smallest_bytes: NotRequired[Positive]
    """Size of the smallest working set whose accesses wait; default: no limit."""
    largest_bytes: NotRequired[Positive]
    """Size of the largest working set whose accesses wait; default: no limit."""
    host: NotRequired[str]
    """The only host of a fleet that has the fault; default: each host has the fault."""
    since: NotRequired[str]
    """The first day with the fault; default: the machine always had the fault."""


class ParameterCertainty(TypedDict):
    """How certain a fitted number is; only numbers that the data determine have an interval."""

    determined: bool
    """Says whether the data determine the number, or it is a usual value or a lower bound."""
    low: NotRequired[Positive]
    """Lower end of the 95 % interval."""
    high: NotRequired[Positive]
    """Upper end of the 95 % interval."""
    at_least: NotRequired[Positive]
    """The highest measured use of a capacity, which is a lower bound of this capacity."""
    points: Index
    """Number of points whose values depend on this number."""


class FitSummary(TypedDict):
    """The data from which `chaosity fit` made a description, and how certain each number is.

    The intervals of predictions are computed from this key. Simulations do not read this key.
    """

    host: str
    """The measured host."""
    configuration: str
    """The configuration of the measured host, such as nps4."""
    simulated: NotRequired[bool]
    """Says whether the measured host is simulated; descriptions of older versions lack this key."""
    cells: Count
    """Number of medians of cells to which the model was fitted."""
    residual: NotNegative
    """Standard deviation of these medians from the values of the model, as a share of the value."""
    misfits: dict[str, NotNegative]
    """Kind of value, such as memory alone -> standard deviation of its medians from the model."""
    errors: NotRequired[dict[str, NotNegative]]
    """Kind of value -> part of its `misfits` that the scatter of replicates does not explain."""
    covariance: dict[str, list[float]]
    """Number -> its row in the covariance matrix of the logarithms of all numbers."""
    parameters: dict[str, ParameterCertainty]
    """Number of the description -> how certain it is."""
    others: NotRequired[dict[str, dict[str, Positive]]]
    """Capacity that can be replaced -> numbers that explain the data equally well without it."""


class SharedMachineKeys(TypedDict):
    """Keys with the same type in the file of a description and in the complete description."""

    simulated_machine: MachineName
    """Name of the description, which is also the name of its file."""
    description: Text
    """Which machine this is, in a sentence."""
    sources: Annotated[list[str], MinLen(1)]
    """Sources of the numbers."""
    based_on: NotRequired[MachineName]
    """Another description (same folder or templates/machines), whose keys this file replaces."""
    seed: NotRequired[Index]
    """Seed of the noise; another seed gives other runs of the same machine."""
    fitted: NotRequired[FitSummary]
    """How certain each number is, if `chaosity fit` wrote the file."""
    links: NotRequired[LinkCapacities]
    """Capacities of the links between nodes and packages."""
    core_to_core_ns: NotRequired[CoreToCoreLatencies]
    """Times of the transfer of a cache line between cores."""
    drives: NotRequired[Annotated[DriveCapacities, *CHECKS_OF_RANDOM_READ_KEYS]]
    """Capacities of the drives, which are the same for each drive."""
    devices: NotRequired[GpuBandwidths]
    """Capacities of the GPUs, which are the same for each GPU."""
    noise: NotRequired[Noise]
    """Noise: how much runs differ; without this key, each run gives the same values."""
    faults: NotRequired[list[Fault]]
    """The faults of the machine."""


class MachineFile(SharedMachineKeys):
    """The YAML file that describes a machine. `based_on` names a file for the missing keys."""

    memory: NotRequired[MemoryCapacities]
    """Capacities of cores, L3 domains and memory controllers."""
    latency_ns: NotRequired[Latencies]
    """Latencies of caches and memory."""


class MachineDescription(SharedMachineKeys):
    """The complete description of a machine, with the keys of the file on which it is based."""

    memory: MemoryCapacities
    latency_ns: Latencies
