"""The loads of a point: their endpoints and levels, their names, and the levels of factors.

A point's name contains everything that was chosen for its loads, such as
``memory=node3+node4+triad.storage=node3+alldrives``. Loads are joined by ``.``. Each load is
written as its role, ``=``, and these parts joined by ``+``: the initiator, the target, the kernel
if its benchmark has kernels, and levels as ``NAME-LEVEL``: ``chase=pu3+node4+bytes-64MiB``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaosity.design.endpoint_types import Endpoint, Initiator, Target
from chaosity.design.host_resources import HostResources
from chaosity.documents.experiments import FactorLevelRule
from chaosity.records.point_types import Level
from chaosity.units import format_exact_bytes


@dataclass(frozen=True)
class LoadName:
    """The parts of a load's name: `load` is its role, `levels` are pairs of factor and level."""

    load: str
    initiator: str
    target: str
    kernel: str | None
    levels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        kernel = [self.kernel] if self.kernel else []
        levels = [f"{name}-{level}" for name, level in self.levels]
        return f"{self.load}={'+'.join([self.initiator, self.target, *kernel, *levels])}"


def make_point_name(loads: list[LoadName]) -> str:
    """Return the name of the point with these loads, sorted by role."""
    return ".".join(str(load) for load in sorted(loads, key=lambda name: name.load))


def format_level(name: str, level: Level) -> str:
    """Return a level as text for a point's name: a size as 64MiB, any other level unchanged."""
    return format_exact_bytes(level) if name == "bytes" and isinstance(level, int) else str(level)


# In a reference such as `only.target`: the single load of a point, whatever its role.
ONLY = "only"
# The level of a factor about a load that is left out.
ALONE = "alone"


@dataclass(frozen=True)
class ChosenLoad:
    """One load: initiator, target, kernel, and the responder of a core-to-core transfer.

    `buffers` is the memory for the data of drives; None for the initiator's own. `levels` are the
    other factors of the experiment with their levels.
    """

    initiator: Initiator
    target: Target
    kernel: str | None = None
    responder: Initiator | None = None
    buffers: Target | None = None
    levels: tuple[tuple[str, Level], ...] = ()


@dataclass(frozen=True)
class LoadsOfRole:
    """The loads that were chosen for one role of a design: one load, or several that run together.

    `initiator` stands for all their initiators in the name of the point.
    """

    role: str
    initiator: str
    members: tuple[ChosenLoad, ...]

    @property
    def is_left_out(self) -> bool:
        """Return whether the point's other loads run without this load."""
        return self.members[0].target.kind == "none"

    @property
    def initiator_and_target(self) -> dict[str, Endpoint]:
        """Return the initiator, the target and the buffers, to which selectors may refer."""
        if len(self.members) > 1:
            return {}
        [load] = self.members
        buffers = {"buffers": load.buffers} if load.buffers else {}
        return {"initiator": load.initiator, "target": load.target, **buffers}

    def make_member_name(self, load: ChosenLoad) -> str:
        """Return the name of one load, unique within the point."""
        together = len(self.members) > 1
        return f"{self.role}-{load.initiator.name}" if together else self.role

    def make_group_name(self, host: HostResources) -> LoadName:
        """Return the group's part of the point's name."""
        first = self.members[0]
        target = first.target
        if len({member.target.nodes for member in self.members}) > 1:
            target = host.target_of_nodes(
                {node for member in self.members for node in member.target.nodes}
            )
        responder = [("responder", first.responder.name)] if first.responder else []
        levels = tuple((name, format_level(name, level)) for name, level in first.levels)
        return LoadName(self.role, self.initiator, target.name, first.kernel, (*responder, *levels))


# Role of a design -> the loads that were chosen for it.
Combination = Mapping[str, LoadsOfRole]


def factor_level_of_point(
    spec: FactorLevelRule, design: str, chosen: Combination, host: HostResources
) -> Level:
    """Return the level of an experiment's factor at a point, from its design and chosen loads."""
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
        return host.relation(spec.get("by"))(a, b) if a and b else ALONE
    group, side = _referred_group(spec["level"], chosen)
    if group and side == "initiator":
        return group.initiator
    if group and side == "kernel" and not group.is_left_out:
        return group.members[0].kernel or group.members[0].target.name
    endpoint = _referred_endpoint(spec["level"], chosen)
    return endpoint.name if endpoint and endpoint.kind != "none" else ALONE


def _referred_endpoint(reference: str, chosen: Combination) -> Endpoint | None:
    """Return the endpoint; None if its load is missing or consists of several loads."""
    group, side = _referred_group(reference, chosen)
    return group.initiator_and_target.get(side) if group else None


def _referred_group(reference: str, chosen: Combination) -> tuple[LoadsOfRole | None, str]:
    """Return the load group in a reference such as ``memory.target``, and the side ``target``."""
    role, _, side = reference.partition(".")
    if role == ONLY and len(chosen) == 1:
        [role] = chosen
    return chosen.get(role), side
