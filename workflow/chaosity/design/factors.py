"""The levels of an experiment's factors at a point, from what was chosen for its loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaosity.design.endpoints import Endpoint, Target
from chaosity.design.host_resources import HostResources
from chaosity.design.load_combinations import Combination, LoadGroup

# In a reference: the load of a point that has no other, whatever it is called.
ONLY = "only"
# The level where a load is missing.
ALONE = "alone"


def factor_level(
    spec: Mapping[str, Any], design: str, chosen: Combination, host: HostResources
) -> str | int:
    """The level of one factor at a point.

    Args:
        spec: the factor as the experiment's file has it.
        design: the name of the point's design.
        chosen: what was chosen for the point's loads.
        host: knows how sides lie to each other.
    """
    if "design" in spec:
        return design
    if "mode" in spec:
        group = chosen.get(spec["mode"])
        return "concurrent" if group and len(group.members) > 1 else "serial"
    if "count" in spec:
        one = _side(spec["count"], chosen)
        return len(one.drives) if isinstance(one, Target) else 0
    if "relation" in spec:
        a, b = (_side(reference, chosen) for reference in spec["relation"])
        relation = host.package_relation if spec.get("by") == "package" else host.relation
        return relation(a, b) if a and b else ALONE
    return _name(spec["level"], chosen)


def _name(reference: str, chosen: Combination) -> str:
    """Name of a side; of several initiators together what the point calls them."""
    group, part = _referred(reference, chosen)
    if group and part == "initiator":
        return group.initiator
    one = _side(reference, chosen)
    return one.name if one and one.kind != "none" else ALONE


def _side(reference: str, chosen: Combination) -> Endpoint | None:
    """The side itself; None where its load is missing, and of several loads together."""
    group, part = _referred(reference, chosen)
    return group.sides.get(part) if group else None


def _referred(reference: str, chosen: Combination) -> tuple[LoadGroup | None, str]:
    """The load that a reference such as ``memory.target`` means, and which side of it."""
    role, _, part = reference.partition(".")
    if role == ONLY and len(chosen) == 1:
        [role] = chosen
    return chosen.get(role), part
