"""Compare all measured configurations of a host: verdicts, then a row for each resource.

`compare` does all arithmetic. The verdicts of `compare` combine all places of a kind, since a name
means another place in another configuration. The rows show the best and the worst place of each
resource. The ratios of these places are computed separately.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.compare.matched_cells import PLACE
from chaosity.compare.two_sides import BETTER, WORSE, compare_selections, ratio_text
from chaosity.errors import UserError
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_machines
from chaosity.figures.machine_parts import MachineParts
from chaosity.records.record_types import SIMULATED
from chaosity.report.best_places_of_resources import ResourceLevel, measured_place, resource_levels
from chaosity.report.figures_comparing_configurations import draw_figures_by_configuration
from chaosity.report.html import figure_section, path_relative_to_report
from chaosity.report.problems import numbered_findings, read_anomalies
from chaosity.report.run import Run
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology, read_topology
from chaosity.units import format_count

_CELL = ["experiment", "point", "load", "initiator", "target", "metric"]
# The resource declares what is equal; a responder belongs to the best place.
_ALREADY_EQUAL = ("load", "asked", "file_backed")
# Index of the best and of the worst place in the cells of a level.
_ENDS = (0, -1)
# The ratios of one configuration: (name of the level, end) -> row of compare's cells.
_Ratios = Mapping[tuple[str, int], dict[Hashable, Any]]


def configurations_section(run: Run) -> dict[str, Any] | None:
    """Compare the host's configurations, and draw the comparison.

    That of the report is the first column, without a verdict. `rows` has a cell for each resource
    in each configuration, or None. The result is None if this or all others have no value.
    """
    own = _first_valid_configuration(run.measurements)
    others = {path: each for path, each in run.others.items() if _first_valid_configuration(each)}
    if own is None or not others:
        return None
    tables = [run.measurements, *others.values()]
    columns = [_column(*each, run.output) for each in zip(tables, [None, *others], strict=True)]
    by_name = dict(zip((column["name"] for column in columns), tables, strict=True))
    levels = [
        level for level in resource_levels(tables, run.experiments) if any(map(len, level.cells))
    ]
    ratios: list[_Ratios] = [{}, *(_ratios(levels, number) for number in range(1, len(tables)))]
    drawn = draw_figures_by_configuration(run.experiments, by_name, run.figures_folder)
    rows = []
    for level in levels:
        of_level = zip(level.cells, ratios, strict=True)
        cells = [_cell(level.full_name, *each) for each in of_level]
        rows.append({"name": level.full_name, "detail": level.load, "cells": cells})
    return {
        "own": own,
        "verdicts": [_verdict(table, run.measurements, own) for table in others.values()],
        "columns": columns,
        "rows": rows,
        "figures": [figure_section(each, run.figures_folder) for each in drawn],
        "drawing": _drawing(run, dict(zip([None, *others], by_name.items(), strict=True))),
    }


def _drawing(run: Run, tables: Mapping[Path | None, tuple[str, Measurements]]) -> str:
    """Return the drawings of all configurations; empty if a file of another one is unreadable."""
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


def _first_valid_configuration(measurements: Measurements) -> str | None:
    """Return the configuration of the first valid row, None without a valid row."""
    valid = measurements.valid_rows().rows
    return None if valid.empty else str(valid["configuration"].iloc[0])


def _column(measurements: Measurements, path: Path | None, output: Path) -> dict[str, Any]:
    """Return a configuration: its name, days of measurement, and link to its report or None."""
    moments = measurements.rows["measured_at"]
    days = sorted({moment[:10] for moment in moments if isinstance(moment, str)})
    span = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    page = path and path.parent / "report.html"
    return {
        "name": str(_first_valid_configuration(measurements)),
        "measured": SIMULATED if measurements.is_simulated else span,
        "link": path_relative_to_report(page, output) if page and page.exists() else None,
    }


def _verdict(other: Measurements, own: Measurements, own_name: str) -> dict[str, Any]:
    """Return the verdict of `compare` on another configuration, compared with the report's own."""
    name = str(_first_valid_configuration(other))
    try:
        found = compare_selections(other, own, names=(name, own_name))
    except UserError as error:
        return {"verdict": f"{name} against {own_name}: {error}", "groups": [], "notes": []}
    verdict, *sentences = found.sentences
    number = len(found.groups)
    notes = [f"{note[:1].upper()}{note[1:]}." for note in found.notes] + sentences[number:]
    return {"verdict": verdict, "groups": sentences[:number], "notes": notes}


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
                rows, cell = level.tables[each].valid_rows().rows, level.cells[each].iloc[end]
                rows = rows[rows[_CELL].eq(cell[_CELL]).all(axis=1)]
                side.append(rows.assign(**labels, point="".join(labels.values())))
    if not sides[0]:
        return {}
    left, right = (Measurements(pd.concat(side, ignore_index=True)) for side in sides)
    try:
        cells = compare_selections(left, right, by=PLACE, ignore=_ALREADY_EQUAL).cells
    except UserError:  # one configuration has no positive value
        return {}
    return {(cell["initiator"], int(cell["target"])): cell for cell in cells.to_dict("records")}


def _cell(name: str, cells: pd.DataFrame, ratios: _Ratios) -> dict[str, Any] | None:
    """Return the best and the worst place of a resource in a configuration, and their number."""
    places = []
    for end in _ENDS[: len(cells)]:
        found = ratios.get((name, end))
        ratio = compared_ratio(found) if found else None
        places.append({"place": measured_place(cells.iloc[end]), "ratio": ratio})
    if not places:
        return None
    detail = ", ".join([*_size_text(cells), format_count(len(cells), "place")])
    return {"best": places[0], "worst": places[1] if len(places) > 1 else None, "detail": detail}


def _size_text(cells: pd.DataFrame) -> Iterator[str]:
    """Yield the number of drives of a drive set, else the number of threads of an initiator."""
    for column, noun in (("drives", "drive"), ("threads", "thread")):
        known = cells[column].dropna().astype(int)
        if not known.empty:
            low, high = int(known.min()), int(known.max())
            yield ("" if low == high else f"{low} to ") + format_count(high, noun)
            return


def compared_ratio(cell: Mapping[Hashable, Any]) -> dict[str, str]:
    """Return the ratio of a compared cell in `words`, with the `verdict` of `compare`."""
    low, high, verdict = cell["low"], cell["high"], str(cell["verdict"])
    if pd.isna(low):
        return {"words": f"{cell['ratio']:.2f} times, no interval: n = 1", "verdict": verdict}
    words = ratio_text(cell["ratio"], low, high)
    if low <= 1.0 <= high:
        n = " and ".join(dict.fromkeys(str(int(cell[side])) for side in ("n_left", "n_right")))
        words = f"no difference detected at n = {n}: {words}"
    elif verdict in (BETTER, WORSE):
        words = f"{words}, {verdict}"
    return {"words": words, "verdict": verdict}
