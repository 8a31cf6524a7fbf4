"""The types of files with facts on hardware that others published, such as processors' values."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import Count, Index, Name, Text, Texts


class AcceleratorDocument(TypedDict):
    """A file of templates/accelerators: one kind of accelerator that Chaosity finds and names."""

    accelerator: Name
    name: Text
    title: Text
    """The name of the accelerator in words."""
    part_of: NotRequired[Literal["cores", "processor"]]
    """The part of the host that contains the accelerator; default: a PCI device."""
    flags: NotRequired[Texts]
    """Flags of the processor; a processor with one of these flags has the accelerator."""
    cpu_model: NotRequired[Text]
    """Regular expression; processors with such a name have the accelerator."""
    pci: NotRequired[Annotated[list[Annotated[str, Field(pattern="^[0-9a-f:]{9}$")]], MinLen(1)]]
    """PCI numbers of vendor and device, such as 8086:0b25."""
    device_names: NotRequired[Text]
    """The kernel's name of the device without its number, such as dsa for dsa0."""
    drivers: NotRequired[Texts]
    """Kernel drivers that serve only this kind of accelerator."""
    not_measured: Annotated[str, MinLen(10)]
    """What Chaosity does not measure of the accelerator, and why, in one sentence."""


ColumnName = Annotated[str, Field(pattern="^[a-z_]+$")]


class PublishedForm(TypedDict):
    """A file of templates/published: the meaning of the columns of a published CSV file.

    Texts of the file are templates, into which the columns of a row are filled.
    """

    published: Name
    """Name of the form, which is also the name of this file."""
    summary: str
    """What the published file contains, in a sentence."""
    matrix: NotRequired[Literal["bandwidth", "latency"]]
    """The CSV file is a node matrix; each cell gives initiator, target, replicate and value."""
    experiment: str
    """Experiment whose figures show the values; for an unknown name, there are no figures."""
    load: str
    """Role of the load of all rows, if no column gives the role of each row."""
    metric: str
    """Metric of the values, such as latency_ns."""
    value: str
    """Template that gives the value of a row, in the unit of the metric."""
    columns: dict[ColumnName, str]
    """Column of the tidy table -> template of its text in a row; an empty text means unknown."""
    factors: NotRequired[dict[Name, str]]
    """Factor -> template of its level in a row."""


class ProcessorValue(TypedDict):
    """The values that others measured on one model of a processor."""

    model: Annotated[str, MinLen(5)]
    """Part of the processor's name as the kernel reports it."""
    nodes_per_package: Count
    """Number of NUMA nodes of each package during the measurement, such as 4 in NPS4."""
    bandwidth_bytes_per_second: NotRequired[Annotated[float, Gt(1e9)]]
    """Bandwidth that all cores of a node get together from the memory of their node."""
    latency_ns: NotRequired[Annotated[float, Gt(1)]]
    """Idle latency of the memory of a core's own node."""


class ProcessorsDocument(TypedDict):
    """A file of templates/processors: values of processors that one source published."""

    processors: Name
    """Name of this file, without .yaml."""
    method: Text
    """How the values were measured."""
    kernel: NotRequired[str]
    """The kernel whose measured bandwidth is compared with published bandwidths."""
    source: Annotated[str, MinLen(10)]
    """Author, title, and version or date of the source."""
    url: Annotated[str, Field(pattern="^https://")]
    """Address of the source."""
    values: Annotated[list[ProcessorValue], MinLen(1)]
    """The values of each processor."""


class EventCode(TypedDict):
    """An event of a processor: its name in the source, code and unit mask."""

    event: str
    """Name of the event in the source."""
    code: Annotated[int, Ge(0), Le(4095)]
    """Number of the event, which the processor calls event select."""
    umask: Annotated[int, Ge(0), Le(255)]
    """Mask of the units of the processor whose events are counted (unit mask)."""
    sign: NotRequired[Literal[1, -1]]
    """1 (default): the count of the event is added; -1: the count is subtracted."""


class ProcessorModels(TypedDict):
    """Models of a processor family, identified by the decimal numbers in /proc/cpuinfo."""

    vendor: Literal["GenuineIntel", "AuthenticAMD"]
    """Vendor of the processor."""
    family: Count
    """Number of the family."""
    models: Annotated[
        list[Index | Annotated[list[Index], Field(min_length=2, max_length=2)]], MinLen(1)
    ]
    """Numbers of the models; a pair is the first and the last number of a range."""


class CounterEventsDocument(TypedDict):
    """A file of templates/counters: which events of a processor family each counter adds up."""

    counters: Name
    """Name of this file, without .yaml."""
    summary: str
    """The processors, with the names that their vendor uses."""
    source: Text
    """The vendor's document that lists the codes of the events."""
    note: NotRequired[str]
    """A remark on the counts for users, such as an erratum."""
    processors: Annotated[list[ProcessorModels], MinLen(1)]
    """Models of the processors that have these events."""
    events: Annotated[dict[Name, Annotated[list[EventCode], MinLen(1)]], MinLen(1)]
    """Counter -> the events whose counts are added to give the count of the counter."""
