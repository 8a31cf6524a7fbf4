"""Say at which bandwidth the latencies of two configurations cross, and compare crossovers.

An experiment's YAML names the figures with such curves (`by_configuration`). A curve is the mean
over all places of a configuration, because places of two configurations do not correspond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from chaosity.compare.two_sides import ratio_text
from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError
from chaosity.figures.figure_data_and_value_limits import FigureData, select_figure_data
from chaosity.figures.figure_spec import FigureSpec, parse_figure_specs
from chaosity.statistics.estimates_and_ratios import Ratio
from chaosity.statistics.latency_crossovers import (
    CurveComparison,
    compare_latency_curves,
    crossover_ratio,
    mean_curve_over_places,
)
from chaosity.statistics.loaded_latency_curves import repeat_unloaded_points_on_each_line
from chaosity.store.measurements import Measurements
from chaosity.text_templates import write_text
from chaosity.topology.topology_model import Topology
from chaosity.units import choose_scale, format_count

# Configuration -> line of the figure -> its curve.
_Curves = Mapping[str, Mapping[str, pd.DataFrame]]


@dataclass(frozen=True)
class CrossoverVerdict:
    """How the two compared sides agree on the curves of one line of a figure."""

    figure: str  # name of the figure
    line: str | None  # name of the line, such as a mix of reads and writes; None for all lines
    sentence: str  # the verdict
    # If each side has one configuration, the comparison of the two sides; else the comparison of
    # the same two configurations on each side; empty if there is none.
    comparisons: tuple[CurveComparison, ...] = ()
    # The left side's crossover divided by the right side's crossover, if both exist.
    ratio: Ratio | None = None


def compare_crossovers(
    left: Measurements, right: Measurements, names: tuple[str, str]
) -> Iterator[CrossoverVerdict]:
    """Yield how latency under load compares, for each line of each figure that both sides have.

    Sides with one configuration each are compared directly. If sides have several configurations,
    the crossovers of each pair of common configurations are compared. Nothing is compared if a side
    has several hosts.
    """
    sides = (left, right)
    if any(side.rows["host"].nunique() != 1 for side in sides):
        return
    tables = [
        {str(name): side.where(configuration=name) for name in side.rows["configuration"].unique()}
        for side in sides
    ]
    for spec in _specs_of_curves(sides):
        x_metric, curves = "", []
        for of_side in tables:
            selected = data_of_each_configuration(spec, of_side)
            curves.append({name: mean_curves(data) for name, data in selected.items()})
            x_metric = next((data.x_metric for data in selected.values()), x_metric)
        if not all(curves):
            continue
        if len(curves[0]) == len(curves[1]) == 1:
            yield from _of_one_configuration_each(spec, curves, names, x_metric)
            continue
        common = [name for name in curves[0] if name in curves[1]]
        if len(common) < 2:
            has = " and ".join(
                f"{n} has {', '.join(own)}" for n, own in zip(names, curves, strict=True)
            )
            text = f"{spec.title}: crossovers cannot be compared, since {has}."
            yield CrossoverVerdict(spec.name, None, text)
        for pair in combinations(common, 2):
            yield from _of_two_configurations(spec, curves, pair, names, x_metric)


def _specs_of_curves(sides: Sequence[Measurements]) -> list[FigureSpec]:
    """Return the figures with curves to compare, of the experiments that all sides have."""
    found = [dict.fromkeys(side.rows["experiment"].dropna()) for side in sides]
    documents = []
    for name in found[0]:
        if all(name in others for others in found):
            with suppress(UserError):  # published data of others, or an experiment that is gone
                documents.append(load_experiment(str(name)))
    specs = parse_figure_specs(documents)
    return [spec for spec in specs if spec.by_configuration and spec.kind == "curve"]


def data_of_each_configuration(
    spec: FigureSpec, tables: Mapping[str, Measurements]
) -> dict[str, FigureData]:
    """Return configuration -> data of a figure, except where data is missing or wrong."""
    found = {}
    for name, table in tables.items():
        with suppress(UserError):  # this configuration's own figure shows the reason
            if data := select_figure_data(spec, table, Topology()):
                found[name] = data
    return found


def mean_curves(data: FigureData) -> dict[str, pd.DataFrame]:
    """Return line -> its curve as a mean over the places, see `mean_curve_over_places`."""
    rows = repeat_unloaded_points_on_each_line(data.measurements, "series")
    lines = rows.groupby("series", sort=False)
    return {str(line): mean_curve_over_places(own) for line, own in lines}


def _of_one_configuration_each(
    spec: FigureSpec, curves: Sequence[_Curves], names: tuple[str, str], x_metric: str
) -> Iterator[CrossoverVerdict]:
    [left], [right] = (own.values() for own in curves)
    for line in left:
        if line in right:
            found = compare_latency_curves(left[line], right[line])
            text = f"{spec.title}, {line}: {crossover_text(found, names, x_metric)}."
            yield CrossoverVerdict(spec.name, line, text, (found,))


def _of_two_configurations(
    spec: FigureSpec,
    curves: Sequence[_Curves],
    pair: tuple[str, str],
    names: tuple[str, str],
    x_metric: str,
) -> Iterator[CrossoverVerdict]:
    """Yield how the crossover of two configurations differs between the sides."""
    first, second = pair
    for line in curves[0][first]:
        if not all(line in own[name] for own in curves for name in pair):
            continue
        found = [compare_latency_curves(own[first][line], own[second][line]) for own in curves]
        start = f"{spec.title}, {line}"
        reasons = [
            f"{name}: {reason}"
            for name, each in zip(names, found, strict=True)
            if (reason := _why_not_comparable(each, pair, x_metric))
        ]
        if reasons:
            text = f"{start}: the crossovers cannot be compared. {'. '.join(reasons)}."
            yield CrossoverVerdict(spec.name, line, text, tuple(found))
            continue
        ratio = crossover_ratio(*found)
        text = write_text(
            "crossovers",
            "of_both_sides",
            start=start,
            pair=pair,
            found=found,
            names=names,
            scales=[choose_scale(x_metric, [each.reach]) for each in found],
            ratio=ratio,
            change=ratio_text(ratio.ratio, ratio.low, ratio.high),
        )
        yield CrossoverVerdict(spec.name, line, text, tuple(found), ratio)


def _why_not_comparable(found: CurveComparison, pair: tuple[str, str], x_metric: str) -> str | None:
    """Return why a side has no single crossover with an interval above 0, or None."""
    if found.reason or not found.crossovers:
        return crossover_text(found, pair, x_metric)
    if len(found.crossovers) > 1:
        return f"{format_count(len(found.crossovers), 'crossover')} were found"
    return None if found.crossovers[0].low > 0.0 else "the interval of the crossover begins at 0"


def crossover_text(found: CurveComparison, names: tuple[str, str], x_metric: str) -> str:
    """Return how the latencies of two configurations compare, without a full stop.

    For example "from 402 GB/s (95 % interval 390 to 415, n = 3) on, nps0 has a lower latency than
    nps1". `x_metric` is the metric of the bandwidth.
    """
    scale = choose_scale(x_metric, [found.reach])
    return write_text("crossovers", "comparison", found=found, names=names, scale=scale)
