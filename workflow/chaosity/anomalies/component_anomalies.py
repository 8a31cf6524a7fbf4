"""Find slow drives, drive sets, processing units, cores and L3 domains of a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.anomalies.cell_groups import TidyTableSliceCells
from chaosity.anomalies.cell_log_scores import Departure, SuspectedComponent
from chaosity.cpusets import parse_cpu_list
from chaosity.place_names import initiator_to_target_name, node_name, parse_place_name, place_words
from chaosity.store.measurements import Measurements
from chaosity.units import format_count


@dataclass
class CheckResult:
    """Result of the tests of one kind of component, or of matrices or sweeps."""

    noun: str = ""  # kind of component; empty if `tested` is set otherwise
    tested: str = ""  # what was tested; empty if nothing could be compared
    anomalies: list[Anomaly] = field(default_factory=list)  # the detected anomalies
    # Names of the components for which there were others to compare with.
    compared: set[str] = field(default_factory=set)
    # Number of tests of the host -> smallest detectable loss of a single cell in per cent; one
    # function for each slice.
    detectable: list[Callable[[int], float]] = field(default_factory=list)
    tests_count: int = 0  # number of tests, each with its own adjustment for its comparisons

    def add_tested_cells(self, cells: TidyTableSliceCells, axis: int) -> None:
        """Add the names and smallest detectable loss of the tested cells of a slice.

        The tested components are the initiators (axis 0) or the targets (axis 1).
        """
        names = (cells.cells.rows, cells.cells.columns)[axis]
        tested = np.any(cells.tested_mask, axis=1 - axis).tolist()
        if any(tested):
            self.tests_count += 1
            self.detectable.append(cells.smallest_detectable_loss_percent)
        self.compared.update(compress(names, tested))
        if self.compared:
            self.tested = format_count(len(self.compared), f"comparable {self.noun}")

    def typical_detectable_percent(self, tests_count: int) -> float | None:
        """Return the typical detectable loss in per cent, for this number of tests of the host."""
        losses = [least(tests_count) for least in self.detectable]
        return float(np.median(losses)) if losses else None


def find_slow_initiators_and_memory(
    rows: Measurements, core_kinds: Mapping[str, str], units: Mapping[int, str]
) -> CheckResult:
    """Find slow processing units, cores and L3 domains, and memory that is slow for all of them.

    `rows` must be valid rows of loads alone that each access one memory node, from slices with
    several initiators per node. `core_kinds` is the kind of core of each initiator, where the host
    has several kinds; cores of different kinds are not comparable. `units` is the first
    processing unit of each node.
    """
    check = CheckResult("initiator")
    for where, part in rows.comparable_slices():
        own = part.rows.assign(
            known_distance=part.rows["distance"].astype(float).fillna(-1.0),
            core_kind=[core_kinds.get(name, "") for name in part.rows["initiator"]],
        )
        cells = TidyTableSliceCells(
            own, where, ("relation", "known_distance", "threads", "core_kind")
        )
        check.add_tested_cells(cells, axis=0)
        suspects = [
            *cells.each_initiator_or_target("initiator", 0),
            *cells.each_initiator_or_target("target", 1),
        ]
        departures = cells.find_departing_suspects_and_cells(suspects, cells.untested)
        check.anomalies += [_slow_on_memory(cells, departure, units) for departure in departures]
    return check


def _slow_on_memory(
    cells: TidyTableSliceCells, departure: Departure, units: Mapping[int, str]
) -> Anomaly:
    source, target = cells.cells.initiator_and_target(departure.cells[0])
    on_one_target = int(cells.cells.measured_mask[departure.cells[0][0]].sum()) == 1
    nodes = str(cells.first_rows[source, target]["initiator_nodes"])
    # Cores of several nodes find it slow, those of its own node too: they share only the memory.
    from_all = not nodes.isdigit() and target in map(node_name, parse_cpu_list(nodes))
    if from_all or (departure.suspect is not None and departure.suspect.part == "target"):
        return cells.build_anomaly(departure, "memory", (target,), (target,))
    if departure.suspect is not None or on_one_target:
        unit = _single_unit(source, units) or source
        return cells.build_anomaly(departure, "processing_units", (unit,), (unit,))
    # The path between the nodes is suspected, whichever unit of the node it was seen from.
    path = initiator_to_target_name(f"node{nodes}", target)
    return cells.build_anomaly(departure, "path_of_units", (source, target), (path,))


def _single_unit(initiator: str, units: Mapping[int, str]) -> str | None:
    """Return the processing unit of a name such as node3_threads1; None for several units."""
    count, nodes = threads_of_nodes(initiator)
    return units.get(nodes[0]) if count == 1 and nodes else None


def threads_of_nodes(initiator: str) -> tuple[int, list[int]]:
    """Return threads and nodes of a name such as node3_threads2; 0 threads for other names.

    The first thread runs on the first processing unit of the node.
    """
    name = parse_place_name(initiator)
    if name is None:
        return 0, []
    return name.count or 0, [node for group in name.groups for node in group.nodes_in_name]


def find_slow_drives_and_drive_paths(rows: Measurements, models: Mapping[str, str]) -> CheckResult:
    """Find slow drives, slow paths to drives, and drives that another node reads faster.

    `rows` must be valid rows of loads alone on single drives, without stand-in files. A drive that
    is not in `models` (drive -> model) is not compared.
    """
    check = CheckResult("drive")
    for where, part in rows.comparable_slices():
        own = part.rows.assign(model=[models.get(name, name) for name in part.rows["target"]])
        cells = TidyTableSliceCells(own, where, ("relation", "model"))
        check.add_tested_cells(cells, axis=1)
        found = cells.find_departing_suspects_and_cells(
            list(_drive_suspects(cells)), cells.untested
        )
        check.anomalies += [_slow_drive(cells, departure) for departure in found]
        check.anomalies += _remote_better(cells)
        check.tests_count += 1
    return check


def _drive_suspects(cells: TidyTableSliceCells) -> Iterator[SuspectedComponent]:
    yield from cells.each_initiator_or_target("drive", 1)
    yield from cells.each_initiator_or_target("initiator", 0)
    nodes: dict[str, list[str]] = {}
    for (_, drive), first in cells.first_rows.items():
        nodes.setdefault(str(first["target_nodes"]), []).append(drive)
    for node, drives in nodes.items():
        if len(set(drives)) > 1 and len(nodes) > 1:
            masks = [cells.cells.mask_of_place(target=drive) for drive in drives]
            yield SuspectedComponent("node", node, np.any(masks, axis=0))


def _slow_drive(cells: TidyTableSliceCells, departure: Departure) -> Anomaly:
    names = [cells.cells.initiator_and_target(position) for position in departure.cells]
    source, drive = names[0]
    on_several = int(cells.cells.measured_mask[:, departure.cells[0][1]].sum()) > 1
    if departure.suspect is None and on_several:
        return cells.build_anomaly(departure, "drive_path", (source, drive), (drive,))
    if departure.suspect is None or departure.suspect.part == "drive":
        return cells.build_anomaly(departure, "drive", (drive,), (drive,))
    if departure.suspect.part == "initiator":
        return cells.build_anomaly(departure, "units_on_drives", (source,), (source,))
    drives, node = sorted({name for _, name in names}), str(departure.suspect.name)
    owner, own = (f"node {node}", [f"node{node}"]) if node else ("no known node", [])
    shared = "drives_with_shared_parts"
    return cells.build_anomaly(departure, shared, (len(drives), owner), (*own, *drives))


def _remote_better(slice_cells: TidyTableSliceCells) -> Iterator[Anomaly]:
    """Yield an anomaly for each drive that another node reads clearly faster than its own node."""
    cells, scatter = slice_cells.cells, slice_cells.scatter
    comparisons = int(cells.measured_mask.sum())
    for column, drive in enumerate(cells.columns):
        is_local = {
            (cells.rows.index(source), column): first["relation"] == "same_node"
            for (source, target), first in slice_cells.first_rows.items()
            if target == drive
        }
        if len(set(is_local.values())) < 2:
            continue
        own, best = (
            max(
                (position for position, local in is_local.items() if local == wanted),
                key=lambda position: cells.log_score[position],
            )
            for wanted in (True, False)
        )
        noise = np.hypot(cells.standard_error[own], cells.standard_error[best])
        error = float(np.hypot(noise, scatter.natural))
        departure = slice_cells.loss_against_cell(own, best, error, comparisons)
        if departure is not None:
            home, source = (place_words(cells.rows[row]) for row, _ in (own, best))
            yield slice_cells.build_anomaly(
                departure,
                "drive_wiring",
                (source, drive, home),
                (drive,),
                reference=best,
                compared_with=f"{source} on the same drive",
                cells=[best, own],
                than=" than remotely",
            )
