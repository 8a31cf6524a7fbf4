"""Find what measured values say that no fitted parameter explains: slow pairs and slow links."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
from chaosity.twin.machine_parameters import NO_LIMIT, PARAMETERS, can_be_fitted, model_of
from chaosity.twin.model_values import cell_medians, departs
from chaosity.twin.predict_loads import model_values

# Less data can be in caches, where other parameters count.
_BEYOND_CACHES = 64 << 20
_LINK = re.compile(r"package(\d+)->package(\d+)")
[_LINK_CAPACITY] = [
    each for each in PARAMETERS if each.name == "links.package_to_package_bytes_per_second"
]


@dataclass(frozen=True)
class SingleLoad:
    """A value of a load of memory that ran alone: as measured, and as the model predicts it."""

    load: Load
    metric: str
    measured: float  # the median
    predicted: float

    @property
    def away(self) -> float:
        """Return the logarithm of measured over predicted value."""
        return math.log(self.measured / self.predicted)


@dataclass(frozen=True)
class SlowPairs:
    """Pairs of nodes that are slower than every parameter of the model explains.

    The keys are the node of the cores and the node of the memory. `rates` are measured bandwidths
    in bytes per second, `latencies` are measured over predicted latencies.
    """

    rates: Mapping[tuple[int, int], float]
    latencies: Mapping[tuple[int, int], float]


def predict_single_loads(
    measured: Measurements, points: Sequence[Point], topology: Topology, fitted: FittedMachine
) -> list[SingleLoad]:
    """Return the loads of memory that ran alone, with data beyond the caches.

    Args:
        measured: the tidy table of the host.
        points: its planned points.
        topology: its topology.
        fitted: the fitted machine.
    """
    alone = [point for point in points if len(point["loads"]) == 1 and can_be_fitted(point)]
    model = model_of(fitted.values, topology, fitted.description)
    found = []
    for (number, _, metric), (median, _, _) in cell_medians(measured, alone).items():
        [load] = alone[number]["loads"]
        if not load["target"]["drives"] and load["memory_bytes"] >= _BEYOND_CACHES:
            predicted = model_values(model, [load])[load["name"], metric]
            found.append(SingleLoad(load, metric, median, predicted))
    return found


def find_slow_pairs(singles: Iterable[SingleLoad], fitted: FittedMachine) -> SlowPairs:
    """Return the pairs that are slower than the model explains."""
    found: dict[tuple[str, int, int], list[SingleLoad]] = defaultdict(list)
    for single in singles:
        begin, nodes = single.load["initiator"], single.load["placement"]["memory_nodes"]
        kind = {BANDWIDTH: "node", LATENCY: "pu"}.get(single.metric)
        if begin["kind"] == kind and len(begin["nodes"]) == len(nodes) == 1:
            found[single.metric, begin["nodes"][0], nodes[0]].append(single)
    rates: dict[tuple[int, int], float] = {}
    latencies: dict[tuple[int, int], float] = {}
    for (metric, node, target), own in found.items():
        away = fmean(single.away for single in own)
        if departs(away, fitted.scale) and (away > 0) == less_is_better(metric):
            if metric == LATENCY:
                latencies[node, target] = math.exp(away)
            else:
                rates[node, target] = max(single.measured for single in own)
    return SlowPairs(rates, latencies)


def with_slow_links(
    fitted: FittedMachine, singles: Iterable[SingleLoad], topology: Topology
) -> FittedMachine:
    """Return the machine with the links between packages that are slower than all others.

    A fit keeps no slow link if the values do not determine how fast the other links are. But what
    a load gets that uses one link in one direction is then the capacity of this link.
    """
    model = model_of(fitted.values, topology, fitted.description)
    slow: dict[tuple[int, int], float] = {}
    for single in singles:
        is_slow = single.metric == BANDWIDTH and single.away < 0
        if is_slow and departs(single.away, fitted.scale):
            uses = _link_uses(model, single.load)
            if len(uses) == 1:
                [(link, use)] = uses.items()
                slow[link] = max(single.measured * use, slow.get(link, 0.0))
    if not slow:
        return fitted
    usual = fitted.values.get(_LINK_CAPACITY, max(slow.values()) * NO_LIMIT)
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
