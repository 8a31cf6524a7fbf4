"""Evaluates the selectors of an experiment's YAML against a host.

A selector yields the choices for one side of a load. Some refer to a side of a load named before
(``same_as: memory.initiator``), so loads are chosen in the order in which the file has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from chaosity.config import suggest_allowed
from chaosity.cpusets import parse_cpu_list
from chaosity.design.endpoints import Endpoint, Initiator, Target
from chaosity.design.host_resources import HostResources
from chaosity.design.placement_targets import WeightsLookup, policy_target
from chaosity.design.sampling import AT_MOST_SETS, evenly_spread, sets_of_every_size
from chaosity.errors import UserError
from chaosity.place.policies import POLICIES

Combination = Mapping[str, Mapping[str, Endpoint]]
# What a selector of initiators may say beside its kind.
OPTIONS = (
    "threads", "within", "without", "at_least", "at_most", "at_most_sets", "in_each_set_of",
)  # fmt: skip
NONE = Target("none", "none", ())


def as_list(selector: Any) -> list[dict[str, Any]]:
    """One selector or a list of them, as a list."""
    return selector if isinstance(selector, list) else [selector]


def only_key(selector: Mapping[str, Any], options: tuple[str, ...], where: str) -> str:
    """The one key of a selector that is not an option.

    Raises:
        UserError: there is none, or more than one.
    """
    keys = [key for key in selector if key not in options]
    if len(keys) != 1:
        raise UserError(f"a selector has one kind, this one has {keys or 'none'}", where)
    return keys[0]


def referred(reference: str, chosen: Combination, where: str) -> Endpoint:
    """The side of an earlier load that a selector refers to, e.g. ``memory.initiator``.

    Raises:
        UserError: no load of that name stands before this one.
    """
    load, _, side = reference.partition(".")
    if load not in chosen or side not in chosen[load]:
        known = [f"{name}.{one}" for name, sides in chosen.items() for one in sides]
        raise UserError(
            f"{reference} does not stand before it", where, suggest_allowed(reference, known)
        )
    return chosen[load][side]


def initiators(
    selectors: Any, host: HostResources, chosen: Combination, where: str
) -> list[Initiator]:
    """All initiators that the selectors mean, each once and under its one name.

    Raises:
        UserError: a name that this host does not have, or a side that is no initiator.
    """
    found: list[Initiator] = []
    own_names: list[Initiator] = []
    for selector in as_list(selectors):
        key = only_key(selector, OPTIONS, where)
        value = selector[key]
        one_per_core = selector.get("threads", "one_per_core") == "one_per_core"
        if key == "each" and "without" in selector:
            side = initiator_side(selector["without"], chosen, where)
            found += host.each_without(value, side, thin=one_per_core)
        elif key == "each":
            every = host.initiators(value, one_per_core)
            found += evenly_spread(every, selector.get("at_most", len(every)))
        elif key == "each_set_of":
            # As below: a set of nodes that makes up a package is still called by its nodes.
            own_names += worker_sets(selector, host)
        elif key == "first_pu_of":
            first = host.first_pu(first_pu_level(selector, host))
            found += evenly_spread(first, selector.get("at_most", len(first)))
        elif key == "growing":
            # Under names of their own, which say how many and how; `one_name` would hide that.
            own_names += host.growing(value)
        elif key == "others_of":
            side = initiator_side(value, chosen, where)
            others = host.others(side, selector.get("within", "node"))
            found += [others] if others else []
        elif key == "names":
            for name in value:
                one = named_initiator(name, host, one_per_core, where)
                (own_names if one.kind == "nodes" else found).append(one)
        elif key == "same_as":
            found.append(initiator_side(value, chosen, where))
        else:
            found += one_of_each_relation(referred(value, chosen, where), host)
    return list(dict.fromkeys([*(host.one_name(one) for one in found), *own_names]))


def worker_sets(selector: Mapping[str, Any], host: HostResources) -> list[Initiator]:
    """Sets of the nodes that have processing units, of every size."""
    nodes = [node.os_index for node in host.topology.initiators]
    one_per_core = selector.get("threads", "one_per_core") == "one_per_core"
    sets = sets_of_every_size(nodes, selector.get("at_most_sets", AT_MOST_SETS))
    return [host.workers(one, one_per_core) for one in sets]


def in_each_set(
    selectors: Any, host: HostResources, where: str
) -> list[tuple[str, list[Initiator]]] | None:
    """Name and nodes of each set whose nodes have a load each; None of other selectors.

    Raises:
        UserError: it stands beside other selectors, which are no sets.
    """
    listed = as_list(selectors)
    if not any("in_each_set_of" in one for one in listed):
        return None
    if len(listed) > 1:
        raise UserError("in_each_set_of stands alone", f"{where}.initiator")
    one_per_core = listed[0].get("threads", "one_per_core") == "one_per_core"
    return [
        (workers.name, [host.workers([node], one_per_core) for node in workers.nodes])
        for workers in worker_sets(listed[0], host)
    ]


def group_name(specs: Any, host: HostResources) -> str:
    """What the name of a point calls all initiators of some selectors, e.g. ``each_node``."""
    words = []
    for selector in as_list(specs):
        if "first_pu_of" in selector:
            words.append(f"each_first_pu_of_{first_pu_level(selector, host)}")
        else:
            words.append(f"each_{selector['each']}" if "each" in selector else "named")
    return "_and_".join(words)


def initiator_side(reference: str, chosen: Combination, where: str) -> Initiator:
    """The initiator that a selector refers to.

    Raises:
        UserError: it is none, or does not stand before.
    """
    side = referred(reference, chosen, where)
    if not isinstance(side, Initiator):
        raise UserError(f"{reference} is no initiator", where)
    return side


def first_pu_level(selector: Mapping[str, Any], host: HostResources) -> str:
    """The level that a selector `first_pu_of` goes by on a host.

    That is cores where there are fewer groups than `at_least`: a machine with one L3 domain has no
    pair of them.
    """
    level: str = selector["first_pu_of"]
    return level if len(host.first_pu(level)) >= selector.get("at_least", 1) else "core"


def named_initiator(name: str, host: HostResources, one_per_core: bool, where: str) -> Initiator:
    """The initiator that a person names, e.g. ``node3``, ``pu12`` or the set ``nodes0-3``.

    Raises:
        UserError: this host has none of that name, or a node of it has no processing units.
    """
    levels = ("node", "pu", "core", "l3_domain", "core_kind", "package", "machine")
    known = {one.name: one for level in levels for one in host.initiators(level, one_per_core)}
    nodes = named_nodes(name)
    without = [node.os_index for node in host.topology.nodes if not node.initiator]
    if lacking := [node for node in nodes if node in without]:
        raise UserError(
            f"{name} cannot issue accesses, since node {lacking[0]} has no processing units",
            where,
            f"nodes that have some: {', '.join(one for one in known if one.startswith('node'))}",
        )
    if nodes and all(f"node{node}" in known for node in nodes):
        return host.workers(nodes, one_per_core)
    if name not in known:
        raise UserError(f"this host has no initiator {name!r}", where, suggest_allowed(name, known))
    return known[name]


def named_nodes(name: str) -> tuple[int, ...]:
    """The nodes that a name such as ``node3`` or ``nodes0-3`` speaks of; none of another."""
    listed = name.removeprefix("nodes") if name.startswith("nodes") else name.removeprefix("node")
    try:
        return parse_cpu_list(listed) if listed != name else ()
    except ValueError:
        return ()


def one_of_each_relation(side: Endpoint, host: HostResources) -> list[Initiator]:
    """For each relation to a side, the next node that stands in it.

    The same node first, then another node of the package, then one of another package; "next" is
    counted onwards from the side's own node, so that not all points fall upon node 0.
    """
    nodes = host.initiators("node", True)
    own = min(side.nodes, default=0)
    onwards = sorted(nodes, key=lambda one: (one.nodes[0] < own, one.nodes[0]))
    found: dict[str, Initiator] = {}
    for one in onwards:
        found.setdefault(host.relation(side, one), one)
    return list(found.values())


def targets(
    selectors: Any,
    initiator: Initiator,
    host: HostResources,
    chosen: Combination,
    where: str,
    weights: WeightsLookup | None = None,
) -> list[Target]:
    """All targets that the selectors mean; of equal ones the first keeps its name.

    Args:
        selectors: of the load.
        initiator: whose target is looked for.
        host: its nodes and drives.
        chosen: sides of the loads before.
        where: in the file, for error messages.
        weights: what was measured of where pages are best put.

    Raises:
        UserError: a name that this host does not have, or a side that is no target.
    """
    found: list[Target] = []
    for selector in as_list(selectors):
        key = only_key(selector, ("nearest", "weights_from"), where)
        value = selector[key]
        if key == "each":
            found += each_memory(initiator, host, nearest=selector.get("nearest", False))
        elif key == "all":
            found.append(host.memory(node.os_index for node in host.topology.targets))
        elif key == "policies":
            found += placements(value, initiator, host, weights, where)
        elif key == "none":
            found.append(NONE)
        elif key == "local_to":
            found.append(host.memory(host.local_memory(initiator_side(value, chosen, where))))
        elif key == "same_as":
            side = referred(value, chosen, where)
            if not isinstance(side, Target):
                raise UserError(f"{value} is no target", where)
            found.append(side)
        elif key == "names":
            found += [named_memory(name, host, where) for name in value]
        elif key == "opencl":
            found += opencl_targets(value, host, where)
        else:
            found += drive_sets(value, initiator, host, where)
    first: dict[tuple[Any, ...], Target] = {}
    for one in found:
        nodes = one.nodes if one.is_memory else ()
        policy = one.name if one.kind == "policy" else None
        content = (one.kind == "none", nodes, one.drives, one.device, policy)
        first.setdefault(content, one)
    return list(first.values())


def placements(
    names: list[str],
    workers: Initiator,
    host: HostResources,
    weights: WeightsLookup | None,
    where: str,
) -> list[Target]:
    """The policies of placement that can be had for workers: none where one node has all memory.

    Raises:
        UserError: there is no such policy.
    """
    for name in names:
        if name not in POLICIES:
            remedy = suggest_allowed(name, POLICIES)
            raise UserError(f"there is no policy {name!r}", f"{where}.target", remedy)
    if len(host.topology.targets) < 2:
        return []
    tried = (policy_target(name, workers, host, weights) for name in names)
    return [one for one in tried if one is not None]


def each_memory(initiator: Initiator, host: HostResources, *, nearest: bool) -> list[Target]:
    """Every memory node; with `nearest` those to which no other initiator is nearer."""
    nodes = [node.os_index for node in host.topology.targets]
    if nearest:
        nodes = [node for node in nodes if set(initiator.nodes) & set(host.nearest(node))]
    return [host.memory([node]) for node in nodes]


def named_memory(name: str, host: HostResources, where: str) -> Target:
    """The memory node that a person names, e.g. ``node3``."""
    known = {f"node{node.os_index}": node.os_index for node in host.topology.targets}
    if name not in known:
        raise UserError(
            f"this host has no memory node {name!r}", where, suggest_allowed(name, known)
        )
    return host.memory([known[name]])


def drive_sets(
    selector: Mapping[str, Any], initiator: Initiator, host: HostResources, where: str
) -> list[Target]:
    """The drive sets that a selector below ``drives`` means.

    Raises:
        UserError: it names a drive that this host does not have.
    """
    key = only_key(selector, ("none", "local", "at_most_sets"), where)
    value = selector[key]
    by_package = value == "package"
    groups = host.package_drives() if by_package else host.drive_groups()
    if selector.get("local"):
        own = host.packages_of(initiator) if by_package else initiator.nodes
        near = {place: drives for place, drives in groups.items() if place in own}
        # Where no drive tells its node, "local" cannot be said; then all of them count.
        groups = near if near or set(groups) != {None} else groups
    found: list[Target] = [NONE] if selector.get("none") else []
    if key == "each":
        found += [host.drive_set("drive", (d,)) for group in groups.values() for d in group]
    elif key == "first_of":
        for group in groups.values():
            kind = f"first_of_{value}"
            found += [host.drive_set(kind, group[:k]) for k in range(1, len(group))]
    elif key == "all_of":
        found += [host.drive_set(f"all_of_{value}", group) for group in groups.values()]
    elif key == "all_of_each_set_of":
        found += node_sets(host, selector.get("at_most_sets", AT_MOST_SETS))
    elif key == "all":
        everything = tuple(drive for group in groups.values() for drive in group)
        found += [host.drive_set("all", everything)] if everything else []
    else:
        found += [named_drive(name, host, where) for name in selector["names"]]
    return found


def opencl_targets(selector: Mapping[str, Any], host: HostResources, where: str) -> list[Target]:
    """The OpenCL devices that a selector below ``opencl`` means.

    Raises:
        UserError: it names a device that this host does not have.
    """
    known = {one.name: one for one in host.topology.opencl_devices}
    names = selector.get("names", known)
    for name in names:
        if name not in known:
            raise UserError(
                f"this host has no OpenCL device {name!r}", where, suggest_allowed(name, known)
            )
    baseline = [NONE] if selector.get("none") and known else []
    return [*baseline, *(host.opencl(known[name]) for name in names)]


def node_sets(host: HostResources, at_most: int) -> list[Target]:
    """All drives of every set of two or more nodes, small sets first.

    Of too many, some that are evenly spread over them, from a pair to all nodes.
    """
    groups = {node: drives for node, drives in host.drive_groups().items() if node is not None}
    sets = [nodes for size in range(2, len(groups) + 1) for nodes in combinations(groups, size)]
    chosen = evenly_spread(
        sets, at_most - len(groups)
    )  # sets of one node are counted with the rest
    return [
        host.drive_set("all_of_nodes", tuple(d for node in nodes for d in groups[node]))
        for nodes in chosen
    ]


def named_drive(name: str, host: HostResources, where: str) -> Target:
    """The drive that a person names by its component."""
    known = {drive.component: drive for drive in host.drives}
    if name not in known:
        raise UserError(f"this host has no drive {name!r}", where, suggest_allowed(name, known))
    return host.drive_set("drive", (known[name],))
