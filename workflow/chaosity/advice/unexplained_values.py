"""Find what measured values say that no fitted parameter explains: slow pairs and slow links."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import cast

import numpy as np

from chaosity.advice.requests import BANDWIDTH, LATENCY
from chaosity.documents.machines import Fault, MachineDescription
from chaosity.records.point_types import Load, Point
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_loads import read_written_and_counted_shares
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.topology.topology_model import Topology
from chaosity.twin.fitted_description import FittedMachine
from chaosity.twin.machine_parameters import PARAMETERS, can_be_fitted, model_of
from chaosity.twin.model_values import cell_medians, departs
from chaosity.twin.predict_loads import model_values

# Less data can be in caches, where other parameters count.
_BEYOND_CACHES = 64 << 20
_LINK = re.compile(r"package(\d+)->package(\d+)")
[_LINK_CAPACITY] = [
    each for each in PARAMETERS if each.name == "links.package_to_package_bytes_per_second"
]
# A capacity that no measurement determines, times this, limits nothing.
_NO_LIMIT = 1e3


@dataclass(frozen=True)
class SlowPairs:
    """Pairs of nodes that are slower than every parameter of the model explains.

    The keys are the node of the cores and the node of the memory. `rates` are measured bandwidths
    in bytes per second, `latencies` are measured over predicted latencies.
    """

    rates: Mapping[tuple[int, int], float]
    latencies: Mapping[tuple[int, int], float]


def find_slow_pairs(
    measured: Measurements, points: Sequence[Point], topology: Topology, fitted: FittedMachine
) -> SlowPairs:
    """Return the pairs that are slower than the model explains.

    Args:
        measured: the tidy table of the host.
        points: its planned points.
        topology: its topology.
        fitted: the fitted machine.
    """
    found: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    for load, metric, median, predicted in _single_loads(measured, points, topology, fitted):
        nodes, memory = load["initiator"]["nodes"], load["placement"]["memory_nodes"]
        kind = {BANDWIDTH: "node", LATENCY: "pu"}.get(metric)
        if load["initiator"]["kind"] == kind and len(nodes) == len(memory) == 1:
            found[metric, nodes[0], memory[0]].append((median, median / predicted))
    rates: dict[tuple[int, int], float] = {}
    latencies: dict[tuple[int, int], float] = {}
    for (metric, node, target), values in found.items():
        away = fmean(math.log(ratio) for _, ratio in values)
        if departs(away, fitted.scale) and (away > 0) == less_is_better(metric):
            if metric == LATENCY:
                latencies[node, target] = math.exp(away)
            else:
                rates[node, target] = max(median for median, _ in values)
    return SlowPairs(rates, latencies)


def with_slow_links(
    fitted: FittedMachine, measured: Measurements, points: Sequence[Point], topology: Topology
) -> FittedMachine:
    """Return the machine with the links between packages that are slower than all others.

    A fit keeps no slow link if the values do not determine how fast the other links are. But what
    a load gets that uses one link in one direction is then the capacity of this link.

    Args:
        fitted: the fitted machine.
        measured: the tidy table of the host.
        points: its planned points.
        topology: its topology.
    """
    model = model_of(fitted.values, topology, fitted.description)
    slow: dict[tuple[int, int], float] = {}
    for load, metric, median, predicted in _single_loads(measured, points, topology, fitted):
        away = math.log(median / predicted)
        if metric == BANDWIDTH and away < 0 and departs(away, fitted.scale):
            uses = _link_uses(model, load)
            if len(uses) == 1:
                [(link, use)] = uses.items()
                slow[link] = max(median * use, slow.get(link, 0.0))
    if not slow:
        return fitted
    usual = fitted.values.get(_LINK_CAPACITY, max(slow.values()) * _NO_LIMIT)
    faults = [
        Fault(fault="slow_link", from_package=begin, to_package=end, remaining=rate / usual)
        for (begin, end), rate in slow.items()
    ]
    every = [*fitted.description.get("faults", []), *faults]
    found = replace(
        fitted, description=cast(MachineDescription, {**fitted.description, "faults": every})
    )
    if _LINK_CAPACITY in fitted.values:
        return found
    # No other link has a limit, and nothing depends on how far away it is.
    return replace(
        found,
        values={**fitted.values, _LINK_CAPACITY: usual},
        covariance=np.pad(fitted.covariance, (0, 1)),
        parameters=tuple(
            each for each in fitted.parameters if each.parameter is not _LINK_CAPACITY
        ),
    )


def _single_loads(
    measured: Measurements, points: Sequence[Point], topology: Topology, fitted: FittedMachine
) -> Iterator[tuple[Load, str, float, float]]:
    """Yield each load of memory that ran alone: load, metric, measured and predicted value."""
    alone = [point for point in points if len(point["loads"]) == 1 and can_be_fitted(point)]
    model = model_of(fitted.values, topology, fitted.description)
    for (number, _, metric), (median, _, _) in cell_medians(measured, alone).items():
        [load] = alone[number]["loads"]
        if not load["target"]["drives"] and load["memory_bytes"] >= _BEYOND_CACHES:
            yield load, metric, median, model_values(model, [load])[load["name"], metric]


def _link_uses(model: MachineModel, load: Load) -> dict[tuple[int, int], float]:
    """Return link between packages -> bytes on it for a byte that the load counts."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    paths = model.routes([load]).paths
    counted = read_written_and_counted_shares(load["kernel"])[2]
    for path in paths:
        for name, use in path.flow.uses.items():
            if use and (match := _LINK.fullmatch(name)):
                found[int(match[1]), int(match[2])] += use / len(paths) / counted
    return dict(found)
