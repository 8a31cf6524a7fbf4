"""Compare all measured configurations of a host: verdicts, a row for each resource, and figures.

The room `compare` does the arithmetic. A verdict is on all places of a kind together, since a name
such as node1 means different places in two configurations. Each row shows the best and the worst
place of a resource, with ratios to the best and the worst place of the first configuration. Figures
with the key `by_configuration` are drawn with a line for each configuration. In these figures, a
curve is the mean over all places.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare.selections import PLACE
from chaosity.compare.two_sides import BETTER, WORSE, compare_selections, ratio_text
from chaosity.documents.shipped_documents import load_existing_experiments
from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.figure_data import (
    Axis,
    AxisRole,
    FigureData,
    FigureSpec,
    Level,
    axis_of_texts,
    parse_figure_specs,
)
from chaosity.figures.figure_files import FigureEntry, write_figure
from chaosity.figures.machine_drawing import draw_machines
from chaosity.figures.machine_parts import MachineParts
from chaosity.figures.select import figure_data_with_measured_x, select_figure_data
from chaosity.records.record_format import SIMULATED
from chaosity.report.best_places_of_resources import ResourceLevel, measured_place, resource_levels
from chaosity.report.measured_run import Run
from chaosity.report.problems import numbered_findings, read_anomalies
from chaosity.report.sections import figure_section, path_relative_to_report
from chaosity.statistics.cell_summary import replace_values_and_drop_priors
from chaosity.statistics.curves import (
    CurveComparison,
    compare_latency_curves,
    mean_curve_over_places,
)
from chaosity.statistics.estimates import Ratio
from chaosity.store.measurements import Measurements
from chaosity.text_templates import text_of_macro
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.units import choose_scale, format_count


def draw_figures_by_configuration(
    experiments: Sequence[Mapping[str, Any]], tables: Mapping[str, Measurements], folder: Path
) -> Iterator[FigureEntry]:
    """Write the files of each figure that at least two configurations have, and yield the figure.

    `tables` maps a configuration to its measurements. The first configuration is compared with each
    other configuration.
    """
    for spec in parse_figure_specs(experiments):
        if spec.by_configuration:
            title = f"{spec.title}, by configuration"
            shown = replace(spec, name=f"configurations_{spec.name}", title=title)
            select = _data_of_curves if spec.kind == "curve" else _data_of_bars_or_lines
            if found := select(shown, tables):
                data, sentences = found
                # The figure has no experiment, so no section of an experiment shows the figure.
                data = replace(data, spec=replace(data.spec, experiment=""))
                yield write_figure(data, folder, caption=" ".join(sentences))


def _data_of_curves(
    spec: FigureSpec, tables: Mapping[str, Measurements]
) -> tuple[FigureData, Iterator[str]] | None:
    """Return the data of a figure that has a panel for each line, and a line per configuration."""
    selected = data_of_each_configuration(spec, tables)
    if len(selected) < 2:
        return None
    curves = [
        curve.assign(panels=line, series=name)
        for name, data in selected.items()
        for line, curve in mean_curves(data).items()
    ]
    # The rank of a point along its curve identifies the point in all configurations.
    rows = pd.concat(curves, ignore_index=True).assign(initiator="all", target="all")
    rows["point"] = rows["rank"].astype(str)
    # The priors are dropped, since a mean scatters less than its values.
    rows = replace_values_and_drop_priors(rows, rows["value"])
    axes: dict[AxisRole, Axis] = {
        "panels": axis_of_texts("traffic", rows["panels"]),
        "series": axis_of_texts("configuration", rows["series"]),
    }
    x_metric = next(iter(selected.values())).x_metric
    data = figure_data_with_measured_x(spec, axes, rows, x_metric)
    return data, _crossover_sentences(rows, list(selected), x_metric)


def _data_of_bars_or_lines(
    spec: FigureSpec, tables: Mapping[str, Measurements]
) -> tuple[FigureData, Iterator[str]] | None:
    """Return the data of a figure with a bar or a point of a line for each x and configuration."""
    names: list[Level] = [*tables]
    where = {**spec.where, "configuration": names}
    spec = replace(spec, series="configuration", where=where, loss_to=None, cache_steps=False)
    with suppress(UserError):  # the report of a configuration shows the reason
        joined = Measurements.concatenated(tables.values())
        data = select_figure_data(spec, joined, Topology())
        if data and len(data.axes["series"].values) > 1:
            return data, _ratio_sentences(data)
    return None


def _crossover_sentences(
    points: pd.DataFrame, names: Sequence[str], x_metric: str
) -> Iterator[str]:
    """Yield for each line sentences that compare each configuration with the first one."""
    for line, rows in points.groupby("panels", sort=False):
        own = {name: rows[rows["series"] == name] for name in names}
        for other in names[1:]:
            pair = (names[0], other)
            found = compare_latency_curves(own[pair[0]], own[pair[1]])
            yield f"With traffic {line}, {crossover_text(found, pair, x_metric)}."


def _ratio_sentences(data: FigureData) -> Iterator[str]:
    """Yield a sentence on each configuration's ratios to the first one at both ends of lines."""
    first, *others = data.axes["series"].tick_names
    rows = data.measurements[data.measurements["status"] == "valid"]
    values = rows.groupby(["x", "series"], sort=False)["value"]
    known = {key: own.to_numpy(float) for key, own in values}
    for other in others:
        both = [x for x in data.axes["x"].tick_names if {(x, first), (x, other)} <= {*known}]
        texts = []
        for x in both if data.spec.kind == "bars" else dict.fromkeys(both[:1] + both[-1:]):
            each = Ratio.of_samples(known[x, other], known[x, first], paired=False)
            name = data.value_label_without_axis_title("x", x)
            texts.append(f"{name} {ratio_text(each.ratio, each.low, each.high)}")
        yield f"{other} as a ratio to {first}: {', '.join(texts) or 'no common value'}."


@dataclass(frozen=True)
class CrossoverVerdict:
    """The comparison of the latencies of two selections on one line of a figure."""

    figure: str  # name of the figure
    line: str  # name of the line, such as a mix of reads and writes
    sentence: str  # the verdict
    comparison: CurveComparison


def compare_crossovers(
    left: Measurements, right: Measurements, names: tuple[str, str]
) -> Iterator[CrossoverVerdict]:
    """Compare the loaded latencies of two selections for each line of each figure.

    Only figures that both selections have are compared, and only selections of one host in one
    configuration.
    """
    sides = (left, right)
    if any(len(side.rows[["host", "configuration"]].drop_duplicates()) != 1 for side in sides):
        return
    both = left.rows["experiment"].dropna()
    documents = load_existing_experiments(both[both.isin(right.rows["experiment"])])
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
    """Return configuration -> data of a figure, without configurations that lack valid data."""
    found = {}
    for name, table in tables.items():
        with suppress(UserError):  # the report of this configuration shows the reason
            if data := select_figure_data(spec, table, Topology()):
                found[name] = data
    return found


def mean_curves(data: FigureData) -> dict[str, pd.DataFrame]:
    """Return line -> its mean curve over the places, see `mean_curve_over_places`."""
    lines = data.measurements_of_each_line.groupby("series", sort=False)
    return {str(line): mean_curve_over_places(own) for line, own in lines}


def crossover_text(found: CurveComparison, names: tuple[str, str], x_metric: str) -> str:
    """Return a clause that compares the latencies of two configurations.

    An example is "from 402 GB/s (95 % interval 390 to 415, n = 3) on, nps0 has a lower latency than
    nps1". `names` are the names of the configurations, `x_metric` is the metric of the bandwidth.
    """
    scale = choose_scale(x_metric, [found.reach])
    return text_of_macro("crossovers", "comparison", found=found, names=names, scale=scale)


_CELL_COLUMNS = ["experiment", "point", "load", "initiator", "target", "metric"]
# Columns that a comparison of places ignores. The loads of a resource are equal, except for
# responders, which are parts of places, and for files that replace drives.
_IGNORED_COLUMNS = ("load", "asked", "file_backed")
# Index of the best place and index of the worst place among the sorted cells of a level.
_INDEXES_OF_BEST_AND_WORST = (0, -1)
# The ratios of one configuration: (name of resource and level, index of best or worst) -> compared
# cell.
_RatiosByResource = Mapping[tuple[str, int], dict[Hashable, Any]]


def configuration_comparison_section(run: Run) -> dict[str, Any] | None:
    """Return the comparison of the host's configurations for the page, and draw its figures.

    The configuration of this report is the first column, and has no verdict. Each row in `rows` has
    a cell or None for each configuration. The result is None if the configuration of this report
    has no valid value, or if no other configuration has a valid value.
    """
    own = _first_valid_configuration(run.measurements)
    others = {
        path: each
        for path, each in run.tables_of_other_configurations.items()
        if _first_valid_configuration(each)
    }
    if own is None or not others:
        return None
    tables = [run.measurements, *others.values()]
    columns = [
        _make_configuration_column(*each, run.output)
        for each in zip(tables, [None, *others], strict=True)
    ]
    by_name = dict(zip((column["name"] for column in columns), tables, strict=True))
    levels = [
        level for level in resource_levels(tables, run.experiments) if any(map(len, level.cells))
    ]
    ratios: list[_RatiosByResource] = [
        {},
        *(_ratios_to_first_configuration(levels, number) for number in range(1, len(tables))),
    ]
    drawn = draw_figures_by_configuration(run.experiments, by_name, run.figures_folder)
    rows = []
    for level in levels:
        of_level = zip(level.cells, ratios, strict=True)
        cells = [_make_resource_cell(level.full_name, *each) for each in of_level]
        rows.append({"name": level.full_name, "detail": level.load, "cells": cells})
    return {
        "own": own,
        "verdicts": [
            _verdict_on_configuration(table, run.measurements, own) for table in others.values()
        ],
        "columns": columns,
        "rows": rows,
        "figures": [figure_section(each, run.figures_folder) for each in drawn],
        "drawing": _draw_configurations(
            run, dict(zip([None, *others], by_name.items(), strict=True))
        ),
    }


def _draw_configurations(run: Run, tables: Mapping[Path | None, tuple[str, Measurements]]) -> str:
    """Return one drawing of all configurations; "" if a file that it needs is not readable."""
    machines = []
    with suppress(UserError):
        for path, (name, table) in tables.items():
            folder, page, topology, found = run.folder, "", run.topology, run.findings.anomalies
            if path is not None:
                folder = path.parent
                page = path_relative_to_report(folder / "report.html", run.output)
                topology = read_topology(folder / "topology.json") or Topology()
                found = read_anomalies(folder)
            if not topology.nodes:
                return ""
            host = MeasuredHost(folder, table, topology)
            machines.append((name, page, MachineParts(host, numbered_findings(found))))
        return draw_machines(machines)
    return ""


def _first_valid_configuration(measurements: Measurements) -> str | None:
    """Return the configuration of the first valid row; None if there is no valid row."""
    valid = measurements.valid_rows().rows
    return None if valid.empty else str(valid["configuration"].iloc[0])


def _make_configuration_column(
    measurements: Measurements, path: Path | None, output: Path
) -> dict[str, Any]:
    """Return a configuration's name, days of measurement, and link to its report (or None)."""
    moments = measurements.rows["measured_at"]
    days = sorted({moment[:10] for moment in moments if isinstance(moment, str)})
    span = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    page = path and path.parent / "report.html"
    return {
        "name": str(_first_valid_configuration(measurements)),
        "measured": SIMULATED if measurements.is_simulated else span,
        "link": path_relative_to_report(page, output) if page and page.exists() else None,
    }


def _verdict_on_configuration(
    other: Measurements, own: Measurements, own_name: str
) -> dict[str, Any]:
    """Return the verdict on another configuration, compared with that of this report."""
    name = str(_first_valid_configuration(other))
    try:
        found = compare_selections(other, own, names=(name, own_name))
    except UserError as error:
        return {"verdict": f"{name} against {own_name}: {error}", "groups": [], "notes": []}
    verdict, *sentences = found.sentences
    number = len(found.groups)
    notes = [f"{note[:1].upper()}{note[1:]}." for note in found.notes] + sentences[number:]
    return {"verdict": verdict, "groups": sentences[:number], "notes": notes}


def _ratios_to_first_configuration(
    levels: Sequence[ResourceLevel], number: int
) -> _RatiosByResource:
    """Return the ratios of configuration `number` to the first one at best and worst places.

    All ratios are tested together, since chance makes some of many ratios large.
    """
    sides: tuple[list[pd.DataFrame], list[pd.DataFrame]] = ([], [])
    for level in levels:
        fewest = min(len(level.cells[each]) for each in (number, 0))
        for end in _INDEXES_OF_BEST_AND_WORST[:fewest]:
            labels = {"initiator": level.full_name, "target": str(end)}
            for side, each in zip(sides, (number, 0), strict=True):
                rows, cell = level.tables[each].valid_rows().rows, level.cells[each].iloc[end]
                rows = rows[rows[_CELL_COLUMNS].eq(cell[_CELL_COLUMNS]).all(axis=1)]
                side.append(rows.assign(**labels, point="".join(labels.values())))
    if not sides[0]:
        return {}
    left, right = (Measurements(pd.concat(side, ignore_index=True)) for side in sides)
    try:
        cells = compare_selections(left, right, by=PLACE, ignore=_IGNORED_COLUMNS).cells
    except UserError:  # a configuration has no positive value
        return {}
    return {(cell["initiator"], int(cell["target"])): cell for cell in cells.to_dict("records")}


def _make_resource_cell(
    name: str, cells: pd.DataFrame, ratios: _RatiosByResource
) -> dict[str, Any] | None:
    """Return a resource's best and worst place in a configuration, and the number of places."""
    places = []
    for end in _INDEXES_OF_BEST_AND_WORST[: len(cells)]:
        found = ratios.get((name, end))
        ratio = ratio_and_verdict_texts(found) if found else None
        places.append({"place": measured_place(cells.iloc[end]), "ratio": ratio})
    if not places:
        return None
    detail = ", ".join([*_drive_or_thread_counts(cells), format_count(len(cells), "place")])
    return {"best": places[0], "worst": places[1] if len(places) > 1 else None, "detail": detail}


def _drive_or_thread_counts(cells: pd.DataFrame) -> Iterator[str]:
    """Yield the number of drives of the places, or for places without drives that of threads."""
    for column, noun in (("drives", "drive"), ("threads", "thread")):
        known = cells[column].dropna().astype(int)
        if not known.empty:
            low, high = int(known.min()), int(known.max())
            yield ("" if low == high else f"{low} to ") + format_count(high, noun)
            return


def ratio_and_verdict_texts(cell: Mapping[Hashable, Any]) -> dict[str, str]:
    """Return the ratio of a compared cell in words, and its verdict, such as "better"."""
    low, high, verdict = cell["low"], cell["high"], str(cell["verdict"])
    if pd.isna(low):
        return {"words": f"{cell['ratio']:.2f} times, no interval: n = 1", "verdict": verdict}
    words = ratio_text(cell["ratio"], low, high)
    if low <= 1.0 <= high:
        n = " and ".join(dict.fromkeys(str(int(cell[side])) for side in ("n_left", "n_right")))
        words = f"no difference detected at n = {n}: {words}"
    elif verdict in (BETTER, WORSE):
        words = f"{words}, {verdict}"
    return {"words": words, "verdict": verdict}
