"""Draw figures of experiments once more, with all configurations of a host in each.

An experiment's YAML names these figures (`by_configuration`). A curve is the mean over all places
of a configuration, because places of two configurations do not correspond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare.two_sides import ratio_text
from chaosity.figures.draw_and_write_figures import FigureFile, write_figure_of_rows
from chaosity.figures.figure_data_and_value_limits import FigureData
from chaosity.figures.figure_spec import FigureSpec, parse_figure_specs
from chaosity.report.crossovers import crossover_text, data_of_each_configuration, mean_curves
from chaosity.statistics.cell_summary import replace_values, summarise_cells
from chaosity.statistics.estimates_and_ratios import Ratio
from chaosity.statistics.latency_crossovers import compare_latency_curves
from chaosity.store.measurements import Measurements


def draw_figures_by_configuration(
    experiments: Sequence[Mapping[str, Any]], tables: Mapping[str, Measurements], folder: Path
) -> Iterator[FigureFile]:
    """Yield each figure that at least two configurations have.

    Args:
        experiments: YAML documents of the experiments.
        tables: configuration -> its measurements; the first is compared with all others.
        folder: folder for the files.
    """
    for spec in parse_figure_specs(experiments):
        if not spec.by_configuration:
            continue
        selected = data_of_each_configuration(spec, tables)
        if len(selected) > 1:
            shown = replace(
                spec,
                experiment="",
                name=f"configurations_{spec.name}",
                title=f"{spec.title}, by configuration",
            )
            draw = _draw_curves if spec.kind == "curve" else _draw_bars
            yield draw(shown, selected, folder)


def _draw_curves(spec: FigureSpec, selected: Mapping[str, FigureData], folder: Path) -> FigureFile:
    """Draw a panel for each line of the figure, with a line for each configuration."""
    curves = []
    for name, data in selected.items():
        for line, curve in mean_curves(data).items():
            curves.append(curve.assign(panels=line, series=name))
    # The rank identifies a point in all configurations.
    points = pd.concat(curves, ignore_index=True).assign(initiator="all", target="all")
    points["point"] = points["rank"].astype(str)
    by = ["panels", "series", "point"]
    marks, positions = (
        summarise_cells(replace_values(points, points[column]), by) for column in ("value", "x")
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
    """Yield a sentence for each line: how each configuration compares with the first."""
    for line, rows in points.groupby("panels", sort=False):
        own = {name: rows[rows["series"] == name] for name in names}
        for other in names[1:]:
            pair = (names[0], other)
            found = compare_latency_curves(own[pair[0]], own[pair[1]])
            yield f"With traffic {line}, {crossover_text(found, pair, x_metric)}."


def _draw_bars(spec: FigureSpec, selected: Mapping[str, FigureData], folder: Path) -> FigureFile:
    """Draw a group of bars for each value of x, with a bar for each configuration."""
    parts = ((data.marks, data.measurements) for data in selected.values())
    marks, rows = (
        pd.concat(
            [table.assign(series=name) for name, table in zip(selected, tables, strict=True)],
            ignore_index=True,
        )
        for tables in zip(*parts, strict=True)
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
    """Yield a sentence for each configuration: its ratios to the first at each value of x."""
    values = rows[rows["status"] == "valid"].groupby(["x", "series"], sort=False)["value"]
    known = {key: own.to_numpy(float) for key, own in values}
    for other in names[1:]:
        ratios = {
            x: Ratio.of_samples(sample, known[x, names[0]], paired=False)
            for (x, series), sample in known.items()
            if series == other and (x, names[0]) in known
        }
        texts = (f"{x} {ratio_text(each.ratio, each.low, each.high)}" for x, each in ratios.items())
        yield f"{other} as a ratio to {names[0]}: {', '.join(texts) or 'no common value'}."
