"""Draw figures of experiments, of nightly checks and of residuals, and write their files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
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
from chaosity.figures.vega_lite import Drawing, Row, write_drawing
from chaosity.health.check_history import CheckHistory, ValueSeries
from chaosity.records.record_files import write_atomically
from chaosity.records.record_format import SIMULATED
from chaosity.statistics.anova import AnovaResult
from chaosity.statistics.cell_summary import UNMEASURED
from chaosity.statistics.estimates import intervals_with_confidence
from chaosity.store.csv_tables import csv_text
from chaosity.store.measurements import LeftOutPoints, Measurements
from chaosity.topology.topology_model import Topology
from chaosity.units import choose_scale, format_count, format_quantity, metric_in_words

FIGURES_JSON_FILE = "figures.json"


@dataclass(frozen=True)
class FigureEntry:
    """A figure with the names of its files, or with the reason why it was not drawn."""

    name: str  # name of the figure and of its files
    experiment: str  # name of the figure's experiment
    kind: str  # heatmap, lines, bars, curve, scatter or table
    title: str  # title; it ends with "(file-backed)" if a file replaced the drives
    sentence: str  # the caption, or the reason why the figure was not drawn
    problem: str | None  # error in the figure's description, or None
    source: str | None  # published figure or table that this figure repeats, or None
    labels: tuple[str, ...] = ()  # labels that benchmarks require next to their values
    provenance: str = ""  # host, benchmark and kernel of a figure without a drawing
    failed: tuple[str, ...] = ()  # a line of text for each failed mark
    marks: int = 0  # number of marks with a value
    # svg, png, csv, vega_lite: names of the files of the figure. A figure without data has no
    # files. A table, or a figure with a single mark, has only a CSV file.
    svg: str | None = None
    png: str | None = None
    csv: str | None = None
    vega_lite: str | None = None  # the drawing as Vega-Lite, which users can change
    # Name of the CSV file with the numbers of curves or with the steps of latency, or None.
    numbers: str | None = None
    tables: tuple[TextTable, ...] = ()  # tables of text below the drawing or instead of it
    unmeasured: tuple[str, ...] = ()  # reasons why marks that did not fail have no value
    # values: a table with the values of the drawing in words. shown: (point, initiator, target) of
    # the measurements of the marks. The file `figures.json` contains neither `values` nor `shown`.
    values: TextTable | None = None
    shown: tuple[tuple[str, str, str], ...] = ()


def draw_figures(
    experiments: Sequence[Mapping[str, Any]],
    measurements: Measurements,
    topology: Topology,
    directory: Path,
    left_out: LeftOutPoints | None = None,
) -> list[FigureEntry]:
    """Draw every figure of the experiments into a folder.

    The same data always give the same bytes. The file `figures.json` lists the figures.
    `experiments` are YAML documents. `measurements` are of one host in one configuration, and
    `topology` is the topology of this host (empty if unknown). `left_out` has the points that a
    budget left out, and their predictions.

    Raises:
        UserError: two figures have the same name, or the measurements are of several hosts.
    """
    if len(measurements.rows[["host", "configuration"]].drop_duplicates()) > 1:
        raise UserError(
            "the table has several hosts or configurations",
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
            files.append(_entry_without_drawing(spec, data, left_out=out))
            continue
        try:
            with intervals_with_confidence(spec.confidence):
                files.append(write_figure(data, directory, limits[spec.name]))
        except UserError as error:  # the description of the figure does not fit the data
            files.append(_entry_without_drawing(spec, str(error)))
    listed = [asdict(replace(file, values=None, shown=())) for file in files]
    for entry in listed:
        del entry["values"], entry["shown"]
    manifest = json.dumps(listed, indent=1, ensure_ascii=False)
    write_atomically(directory / FIGURES_JSON_FILE, manifest + "\n")
    return files


def _shared_limits(figures: Sequence[FigureData]) -> dict[str, ShownValueRange]:
    """Return name of a figure -> range of values; figures of one `colour_scale` share a range."""
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
    """Return the data of a figure, None without data, or as text the error in its description.

    Some errors, such as several points for one mark, can be found only after the measurements.
    Hours of measurements must give a report in spite of such an error, so the error becomes a line
    of the report.
    """
    try:
        with intervals_with_confidence(spec.confidence):
            return select_figure_data(spec, measurements, topology, left_out)
    except UserError as error:
        # If a budget left out points, a column that the figure needs may be missing without an
        # error.
        return None if _leaves_out_points(spec, left_out) else str(error)


def _leaves_out_points(spec: FigureSpec, left_out: LeftOutPoints | None) -> bool:
    """Return whether a budget left out points of the figure's experiment."""
    return left_out is not None and len(left_out.rows.where(experiment=spec.experiment)) > 0


def _entry_without_drawing(
    spec: FigureSpec, problem: str | None, *, left_out: bool = False
) -> FigureEntry:
    """Return the entry of a figure that was not drawn, maybe because of a budget (`left_out`)."""
    none = "No point of this host belongs to this figure."
    sentence = problem or ("The budget left out the points of this figure." if left_out else none)
    identity = (spec.name, spec.experiment, spec.kind, spec.title)
    return FigureEntry(*identity, sentence, problem, spec.source)


def write_figure(
    data: FigureData, directory: Path, limits: ShownValueRange | None = None, caption: str = ""
) -> FigureEntry:
    """Draw a figure and write its files, but not its entry in `figures.json`.

    By default, `limits` is the range of the values of this figure, and `caption` is the text of
    `figure_caption`.
    """
    spec = data.spec
    limits = limits or find_round_value_limits(spec.metric, [data], with_intervals=True)
    caption = caption or figure_caption(data, limits.scale)
    # A figure with a single mark is not drawn, since its caption has the value.
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
    return FigureEntry(
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
    """Write a table as CSV in which spreadsheets execute no text as a formula."""
    write_atomically(path, csv_text(table))


_NAME, _TITLE = "checks_over_time", "Checks over time"
# Largest numbers of changed values and of changed components in the figure of nightly checks.
_MOST_PANELS, _MOST_COMPONENTS = 6, 6
# Least range of a panel of nightly checks, in per cent above and below the first level.
_LEAST_PERCENT_AROUND_FIRST_LEVEL = 5.0
_MOST_AXIS_TEXT_CHARACTERS = 100
_DAY_MILLISECONDS = 86_400_000.0  # a day in milliseconds, which is Vega-Lite's unit of dates


def draw_checks_over_time(history: CheckHistory, place: str, directory: Path) -> FigureEntry:
    """Draw the figure of a host's nightly checks and write its files, with all values as CSV.

    The figure has a panel for each changed value, and one panel for all other values. `place` is a
    text that names the host and the configuration.
    """
    caption = " ".join(history.sentences())
    write_drawing(_drawing_of_checks(history, place), _NAME, caption, directory)
    write_csv(history.table(), directory / f"{_NAME}.csv")
    svg, png, csv, vega_lite = (f"{_NAME}.{kind}" for kind in ("svg", "png", "csv", "vl.json"))
    identity = (_NAME, "", "lines", _TITLE, caption, None, None)
    return FigureEntry(*identity, svg=svg, png=png, csv=csv, vega_lite=vega_lite)


def _drawing_of_checks(history: CheckHistory, place: str) -> Drawing:
    """Return the drawing: values over dates, as differences in per cent from their first level."""
    changed = history.changed_series[:_MOST_PANELS]
    others = [each for each in history.series if all(each is not own for own in changed)]
    rows: list[Row] = []
    for series in changed:
        rows += _rows_of_changed(series)
    if others:
        rows += _rows_of_others(others)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    components = history.component_changes[-_MOST_COMPONENTS:]
    for panel in panels:
        ends = (_LEAST_PERCENT_AROUND_FIRST_LEVEL, -_LEAST_PERCENT_AROUND_FIRST_LEVEL)
        rows += [{"role": "least_range", "panel": panel, "value": end} for end in ends]
        for time, text in components:
            date = {"x": _milliseconds(time), "text": time[:10], "hover": f"{time[:10]}: {text}"}
            rows.append({"role": "component", "panel": panel, **date})
    if changed:
        rows.append(
            {"role": "legend", "panel": panels[0], "x": _milliseconds(history.times_of_checks[0])}
        )
    times = history.times_of_checks
    first, last = _milliseconds(times[0]), _milliseconds(times[-1])
    margin = max(
        (last - first) * 0.01, 0.5 * _DAY_MILLISECONDS
    )  # an axis with a single check needs a width
    about = f"{place}, {format_count(len(times), 'check')} from {times[0][:10]} to {times[-1][:10]}"
    listed = (f"{time[:10]}: {text}"[:_MOST_AXIS_TEXT_CHARACTERS] for time, text in components)
    title = f"{_TITLE} \N{MIDDLE DOT} SIMULATED" if history.is_simulated else _TITLE
    values = {"panels": panels, "dates": [first - margin, last + margin]}
    return Drawing(_NAME, title, " \N{MIDDLE DOT} ".join([about, *listed]), rows, values)


def _milliseconds(time: str) -> float:
    """Return a time in milliseconds since 1970; a time without a zone is UTC."""
    moment = datetime.fromisoformat(time)
    return 1000.0 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _percent_of_first_level(series: ValueSeries, logs: Sequence[float]) -> list[float]:
    """Return values, given as logarithms, as differences in per cent from the first level."""
    return [100.0 * float(np.expm1(each - series.segments[0].first)) for each in logs]


def _name_of_series(series: ValueSeries) -> str:
    return f"{'->'.join(series.check.parts)}, {metric_in_words(series.check.metric)}"


def _rows_of_changed(series: ValueSeries) -> Iterator[Row]:
    """Yield rows for a changed value: checks, levels, changes, and intervals of change dates."""
    times, metric = [_milliseconds(time) for time in series.times], series.check.metric
    first, now = (format_quantity(metric, end) for end in series.ends)
    panel = f"{_name_of_series(series)}: {first} at first, now {now}"
    logs = [float(each) for each in np.log(series.values)]
    for x, value in zip(times, _percent_of_first_level(series, logs), strict=True):
        yield {"role": "check", "panel": panel, "x": x, "value": value}
    before = None
    for segment in series.segments:
        start, end = _percent_of_first_level(series, (segment.first, segment.last))
        begin = times[segment.begin]
        inside = {"x": begin, "x2": times[segment.end - 1], "value": start, "value2": end}
        yield {"role": "level", "panel": panel, **inside}
        if before is not None:
            low, high = (times[at] for at in segment.date_interval)
            yield {"role": "date_interval", "panel": panel, "x": low, "x2": high}
            values = (float(np.exp(each)) for each in (before.last, segment.first))
            shown = [format_quantity(metric, value) for value in values]
            date = series.times[segment.begin][:10]
            hover = f"{_name_of_series(series)}: {shown[0]} before {date}, {shown[1]} from then on"
            [level] = _percent_of_first_level(series, [before.last])
            change = {"x": begin, "value": level, "value2": start, "hover": hover}
            yield {"role": "change", "panel": panel, **change}
        before = segment


def _rows_of_others(series: Sequence[ValueSeries]) -> Iterator[Row]:
    """Yield a row for each check: median of values, and ends of the band with 90 % of values."""
    panel = f"{format_count(len(series), 'further value')}: median, and the band with 90 % of them"
    found: dict[str, list[float]] = {}
    for each in series:
        percents = _percent_of_first_level(each, [float(value) for value in np.log(each.values)])
        for time, percent in zip(each.times, percents, strict=True):
            found.setdefault(time, []).append(percent)
    for time in sorted(found):
        low, middle, high = map(float, np.quantile(found[time], [0.05, 0.5, 0.95]))
        ends = {"value": middle, "low": low, "high": high}
        yield {"role": "band", "panel": panel, "x": _milliseconds(time), **ends}


# Largest number of marks in a plot of residuals, since more marks only make the file larger. The
# lowest and the highest residual are always shown.
_MOST_RESIDUAL_MARKS = 300
# In a plot of an analysis of logarithms, the axis is logarithmic if the highest fitted value is
# more than 20 times the lowest.
_VALUE_RATIO_FOR_LOG_AXIS = 20.0
_RESIDUAL_PLOTS_TITLE = "Residuals against fitted values and against normal quantiles"


def _drawing_of_residuals(analysis: AnovaResult, metric: str, title: str) -> Drawing:
    """Return the drawing with both plots of residuals; the name of `metric` ends in its unit."""
    shown = np.argsort(analysis.residuals, kind="stable")
    if len(shown) > _MOST_RESIDUAL_MARKS:
        shown = shown[np.linspace(0, len(shown) - 1, _MOST_RESIDUAL_MARKS).round().astype(int)]
    fitted, residuals = analysis.fitted[shown], analysis.residuals[shown]
    quantiles = analysis.normal_quantiles[shown]
    logs = analysis.transform == "log"
    fitted = np.exp(fitted) if logs else fitted
    scale, deviation = choose_scale(metric, fitted), float(analysis.residuals.std())
    if logs:  # a residual of a logarithm becomes a ratio
        heights, unit, slope = 100.0 * np.expm1(residuals), "% of the fitted value", 100.0
    else:
        small = choose_scale(metric, residuals)
        heights, unit, slope = residuals / small.factor, small.symbol, 1.0 / small.factor
    marks = zip(fitted / scale.factor, heights, quantiles, strict=True)
    rows: list[Row] = [
        {"role": "value", "fitted": float(x), "residual": float(y), "quantile": float(quantile)}
        for x, y, quantile in marks
    ]
    rows.append({"role": "zero", "residual": 0.0})
    for end in (float(quantiles.min()), float(quantiles.max())):
        rows.append({"role": "normal", "quantile": end, "residual": deviation * slope * end})
    values = {
        "residual_title": f"Residual ({unit})" if unit else "Residual",
        "fitted_title": f"Fitted ({scale.symbol})" if scale.symbol else "Fitted",
        "fitted_scale": "log"
        if logs and fitted.max() > _VALUE_RATIO_FOR_LOG_AXIS * fitted.min()
        else "linear",
    }
    return Drawing("anova_residuals", title, "", rows, values)


def write_residual_plots(analysis: AnovaResult, directory: Path, name: str) -> list[Path]:
    """Plot residuals against fitted values and normal quantiles; return the paths of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    title = f"Residuals of {analysis.response} by {' and '.join(analysis.factors)}"
    drawing = _drawing_of_residuals(analysis, analysis.response, title)
    write_drawing(drawing, name, _RESIDUAL_PLOTS_TITLE, directory)
    return [directory / f"{name}.svg", directory / f"{name}.png"]
