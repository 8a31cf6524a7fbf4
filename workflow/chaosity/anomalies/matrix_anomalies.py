"""Find all anomalies of a matrix of initiator nodes and target nodes.

`MatrixAnalysis._suspected_components` lists what can be slow: the memory of a node (TARGET),
accesses of other nodes to this memory (INTO), the cores of a node (INITIATOR), links and paths.
`merged_anomalies` decides between the findings of several matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.anomaly_results import (
    Anomaly,
    AnomalyKind,
    ComparableCells,
    Findings,
    doubt_of_single_run,
    shorten_list,
    verb_before_value,
    with_doubt,
)
from chaosity.anomalies.cell_groups import GroupedCells, best_middle_score_of_each_group
from chaosity.anomalies.cell_log_scores import (
    HOST_FALSE_ALARM_LEVEL,
    Mask,
    Position,
    ScoredCells,
    Scores,
    SuspectedComponent,
    cell_positions_in_mask,
    mask_of_cells,
    score_cells,
)
from chaosity.anomalies.matrix_structure import (
    LEAST_SHARE_OF_MEASURED_CELLS,
    NONE,
    EqualCellGroups,
    PackageNodes,
    SlitEntries,
    learn_matrix_structure,
)
from chaosity.anomalies.slit_mismatch import check_packages_and_slit
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.statistics.estimates import (
    LEAST_REPORTED_DIFFERENCE,
    LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN,
)
from chaosity.store.csv_tables import NodeMatrix
from chaosity.text_templates import sentences_of_macro, text_of_macro
from chaosity.units import format_quantity, join_with_and

# Kinds of suspects in a node matrix.
TARGET, INITIATOR, INTO, OUT_OF = "target", "initiator", "into", "out_of"
LINKS, BLOCK, LOCAL, PATH = "links", "block", "local", "path"
PROCESSING_UNITS = "processing_units"  # some processing units of a node
BOTH_WAYS = "both_ways"  # both paths between two nodes
# Largest number of cells that a note lists.
_MOST_CELLS_IN_A_NOTE = 8
# Least ratio of a loss to a second loss at which both count as similar, since noise makes equal
# losses different.
_LEAST_RATIO_OF_SIMILAR_LOSSES = 0.4


def analyse_matrix(
    matrix: NodeMatrix, packages: PackageNodes | None = None, distances: SlitEntries | None = None
) -> Findings:
    """Return the findings in a single matrix of a machine, without a tidy table.

    `analyse_one_of_matrices` explains the arguments.
    """
    found, analysis, notes = analyse_one_of_matrices(matrix, packages, distances)
    cells, structure = analysis.cells, analysis.structure
    gaps = ""
    if (
        matrix.share_of_measured_cells < LEAST_SHARE_OF_MEASURED_CELLS
        and not packages
        and not distances
    ):
        gaps = text_of_macro("anomalies", "unknown_structure", least=LEAST_SHARE_OF_MEASURED_CELLS)
    found = [with_doubt(anomaly, gaps or doubt_of_single_run(anomaly)) for anomaly in found]
    certain = [anomaly for anomaly in found if not anomaly.doubt]
    detectable = None
    if analysis.has_comparable_cells:
        detectable = analysis.smallest_detectable_loss_percent()
    slit = ["the SLIT"] if distances else []
    return Findings(
        metric=matrix.metric,
        anomalies=tuple(certain),
        suspicions=tuple(anomaly for anomaly in found if anomaly.doubt),
        groups=tuple(_comparable_cells_of_groups(cells, structure)),
        structure=structure.description,
        packages=structure.packages,
        verdict=text_of_macro(
            "anomalies",
            "matrix_verdict",
            anomalies=certain,
            suspicions=len(found) - len(certain),
            size=f"{len(cells.rows)} x {len(cells.columns)} nodes",
            replicates=int(np.min(cells.n[cells.measured_mask])),
            detectable=detectable,
            has_structure=structure.kind != NONE,
        ),
        detectable_loss_percent=detectable,
        noise_percent=100.0 * analysis.scatter.deviation_of_one_replicate,
        notes=(*_notes_on_untested_and_structural(analysis), *notes),
        checked=("slow nodes", "slow paths", "remote better than local", *slit),
    )


def analyse_one_of_matrices(
    matrix: NodeMatrix,
    packages: PackageNodes | None = None,
    distances: SlitEntries | None = None,
    tests_count: int = 1,
    units: Mapping[int, str] | None = None,
) -> tuple[list[Anomaly], MatrixAnalysis, tuple[str, ...]]:
    """Return the anomalies in one of several matrices of a machine, the analysis, and notes.

    Args:
        matrix: bandwidth or latency from each initiator node to each target node.
        packages: nodes of each package; by default, packages are learned from the matrix.
        distances: (initiator, target) -> entry of the SLIT; by default, the SLIT is not checked.
        tests_count: number of tested matrices of the machine, since each further test is a further
            chance of a false alarm.
        units: node -> the only processing unit that ran the loads of the node; by default, all
            units of each node ran the loads.

    Returns:
        The anomalies, the largest loss first; the analysis; notes from the check of packages and
        SLIT.
    """
    values = pd.Series(dict(matrix.samples)).explode()
    blocks = None
    if matrix.blocks:
        blocks = [block for pair in matrix.samples for block in matrix.blocks[pair]]
    # The nodes are sorted, since their order in the matrix has no meaning.
    nodes = sorted(matrix.initiators), sorted(matrix.targets)
    cells = score_cells(matrix.metric, values, *nodes, blocks)
    structure = learn_matrix_structure(cells, packages, distances)
    firmware = check_packages_and_slit(cells, structure, packages, distances)
    analysis = MatrixAnalysis(cells, firmware.structure or structure, tests_count, units or {})
    found = [*analysis.find_slow_components_and_paths(), *firmware.anomalies]
    for remote_better in _nodes_better_served_remotely(analysis):
        _add_or_explain(found, remote_better)
    found.sort(key=lambda anomaly: -anomaly.loss_percent)
    return found, analysis, firmware.notes


def _notes_on_untested_and_structural(analysis: MatrixAnalysis) -> list[str]:
    """Return notes on what was not tested, and on which departures are structural."""
    cells, measured = analysis.cells, analysis.cells.measured_mask
    limit = np.log1p(-LEAST_REPORTED_DIFFERENCE) / 2.0
    below_group = analysis.departures + analysis.structural < limit
    structural = below_group & (analysis.structural < limit)
    labels = np.unique(analysis.labels[analysis.labels >= 0])
    parts = [analysis.labels == label for label in labels]
    return sentences_of_macro(
        "anomalies",
        "matrix_notes",
        assumed_noise_percent=None
        if cells.freedom
        else 100.0 * analysis.scatter.deviation_of_one_replicate,
        structural=shorten_list(_cell_texts(cells, structural), _MOST_CELLS_IN_A_NOTE),
        single=[text for part in parts if part.sum() == 1 for text in _cell_texts(cells, part)],
        missing=int((~measured).sum()),
        cells=measured.size,
    ) + undecided_notes(analysis)


def undecided_notes(analysis: MatrixAnalysis) -> list[str]:
    """Return a note on the cells that may be slow or structural; an empty list without such cells.

    A host has this note too, since it otherwise shows only findings.
    """
    shape = analysis.cells.log_score.shape
    cells = _cell_texts(analysis.cells, mask_of_cells(analysis.structure.undecided, shape))
    named = shorten_list(cells, _MOST_CELLS_IN_A_NOTE)
    return sentences_of_macro("anomalies", "undecided_cells", cells=named)


def _cell_texts(cells: ScoredCells[int], part: Mask) -> list[str]:
    """Return the cells of a mask as texts such as "0->1"."""
    return [f"{cells.rows[i]}->{cells.columns[j]}" for i, j in cell_positions_in_mask(part)]


def _comparable_cells_of_groups(
    cells: ScoredCells[int], structure: EqualCellGroups
) -> Iterator[ComparableCells]:
    for label, name in enumerate(structure.names):
        positions = cell_positions_in_mask(structure.labels == label)
        typical = float(np.median([cells.log_score[position] for position in positions]))
        names = tuple(cells.initiator_and_target(position) for position in positions)
        yield ComparableCells(name, names, cells.value_of_score(typical))


def _add_or_explain(found: list[Anomaly], anomaly: Anomaly) -> None:
    """Add an anomaly to `found`, or its sentence to an anomaly that has the same worse cell.

    The anomaly must compare one cell with one better cell.
    """
    worse = anomaly.cells[-1]
    for number, each in enumerate(found):
        if worse in each.cells and each.kind != AnomalyKind.SLIT_MISMATCH:
            found[number] = replace(each, also=(*each.also, anomaly.sentence))
            return
    found.append(anomaly)


def _nodes_better_served_remotely(analysis: MatrixAnalysis) -> Iterator[Anomaly]:
    """Yield for each node with clearly better values from remote memory the worst case."""
    cells, reported = analysis.cells, set()
    comparisons = int(cells.measured_mask.sum()) * analysis.tests_count
    for remote, local in analysis.remote_better:
        (source, target), node = cells.initiator_and_target(remote), cells.rows[local[0]]
        error = float(np.hypot(*(analysis.scatter.own[each] for each in (local, remote))))
        departure = analysis.loss_against_cell(local, remote, error, comparisons)
        if node in reported or departure is None:
            continue
        reported.add(node)
        served = "its own memory" if local[0] == remote[0] else f"node {target} does"
        yield analysis.build_anomaly(
            departure,
            "node_numbers",
            (source, target, served),
            (node_name(node),),
            reference=remote,
            compared_with=f"node {source} to the memory of node {target}",
            cells=[remote, local],
            than=" than remotely",
        )


class MatrixAnalysis(GroupedCells[int]):
    """A node matrix with its structure and the departures from this structure.

    Attributes:
        structure, tests_count, units: the arguments of `analyse_one_of_matrices`.
        remote_better: pairs of a remote cell and a worse local cell, see
            `_remote_cells_better_than_local`.
        labels: for each cell, the number of its group; -1 if not measured or an exception in a
            group.
        found: the departures of components and of single cells that were found.
    """

    def __init__(
        self,
        cells: ScoredCells[int],
        structure: EqualCellGroups,
        tests_count: int,
        units: Mapping[int, str],
    ) -> None:
        """Compare the cells with their groups; rows and columns of the cells are node numbers."""
        self.structure, self.tests_count, self.units = structure, tests_count, units
        self.remote_better = _remote_cells_better_than_local(cells, structure)
        labels = structure.labels.copy()
        for remote, _ in self.remote_better:
            # A remote cell that is better than local memory and better than its group is an
            # exception, so other cells of the group are not compared with it.
            group = structure.labels == structure.labels[remote]
            group[remote] = False
            level = np.median(cells.log_score[group]) if group.any() else -np.inf
            if cells.log_score[remote] - level > LEAST_REPORTED_DIFFERENCE:
                labels[remote] = -1
        best = np.append(best_middle_score_of_each_group(cells, labels), np.nan)
        structural = losses_explained_by_node_position(
            cells, cells.log_score - best[labels], labels, structure.packages
        )
        super().__init__(cells, labels, structural=structural)
        self.found = self.find_departing_suspects_and_cells(
            list(self._suspected_components()), labels < 0, tests_count
        )

    @property
    def has_comparable_cells(self) -> bool:
        """Whether any group has several cells; if no group has, no loss is detectable."""
        return bool((np.bincount(self.labels[self.labels >= 0]) > 1).any())

    def smallest_detectable_loss_percent(self, tests_count: int = 1) -> float:
        """Return the smallest detectable loss of a single cell, in per cent.

        Each one of the `tests_count` tests of the host includes all matrices.
        """
        return super().smallest_detectable_loss_percent(tests_count * self.tests_count)

    def _suspected_components(self) -> Iterator[SuspectedComponent]:
        cells, packages = self.cells, self.structure.packages or ()
        remote = ~cells.local_mask
        for node in cells.columns:
            yield SuspectedComponent(TARGET, node, cells.mask_of_either_end(target=node))
            yield SuspectedComponent(INTO, node, cells.mask_of_either_end(target=node) & remote)
        for node in cells.rows:
            yield SuspectedComponent(INITIATOR, node, cells.mask_of_either_end(initiator=node))
            yield SuspectedComponent(
                OUT_OF, node, cells.mask_of_either_end(initiator=node) & remote
            )
        for node in cells.rows:
            if node in cells.columns:
                yield SuspectedComponent(LINKS, node, cells.mask_of_either_end(node, node) & remote)
        for source, target in permutations(range(len(packages)), 2):
            rows = np.isin(cells.rows, packages[source])
            columns = np.isin(cells.columns, packages[target])
            yield SuspectedComponent(BLOCK, (source, target), np.logical_and.outer(rows, columns))
        for one, other in combinations([node for node in cells.rows if node in cells.columns], 2):
            there = cells.mask_of_path(one, other)
            yield SuspectedComponent(
                BOTH_WAYS, (one, other), there | cells.mask_of_path(other, one)
            )

    def find_slow_components_and_paths(self) -> Iterator[Anomaly]:
        """Yield an anomaly for each slow component and each slow path."""
        for departure in self.found:
            suspect, seen_at, than = departure.suspect, None, " than comparable cells"
            source, target = self.cells.initiator_and_target(departure.cells[0])
            numbers: tuple[object, ...]
            if suspect is not None:
                part = suspect.part
                if isinstance(suspect.name, tuple):
                    numbers, seen_at = suspect.name, (None, None)
                    name = package_name if part == BLOCK else node_name
                    component = initiator_to_target_name(*map(name, suspect.name))
                else:
                    numbers, component = (suspect.name,), node_name(int(suspect.name))
                    if part == INITIATOR and suspect.name in self.units:
                        part, component = PROCESSING_UNITS, self.units[int(suspect.name)]
                        numbers = (component,)
            elif source == target:
                part, numbers, than = LOCAL, (target,), " than other nodes"
                component = node_name(target)
            else:
                part, numbers = PATH, (source, target, verb_before_value(self.cells.metric))
                component = initiator_to_target_name(node_name(source), node_name(target))
            anomaly = self.build_anomaly(
                departure,
                part,
                numbers,
                (component,),
                than=than,
                compared_with=self._comparable_cells_text(departure.cells),
                seen_at=seen_at,
            )
            yield replace(anomaly, also=self._opposite_direction_sentence(source, target, part))

    def _opposite_direction_sentence(self, source: int, target: int, part: str) -> tuple[str, ...]:
        """Return a sentence on the opposite direction of a slow path; none if it is slow too."""
        opposite = self.cells.mask_of_path(target, source) & self.cells.measured_mask
        if part != PATH or not (opposite & ~self.comparison.departing_mask).any():
            return ()
        value = self.cells.value_of_score(float(self.cells.log_score[opposite][0]))
        verb = verb_before_value(self.cells.metric)
        shown = format_quantity(self.cells.metric, value)
        return (f"The opposite direction {verb} {shown}.",)

    def _comparable_cells_text(self, positions: Sequence[Position]) -> str:
        """Return a text with the number of comparable cells and the names of their groups."""
        groups = dict.fromkeys(
            self.structure.names[self.structure.labels[position]] for position in positions
        )
        total = int(np.isin(self.labels, [self.labels[position] for position in positions]).sum())
        noun = "group" if len(groups) == 1 else "groups"
        others = max(0, total - len(positions))
        return f"{others} other cells of the {noun} {join_with_and([*groups])}"


def _remote_cells_better_than_local(
    cells: ScoredCells[int], structure: EqualCellGroups
) -> list[tuple[Position, Position]]:
    """Return pairs of a remote cell and of a local cell that is clearly worse.

    A remote cell is compared with the local cell of its initiator and with the local cell of its
    target. Targets without processing units do not count, since their memory (HBM) can be better
    than the memory of other nodes.
    """
    if structure.kind == NONE:
        return []
    noise = np.hypot(cells.typical_standard_error, 0.01)
    error = float(np.sqrt(2.0) * noise)
    comparisons = int(cells.measured_mask.sum())
    matters = LEAST_REPORTED_DIFFERENCE if cells.freedom else LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN
    clear = stats.t.isf(HOST_FALSE_ALARM_LEVEL / comparisons, cells.freedom or np.inf) * error
    least = max(clear, -np.log1p(-matters))
    found: list[tuple[float, Position, Position]] = []
    for remote in cell_positions_in_mask(cells.measured_mask & ~cells.local_mask):
        source, target = cells.initiator_and_target(remote)
        if target not in cells.rows:
            continue
        local_cells = [(cells.rows.index(target), remote[1])]
        if source in cells.columns:
            local_cells.insert(0, (remote[0], cells.columns.index(source)))
        gains = [float(cells.log_score[remote] - cells.log_score[local]) for local in local_cells]
        large = [pair for pair in zip(gains, local_cells, strict=True) if pair[0] > least]
        found += [(gain, remote, local) for gain, local in large[:1]]
    found.sort(key=lambda entry: -entry[0])
    return [(remote, local) for _, remote, local in found]


def losses_explained_by_node_position(
    cells: ScoredCells[int],
    departures: Scores,
    labels: NDArray[np.int_],
    packages: PackageNodes | None,
) -> Scores:
    """Return the part of each departure (0 or negative) that the position of nodes explains.

    A node that is far from the links of its package is slightly slower as initiator and as target.
    If every package has a node with this loss, the loss is structural. If only one package has a
    node with this loss, the loss is a fault.
    """
    explained = np.zeros(departures.shape)
    if not packages or len(packages) < 2:
        return explained
    missing: Mask = ~cells.measured_mask
    rows_incomplete, columns_incomplete = (np.asarray(missing.any(axis=axis)) for axis in (1, 0))
    for label in np.unique(labels[labels >= 0]):
        part = np.where(labels == label, departures, np.nan)
        rows = _median_departure_of_each_node(part, rows_incomplete, cells.rows, packages)
        columns = _median_departure_of_each_node(
            (part - rows[:, None]).T, columns_incomplete, cells.columns, packages
        )
        explained += np.where(labels == label, rows[:, None] + columns[None, :], 0.0)
    return explained


def _median_departure_of_each_node(
    part: Scores, incomplete: NDArray[np.bool_], nodes: tuple[int, ...], packages: PackageNodes
) -> Scores:
    """Return the median departure of each row if every package has a similar node, else 0.

    The departure is limited to the loss that every package has. A node that was not measured counts
    as a similar node.
    """
    known = ~np.isnan(part).all(axis=1)
    effects = np.zeros(len(part))
    effects[known] = np.minimum(np.nanmedian(part[known], axis=1), 0.0)
    # The largest loss in each package; 0 if no node of the package was measured.
    largest = np.zeros(len(packages))
    for number, package in enumerate(packages):
        own = np.isin(nodes, package)
        unknown = (own & incomplete & ~known).any()
        largest[number] = -np.inf if unknown else effects[own].min(initial=0.0)
    recurs = (largest[None, :] <= _LEAST_RATIO_OF_SIMILAR_LOSSES * effects[:, None]).all(axis=1)
    return np.where(recurs, np.maximum(effects, largest.max()), 0.0)
