"""Select the targets of a load on a host: memory nodes, placements of pages, drive sets, devices.

A placement of pages has shares for the memory nodes, or lets the kernel decide; see `place`.
Weighted shares come from measurements, by a function that the caller passes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from chaosity.design.even_samples_and_plan_notes import AT_MOST_SETS, pick_evenly_spread
from chaosity.design.host_resources import HostResources
from chaosity.design.initiator_and_target_types import Initiator, Target
from chaosity.design.initiator_selectors import (
    EarlierEndpoints,
    as_list,
    check_one_selector_key,
    find_referred_endpoint,
    first_of_each_relation,
)
from chaosity.documents.experiments import DriveSelector, OpenclSelector, TargetSelector
from chaosity.errors import UserError, check_allowed
from chaosity.place.page_share_arithmetic import apportion_whole_numbers
from chaosity.place.placement_policies import FIRST_TOUCH, POLICIES, UNIFORM

# Returns the measured share of each node, for the name of the weights (CANONICAL or CONTENDED) and
# the workers' nodes; None if they were not measured.
WeightsLookup = Callable[[str, tuple[int, ...]], Mapping[int, float] | None]
# Shares are multiples of 1/_SHARE_PARTS: short as text, and they add up to exactly 1. The placement
# check allows an error that is 200 times as large.
_SHARE_PARTS = 10_000
_LOAD_LEFT_OUT = Target("none", "none", ())


def select_targets(
    selectors: TargetSelector | list[TargetSelector],
    initiator: Initiator,
    host: HostResources,
    earlier: EarlierEndpoints,
    where: str,
    weights: WeightsLookup | None = None,
) -> list[Target]:
    """Return the selected targets of an initiator's load; of equal targets only the first.

    `earlier` has the endpoints of earlier loads and the initiator of this load. `where` is the
    load's place in the file, for errors. `weights` returns measured weights, if there are any.

    Raises:
        UserError: this host has no such target, or a reference is not to a target.
    """
    found: list[Target] = []
    for selector in as_list(selectors):
        check_one_selector_key(selector, ("nearest", "weights_from"), where)
        if "each" in selector:
            found += _each_memory_node(initiator, host, nearest=selector.get("nearest", False))
        elif "each_other" in selector:
            found += _memory_of_other_packages(initiator, host)
        elif "all" in selector:
            found.append(host.target_of_nodes(node.os_index for node in host.topology.memory_nodes))
        elif "policies" in selector:
            found += _placements(selector["policies"], initiator, host, weights, where)
        elif "none" in selector:
            found.append(_LOAD_LEFT_OUT)
        elif "local_to" in selector:
            near = find_referred_endpoint(selector["local_to"], earlier, where)
            if near.nodes or isinstance(near, Initiator):  # the node of a drive may be unknown
                found.append(host.target_of_nodes(host.local_memory_nodes(near)))
        elif "one_of_each_relation_to" in selector:
            other = find_referred_endpoint(selector["one_of_each_relation_to"], earlier, where)
            each = _each_memory_node(initiator, host, nearest=False)
            found += first_of_each_relation(other, each, host.endpoint_relation)
        elif "same_as" in selector:
            target = find_referred_endpoint(selector["same_as"], earlier, where)
            if not isinstance(target, Target):
                raise UserError(f"{selector['same_as']} is not a target of an earlier load", where)
            found.append(target)
        elif "names" in selector:
            found += [_named_memory(name, host, where) for name in selector["names"]]
        elif "opencl" in selector:
            found += _opencl_targets(selector["opencl"], host, where)
        else:
            found += _drive_sets(selector["drives"], initiator, host, where)
    first: dict[tuple[object, ...], Target] = {}
    for target in found:
        nodes = target.nodes if target.is_memory else ()
        placement = target.name if target.is_page_placement else None
        content = (target.kind == "none", nodes, target.drives, target.device, placement)
        first.setdefault(content, target)
    return list(first.values())


def _each_memory_node(initiator: Initiator, host: HostResources, *, nearest: bool) -> list[Target]:
    """Return every memory node; with `nearest` only those nearest to the initiator."""
    nodes = [node.os_index for node in host.topology.memory_nodes]
    if nearest:
        nodes = [node for node in nodes if host.nearest_initiator_node(node) in initiator.nodes]
    return [host.target_of_nodes([node]) for node in nodes]


def _memory_of_other_packages(initiator: Initiator, host: HostResources) -> list[Target]:
    """Return the memory of each package that has no core of the initiator, all nodes as one target.

    Nodes without cores are left out: they have memory of another kind. So is a package without
    memory, and memory that is the initiator's own too.
    """
    own, topology = host.packages_of_initiator(initiator), host.topology
    memory = {node.os_index for node in topology.memory_nodes} - set(initiator.nodes)
    others = [package for package in topology.packages if package.os_index not in own]
    nodes = [memory & set(topology.nodes_of_pus(package.cpus)) for package in others]
    return [host.target_of_nodes(listed) for listed in nodes if listed]


def _named_memory(name: str, host: HostResources, where: str) -> Target:
    """Return the memory node with a name such as ``node3`` as a target."""
    targets = [host.target_of_nodes([node.os_index]) for node in host.topology.memory_nodes]
    known = {target.name: target for target in targets}
    check_allowed(name, known, f"this host has no memory node {name!r}", where)
    return known[name]


def _placements(
    names: Sequence[str],
    workers: Initiator,
    host: HostResources,
    weights: WeightsLookup | None,
    where: str,
) -> list[Target]:
    """Return the possible placements for workers; if one node has all memory, only first touch."""
    for name in names:
        check_allowed(name, POLICIES, f"unknown policy {name!r}", f"{where}.target")
    if len(host.topology.memory_nodes) < 2:
        names = [name for name in names if name == FIRST_TOUCH]
    tried = (page_placement_target(name, workers, host, weights) for name in names)
    return [target for target in tried if target is not None]


def page_placement_target(
    name: str, workers: Initiator, host: HostResources, weights: WeightsLookup | None
) -> Target | None:
    """Return a placement of pages as a target; None if the workers' weights are unknown.

    `name` is a key of POLICIES; the program runs on the units of the `workers`.
    """
    policy = POLICIES[name]
    nodes = tuple(node.os_index for node in host.topology.memory_nodes)
    if not policy.over_all:
        nodes = host.worker_memory_nodes(workers)
    shares: Mapping[int, float] | None = None
    if policy.shares == UNIFORM:
        shares = dict.fromkeys(nodes, 1.0)
    elif policy.shares is not None:
        shares = weights(policy.shares, workers.nodes) if weights else None
        if shares is None or set(shares) != set(nodes):
            return None
    return Target(name, "policy", nodes, shares=round_page_shares(shares), settles=policy.settles)


def round_page_shares(shares: Mapping[int, float] | None) -> tuple[tuple[int, float], ...] | None:
    """Return pairs of node and share: multiples of 1/_SHARE_PARTS that add up to 1.

    The given shares need not add up to 1.
    """
    if shares is None:
        return None
    whole = apportion_whole_numbers(_SHARE_PARTS, dict(sorted(shares.items())))
    return tuple((node, part / _SHARE_PARTS) for node, part in whole.items() if part)


def notes_on_missing_weights(
    names: Iterable[str], sources: Mapping[str, str], experiments: Container[str]
) -> Iterator[str]:
    """Yield notes on policies that are left out, and on what to run to measure their weights.

    `sources` has the experiment that measures each kind of weights; `experiments` are those of
    this run.
    """
    lacking: dict[str, list[str]] = {}
    for name in names:
        lacking.setdefault(sources.get(POLICIES[name].shares or "", ""), []).append(name)
    for source, policies in lacking.items():
        left_out = f"{' and '.join(policies)}: left out for workers whose weights are not known yet"
        if source in experiments:
            yield f"{left_out}; {source} measures them in this run, the next run adds the points"
        else:
            yield f"{left_out}; run {source or 'an experiment that measures them'} first"


def _drive_sets(
    selector: DriveSelector, initiator: Initiator, host: HostResources, where: str
) -> list[Target]:
    """Return the drive sets that a selector below ``drives`` asks for."""
    options = ("none", "local", "one_of_each_relation", "writable", "at_most_sets")
    check_one_selector_key(selector, options, where)
    owner = selector.get("first_of") or selector.get("all_of")
    groups = host.drives_by_package() if owner == "package" else host.drives_by_node()
    if selector.get("writable"):
        writable = {place: tuple(d for d in own if d.destructive) for place, own in groups.items()}
        groups = {place: drives for place, drives in writable.items() if drives}
    if selector.get("local"):
        own = host.packages_of_initiator(initiator) if owner == "package" else initiator.nodes
        near = {place: drives for place, drives in groups.items() if place in own}
        # If no drive has a known node, "local" has no meaning, and all drives count.
        groups = near if near or set(groups) != {None} else groups
    if selector.get("one_of_each_relation"):
        sets = [host.drive_set_target(f"all_of_{owner}", group) for group in groups.values()]
        kept = first_of_each_relation(initiator, sets, host.endpoint_relation)
        groups = {place: own for place, own in groups.items() if own in [t.drives for t in kept]}
    # Without a drive that may be written, there is nothing to compare with a baseline.
    baseline = selector.get("none") and (groups or not selector.get("writable"))
    found: list[Target] = [_LOAD_LEFT_OUT] if baseline else []
    every = tuple(drive for group in groups.values() for drive in group)
    if "each" in selector:
        drives = pick_evenly_spread(every, selector.get("at_most_sets", len(every)))
        found += [host.drive_set_target("drive", (drive,)) for drive in drives]
    elif "first_of" in selector:
        for group in groups.values():
            firsts = (group[:count] for count in range(1, len(group)))
            found += [host.drive_set_target(f"first_of_{owner}", first) for first in firsts]
    elif "all_of" in selector:
        wholes = pick_evenly_spread([*groups.values()], selector.get("at_most_sets", len(groups)))
        found += [host.drive_set_target(f"all_of_{owner}", group) for group in wholes]
    elif "all_of_each_set_of" in selector:
        found += _node_drive_sets(host, selector.get("at_most_sets", AT_MOST_SETS))
    elif "all" in selector:
        found += [host.drive_set_target("all", every)] if every else []
    else:
        known = {drive.component: drive for drive in host.drives}
        for name in selector["names"]:
            check_allowed(name, known, f"this host has no drive {name!r}", where)
            found.append(host.drive_set_target("drive", (known[name],)))
    return found


def _node_drive_sets(host: HostResources, at_most: int) -> list[Target]:
    """Return all drives of every set of two or more nodes, small sets first.

    If there are too many sets, they are evenly spread, from a pair to all nodes.
    """
    groups = {node: drives for node, drives in host.drives_by_node().items() if node is not None}
    sets = [nodes for size in range(2, len(groups) + 1) for nodes in combinations(groups, size)]
    chosen = pick_evenly_spread(sets, at_most - len(groups))  # `at_most` includes sets of one node
    return [
        host.drive_set_target(
            "all_of_nodes", tuple(drive for node in nodes for drive in groups[node])
        )
        for nodes in chosen
    ]


def _opencl_targets(selector: OpenclSelector, host: HostResources, where: str) -> list[Target]:
    """Return the OpenCL devices that a selector below ``opencl`` asks for."""
    known = {device.name: device for device in host.topology.opencl_devices}
    names = selector.get("names", list(known))
    for name in names:
        check_allowed(name, known, f"this host has no OpenCL device {name!r}", where)
    baseline = [_LOAD_LEFT_OUT] if selector.get("none") and known else []
    return [*baseline, *(host.opencl_target(known[name]) for name in names)]
