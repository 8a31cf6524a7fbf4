"""Types of a planned point and its loads, exactly as their JSON is."""

from __future__ import annotations

from typing import NotRequired, Required, TypedDict

# A level of a factor: a name or a number.
Level = str | int


class LoadInitiator(TypedDict):
    """The processing units that issue a load's accesses.

    `nodes` are the nodes of these units; `cpus` is a Linux list such as ``0-3,8``.
    """

    name: str
    kind: str
    nodes: list[int]
    cpus: str
    threads: int


class DriveFacts(TypedDict):
    """A drive of a target: an NVMe drive (`pci`, `serial`), a device (`path`) or a `file`.

    `component` is its name, made from the slot. `destructive` is true where the inventory allows
    writing to it.
    """

    component: str
    node: int | None
    pci: NotRequired[str]
    serial: NotRequired[str]
    path: NotRequired[str]
    file: NotRequired[str]
    size_bytes: NotRequired[int]
    link_bytes_per_second: NotRequired[int]
    destructive: NotRequired[bool]


class DeviceFacts(TypedDict):
    """An OpenCL device of a target, see `topology.model.OpenclDevice`."""

    name: str
    platform: str
    device: str
    type: str
    twin: int
    vendor: str | None
    driver: str | None
    compute_units: int | None
    memory_bytes: int | None
    pci: str | None
    uuid: str | None
    node: int | None


class NodeRelation(TypedDict):
    """Where a node lies, seen from the initiator; `distance` is its SLIT entry."""

    relation: str
    distance: float | None


class LoadTarget(TypedDict):
    """What a load accesses: memory nodes, drives or a device.

    `shares` (of the pages, by node; None where the kernel decides) and `settles` (the pages move
    while the load runs) exist for placements alone. `by_node` exists where a metric has a value
    for each node.
    """

    name: str
    kind: str
    nodes: list[int]
    drives: list[DriveFacts]
    device: NotRequired[DeviceFacts]
    relation: str
    distance: float | None
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]
    by_node: NotRequired[dict[str, NodeRelation]]


class LoadPlacement(TypedDict):
    """Where a load's threads and pages must be.

    `memory` says whose nodes hold the pages (target or initiator), `pinned` that each unit has one
    thread of its own, `mapping` which key of the ready line holds the address of the memory.
    """

    memory: str
    pinned: NotRequired[bool]
    mapping: NotRequired[str]
    memory_nodes: list[int]
    cpus: str
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]


# Name of an output: ``stdout``, ``stderr``, or a file or pattern; ``stdout`` by default.
OutputName = TypedDict("OutputName", {"in": str}, total=False)


class OutputSource(OutputName, total=False):
    """Where a value is in a tool's output, see `runner.extract`."""

    json: str
    event: str
    key: str
    regex: str
    combine: str
    scale: float


class SampleNodeKeys(TypedDict):
    """Keys of a sample that hold the amount and the time of each node."""

    amount: str
    time: str


class MetricSource(OutputSource, total=False):
    """Where a metric's value comes from, and what is allowed for it.

    The value comes from the samples (`progress`, `quantile`, `by_node`), from a processor's
    `counter`, or from the output. `at_most` is the bound that the hardware sets.
    """

    progress: bool
    quantile: float
    by_node: SampleNodeKeys
    counter: str
    at_most: float | None
    may_be_zero: bool
    optional: bool


class OutputRule(OutputSource, total=False):
    """A condition on a tool's output: `equals`, `one_of`, `at_least` or `at_most`."""

    name: Required[str]
    equals: Level | float | bool
    one_of: list[Level | float]
    at_least: str | float
    at_most: str | float


class ToolRemarkSource(OutputSource, total=False):
    """Where a tool writes a remark about its run."""

    name: Required[str]


class ProgressRowColumns(TypedDict):
    """Positions of the end time and of the rate in a row of a progress file."""

    end: int
    rate: int


class ProgressSource(OutputName, total=False):
    """How a tool reports its progress: events in JSON lines, or rows of a CSV file.

    `begin`, `end` and `amount` are keys of an event. The scales turn the tool's units into seconds
    and SI units per second.
    """

    event: str
    begin: str
    end: str
    amount: str
    csv: ProgressRowColumns
    interval_seconds: float
    time_scale: float
    rate_scale: float
    clock: str


class Needs(TypedDict):
    """The program behind a benchmark, and how to install it."""

    program: str
    install: str
    version: NotRequired[list[str]]
    at_least: NotRequired[str]
    optional: NotRequired[bool]


class LoadStopRule(TypedDict):
    """Who ends a load (runner or self), by which signal, and which exit statuses are then good."""

    by: str
    signal: str
    exit: list[int]


class CounterEvent(TypedDict):
    """An event of the processor: its number for the kernel, and its sign in the sum."""

    event: NotRequired[str]
    config: int
    sign: NotRequired[int]
    type: NotRequired[int]


class CounterRequest(TypedDict, total=False):
    """The `events` of a counter and the `source` they are from, or the `reason` for none."""

    events: list[CounterEvent]
    source: str
    reason: str


class Load(TypedDict):
    """One benchmark, run by an initiator against a target, with its command filled in.

    `name` is unique in the point; several loads may have one `role`. `memory_bytes` is what it
    allocates on its nodes. `files` are written into its folder before it starts.
    """

    name: str
    role: NotRequired[str]  # records of early versions have none
    benchmark: str
    category: str
    label: str | None
    kernel: str | None
    levels: NotRequired[dict[str, Level]]
    initiator: LoadInitiator
    target: LoadTarget
    placement: LoadPlacement
    needs: Needs
    memory_bytes: int
    writes: bool
    environment: dict[str, str]
    command: list[str]
    files: dict[str, str]
    start: str
    stop: LoadStopRule
    progress: ProgressSource | None
    metrics: dict[str, MetricSource]
    valid: list[OutputRule]
    notes: NotRequired[list[ToolRemarkSource]]
    counters: NotRequired[dict[str, CounterRequest]]


class PointStoppingRule(TypedDict):
    """When a point ends: `relative_precision` reached, but within these times."""

    relative_precision: float | None
    min_seconds: float
    max_seconds: float


class LoadReference(TypedDict):
    """A load of a point, by their names."""

    point: str
    load: str


class DerivedMetric(TypedDict):
    """A ratio of a load's `metric` to that of its reference `to`, or the `reason` for none."""

    name: str
    load: str
    metric: str
    to: NotRequired[LoadReference]
    reason: NotRequired[str]


class ExpandedPoint(TypedDict):
    """A point as an experiment and a host define it, without its place in the plan.

    `definition` is the fingerprint of everything that defines the measurement.
    """

    experiment: str
    point: str
    loads: list[Load]
    stopping: PointStoppingRule
    timeout_seconds: float
    factors: dict[str, Level]
    components: list[str]
    definition: str
    estimated_seconds: float
    relative: NotRequired[list[DerivedMetric]]


class Point(ExpandedPoint):
    """A planned point; `orders` is its place in the random order, one for each replicate."""

    host: str
    configuration: str
    orders: list[int]
