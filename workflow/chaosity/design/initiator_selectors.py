"""Select the initiators of a load on a host, as an experiment's file asks for them.

A selector may refer to an endpoint of an earlier load (``same_as: memory.initiator``), so loads are
chosen in the order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar, cast

from chaosity.design.even_samples_and_plan_notes import (
    AT_MOST_SETS,
    pick_evenly_spread,
    sample_sets_of_every_size,
)
from chaosity.design.host_resources import HostResources
from chaosity.design.initiator_and_target_types import Endpoint, Initiator
from chaosity.documents.experiments import InitiatorSelector
from chaosity.errors import DesignLeftOutError, UserError, check_allowed
from chaosity.place_names import node_name, parse_place_name

S = TypeVar("S")
E = TypeVar("E", bound=Endpoint)
# Initiator and target of each load before this one, by its role.
EarlierEndpoints = Mapping[str, Mapping[str, Endpoint]]
# Keys of a selector that do not say what to select.
_OPTIONS = {
    *("threads", "within", "first_pu", "without", "by"),
    *("at_least", "at_most", "at_most_sets", "in_each_set_of"),
}


def as_list(selectors: S | list[S]) -> list[S]:
    """Return one selector, or a list of selectors, as a list."""
    return selectors if isinstance(selectors, list) else [selectors]


def check_one_selector_key(
    selector: Mapping[str, object], options: Collection[str], where: str
) -> None:
    """Check that a selector has exactly one key that says what to select.

    Raises:
        UserError: the selector has no such key or several.
    """
    kinds = [key for key in selector if key not in options]
    if len(kinds) != 1:
        found = f"a selector has {' and '.join(kinds) or 'no key'}"
        raise UserError(found, where, "give exactly one key that says what to select")


def find_referred_endpoint(reference: str, earlier: EarlierEndpoints, where: str) -> Endpoint:
    """Return the endpoint of an earlier load in a reference such as ``memory.initiator``.

    Raises:
        UserError: no earlier load has this name.
    """
    known = {f"{role}.{side}": end for role, ends in earlier.items() for side, end in ends.items()}
    check_allowed(reference, known, f"no earlier load has {reference}", where)
    return known[reference]


def find_referred_initiator(reference: str, earlier: EarlierEndpoints, where: str) -> Initiator:
    """Return the initiator of an earlier load in a reference such as ``memory.initiator``.

    Raises:
        UserError: the endpoint is not an initiator, or not in an earlier load.
    """
    endpoint = find_referred_endpoint(reference, earlier, where)
    if not isinstance(endpoint, Initiator):
        raise UserError(f"{reference} is not an initiator of an earlier load", where)
    return endpoint


def select_initiators(
    selectors: InitiatorSelector | list[InitiatorSelector],
    host: HostResources,
    earlier: EarlierEndpoints,
    where: str,
) -> list[Initiator]:
    """Return the selected initiators without repetition, under their unique names.

    Raises:
        UserError: this host has no such initiator, or a reference is not to an initiator.
        DesignLeftOutError: the selectors compare SMT siblings, and this host has none.
    """
    if compares_smt(selectors, host) and not host.has_smt:
        raise DesignLeftOutError("no core of this host has several SMT threads in use", where)
    found: list[Initiator] = []
    # Initiators of these selectors keep their names. The names list the nodes, or say how many
    # threads there are and how they are distributed. `with_unique_name` would hide these facts.
    named: list[Initiator] = []
    for selector in as_list(selectors):
        check_one_selector_key(selector, _OPTIONS, where)
        one_per_core, excluded = _one_per_core(selector, host), None
        if "without" in selector:
            excluded = find_referred_initiator(selector["without"], earlier, where)
        if "each" in selector:
            every = host.initiators_of_level(selector["each"], one_per_core, without=excluded)
            found += pick_evenly_spread(every, selector.get("at_most", len(every)))
        elif "each_set_of" in selector:
            named += _worker_sets(selector, host)
        elif "first_pu_of" in selector:
            _, firsts = _first_pus(selector, host)
            found += pick_evenly_spread(firsts, selector.get("at_most", len(firsts)))
        elif "growing" in selector:
            named += host.packed_and_spread_core_sets(selector["growing"])
        elif "first_half_of" in selector:
            halves = host.packed_and_spread_core_sets(selector["first_half_of"], half=True)
            named += [half for half in halves if half.kind != "spread"]
        elif "others_of" in selector:
            initiator = find_referred_initiator(selector["others_of"], earlier, where)
            within = cast("str | list[str]", selector.get("within", "node"))
            others = host.remaining_cores(initiator, as_list(within))
            if others and selector.get("first_pu"):
                pus = host.initiators_of_level("pu", one_per_core)
                others = next(pu for pu in pus if pu.cpus[0] == min(others.cpus))
            found += [others] if others else []
        elif "names" in selector:
            for name in selector["names"]:
                initiator = _named_initiator(name, host, one_per_core, where)
                (named if initiator.kind == "nodes" else found).append(initiator)
        elif "same_as" in selector:
            found.append(find_referred_initiator(selector["same_as"], earlier, where))
        elif "local_to" in selector:
            nodes = find_referred_endpoint(selector["local_to"], earlier, where).nodes
            near = [node for node in map(host.nearest_initiator_node, nodes) if node is not None]
            named += [host.worker_initiator(near, one_per_core)] if near else []
        else:
            other = find_referred_endpoint(selector["one_of_each_relation_to"], earlier, where)
            level = "core" if selector.get("by") == "l3_domain" else "node"
            candidates = host.initiators_of_level(level, one_per_core, without=excluded)
            found += first_of_each_relation(other, candidates, host.relation(selector.get("by")))
    return list(dict.fromkeys([*map(host.with_unique_name, found), *named]))


def select_initiator_sets(
    selectors: InitiatorSelector | list[InitiatorSelector], host: HostResources, where: str
) -> list[tuple[str, list[Initiator]]] | None:
    """Return name and nodes of each set, whose nodes run one load each; None for other selectors.

    Raises:
        UserError: a selector of sets is not the only selector.
    """
    listed = as_list(selectors)
    if not any("in_each_set_of" in selector for selector in listed):
        return None
    if len(listed) > 1:
        raise UserError("in_each_set_of must be the only selector", f"{where}.initiator")
    one_per_core = _one_per_core(listed[0], host)
    return [
        (workers.name, [host.worker_initiator([node], one_per_core) for node in workers.nodes])
        for workers in _worker_sets(listed[0], host)
    ]


def joint_name_of_initiators(
    selectors: InitiatorSelector | list[InitiatorSelector], host: HostResources
) -> str:
    """Return the name that a point's name has for all initiators, such as ``each_node``."""
    words = []
    for selector in as_list(selectors):
        if "first_pu_of" in selector:
            words.append(f"each_first_pu_of_{_first_pus(selector, host)[0]}")
        else:
            words.append(f"each_{selector['each']}" if "each" in selector else "named")
    return "_and_".join(words)


def _named_initiator(name: str, host: HostResources, one_per_core: bool, where: str) -> Initiator:
    """Return the initiator with a name such as ``node3``, ``pu12`` or ``nodes0-3``, a set."""
    levels = ("node", "pu", "core", "l3_domain", "core_kind", "package", "machine")
    known = {
        one.name: one for level in levels for one in host.initiators_of_level(level, one_per_core)
    }
    place = parse_place_name(name)
    nodes = place.nodes_in_name if place and place.kind in ("node", "nodes") else ()
    without = [node.os_index for node in host.topology.nodes if not node.initiator]
    if lacking := [node for node in nodes if node in without]:
        raise UserError(
            f"{name} cannot issue accesses, since node {lacking[0]} has no processing units",
            where,
            f"usable nodes: {', '.join(one for one in known if one.startswith('node'))}",
        )
    if nodes and all(node_name(node) in known for node in nodes):
        return host.worker_initiator(nodes, one_per_core)
    check_allowed(name, known, f"this host has no initiator {name!r}", where)
    return known[name]


def _one_per_core(selector: InitiatorSelector, host: HostResources) -> bool:
    return selector["threads"] == "one_per_core" if "threads" in selector else host.one_per_core


def compares_smt(
    selectors: InitiatorSelector | list[InitiatorSelector], host: HostResources
) -> bool:
    """Return whether some selectors take one thread per core and others all SMT siblings."""
    return len({_one_per_core(selector, host) for selector in as_list(selectors)}) > 1


def _worker_sets(selector: InitiatorSelector, host: HostResources) -> list[Initiator]:
    """Return sets of every size of the nodes that have processing units."""
    nodes = [node.os_index for node in host.topology.initiator_nodes]
    sets = sample_sets_of_every_size(nodes, selector.get("at_most_sets", AT_MOST_SETS))
    return [host.worker_initiator(chosen, _one_per_core(selector, host)) for chosen in sets]


def _first_pus(selector: InitiatorSelector, host: HostResources) -> tuple[str, list[Initiator]]:
    """Return the level and the units of a selector `first_pu_of`."""
    return host.first_pu_of_each_group(selector["first_pu_of"], selector.get("at_least", 1))


def first_of_each_relation(
    endpoint: Endpoint, candidates: Iterable[E], relation: Callable[[Endpoint, Endpoint], str]
) -> list[E]:
    """Return, for each relation to an endpoint, the next candidate with this relation.

    Nodes are counted from the endpoint's own node on, so that not all points use node 0.
    """
    own = min(endpoint.nodes, default=0)
    found: dict[str, E] = {}
    for other in sorted(candidates, key=lambda one: (one.nodes[:1] < (own,), one.nodes[:1])):
        found.setdefault(relation(endpoint, other), other)
    return list(found.values())
