"""Write the page of all hosts and configurations, the worst first, and compare equal hosts.

Equal hosts have the same processor model and the same configuration. Among three or more equal
hosts, outlier hosts are named. If only two hosts are equal, their comparison cannot show which of
the two has a fault.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity import __version__
from chaosity.compare.outlier_hosts import (
    MIN_HOSTS,
    OutlierHosts,
    ResourceSpeeds,
    find_outlier_hosts,
)
from chaosity.compare.selections import ARROW
from chaosity.compare.two_sides import BETTER, WORSE, compare_selections
from chaosity.components import processor_model_and_group
from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_small_machine
from chaosity.figures.machine_parts import MachineParts
from chaosity.records.record_files import write_atomically
from chaosity.report.page import (
    FINDING,
    BestValue,
    NightlyChecks,
    ProblemAndSeverity,
    ReportSummary,
    nightly_checks_of_folder,
)
from chaosity.report.problems import OK, PROBLEM, SEVERITIES, WARNING, read_anomalies
from chaosity.report.sections import path_relative_to_report, render_page
from chaosity.result_folders import MEASUREMENTS_FILE, SkippedHost, read_skipped_host, skipped_hosts
from chaosity.store.measurements import Measurements
from chaosity.store.values_normal_for_processor import compare_with_published_values
from chaosity.text_templates import text_of_macro
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.units import format_count

# Columns of the tidy table that a comparison of hosts does not need. Without these columns, the
# tables of 200 hosts take a third less memory.
_COLUMNS_NOT_COMPARED = [
    *("order", "reason", "distance", "seen_nodes", "reference", "label"),
    *("levels", "clock_hertz", "remarks"),
]
# Columns of the tidy table that a comparison of hosts needs. Tables of earlier versions can lack
# further columns.
_REQUIRED_COLUMNS = ["host", "configuration", "experiment", "point", "replicate", "metric"]
# Errors if a file is no Parquet file, or if columns of a tidy table are missing or wrong.
_ERRORS_OF_TIDY_TABLE = (UserError, ValueError, TypeError)


@dataclass(frozen=True)
class HostStatement:
    """A sentence on equal hosts, its outlier host (or None), and whether it is a problem."""

    text: str
    host: str | None = None
    is_problem: bool = False


# Least deviation, as a share, that the table of hosts shows, since equal hosts often differ by 2 %
# at some place.
LEAST_SHOWN_DEVIATION = 0.03
# Least number of hosts that have a row in the table of hosts; each further host has a row only if
# it deviates.
_FEWEST_HOST_ROWS = 24


@dataclass(frozen=True)
class HostsByResources:
    """A table of hosts by resources, with the outlier hosts first, then the slowest hosts."""

    groups: tuple[tuple[str, int], ...]  # name and number of columns of each group of resources
    resources: tuple[ResourceSpeeds, ...]  # the columns
    # For each row, the name of the host, and the index of the host in the `speeds` and `clear` of
    # each column.
    rows: tuple[tuple[str, int], ...]
    # Hosts that have no row, since all their deviations are too small to be shown.
    hosts_without_row: tuple[str, ...] = ()

    @classmethod
    def of_hosts(cls, found: OutlierHosts) -> HostsByResources:
        """Return the table of all hosts of a comparison."""

        def rank_of_host(row: tuple[str, int]) -> tuple[int, float]:
            own = [resource.speeds[row[1]] for resource in found.resources]
            clear = sum(resource.clear[row[1]] for resource in found.resources)
            return -clear, min((speed for speed in own if speed is not None), default=1.0)

        def deviates_visibly(number: int) -> bool:
            own = [each.speeds[number] for each in found.resources]
            return any(
                speed is not None and abs(speed - 1.0) >= LEAST_SHOWN_DEVIATION for speed in own
            )

        ordered = sorted(((name, n) for n, name in enumerate(found.names)), key=rank_of_host)
        shown = [
            row
            for n, row in enumerate(ordered)
            if n < _FEWEST_HOST_ROWS or deviates_visibly(row[1])
        ]
        calm = sorted(name for name, _ in {*ordered} - {*shown})
        groups = Counter(resource.group for resource in found.resources)
        return cls(tuple(groups.items()), found.resources, tuple(shown), tuple(calm))

    def deviating_resources(self, host: str) -> list[tuple[ResourceSpeeds, float]]:
        """Return (resource, deviation) for each clear deviation of a host, the largest first."""
        number = dict(self.rows)[host]
        own = [(each, each.speeds[number]) for each in self.resources if each.clear[number]]
        known = [(each, speed) for each, speed in own if speed is not None and each.place]
        return sorted(known, key=lambda one: -abs(math.log(one[1])))


@dataclass(frozen=True)
class _EqualHostGroup:
    """Hosts that should be equal, and the result of their comparison."""

    # configuration, processor: those of all hosts of the group; `processor` is None if unknown.
    configuration: str
    processor: str | None
    host_count: int  # number of hosts, including hosts that could not be compared
    # Statements on the hosts; statements on outlier hosts come first.
    statements: tuple[HostStatement, ...]
    hosts_by_resources: HostsByResources | None = None  # None if too few hosts

    @property
    def outlier_hosts(self) -> frozenset[str]:
        """Return the names of the outlier hosts."""
        return frozenset(statement.host for statement in self.statements if statement.host)

    def slow_parts(self, host: str) -> set[str]:
        """Return the parts of a host that are clearly slower than the parts of equal hosts.

        The result has names of components, or texts such as "drives of node3". A link such as
        package0->package1 is named only if no other part is slow, since a link to a slow part seems
        slow too.
        """
        parts, links = set(), set()
        for resource, speed in (
            self.hosts_by_resources.deviating_resources(host) if self.hosts_by_resources else ()
        ):
            ends = [part.strip() for part in resource.place.split(ARROW)]
            if speed < 1.0 and len(ends) == 2:
                links.add("->".join(f"package{end}" for end in ends))
            elif speed < 1.0:
                is_node_of_drives = ends[0].startswith("node") and "drives" in resource.group
                parts.add(("drives of " if is_node_of_drives else "") + ends[0].replace(" ", ""))
        return parts or links


def compare_equal_hosts(
    summaries: Mapping[Path, ReportSummary],
    checks: Mapping[Path, NightlyChecks | None] | None = None,
) -> list[_EqualHostGroup]:
    """Compare the hosts that have the same configuration, processor model and group of equal hosts.

    `summaries` maps the path of each ``summary.json`` to the content of the file. `checks` maps the
    folder of a ``summary.json`` to the nightly checks of the host. If the folder has no readable
    tidy table, a statement says so, and the host is not compared.
    """
    groups: dict[tuple[str, str, str], dict[str, Path]] = defaultdict(dict)
    for path, summary in summaries.items():
        model, group = processor_model_and_group(path.parent)
        groups[summary.configuration, model or "", group][summary.host] = path.parent
    return [
        _compare_group(configuration, model or None, folders, checks or {})
        for (configuration, model, _), folders in sorted(groups.items())
        if len(folders) > 1
    ]


def _compare_group(
    configuration: str,
    processor: str | None,
    folders: Mapping[str, Path],
    checks: Mapping[Path, NightlyChecks | None],
) -> _EqualHostGroup:
    read = {host: _read_table(folder) for host, folder in folders.items()}
    tables = {host: table for host, table in read.items() if isinstance(table, Measurements)}
    skipped = [
        HostStatement(f"{host} was not compared: {reason}.")
        for host, reason in read.items()
        if isinstance(reason, str)
    ]
    heat, topology = None, _first_readable_topology(folders.values())
    try:
        statements = list(_statements_on_pair(tables))
        if len(tables) >= MIN_HOSTS:
            packages = topology.package_of_node if topology else {}
            found = find_outlier_hosts(tables, packages=packages)
            heat = HostsByResources.of_hosts(found)
            histories = {host: checks.get(folder) for host, folder in folders.items()}
            statements = list(_statements_on_outliers(found, heat, histories))
    except UserError as error:
        text = f"{format_count(len(tables), 'host')} could not be compared: {error}"
        statements = [HostStatement(text)]
    statements += _statements_on_normal_values(tables, processor, topology)
    return _EqualHostGroup(configuration, processor, len(folders), (*statements, *skipped), heat)


def _first_readable_topology(folders: Iterable[Path]) -> Topology | None:
    """Return the first readable topology, since equal hosts have equal topologies."""
    for folder in folders:
        with suppress(UserError):
            if topology := read_topology(folder / "topology.json"):
                return topology
    return None


def _statements_on_normal_values(
    tables: Mapping[str, Measurements], processor: str | None, topology: Topology | None
) -> Iterator[HostStatement]:
    """Yield comparisons with published values, since equal hosts can all have the same fault."""
    for each in compare_with_published_values(tables.values(), processor, topology):
        text = text_of_macro("overview", "normal", each=each, hosts=len(tables))
        yield HostStatement(f"{text[:1].upper()}{text[1:]}.", is_problem=each.is_clearly_worse)


def _read_table(folder: Path) -> Measurements | str:
    """Return the tidy table in a folder, or a clause on why its host cannot be compared."""
    path = folder / MEASUREMENTS_FILE
    if not path.exists():
        return f"it has no {MEASUREMENTS_FILE}"
    try:
        # Only valid values of rates and times are compared.
        measurements = Measurements.read(path).performance_rows().valid_rows()
        if measurements.rows[_REQUIRED_COLUMNS].isna().any(axis=None):
            raise ValueError("a required column has no value")
    except _ERRORS_OF_TIDY_TABLE:
        return f"its {MEASUREMENTS_FILE} is not a tidy table"
    if not len(measurements):
        return f"its {MEASUREMENTS_FILE} has no value"
    rows = measurements.rows.drop(columns=_COLUMNS_NOT_COMPARED, errors="ignore")
    texts = rows.select_dtypes(object)
    return Measurements(
        rows.assign(**{str(name): _with_shared_texts(texts[name]) for name in texts})
    )


def _with_shared_texts(column: pd.Series) -> NDArray[np.object_]:
    """Return a column whose equal texts are one object, to save memory in a large fleet."""
    codes, values = pd.factorize(column)
    texts = [sys.intern(value) if type(value) is str else value for value in values]
    return np.array([*texts, None], dtype=object)[codes]


def _statements_on_pair(tables: Mapping[str, Measurements]) -> Iterator[HostStatement]:
    if len(tables) == 2:
        first, second = tables
        pair = compare_selections(tables[first], tables[second], names=(first, second))
        yield HostStatement(pair.sentences[0])
        if {BETTER, WORSE} & set(pair.cells["verdict"]):
            yield HostStatement(
                "Two hosts do not show which host has the fault: measure a third host of this "
                "model."
            )


def _statements_on_outliers(
    found: OutlierHosts, heat: HostsByResources, histories: Mapping[str, NightlyChecks | None]
) -> Iterator[HostStatement]:
    """Yield the sentences of a comparison; sentences on outlier hosts come first, with details."""
    outliers = [host for host in found.hosts if host.differs]
    for host, text in zip(outliers, found.sentences, strict=False):
        slow = heat.deviating_resources(host.host)
        history = histories[host.host]
        more = text_of_macro("overview", "outlier_details", host=host, slow=slow, history=history)
        yield HostStatement(f"{text} {more}", host.host)
    yield from map(HostStatement, found.sentences[len(outliers) :])


_SEVERITIES_WITH_FINDING = (FINDING, *SEVERITIES)
# Largest number of drawings on the page of all hosts. If the page has more rows, only the worst
# hosts have drawings.
_MOST_DRAWINGS = 24


@dataclass(frozen=True)
class OverviewRow:
    """A row of the page of all hosts, on a host in one configuration."""

    # Summary of the host's report. The summary of a host that was never measured has no values.
    summary: ReportSummary
    link: str | None  # link to the report; None without a report
    # When and why the last run skipped the host; None if it did not skip the host.
    skipped: SkippedHost | None
    is_outlier: bool = False  # whether the host differs from equal hosts
    checks: NightlyChecks | None = None  # nightly checks of the host; None without checks
    folder: Path | None = None  # folder of the report; None without a report
    slow_parts: frozenset[str] = frozenset()  # names of parts that are slower than in equal hosts
    drawing: str = ""  # the machine as a small SVG element; "" if it is not drawn

    @property
    def worst_problem(self) -> ProblemAndSeverity:
        """Return the worst problem in the report."""
        return self.summary.worst[0]

    @property
    def severity(self) -> str:
        """Return the worst severity of the report, the checks, and the comparison of hosts."""
        found = [self.worst_problem.severity]
        found += [PROBLEM] if self.is_outlier else []
        found += [WARNING] if self.checks and self.checks.needs_attention else []
        return min(found, key=_SEVERITIES_WITH_FINDING.index)

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Return the sort key of rows: skipped hosts, then outlier hosts, then by severity."""
        return (
            self.skipped is None,
            not self.is_outlier,
            _SEVERITIES_WITH_FINDING.index(self.severity),
        )

    def best_value(self, resource: str, level: str) -> BestValue | None:
        """Return the best value of a resource at a level; None if it was not measured."""
        values = self.summary.resources.get(resource, ())
        return next((value for value in values if value.level == level), None)


@dataclass(frozen=True)
class ResourceColumn:
    """A column of the overview: a resource at a level of the machine, such as one node."""

    number: int  # number of the resource on the page, from 0
    resource: str
    level: str
    load: str  # benchmark, kernel and levels of the load, or of several loads
    unit: str  # unit of all values; "" if each value has another unit


@dataclass(frozen=True)
class Overview:
    """The content of the page of all hosts, with its rows and the groups of equal hosts.

    `worst_problem_sentence` is the worst problem of all hosts.
    """

    rows: tuple[OverviewRow, ...]
    groups: tuple[_EqualHostGroup, ...]
    worst_problem_sentence: str
    version: str = __version__
    most_drawn: int = _MOST_DRAWINGS

    @cached_property
    def columns(self) -> tuple[ResourceColumn, ...]:
        """Return a column for each resource and level; levels of one resource are neighbours."""
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

    @cached_property
    def row_of(self) -> dict[tuple[str, str], OverviewRow]:
        """Return (host, configuration) -> row."""
        return {(row.summary.host, row.summary.configuration): row for row in self.rows}


def write_overview(summaries: Iterable[Path], output: Path) -> Overview:
    """Write the page of all hosts as an HTML file `output` in the folder of all hosts.

    `summaries` has the path of the `summary.json` of each report. A skipped host can lack a
    summary. A message on standard error names each damaged summary, which is left out.
    """
    read: dict[Path, ReportSummary] = {}
    for path in sorted(set(summaries)):
        try:
            read[path] = ReportSummary.from_file(path)
        except UserError as error:
            print(f"chaosity: {error} The page leaves this report out.", file=sys.stderr)
    checks = {path.parent: nightly_checks_of_folder(path.parent) for path in read}
    groups = compare_equal_hosts(read, checks)
    rows = [
        _make_overview_row(path, each, groups, output, checks[path.parent])
        for path, each in read.items()
    ]
    rows += _rows_of_never_measured_hosts(
        {summary.host for summary in read.values()}, output.parent
    )
    overview = Overview(
        tuple(_with_drawings(_worst_first(rows))), tuple(groups), _worst_problem_sentence(rows)
    )
    write_atomically(output, render_page("overview.html.j2", overview=overview))
    return overview


def _make_overview_row(
    path: Path,
    summary: ReportSummary,
    groups: Sequence[_EqualHostGroup],
    output: Path,
    checks: NightlyChecks | None,
) -> OverviewRow:
    """Return the row for one report in the page of all hosts."""
    html = path.with_name("report.html")
    link = path_relative_to_report(html, output) if html.exists() else None
    equal = [group for group in groups if summary.host in group.outlier_hosts]
    equal = [group for group in equal if group.configuration == summary.configuration]
    slow = frozenset(part for group in equal for part in group.slow_parts(summary.host))
    skipped = read_skipped_host(path.parent.parent)
    return OverviewRow(summary, link, skipped, bool(equal), checks, path.parent, slow)


def _rows_of_never_measured_hosts(
    measured: Collection[str], results: Path
) -> Iterator[OverviewRow]:
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
    """Yield the rows with drawings; of many rows, only the worst have drawings."""
    worst = _SEVERITIES_WITH_FINDING.index(PROBLEM)
    for number, row in enumerate(rows):
        is_bad = _SEVERITIES_WITH_FINDING.index(row.severity) <= worst
        if number < _MOST_DRAWINGS and (is_bad or len(rows) <= _MOST_DRAWINGS):
            yield replace(row, drawing=_drawing_of_machine(row))
        else:
            yield row


def _drawing_of_machine(row: OverviewRow) -> str:
    """Return the drawing of a row's machine; "" if a file that it needs is not readable."""
    if row.folder is None or not (row.folder / MEASUREMENTS_FILE).exists():
        return ""
    with suppress(*_ERRORS_OF_TIDY_TABLE):
        topology = read_topology(row.folder / "topology.json")
        table = Measurements.read(row.folder / MEASUREMENTS_FILE)
        anomalies = read_anomalies(row.folder)
        if topology is not None and topology.nodes:
            host = MeasuredHost(row.folder, table, topology)
            return draw_small_machine(MachineParts(host, anomalies), row.slow_parts)
    return ""


def _worst_problem_sentence(rows: Iterable[OverviewRow]) -> str:
    """Return a sentence on the worst problem of all hosts; a skipped host is the worst problem."""
    wrong = sorted(
        (row for row in rows if row.skipped or row.severity != OK),
        key=lambda row: (row.summary.host, row.summary.configuration),
    )
    worst = min(
        wrong,
        key=lambda row: (row.skipped is None, _SEVERITIES_WITH_FINDING.index(row.severity)),
        default=None,
    )
    return text_of_macro("overview", "worst", row=worst)
