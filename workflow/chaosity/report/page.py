"""Put the sections of a report on its page, in the order in which they are read.

Each section is a function of the run in a module of this folder, and a template in
``templates/report`` that shows what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from chaosity import __version__
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_machine
from chaosity.report.component_change_effects import component_changes_section
from chaosity.report.configuration_comparison import configurations_section
from chaosity.report.experiment_section import (
    FigureSection,
    experiment_section,
    figure_section,
    path_relative_to_report,
)
from chaosity.report.failed_points import failed_points_section
from chaosity.report.findings import ProblemsSection, numbered_findings, problems_section
from chaosity.report.html_pages_and_inline_svg import render_page
from chaosity.report.machine import Facts, host_state_section, machine_section
from chaosity.report.methods import methods_section
from chaosity.report.resource_table import ResourceRow, resource_table
from chaosity.report.run import Run
from chaosity.text_templates import fixed_texts


@dataclass(frozen=True)
class Section:
    """A section of the page, with a template for its data."""

    id: str
    title: str
    template: str
    data: Any
    figures: tuple[FigureSection, ...] = ()  # listed below the section in the contents


@dataclass(frozen=True)
class ReportPage:
    """The whole page: what its head shows, and its sections."""

    run: Run
    machine_drawing: str  # the machine as SVG, with the findings in it
    problems: ProblemsSection
    sections: tuple[Section, ...]
    version: str = __version__
    folded = ("environment", "methodology")  # sections that open with a click

    @property
    def figures_folder(self) -> str:
        """Return the folder of the figures' files as a relative URL."""
        return path_relative_to_report(self.run.figures_folder, self.run.output)

    def html(self) -> str:
        """Return the page as HTML."""
        return render_page("report.html.j2", report=self)


def report_page(run: Run) -> ReportPage:
    """Return the page of a run; its figures are drawn."""
    shown = numbered_findings(run.found.anomalies)
    host = MeasuredHost(run.folder, run.measurements, run.topology)
    problems = problems_section(run)
    sections = (Section("problems", "Problems and findings", "problems", problems), *_sections(run))
    return ReportPage(run, draw_machine(host, shown), problems, sections)


def _files(run: Run) -> Facts:
    """Return the files in the folder of the report, with paths relative to it."""
    files = {
        name: path
        for name, path in fixed_texts("report")["files"].items()
        if "..." in path or (run.output.parent / path).exists()
    }
    folder = path_relative_to_report(run.figures_folder, run.output)
    return {**files, "Figures as SVG, PNG and CSV": f"{folder}/"}


def _checks(run: Run) -> FigureSection | None:
    return figure_section(run.checks, run.figures_folder) if run.checks else None


def _resources(run: Run) -> list[ResourceRow]:
    return resource_table(run.measurements, run.experiments)


# Id on the page, title, template, and the function that returns the data; None leaves it out.
_Row = tuple[str, str, str, Callable[[Run], Any]]
_BEFORE_EXPERIMENTS: tuple[_Row, ...] = (
    ("resources", "What can this machine do?", "resource_table", _resources),
    (
        "configurations",
        "Comparison of configurations",
        "configuration_comparison",
        configurations_section,
    ),
    ("changes", "Before and after changes", "component_change_effects", component_changes_section),
    ("checks", "Checks over time", "checks", _checks),
)
_AFTER_EXPERIMENTS: tuple[_Row, ...] = (
    ("failed", "Failed points", "failed_points", failed_points_section),
    ("parts", "What is in this machine?", "machine", machine_section),
    ("environment", "State of the host, and versions", "host_state", host_state_section),
    ("data", "Data and citation", "data", _files),
    (
        "methodology",
        "How was it measured, and how are values computed?",
        "methods",
        methods_section,
    ),
)


def _sections(run: Run) -> Iterator[Section]:
    """Yield all sections but the first that have something to show."""
    for name, title, template, section in _BEFORE_EXPERIMENTS:
        if (data := section(run)) is not None:
            yield Section(name, title, template, data)
    for document in run.experiments:
        name, shown = document["experiment"], experiment_section(run, document)
        yield Section(f"experiment-{name}", shown.title, "experiment", shown, shown.figures)
    for name, title, template, section in _AFTER_EXPERIMENTS:
        if (data := section(run)) is not None:
            yield Section(name, title, template, data)
