"""Find the levels of an experiment's factors other than initiator, target and kernel.

These are sizes of working sets, kinds of pages, positions of buffers and benchmark parameters.

Sizes are relative to the host (`{times: 0.5, of: l1}`), so that an experiment suits every host.
Levels that a host cannot provide, such as huge pages that are not reserved, are left out with a
note in the plan. No other level replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from chaosity.benchmarks.benchmark_templates import Benchmark
from chaosity.design.even_samples_and_plan_notes import PlanNotes, note_with_nodes
from chaosity.design.host_resources import HostResources
from chaosity.design.initiator_and_target_types import Initiator
from chaosity.design.initiator_selectors import EarlierEndpoints, compares_smt
from chaosity.design.point_loads import ChosenLoad, LoadGroup
from chaosity.documents.config import Config
from chaosity.documents.experiments import LoadDesign, WorkingSet, WorkingSetRange
from chaosity.errors import UserError, check_allowed
from chaosity.records.point_types import Level
from chaosity.topology.topology_model import Topology
from chaosity.units import format_binary_bytes

# Sizes are whole KiB, which are multiples of every cache line.
_GRAIN_BYTES = 1024
# Cache sizes of most servers, for topologies without them, as in some virtual machines.
_USUAL_CACHE_BYTES = {"l1": 32 * 1024, "l2": 1024 * 1024, "l3": 32 * 1024 * 1024}
_HUGE_PAGES = {"2M": 2 * 1024 * 1024, "1G": 1024 * 1024 * 1024}

# A combination: the name and the level of each factor.
Levels = tuple[tuple[str, Level], ...]


@dataclass(frozen=True)
class DesignedLoad:
    """One load of an experiment's file, and the levels that vary for it."""

    role: str  # role of the load in its point
    spec: LoadDesign  # the load in the file
    host: HostResources  # resources of the host, such as caches, nodes and huge pages
    benchmark: Benchmark  # benchmark of the load; an experiment can vary its parameters
    config: Config  # the checked config
    earlier: EarlierEndpoints  # endpoints of the loads before it
    kernels: Sequence[str | None]  # kernels that are measured
    at_most: Mapping[str, int]  # factor -> maximum number of its levels (`levels` in the config)
    notes: PlanNotes  # collects notes on levels that are left out
    where: str  # place of the load in the experiment's file, for errors
    label: str  # short description of the load, for notes

    def load_group_of_each_kernel_and_levels(
        self, initiator: str, members: Sequence[ChosenLoad]
    ) -> Iterator[LoadGroup]:
        """Yield, for every kernel and combination of levels, a group with a load of each member.

        Raises:
            UserError: the benchmark has no such parameter, or the host does not have the pages that
                the config asks for.
        """
        for kernel, levels in product(self.kernels, self._level_combinations(members)):
            chosen = tuple(
                replace(member, kernel=kernel, levels=(*member.levels, *levels))
                for member in members
            )
            yield LoadGroup(self.role, initiator, chosen)

    def _level_combinations(self, members: Sequence[ChosenLoad]) -> list[Levels]:
        """Return every combination of levels, for loads that run together or for a single load."""
        spec = self.spec
        vary = spec.get("vary", {})
        known, where = self.benchmark.parameters, f"{self.where}.vary"
        for name in vary:
            check_allowed(name, known, f"{self.benchmark.name} has no parameter {name!r}", where)
        factors: dict[str, Sequence[Level]] = {}
        if "sizes" in spec:
            factors["bytes"] = self._sizes(spec["sizes"], members)
        factors |= {**vary, **self._pages(vary, members), **self._buffers(vary, members)}
        if compares_smt(spec["initiator"], self.host):  # single loads and groups use the same names
            uses_siblings = self.host.uses_smt_siblings(members[0].initiator)
            factors["smt"] = ["all_siblings" if uses_siblings else "one_thread_per_core"]
        limited = {
            name: self.notes.limit_levels(levels, self.at_most.get(name), f"{self.label}: {name}")
            for name, levels in factors.items()
        }
        return [tuple(zip(limited, levels, strict=True)) for levels in product(*limited.values())]

    def _sizes(
        self, spec: list[WorkingSet] | WorkingSetRange, members: Sequence[ChosenLoad]
    ) -> list[int]:
        """Return the working-set sizes in bytes that fit on the node, ascending."""
        first, room = members[0].initiator, self._room(members)
        if isinstance(spec, list):
            wanted = [self._size(size, first, room) for size in spec]
        else:
            low, high = self._size(spec["from"], first, room), self._size(spec["to"], first, room)
            steps = spec.get("per_doubling", 1)
            # Sizes start at a power of two, so that they are round and the same on different hosts.
            begin = 2 ** math.floor(math.log2(low))
            count = max(0, math.floor(math.log2(max(high, 1) / begin) * steps + 1e-9))
            wanted = [begin * 2 ** (step / steps) for step in range(count + 1)]
        # 1e-6 is added, so that a whole quotient is not rounded down to the next smaller number.
        sizes = sorted({int(size / _GRAIN_BYTES + 1e-6) * _GRAIN_BYTES for size in wanted})
        largest = min(room, self.config["working_set"]["sweep_at_most_bytes"] or math.inf)
        found = [size for size in sizes if size <= largest]
        if len(found) < len(sizes):
            limit = format_binary_bytes(largest)
            self.notes.add_note(
                f"{self.label}: sizes above {limit} are left out (working_set in the config:"
                " at_most_share_of_node, sweep_at_most_bytes)"
            )
        return found

    def _room(self, members: Sequence[ChosenLoad]) -> float:
        """Return the number of bytes that each of the loads may use on its node."""
        share = self.config["working_set"]["at_most_share_of_node"]
        used = [node for member in members for node in member.target.nodes]
        sizes = {node: self.host.memory_bytes(node) for node in used}
        rooms = (share * size / used.count(node) for node, size in sizes.items() if size)
        return min(rooms, default=math.inf)

    def _size(self, size: WorkingSet, initiator: Initiator, room: float) -> float:
        """Return a size of the experiment's file in bytes."""
        if isinstance(size, int):
            return size
        if size["of"] == "node":
            share = self.config["working_set"]["at_most_share_of_node"]
            whole = room / share if math.isfinite(room) else _USUAL_CACHE_BYTES["l3"]
            return min(size["times"] * whole, room)
        level = int(size["of"][1:])
        known = self.host.topology.data_cache_bytes.get((initiator.cpus[0], level))
        return size["times"] * (known or _USUAL_CACHE_BYTES[size["of"]])

    def _pages(
        self, vary: Mapping[str, Sequence[Level]], members: Sequence[ChosenLoad]
    ) -> dict[str, list[Level]]:
        """Return the kinds of pages that the experiment varies and the host has."""
        memory = [member.buffers or member.target for member in members]
        nodes = {node for target in memory for node in target.nodes}
        found: list[Level] = []
        if "pages" not in vary:
            pages = self.benchmark.parameters.get("pages")
            if missing := _missing_pages(self.host.topology, pages, nodes):
                where = f"parameters of {self.benchmark.name}, pages: {pages}"
                variable = "host_state_huge_pages, playbooks/configure.yml"
                remedy = f"reserve them ({variable}) or choose other pages"
                raise UserError(note_with_nodes(*missing), where, remedy)
            return {}
        for pages in vary["pages"]:
            if missing := _missing_pages(self.host.topology, pages, nodes):
                reason, on = missing
                self.notes.add_note(f"{self.label}: pages {pages} left out, since {reason}", on)
            else:
                found.append(pages)
        return {"pages": found}

    def _buffers(
        self, vary: Mapping[str, Sequence[Level]], members: Sequence[ChosenLoad]
    ) -> dict[str, list[Level]]:
        """Return the positions of buffers that the experiment varies and the host has."""
        found = []
        for buffers in vary.get("buffers", []):
            if all(self.host.buffer_nodes(member.initiator, str(buffers)) for member in members):
                found.append(buffers)
            else:
                reason = "there is no such node with memory"
                self.notes.add_note(f"{self.label}: buffers {buffers} left out, since {reason}")
        return {"buffers": found} if "buffers" in vary else {}


def _missing_pages(
    topology: Topology, pages: Level | None, nodes: Iterable[int]
) -> tuple[str, list[int]] | None:
    """Return why a host cannot provide these pages, and on which nodes; None if it can.

    If too few of these pages are free when the point runs, the point fails.
    """
    settings = topology.host.get("memory_settings") or {}
    if pages == "thp" and settings.get("transparent_huge_pages") == "never":
        return "transparent huge pages are switched off (never)", []
    size = _HUGE_PAGES.get(str(pages))
    pools = topology.huge_page_pools
    if size is None or not pools:
        return None
    reserved = {pool.node for pool in pools if pool.page_bytes == size and pool.pages > 0}
    missing = sorted(set(nodes) - reserved)
    if None in reserved or not missing:  # None: only the total of the machine is known
        return None
    return f"no huge page of {format_binary_bytes(size)} is reserved", missing
