"""A fitted machine, and its description as a file that can be simulated."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.documents.machines import (
    Fault,
    FitSummary,
    MachineDescription,
    ParameterCertainty,
)
from chaosity.errors import UserError
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.topology.topology_model import Topology
from chaosity.twin.machine_parameters import (
    PARAMETERS,
    Parameter,
    Values,
    capacities_of_memory_without_cores,
    description_with_values,
    factor_of_fault,
    with_capacity_and_same_slow_parts,
)

# Standard deviation of the logarithm of an exact number; random draws need a deviation above zero.
_DEVIATION_OF_EXACT_NUMBER = 1e-9


@dataclass(frozen=True)
class FittedParameter:
    """A parameter of a machine description, and what a fit found out about it."""

    parameter: Parameter  # the parameter that was fitted
    value: float | None  # the estimate; None if the parameter is left out, so that it sets no limit
    # low, high: the 95 % interval of `value`; None if the data do not determine the parameter.
    low: float | None
    high: float | None
    # The lower bound that follows from the measured rates; None for latencies.
    at_least: float | None
    points: int  # number of points that determine the parameter

    @property
    def is_determined(self) -> bool:
        """Return whether the data determine the parameter."""
        return self.low is not None


@dataclass(frozen=True)
class FittedMachine:
    """A machine description that was fitted to measurements."""

    description: MachineDescription  # the description, which can be simulated
    # All parameters that the machine can have; empty if the uncertainty of all numbers is unknown.
    parameters: tuple[FittedParameter, ...]
    cells: int  # number of cells (point, load, metric) that were fitted
    scale: float  # standard deviation of the logarithms of cells around the model
    # ``experiment/point, load`` -> measured value divided by the model's value, for cells that the
    # model does not explain. The cell with the largest difference comes first.
    departures: dict[str, float]
    values: Values  # parameter -> its estimate. A capacity without a value sets no limit.
    # Covariance of the logarithms of `values`, in the order of `values`.
    covariance: NDArray[np.float64]
    # Kind of value (see `value_kind_of_load`) -> standard deviation of logarithms of these values
    # around the model. A kind with fewer than 20 values has no entry, but its values count in the
    # entry of all values.
    misfits: Mapping[str, float]
    # Kind of value -> error of the model, which is `misfits` without the scatter of replicates.
    errors: Mapping[str, float]
    # Capacity that the data do not determine, because other capacities can replace it -> values
    # without this capacity that explain the data equally well.
    others: Mapping[Parameter, Values] = field(default_factory=dict)

    @property
    def known_parameters(self) -> set[Parameter]:
        """Return the parameters that have a value in the fit or in a description."""
        return {each.parameter for each in self.parameters} | self.values.keys()

    @property
    def least_capacities(self) -> dict[Parameter, float]:
        """Return each undetermined capacity -> largest rate that was measured through it."""
        unsure = [each for each in self.parameters if not each.is_determined]
        return {each.parameter: each.at_least for each in unsure if each.at_least}

    def draws(self, count: int, seed: int) -> Iterator[Values]:
        """Yield random sets of values from the joint distribution of the estimates.

        The logarithms of the values have a normal distribution. A capacity that the data do not
        determine is at least the rate that was measured through it. A capacity without an estimate
        sets no limit in every second set, and has its smallest possible value in the other sets.
        All explanations of the data are drawn equally often.
        """
        random = np.random.default_rng(seed)
        centre = np.log(list(self.values.values()))
        least = self.least_capacities
        without_estimate = {own: value for own, value in least.items() if own not in self.values}
        logs = random.multivariate_normal(centre, self.covariance, count, method="cholesky")
        explanations = [self.values, *self.others.values()]
        for number, drawn in enumerate(np.exp(logs - centre)):
            own = explanations[number // 2 % len(explanations)]
            changes = dict(zip(self.values, map(float, drawn), strict=True))
            values = {each: value * changes.get(each, 1.0) for each, value in own.items()}
            for parameter, value in least.items():
                if parameter in values and values[parameter] < value:
                    values = with_capacity_and_same_slow_parts(values, parameter, value)
            yield {**(without_estimate if number % 2 else {}), **values}


def named_description(
    fitted: FittedMachine, name: str, host: str, configuration: str, *, simulated: bool
) -> MachineDescription:
    """Return the description of a fitted machine, with all keys of a file of descriptions.

    Args:
        fitted: the fitted machine.
        name: name of the file without its suffix.
        host: the host that was measured.
        configuration: the configuration in which the host was measured.
        simulated: says whether the host was simulated.
    """
    certainty: dict[str, ParameterCertainty] = {}
    for each in fitted.parameters:
        own: ParameterCertainty = {"determined": each.is_determined, "points": each.points}
        if each.low is not None and each.high is not None:
            own |= {"low": _five_digits(each.low), "high": _five_digits(each.high)}
        if each.at_least is not None:
            own["at_least"] = _five_digits(each.at_least)
        certainty[each.parameter.name] = own
    records = "simulated records" if simulated else "records"
    names = [each.name for each in fitted.values]
    summary: FitSummary = {
        "host": host,
        "configuration": configuration,
        "simulated": simulated,
        "cells": fitted.cells,
        "residual": round(fitted.scale, 5),
        "misfits": {kind: round(each, 5) for kind, each in fitted.misfits.items()},
        "errors": {kind: round(each, 5) for kind, each in fitted.errors.items()},
        "covariance": dict(zip(names, fitted.covariance.tolist(), strict=True)),
        "parameters": certainty,
        "others": {
            parameter.name: {each.name: _five_digits(value) for each, value in own.items()}
            for parameter, own in fitted.others.items()
        },
    }
    rounded = {each.parameter: _five_digits(each.value) for each in fitted.parameters if each.value}
    return {
        **description_with_values(rounded),
        "simulated_machine": name,
        "description": f"fitted by chaosity fit to {records} of the host {host} as {configuration}",
        "sources": [
            f"results/{host}/{configuration}/{MEASUREMENTS_FILE}: {fitted.cells} medians of "
            f"{records}; the key `fitted` says which numbers they determine"
        ],
        "noise": fitted.description["noise"],
        "fitted": summary,
    }


def fitted_machine_of_description(
    description: MachineDescription, topology: Topology, where: str
) -> FittedMachine:
    """Return the machine of a description, with intervals if the key `fitted` contains intervals.

    A number that the fit did not write is exact.

    Args:
        description: the description.
        topology: the topology of the machine.
        where: the file of the description, for error messages.

    Raises:
        UserError: a number is outside its interval, so somebody changed the number or the interval.
    """
    summary = description.get("fitted")
    every = _numbers_of_description(description, topology, summary["parameters"] if summary else {})
    values = {each: value for each, value in every.items() if value is not None}
    covariance = np.eye(len(values)) * _DEVIATION_OF_EXACT_NUMBER**2
    if summary is None:
        return FittedMachine(description, (), 0, 0.0, {}, values, covariance, {}, {})
    parameters = []
    for each, value in every.items():
        if (own := summary["parameters"].get(each.name)) is None:
            continue
        low, high = own.get("low"), own.get("high")
        if value is not None and low is not None and high is not None and not low <= value <= high:
            what = f"{each.name} is {value:g}, but its interval is {low:g} to {high:g}"
            remedy = "remove the key fitted, since its intervals belong to other numbers"
            raise UserError(what, where, remedy)
        least = own.get("at_least")
        parameters.append(FittedParameter(each, value, low, high, least, own["points"]))
    rows, names = summary["covariance"], [each.name for each in values]
    kept = pd.DataFrame.from_dict(rows, orient="index", columns=[*rows])
    kept = kept.reindex(index=names, columns=names)
    covariance = np.where(kept.isna(), covariance, kept)
    by_name = {each.name: each for each in every}
    added = {each: value for each, value in values.items() if each.name not in rows}
    others = {
        by_name[name]: added | {by_name[key]: own[key] for key in own.keys() & by_name.keys()}
        for name, own in summary.get("others", {}).items()
    }
    misfits = summary["misfits"]
    return FittedMachine(
        *(description, tuple(parameters), summary["cells"], summary["residual"], {}),
        *(values, covariance, misfits, summary.get("errors", misfits), others),
    )


def _numbers_of_description(
    description: MachineDescription, topology: Topology, fitted: Container[str]
) -> dict[Parameter, float | None]:
    """Return parameter of a machine -> number in a description, or None without a number.

    A fault is only included if its name is in the key `fitted`.
    """
    sections = cast(dict[str, Any], description)
    found: dict[Parameter, float | None] = {
        each: sections.get(each.section, {}).get(each.key) for each in PARAMETERS
    }
    own_rates = {int(node): rate for node, rate in description["memory"].get("nodes", {}).items()}
    for kind in capacities_of_memory_without_cores(topology):
        rates = {own_rates.get(node) for node in kind.nodes}
        found[kind] = rates.pop() if len(rates) == 1 else None
    for fault in description.get("faults", []):
        place = cast(Fault, {key: part for key, part in fault.items() if key != "remaining"})
        factor = factor_of_fault(place, topology)
        if factor and factor.name in fitted:
            found[factor] = fault["remaining"]
    return found


def _five_digits(value: float) -> float:
    """Return a value with five significant digits."""
    return float(f"{value:.5g}")
