"""Variables of a host in the inventory that begin with ``chaosity_``.

`roles/inventory` reads the names of these variables here, so that Ansible refuses misspelt names.
"""

from __future__ import annotations

from typing import Annotated, NotRequired

from annotated_types import Ge, Le
from pydantic import Field
from typing_extensions import TypedDict

from chaosity.documents.checked_yaml import NO_DUPLICATES, Text


class StorageFilesReplacingDrives(TypedDict):
    """Files that replace drives on a host that has no drives to measure."""

    directory: Text
    """Folder on the host that contains the files."""
    bytes: Annotated[int, Ge(16 * 2**20)]
    """Size of each file, in bytes."""
    count: NotRequired[Annotated[int, Ge(1), Le(64)]]
    """Number of the files; default: 1."""


class HostVariables(TypedDict, total=False):
    """The variables of a host that Chaosity defines, see docs/reference/hosts.md."""

    chaosity_directory: Text
    """Folder on the host for everything that provisioning installs.

    Default: ~/.local/share/chaosity, or /opt/chaosity with `ansible_become: true`.
    """
    chaosity_topology: Text
    """live (the default), or the path of an hwloc XML file or of a captured /sys.

    With a path, points can be planned for the host, but not measured.
    """
    chaosity_simulated: Text
    """Description of a machine: the host does not exist, and its records are simulated."""
    chaosity_destructive_drives: Annotated[list[Text], NO_DUPLICATES]
    """The only drives that measurements may write to.

    Each drive is named by its serial number, by its name below /dev/disk/by-id, or by its path in
    `chaosity_extra_drives`.
    """
    chaosity_extra_drives: Annotated[list[Annotated[str, Field(pattern="^/dev/")]], NO_DUPLICATES]
    """Paths of block devices that are measured in addition to NVMe drives; they are only read."""
    chaosity_slurm_node: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Slurm's name of the host; default: the name of the host in the inventory."""
    chaosity_equal_hosts: Text
    """Name of a group of equal hosts, which separates unequal hosts with the same processor."""
    chaosity_storage_file: StorageFilesReplacingDrives
    """Files that are read in place of drives, on a host without drives to measure."""
