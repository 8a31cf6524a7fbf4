"""Find the pairs of nodes that are slower than the fitted parameters explain."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from chaosity.advice.requests import BANDWIDTH, LATENCY
from chaosity.records.record_format import Point
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.topology.topology_model import Topology
from chaosity.twin.fitted_description import FittedMachine
from chaosity.twin.machine_parameters import can_be_fitted, model_with_values
from chaosity.twin.model_values import cell_medians, departs
from chaosity.twin.predict_loads import model_values

# Data of fewer bytes can be in caches, whose parameters are others.
_BEYOND_CACHES = 64 << 20
# Metric -> kind of initiator whose values count for a pair of nodes.
_KIND_OF_INITIATOR = {BANDWIDTH: "node", LATENCY: "pu"}


@dataclass(frozen=True)
class SlowPairs:
    """Pairs of nodes that are slower than the parameters of the model explain.

    A key is (node of the cores, node of their memory). `rates` are measured bandwidths in bytes per
    second; `latencies` are ratios of measured to predicted latencies.
    """

    rates: Mapping[tuple[int, int], float]
    latencies: Mapping[tuple[int, int], float]


def find_slow_pairs(
    measured: Measurements, points: Sequence[Point], topology: Topology, fitted: FittedMachine
) -> SlowPairs:
    """Return the pairs that are slower than the model explains, with data beyond the caches.

    Args:
        measured: the tidy table of the host.
        points: its planned points.
        topology: its topology.
        fitted: the fitted machine.
    """
    alone = [point for point in points if len(point["loads"]) == 1 and can_be_fitted(point)]
    model = model_with_values(fitted.values, topology, fitted.description)
    # Metric, node of the cores, node of the memory -> measured and predicted values.
    found: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    for (number, _, metric), (median, _, _) in cell_medians(measured, alone).items():
        [load] = alone[number]["loads"]
        begin, memory = load["initiator"], load["placement"]["memory_nodes"]
        if (
            not load["target"]["drives"]
            and load["memory_bytes"] >= _BEYOND_CACHES
            and begin["kind"] == _KIND_OF_INITIATOR.get(metric)
            and len(begin["nodes"]) == len(memory) == 1
        ):
            predicted = model_values(model, [load])[load["name"], metric]
            found[metric, begin["nodes"][0], memory[0]].append((median, predicted))
    rates: dict[tuple[int, int], float] = {}
    latencies: dict[tuple[int, int], float] = {}
    for (metric, node, target), own in found.items():
        away = fmean(math.log(median / predicted) for median, predicted in own)
        if departs(away, fitted.scale) and (away > 0) == less_is_better(metric):
            if metric == LATENCY:
                latencies[node, target] = math.exp(away)
            else:
                rates[node, target] = max(median for median, _ in own)
    return SlowPairs(rates, latencies)
