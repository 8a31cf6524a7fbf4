"""Expand an experiment into its points on a host, with the commands and checks of their loads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

from chaosity.components import gpu_component_name
from chaosity.cpusets import format_cpu_list
from chaosity.design.benchmark_templates import LoadMaker, find_counter_events
from chaosity.design.chosen_loads import (
    ChosenLoad,
    Combination,
    Initiator,
    LoadsOfRole,
    Target,
    factor_level_of_point,
)
from chaosity.design.load_combinations import LoadCombinations
from chaosity.documents.experiments import ExperimentDocument
from chaosity.errors import CannotMeasureDesignError, UserError
from chaosity.place_names import node_name, package_name
from chaosity.records.record_format import (
    ExpandedPoint,
    Load,
    LoadTarget,
    NodeRelation,
    PointStoppingRule,
)
from chaosity.topology.topology_parts import DRAM, OPENCL_FACTS_NOT_IN_POINTS, OpenclDevice
from chaosity.units import format_binary_bytes

# Speed at which one thread first touches pages, which the kernel then clears; 3 to 8 GB/s were
# measured.
_PAGE_TOUCH_BYTES_PER_SECOND = 4e9
# Seconds in which tools are started, the placement is read back, and the record is written.
_START_AND_END_SECONDS = 0.3
# Expected seconds of the search for the best placement, before the load is measured. A search takes
# at most 60 seconds.
_PLACEMENT_SEARCH_SECONDS = 10.0
# Seconds beyond the longest time of its stopping rule after which a point is stopped.
_EXTRA_SECONDS_UNTIL_TIMEOUT = 120.0
# The size of an array is a multiple of a huge page, so that no two arrays share a page.
_HUGE_PAGE_BYTES = 2 * 1024 * 1024
# Size of a cache line on x86-64 and most arm64 hosts; used if a host does not report the size.
_DEFAULT_CACHE_LINE_BYTES = 64


@dataclass
class PointExpansion(LoadCombinations):
    """Expands experiments on one host: makes a point of each combination of loads."""

    def expand_experiment(self, experiment: ExperimentDocument) -> list[ExpandedPoint]:
        """Return all points of an experiment, in the order of its file and without repetition.

        If this host or the config's benchmark cannot measure a design, a note says so, and the
        design is left out.

        Raises:
            UserError: this host has nothing that a selector selects, or the config is wrong.
        """
        name = experiment["experiment"]
        found: dict[str, ExpandedPoint] = {}
        # Two designs whose loads have one role can choose equal loads under different names. For
        # example, all cores of a host can be the same as one core of each L3 domain.
        chosen_loads = set[str]()
        for design, spec in experiment["designs"].items():
            where = f"workflow/experiments/{name}.yaml, designs.{design}"
            try:
                for chosen in self.iterate_combinations(name, spec["loads"], where):
                    point = self._make_point(experiment, design, chosen)
                    roles = [load["role"] for load in point["loads"]]
                    one_role = len(roles) > 1 and len(set(roles)) == 1
                    same = str(point["loads"]) if one_role else point["point"]
                    if same not in chosen_loads:
                        found.setdefault(point["point"], point)
                    chosen_loads.add(same)
            except CannotMeasureDesignError as error:
                self.plan_notes.add_note(f"{name}, {design}: left out, since {error.what}")
        return list(found.values())

    def _make_point(
        self, experiment: ExperimentDocument, design: str, chosen: Combination
    ) -> ExpandedPoint:
        """Return the point of a design with the chosen loads, in the form that the runner reads."""
        specs = experiment["designs"][design]["loads"]
        present = {role: group for role, group in chosen.items() if not group.is_omitted_on_purpose}
        categories = {role: specs[role]["category"] for role in present}
        rules = {role: self.config["stopping"][category] for role, category in categories.items()}
        planned = [
            self._load_and_seconds(group, load, self.benchmarks[categories[role]], rules[role])
            for role, group in present.items()
            for load in group.members
        ]
        loads = [load for load, _ in planned]
        members = [load for group in present.values() for load in group.members]
        _check_common_window(loads)
        seconds = max(seconds for _, seconds in planned)
        stopping = _combine_stopping_rules(list(rules.values()))
        memory = sum(load["memory_bytes"] for load in loads)
        body = {
            "experiment": experiment["experiment"],
            "point": ".".join(chosen[role].name_in_point(self.host) for role in sorted(chosen)),
            "loads": loads,
            "stopping": stopping,
            "timeout_seconds": stopping["max_seconds"] + seconds + _EXTRA_SECONDS_UNTIL_TIMEOUT,
            "factors": {
                name: factor_level_of_point(spec, design, chosen, self.host)
                for name, spec in experiment.get("factors", {}).items()
            },
            "components": sorted({"system"}.union(*map(self._components_of_load, members))),
        }
        defining = [
            self.benchmarks[categories[load["role"]]].defining_parts_of_load(load) for load in loads
        ]
        estimate = seconds + _START_AND_END_SECONDS + memory / _PAGE_TOUCH_BYTES_PER_SECOND
        definition = json_fingerprint({**body, "loads": defining})
        return cast(
            ExpandedPoint, {**body, "definition": definition, "estimated_seconds": estimate}
        )

    def _load_and_seconds(
        self, group: LoadsOfRole, chosen: ChosenLoad, benchmark: LoadMaker, rule: PointStoppingRule
    ) -> tuple[Load, float]:
        """Return a load in the form that the runner reads, and its expected time in seconds."""
        initiator, target = chosen.initiator, chosen.target
        document = benchmark.document
        if document.get("writes"):
            _check_that_writing_is_allowed(benchmark, target)
        context = self.template_variables(chosen, benchmark, rule, len(group.members))
        fixed, wanted = benchmark.parameters.get("bytes"), self._bytes_beyond_all_caches
        if isinstance(fixed, int) and fixed < wanted:
            self.plan_notes.add_note(
                f"{benchmark.name}: its data of {format_binary_bytes(fixed)} is smaller than the"
                f" {format_binary_bytes(wanted)} that this host's caches ask for; parameters:"
                f" {{{benchmark.name}: {{bytes: beyond_caches}}}} in the config selects that size"
            )
        levels = dict(chosen.levels)
        responder = {"responder": chosen.responder.name} if chosen.responder else {}
        responding = chosen.responder.cpus if chosen.responder else ()
        load = {
            **benchmark.make_load(group.make_member_name(chosen), context, levels),
            "role": group.role,
            "levels": {**responder, **levels},
            "initiator": initiator.point_entry,
            "target": self._target_facts(benchmark, initiator, target),
            "placement": {
                **document["placement"],
                "memory_nodes": list(self._nodes_of_pages(chosen, benchmark)),
                "cpus": format_cpu_list(sorted({*initiator.cpus, *responding})),
                **_placement_facts(target),
            },
        }
        if counters := document.get("counters"):
            facts = self.host.topology.host
            load["counters"] = find_counter_events(counters, facts, benchmark.file_path)
        settling = _PLACEMENT_SEARCH_SECONDS if target.settles else 0.0
        return cast(Load, load), benchmark.expected_seconds(rule, context) + settling

    def _target_facts(
        self, benchmark: LoadMaker, initiator: Initiator, target: Target
    ) -> LoadTarget:
        """Return the entry for a target in a point."""
        facts = {
            "name": target.name,
            "kind": target.kind,
            "nodes": list(target.nodes),
            "drives": list(target.drives),
            **self._relation_and_distance(initiator, target),
            **_placement_facts(target),
        }
        if target.device:
            device = asdict(target.device).items()
            facts["device"] = {
                key: fact for key, fact in device if key not in OPENCL_FACTS_NOT_IN_POINTS
            }
        if any("by_node" in source for source in benchmark.document["metrics"].values()):
            memory = {str(node): self.host.target_of_nodes([node]) for node in target.nodes}
            facts["by_node"] = {
                node: self._relation_and_distance(initiator, m) for node, m in memory.items()
            }
        return cast(LoadTarget, facts)

    def _relation_and_distance(self, initiator: Initiator, target: Target) -> NodeRelation:
        """Return relation and SLIT distance of a target; drives and devices have no distance."""
        relation = self.host.endpoint_relation(initiator, target)
        distance = self.host.largest_slit_distance(initiator, target)
        return {"relation": relation, "distance": distance if target.is_memory else None}

    def template_variables(
        self, chosen: ChosenLoad, benchmark: LoadMaker, rule: PointStoppingRule, together: int = 1
    ) -> dict[str, Any]:
        """Return the variables for benchmark files, which docs/reference/benchmark-file.md lists.

        `together` is the number of loads of this role that run at the same time.
        """
        initiator, target, responder = chosen.initiator, chosen.target, chosen.responder
        kernel = benchmark.kernels.get(chosen.kernel) if chosen.kernel else None
        arrays = kernel.get("arrays", 0) if kernel else 0
        size = dict(chosen.levels).get("bytes")
        if size is None:  # no working set for drives, to save time
            size = self._array_bytes(initiator, target, 1) if target.is_memory else 0
        return {
            "initiator": {
                "name": initiator.name,
                "cpus": initiator.cpu_list,
                "threads": len(initiator.cpus),
                "nodes": format_cpu_list(initiator.nodes),
                "memory_nodes": format_cpu_list(self.host.local_memory_nodes(initiator)),
                "core_kind": self.host.uniform_core_kind_name(initiator),
            },
            "responder": {
                "name": responder.name if responder else None,
                "cpus": responder.cpu_list if responder else None,
            },
            "target": {
                "name": target.name,
                "nodes": format_cpu_list(target.nodes),
                "drives": list(target.drives),
                "node_count": len(target.nodes),
                "count": len(target.drives),
                "page_nodes": format_cpu_list(self._nodes_of_pages(chosen, benchmark)),
                "link_bytes_per_second": target.link_bytes_per_second,
                "policy": target.name if target.is_page_placement else None,
                "shares_text": target.page_shares_text,
                "device": asdict(target.device) if target.device else None,
            },
            "kernel": kernel["name"] if kernel else None,
            "kernel_name": chosen.kernel,
            "arrays": arrays,
            "array_bytes": self._array_bytes(initiator, target, arrays) if arrays else 0,
            "bytes": size,
            "bytes_per_node": self._bytes_per_node(initiator, target, together),
            "memory_peak_bytes_per_second": self._memory_peak_bytes_per_second(chosen),
            "host": {
                "cpu_flags": self.host.topology.host.get("cpu_flags") or [],
                "line_bytes": self.host.topology.cache_line_bytes or _DEFAULT_CACHE_LINE_BYTES,
                "beyond_caches_bytes": self._bytes_beyond_all_caches,
            },
            # After this time, the program of a load ends itself, in case that the runner was
            # killed. The `timeout_seconds` of a point are longer, because they include the time of
            # the longest load.
            "timeout_seconds": int(rule["max_seconds"] + _EXTRA_SECONDS_UNTIL_TIMEOUT),
            **rule,
        }

    def _memory_peak_bytes_per_second(self, load: ChosenLoad) -> float | None:
        """Return the bytes/s that a load on the target's memory cannot exceed; None if unknown."""
        nodes = [node for node in self.host.topology.nodes if node.os_index in load.target.nodes]
        # Accesses to data in caches can exceed the bound of the DRAM modules. Accesses to HBM, to
        # CXL, and to memory behind a memory-side cache can exceed this bound too.
        cached = "bytes" in dict(load.levels)
        cached |= self.config["working_set"]["times_last_level_cache"] < 1
        if cached or any(n.kind != DRAM or n.memory_side_cache_bytes for n in nodes):
            return None
        peak, packages = self.host.topology.memory_peak, {node.package for node in nodes}
        known = len(packages) == 1 and None not in packages
        return (peak.package_bytes_per_second if known else None) or peak.machine_bytes_per_second

    def _nodes_of_pages(self, chosen: ChosenLoad, benchmark: LoadMaker) -> tuple[int, ...]:
        """Return the nodes on which a load's pages must be."""
        # Pages of a load on drives are its buffers. The experiment or else the benchmark's
        # parameter `buffers` selects the nodes of buffers; by default they are local to the
        # initiator.
        if chosen.buffers:
            return chosen.buffers.nodes
        if benchmark.document["placement"]["memory"] == "initiator":
            return self.host.local_memory_nodes(chosen.initiator)
        if not chosen.target.is_drive_set:
            return chosen.target.nodes
        buffers = {**benchmark.parameters, **dict(chosen.levels)}.get("buffers", "own")
        return self.host.buffer_nodes(chosen.initiator, str(buffers))

    def _array_bytes(self, initiator: Initiator, target: Target, arrays: int) -> int:
        """Return the size of each array in bytes, see `_array_bytes_beyond_caches`."""
        # All placements for the same workers get arrays of the same size, so that the values of the
        # placements are comparable.
        host = self.host
        nodes = host.worker_memory_nodes(initiator) if target.is_page_placement else target.nodes
        memory = sum(host.memory_bytes(node) or 0 for node in nodes)
        return self._array_bytes_beyond_caches(initiator, memory, arrays)

    def _bytes_per_node(self, initiator: Initiator, target: Target, together: int) -> int:
        """Return the bytes of a load's buffer on each node if `together` loads share a target."""
        sizes = [self.host.memory_bytes(node) or 0 for node in target.nodes]
        least = min(sizes, default=0)
        return (
            self._array_bytes_beyond_caches(initiator, least, together) if target.is_memory else 0
        )

    @cached_property
    def _bytes_beyond_all_caches(self) -> int:
        """Return a size in bytes that exceeds all last-level caches of the host."""
        [machine] = self.host.initiators_of_level("machine", True)
        sizes = (self.host.memory_bytes(node.os_index) for node in self.host.topology.memory_nodes)
        return self._array_bytes_beyond_caches(
            machine, min((size for size in sizes if size), default=0), 1
        )

    def _array_bytes_beyond_caches(self, initiator: Initiator, memory: int, arrays: int) -> int:
        """Return the size of an array in bytes, a multiple of 2 MiB."""
        # An array is always larger than all last-level caches of the initiator. If a node has too
        # little memory for its array, the point fails. An array has the size `at_least_bytes` of
        # the config only if the node has enough memory.
        rule = self.config["working_set"]
        caches = self.host.l3_bytes(initiator)
        room = rule["at_most_share_of_node"] * memory / arrays if memory else float("inf")
        wish = min(rule["at_least_bytes"], room)
        size = max(caches * rule["times_last_level_cache"], wish)
        return -(-int(size) // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES

    def _components_of_load(self, load: ChosenLoad) -> set[str]:
        """Return the names of all components on which a load depends, except the system."""
        topology, target = self.host.topology, load.target
        packages = self.host.packages_of_initiator(load.initiator)
        if load.responder:
            packages |= self.host.packages_of_initiator(load.responder)
        memory = target if target.is_memory else load.buffers
        nodes = memory.nodes if memory else self.host.local_memory_nodes(load.initiator)
        packages |= {found.package for found in map(topology.find_node, nodes) if found}
        used = {package_name(package) for package in packages if package is not None}
        used |= {node_name(node) for node in nodes}
        used |= {drive["component"] for drive in target.drives}
        return used | (self._device_components(target.device) if target.device else set())

    def _device_components(self, device: OpenclDevice) -> set[str]:
        """Return the names of the components of an OpenCL device and of the GPU in its slot."""
        gpus = self.host.topology.compute_gpus
        same = {gpu_component_name(gpu) for gpu in gpus if device.pci and gpu.pci == device.pci}
        return {device.name, *same}


def _placement_facts(target: Target) -> dict[str, Any]:
    """Return node -> share and whether pages move; empty for targets that are no placement."""
    if not target.is_page_placement:
        return {}
    return {"shares": target.page_shares_by_node, "settles": target.settles}


def _check_common_window(loads: Sequence[Load]) -> None:
    """Raise an error if several loads report no progress, and so have no known common window."""
    silent = [load["benchmark"] for load in loads if not load["progress"]]
    if len(silent) > 1:
        names = " and ".join(sorted(set(silent)))
        wrong = f"loads of {names} report no progress, so they cannot run together"
        remedy = "for one of the categories, choose a benchmark that reports progress"
        raise CannotMeasureDesignError(wrong, "config, benchmarks", remedy)


def _check_that_writing_is_allowed(benchmark: LoadMaker, target: Target) -> None:
    """Raise an error unless the inventory allows a benchmark to write to all drives of a target."""
    remedy = (
        "name the drive in chaosity_destructive_drives of its host, or choose another benchmark"
    )
    for drive in target.drives:
        if not drive.get("destructive"):
            wrong = f"{benchmark.name} would destroy the data on {drive['component']}"
            raise UserError(wrong, "config, benchmarks", remedy)


def _combine_stopping_rules(rules: Sequence[PointStoppingRule]) -> PointStoppingRule:
    """Return the stopping rule of a point: the strictest precision and longest times of loads."""
    precisions = [rule["relative_precision"] for rule in rules]
    known = [precision for precision in precisions if precision is not None]
    return {
        "relative_precision": min(known) if len(known) == len(rules) else None,
        "min_seconds": max(rule["min_seconds"] for rule in rules),
        "max_seconds": max(rule["max_seconds"] for rule in rules),
    }


def json_fingerprint(content: object) -> str:
    """Return a short fingerprint of JSON values."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
