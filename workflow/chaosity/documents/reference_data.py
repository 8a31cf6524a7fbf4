"""What is known of hardware without measuring it: accelerators, processors, published files."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import Count, Index, Name, Text, Texts


class AcceleratorDocument(TypedDict):
    """A file of templates/accelerators; the kind of an accelerator that Chaosity names."""

    accelerator: Name
    name: Text
    title: Text
    """The name in words."""
    part_of: NotRequired[Literal["cores", "processor"]]
    """Without this key, the accelerator is a PCI device."""
    flags: NotRequired[Texts]
    """Flags of the processor; with one of them, the processor has the accelerator."""
    cpu_model: NotRequired[Text]
    """Regular expression; processors with such a name have the accelerator."""
    pci: NotRequired[Annotated[list[Annotated[str, Field(pattern="^[0-9a-f:]{9}$")]], MinLen(1)]]
    """PCI numbers of vendor and device."""
    device_names: NotRequired[Text]
    """The kernel names the devices so, with a number: dsa0."""
    drivers: NotRequired[Texts]
    """Kernel drivers that serve no other kind."""
    not_measured: Annotated[str, MinLen(10)]
    """What Chaosity does not measure of it, and why: one sentence."""


ColumnName = Annotated[str, Field(pattern="^[a-z_]+$")]


class PublishedForm(TypedDict):
    """A file of templates/published: the meaning of the columns of a published CSV file.

    Texts are templates over the columns of a row.
    """

    published: Name
    """Name of the form, which is that of the file."""
    summary: str
    """What the published file has, in a sentence."""
    matrix: NotRequired[Literal["bandwidth", "latency"]]
    """The file is a node x node matrix; its cells have initiator, target, replicate and value."""
    experiment: str
    """Whose figures are to show it; a name of its own has none."""
    load: str
    """The role, where the columns do not say it row by row."""
    metric: str
    """Metric of the values, such as latency_ns."""
    value: str
    """Template over the file's columns, in the metric's unit."""
    columns: dict[ColumnName, str]
    """Column of the tidy table -> its text; an empty text is unknown."""
    factors: NotRequired[dict[Name, str]]
    """Factor -> its level."""


class ProcessorValue(TypedDict):
    """What others measured on a model of a processor."""

    model: Annotated[str, MinLen(5)]
    """A part of the name that the kernel reports."""
    nodes_per_package: Count
    """NUMA nodes of each package while it was measured, such as 4 in NPS4."""
    bandwidth_bytes_per_second: NotRequired[Annotated[float, Gt(1e9)]]
    """What the cores of a node get together from the memory of their node."""
    latency_ns: NotRequired[Annotated[float, Gt(1)]]
    """Idle latency of the memory of a core's own node."""


class ProcessorsDocument(TypedDict):
    """A file of templates/processors: what others published about processors."""

    processors: Name
    """Name of the file."""
    method: Text
    """How the values were measured."""
    kernel: NotRequired[str]
    """The kernel whose bandwidth is comparable, if there are bandwidths."""
    source: Annotated[str, MinLen(10)]
    """Author, title, version or date."""
    url: Annotated[str, Field(pattern="^https://")]
    """Where the source is."""
    values: Annotated[list[ProcessorValue], MinLen(1)]
    """A value for each processor."""


class EventCode(TypedDict):
    """An event of a processor: its name in the source, code and unit mask."""

    event: str
    """Name of the event in the source."""
    code: Annotated[int, Ge(0), Le(4095)]
    """Number of the event."""
    umask: Annotated[int, Ge(0), Le(255)]
    """Mask of the units that are counted."""
    sign: NotRequired[Literal[1, -1]]
    """-1 if the event is subtracted."""


class ProcessorModels(TypedDict):
    """Models of a processor family, with the numbers of /proc/cpuinfo (decimal)."""

    vendor: Literal["GenuineIntel", "AuthenticAMD"]
    """Vendor of the processor."""
    family: Count
    """Number of the family."""
    models: Annotated[
        list[Index | Annotated[list[Index], Field(min_length=2, max_length=2)]], MinLen(1)
    ]
    """Numbers, or first and last of a range."""


class CounterEventsDocument(TypedDict):
    """A file of templates/counters: which events of a processor family each counter adds up."""

    counters: Name
    """Name of the file."""
    summary: str
    """The processors, as their vendor calls them."""
    source: Text
    """The vendor's document that lists the codes of the events."""
    note: NotRequired[str]
    """What to know about the counts, such as an erratum."""
    processors: Annotated[list[ProcessorModels], MinLen(1)]
    """Models of processors that have these events."""
    events: Annotated[dict[Name, Annotated[list[EventCode], MinLen(1)]], MinLen(1)]
    """Counter -> the events whose counts are added up."""
