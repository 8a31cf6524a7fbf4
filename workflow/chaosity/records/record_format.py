"""Types of the JSON documents of a point and of its record, and the verdict of checks."""

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

    `component` is the name of the drive, made from its PCI slot. If `destructive`, the inventory
    allows writing to the drive.
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
    """The relation of the initiator to a node or target, and the `distance` of both in the SLIT."""

    relation: str
    distance: float | None


class LoadTarget(NodeRelation):
    """The target of a load: memory nodes, drives or a device.

    `shares` are the shares of the pages on each node; None if the kernel decides. `settles` says
    whether pages still move to the best nodes after the load began. Only targets of a placement
    policy have `shares` and `settles`. `by_node`, node -> the initiator's relation to this node,
    exists only for loads that have a metric for each node.
    """

    name: str
    kind: str
    nodes: list[int]
    drives: list[DriveFacts]
    device: NotRequired[OpenclTargetDevice]
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]
    by_node: NotRequired[dict[str, NodeRelation]]


class RequiredPlacement(TypedDict):
    """The required units of a load's threads, and the required nodes of its pages.

    `memory` says whether the pages must be on the nodes of the target or of the initiator. If
    `pinned` is true, each unit must have a thread that may run only on this unit. `mapping` is a
    key of the ready line; its value is the address of the measured memory. If `launcher` is true,
    the first process only starts the program, and the memory of the first process does not count.
    """

    memory: str
    pinned: NotRequired[bool]
    launcher: NotRequired[bool]
    mapping: NotRequired[str]
    memory_nodes: list[int]
    cpus: str
    shares: NotRequired[dict[str, float] | None]
    settles: NotRequired[bool]


# Name of an output: ``stdout`` (the default), ``stderr``, a file, or a pattern of file names.
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


class MetricSourceWithUpperBound(OutputValueSource, total=False):
    """The source of a metric's value, whether the value may be missing or 0, and its upper bound.

    The value comes from the samples (`progress`, `quantile`, `by_node`), from a processor's
    `counter`, or from the output. The values of `amount` and `time` in `by_node` are the keys of a
    sample that contain the amount and the time of each node. `simulated_bytes_per_unit` is the
    memory traffic in bytes for a value of 1; only simulated hosts use this key. `formerly` is the
    metric's name in older records; if `formerly` is None, older records are valid without this
    metric. `at_most` is the upper bound that the hardware sets.
    """

    progress: bool
    quantile: float
    by_node: dict[str, str]
    counter: str
    may_be_zero: bool
    optional: bool
    formerly: str | None
    simulated_bytes_per_unit: float
    at_most: float | None


class OutputCondition(OutputValueSource, total=False):
    """A condition on a tool's output: `equals`, `one_of`, `at_least` or `at_most`.

    A condition without any of these four keys is the source of a remark of the tool about its run.
    """

    name: Required[str]
    equals: Level | float | bool
    one_of: list[Level | float]
    at_least: str | float
    at_most: str | float


class ProgressSource(OutputName, total=False):
    """A tool's report of its progress: events in JSON lines, or rows of a CSV file.

    The values of `begin`, `end` and `amount` are keys of an event; `csv` has the positions of `end`
    (a time) and `rate` in a row. `time_scale` and `rate_scale` convert the tool's units into
    seconds and SI units per second. If `pauses` is true, the load also runs between two samples, in
    time that no sample covers.
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
    """A processor event: its number for the Linux kernel, and its sign in a counter's sum."""

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
    """One benchmark, run by an initiator against a target, with the complete command line.

    `name` is unique in the point; several loads may have the same `role`. The load allocates
    `memory_bytes` on its nodes. `files` are written into the folder of the load before the load
    starts.
    """

    name: str
    role: NotRequired[str]  # Records of early versions lack `role`.
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
    """The precision of the rates that ends a point, and the point's shortest and longest time."""

    relative_precision: float | None
    min_seconds: float
    max_seconds: float


class PointAndLoadNames(TypedDict):
    """The names of a point and of one of its loads."""

    point: str
    load: str


class MetricRatio(TypedDict):
    """The ratio of a metric of a load to a reference, or the `reason` why there is no ratio.

    The reference is the same metric of the load `to`. If `per` exists, the count `metric` is
    divided by the work that the load did, and `per` names the metric with the rate of this work. If
    `of_means` is true, both values of the ratio are means over all replicates.
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


VALID = "valid"
FAILED = "failed"
# Names of two checks. `ENDED_WELL` follows the name of a load that ended as its benchmark requires;
# the other check says that the output contains the values of the metrics.
ENDED_WELL, VALUES = ": ended well", "values"
# The `origin` of a record whose machine does not exist; records of real machines have no origin.
SIMULATED = "simulated"
# Every output with simulated values has this sentence.
NOTHING_MEASURED = "SIMULATED: this machine does not exist, and nothing was measured"


class ThreadPlacement(TypedDict):
    """The processing units that a thread may use (a Linux list), and its last processing unit."""

    tid: int
    cpus_allowed: str | None
    last_cpu: int


class ObservedPlacement(TypedDict):
    """The units of a load's threads and the nodes of its pages, as the kernel reported them.

    If pages move while the load runs, `memory_bytes_by_node_at_first` has the first observation.
    """

    threads: list[ThreadPlacement]
    memory_bytes_by_node: dict[str, int] | None
    memory_bytes_by_node_at_first: NotRequired[dict[str, int] | None]


class ProgramFacts(TypedDict):
    """Name, path and reported version of the program that ran; the name of its emulator, if any."""

    name: str
    path: str | None
    version: str | None
    emulator: NotRequired[str]


class EventCount(CounterEvent):
    """The count of an event on a processing unit, and the time in which the kernel counted."""

    cpu: int
    count: NotRequired[int]
    time_enabled_ns: NotRequired[int]
    time_running_ns: NotRequired[int]


class CounterResult(TypedDict, total=False):
    """The raw `counts` of a counter, or the `reason` why there are none."""

    counts: list[EventCount]
    reason: str


class LoadClock(TypedDict):
    """The mean clock of a load's units in hertz with its `source`, or None with the `reason`."""

    hertz: float | None
    source: NotRequired[str]
    reason: NotRequired[str]


class LoadRecord(Load):
    """A load with its results; times are in seconds on the host's monotonic clock.

    `signalled` is the signal that ended the load, such as TERM. `outputs` has raw output by name.
    """

    program: ProgramFacts
    began_monotonic_seconds: float
    ended_monotonic_seconds: float
    processor_seconds: float
    exit_status: int | None
    signalled: str | None
    placement_seen: ObservedPlacement | None
    counted: NotRequired[dict[str, CounterResult]]
    clock: NotRequired[LoadClock]
    outputs: dict[str, str]


class HostState(TypedDict):
    """The state of a host at one time, see `runner.observed_state`."""

    taken_monotonic_seconds: float
    realtime_minus_monotonic_seconds: float
    processor_seconds: dict[str, float]
    # The processing units of the loads with their SMT siblings, and the processor time of these
    # units. Records before 2026-11-26 and simulated records lack these two keys.
    load_units: NotRequired[str]
    load_units_processor_seconds: NotRequired[dict[str, float]]
    facts: dict[str, str | None]
    kernel: str


class Check(TypedDict):
    """A line of a verdict, see `make_check`."""

    name: str
    passed: bool | None
    detail: str
    decisive: bool


class RecordVerdict(TypedDict):
    """The status `VALID` or `FAILED`, the reason of a failure, and every check."""

    status: str
    reason: str | None
    checks: list[Check]


class UnfinishedRecord(TypedDict):
    """A record while its point is measured; after a failure, parts of the record can be missing."""

    schema_version: int
    origin: NotRequired[str]
    point: Point
    replicate: int
    order: int
    stopping: PointStoppingRule
    began_at: str
    measured_on: str
    loads: list[LoadRecord]
    environment_before: NotRequired[HostState]
    environment_after: NotRequired[HostState]
    runner_seconds: NotRequired[float]


class Record(UnfinishedRecord):
    """The record of one measurement of a point; each replicate of each point has a file."""

    finished_at: str
    verdict: RecordVerdict


# Experiment and name of a point, which identify a point within a host's configuration.
PointKey = tuple[str, str]


def point_key(point: Point) -> PointKey:
    """Return the experiment and the name of a point."""
    return point["experiment"], point["point"]


def make_check(name: str, passed: bool | None, detail: str, *, decisive: bool = True) -> Check:
    """Return a check, which is a line of a verdict; `detail` is what was observed, with numbers.

    `passed` is None if the check was impossible; the detail gives the reason. A check that is not
    `decisive` is only a note, which cannot make the record invalid.
    """
    return {"name": name, "passed": passed, "detail": detail, "decisive": decisive}


def make_verdict(checks: list[Check]) -> RecordVerdict:
    """Return the verdict of all checks: failed if `passed` of a decisive check is False.

    The reason names the checks that failed. If a load did not end well, other checks of this load
    fail for the same reason, so the reason of the verdict gives only the number of these other
    checks.
    """
    broken = [c for c in checks if c["decisive"] and c["passed"] is False]
    ends = [c for c in broken if c["name"].endswith(ENDED_WELL)]
    dead = tuple(f"{c['name'].removesuffix(ENDED_WELL)}:" for c in ends)
    follow = [
        c
        for c in broken
        if dead and c not in ends and (c["name"].startswith(dead) or c["name"] == VALUES)
    ]
    causes = [c for c in broken if c not in follow]
    texts = [f"{c['name'].removesuffix(ENDED_WELL)}: {c['detail']}" for c in causes]
    if follow:
        texts.append(f"{len(follow)} other check{'s' if len(follow) > 1 else ''} failed too")
    reason = "; ".join(texts) or None
    return {"status": FAILED if broken else VALID, "reason": reason, "checks": checks}
