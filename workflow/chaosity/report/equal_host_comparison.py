"""Compares hosts that should be equal: hosts of one processor model in one configuration.

From three hosts on, outlier hosts are named. Two hosts are compared, but it stays open which of
them has a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity.compare import compare_selections, find_outlier_hosts
from chaosity.compare.comparison_text import BETTER, WORSE
from chaosity.components.component_files import read_components, system_component_facts
from chaosity.errors import UserError
from chaosity.report.configuration_comparison import first_valid_configuration
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_json import read_topology
from chaosity.units import format_count

# Required for a comparison. Tables of earlier versions can lack other columns.
_REQUIRED = ["host", "configuration", "experiment", "point", "replicate", "metric"]


@dataclass(frozen=True)
class HostResults:
    """A host in one configuration, and the folder of its summary and table."""

    host: str
    configuration: str
    folder: Path


@dataclass(frozen=True)
class HostStatement:
    """A sentence, and the outlier host that it names, or None."""

    text: str
    host: str | None = None


@dataclass(frozen=True)
class EqualHostGroup:
    """Hosts that should be equal.

    Attributes:
        configuration, processor: of all these hosts; processor is None if unknown.
        hosts: their number, including hosts that could not be compared.
        statements: sentences, those on outlier hosts first.
    """

    configuration: str
    processor: str | None
    hosts: int
    statements: tuple[HostStatement, ...]

    @property
    def outlier_hosts(self) -> frozenset[str]:
        """The outlier hosts."""
        return frozenset(statement.host for statement in self.statements if statement.host)


def compare_equal_hosts(results: Sequence[HostResults]) -> list[EqualHostGroup]:
    """Compare the hosts of each configuration and processor model.

    A host without a readable table is named and not compared.
    """
    groups: dict[tuple[str, str], list[HostResults]] = {}
    for each in results:
        key = (each.configuration, processor_model(each.folder) or "")
        groups.setdefault(key, []).append(each)
    return [
        _compare_group(configuration, model or None, group)
        for (configuration, model), group in sorted(groups.items())
        if len(group) > 1
    ]


def processor_model(folder: Path) -> str | None:
    """The processor model in the system component; without a component, in the topology."""
    model = system_component_facts(read_components(folder / "components")).get("cpu_model")
    if model:
        return str(model)
    try:
        topology = read_topology(folder / "topology.json")
    except UserError:
        return None
    return topology.cpu_model if topology else None


def _compare_group(
    configuration: str, processor: str | None, group: Sequence[HostResults]
) -> EqualHostGroup:
    read = {each.host: _read_table(each.folder) for each in group}
    tables = {host: table for host, table in read.items() if isinstance(table, Measurements)}
    skipped = [
        HostStatement(f"{host} was not compared: {reason}.")
        for host, reason in read.items()
        if isinstance(reason, str)
    ]
    return EqualHostGroup(configuration, processor, len(group), (*_statements(tables), *skipped))


def _read_table(folder: Path) -> Measurements | str:
    """The tidy table of a folder, or why it cannot be compared."""
    path = folder / MEASUREMENTS_FILE
    if not path.exists():
        return f"it has no {MEASUREMENTS_FILE}"
    try:
        measurements = Measurements.read(path)
    except (UserError, ValueError, TypeError):  # not a Parquet file, or with other types
        return f"its {MEASUREMENTS_FILE} is not a tidy table"
    if first_valid_configuration(measurements) is None:
        return f"its {MEASUREMENTS_FILE} has no value"
    required = measurements.rows.loc[measurements.rows["status"] == "valid", _REQUIRED]
    if required.isna().to_numpy().any():
        return f"its {MEASUREMENTS_FILE} is not a tidy table"
    return measurements


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
                    "Two hosts do not show which of them has the fault: measure a third host of "
                    "this model."
                )
    except UserError as error:
        yield HostStatement(f"{format_count(len(tables), 'host')} could not be compared: {error}")
