"""The places where a program could run: its cores, and the nodes of its pages.

Not all sets of nodes are tried, since 16 nodes have 65,535 sets. The search begins with single
nodes, and adds the best other node in each step. The search also tries sets of nodes that fill a
package first. From nodes that are alike, the search tries only a few.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice

from chaosity.advice.requests import Place, Request
from chaosity.cpusets import CpuSet, make_cpu_set
from chaosity.design.samples import take_in_turns
from chaosity.errors import UserError
from chaosity.records.record_format import DriveFacts
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import Package
from chaosity.units import format_binary_bytes, format_count

# A function that returns the score of a place; a higher score is better.
Score = Callable[[Place], float]
ScoredPlace = tuple[float, Place]
# A function that returns the score of a set of nodes; a higher score is better.
SetScore = Callable[[Sequence[int]], float]
# Places whose scores differ by less than this share count as equally good, so the simplest of them
# is chosen.
LARGEST_DIFFERENCE_OF_EQUAL_SCORES = 0.01
# The search adds no node to a set if two more nodes improve its score by less than this share.
_LEAST_GAIN_BY_FURTHER_NODES = 0.005
# Largest number of steps in which the search improves the best set of nodes, and largest number of
# sets, differing in one node, that it tries in each step.
_MOST_IMPROVEMENTS, _TRIED_NEIGHBOURS = 3, 3
# Number of sets of nodes that fill a package first and that are tried with all placements of the
# pages. The smallest set of each package is also tried.
_PACKAGE_SETS_TO_TRY = 2
# Number of single nodes that are tried in each group of alike nodes. One node is enough for the
# best place, and advice shows the others as equally good.
_ALIKE_NODES_TO_TRY = 3
# A place is not tried if an upper bound of its score is below this share of the best expected
# score. The score that measurements ensure for the best place is rarely below this share of its
# expected score.
_LEAST_SCORE_BOUND_SHARE = 0.7
# Number of other nodes, without cores of the place, on which pages are tried: the least used nodes
# come first.
_REMOTE_MEMORY_NODES_TO_TRY = 3
# Share of a node's memory that a program can get; the kernel and the page cache need the rest.
_USABLE_MEMORY_SHARE = 0.9
# The memory of a node counts as busy if other programs use at least this share of its bandwidth.
_BUSY_MEMORY_BANDWIDTH_SHARE = 0.3
# Relations of two nodes, from near to far.
_RELATIONS_NEAREST_FIRST = ("same_node", "same_package", "other_package")


def _score_of_place(place: ScoredPlace) -> float:
    return place[0]


class CandidatePlaces:
    """The places in which a program with a request could run.

    Args:
        request: what the program needs.
        topology: the topology of the host.
        drives: name of each drive -> its facts.
        busy_units: processing units whose cores run other programs.
        used: node -> share (0 to 1) of its memory bandwidth that other programs use.

    Raises:
        UserError: the host has too few free cores or drives, or too little memory.
    """

    def __init__(
        self,
        request: Request,
        topology: Topology,
        drives: Mapping[str, DriveFacts],
        busy_units: Iterable[int],
        used: Mapping[int, float],
    ) -> None:
        self.request, self.topology, self.drives, self.used = request, topology, drives, used
        self._free = self._free_units_by_node(set(busy_units))
        free = sum(map(len, self._free.values()))
        if not free:
            what = "no core is free: the machine has none, or the other programs use all"
            raise UserError(what, remedy="name fewer programs that run beside this one")
        if not 1 <= request.cores <= free:
            what = f"{format_count(request.cores, 'core')} requested, {free} are free"
            raise UserError(what, remedy=f"request 1 to {free} cores")
        memory = sum(node.size_bytes or 0 for node in topology.memory_nodes)
        if memory and request.memory_bytes > memory * _USABLE_MEMORY_SHARE:
            what = f"{format_binary_bytes(request.memory_bytes)} of memory requested"
            usable = f"{_USABLE_MEMORY_SHARE:.0%} of {format_binary_bytes(memory)}".replace(
                "%", " %"
            )
            raise UserError(what, remedy=f"request at most {usable}, which the host has")

    def _free_units_by_node(self, busy: set[int]) -> dict[int, list[int]]:
        """Return node -> a unit of each free core, from L3 domains in turn, fast cores first."""
        ranks = {kind.index: kind.speed_rank or (0, 0) for kind in self.topology.core_kinds}
        by_node: dict[int, dict[object, list[int]]] = defaultdict(lambda: defaultdict(list))
        fastest_first = sorted(
            self.topology.cores, key=lambda core: ranks.get(core.kind, (0, 0)), reverse=True
        )
        for core in fastest_first:
            node = self.topology.node_of_pu.get(core.cpus[0]) if core.cpus else None
            if node is not None and busy.isdisjoint(core.cpus):
                by_node[node][core.l3, ranks.get(core.kind)].append(core.cpus[0])
        return {node: take_in_turns(domains.values()) for node, domains in sorted(by_node.items())}

    @property
    def nodes(self) -> list[int]:
        """Return the nodes with free cores."""
        return [*self._free]

    def simplicity(self, place: Place, nodes: Sequence[int]) -> tuple[int, int, int, int]:
        """Return a sort key that puts the simplest of equally good places first.

        `nodes` are the nodes of the place's cores. A place is simple if it has few nodes and if its
        drives and pages are on these nodes.
        """
        far = {*self._nodes_of_drives(place.drives)} - {*nodes}
        return len(nodes), len(far), len(place.shares), len({*place.shares} - {*nodes})

    def units_on(self, nodes: Sequence[int], *, fewer: bool = False) -> CpuSet | None:
        """Return units for the requested cores, spread evenly over nodes, at least one on each.

        If the nodes have too few free cores, the result is None or, with `fewer`, all free cores.
        """
        wanted = self.request.cores
        enough = sum(len(self._free[node]) for node in nodes) >= wanted
        if not fewer and (len(nodes) > wanted or not enough):
            return None
        units = take_in_turns(self._free[node] for node in nodes)
        return make_cpu_set(units[:wanted])

    def places_on(self, nodes: Sequence[int], *, fewer: bool = False) -> Iterator[Place]:
        """Yield a place with cores on these nodes for each placement of the pages that is tried.

        With `fewer`, nodes may have fewer cores than the request.
        """
        if (cpus := self.units_on(nodes, fewer=fewer)) is None:
            return
        if self.request.goal == "drives":
            for drives in self._drive_sets(nodes):
                for shares in self.page_shares(nodes, self._nodes_of_drives(drives)):
                    yield Place(cpus, shares, drives)
            return
        if self.request.partitioned and self._pages_fit_into_memory(
            dict.fromkeys(nodes, 1 / len(nodes))
        ):
            yield Place(cpus)
        for shares in self.page_shares(nodes):
            yield Place(cpus, shares)

    def page_shares(
        self, nodes: Sequence[int], further: Sequence[int] = ()
    ) -> Iterator[dict[int, float]]:
        """Yield node -> share of the pages, for each placement to try with cores on `nodes`.

        Placements with all pages on a single node of `further` are also tried.
        """
        memory = [*self._memory_kind_by_node]
        here = [node for node in nodes if node in memory]
        near = [node for node in memory if self._nearest_relation(nodes, node) != "other_package"]
        alone = [node for node in memory if node not in self._nodes_with_cores]
        quiet = [node for node in memory if self.used.get(node, 0.0) < _BUSY_MEMORY_BANDWIDTH_SHARE]
        kinds = dict.fromkeys(self._memory_kind_by_node.values())
        of_each_kind = [
            [node for node in own if self._memory_kind_by_node[node] == kind]
            for own in (near, memory)
            for kind in kinds
            if len(kinds) > 1
        ]
        sets = [here, *of_each_kind, near, memory]
        sets += [[node for node in near if node in quiet], quiet]
        sets += [[node] for node in [*further, *self._least_used_memory_nodes(nodes)]]
        sets += [[*here, *(node for node in alone if node not in here)]]
        if self.request.goal == "latency":
            sets += [[node] for node in here]
        tried: set[tuple[int, ...]] = set()
        for each in sets:
            key = tuple(sorted({*each}))
            shares = dict.fromkeys(key, 1 / len(key)) if key else {}
            if key and key not in tried and self._pages_fit_into_memory(shares):
                tried.add(key)
                yield shares

    @cached_property
    def _memory_kind_by_node(self) -> dict[int, str]:
        """Return node -> the kind of its memory, such as DRAM, HBM or CXL."""
        return {node.os_index: node.kind for node in self.topology.memory_nodes}

    @cached_property
    def _usable_bytes_by_node(self) -> dict[int, float]:
        """Return node -> the bytes of its memory that a program can get; infinity if unknown."""
        return {
            node.os_index: (node.size_bytes or math.inf) * _USABLE_MEMORY_SHARE
            for node in self.topology.memory_nodes
        }

    @cached_property
    def _nodes_with_cores(self) -> set[int]:
        """Return the nodes with cores."""
        return {node.os_index for node in self.topology.initiator_nodes}

    def _least_used_memory_nodes(self, nodes: Sequence[int]) -> list[int]:
        """Return memory nodes other than `nodes`: the least used first, of these the nearest."""
        others = [node for node in self._memory_kind_by_node if node not in nodes]

        def use_and_distance(node: int) -> tuple[float, int, int]:
            relation = self._nearest_relation(nodes, node)
            return (
                round(self.used.get(node, 0.0), 1),
                _RELATIONS_NEAREST_FIRST.index(relation),
                node,
            )

        best = sorted(others, key=use_and_distance)
        # Each kind of memory is tried. The nodes are in reversed order, so that the best node of a
        # kind overwrites the others.
        first_of_kind = {self._memory_kind_by_node[node]: node for node in reversed(best)}
        return [*dict.fromkeys([*best[:_REMOTE_MEMORY_NODES_TO_TRY], *first_of_kind.values()])]

    def _nearest_relation(self, nodes: Sequence[int], node: int) -> str:
        """Return the relation of a node to the nearest of some nodes."""
        found = {self.topology.node_relation(each, node) for each in nodes}
        return next((each for each in _RELATIONS_NEAREST_FIRST if each in found), "other_package")

    def _pages_fit_into_memory(self, shares: Mapping[int, float]) -> bool:
        """Return whether the pages fit into the memory of their nodes."""
        return all(
            self.request.memory_bytes * share <= self._usable_bytes_by_node.get(node, -1.0)
            for node, share in shares.items()
        )

    def _nodes_of_drives(self, drives: Iterable[str]) -> list[int]:
        """Return the nodes of some drives, each node once."""
        nodes = (self.drives[drive]["node"] for drive in drives)
        return [*dict.fromkeys(node for node in nodes if node is not None)]

    def _drive_sets(self, nodes: Sequence[int]) -> list[tuple[str, ...]]:
        """Return the sets of drives to try: the requested drives, or sets of the requested number.

        One set contains the nearest drives. The other sets contain drives of all nodes in turn.
        """
        wanted = self.request.drives
        if isinstance(wanted, tuple):
            return [wanted]
        if not 1 <= wanted <= len(self.drives):
            what = f"{format_count(wanted, 'drive')} requested, the host has {len(self.drives)}"
            raise UserError(what, remedy="name drives of the host, or request fewer")
        by_node: dict[int | None, list[str]] = defaultdict(list)
        for name, facts in self.drives.items():
            by_node[facts["node"]].append(name)

        def distance_to_node(node: int | None) -> tuple[int, int]:
            if node is None:
                return len(_RELATIONS_NEAREST_FIRST), -1
            return _RELATIONS_NEAREST_FIRST.index(self._nearest_relation(nodes, node)), node

        groups = [by_node[node] for node in sorted(by_node, key=distance_to_node)]
        package = [
            by_node[node]
            for node in by_node
            if distance_to_node(node)[0] < _RELATIONS_NEAREST_FIRST.index("other_package")
        ]
        packed = [name for group in groups for name in group]
        turns = list(map(take_in_turns, (package, groups)))
        turns[0] += [name for name in packed if name not in turns[0]]
        return [*dict.fromkeys(tuple(names[:wanted]) for names in (packed, *turns))]

    def best_place_by_node_set(
        self, score: Score, sure_score: Score, score_bound: Score = lambda _: math.inf
    ) -> dict[tuple[int, ...], ScoredPlace]:
        """Return the best place on each set of nodes that was tried, with its score.

        The score of a place is the geometric mean of its expected score, which the model predicts,
        and its sure score, which measurements ensure. The sure score is never above the expected
        score.

        Args:
            score: returns the score that the model expects of a place.
            sure_score: returns the score that measurements ensure.
            score_bound: returns an upper bound of a place's score, and takes little time.

        Raises:
            UserError: no place has enough memory for the data.
        """
        found: dict[tuple[int, ...], ScoredPlace] = {}
        first: dict[tuple[int, ...], float] = {}
        known: dict[tuple[object, ...], float] = {}

        def expected_score(place: Place) -> float:
            key = place.cpus, *place.shares.items(), place.drives
            if key not in known:
                known[key] = score(place)
            return known[key]

        def try_all_places_on(nodes: Iterable[int]) -> None:
            key = tuple(sorted(nodes))
            if key in found:
                return
            expected: list[ScoredPlace] = []
            for place in sorted(self.places_on(key), key=score_bound, reverse=True):
                best = max(map(_score_of_place, expected), default=0.0)
                if score_bound(place) > best * _LEAST_SCORE_BOUND_SHARE:
                    expected.append((expected_score(place), place))
            sure: list[ScoredPlace] = []
            for value, place in sorted(expected, key=lambda own: -own[0]):
                if not sure or value > max(sure, key=_score_of_place)[0] * (
                    1 - LARGEST_DIFFERENCE_OF_EQUAL_SCORES
                ):
                    sure.append((math.sqrt(value * sure_score(place)), place))
            if sure:
                least = max(map(_score_of_place, sure)) * (1 - LARGEST_DIFFERENCE_OF_EQUAL_SCORES)
                equal = [own for own in sure if own[0] >= least]
                found[key] = min(equal, key=lambda own: self.simplicity(own[1], key))

        def try_first(nodes: Sequence[int]) -> float:
            """Return the best score of a few places on these nodes, even with too few cores.

            The first of these places has its pages on the given nodes. If the machine has several
            kinds of memory, one place for each kind follows.
            """
            key = tuple(sorted(nodes))
            if key not in first:
                kinds = len({*self._memory_kind_by_node.values()})
                count = 1 if kinds == 1 else 1 + kinds
                places = islice(self.places_on(key, fewer=True), count)
                first[key] = max(map(expected_score, places), default=0.0)
            return first[key]

        alike: Counter[object] = Counter()
        for node in self.nodes:
            alike[self._key_of_alike_nodes(node, try_first)] += 1
            if alike[self._key_of_alike_nodes(node, try_first)] <= _ALIKE_NODES_TO_TRY:
                try_all_places_on([node])
        for package in self.topology.packages:
            try_all_places_on([node for node in package.nodes if node in self._free])
        for nodes in (*self._growing_sets(try_first), *self._shrinking_sets(try_first)):
            try_all_places_on(nodes)
        by_package = [
            [*self._sets_that_fill_a_package(own, try_first)] for own in self.topology.packages
        ]
        best_first = sorted(chain(*by_package), key=try_first, reverse=True)
        smallest = [own[0] for own in by_package if own]
        for nodes in (*best_first[:_PACKAGE_SETS_TO_TRY], *smallest):
            try_all_places_on(nodes)
        for _ in range(_MOST_IMPROVEMENTS if found else 0):
            best = max(found, key=lambda nodes: found[nodes][0])
            now, place = found[best]
            scores = {
                nodes: max(
                    expected_score(self._place_on_other_nodes(place, nodes)), try_first(nodes)
                )
                for nodes in self._neighbouring_sets(best, try_first)
                if nodes not in found
            }
            better = [
                nodes
                for nodes in scores
                if scores[nodes] > now * (1 + _LEAST_GAIN_BY_FURTHER_NODES)
            ]
            if not better:
                break
            for each in sorted(better, key=lambda nodes: -scores[nodes])[:_TRIED_NEIGHBOURS]:
                try_all_places_on(each)
        if not found:
            size = format_binary_bytes(self.request.memory_bytes)
            what = f"no place with these cores has {size} of memory"
            raise UserError(what, remedy="request less memory, or more cores")
        return found

    def _first_of_alike_nodes(self, nodes: Iterable[int], score: SetScore) -> list[int]:
        """Return the first node of each group of alike nodes, see `_key_of_alike_nodes`."""
        kinds: dict[object, int] = {}
        for node in nodes:
            kinds.setdefault(self._key_of_alike_nodes(node, score), node)
        return [*kinds.values()]

    def _key_of_alike_nodes(self, node: int, score: SetScore) -> object:
        """Return a key that alike nodes share: package, score and number of free cores."""
        package = self.topology.package_of_node.get(node)
        return package, f"{score([node]):.5g}", len(self._free[node])

    def _sets_that_fill_a_package(self, package: Package, score: SetScore) -> Iterator[list[int]]:
        """Yield sets of nodes with enough cores that fill one package before the next package.

        The best nodes come first, and each set has one node more than the set before.
        """
        order = sorted(self.nodes, key=lambda node: (node not in package.nodes, -score([node])))
        for number in range(1, len(order) + 1):
            if self.units_on(order[:number]):
                yield order[:number]

    def _growing_sets(self, score: SetScore) -> Iterator[list[int]]:
        """Yield sets of nodes, each with the best other node added to the set before."""
        nodes: list[int] = []
        best, unchanged = 0.0, 0
        while unchanged < 2 and len(nodes) < min(len(self.nodes), self.request.cores):
            left = self._first_of_alike_nodes(
                (node for node in self.nodes if node not in nodes), score
            )
            nodes = [*nodes, max(left, key=lambda node: score([*nodes, node]))]
            if self.units_on(nodes):
                yield nodes
                now = score(nodes)
                unchanged = 0 if now > best * (1 + _LEAST_GAIN_BY_FURTHER_NODES) else unchanged + 1
                best = max(best, now)

    def _shrinking_sets(self, score: SetScore) -> Iterator[list[int]]:
        """Yield sets of nodes, each with the worst node removed from the set before."""
        best_first = sorted(self.nodes, key=lambda node: -score([node]))
        nodes = best_first[: self.request.cores]
        best, unchanged = 0.0, 0
        while unchanged < 2 and self.units_on(nodes):
            yield nodes
            now = score(nodes)
            unchanged = 0 if now > best * (1 + _LEAST_GAIN_BY_FURTHER_NODES) else unchanged + 1
            best = max(best, now)
            if len(nodes) == 1:
                return
            less = (
                [node for node in nodes if node != own]
                for own in self._first_of_alike_nodes(nodes, score)
            )
            nodes = max(less, key=score)

    def _neighbouring_sets(
        self, nodes: Sequence[int], score: SetScore
    ) -> Iterator[tuple[int, ...]]:
        """Yield sets of nodes with enough cores: one node added, removed or replaced."""
        others = self._first_of_alike_nodes(
            (node for node in self.nodes if node not in nodes), score
        )
        fewer = [
            [own for own in nodes if own != node]
            for node in self._first_of_alike_nodes(nodes, score)
        ]
        sets = [*fewer, *([*own, other] for own in ([*nodes], *fewer) for other in others)]
        for each in sets:
            if each and self.units_on(each):
                yield tuple(sorted(each))

    def _place_on_other_nodes(self, place: Place, nodes: Sequence[int]) -> Place:
        """Return a place with its cores moved to other nodes and its pages on the same nodes."""
        return replace(place, cpus=self.units_on(nodes) or place.cpus)
