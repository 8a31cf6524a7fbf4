"""Find slow drives, drive sets, processing units, cores and L3 domains of a host."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, permutations
from typing import Any

import numpy as np

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.anomalies.anomaly_text import ADVICE, CHECK_PROCESSING_UNITS, PATH, TARGET
from chaosity.anomalies.cell_groups import TidyTableSliceCells
from chaosity.anomalies.cell_log_scores import Position, cell_positions_in_mask
from chaosity.anomalies.departure_significance import Departure, SuspectedComponent
from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.cpusets import parse_cpu_list
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.store.measurements import Measurements
from chaosity.units import format_count, join_with_and

_CHECK_DRIVE = (
    "Look at the drive's link (lspci -vv: LnkSta), temperature and wear (nvme smart-log), or "
    "replace the drive. The next run measures only the points that use this drive."
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
    "(swapped cable or slot), or its interrupts may be bound to another node."
)
_CHECK_PATH_BETWEEN_PACKAGES = (
    "Look at the firmware's settings for I/O between the packages (preferred I/O, relaxed "
    "ordering, link width) and at the root ports of these drives."
)
_CHECK_ADDED_DRIVES = (
    "Look at what the added drives share with the others: a switch, a root complex, memory "
    "channels of the node that receives the data. Let this node read fewer drives at once."
)


@dataclass
class ComponentCheckResult:
    """Result of the test of one kind of component.

    Attributes:
        anomalies: the detected anomalies.
        compared: names of the components for which there were others to compare with.
        detectable: smallest detectable loss of a single cell in each slice, in per cent.
    """

    anomalies: list[Anomaly] = field(default_factory=list)
    compared: set[str] = field(default_factory=set)
    detectable: list[float] = field(default_factory=list)

    def add_tested_cells(self, cells: TidyTableSliceCells, names: Sequence[str], axis: int) -> None:
        """Add the names and smallest detectable loss of the tested cells of a slice.

        `axis` is the axis along which the cells of one component in `names` lie.
        """
        tested = np.any(cells.tested_mask, axis=axis).tolist()
        if any(tested):
            self.detectable.append(cells.smallest_detectable_loss_percent)
        self.compared.update(compress(names, tested))


def find_slow_initiators_and_memory(
    rows: Measurements, core_kinds: Mapping[str, str]
) -> ComponentCheckResult:
    """Find slow processing units, cores and L3 domains, and memory that is slow for all of them.

    `rows` must be valid rows of loads alone that each access one memory node, from slices with
    several initiators per node. `core_kinds` is the kind of core of each initiator, where the host
    has several kinds; cores of different kinds are not comparable.
    """
    check = ComponentCheckResult()
    for where, part in rows.comparable_slices():
        own = part.rows.assign(
            known_distance=part.rows["distance"].astype(float).fillna(-1.0),
            core_kind=[core_kinds.get(name, "") for name in part.rows["initiator"]],
        )
        cells = TidyTableSliceCells(
            own, where, ("relation", "known_distance", "threads", "core_kind")
        )
        check.add_tested_cells(cells, cells.cells.rows, axis=1)
        suspects = [*cells.each_initiator_as_suspect(), *cells.each_target_as_suspect("target")]
        departures = cells.find_departing_suspects_and_cells(suspects, cells.untested)
        check.anomalies += [_slow_on_memory(cells, departure) for departure in departures]
    return check


def _slow_on_memory(cells: TidyTableSliceCells, departure: Departure) -> Anomaly:
    source, target = cells.cells.initiator_and_target(departure.cells[0])
    on_one_target = int(cells.cells.measured_mask[departure.cells[0][0]].sum()) == 1
    kind, nodes = (
        AnomalyKind.SLOW_COMPONENT,
        str(cells.first_rows[source, target]["initiator_nodes"]),
    )
    # Seen from cores of several nodes, its own among them: no path is common to all of them.
    from_all = not nodes.isdigit() and target in map(node_name, parse_cpu_list(nodes))
    if from_all or (departure.suspect is not None and departure.suspect.part == "target"):
        component, what, advice = target, f"The memory of {target} is slow:", ADVICE[TARGET]
    elif departure.suspect is not None or on_one_target:
        component, what, advice = source, f"{source} is slow on memory:", CHECK_PROCESSING_UNITS
    else:
        # The path between the nodes is suspected, whichever unit of the node it was seen from.
        kind, component = AnomalyKind.SLOW_PATH, initiator_to_target_name(f"node{nodes}", target)
        what, advice = f"The path from {source} to {target} is slow:", ADVICE[PATH]
    return cells.build_anomaly(departure, kind, (component,), what, advice)


def find_slow_drives_and_drive_paths(
    rows: Measurements, models: Mapping[str, str]
) -> ComponentCheckResult:
    """Find slow drives, slow paths to drives, and drives that another node reads faster.

    `rows` must be valid rows of loads alone on single drives, without stand-in files. A drive that
    is not in `models` (drive -> model) is not compared.
    """
    check = ComponentCheckResult()
    for where, part in rows.comparable_slices():
        own = part.rows.assign(model=[models.get(name, name) for name in part.rows["target"]])
        cells = TidyTableSliceCells(own, where, ("relation", "model"))
        check.add_tested_cells(cells, cells.cells.columns, axis=0)
        found = cells.find_departing_suspects_and_cells(
            list(_drive_suspects(cells)), cells.untested
        )
        check.anomalies += [_slow_drive(cells, departure) for departure in found]
        check.anomalies += _remote_better(cells)
    return check


def _drive_suspects(cells: TidyTableSliceCells) -> Iterator[SuspectedComponent]:
    yield from cells.each_target_as_suspect("drive")
    yield from cells.each_initiator_as_suspect()
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
    part = departure.suspect.part if departure.suspect else "drive"
    on_several = int(cells.cells.measured_mask[:, departure.cells[0][1]].sum()) > 1
    kind = AnomalyKind.SLOW_COMPONENT
    components: tuple[str, ...] = (drive,)
    if departure.suspect is None and on_several:
        kind, advice = AnomalyKind.SLOW_PATH, _CHECK_DRIVE_PATH
        what = f"The path from {source} to {drive} is slow:"
    elif part == "initiator":
        components, advice = (source,), CHECK_PROCESSING_UNITS
        what = f"{source} is slow on drives:"
    elif departure.suspect is None or part != "node":
        what, advice = f"{drive} is slow:", _CHECK_DRIVE
    else:
        drives, node = sorted({name for _, name in names}), str(departure.suspect.name)
        components, advice = (*([f"node{node}"] if node else []), *drives), _CHECK_SHARED_PARTS
        owner = f"node {node}" if node else "no known node"
        what = f"All {len(drives)} drives of {owner} are slow:"
    return cells.build_anomaly(departure, kind, components, what, advice)


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
        departure = slice_cells.significant_loss_against_cell(own, best, error, comparisons)
        if departure is not None:
            home, source = cells.rows[own[0]], cells.rows[best[0]]
            yield slice_cells.build_anomaly(
                departure,
                AnomalyKind.REMOTE_BETTER,
                (drive,),
                f"{source} reads {drive} better than {home} on the drive's own node: locally",
                _CHECK_WIRING,
                reference=best,
                compared_with=f"{source} on the same drive",
                cells=[best, own],
                than=" than remotely",
            )


def find_asymmetric_drive_paths_between_packages(
    rows: Measurements, packages: PackageNodes
) -> list[Anomaly]:
    """Find pairs of packages that read each other's drives at clearly different speed.

    The drives of a node are compared with those of the node at the same position in the other
    package, if both nodes have equally many drives (document 000, figure 5). `rows` must be valid
    rows of loads alone on drive sets, without stand-in files.
    """
    found: list[Anomaly] = []
    of_nodes = rows.where(target_kind="all_of_node", initiator_kind="node")
    for where, part in of_nodes.comparable_slices():
        cells = TidyTableSliceCells(part.rows, where, ("relation", "drives"))
        # initiator node, node of the drives -> position and number of drives
        reads: dict[tuple[int, int], tuple[Position, int]] = {}
        for position in cell_positions_in_mask(cells.cells.measured_mask):
            first = cells.first_rows[cells.cells.initiator_and_target(position)]
            nodes = int(first["initiator_nodes"]), int(first["target_nodes"])
            reads[nodes] = position, int(first["drives"])
        for near, far in permutations(range(len(packages)), 2):
            pairs = list(_mirrored_reads(reads, packages[near], packages[far]))
            if not pairs:
                continue
            score = cells.cells.log_score
            pairs.sort(key=lambda pair: score[pair[1]] - score[pair[0]])
            departure = cells.significant_median_loss_of_cell_pairs(pairs, len(packages) ** 2)
            if departure is None:
                continue
            shown, mirrored = pairs[len(pairs) // 2]  # the pair with the median loss
            source, target = (package_name(number) for number in (near, far))
            found.append(
                cells.build_anomaly(
                    replace(departure, cells=(shown,)),
                    AnomalyKind.SLOW_PATH,
                    (initiator_to_target_name(source, target),),
                    f"{source} reads the drives of {target} slowly:",
                    _CHECK_PATH_BETWEEN_PACKAGES,
                    than=f" than {target} reads those of {source}",
                    reference=mirrored,
                    compared_with=f"{target} on the drives of {source}",
                    cells=[worse for worse, _ in pairs],
                    seen_at=(source, target),
                )
            )
    return found


def _mirrored_reads(
    reads: Mapping[tuple[int, int], tuple[Position, int]], near: Sequence[int], far: Sequence[int]
) -> Iterator[tuple[Position, Position]]:
    """Yield the cell of each read of `far`'s drives by `near`, and the cell of the opposite read.

    In the opposite read the nodes at the same positions of the other package take part.
    """
    for source, other_source in zip(near, far, strict=True):
        for target, other_target in zip(far, near, strict=True):
            read = reads.get((source, target))
            mirrored = reads.get((other_source, other_target))
            if read and mirrored and read[1] == mirrored[1]:
                yield read[0], mirrored[0]


@dataclass(frozen=True)
class _DriveSet:
    """A drive set: the nodes and the number of its drives, and its `target_kind`."""

    nodes: frozenset[int]
    drives: int
    kind: str

    @classmethod
    def parse_row(cls, row: Mapping[Hashable, Any]) -> _DriveSet:
        """Return the drive set of a row of the tidy table."""
        nodes = frozenset(parse_cpu_list(str(row["target_nodes"] or "")))
        return cls(nodes, int(row["drives"]), str(row["target_kind"]))

    def is_subset_of(self, whole: _DriveSet) -> bool:
        """Return whether it has the first drives of `whole`'s node or the drives of fewer nodes."""
        if self.drives >= whole.drives:
            return False
        if self.nodes == whole.nodes:
            return len(self.nodes) == 1 and self.kind != "drive"
        # Drives of an unknown node are a part of the set of all drives only.
        all_drives = self.kind in ("all_of_node", "all_of_nodes")
        return all_drives and bool(self.nodes) and self.nodes < whole.nodes


def find_losses_by_adding_drives(rows: Measurements) -> list[Anomaly]:
    """Find drive sets that have less bandwidth than a subset of their drives.

    The worst set of each node and the worst set that spans nodes are reported. `rows` must be valid
    rows of loads alone on drive sets, without stand-in files.
    """
    found: list[Anomaly] = []
    for where, part in rows.comparable_slices():
        cells = TidyTableSliceCells(part.rows, where, ("target",))
        firsts = {target: row for (_, target), row in cells.first_rows.items()}
        sets = [_DriveSet.parse_row(firsts[name]) for name in cells.cells.columns]
        by_node: dict[frozenset[int], list[Anomaly]] = {}
        subsets = [
            [number for number, other in enumerate(sets) if other.is_subset_of(whole)]
            for whole in sets
        ]
        measured = cells.cells.measured_mask
        for row, column in cell_positions_in_mask(measured):
            whole = sets[column]
            parts = [number for number in subsets[column] if measured[row, number]]
            anomaly = _set_anomaly(cells, (row, column), parts, whole) if parts else None
            if anomaly is not None:
                key = whole.nodes if len(whole.nodes) == 1 else frozenset()
                by_node.setdefault(key, []).append(anomaly)
        found += [_worst_of(similar) for similar in by_node.values()]
    return found


def _set_anomaly(
    cells: TidyTableSliceCells, position: Position, parts: Sequence[int], whole: _DriveSet
) -> Anomaly | None:
    """Return the anomaly of a drive set if it is clearly slower than its best subset."""
    scored = cells.cells
    best = position[0], parts[int(np.argmax(scored.log_score[position[0], parts]))]
    error = float(np.hypot(scored.standard_error[best], scored.standard_error[position]))
    # The best of several parts is selected, so noise alone makes it better than the whole.
    comparisons = int(scored.measured_mask.sum()) * len(scored.columns)
    departure = cells.significant_loss_against_cell(position, best, error, comparisons)
    if departure is None:
        return None
    (source, name), (_, part) = (
        scored.initiator_and_target(position),
        scored.initiator_and_target(best),
    )
    return cells.build_anomaly(
        departure,
        AnomalyKind.ADDING_DRIVES,
        tuple(node_name(node) for node in sorted(whole.nodes)),
        f"{source} gets less bandwidth from {name} than from {part}, a part of these drives:",
        _CHECK_ADDED_DRIVES,
        than="",
        reference=best,
        compared_with=f"{part}, a part of these drives",
    )


def _worst_of(similar: Sequence[Anomaly]) -> Anomaly:
    """Return the worst of similar anomalies, with the number of the others."""
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
