"""Find single parts that are slower than all others of their kind, among those that a fit knows.

A candidate is a part that is used by loads whose values are below the model. Its factor is the
share of its capacity that remains. The factor with the largest gain of the loss is added to the
model if the gain is above the extended Bayesian information criterion (Chen and Chen 2008, with
gamma = 1). It is stricter than the usual one, since a machine has many parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from chaosity.documents.machines import Fault
from chaosity.simulation.resource_capacities import shared_drive_path_resource_name
from chaosity.topology.topology_model import Topology
from chaosity.twin.machine_parameters import Parameter, Values, fault_parameter
from chaosity.twin.measured_cells import departs

# Candidates with the largest expected gain that the model evaluates.
_MOST_TRIED = 4
# Number of a point -> utilisation of its resources.
Utilisations = Mapping[int, Mapping[str, float]]


def faults_of_parts(topology: Topology, drives: Iterable[str]) -> dict[Parameter, frozenset[str]]:
    """Return each factor of a single part -> the resources that it slows down."""
    found: dict[Parameter, frozenset[str]] = {}
    packages = [package.os_index for package in topology.packages]

    def add(resource: str, fault: Fault, *parts: str) -> None:
        found[fault_parameter(fault, resource)] = frozenset(parts or (resource,))

    for node in topology.memory_nodes:
        add(f"node{node.os_index}", Fault(fault="slow_node", node=node.os_index))
    for core in topology.cores:
        add(f"core{core.index}", Fault(fault="slow_core", core=core.index))
    for drive in drives:
        add(drive, Fault(fault="slow_drive", drive=drive))
    for begin in packages:
        for end in packages:
            if begin != end:
                fault = Fault(fault="slow_link", from_package=begin, to_package=end)
                add(f"package{begin}->package{end}", fault)
    ends = [node.os_index for node in topology.nodes]
    for begin in ends:
        for package in packages:
            if package != topology.package_of_node.get(begin):
                path = f"drives{begin}->package{package}"
                fault = Fault(fault="slow_drive_path", drive_node=begin, to_package=package)
                add(path, fault)
                for other in ends[: ends.index(begin)]:
                    if topology.package_of_node.get(other) == topology.package_of_node.get(begin):
                        fault = Fault(
                            fault="shared_drive_path",
                            drive_nodes=[other, begin],
                            to_package=package,
                        )
                        resource = shared_drive_path_resource_name(fault)
                        add(resource, fault, f"drives{other}->package{package}", path)
    return found


def likely_factors(
    candidates: Mapping[Parameter, frozenset[str]],
    values: Values,
    utilisations: Utilisations,
    points_of_rows: Sequence[int],
    away: NDArray[np.float64],
    scale: float,
) -> list[tuple[Parameter, float]]:
    """Return the factors that explain most values below the model, with start values.

    The values of a load are assumed to fall with the capacity of a part as soon as it is full.

    Args:
        candidates: factor of a part -> resources that it slows down.
        values: the parameters until now; their factors of parts are not found again.
        utilisations: of the model with these values.
        points_of_rows: number of the point of each cell.
        away: logarithm of measured value over model of each cell.
        scale: standard deviation of such logarithms.
    """
    below = [departs(value, scale) and value < 0 for value in away]
    remains = {
        part: values[own]
        for own in values
        if own.fault
        for part in candidates[own]
        if len(candidates[own]) == 1
    }
    gains: list[tuple[float, Parameter, float]] = []
    for parameter, parts in candidates.items():
        if parameter in values or not any(below):
            continue
        uses = (utilisations[number] for number in points_of_rows)
        full = np.array([_share(each, remains, parts) for each in uses])
        implied = (full * np.exp(away))[(full > 0) & below]
        for remaining in (
            np.unique(np.quantile(implied, (0, 0.1, 0.5, 0.9))) if len(implied) else ()
        ):
            if 0 < remaining < 1:
                change = np.log(remaining / np.maximum(full, remaining))
                gain = loss(away / scale) - loss((away - change) / scale)
                gains.append((gain, parameter, float(remaining)))
    gains.sort(key=lambda each: -each[0])
    best: dict[Parameter, float] = {}
    for _, parameter, remaining in gains:
        best.setdefault(parameter, remaining)
    return list(best.items())[:_MOST_TRIED]


def loss(residuals: NDArray[np.float64]) -> float:
    """Return the soft L1 loss, of which each cell without outliers has its squared residual."""
    return float(np.sum(2 * (np.sqrt(1 + residuals**2) - 1)))


def _share(
    utilisation: Mapping[str, float], remains: Mapping[str, float], parts: frozenset[str]
) -> float:
    """Return how full parts would be without their faults; 0 if loads do not use all of them."""
    own = [utilisation.get(part, 0.0) * remains.get(part, 1.0) for part in parts]
    return sum(own) / len(own) if all(own) else 0.0


def required_gain(cells: int, candidates: int) -> float:
    """Return the gain of the loss that a factor needs, see the top of this file."""
    return math.log(cells) + 2 * math.log(candidates)
