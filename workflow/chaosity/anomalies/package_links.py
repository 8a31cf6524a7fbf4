"""Find slow links between packages in the bandwidth of each package from each other package.

The cores of a package read and write the memory of another package, all nodes at the same time, so
they fill the link. A read by package 0 from package 1 and a write by package 1 to package 0 use the
same direction of the link, so a slow direction shows in both. With two packages, its reference is
the opposite direction; with more packages, the comparable links.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import (
    Anomaly,
    AnomalyKind,
    SliceKey,
    shared_initiator_and_target,
)
from chaosity.anomalies.anomaly_text import BLOCK, LINK
from chaosity.anomalies.cell_groups import GroupedCells, Labels
from chaosity.anomalies.cell_log_scores import (
    Mask,
    Position,
    ScoredCells,
    Scores,
    cell_positions_in_mask,
    score_cells,
)
from chaosity.anomalies.component_anomalies import CheckResult
from chaosity.anomalies.departure_significance import Departure, SuspectedComponent
from chaosity.anomalies.matrix_structure import PackageNodes, learn_matrix_structure
from chaosity.cpusets import parse_cpu_list
from chaosity.place_names import link_name, packages_of_link
from chaosity.store.measurements import SLICE, Measurements, less_is_better
from chaosity.text_templates import write_text

# Levels of the factor with the direction of the data: into the cores, or out of them.
ACCESS, READS, WRITES = "access", "reads", "writes"
# The columns in which all cells of a link agree: it is used by several kernels.
_OF_ALL_KERNELS = tuple(name for name in SLICE if name != "kernel")
# A path that gets less than this share of what the link carries is slow for another reason. Other
# kernels, and data of which less is in caches, get somewhat less.
_SAME_RATE = 0.75
# A node whose paths lose as much as a link, to within so many per cent, is the reason for both.
_SAME_LOSS_PERCENT = 5.0

_Direction = tuple[int, int]  # the packages from which and to which data flows


def select_loads_between_packages(
    memory: Measurements, packages: PackageNodes | None
) -> Measurements:
    """Return the reads and writes by all cores of a package to all memory of a package.

    Adds the columns `access`, `source` (package of the initiator) and `package` (of the target).
    Without both reads and writes there are no rows. `memory` are rows of loads alone.
    """
    of_nodes = {nodes: number for number, nodes in enumerate(packages or ())}
    of_node = {node: number for nodes, number in of_nodes.items() for node in nodes}
    single = all(len(nodes) == 1 for nodes in of_nodes)
    sources = [
        _only(of_node.get(node, -1) for node in _nodes(text))
        for text in memory.rows["initiator_nodes"]
    ]
    targets = [of_nodes.get(_nodes(text), -1) for text in memory.rows["target_nodes"]]
    access = memory.factor_level_of_each_row(ACCESS)
    wide = memory.rows["initiator_kind"].isin(["package", "node"] if single else ["package"])
    wanted = wide & (np.array(sources) >= 0) & (np.array(targets) >= 0)
    wanted &= access.isin([READS, WRITES])
    found = memory.with_columns(access=access, source=sources, package=targets).select(wanted)
    return found if found.rows["access"].nunique() > 1 else found.select(wanted[wanted] & False)


def _nodes(text: Any) -> tuple[int, ...]:
    return () if pd.isna(text) else tuple(parse_cpu_list(str(text)))


def _only(values: Iterator[int]) -> int:
    """Return the value that all have; -1 if they differ or there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else -1


def find_slow_links(loads: Measurements, weakest_nodes: Mapping[int, float]) -> CheckResult:
    """Find slow links between packages, in each direction.

    Args:
        loads: rows of `select_loads_between_packages`.
        weakest_nodes: package -> bandwidth of its slowest node from its own memory, as a share of
            what is usual for a node of this machine.
    """
    check = CheckResult()
    for key, part in loads.groups_by_columns(_OF_ALL_KERNELS):
        where = {
            name: None if pd.isna(value) else str(value)
            for name, value in zip(_OF_ALL_KERNELS, key, strict=True)
        }
        cells = PackageLinkCells(part.rows, where, weakest_nodes)
        if not cells.tested.any():
            continue
        check.anomalies += cells.find_anomalies()
        check.detectable.append(cells.smallest_detectable_loss_percent)
        check.tests_count += 1
        check.tested = write_text("anomalies", "tested_links", packages=len(cells.packages))
    return check


class PackageLinkCells(GroupedCells[str]):
    """Bandwidths of packages from packages: a row for each kernel and initiator.

    Attributes:
        packages: numbers of the packages.
        tested: mask of the measured cells between two packages.
    """

    def __init__(
        self, rows: pd.DataFrame, where: SliceKey, weakest_nodes: Mapping[int, float]
    ) -> None:
        """Compare each cell with its group, and with what its packages can do at all."""
        self.packages = sorted({*rows["source"], *rows["package"]})
        rows = rows.sort_values(["kernel", "source", "package"], kind="stable")
        rows = rows.assign(row=rows["kernel"].astype(str) + " " + rows["initiator"])
        # Facts of each row of the table of cells, and of each package.
        self._facts = rows.drop_duplicates("row").set_index("row")[["kernel", "access", "source"]]
        self._initiators = dict(zip(rows["source"], rows["initiator"], strict=True))
        self._targets = dict(zip(rows["package"], rows["target"], strict=True))
        values = rows.set_index(["row", "target"])["value"]
        columns = [self._targets[package] for package in self.packages]
        metric = str(where["metric"])
        cells = score_cells(metric, values, list(self._facts.index), columns, rows["replicate"])
        remote = np.not_equal.outer(self._facts["source"].to_numpy(), np.array(self.packages))
        pairs = rows[["source", "package", "distance"]].dropna()
        self._distances = {(i, j): float(slit) for i, j, slit in pairs.itertuples(index=False)}
        most = self._most_of_packages(cells, remote, weakest_nodes)
        super().__init__(cells, self._groups(cells, remote), where, limits=most)
        self.tested = remote & cells.measured_mask

    def _groups(self, cells: ScoredCells[str], remote: Mask) -> Labels:
        """Return the group of each cell; those of a kernel are learned as in a matrix of nodes."""
        labels = np.full(remote.shape, -1)
        for _, own in self._facts.groupby("kernel", dropna=False):
            here = np.isin(cells.rows, own.index)
            groups = remote[here].astype(int)  # of two packages there is nothing to learn
            if len(self.packages) > 2:
                part = ScoredCells(
                    cells.metric,
                    tuple(own["source"]),
                    tuple(self.packages),
                    cells.log_score[here],
                    cells.n[here],
                    cells.noise,
                    cells.own_noise[here],
                    cells.freedom,
                )
                groups = learn_matrix_structure(part, None, self._distances).labels
            known = cells.measured_mask[here] & (groups >= 0)
            labels[here] = np.where(known, groups + labels.max() + 1, -1)
        return labels

    def _most_of_packages(
        self, cells: ScoredCells[str], remote: Mask, weakest_nodes: Mapping[int, float]
    ) -> Scores:
        """Return the highest score that memory and cores of a cell's packages allow, else NaN.

        Both also limit what the packages get of their own memory. Pages lie on all nodes of the
        target in turn, so its slowest node limits all of them.
        """
        local = np.where(remote, np.nan, cells.log_score)
        most = np.full(remote.shape, np.nan)
        weakest = np.log([weakest_nodes.get(package, np.inf) for package in self.packages])
        for _, own in self._facts.groupby("kernel", dropna=False):
            here = np.isin(cells.rows, own.index)
            of_initiator = np.fmax.reduce(local[here], axis=1)[:, np.newaxis]
            of_target = np.fmax.reduce(local[here], axis=0)
            of_weakest = np.fmax.reduce(of_target) + weakest
            most[here] = np.fmin(np.fmin(of_initiator, of_target), of_weakest)
        return most

    def find_anomalies(self) -> Iterator[Anomaly]:
        """Yield an anomaly for each slow link, or path in one kernel."""
        suspects = list(self._suspects())
        for departure in self.find_departing_suspects_and_cells(suspects, ~self.tested):
            yield self._anomaly(departure)

    def _suspects(self) -> Iterator[SuspectedComponent]:
        """Yield each direction of each link; of more packages also both, and all of a package."""
        directions = {pair: self._mask_of(pair) for pair in permutations(self.packages, 2)}
        for pair, mask in directions.items():
            yield SuspectedComponent("link", pair, mask)
        if len(self.packages) > 2:
            for a, b in combinations(self.packages, 2):
                yield SuspectedComponent("both", (a, b), directions[a, b] | directions[b, a])
            for package in self.packages:
                own = [mask for pair, mask in directions.items() if package in pair]
                yield SuspectedComponent("links", package, np.any(own, axis=0))

    def _mask_of(self, direction: _Direction) -> Mask:
        """Return the mask of the cells whose data flows in a direction."""
        mask = np.zeros(self.tested.shape, dtype=bool)
        for position in cell_positions_in_mask(~mask):
            mask[position] = self._direction(position) == direction
        return mask

    def _direction(self, position: Position) -> _Direction:
        """Return the packages from which and to which the data of a cell flows."""
        facts, target = self._facts.iloc[position[0]], self.packages[position[1]]
        source = int(facts["source"])
        return (target, source) if facts["access"] == READS else (source, target)

    def _anomaly(self, departure: Departure) -> Anomaly:
        directions = dict.fromkeys(map(self._direction, departure.cells))
        suspect, [row, column] = departure.suspect, departure.cells[0]
        if suspect is None:  # only reads or only writes are slow
            facts, target = self._facts.iloc[row], self.packages[column]
            kind, part, advice = AnomalyKind.SLOW_PATH, str(facts["access"]), BLOCK
            numbers: tuple[int, ...] = (int(facts["source"]), target)
        else:
            kind, part, advice = AnomalyKind.SLOW_COMPONENT, suspect.part, LINK
            numbers = suspect.name if isinstance(suspect.name, tuple) else (int(suspect.name),)
        opposite = len(self.packages) == 2  # packages: the only comparable cell
        anomaly = self.build_anomaly(
            departure,
            kind,
            tuple(link_name(*direction) for direction in directions),
            write_text("anomalies", "slow_link", part=part, packages=numbers),
            advice,
            than=" than in the opposite direction" if opposite else " than comparable links",
            compared_with="the opposite direction of the link" if opposite else None,
        )
        cells = tuple(
            (self._initiators[self._facts["source"].iloc[i]], self._targets[self.packages[j]])
            for i, j in departure.cells
        )
        initiator, target = shared_initiator_and_target(cells)
        return replace(anomaly, cells=cells, initiator=initiator, target=target)


def weakest_node_of_each_package(
    memory: Measurements, packages: PackageNodes | None
) -> dict[int, float]:
    """Return package -> bandwidth of its slowest node from its own memory, see `find_slow_links`.

    `memory` are valid rows of loads alone.
    """
    rows = memory.where(initiator_kind="node", relation="same_node").rows
    rows = rows[~rows["metric"].map(less_is_better).astype(bool)]
    if not len(rows):
        return {}
    places = rows["initiator_nodes"].astype(int)
    slices = [rows[name].fillna("") for name in SLICE]
    logs = np.log(rows["value"]).groupby([places, *slices])
    own = logs.median().unstack(level=0)
    shares = np.exp(own.sub(own.median(axis=1), axis=0).median())
    return {
        number: float(min(shares[node] for node in nodes if node in shares))
        for number, nodes in enumerate(packages or ())
        if any(node in shares for node in nodes)
    }


def packages_of_places(
    rows: Measurements, package_of_node: Mapping[int, int]
) -> dict[int | str, int]:
    """Return node, or name of an initiator or target -> its package, if it is in a single one."""
    found: dict[int | str, int] = dict(package_of_node.items())
    for end in ("initiator", "target"):
        places = rows.rows[[end, f"{end}_nodes"]].drop_duplicates()
        for name, nodes in places.itertuples(index=False):
            found[str(name)] = _only(package_of_node.get(node, -1) for node in _nodes(nodes))
    return {place: package for place, package in found.items() if package >= 0}


def is_same_link(cause: Anomaly, anomaly: Anomaly, places: Mapping[int | str, int]) -> bool:
    """Return whether an anomaly is seen across a slow link, and another explains it.

    A link explains reads across it that get what it carries. Paths of one node that lose as much as
    the link seems to lose explain the link, since the pages of its loads lie on all nodes; they may
    be slow for reads and for writes.

    Args:
        cause: the anomaly that may explain the other.
        anomaly: the anomaly that may be explained.
        places: package of each place, see `packages_of_places`.
    """
    if cause is anomaly:
        return False
    if _is_across(cause, anomaly, places):
        return anomaly.observed >= _SAME_RATE * cause.observed
    if (
        not _is_across(anomaly, cause, places, both_ways=True)
        or cause.observed >= _SAME_RATE * anomaly.observed
    ):
        return False
    of_one_node = any(
        isinstance(side[0], int) and len(set(side)) == 1 and _has_several_nodes(side[0], places)
        for side in zip(*cause.cells, strict=True)
    )
    return of_one_node and cause.loss_percent >= anomaly.loss_percent - _SAME_LOSS_PERCENT


def _is_across(
    link: Anomaly, anomaly: Anomaly, places: Mapping[int | str, int], *, both_ways: bool = False
) -> bool:
    """Return whether all reads of an anomaly use a link in its slow direction, or `both_ways`."""
    slow: list[tuple[int | None, ...]] = list(filter(None, map(packages_of_link, link.components)))
    slow += [pair[::-1] for pair in slow if both_ways]
    used = [(places.get(target), places.get(source)) for source, target in anomaly.cells]
    return bool(used) and anomaly.metric == link.metric and all(each in slow for each in used)


def _has_several_nodes(node: int, places: Mapping[int | str, int]) -> bool:
    """Return whether the package of a node has other nodes."""
    own = places[node]
    return sum(isinstance(place, int) and package == own for place, package in places.items()) > 1
