"""Compare equal hosts: which host departs, in which resource, how certainly, and since when.

Equal hosts have one processor model and one configuration. Among three or more equal hosts, outlier
hosts are named. Two equal hosts are compared, but this cannot show which of the two has a fault.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.compare.host_deviations import MIN_HOSTS
from chaosity.compare.matched_cells import ARROW
from chaosity.compare.outlier_hosts import OutlierHosts, ResourceSpeeds, find_outlier_hosts
from chaosity.compare.two_sides import BETTER, WORSE, compare_selections
from chaosity.components.component_documents import processor_model_and_group
from chaosity.errors import UserError
from chaosity.report.report_summary import NightlyChecks, ReportSummary
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.store.measurements import Measurements
from chaosity.store.values_normal_for_processor import compare_with_published_values
from chaosity.text_templates import text_of_macro
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.units import format_count

# Columns that no comparison of hosts needs. Without them, the tables of 200 hosts take a third less
# memory.
_NOT_COMPARED = [
    *("order", "reason", "distance", "seen_nodes", "reference", "label"),
    *("levels", "clock_hertz", "remarks"),
]
# Columns that a comparison requires. Tables of earlier versions can lack other columns.
_REQUIRED = ["host", "configuration", "experiment", "point", "replicate", "metric"]


@dataclass(frozen=True)
class HostStatement:
    """A sentence on equal hosts, the outlier host in it or None, and whether it is a problem."""

    text: str
    host: str | None = None
    is_problem: bool = False


# The table of hosts has numbers only for deviations of at least this share, since equal hosts often
# differ by 2 % in some place.
VISIBLE = 0.03
# After this many rows, the table of hosts only has rows of hosts with a visible deviation.
_LEAST_ROWS = 24


@dataclass(frozen=True)
class HostsByResources:
    """A table of hosts by resources, the outlier hosts first, then the slowest."""

    groups: tuple[tuple[str, int], ...]  # name and number of columns of each group of resources
    resources: tuple[ResourceSpeeds, ...]  # the columns
    # For each row: the name of the host, and the host's index in `speeds` and `clear` of each
    # column.
    rows: tuple[tuple[str, int], ...]
    # Hosts without a row: hosts of a large fleet whose deviations are all too small to be visible.
    hosts_without_row: tuple[str, ...] = ()

    @classmethod
    def of_hosts(cls, found: OutlierHosts) -> HostsByResources:
        """Return the table of the hosts of a comparison."""

        def rank(row: tuple[str, int]) -> tuple[int, float]:
            own = [resource.speeds[row[1]] for resource in found.resources]
            clear = sum(resource.clear[row[1]] for resource in found.resources)
            return -clear, min((speed for speed in own if speed is not None), default=1.0)

        def is_visible(number: int) -> bool:
            own = [each.speeds[number] for each in found.resources]
            return any(speed is not None and abs(speed - 1.0) >= VISIBLE for speed in own)

        ordered = sorted(((name, n) for n, name in enumerate(found.names)), key=rank)
        shown = [row for n, row in enumerate(ordered) if n < _LEAST_ROWS or is_visible(row[1])]
        calm = sorted(name for name, _ in {*ordered} - {*shown})
        groups = Counter(resource.group for resource in found.resources)
        return cls(tuple(groups.items()), found.resources, tuple(shown), tuple(calm))

    def deviating_resources(self, host: str) -> list[tuple[ResourceSpeeds, float]]:
        """Return the resources in which a host clearly deviates, the largest deviation first."""
        number = dict(self.rows)[host]
        own = [(each, each.speeds[number]) for each in self.resources if each.clear[number]]
        known = [(each, speed) for each, speed in own if speed is not None and each.place]
        return sorted(known, key=lambda one: -abs(math.log(one[1])))


@dataclass(frozen=True)
class EqualHostGroup:
    """Hosts that should be equal, and what their comparison found."""

    # configuration, processor: the same for all these hosts; processor is None if unknown.
    configuration: str
    processor: str | None
    hosts: int  # number of hosts, including hosts that could not be compared
    # Statements on the hosts; those on outlier hosts come first.
    statements: tuple[HostStatement, ...]
    hosts_by_resources: HostsByResources | None = (
        None  # None for fewer hosts than a comparison needs
    )

    @property
    def outlier_hosts(self) -> frozenset[str]:
        """Return the names of the outlier hosts."""
        return frozenset(statement.host for statement in self.statements if statement.host)

    def slow_parts(self, host: str) -> set[str]:
        """Return the parts of a host that are clearly slower than in equal hosts.

        The result has names of components, or texts such as "drives of node3". A link such as
        package0->package1 is named only if no other part is slow, since a slow part also makes the
        links to it look slow.
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
) -> list[EqualHostGroup]:
    """Compare the hosts of each configuration, processor model and group of equal hosts.

    `summaries` is path of a ``summary.json`` -> its content, `checks` is folder of such a file ->
    nightly checks of the host. A host without a readable tidy table in this folder is named in a
    statement and not compared.
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
) -> EqualHostGroup:
    read = {host: _read_table(folder) for host, folder in folders.items()}
    tables = {host: table for host, table in read.items() if isinstance(table, Measurements)}
    skipped = [
        HostStatement(f"{host} was not compared: {reason}.")
        for host, reason in read.items()
        if isinstance(reason, str)
    ]
    heat, topology = None, _first_topology(folders.values())
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
    return EqualHostGroup(configuration, processor, len(folders), (*statements, *skipped), heat)


def _first_topology(folders: Iterable[Path]) -> Topology | None:
    """Return the first topology that can be read: equal hosts have equal topologies."""
    for folder in folders:
        with suppress(UserError):
            if topology := read_topology(folder / "topology.json"):
                return topology
    return None


def _statements_on_normal_values(
    tables: Mapping[str, Measurements], processor: str | None, topology: Topology | None
) -> Iterator[HostStatement]:
    """Yield comparisons with published values, since all equal hosts can have the same fault."""
    for each in compare_with_published_values(tables.values(), processor, topology):
        text = text_of_macro("overview", "normal", each=each, hosts=len(tables))
        yield HostStatement(f"{text[:1].upper()}{text[1:]}.", is_problem=each.is_clear)


def _read_table(folder: Path) -> Measurements | str:
    """Return the tidy table of a folder, or a clause on why its host cannot be compared."""
    path = folder / MEASUREMENTS_FILE
    if not path.exists():
        return f"it has no {MEASUREMENTS_FILE}"
    try:
        # Only valid rates and times are compared.
        measurements = Measurements.read(path).performance_rows().valid_rows()
        if measurements.rows[_REQUIRED].isna().any(axis=None):
            raise ValueError("a required column has no value")
    except (UserError, ValueError, TypeError):  # no Parquet file, or columns of other types
        return f"its {MEASUREMENTS_FILE} is not a tidy table"
    if not len(measurements):
        return f"its {MEASUREMENTS_FILE} has no value"
    rows = measurements.rows.drop(columns=_NOT_COMPARED, errors="ignore")
    texts = rows.select_dtypes(object)
    return Measurements(rows.assign(**{str(name): _shared(texts[name]) for name in texts}))


def _shared(column: pd.Series) -> NDArray[np.object_]:
    """Return a column in which equal texts are one object, to save memory in a large fleet."""
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
    """Yield the sentences of a comparison; those on outlier hosts come first and have details."""
    outliers = [host for host in found.hosts if host.differs]
    for host, text in zip(outliers, found.sentences, strict=False):
        slow = heat.deviating_resources(host.host)
        history = histories[host.host]
        more = text_of_macro("overview", "outlier_details", host=host, slow=slow, history=history)
        yield HostStatement(f"{text} {more}", host.host)
    yield from map(HostStatement, found.sentences[len(outliers) :])
