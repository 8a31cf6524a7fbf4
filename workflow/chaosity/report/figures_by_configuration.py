"""Draw figures of experiments once more, with all configurations of a host in each.

An experiment's YAML names these figures (`by_configuration`). The places of one configuration have
no counterpart in another, so a curve is the mean over its places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare.comparison_text import ratio_text
from chaosity.errors import UserError
from chaosity.figures.draw_and_write_figures import FigureFile, write_figure_of_rows
from chaosity.figures.figure_data_and_value_limits import FigureData, select_figure_data
from chaosity.figures.figure_spec import FigureSpec, parse_figure_specs
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Ratio
from chaosity.statistics.latency_crossovers import (
    CurveComparison,
    compare_latency_curves,
    mean_curve_over_places,
)
from chaosity.statistics.loaded_latency_curves import repeat_unloaded_points_on_each_line
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.units import choose_scale


def draw_figures_by_configuration(
    experiments: Sequence[Mapping[str, Any]], tables: Mapping[str, Measurements], folder: Path
) -> Iterator[FigureFile]:
    """Yield each figure that at least two configurations have.

    Args:
        experiments: YAML documents of the experiments.
        tables: configuration -> its measurements; the others are compared with the first.
        folder: folder for the files.
    """
    for spec in parse_figure_specs(experiments):
        if not spec.by_configuration:
            continue
        found = {name: _selected(spec, table) for name, table in tables.items()}
        selected = {name: data for name, data in found.items() if data is not None}
        if len(selected) > 1:
            shown = replace(
                spec,
                experiment="",
                name=f"configurations_{spec.name}",
                title=f"{spec.title}, by configuration",
            )
            draw = _draw_curves if spec.kind == "curve" else _draw_bars
            yield draw(shown, selected, folder)


def _selected(spec: FigureSpec, table: Measurements) -> FigureData | None:
    """Return the data of a figure in one configuration; None without data or if it is wrong."""
    try:
        return select_figure_data(spec, table, Topology())
    except UserError:  # the figure of this configuration alone has the reason
        return None


def _draw_curves(spec: FigureSpec, selected: Mapping[str, FigureData], folder: Path) -> FigureFile:
    """Draw a panel for each line of the figure, with a line for each configuration."""
    curves = []
    for name, data in selected.items():
        rows = repeat_unloaded_points_on_each_line(data.measurements, "series")
        for line, own in rows.groupby("series", sort=False):
            curves.append(mean_curve_over_places(own).assign(panels=line, series=name))
    # The rank identifies a point in all configurations.
    points = pd.concat(curves, ignore_index=True).assign(initiator="all", target="all")
    points["point"] = points["rank"].astype(str)
    by = ["panels", "series", "point"]
    marks, positions = (
        summarise_cells(points.assign(value=points[column]), by) for column in ("value", "x")
    )
    marks[["position", "position_low", "position_high"]] = positions[["median", "low", "high"]]
    x_metric = next(iter(selected.values())).x_metric
    return write_figure_of_rows(
        spec,
        {"panels": "traffic", "series": "configuration"},
        marks,
        points,
        caption=" ".join(_crossover_sentences(points, list(selected), x_metric)),
        directory=folder,
        x_metric=x_metric,
    )


def _crossover_sentences(
    points: pd.DataFrame, names: Sequence[str], x_metric: str
) -> Iterator[str]:
    """Yield, for each line, how the other configurations compare with the first."""
    for line, rows in points.groupby("panels", sort=False):
        own = {name: rows[rows["series"] == name] for name in names}
        for other in names[1:]:
            pair = (names[0], other)
            found = compare_latency_curves(own[pair[0]], own[pair[1]])
            yield f"With traffic {line}, {crossover_text(found, pair, x_metric)}."


def crossover_text(found: CurveComparison, names: tuple[str, str], x_metric: str) -> str:
    """Return how the latencies of two configurations compare, without a full stop.

    For example "from 402 GB/s (95 % interval 390 to 415, n = 3) on, nps0 has a lower latency than
    nps1". `x_metric` is the metric of the bandwidth.
    """
    scale = choose_scale(x_metric, [found.reach])
    n = f"n = {' and '.join(dict.fromkeys(map(str, found.n)))}"
    if found.reason:
        return f"{names[0]} and {names[1]} cannot be compared, since {found.reason}"
    texts = [
        f"from {scale.text(each.bandwidth)} (95 % interval {scale.number(each.low)} to"
        f" {scale.number(each.high)}, {n}) on, {names[each.lower_above]} has a lower latency than"
        f" {names[1 - each.lower_above]}"
        for each in found.crossovers
    ]
    if texts:
        return "; ".join(texts)
    within = f"within the measured range, up to {scale.text(found.reach)}"
    if found.lower is None:
        return f"no difference between {names[0]} and {names[1]} is detected {within} ({n})"
    return (
        f"no crossover is found {within} ({n}): {names[found.lower]} has a lower latency than"
        f" {names[1 - found.lower]} wherever a difference is detected"
    )


def _draw_bars(spec: FigureSpec, selected: Mapping[str, FigureData], folder: Path) -> FigureFile:
    """Draw a group of bars for each value of x, with a bar for each configuration."""
    marks, rows = (
        pd.concat([t.assign(series=name) for name, t in tables.items()], ignore_index=True)
        for tables in (
            {name: data.marks for name, data in selected.items()},
            {name: data.measurements for name, data in selected.items()},
        )
    )
    axis = next(iter(selected.values())).axes["x"]
    return write_figure_of_rows(
        spec,
        {"x": axis.title, "series": "configuration"},
        marks,
        rows,
        caption=" ".join(_ratio_sentences(rows, list(selected))),
        directory=folder,
    )


def _ratio_sentences(rows: pd.DataFrame, names: Sequence[str]) -> Iterator[str]:
    """Yield, for each other configuration, the ratio to the first at each value of x."""
    values = rows[rows["status"] == "valid"].groupby(["x", "series"], sort=False)["value"]
    known = {key: own.to_numpy(float) for key, own in values}
    for other in names[1:]:
        ratios = {
            x: Ratio.of_runs(sample, known[x, names[0]])
            for (x, series), sample in known.items()
            if series == other and (x, names[0]) in known
        }
        texts = (f"{x} {ratio_text(each.ratio, each.low, each.high)}" for x, each in ratios.items())
        yield f"{other} as a ratio to {names[0]}: {', '.join(texts) or 'no common value'}."
