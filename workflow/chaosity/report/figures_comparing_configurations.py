"""Draw figures with all configurations of a host, and say where their latencies cross.

An experiment's YAML names these figures (`by_configuration`). A curve is the mean over all places
of a configuration, because places of two configurations do not correspond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare.two_sides import ratio_text
from chaosity.documents.shipped_documents import existing_experiments
from chaosity.errors import UserError
from chaosity.figures.axes import Axis, axis_of_texts
from chaosity.figures.figure_data import FigureData, FigureSpec, Level, Role, parse_figure_specs
from chaosity.figures.figure_files import FigureFile, write_figure
from chaosity.figures.select import curve_data, select_figure_data
from chaosity.statistics.cell_summary import replace_values
from chaosity.statistics.curves import (
    CurveComparison,
    compare_latency_curves,
    mean_curve_over_places,
)
from chaosity.statistics.estimates import Ratio
from chaosity.store.measurements import Measurements
from chaosity.text_templates import write_text
from chaosity.topology.topology_model import Topology
from chaosity.units import choose_scale


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
        if spec.by_configuration:
            title = f"{spec.title}, by configuration"
            shown = replace(spec, name=f"configurations_{spec.name}", title=title)
            select = _curves if spec.kind == "curve" else _bars_or_lines
            if found := select(shown, tables):
                data, sentences = found
                # No section of an experiment shows the figure.
                data = replace(data, spec=replace(data.spec, experiment=""))
                yield write_figure(data, folder, caption=" ".join(sentences))


def _curves(
    spec: FigureSpec, tables: Mapping[str, Measurements]
) -> tuple[FigureData, Iterator[str]] | None:
    """Return a panel for each line of the figure, with a line for each configuration."""
    selected = data_of_each_configuration(spec, tables)
    if len(selected) < 2:
        return None
    curves = [
        curve.assign(panels=line, series=name)
        for name, data in selected.items()
        for line, curve in mean_curves(data).items()
    ]
    # The rank identifies a point in all configurations.
    rows = pd.concat(curves, ignore_index=True).assign(initiator="all", target="all")
    rows["point"] = rows["rank"].astype(str)
    rows = replace_values(rows, rows["value"])  # the scatter of a mean is another one
    axes: dict[Role, Axis] = {
        "panels": axis_of_texts("traffic", rows["panels"]),
        "series": axis_of_texts("configuration", rows["series"]),
    }
    x_metric = next(iter(selected.values())).x_metric
    data = curve_data(spec, axes, rows, x_metric)
    return data, _crossover_sentences(rows, list(selected), x_metric)


def _bars_or_lines(
    spec: FigureSpec, tables: Mapping[str, Measurements]
) -> tuple[FigureData, Iterator[str]] | None:
    """Return a bar for each value of x and each configuration, or a line for each configuration."""
    names: list[Level] = [*tables]
    where = {**spec.where, "configuration": names}
    spec = replace(spec, series="configuration", where=where, loss_to=None, cache_steps=False)
    with suppress(UserError):  # each configuration's own figure shows the reason
        joined = Measurements.concatenated(tables.values())
        data = select_figure_data(spec, joined, Topology())
        if data and len(data.axes["series"].values) > 1:
            return data, _ratio_sentences(data)
    return None


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


def _ratio_sentences(data: FigureData) -> Iterator[str]:
    """Yield a sentence for each configuration: its ratios to the first, of lines at both ends."""
    first, *others = data.axes["series"].value_names
    rows = data.measurements[data.measurements["status"] == "valid"]
    values = rows.groupby(["x", "series"], sort=False)["value"]
    known = {key: own.to_numpy(float) for key, own in values}
    for other in others:
        both = [x for x in data.axes["x"].value_names if {(x, first), (x, other)} <= {*known}]
        texts = []
        for x in both if data.spec.kind == "bars" else dict.fromkeys(both[:1] + both[-1:]):
            each = Ratio.of_samples(known[x, other], known[x, first], paired=False)
            name = data.value_label_without_axis_title("x", x)
            texts.append(f"{name} {ratio_text(each.ratio, each.low, each.high)}")
        yield f"{other} as a ratio to {first}: {', '.join(texts) or 'no common value'}."


@dataclass(frozen=True)
class CrossoverVerdict:
    """How the latencies of two sides compare on one line of a figure."""

    figure: str  # name of the figure
    line: str  # name of the line, such as a mix of reads and writes
    sentence: str  # the verdict
    comparison: CurveComparison


def compare_crossovers(
    left: Measurements, right: Measurements, names: tuple[str, str]
) -> Iterator[CrossoverVerdict]:
    """Yield how latency under load compares, for each line of each figure that both sides have.

    Nothing is compared if a side has several hosts or configurations.
    """
    sides = (left, right)
    if any(len(side.rows[["host", "configuration"]].drop_duplicates()) != 1 for side in sides):
        return
    both = left.rows["experiment"].dropna()
    documents = existing_experiments(both[both.isin(right.rows["experiment"])])
    for spec in parse_figure_specs(documents):
        if not spec.by_configuration or spec.kind != "curve":
            continue
        selected = data_of_each_configuration(spec, dict(zip(names, sides, strict=True)))
        if len(selected) == 2:
            ours, others = map(mean_curves, selected.values())
            x_metric = selected[names[0]].x_metric
            for line in [line for line in ours if line in others]:
                found = compare_latency_curves(ours[line], others[line])
                text = f"{spec.title}, {line}: {crossover_text(found, names, x_metric)}."
                yield CrossoverVerdict(spec.name, line, text, found)


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
    lines = data.rows_of_lines.groupby("series", sort=False)
    return {str(line): mean_curve_over_places(own) for line, own in lines}


def crossover_text(found: CurveComparison, names: tuple[str, str], x_metric: str) -> str:
    """Return how the latencies of two configurations compare, without a full stop.

    For example "from 402 GB/s (95 % interval 390 to 415, n = 3) on, nps0 has a lower latency than
    nps1". `x_metric` is the metric of the bandwidth.
    """
    scale = choose_scale(x_metric, [found.reach])
    return write_text("crossovers", "comparison", found=found, names=names, scale=scale)
