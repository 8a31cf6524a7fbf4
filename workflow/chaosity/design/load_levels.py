"""Levels of what an experiment varies beside initiator, target and kernel: sizes and parameters.

Sizes are said in terms of the host (`{times: 0.5, of: l1}`), so that one experiment suits all. What
a host cannot give, such as huge pages that nobody reserved, is left out with a note in the plan and
never swapped for something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from chaosity.benchmarks import Benchmark
from chaosity.config import suggest_allowed
from chaosity.cpusets import format_cpu_list
from chaosity.design.endpoints import Initiator
from chaosity.design.host_resources import HostResources
from chaosity.design.sampling import evenly_spread
from chaosity.errors import UserError
from chaosity.topology.host_model import Topology
from chaosity.units import format_binary_bytes, format_exact_bytes

if TYPE_CHECKING:
    from chaosity.design.load_combinations import ChosenLoad

T = TypeVar("T")
# Sizes are whole KiB, which is a multiple of every cache line there is.
GRAIN_BYTES = 1024
# Where the topology does not tell a cache's size, as some virtual machines: those of most servers.
USUAL_CACHE_BYTES = {"l1": 32 * 1024, "l2": 1024 * 1024, "l3": 32 * 1024 * 1024}
HUGE_PAGES = {"2M": 2 * 1024 * 1024, "1G": 1024 * 1024 * 1024}

Level = tuple[tuple[str, Any], ...]


class PlanNotes:
    """What a plan leaves out and why, each once."""

    def __init__(self) -> None:
        self._nodes: dict[str, set[int]] = {}

    def add(self, text: str, nodes: Iterable[int] = ()) -> None:
        """Remember a note; of one that holds for several nodes, these are put behind it."""
        self._nodes.setdefault(text, set()).update(nodes)

    @property
    def texts(self) -> list[str]:
        """The notes in the order in which they came."""
        return [
            f"{text} on node{format_cpu_list(sorted(nodes))}" if nodes else text
            for text, nodes in self._nodes.items()
        ]

    def fewer(self, found: Sequence[T], at_most: int | None, what: str) -> list[T]:
        """At most so many levels, evenly spread, with a note when some are left out."""
        taken = evenly_spread(found, len(found) if at_most is None else at_most)
        if len(taken) < len(found):
            self.add(f"{what}, {len(taken)} of {len(found)}, evenly spread (levels in the config)")
        return taken


class LoadLevels:
    """The levels of one load of an experiment's file.

    Args:
        host: its caches, nodes and huge pages.
        benchmark: that serves the load; what is varied are its parameters.
        config: the checked config.
        fewer: at most so many levels of what is named, from the config's `levels`.
        notes: takes what is left out.
        where: the load's place in the file, for errors.
        told: the load in a few words, for notes.
    """

    def __init__(
        self,
        host: HostResources,
        benchmark: Benchmark,
        config: Mapping[str, Any],
        fewer: Mapping[str, int],
        notes: PlanNotes,
        where: str,
        told: str,
    ) -> None:
        self.host, self.benchmark, self.config = host, benchmark, config
        self.fewer, self.notes, self.where, self.told = fewer, notes, where, told

    def of(self, spec: Mapping[str, Any], members: Sequence[ChosenLoad]) -> list[Level]:
        """Every combination of levels, for loads that run together (or a single one).

        Raises:
            UserError: the benchmark has no such parameter, or the pages that it is to use are not
                there and no others were asked for.
        """
        vary = spec.get("vary", {})
        for name in vary:
            if name not in self.benchmark.parameters:
                raise UserError(
                    f"{self.benchmark.name} has no parameter {name!r}",
                    f"{self.where}.vary",
                    suggest_allowed(name, self.benchmark.parameters),
                )
        factors: dict[str, Sequence[Any]] = {}
        if "sizes" in spec:
            factors["bytes"] = self._sizes(spec["sizes"], members)
        factors |= {**vary, **self._pages(vary, members), **self._buffers(vary, members)}
        factors = {name: self._fewer(name, levels) for name, levels in factors.items()}
        return [tuple(zip(factors, one, strict=True)) for one in product(*factors.values())]

    def _fewer(self, name: str, levels: Sequence[T]) -> list[T]:
        return self.notes.fewer(levels, self.fewer.get(name), f"{self.told}: {name}")

    def _sizes(self, spec: Any, members: Sequence[ChosenLoad]) -> list[int]:
        """Working-set sizes in bytes, ascending; those that do not fit the node are left out."""
        first, room = members[0].initiator, self._room(members)
        if isinstance(spec, list):
            wanted = [self._size(one, first, room) for one in spec]
        else:
            low, high = (self._size(spec[end], first, room) for end in ("from", "to"))
            steps = spec.get("per_doubling", 1)
            # From a power of two on, so that sizes are round and the same on different hosts.
            begin = 2 ** math.floor(math.log2(low))
            count = max(0, math.floor(math.log2(max(high, 1) / begin) * steps + 1e-9))
            wanted = [begin * 2 ** (step / steps) for step in range(count + 1)]
        # A little more than the quotient, so that a whole number that rounding missed stays one.
        sizes = sorted({int(size / GRAIN_BYTES + 1e-6) * GRAIN_BYTES for size in wanted})
        most = min(room, self.config["working_set"]["sweep_at_most_bytes"] or math.inf)
        found = [size for size in sizes if size <= most]
        if len(found) < len(sizes):
            self.notes.add(
                f"{self.told}: sizes above {format_binary_bytes(most)} are left out (working_set in the"
                " config: at_most_share_of_node, sweep_at_most_bytes)"
            )
        return found

    def _room(self, members: Sequence[ChosenLoad]) -> float:
        """Bytes that each of the loads may take on its node."""
        share = self.config["working_set"]["at_most_share_of_node"]
        used = [node for member in members for node in member.target.nodes]
        sizes = {node: self.host.memory_bytes(node) for node in used}
        rooms = (share * size / used.count(node) for node, size in sizes.items() if size)
        return min(rooms, default=math.inf)

    def _size(self, spec: Any, initiator: Initiator, room: float) -> float:
        """A size in bytes from a number or from what it is a multiple of."""
        if isinstance(spec, int):
            return spec
        of = spec["of"]
        if of == "node":
            share = self.config["working_set"]["at_most_share_of_node"]
            whole = room / share if math.isfinite(room) else USUAL_CACHE_BYTES["l3"]
            return min(spec["times"] * whole, room)
        known = self.host.cache_bytes(initiator, int(of[1:])) or USUAL_CACHE_BYTES[of]
        return spec["times"] * known

    def _pages(
        self, vary: Mapping[str, Sequence[Any]], members: Sequence[ChosenLoad]
    ) -> dict[str, list[Any]]:
        """The kinds of pages that the host has, of those that an experiment varies; else nothing.

        Raises:
            UserError: the config asks for pages that the host has not.
        """
        nodes = {node for member in members for node in member.target.nodes}
        topology = self.host.topology
        if "pages" not in vary:
            pages = self.benchmark.parameters.get("pages")
            if lack := lacking_pages(topology, pages, nodes):
                notes = PlanNotes()
                notes.add(*lack)
                raise UserError(
                    *notes.texts,
                    f"parameters of {self.benchmark.name}, pages: {pages}",
                    "reserve them (host_state_huge_pages, configure.yml) or choose other pages",
                )
            return {}
        found = []
        for pages in vary["pages"]:
            lack = lacking_pages(topology, pages, nodes)
            if lack is None:
                found.append(pages)
            else:
                reason, where = lack
                self.notes.add(f"{self.told}: pages {pages} left out, since {reason}", where)
        return {"pages": found}

    def _buffers(
        self, vary: Mapping[str, Sequence[Any]], members: Sequence[ChosenLoad]
    ) -> dict[str, list[Any]]:
        """The places for buffers that the host has, of those that an experiment varies."""
        found = []
        for place in vary.get("buffers", []):
            if all(self.host.buffer_nodes(member.initiator, place) for member in members):
                found.append(place)
            else:
                reason = "there is no such node with memory"
                self.notes.add(f"{self.told}: buffers {place} left out, since {reason}")
        return {"buffers": found} if "buffers" in vary else {}


def lacking_pages(topology: Topology, pages: Any, nodes: set[int]) -> tuple[str, list[int]] | None:
    """Why a host cannot give these pages, and on which nodes; None when it can, or nobody knows.

    Whether enough of them are free is known only when the point runs, and then fails it.
    """
    settings = topology.host.get("memory_settings") or {}
    if pages == "thp" and settings.get("transparent_huge_pages") == "never":
        return "transparent huge pages are switched off (never)", []
    size = HUGE_PAGES.get(str(pages))
    pools = topology.huge_page_pools
    if size is None or not pools:
        return None
    reserved = {pool.node for pool in pools if pool.page_bytes == size and pool.pages > 0}
    lacking = sorted(nodes - reserved)
    if None in reserved or not lacking:  # None: only the machine's total is known
        return None
    return f"no huge page of {format_binary_bytes(size)} is reserved", lacking


def level_text(name: str, level: Any) -> str:
    """A level as it stands in a point's name: sizes as 64MiB, all else as it is."""
    return format_exact_bytes(level) if name == "bytes" else str(level)
