"""What a load is run on and against: an initiator, and memory, drives or a device as target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chaosity.cpusets import CpuSet, format_cpu_list
from chaosity.topology import OpenclDevice


@dataclass(frozen=True)
class Initiator:
    """Processing units that issue accesses; `nodes` are those they belong to."""

    name: str
    kind: str
    cpus: CpuSet
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class DriveRef:
    """A drive as a point names it: by component (slot), never by its kernel name."""

    component: str
    node: int | None
    pci: str | None = None
    serial: str | None = None
    path: str | None = None
    file: str | None = None
    size_bytes: int | None = None
    link_bytes_per_second: int | None = None
    destructive: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values without those that are not set."""
        # By identity: node 0 equals False.
        given = {k: v for k, v in vars(self).items() if v is not None and v is not False}
        return {"node": None, **given}


@dataclass(frozen=True)
class Target:
    """What a load's accesses go to: memory nodes, drives or a device.

    A target of the kind none is a load left out. A placement of pages (`kind` policy) has `shares`,
    node and share of the pages, or None where the kernel decides; `settles` where pages are moved
    while the load runs.
    """

    name: str
    kind: str
    nodes: tuple[int, ...]
    drives: tuple[DriveRef, ...] = ()
    is_drive_set: bool = False
    shares: tuple[tuple[int, float], ...] | None = None
    settles: bool = False
    device: OpenclDevice | None = None

    @property
    def is_memory(self) -> bool:
        """Whether its nodes are what is accessed, and not only where drives or a device hang."""
        return not self.is_drive_set and self.device is None

    @property
    def shares_text(self) -> str:
        """The shares as commands take them, such as 0:0.25,1:0.75; empty without any."""
        return ",".join(f"{node}:{share:g}" for node, share in self.shares or ())

    @property
    def link_bytes_per_second(self) -> int | None:
        """Sum of the drives' links, None when one of them is unknown."""
        links = [drive.link_bytes_per_second for drive in self.drives]
        return None if not links or None in links else sum(filter(None, links))


Endpoint = Initiator | Target


def endpoint_facts(side: Endpoint) -> dict[str, Any]:
    """Name, kind and nodes of an initiator or target, for records and the tidy table."""
    facts: dict[str, Any] = {"name": side.name, "kind": side.kind, "nodes": list(side.nodes)}
    if isinstance(side, Initiator):
        facts |= {"cpus": format_cpu_list(side.cpus), "threads": len(side.cpus)}
    return facts


def placement_facts(target: Target) -> dict[str, Any]:
    """Shares of the pages by node, and whether they are moved; nothing of other targets."""
    if target.kind != "policy":
        return {}
    shares = {str(node): share for node, share in target.shares} if target.shares else None
    return {"shares": shares, "settles": target.settles}
