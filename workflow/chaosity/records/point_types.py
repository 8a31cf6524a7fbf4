"""Types of a planned point and its loads; the keys are those of the JSON."""

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

    `component` is its name, made from the slot. `destructive`: the inventory allows writing.
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


class ClinfoDeviceFacts(TypedDict):
    """The facts of an OpenCL device in clinfo's output.

    `twin` numbers the devices with equal names, from 0.
    """

    platform: str
    device: str
    twin: int
    type: str
    vendor: str | None
    driver: str | None
    compute_units: int | None
    memory_bytes: int | None
    pci: str | None
    uuid: str | None


class OpenclTargetDevice(ClinfoDeviceFacts):
    """An OpenCL device of a target: its name in this project, and its node."""

    name: str
    node: int | None


class NodeRelation(TypedDict):
    """The relation of the initiator to a node or target; `distance` is the entry of the SLIT."""

    relation: str
    distance: float | None


class LoadTarget(NodeRelation):
    """The target of a load: memory nodes, drives or a device.

    Only placements have `shares` (of the pages, by node; None if the kernel decides) and `settles`
    (whether the pages move while the load runs). `by_node` exists for metrics by node.
    """

    name: str
    kind: str
    nodes: list[int]
    drives: list[DriveFacts]
    device: NotRequired[OpenclTargetDevice]
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]
    by_node: NotRequired[dict[str, NodeRelation]]


class BenchmarkPlacement(TypedDict):
    """Where a benchmark's pages must be, and whether its threads must be pinned.

    `memory` says whose nodes have the pages: target or initiator. If `pinned`, each unit has its
    own thread. `mapping` is the key in the ready line with the address of the memory.
    """

    memory: str
    pinned: NotRequired[bool]
    mapping: NotRequired[str]


class RequiredPlacement(BenchmarkPlacement):
    """The required places of a load's threads and pages."""

    memory_nodes: list[int]
    cpus: str
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]


# Name of an output: ``stdout``, ``stderr``, or a file or pattern; ``stdout`` by default.
OutputName = TypedDict("OutputName", {"in": str}, total=False)


class OutputValueSource(OutputName, total=False):
    """The place of a value in a tool's output, see `runner.parse_tool_output`."""

    json: str
    event: str
    key: str
    regex: str
    combine: str
    scale: float
    amount: str | float


class MetricValueSource(OutputValueSource, total=False):
    """The source of a metric's value, and whether the value may be missing or 0.

    The value comes from the samples (`progress`, `quantile`, `by_node`), from a processor's
    `counter`, or from the output. `by_node` has the keys `amount` and `time`, which name the keys
    of a sample with each node's amount and time.
    """

    progress: bool
    quantile: float
    by_node: dict[str, str]
    counter: str
    may_be_zero: bool
    optional: bool


class MetricSourceWithUpperBound(MetricValueSource, total=False):
    """The source of a metric's value, and the upper bound that the hardware sets."""

    at_most: float | None


class OutputCondition(OutputValueSource, total=False):
    """A condition on a tool's output: `equals`, `one_of`, `at_least` or `at_most`.

    Without these keys, it is the source of a remark that the tool writes about its run.
    """

    name: Required[str]
    equals: Level | float | bool
    one_of: list[Level | float]
    at_least: str | float
    at_most: str | float


class ProgressSource(OutputName, total=False):
    """A tool's report of its progress: events in JSON lines, or rows of a CSV file.

    `begin`, `end` and `amount` are keys of an event; `csv` has the positions of `end` (a time) and
    `rate` in a row. The scales convert the tool's units into seconds and SI units per second.
    With `pauses`, the load does not measure between its samples.
    """

    event: str
    begin: str
    end: str
    amount: str
    csv: dict[str, int]
    interval_seconds: float
    time_scale: float
    rate_scale: float
    clock: str
    pauses: bool


class RequiredProgram(TypedDict):
    """The program that a benchmark runs, and how to install it."""

    program: str
    install: str
    version: NotRequired[list[str]]
    at_least: NotRequired[str]
    optional: NotRequired[bool]


class LoadEnding(TypedDict):
    """How a load ends: by itself or by a signal of the runner, and its allowed exit statuses."""

    by: str
    signal: str
    exit: list[int]


class CounterEvent(TypedDict):
    """An event of the processor: its number for the Linux kernel, and its sign in the sum."""

    event: NotRequired[str]
    config: int
    sign: NotRequired[int]
    type: NotRequired[int]


class CounterRequest(TypedDict, total=False):
    """The `events` of a counter and their `source`, or the `reason` why it cannot count."""

    events: list[CounterEvent]
    source: str
    reason: str


class Load(TypedDict):
    """One benchmark, run by an initiator against a target, with its command filled in.

    `name` is unique in the point; several loads may have the same `role`. The load allocates
    `memory_bytes` on its nodes. `files` are written into its folder before it starts.
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
    placement: RequiredPlacement
    needs: RequiredProgram
    memory_bytes: int
    writes: bool
    environment: dict[str, str]
    command: list[str]
    files: dict[str, str]
    start: str
    stop: LoadEnding
    progress: ProgressSource | None
    metrics: dict[str, MetricSourceWithUpperBound]
    valid: list[OutputCondition]
    notes: NotRequired[list[OutputCondition]]
    counters: NotRequired[dict[str, CounterRequest]]


class PointStoppingRule(TypedDict):
    """When a point ends: when its rates have this precision, between these two times."""

    relative_precision: float | None
    min_seconds: float
    max_seconds: float


class PointAndLoadNames(TypedDict):
    """The names of a point and of one of its loads."""

    point: str
    load: str


class MetricRatio(TypedDict):
    """A ratio of a load's `metric` to that of its reference `to`, or the `reason` for no ratio.

    With `per`, the counter `metric` is divided by what the load did at this rate meanwhile.
    """

    name: str
    load: str
    metric: str
    to: NotRequired[PointAndLoadNames]
    reason: NotRequired[str]
    per: NotRequired[str]


class ExpandedPoint(TypedDict):
    """A point as defined by experiment and host, without its position in the plan.

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
    relative: NotRequired[list[MetricRatio]]


class Point(ExpandedPoint):
    """A planned point; `orders` has, for each replicate, its position in the random order."""

    host: str
    configuration: str
    orders: list[int]
