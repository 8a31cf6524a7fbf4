"""Variables of a host in the inventory that begin with ``chaosity_``.

`roles/inventory` reads their names in this file, so that Ansible refuses a misspelt one too.
"""

from __future__ import annotations

from typing import Annotated, NotRequired

from annotated_types import Ge, Le
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.field_types import DIFFERENT, Text


class StorageFilesReplacingDrives(TypedDict):
    """Files that replace drives on a host that has no drives to measure."""

    directory: Text
    bytes: Annotated[int, Ge(16 * 2**20)]
    count: NotRequired[Annotated[int, Ge(1), Le(64)]]


class HostVariables(TypedDict, total=False):
    """The project's own variables of a host, see docs/adding-a-host.md."""

    chaosity_directory: Text
    chaosity_topology: Text
    chaosity_simulated: Text
    chaosity_destructive_drives: Annotated[list[Text], DIFFERENT]
    chaosity_extra_drives: Annotated[list[Annotated[str, Field(pattern="^/dev/")]], DIFFERENT]
    chaosity_slurm_node: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    chaosity_equal_hosts: Text
    chaosity_storage_file: StorageFilesReplacingDrives
