"""Drive sets of a host with the bandwidth that is expected of each.

Drives together reach at most the sum of what their parts reach, and at most what the initiator can
take. So the expected bandwidth of a drive set is the lowest of three values:

- the sum over parts of the set, for each division into parts that were measured;
- the typical bandwidth of comparable sets: drives of the same models on nodes of the same
  relations to the initiator;
- this typical bandwidth, less what the initiator loses in most of its sets with as many drives.

A loss that slower parts or a slow initiator explain is therefore no departure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import SliceKey
from chaosity.anomalies.cell_groups import TidyTableSliceCells
from chaosity.anomalies.cell_log_scores import Mask, Scores
from chaosity.anomalies.departure_significance import (
    Departure,
    SuspectedComponent,
    estimate_scatter_without_faults,
)
from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.cpusets import parse_cpu_list
from chaosity.prediction.drives_of_sets import DrivesByNode

# Two losses are alike if the smaller is at least this share of the larger: both have noise.
_SIMILAR = 0.4
# An initiator is slow if this share of its sets of a size is slow. With a budget, two of the three
# sets that it reads can be behind the same slow path.
_SLOW_SHARE = 0.75
# The parts of a machine that can be suspected.
DRIVES, PATH, PACKAGES = "drives", "path", "packages"


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
        self.expected = np.fmin(self._median_of_initiators_or_sets(), self._sum_of_parts())
        departures = np.where(self.untested, np.nan, self.cells.log_score - self.expected)
        for row, own in enumerate(departures):
            for drives in set(number[~np.isnan(own)].tolist()):
                alike = (number == drives) & ~np.isnan(own)
                at = int(_SLOW_SHARE * np.count_nonzero(alike))
                typical = np.sort(own[alike])[at]
                if typical < -self.scatter.matters / 2.0:
                    # Nearly all sets are slow: the initiator is, by a share or down to a limit.
                    limit = np.sort(self.cells.log_score[row, alike])[at]
                    reduced = np.minimum(self.expected[row, alike] + typical, limit)
                    self.expected[row, alike] = reduced
        self.departures = self.cells.log_score - self.expected
        tested = np.where(self.untested, -1, self.labels)
        if not self.untested.all():
            self.scatter = estimate_scatter_without_faults(self.cells, self.departures, tested)

    def _median_of_initiators_or_sets(self) -> Scores:
        """Return the better of two medians of each group: all initiators, or all sets count alike.

        With a budget, the initiators behind a slow path may have most of the measured sets, and a
        slow set is measured from more initiators than others.
        """
        expected = self.expected.copy()
        for label in np.unique(self.labels[self.labels >= 0]):
            part = self.labels == label
            scores = self.cells.log_score[part]
            order = np.argsort(scores)
            medians = []
            for axis in (1, 0):
                weights = (part / np.maximum(1, part.sum(axis=axis, keepdims=True)))[part]
                total = np.cumsum(weights[order])
                # Of two middle scores the better, see `cell_groups`; rounding must not decide.
                middle = np.searchsorted(total, 0.5 * total[-1] * (1.0 + 1e-9), side="right")
                medians.append(scores[order][middle])
            expected[part] = max(medians)
        return expected

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

    @property
    def departing_mask(self) -> Mask:
        """Mask of the cells that lose enough to matter."""
        departing: Mask = self.departures < -self.scatter.matters
        return departing

    def departing_columns_smallest_first(self) -> list[int]:
        """Return the columns in which a cell departs: sets of few nodes first, then large losses.

        Of the sets of one node, the set with the largest loss shows best which drives share a part.
        """
        departing = self.departing_mask & self.tested_mask
        losses = np.nan_to_num(-self.departures).mean(axis=0)
        columns = np.flatnonzero(departing.any(axis=0)).tolist()
        return sorted(columns, key=lambda each: (len(self.nodes[each]), -losses[each]))

    def suspects(self, packages: PackageNodes) -> Iterator[SuspectedComponent]:
        """Yield what can be slow, smaller sets first.

        First drive sets seen from all initiators, then all sets of as many nodes between two
        packages, then drive sets seen from initiators of the same relation.
        """
        by_size = self.departing_columns_smallest_first()
        for column in by_size:
            rows = self.tested_mask[:, column]
            labels, departures = self.labels[rows, column], self.departures[rows, column]
            losses = [-np.median(departures[labels == label]) for label in np.unique(labels)]
            if losses and min(losses) >= _SIMILAR * max(losses):
                yield self._suspect(DRIVES, column, rows)
        for size in range(1, max(map(len, packages), default=0) + 1):
            for near, far in permutations(range(len(packages)), 2):
                near_rows = [nodes <= set(packages[near]) for nodes in self.initiator_nodes]
                columns = [
                    len(nodes) == size and nodes <= set(packages[far]) and self.is_whole(column)
                    for column, nodes in enumerate(self.nodes)
                ]
                cells = np.logical_and.outer(near_rows, columns) & self.tested_mask
                yield SuspectedComponent(PACKAGES, (near, far), cells)
        for column in by_size:
            for label in np.unique(self.labels[:, column]):
                yield self._suspect(PATH, column, self.labels[:, column] == label)

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

        If a path carries less than the drives of one of its nodes, each of its nodes is slow alone,
        and all together are no faster. Then the largest such set names the whole path. Several
        largest sets mean that any further node adds nothing, so the slow set itself is the reason.
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
        return self._suspect(PATH, largest[0], rows) if len(largest) == 1 else None

    def explained_cells(self, departure: Departure) -> Mask:
        """Return the mask of the cells that a departure explains, and expect it of larger sets.

        It explains its own cells and the sets on some or all of the same nodes. Larger sets that
        contain the slow drives are then expected to lose as much. A slow path between packages
        needs no such step, since it also makes the parts of larger sets slow.
        """
        rows = np.isin(np.arange(len(self.cells.rows)), [row for row, _ in departure.cells])
        columns = {column for _, column in departure.cells}
        contained = [any(own <= self.nodes[column] for column in columns) for own in self.nodes]
        explained = np.logical_and.outer(rows, contained)
        if departure.suspect is not None and departure.suspect.part != PACKAGES:
            larger = [any(drives > self.drives[slow] for slow in columns) for drives in self.drives]
            departed = self.departing_mask
            lowered = np.logical_and.outer(rows, larger) & ~explained
            self.expect_less(np.where(lowered, departure.loss, 0.0))
            explained |= departed & ~self.departing_mask
        return explained

    def expect_less(self, losses: Scores) -> None:
        """Lower the expected scores by these losses, one for each cell or for each column."""
        self.expected = self.expected - losses
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
