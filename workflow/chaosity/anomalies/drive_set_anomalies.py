"""Find drives that are slow only together, and drive sets that lose bandwidth by adding drives.

Drives together reach at most the sum of what their parts reach, and at most what the initiator can
take. So the expected bandwidth of a drive set is the lowest of three values:

- the sum over parts of the set, for each division into parts that were measured;
- the typical bandwidth of comparable sets: drives of the same models on nodes of the same
  relations to the initiator;
- this typical bandwidth, less what the initiator loses in most of its sets with as many drives.

A loss that slower parts or a slow initiator explain is therefore no departure. What remains is
explained by the smallest drive sets first: the loss of a set is also expected of all larger sets
that contain it. If the sets that depart alike involve all nodes that comparable sets have, the
machine is built so, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, SliceKey
from chaosity.anomalies.anomaly_text import shorten_list
from chaosity.anomalies.cell_groups import TidyTableSliceCells
from chaosity.anomalies.cell_log_scores import (
    Mask,
    Position,
    Scores,
    cell_positions_in_mask,
)
from chaosity.anomalies.component_anomalies import (
    CHECK_SHARED_PARTS,
    ComponentCheckResult,
)
from chaosity.anomalies.departure_significance import (
    Departure,
    SuspectedComponent,
    estimate_scatter_without_faults,
)
from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.cpusets import parse_cpu_list
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.units import format_count, join_with_and

_CHECK_PATH_BETWEEN_PACKAGES = (
    "Look at the firmware's settings for I/O between the packages (preferred I/O, relaxed "
    "ordering, link width) and at the root ports of these drives."
)
_CHECK_SHARED_PATH = (
    "Look at what these drives share on the way to these initiators: links between the packages, "
    "root complexes, and the firmware's settings for I/O (preferred I/O, relaxed ordering). Read "
    "these drives from their own package, or not at the same time."
)
_CHECK_ADDED_DRIVES = (
    "Look at what the added drives share with the others: a switch, a root complex, memory "
    "channels of the node that receives the data. Let this node read fewer drives at once."
)
# Losses are alike if one is at least this share of the other: noise takes from one.
_SIMILAR = 0.4
_MOST_INITIATORS = 8  # in a sentence
# The parts of a machine that can be suspected.
_DRIVES, _PATH, _PACKAGES = "drives", "path", "packages"

DrivesByNode = Mapping[int, frozenset[str]]


def drives_by_node_of_sets(rows: Measurements) -> dict[str, DrivesByNode]:
    """Return drive set -> node -> names of the set's drives at this node.

    A set is left out if its drives are unknown: drives of unknown nodes, or the first drives of a
    node of which neither the single drives nor all drives together were measured.
    """
    columns = ["target", "target_kind", "target_nodes", "drives"]
    sets = rows.rows[columns].drop_duplicates("target").sort_values("target")
    at_node: dict[str, list[str]] = {}
    for name, kind, nodes, _ in sets.itertuples(index=False):
        if kind == "drive":
            at_node.setdefault(str(nodes or ""), []).append(name)
    for _, kind, nodes, number in sets.itertuples(index=False):
        if kind == "all_of_node" and len(at_node.get(str(nodes), [])) < int(number):
            at_node[str(nodes)] = [f"{nodes}#{index}" for index in range(int(number))]
    found: dict[str, DrivesByNode] = {}
    for name, kind, nodes, number in sets.itertuples(index=False):
        first = int(number) if kind == "first_of_node" else None
        own = {
            node: frozenset([name] if kind == "drive" else at_node.get(str(node), [])[:first])
            for node in parse_cpu_list(str(nodes or ""))
        }
        if sum(map(len, own.values())) == int(number):
            found[name] = own
    return found


class DriveSetCells(TidyTableSliceCells):
    """Bandwidths of drive sets, with the value that parts and comparable sets let expect.

    Attributes:
        drives: drives of each column; empty if they are unknown.
        nodes: nodes of the drives of each column; empty if the drives are unknown.
        drives_of_node: node -> its drives.
        parts: columns of the smaller sets that each column contains.
        initiator_nodes: nodes of each row.
    """

    def __init__(
        self,
        rows: pd.DataFrame,
        where: SliceKey,
        sets: Mapping[str, DrivesByNode],
        models: Mapping[str, str],
    ) -> None:
        """Compare the rows of a slice; `models` is drive -> model."""
        compositions = _compositions(rows, sets, models)
        places = zip(rows["initiator"], rows["target"], strict=True)
        rows = rows.assign(composition=[compositions[place] for place in places])
        super().__init__(rows, where, ("composition",))
        columns = [sets.get(name, {}) for name in self.cells.columns]
        self.drives = [frozenset[str]().union(*own.values()) for own in columns]
        self.nodes = [frozenset(own) for own in columns]
        self.drives_of_node: dict[int, frozenset[str]] = {}
        for node, drives in (item for own in columns for item in own.items()):
            self.drives_of_node[node] = self.drives_of_node.get(node, drives) | drives
        self.parts = [
            [column for column, part in enumerate(self.drives) if part and part < whole]
            for whole in self.drives
        ]
        nodes_of = dict(zip(rows["initiator"], rows["initiator_nodes"], strict=True))
        self.initiator_nodes = [set(parse_cpu_list(nodes_of[name])) for name in self.cells.rows]
        self._expect()

    def _expect(self) -> None:
        """Compute expected scores, departures and scatter; mark the cells that cannot be tested."""
        number = np.array([len(drives) for drives in self.drives])
        # Single drives have a test of their own.
        self.labels = np.where(number > 1, self.labels, -1)
        self.untested = self.labels < 0
        for label in np.unique(self.labels[~self.untested]):
            part = self.labels == label
            if np.count_nonzero(part.any(axis=0)) < 2:
                self.untested |= part
        self.expected = np.fmin(self.expected, self._sum_of_parts())
        departures = np.where(self.untested, np.nan, self.cells.log_score - self.expected)
        for row, own in enumerate(departures):
            for drives in set(number[~np.isnan(own)].tolist()):
                alike = (number == drives) & ~np.isnan(own)
                middle = np.count_nonzero(alike) // 2
                typical = np.sort(own[alike])[middle]
                if typical < -self.scatter.matters / 2.0:
                    # Most sets are slow: the initiator is, by a share or down to a limit.
                    limit = np.sort(self.cells.log_score[row, alike])[middle]
                    reduced = np.minimum(self.expected[row, alike] + typical, limit)
                    self.expected[row, alike] = reduced
        self.departures = self.cells.log_score - self.expected
        tested = np.where(self.untested, -1, self.labels)
        if not self.untested.all():
            self.scatter = estimate_scatter_without_faults(self.cells, self.departures, tested)

    def _sum_of_parts(self) -> Scores:
        """Return the score of the smallest sum of parts of each set; infinite without parts."""
        values = np.exp(self.cells.log_score)
        column_of = {drives: column for column, drives in enumerate(self.drives) if drives}
        least = np.full(values.shape, np.inf)
        for whole, column in column_of.items():
            nodes = self.nodes[column]
            divisions = [[frozenset([drive]) for drive in whole]]
            if len(nodes) > 1:
                # Of a large machine only some sets are measured, but each node.
                divisions = [[whole & self.drives_of_node[node] for node in nodes]]
                halves = [self.drives[part] for part in self.parts[column]]
                divisions += [
                    [part, whole - part] for part in halves if 2 * len(part) <= len(whole)
                ]
            for parts in divisions:
                if len(parts) > 1 and all(part in column_of for part in parts):
                    total = values[:, [column_of[part] for part in parts]].sum(axis=1)
                    least[:, column] = np.fmin(least[:, column], total)
        scores: Scores = np.log(least)
        return scores

    def smallest_first(self) -> list[int]:
        """Return the columns in which a cell departs: sets of few nodes first, then large losses.

        Of the sets of one node, the set with the largest loss shows best which drives share a part.
        """
        departing = (self.departures < -self.scatter.matters) & self.tested_mask
        losses = np.nan_to_num(-self.departures).mean(axis=0)
        columns = np.flatnonzero(departing.any(axis=0)).tolist()
        return sorted(columns, key=lambda each: (len(self.nodes[each]), -losses[each]))

    def suspects(self, packages: PackageNodes) -> Iterator[SuspectedComponent]:
        """Yield what can be slow, smaller sets first.

        First drive sets seen from all initiators, then all sets of as many nodes between two
        packages, then drive sets seen from initiators of the same relation.
        """
        by_size = self.smallest_first()
        for column in by_size:
            rows = self.tested_mask[:, column]
            labels, departures = self.labels[rows, column], self.departures[rows, column]
            losses = [-np.median(departures[labels == label]) for label in np.unique(labels)]
            if losses and min(losses) >= _SIMILAR * max(losses):
                yield self._suspect(_DRIVES, column, rows)
        for size in range(1, max(map(len, packages), default=0) + 1):
            for near, far in permutations(range(len(packages)), 2):
                near_rows = [nodes <= set(packages[near]) for nodes in self.initiator_nodes]
                columns = [
                    len(nodes) == size and nodes <= set(packages[far]) and self.is_whole(column)
                    for column, nodes in enumerate(self.nodes)
                ]
                cells = np.logical_and.outer(near_rows, columns) & self.tested_mask
                yield SuspectedComponent(_PACKAGES, (near, far), cells)
        for column in by_size:
            for label in np.unique(self.labels[:, column]):
                yield self._suspect(_PATH, column, self.labels[:, column] == label)

    def _suspect(self, part: str, column: int, rows: Mask) -> SuspectedComponent:
        """Return a drive set, seen from the initiators of these rows, as a suspect."""
        cells = np.zeros(self.labels.shape, dtype=bool)
        cells[rows, column] = True
        return SuspectedComponent(part, self.cells.columns[column], cells & self.tested_mask)

    def is_whole(self, column: int) -> bool:
        """Return whether a set has all drives of its nodes."""
        every = sum(len(self.drives_of_node[node]) for node in self.nodes[column])
        return len(self.drives[column]) == every

    def is_structural(self, departure: Departure) -> bool:
        """Return whether the sets of as many nodes that depart alike involve all nodes."""
        size = len(self.nodes[departure.cells[0][1]])
        alike = (self.departures <= -_SIMILAR * departure.loss) & self.tested_mask
        departing = alike.sum(axis=0) >= _SIMILAR * len(departure.cells)
        columns = [column for column, nodes in enumerate(self.nodes) if len(nodes) == size]
        of_all = {node for column in columns for node in self.nodes[column]}
        return size > 1 and of_all == {
            node for column in columns if departing[column] for node in self.nodes[column]
        }

    def largest_set_with_same_limit(self, departure: Departure) -> SuspectedComponent | None:
        """Return the largest set with more nodes than a slow set that reaches no more; or None.

        If a path carries less than the drives of each of its nodes, each node is slow alone, and so
        are all of them. If any further node adds nothing, the smaller set is the reason.
        """
        column = departure.cells[0][1]
        rows = np.isin(np.arange(len(self.cells.rows)), [row for row, _ in departure.cells])
        scores = self.cells.log_score[rows]
        gains = np.median(scores - scores[:, [column]], axis=0)
        by_size: dict[int, list[int]] = {}
        for other in np.flatnonzero(gains < self.scatter.matters / 2.0).tolist():
            if self.nodes[other] > self.nodes[column] and self.is_whole(other):
                by_size.setdefault(len(self.nodes[other]), []).append(other)
        largest = by_size[max(by_size)] if by_size else []
        return self._suspect(_PATH, largest[0], rows) if len(largest) == 1 else None

    def explained_cells(self, departure: Departure) -> Mask:
        """Return the mask of the cells that a departure explains, and expect it of larger sets.

        It explains its own cells and all sets of no other nodes. Larger sets are expected to lose
        as much, but those that contain a path between packages have parts that say enough.
        """
        rows = np.isin(np.arange(len(self.cells.rows)), [row for row, _ in departure.cells])
        columns = {column for _, column in departure.cells}
        contained = [any(own <= self.nodes[column] for column in columns) for own in self.nodes]
        explained = np.logical_and.outer(rows, contained)
        if departure.suspect is not None and departure.suspect.part != _PACKAGES:
            larger = [any(drives > self.drives[slow] for slow in columns) for drives in self.drives]
            departed = self.departures < -self.scatter.matters
            self.lower(np.logical_and.outer(rows, larger) & ~explained, departure.loss)
            explained |= departed & ~(self.departures < -self.scatter.matters)
        return explained

    def lower(self, cells: Mask, loss: float) -> None:
        """Expect less of these cells, by a difference of logarithms."""
        self.expected = self.expected - np.where(cells, loss, 0.0)
        self.departures = self.cells.log_score - self.expected


def _compositions(
    rows: pd.DataFrame, sets: Mapping[str, DrivesByNode], models: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Return initiator and drive set -> a text that is equal for comparable sets.

    Each node of the set has a relation, its distance in the SLIT, and the models of its drives.
    Drives of unknown model are not comparable.
    """
    columns = ["initiator", "target", "target_nodes", "relation", "distance"]
    cells = list(rows[columns].drop_duplicates(["initiator", "target"]).itertuples(index=False))
    places = {
        (initiator, int(nodes)): f"{relation} {distance}"
        for initiator, _, nodes, relation, distance in cells
        if str(nodes).isdigit()
    }
    return {
        (initiator, target): str(
            sorted(
                (
                    places.get((initiator, node), f"{relation} {distance}"),
                    sorted(models.get(drive, drive) for drive in drives),
                )
                for node, drives in sets.get(target, {}).items()
            )
        )
        for initiator, target, _, relation, distance in cells
    }


def find_slow_drive_sets(
    rows: Measurements,
    packages: PackageNodes | None,
    models: Mapping[str, str],
    slow_drives: Sequence[Anomaly],
) -> ComponentCheckResult:
    """Find drives that are slow together, and sets slower than a part of their drives.

    Args:
        rows: valid rows of loads alone on drives and drive sets, without stand-in files.
        packages: nodes of each package; None when unknown.
        models: drive -> model.
        slow_drives: anomalies of single drives, which explain losses of the sets with these drives.
    """
    check = ComponentCheckResult()
    sets = drives_by_node_of_sets(rows)
    slices = [
        DriveSetCells(part.rows, where, sets, models)
        for where, part in rows.comparable_slices()
        if not less_is_better(str(where["metric"]))
    ]
    comparisons = sum(int(cells.tested_mask.sum()) for cells in slices)
    for cells in slices:
        check.add_tested_cells(cells, cells.cells.columns, axis=0)
        check.anomalies += _losses_by_adding_drives(cells)
        for anomaly in slow_drives:
            affected = np.array([bool(drives & set(anomaly.components)) for drives in cells.drives])
            cells.lower(affected, -np.log1p(-anomaly.loss_percent / 100.0))
        remaining = cells.tested_mask.copy()
        for suspect in cells.suspects(packages or ()):
            departure = cells.departure_of_suspect(suspect, remaining, comparisons, 1)
            if departure is None or cells.is_structural(departure):
                continue
            if suspect.part != _PACKAGES:
                larger = cells.largest_set_with_same_limit(departure)
                of_larger = larger and cells.departure_of_suspect(larger, remaining, comparisons, 1)
                departure = of_larger or departure
            anomaly = _slow_together(cells, departure)
            departed = remaining & (cells.departures < -cells.scatter.matters)
            explained = cells.explained_cells(departure)
            others = map(
                cells.cells.initiator_and_target, cell_positions_in_mask(explained & departed)
            )
            names = tuple(dict.fromkeys([*anomaly.cells, *others]))
            check.anomalies.append(replace(anomaly, cells=names))
            remaining &= ~explained
    return check


def _slow_together(cells: DriveSetCells, departure: Departure) -> Anomaly:
    """Return the anomaly of drives that are slow together."""
    assert departure.suspect is not None
    part, name = departure.suspect.part, departure.suspect.name
    rows, columns = zip(*departure.cells, strict=True)
    nodes = [node_name(node) for node in sorted(cells.nodes[columns[0]])]
    initiators = [cells.cells.rows[row] for row in dict.fromkeys(rows)]
    components: tuple[str, ...]
    if isinstance(name, tuple):
        source, target = map(package_name, name)
        seen_at: tuple[str | None, str] = (source, target)
        components, advice = (
            (initiator_to_target_name(source, target),),
            _CHECK_PATH_BETWEEN_PACKAGES,
        )
        together = f", {len(nodes)} nodes at a time" if len(nodes) > 1 else ""
        what = f"{source} reads the drives of {target} slowly{together}:"
    else:
        seen_at = (initiators[0] if len(initiators) == 1 else None, str(name))
        components, advice = tuple(nodes), _CHECK_SHARED_PATH
        if part == _DRIVES and len(nodes) == 1:
            drives = sorted(drive for drive in cells.drives[columns[0]] if "#" not in drive)
            components, advice = (*nodes, *drives), CHECK_SHARED_PARTS
        some = "" if cells.is_whole(columns[0]) else f"first {len(cells.drives[columns[0]])} "
        readers = join_with_and(shorten_list(initiators, _MOST_INITIATORS))
        readers = "all initiators" if len(initiators) == len(cells.cells.rows) else readers
        what = f"The {some}drives of {join_with_and(nodes)} are slow together, read from {readers}:"
    comparable = np.isin(cells.labels, [cells.labels[position] for position in departure.cells])
    others = format_count(int(comparable.sum()) - len(rows), "value")
    return cells.build_anomaly(
        departure,
        AnomalyKind.SLOW_PATH,
        components,
        what,
        advice,
        than=" than comparable drive sets",
        compared_with=f"the sum of their parts and {others} of comparable drive sets",
        seen_at=seen_at,
    )


def _losses_by_adding_drives(cells: DriveSetCells) -> list[Anomaly]:
    """Return drive sets that have less bandwidth than a subset of their drives.

    The worst set of each node and the worst set that spans nodes are returned.
    """
    by_node: dict[frozenset[int], list[Anomaly]] = {}
    scores = cells.cells.log_score
    for column, parts in enumerate(cells.parts):
        gains = scores[:, parts] - scores[:, [column]]
        for row in np.flatnonzero((gains > cells.scatter.matters).any(axis=1)).tolist():
            better = [part for part in parts if scores[row, part] > scores[row, column]]
            anomaly = _set_anomaly(cells, (row, column), better)
            if anomaly is not None:
                nodes = cells.nodes[column]
                by_node.setdefault(nodes if len(nodes) == 1 else frozenset(), []).append(anomaly)
    return [_worst_of(similar) for similar in by_node.values()]


def _set_anomaly(cells: DriveSetCells, position: Position, parts: Sequence[int]) -> Anomaly | None:
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
        tuple(node_name(node) for node in sorted(cells.nodes[position[1]])),
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
