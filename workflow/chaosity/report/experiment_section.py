"""Prepare an experiment for the report: its figures with files and values, and its analysis."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from chaosity.figures.axis_order_and_labels import is_byte_column
from chaosity.figures.draw_and_write_figures import FigureFile
from chaosity.figures.mark_labels_and_hover_texts import reasons_with_counts
from chaosity.report.html_pages_and_inline_svg import inline_drawing
from chaosity.report.record_summaries import tool_note_sentences
from chaosity.report.run import Run
from chaosity.report.variance_analysis_section import AnalysisSection, analysis_sections
from chaosity.store.csv_for_spreadsheets import original_text
from chaosity.store.left_out_points import PREDICTED
from chaosity.units import (
    choose_scale,
    format_binary_bytes,
    format_quantity,
    join_with_and,
    metric_words,
)

# Rows; a table with more rows is easier to read in the CSV file than on the page.
_MOST_ROWS = 320
# Figures have the size of print; on a screen, which is farther away, they are 25 % larger.
_PIXELS_PER_POINT = 4.0 / 3.0 * 1.25


@dataclass(frozen=True)
class ValueTable:
    """The values of a figure; `omitted` is their number if the page cannot show so many values."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    omitted: int = 0

    @property
    def numbers(self) -> set[int]:
        """Return the positions of the columns of numbers, which are aligned to the right."""
        columns = enumerate(zip(*self.rows, strict=True))
        return {at for at, texts in columns if all(t[:1].isdigit() for t in texts if t)}


@dataclass(frozen=True)
class FigureSection:
    """A figure with its files and values."""

    file: FigureFile  # the figure's files, title and caption
    svg: str | None  # the drawing; None for a figure that consists of tables alone
    width_pixels: int  # width of the drawing on a screen
    table: ValueTable | None  # table of the values; None without a drawing


@dataclass(frozen=True)
class ExperimentSection:
    """An experiment in the report."""

    title: str
    document: Mapping[str, Any]  # its YAML document
    figures: tuple[FigureSection, ...]
    without_points: tuple[str, ...]  # titles of figures for which this machine has no points
    broken: Mapping[str, str]  # titles of figures that could not be drawn -> the errors
    analysis: tuple[AnalysisSection, ...]  # what explains the differences between values
    # Metrics without a value, with the reason, and messages of tools in valid runs.
    remarks: tuple[str, ...]


def experiment_section(run: Run, document: Mapping[str, Any]) -> ExperimentSection:
    """Return the section of one of the run's experiments."""
    name = document["experiment"]
    rows = run.measurements.rows
    figures = [figure for figure in run.figures if figure.experiment == name]
    summaries = [summary for summary in run.summaries if summary.experiment == name]
    return ExperimentSection(
        title=document.get("title", name.replace("_", " ").capitalize()),
        document=document,
        figures=tuple(figure_section(each, run.figures_folder) for each in figures if each.csv),
        without_points=tuple(each.title for each in figures if not each.csv and not each.problem),
        broken={each.title: each.problem for each in figures if each.problem},
        analysis=tuple(analysis_sections(run, name)),
        remarks=(*_unmeasured(rows[rows["experiment"] == name]), *tool_note_sentences(summaries)),
    )


def _unmeasured(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each reason why a metric of a load has no value in valid rows."""
    without = rows[(rows["status"] == "valid") & rows["value"].isna()]
    metrics: dict[tuple[str, str], list[str]] = {}  # load and reason -> metrics
    for key, group in without.groupby(["load", "metric"], sort=False):
        load, metric = map(str, key)
        total = ((rows["load"] == load) & (rows["metric"] == metric)).sum()
        for reason in reasons_with_counts(group["reason"], int(total), "value"):
            metrics.setdefault((load, reason), []).append(metric_words(metric))
    for (load, reason), names in metrics.items():
        yield f"{join_with_and([*dict.fromkeys(names)])} of {load}: not measured: {reason}"


def figure_section(figure: FigureFile, folder: Path) -> FigureSection:
    """Return a figure for the report; `draw_figures` wrote its files into the folder."""
    svg, points = None, 0.0
    if figure.svg and figure.png:
        svg, points = inline_drawing(folder / figure.svg, folder / figure.png)
    # The rows of other figures are values over time, which nobody reads on a page.
    table = _value_table(folder / str(figure.csv)) if svg and figure.experiment else None
    return FigureSection(figure, svg, round(points * _PIXELS_PER_POINT), table)


def path_relative_to_report(path: Path, output: Path) -> str:
    """Return a path relative to the folder of the report as a URL."""
    # A colon in a folder's name would be the end of a URL's scheme.
    return quote(Path(os.path.relpath(path, output.parent)).as_posix(), safe="/+=,~")


def _value_table(path: Path) -> ValueTable:
    """Return a figure's CSV as a table in one unit."""
    with path.open(newline="", encoding="utf-8") as stream:
        found = [row for row in csv.DictReader(stream) if row["status"] != "absent"]
    rows = [{name: original_text(text) for name, text in row.items()} for row in found]
    if not rows:
        return ValueTable((), ())
    columns = list(rows[0])
    if len(rows) > _MOST_ROWS:
        return ValueTable((), (), len(rows))
    start = next(i for i, name in enumerate(columns) if name.startswith("median_"))
    metric = columns[start].removeprefix("median_")
    predicted = [name for name in columns if name.startswith(f"{PREDICTED}_")]
    values = [columns[start], *predicted[:1]]
    scale = choose_scale(metric, [float(row[name] or "nan") for row in rows for name in values])

    def value_text(text: str) -> str:
        return scale.number(float(text)) if text else ""

    def _texts_of_row(row: Mapping[str, str]) -> Iterator[str]:
        yield from (_level_text(name, row[name]) for name in columns[:start])
        yield value_text(row[f"median_{metric}"])
        ends = (value_text(row[f"interval_{end}_{metric}"]) for end in ("low", "high"))
        yield " to ".join(filter(None, ends))
        yield row["replicates_valid"]
        yield row["status"]
        yield from (value_text(row[name]) for name in predicted)

    unit = f" ({scale.symbol})" if scale.symbol else ""
    heads = [name.replace("_", " ").replace(".", " ") for name in columns[:start]]
    return ValueTable(
        columns=(
            *heads,
            *(f"median{unit}", f"interval{unit}", "n", "status"),
            *(name.removesuffix(f"_{metric}").replace("_", " ") for name in predicted),
        ),
        rows=tuple(tuple(_texts_of_row(row)) for row in rows),
    )


def _level_text(column: str, text: str) -> str:
    """Return the text of a factor's level, or of a measured position, with its unit."""
    if not text.replace(".", "", 1).isdigit():
        return text
    if is_byte_column(column):
        return format_binary_bytes(float(text))
    metric_has_unit = metric_words(column) != column
    # A requested number without a unit, such as a queue depth, is shown as it was requested.
    if not metric_has_unit or (text.isdigit() and not choose_scale(column, [float(text)]).symbol):
        return text
    return format_quantity(column, float(text))
