"""Slow drives, drive sets, processing units, cores and L3 domains of a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import (
    ADDING_DRIVES,
    REMOTE_BETTER,
    SLOW_COMPONENT,
    SLOW_PATH,
    Anomaly,
)
from chaosity.anomalies.anomaly_text import ADVICE, CHECK_PROCESSING_UNITS, PATH, TARGET
from chaosity.anomalies.cell_groups import SliceCells
from chaosity.anomalies.departure_significance import Departure, Suspect
from chaosity.anomalies.scored_cells import positions_of
from chaosity.cpusets import parse_cpu_list
from chaosity.place_names import initiator_to_target_name, node_name
from chaosity.store.measurements import Measurements
from chaosity.units import format_count, join_with_and

_CHECK_DRIVE = (
    "Look at its link (lspci -vv: LnkSta), temperature and wear (nvme smart-log), or replace it; "
    "the next run measures only the points that use it."
)
_CHECK_SHARED_PARTS = (
    "Look at what these drives share: the PCIe switch or riser, the root complex of that node, "
    "power and cooling."
)
_CHECK_DRIVE_PATH = (
    "Measure it again alone; look at the path between the two and at interrupts bound to another "
    "node."
)
_CHECK_WIRING = (
    "Look at the wiring: the drive may be connected to another node than the firmware reports "
    "(swapped cable or slot), or its interrupts are bound there."
)
_CHECK_ADDED_DRIVES = (
    "Look at what the added drives share with the others: a switch, a root complex, memory "
    "channels of the node that receives the data; read fewer drives from there."
)


@dataclass
class ComponentCheck:
    """Result of the test of one kind of component.

    Attributes:
        anomalies: what was found.
        compared: names of the components with comparable components.
        detectable: smallest detectable loss of a single cell in each slice, in per cent.
    """

    anomalies: list[Anomaly] = field(default_factory=list)
    compared: set[str] = field(default_factory=set)
    detectable: list[float] = field(default_factory=list)

    def add(self, cells: SliceCells, names: Sequence[str], axis: int) -> None:
        """Count the tested cells of a slice.

        Args:
            cells: of the slice.
            names: of the components: initiators or targets.
            axis: the axis of the cells over which a component's cells extend.
        """
        tested = cells.tested_mask
        if tested.any():
            self.detectable.append(cells.detectable_percent)
        lines = tested if axis == 1 else tested.T
        self.compared |= {name for name, line in zip(names, lines, strict=True) if line.any()}


def find_slow_initiators_and_memory(
    rows: Measurements, core_kinds: Mapping[str, str]
) -> ComponentCheck:
    """Slow processing units, cores and L3 domains on memory, and memory that is slow for all.

    Args:
        rows: loads alone on one memory node each, valid, of slices with several initiators per
            node.
        core_kinds: kind of core of each initiator, where the host has several kinds; cores of
            different kinds are not comparable.
    """
    check = ComponentCheck()
    for where, part in rows.comparable_slices():
        own = part.rows.assign(
            known_distance=part.rows["distance"].astype(float).fillna(-1.0),
            core_kind=[core_kinds.get(name, "") for name in part.rows["initiator"]],
        )
        cells = SliceCells(own, where, ("relation", "known_distance", "threads", "core_kind"))
        check.add(cells, cells.cells.rows, axis=1)
        suspects = [*cells.initiator_suspects(), *cells.target_suspects("target")]
        departures = cells.find_departures(suspects, cells.untested)
        check.anomalies += [_initiator(cells, departure) for departure in departures]
    return check


def _initiator(cells: SliceCells, departure: Departure) -> Anomaly:
    source, target = cells.cells.names_at(departure.cells[0])
    row = cells.cells.rows.index(source)
    on_one_target = int(cells.cells.measured_mask[row].sum()) == 1
    if departure.suspect is not None and departure.suspect.part == "target":
        what = f"The memory of {target} is slow:"
        return cells.build_anomaly(departure, SLOW_COMPONENT, (target,), what, ADVICE[TARGET])
    if departure.suspect is not None or on_one_target:
        what = f"{source} is slow on memory:"
        return cells.build_anomaly(
            departure, SLOW_COMPONENT, (source,), what, CHECK_PROCESSING_UNITS
        )
    # The path between the nodes is suspected, whichever unit of the node it was seen from.
    nodes = cells.first_rows[source, target]["initiator_nodes"]
    path, what = (
        initiator_to_target_name(f"node{nodes}", target),
        f"The path from {source} to {target} is slow:",
    )
    return cells.build_anomaly(departure, SLOW_PATH, (path,), what, ADVICE[PATH])


def find_slow_drives(rows: Measurements, models: Mapping[str, str]) -> ComponentCheck:
    """Slow drives, slow paths to drives, and drives that are read better from another node.

    Args:
        rows: loads alone on single drives, valid, without stand-in files; one drive per target.
        models: model of each drive by its component; a drive of unknown model is not comparable.
    """
    check = ComponentCheck()
    for where, part in rows.comparable_slices():
        own = part.rows.assign(model=[models.get(name, name) for name in part.rows["target"]])
        cells = SliceCells(own, where, ("relation", "model"))
        check.add(cells, cells.cells.columns, axis=0)
        found = cells.find_departures(list(_drive_suspects(cells)), cells.untested)
        check.anomalies += [_drive(cells, departure) for departure in found]
        check.anomalies += _remote_better(cells)
    return check


def _drive_suspects(cells: SliceCells) -> Iterator[Suspect]:
    yield from cells.target_suspects("drive")
    yield from cells.initiator_suspects()
    nodes: dict[str, list[int]] = {}
    for column, drive in enumerate(cells.cells.columns):
        first = next(row for (_, target), row in cells.first_rows.items() if target == drive)
        nodes.setdefault(str(first["target_nodes"]), []).append(column)
    for node, columns in nodes.items():
        if len(columns) > 1 and len(nodes) > 1:
            mask = np.any(
                [cells.cells.row_or_column_mask(column=column) for column in columns], axis=0
            )
            yield Suspect("node", node, mask)


def _drive(cells: SliceCells, departure: Departure) -> Anomaly:
    names = [cells.cells.names_at(position) for position in departure.cells]
    source, drive = names[0]
    column = cells.cells.columns.index(drive)
    if departure.suspect is None and int(cells.cells.measured_mask[:, column].sum()) > 1:
        what = f"The path from {source} to {drive} is slow:"
        return cells.build_anomaly(departure, SLOW_PATH, (drive,), what, _CHECK_DRIVE_PATH)
    part = departure.suspect.part if departure.suspect else "drive"
    if part == "initiator":
        what = f"{source} is slow on drives:"
        return cells.build_anomaly(
            departure, SLOW_COMPONENT, (source,), what, CHECK_PROCESSING_UNITS
        )
    if departure.suspect is None or part != "node":
        what = f"{drive} is slow:"
        return cells.build_anomaly(departure, SLOW_COMPONENT, (drive,), what, _CHECK_DRIVE)
    drives = sorted({name for _, name in names})
    node = str(departure.suspect.name)
    components = (*([f"node{node}"] if node else []), *drives)
    what = f"All {len(drives)} drives of {f'node {node}' if node else 'no known node'} are slow:"
    return cells.build_anomaly(departure, SLOW_COMPONENT, components, what, _CHECK_SHARED_PARTS)


def _remote_better(slice_cells: SliceCells) -> Iterator[Anomaly]:
    """Drives that an initiator on another node reads clearly faster than one on their own node."""
    cells, scatter = slice_cells.cells, slice_cells.scatter
    comparisons = int(cells.measured_mask.sum())
    for column, drive in enumerate(cells.columns):
        relations = {
            cells.rows.index(source): first["relation"]
            for (source, target), first in slice_cells.first_rows.items()
            if target == drive
        }
        local = [(row, column) for row, name in relations.items() if name == "same_node"]
        remote = [(row, column) for row, name in relations.items() if name != "same_node"]
        if not local or not remote:
            continue
        own = max(local, key=lambda position: cells.log_score[position])
        best = max(remote, key=lambda position: cells.log_score[position])
        noise = np.hypot(cells.standard_error[own], cells.standard_error[best])
        error = float(np.hypot(noise, scatter.natural))
        departure = slice_cells.loss_against_better_cell(own, best, error, comparisons)
        if departure is not None:
            home, source = cells.rows[own[0]], cells.rows[best[0]]
            yield slice_cells.build_anomaly(
                departure,
                REMOTE_BETTER,
                (drive,),
                f"{source} reads {drive} better than {home} on the drive's own node: locally",
                _CHECK_WIRING,
                reference=best,
                compared_with=f"{source} on the same drive",
                cells=[best, own],
                than=" than remotely",
            )


@dataclass(frozen=True)
class _DriveSet:
    """A set of drives.

    Attributes:
        nodes: the nodes of its drives.
        drives: how many drives it has.
        kind: `target_kind` of the tidy table.
    """

    nodes: frozenset[int]
    drives: int
    kind: str

    @classmethod
    def parse_row(cls, row: pd.Series) -> _DriveSet:
        """Return the drive set of a row of the tidy table."""
        nodes = frozenset(parse_cpu_list(str(row["target_nodes"] or "")))
        return cls(nodes, int(row["drives"]), str(row["target_kind"]))

    def is_subset_of(self, whole: _DriveSet) -> bool:
        """Whether it has the first drives of the other's node, or all drives of fewer nodes."""
        if self.drives >= whole.drives:
            return False
        if self.nodes == whole.nodes:
            return len(self.nodes) == 1 and self.kind != "drive"
        # Drives of an unknown node are a part of the set of all drives only.
        all_drives = self.kind in ("all_of_node", "all_of_nodes")
        return all_drives and bool(self.nodes) and self.nodes < whole.nodes


def find_losses_by_adding_drives(rows: Measurements) -> list[Anomaly]:
    """Drive sets with less bandwidth than a part of them.

    Of the sets of each node, and of the sets that span nodes, the worst is reported.

    Args:
        rows: loads alone on drive sets, valid, without stand-in files.
    """
    found: list[Anomaly] = []
    for where, part in rows.comparable_slices():
        cells = SliceCells(part.rows, where, ("target",))
        firsts = {target: row for (_, target), row in cells.first_rows.items()}
        sets = [_DriveSet.parse_row(firsts[name]) for name in cells.cells.columns]
        measured, log_score = cells.cells.measured_mask, cells.cells.log_score
        by_node: dict[frozenset[int], list[Anomaly]] = {}
        for row, column in positions_of(measured):
            whole = sets[column]
            parts = [
                number
                for number, other in enumerate(sets)
                if measured[row, number] and other.is_subset_of(whole)
            ]
            if parts:
                best = max(parts, key=_score_in_row(log_score[row]))
                anomaly = _set_anomaly(cells, row, column, best, whole)
                if anomaly is not None:
                    key = whole.nodes if len(whole.nodes) == 1 else frozenset()
                    by_node.setdefault(key, []).append(anomaly)
        found += [_worst_of(similar) for similar in by_node.values()]
    return found


def _score_in_row(scores: np.ndarray) -> Callable[[int], float]:
    return lambda column: float(scores[column])


def _set_anomaly(
    cells: SliceCells, row: int, column: int, best: int, whole: _DriveSet
) -> Anomaly | None:
    """The anomaly of a set against its best part, if it is clear."""
    scored = cells.cells
    error = float(np.hypot(scored.standard_error[row, best], scored.standard_error[row, column]))
    # The best of several parts is selected, so noise alone makes it better than the whole.
    comparisons = int(scored.measured_mask.sum()) * len(scored.columns)
    departure = cells.loss_against_better_cell((row, column), (row, best), error, comparisons)
    if departure is None:
        return None
    source, name, part = scored.rows[row], scored.columns[column], scored.columns[best]
    return cells.build_anomaly(
        departure,
        ADDING_DRIVES,
        tuple(node_name(node) for node in sorted(whole.nodes)),
        f"{source} gets less from {name} than from its part {part}:",
        _CHECK_ADDED_DRIVES,
        than="",
        reference=(row, best),
        compared_with=f"{part}, a part of it",
        cells=[(row, column)],
    )


def _worst_of(similar: Sequence[Anomaly]) -> Anomaly:
    """The worst of similar anomalies, with the number of the others."""
    worst = max(similar, key=lambda anomaly: anomaly.loss_percent)
    others = {(other.initiator, other.target) for other in similar}
    others -= {(worst.initiator, worst.target)}
    if not others:
        return worst
    sets = len({target for _, target in others})
    sources = join_with_and(sorted({str(source) for source, _ in others}))
    also = f"The same holds for {format_count(sets, 'other set')}, seen from {sources}."
    cells = tuple(cell for anomaly in similar for cell in anomaly.cells)
    return replace(worst, cells=cells, also=(also,))
