"""The endpoints of a load: its initiator, and memory, drives or a device as its target."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import cast

from chaosity.cpusets import CpuSet, format_cpu_list
from chaosity.records.point_types import DriveFacts, LoadInitiator
from chaosity.topology.topology_parts import OpenclDevice


@dataclass(frozen=True)
class Initiator:
    """Processing units that issue accesses; `nodes` are the nodes of these units."""

    name: str
    kind: str
    cpus: CpuSet
    nodes: tuple[int, ...]

    @cached_property
    def cpu_list(self) -> str:
        """Return the units of the initiator as a Linux list, such as ``0-3,8``."""
        return format_cpu_list(self.cpus)

    @cached_property
    def point_entry(self) -> LoadInitiator:
        """Return name, kind, nodes and units in the form of points and of the tidy table."""
        return {
            "name": self.name,
            "kind": self.kind,
            "nodes": list(self.nodes),
            "cpus": self.cpu_list,
            "threads": len(self.cpus),
        }


@dataclass(frozen=True)
class PlannedDrive:
    """A drive in a point. Its component names the slot, since kernel names change between boots."""

    component: str
    node: int | None
    pci: str | None = None
    serial: str | None = None
    path: str | None = None
    file: str | None = None
    size_bytes: int | None = None
    link_bytes_per_second: int | None = None
    destructive: bool = False

    @cached_property
    def point_entry(self) -> DriveFacts:
        """Return the drive's entry in a point: `component`, `node` and the known fields."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        # Compared by identity, since node 0 equals False.
        known = {name: v for name, v in values.items() if v is not None and v is not False}
        return cast(DriveFacts, {"node": None, **known})


@dataclass(frozen=True)
class Target:
    """What a load accesses: memory nodes, drives or a device.

    The kind "none" means that the load is left out. A placement of pages (kind "policy") has
    `shares`: pairs of node and share of the pages, or None if the kernel decides. `settles` is true
    if pages move while the load runs.
    """

    name: str
    kind: str
    nodes: tuple[int, ...]
    drives: tuple[PlannedDrive, ...] = ()
    is_drive_set: bool = False
    shares: tuple[tuple[int, float], ...] | None = None
    settles: bool = False
    device: OpenclDevice | None = None

    @property
    def is_memory(self) -> bool:
        """Return whether the load accesses the memory of nodes; false for drives and devices."""
        return not self.is_drive_set and self.device is None

    @property
    def is_page_placement(self) -> bool:
        """Return whether the target is a placement of pages over nodes."""
        return self.kind == "policy"

    @property
    def page_shares_text(self) -> str:
        """Return the shares as text for commands, such as 0:0.25,1:0.75; empty without shares."""
        return ",".join(f"{node}:{share:g}" for node, share in self.shares or ())

    @property
    def page_shares_by_node(self) -> dict[str, float] | None:
        """Return node -> share of the pages, as in a point."""
        return {str(node): share for node, share in self.shares} if self.shares else None

    @cached_property
    def drive_entries(self) -> list[DriveFacts]:
        """Return the target's drives, as in a point."""
        return [drive.point_entry for drive in self.drives]

    @property
    def link_bytes_per_second(self) -> int | None:
        """Return the total bandwidth of the drives' links in bytes/s; None if any is unknown."""
        links = [drive.link_bytes_per_second for drive in self.drives]
        return None if not links or None in links else sum(filter(None, links))


Endpoint = Initiator | Target
