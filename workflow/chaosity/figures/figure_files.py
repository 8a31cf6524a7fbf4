"""Draws all figures of the experiments and writes each as SVG, PNG and CSV."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from chaosity.errors import UserError
from chaosity.figures import style
from chaosity.figures.axis_values import text_value
from chaosity.figures.bar_charts import draw_bars
from chaosity.figures.captions import caption_of
from chaosity.figures.figure_data import Axis, FigureData, select_data
from chaosity.figures.figure_spec import FigureSpec, read_figure_specs
from chaosity.figures.heatmaps import draw_heatmap
from chaosity.figures.line_charts import draw_lines
from chaosity.figures.mark_texts import Limits, failures, limits_of, unmeasured
from chaosity.figures.svg_marks import annotate
from chaosity.figures.text_tables import TextTable, curve_table, metric_of, tables_of
from chaosity.figures.xy_charts import draw_curve
from chaosity.records import write_atomically
from chaosity.statistics import UNMEASURED

MANIFEST = "figures.json"
_PNG_DOTS_PER_INCH = 200
_DRAW: Mapping[str, Callable[[FigureData, Limits], tuple[Figure, dict[str, str]]]] = {
    "heatmap": draw_heatmap,
    "lines": draw_lines,
    "bars": draw_bars,
    "curve": draw_curve,
    "scatter": draw_curve,
}


@dataclass(frozen=True)
class FigureFile:
    """A figure as it lies on the disk.

    Attributes:
        name: of the figure and of its files.
        experiment: that it belongs to.
        kind: heatmap, lines, bars, curve, scatter or table.
        title: with "(file-backed)" where that is so.
        sentence: what to see in it; for a figure that was not drawn, why not.
        problem: what is wrong with its description when that is why it was not drawn, else None.
        source: the published figure that it answers to, or None.
        labels: what the benchmarks say must stand next to the values.
        failed: one line a failed mark.
        marks: number of marks with a value.
        svg, png, csv: file names in the figures' folder; None for a figure without data, and for
            a table, which is not drawn, None but for its CSV.
        numbers: file name of the numbers of a curve; None for other kinds.
        tables: what stands below the drawing, or instead of it, as text.
        unmeasured: reasons why marks have no value, though nothing failed.
    """

    name: str
    experiment: str
    kind: str
    title: str
    sentence: str
    problem: str | None
    source: str | None
    labels: tuple[str, ...]
    failed: tuple[str, ...]
    marks: int
    svg: str | None
    png: str | None
    csv: str | None
    numbers: str | None = None
    tables: tuple[TextTable, ...] = ()
    unmeasured: tuple[str, ...] = ()


def draw(
    experiments: Sequence[Mapping[str, Any]],
    tidy: pd.DataFrame,
    topology: Mapping[str, Any],
    directory: Path,
) -> list[FigureFile]:
    """Draw every figure of the experiments into a folder.

    The same data gives the same bytes. Beside the figures, `figures.json` tells the report what
    there is.

    Args:
        experiments: the experiments' YAML documents, of which `experiment` and `figures` are read.
        tidy: the tidy table of one host in one configuration.
        topology: `Topology.to_json()` of that host.
        directory: where the files go; made when it is not there.

    Raises:
        UserError: a figure's description is wrong, or the table has several hosts.
    """
    if len(tidy[["host", "configuration"]].drop_duplicates()) > 1:
        raise UserError(
            "the table holds several hosts or configurations",
            "figures",
            "draw one host in one configuration at a time",
        )
    chosen = [(spec, _select(spec, tidy, topology)) for spec in read_figure_specs(experiments)]
    limits = _shared_limits([found for _, found in chosen if isinstance(found, FigureData)])
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    with style.look():
        for spec, found in chosen:
            if isinstance(found, FigureData):
                files.append(_try(found, limits[spec.name], directory))
            else:
                files.append(_not_drawn(spec, found))
    manifest = json.dumps([asdict(file) for file in files], indent=1, ensure_ascii=False)
    write_atomically(directory / MANIFEST, manifest + "\n")
    return files


def read_figures(directory: Path) -> list[FigureFile]:
    """What `draw` wrote into a folder."""
    entries = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    return [
        FigureFile(
            **{
                **entry,
                **{name: tuple(entry[name]) for name in ("labels", "failed", "unmeasured")},
                "tables": tuple(map(TextTable.of, entry["tables"])),
            }
        )
        for entry in entries
    ]


def _shared_limits(figures: Sequence[FigureData]) -> dict[str, Limits]:
    """Each figure's limits by its name; figures with one scale get the same ones."""
    together: dict[Any, list[FigureData]] = defaultdict(list)
    for cells in figures:
        spec = cells.spec
        own = spec.colour_scale is None
        together[(spec.metric, own, spec.name if own else spec.colour_scale)].append(cells)
    limits = {}
    for (metric, *_), members in together.items():
        intervals = any(cells.spec.kind != "heatmap" for cells in members)
        found = limits_of(metric, members, with_intervals=intervals)
        limits.update({cells.spec.name: found for cells in members})
    return limits


def _select(
    spec: FigureSpec, tidy: pd.DataFrame, topology: Mapping[str, Any]
) -> FigureData | str | None:
    """What a figure shows, None without data, or what is wrong with its description.

    Whether several points fall on one mark shows only when there are points. Hours of measuring
    are not to end without a report for that, so it becomes a line in it.
    """
    try:
        return select_data(spec, tidy, topology)
    except UserError as error:
        return str(error)


def _try(cells: FigureData, limits: Limits, directory: Path) -> FigureFile:
    """Write a figure, unless its description does not fit what it shows."""
    try:
        return _write(cells, limits, directory)
    except UserError as error:
        return _not_drawn(cells.spec, str(error))


def _not_drawn(spec: FigureSpec, problem: str | None) -> FigureFile:
    return FigureFile(
        name=spec.name,
        experiment=spec.experiment,
        kind=spec.kind,
        title=spec.title,
        sentence=problem or "This machine has no point that belongs here.",
        problem=problem,
        source=spec.source,
        labels=(),
        failed=(),
        marks=0,
        svg=None,
        png=None,
        csv=None,
    )


def _write(
    cells: FigureData, limits: Limits, directory: Path, said: str | None = None
) -> FigureFile:
    """Draw one figure and write its three files; without a sentence, one is computed."""
    spec = cells.spec
    said = said or caption_of(cells, limits.scale)
    drawn = spec.kind in _DRAW and not (cells.cells["status"] == UNMEASURED).all()
    if drawn:
        _write_drawing(cells, limits, directory, said)
    _write_csv(figure_data(cells), directory / f"{spec.name}.csv")
    numbers = None
    if spec.kind == "curve":
        numbers = f"{spec.name}_numbers.csv"
        _write_csv(_curve_data(cells), directory / numbers)
    return FigureFile(
        name=spec.name,
        experiment=spec.experiment,
        kind=spec.kind,
        title=cells.title,
        sentence=said,
        problem=None,
        source=spec.source,
        labels=tuple(cells.labels),
        failed=tuple(failures(cells)),
        unmeasured=tuple(unmeasured(cells)),
        marks=int((cells.cells["status"] == "valid").sum()),
        svg=f"{spec.name}.svg" if drawn else None,
        png=f"{spec.name}.png" if drawn else None,
        csv=f"{spec.name}.csv",
        numbers=numbers,
        tables=tables_of(cells),
    )


def _write_drawing(cells: FigureData, limits: Limits, directory: Path, said: str) -> None:
    """Draw a figure as SVG and PNG."""
    spec = cells.spec
    figure, texts = _DRAW[spec.kind](cells, limits)
    vector, picture = io.BytesIO(), io.BytesIO()
    # No date and no program version: unchanged data gives unchanged files.
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(picture, format="png", dpi=_PNG_DOTS_PER_INCH, metadata={"Software": None})
    svg = annotate(vector.getvalue(), spec.name, cells.title, said, texts)
    write_atomically(directory / f"{spec.name}.svg", svg)
    (directory / f"{spec.name}.png").write_bytes(picture.getvalue())


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    write_atomically(path, table.to_csv(index=False, lineterminator="\n"))


def write_bars(
    cells: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    name: str,
    title: str,
    series_title: str,
    said: str,
    directory: Path,
) -> FigureFile:
    """Draw bars of cells that no experiment's figure describes; `figures.json` does not list them.

    Args:
        cells: as `summarise`, of one metric, with the columns `x` and `series` in their order.
        rows: of the tidy table behind them, with the same columns.
        name: of the files.
        title: of the figure.
        series_title: what the series are.
        said: the sentence below it.
        directory: where the files go.
    """
    first = cells.iloc[0]
    load = tuple(dict.fromkeys(cells["load"]))
    spec = FigureSpec("", name, "bars", title, load, first["metric"], x="Resource",
                      series=series_title)  # fmt: skip
    axes = {
        role: Axis(column, column, tuple(map(text_value, dict.fromkeys(cells[role]))), ())
        for role, column in (("x", "Resource"), ("series", series_title))
    }
    drawn = FigureData(spec, axes, cells, rows)
    with style.look():
        limits = limits_of(spec.metric, [drawn], with_intervals=True)
        return _write(drawn, limits, directory, said)


def figure_data(cells: FigureData) -> pd.DataFrame:
    """What a figure shows as a table: where, median, interval, n and status, in SI units.

    A heat map has a row for every cell; those that no point is meant for have the status "absent".
    """
    metric, axes = cells.spec.metric, cells.axes
    table = cells.cells
    if cells.spec.kind == "heatmap":
        pairs = [(row, column) for row in axes["rows"].names for column in axes["columns"].names]
        every = pd.DataFrame(pairs, columns=["rows", "columns"])
        table = every.merge(table, on=["rows", "columns"], how="left")
        table["status"] = table["status"].fillna("absent")
        table["n"] = table["n"].fillna(0).astype(int)
    columns = {axes[role].column: table[role] for role in axes}
    if cells.spec.plotted or cells.spec.kind == "table":
        columns = {"initiator": table["initiator"], "target": table["target"]} | columns
    if cells.spec.kind == "table" and "seen_nodes" in table:
        columns["seen_nodes"] = table["seen_nodes"]
    if cells.spec.plotted:
        columns[str(cells.spec.x)] = table["x"]
    columns |= {
        f"median_{metric}": table["median"],
        f"interval_low_{metric}": table["low"],
        f"interval_high_{metric}": table["high"],
        f"minimum_{metric}": table["minimum"],
        f"maximum_{metric}": table["maximum"],
        "replicates_valid": table["n"],
        "replicates_failed": table["n_failed"].astype("Int64"),
        "outliers": table["outliers"],
        "status": table["status"],
        "reason": table["reason"],
        "file_backed": table["file_backed"],
        "label": table["label"],
    }
    columns |= {
        f"bound_{bound.title.replace(' ', '_')}_{metric}": [
            bound.at(row.get("panels"), row.get("series"), row.get("x"))
            for row in table.to_dict("records")
        ]
        for bound in cells.bounds
    }
    if cells.spec.plotted:
        columns |= {f"interval_{end}_{cells.spec.x}": table[f"x_{end}"] for end in ("low", "high")}
    if cells.spec.cell_note:
        columns[cells.spec.cell_note] = table["note"]
    return pd.DataFrame(columns)


def _curve_data(cells: FigureData) -> pd.DataFrame:
    """The numbers of a figure's curves as a table, in SI units."""
    table = curve_table(cells)
    roles = {role: axis.column for role, axis in cells.axes.items()}
    metrics = table["quantity"].map(lambda name: metric_of(name, cells))
    table.insert(table.columns.get_loc("quantity") + 1, "metric", metrics)
    return table.drop(columns=["host", "configuration"]).rename(columns=roles)
