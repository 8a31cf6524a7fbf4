"""The measured cells of a host that a fit reads: medians of points, and how they are grouped."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from chaosity.records.point_types import Load, Point
from chaosity.statistics.significance_tests import MATTERS
from chaosity.store.measurements import Measurements

RATES = ("bandwidth_bytes_per_second", "processing_throughput_bytes_per_second")
METRICS = (*RATES, "latency_ns")
# A cell departs from the model by at least `MATTERS` on a logarithm, and by so many of its
# deviations: one in two million does so by chance.
_DEPARTS_SIGMAS = 5.0

# The kind of all values, see `kind_of_value`.
ALL = "all values"
# Point, name of the load, metric.
CellKey = tuple[int, str, str]
# Median, variance of logarithms, and number of replicates.
Cell = tuple[float, float, int]


def cell_medians(measured: Measurements, points: Sequence[Point]) -> dict[CellKey, Cell]:
    """Return (number of the point, load, metric) -> median, variance of logarithms, and n."""
    rows = measured.valid_rows().rows
    names = ["experiment", "point", "load", "initiator", "target", "metric"]
    logs = np.log(rows.loc[rows["metric"].isin(METRICS), "value"])
    groups = logs.groupby([rows.loc[logs.index, name] for name in names])
    table = groups.agg(["median", "var", "count"]).fillna(0.0)
    found = {key: tuple(row) for key, row in zip(table.index, table.to_numpy(), strict=True)}
    cells = {}
    for number, point in enumerate(points):
        for load in point["loads"]:
            role = load.get("role", load["name"])
            place = point["experiment"], point["point"], role
            for metric in load["metrics"]:
                row = found.get((*place, load["initiator"]["name"], load["target"]["name"], metric))
                if row is not None:
                    median, variance, count = row
                    cells[number, load["name"], metric] = math.exp(median), variance, int(count)
    return cells


def kind_of_value(load: Load, metric: str, loads: int) -> str:
    """Return the kind of a value, as memory alone: values of a kind are equally far from the model.

    Args:
        load: the load of the value.
        metric: its metric.
        loads: number of loads that run at the same time.
    """
    thing = (
        "latency" if metric == "latency_ns" else "drives" if load["target"]["drives"] else "memory"
    )
    return f"{thing} {'alone' if loads == 1 else 'together'}"


def departs(difference: float, scale: float) -> bool:
    """Return whether a value departs from the model: by 5 %, and by far more than others differ.

    Args:
        difference: of the logarithms of value and model.
        scale: standard deviation of such differences, `FittedMachine.scale`.
    """
    return abs(difference) > max(MATTERS, _DEPARTS_SIGMAS * scale)
