"""Write a report: the page with all sections in the order of reading, and further files.

For each section, a function in a module of this folder returns data of the run, and a template in
``templates/report`` shows the data. The files of a report are the figures, ``report.html``,
``summary.json`` and ``summary.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_machine
from chaosity.figures.machine_parts import MachineParts
from chaosity.health.check_history import LastingLoss, lasting_losses, read_series
from chaosity.records.record_files import read_regular_file, write_atomically
from chaosity.report.best_places_of_resources import (
    LEVEL_TEXTS,
    measured_place,
    resource_levels,
    resource_table_rows,
)
from chaosity.report.configurations import configuration_comparison_section
from chaosity.report.measured_run import Run
from chaosity.report.problems import (
    OK,
    ProblemsSection,
    failed_points_section,
    numbered_findings,
    problems_section,
)
from chaosity.report.sections import (
    Facts,
    FigureSection,
    component_changes_section,
    experiment_section,
    figure_section,
    host_state_section,
    machine_section,
    methods_section,
    path_relative_to_report,
    render_page,
)
from chaosity.result_folders import read_skipped_host, tidy_tables_of_other_configurations
from chaosity.store.measurements import Measurements
from chaosity.text_templates import texts_of_yaml_file

FINDING = "finding"
_MOST_PROBLEM_LINES = 3
# Levels at which a host has several places: several nodes, several drives.
_LEVELS_WITH_SEVERAL_PLACES = (LEVEL_TEXTS["node"], LEVEL_TEXTS["drive"])


@dataclass(frozen=True)
class ProblemAndSeverity:
    """A problem and its severity: finding, problem, warning, note, unknown, or ok for none."""

    severity: str
    text: str


@dataclass(frozen=True)
class BestValue:
    """The best value of a resource at one level, and its place, as texts."""

    level: str
    value: str
    where: str
    load: str = ""  # benchmark, kernel and levels; "" in summaries of earlier versions


@dataclass(frozen=True)
class ReportSummary:
    """The summary of a host in one configuration, which ``summary.json`` has as JSON."""

    # host, configuration: names of the host and the configuration in the tidy table.
    host: str
    configuration: str
    measured: str  # when the host was measured, as text
    worst: tuple[ProblemAndSeverity, ...]  # the worst problems, beginning with the worst
    points: dict[str, int]  # status (valid, failed, missing) -> number of points
    # Resource -> best values at the level of one node or drive and at the largest level, or at all
    # levels if these two levels are missing.
    resources: dict[str, tuple[BestValue, ...]]
    # What was tested for anomalies and what was not, if usable results have no findings; otherwise
    # "".
    tested: str = ""
    left_out: str | None = None  # when and why the last run skipped the host, or None

    @classmethod
    def from_file(cls, path: Path) -> ReportSummary:
        """Return the summary that a file has.

        Raises:
            UserError: the file is not a summary.
        """
        what = "the file is not a summary of a report"
        remedy = "run snakemake, which writes the file again"
        with malformed_as_user_error(what, str(path), remedy):
            stored = json.loads(read_regular_file(path))
            stored["worst"] = tuple(ProblemAndSeverity(**line) for line in stored["worst"])
            for name, values in stored["resources"].items():
                stored["resources"][name] = tuple(BestValue(**value) for value in values)
            return cls(**stored)


def summarise_report(run: Run, problems: ProblemsSection) -> ReportSummary:
    """Return the summary of a run; `problems` has its findings and checks."""
    return ReportSummary(
        host=run.host,
        configuration=run.configuration_name,
        measured=run.measuring_time_text,
        worst=tuple(_worst_problems(problems)),
        points=_points_by_status(run.measurements.rows),
        resources=_best_values(run.measurements, run.experiments),
        tested=problems.no_problems,
        left_out=run.skip_reason,
    )


def _worst_problems(found: ProblemsSection) -> list[ProblemAndSeverity]:
    """Return the worst findings and problems, at most `_MOST_PROBLEM_LINES`, the worst first."""
    lines = [ProblemAndSeverity(FINDING, finding.title) for finding in found.findings]
    lines += [
        ProblemAndSeverity(each.severity, f"{each.name}: {each.text}") for each in found.problems
    ]
    return lines[:_MOST_PROBLEM_LINES] or [ProblemAndSeverity(OK, found.no_problems)]


def terminal_lines(run: Run, summary: ReportSummary) -> list[str]:
    """Return lines on simulation, on points that a budget left out, on problems, and on tests."""
    notices = (run.measuring_time_text if run.is_simulated else None, run.coverage_text)
    worst = [f"{each.severity}: {each.text}" for each in summary.worst if each.severity != OK]
    return [*filter(None, notices), *worst, *filter(None, [summary.tested])]


def _points_by_status(rows: pd.DataFrame) -> dict[str, int]:
    """Return status -> number of points; a point with any failed replicate counts as failed."""
    counts = {"valid": 0, "failed": 0, "missing": 0}
    for statuses in rows.groupby(["experiment", "point"])["status"].agg(set):
        counts[next(each for each in ("failed", "missing", "valid") if each in statuses)] += 1
    return counts


def _best_values(
    measurements: Measurements, experiments: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[BestValue, ...]]:
    """Return resource -> its best values at the levels that `ReportSummary.resources` has."""
    found: dict[str, dict[str, BestValue]] = {}
    for level in resource_levels([measurements], experiments):
        if len(level.cells[0]):
            best = measured_place(level.cells[0].iloc[0])
            value = BestValue(level.level, best.value, best.where, level.load)
            found.setdefault(level.resource, {})[level.level] = value
    return {resource: tuple(_compared_levels(values)) for resource, values in found.items()}


def _compared_levels(values: Mapping[str, BestValue]) -> Iterable[BestValue]:
    """Return the values at one node or drive and at the largest level, or else all values."""
    repeated = next((name for name in _LEVELS_WITH_SEVERAL_PLACES if name in values), None)
    if repeated is None:
        return values.values()
    return [values[name] for name in dict.fromkeys([repeated, list(values)[-1]])]


@dataclass(frozen=True)
class NightlyChecks:
    """A summary of the nightly checks of a host."""

    # check_count, last_check_time: number of checks, and end of the last check in UTC.
    check_count: int
    last_check_time: str
    # (point, loss as a share) for each point that has a clear loss in the last check.
    clear_losses: tuple[tuple[str, float], ...] = ()
    lasting_losses: tuple[LastingLoss, ...] = ()  # losses that last until now, the largest first
    error: str | None = None  # why the checks cannot be read, or None

    @property
    def needs_attention(self) -> bool:
        """Return whether the checks found a loss, or cannot be read."""
        return bool(self.clear_losses or self.lasting_losses or self.error)


def nightly_checks_of_folder(folder: Path) -> NightlyChecks | None:
    """Return a summary of the nightly checks in ``results/HOST/CONFIGURATION``, or None."""
    try:
        rows = read_series(folder)
        steps = tuple(lasting_losses(rows))
    except UserError as error:
        return NightlyChecks(0, "", error=str(error))
    if not rows:
        return None
    last = rows[-1]["time"]
    clear = [
        (row["point"], float(row["loss"]))
        for row in rows
        if row["time"] == last and row["clear"] == "yes"
    ]
    clear.sort(key=lambda one: -one[1])
    number = len({row["time"] for row in rows})
    return NightlyChecks(number, last, tuple(clear), steps)


@dataclass(frozen=True)
class Section:
    """A section of the page: its data, and the name of the template that shows the data."""

    id: str
    title: str
    template: str
    data: Any
    figures: tuple[FigureSection, ...] = ()  # figures that the table of contents lists


@dataclass(frozen=True)
class ReportPage:
    """The content of a report's page: the values for the head of the page, and all sections."""

    run: Run
    machine_drawing: str  # the drawing of the machine as SVG, with its findings
    problems: ProblemsSection
    sections: tuple[Section, ...]
    version: str = __version__
    folded = ("environment", "methodology")  # sections that are closed until a click

    @property
    def figures_folder(self) -> str:
        """Return the folder of the figures' files as a relative URL."""
        return path_relative_to_report(self.run.figures_folder, self.run.output)

    def to_html(self) -> str:
        """Return the page as HTML."""
        return render_page("report.html.j2", report=self)


def report_page(run: Run) -> ReportPage:
    """Draw the figures of a run, and return the content of its page."""
    shown = numbered_findings(run.findings.anomalies)
    host = MeasuredHost(run.folder, run.measurements, run.topology)
    problems = problems_section(run)
    sections = (
        Section("problems", "Problems and findings", "problems", problems),
        *_make_sections(run),
    )
    return ReportPage(run, draw_machine(MachineParts(host, shown)), problems, sections)


def _links_to_files(run: Run) -> Facts:
    """Return description of a file -> path relative to the report, for existing files."""
    files = {
        name: path
        for name, path in texts_of_yaml_file("report")["files"].items()
        if "..." in path or (run.output.parent / path).exists()
    }
    folder = path_relative_to_report(run.figures_folder, run.output)
    return {**files, "Figures as SVG, PNG and CSV": f"{folder}/"}


# Id, title and template of a section, and the function that returns the section's data. If the
# function returns None, the section is omitted.
_SectionEntry = tuple[str, str, str, Callable[[Run], Any]]
_SECTIONS_BEFORE_EXPERIMENTS: tuple[_SectionEntry, ...] = (
    (
        *("resources", "What can this machine do?", "resource_table"),
        lambda run: resource_table_rows(run.measurements, run.experiments),
    ),
    (
        *("configurations", "Comparison of configurations", "configuration_comparison"),
        configuration_comparison_section,
    ),
    ("changes", "Before and after changes", "component_changes", component_changes_section),
    (
        *("checks", "Checks over time", "checks"),
        lambda run: run.checks_figure and figure_section(run.checks_figure, run.figures_folder),
    ),
)
_SECTIONS_AFTER_EXPERIMENTS: tuple[_SectionEntry, ...] = (
    ("failed", "Failed points", "failed_points", failed_points_section),
    ("parts", "What is in this machine?", "machine_section", machine_section),
    ("environment", "State of the host, and versions", "host_state", host_state_section),
    ("data", "Data and citation", "result_files", _links_to_files),
    (
        *("methodology", "How were values measured and computed?", "methods"),
        methods_section,
    ),
)


def _make_sections(run: Run) -> Iterator[Section]:
    """Yield all sections that have data, without the first section (problems)."""
    for name, title, template, section in _SECTIONS_BEFORE_EXPERIMENTS:
        if (data := section(run)) is not None:
            yield Section(name, title, template, data)
    for document in run.experiments:
        name, shown = document["experiment"], experiment_section(run, document)
        figures = tuple(shown["figures"])
        yield Section(f"experiment-{name}", shown["title"], "experiment", shown, figures)
    for name, title, template, section in _SECTIONS_AFTER_EXPERIMENTS:
        if (data := section(run)) is not None:
            yield Section(name, title, template, data)


def write_report(run: Run) -> list[str]:
    """Write page, figures and ``summary.json`` of a run; return the lines of `terminal_lines`."""
    page = report_page(run)
    write_atomically(run.figures_folder / "machine.svg", page.machine_drawing)
    write_atomically(run.output, page.to_html())
    summary = summarise_report(run, page.problems)
    text = json.dumps(asdict(summary), indent=1, ensure_ascii=False) + "\n"
    write_atomically(run.output.with_name("summary.json"), text)
    return terminal_lines(run, summary)


def has_outdated_skip_note(folder: Path) -> bool:
    """Return whether a report and ``left_out.json`` contradict each other on a skip of the host."""
    reported = None
    with suppress(UserError):
        reported = ReportSummary.from_file(folder / "summary.json").left_out
    skipped = read_skipped_host(folder.parent)
    return bool(reported != (skipped.skip_time_and_reason if skipped else None))


def rewrite_reports_of_host(host: Path, *, stale_only: bool) -> None:
    """Write all reports in ``results/<host>`` again.

    With `stale_only`, only those reports are written whose note on a skip of the host is wrong.
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
