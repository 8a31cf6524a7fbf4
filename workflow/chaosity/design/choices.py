"""What is chosen for each load of a point, and every combination that an experiment means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from chaosity.benchmarks import Benchmark
from chaosity.config import closest
from chaosity.design import selectors
from chaosity.design.elements import Elements
from chaosity.design.levels import Levels, Notes, level_text
from chaosity.design.naming import LoadName
from chaosity.design.policies import Weights, lacking_weights
from chaosity.design.sides import Initiator, Side, Target
from chaosity.errors import UserError


@dataclass(frozen=True)
class Choice:
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
class Group:
    """What was chosen for one load of an experiment's file: a load, or several that run together.

    `initiator` is what the name of the point calls all of them.
    """

    role: str
    initiator: str
    members: tuple[Choice, ...]

    @property
    def absent(self) -> bool:
        """Whether the load is left out, as the baseline of those beside it."""
        return self.members[0].target.kind == "none"

    @property
    def sides(self) -> dict[str, Side]:
        """Initiator and target, for selectors that refer to them; none of several together."""
        if len(self.members) > 1:
            return {}
        [one] = self.members
        return {"initiator": one.initiator, "target": one.target}

    def load_name(self, choice: Choice) -> str:
        """Name of one load, of its own within the point."""
        together = len(self.members) > 1
        return f"{self.role}-{choice.initiator.name}" if together else self.role

    def name(self, host: Elements) -> LoadName:
        """The load's part of the point's name."""
        first = self.members[0]
        target = first.target
        if len({member.target.nodes for member in self.members}) > 1:
            target = host.memory({node for member in self.members for node in member.target.nodes})
        responder = [("responder", first.responder.name)] if first.responder else []
        levels = tuple((name, level_text(name, level)) for name, level in first.levels)
        return LoadName(self.role, self.initiator, target.name, first.kernel, (*responder, *levels))


Chosen = Mapping[str, Group]


class Choices:
    """All combinations that the loads of a design allow on a host.

    Args:
        host: its initiators, nodes and drives.
        benchmarks: the benchmark that serves each category.
        config: the checked config.
        weights: what was measured of where pages are best put; None for nothing.
    """

    def __init__(
        self,
        host: Elements,
        benchmarks: Mapping[str, Benchmark],
        config: Mapping[str, Any],
        weights: Weights | None = None,
    ) -> None:
        self.host, self.benchmarks, self.config = host, benchmarks, config
        self.weights = weights
        self.notes = Notes()

    def of(
        self, experiment: str, loads: Mapping[str, Any], where: str, chosen: Chosen | None = None
    ) -> Iterator[Chosen]:
        """Every combination of the loads that are not chosen yet, in the order of the file.

        Raises:
            UserError: a selector, kernel or parameter that this host or benchmark does not have.
        """
        chosen = chosen or {}
        role = next((one for one in loads if one not in chosen), None)
        if role is None:
            yield chosen
            return
        place = f"{where}.loads.{role}"
        for group in self._groups(experiment, role, loads[role], chosen, place):
            yield from self.of(experiment, loads, where, {**chosen, role: group})

    def _groups(
        self, experiment: str, role: str, spec: Mapping[str, Any], chosen: Chosen, where: str
    ) -> Iterator[Group]:
        benchmark = self.benchmark(spec["category"], where)
        fewer = self.config["levels"].get(experiment, {})
        found = self._kernels(spec, benchmark, where)
        kernels = self.notes.fewer(found, fewer.get("kernel"), f"{experiment}, {role}: kernels")
        sides = {name: group.sides for name, group in chosen.items()}
        sets = selectors.in_each_set(spec["initiator"], self.host, where)
        told = f"{experiment}, {role}"  # in notes, which people read in the report
        self._tell_missing(spec, told)
        levels = Levels(self.host, benchmark, self.config, fewer, self.notes, where, told)
        if sets is None:
            initiators = selectors.initiators(spec["initiator"], self.host, sides, where)
            if not spec.get("together"):
                for initiator in initiators:
                    yield from self._alone(
                        role, spec, initiator, sides, kernels, levels, where, told
                    )
                return
            if len(initiators) < 2:
                self.notes.add(f"{told}: nothing together, since fewer than two could run at once")
                return
            sets = [(selectors.group_name(spec["initiator"], self.host), initiators)]
        elif not spec.get("together"):
            raise UserError("in_each_set_of means loads that run together", where, "add together")
        for name, initiators in sets:
            members = [
                one.members[0]
                for initiator in initiators
                for one in self._alone(role, spec, initiator, sides, [None], None, where, told)
            ]
            if len(members) != len(initiators):
                raise UserError("loads that run together have one target each", f"{where}.target")
            for kernel, varied in product(kernels, levels.of(spec, members)):
                yield Group(
                    role, name, tuple(replace(one, kernel=kernel, levels=varied) for one in members)
                )

    def _alone(
        self,
        role: str,
        spec: Mapping[str, Any],
        initiator: Initiator,
        sides: Mapping[str, Any],
        kernels: Sequence[str | None],
        levels: Levels | None,
        where: str,
        told: str,
    ) -> Iterator[Group]:
        """One load at a time: targets, responders, kernels and levels of an initiator."""
        own = {**sides, role: {"initiator": initiator}}
        targets = selectors.targets(spec["target"], initiator, self.host, own, where, self.weights)
        self._say_lacking_policies(spec, targets, told)
        for target in targets:
            if not self._served(spec["category"], target, where):
                continue
            if target.kind == "none":
                yield Group(role, initiator.name, (Choice(initiator, target),))
                continue
            for responder in self._responders(spec, initiator, own, where):
                choice = Choice(initiator, target, responder=responder)
                varied = levels.of(spec, [choice]) if levels else [()]
                for kernel, level in product(kernels, varied):
                    one = replace(choice, kernel=kernel, levels=level)
                    yield Group(role, initiator.name, (one,))

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
                closest(category, self.benchmarks),
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
            lacking = ", ".join(missing)
            self.notes.add(f"{where}: left out, since {benchmark.name} lacks them: {lacking}")
        return [kernel for kernel in wanted if kernel in benchmark.kernels]
