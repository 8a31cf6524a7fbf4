"""Write the files of a report: figures, ``report.html``, ``summary.json``, ``summary.txt``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from chaosity.anomalies.anomaly_results import Findings
from chaosity.components.component_files import facts_of_system_component, read_component_documents
from chaosity.components.component_history import read_component_histories
from chaosity.documents.shipped_documents import CONFIG, load_experiment
from chaosity.documents.yaml_files import read_yaml
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.figures.checks_over_time import draw_checks_over_time
from chaosity.figures.draw_and_write_figures import FigureFile, draw_figures
from chaosity.health.check_history import read_check_history
from chaosity.health.check_series import SERIES_FILE
from chaosity.records.atomic_writes_and_record_files import read_regular_file, write_atomically
from chaosity.report.build_report_data import build_report_data
from chaosity.report.html_pages_and_inline_svg import pack_drawings, render_page
from chaosity.report.record_summaries import read_record_summaries
from chaosity.report.report_summary import ReportSummary, summarise_report, terminal_lines
from chaosity.result_folders import other_configuration_tables
from chaosity.statistics.cell_summary import with_variance_priors
from chaosity.store.left_out_points import LeftOutPoints
from chaosity.store.measurements import Measurements
from chaosity.store.measurements_before_component_changes import (
    HISTORY_COLUMNS,
    split_measurements_at_component_changes,
)
from chaosity.store.tidy_table_from_records import (
    build_tidy_table,
    note_on_records_without_digest,
)
from chaosity.store.tidy_table_parquet import read_parquet_table
from chaosity.topology.topology_json import read_topology
from chaosity.topology.topology_model import Topology
from chaosity.transport.skipped_hosts import read_skipped_host

Parsed = TypeVar("Parsed")


def _read_json(path: Path, parse: Callable[[Any], Parsed], what: str) -> Parsed:
    """Return the parsed content of a JSON file; an error says that the file is not `what`."""
    with malformed_as_user_error(f"the file is not {what}", str(path)):
        return parse(json.loads(read_regular_file(path)))


def _planned_records(folder: Path) -> list[Path]:
    """Return the records of the plan's points; the folder can have records of earlier plans too."""
    points = (path.relative_to(folder / "points") for path in folder.glob("points/*/*.json"))
    return [path for point in points for path in folder.glob(f"{point.with_suffix('')}/rep*.json")]


def write_report(
    plan: Path,
    output: Path,
    *,
    table: Path | None = None,
    former: Path | None = None,
    findings: Path | None = None,
    drawing: Path | None = None,
    config_file: Path = CONFIG,
    others: Sequence[Path] = (),
) -> list[str]:
    """Draw the figures of a plan; write its report and, in the same folder, ``summary.json``.

    Args:
        plan: ``plan.json`` in the folder of a host and configuration.
        output: path of the HTML file.
        table: the tidy table; None to make it from the records.
        former: the table of earlier values; None to make it from the records.
        findings: the findings file; None to analyse the table.
        drawing: the topology as SVG, which lstopo drew.
        config_file: the workflow's config.
        others: tidy tables of the host's other configurations.

    Returns:
        The lines for the terminal, see `terminal_lines`.
    """
    folder = plan.parent
    planned, names = _read_json(
        plan, lambda read: (read, [*read["experiments"]]), "the plan.json of a host"
    )
    rows = read_parquet_table(table) if table else build_tidy_table(folder / "points", folder)
    measurements = with_variance_priors(Measurements.from_table(rows))
    components = read_component_documents(folder / "components")
    topology = read_topology(folder / "topology.json") or Topology()
    figures = output.parent / "figures"
    experiments = [load_experiment(name) for name in names]
    left_out = LeftOutPoints.read(folder)
    drawn = draw_figures(experiments, measurements, topology, figures, left_out)
    checks = _figure_of_checks(folder, figures)
    earlier = (
        read_parquet_table(former, HISTORY_COLUMNS)
        if former
        else split_measurements_at_component_changes(
            folder / "points", folder, folder / "components"
        )
    )
    of_anomalies = "an output of `chaosity anomalies --json`"
    report = build_report_data(
        measurements,
        experiments=experiments,
        drawn=drawn,
        figures=figures,
        topology=topology,
        system=facts_of_system_component(components),
        summaries=read_record_summaries(_planned_records(folder)),
        config={
            **read_yaml(config_file),
            **planned.get("config", {}),
            "notes": [
                *planned.get("notes", []),
                *filter(None, [note_on_records_without_digest(folder)]),
            ],
        },
        output=output,
        drawing=drawing,
        findings=_read_json(findings, Findings.from_json, of_anomalies) if findings else None,
        components=components,
        others={path: with_variance_priors(Measurements.read(path)) for path in others},
        history=Measurements.from_table(earlier),
        histories=read_component_histories(folder / "components"),
        skipped=read_skipped_host(folder.parent),
        left_out=left_out,
        checks=checks,
    )
    write_atomically(figures / "machine.svg", report.machine_drawing)
    write_atomically(output, pack_drawings(render_page("report.html.j2", report=report)))
    summary = summarise_report(report, measurements, experiments)
    text = json.dumps(asdict(summary), indent=1, ensure_ascii=False) + "\n"
    write_atomically(output.with_name("summary.json"), text)
    return terminal_lines(report, summary)


def _figure_of_checks(folder: Path, figures: Path) -> FigureFile | None:
    """Draw the checks of a host; None without checks. A damaged series is named in the report."""
    if not (folder / SERIES_FILE).exists():
        return None
    place = f"{folder.parent.name}, {folder.name}"
    try:
        return draw_checks_over_time(read_check_history(folder), place, figures)
    except UserError as error:
        return FigureFile("checks_over_time", "", "lines", "Checks", str(error), str(error), None)


def has_outdated_skip_note(folder: Path) -> bool:
    """Return whether a report and its host's ``left_out.json`` have different notes of a skip."""
    reported = None
    with suppress(UserError):
        reported = ReportSummary.from_file(folder / "summary.json").left_out
    skipped = read_skipped_host(folder.parent)
    return bool(reported != (skipped.skip_time_and_reason if skipped else None))


def rewrite_reports_of_host(host: Path, *, stale_only: bool) -> None:
    """Write the reports of all configurations of a host (``results/<host>``) again."""
    for html in sorted(host.glob("*/report.html")):
        folder = html.parent
        outdated = not stale_only or has_outdated_skip_note(folder)
        if not outdated or not (folder / "plan.json").exists():
            continue
        inputs = {
            "table": folder / "measurements.parquet",
            "former": folder / "history.parquet",
            "findings": folder / "findings.json",
            "drawing": folder / "topology.svg",
        }
        lines = write_report(
            folder / "plan.json",
            html,
            others=other_configuration_tables(host.parent, host.name, folder.name),
            **{name: path for name, path in inputs.items() if path.exists()},
        )
        write_atomically(folder / "summary.txt", "\n".join(lines) + "\n")
