"""What is chosen for each load of a point, and every combination that an experiment means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from chaosity.benchmarks import Benchmark
from chaosity.config import suggest_allowed
from chaosity.design import selectors
from chaosity.design.endpoints import Endpoint, Initiator, Target
from chaosity.design.host_resources import HostResources
from chaosity.design.load_levels import LoadLevels, PlanNotes, level_text
from chaosity.design.placement_targets import WeightsLookup, lacking_weights
from chaosity.design.point_names import LoadName
from chaosity.errors import UserError


@dataclass(frozen=True)
class ChosenLoad:
    """One load: who accesses what and how.

    `responder` answers where two sides take part (core to core); `levels` are names and levels of
    what the experiment varies beside initiator, target and kernel.
    """

    initiator: Initiator
    target: Target
    kernel: str | None = None
    responder: Initiator | None = None
    levels: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class LoadGroup:
    """What was chosen for one load of an experiment's file: a load, or several that run together.

    `initiator` is what the name of the point calls all of them.
    """

    role: str
    initiator: str
    members: tuple[ChosenLoad, ...]

    @property
    def absent(self) -> bool:
        """Whether the load is left out, as the baseline of those beside it."""
        return self.members[0].target.kind == "none"

    @property
    def sides(self) -> dict[str, Endpoint]:
        """Initiator and target, for selectors that refer to them; none of several together."""
        if len(self.members) > 1:
            return {}
        [one] = self.members
        return {"initiator": one.initiator, "target": one.target}

    def load_name(self, choice: ChosenLoad) -> str:
        """Name of one load, of its own within the point."""
        together = len(self.members) > 1
        return f"{self.role}-{choice.initiator.name}" if together else self.role

    def name(self, host: HostResources) -> LoadName:
        """The load's part of the point's name."""
        first = self.members[0]
        target = first.target
        if len({member.target.nodes for member in self.members}) > 1:
            target = host.memory({node for member in self.members for node in member.target.nodes})
        responder = [("responder", first.responder.name)] if first.responder else []
        levels = tuple((name, level_text(name, level)) for name, level in first.levels)
        return LoadName(self.role, self.initiator, target.name, first.kernel, (*responder, *levels))


Combination = Mapping[str, LoadGroup]


@dataclass(frozen=True)
class _Load:
    """One load of an experiment's file, and what of it is varied.

    `sides` are those of the loads before it; `where` is its place in the file, for errors, and
    `told` the load in a few words, for notes that people read in the report.
    """

    role: str
    spec: Mapping[str, Any]
    sides: selectors.Combination
    kernels: Sequence[str | None]
    levels: LoadLevels
    where: str
    told: str

    def varied(self, name: str, members: Sequence[ChosenLoad]) -> Iterator[LoadGroup]:
        """A group of these members for every kernel and all levels."""
        for kernel, levels in product(self.kernels, self.levels.of(self.spec, members)):
            chosen = tuple(replace(one, kernel=kernel, levels=levels) for one in members)
            yield LoadGroup(self.role, name, chosen)


class LoadCombinations:
    """All combinations that the loads of a design allow on a host.

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
        self.weights = weights
        self.notes = PlanNotes()

    def of(
        self,
        experiment: str,
        loads: Mapping[str, Any],
        where: str,
        chosen: Combination | None = None,
    ) -> Iterator[Combination]:
        """Every combination of the loads that are not chosen yet, in the order of the file.

        Raises:
            UserError: a selector, kernel or parameter that this host or benchmark does not have.
        """
        chosen = chosen or {}
        role = next((one for one in loads if one not in chosen), None)
        if role is None:
            yield chosen
            return
        load = self._load(experiment, role, loads[role], chosen, f"{where}.loads.{role}")
        for group in self._groups(load):
            yield from self.of(experiment, loads, where, {**chosen, role: group})

    def _load(
        self, experiment: str, role: str, spec: Mapping[str, Any], chosen: Combination, where: str
    ) -> _Load:
        benchmark = self.benchmark(spec["category"], where)
        fewer = self.config["levels"].get(experiment, {})
        told = f"{experiment}, {role}"
        found = self._kernels(spec, benchmark, where)
        return _Load(
            role,
            spec,
            sides={name: group.sides for name, group in chosen.items()},
            kernels=self.notes.fewer(found, fewer.get("kernel"), f"{told}: kernels"),
            levels=LoadLevels(self.host, benchmark, self.config, fewer, self.notes, where, told),
            where=where,
            told=told,
        )

    def _groups(self, load: _Load) -> Iterator[LoadGroup]:
        """All that a load may be: one at a time, or several that run together."""
        spec, where = load.spec, load.where
        sets = selectors.in_each_set(spec["initiator"], self.host, where)
        self._tell_missing(spec, load.told)
        if spec.get("together"):
            for name, initiators in self._all_at_once(load) if sets is None else sets:
                yield from self._together(load, name, initiators)
        elif sets is not None:
            raise UserError("in_each_set_of means loads that run together", where, "add together")
        else:
            for initiator in selectors.initiators(spec["initiator"], self.host, load.sides, where):
                yield from self._alone(load, initiator)

    def _all_at_once(self, load: _Load) -> list[tuple[str, list[Initiator]]]:
        """All initiators of a load as one set with its name; no set where there are not two."""
        selector = load.spec["initiator"]
        found = selectors.initiators(selector, self.host, load.sides, load.where)
        if len(found) < 2:
            self.notes.add(f"{load.told}: nothing together, since fewer than two could run at once")
            return []
        return [(selectors.group_name(selector, self.host), found)]

    def _together(
        self, load: _Load, name: str, initiators: Sequence[Initiator]
    ) -> Iterator[LoadGroup]:
        """A load for each initiator of a set, which run at the same time."""
        members = [one for initiator in initiators for one in self._choices(load, initiator)]
        if len(members) != len(initiators):
            raise UserError("loads that run together have one target each", f"{load.where}.target")
        yield from load.varied(name, members)

    def _alone(self, load: _Load, initiator: Initiator) -> Iterator[LoadGroup]:
        """One load at a time of an initiator."""
        for one in self._choices(load, initiator):
            if one.target.kind == "none":
                yield LoadGroup(load.role, initiator.name, (one,))
            else:
                yield from load.varied(initiator.name, [one])

    def _choices(self, load: _Load, initiator: Initiator) -> Iterator[ChosenLoad]:
        """Every target of an initiator, with every responder."""
        spec, where = load.spec, load.where
        own = {**load.sides, load.role: {"initiator": initiator}}
        targets = selectors.targets(spec["target"], initiator, self.host, own, where, self.weights)
        self._say_lacking_policies(spec, targets, load.told)
        for target in targets:
            if not self._served(spec["category"], target, where):
                continue
            if target.kind == "none":
                yield ChosenLoad(initiator, target)
                continue
            for responder in self._responders(spec, initiator, own, where):
                yield ChosenLoad(initiator, target, responder=responder)

    def _say_lacking_policies(
        self, spec: Mapping[str, Any], found: Sequence[Target], told: str
    ) -> None:
        """Note which policies of placement were left out, and what to measure for them."""
        had = {target.name for target in found}
        for selector in selectors.as_list(spec["target"]):
            names = selector.get("policies", [])
            if names and not found:
                self.notes.add(f"{told}: there is nothing to place where one node has all memory")
                continue
            lacking = [name for name in names if name not in had]
            experiments = self.config["experiments"]
            for text in lacking_weights(lacking, selector.get("weights_from", {}), experiments):
                self.notes.add(f"{told}: {text}")

    def _served(self, category: str, target: Target, where: str) -> bool:
        """Whether the benchmark is for devices of this maker; the others become a note."""
        benchmark = self.benchmark(category, where)
        vendor = benchmark.document.get("device_vendor")
        if target.device is None or vendor in (None, target.device.vendor):
            return True
        self.notes.add(
            f"{benchmark.name} measures devices of {vendor} alone, so {target.name} is left out"
        )
        return False

    def _tell_missing(self, spec: Mapping[str, Any], told: str) -> None:
        """Note why a load that asks for OpenCL devices gets none."""
        wanted = any("opencl" in one for one in selectors.as_list(spec["target"]))
        if wanted and not self.host.topology.opencl_devices:
            self.notes.add(
                f"{told}: this host shows no OpenCL device; install clinfo and the driver of its"
                " GPU's maker, or PoCL (package pocl-opencl-icd), a driver for the processor"
            )

    def _responders(
        self, spec: Mapping[str, Any], initiator: Initiator, sides: Mapping[str, Any], where: str
    ) -> list[Initiator | None]:
        if "responder" not in spec:
            return [None]
        found = selectors.initiators(spec["responder"], self.host, sides, f"{where}.responder")
        return [one for one in found if not set(one.cpus) & set(initiator.cpus)]

    def benchmark(self, category: str, where: str) -> Benchmark:
        """The benchmark that the config names for a category."""
        if category not in self.benchmarks:
            raise UserError(
                f"no benchmark serves the category {category!r}",
                f"{where}.category",
                suggest_allowed(category, self.benchmarks),
            )
        found, host = self.benchmarks[category], self.host.topology.platform
        if found.platform != host:
            words = {"linux": "Linux", "darwin": "macOS"}
            has = (
                "workflow/config/darwin.yaml has" if host == "darwin" else "the default config has"
            )
            raise UserError(
                f"{found.name} has commands for {words[found.platform]}, and this host runs"
                f" {words[host]}",
                f"{where}.category",
                f"choose another benchmark for {category}; {has} those for {words[host]}",
            )
        return found

    def _kernels(
        self, spec: Mapping[str, Any], benchmark: Benchmark, where: str
    ) -> list[str | None]:
        """The wanted kernels that the benchmark has; what it lacks becomes a note of the plan."""
        if not benchmark.kernels:
            return [None]
        wanted = spec.get("kernel")
        if not wanted:
            raise UserError(
                f"{benchmark.name} needs a kernel", where, suggest_allowed("", benchmark.kernels)
            )
        missing = [kernel for kernel in wanted if kernel not in benchmark.kernels]
        if len(missing) == len(wanted):
            raise UserError(
                f"{benchmark.name} has no kernel {', '.join(missing)}",
                f"{where}.kernel",
                suggest_allowed(missing[0], benchmark.kernels),
            )
        if missing:
            lacking = ", ".join(missing)
            self.notes.add(f"{where}: left out, since {benchmark.name} lacks them: {lacking}")
        return [kernel for kernel in wanted if kernel in benchmark.kernels]
