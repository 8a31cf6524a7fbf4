"""Find drives that are slow only together, and sets that lose bandwidth if drives are added.

A drive set has at most the sum of the bandwidths of its parts, and at most the bandwidth of
comparable sets. Comparable sets have drives of the same models, on nodes of the same relations to
the initiator. A set below both limits has a loss that no smaller set shows. The suspects are each
set (read by all initiators, by initiators of one relation, or by initiators of another package) and
the path from one package to the drives of another package. Two cases are not reported. If nearly
all sets that an initiator reads are slow, the drives are not at fault. If sets with similar
departures include all nodes and all initiators of comparable sets, the departure is structural.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, permutations, product

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, SliceKey
from chaosity.anomalies.cell_groups import ComparedCells, TidyTableSliceCells
from chaosity.anomalies.cell_log_scores import (
    Departure,
    Mask,
    Position,
    Scores,
    SuspectedComponent,
    cell_positions_in_mask,
    mask_of_cells,
)
from chaosity.anomalies.component_anomalies import AnomalyTestResult
from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.cpusets import parse_cpu_list
from chaosity.drive_set_predictions import DrivesByNode, drives_by_node_of_sets
from chaosity.place_names import (
    initiator_to_target_name,
    node_name,
    package_name,
    place_in_words,
    places_in_words,
)
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.units import format_count

# Least ratio of the smaller to the larger of two losses that count as similar, since both losses
# have noise.
_LEAST_RATIO_OF_SIMILAR_LOSSES = 0.4
_MOST_NAMED_INITIATORS = 8  # largest number of initiators that a sentence names
_ADVICE_IF_DRIVES_ARE_FAST_ALONE = (
    "None of these drives is slow alone, so replacing a drive does not help."
)
_FEWEST_DRIVES_OF_MODEL = 3  # fewest drives of a model that show its usual speed
# The kinds of suspects in this module.
_DRIVES, _PATH, _PACKAGES, _INITIATOR = "drives", "path", "packages", "initiator"
# As a path, but it is compared only with sets that use other paths between packages. So it is found
# although most paths between the same two packages are slow.
_ONE_OF_SLOW_PATHS = "one of slow paths"


def find_slow_drive_sets(
    rows: Measurements,
    packages: PackageNodes | None,
    models: Mapping[str, str],
    slow_drives: Sequence[Anomaly],
    drives: Mapping[int, Sequence[str]],
) -> AnomalyTestResult:
    """Find drives that are slow together, and sets that are slower than a part of their drives.

    Args:
        rows: valid rows of loads that ran alone on drives and drive sets, but not on files that
        replace drives.
        packages: nodes of each package; None if unknown.
        models: drive -> model.
        slow_drives: anomalies of single drives, and of initiators that are slow on single drives.
        They explain losses of sets with these drives, and of sets that these initiators read.
        drives: node -> drives of the node that are known without a measurement.
    """
    check = AnomalyTestResult("drive set")
    sets = drives_by_node_of_sets(rows, drives)
    slices = [
        DriveSetCells(part.rows, where, sets, models, packages or ())
        for where, part in rows.comparable_slices()
        if not less_is_better(str(where["metric"]))
    ]
    check.tests_count = 1 if slices else 0  # all slices are one test
    for cells in slices:
        check.add_tested_cells(cells, axis=1)
        check.anomalies += _sets_slower_than_subsets(cells)
        excluded = cells.untested | cells.mask_of_cells_explained_by_drives(slow_drives)
        suspects = list(cells.suspects())
        remaining = ~excluded
        for departure in cells.find_departing_suspects_and_cells(suspects, excluded, len(slices)):
            found = cells.with_suspect(departure, suspects)
            explained = (
                cells.mask_of_explained_cells(found, cells.comparison)
                & cells.losing_mask
                & remaining
            )
            remaining &= ~explained
            if not cells.is_no_fault_of_drives(found):
                anomaly = _anomaly_of_drives_slow_together(cells, found, explained)
                if cells.are_fast_alone(found.cells, slow_drives):
                    anomaly = replace(anomaly, also=(_ADVICE_IF_DRIVES_ARE_FAST_ALONE,))
                check.anomalies.append(anomaly)
    return check


class DriveSetCells(TidyTableSliceCells):
    """The bandwidths of drive sets, compared with comparable sets and with parts of the sets.

    Attributes:
        models: drive -> model.
        packages: nodes of each package; empty if unknown.
        drives: for each column, the drives of its drive set; empty if unknown.
        nodes: for each column, the nodes of its drives; empty if the drives are unknown.
        drives_of_node: node -> drives of the node.
        parts: for each column, the columns with parts of its drive set.
        initiator_nodes: for each row, the nodes of its initiator.
    """

    def __init__(
        self,
        rows: pd.DataFrame,
        where: SliceKey,
        sets: Mapping[str, DrivesByNode],
        models: Mapping[str, str],
        packages: PackageNodes,
    ) -> None:
        """Compare the rows of a slice of the tidy table; `models` maps a drive to its model."""
        compositions = _composition_of_each_cell(rows, sets, models)
        places = zip(rows["initiator"], rows["target"], strict=True)
        rows = rows.assign(composition=[compositions[place] for place in places])
        # Small sets come first, because the loss of a small set explains the loss of larger sets.
        super().__init__(rows.sort_values("drives", kind="stable"), where, ("composition",))
        columns = [sets.get(name, {}) for name in self.cells.columns]
        self.models, self.packages = models, packages
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
        # Single drives have no group here, since another test compares them.
        self.labels = np.where([len(drives) > 1 for drives in self.drives], self.labels, -1)
        several = [
            label
            for label in range(self.labels.max() + 1)
            if np.count_nonzero((self.labels == label).any(axis=0)) > 1
        ]
        self.untested = ~np.isin(self.labels, several)
        self.limits = self._sums_of_parts()
        if len(several):
            self.compare_with_cells_without_fault(self.tested_mask)

    def _sums_of_parts(self) -> Scores:
        """Return for each set the score of the lowest sum of its parts; infinite without parts."""
        values = np.exp(self.cells.log_score)
        column_of = {drives: column for column, drives in enumerate(self.drives) if drives}
        least = np.full(values.shape, np.inf)
        for whole, column in column_of.items():
            # On a large machine only some sets are measured, but for each node the set of all its
            # drives is always measured.
            divisions = [{frozenset([drive]) for drive in whole}]
            divisions += [{whole & self.drives_of_node[node] for node in self.nodes[column]}]
            if len(self.nodes[column]) > 1:
                halves = (self.drives[part] for part in self.parts[column])
                divisions += [{half, whole - half} for half in halves]
            for parts in divisions:
                if len(parts) > 1 and parts <= column_of.keys():
                    total = values[:, [column_of[part] for part in parts]].sum(axis=1)
                    least[:, column] = np.fmin(least[:, column], total)
        scores: Scores = np.log(least)
        return scores

    def suspects(self) -> Iterator[SuspectedComponent]:
        """Yield each suspect that can be slow, smaller sets first.

        The suspects are, in this order: each drive set, read by all initiators; all sets of equally
        many nodes that one package reads from another package; each drive set, read by initiators
        of one relation; each drive set of a package, read by initiators of one other package; each
        initiator.
        """
        columns = np.flatnonzero(self.tested_mask.any(axis=0)).tolist()
        packages, paths = self.packages, list(permutations(self.packages, 2))
        for column in columns:
            yield self._make_suspect(_DRIVES, column, self.tested_mask[:, column])
        for size in range(1, max(map(len, packages), default=0) + 1):
            for near, far in permutations(range(len(packages)), 2):
                near_rows = self._rows_of_nodes(packages[near])
                of_far = [
                    len(nodes) == size
                    and nodes <= set(packages[far])
                    and self.has_all_drives_of_its_nodes(column)
                    for column, nodes in enumerate(self.nodes)
                ]
                cells = np.logical_and.outer(near_rows, of_far) & self.tested_mask
                # The drives of one node do not show whether paths to other nodes are slow too.
                if size == 1 and cells.any(axis=0).sum() < min(2, len(packages[far])):
                    continue
                yield SuspectedComponent(_PACKAGES, (near, far), cells)
        for column in columns:
            for label in np.unique(self.labels[self.tested_mask[:, column], column]):
                yield self._make_suspect(_PATH, column, self.labels[:, column] == label)
        for column, (near_nodes, far_nodes) in product(columns, paths):
            if self.nodes[column] <= set(far_nodes):
                rows = self._rows_of_nodes(near_nodes)
                path = self._make_suspect(_ONE_OF_SLOW_PATHS, column, rows)
                if path.cells.any():
                    yield path
        for suspect in self.initiators_or_targets_as_suspects(_INITIATOR, 0):
            yield replace(suspect, cells=suspect.cells & self.tested_mask)

    def _rows_of_nodes(self, nodes: Iterable[int]) -> Mask:
        """Return the mask of the rows whose initiators have all their cores on these nodes."""
        return np.array([own <= set(nodes) for own in self.initiator_nodes], dtype=bool)

    def _make_suspect(self, part: str, column: int, rows: Mask) -> SuspectedComponent:
        """Return the suspect for one drive set that the initiators in `rows` read."""
        cells = np.zeros(self.labels.shape, dtype=bool)
        cells[rows, column] = True
        return SuspectedComponent(part, self.cells.columns[column], cells & self.tested_mask)

    def has_all_drives_of_its_nodes(self, column: int) -> bool:
        """Return whether a set has all drives of each of its nodes."""
        every = sum(len(self.drives_of_node[node]) for node in self.nodes[column])
        return len(self.drives[column]) == every

    def mask_of_references(self, suspect: SuspectedComponent, remaining: Mask) -> Mask:
        """Return the mask of the remaining cells that a suspect's cells are compared with.

        A slow path between packages also slows sets with only some of the drives of a node. A set
        with some drives of one node can be comparable with all drives of a node that has fewer
        drives. So sets with some drives are references only if there are no other references. One
        of several slow paths between two packages is compared with sets that use other paths
        between packages.
        """
        others = super().mask_of_references(suspect, remaining)
        if suspect.part == _ONE_OF_SLOW_PATHS:
            [column] = np.flatnonzero(suspect.cells.any(axis=0))
            [package] = (set(own) for own in self.packages if self.nodes[column] <= set(own))
            alike = [nodes <= package for nodes in self.nodes]
            return others & ~np.logical_and.outer(suspect.cells.any(axis=1), alike)
        if suspect.part != _PACKAGES:
            return others
        whole = [self.drives[column] for column in np.flatnonzero(suspect.cells.any(axis=0))]
        columns = [any(drives <= each for each in whole) for drives in self.drives]
        affected = np.logical_and.outer(suspect.cells.any(axis=1), columns)
        unaffected = others & ~affected
        return others & ~(affected & np.isin(self.labels, self.labels[unaffected]))

    def mask_of_explained_cells(self, departure: Departure, comparison: ComparedCells[str]) -> Mask:
        """Return the mask of the cells that a departure explains.

        If drives are slow together, sets of some of these drives are slow too, and larger sets may
        lose as much. For a slow path between packages, larger sets are not added, because the sum
        of their slow parts limits them anyway.
        """
        explained = super().mask_of_explained_cells(departure, comparison)
        assert departure.suspect is not None
        slow = [self.drives[column] for column in np.flatnonzero(explained.any(axis=0))]
        # Slow drives are slow for all initiators.
        rows = explained.any(axis=1) | (departure.suspect.part == _DRIVES)
        columns = [any(drives <= each for each in slow) for drives in self.drives]
        found = explained | np.logical_and.outer(rows, columns)
        if departure.suspect.part == _PACKAGES:
            return found
        columns = [any(drives > each for each in slow) for drives in self.drives]
        alike = comparison.departures > -(departure.loss + self.scatter.smallest_reported_loss)
        return found | (np.logical_and.outer(rows, columns) & alike)

    def is_contradicted(self, departure: Departure, comparison: ComparedCells[str]) -> bool:
        """Return whether a set is fast that the suspected path between packages would slow."""
        assert departure.suspect is not None
        if departure.suspect.part != _PACKAGES:
            return False
        cells = mask_of_cells(departure.cells, self.labels.shape)
        departing = (cells & comparison.departing_mask).sum(axis=0)
        return bool((2 * departing < cells.sum(axis=0)).any())

    def of_largest_group(self, departure: Departure) -> Departure:
        """Return the departure with only those of its cells that are in its largest group.

        Of equally large groups, the one with the most drives is chosen, because it loses most. The
        other cells have other expected values, for example because their nodes have fewer drives.
        So no median over all cells is a value that the tidy table has.
        """
        labels = [int(self.labels[position]) for position in departure.cells]
        sizes = [len(self.drives[column]) for _, column in departure.cells]
        _, _, largest = max(zip(map(labels.count, labels), sizes, labels, strict=True))
        is_own = [label == largest for label in labels]
        positions = tuple(compress(departure.cells, is_own))
        losses = tuple(compress(departure.losses, is_own))
        shift = float(np.median(losses)) - departure.loss
        low, high = departure.low + shift, departure.high + shift
        return replace(departure, cells=positions, losses=losses, low=low, high=high)

    def mask_of_cells_explained_by_drives(self, slow_drives: Sequence[Anomaly]) -> Mask:
        """Return the mask of the cells that lose no more than a known slow drive or initiator.

        If several metrics show the same slow drive, its largest loss counts.
        """
        most = np.full(self.labels.shape, -np.inf)
        for anomaly in slow_drives:
            columns = [not drives.isdisjoint(anomaly.components) for drives in self.drives]
            # A slow path from one initiator to a drive does not slow other initiators.
            sources = {initiator for initiator, _ in anomaly.cells}
            is_path = anomaly.kind == AnomalyKind.SLOW_PATH
            rows = [not is_path or name in sources for name in self.cells.rows]
            loss = -np.log1p(-anomaly.loss_as_share_of_better_value)
            own = np.logical_and.outer(rows, columns)
            is_initiator = sources == set(anomaly.components)  # then all its reads are slow
            own[[is_initiator and name in sources for name in self.cells.rows]] = True
            most = np.where(own, np.fmax(most, loss), most)
        explained: Mask = -self.departures < most + self.scatter.smallest_reported_loss
        return explained

    def are_fast_alone(self, positions: Sequence[Position], slow_drives: Sequence[Anomaly]) -> bool:
        """Return whether every drive of some cells is known to be as fast as others of its model.

        The speed of a drive is its bandwidth for the initiator that reads it fastest.
        """
        drives = frozenset[str]().union(*(self.drives[column] for _, column in positions))
        alone: dict[str, float] = {}
        for column, name in enumerate(self.cells.columns):
            if self.drives[column] == {name} and self.cells.measured_mask[:, column].any():
                alone[name] = float(np.nanmax(self.cells.log_score[:, column]))
        if not drives <= alone.keys() or not drives <= self.models.keys():
            return False
        if any(not drives.isdisjoint(anomaly.components) for anomaly in slow_drives):
            return False
        for drive in drives:
            model = self.models[drive]
            alike = [score for name, score in alone.items() if self.models.get(name) == model]
            if len(alike) < _FEWEST_DRIVES_OF_MODEL:
                return False
            if alone[drive] < np.median(alike) + np.log1p(-self.scatter.smallest_reported_loss):
                return False
        return True

    @property
    def losing_mask(self) -> Mask:
        """The mask of the cells whose loss is large enough to matter."""
        losing: Mask = self.departures < -self.scatter.smallest_reported_loss
        return losing

    def with_suspect(
        self, departure: Departure, suspects: Sequence[SuspectedComponent]
    ) -> Departure:
        """Return the departure with a suspect; a single cell becomes its suspect."""
        if departure.suspect is not None:
            return departure
        [(row, column)] = departure.cells
        alone = self._make_suspect(_PATH, column, np.arange(len(self.cells.rows)) == row)
        same = (each for each in suspects if np.array_equal(each.cells, alone.cells))
        return replace(departure, suspect=next(same, alone))

    def is_no_fault_of_drives(self, departure: Departure) -> bool:
        """Return whether a slow initiator, or the design of the machine, may be the cause."""
        assert departure.suspect is not None
        return (
            departure.suspect.part == _INITIATOR
            or self._may_be_slow_initiator(departure)
            or self._is_loss_similar_in_the_whole_machine(departure)
        )

    def _may_be_slow_initiator(self, departure: Departure) -> bool:
        """Return whether one initiator has all slow cells and should read no other set faster."""
        rows, columns = map(list, zip(*departure.cells, strict=True))
        most = self.cells.log_score[rows, columns].max() + self.scatter.smallest_reported_loss / 2.0
        better = self.tested_mask[rows[0]] & (self.expected[rows[0]] > most)
        return len(set(rows)) == 1 and set(np.flatnonzero(better).tolist()) <= set(columns)

    def _is_loss_similar_in_the_whole_machine(self, departure: Departure) -> bool:
        """Return whether comparable sets have similar losses in the whole machine.

        Sets of equally many nodes are comparable. Their similar losses must include all nodes of
        these sets, and all initiators that read them.
        """
        size = len(self.nodes[departure.cells[0][1]])
        tested = self.tested_mask & np.array([len(nodes) == size for nodes in self.nodes])
        alike = tested & (self.departures <= -_LEAST_RATIO_OF_SIMILAR_LOSSES * departure.loss)
        alike &= alike.sum(axis=0) >= _LEAST_RATIO_OF_SIMILAR_LOSSES * len(departure.cells)
        has_all_initiators = (alike.any(axis=1) == tested.any(axis=1)).all()
        return bool(has_all_initiators and self._nodes_in(alike) == self._nodes_in(tested))

    def _nodes_in(self, cells: Mask) -> set[int]:
        """Return the nodes of the drives of all sets that have a cell in a mask."""
        return {node for column in np.flatnonzero(cells.any(axis=0)) for node in self.nodes[column]}


def _composition_of_each_cell(
    rows: pd.DataFrame, sets: Mapping[str, DrivesByNode], models: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Return (initiator, drive set) -> a text, which is equal for comparable drive sets.

    For each node of the set, the text has the relation to the initiator, the SLIT distance, and the
    models of the drives. Sets with drives of unknown models have no comparable sets.
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


def _anomaly_of_drives_slow_together(
    cells: DriveSetCells, departure: Departure, explained: Mask
) -> Anomaly:
    """Return the anomaly of drives that are slow together, in the cells of the mask `explained`."""
    assert departure.suspect is not None
    part, name, all_cells = departure.suspect.part, departure.suspect.name, departure.cells
    if part == _PACKAGES:
        departure = cells.of_largest_group(departure)
    rows, columns = zip(*departure.cells, strict=True)
    nodes = [node_name(node) for node in sorted(cells.nodes[columns[0]])]
    initiators = [cells.cells.rows[row] for row in dict.fromkeys(rows)]
    values: tuple[str, ...]
    if isinstance(name, tuple):
        source, target = map(package_name, name)
        seen_at: tuple[str | None, str] = (source, target)
        components = [initiator_to_target_name(source, target)]
        together = "one node" if len(nodes) == 1 else f"{len(nodes)} nodes together"
        drives = str(len(cells.drives[columns[0]]))
        found, values = "path_between_packages", (source, drives, together, target)
    else:
        seen_at = (initiators[0] if len(initiators) == 1 else None, str(name))
        found, components = "shared_drive_path", nodes
        # If the drives were only read together, a single slow drive can be the cause.
        read_alone = cells.drives[columns[0]] <= set(cells.cells.columns)
        if len(nodes) == 1 and (part == _DRIVES or not read_alone):
            known = sorted(drive for drive in cells.drives[columns[0]] if "#" not in drive)
            found, components = "drives_together", [*nodes, *known]
        some = (
            ""
            if cells.has_all_drives_of_its_nodes(columns[0])
            else f"first {len(cells.drives[columns[0]])} "
        )
        readers = _readers_text(initiators)
        readers = "all initiators" if len(initiators) == len(cells.cells.rows) else readers
        values = some, places_in_words(nodes), readers
    comparable = np.isin(cells.labels, [cells.labels[position] for position in departure.cells])
    others = format_count(int(comparable.sum()) - len(rows), "value")
    anomaly = cells.build_anomaly(
        departure,
        found,
        values,
        tuple(components),
        than=" than comparable drive sets",
        compared_with="the sum of what their drives reach alone or in smaller sets, and with "
        f"{others} of comparable drive sets",
        cells=all_cells,
        seen_at=seen_at,
    )
    names = map(cells.cells.initiator_and_target, cell_positions_in_mask(explained))
    return replace(anomaly, cells=tuple(dict.fromkeys([*anomaly.cells, *names])))


def _readers_text(initiators: Sequence[str]) -> str:
    more = len(initiators) - _MOST_NAMED_INITIATORS
    if more > 0:
        return f"{places_in_words(initiators[:_MOST_NAMED_INITIATORS])} and {more} more"
    return places_in_words(initiators)


def _sets_slower_than_subsets(cells: DriveSetCells) -> Iterator[Anomaly]:
    """Yield for each node the worst drive set that has less bandwidth than a part of its drives.

    All sets with drives of several nodes together count as one further node.
    """
    scores, found = cells.cells.log_score, dict[frozenset[int], list[tuple[Departure, Position]]]()
    # The best of several parts is chosen, so noise alone can make a part better than the set.
    comparisons = int(cells.cells.measured_mask.sum()) * len(cells.cells.columns)
    for column, parts in enumerate(cells.parts):
        gains = np.nan_to_num(scores[:, parts] - scores[:, [column]], nan=-np.inf)
        for row in np.flatnonzero(
            (gains > cells.scatter.smallest_reported_loss).any(axis=1)
        ).tolist():
            best = row, parts[int(np.argmax(gains[row]))]
            errors = cells.cells.standard_error
            error = float(np.hypot(errors[best], errors[row, column]))
            departure = cells.loss_against_cell((row, column), best, error, comparisons)
            if departure is not None:
                nodes = cells.nodes[column]
                key = nodes if len(nodes) == 1 else frozenset[int]()
                found.setdefault(key, []).append((departure, best))
    for similar in found.values():
        worst, best = max(similar, key=lambda each: each[0].loss)
        (source, name), part = (
            cells.cells.initiator_and_target(worst.cells[0]),
            cells.cells.columns[best[1]],
        )
        nodes = cells.nodes[worst.cells[0][1]]
        anomaly = cells.build_anomaly(
            worst,
            "added_drives",
            (source, name, part),
            tuple(map(node_name, sorted(nodes))),
            than="",
            reference=best,
            compared_with=f"{place_in_words(part)}, a part of these drives",
        )
        places = [cells.cells.initiator_and_target(each.cells[0]) for each, _ in similar]
        others = [place for place in places if place != (source, name)]
        if others:
            number = format_count(len({target for _, target in others}), "other set")
            sources = places_in_words(sorted({initiator for initiator, _ in others}))
            also = f"The same holds for {number}, seen from {sources}."
            anomaly = replace(anomaly, cells=tuple(places), also=(also,))
        yield anomaly
