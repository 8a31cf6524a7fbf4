"""Types of the YAML documents: the config, experiments, benchmarks, counters, forms, hosts.

Each file is checked against its schema in ``workflow/schemas``, which explains the keys.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from chaosity.records.point_types import (
    BenchmarkPlacement,
    Level,
    LoadEnding,
    MetricValueSource,
    OutputCondition,
    PointStoppingRule,
    ProgressSource,
    RequiredProgram,
)

# ---- workflow/config/config.yaml ----


class SlurmConfig(TypedDict):
    """How measurements are divided into Slurm jobs, and how long these jobs may run and wait."""

    minutes_per_job: float
    time_factor: float
    slack_minutes: float
    wait_minutes: int
    partition: str | None
    account: str | None


class WorkingSetConfig(TypedDict):
    """Sizes of arrays, relative to caches and to the memory of a node."""

    times_last_level_cache: float
    at_least_bytes: int
    at_most_share_of_node: float
    sweep_at_most_bytes: int | None


class Config(TypedDict):
    """The checked config."""

    inventory: str
    hosts: list[str]
    configurations: list[str]
    expected_configuration: str | None
    transport: str
    slurm: SlurmConfig
    results: str
    experiments: list[str]
    sample: dict[str, int]  # experiment -> maximum number of its points that are measured
    # Experiment -> factor -> maximum number of its levels that are measured; None without a limit.
    # None stays None: merged over the default config, an empty mapping changes nothing.
    levels: dict[str, dict[str, int]] | None
    benchmarks: dict[str, str]  # category -> the benchmark that is used for it
    # Benchmark -> parameters that replace those of its file.
    parameters: dict[str, dict[str, Level]]
    threads: str  # `one_per_core` or `all`, for selectors of initiators that do not say it
    replicates: int
    seed: int
    stopping: dict[str, PointStoppingRule]  # category -> stopping rule
    working_set: WorkingSetConfig
    # Longest time of the measurements of a host, such as 30m, or auto, which follows from the plan;
    # None without a limit.
    budget: str | None
    # Half width of intervals at which a run ends, as a share; None without a target.
    precision: str | float | None
    # Earlier runs that steer a run with a budget, each a selection as for `compare`.
    known_from: list[str]
    # None for the complete plan. Else only the rounds that a run with a budget chose so far are
    # measured, and what failed since this time, in UTC, is not repeated.
    rounds: str | None


# ---- templates/benchmarks/*.yaml ----


class KernelNameAndArrayCount(TypedDict):
    """The tool's name of a kernel, and the number of arrays that the kernel uses."""

    name: str
    arrays: NotRequired[int]


class MetricTemplate(MetricValueSource, total=False):
    """A metric of a benchmark file; its upper bound may be a template."""

    at_most: str | float | None


class SimulatedProgram(TypedDict):
    """What a simulated machine knows of a program.

    A run moves its data `moves` times to or from memory. `time_in_memory` is the share of a run's
    time in which one core waits for memory of its own node.
    """

    moves: float
    time_in_memory: float


class SimulatedPrograms(TypedDict, total=False):
    """What simulated machines know of a benchmark's programs, by kernel.

    With the parameters `own_node_if`, each core accesses only the memory of its own node. If
    `shares_work`, the threads share the work equally, so all of them wait for the slowest.
    """

    own_node_if: dict[str, Any]
    shares_work: bool
    programs: dict[str, SimulatedProgram]


class BenchmarkDocument(TypedDict):
    """A benchmark file; its texts are templates, which are filled in for each load."""

    benchmark: str
    category: str
    other_categories: NotRequired[list[str]]
    summary: str
    label: NotRequired[str]
    needs: RequiredProgram
    parameters: NotRequired[dict[str, Level]]
    platform: NotRequired[str]
    device_vendor: NotRequired[str]
    kernels: NotRequired[dict[str, KernelNameAndArrayCount]]
    memory_bytes: NotRequired[str | int]
    simulation: NotRequired[SimulatedPrograms]
    writes: NotRequired[bool]
    files: NotRequired[dict[str, str]]
    environment: NotRequired[dict[str, str]]
    command: list[str]
    start: str
    stop: LoadEnding
    estimate_seconds: NotRequired[str]
    progress: NotRequired[ProgressSource]
    metrics: dict[str, MetricTemplate]
    counters: NotRequired[list[str]]
    valid: list[OutputCondition]
    notes: NotRequired[list[OutputCondition]]
    placement: BenchmarkPlacement


# ---- workflow/experiments/*.yaml ----


class InitiatorSelector(TypedDict, total=False):
    """Selects initiators; references such as `same_as` name an endpoint: ``load.initiator``."""

    each: str
    each_set_of: str
    in_each_set_of: str
    at_most_sets: int
    first_pu_of: str
    without: str
    at_least: int
    at_most: int
    growing: str
    first_half_of: str
    others_of: str
    first_pu: bool
    within: str | list[str]
    names: list[str]
    same_as: str
    local_to: str
    one_of_each_relation_to: str
    by: str
    threads: str


class OpenclSelector(TypedDict, total=False):
    """Selects OpenCL devices as targets."""

    each: str
    names: list[str]
    none: bool


class DriveSelector(OpenclSelector, total=False):
    """Selects drives and drive sets as targets."""

    first_of: str
    all_of: str
    all_of_each_set_of: str
    all: bool
    at_most_sets: int
    local: bool
    one_of_each_relation: bool
    writable: bool


class TargetSelector(TypedDict, total=False):
    """Selects targets: memory nodes, placements of pages, drives or devices."""

    each: str
    each_other: str
    all: str
    policies: list[str]
    weights_from: dict[str, str]
    nearest: bool
    none: bool
    local_to: str
    one_of_each_relation_to: str
    same_as: str
    names: list[str]
    opencl: OpenclSelector
    drives: DriveSelector


class CacheOrMemoryMultiple(TypedDict):
    """A working set as a multiple of a cache (l1, l2, l3) or of the node's usable memory."""

    times: float
    of: str


WorkingSet = int | CacheOrMemoryMultiple
WorkingSetRange = TypedDict(
    "WorkingSetRange", {"from": WorkingSet, "to": WorkingSet, "per_doubling": NotRequired[int]}
)


class LoadDesign(TypedDict):
    """A load of a design: its category, its selectors, and the levels that it varies."""

    category: str
    kernel: NotRequired[list[str]]
    together: NotRequired[bool | str]
    responder: NotRequired[InitiatorSelector | list[InitiatorSelector]]
    sizes: NotRequired[list[WorkingSet] | WorkingSetRange]
    vary: NotRequired[dict[str, list[Level]]]
    initiator: InitiatorSelector | list[InitiatorSelector]
    target: TargetSelector | list[TargetSelector]
    buffers: NotRequired[TargetSelector | list[TargetSelector]]


class LoadDesignsByRole(TypedDict):
    """Role -> load, for loads that run at the same time."""

    loads: dict[str, LoadDesign]


class FactorLevelRule(TypedDict, total=False):
    """The rule for a factor's level in a point: exactly one key, and `by` for a relation."""

    design: bool
    relation: list[str]
    by: str
    count: str
    level: str
    mode: str


class RelativeMetric(TypedDict):
    """A derived metric: `metric` of `load`, as a ratio to a reference or `per` unit of a rate."""

    name: str
    load: str
    metric: str
    to: NotRequired[dict[str, Level]]
    same: NotRequired[list[str]]
    per: NotRequired[str]


class DeclaredResource(TypedDict):
    """A resource that reports show; `where` selects equal loads, `levels` names a column."""

    name: str
    load: str
    metric: str
    where: NotRequired[dict[str, Any]]
    levels: NotRequired[str]


class ExperimentDocument(TypedDict):
    """An experiment file; `figures` are checked against their own schema."""

    experiment: str
    question: str
    source: str
    replicates: NotRequired[int]
    confidence: NotRequired[float]
    designs: dict[str, LoadDesignsByRole]
    factors: NotRequired[dict[str, FactorLevelRule]]
    relative: NotRequired[list[RelativeMetric]]
    resources: NotRequired[list[DeclaredResource]]
    figures: NotRequired[list[dict[str, Any]]]


# ---- templates/published/*.yaml ----


class PublishedForm(TypedDict):
    """The meaning of others' CSV columns; texts are templates over the columns of a row."""

    published: str
    summary: str
    matrix: NotRequired[str]  # metric, bandwidth or latency, if the file is a matrix of node x node
    experiment: str
    load: str
    metric: str
    value: str
    columns: dict[str, str]  # column of the tidy table -> its text
    factors: NotRequired[dict[str, str]]  # factor -> its level


# ---- templates/counters/*.yaml ----


class EventCode(TypedDict):
    """An event of a processor: its code and unit mask; with `sign` -1 it is subtracted."""

    event: str
    code: int
    umask: int
    sign: NotRequired[int]


class ProcessorModels(TypedDict):
    """Models of a processor family: numbers, or ranges as [first, last]."""

    vendor: str
    family: int
    models: list[int | list[int]]


class CounterEventsDocument(TypedDict):
    """A counters file; it says which events of a processor family each counter adds up."""

    counters: str
    summary: str
    source: str
    note: NotRequired[str]
    processors: list[ProcessorModels]
    events: dict[str, list[EventCode]]


# ---- inventories: a host's variables that begin with chaosity_ ----


class StorageFilesReplacingDrives(TypedDict):
    """Files that replace drives on a host that has no drives to measure."""

    directory: str
    bytes: int
    count: NotRequired[int]


class HostVariables(TypedDict, total=False):
    """The project's own variables of a host, see ``host.schema.yaml``."""

    chaosity_directory: str
    chaosity_topology: str
    chaosity_simulated: str
    chaosity_destructive_drives: list[str]
    chaosity_extra_drives: list[str]
    chaosity_slurm_node: str
    chaosity_equal_hosts: str
    chaosity_storage_file: StorageFilesReplacingDrives
