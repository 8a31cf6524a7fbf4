"""What is chosen for the loads of a point: their endpoints, names, and levels of factors.

The name of a point has all of it and can be parsed, for example
``memory=node3+node4+triad.storage=node3+alldrives``. Loads are joined by ``.``. Each is its role,
``=``, and, joined by ``+``, the initiator, the target, the kernel if its benchmark has kernels, and
levels as ``NAME-LEVEL``, for example ``chase=pu3+node4+bytes-64MiB``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from chaosity.design.endpoints import Endpoint, Initiator, Target
from chaosity.design.host_resources import HostResources
from chaosity.document_types import FactorSpec
from chaosity.records import Level
from chaosity.units import format_exact_bytes

# Characters of a part: no separator, and nothing that is special in a shell or file system.
PART = re.compile(r"[A-Za-z0-9_,\-]+")
# A kernel has no dash. A level has a dash after its name.
KERNEL = re.compile(r"[A-Za-z0-9_,]+")
LEVEL = re.compile(r"([a-z][a-z0-9_]*)-([A-Za-z0-9_,\-]+)")
# In a reference such as `only.target`: the single load of a point, whatever its role.
ONLY = "only"
# The level of a factor about a load that is left out.
ALONE = "alone"


@dataclass(frozen=True)
class LoadName:
    """The parts of a load's name; `levels` are pairs of a factor's name and its level."""

    load: str
    initiator: str
    target: str
    kernel: str | None
    levels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        kernel = [self.kernel] if self.kernel else []
        levels = [f"{name}-{level}" for name, level in self.levels]
        return f"{self.load}={'+'.join([self.initiator, self.target, *kernel, *levels])}"


def point_name(loads: list[LoadName]) -> str:
    """Name of the point with these loads, in alphabetical order."""
    return ".".join(str(load) for load in sorted(loads, key=lambda name: name.load))


def parse_point_name(name: str) -> list[LoadName]:
    """The loads in a point's name.

    Raises:
        ValueError: the text is not the name of a point.
    """
    return [_parse_load_name(text, name) for text in name.split(".")]


def _parse_load_name(text: str, name: str) -> LoadName:
    load, equals, rest = text.partition("=")
    initiator, target, *others = [*rest.split("+"), ""] if "+" not in rest else rest.split("+")
    kernel = others.pop(0) if others and KERNEL.fullmatch(others[0]) else None
    levels = [match for match in map(LEVEL.fullmatch, others) if match]
    complete = equals and len(levels) == len(others)
    if not complete or not all(map(PART.fullmatch, [load, initiator, target])):
        wanted = "LOAD=INITIATOR+TARGET[+KERNEL][+NAME-LEVEL...]"
        raise ValueError(f"{text!r} in {name!r} is not {wanted}")
    return LoadName(load, initiator, target, kernel, tuple((m[1], m[2]) for m in levels))


def level_text(name: str, level: Level) -> str:
    """A level as a point's name has it: sizes such as 64MiB, all others unchanged."""
    return format_exact_bytes(level) if name == "bytes" and isinstance(level, int) else str(level)


@dataclass(frozen=True)
class ChosenLoad:
    """One load: initiator, target, kernel, and the responder of a core-to-core transfer.

    `levels` are names and levels of everything else that the experiment varies.
    """

    initiator: Initiator
    target: Target
    kernel: str | None = None
    responder: Initiator | None = None
    levels: tuple[tuple[str, Level], ...] = ()


@dataclass(frozen=True)
class LoadGroup:
    """The choice for one role of a design: a load, or several loads that run together.

    `initiator` stands for all their initiators in the name of the point.
    """

    role: str
    initiator: str
    members: tuple[ChosenLoad, ...]

    @property
    def absent(self) -> bool:
        """Whether the load is left out, so that the others of the point run without it."""
        return self.members[0].target.kind == "none"

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Initiator and target, which selectors may refer to; empty for several loads together."""
        if len(self.members) > 1:
            return {}
        [load] = self.members
        return {"initiator": load.initiator, "target": load.target}

    def load_name(self, load: ChosenLoad) -> str:
        """Name of one load, unique within the point."""
        together = len(self.members) > 1
        return f"{self.role}-{load.initiator.name}" if together else self.role

    def name(self, host: HostResources) -> LoadName:
        """The group's part of the point's name."""
        first = self.members[0]
        target = first.target
        if len({member.target.nodes for member in self.members}) > 1:
            target = host.memory({node for member in self.members for node in member.target.nodes})
        responder = [("responder", first.responder.name)] if first.responder else []
        levels = tuple((name, level_text(name, level)) for name, level in first.levels)
        return LoadName(self.role, self.initiator, target.name, first.kernel, (*responder, *levels))


# What is chosen for each role of a design.
Combination = Mapping[str, LoadGroup]


def factor_level(spec: FactorSpec, design: str, chosen: Combination, host: HostResources) -> Level:
    """The level of a factor at a point.

    Args:
        spec: the factor as in the experiment's file.
        design: name of the point's design.
        chosen: what is chosen for the point's loads.
        host: gives the relation of two endpoints.
    """
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
        relation = host.package_relation if spec.get("by") == "package" else host.relation
        return relation(a, b) if a and b else ALONE
    group, side = _referred_group(spec["level"], chosen)
    if group and side == "initiator":
        return group.initiator
    endpoint = _referred_endpoint(spec["level"], chosen)
    return endpoint.name if endpoint and endpoint.kind != "none" else ALONE


def _referred_endpoint(reference: str, chosen: Combination) -> Endpoint | None:
    """The endpoint; None if its load is missing, or for several loads together."""
    group, side = _referred_group(reference, chosen)
    return group.endpoints.get(side) if group else None


def _referred_group(reference: str, chosen: Combination) -> tuple[LoadGroup | None, str]:
    """The group in a reference such as ``memory.target``, and which side of it."""
    role, _, side = reference.partition(".")
    if role == ONLY and len(chosen) == 1:
        [role] = chosen
    return chosen.get(role), side
