"""Gathers everything that the report says from the table, the records and the figures."""

from __future__ import annotations

import csv
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.anomalies import Findings, analyse_host, host_parts
from chaosity.components import ComponentState
from chaosity.figures import FigureFile, is_byte_column, read_figures
from chaosity.figures.mark_texts import count_reasons
from chaosity.report.before_after import changes
from chaosity.report.configurations import compare_configurations
from chaosity.report.inline_svg import inline_svg, width_of
from chaosity.report.machine_facts import Fact, environment, machine_facts, node_table
from chaosity.report.methodology import methodology
from chaosity.report.record_summaries import Run, tool_notes
from chaosity.report.report_data import (
    ExperimentSection,
    FailedPoint,
    FigureSection,
    ReportData,
    Table,
)
from chaosity.report.resource_table import resource_rows
from chaosity.report.result_checks import OK, check_results
from chaosity.report.shown_findings import MOST_FINDINGS, findings_check, folded, shown_findings
from chaosity.report.variance_section import AnalysisSection, analysis_sections
from chaosity.statistics import POINT, plain
from chaosity.store import SkippedHost
from chaosity.topology import topology_from_json
from chaosity.units import choose_scale, format_binary_bytes, format_quantity, metric_words

# A longer table is better read from the CSV than from the page.
_MOST_ROWS = 320
# Of hundreds of failed points the first show what is wrong; the table of all is in the CSVs.
_MOST_FAILED = 200
# Figures are drawn for paper; on a screen, read from farther away, they are a quarter larger.
_PIXELS_PER_POINT = 4.0 / 3.0 * 1.25
_STATISTICS = ("median_", "interval_low_", "interval_high_")


def build_report_data(
    tidy: pd.DataFrame,
    *,
    experiments: Sequence[Mapping[str, Any]],
    figures: Path,
    topology: Mapping[str, Any],
    system: Mapping[str, Any],
    runs: Sequence[Run],
    config: Mapping[str, Any],
    output: Path,
    drawing: Path | None = None,
    found: Findings | None = None,
    components: Mapping[str, Mapping[str, Any]] | None = None,
    others: Mapping[Path, pd.DataFrame] | None = None,
    history: pd.DataFrame | None = None,
    states: Mapping[str, Sequence[ComponentState]] | None = None,
    left_out: SkippedHost | None = None,
) -> ReportData:
    """Gather what the report says.

    Args:
        tidy: the tidy table of one host in one configuration.
        experiments: the experiments' YAML documents.
        figures: folder that `figures.draw` filled.
        topology: `Topology.to_json()`.
        system: the system component's document.
        runs: summaries of the records, see `summarise_records`.
        config: the workflow's config; `seed`, `stopping` and `results` are read.
        output: where the report will lie; links are relative to its folder.
        drawing: the topology as drawn by lstopo, an SVG file.
        found: what the analysis found; without it, it is made here.
        components: documents of the components by name; without, no drive has siblings.
        others: tidy tables of the host's other configurations by their paths.
        history: earlier values of points that were measured again, see `store.measurement_history`.
        states: what each component was and since when, see `components.read_component_histories`.
        left_out: that the last run left the host out, and why.

    Raises:
        UserError: the drawing is no SVG.
    """
    table = plain(tidy)
    drawn = read_figures(figures)
    found = found or analyse_host(
        table, host_parts(topology_from_json(topology) if topology else None, components)
    )
    checks = [*check_results(table, topology, system, runs, drawn), findings_check(found)]
    explained = analysis_sections(table)
    failed = _failed(table, runs, config)
    host, configuration = (str(table[key].iloc[0]) if len(table) else "unknown host"
                           for key in ("host", "configuration"))  # fmt: skip
    shown = None
    if drawing is not None:
        shown = inline_svg(drawing.read_bytes(), "topology", str(drawing))
    side = compare_configurations(table, others or {}, output, figures)
    changed, older = changes(history, states or {}) if history is not None else ([], 0)
    return ReportData(
        host=host,
        configuration=configuration,
        measured=_measured(table),
        machine=tuple(machine_facts(topology, system)),
        findings=tuple(shown_findings(found, drawn, figures)),
        findings_omitted=max(0, len(folded(found.anomalies)) - MOST_FINDINGS),
        problems=tuple(check for check in checks if check.severity != OK),
        passed=tuple(check for check in checks if check.severity == OK),
        resources=tuple(resource_rows(table)),
        methodology=tuple(methodology(table, runs, config)),
        experiments=tuple(
            _experiment(each, drawn, figures, output, explained, table, runs)
            for each in experiments
        ),
        drawing=shown,
        drawing_pixels=round(width_of(shown or "") or 0),
        nodes=tuple(node_table(topology)),
        failed=tuple(failed[:_MOST_FAILED]),
        failed_omitted=max(0, len(failed) - _MOST_FAILED),
        environment=tuple(environment(system)),
        programs=tuple(_programs(runs, system)),
        files=tuple(_files(figures, output)),
        skipped=left_out.notice if left_out else None,
        configurations=side,
        configuration_figures=tuple(_figure(one, figures, output) for one in side.figures)
        if side
        else (),
        changes=tuple(changed),
        changes_omitted=older,
    )


def _measured(tidy: pd.DataFrame) -> str:
    """When: the first and the last day or minute of the values."""
    moments = sorted(moment for moment in tidy["measured_at"] if isinstance(moment, str))
    if not moments:
        return "not measured yet"
    first, last = (moment[:16].replace("T", " ") for moment in (moments[0], moments[-1]))
    if first[:10] == last[:10]:
        last = last[11:]
    span = first if first.endswith(last) else f"{first} to {last}"
    return f"measured {span} UTC"


def _experiment(
    document: Mapping[str, Any],
    drawn: Iterable[FigureFile],
    folder: Path,
    output: Path,
    explained: Mapping[str, tuple[AnalysisSection, ...]],
    rows: pd.DataFrame,
    runs: Iterable[Run],
) -> ExperimentSection:
    name = document["experiment"]
    own = [figure for figure in drawn if figure.experiment == name]
    return ExperimentSection(
        name=name,
        question=document.get("question", ""),
        source=document.get("source"),
        figures=tuple(_figure(figure, folder, output) for figure in own if figure.csv),
        without_points=tuple(f.title for f in own if not f.csv and not f.problem),
        broken=tuple(Fact(f.title, f.problem) for f in own if f.problem),
        analysis=explained.get(name, ()),
        unmeasured=tuple(_unmeasured(rows[rows["experiment"] == name])),
        noted=tuple(tool_notes(run for run in runs if run.experiment == name)),
    )


def _unmeasured(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each metric of a load that has no value in valid rows, and reason for that."""
    without = rows[(rows["status"] == "valid") & rows["value"].isna()]
    for (load, metric), own in without.groupby(["load", "metric"], sort=False):
        of_all = ((rows["load"] == load) & (rows["metric"] == metric)).sum()
        for told in count_reasons(own["reason"], int(of_all), "value"):
            yield f"{metric_words(metric)} of {load}: not measured: {told}"


def _figure(figure: FigureFile, folder: Path, output: Path) -> FigureSection:
    """A figure with its files, as `draw` left them."""
    notes = []
    if figure.source:
        notes.append(f"Answers to {figure.source}.")
    notes += [f"Values come from a {label}." for label in figure.labels]
    if "(file-backed)" in figure.title:
        notes.append("A file on the local file system stood in for drives.")
    svg = (folder / figure.svg).read_text(encoding="utf-8") if figure.svg else None
    names = {"SVG": figure.svg, "PNG": figure.png, "CSV": figure.csv,
             "CSV of the numbers": figure.numbers}  # fmt: skip
    links = tuple(
        Fact(kind, _relative(folder / name, output)) for kind, name in names.items() if name
    )
    return FigureSection(
        name=figure.name,
        title=figure.title,
        sentence=figure.sentence,
        notes=tuple(notes),
        failed=figure.failed,
        svg=svg,
        width_pixels=round((width_of(svg or "") or 540.0) * _PIXELS_PER_POINT),
        links=links,
        table=_table(folder / str(figure.csv)) if svg else None,
        tables=figure.tables,
        # A figure without any value says so in its sentence.
        unmeasured=figure.unmeasured if figure.marks else (),
    )


def _table(path: Path) -> Table:
    """A figure's CSV as a table in a readable unit."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    measured = [row for row in rows if row["status"] != "absent"]
    if not measured:
        return Table((), ())
    columns = list(measured[0])
    start = next(i for i, name in enumerate(columns) if name.startswith("median_"))
    metric = columns[start].removeprefix("median_")
    if len(measured) > _MOST_ROWS:
        return Table((), (), len(measured))
    scale = choose_scale(metric, [float(row[columns[start]] or "nan") for row in measured])

    def shown(row: Mapping[str, str], prefix: str) -> str:
        text = row[f"{prefix}{metric}"]
        return scale.number(float(text)) if text else ""

    unit = f" ({scale.symbol})" if scale.symbol else ""
    heads = [name.replace("_", " ").replace(".", " ") for name in columns[:start]]
    return Table(
        columns=(*heads, f"median{unit}", "interval low", "interval high", "n", "status"),
        rows=tuple(
            (
                *(_level(name, row[name]) for name in columns[:start]),
                *(shown(row, prefix) for prefix in _STATISTICS),
                row["replicates_valid"],
                row["status"],
            )
            for row in measured
        ),
    )


def _level(column: str, text: str) -> str:
    """A level of a factor, or a measured position, as people read it."""
    number = text.replace(".", "", 1).isdigit()
    if number and is_byte_column(column):
        return format_binary_bytes(float(text))
    measured = number and metric_words(column) != column
    # A count that was asked for, such as a queue depth, has no unit and is told as it was asked.
    if measured and text.isdigit() and not choose_scale(column, [float(text)]).symbol:
        return text
    return format_quantity(column, float(text)) if measured else text


def _failed(
    tidy: pd.DataFrame, runs: Sequence[Run], config: Mapping[str, Any]
) -> list[FailedPoint]:
    """Each failed point once, with the command lines of its last attempt."""
    attempts = {(run.experiment, run.point, run.replicate): run for run in runs}
    failed = tidy[tidy["status"] == "failed"]
    points = []
    for key, rows in failed.groupby(list(POINT), sort=False):
        host, configuration, experiment, point = key
        replicates = sorted({int(number) for number in rows["replicate"]})
        run = attempts.get((experiment, point, replicates[0]))
        reasons = dict.fromkeys(str(reason) for reason in rows["reason"] if reason is not None)
        record = "/".join(
            [str(config.get("results", "results")), host, configuration, experiment, point]
        )
        points.append(
            FailedPoint(
                experiment=experiment,
                point=point,
                replicates=", ".join(map(str, replicates)),
                reason="; ".join(reasons) or "no reason recorded",
                commands=tuple(Fact(k, v) for k, v in (run.commands if run else {}).items()),
                repeat=shlex.join(["snakemake", f"{record}/rep{replicates[0]}.json"]),
            )
        )
    return points


def _programs(runs: Sequence[Run], system: Mapping[str, Any]) -> list[Fact]:
    """Versions of everything that took part; several when they changed between records."""
    versions: dict[str, dict[str, None]] = {}
    for name, version in (system.get("tools") or {}).items():
        versions.setdefault(name, {})[str(version)] = None
    for run in runs:
        for name, version in run.programs.items():
            versions.setdefault(name, {})[version] = None
    versions["chaosity"] = {__version__: None}
    return [Fact(name, ", ".join(found)) for name, found in sorted(versions.items())]


def _files(figures: Path, output: Path) -> list[Fact]:
    """Where the data is, of what lies others the report."""
    places = {
        "Raw records, one a point and replicate": "EXPERIMENT/POINT/rep1.json, rep2.json, ...",
        "All values as one table (Parquet)": "measurements.parquet",
        "Values from before and after changes": "history.parquet",
        "Points as planned": "points",
        "Components": "components",
        "Topology (hwloc XML)": "topology.xml",
        "Findings": "findings.json",
        "For hwloc, numactl and schedulers": "exports",
    }
    found = [
        Fact(what, place)
        for what, place in places.items()
        if "..." in place or (output.parent / place).exists()
    ]
    return [*found, Fact("Figures as SVG, PNG and CSV", f"{_relative(figures, output)}/")]


def _relative(path: Path, output: Path) -> str:
    """A path as seen from the report's folder."""
    return Path(os.path.relpath(path, output.parent)).as_posix()
