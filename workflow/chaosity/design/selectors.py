"""Select the initiators and targets of a load that an experiment's file asks for on a host.

A selector may refer to an endpoint of an earlier load (``same_as: memory.initiator``), so loads are
chosen in the order of the file. Targets are memory nodes, placements of pages, drive sets and
devices. A placement of pages has a share of the pages for each memory node, or lets the kernel
decide where pages lie, see the room `place`. The caller passes a function that returns the shares
that follow from measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar, cast

from chaosity.design.chosen_loads import Endpoint, Initiator, Target
from chaosity.design.host_resources import HostResources
from chaosity.design.samples import MOST_SAMPLED_SETS, pick_evenly_spread, sample_sets_of_every_size
from chaosity.documents.experiments import DriveSelector, InitiatorSelector, TargetSelector
from chaosity.errors import CannotMeasureDesignError, UserError, check_name_is_allowed
from chaosity.place.page_placement import (
    FIRST_TOUCH,
    POLICIES,
    POLICY_UNIFORM,
    apportion_whole_numbers,
)
from chaosity.place_names import name_of_spread_target, node_name, parse_place_name
from chaosity.records.record_format import DriveFacts

S = TypeVar("S")
E = TypeVar("E", bound=Endpoint)
# Role of an earlier load -> "initiator" or "target" -> this endpoint of the load.
EarlierEndpoints = Mapping[str, Mapping[str, Endpoint]]
InitiatorSelectors = InitiatorSelector | list[InitiatorSelector]
# A function that takes the name of the weights (CANONICAL or CONTENDED) and the nodes of the
# workers. The function returns node -> measured share, or None if the weights were not measured.
WeightsLookup = Callable[[str, tuple[int, ...]], Mapping[int, float] | None]
# Optional keys of a selector, which restrict a selection but do not say what to select.
_INITIATOR_OPTIONS = {
    *("threads", "within", "first_pu", "without", "by"),
    *("at_least", "at_most", "at_most_sets", "in_each_set_of"),
}
_TARGET_OPTIONS = {"nearest", "weights_from"}
_DRIVE_OPTIONS = {"none", "local", "one_of_each_relation", "writable", "at_most_sets"}
# Shares of pages are multiples of 1/_STEPS_OF_A_SHARE, so shares are short as text and add up to
# exactly 1. The check of the placement allows an error that is 200 times as large.
_STEPS_OF_A_SHARE = 10_000
_TARGET_OF_OMITTED_LOAD = Target("none", "none", ())


def as_list(selectors: S | list[S]) -> list[S]:
    """Return one selector, or a list of selectors, as a list."""
    return selectors if isinstance(selectors, list) else [selectors]


@dataclass(frozen=True)
class LoadSelector:
    """Turns the selectors of a load into initiators and targets of a host.

    `earlier` has the endpoints of the loads that come before this load in the file. When targets
    are selected, `earlier` has the initiator of this load too. `where` is the load's place in the
    file, for error messages. `weights` returns measured weights.
    """

    host: HostResources
    earlier: EarlierEndpoints
    where: str
    weights: WeightsLookup | None = None

    def select_initiators(self, selectors: InitiatorSelectors) -> list[Initiator]:
        """Return the selected initiators without repetition, under their unique names.

        Raises:
            UserError: this host lacks a selected initiator, or a reference names no initiator.
            CannotMeasureDesignError: the selectors compare SMT siblings, and this host has none.
        """
        host = self.host
        if compares_smt(selectors, host) and not host.has_smt:
            raise CannotMeasureDesignError(
                "no core of this host has several SMT threads in use", self.where
            )
        found: list[Initiator] = []
        # Initiators in this list keep their names, which list nodes, or say how many threads there
        # are and how they are distributed. `with_unique_name` would replace these names.
        named: list[Initiator] = []
        for selector in as_list(selectors):
            one_per_core, excluded = _one_per_core(selector, host), None
            if "without" in selector:
                excluded = self._initiator_of_reference(selector["without"])
            match self._only_key(selector, _INITIATOR_OPTIONS):
                case "each":
                    every = host.initiators_of_level(selector["each"], one_per_core, excluded)
                    found += pick_evenly_spread(every, selector.get("at_most"))
                case "each_set_of":
                    named += _worker_sets(selector, host)
                case "first_pu_of":
                    firsts = _first_pu_of_each_group(selector, host)[1]
                    found += pick_evenly_spread(firsts, selector.get("at_most"))
                case "growing":
                    named += host.packed_and_spread_core_sets(selector["growing"])
                case "first_half_of":
                    halves = host.packed_and_spread_core_sets(selector["first_half_of"], half=True)
                    named += [half for half in halves if half.kind != "spread"]
                case "others_of":
                    found += self._remaining_cores_of_earlier_initiator(selector, one_per_core)
                case "names":
                    for name in selector["names"]:
                        initiator = self._named_initiator(name, one_per_core)
                        (named if initiator.kind == "nodes" else found).append(initiator)
                case "same_as":
                    found.append(self._initiator_of_reference(selector["same_as"]))
                case "local_to":
                    nodes = map(
                        host.nearest_initiator_node,
                        self._endpoint_of_reference(selector["local_to"]).nodes,
                    )
                    if near := [node for node in nodes if node is not None]:
                        named.append(host.worker_initiator(near, one_per_core))
                case _:
                    other = self._endpoint_of_reference(selector["one_of_each_relation_to"])
                    level = "core" if selector.get("by") == "l3_domain" else "node"
                    every = host.initiators_of_level(level, one_per_core, excluded)
                    relation = host.relation_function(selector.get("by"))
                    found += first_of_each_relation(other, every, relation)
        return list(dict.fromkeys([*map(host.with_unique_name, found), *named]))

    def select_targets(
        self, selectors: TargetSelector | list[TargetSelector], initiator: Initiator
    ) -> list[Target]:
        """Return the selected targets of an initiator's load, without repetition.

        Raises:
            UserError: this host lacks a selected target, or a reference names no target.
        """
        host = self.host
        memory = [host.target_of_nodes([node.os_index]) for node in host.topology.memory_nodes]
        found: list[Target] = []
        for selector in as_list(selectors):
            match self._only_key(selector, _TARGET_OPTIONS):
                case "each" if selector.get("nearest"):
                    near = host.nearest_initiator_node
                    found += [node for node in memory if near(node.nodes[0]) in initiator.nodes]
                case "each":
                    found += memory
                case "each_other":
                    found += _memory_of_other_packages(initiator, host)
                case "all":
                    found.append(host.target_of_nodes(one.nodes[0] for one in memory))
                case "spread_over":
                    found += _memory_of_own_packages(initiator, host)
                case "policies":
                    found += self._page_placements(selector["policies"], initiator)
                case "none":
                    found.append(_TARGET_OF_OMITTED_LOAD)
                case "local_to":
                    end = self._endpoint_of_reference(selector["local_to"])
                    if end.nodes or isinstance(end, Initiator):  # a drive may have no known node
                        found.append(host.target_of_nodes(host.local_memory_nodes(end)))
                case "one_of_each_relation_to":
                    other = self._endpoint_of_reference(selector["one_of_each_relation_to"])
                    found += first_of_each_relation(other, memory, host.endpoint_relation)
                case "same_as":
                    target = self._endpoint_of_reference(selector["same_as"])
                    if not isinstance(target, Target):
                        wrong = f"{selector['same_as']} is not a target of an earlier load"
                        raise UserError(wrong, self.where)
                    found.append(target)
                case "names":
                    names, known = selector["names"], {target.name: target for target in memory}
                    found += self._find_parts_by_name(names, known, "memory node")
                case "opencl":
                    devices = {one.name: one for one in host.topology.opencl_devices}
                    wanted = selector["opencl"].get("names", list(devices))
                    chosen = self._find_parts_by_name(wanted, devices, "OpenCL device")
                    found += (
                        [_TARGET_OF_OMITTED_LOAD]
                        if selector["opencl"].get("none") and devices
                        else []
                    )
                    found += map(host.opencl_target, chosen)
                case _:
                    found += self._drive_sets(selector["drives"], initiator)
        first: dict[tuple[object, ...], Target] = {}
        for target in found:
            nodes = target.nodes if target.is_memory else ()
            placement = target.name if target.is_page_placement else None
            drives = tuple(drive["component"] for drive in target.drives)
            content = (target.kind == "none", nodes, drives, target.device, placement)
            first.setdefault(content, target)
        return list(first.values())

    def _only_key(self, selector: Mapping[str, object], options: Collection[str]) -> str:
        """Return the only key of a selector that says what to select."""
        kinds = [key for key in selector if key not in options]
        if len(kinds) != 1:
            found = f"a selector has {' and '.join(kinds) or 'no key'}"
            raise UserError(found, self.where, "give exactly one key that says what to select")
        return kinds[0]

    def _endpoint_of_reference(self, reference: str) -> Endpoint:
        """Return the endpoint that a reference names.

        For example, ``memory.initiator`` names the initiator of the earlier load ``memory``.
        """
        loads = self.earlier.items()
        known = {f"{role}.{side}": end for role, ends in loads for side, end in ends.items()}
        check_name_is_allowed(reference, known, f"no earlier load has {reference}", self.where)
        return known[reference]

    def _initiator_of_reference(self, reference: str) -> Initiator:
        endpoint = self._endpoint_of_reference(reference)
        if not isinstance(endpoint, Initiator):
            raise UserError(f"{reference} is not an initiator of an earlier load", self.where)
        return endpoint

    def _find_parts_by_name(
        self, names: Iterable[str], known: Mapping[str, S], what: str
    ) -> list[S]:
        """Return the values of `names` in `known`; `what` says in errors what this host lacks."""
        for name in names:
            check_name_is_allowed(name, known, f"this host has no {what} {name!r}", self.where)
        return [known[name] for name in names]

    def _remaining_cores_of_earlier_initiator(
        self, selector: InitiatorSelector, one_per_core: bool
    ) -> list[Initiator]:
        """Return the cores, if any, that an earlier initiator does not use, as an initiator."""
        within = as_list(cast("str | list[str]", selector.get("within", "node")))
        others = self.host.remaining_cores(
            self._initiator_of_reference(selector["others_of"]), within
        )
        if others and selector.get("first_pu"):
            pus = self.host.initiators_of_level("pu", one_per_core)
            others = next(pu for pu in pus if pu.cpus[0] == min(others.cpus))
        return [others] if others else []

    def _named_initiator(self, name: str, one_per_core: bool) -> Initiator:
        """Return the initiator with a name such as ``node3``, ``pu12`` or ``nodes0-3``."""
        levels = ("node", "pu", "core", "l3_domain", "core_kind", "package", "machine")
        every = (self.host.initiators_of_level(level, one_per_core) for level in levels)
        known = {one.name: one for initiators in every for one in initiators}
        place = parse_place_name(name)
        nodes = place.nodes_in_name if place and place.kind in ("node", "nodes") else ()
        without = [one.os_index for one in self.host.topology.nodes if not one.initiator]
        if lacking := [node for node in nodes if node in without]:
            raise UserError(
                f"{name} cannot issue accesses, since node {lacking[0]} has no processing units",
                self.where,
                f"usable nodes: {', '.join(one for one in known if one.startswith('node'))}",
            )
        if nodes and all(node_name(node) in known for node in nodes):
            return self.host.worker_initiator(nodes, one_per_core)
        return self._find_parts_by_name([name], known, "initiator")[0]

    def _page_placements(self, names: list[str], workers: Initiator) -> Iterator[Target]:
        """Yield a target for each policy; with one memory node, only for first touch."""
        for name in names:
            check_name_is_allowed(
                name, POLICIES, f"unknown policy {name!r}", f"{self.where}.target"
            )
            if len(self.host.topology.memory_nodes) >= 2 or name == FIRST_TOUCH:
                target = page_placement_target(name, workers, self.host, self.weights)
                yield from [target] if target else []

    def _drive_sets(self, selector: DriveSelector, initiator: Initiator) -> list[Target]:
        """Return the drive sets that a selector below the key ``drives`` asks for."""
        host = self.host
        key = self._only_key(selector, _DRIVE_OPTIONS)
        owner = selector.get("first_of") or selector.get("all_of")
        groups = host.drives_by_package() if owner == "package" else host.drives_by_node()
        if selector.get("writable"):
            writable = {
                at: tuple(d for d in own if d.get("destructive")) for at, own in groups.items()
            }
            groups = {place: drives for place, drives in writable.items() if drives}
        if selector.get("local"):
            of_package = owner == "package"
            own = host.packages_of_initiator(initiator) if of_package else initiator.nodes
            near = {place: drives for place, drives in groups.items() if place in own}
            # If no drive has a known node, no drive is known to be local. If no drive is known to
            # be local, all drives are selected.
            groups = near if near or set(groups) != {None} else groups
        if selector.get("one_of_each_relation"):
            sets = [host.drive_set_target(f"all_of_{owner}", group) for group in groups.values()]
            first = first_of_each_relation(initiator, sets, host.endpoint_relation)
            kept = [target.drives for target in first]
            groups = {place: drives for place, drives in groups.items() if drives in kept}
        # The baseline is a point without this load. If no drive may be written, the baseline is
        # useless, since there is no point with which to compare it.
        baseline = selector.get("none") and (groups or not selector.get("writable"))
        every = tuple(drive for group in groups.values() for drive in group)
        most = selector.get("at_most_sets")
        kind = f"{key}_{owner}" if owner else "drive"
        chosen: list[tuple[DriveFacts, ...]]
        match key:
            case "each":
                chosen = pick_evenly_spread([(drive,) for drive in every], most)
            case "first_of":
                chosen = [own[:n] for own in groups.values() for n in range(1, len(own))]
            case "all_of":
                chosen = pick_evenly_spread([*groups.values()], most)
            case "all_of_each_set_of":
                kind, chosen = "all_of_nodes", self._drives_of_node_sets(most or MOST_SAMPLED_SETS)
            case "all":
                kind, chosen = "all", [every] if every else []
            case _:
                known = {drive["component"]: (drive,) for drive in host.drives}
                chosen = self._find_parts_by_name(selector["names"], known, "drive")
        sets = [host.drive_set_target(kind, drives) for drives in chosen]
        return [_TARGET_OF_OMITTED_LOAD, *sets] if baseline else sets

    def _drives_of_node_sets(self, at_most: int) -> list[tuple[DriveFacts, ...]]:
        """Return the drives of each set of two or more nodes, or of a sample, small sets first."""
        by_node = self.host.drives_by_node().items()
        groups = {node: drives for node, drives in by_node if node is not None}
        sets = [nodes for size in range(2, len(groups) + 1) for nodes in combinations(groups, size)]
        chosen = pick_evenly_spread(sets, at_most - len(groups))  # `at_most` includes single nodes
        return [tuple(drive for node in nodes for drive in groups[node]) for nodes in chosen]


def select_initiator_sets(
    selectors: InitiatorSelectors, host: HostResources, where: str
) -> list[tuple[str, list[Initiator]]] | None:
    """Return the name and the initiators of each set of nodes; each initiator runs one load.

    The result is None if no selector has the key `in_each_set_of`.

    Raises:
        UserError: a selector with the key `in_each_set_of` is not the only selector.
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


def name_of_all_initiators(selectors: InitiatorSelectors, host: HostResources) -> str:
    """Return the text for all initiators that run together, as a part of a point's name.

    An example is ``each_node``.
    """
    words = []
    for selector in as_list(selectors):
        if "first_pu_of" in selector:
            words.append(f"each_first_pu_of_{_first_pu_of_each_group(selector, host)[0]}")
        else:
            words.append(f"each_{selector['each']}" if "each" in selector else "named")
    return "_and_".join(words)


def compares_smt(selectors: InitiatorSelectors, host: HostResources) -> bool:
    """Return whether some selectors take one thread per core, and others take all SMT siblings."""
    return len({_one_per_core(selector, host) for selector in as_list(selectors)}) > 1


def _one_per_core(selector: InitiatorSelector, host: HostResources) -> bool:
    return selector["threads"] == "one_per_core" if "threads" in selector else host.one_per_core


def _worker_sets(selector: InitiatorSelector, host: HostResources) -> list[Initiator]:
    """Return an initiator for each set of nodes with processing units, or for a sample of sets."""
    nodes = [node.os_index for node in host.topology.initiator_nodes]
    sets = sample_sets_of_every_size(nodes, selector.get("at_most_sets", MOST_SAMPLED_SETS))
    return [host.worker_initiator(chosen, _one_per_core(selector, host)) for chosen in sets]


def _first_pu_of_each_group(
    selector: InitiatorSelector, host: HostResources
) -> tuple[str, list[Initiator]]:
    """Return the level that a selector `first_pu_of` uses, and the selected processing units."""
    return host.first_pu_of_each_group(selector["first_pu_of"], selector.get("at_least", 1))


def first_of_each_relation(
    endpoint: Endpoint, candidates: Iterable[E], relation: Callable[[Endpoint, Endpoint], str]
) -> list[E]:
    """Return for each relation to an endpoint the first candidate that has this relation.

    The search starts at the node of the endpoint, so that different points use different nodes.
    """
    own = min(endpoint.nodes, default=0)
    found: dict[str, E] = {}
    for other in sorted(candidates, key=lambda one: (one.nodes[:1] < (own,), one.nodes[:1])):
        found.setdefault(relation(endpoint, other), other)
    return list(found.values())


def _memory_of_other_packages(initiator: Initiator, host: HostResources) -> list[Target]:
    """Return a target for each package without cores of the initiator: the package's memory."""
    # Nodes without cores are left out, since their memory is of another kind. Packages without
    # memory and the nodes of the initiator are left out too.
    own, topology = host.packages_of_initiator(initiator), host.topology
    memory = {node.os_index for node in topology.memory_nodes} - set(initiator.nodes)
    others = [package for package in topology.packages if package.os_index not in own]
    nodes = [memory & set(topology.nodes_of_pus(package.cpus)) for package in others]
    return [host.target_of_nodes(listed) for listed in nodes if listed]


def _memory_of_own_packages(initiator: Initiator, host: HostResources) -> Iterator[Target]:
    """Yield a target for each kind of memory on nodes nearest to an initiator's packages.

    The nodes of a target get equal shares of the pages.
    """
    packages, by_kind = host.packages_of_initiator(initiator), dict[str, list[int]]()
    for node in host.topology.memory_nodes:
        nearest = host.nearest_initiator_node(node.os_index)
        if host.package_of_node(nearest) in packages:
            by_kind.setdefault(node.kind, []).append(node.os_index)
    for kind, nodes in by_kind.items():
        if len(nodes) == 1:
            yield host.target_of_nodes(nodes)
        else:
            shares = round_page_shares(dict.fromkeys(nodes, 1.0))
            yield Target(name_of_spread_target(kind), "policy", tuple(nodes), shares=shares)


def page_placement_target(
    name: str, workers: Initiator, host: HostResources, weights: WeightsLookup | None
) -> Target | None:
    """Return a placement of pages as a target; None if the weights for the workers are unknown.

    `name` is a key of POLICIES. The load runs on the processing units of the `workers`.
    """
    policy = POLICIES[name]
    nodes = tuple(node.os_index for node in host.topology.memory_nodes)
    if not policy.uses_all_nodes:
        nodes = host.worker_memory_nodes(workers)
    shares: Mapping[int, float] | None = None
    if policy.shares == POLICY_UNIFORM:
        shares = dict.fromkeys(nodes, 1.0)
    elif policy.shares is not None:
        shares = weights(policy.shares, workers.nodes) if weights else None
        if shares is None or set(shares) != set(nodes):
            return None
    return Target(name, "policy", nodes, shares=round_page_shares(shares), settles=policy.settles)


def round_page_shares(shares: Mapping[int, float] | None) -> tuple[tuple[int, float], ...] | None:
    """Return pairs of node and share; shares are multiples of 1/_STEPS_OF_A_SHARE and add up to 1.

    The sum of the given shares need not be 1.
    """
    if shares is None:
        return None
    whole = apportion_whole_numbers(_STEPS_OF_A_SHARE, dict(sorted(shares.items())))
    return tuple((node, part / _STEPS_OF_A_SHARE) for node, part in whole.items() if part)


def notes_on_missing_weights(
    names: Iterable[str], sources: Mapping[str, str], experiments: Container[str]
) -> Iterator[str]:
    """Yield notes on policies that are left out, and on how to measure their weights.

    `sources` maps a kind of weights to the experiment that measures these weights. `experiments`
    has the experiments of this run.
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
