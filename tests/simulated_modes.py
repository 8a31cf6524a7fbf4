"""The crossover of two firmware modes under load on a simulated machine: planted, and as found."""

from __future__ import annotations

import copy
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from chaosity.checked_yaml_files import load_experiment, read_config
from chaosity.figures.figure_data_and_value_limits import select_figure_data
from chaosity.figures.figure_spec import parse_figure_specs
from chaosity.simulation.machine_model import MachineModel
from chaosity.simulation.simulated_records import true_values
from chaosity.statistics.latency_crossovers import (
    CurveComparison,
    compare_latency_curves,
    mean_curve_over_places,
)
from chaosity.statistics.loaded_latency_curves import repeat_unloaded_points_on_each_line
from chaosity.topology.topology_model import Topology
from chaosity.yaml_document_types import Config
from simulated_tables import TODAY, SimulatedHost, shipped_machine, shipped_topology

EXPERIMENT, FIGURE = "modes_under_load", "modes_under_load_one_node"
MIXES = ("read100", "read67_nt")


class SimulatedModes:
    """A simulated machine in two of its firmware modes, with points under load."""

    def __init__(self, machine: str, modes: tuple[str, str], replicates: int) -> None:
        config: Config = {
            **read_config(),
            "experiments": [EXPERIMENT],
            "replicates": replicates,
            "levels": {},
        }
        self.hosts = []
        for mode in modes:
            topology = shipped_topology(f"{machine}_{mode}")
            description = shipped_machine(machine, topology)
            host = SimulatedHost.planned(
                description, topology, [], config, name=machine, all_points=True
            )
            self.hosts.append(host)

    @cached_property
    def planted(self) -> dict[str, float]:
        """Mix of reads and writes -> the bandwidth at which both modes have the same latency.

        It comes from the model and not from points: the share of the traffic's peak is continuous.
        """
        return {mix: self._planted(mix) for mix in MIXES}

    def _planted(self, mix: str) -> float:
        shares = np.linspace(1, 100, 400)
        curves = [
            np.array([_bandwidth_and_latency(host, mix, share) for share in shares]).T
            for host in self.hosts
        ]
        top = min(bandwidth[-1] for bandwidth, _ in curves)

        def difference(x: float) -> float:
            first, second = (float(np.interp(x, *curve)) for curve in curves)
            return first - second

        return float(brentq(difference, max(bandwidth[0] for bandwidth, _ in curves), top))

    def found(self, seed: int) -> dict[str, CurveComparison]:
        """Mix -> the comparison of the two modes by the tables of a seed, as in the report."""
        curves = [_curves(host, seed) for host in self.hosts]
        return {mix: compare_latency_curves(curves[0][mix], curves[1][mix]) for mix in MIXES}


def _bandwidth_and_latency(host: SimulatedHost, mix: str, share: float) -> tuple[float, float]:
    """Return the traffic and the latency in ns of one node at a share of the traffic's peak."""
    point = copy.deepcopy(
        next(
            each
            for each in host.points
            if each["factors"]["traffic_of"] == "one_node" and f"+{mix}+" in each["point"]
        )
    )
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
    """Return mix -> the points of one node, as the figure selects them."""
    [spec] = [s for s in parse_figure_specs([load_experiment(EXPERIMENT)]) if s.name == FIGURE]
    data = select_figure_data(spec, host.table(seed), Topology())
    assert data is not None
    rows = repeat_unloaded_points_on_each_line(data.measurements, "series")
    return {mix: mean_curve_over_places(rows[rows["series"] == mix]) for mix in MIXES}
