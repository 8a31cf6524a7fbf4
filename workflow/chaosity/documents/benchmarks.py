"""Benchmarks: the program of a category, its command lines, and how its output is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import (
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
    """Name or path of the program."""
    version: NotRequired[list[str]]
    """Command that prints the version."""
    at_least: NotRequired[Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]]
    """Lowest version that counts, such as 3.16."""
    install: str
    """What to do if it is missing."""
    optional: NotRequired[bool]
    """Hosts without it are measured, and only the points of this benchmark fail there."""


class KernelNameAndArrayCount(TypedDict):
    """The tool's name of a kernel, and the number of arrays that the kernel uses."""

    name: str
    """The tool's name of the kernel."""
    arrays: NotRequired[Count]
    """Number of arrays that it uses."""


class SimulatedProgram(TypedDict):
    """What a simulated machine knows of a program."""

    moves: Positive
    """How often a run moves its data to or from memory."""
    time_in_memory: Annotated[float, Gt(0), Le(1)]
    """Share of a run's time in which one core waits for memory of its own node."""


class SimulatedPrograms(TypedDict, total=False):
    """What simulated machines know of a benchmark's programs."""

    own_node_if: dict[str, NumberTemplate]
    """Values of parameters with which each core accesses only the memory of its own node.

    The target must have this node. Without values always.
    """
    own_node_but: Annotated[float, Ge(0), Lt(1)]
    """Share of the accesses of such cores that use data of all cores all the same.

    Only counters of misses see them. Default: 0.
    """
    shares_work: bool
    """Whether the threads share the work equally and wait for the slowest."""
    accesses_as: str
    """The kernel that accesses memory as the program does, for programs without kernels.

    Default: three reads for each write.
    """
    programs: dict[str, SimulatedProgram]
    """By kernel."""


class Stop(TypedDict):
    """How a load ends: by itself or by a signal of the runner, and its allowed exit statuses."""

    by: Literal["runner", "self"]
    """runner: the runner sends the signal; self: the load ends by itself."""
    signal: Literal["TERM", "INT"]
    """Signal that ends the load."""
    exit: list[int]
    """Exit statuses of a valid run."""


class ProgressColumns(TypedDict):
    """Positions of a time and a rate in a row of CSV."""

    end: int
    """Position of the time of a row, from 0."""
    rate: int
    """Position of the rate, from 0."""


_OUTPUT = "stdout (default), stderr, or a file or pattern"
OutputName = TypedDict(
    "OutputName", {"in": Annotated[str, Field(description=_OUTPUT)]}, total=False
)


class Progress(OutputName, total=False):
    """A tool's report of its progress: events in JSON lines, or rows of a CSV file."""

    event: str
    """Name of the JSON lines, in their key `event`."""
    begin: str
    """Key of the begin of a sample."""
    end: str
    """Key of the end of a sample."""
    amount: str
    """Key of the amount of work in a sample, such as bytes."""
    csv: ProgressColumns
    """Rows of CSV in place of JSON lines."""
    interval_seconds: Positive
    """Time from row to row."""
    time_scale: float
    """Converts the tool's unit into seconds."""
    rate_scale: float
    """Converts the tool's rate into the unit of the metric per second."""
    clock: Literal["monotonic", "realtime"]
    """Clock of the times; default: monotonic."""
    pauses: Literal[True]
    """The tool does not measure between its samples.

    Then rates are those of the time in which all loads with pauses measured. The record notes which
    share of the common window this time was.
    """


class OutputValue(OutputName, total=False):
    """Where a value is in a tool's output, see `runner.tool_output`."""

    json: str
    """Path in a JSON document, such as jobs[*].read.bw_bytes.

    A key with a dot is quoted: clat_ns.percentile["50.000000"].
    """
    event: str
    """Name of a JSON line, in its key `event`."""
    key: str
    """Key in this line."""
    regex: str
    """Regular expression with one group, the value, such as rate ([0-9.]+)."""


class ByNode(TypedDict):
    """Keys of a sample with the amount for each node, and the time that threads spent on it."""

    amount: str
    """Key of the list of amounts."""
    time: str
    """Key of the list of times."""


class Metric(OutputValue, total=False):
    """A metric: where its value is, in which unit, and which bound the hardware sets."""

    progress: Literal[True]
    """The rate over the samples of the time in which all loads ran."""
    by_node: ByNode
    """A row for each node of the target, for a load that reads all of them in turn.

    In the unit of begin and end.
    """
    quantile: Annotated[float, Field(ge=0, le=1)]
    """Quantile of the samples' counts in that time."""
    combine: Literal["single", "sum", "mean", "minimum", "maximum"]
    """How several values in the output become one; default: single."""
    scale: float
    """Factor that converts the tool's unit into the metric's."""
    amount: NumberTemplate
    """The output has the time for this amount; the value is the amount per second."""
    at_most: NumberTemplate | None
    """Upper bound; a value above it fails the point."""
    simulated_bytes_per_unit: Positive
    """Memory traffic of one unit of the value, from which a simulated host knows the speed."""
    may_be_zero: Literal[True]
    """Zero is a valid value, for example of a share."""
    optional: Literal[True]
    """A point without it is valid, and its row has the reason."""
    formerly: str | None
    """Name of the metric in older records, null if they lack it.

    It changes no point's definition, so older records count.
    """
    counter: str
    """A name in `counters`: its count from the start to the stop of the load."""


class Remark(OutputName, total=False):
    """Where a tool writes remarks about a valid run; null or a missing key means no remark.

    They are copied into the record, and the report says how often each occurred.
    """

    name: Required[str]
    """Name of the check."""
    json: str
    """Path in a JSON document."""
    event: str
    """Name of a JSON line."""
    key: str
    """Key in this line."""


class Condition(Remark, total=False):
    """What a tool's output must say of a valid run."""

    regex: str
    """Regular expression that the output must contain; with a group, its text is the value."""
    equals: str | float | bool
    """The value must be this."""
    one_of: list[Any]
    """The value must be one of these."""
    at_least: NumberTemplate
    """The value must be at least this."""
    at_most: NumberTemplate
    """The value must be at most this."""


class Placement(TypedDict):
    """Where a benchmark's pages must be, and whether its threads must be pinned."""

    memory: Literal["target", "initiator"]
    """Whose nodes its pages must be on.

    A drive set has no memory, so for drives `target` means the initiator's own nodes; with the
    parameter `buffers: other`, the node that is farthest from the initiator. If the experiment
    selects `buffers`, the pages must be there, whatever this key says.
    """
    pinned: NotRequired[bool]
    """The program pins one thread to each unit."""
    launcher: NotRequired[Literal[True]]
    """The command starts with chaosity-place, whose own memory does not count."""
    mapping: NotRequired[str]
    """Key of its "ready" line with the address of its memory, or with a list of addresses.

    Then only the pages of this memory are checked, so even a working set of some KiB can be.
    """


class BenchmarkDocument(TypedDict):
    """A file of templates/benchmarks; its texts are templates, filled in for each load."""

    benchmark: Name
    """Name of the file, without .yaml."""
    category: Name
    """What it measures; an experiment asks for a category, the config selects the benchmark."""
    other_categories: NotRequired[list[Name]]
    """Further categories for which the config may select this benchmark."""
    summary: str
    """What it runs, in a clause."""
    label: NotRequired[str]
    """Shown in every figure, such as variant of STREAM."""
    needs: Program
    """The program, and how it is found."""
    parameters: NotRequired[dict[str, Any]]
    """Values for the templates; the config can replace them."""
    platform: NotRequired[Literal["linux", "darwin"]]
    """Operating system of the commands; default: linux. Hosts with another refuse it."""
    device_vendor: NotRequired[str]
    """OpenCL's name of the vendor whose devices it measures."""
    kernels: NotRequired[dict[str, KernelNameAndArrayCount]]
    """Name in experiments -> the tool's name of the kernel, and how many arrays it uses."""
    memory_bytes: NotRequired[str | int]
    """Memory that the load allocates on its nodes."""
    simulation: NotRequired[SimulatedPrograms]
    """What simulated hosts know of its programs."""
    writes: NotRequired[bool]
    """Whether it writes to the drives of its target."""
    files: NotRequired[dict[str, str]]
    """File name -> template."""
    environment: NotRequired[dict[str, str]]
    """Environment variable -> template; a variable that becomes empty is left out."""
    command: Annotated[list[str], MinLen(1)]
    """Words of the command; a word that becomes empty is left out."""
    start: Literal["barrier", "spawn"]
    """barrier: the load prepares, then waits for the start line; spawn: it starts at once."""
    stop: Stop
    """How it ends."""
    estimate_seconds: NotRequired[str]
    """Seconds that it takes; default: from the stopping rule."""
    progress: NotRequired[Progress]
    """How it reports its progress; without it, only the whole run has a rate."""
    metrics: Annotated[dict[str, Metric], MinLen(1)]
    """Name, which ends in the unit -> where its value is."""
    counters: NotRequired[Annotated[list[str], MinLen(1), DIFFERENT]]
    """Counters of the processor, by their names in templates/counters.

    Each is optional, since most processors do not have all.
    """
    valid: list[Annotated[Condition, with_one_key_of("json", "event", "regex"), *EVENT_HAS_KEY]]
    """What the output must say of a valid run."""
    notes: NotRequired[
        Annotated[
            list[Annotated[Remark, with_one_key_of("json", "event"), *EVENT_HAS_KEY]], MinLen(1)
        ]
    ]
    """Remarks of the tool that do not make a run invalid."""
    placement: Placement
    """Where its pages and threads must be."""
