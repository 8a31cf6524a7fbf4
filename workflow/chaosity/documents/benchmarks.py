"""Benchmarks: the program of a category, its command lines, and how its output is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from annotated_types import Gt, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.field_types import (
    DIFFERENT,
    Count,
    Name,
    Positive,
    key_needs,
    with_one_key_of,
)

# A number, or a template that gives one.
NumberTemplate = str | float
# An event is a line of JSON, and a value in it needs a key.
EVENT_HAS_KEY = key_needs("event", "key"), key_needs("key", "event")


class Program(TypedDict):
    """The program that a benchmark runs."""

    program: str
    version: NotRequired[list[str]]
    """Command that prints the version."""
    at_least: NotRequired[Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]]
    install: str
    """What to do if it is missing."""
    optional: NotRequired[bool]
    """A host without it is measured without its points."""


class KernelNameAndArrayCount(TypedDict):
    """The tool's name of a kernel, and the number of arrays that the kernel uses."""

    name: str
    arrays: NotRequired[Count]


class SimulatedProgram(TypedDict):
    """What a simulated machine knows of a program."""

    moves: Positive
    """How often a run moves its data to or from memory."""
    time_in_memory: Annotated[float, Gt(0), Le(1)]
    """Share of a run's time in which one core waits for memory of its own node."""


class SimulatedPrograms(TypedDict, total=False):
    """What simulated machines know of a benchmark's programs, see docs/simulation.md."""

    own_node_if: dict[str, NumberTemplate]
    """Values of parameters with which each core accesses only the memory of its own node.

    The target must have this node. Without values always.
    """
    shares_work: bool
    """Whether the threads share the work equally and wait for the slowest."""
    programs: dict[str, SimulatedProgram]
    """By kernel."""


class Stop(TypedDict):
    """How a load ends: by itself or by a signal of the runner, and its allowed exit statuses."""

    by: Literal["runner", "self"]
    signal: Literal["TERM", "INT"]
    exit: list[int]


class ProgressColumns(TypedDict):
    """Positions of a time and a rate in a row of CSV."""

    end: int
    rate: int


# An output: stdout (default), stderr, or a file or pattern.
OutputName = TypedDict("OutputName", {"in": str}, total=False)


class Progress(OutputName, total=False):
    """A tool's report of its progress: events in JSON lines, or rows of a CSV file."""

    event: str
    begin: str
    """Key of the event, as `end` and `amount`."""
    end: str
    amount: str
    csv: ProgressColumns
    interval_seconds: Positive
    time_scale: float
    """Converts the tool's unit into seconds."""
    rate_scale: float
    clock: Literal["monotonic", "realtime"]
    pauses: Literal[True]
    """The tool does not measure between its samples.

    Then rates are those of the time in which all loads with pauses measured.
    """


class OutputValue(OutputName, total=False):
    """Where a value is in a tool's output, see `runner.tool_output`."""

    json: str
    event: str
    key: str
    regex: str


class ByNode(TypedDict):
    """Keys of a sample with the amount for each node, and the time that threads spent on it."""

    amount: str
    time: str


class Metric(OutputValue, total=False):
    """A metric: where its value is, in which unit, and which bound the hardware sets."""

    progress: Literal[True]
    by_node: ByNode
    """A value for each node of the target, from the samples; in the unit of begin and end."""
    quantile: Annotated[float, Field(ge=0, le=1)]
    """Quantile of the samples' counts."""
    combine: Literal["single", "sum", "mean", "minimum", "maximum"]
    scale: float
    amount: NumberTemplate
    """The output has the time for this amount; the value is the amount per second."""
    at_most: NumberTemplate | None
    simulated_bytes_per_unit: Positive
    """Memory traffic of one unit of the value, from which a simulated host knows the speed."""
    may_be_zero: Literal[True]
    """Zero is a valid value."""
    optional: Literal[True]
    """A point without it is valid, and its row has the reason."""
    formerly: str | None
    """Name of the metric in older records, null if they lack it.

    It changes no point's definition, so older records count.
    """
    counter: str
    """A name in `counters`: its count while the load ran."""


class Remark(OutputName, total=False):
    """Where a tool writes remarks about a valid run; null or a missing key means no remark."""

    name: Required[str]
    json: str
    event: str
    key: str


class Condition(Remark, total=False):
    """What a tool's output must say of a valid run."""

    regex: str
    equals: str | float | bool
    one_of: list[Any]
    at_least: NumberTemplate
    at_most: NumberTemplate


class Placement(TypedDict):
    """Where a benchmark's pages must be, and whether its threads must be pinned."""

    memory: Literal["target", "initiator"]
    """Whose nodes its pages must be on; for drives see docs/adding-a-benchmark.md."""
    pinned: NotRequired[bool]
    """The program pins one thread to each unit."""
    launcher: NotRequired[Literal[True]]
    """The command starts with chaosity-place, whose own memory does not count."""
    mapping: NotRequired[str]
    """Key of its "ready" line with the address of its memory, or with a list of addresses.

    Then only the pages of this memory are checked.
    """


class BenchmarkDocument(TypedDict):
    """A file of templates/benchmarks; its texts are templates, filled in for each load."""

    benchmark: Name
    category: Name
    other_categories: NotRequired[list[Name]]
    """Further categories for which the config may select this benchmark."""
    summary: str
    label: NotRequired[str]
    """Shown in every figure, such as variant of STREAM."""
    needs: Program
    parameters: NotRequired[dict[str, Any]]
    """Values for the templates; the config can replace them."""
    platform: NotRequired[Literal["linux", "darwin"]]
    """Operating system of the commands; default: linux."""
    device_vendor: NotRequired[str]
    """OpenCL's name of the vendor whose devices it measures."""
    kernels: NotRequired[dict[str, KernelNameAndArrayCount]]
    """Name in experiments -> the tool's name of the kernel, and how many arrays it uses."""
    memory_bytes: NotRequired[str | int]
    """Memory that the load allocates on its nodes."""
    simulation: NotRequired[SimulatedPrograms]
    writes: NotRequired[bool]
    """Whether it writes to the drives of its target."""
    files: NotRequired[dict[str, str]]
    """File name -> template."""
    environment: NotRequired[dict[str, str]]
    command: Annotated[list[str], MinLen(1)]
    start: Literal["barrier", "spawn"]
    stop: Stop
    estimate_seconds: NotRequired[str]
    """Seconds that it takes; default: from the stopping rule."""
    progress: NotRequired[Progress]
    metrics: Annotated[dict[str, Metric], MinLen(1)]
    counters: NotRequired[Annotated[list[str], MinLen(1), DIFFERENT]]
    """Counters of the processor, by their names in templates/counters.

    Each is optional, since most processors do not have all.
    """
    valid: list[Annotated[Condition, with_one_key_of("json", "event", "regex"), *EVENT_HAS_KEY]]
    notes: NotRequired[
        Annotated[
            list[Annotated[Remark, with_one_key_of("json", "event"), *EVENT_HAS_KEY]], MinLen(1)
        ]
    ]
    placement: Placement
