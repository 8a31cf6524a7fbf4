"""Draw the figures of the experiments and write each as SVG, PNG and CSV."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.errors import UserError
from chaosity.figures.axis_order_and_labels import Axis, AxisValue
from chaosity.figures.captions import figure_caption
from chaosity.figures.figure_data_and_value_limits import (
    FigureData,
    ShownValueRange,
    find_round_value_limits,
    mark_rows,
    select_figure_data,
)
from chaosity.figures.figure_rows import drawing_of_figure
from chaosity.figures.figure_spec import FigureSpec, Role, parse_figure_specs
from chaosity.figures.mark_labels_and_hover_texts import (
    failed_mark_lines,
    is_simulated,
    provenance_text,
    unmeasured_mark_reason_lines,
)
from chaosity.figures.value_and_curve_tables import (
    TextTable,
    figure_text_tables,
    latency_curve_numbers,
    metric_of_curve_quantity,
)
from chaosity.figures.vega_lite import write_drawing
from chaosity.records.atomic_writes_and_record_files import write_atomically
from chaosity.records.record_types_and_verdict import SIMULATED
from chaosity.statistics.cell_summary import UNMEASURED
from chaosity.statistics.estimates_and_ratios import intervals_with_confidence
from chaosity.store.csv_for_spreadsheets import csv_text
from chaosity.store.left_out_points import PREDICTED, PREDICTION_NUMBERS, LeftOutPoints
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology

MANIFEST = "figures.json"


@dataclass(frozen=True)
class FigureFile:
    """A figure in files."""

    name: str  # name of the figure and of its files
    experiment: str  # name of the figure's experiment
    kind: str  # heatmap, lines, bars, curve, scatter or table
    title: str  # ends with "(file-backed)" when a file replaced the drives
    sentence: str  # the caption; for a figure that was not drawn, the reason
    problem: str | None  # the error in the figure's description that prevented drawing, or None
    source: str | None  # the published figure or table to which the figure corresponds, or None
    labels: tuple[str, ...] = ()  # labels that benchmarks require next to their values
    provenance: str = ""  # host, benchmark and kernel of a figure that is not drawn
    failed: tuple[str, ...] = ()  # one line for each failed mark
    marks: int = 0  # number of marks with a value
    # svg, png, csv, vega_lite: file names in the figures' folder; None for a figure without data.
    # A table, or a figure of a single mark, has only a CSV.
    svg: str | None = None
    png: str | None = None
    csv: str | None = None
    vega_lite: str | None = None  # the drawing for those who want to change its look
    # Name of the CSV file with a curve's numbers or the steps of latency, or None.
    numbers: str | None = None
    tables: tuple[TextTable, ...] = ()  # text tables below the drawing or instead of it
    unmeasured: tuple[str, ...] = ()  # reasons why marks have no value although nothing failed
    # Point, initiator and target of each row behind the marks; `figures.json` does not list them.
    shown: tuple[tuple[str, str, str], ...] = ()


def draw_figures(
    experiments: Sequence[Mapping[str, Any]],
    measurements: Measurements,
    topology: Topology,
    directory: Path,
    left_out: LeftOutPoints | None = None,
) -> list[FigureFile]:
    """Draw every figure of the experiments into a folder.

    The same data gives the same bytes. `figures.json` lists the figures.

    Args:
        experiments: the experiments' YAML documents; `experiment` and `figures` are read.
        measurements: tidy table of a host in one configuration.
        topology: topology of that host; empty when it is unknown.
        directory: folder of the files; created if necessary.
        left_out: points that a budget left out, and their predictions.

    Raises:
        UserError: a figure's description is wrong, or the table has several hosts.
    """
    if len(measurements.rows[["host", "configuration"]].drop_duplicates()) > 1:
        raise UserError(
            "the table holds several hosts or configurations",
            "figures",
            "draw one host in one configuration at a time",
        )
    specs = parse_figure_specs(experiments)
    selected = [(spec, _try_select(spec, measurements, topology, left_out)) for spec in specs]
    limits = _shared_limits([data for _, data in selected if isinstance(data, FigureData)])
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for spec, data in selected:
        if not isinstance(data, FigureData):
            out = _leaves_out_points(spec, left_out)
            files.append(_not_drawn(spec, data, left_out=out))
            continue
        try:
            with intervals_with_confidence(spec.confidence):
                file = _write(data, limits[spec.name], directory)
            places = data.measurements[["point", "initiator", "target"]].drop_duplicates()
            shown = tuple(places.itertuples(index=False, name=None))
            files.append(replace(file, shown=shown))
        except UserError as error:  # the description does not fit the data
            files.append(_not_drawn(spec, str(error)))
    listed = [asdict(replace(file, shown=())) for file in files]
    for entry in listed:
        del entry["shown"]
    manifest = json.dumps(listed, indent=1, ensure_ascii=False)
    write_atomically(directory / MANIFEST, manifest + "\n")
    return files


def _shared_limits(figures: Sequence[FigureData]) -> dict[str, ShownValueRange]:
    """Return name of each figure -> its limits; figures with equal `colour_scale` share limits."""
    groups: dict[tuple[str, bool, str], list[FigureData]] = defaultdict(list)
    for data in figures:
        spec = data.spec
        groups[spec.metric, spec.colour_scale is None, spec.colour_scale or spec.name].append(data)
    limits: dict[str, ShownValueRange] = {}
    for (metric, *_), members in groups.items():
        intervals = any(data.spec.kind != "heatmap" for data in members)
        shared = find_round_value_limits(metric, members, with_intervals=intervals)
        limits |= {data.spec.name: shared for data in members}
    return limits


def _try_select(
    spec: FigureSpec,
    measurements: Measurements,
    topology: Topology,
    left_out: LeftOutPoints | None,
) -> FigureData | str | None:
    """Return the figure's data, None if there are none, or the error in its description.

    Some errors, such as several points for one mark, are found only after the measurement. Hours of
    measurements must still give a report then, so the error becomes a line of the report.
    """
    try:
        with intervals_with_confidence(spec.confidence):
            return select_figure_data(spec, measurements, topology, left_out)
    except UserError as error:
        # Without the points that the budget left out, a column may not exist.
        return None if _leaves_out_points(spec, left_out) else str(error)


def _leaves_out_points(spec: FigureSpec, left_out: LeftOutPoints | None) -> bool:
    """Return whether a budget left out points of the figure's experiment."""
    return left_out is not None and len(left_out.rows.where(experiment=spec.experiment)) > 0


def _not_drawn(spec: FigureSpec, problem: str | None, *, left_out: bool = False) -> FigureFile:
    """Return the entry of a figure that was not drawn; `left_out`: because of the budget."""
    none = "No point of this host belongs to this figure."
    sentence = problem or ("The budget left out the points of this figure." if left_out else none)
    identity = (spec.name, spec.experiment, spec.kind, spec.title)
    return FigureFile(*identity, sentence, problem, spec.source)


def _write(
    data: FigureData, limits: ShownValueRange, directory: Path, caption: str = ""
) -> FigureFile:
    """Draw a figure and write its files; if the caption is empty, compute one."""
    spec = data.spec
    caption = caption or figure_caption(data, limits.scale)
    simulated = is_simulated(data)
    # The caption says all about a single mark.
    drawn = spec.kind != "table" and len(data.marks) > 1
    drawn = drawn and not (data.marks["status"] == UNMEASURED).all()
    if drawn:
        write_drawing(drawing_of_figure(data, limits), spec.name, caption, directory)
    parts = [SIMULATED.upper()] * simulated + [provenance_text(data)]
    table = _figure_table(data)
    if simulated:
        known = table["origin"] if "origin" in table else pd.Series(None, table.index, dtype=object)
        origin = f"{SIMULATED}, " + known
        table = table.assign(origin=origin.fillna(SIMULATED))
    write_csv(table, directory / f"{spec.name}.csv")
    has_numbers = spec.kind == "curve" or spec.cache_steps
    numbers = f"{spec.name}_numbers.csv" if has_numbers else None
    if numbers:
        # A row for each step or curve, in SI units, but latencies in ns.
        steps = [asdict(step) for step in data.steps]
        own = pd.json_normalize(steps, sep="_") if spec.cache_steps else _curve_csv(data)
        write_csv(own, directory / numbers)
    return FigureFile(
        name=spec.name,
        experiment=spec.experiment,
        kind=spec.kind,
        title=data.title,
        sentence=caption,
        problem=None,
        source=spec.source,
        labels=tuple(data.labels_required_by_benchmarks),
        provenance="" if drawn else " · ".join(parts),
        failed=tuple(failed_mark_lines(data)),
        unmeasured=tuple(unmeasured_mark_reason_lines(data)),
        marks=int((data.marks["status"] == "valid").sum()),
        svg=f"{spec.name}.svg" if drawn else None,
        png=f"{spec.name}.png" if drawn else None,
        vega_lite=f"{spec.name}.vl.json" if drawn else None,
        csv=f"{spec.name}.csv",
        numbers=numbers,
        tables=figure_text_tables(data),
    )


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV that spreadsheets cannot take for formulas."""
    write_atomically(path, csv_text(table))


def write_figure_of_rows(
    spec: FigureSpec,
    axes: Mapping[Role, str],
    marks: pd.DataFrame,
    measurements: pd.DataFrame,
    *,
    caption: str,
    directory: Path,
    x_metric: str = "",
) -> FigureFile:
    """Draw a figure of rows that a report has selected; `figures.json` does not list it.

    Args:
        spec: description of the figure.
        axes: title of each axis; its values have the order of the rows of `marks`.
        marks: table of `summarise_cells` for one metric, with a column for each axis.
        measurements: rows of the tidy table behind the marks, with the same columns.
        caption: caption of the figure.
        directory: folder for the files.
        x_metric: metric of a measured x, see `FigureData`.
    """
    named: dict[Role, Axis] = {}
    for role, title in axes.items():
        texts = dict.fromkeys(marks[role])
        values = (AxisValue(text, "text", (text,), text, text) for text in texts)
        named[role] = Axis(title, title, tuple(values), ())
    data = FigureData(spec, named, marks, measurements, x_metric)
    limits = find_round_value_limits(spec.metric, [data], with_intervals=True)
    return _write(data, limits, directory, caption)


def _figure_table(data: FigureData) -> pd.DataFrame:
    """Return the table for the CSV: place, median, interval, n, status of each mark, in SI units.

    A heat map has a row for each cell; a cell without a planned point has the status "absent".
    """
    spec, metric, axes, table = data.spec, data.spec.metric, data.axes, data.marks
    if spec.kind == "heatmap":
        keys, names = ["rows", "columns"], (axes["rows"].value_names, axes["columns"].value_names)
        every = pd.MultiIndex.from_product(names, names=keys).to_frame(index=False)
        table = every.merge(table, on=keys, how="left")
        table = table.fillna({"status": "absent", "n": 0}).astype({"n": int})
    columns = {axis.column: table[role] for role, axis in axes.items()}
    if spec.has_measured_x or spec.kind == "table":
        columns = {"initiator": table["initiator"], "target": table["target"]} | columns
    if spec.kind == "table" and "seen_nodes" in table:
        columns["seen_nodes"] = table["seen_nodes"]
    if spec.has_measured_x:
        columns[data.measured_x_column] = table["position"]
    columns |= {
        f"median_{metric}": table["median"],
        f"interval_low_{metric}": table["low"],
        f"interval_high_{metric}": table["high"],
        f"minimum_{metric}": table["minimum"],
        f"maximum_{metric}": table["maximum"],
        "replicates_valid": table["n"],
        "replicates_failed": table["n_failed"].astype("Int64"),
        **{name: table[name] for name in ("outliers", "status", "reason", "file_backed", "label")},
    }
    for bound in data.bounds:
        places = ((m.get("panels"), m.get("series"), m.get("x")) for m in mark_rows(table))
        values = [bound.bound_of_mark(*place) for place in places]
        name = f"bound_{bound.title.replace(' ', '_')}_{metric}"
        columns[name] = pd.Series(values, table.index, dtype=float)
    for end in ("low", "high") if spec.has_measured_x else ():
        columns[f"interval_{end}_{data.measured_x_column}"] = table[f"position_{end}"]
    if spec.cell_note:
        columns[spec.cell_note] = table["note"]
    if (table["status"] == PREDICTED).any():
        predicted = [f"{PREDICTED}_{name}" for name in PREDICTION_NUMBERS]
        columns |= {f"{name}_{metric}": table[name] for name in predicted}
        columns["origin"] = table["status"].where(table["status"] == PREDICTED)
    return pd.DataFrame(columns)


def _curve_csv(data: FigureData) -> pd.DataFrame:
    """Return the numbers of a figure's curves in SI units."""
    table = latency_curve_numbers(data)
    metrics = table["quantity"].map(lambda name: metric_of_curve_quantity(name, data))
    table.insert(list(table.columns).index("quantity") + 1, "metric", metrics)
    roles = {role: axis.column for role, axis in data.axes.items()}
    return table.drop(columns=["host", "configuration"]).rename(columns=roles)
