"""Compute the values of the model for many places quickly.

In the computation, one core represents all cores that are alike. The routes of co-running loads are
computed only once, since these routes do not depend on the place of the program.

Cores are alike if they run one load, are on one node, share one L3 cache and have the same speed.
Alike cores use the same parts of the machine equally, so one flow represents the flows of all alike
cores. The rate of the representing flow grows as fast as the rates of all represented flows
together. The representing flow uses one core as much as each represented flow uses its core. So the
rates are the same as with one flow for each core, see `access_paths.max_min_fair_rates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

from chaosity.advice.requests import LATENCY
from chaosity.cpusets import format_cpu_list
from chaosity.records.record_format import Load
from chaosity.simulation.access_paths import Flow
from chaosity.simulation.machine_model import MachineModel, NoiselessLoadResult, Routes
from chaosity.simulation.simulated_loads import (
    processing_units_of_load,
    read_written_and_counted_shares,
)


class GroupedCoresModel:
    """Predicts rates and latencies of loads in many places while the same other loads run.

    A core may run two loads only if one of them reads drives on exactly the cores of the other.
    `same_routes` is another model whose routes are used. This other model may differ only in
    capacities that change no route.
    """

    def __init__(self, model: MachineModel, same_routes: GroupedCoresModel | None = None) -> None:
        self.model, self._same_routes = model, same_routes
        self._beside: tuple[Sequence[Load], Routes] = (), Routes({}, [])
        self._last: tuple[Sequence[Load], Sequence[Load], Routes] = (), (), Routes({}, [])

    def rate(self, loads: Sequence[Load], beside: Sequence[Load]) -> float:
        """Return the bytes per second that `loads` report in total while `beside` run."""
        counted = {
            load["name"]: 1.0
            if load["target"]["drives"]
            else read_written_and_counted_shares(load)[2]
            for load in loads
        }
        flows, found = self.model.flow_rates(self._routes(loads, beside), [*loads, *beside])
        return sum(
            rate * counted[flow.load]
            for flow, rate in zip(flows, found.rates, strict=True)
            if flow.load in counted
        )

    def results(
        self, loads: Sequence[Load], beside: Sequence[Load] = ()
    ) -> Mapping[str, NoiselessLoadResult]:
        """Return name of each load -> its rates and latency, as `noiseless_results` does.

        The utilisation of one core represents the utilisation of all alike cores.
        """
        return self.model.results_on(self._routes(loads, beside), [*loads, *beside])

    def used_resources(
        self, loads: Sequence[Load], beside: Sequence[Load]
    ) -> tuple[dict[str, float], set[str]]:
        """Return resource that `loads` use -> utilisation (0 to 1), and resources of all loads."""
        flows, found = self.model.flow_rates(self._routes(loads, beside), [*loads, *beside])
        names = {load["name"] for load in loads}
        every = {name for flow in flows for name in flow.uses}
        own = {name for flow in flows if flow.load in names for name in flow.uses}
        return {name: found.utilisation.get(name, 0.0) for name in sorted(own)}, every

    def _routes(self, loads: Sequence[Load], beside: Sequence[Load]) -> Routes:
        """Return the routes of all loads; one core represents all cores that are alike."""
        if self._same_routes:
            return self._same_routes._routes(loads, beside)
        if self._last[0] is not loads or self._last[1] is not beside:
            self._last = loads, beside, self._routes_of_parts(loads, beside)
        return self._last[2]

    def _routes_of_parts(self, loads: Sequence[Load], beside: Sequence[Load]) -> Routes:
        """Return the routes of a program's loads and of the loads beside it.

        The routes of the loads beside the program are kept for the next call. The kept routes are
        invalid only if data fit into a cache, because then one load changes the cache hits of
        another load.
        """
        if any(load["memory_bytes"] <= self._largest_cache for load in (*loads, *beside)):
            return self._compute_routes([*loads, *beside])
        if self._beside[0] is not beside:
            self._beside = beside, self._compute_routes(beside)
        own, others = self._compute_routes(loads), self._beside[1]
        return Routes({**own.hits, **others.hits}, [*own.flows, *others.flows])

    @cached_property
    def _largest_cache(self) -> int:
        return max((domain.size_bytes or 0 for domain in self.model.topology.l3_domains), default=0)

    def _compute_routes(self, loads: Sequence[Load]) -> Routes:
        """Return the routes of loads, with one flow for each group of alike cores."""
        fewer: list[Load] = []
        counts: dict[str, list[int]] = {}
        for load in loads:
            if load["target"]["drives"] or LATENCY in load["metrics"]:
                fewer.append(load)
                continue
            alike = self._core_count_by_representative_unit(load)
            cpus = format_cpu_list(alike)
            counts[load["name"]] = [alike[unit] for unit in sorted(alike)]
            places = {
                "initiator": {**load["initiator"], "cpus": cpus},
                "placement": {**load["placement"], "cpus": cpus},
            }
            fewer.append(cast(Load, {**load, **places}))
        routes = self.model.routes(fewer)
        left = {name: iter(own) for name, own in counts.items()}
        flows = [
            _flow_of_equal_cores(flow, next(left[flow.load])) if flow.load in left else flow
            for flow in routes.flows
        ]
        return Routes(routes.hits, flows)

    def _core_count_by_representative_unit(self, load: Load) -> dict[int, int]:
        """Return a unit of each group of alike cores -> the number of cores in its group."""
        topology = self.model.topology
        groups: dict[object, list[int]] = {}
        for unit in sorted(processing_units_of_load(load)):
            core = topology.core_of_pu[unit]
            speed = self.model.capacities[f"core{core.index}"]
            key = topology.node_of_pu.get(unit), topology.l3_of_pu.get(unit), core.kind, speed
            groups.setdefault(key, []).append(unit)
        return {units[0]: len(units) for units in groups.values()}


def _flow_of_equal_cores(flow: Flow, number: int) -> Flow:
    """Return the flow of `number` equal cores together, computed from the flow of one core.

    The pace of the flow is multiplied by `number`. A core handles only its share of the bytes, so
    the use of a core is divided by `number`.
    """
    if number == 1:
        return flow
    uses = {
        name: units / number if name.startswith("core") else units
        for name, units in flow.uses.items()
    }
    return replace(flow, uses=uses, pace=flow.pace * number)
