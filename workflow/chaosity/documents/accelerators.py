"""The documents of accelerators: by what a host shows each, and what is not measured of it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import MinLen
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.field_types import Name, Text, Texts


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
