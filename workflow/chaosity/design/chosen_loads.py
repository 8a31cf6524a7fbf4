"""Classes for the chosen loads of a point, their endpoints and names, and levels of factors.

The name of a point contains everything that was chosen for its loads. An example of a name is
``memory=node3+node4+triad.storage=node3+alldrives``. A ``.`` separates two loads. The text of a
load is its role, then ``=``, then parts joined by ``+``. The parts are the initiator, the target,
the kernel (if the benchmark has kernels), and levels as ``NAME-LEVEL``. An example with a level is
``chase=pu3+node4+bytes-64MiB``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chaosity.cpusets import CpuSet, format_cpu_list
from chaosity.documents.experiments import FactorLevelRule
from chaosity.records.record_format import DriveFacts, Level, LoadInitiator
from chaosity.topology.topology_parts import OpenclDevice
from chaosity.units import format_exact_bytes

if TYPE_CHECKING:
    from chaosity.design.host_resources import HostResources


@dataclass(frozen=True)
class Initiator:
    """The processing units that issue accesses; `nodes` are the nodes of these units."""

    name: str
    kind: str
    cpus: CpuSet
    nodes: tuple[int, ...]

    @cached_property
    def cpu_list(self) -> str:
        """Return the processing units of the initiator as a Linux list, such as ``0-3,8``."""
        return format_cpu_list(self.cpus)

    @cached_property
    def point_entry(self) -> LoadInitiator:
        """Return name, kind, nodes and units in the form of points and the tidy table."""
        return {
            "name": self.name,
            "kind": self.kind,
            "nodes": list(self.nodes),
            "cpus": self.cpu_list,
            "threads": len(self.cpus),
        }


@dataclass(frozen=True)
class Target:
    """What a load accesses: memory nodes, drives or a device.

    The kind "none" means that the load is left out. A placement of pages (kind "policy") has
    `shares`: pairs of node and share of the pages, or None if the kernel decides where pages lie.
    `settles` says whether pages still move while the load runs.
    """

    name: str
    kind: str
    nodes: tuple[int, ...]
    drives: tuple[DriveFacts, ...] = ()
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

    @property
    def link_bytes_per_second(self) -> int | None:
        """Return the total bandwidth of all drives' PCI links in bytes/s; None if unknown."""
        links = [drive.get("link_bytes_per_second") for drive in self.drives]
        return None if not links or None in links else sum(filter(None, links))


Endpoint = Initiator | Target


def format_level(name: str, level: Level) -> str:
    """Return a level as text for a point's name: "64MiB" for a size, any other level unchanged."""
    return format_exact_bytes(level) if name == "bytes" and isinstance(level, int) else str(level)


# In a reference such as `only.target`, this word means the only load of a point, whatever its role.
WORD_FOR_ONLY_LOAD = "only"
# The level of a factor at a point that lacks the load to which the factor belongs.
LEVEL_WITHOUT_OTHER_LOAD = "alone"


@dataclass(frozen=True)
class ChosenLoad:
    """One load: initiator, target, kernel, and the responder of a core-to-core transfer.

    `buffers` is the memory for the data of drives; None means memory that is local to the
    initiator. `levels` has the other factors of the experiment and their levels.
    """

    initiator: Initiator
    target: Target
    kernel: str | None = None
    responder: Initiator | None = None
    buffers: Target | None = None
    levels: tuple[tuple[str, Level], ...] = ()


@dataclass(frozen=True)
class LoadsOfRole:
    """The loads that were chosen for one role of a design: one load, or several at the same time.

    `initiator` is the text for the initiators of all these loads in the name of the point.
    """

    role: str
    initiator: str
    members: tuple[ChosenLoad, ...]

    @property
    def is_omitted_on_purpose(self) -> bool:
        """Return whether the experiment asks for a point without this load (target ``none``)."""
        return self.members[0].target.kind == "none"

    @property
    def initiator_and_target(self) -> dict[str, Endpoint]:
        """Return initiator, target and buffers of the only load, to which references can refer.

        The result is empty if there are several loads.
        """
        if len(self.members) > 1:
            return {}
        [load] = self.members
        buffers = {"buffers": load.buffers} if load.buffers else {}
        return {"initiator": load.initiator, "target": load.target, **buffers}

    def make_member_name(self, load: ChosenLoad) -> str:
        """Return the name of one of these loads, which is unique within the point."""
        together = len(self.members) > 1
        return f"{self.role}-{load.initiator.name}" if together else self.role

    def name_in_point(self, host: HostResources) -> str:
        """Return that part of the name of the point that describes these loads."""
        first = self.members[0]
        target = first.target
        if len({member.target.nodes for member in self.members}) > 1:
            target = host.target_of_nodes(
                {node for member in self.members for node in member.target.nodes}
            )
        parts = [self.initiator, target.name, *([first.kernel] if first.kernel else [])]
        if first.responder:
            parts.append(f"responder-{first.responder.name}")
        parts += [f"{name}-{format_level(name, level)}" for name, level in first.levels]
        return f"{self.role}={'+'.join(parts)}"


# Role of a design -> the loads that were chosen for this role.
Combination = Mapping[str, LoadsOfRole]


def factor_level_of_point(
    spec: FactorLevelRule, design: str, chosen: Combination, host: HostResources
) -> Level:
    """Return the level of a factor at the point of a design with the chosen loads."""
    if "design" in spec:
        return design
    if "mode" in spec:
        group = chosen.get(spec["mode"])
        return "concurrent" if group and len(group.members) > 1 else "serial"
    if "count" in spec:
        target = _referred_endpoint(spec["count"], chosen)
        return len(target.drives) if isinstance(target, Target) else 0
    if "relation" in spec:
        a, b = (_referred_endpoint(reference, chosen) for reference in spec["relation"])
        return host.relation_function(spec.get("by"))(a, b) if a and b else LEVEL_WITHOUT_OTHER_LOAD
    group, side = _referred_group(spec["level"], chosen)
    if group and side == "initiator":
        return group.initiator
    if group and side == "kernel" and not group.is_omitted_on_purpose:
        return group.members[0].kernel or group.members[0].target.name
    endpoint = _referred_endpoint(spec["level"], chosen)
    return endpoint.name if endpoint and endpoint.kind != "none" else LEVEL_WITHOUT_OTHER_LOAD


def _referred_endpoint(reference: str, chosen: Combination) -> Endpoint | None:
    """Return the endpoint that a reference names; None unless exactly one load has the role."""
    group, side = _referred_group(reference, chosen)
    return group.initiator_and_target.get(side) if group else None


def _referred_group(reference: str, chosen: Combination) -> tuple[LoadsOfRole | None, str]:
    """Return the loads of ``memory`` and "target" for a reference such as ``memory.target``."""
    role, _, side = reference.partition(".")
    if role == WORD_FOR_ONLY_LOAD and len(chosen) == 1:
        [role] = chosen
    return chosen.get(role), side
