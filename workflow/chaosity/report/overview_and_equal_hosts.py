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
        skipped: when and why the last run skipped the host, or None.
        outlier: sentence on how the host differs from equal hosts, or None.
    """

    summary: ReportSummary
    link: str | None
    skipped: str | None
    outlier: str | None = None

    @property
    def worst_problem(self) -> ProblemAndSeverity:
        """Return the worst problem in the report."""
        return self.summary.worst[0]


@dataclass(frozen=True)
class Overview:
    """The content of the overview page.

    Attributes:
        columns: names of the resources.
        rows: rows, sorted by host and configuration.
        groups: hosts that should be equal.
        hosts: number of hosts.
        sentence: the worst problem of all hosts.
    """

    columns: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    groups: tuple[EqualHostGroup, ...]
    hosts: int
    sentence: str
    version: str = __version__

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
    measured = {summary.host for summary in read.values()}
    rows += [
        OverviewRow(
            ReportSummary(
                skipped.host, "", "never measured", (ProblemAndSeverity(PROBLEM, ""),), {}, {}
            ),
            None,
            _skipped_text(skipped),
        )
        for skipped in skipped_hosts(output.parent)
        if skipped.host not in measured
    ]
    rows.sort(key=lambda row: (row.summary.host, row.summary.configuration))
    overview = Overview(
        columns=tuple(dict.fromkeys(name for each in read.values() for name in each.resources)),
        rows=tuple(rows),
        groups=tuple(groups),
        hosts=len({row.summary.host for row in rows}),
        sentence=_worst_sentence(rows),
    )
    write_atomically(output, render_page("overview.html.j2", overview=overview))
    return overview


def _row(
    path: Path, summary: ReportSummary, groups: Sequence[EqualHostGroup], output: Path
) -> OverviewRow:
    """Return the row of a report."""
    html, configuration = path.with_name("report.html"), summary.configuration
    link = path_relative_to_report(html, output) if html.exists() else None
    skipped = read_skipped_host(path.parent.parent)
    equal = [group for group in groups if group.configuration == configuration]
    outlier = None
    if any(summary.host in group.outlier_hosts for group in equal):
        outlier = f"outlier host: differs from the other hosts in {configuration}, see above"
    return OverviewRow(summary, link, _skipped_text(skipped) if skipped else None, outlier)


def _skipped_text(skipped: SkippedHost) -> str:
    return f"skipped on {skipped.time_to_the_minute}: {skipped.reason}"


def _worst_sentence(rows: Iterable[OverviewRow]) -> str:
    """Return the worst problem of all hosts, with the host."""
    wrong = [row for row in rows if row.skipped or row.outlier or row.worst_problem.severity != OK]
    if not wrong:
        return "No problems found on any host."
    row = min(wrong, key=_rank)
    name = f"{row.summary.host} {row.summary.configuration}".strip()
    own_is_worst = _SEVERITIES.index(row.worst_problem.severity) <= _rank(row)[1]
    text = row.skipped or (row.worst_problem.text if own_is_worst else str(row.outlier))
    return f"Worst: {name}, {text.rstrip('.')}."


def _rank(row: OverviewRow) -> tuple[bool, int]:
    """Return the sort key of a host with problems: skipped hosts first, then by severity."""
    own = _SEVERITIES.index(row.worst_problem.severity)
    return row.skipped is None, min(own, _SEVERITIES.index(PROBLEM)) if row.outlier else own
