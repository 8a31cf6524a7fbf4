"""Expands an experiment against a host: every point, with its loads in concrete form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from chaosity.benchmarks import Benchmark, counter_events_of
from chaosity.components import gpu_component_name
from chaosity.cpusets import format_cpu_list
from chaosity.design.endpoints import Initiator, Target, endpoint_facts, placement_facts
from chaosity.design.factors import factor_level
from chaosity.design.host_resources import HostResources
from chaosity.design.load_combinations import ChosenLoad, Combination, LoadCombinations, LoadGroup
from chaosity.design.placement_targets import WeightsLookup, worker_memory
from chaosity.design.point_names import point_name
from chaosity.errors import UserError
from chaosity.topology import OpenclDevice

# First touch of fresh pages, with zeroing by the kernel: measured at 3 to 8 GB/s on one thread.
SETUP_BYTES_PER_SECOND = 4e9
# Starting tools, reading back placement, writing the record.
SETUP_SECONDS = 0.3
# A search of the best placement takes some ten seconds before its load counts as ready, 60 at most.
SETTLING_SECONDS = 10.0
# A point that takes this much longer than its stopping rule allows hangs.
TIMEOUT_SECONDS = 120.0
# Arrays are whole huge pages, so that none shares a page with another.
HUGE_PAGE_BYTES = 2 * 1024 * 1024
# Of x86-64 and most arm64, for a host that does not tell.
USUAL_LINE_BYTES = 64

Point = dict[str, Any]


class PointExpansion:
    """Expands experiments for one host.

    Args:
        host: its initiators, nodes and drives.
        benchmarks: the benchmark that serves each category.
        config: the checked config.
        weights: what was measured of where pages are best put; None for nothing.
    """

    def __init__(
        self,
        host: HostResources,
        benchmarks: Mapping[str, Benchmark],
        config: Mapping[str, Any],
        weights: WeightsLookup | None = None,
    ) -> None:
        self.host, self.benchmarks, self.config = host, benchmarks, config
        self.choices = LoadCombinations(host, benchmarks, config, weights)

    @property
    def notes(self) -> list[str]:
        """What was left out and why."""
        return self.choices.notes.texts

    def points(self, experiment: Mapping[str, Any]) -> list[Point]:
        """Every point of an experiment once, in the order of its file.

        Raises:
            UserError: a selector or kernel that this host or benchmark does not have.
        """
        found: dict[str, Point] = {}
        for design, spec in experiment["designs"].items():
            where = f"workflow/experiments/{experiment['experiment']}.yaml, designs.{design}"
            for chosen in self.choices.of(experiment["experiment"], spec["loads"], where):
                point = self.point(experiment, design, chosen)
                found.setdefault(point["point"], point)
        return list(found.values())

    def point(self, experiment: Mapping[str, Any], design: str, chosen: Combination) -> Point:
        """One point of a design: its loads as the runner takes them, and what it hangs on."""
        specs = experiment["designs"][design]["loads"]
        present = {role: group for role, group in chosen.items() if not group.absent}
        rules = {role: self.config["stopping"][specs[role]["category"]] for role in present}
        loads = [
            self.load(group, one, specs[role]["category"], rules[role])
            for role, group in present.items()
            for one in group.members
        ]
        self.one_window(loads)
        seconds = max(load.pop("seconds") for load in loads)
        stopping = combine([rules[role] for role in present])
        memory = sum(load["memory_bytes"] for load in loads)
        body = {
            "experiment": experiment["experiment"],
            "point": point_name([group.name(self.host) for group in chosen.values()]),
            "loads": loads,
            "stopping": stopping,
            "timeout_seconds": stopping["max_seconds"] + seconds + TIMEOUT_SECONDS,
            "factors": {
                name: factor_level(spec, design, chosen, self.host)
                for name, spec in experiment.get("factors", {}).items()
            },
            "components": self.components(present.values()),
        }
        # Notes decide nothing, so with other ones nothing has to be measured anew.
        asked = [{key: load[key] for key in load if key != "notes"} for load in loads]
        return {
            **body,
            "definition": digest({**body, "loads": asked}),
            "estimated_seconds": seconds + SETUP_SECONDS + memory / SETUP_BYTES_PER_SECOND,
        }

    def load(
        self, group: LoadGroup, one: ChosenLoad, category: str, rule: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One load in concrete form."""
        initiator, target = one.initiator, one.target
        benchmark = self.benchmarks[category]
        if benchmark.document.get("writes"):
            only_destructive(benchmark, target)
        context = self.context(one, benchmark, rule, len(group.members))
        levels = dict(one.levels)
        load = benchmark.load(group.load_name(one), context, levels)
        responder = {"responder": one.responder.name} if one.responder else {}
        counted = benchmark.document.get("counters")
        facts = self.host.topology.host
        return {
            **load,
            **({"counters": counter_events_of(counted, facts, benchmark.where)} if counted else {}),
            "role": group.role,
            "levels": {**responder, **levels},
            "initiator": endpoint_facts(initiator),
            "target": {
                **endpoint_facts(target),
                "drives": context["target"]["drives"],
                **({"device": context["target"]["device"]} if target.device else {}),
                "relation": self.host.relation(initiator, target),
                "distance": self.host.slit(initiator, target) if target.is_memory else None,
                **placement_facts(target),
                **self.by_node(benchmark, initiator, target),
            },
            "placement": {
                **benchmark.document["placement"],
                "memory_nodes": list(self.page_nodes(one, benchmark)),
                "cpus": format_cpu_list(cpus_of(one)),
                **placement_facts(target),
            },
            "seconds": benchmark.seconds(rule, context)
            + (SETTLING_SECONDS if target.settles else 0.0),
        }

    def by_node(self, benchmark: Benchmark, initiator: Initiator, target: Target) -> dict[str, Any]:
        """How each node of the target lies to the initiator, where a metric is told by node."""
        if not any("by_node" in source for source in benchmark.document["metrics"].values()):
            return {}
        nodes = {str(node): self.host.memory([node]) for node in target.nodes}
        return {
            "by_node": {
                node: {
                    "relation": self.host.relation(initiator, one),
                    "distance": self.host.slit(initiator, one),
                }
                for node, one in nodes.items()
            }
        }

    def context(
        self, one: ChosenLoad, benchmark: Benchmark, rule: Mapping[str, Any], together: int = 1
    ) -> dict[str, Any]:
        """What the templates of a benchmark file may use, see docs/adding-a-benchmark.md.

        `together` is how many loads of this role run at once.
        """
        initiator, target, responder = one.initiator, one.target, one.responder
        known = benchmark.kernels.get(one.kernel, {})
        arrays = known.get("arrays", 0)
        size = dict(one.levels).get("bytes")
        if size is None:  # a drive set has no working set, and its points are thousands
            size = self.array_bytes(initiator, target, 1) if target.is_memory else 0
        return {
            "initiator": {
                "name": initiator.name,
                "cpus": format_cpu_list(initiator.cpus),
                "threads": len(initiator.cpus),
                "nodes": format_cpu_list(initiator.nodes),
                "memory_nodes": format_cpu_list(self.host.local_memory(initiator)),
                "core_kind": self.host.core_kind_of(initiator),
            },
            "responder": {
                "name": responder.name if responder else None,
                "cpus": format_cpu_list(responder.cpus) if responder else None,
            },
            "target": {
                "name": target.name,
                "nodes": format_cpu_list(target.nodes),
                "drives": [drive.to_json() for drive in target.drives],
                "node_count": len(target.nodes),
                "count": len(target.drives),
                "page_nodes": format_cpu_list(self.page_nodes(one, benchmark)),
                "link_bytes_per_second": target.link_bytes_per_second,
                "policy": target.name if target.kind == "policy" else None,
                "shares_text": target.shares_text,
                "device": asdict(target.device) if target.device else None,
            },
            "kernel": known.get("name"),
            "kernel_name": one.kernel,
            "arrays": arrays,
            "array_bytes": self.array_bytes(initiator, target, arrays) if arrays else 0,
            "bytes": size,
            "bytes_per_node": self.bytes_per_node(initiator, target, together),
            "memory_peak_bytes_per_second": None,
            "host": {
                "cpu_flags": self.host.topology.host.get("cpu_flags") or [],
                "line_bytes": self.host.topology.cache_line_bytes or USUAL_LINE_BYTES,
            },
            "timeout_seconds": int(rule["max_seconds"] + TIMEOUT_SECONDS),
            **rule,
        }

    def page_nodes(self, one: ChosenLoad, benchmark: Benchmark) -> tuple[int, ...]:
        """The nodes on which a load's pages must be.

        Drives have no memory: what is read from them goes to buffers, on the initiator's own nodes
        or where the benchmark's parameter `buffers` says.
        """
        if benchmark.document["placement"]["memory"] == "initiator":
            return self.host.local_memory(one.initiator)
        if not one.target.is_drive_set:
            return one.target.nodes
        buffers = {**benchmark.parameters, **dict(one.levels)}.get("buffers", "own")
        return self.host.buffer_nodes(one.initiator, buffers)

    def array_bytes(self, initiator: Initiator, target: Target, arrays: int) -> int:
        """Size of each array, a multiple of 2 MiB.

        Beyond all last-level caches in reach, whatever that takes: a node that is too small for
        it fails the point with the reason. Above that the wish for large arrays gives way to what
        the node has.
        """
        # All placements for the same workers get the same arrays, or speeds would not compare.
        placed = target.kind == "policy"
        nodes = worker_memory(self.host, initiator) if placed else target.nodes
        memory = sum(self.host.memory_bytes(node) or 0 for node in nodes)
        return self._beyond_caches(initiator, memory, arrays)

    def bytes_per_node(self, initiator: Initiator, target: Target, together: int) -> int:
        """Size of a buffer on each node of a target, of which so many loads have one each."""
        if not target.is_memory:
            return 0
        sizes = [self.host.memory_bytes(node) or 0 for node in target.nodes]
        return self._beyond_caches(initiator, min(sizes, default=0), together)

    def _beyond_caches(self, initiator: Initiator, memory: int, arrays: int) -> int:
        rule = self.config["working_set"]
        caches = self.host.l3_bytes(initiator)
        room = rule["at_most_share_of_node"] * memory / arrays if memory else float("inf")
        wish = min(rule["at_least_bytes"], room)
        size = max(caches * rule["times_last_level_cache"], wish)
        return -(-int(size) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES

    def one_window(self, loads: list[dict[str, Any]]) -> None:
        """Refuse two loads of which neither tells when it ran: they have no common window.

        Raises:
            UserError: names them.
        """
        silent = sorted({load["benchmark"] for load in loads if not load["progress"]})
        count = sum(1 for load in loads if not load["progress"])
        if count > 1:
            raise UserError(
                f"{' and '.join(silent)} report no progress and cannot be measured together",
                "config, benchmarks",
                "choose a benchmark with progress for one of the categories",
            )

    def components(self, present: Iterable[LoadGroup]) -> list[str]:
        """The components that a point touches; when one changes, the point is measured again."""
        touched = {"system"}
        for group in present:
            for one in group.members:
                touched |= self.components_of(one)
        return sorted(touched)

    def components_of(self, one: ChosenLoad) -> set[str]:
        """The components that a load touches, without those of the whole system."""
        topology, target = self.host.topology, one.target
        packages = self.host.packages_of(one.initiator)
        if one.responder:
            packages |= self.host.packages_of(one.responder)
        nodes = target.nodes if target.is_memory else self.host.local_memory(one.initiator)
        packages = packages | {found.package for found in map(topology.node, nodes) if found}
        touched = {f"package{package}" for package in packages if package is not None}
        touched |= {f"node{node}" for node in nodes}
        touched |= {drive.component for drive in target.drives}
        return touched | (self.device_components(target.device) if target.device else set())

    def device_components(self, device: OpenclDevice) -> set[str]:
        """An OpenCL device, and the GPU that it is where the slot says so."""
        gpus = (gpu for gpu in self.host.topology.gpus if gpu.compute)
        same = {gpu_component_name(gpu) for gpu in gpus if device.pci and gpu.pci == device.pci}
        return {device.name, *same}


def cpus_of(one: ChosenLoad) -> tuple[int, ...]:
    """The processing units that a load's threads run on."""
    answering = one.responder.cpus if one.responder else ()
    return tuple(sorted({*one.initiator.cpus, *answering}))


def only_destructive(benchmark: Benchmark, target: Target) -> None:
    """Refuse to plan a write to a drive that nobody gave up.

    Raises:
        UserError: names the first such drive.
    """
    for drive in target.drives:
        if not drive.destructive:
            raise UserError(
                f"{benchmark.name} would destroy what is on {drive.component}",
                "config, benchmarks",
                "name the drive in chaosity_destructive_drives of its host, or choose a benchmark "
                "that reads",
            )


def combine(rules: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The stopping rule of a point from those of its loads: the longest times count."""
    wanted = [rule["relative_precision"] for rule in rules]
    return {
        "relative_precision": None if None in wanted else min(wanted),
        "min_seconds": max(rule["min_seconds"] for rule in rules),
        "max_seconds": max(rule["max_seconds"] for rule in rules),
    }


def digest(body: Mapping[str, Any]) -> str:
    """A short fingerprint of all that defines a point."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
