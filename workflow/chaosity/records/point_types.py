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

    `component` is the drive's name, made from the slot. If `destructive`, the inventory allows
    writing to the drive.
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


class OpenclDeviceFacts(TypedDict):
    """The facts of an OpenCL device, as its driver reports them.

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


class OpenclTargetDevice(OpenclDeviceFacts):
    """An OpenCL device of a target: its name in this project, and its node."""

    name: str
    node: int | None


class NodeRelation(TypedDict):
    """The relation of the initiator to a node or target; `distance` is the entry of the SLIT."""

    relation: str
    distance: float | None


class LoadTarget(NodeRelation):
    """The target of a load: memory nodes, drives or a device.

    `shares` are the pages' shares by node; None if the kernel decides. `settles` says whether pages
    move after the load began, until the placement has settled. Only targets of a placement policy
    have `shares` and `settles`. Only targets of metrics by node have `by_node`.
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
    own thread. `mapping` is the key in the ready line with the address of the memory. If
    `launcher`, the first process only starts the program, and its own memory does not count.
    """

    memory: str
    pinned: NotRequired[bool]
    launcher: NotRequired[bool]
    mapping: NotRequired[str]


class RequiredPlacement(BenchmarkPlacement):
    """The required units of a load's threads, and the required nodes of its pages."""

    memory_nodes: list[int]
    cpus: str
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]


# Name of an output: ``stdout``, ``stderr``, or a file or pattern; ``stdout`` by default.
OutputName = TypedDict("OutputName", {"in": str}, total=False)


class OutputValueSource(OutputName, total=False):
    """The place of a value in a tool's output; `runner.tool_output` defines the keys."""

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
    `counter`, or from the output. In `by_node`, `amount` and `time` name the keys of a sample that
    have each node's amount and time. Only simulated hosts use `simulated_bytes_per_unit`: the
    memory traffic of one unit of the value. `formerly` is the metric's name in older records, None
    if they lack it; they count nevertheless.
    """

    progress: bool
    quantile: float
    by_node: dict[str, str]
    counter: str
    may_be_zero: bool
    optional: bool
    formerly: str | None
    simulated_bytes_per_unit: float


class MetricSourceWithUpperBound(MetricValueSource, total=False):
    """The source of a metric's value, and the upper bound that the hardware sets."""

    at_most: float | None


class OutputCondition(OutputValueSource, total=False):
    """A condition on a tool's output: `equals`, `one_of`, `at_least` or `at_most`.

    A condition without these keys is the source of a remark that the tool writes about its run.
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
    With `pauses`, the load runs on between its samples, but this time is not measured.
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


class CounterEventsOrReason(TypedDict, total=False):
    """The `events` of a counter and their `source`, or the `reason` why the counter has none."""

    events: list[CounterEvent]
    source: str
    reason: str


class Load(TypedDict):
    """One benchmark, run by an initiator against a target, with its command filled in.

    `name` is unique in the point; several loads may have the same `role`. The load allocates
    `memory_bytes` on its nodes. `files` are written into its folder before it starts.
    """

    name: str
    role: NotRequired[str]  # records of early versions have no role
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
    counters: NotRequired[dict[str, CounterEventsOrReason]]


class PointStoppingRule(TypedDict):
    """The precision of the rates at which a point ends, and its shortest and longest time."""

    relative_precision: float | None
    min_seconds: float
    max_seconds: float


class PointAndLoadNames(TypedDict):
    """The names of a point and of one of its loads."""

    point: str
    load: str


class MetricRatio(TypedDict):
    """A ratio of a load's `metric` to that of its reference `to`, or the `reason` for no ratio.

    With `per`, the count `metric` is divided by the work that the load did at the rate `per`. With
    `of_means`, the ratio is one of mean times over all replicates.
    """

    name: str
    load: str
    metric: str
    to: NotRequired[PointAndLoadNames]
    reason: NotRequired[str]
    of_means: NotRequired[bool]
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
    """A planned point; `orders` has the position of each replicate in the random order."""

    host: str
    configuration: str
    orders: list[int]
