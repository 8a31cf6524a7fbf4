"""Write a report: its page, with the sections in the order of reading, and its other files.

For each section, a function in a module of this folder returns data of the run, and a template in
``templates/report`` shows these data. The files of a report are the figures, ``report.html``,
``summary.json`` and ``summary.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_machine
from chaosity.figures.machine_parts import MachineParts
from chaosity.records.record_files import write_atomically
from chaosity.report.best_places_of_resources import resource_table_rows
from chaosity.report.configurations import configurations_section
from chaosity.report.experiments import experiment_section
from chaosity.report.facts import (
    Facts,
    component_changes_section,
    host_state_section,
    machine_section,
    methods_section,
)
from chaosity.report.html import FigureSection, figure_section, path_relative_to_report, render_page
from chaosity.report.problems import (
    ProblemsSection,
    failed_points_section,
    numbered_findings,
    problems_section,
)
from chaosity.report.report_summary import ReportSummary, summarise_report, terminal_lines
from chaosity.report.run import Run
from chaosity.result_folders import read_skipped_host, tidy_tables_of_other_configurations
from chaosity.text_templates import texts_of_yaml_file


@dataclass(frozen=True)
class Section:
    """A section of the page: its data, and the name of the template that shows the data."""

    id: str
    title: str
    template: str
    data: Any
    figures: tuple[FigureSection, ...] = ()  # the table of contents lists them below the section


@dataclass(frozen=True)
class ReportPage:
    """The content of a report's page: what the head of the page shows, and all sections."""

    run: Run
    machine_drawing: str  # the machine as SVG, with the findings in it
    problems: ProblemsSection
    sections: tuple[Section, ...]
    version: str = __version__
    folded = ("environment", "methodology")  # sections that a click opens

    @property
    def figures_folder(self) -> str:
        """Return the folder of the figures' files as a relative URL."""
        return path_relative_to_report(self.run.figures_folder, self.run.output)

    def to_html(self) -> str:
        """Return the page as HTML."""
        return render_page("report.html.j2", report=self)


def report_page(run: Run) -> ReportPage:
    """Return the content of the page of a run, after drawing its figures."""
    shown = numbered_findings(run.findings.anomalies)
    host = MeasuredHost(run.folder, run.measurements, run.topology)
    problems = problems_section(run)
    sections = (Section("problems", "Problems and findings", "problems", problems), *_sections(run))
    return ReportPage(run, draw_machine(MachineParts(host, shown)), problems, sections)


def _files(run: Run) -> Facts:
    """Return words for a file -> its path relative to the report, for the existing files."""
    files = {
        name: path
        for name, path in texts_of_yaml_file("report")["files"].items()
        if "..." in path or (run.output.parent / path).exists()
    }
    folder = path_relative_to_report(run.figures_folder, run.output)
    return {**files, "Figures as SVG, PNG and CSV": f"{folder}/"}


# Id on the page, title, template, and function that returns the data, or None to omit the section.
_Row = tuple[str, str, str, Callable[[Run], Any]]
_BEFORE_EXPERIMENTS: tuple[_Row, ...] = (
    (
        *("resources", "What can this machine do?", "resource_table"),
        lambda run: resource_table_rows(run.measurements, run.experiments),
    ),
    (
        *("configurations", "Comparison of configurations", "configuration_comparison"),
        configurations_section,
    ),
    ("changes", "Before and after changes", "component_changes", component_changes_section),
    (
        *("checks", "Checks over time", "checks"),
        lambda run: run.checks_figure and figure_section(run.checks_figure, run.figures_folder),
    ),
)
_AFTER_EXPERIMENTS: tuple[_Row, ...] = (
    ("failed", "Failed points", "failed_points", failed_points_section),
    ("parts", "What is in this machine?", "machine_section", machine_section),
    ("environment", "State of the host, and versions", "host_state", host_state_section),
    ("data", "Data and citation", "result_files", _files),
    (
        *("methodology", "How was it measured, and how are values computed?", "methods"),
        methods_section,
    ),
)


def _sections(run: Run) -> Iterator[Section]:
    """Yield all sections that have something to show, without the first section (problems)."""
    for name, title, template, section in _BEFORE_EXPERIMENTS:
        if (data := section(run)) is not None:
            yield Section(name, title, template, data)
    for document in run.experiments:
        name, shown = document["experiment"], experiment_section(run, document)
        figures = tuple(shown["figures"])
        yield Section(f"experiment-{name}", shown["title"], "experiment", shown, figures)
    for name, title, template, section in _AFTER_EXPERIMENTS:
        if (data := section(run)) is not None:
            yield Section(name, title, template, data)


def write_report(run: Run) -> list[str]:
    """Draw the figures of a run; write its page and, in the same folder, ``summary.json``.

    Return the lines for the terminal, see `terminal_lines`.
    """
    page = report_page(run)
    write_atomically(run.figures_folder / "machine.svg", page.machine_drawing)
    write_atomically(run.output, page.to_html())
    summary = summarise_report(run, page.problems)
    text = json.dumps(asdict(summary), indent=1, ensure_ascii=False) + "\n"
    write_atomically(run.output.with_name("summary.json"), text)
    return terminal_lines(run, summary)


def has_outdated_skip_note(folder: Path) -> bool:
    """Return whether a report says other than ``left_out.json`` on when its host was skipped."""
    reported = None
    with suppress(UserError):
        reported = ReportSummary.from_file(folder / "summary.json").left_out
    skipped = read_skipped_host(folder.parent)
    return bool(reported != (skipped.skip_time_and_reason if skipped else None))


def rewrite_reports_of_host(host: Path, *, stale_only: bool) -> None:
    """Write all reports of a host (``results/<host>``) again.

    With `stale_only`, only reports whose note on a skip of the host is wrong are written.
    """
    for html in sorted(host.glob("*/report.html")):
        folder = html.parent
        outdated = not stale_only or has_outdated_skip_note(folder)
        if not outdated or not (folder / "plan.json").exists():
            continue
        inputs = {
            "table_file": folder / "measurements.parquet",
            "history_file": folder / "history.parquet",
            "findings_file": folder / "findings.json",
            "drawing_file": folder / "topology.svg",
        }
        run = Run(
            folder / "plan.json",
            html,
            other_tables=tuple(
                tidy_tables_of_other_configurations(host.parent, host.name, folder.name)
            ),
            **{name: path for name, path in inputs.items() if path.exists()},
        )
        write_atomically(folder / "summary.txt", "\n".join(write_report(run)) + "\n")
