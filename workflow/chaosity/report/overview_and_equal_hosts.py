"""Write the overview: all hosts and configurations on one page, and a comparison of equal hosts.

Equal hosts have one processor model and are in one configuration. From three hosts on, outlier
hosts are named. Two hosts are compared, but the comparison cannot show which of them has a fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity import __version__
from chaosity.compare.comparison_text import BETTER, WORSE
from chaosity.compare.outlier_host_search import find_outlier_hosts
from chaosity.compare.selection_comparison import compare_selections
from chaosity.components.component_files import facts_of_system_component, read_component_documents
from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import write_atomically
from chaosity.report.experiment_section import path_relative_to_report
from chaosity.report.findings_and_checks import OK, PROBLEM, SEVERITIES
from chaosity.report.html_pages_and_inline_svg import render_page
from chaosity.report.report_summary import FINDING, ProblemAndSeverity, ReportSummary
from chaosity.result_folders import MEASUREMENTS_FILE, skipped_hosts
from chaosity.store.measurements import Measurements
from chaosity.text_templates import write_text
from chaosity.topology.topology_json import read_topology
from chaosity.transport.skipped_hosts import SkippedHost, read_skipped_host
from chaosity.units import format_count

# Columns that a comparison requires. Tables of earlier versions can lack other columns.
_REQUIRED = ["host", "configuration", "experiment", "point", "replicate", "metric"]


@dataclass(frozen=True)
class HostStatement:
    """A sentence, and the outlier host that it names, or None."""

    text: str
    host: str | None = None


@dataclass(frozen=True)
class EqualHostGroup:
    """Hosts that should be equal.

    Attributes:
        configuration, processor: the same for all these hosts; processor is None if unknown.
        hosts: number of hosts, including hosts that could not be compared.
        statements: statements on the hosts; those on outlier hosts come first.
    """

    configuration: str
    processor: str | None
    hosts: int
    statements: tuple[HostStatement, ...]

    @property
    def outlier_hosts(self) -> frozenset[str]:
        """Return the outlier hosts."""
        return frozenset(statement.host for statement in self.statements if statement.host)


def compare_equal_hosts(summaries: Mapping[Path, ReportSummary]) -> list[EqualHostGroup]:
    """Return the comparison of the hosts of each configuration and processor model.

    `summaries` maps the path of each file to its summary. A host without a readable table beside
    its summary is named and not compared.
    """
    groups: dict[tuple[str, str], dict[str, Path]] = defaultdict(dict)
    for path, summary in summaries.items():
        key = (summary.configuration, processor_model(path.parent) or "")
        groups[key][summary.host] = path.parent
    return [
        _compare_group(configuration, model or None, folders)
        for (configuration, model), folders in sorted(groups.items())
        if len(folders) > 1
    ]


def processor_model(folder: Path) -> str | None:
    """Return the processor model in the system component, or else in the topology."""
    model = facts_of_system_component(read_component_documents(folder / "components")).get(
        "cpu_model"
    )
    if model:
        return str(model)
    try:
        topology = read_topology(folder / "topology.json")
    except UserError:
        return None
    return topology.cpu_model if topology else None


def _compare_group(
    configuration: str, processor: str | None, folders: Mapping[str, Path]
) -> EqualHostGroup:
    read = {host: _read_table(folder) for host, folder in folders.items()}
    tables = {host: table for host, table in read.items() if isinstance(table, Measurements)}
    skipped = [
        HostStatement(f"{host} was not compared: {reason}.")
        for host, reason in read.items()
        if isinstance(reason, str)
    ]
    return EqualHostGroup(configuration, processor, len(folders), (*_statements(tables), *skipped))


def _read_table(folder: Path) -> Measurements | str:
    """Return the tidy table of a folder, or why it cannot be compared."""
    path = folder / MEASUREMENTS_FILE
    if not path.exists():
        return f"it has no {MEASUREMENTS_FILE}"
    try:
        measurements = Measurements.read(path)
        required = measurements.rows.loc[measurements.rows["status"] == "valid", _REQUIRED]
        if required.isna().any(axis=None):
            raise ValueError("a required column has no value")
    except (UserError, ValueError, TypeError):  # not a Parquet file, or with other types
        return f"its {MEASUREMENTS_FILE} is not a tidy table"
    return f"its {MEASUREMENTS_FILE} has no value" if required.empty else measurements


def _statements(tables: Mapping[str, Measurements]) -> Iterator[HostStatement]:
    try:
        if len(tables) > 2:
            found = find_outlier_hosts(tables)
            # The first sentences are about the outlier hosts, in the order of the hosts.
            outliers = [host.host for host in found.hosts if host.differs]
            others = [None] * (len(found.sentences) - len(outliers))
            yield from map(HostStatement, found.sentences, [*outliers, *others])
        elif len(tables) == 2:
            first, second = tables
            pair = compare_selections(tables[first], tables[second], names=(first, second))
            yield HostStatement(pair.sentences[0])
            if {BETTER, WORSE} & set(pair.cells["verdict"]):
                yield HostStatement(
                    "Two hosts do not show which host has the fault: measure a third host of "
                    "this model."
                )
    except UserError as error:
        yield HostStatement(f"{format_count(len(tables), 'host')} could not be compared: {error}")


_SEVERITIES = (FINDING, *SEVERITIES)


@dataclass(frozen=True)
class OverviewRow:
    """A host in one configuration.

    Attributes:
        summary: summary of its report; a host that was never measured has a summary without values.
        link: link to the report; None without a report.
        skipped: the host if the last run skipped it, with time and reason, or None.
        outlier: whether the host differs from equal hosts.
    """

    summary: ReportSummary
    link: str | None
    skipped: SkippedHost | None
    outlier: bool = False

    @property
    def worst_problem(self) -> ProblemAndSeverity:
        """Return the worst problem in the report."""
        return self.summary.worst[0]

    @property
    def severity(self) -> str:
        """Return the severity of the worst problem in the report or among equal hosts."""
        own = self.worst_problem.severity
        return min(own, PROBLEM, key=_SEVERITIES.index) if self.outlier else own


@dataclass(frozen=True)
class Overview:
    """The content of the overview page: hosts and configurations, and hosts that should be equal.

    `sentence` is the worst problem of all hosts.
    """

    rows: tuple[OverviewRow, ...]
    groups: tuple[EqualHostGroup, ...]
    sentence: str
    version: str = __version__

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the resources."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.summary.resources))

    @property
    def report_links(self) -> dict[tuple[str, str], str | None]:
        """Return the report of each host and configuration, None without a report."""
        return {(row.summary.host, row.summary.configuration): row.link for row in self.rows}


def write_overview(summaries: Iterable[Path], output: Path) -> Overview:
    """Write the overview into an HTML file in the folder of all hosts.

    `summaries` has the `summary.json` of each report; a skipped host needs no summary.

    Raises:
        UserError: a file is not a summary.
    """
    read = {path: ReportSummary.from_file(path) for path in sorted(set(summaries))}
    groups = compare_equal_hosts(read)
    rows = [_row(path, each, groups, output) for path, each in read.items()]
    measured, nothing = {summary.host for summary in read.values()}, ProblemAndSeverity(PROBLEM, "")
    for skipped in skipped_hosts(output.parent):
        if skipped.host not in measured:
            empty = ReportSummary(skipped.host, "", "never measured", (nothing,), {}, {})
            rows.append(OverviewRow(empty, None, skipped))
    rows.sort(key=lambda row: (row.summary.host, row.summary.configuration))
    overview = Overview(tuple(rows), tuple(groups), _worst_sentence(rows))
    write_atomically(output, render_page("overview.html.j2", overview=overview))
    return overview


def _row(
    path: Path, summary: ReportSummary, groups: Sequence[EqualHostGroup], output: Path
) -> OverviewRow:
    """Return the row of a report."""
    html = path.with_name("report.html")
    link = path_relative_to_report(html, output) if html.exists() else None
    equal = [group for group in groups if group.configuration == summary.configuration]
    outlier = any(summary.host in group.outlier_hosts for group in equal)
    return OverviewRow(summary, link, read_skipped_host(path.parent.parent), outlier)


def _worst_sentence(rows: Iterable[OverviewRow]) -> str:
    """Return the worst problem of all hosts, with the host; skipped hosts come first."""
    wrong = [row for row in rows if row.skipped or row.severity != OK]
    worst = min(
        wrong,
        key=lambda row: (row.skipped is None, _SEVERITIES.index(row.severity)),
        default=None,
    )
    return write_text("overview", "worst", row=worst)
