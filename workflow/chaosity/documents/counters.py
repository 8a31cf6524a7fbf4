"""Counters of processors: which events of a processor family each counter adds up."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Le, MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.field_types import Count, Index, Name, Text


class EventCode(TypedDict):
    """An event of a processor: its name in the source, code and unit mask."""

    event: str
    code: Annotated[int, Ge(0), Le(4095)]
    umask: Annotated[int, Ge(0), Le(255)]
    sign: NotRequired[Literal[1, -1]]
    """-1 if the event is subtracted."""


class ProcessorModels(TypedDict):
    """Models of a processor family, with the numbers of /proc/cpuinfo (decimal)."""

    vendor: Literal["GenuineIntel", "AuthenticAMD"]
    family: Count
    models: Annotated[
        list[Index | Annotated[list[Index], Field(min_length=2, max_length=2)]], MinLen(1)
    ]
    """Numbers, or first and last of a range."""


class CounterEventsDocument(TypedDict):
    """A file of templates/counters: which events of a processor family each counter adds up."""

    counters: Name
    summary: str
    """The processors, as their vendor calls them."""
    source: Text
    """Document with the numbers of the events."""
    note: NotRequired[str]
    """What to know about the counts, such as an erratum."""
    processors: Annotated[list[ProcessorModels], MinLen(1)]
    events: Annotated[dict[Name, Annotated[list[EventCode], MinLen(1)]], MinLen(1)]
