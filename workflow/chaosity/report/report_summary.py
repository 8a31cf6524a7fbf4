"""Summarise a report, and a host's nightly checks, for the terminal and the page of all hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.errors import UserError, malformed_as_user_error
from chaosity.health.check_history import LastingLoss, lasting_losses
from chaosity.health.check_series import read_series
from chaosity.records.record_files import read_regular_file
from chaosity.report.best_places_of_resources import LEVELS, measured_place, resource_levels
from chaosity.report.problems import OK, ProblemsSection
from chaosity.report.run import Run
from chaosity.store.measurements import Measurements

FINDING = "finding"
_MOST_LINES = 3
# Levels of which a host has several places, such as one node.
_REPEATED = (LEVELS["node"], LEVELS["drive"])


@dataclass(frozen=True)
class ProblemAndSeverity:
    """A problem and its severity: finding, problem, warning, note, unknown or (no problem) ok."""

    severity: str
    text: str


@dataclass(frozen=True)
class BestValue:
    """The best value of a resource at one level, with its place, as text."""

    level: str
    value: str
    where: str
    load: str = ""  # benchmark, kernel and levels; "" in summaries of earlier versions


@dataclass(frozen=True)
class ReportSummary:
    """The summary of a host in one configuration; its JSON is the content of ``summary.json``."""

    # host, configuration: names as in the tidy table.
    host: str
    configuration: str
    measured: str  # when the host was measured, as text
    worst: tuple[ProblemAndSeverity, ...]  # the worst problems, the worst first
    points: dict[str, int]  # number of points by status: valid, failed, missing
    # Resource -> its best values at one node or drive and at the largest level, or else at all
    # levels.
    resources: dict[str, tuple[BestValue, ...]]
    # What was tested and what was not, if usable results have no findings; otherwise "".
    tested: str = ""
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


def summarise_report(run: Run, problems: ProblemsSection) -> ReportSummary:
    """Return the summary of a run; `problems` has the findings and checks of the run."""
    return ReportSummary(
        host=run.host,
        configuration=run.configuration_name,
        measured=run.measuring_time_text,
        worst=tuple(_worst_problems(problems)),
        points=_points_by_status(run.measurements.rows),
        resources=_best_values(run.measurements, run.experiments),
        tested=problems.no_problems,
        left_out=run.skip_text,
    )


def _worst_problems(found: ProblemsSection) -> list[ProblemAndSeverity]:
    """Return at most `_MOST_LINES` findings and problems, the worst first."""
    lines = [ProblemAndSeverity(FINDING, finding.title) for finding in found.findings]
    lines += [
        ProblemAndSeverity(each.severity, f"{each.name}: {each.text}") for each in found.problems
    ]
    return lines[:_MOST_LINES] or [ProblemAndSeverity(OK, found.no_problems)]


def terminal_lines(run: Run, summary: ReportSummary) -> list[str]:
    """Return lines: simulated or not, what a budget left out, problems, and what was tested."""
    notices = (run.measuring_time_text if run.is_simulated else None, run.coverage_text)
    worst = [f"{each.severity}: {each.text}" for each in summary.worst if each.severity != OK]
    return [*filter(None, notices), *worst, *filter(None, [summary.tested])]


def _points_by_status(rows: pd.DataFrame) -> dict[str, int]:
    """Return status -> number of points; a point with one failed replicate counts as failed."""
    counts = {"valid": 0, "failed": 0, "missing": 0}
    for statuses in rows.groupby(["experiment", "point"])["status"].agg(set):
        counts[next(each for each in ("failed", "missing", "valid") if each in statuses)] += 1
    return counts


def _best_values(
    measurements: Measurements, experiments: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[BestValue, ...]]:
    """Return resource -> its best values, at the levels that `ReportSummary.resources` needs."""
    found: dict[str, dict[str, BestValue]] = {}
    for level in resource_levels([measurements], experiments):
        if len(level.cells[0]):
            best = measured_place(level.cells[0].iloc[0])
            value = BestValue(level.level, best.value, best.where, level.load)
            found.setdefault(level.resource, {})[level.level] = value
    return {resource: tuple(_compared_levels(values)) for resource, values in found.items()}


def _compared_levels(values: Mapping[str, BestValue]) -> Iterable[BestValue]:
    """Return the values at one node or drive and at the largest level, or else at all levels."""
    repeated = next((name for name in _REPEATED if name in values), None)
    if repeated is None:
        return values.values()
    return [values[name] for name in dict.fromkeys([repeated, list(values)[-1]])]


@dataclass(frozen=True)
class NightlyChecks:
    """A summary of the nightly checks of a host."""

    # check_count, last_check_time: number of checks, and time of the last check in UTC.
    check_count: int
    last_check_time: str
    # (Point, loss as a share) for each point with a clear loss in the last check.
    clear_losses: tuple[tuple[str, float], ...] = ()
    lasting_losses: tuple[LastingLoss, ...] = ()  # losses that last since a date, the largest first
    error: str | None = None  # why the series cannot be read, or None

    @property
    def needs_attention(self) -> bool:
        """Return whether the checks found a loss, or cannot be read."""
        return bool(self.clear_losses or self.lasting_losses or self.error)


def nightly_checks_of_folder(folder: Path) -> NightlyChecks | None:
    """Return a summary of the checks in ``results/HOST/CONFIGURATION``; None without checks."""
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
