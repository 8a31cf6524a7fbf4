"""What a report says in short: for the terminal, and for the overview of all hosts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from chaosity.report.report_data import ReportData
from chaosity.report.resource_table import OTHER, measured_place, rank_cells, resource_levels
from chaosity.report.result_checks import OK
from chaosity.statistics import plain

FINDING = "finding"
_MOST_LINES = 3


@dataclass(frozen=True)
class SummaryLine:
    """Something that is wrong: finding, problem, warning, note or unknown; ok for nothing."""

    severity: str
    text: str


@dataclass(frozen=True)
class BestValue:
    """A resource's best place at one level, in words."""

    level: str
    value: str
    where: str


@dataclass(frozen=True)
class Summary:
    """A host in one configuration, in short.

    Attributes:
        host, configuration: as in the tidy table.
        measured: when.
        worst: the worst that was found, the worst first.
        points: number of points by status: valid, failed, missing.
        resources: of each resource the best place of one node or drive, and of the largest level.
        left_out: what the report says of the last run's having left the host out, or None.
    """

    host: str
    configuration: str
    measured: str
    worst: tuple[SummaryLine, ...]
    points: dict[str, int]
    resources: dict[str, tuple[BestValue, ...]]
    left_out: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def summarise_report(context: ReportData, tidy: pd.DataFrame) -> Summary:
    """The summary of a report."""
    return Summary(
        host=context.host,
        configuration=context.configuration,
        measured=context.measured,
        worst=tuple(worst(context)),
        points=_points(plain(tidy)),
        resources=_resources(plain(tidy)),
        left_out=context.skipped,
    )


def worst(context: ReportData) -> list[SummaryLine]:
    """The three worst things that the report says."""
    lines = [SummaryLine(FINDING, one.title) for one in context.findings]
    lines += [SummaryLine(one.severity, f"{one.name}: {one.text}") for one in context.problems]
    return lines[:_MOST_LINES] or [SummaryLine(OK, "nothing is wrong as far as was looked")]


def terminal_line(line: SummaryLine) -> str:
    """A line as the terminal shows it."""
    return line.text if line.severity == OK else f"{line.severity}: {line.text}"


def _points(tidy: pd.DataFrame) -> dict[str, int]:
    """Points by their worst status: one failed replicate makes a point failed."""
    statuses = tidy.groupby(["experiment", "point"])["status"].agg(set)
    found = {"valid": 0, "failed": 0, "missing": 0}
    for held in statuses:
        found[next(one for one in ("failed", "missing", "valid") if one in held)] += 1
    return found


def _resources(tidy: pd.DataFrame) -> dict[str, tuple[BestValue, ...]]:
    """Two levels of each resource: the part that repeats, and the largest that was measured.

    Of times the latter is the best place for memory of another node, where that was measured.
    """
    by_resource: dict[str, dict[str, BestValue]] = {}
    for level in resource_levels(tidy):
        cells = rank_cells(level.rows)
        if not cells.empty:
            best = measured_place(cells.iloc[0])
            words = f"{level.words}, {level.part}" if level.part else level.words
            figure = BestValue(words, best.value, best.where)
            key = level.key if level.part != OTHER else f"{level.key} {OTHER}"
            by_resource.setdefault(level.resource, {})[key] = figure
    found = {}
    for resource, figures in by_resource.items():
        part = next((key for key in ("node", "drive") if key in figures), next(iter(figures)))
        shown = dict.fromkeys([part, list(figures)[-1]])
        found[resource] = tuple(figures[key] for key in shown)
    return found
