"""Hosts that should be equal: those of one processor model in one configuration.

Of three and more it can be said which one is not like the others; two are compared, and which of
them is at fault stays open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chaosity.compare import compare_selections, find_outlier_hosts
from chaosity.compare.comparison_text import BETTER, WORSE
from chaosity.components import read_components
from chaosity.errors import UserError
from chaosity.report.configurations import measured_configuration
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.store import read_table
from chaosity.units import format_count

# Without these a value is of nothing; what else an older table lacks only parts cells.
_NEEDED = ["host", "configuration", "experiment", "point", "replicate", "metric"]


@dataclass(frozen=True)
class HostResults:
    """A host in one configuration, and the folder in which its summary and its table lie."""

    host: str
    configuration: str
    folder: Path


@dataclass(frozen=True)
class Statement:
    """A sentence, and the host that it accuses, if any."""

    text: str
    host: str | None = None


@dataclass(frozen=True)
class EqualHosts:
    """Hosts that should be equal.

    Attributes:
        configuration, processor: what they have in common; processor is None where nobody knows it.
        hosts: their number, with those that could not be compared.
        statements: sentences, those that accuse a host first.
    """

    configuration: str
    processor: str | None
    hosts: int
    statements: tuple[Statement, ...]

    @property
    def accused(self) -> frozenset[str]:
        """Hosts that are not like the others."""
        return frozenset(one.host for one in self.statements if one.host)


def compare_equal_hosts(places: Sequence[HostResults]) -> list[EqualHosts]:
    """What can be said of hosts that should be equal, by configuration and processor.

    A host whose table is missing or cannot be read is named and left out.
    """
    kinds: dict[tuple[str, str], list[HostResults]] = {}
    for place in places:
        key = (place.configuration, processor_model(place.folder) or "")
        kinds.setdefault(key, []).append(place)
    several = [(key, own) for key, own in sorted(kinds.items()) if len(own) > 1]
    return [
        _compare_group(configuration, model or None, own) for (configuration, model), own in several
    ]


def processor_model(folder: Path) -> str | None:
    """The processor's model, as discovery or, without components, the topology has it."""
    model = read_components(folder / "components").get("system", {}).get("cpu_model")
    if model:
        return str(model)
    try:
        topology = json.loads((folder / "topology.json").read_text(encoding="utf-8"))
        return str(topology["host"]["cpu_model"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compare_group(
    configuration: str, processor: str | None, places: Sequence[HostResults]
) -> EqualHosts:
    found = {place.host: _table(place.folder) for place in places}
    tables = {host: table for host, table in found.items() if isinstance(table, pd.DataFrame)}
    reasons = [Statement(f"{host} was not compared: {reason}.") for host, reason in found.items()
               if isinstance(reason, str)]  # fmt: skip
    said = [*_verdict(tables), *reasons]
    return EqualHosts(configuration, processor, len(places), tuple(said))


def _table(folder: Path) -> pd.DataFrame | str:
    """The tidy table of a folder, or why it cannot be compared."""
    path = folder / MEASUREMENTS_FILE
    if not path.exists():
        return f"it has no {MEASUREMENTS_FILE}"
    try:
        table = read_table(path)
    except (UserError, ValueError, TypeError):  # no Parquet file, or one with other types
        return f"its {MEASUREMENTS_FILE} is no tidy table"
    if measured_configuration(table) is None:
        return f"its {MEASUREMENTS_FILE} holds no value"
    known = table.loc[table["status"] == "valid", _NEEDED]
    return f"its {MEASUREMENTS_FILE} is no tidy table" if known.isna().to_numpy().any() else table


def _verdict(tables: Mapping[str, pd.DataFrame]) -> Iterator[Statement]:
    try:
        if len(tables) > 2:
            found = find_outlier_hosts(tables)
            odd = [host.host for host in found.hosts if host.differs]
            # The sentences begin with those of the hosts that differ, in the order of the hosts.
            accused = [*odd, *[None] * (len(found.sentences) - len(odd))]
            yield from map(Statement, found.sentences, accused)
        elif len(tables) == 2:
            one, other = tables
            pair = compare_selections(tables[one], tables[other], names=(one, other))
            yield Statement(pair.sentences[0])
            if {BETTER, WORSE} & set(pair.cells["verdict"]):
                yield Statement(
                    "Which of the two is at fault cannot be said; a third host decides."
                )
    except UserError as error:
        yield Statement(f"{format_count(len(tables), 'host')} could not be compared: {error}")
