"""Build everything that the report's template shows, from the tidy table, records and figures.

The dataclasses have only text and numbers, so `dataclasses.asdict` of a report is JSON. Tests read
this content without HTML, and the template only decides on the appearance.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.anomalies.anomaly_results import Findings, no_problems_text
from chaosity.anomalies.host_anomalies import analyse_host, host_component_facts
from chaosity.components.component_history import ComponentState
from chaosity.components.make_component_documents import Components
from chaosity.export.host_measurements_for_export import MeasuredHost
from chaosity.figures.draw_and_write_figures import FigureFile
from chaosity.figures.machine_drawing import draw_machine
from chaosity.records.atomic_writes_and_record_files import record_file
from chaosity.report.component_change_effects import ComponentChange, component_changes
from chaosity.report.configuration_comparison import ConfigurationsSection, compare_configurations
from chaosity.report.experiment_section import (
    ExperimentSection,
    FigureSection,
    experiment_section,
    figure_section,
    path_relative_to_report,
)
from chaosity.report.findings_and_checks import (
    MOST_FINDINGS,
    OK,
    PROBLEM,
    ResultCheck,
    ShownFinding,
    anomaly_search_coverage_check,
    check_results,
    first_findings,
    merge_similar_contention,
    normal_value_checks,
    shown_findings,
)
from chaosity.report.html_pages_and_inline_svg import inline_svg, svg_width
from chaosity.report.machine_facts import (
    Document,
    Fact,
    FactGroup,
    machine_facts,
    system_component_fact_groups,
)
from chaosity.report.measurement_methods import methodology_facts
from chaosity.report.record_summaries import RecordSummary
from chaosity.report.resource_table import ResourceRow, resource_table
from chaosity.report.variance_analysis_section import analysis_sections
from chaosity.statistics.estimates_and_ratios import CONFIDENCE
from chaosity.store.left_out_points import LeftOutPoints
from chaosity.store.measurements import POINT, Measurements
from chaosity.text_templates import fixed_texts
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_model import Node, Topology
from chaosity.transport.skipped_hosts import SkippedHost

# Failed points on the page; measurements.parquet has all.
_MOST_FAILED = 200


def build_report_data(
    measurements: Measurements,
    *,
    experiments: Sequence[Mapping[str, Any]],
    drawn: Sequence[FigureFile],
    figures: Path,
    topology: Topology,
    system: HostFacts,
    summaries: Sequence[RecordSummary],
    config: Document,
    output: Path,
    drawing: Path | None = None,
    findings: Findings | None = None,
    components: Components | None = None,
    others: Mapping[Path, Measurements] | None = None,
    history: Measurements | None = None,
    histories: Mapping[str, Sequence[ComponentState]] | None = None,
    skipped: SkippedHost | None = None,
    left_out: LeftOutPoints | None = None,
    checks: FigureFile | None = None,
) -> ReportData:
    """Return the data of the report of one host in one configuration.

    Args:
        measurements: tidy table of the host in this configuration.
        experiments: YAML documents of the experiments.
        drawn: result of `draw_figures` for the measurements.
        figures: folder of the figures' files.
        topology: topology of the host.
        system: document of the system component.
        summaries: summaries of the records, see `read_record_summaries`.
        config: config of the workflow, with `seed`, `stopping` and `results`.
        output: the file of the report; links are relative to its folder.
        drawing: the topology as SVG file, drawn by lstopo.
        findings: findings of the host; None to analyse the measurements.
        components: name -> document of a component; without them, drives are not compared.
        others: path of the table -> measurements, for each other configuration of the host.
        history: result of `split_measurements_at_component_changes`: values by period.
        histories: states of the components, see `components.read_component_histories`.
        skipped: when and why the last run skipped the host.
        left_out: points that a budget left out.
        checks: the figure of the host's checks; None without checks.

    Raises:
        UserError: the drawing is not an SVG file.
    """
    rows = measurements.rows
    findings = findings or analyse_host(measurements, host_component_facts(topology, components))
    results = [ResultCheck("Usability", PROBLEM, findings.unusable)] if findings.unusable else []
    results += check_results(rows, topology, system, summaries, drawn)
    if not findings.unusable:
        results.append(anomaly_search_coverage_check(findings))
    results += normal_value_checks(measurements, topology, system)
    confidences = {each["experiment"]: each.get("confidence", CONFIDENCE) for each in experiments}
    analyses = analysis_sections(measurements, confidences)
    failed = _failed_points(rows, summaries, config)
    host, configuration = (
        str(rows[column].iloc[0]) if len(rows) else f"unknown {column}"
        for column in ("host", "configuration")
    )
    coverage = None if left_out is None else left_out.coverage_text(measurements)
    predictions = () if left_out is None else left_out.method_texts()
    svg = None if drawing is None else inline_svg(drawing.read_bytes(), "topology", str(drawing))
    shown = [anomaly for anomaly, _ in first_findings(findings.anomalies)]
    section = compare_configurations(measurements, others or {}, output, figures, experiments)
    compared = section.figures if section else ()
    changes, older = ([], 0) if history is None else component_changes(history, histories or {})
    return ReportData(
        host=host,
        configuration=configuration,
        measured=_measured_text(measurements),
        simulated=measurements.is_simulated,
        machine=tuple(machine_facts(topology, system)),
        machine_drawing=draw_machine(MeasuredHost(output.parent, measurements, topology), shown),
        findings=tuple(shown_findings(findings.anomalies, drawn, measurements)),
        suspicions=tuple(shown_findings(findings.suspicions, drawn, measurements)),
        no_problems=""
        if findings.unusable
        else no_problems_text(findings.checked, findings.untested, findings.detectable_percent),
        findings_omitted=max(0, len(merge_similar_contention(findings.anomalies)) - MOST_FINDINGS),
        problems=tuple(check for check in results if check.severity != OK),
        passed=tuple(check for check in results if check.severity == OK),
        resources=tuple(resource_table(measurements, experiments)),
        coverage=coverage,
        methodology=(
            *methodology_facts(rows, summaries, config),
            *(Fact("Predictions", text) for text in predictions),
        ),
        experiments=tuple(
            experiment_section(each, drawn, figures, analyses[each["experiment"]], rows, summaries)
            for each in experiments
        ),
        drawing=svg,
        drawing_pixels=round(svg_width(svg or "") or 0),
        nodes=topology.nodes,
        drives_of_nodes=dict(Counter(drive.node for drive in topology.drives)),
        failed=tuple(failed[:_MOST_FAILED]),
        failed_omitted=max(0, len(failed) - _MOST_FAILED),
        host_state=tuple(system_component_fact_groups(system)),
        programs=tuple(_programs(summaries, system)),
        files=tuple(_files(output)),
        figures_folder=path_relative_to_report(figures, output),
        skipped=skipped.skip_time_and_reason if skipped else None,
        configurations=section,
        configuration_figures=tuple(figure_section(each, figures) for each in compared),
        changes=tuple(changes),
        changes_omitted=older,
        checks=figure_section(checks, figures) if checks else None,
    )


def _measured_text(measurements: Measurements) -> str:
    """Return the first and last time as text: "measured 2026-11-21 09:15 to 10:02 UTC"."""
    if measurements.is_simulated:
        return "SIMULATED: this machine does not exist, and nothing was measured"
    stamps = measurements.rows["measured_at"]
    moments = sorted(moment for moment in stamps if isinstance(moment, str))
    if not moments:
        return "not measured yet"
    first, last = (moment[:16].replace("T", " ") for moment in (moments[0], moments[-1]))
    if first[:10] == last[:10]:
        last = last[11:]
    span = first if first.endswith(last) else f"{first} to {last}"
    return f"measured {span} UTC"


def _failed_points(
    rows: pd.DataFrame, summaries: Sequence[RecordSummary], config: Document
) -> list[FailedPoint]:
    """Return each failed point, with the command lines of its first failed replicate."""
    by_replicate = {(each.experiment, each.point, each.replicate): each for each in summaries}
    points = []
    for key, group in rows[rows["status"] == "failed"].groupby(list(POINT), sort=False):
        host, configuration, experiment, point = map(str, key)
        replicates = sorted({int(number) for number in group["replicate"]})
        summary = by_replicate.get((experiment, point, replicates[0]))
        commands = summary.commands if summary else {}
        reasons = dict.fromkeys(str(reason) for reason in group["reason"] if reason is not None)
        results = str(config.get("results", "results"))
        file = record_file(experiment, point, replicates[0])
        record = f"{results}/{host}/{configuration}/{file}"
        points.append(
            FailedPoint(
                experiment=experiment,
                point=point,
                replicates=", ".join(map(str, replicates)),
                reason="; ".join(reasons) or "no reason recorded",
                commands=tuple(Fact(name, command) for name, command in commands.items()),
                repeat=shlex.join(["snakemake", record]),
            )
        )
    return points


def _programs(summaries: Sequence[RecordSummary], system: Mapping[str, object]) -> list[Fact]:
    """Return the version of each program, or several versions if records differ."""
    versions: dict[str, dict[str, None]] = defaultdict(dict)
    tools = system.get("tools")
    for programs in (tools, *(each.programs for each in summaries)):
        for name, version in programs.items() if isinstance(programs, Mapping) else ():
            versions[name][str(version)] = None
    versions["chaosity"] = {__version__: None}
    return [Fact(name, ", ".join(found)) for name, found in sorted(versions.items())]


def _files(output: Path) -> Iterator[Fact]:
    """Yield the files in the folder of the report, with paths relative to it."""
    for name, path in fixed_texts("report")["files"].items():
        if "..." in path or (output.parent / path).exists():
            yield Fact(name, path)


@dataclass(frozen=True)
class FailedPoint:
    """A failed point: reason, command lines, and the command that measures it again."""

    experiment: str
    point: str
    replicates: str
    reason: str
    commands: tuple[Fact, ...]
    repeat: str


@dataclass(frozen=True)
class ReportData:
    """The whole report, in reading order.

    Optional parts: `skipped` says when and why the last run skipped the host, `coverage` what a
    budget left out, `configurations` compares its other configurations, `changes` has values before
    and after changes, `checks` the series of checks.
    """

    host: str
    configuration: str
    measured: str
    simulated: bool
    machine: tuple[Fact, ...]
    machine_drawing: str
    findings: tuple[ShownFinding, ...]
    suspicions: tuple[ShownFinding, ...]
    no_problems: str
    problems: tuple[ResultCheck, ...]
    passed: tuple[ResultCheck, ...]
    resources: tuple[ResourceRow, ...]
    methodology: tuple[Fact, ...]
    experiments: tuple[ExperimentSection, ...]
    drawing: str | None
    drawing_pixels: int
    nodes: tuple[Node, ...]
    drives_of_nodes: Mapping[int | None, int]
    failed: tuple[FailedPoint, ...]
    failed_omitted: int
    host_state: tuple[FactGroup, ...]
    programs: tuple[Fact, ...]
    files: tuple[Fact, ...]
    figures_folder: str
    skipped: str | None = None
    coverage: str | None = None
    configurations: ConfigurationsSection | None = None
    configuration_figures: tuple[FigureSection, ...] = ()
    changes: tuple[ComponentChange, ...] = ()
    changes_omitted: int = 0
    checks: FigureSection | None = None
    findings_omitted: int = 0
    version: str = __version__
