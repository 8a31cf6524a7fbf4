"""Summarise a report for the terminal and for the overview of all hosts (``summary.json``)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chaosity.compare.matched_cells import OTHER_NODES
from chaosity.errors import malformed_as_user_error
from chaosity.records.atomic_writes_and_record_files import read_regular_file
from chaosity.report.build_report_data import ReportData
from chaosity.report.findings_and_checks import OK
from chaosity.report.resource_table import (
    cells_best_first,
    measured_place,
    resources_at_machine_levels,
)
from chaosity.store.measurements import Measurements

FINDING = "finding"
NO_PROBLEMS = "no problems found"
_MOST_LINES = 3


@dataclass(frozen=True)
class ProblemAndSeverity:
    """A problem and its severity: finding, problem, warning, note, unknown; ok if there is none."""

    severity: str
    text: str


@dataclass(frozen=True)
class BestValue:
    """The best place of a resource at one level, as text."""

    level: str
    value: str
    where: str


@dataclass(frozen=True)
class ReportSummary:
    """The summary of a host in one configuration; its JSON is the content of ``summary.json``."""

    # host, configuration: names as in the tidy table.
    host: str
    configuration: str
    measured: str  # time of the measurement, as text
    worst: tuple[ProblemAndSeverity, ...]  # the worst problems, the worst first
    points: dict[str, int]  # number of points by status: valid, failed, missing
    # Resource -> its best places: of one node or drive, and of the largest level.
    resources: dict[str, tuple[BestValue, ...]]
    left_out: str | None = None  # when and why the last run skipped the host, or None

    @classmethod
    def from_file(cls, path: Path) -> ReportSummary:
        """Return the summary in a file.

        Raises:
            UserError: the file is not a summary.
        """
        what = "the file is not a summary of a report"
        remedy = "run snakemake, which writes it again"
        with malformed_as_user_error(what, str(path), remedy):
            stored = json.loads(read_regular_file(path))
            stored["worst"] = tuple(ProblemAndSeverity(**line) for line in stored["worst"])
            for name, values in stored["resources"].items():
                stored["resources"][name] = tuple(BestValue(**value) for value in values)
            return cls(**stored)


def summarise_report(report: ReportData, measurements: Measurements) -> ReportSummary:
    """Return the summary of a report; `measurements` are those from which the report was made."""
    return ReportSummary(
        host=report.host,
        configuration=report.configuration,
        measured=report.measured,
        worst=tuple(_worst_problems(report)),
        points=_points_by_status(measurements.rows),
        resources=_best_values(measurements),
        left_out=report.skipped,
    )


def _worst_problems(report: ReportData) -> list[ProblemAndSeverity]:
    """Return the worst three findings and problems of a report."""
    lines = [ProblemAndSeverity(FINDING, finding.title) for finding in report.findings]
    lines += [
        ProblemAndSeverity(each.severity, f"{each.name}: {each.text}") for each in report.problems
    ]
    return lines[:_MOST_LINES] or [ProblemAndSeverity(OK, NO_PROBLEMS)]


def terminal_lines(report: ReportData, summary: ReportSummary) -> list[str]:
    """Return what is simulated, what a budget left out, and the worst problems, a line each."""
    notices = (report.measured if report.simulated else None, report.coverage)
    worst = (
        each.text if each.severity == OK else f"{each.severity}: {each.text}"
        for each in summary.worst
    )
    return [*filter(None, notices), *worst]


def _points_by_status(rows: pd.DataFrame) -> dict[str, int]:
    """Return status -> number of points; a point with one failed replicate counts as failed."""
    counts = {"valid": 0, "failed": 0, "missing": 0}
    for statuses in rows.groupby(["experiment", "point"])["status"].agg(set):
        counts[next(each for each in ("failed", "missing", "valid") if each in statuses)] += 1
    return counts


def _best_values(measurements: Measurements) -> dict[str, tuple[BestValue, ...]]:
    """Return the best places of each resource at one node or drive, and at the largest level.

    If the resource is a time, the second place is the best place to another node's memory.
    """
    by_resource: dict[str, dict[str, BestValue]] = {}
    for level in resources_at_machine_levels(measurements):
        cells = cells_best_first(level.measurements)
        if not cells.empty:
            best = measured_place(cells.iloc[0])
            value = BestValue(level.level_text, best.value, best.where)
            key = level.key if level.part != OTHER_NODES else f"{level.key} {OTHER_NODES}"
            by_resource.setdefault(level.resource, {})[key] = value
    shown = {}
    for resource, values in by_resource.items():
        repeated = next((key for key in ("node", "drive") if key in values), next(iter(values)))
        keys = dict.fromkeys([repeated, list(values)[-1]])
        shown[resource] = tuple(values[key] for key in keys)
    return shown
