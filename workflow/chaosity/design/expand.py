"""Expands an experiment against a host: every point, with its loads in concrete form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from chaosity.benchmarks import Benchmark
from chaosity.config import closest
from chaosity.design import selectors
from chaosity.design.elements import Elements, Initiator, Target
from chaosity.design.naming import LoadName, point_name
from chaosity.errors import UserError
from chaosity.topology.cpusets import format_cpu_list

# First touch of fresh pages, with zeroing by the kernel: measured at 3 to 8 GB/s on one thread.
SETUP_BYTES_PER_SECOND = 4e9
# Starting tools, reading back placement, writing the record.
SETUP_SECONDS = 0.3
# A point that takes this much longer than its stopping rule allows hangs.
TIMEOUT_SECONDS = 120.0
# Arrays are whole huge pages, so that none shares a page with another.
HUGE_PAGE_BYTES = 2 * 1024 * 1024

Point = dict[str, Any]


class Expansion:
    """Expands experiments for one host.

    Args:
        host: its initiators, nodes and drives.
        benchmarks: the benchmark that serves each category.
        config: the checked config.
    """

    def __init__(
        self, host: Elements, benchmarks: Mapping[str, Benchmark], config: Mapping[str, Any]
    ) -> None:
        self.host, self.benchmarks, self.config = host, benchmarks, config
        self.notes: list[str] = []

    def points(self, experiment: Mapping[str, Any]) -> list[Point]:
        """Every point of an experiment once, in the order of its file.

        Raises:
            UserError: a selector or kernel that this host or benchmark does not have.
        """
        found: dict[str, Point] = {}
        for design, spec in experiment["designs"].items():
            where = f"workflow/experiments/{experiment['experiment']}.yaml, designs.{design}"
            for chosen in self.choices(spec["loads"], {}, where):
                point = self.point(experiment, spec["loads"], chosen)
                found.setdefault(point["point"], point)
        return list(found.values())

    def choices(
        self, loads: Mapping[str, Any], chosen: dict[str, Any], where: str
    ) -> Iterator[dict[str, Any]]:
        """Every combination of initiator, target and kernel of the loads not yet chosen."""
        name = next((one for one in loads if one not in chosen), None)
        if name is None:
            yield chosen
            return
        spec, place = loads[name], f"{where}.loads.{name}"
        benchmark = self.benchmark(spec["category"], place)
        kernels = self.kernels(spec, benchmark, place)
        for initiator in selectors.initiators(spec["initiator"], self.host, chosen, place):
            sides = {**chosen, name: {"initiator": initiator}}
            for target in selectors.targets(spec["target"], initiator, self.host, sides, place):
                for kernel in kernels if target.kind != "none" else [None]:
                    side = {"initiator": initiator, "target": target, "kernel": kernel}
                    yield from self.choices(loads, {**chosen, name: side}, where)

    def benchmark(self, category: str, where: str) -> Benchmark:
        """The benchmark that the config names for a category."""
        if category not in self.benchmarks:
            raise UserError(
                f"no benchmark serves the category {category!r}",
                f"{where}.category",
                closest(category, self.benchmarks),
            )
        return self.benchmarks[category]

    def kernels(
        self, spec: Mapping[str, Any], benchmark: Benchmark, where: str
    ) -> list[str | None]:
        """The wanted kernels that the benchmark has; what it lacks becomes a note of the plan."""
        if not benchmark.kernels:
            return [None]
        wanted = spec.get("kernel")
        if not wanted:
            raise UserError(
                f"{benchmark.name} needs a kernel", where, closest("", benchmark.kernels)
            )
        missing = [kernel for kernel in wanted if kernel not in benchmark.kernels]
        if len(missing) == len(wanted):
            raise UserError(
                f"{benchmark.name} has no kernel {', '.join(missing)}",
                f"{where}.kernel",
                closest(missing[0], benchmark.kernels),
            )
        if missing:
            note = f"{where}: left out, since {benchmark.name} lacks them: {', '.join(missing)}"
            if note not in self.notes:
                self.notes.append(note)
        return [kernel for kernel in wanted if kernel in benchmark.kernels]

    def point(
        self, experiment: Mapping[str, Any], specs: Mapping[str, Any], chosen: Mapping[str, Any]
    ) -> Point:
        """One point: its loads as the runner takes them, and what it hangs on."""
        present = {name: one for name, one in chosen.items() if one["target"].kind != "none"}
        rules = {name: self.config["stopping"][specs[name]["category"]] for name in present}
        loads = [self.load(name, specs[name], one, rules[name]) for name, one in present.items()]
        self.one_window(loads)
        name = point_name(
            [
                LoadName(load, one["initiator"].name, one["target"].name, one["kernel"])
                for load, one in chosen.items()
            ]
        )
        seconds = max(load.pop("seconds") for load in loads)
        stopping = combine([rules[load] for load in present])
        memory = sum(load["memory_bytes"] for load in loads)
        body = {
            "experiment": experiment["experiment"],
            "point": name,
            "loads": loads,
            "stopping": stopping,
            "timeout_seconds": stopping["max_seconds"] + seconds + TIMEOUT_SECONDS,
            "factors": self.factors(experiment.get("factors", {}), chosen),
            "components": self.components(present),
        }
        return {
            **body,
            "definition": digest(body),
            "estimated_seconds": seconds + SETUP_SECONDS + memory / SETUP_BYTES_PER_SECOND,
        }

    def load(
        self, name: str, spec: Mapping[str, Any], one: Mapping[str, Any], rule: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One load in concrete form."""
        initiator, target, kernel = one["initiator"], one["target"], one["kernel"]
        benchmark = self.benchmarks[spec["category"]]
        if benchmark.document.get("writes"):
            only_destructive(benchmark, target)
        near = self.host.local_memory(initiator)
        known = benchmark.kernels.get(kernel, {})
        arrays = known.get("arrays", 0)
        context = {
            "initiator": {
                "name": initiator.name,
                "cpus": format_cpu_list(initiator.cpus),
                "threads": len(initiator.cpus),
                "nodes": format_cpu_list(initiator.nodes),
                "memory_nodes": format_cpu_list(near),
            },
            "target": {
                "name": target.name,
                "nodes": format_cpu_list(target.nodes),
                "drives": [drive.to_json() for drive in target.drives],
                "count": len(target.drives),
                "link_bytes_per_second": target.link_bytes_per_second,
            },
            "kernel": known.get("name"),
            "kernel_name": kernel,
            "arrays": arrays,
            "array_bytes": self.array_bytes(initiator, target, arrays) if arrays else 0,
            "memory_peak_bytes_per_second": None,
            "host": {"cpu_flags": self.host.topology.host.get("cpu_flags") or []},
            "timeout_seconds": int(rule["max_seconds"] + TIMEOUT_SECONDS),
            **rule,
        }
        memory = benchmark.document["placement"]["memory"]
        load = benchmark.load(name, context)
        return {
            **load,
            "initiator": side_facts(initiator),
            "target": {
                **side_facts(target),
                "drives": context["target"]["drives"],
                "relation": self.host.relation(initiator, target),
            },
            "placement": {
                "memory_nodes": list(target.nodes if memory == "target" else near),
                "pinned": benchmark.document["placement"].get("pinned", False),
            },
            "seconds": benchmark.seconds(rule, context),
        }

    def array_bytes(self, initiator: Initiator, target: Target, arrays: int) -> int:
        """Size of each array, a multiple of 2 MiB.

        Beyond all last-level caches in reach, whatever that takes: a node that is too small for
        it fails the point with the reason. Above that the wish for large arrays gives way to what
        the node has.
        """
        rule = self.config["working_set"]
        caches = self.host.l3_bytes(initiator)
        memory = sum(self.host.memory_bytes(node) or 0 for node in target.nodes)
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

    def factors(self, wanted: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The levels of an experiment's factors at a point; "alone" where a load is missing."""

        def side(reference: str) -> Initiator | Target | None:
            load, _, part = reference.partition(".")
            return chosen.get(load, {}).get(part)

        levels: dict[str, Any] = {}
        for name, spec in wanted.items():
            if "relation" in spec:
                a, b = (side(reference) for reference in spec["relation"])
                levels[name] = self.host.relation(a, b) if a and b else "alone"
            elif "count" in spec:
                one = side(spec["count"])
                levels[name] = len(one.drives) if isinstance(one, Target) else 0
            else:
                one = side(spec["level"])
                levels[name] = one.name if one else "alone"
        return levels

    def components(self, present: Mapping[str, Any]) -> list[str]:
        """The components that a point touches; when one changes, the point is measured again."""
        topology = self.host.topology
        touched = {"system"}
        for one in present.values():
            initiator, target = one["initiator"], one["target"]
            packages = self.host.packages_of(initiator)
            nodes = target.nodes if not target.is_drive_set else self.host.local_memory(initiator)
            packages = packages | {found.package for found in map(topology.node, nodes) if found}
            touched |= {f"package{package}" for package in packages if package is not None}
            touched |= {f"node{node}" for node in nodes}
            touched |= {drive.component for drive in target.drives}
        return sorted(touched)


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


def side_facts(side: Initiator | Target) -> dict[str, Any]:
    """Name, kind and nodes of an initiator or target, for records and the tidy table."""
    facts: dict[str, Any] = {"name": side.name, "kind": side.kind, "nodes": list(side.nodes)}
    if isinstance(side, Initiator):
        facts |= {"cpus": format_cpu_list(side.cpus), "threads": len(side.cpus)}
    return facts


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
