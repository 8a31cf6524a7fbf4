"""Ask the model for many cores at the cost of a few: cores that are alike get the same rate.

The cores of a load on one node, with one L3 cache and the same speed, use the same parts of the
machine equally. One flow stands for all of them: it grows as fast as they do together, and uses as
much of one of these cores as each of them uses of its own. So the rates are the same, see
`access_paths.max_min_fair_rates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from chaosity.advice.requests import LATENCY
from chaosity.cpusets import format_cpu_list
from chaosity.records.point_types import Load
from chaosity.simulation.machine_model import MachineModel, NoiselessLoadResult, Routes
from chaosity.simulation.simulated_loads import processing_units_of_load


def results_by_alike_cores(
    model: MachineModel, loads: Sequence[Load]
) -> Mapping[str, NoiselessLoadResult]:
    """Return name of each load -> its rates and latency, as `MachineModel.noiseless_results` does.

    No core may run two loads, unless one of them reads drives on just these cores. In the results,
    the utilisation of one core stands for that of all that are alike.
    """
    fewer: list[Load] = []
    counts: dict[str, list[int]] = {}
    for load in loads:
        if load["target"]["drives"] or LATENCY in load["metrics"]:
            fewer.append(load)
            continue
        alike = _alike_units(model, load)
        cpus = format_cpu_list(alike)
        counts[load["name"]] = [alike[unit] for unit in sorted(alike)]
        places = {
            "initiator": {**load["initiator"], "cpus": cpus},
            "placement": {**load["placement"], "cpus": cpus},
        }
        fewer.append(cast(Load, {**load, **places}))
    routes = model.routes(fewer)
    left = {name: iter(own) for name, own in counts.items()}
    paths = []
    for path in routes.paths:
        number = next(left[path.load]) if path.load in left else 1
        if number > 1:
            flow = path.flow
            uses = {
                name: units / number if name.startswith("core") else units
                for name, units in flow.uses.items()
            }
            path = replace(path, flow=replace(flow, uses=uses, pace=flow.pace * number))
        paths.append(path)
    return model.results_on(Routes(routes.hits, paths), fewer)


def _alike_units(model: MachineModel, load: Load) -> dict[int, int]:
    """Return a unit of each group of alike cores -> the number of cores in its group."""
    topology = model.topology
    groups: dict[object, list[int]] = {}
    for unit in sorted(processing_units_of_load(load)):
        core = topology.core_of_pu[unit]
        speed = model.capacities[f"core{core.index}"]
        key = topology.node_of_pu.get(unit), topology.l3_of_pu.get(unit), core.kind, speed
        groups.setdefault(key, []).append(unit)
    return {units[0]: len(units) for units in groups.values()}
