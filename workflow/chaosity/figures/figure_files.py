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
from chaosity.figures.captions import figure_caption
from chaosity.figures.drawing_rows import drawing_of_figure
from chaosity.figures.figure_data import (
    FigureData,
    FigureSpec,
    ShownValueRange,
    find_round_value_limits,
    parse_figure_specs,
)
from chaosity.figures.marks import (
    failed_mark_lines,
    provenance_text,
    shows_simulated_machine,
    unmeasured_mark_reason_lines,
)
from chaosity.figures.select import select_figure_data
from chaosity.figures.tables import (
    TextTable,
    curve_numbers_table,
    figure_csv_table,
    figure_text_tables,
    value_table,
)
from chaosity.figures.vega_lite import write_drawing
from chaosity.records.record_files import write_atomically
from chaosity.records.record_format import SIMULATED
from chaosity.statistics.cell_summary import UNMEASURED
from chaosity.statistics.estimates import intervals_with_confidence
from chaosity.store.csv_tables import csv_text
from chaosity.store.left_out_points import LeftOutPoints
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology

MANIFEST = "figures.json"


@dataclass(frozen=True)
class FigureFile:
    """A figure that was drawn into files, or the reason why it was not drawn."""

    name: str  # name of the figure and of its files
    experiment: str  # name of the figure's experiment
    kind: str  # heatmap, lines, bars, curve, scatter or table
    title: str  # ends with "(file-backed)" if a file replaced the drives
    sentence: str  # the caption; for a figure that was not drawn, the reason
    problem: str | None  # the error in the figure's description that prevented drawing, or None
    source: str | None  # the published figure or table to which the figure corresponds, or None
    labels: tuple[str, ...] = ()  # labels that benchmarks require next to their values
    provenance: str = ""  # host, benchmark and kernel of a figure without a drawing
    failed: tuple[str, ...] = ()  # one line for each failed mark
    marks: int = 0  # number of marks with a value
    # svg, png, csv, vega_lite: file names in the folder of the figures. All are None for a figure
    # without data; a table, or a figure of a single mark, has only a CSV.
    svg: str | None = None
    png: str | None = None
    csv: str | None = None
    vega_lite: str | None = None  # the drawing as Vega-Lite, for users who want to change it
    # Name of the CSV file with numbers of curves or steps of latency; None for other figures.
    numbers: str | None = None
    tables: tuple[TextTable, ...] = ()  # tables of text below the drawing, or in place of a drawing
    unmeasured: tuple[str, ...] = ()  # reasons why marks without a failed measurement have no value
    # `figures.json` lists neither of these: the values of a drawing in words, and (point,
    # initiator, target) of the measurements behind the marks.
    values: TextTable | None = None
    shown: tuple[tuple[str, str, str], ...] = ()


def draw_figures(
    experiments: Sequence[Mapping[str, Any]],
    measurements: Measurements,
    topology: Topology,
    directory: Path,
    left_out: LeftOutPoints | None = None,
) -> list[FigureFile]:
    """Draw every figure of the experiments into a folder.

    The same data give the same bytes. The file `figures.json` lists the figures. `experiments` are
    YAML documents, `measurements` those of one host in one configuration, and `topology` is that of
    the host (empty if unknown). `left_out` has the points that a budget left out, and their
    predictions.

    Raises:
        UserError: two figures have the same name, or the measurements are of several hosts.
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
                files.append(write_figure(data, directory, limits[spec.name]))
        except UserError as error:  # the description of the figure does not fit the data
            files.append(_not_drawn(spec, str(error)))
    listed = [asdict(replace(file, values=None, shown=())) for file in files]
    for entry in listed:
        del entry["values"], entry["shown"]
    manifest = json.dumps(listed, indent=1, ensure_ascii=False)
    write_atomically(directory / MANIFEST, manifest + "\n")
    return files


def _shared_limits(figures: Sequence[FigureData]) -> dict[str, ShownValueRange]:
    """Return name of a figure -> limits of values; equal `colour_scale` means shared limits."""
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
    spec: FigureSpec, measurements: Measurements, topology: Topology, left_out: LeftOutPoints | None
) -> FigureData | str | None:
    """Return the figure's data, None if there are none, or the text of an error in its description.

    Some errors, such as several points for one mark, are found only after the measurements. Since
    hours of measurements must give a report all the same, the error becomes a line of the report.
    """
    try:
        with intervals_with_confidence(spec.confidence):
            return select_figure_data(spec, measurements, topology, left_out)
    except UserError as error:
        # If the budget left out points, a column that the figure needs may not exist.
        return None if _leaves_out_points(spec, left_out) else str(error)


def _leaves_out_points(spec: FigureSpec, left_out: LeftOutPoints | None) -> bool:
    """Return whether a budget left out points of the figure's experiment."""
    return left_out is not None and len(left_out.rows.where(experiment=spec.experiment)) > 0


def _not_drawn(spec: FigureSpec, problem: str | None, *, left_out: bool = False) -> FigureFile:
    """Return the entry of a figure that was not drawn; `left_out`: since a budget left it out."""
    none = "No point of this host belongs to this figure."
    sentence = problem or ("The budget left out the points of this figure." if left_out else none)
    identity = (spec.name, spec.experiment, spec.kind, spec.title)
    return FigureFile(*identity, sentence, problem, spec.source)


def write_figure(
    data: FigureData, directory: Path, limits: ShownValueRange | None = None, caption: str = ""
) -> FigureFile:
    """Draw a figure and write its files, without an entry in `figures.json`.

    The default of `limits` is the range of this figure's own values; the default of `caption` is
    the text of `figure_caption`.
    """
    spec = data.spec
    limits = limits or find_round_value_limits(spec.metric, [data], with_intervals=True)
    caption = caption or figure_caption(data, limits.scale)
    # A figure of a single mark needs no drawing, since the caption has its value.
    drawn = spec.kind != "table" and len(data.marks) > 1
    drawn = drawn and not (data.marks["status"] == UNMEASURED).all()
    if drawn:
        write_drawing(drawing_of_figure(data, limits), spec.name, caption, directory)
    parts = [SIMULATED.upper()] * shows_simulated_machine(data) + [provenance_text(data)]
    tables = {
        f"{spec.name}.csv": figure_csv_table(data),
        f"{spec.name}_numbers.csv": curve_numbers_table(data),
    }
    for name, table in tables.items():
        if table is not None:
            write_csv(table, directory / name)
    csv, numbers = (name if table is not None else None for name, table in tables.items())
    places = data.measurements[["point", "initiator", "target"]].drop_duplicates()
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
        marks=len(data.valid_marks),
        svg=f"{spec.name}.svg" if drawn else None,
        png=f"{spec.name}.png" if drawn else None,
        vega_lite=f"{spec.name}.vl.json" if drawn else None,
        csv=csv,
        numbers=numbers,
        tables=figure_text_tables(data),
        values=value_table(data) if drawn else None,
        shown=tuple(places.itertuples(index=False, name=None)),
    )


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV whose texts no spreadsheet takes for formulas."""
    write_atomically(path, csv_text(table))
