"""The types of a benchmark file: its program, command lines, and how the output is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import (
    NO_DUPLICATES,
    Count,
    Name,
    Positive,
    key_requires_other_key,
    needs_exactly_one_key_of,
)

# A number, or a template that becomes a number when it is filled in.
NumberTemplate = str | float
# Checks that `event`, which selects a line of JSON, and `key`, which selects a value in this line,
# are used together.
CHECKS_OF_EVENT_AND_KEY = (
    key_requires_other_key("event", "key"),
    key_requires_other_key("key", "event"),
)


class Program(TypedDict):
    """The program that a benchmark runs."""

    program: str
    """Name or path of the program."""
    version: NotRequired[list[str]]
    """Command that prints the version."""
    at_least: NotRequired[Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]]
    """Lowest version of the program that is accepted, such as 3.16."""
    install: str
    """What a user can do if the program is missing."""
    optional: NotRequired[bool]
    """Hosts without the program are measured too; only points of this benchmark fail there."""


class KernelNameAndArrayCount(TypedDict):
    """The tool's name of a kernel, and the number of arrays that the kernel uses."""

    name: str
    """The tool's name of the kernel."""
    arrays: NotRequired[Count]
    """Number of arrays that the kernel uses."""


class SimulatedProgram(TypedDict):
    """The behaviour of a program on simulated machines."""

    moves: Positive
    """How often a run of the program moves all its data to or from memory."""
    time_in_memory: Annotated[float, Gt(0), Le(1)]
    """Share of a run's time in which one core waits for memory of its own node."""


class SimulatedPrograms(TypedDict, total=False):
    """The behaviour of a benchmark's programs on simulated machines."""

    own_node_if: dict[str, NumberTemplate]
    """Values of parameters for which each core accesses only the memory of its own node.

    The node of the core must be a part of the target. An empty mapping means that each core does so
    for all values of parameters.
    """
    own_node_but: Annotated[float, Ge(0), Lt(1)]
    """Share of the accesses that use data of all cores, although `own_node_if` is true.

    Only counters of cache misses count these accesses. Default: 0.
    """
    one_thread_touches_if: dict[str, NumberTemplate]
    """Values of parameters for which one thread touches all pages first.

    If the placement is first touch, all pages are then on the first node of the program's cores.
    """
    shares_work: bool
    """Says whether the threads divide the work equally and wait for the slowest thread."""
    accesses_as: str
    """The kernel with the same memory accesses as the program, for programs without kernels.

    Default: three reads for each write.
    """
    programs: dict[str, SimulatedProgram]
    """Kernel -> behaviour of its program."""


class Stop(TypedDict):
    """How a load ends (by itself or by a signal of the runner), and its valid exit statuses."""

    by: Literal["runner", "self"]
    """What ends the load: `runner` sends the signal, or `self`: the load ends by itself."""
    signal: Literal["TERM", "INT"]
    """Signal that ends the load."""
    exit: list[int]
    """Exit statuses of a valid run."""


class ProgressColumns(TypedDict):
    """Positions of a time and a rate in a row of CSV."""

    end: int
    """Position of the column with the time of a row; the first column is 0."""
    rate: int
    """Position of the column with the rate; the first column is 0."""


_MEANING_OF_OUTPUT_NAME = "stdout (default), stderr, a file, or a pattern of file names"
OutputName = TypedDict(
    "OutputName", {"in": Annotated[str, Field(description=_MEANING_OF_OUTPUT_NAME)]}, total=False
)


class Progress(OutputName, total=False):
    """How a tool reports its progress: by events in JSON lines, or by rows of a CSV file."""

    event: str
    """Value of the key `event` in the JSON lines that contain samples."""
    begin: str
    """Key of the time at which a sample begins."""
    end: str
    """Key of the time at which a sample ends."""
    amount: str
    """Key of the amount of work in a sample, such as bytes."""
    csv: ProgressColumns
    """Columns of a CSV file, for a tool that writes CSV rows instead of JSON lines."""
    interval_seconds: Positive
    """Time from one row to the next, in seconds."""
    time_scale: float
    """Factor that converts the tool's unit of time into seconds."""
    rate_scale: float
    """Factor that converts the tool's rate into the unit of the metric per second."""
    clock: Literal["monotonic", "realtime"]
    """Clock of the times; default: monotonic."""
    pauses: Literal[True]
    """Says whether the tool pauses between its samples.

    If it does, only the time counts in which all loads with pauses measured. The record notes this
    time as a share of the common window.
    """


class OutputValue(OutputName, total=False):
    """Where to find a value in a tool's output, see `runner.tool_output`."""

    json: str
    """Path in a JSON document, such as jobs[*].read.bw_bytes.

    A key with a dot is quoted: clat_ns.percentile["50.000000"].
    """
    event: str
    """Value of the key `event` in the JSON line that contains the value."""
    key: str
    """Key of the value in the JSON line that `event` names."""
    regex: str
    """Regular expression with one group, the value, such as rate ([0-9.]+)."""


class ByNode(TypedDict):
    """Keys of two lists in a sample, each with a value for each memory node.

    The first list has the amounts of data, the second list the times that threads spent on each
    node.
    """

    amount: str
    """Key of the list of amounts."""
    time: str
    """Key of the list of times."""


class Metric(OutputValue, total=False):
    """A metric: where its value is found, its unit, and its upper bound."""

    progress: Literal[True]
    """The value of the metric is the rate over all samples in the common window of the loads."""
    by_node: ByNode
    """The metric has a row for each node of the target, if a load reads all nodes in turn.

    The times that threads spent on a node have the same unit as the keys begin and end.
    """
    quantile: Annotated[float, Field(ge=0, le=1)]
    """Quantile of the values in the histograms of all samples in the common window of the loads."""
    combine: Literal["single", "sum", "mean", "minimum", "maximum"]
    """How several values in the output become one; default: single (more is an error)."""
    scale: float
    """Factor that converts the tool's unit into the metric's unit."""
    amount: NumberTemplate
    """Amount of work for which the output has the time; the value is the amount per second."""
    at_most: NumberTemplate | None
    """Upper bound of the value; a point with a higher value fails."""
    simulated_bytes_per_unit: Positive
    """Bytes of memory traffic for a value of 1, from which a simulated host computes the value."""
    may_be_zero: Literal[True]
    """Zero is a valid value, for example of a metric that is a share."""
    optional: Literal[True]
    """A point without this value is valid; its row in the tidy table has the reason."""
    formerly: str | None
    """Name of the metric in records of older versions; null if these records lack the metric.

    This key does not change the definition of a point, so older records stay valid.
    """
    counter: str
    """Name of a counter in `counters`; the value is its count from start to stop of the load."""


class Remark(OutputName, total=False):
    """Where a tool writes a remark about a valid run; null or a missing key means no remark.

    Remarks are copied into the record, and the report says how often each remark occurred.
    """

    name: Required[str]
    """Name of the check."""
    json: str
    """Path of the value in a JSON document."""
    event: str
    """Value of the key `event` in the JSON line that contains the remark."""
    key: str
    """Key of the value in the JSON line that `event` names."""


class Condition(Remark, total=False):
    """What a tool's output must contain, so that the run is valid."""

    regex: str
    """Regular expression that must match in the output; the text of a group is the value."""
    equals: str | float | bool
    """The value must be equal to this value."""
    one_of: list[Any]
    """The value must be one of these values."""
    at_least: NumberTemplate
    """The value must be at least this number."""
    at_most: NumberTemplate
    """The value must be at most this number."""


class Placement(TypedDict):
    """Where a benchmark's pages must be, and whether its threads must be pinned."""

    memory: Literal["target", "initiator"]
    """The part of the load (target or initiator) on whose nodes the pages must be.

    A drive set has no memory, so for drives `target` means the initiator's own nodes or, with the
    parameter `buffers: other`, the node that is farthest from the initiator. If the experiment
    selects `buffers`, the pages must be on the nodes of the buffers, and the value of this key has
    no effect.
    """
    pinned: NotRequired[bool]
    """Says whether the program pins one thread to each processing unit."""
    launcher: NotRequired[Literal[True]]
    """Says whether the command starts with chaosity-place, whose own memory is not checked."""
    mapping: NotRequired[str]
    """Key in the program's "ready" line; its value is the address (or a list) of its memory.

    If this key exists, only pages of the memory at this address are checked, so that even some KiB
    can be checked.
    """


class BenchmarkDocument(TypedDict):
    """A file of templates/benchmarks; its texts are templates that are filled in for each load."""

    benchmark: Name
    """Name of the file, without .yaml."""
    category: Name
    """What the benchmark measures: the config names a benchmark for each category."""
    other_categories: NotRequired[list[Name]]
    """Other categories for which the config may select this benchmark."""
    summary: str
    """What the benchmark runs, as a phrase for sentences."""
    label: NotRequired[str]
    """Text in every figure with values of this benchmark, such as variant of STREAM."""
    needs: Program
    """The program, and how it is found."""
    parameters: NotRequired[dict[str, Any]]
    """Name of a parameter -> its value for the templates; the config can replace the value."""
    platform: NotRequired[Literal["linux", "darwin"]]
    """Operating system that the commands need, by default linux; other hosts refuse them."""
    device_vendor: NotRequired[str]
    """Name in OpenCL of the vendor whose devices the benchmark measures."""
    kernels: NotRequired[dict[str, KernelNameAndArrayCount]]
    """Name of a kernel in experiments -> its name for the tool, and its number of arrays."""
    memory_bytes: NotRequired[str | int]
    """Bytes of memory that a load allocates on its nodes."""
    simulation: NotRequired[SimulatedPrograms]
    """The behaviour of the benchmark's programs on simulated machines."""
    writes: NotRequired[bool]
    """Says whether a load writes to the drives of its target."""
    files: NotRequired[dict[str, str]]
    """Name of a file that the load needs -> template of its content."""
    environment: NotRequired[dict[str, str]]
    """Environment variable -> template; a variable that becomes empty is left out."""
    command: Annotated[list[str], MinLen(1)]
    """Words of the command, as templates; a word that becomes empty is left out."""
    start: Literal["barrier", "spawn"]
    """How a load starts: `barrier`: it prepares, then waits for the line "go"; `spawn`: at once."""
    stop: Stop
    """How a load of the benchmark ends."""
    estimate_seconds: NotRequired[str]
    """Seconds that a load takes; default: the longest time of the stopping rule."""
    progress: NotRequired[Progress]
    """How the program reports progress; without this key, a rate is that of the complete run."""
    metrics: Annotated[dict[str, Metric], MinLen(1)]
    """Name of a metric, which ends with its unit -> where its value is found."""
    counters: NotRequired[Annotated[list[str], MinLen(1), NO_DUPLICATES]]
    """Counters of the processor, by their names in templates/counters.

    Each counter is optional, since most processors lack some of these counters.
    """
    valid: list[
        Annotated[
            Condition, needs_exactly_one_key_of("json", "event", "regex"), *CHECKS_OF_EVENT_AND_KEY
        ]
    ]
    """Conditions that the output must meet, so that a run is valid."""
    notes: NotRequired[
        Annotated[
            list[
                Annotated[
                    Remark, needs_exactly_one_key_of("json", "event"), *CHECKS_OF_EVENT_AND_KEY
                ]
            ],
            MinLen(1),
        ]
    ]
    """Remarks of the tool that do not make a run invalid."""
    placement: Placement
    """Where the pages and the threads of a load must be."""
