"""How often the 95 % interval of the crossover of two firmware modes holds the planted crossover.

The machine is the simulated server of document 001, in NPS1 and NPS0. Each seed and each mix of
reads and writes gives one interval. The share of intervals has a Clopper-Pearson interval.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import brentq

from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.figure_data import parse_figure_specs
from chaosity.figures.select import select_figure_data
from chaosity.records.record_format import Point
from chaosity.report.configurations import mean_curves
from chaosity.simulation.machine_model import MachineModel, true_values
from chaosity.statistics.curves import CurveComparison, compare_latency_curves
from chaosity.topology.topology_model import Topology
from machines import TODAY, SimulatedHost, planned

REPLICATES = (3, 5)
EXPERIMENT, FIGURE = "modes_under_load", "modes_under_load_one_node"
MIXES = ("read100", "read67_nt")
_SHARES = (1.0, 100.0)  # of the traffic's peak, in per cent


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    yield "| n | mix | planted | seeds | one crossover found | hold it | half width | mean error |"
    yield "|---|---|---|---|---|---|---|---|"
    for n in REPLICATES:
        modes = SimulatedModes("epyc_9575f", ("nps1", "nps0"), n)
        found = [modes.found(seed) for seed in range(1, seeds + 1)]
        for mix in MIXES:
            planted = modes.planted[mix]
            single = [f[mix].crossovers[0] for f in found if len(f[mix].crossovers) == 1]
            hits = sum(each.low <= planted <= each.high for each in single)
            share = stats.binomtest(hits, len(single)).proportion_ci()
            half = np.median([(each.high - each.low) / 2 / planted for each in single])
            error = np.mean([each.bandwidth / planted - 1 for each in single])
            columns = [
                n,
                mix,
                f"{planted / 1e9:.0f} GB/s",
                seeds,
                len(single),
                f"{hits / len(single):.0%} ({share.low:.0%} to {share.high:.0%})",
                f"{half:.1%}",
                f"{error:+.2%}",
            ]
            yield f"| {' | '.join(map(str, columns))} |"


class SimulatedModes:
    """A simulated machine in two of its firmware modes, with points under load."""

    def __init__(self, machine: str, modes: tuple[str, ...], replicates: int) -> None:
        """Plan the machine in each mode."""
        config = {"experiments": [EXPERIMENT], "replicates": replicates, "levels": {}}
        self.hosts = []
        for mode in modes:
            host = planned(machine, f"{machine}_{mode}", name=machine, all_points=True, **config)
            self.hosts.append(host.where(_is_compared))

    @cached_property
    def planted(self) -> dict[str, float]:
        """Return mix of reads and writes -> the true crossover in bytes per second.

        The true crossover is the bandwidth at which the model gives the same latency in both modes.
        The model is evaluated at any share of the peak, not only at the few measured shares.
        """
        return {mix: self._planted(mix) for mix in MIXES}

    def _planted(self, mix: str) -> float:
        def latency(host: SimulatedHost, bandwidth: float) -> float:
            share = brentq(
                lambda share: _bandwidth_and_latency(host, mix, share)[0] - bandwidth,
                *_SHARES,
                xtol=1e-3,
            )
            return _bandwidth_and_latency(host, mix, float(share))[1]

        ends = [
            [_bandwidth_and_latency(host, mix, share)[0] for host in self.hosts]
            for share in _SHARES
        ]
        first, second = self.hosts
        crossover = brentq(
            lambda bandwidth: latency(first, bandwidth) - latency(second, bandwidth),
            max(ends[0]),
            min(ends[1]),
            rtol=1e-5,
        )
        return float(crossover)

    def found(self, seed: int) -> dict[str, CurveComparison]:
        """Return the comparison of both modes for each mix, from the tables of a seed."""
        curves = [_curves(host, seed) for host in self.hosts]
        return {mix: compare_latency_curves(curves[0][mix], curves[1][mix]) for mix in MIXES}


def _is_compared(point: Point) -> bool:
    """Return whether the compared curves have this point: idle, or traffic of one node."""
    traffic = point["factors"]["traffic_of"]
    has_mix = any(f"+{mix}+" in point["point"] for mix in MIXES)
    return traffic == "idle" or (traffic == "one_node" and has_mix)


def _bandwidth_and_latency(host: SimulatedHost, mix: str, share: float) -> tuple[float, float]:
    """Return the traffic and the latency in ns of one node at a share of the traffic's peak."""
    point = copy.deepcopy(next(each for each in host.points if f"+{mix}+" in each["point"]))
    for load in point["loads"]:
        if load["role"] == "traffic":
            load["levels"]["share"] = share  # type: ignore[assignment]
    values = true_values(point, MachineModel(host.machine, host.topology, host.name, TODAY))
    bandwidth, latency = (
        values["traffic"]["traffic_bytes_per_second"],
        values["chase"]["latency_ns"],
    )
    assert isinstance(bandwidth, float) and isinstance(latency, float)
    return bandwidth, latency


def _curves(host: SimulatedHost, seed: int) -> dict[str, pd.DataFrame]:
    """Return the points of one node for each mix, as the figure selects them."""
    [spec] = [s for s in parse_figure_specs([load_experiment(EXPERIMENT)]) if s.name == FIGURE]
    data = select_figure_data(spec, host.table(seed), Topology())
    assert data is not None
    return mean_curves(data)


PARTS = {"mode_crossovers": compare}
