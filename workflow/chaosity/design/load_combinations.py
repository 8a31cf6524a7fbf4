"""Find all combinations of loads that a design of an experiment asks for on a host.

Sizes of working sets can be relative to the host (`{times: 0.5, of: l1}`), so that an experiment
suits every host. Levels that a host cannot provide, such as huge pages that are not reserved, are
left out with a note in the plan. No other level replaces a level that is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeVar, cast

from chaosity.design.benchmark_templates import LoadMaker
from chaosity.design.chosen_loads import (
    ChosenLoad,
    Combination,
    Endpoint,
    Initiator,
    LoadsOfRole,
    Target,
)
from chaosity.design.host_resources import HostResources
from chaosity.design.samples import PlanNotes, note_with_nodes, pick_evenly_spread
from chaosity.design.selectors import (
    EarlierEndpoints,
    LoadSelector,
    WeightsLookup,
    as_list,
    compares_smt,
    name_of_all_initiators,
    notes_on_missing_weights,
    select_initiator_sets,
)
from chaosity.documents.config import Config
from chaosity.documents.experiments import LoadDesign, TargetSelector, WorkingSet, WorkingSetRange
from chaosity.documents.shipped_documents import BENCHMARKS_FOLDER, load_benchmark, yaml_file_names
from chaosity.errors import (
    CannotMeasureDesignError,
    UserError,
    check_name_is_allowed,
    suggest_allowed_names,
)
from chaosity.records.record_format import Level
from chaosity.topology.topology_model import Topology
from chaosity.units import format_binary_bytes

T = TypeVar("T")
PLATFORM_TEXTS = {"linux": "Linux", "darwin": "macOS"}
# Working-set sizes are multiples of 1 KiB, and so of the size of any cache line.
_SIZE_STEP_BYTES = 1024
# Cache sizes of most servers; used if the topology has no cache sizes, as in some virtual machines.
_DEFAULT_CACHE_BYTES = {"l1": 32 * 1024, "l2": 1024 * 1024, "l3": 32 * 1024 * 1024}
_HUGE_PAGE_BYTES_BY_KIND = {"2M": 2 * 1024 * 1024, "1G": 1024 * 1024 * 1024}


@dataclass
class LoadCombinations:
    """Finds all combinations of loads that a design asks for on a host."""

    host: HostResources  # initiators, nodes and drives of the host
    benchmarks: Mapping[str, LoadMaker]  # category of loads -> its benchmark
    config: Config  # the checked config
    # Function that returns measured weights for placements of pages; None without measured weights.
    weights: WeightsLookup | None = None
    # Notes on points and levels that were left out, with the reasons.
    plan_notes: PlanNotes = field(default_factory=PlanNotes)

    def iterate_combinations(
        self,
        experiment: str,
        loads: Mapping[str, LoadDesign],
        where: str,
        chosen: Combination | None = None,
    ) -> Iterator[Combination]:
        """Yield every combination of loads that contains the `chosen` loads, in the file's order.

        Raises:
            UserError: this host has nothing that a selector selects, or the benchmark lacks a
                kernel or a parameter.
        """
        chosen = chosen or {}
        role = next((name for name in loads if name not in chosen), None)
        if role is None:
            yield chosen
            return
        earlier = {name: group.initiator_and_target for name, group in chosen.items()}
        place = f"{where}.loads.{role}"
        benchmark = self._benchmark_of_category(loads[role]["category"], f"{place}.category")
        load = _DesignedLoad(self, experiment, role, loads[role], benchmark, earlier, place)
        for group in load.choices_of_loads():
            yield from self.iterate_combinations(experiment, loads, where, {**chosen, role: group})

    def _benchmark_of_category(self, category: str, where: str) -> LoadMaker:
        """Return the config's benchmark for a category; refuse one for another operating system."""
        unknown = f"no benchmark for the category {category!r} in the config"
        check_name_is_allowed(category, self.benchmarks, unknown, where)
        found, host = self.benchmarks[category], self.host.topology.os_family
        if found.operating_system_of_commands != host:
            benchmark_system = PLATFORM_TEXTS[found.operating_system_of_commands]
            host_system = PLATFORM_TEXTS[host]
            file = "config/darwin.yaml" if host == "darwin" else "the default config"
            raise UserError(
                f"{found.name} is for {benchmark_system}, but this host runs {host_system}",
                where,
                f"choose another benchmark for {category}; {file} has those for {host_system}",
            )
        return found


@dataclass(frozen=True)
class _DesignedLoad:
    """One load in an experiment's file, with methods that find all choices for this load."""

    plan: LoadCombinations
    experiment: str
    role: str  # role of the load in its point
    spec: LoadDesign  # the entry of the load in the experiment's file
    benchmark: LoadMaker  # benchmark of the load
    earlier: EarlierEndpoints  # endpoints of loads that come before this load in the file
    where: str  # place of the load in the experiment's file, for error messages

    @property
    def _host(self) -> HostResources:
        return self.plan.host

    def _add_plan_note(self, text: str, nodes: Iterable[int] = ()) -> None:
        self.plan.plan_notes.add_note(f"{self.experiment}, {self.role}: {text}", nodes)

    def choices_of_loads(self) -> Iterator[LoadsOfRole]:
        """Yield all choices for the load: single loads, or groups of loads that run together."""
        kernels = self._sample_of_levels("kernel", self._requested_kernels(), "kernels")
        sets = select_initiator_sets(self.spec["initiator"], self._host, self.where)
        self._note_missing_devices()
        if self.spec.get("together"):
            for name, initiators in self._all_initiators() if sets is None else sets:
                members = [
                    chosen for one in initiators for chosen in self._choices_for_initiator(one)
                ]
                if len(members) != len(initiators):
                    what = "loads that run together need one target each"
                    raise UserError(what, f"{self.where}.target")
                yield from self._with_levels(name, members, kernels)
            return
        if sets is not None:
            what = "in_each_set_of needs loads that run together"
            raise UserError(what, self.where, "add the key together")
        for initiator in self._make_selector(self.earlier).select_initiators(
            self.spec["initiator"]
        ):
            for chosen in self._choices_for_initiator(initiator):
                if chosen.target.kind == "none":
                    yield LoadsOfRole(self.role, initiator.name, (chosen,))
                else:
                    yield from self._with_levels(initiator.name, [chosen], kernels)

    def _make_selector(self, earlier: EarlierEndpoints, key: str = "") -> LoadSelector:
        return LoadSelector(self._host, earlier, self.where + key, self.plan.weights)

    def _sample_of_levels(self, name: str, levels: Sequence[T], what: str) -> list[T]:
        """Return as many of the levels of a factor as the config allows, evenly spread."""
        at_most = (self.plan.config["levels"] or {}).get(self.experiment, {}).get(name)
        taken = pick_evenly_spread(levels, at_most)
        if len(taken) < len(levels):
            count = f"{len(taken)} of {len(levels)}"
            self._add_plan_note(f"{what}: {count} levels, evenly spread (`levels` in the config)")
        return taken

    def _all_initiators(self) -> list[tuple[str, list[Initiator]]]:
        """Return all initiators of a load as one named set; an empty list for fewer than two."""
        selectors = self.spec["initiator"]
        found = self._make_selector(self.earlier).select_initiators(selectors)
        if len(found) < 2 and self.spec["together"] is True:
            self._add_plan_note("no concurrent points, since there are fewer than two initiators")
            return []
        return [(name_of_all_initiators(selectors, self._host), found)]

    def _choices_for_initiator(self, initiator: Initiator) -> Iterator[ChosenLoad]:
        """Yield all choices of target, responder and buffers for an initiator."""
        endpoints: dict[str, Endpoint] = {"initiator": initiator}
        earlier = {**self.earlier, self.role: endpoints}
        targets = self._make_selector(earlier).select_targets(self.spec["target"], initiator)
        self._note_missing_weights(targets)
        responders: list[Initiator | None] = [None]
        if "responder" in self.spec:
            select = self._make_selector(earlier, ".responder")
            found = select.select_initiators(self.spec["responder"])
            responders = [one for one in found if not set(one.cpus) & set(initiator.cpus)]
        for target in filter(self._is_measurable_by_benchmark, targets):
            if target.kind == "none":
                yield ChosenLoad(initiator, target)
                continue
            for responder in responders:
                chosen = ChosenLoad(initiator, target, responder=responder)
                yield from self._with_buffers(chosen, earlier)

    def _with_buffers(self, chosen: ChosenLoad, earlier: EarlierEndpoints) -> Iterator[ChosenLoad]:
        """Yield the load with each memory that `buffers` selects; unchanged without this key."""
        spec, where = self.spec, f"{self.where}.buffers"
        if "buffers" not in spec:
            yield chosen
            return
        if not chosen.target.is_drive_set:
            raise UserError("only loads on drives have buffers", where, "remove the key buffers")
        if "buffers" in spec.get("vary", {}):
            raise UserError(
                "the key vary also has the key buffers", where, "remove one key buffers"
            )
        if not any("target.page_nodes" in word for word in self.benchmark.document["command"]):
            wrong = f"{self.benchmark.name} does not place its buffers"
            raise CannotMeasureDesignError(wrong, where, "choose another benchmark")
        if len(self._host.topology.memory_nodes) < 2:
            self._add_plan_note("no places of buffers to compare, since one node has all memory")
            return
        ends = {**earlier, self.role: {**earlier[self.role], "target": chosen.target}}
        buffers = cast(
            TargetSelector, spec["buffers"]
        )  # a selector of buffers has some of the keys of a selector of targets
        for memory in self._make_selector(ends, ".buffers").select_targets(
            buffers, chosen.initiator
        ):
            yield replace(chosen, buffers=memory, levels=(("buffers", memory.name),))

    # Notes on what is left out

    def _note_missing_weights(self, found: Sequence[Target]) -> None:
        """Add notes on placements that were left out, and on what to measure for them."""
        names = {target.name for target in found}
        for selector in as_list(self.spec["target"]):
            policies = selector.get("policies", [])
            if policies and len(self._host.topology.memory_nodes) < 2:
                self._add_plan_note("only first touch, since one node has all memory")
                continue
            missing = [name for name in policies if name not in names]
            sources = selector.get("weights_from", {})
            experiments = self.plan.config["experiments"]
            for text in notes_on_missing_weights(missing, sources, experiments):
                self._add_plan_note(text)

    def _is_measurable_by_benchmark(self, target: Target) -> bool:
        """Return whether the benchmark can measure devices of this vendor, or add a note."""
        vendor = self.benchmark.document.get("device_vendor")
        if target.device is None or vendor in (None, target.device.vendor):
            return True
        what = f"{self.benchmark.name} measures only devices of {vendor}"
        self.plan.plan_notes.add_note(f"{what}, so {target.name} is left out")
        return False

    def _note_missing_devices(self) -> None:
        """Add notes on why a load that asks for writable drives or OpenCL devices gets none."""
        selectors = as_list(self.spec["target"])
        writable = any(drive.get("destructive") for drive in self._host.drives)
        if not writable and any(one.get("drives", {}).get("writable") for one in selectors):
            self._add_plan_note(
                "no drive may be written, since the host's chaosity_destructive_drives names none"
            )
        if not self._host.topology.opencl_devices and any("opencl" in one for one in selectors):
            self._add_plan_note(
                "this host has no OpenCL device; install the driver of the GPU's vendor, or PoCL"
                " (package pocl-opencl-icd), a driver for processors, and run ansible-playbook"
                " provision.yml, which builds the program that lists devices"
            )

    # Levels of factors

    def _requested_kernels(self) -> Sequence[str | None]:
        """Return the requested kernels that the benchmark has, and add a note on all others."""
        benchmark, wanted = self.benchmark, self.spec.get("kernel")
        if not benchmark.kernels:
            return [None]
        if not wanted:
            remedy = suggest_allowed_names("", benchmark.kernels)
            raise UserError(f"{benchmark.name} needs a kernel", self.where, remedy)
        missing = [kernel for kernel in wanted if kernel not in benchmark.kernels]
        listed = ", ".join(missing)
        if len(missing) == len(wanted):
            remedy = suggest_allowed_names(missing[0], benchmark.kernels)
            wrong, place = f"{benchmark.name} has no kernel {listed}", f"{self.where}.kernel"
            others = (load_benchmark(name) for name in yaml_file_names(BENCHMARKS_FOLDER))
            known = {kernel for other in others for kernel in other.get("kernels", {})}
            error = CannotMeasureDesignError if known.issuperset(missing) else UserError
            raise error(wrong, place, remedy)
        if missing:
            reason = f"since {benchmark.name} does not have them"
            self.plan.plan_notes.add_note(f"{self.where}: {listed} left out, {reason}")
        return [kernel for kernel in wanted if kernel in benchmark.kernels]

    def _with_levels(
        self, initiator: str, members: Sequence[ChosenLoad], kernels: Sequence[str | None]
    ) -> Iterator[LoadsOfRole]:
        """Yield for each kernel and combination of levels a group with a load for each member."""
        spec, vary, first = self.spec, self.spec.get("vary", {}), members[0]
        known, where = self.benchmark.parameters, f"{self.where}.vary"
        for name in vary:
            check_name_is_allowed(
                name, known, f"{self.benchmark.name} has no parameter {name!r}", where
            )
        factors: dict[str, Sequence[Level]] = {}
        if "sizes" in spec:
            factors["bytes"] = self._working_set_sizes(spec["sizes"], members)
        factors |= {**vary, **self._page_kinds_to_vary(vary, members)}
        if "buffers" in vary:
            factors["buffers"] = self._buffer_positions_to_vary(vary["buffers"], members)
        # The factor `smt` is added for single loads and for loads that run together, so that the
        # names of their levels are equal.
        if compares_smt(spec["initiator"], self._host):
            uses_siblings = self._host.uses_smt_siblings(first.initiator)
            factors["smt"] = ["all_siblings" if uses_siblings else "one_thread_per_core"]
        limited = {
            name: self._sample_of_levels(name, levels, name) for name, levels in factors.items()
        }
        for kernel, chosen in product(kernels, product(*limited.values())):
            levels = tuple(zip(limited, chosen, strict=True))
            loads = (replace(one, kernel=kernel, levels=(*one.levels, *levels)) for one in members)
            yield LoadsOfRole(self.role, initiator, tuple(loads))

    def _working_set_sizes(
        self, spec: list[WorkingSet] | WorkingSetRange, members: Sequence[ChosenLoad]
    ) -> list[int]:
        """Return those working-set sizes in bytes that fit on the node, in ascending order."""
        first, room = members[0].initiator, self._usable_bytes_per_load(members)
        if isinstance(spec, list):
            wanted = [self._working_set_bytes(size, first, room) for size in spec]
        else:
            low, high = (
                self._working_set_bytes(spec["from"], first, room),
                self._working_set_bytes(spec["to"], first, room),
            )
            steps = spec.get("per_doubling", 1)
            # The smallest size is a power of two, so that sizes are round numbers and hosts with
            # different caches have equal sizes.
            begin = 2 ** math.floor(math.log2(low))
            count = max(0, math.floor(math.log2(max(high, 1) / begin) * steps + 1e-9))
            wanted = [begin * 2 ** (step / steps) for step in range(count + 1)]
        # 1e-6 is added, so that a quotient just below a whole number is rounded to this number.
        sizes = sorted({int(size / _SIZE_STEP_BYTES + 1e-6) * _SIZE_STEP_BYTES for size in wanted})
        largest = min(room, self.plan.config["working_set"]["sweep_at_most_bytes"] or math.inf)
        found = [size for size in sizes if size <= largest]
        if len(found) < len(sizes):
            self._add_plan_note(
                f"sizes above {format_binary_bytes(largest)} are left out (working_set in the"
                " config: at_most_share_of_node, sweep_at_most_bytes)"
            )
        return found

    def _usable_bytes_per_load(self, members: Sequence[ChosenLoad]) -> float:
        """Return how many bytes each of the loads may use on its node."""
        share = self.plan.config["working_set"]["at_most_share_of_node"]
        used = [node for member in members for node in member.target.nodes]
        sizes = {node: self._host.memory_bytes(node) for node in used}
        rooms = (share * size / used.count(node) for node, size in sizes.items() if size)
        return min(rooms, default=math.inf)

    def _working_set_bytes(self, size: WorkingSet, initiator: Initiator, room: float) -> float:
        """Return the size in bytes of a working set in the experiment's file."""
        if isinstance(size, int):
            return size
        if size["of"] == "node":
            share = self.plan.config["working_set"]["at_most_share_of_node"]
            whole = room / share if math.isfinite(room) else _DEFAULT_CACHE_BYTES["l3"]
            return min(size["times"] * whole, room)
        level = int(size["of"][1:])
        known = self._host.topology.data_cache_bytes_of_pu.get((initiator.cpus[0], level))
        return size["times"] * (known or _DEFAULT_CACHE_BYTES[size["of"]])

    def _page_kinds_to_vary(
        self, vary: Mapping[str, Sequence[Level]], members: Sequence[ChosenLoad]
    ) -> dict[str, list[Level]]:
        """Return those kinds of pages in the experiment's `vary` that the host can provide."""
        topology, benchmark = self._host.topology, self.benchmark
        nodes = {node for one in members for node in (one.buffers or one.target).nodes}
        found: list[Level] = []
        if "pages" not in vary:
            pages = benchmark.parameters.get("pages")
            if missing := _why_pages_are_missing(topology, pages, nodes):
                where = f"parameters of {benchmark.name}, pages: {pages}"
                variable = "host_state_huge_pages, playbooks/configure.yml"
                remedy = f"reserve them ({variable}) or choose other pages"
                raise UserError(note_with_nodes(*missing), where, remedy)
            return {}
        for pages in vary["pages"]:
            if missing := _why_pages_are_missing(topology, pages, nodes):
                self._add_plan_note(f"pages {pages} left out, since {missing[0]}", missing[1])
            else:
                found.append(pages)
        return {"pages": found}

    def _buffer_positions_to_vary(
        self, vary: Iterable[Level], members: Sequence[ChosenLoad]
    ) -> list[Level]:
        """Return those places of buffers in the experiment's `vary` that the host has."""
        found = []
        for buffers in vary:
            if all(self._host.buffer_nodes(one.initiator, str(buffers)) for one in members):
                found.append(buffers)
            else:
                self._add_plan_note(
                    f"buffers {buffers} left out, since there is no such node with memory"
                )
        return found


def _why_pages_are_missing(
    topology: Topology, pages: Level | None, nodes: Iterable[int]
) -> tuple[str, list[int]] | None:
    """Return why a host lacks a kind of pages, and on which nodes; None if it has the pages."""
    # Reserved huge pages may be in use. If too few huge pages are free when the point runs, the
    # point fails.
    settings = topology.host.get("memory_settings") or {}
    if pages == "thp" and settings.get("transparent_huge_pages") == "never":
        return "transparent huge pages are switched off (never)", []
    size = _HUGE_PAGE_BYTES_BY_KIND.get(str(pages))
    pools = topology.huge_page_pools
    if size is None or not pools:
        return None
    reserved = {pool.node for pool in pools if pool.page_bytes == size and pool.pages > 0}
    missing = sorted(set(nodes) - reserved)
    if None in reserved or not missing:  # a pool without a node is for all nodes
        return None
    return f"no huge page of {format_binary_bytes(size)} is reserved", missing
