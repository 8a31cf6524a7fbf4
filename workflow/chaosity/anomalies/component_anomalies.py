"""Find slow drives, processing units, cores and L3 domains, and slow links between packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, compress, permutations
from typing import Any

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import Anomaly, SliceKey, shared_initiator_and_target
from chaosity.anomalies.cell_groups import TidyTableSliceCells
from chaosity.anomalies.cell_log_scores import (
    Departure,
    Position,
    Scores,
    SuspectedComponent,
    cell_positions_in_mask,
    mask_of_cells,
    score_cells,
)
from chaosity.anomalies.matrix_structure import PackageNodes, learn_matrix_structure
from chaosity.cpusets import parse_cpu_list
from chaosity.place_names import (
    initiator_to_target_name,
    link_name,
    node_name,
    parse_place_name,
    place_in_words,
)
from chaosity.store.measurements import SLICE_COLUMNS, Measurements, less_is_better, parse_nodes
from chaosity.text_templates import text_of_macro
from chaosity.topology.topology_model import OTHER_PACKAGE
from chaosity.units import format_count


@dataclass
class AnomalyTestResult:
    """The result of the tests of a kind of component, of node matrices, or of size sweeps."""

    noun: str = ""  # kind of component that `tested` counts; empty without a count
    tested: str = ""  # text on what was tested; empty if nothing was compared
    anomalies: list[Anomaly] = field(default_factory=list)  # the detected anomalies
    # Names of the components that were compared with other components of their kind.
    compared: set[str] = field(default_factory=set)
    # A function for each slice of the tidy table. The function takes the number of tests of the
    # host, and returns in per cent the smallest detectable loss of a single cell.
    detectable_losses: list[Callable[[int], float]] = field(default_factory=list)
    tests_count: int = 0  # number of tests; each test is adjusted for its comparisons

    def add_tested_cells(self, cells: TidyTableSliceCells, axis: int) -> None:
        """Add the tested components of a slice, and the smallest detectable loss in the slice.

        The components are the initiators (`axis` 0) or the targets (`axis` 1) of the slice.
        """
        names = (cells.cells.rows, cells.cells.columns)[axis]
        tested = np.any(cells.tested_mask, axis=1 - axis).tolist()
        if any(tested):
            self.tests_count += 1
            self.detectable_losses.append(cells.smallest_detectable_loss_percent)
        self.compared.update(compress(names, tested))
        if self.compared:
            self.tested = format_count(len(self.compared), f"comparable {self.noun}")

    def typical_detectable_loss_percent(self, tests_count: int) -> float | None:
        """Return the typical detectable loss in per cent if the host has `tests_count` tests."""
        losses = [least(tests_count) for least in self.detectable_losses]
        return float(np.median(losses)) if losses else None


def find_slow_initiators_and_memory(
    rows: Measurements, core_kinds: Mapping[str, str], units: Mapping[int, str]
) -> AnomalyTestResult:
    """Find slow processing units, cores and L3 domains, and memory that is slow for all initiators.

    `rows` must have valid rows of loads that ran alone and accessed one memory node, from slices
    with several initiators for each node. `core_kinds` has the core kind of each initiator if the
    host has several kinds, since cores of different kinds are not compared. `units` has the first
    processing unit of each node.
    """
    check = AnomalyTestResult("initiator")
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
            *cells.initiators_or_targets_as_suspects("initiator", 0),
            *cells.initiators_or_targets_as_suspects("target", 1),
        ]
        departures = cells.find_departing_suspects_and_cells(suspects, cells.untested)
        check.anomalies += [
            _anomaly_of_slow_initiator_or_memory(cells, departure, units)
            for departure in departures
        ]
    return check


def _anomaly_of_slow_initiator_or_memory(
    cells: TidyTableSliceCells, departure: Departure, units: Mapping[int, str]
) -> Anomaly:
    source, target = cells.cells.initiator_and_target(departure.cells[0])
    on_one_target = int(cells.cells.measured_mask[departure.cells[0][0]].sum()) == 1
    nodes = str(cells.first_rows[source, target]["initiator_nodes"])
    # If an initiator has cores of several nodes, including the node of the target, and the target
    # is slow for this initiator, then the cause is the memory of the target, since these cores
    # share nothing else.
    from_all = not nodes.isdigit() and target in map(node_name, parse_cpu_list(nodes))
    if from_all or (departure.suspect is not None and departure.suspect.part == "target"):
        return cells.build_anomaly(departure, "memory", (target,), (target,))
    if departure.suspect is not None or on_one_target:
        unit = _unit_of_single_thread_name(source, units) or source
        return cells.build_anomaly(departure, "processing_units", (unit,), (unit,))
    # The suspect is the path between both nodes, whichever unit of its node the initiator is.
    path = initiator_to_target_name(f"node{nodes}", target)
    return cells.build_anomaly(departure, "path_of_units", (source, target), (path,))


def find_slow_l3_domain_links(
    rows: Measurements, node_of_l3_domain: Mapping[str, int]
) -> AnomalyTestResult:
    """Find slow links between L3 domains and the rest of the machine.

    `rows` must have valid rows of L3 domains that read alone. A domain must read from all nodes of
    its package at the same time, since the memory of one node can be slower than the link. If a
    node has only one domain, the initiator has the name of the node.
    """
    names = {node_name(node): domain for domain, node in node_of_l3_domain.items()}
    check = AnomalyTestResult("L3 domain")
    for where, part in rows.comparable_slices():
        # L3 domains of one package read the same memory, so slow memory slows all of them alike.
        cells = TidyTableSliceCells(part.rows, where, ("target", "target_nodes", "threads"))
        check.add_tested_cells(cells, axis=0)
        suspects = list(cells.initiators_or_targets_as_suspects("initiator", 0))
        for departure in cells.find_departing_suspects_and_cells(suspects, cells.untested):
            initiator, _ = cells.cells.initiator_and_target(departure.cells[0])
            domain = names.get(initiator, initiator)
            check.anomalies.append(
                cells.build_anomaly(departure, "l3_domain_link", (domain,), (domain,))
            )
    return check


def _unit_of_single_thread_name(initiator: str, units: Mapping[int, str]) -> str | None:
    """Return the only unit that a name such as node3_threads1 means; None for several units."""
    count, nodes = thread_count_and_nodes_of_name(initiator)
    return units.get(nodes[0]) if count == 1 and nodes else None


def thread_count_and_nodes_of_name(initiator: str) -> tuple[int, list[int]]:
    """Return the number of threads and the nodes in a name such as node3_threads2.

    The first thread runs on the first processing unit of the node. For any other name, the number
    of threads is 0.
    """
    name = parse_place_name(initiator)
    if name is None:
        return 0, []
    return name.count or 0, [node for group in name.groups for node in group.nodes_in_name]


def find_slow_drives_and_drive_paths(
    rows: Measurements, models: Mapping[str, str]
) -> AnomalyTestResult:
    """Find slow drives, slow paths to drives, and drives that a remote node reads faster.

    `rows` must have valid rows of loads that ran alone on single drives, but not on files that
    replace drives. A drive that is not in `models` (drive -> model) is not compared.
    """
    check = AnomalyTestResult("drive")
    for where, part in rows.comparable_slices():
        own = part.rows.assign(model=[models.get(name, name) for name in part.rows["target"]])
        cells = TidyTableSliceCells(own, where, ("relation", "model"))
        check.add_tested_cells(cells, axis=1)
        found = cells.find_departing_suspects_and_cells(
            list(_drive_suspects(cells)), cells.untested
        )
        check.anomalies += [_anomaly_of_slow_drive(cells, departure) for departure in found]
        check.anomalies += _drives_faster_from_remote_node(cells)
        check.tests_count += 1
    return check


def _drive_suspects(cells: TidyTableSliceCells) -> Iterator[SuspectedComponent]:
    yield from cells.initiators_or_targets_as_suspects("drive", 1)
    yield from cells.initiators_or_targets_as_suspects("initiator", 0)
    nodes: dict[str, list[str]] = {}
    for (_, drive), first in cells.first_rows.items():
        nodes.setdefault(str(first["target_nodes"]), []).append(drive)
    far = mask_of_cells(
        (
            (cells.cells.rows.index(source), cells.cells.columns.index(drive))
            for (source, drive), first in cells.first_rows.items()
            if first["relation"] == OTHER_PACKAGE
        ),
        cells.cells.measured_mask.shape,
    )
    for node, drives in nodes.items():
        if len(set(drives)) > 1 and len(nodes) > 1:
            masks = [cells.cells.mask_of_either_end(target=drive) for drive in drives]
            own = np.any(masks, axis=0)
            yield SuspectedComponent("node", node, own)
            if (own & far).sum() > 1:
                yield SuspectedComponent("paths to node", node, own & far)


def _anomaly_of_slow_drive(cells: TidyTableSliceCells, departure: Departure) -> Anomaly:
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
    if departure.suspect.part == "paths to node":
        return cells.build_anomaly(departure, "drives_of_other_package", (owner,), tuple(own))
    shared = "drives_with_shared_parts"
    return cells.build_anomaly(departure, shared, (len(drives), owner), (*own, *drives))


def _drives_faster_from_remote_node(slice_cells: TidyTableSliceCells) -> Iterator[Anomaly]:
    """Yield an anomaly for each drive that a remote node reads clearly faster than its own node."""
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
            home, source = (place_in_words(cells.rows[row]) for row, _ in (own, best))
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


# The factor for the direction of the data, and its two levels: into the cores and out of the cores.
ACCESS, READS, WRITES = "access", "reads", "writes"
# Columns with equal values in all cells of a link. `kernel` is left out, since several kernels use
# a link.
_SLICE_WITHOUT_KERNEL = tuple(name for name in SLICE_COLUMNS if name != "kernel")
# (package that sends the data, package that receives the data)
_SourceAndTargetPackage = tuple[int, int]


def package_read_and_write_bandwidths(
    memory: Measurements, packages: PackageNodes | None
) -> Measurements:
    """Return the rates at which all cores of a package read and write all memory of a package.

    The columns `access`, `source` (package of the initiator) and `package` (package of the target)
    are added. If the rows have only reads or only writes, the result is empty. `memory` must have
    only rows of loads that ran alone.
    """
    of_nodes = {nodes: number for number, nodes in enumerate(packages or ())}
    of_node = {node: number for nodes, number in of_nodes.items() for node in nodes}
    single = all(len(nodes) == 1 for nodes in of_nodes)
    sources = [package_of_nodes(text, of_node) for text in memory.rows["initiator_nodes"]]
    targets = [of_nodes.get(parse_nodes(text), -1) for text in memory.rows["target_nodes"]]
    access = memory.factor_level_of_each_row(ACCESS)
    wide = memory.rows["initiator_kind"].isin(["package", "node"] if single else ["package"])
    wanted = wide & (np.array(sources) >= 0) & (np.array(targets) >= 0)
    wanted &= access.isin([READS, WRITES])
    found = memory.with_columns(access=access, source=sources, package=targets).select(wanted)
    return found if found.rows["access"].nunique() > 1 else found.select(wanted[wanted] & False)


def package_of_nodes(nodes: Any, package_of_node: Mapping[int, int]) -> int:
    """Return the package of the nodes in a text such as "0-3".

    The result is -1 if the nodes are in several packages, if a node is in no package, or if the
    text has no nodes.
    """
    found = {package_of_node.get(node, -1) for node in parse_nodes(nodes)}
    return found.pop() if len(found) == 1 else -1


def find_slow_links(loads: Measurements, weakest_nodes: Mapping[int, float]) -> AnomalyTestResult:
    """Find slow links between packages, in each direction.

    Args:
        loads: rows of `package_read_and_write_bandwidths`.
        weakest_nodes: package -> local bandwidth of its slowest node, as a share of the usual local
            bandwidth of a node of this machine.
    """
    check = AnomalyTestResult()
    for key, part in loads.groups_by_columns(_SLICE_WITHOUT_KERNEL):
        where = {
            name: None if pd.isna(value) else str(value)
            for name, value in zip(_SLICE_WITHOUT_KERNEL, key, strict=True)
        }
        cells = PackageLinkCells(part.rows, where, weakest_nodes)
        if not cells.tested_mask.any():
            continue
        check.anomalies += cells.find_anomalies()
        check.detectable_losses.append(cells.smallest_detectable_loss_percent)
        check.tests_count += 1
        check.tested = text_of_macro("anomalies", "tested_links", packages=len(cells.packages))
    return check


class PackageLinkCells(TidyTableSliceCells):
    """The bandwidths of the links between packages; each row is a kernel and an initiator.

    The cores of a package read and write the memory of all nodes of another package at the same
    time, so they saturate the link. A read by package 0 from package 1 and a write by package 1 to
    package 0 use the same direction of the link, so a slow direction slows both. With two packages,
    a direction is compared with the opposite direction; with more packages, a direction is compared
    with comparable links. A node that lost a memory module slows the same loads as a slow link. So
    the expected score of each cell is limited to what the memory allows, and `merged_anomalies`
    decides whether the node or the link is slow.

    Attributes:
        packages: numbers of the packages.
        directions: position of each cell between packages -> direction in which its data flow.
    """

    def __init__(
        self, rows: pd.DataFrame, where: SliceKey, weakest_nodes: Mapping[int, float]
    ) -> None:
        """Compare each cell with its group; the packages of a cell limit its expected score."""
        self.packages = sorted({*rows["source"], *rows["package"]})
        rows = rows.assign(kernel=rows["kernel"].fillna(""), reader=rows["initiator"])
        groups = [_link_group_of_each_row(own, where) for _, own in rows.groupby("kernel")]
        rows = rows.assign(initiator=rows["kernel"] + " " + rows["reader"], link=pd.concat(groups))
        rows = rows.sort_values(["kernel", "source", "package"], kind="stable")
        super().__init__(rows, where, ("kernel", "link"))
        self.facts = {
            position: self.first_rows[self.cells.initiator_and_target(position)]
            for position in cell_positions_in_mask(self.cells.measured_mask)
        }
        self.directions: dict[Position, _SourceAndTargetPackage] = {
            position: (row["package"], row["source"])[:: 1 if row["access"] == READS else -1]
            for position, row in self.facts.items()
            if row["package"] != row["source"]
        }
        between = [position for position in self.directions if self.facts[position]["link"] >= 0]
        self.untested = ~mask_of_cells(between, self.labels.shape)
        self.limits = self._highest_scores_by_packages(weakest_nodes)
        self.compare_with_cells_without_fault(self.cells.measured_mask)

    def _highest_scores_by_packages(self, weakest_nodes: Mapping[int, float]) -> Scores:
        """Return the highest score that both packages of a cell allow; NaN within a package.

        The limit of a package is its local bandwidth, which memory or cores can limit. The pages of
        a load are interleaved over all nodes of the target, so the slowest node of the target
        limits the load.
        """
        most = np.full(self.labels.shape, np.nan)
        own: dict[str, dict[int, float]] = {}  # kernel -> package -> score of its local memory
        for position in self.facts.keys() - self.directions.keys():
            row = self.facts[position]
            own.setdefault(row["kernel"], {})[row["source"]] = float(self.cells.log_score[position])
        for position in self.directions:
            row = self.facts[position]
            scores = own.get(row["kernel"], {})
            usual = max(scores.values(), default=np.inf)
            weakest = usual + np.log(weakest_nodes.get(row["package"], np.inf))
            ends = (scores.get(row[end], np.inf) for end in ("source", "package"))
            most[position] = min(weakest, *ends)
        return most

    def suspects(self) -> Iterator[SuspectedComponent]:
        """Yield each direction of each link as a suspect, and links as a whole.

        With more than two packages, both directions of a link, and all links of a package, are
        suspects too.
        """
        suspected: list[
            tuple[str, int | _SourceAndTargetPackage, list[_SourceAndTargetPackage]]
        ] = [("link", pair, [pair]) for pair in permutations(self.packages, 2)]
        if len(self.packages) > 2:
            pairs = list(combinations(self.packages, 2))
            suspected += [("link_both_ways", pair, [pair, pair[::-1]]) for pair in pairs]
            for own in self.packages:
                of_package = [pair for pair in permutations(self.packages, 2) if own in pair]
                suspected.append(("links_of_package", own, of_package))
        for part, name, pairs in suspected:
            own = (position for position, pair in self.directions.items() if pair in pairs)
            yield SuspectedComponent(part, name, mask_of_cells(own, self.labels.shape))

    def find_anomalies(self) -> Iterator[Anomaly]:
        """Yield an anomaly for each slow link, and each path that is slow with one kernel."""
        opposite = len(self.packages) == 2  # only the other direction is comparable
        for departure in self.find_departing_suspects_and_cells(
            list(self.suspects()), self.untested
        ):
            first = self.facts[departure.cells[0]]
            name: int | str | tuple[int, int] = (first["source"], first["package"])
            part = str(first["access"])
            if departure.suspect is not None:  # otherwise only reads or only writes are slow
                part, name = departure.suspect.part, departure.suspect.name
            directions = dict.fromkeys(map(self.directions.__getitem__, departure.cells))
            anomaly = self.build_anomaly(
                departure,
                part,
                name if isinstance(name, tuple) else (name,),
                tuple(link_name(*direction) for direction in directions),
                than=" than in the opposite direction" if opposite else " than comparable links",
                compared_with="the opposite direction of the link" if opposite else None,
            )
            rows = map(self.facts.__getitem__, departure.cells)
            cells = tuple((row["reader"], row["target"]) for row in rows)
            initiator, target = shared_initiator_and_target(cells)
            yield replace(anomaly, cells=cells, initiator=initiator, target=target)


def _link_group_of_each_row(rows: pd.DataFrame, where: SliceKey) -> pd.Series:
    """Return for each row the group of its link; groups are learned as for a node matrix."""
    numbers = sorted({*rows["source"], *rows["package"]})
    if len(numbers) == 2:  # two packages have only one group
        return (rows["source"] != rows["package"]).astype(int)
    values = rows.set_index(["source", "package"])["value"]
    cells = score_cells(str(where["metric"]), values, numbers, numbers, rows["replicate"])
    known = rows[["source", "package", "distance"]].dropna()
    distances = {(i, j): float(slit) for i, j, slit in known.itertuples(index=False)}
    labels = learn_matrix_structure(cells, None, distances).labels
    found = pd.DataFrame(labels, numbers, numbers).stack()
    return pd.Series([found[pair] for pair in values.index], rows.index)


def share_of_weakest_node_by_package(
    memory: Measurements, packages: PackageNodes | None
) -> dict[int, float]:
    """Return package -> local bandwidth of its slowest node, as a share of the usual one.

    `memory` must have only valid rows of loads that ran alone. `find_slow_links` explains the
    result.
    """
    rows = memory.where(initiator_kind="node", relation="same_node").rows
    rows = rows[~rows["metric"].map(less_is_better).astype(bool)]
    if not len(rows):
        return {}
    places = rows["initiator_nodes"].astype(int)
    slices = [rows[name].fillna("") for name in SLICE_COLUMNS]
    logs = np.log(rows["value"]).groupby([places, *slices])
    own = logs.median().unstack(level=0)
    shares = np.exp(own.sub(own.median(axis=1), axis=0).median())
    return {
        number: float(min(shares[node] for node in nodes if node in shares))
        for number, nodes in enumerate(packages or ())
        if any(node in shares for node in nodes)
    }
