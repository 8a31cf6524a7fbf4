"""Find every combination of loads that a design of an experiment asks for on a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from chaosity.benchmarks.benchmark_templates import Benchmark
from chaosity.design.even_samples_and_plan_notes import PlanNotes
from chaosity.design.factor_levels import DesignedLoad
from chaosity.design.host_resources import HostResources
from chaosity.design.initiator_and_target_types import Endpoint, Initiator, Target
from chaosity.design.initiator_selectors import (
    EarlierEndpoints,
    as_list,
    joint_name_of_initiators,
    select_initiator_sets,
    select_initiators,
)
from chaosity.design.point_loads import ChosenLoad, Combination, LoadGroup
from chaosity.design.target_selectors import WeightsLookup, notes_on_missing_weights, select_targets
from chaosity.documents.config import Config
from chaosity.documents.experiments import LoadDesign, TargetSelector
from chaosity.documents.shipped_documents import BENCHMARKS, load_benchmark, yaml_file_names
from chaosity.errors import (
    DesignLeftOutError,
    UserError,
    check_allowed,
    suggest_allowed,
)

PLATFORMS = {"linux": "Linux", "darwin": "macOS"}


@dataclass
class LoadCombinations:
    """All combinations that the loads of a design allow on a host."""

    host: HostResources  # initiators, nodes and drives of the host
    benchmarks: Mapping[str, Benchmark]  # the benchmark of each category
    config: Config  # the checked config
    # The measured weights for placements of pages; None if there are none.
    weights: WeightsLookup | None = None
    # Notes on what was left out, with reasons.
    plan_notes: PlanNotes = field(default_factory=PlanNotes)

    def iterate_combinations(
        self,
        experiment: str,
        loads: Mapping[str, LoadDesign],
        where: str,
        chosen: Combination | None = None,
    ) -> Iterator[Combination]:
        """Yield every combination of the loads that are not chosen yet, in the order of the file.

        Raises:
            UserError: this host or benchmark does not have a selector, kernel or parameter.
        """
        chosen = chosen or {}
        role = next((name for name in loads if name not in chosen), None)
        if role is None:
            yield chosen
            return
        load = self._load(experiment, role, loads[role], chosen, f"{where}.loads.{role}")
        for group in self._groups(load):
            yield from self.iterate_combinations(experiment, loads, where, {**chosen, role: group})

    def _load(
        self, experiment: str, role: str, spec: LoadDesign, chosen: Combination, where: str
    ) -> DesignedLoad:
        benchmark = self._benchmark(spec["category"], where)
        at_most = (self.config["levels"] or {}).get(experiment, {})
        label = f"{experiment}, {role}"
        kernels = self._kernels(spec, benchmark, where)
        return DesignedLoad(
            role,
            spec,
            self.host,
            benchmark,
            self.config,
            earlier={name: group.initiator_and_target for name, group in chosen.items()},
            kernels=self.plan_notes.limit_levels(
                kernels, at_most.get("kernel"), f"{label}: kernels"
            ),
            at_most=at_most,
            notes=self.plan_notes,
            where=where,
            label=label,
        )

    def _groups(self, load: DesignedLoad) -> Iterator[LoadGroup]:
        """Yield all choices for a load: single loads, or loads that run together."""
        selectors, where = load.spec["initiator"], load.where
        sets = select_initiator_sets(selectors, self.host, where)
        self._note_missing_devices(load)
        if load.spec.get("together"):
            for name, initiators in self._all_initiators(load) if sets is None else sets:
                yield from self._together(load, name, initiators)
        elif sets is not None:
            raise UserError(
                "in_each_set_of needs loads that run together", where, "add the key together"
            )
        else:
            for initiator in select_initiators(selectors, self.host, load.earlier, where):
                yield from self._alone(load, initiator)

    def _all_initiators(self, load: DesignedLoad) -> list[tuple[str, list[Initiator]]]:
        """Return one named set of all initiators of a load; none if there are too few."""
        selectors = load.spec["initiator"]
        found = select_initiators(selectors, self.host, load.earlier, load.where)
        if len(found) < 2 and load.spec["together"] is True:
            self.plan_notes.add_note(
                f"{load.label}: no concurrent points, since there are fewer than two initiators"
            )
            return []
        return [(joint_name_of_initiators(selectors, self.host), found)]

    def _together(
        self, load: DesignedLoad, name: str, initiators: Sequence[Initiator]
    ) -> Iterator[LoadGroup]:
        """Yield groups with a load for each initiator of a set."""
        members = [chosen for initiator in initiators for chosen in self._choices(load, initiator)]
        if len(members) != len(initiators):
            raise UserError("loads that run together need one target each", f"{load.where}.target")
        yield from load.load_group_of_each_kernel_and_levels(name, members)

    def _alone(self, load: DesignedLoad, initiator: Initiator) -> Iterator[LoadGroup]:
        """Yield groups with a single load of an initiator."""
        for chosen in self._choices(load, initiator):
            if chosen.target.kind == "none":
                yield LoadGroup(load.role, initiator.name, (chosen,))
            else:
                yield from load.load_group_of_each_kernel_and_levels(initiator.name, [chosen])

    def _choices(self, load: DesignedLoad, initiator: Initiator) -> Iterator[ChosenLoad]:
        """Yield every choice of target, responder and buffers for an initiator."""
        endpoints: dict[str, Endpoint] = {"initiator": initiator}
        earlier = {**load.earlier, load.role: endpoints}
        targets = select_targets(
            load.spec["target"], initiator, self.host, earlier, load.where, self.weights
        )
        self._note_missing_weights(load, targets)
        for target in targets:
            if not self._is_measurable(load.benchmark, target):
                continue
            if target.kind == "none":
                yield ChosenLoad(initiator, target)
                continue
            for responder in self._responders(load, initiator, earlier):
                chosen = ChosenLoad(initiator, target, responder=responder)
                yield from self._with_buffers(load, chosen, earlier)

    def _responders(
        self, load: DesignedLoad, initiator: Initiator, earlier: EarlierEndpoints
    ) -> list[Initiator | None]:
        if "responder" not in load.spec:
            return [None]
        where = f"{load.where}.responder"
        found = select_initiators(load.spec["responder"], self.host, earlier, where)
        return [other for other in found if not set(other.cpus) & set(initiator.cpus)]

    def _with_buffers(
        self, load: DesignedLoad, chosen: ChosenLoad, earlier: EarlierEndpoints
    ) -> Iterator[ChosenLoad]:
        """Yield the load with each memory for its buffers; without the key, only the load itself.

        Raises:
            DesignLeftOutError: the benchmark does not place its buffers.
            UserError: the target is not a drive set.
        """
        spec, where, host = load.spec, f"{load.where}.buffers", self.host
        if "buffers" not in spec:
            yield chosen
            return
        if not chosen.target.is_drive_set:
            raise UserError("only loads on drives have buffers", where, "remove the key buffers")
        if "buffers" in spec.get("vary", {}):
            raise UserError("vary also has the key buffers", where, "remove one key buffers")
        if not any("target.page_nodes" in word for word in load.benchmark.document["command"]):
            wrong = f"{load.benchmark.name} does not place its buffers"
            raise DesignLeftOutError(wrong, where, "choose another benchmark")
        if len(host.topology.memory_nodes) < 2:
            self.plan_notes.add_note(
                f"{load.label}: no places of buffers to compare, since one node has all memory"
            )
            return
        ends = {**earlier, load.role: {**earlier[load.role], "target": chosen.target}}
        buffers = cast(TargetSelector, spec["buffers"])  # whose keys a buffer's are a part of
        for memory in select_targets(buffers, chosen.initiator, host, ends, where):
            yield replace(chosen, buffers=memory, levels=(("buffers", memory.name),))

    def _note_missing_weights(self, load: DesignedLoad, found: Sequence[Target]) -> None:
        """Add notes on placements that were left out, and on what to measure for them."""
        names = {target.name for target in found}
        for selector in as_list(load.spec["target"]):
            policies = selector.get("policies", [])
            if policies and len(self.host.topology.memory_nodes) < 2:
                self.plan_notes.add_note(
                    f"{load.label}: only first touch, since one node has all memory"
                )
                continue
            missing = [name for name in policies if name not in names]
            sources = selector.get("weights_from", {})
            for text in notes_on_missing_weights(missing, sources, self.config["experiments"]):
                self.plan_notes.add_note(f"{load.label}: {text}")

    def _is_measurable(self, benchmark: Benchmark, target: Target) -> bool:
        """Return whether the benchmark is for devices of the target's vendor; if not, note it."""
        vendor = benchmark.document.get("device_vendor")
        if target.device is None or vendor in (None, target.device.vendor):
            return True
        self.plan_notes.add_note(
            f"{benchmark.name} measures only devices of {vendor}, so {target.name} is left out"
        )
        return False

    def _note_missing_devices(self, load: DesignedLoad) -> None:
        """Add a note on why a load that asks for writable drives or OpenCL devices gets none."""
        drives = [selector.get("drives", {}) for selector in as_list(load.spec["target"])]
        writable = any(drive.destructive for drive in self.host.drives)
        if any(selector.get("writable") for selector in drives) and not writable:
            self.plan_notes.add_note(
                f"{load.label}: no drive may be written, since the host's"
                " chaosity_destructive_drives names none"
            )
        wanted = any("opencl" in selector for selector in as_list(load.spec["target"]))
        if wanted and not self.host.topology.opencl_devices:
            self.plan_notes.add_note(
                f"{load.label}: this host has no OpenCL device; install the driver of the GPU's"
                " vendor, or PoCL (package pocl-opencl-icd), a driver for processors, and run"
                " ansible-playbook provision.yml, which builds the program that lists devices"
            )

    def _benchmark(self, category: str, where: str) -> Benchmark:
        """Return the benchmark that the config names for a category, if it is for this host."""
        place = f"{where}.category"
        unknown = f"no benchmark for the category {category!r} in the config"
        check_allowed(category, self.benchmarks, unknown, place)
        found, host = self.benchmarks[category], self.host.topology.os_family
        if found.operating_system_of_commands != host:
            benchmark_system = PLATFORMS[found.operating_system_of_commands]
            host_system = PLATFORMS[host]
            file = "config/darwin.yaml" if host == "darwin" else "the default config"
            raise UserError(
                f"{found.name} is for {benchmark_system}, but this host runs {host_system}",
                place,
                f"choose another benchmark for {category}; {file} has those for {host_system}",
            )
        return found

    def _kernels(self, spec: LoadDesign, benchmark: Benchmark, where: str) -> Sequence[str | None]:
        """Return the requested kernels that the benchmark has; add a note on the others."""
        if not benchmark.kernels:
            return [None]
        wanted = spec.get("kernel")
        if not wanted:
            remedy = suggest_allowed("", benchmark.kernels)
            raise UserError(f"{benchmark.name} needs a kernel", where, remedy)
        missing = [kernel for kernel in wanted if kernel not in benchmark.kernels]
        listed = ", ".join(missing)
        if len(missing) == len(wanted):
            remedy = suggest_allowed(missing[0], benchmark.kernels)
            wrong, place = f"{benchmark.name} has no kernel {listed}", f"{where}.kernel"
            others = (load_benchmark(name) for name in yaml_file_names(BENCHMARKS))
            known = {kernel for other in others for kernel in other.get("kernels", {})}
            error = DesignLeftOutError if known.issuperset(missing) else UserError
            raise error(wrong, place, remedy)
        if missing:
            reason = f"since {benchmark.name} does not have them"
            self.plan_notes.add_note(f"{where}: {listed} left out, {reason}")
        return [kernel for kernel in wanted if kernel in benchmark.kernels]
