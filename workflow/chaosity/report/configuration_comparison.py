"""Compare all measured configurations of a host: verdicts, then a row for each resource.

`compare` does all arithmetic. The verdicts of `compare` combine all places of a kind, since a name
means another place in another configuration. The rows show the best and the worst place of each
resource. The ratios of these places are computed separately.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare.matched_cells import PLACE
from chaosity.compare.two_sides import BETTER, WORSE, compare_selections, ratio_text
from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_machines
from chaosity.figures.machine_parts import MachineParts
from chaosity.records.record_types_and_verdict import SIMULATED
from chaosity.report.experiment_section import (
    FigureSection,
    figure_section,
    path_relative_to_report,
)
from chaosity.report.figures_by_configuration import draw_figures_by_configuration
from chaosity.report.findings import numbered_findings, read_anomalies
from chaosity.report.resource_table import (
    MeasuredPlace,
    ResourceLevel,
    measured_place,
    resource_levels,
)
from chaosity.report.run import Run
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_json import read_topology
from chaosity.topology.topology_model import Topology
from chaosity.units import format_count

_CELL = ["experiment", "point", "load", "initiator", "target", "metric"]
# The resource declares what is equal; a responder belongs to the best place.
_ALREADY_EQUAL = ("load", "asked", "file_backed")
# Index of the best and of the worst place in the cells of a level.
_ENDS = (0, -1)


@dataclass(frozen=True)
class ConfigurationHeading:
    """A configuration: its name, days of measurement, and link to its report (or None)."""

    name: str
    measured: str
    link: str | None


@dataclass(frozen=True)
class ConfigurationVerdict:
    """Another configuration compared with the configuration of this report."""

    verdict: str  # number of cells that differ, and the cells that differ most
    groups: tuple[str, ...] = ()  # a sentence for each metric of each category
    # Sentences on differences of the measurements, and on cells without a partner.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RatioWithVerdict:
    """A ratio as text, and the verdict of `compare`, such as better or worse."""

    words: str
    verdict: str


@dataclass(frozen=True)
class ComparedPlace:
    """The best or the worst place of a resource in one configuration.

    Its ratio is to the same end in this report's configuration; None in this configuration, or if
    it has no value.
    """

    place: MeasuredPlace
    ratio: RatioWithVerdict | None


@dataclass(frozen=True)
class ConfigurationCell:
    """A resource in one configuration; `worst` is None with a single place."""

    best: ComparedPlace
    worst: ComparedPlace | None
    detail: str  # size and number of places, such as "24 threads, 8 places"


@dataclass(frozen=True)
class ConfigurationRow:
    """A resource in all configurations; None for a configuration without a measurement."""

    name: str
    detail: str
    cells: tuple[ConfigurationCell | None, ...]


@dataclass(frozen=True)
class ConfigurationsSection:
    """The section on configurations; that of the report is the first column, without a verdict."""

    own: str  # name of this report's configuration
    verdicts: tuple[ConfigurationVerdict, ...]
    columns: tuple[ConfigurationHeading, ...]
    rows: tuple[ConfigurationRow, ...]
    figures: tuple[FigureSection, ...]
    drawing: str = ""  # the machine in all configurations, as SVG; "" if a topology is missing


# The ratios of one configuration: (name of the level, end) -> row of compare's cells.
_Ratios = Mapping[tuple[str, int], dict[Hashable, Any]]


def configurations_section(run: Run) -> ConfigurationsSection | None:
    """Compare the host's configurations, and draw the comparison.

    The result is None if this configuration or all others have no value.
    """
    own = first_valid_configuration(run.measurements)
    with_values = {
        path: each for path, each in run.others.items() if first_valid_configuration(each)
    }
    if own is None or not with_values:
        return None
    tables = [run.measurements, *with_values.values()]
    columns = tuple(map(_column, tables, [None, *with_values], [run.output] * len(tables)))
    by_name = dict(zip((column.name for column in columns), tables, strict=True))
    levels = [
        level for level in resource_levels(tables, run.experiments) if any(map(len, level.cells))
    ]
    ratios: list[_Ratios] = [{}, *(_ratios(levels, number) for number in range(1, len(tables)))]
    drawn = draw_figures_by_configuration(run.experiments, by_name, run.figures_folder)
    return ConfigurationsSection(
        own=own,
        verdicts=tuple(_verdict(table, run.measurements, own) for table in with_values.values()),
        columns=columns,
        rows=tuple(_row(level, ratios) for level in levels),
        figures=tuple(figure_section(each, run.figures_folder) for each in drawn),
        drawing=_drawing(run, dict(zip([None, *with_values], by_name.items(), strict=True))),
    )


def _drawing(run: Run, tables: Mapping[Path | None, tuple[str, Measurements]]) -> str:
    """Return the drawings of all configurations; empty if a file of another one is unreadable.

    `tables` has name and values of each table; the path None stands for those of this report.
    """
    machines = []
    with suppress(UserError):
        for path, (name, table) in tables.items():
            folder, page, topology, found = run.folder, "", run.topology, run.found.anomalies
            if path is not None:
                folder = path.parent
                page = path_relative_to_report(folder / "report.html", run.output)
                topology = read_topology(folder / "topology.json") or Topology()
                found = read_anomalies(folder)
            if not topology.nodes:
                return ""
            host = MeasuredHost(folder, table, topology)
            machines.append((name, page, MachineParts(host, numbered_findings(found))))
        return draw_machines(machines)
    return ""


def first_valid_configuration(measurements: Measurements) -> str | None:
    """Return the configuration of the first valid row, None without a valid row."""
    valid = measurements.rows[measurements.rows["status"] == "valid"]
    return None if valid.empty else str(valid["configuration"].iloc[0])


def _column(measurements: Measurements, path: Path | None, output: Path) -> ConfigurationHeading:
    moments = measurements.rows["measured_at"]
    days = sorted({moment[:10] for moment in moments if isinstance(moment, str)})
    span = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    span = SIMULATED if measurements.is_simulated else span
    link = None
    if path is not None and (path.parent / "report.html").exists():
        link = path_relative_to_report(path.parent / "report.html", output)
    return ConfigurationHeading(str(first_valid_configuration(measurements)), span, link)


def _verdict(other: Measurements, own: Measurements, own_name: str) -> ConfigurationVerdict:
    """Return the verdict of `compare` on another configuration, compared with the report's own."""
    name = str(first_valid_configuration(other))
    try:
        found = compare_selections(other, own, names=(name, own_name))
    except UserError as error:
        return ConfigurationVerdict(f"{name} against {own_name}: {error}")
    verdict, *sentences = found.sentences
    groups, unmatched = sentences[: len(found.groups)], sentences[len(found.groups) :]
    notes = [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    return ConfigurationVerdict(verdict, tuple(groups), (*notes, *unmatched))


def _ratios(levels: Sequence[ResourceLevel], number: int) -> _Ratios:
    """Return the ratios of a configuration's best and worst places to the first configuration's.

    All ratios are tested together, since some of many ratios are large by chance.
    """
    sides: tuple[list[pd.DataFrame], list[pd.DataFrame]] = ([], [])
    for level in levels:
        fewest = min(len(level.cells[each]) for each in (number, 0))
        for end in _ENDS[:fewest]:
            labels = {"initiator": level.full_name, "target": str(end)}
            for side, each in zip(sides, (number, 0), strict=True):
                rows = _replicates(level.tables[each].rows, level.cells[each].iloc[end])
                side.append(rows.assign(**labels, point="".join(labels.values())))
    if not sides[0]:
        return {}
    left, right = (Measurements(pd.concat(side, ignore_index=True)) for side in sides)
    try:
        cells = compare_selections(left, right, by=PLACE, ignore=_ALREADY_EQUAL).cells
    except UserError:  # one configuration has no positive value
        return {}
    return {(cell["initiator"], int(cell["target"])): cell for cell in cells.to_dict("records")}


def _replicates(rows: pd.DataFrame, cell: pd.Series) -> pd.DataFrame:
    """Return the valid rows of a cell."""
    same = rows[_CELL].eq(cell[_CELL]).all(axis=1)
    return rows[same & (rows["status"] == "valid")]


def _row(level: ResourceLevel, ratios: Sequence[_Ratios]) -> ConfigurationRow:
    name = level.full_name
    cells = (_cell(name, *pair) for pair in zip(level.cells, ratios, strict=True))
    return ConfigurationRow(name, level.load, tuple(cells))


def _cell(name: str, cells: pd.DataFrame, ratios: _Ratios) -> ConfigurationCell | None:
    places = []
    for end in _ENDS[: len(cells)]:
        found = ratios.get((name, end))
        ratio = compared_ratio_with_verdict(found) if found else None
        places.append(ComparedPlace(measured_place(cells.iloc[end]), ratio))
    if not places:
        return None
    detail = ", ".join([*_size_text(cells), format_count(len(cells), "place")])
    return ConfigurationCell(places[0], places[1] if len(places) > 1 else None, detail)


def _size_text(cells: pd.DataFrame) -> Iterator[str]:
    """Yield the number of drives of a drive set, else the number of threads of an initiator."""
    for column, noun in (("drives", "drive"), ("threads", "thread")):
        known = cells[column].dropna().astype(int)
        if not known.empty:
            low, high = int(known.min()), int(known.max())
            yield ("" if low == high else f"{low} to ") + format_count(high, noun)
            return


def compared_ratio_with_verdict(cell: Mapping[Hashable, Any]) -> RatioWithVerdict:
    """Return the ratio of a compared cell as text, with its verdict."""
    low, high, verdict = cell["low"], cell["high"], str(cell["verdict"])
    if pd.isna(low):
        return RatioWithVerdict(f"{cell['ratio']:.2f} times, no interval: n = 1", verdict)
    words = ratio_text(cell["ratio"], low, high)
    if low <= 1.0 <= high:
        n = " and ".join(dict.fromkeys(str(int(cell[side])) for side in ("n_left", "n_right")))
        return RatioWithVerdict(f"no difference detected at n = {n}: {words}", verdict)
    return RatioWithVerdict(f"{words}, {verdict}" if verdict in (BETTER, WORSE) else words, verdict)
