"""Write the page of all hosts and configurations, the worst first."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_small_machine
from chaosity.figures.machine_parts import MachineParts
from chaosity.records.record_files import write_atomically
from chaosity.report.equal_hosts import EqualHostGroup, compare_equal_hosts
from chaosity.report.html import path_relative_to_report, render_page
from chaosity.report.problems import OK, PROBLEM, SEVERITIES, WARNING, read_anomalies
from chaosity.report.report_summary import (
    FINDING,
    BestValue,
    NightlyChecks,
    ProblemAndSeverity,
    ReportSummary,
    nightly_checks_of_folder,
)
from chaosity.result_folders import MEASUREMENTS_FILE, SkippedHost, read_skipped_host, skipped_hosts
from chaosity.store.measurements import Measurements
from chaosity.text_templates import text_of_macro
from chaosity.topology.topology_model import read_topology

_SEVERITIES = (FINDING, *SEVERITIES)
# A page with more rows than this has drawings of the worst hosts only, and at most this many.
_MOST_DRAWN = 24


@dataclass(frozen=True)
class OverviewRow:
    """A row of the page of all hosts: a host in one configuration."""

    # Summary of the host's report; for a host that was never measured, a summary without values.
    summary: ReportSummary
    link: str | None  # link to the report; None without a report
    # Time and reason if the last run skipped the host, otherwise None.
    skipped: SkippedHost | None
    is_outlier: bool = False  # whether the host differs from equal hosts
    checks: NightlyChecks | None = None  # its nightly checks; None without any
    folder: Path | None = None  # folder of the report; None without one
    slow_parts: frozenset[str] = frozenset()  # names of parts that are slower than in equal hosts
    drawing: str = ""  # the machine as a small SVG element; "" if it is not drawn

    @property
    def worst_problem(self) -> ProblemAndSeverity:
        """Return the worst problem in the report."""
        return self.summary.worst[0]

    @property
    def severity(self) -> str:
        """Return the worst severity: in the report, of the checks, or among equal hosts."""
        found = [self.worst_problem.severity]
        found += [PROBLEM] if self.is_outlier else []
        found += [WARNING] if self.checks and self.checks.needs_attention else []
        return min(found, key=_SEVERITIES.index)

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Return the key that sorts rows: skipped hosts, then outlier hosts, then by severity."""
        return self.skipped is None, not self.is_outlier, _SEVERITIES.index(self.severity)

    def best_value(self, resource: str, level: str) -> BestValue | None:
        """Return the best value of a resource at a level; None if it was not measured."""
        values = self.summary.resources.get(resource, ())
        return next((value for value in values if value.level == level), None)


@dataclass(frozen=True)
class ResourceColumn:
    """A column of the overview: one resource at one level of the machine, such as one node."""

    number: int  # number of the resource on the page, from 0
    resource: str
    level: str
    load: str  # benchmark, kernel and levels of the load; several loads if rows differ
    unit: str  # the unit of all values; "" if units differ, so that each value shows its unit


@dataclass(frozen=True)
class Overview:
    """The content of the page of all hosts: its rows, and the groups of equal hosts.

    `worst_problem_sentence` is the worst problem of all hosts.
    """

    rows: tuple[OverviewRow, ...]
    groups: tuple[EqualHostGroup, ...]
    worst_problem_sentence: str
    version: str = __version__
    most_drawn: int = _MOST_DRAWN

    @cached_property
    def columns(self) -> tuple[ResourceColumn, ...]:
        """Return a column for each resource and level; the levels of a resource are together."""
        found: dict[str, dict[str, list[BestValue]]] = {}
        for row in self.rows:
            for resource, own in row.summary.resources.items():
                for value in own:
                    found.setdefault(resource, {}).setdefault(value.level, []).append(value)
        columns = []
        for number, (resource, levels) in enumerate(found.items()):
            for level, values in levels.items():
                loads = dict.fromkeys(value.load for value in values)
                units = {value.value.partition(" ")[2] for value in values}
                unit = units.pop() if len(units) == 1 else ""
                columns.append(ResourceColumn(number, resource, level, "; ".join(loads), unit))
        return tuple(columns)

    @property
    def has_checks(self) -> bool:
        """Return whether any host has nightly checks."""
        return any(row.checks for row in self.rows)

    @property
    def drawings(self) -> dict[tuple[str, str], str]:
        """Return (host, configuration) -> its drawing, which is empty if it is not drawn."""
        return {(row.summary.host, row.summary.configuration): row.drawing for row in self.rows}

    @property
    def report_links(self) -> dict[tuple[str, str], str | None]:
        """Return (host, configuration) -> link to its report, None without a report."""
        return {(row.summary.host, row.summary.configuration): row.link for row in self.rows}


def write_overview(summaries: Iterable[Path], output: Path) -> Overview:
    """Write the page of all hosts into an HTML file in the folder of all hosts.

    `summaries` are the paths of the `summary.json` of each report; a skipped host needs none. A
    damaged summary is named on standard error and left out.
    """
    read: dict[Path, ReportSummary] = {}
    for path in sorted(set(summaries)):
        try:
            read[path] = ReportSummary.from_file(path)
        except UserError as error:
            print(f"chaosity: {error} The page leaves it out.", file=sys.stderr)
    checks = {path.parent: nightly_checks_of_folder(path.parent) for path in read}
    groups = compare_equal_hosts(read, checks)
    rows = [_row(path, each, groups, output, checks[path.parent]) for path, each in read.items()]
    rows += _never_measured({summary.host for summary in read.values()}, output.parent)
    overview = Overview(tuple(_with_drawings(_worst_first(rows))), tuple(groups), _sentence(rows))
    write_atomically(output, render_page("overview.html.j2", overview=overview))
    return overview


def _row(
    path: Path,
    summary: ReportSummary,
    groups: Sequence[EqualHostGroup],
    output: Path,
    checks: NightlyChecks | None,
) -> OverviewRow:
    """Return the row of the page of all hosts for one report."""
    html = path.with_name("report.html")
    link = path_relative_to_report(html, output) if html.exists() else None
    equal = [group for group in groups if summary.host in group.outlier_hosts]
    equal = [group for group in equal if group.configuration == summary.configuration]
    slow = frozenset(part for group in equal for part in group.slow_parts(summary.host))
    skipped = read_skipped_host(path.parent.parent)
    return OverviewRow(summary, link, skipped, bool(equal), checks, path.parent, slow)


def _never_measured(measured: Collection[str], results: Path) -> Iterator[OverviewRow]:
    """Yield a row for each skipped host that was never measured."""
    for skipped in skipped_hosts(results):
        if skipped.host not in measured:
            nothing = (ProblemAndSeverity(PROBLEM, ""),)
            summary = ReportSummary(skipped.host, "", "never measured", nothing, {}, {})
            yield OverviewRow(summary, None, skipped)


def _worst_first(rows: Sequence[OverviewRow]) -> list[OverviewRow]:
    """Return the rows sorted by the worst rank of their host, then by host and configuration."""
    ranks: dict[str, tuple[bool, bool, int]] = {}
    for row in rows:
        ranks[row.summary.host] = min(row.rank, ranks.get(row.summary.host, row.rank))
    return sorted(
        rows, key=lambda row: (ranks[row.summary.host], row.summary.host, row.summary.configuration)
    )


def _with_drawings(rows: Sequence[OverviewRow]) -> Iterator[OverviewRow]:
    """Yield the rows; with few rows, all have drawings, otherwise only the worst ones."""
    worst = _SEVERITIES.index(PROBLEM)
    for number, row in enumerate(rows):
        is_bad = _SEVERITIES.index(row.severity) <= worst
        if number < _MOST_DRAWN and (is_bad or len(rows) <= _MOST_DRAWN):
            yield replace(row, drawing=_drawing(row))
        else:
            yield row


def _drawing(row: OverviewRow) -> str:
    """Return the drawing of a row's machine; empty if the files for it cannot be read."""
    if row.folder is None or not (row.folder / MEASUREMENTS_FILE).exists():
        return ""
    with suppress(UserError):
        topology = read_topology(row.folder / "topology.json")
        table = Measurements.read(row.folder / MEASUREMENTS_FILE)
        anomalies = read_anomalies(row.folder)
        if topology is not None and topology.nodes:
            host = MeasuredHost(row.folder, table, topology)
            return draw_small_machine(MachineParts(host, anomalies), row.slow_parts)
    return ""


def _sentence(rows: Iterable[OverviewRow]) -> str:
    """Return a sentence on the worst problem of all hosts; a skipped host is the worst."""
    wrong = sorted(
        (row for row in rows if row.skipped or row.severity != OK),
        key=lambda row: (row.summary.host, row.summary.configuration),
    )
    worst = min(
        wrong, key=lambda row: (row.skipped is None, _SEVERITIES.index(row.severity)), default=None
    )
    return text_of_macro("overview", "worst", row=worst)
