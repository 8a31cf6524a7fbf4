"""Read the results of a host, and its three main matrices with intervals.

The main matrices are memory bandwidth and memory latency from node to node, and bandwidth from node
to drive. The export formats and ``chaosity show`` use the values of this module.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.place_names import node_name, parse_place_name
from chaosity.records.record_format import SIMULATED
from chaosity.result_folders import MEASUREMENTS_FILE, path_argument
from chaosity.statistics.cell_summary import summarise_cells, with_variance_priors
from chaosity.statistics.estimates import Estimate
from chaosity.store.csv_tables import BANDWIDTH, LATENCY, NodeMatrix, read_matrix_csv
from chaosity.store.measurements import WORKING_SET, Measurements, SliceKey, less_is_better
from chaosity.topology.topology_model import RELATIONS_NEAREST_FIRST, Topology, read_topology
from chaosity.weights import find_contended_bandwidth_matrix

MEMORY_BANDWIDTH, MEMORY_LATENCY = "memory bandwidth", "memory latency"
DRIVE_BANDWIDTH = "drive bandwidth"
# Prefix of the categories of loads that access memory. Only the category distinguishes memory
# latency from the latency of core-to-core transfers.
_MEMORY = "memory_"
# Kinds of initiators whose value counts as the value of their node: all cores of the node for
# bandwidth, and also a single core for latency.
_INITIATOR_KINDS_FOR_NODE = {BANDWIDTH: ["node"], LATENCY: ["node", "pu"]}
# The preferred kernel, if several kernels have equally many pairs of nodes. Triad reads two bytes
# for each byte that it writes. Programs also read and write, and hwloc defines its Bandwidth as the
# mean of reads and writes.
_PREFERRED_KERNEL = "triad"


@dataclass(frozen=True)
class MeasuredHost:
    """The results of a host: ``results/<host>/<configuration>``, its tidy table and topology."""

    folder: Path
    measurements: Measurements
    topology: Topology

    def origin(self, export: str, *options: str) -> dict[str, str | None]:
        """Return where the exported values are from, and the command that writes this export.

        The times are in UTC. Simulated values have no times, since nothing was measured.
        """
        valid = self.measurements.where(status="valid").rows
        simulated = self.measurements.is_simulated
        moments = valid["measured_at"].dropna().head(0 if simulated else len(valid))
        return {
            "origin": SIMULATED if simulated else "measured",
            "host": str(valid["host"].iloc[0]),
            "configuration": str(valid["configuration"].iloc[0]),
            "cpu_model": self.topology.cpu_model,
            "kernel_release": self.topology.host.get("kernel_release"),
            "measured_at_first": min(moments, default=None),
            "measured_at_last": max(moments, default=None),
            "chaosity_version": __version__,
            "command": shlex.join(
                ["chaosity", "export", export, path_argument(self.folder), *options]
            ),
        }

    def refuse_simulated_values(self, reader: str) -> None:
        """Raise a UserError if the values are simulated, since programs act on exported values."""
        if self.measurements.is_simulated:
            raise UserError(f"{reader} must not use simulated values", str(self.folder))

    def memory_rows(self) -> Measurements:
        """Return the rows of points whose only load accesses memory."""
        rows = self.measurements.single_load_rows()
        return rows.select(rows.rows["category"].str.startswith(_MEMORY, na=False))


@dataclass(frozen=True)
class MatrixCell:
    """A value of a main matrix."""

    node: int  # OS index of the initiator's node
    target: str  # name of the target: node3, drive-0000-41-00-0 or file0
    relation: str  # where the target lies: same_node, same_package, other_package or unknown
    estimate: Estimate  # median with interval and n in the metric's unit

    @property
    def initiator(self) -> str:
        """Return the name of the initiator's node: node0."""
        return node_name(self.node)

    @property
    def is_of_file(self) -> bool:
        """Return whether the target is a file that replaces a drive."""
        target = parse_place_name(self.target)
        return target is not None and target.kind == "file"


@dataclass(frozen=True)
class MainMatrix:
    """The values of a quantity from each initiator node to each target."""

    quantity: str  # memory bandwidth, memory latency or drive bandwidth
    metric: str  # name of the metric, which ends in its unit
    source: str  # words: kernel, experiment and benchmark that gave the values
    cells: tuple[MatrixCell, ...]  # measured cells, ordered by initiator and target
    missing: dict[tuple[int, str], str]  # (node, target) -> why a planned cell has no value
    samples: NodeMatrix | None = None  # values of the valid replicates; None for drives

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Return the names of all targets, with or without a value."""
        known = [cell.target for cell in self.cells] + [target for _, target in self.missing]
        return tuple(dict.fromkeys(known))

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Return all nodes of initiators, with or without a value."""
        known = {cell.node for cell in self.cells} | {node for node, _ in self.missing}
        return tuple(sorted(known))

    @cached_property
    def cell_of(self) -> dict[tuple[int, str], MatrixCell]:
        """Return (node, target) -> cell."""
        return {(cell.node, cell.target): cell for cell in self.cells}

    def share_of_best(self, cell: MatrixCell) -> float:
        """Return how good a cell is compared with the best cell: 0.5 for half the bandwidth."""
        if less_is_better(self.metric):
            return self._best_median / cell.estimate.median
        return cell.estimate.median / self._best_median

    @cached_property
    def _best_median(self) -> float:
        best = min if less_is_better(self.metric) else max
        return best(cell.estimate.median for cell in self.cells)

    def nearest_of_fastest_cells(self, target: str) -> MatrixCell:
        """Return the cell of the nearest node among the fastest nodes of a target.

        The fastest nodes are the node with the highest median, and all nodes that are not clearly
        slower than this best node. A node is clearly slower if its interval lies below the interval
        of the best node. Without intervals, a node is clearly slower if its median is lower. The
        matrix must have bandwidths.
        """
        own = [cell for cell in self.cells if cell.target == target]
        best = max(own, key=lambda cell: cell.estimate.median)
        limit = best.estimate.median if best.estimate.low is None else best.estimate.low
        equal = [cell for cell in own if (cell.estimate.high or cell.estimate.median) >= limit]
        return min(equal, key=_distance_rank)


def _distance_rank(cell: MatrixCell) -> tuple[int, float]:
    known = cell.relation in RELATIONS_NEAREST_FIRST
    rank = RELATIONS_NEAREST_FIRST.index(cell.relation) if known else len(RELATIONS_NEAREST_FIRST)
    return rank, -cell.estimate.median


def read_measured_host(folder: Path) -> MeasuredHost:
    """Return the measurements and the topology in ``results/<host>/<configuration>``.

    Raises:
        UserError: a file is missing or not readable, or nothing was measured.
    """
    table = folder / MEASUREMENTS_FILE
    for path in (folder / "topology.json", folder / "topology.xml", table):
        if not path.exists():
            remedy = "give a folder results/HOST/CONFIGURATION with measurements"
            raise UserError(f"{path.name} is missing", str(folder), remedy)
    measurements = with_variance_priors(Measurements.read(table))
    if not len(measurements.where(status="valid")):
        raise UserError("the table has no valid measurement yet", str(table), "run `make run`")
    topology = read_topology(folder / "topology.json") or Topology()
    return MeasuredHost(folder, measurements, topology)


def read_main_matrices(host: MeasuredHost) -> dict[str, MainMatrix]:
    """Return quantity -> its matrix, without quantities that were not measured."""
    found = (memory_matrix(host, BANDWIDTH), memory_matrix(host, LATENCY), _drive_matrix(host))
    return {matrix.quantity: matrix for matrix in found if matrix}


def memory_matrix(host: MeasuredHost, metric: str) -> MainMatrix | None:
    """Return the most complete matrix of memory values from node to node; None without any.

    Of several groups of comparable rows, the group with the most pairs of nodes is selected. Of
    groups with equally many pairs, the kernel triad is preferred, then the larger experiment, then
    the larger number of replicates. `metric` is the full name of bandwidth or latency.
    """
    rows = host.memory_rows().where(metric=metric, initiator_kind=_INITIATOR_KINDS_FOR_NODE[metric])
    rows = rows.node_to_node_rows()
    rows = rows.with_columns(levels=rows.rows["load_parameters"])
    sizes, sweeps = rows.rows["experiment"].value_counts(), experiments_with_several_sizes(rows)
    slices = [
        (where, part)
        for where, part in rows.comparable_slices()
        if part.has_at_most_one_initiator_per_node
        and where["experiment"] not in sweeps
        and len(part.valid_rows())
    ]
    if not slices:
        return None

    def rank_of_slice(item: tuple[SliceKey, Measurements]) -> tuple[int, bool, int, int]:
        where, part = item
        pairs = part.valid_rows().initiator_target_pair_count
        size = int(sizes[str(where["experiment"])])
        return pairs, where["kernel"] == _PREFERRED_KERNEL, size, len(part.valid_rows_with_value())

    where, part = max(slices, key=rank_of_slice)
    cells = summarise_cells(part).sort_values(["initiator_node", "target_node"], ignore_index=True)
    pairs = cells[["initiator_node", "target_node"]].itertuples(index=False)
    cells = cells.assign(
        node=cells["initiator_node"],
        target=cells["target_node"].map(node_name),
        relation=[host.topology.node_relation(*pair) for pair in pairs],
    )
    quantity = MEMORY_BANDWIDTH if metric == BANDWIDTH else MEMORY_LATENCY
    kernel = f"{where['kernel']} of " if where["kernel"] else ""
    source = f"{kernel}{where['experiment']}, {where['benchmark']}"
    return _matrix_of_cells(quantity, metric, source, cells, part.valid_rows().node_matrix())


def experiments_with_several_sizes(rows: Measurements) -> set[str]:
    """Return experiments with several working-set sizes; small sizes measure caches."""
    sizes = rows.load_level_of_each_row(WORKING_SET).groupby(rows.rows["experiment"]).nunique()
    return {str(experiment) for experiment in sizes[sizes > 1].index}


def _drive_matrix(host: MeasuredHost) -> MainMatrix | None:
    """Return the bandwidth of single drives, from the experiment and benchmark with most cells."""
    rows = host.measurements.single_load_rows().where(
        metric=BANDWIDTH, initiator_kind="node", target_kind="drive"
    )
    rows = rows.select(rows.rows["initiator_nodes"].astype(str).str.fullmatch(r"\d+"))
    if not len(rows.valid_rows()):
        return None
    (experiment, benchmark), part = max(
        rows.groups_by_columns(["experiment", "benchmark"]),
        key=lambda item: item[1].valid_rows().initiator_target_pair_count,
    )
    cells = summarise_cells(part)
    cells = cells.assign(node=cells["initiator_nodes"].astype(int)).sort_values(["node", "target"])
    return _matrix_of_cells(DRIVE_BANDWIDTH, BANDWIDTH, f"{experiment}, {benchmark}", cells)


def _matrix_of_cells(
    quantity: str, metric: str, source: str, table: pd.DataFrame, samples: NodeMatrix | None = None
) -> MainMatrix:
    """Return the matrix with the cells of a table of `summarise_cells` that has a column `node`."""
    cells = tuple(
        MatrixCell(int(cell["node"]), cell["target"], cell["relation"], Estimate.of_cell(cell))
        for cell in table[table["n"] > 0].to_dict("records")
    )
    missing = {
        (int(cell["node"]), cell["target"]): text_or_none(cell["reason"]) or "not measured yet"
        for cell in table[table["n"] == 0].to_dict("records")
    }
    return MainMatrix(quantity, metric, source, cells, missing, samples)


def require_matrix(
    matrices: Mapping[str, MainMatrix], quantity: str, host: MeasuredHost
) -> MainMatrix:
    """Return the matrix of a quantity.

    Raises:
        UserError: the quantity was not measured.
    """
    if found := matrices.get(quantity):
        return found
    what = f"no {quantity} from a node was measured"
    raise UserError(what, str(host.folder), "run `make run`")


def node_bandwidths_and_source(host: MeasuredHost) -> tuple[NodeMatrix, str]:
    """Return the bandwidths from node to node, and in words where these values are from.

    Raises:
        UserError: no bandwidth from a node to a node was measured.
    """
    found = memory_matrix(host, BANDWIDTH)
    if found is None or found.samples is None:
        what = "no bandwidth from a node to a node was measured"
        raise UserError(what, str(host.folder), "run `make run`")
    return found.samples, found.source


def read_bandwidths_alone_and_contended(
    path: Path, unit: str | None, workers: list[int]
) -> tuple[NodeMatrix, NodeMatrix | None]:
    """Return the bandwidths of paths measured one by one, and of paths while all workers run.

    Args:
        path: CSV file, tidy table, or folder of results. For a CSV file the second result is None.
        unit: unit of the values in a CSV file, or None to infer the unit.
        workers: worker nodes.

    Raises:
        UserError: the file or folder has no bandwidths, or `unit` is given without a CSV file.
    """
    if path.suffix != ".parquet" and not path.is_dir():
        return read_matrix_csv(path, "bandwidth", unit), None
    if path.is_file() and path.name != MEASUREMENTS_FILE:
        raise UserError("the file is not the tidy table", str(path), f"name {MEASUREMENTS_FILE}")
    if unit:
        raise UserError(
            "a tidy table already gives the units", "--unit", "remove the option --unit"
        )
    host = read_measured_host(path if path.is_dir() else path.parent)
    contended = find_contended_bandwidth_matrix(host.measurements, workers)
    return node_bandwidths_and_source(host)[0], contended


def package_bandwidths(host: MeasuredHost) -> dict[tuple[str, str], dict[str, Estimate]]:
    """Return (initiator, memory nodes) -> kernel -> bandwidth, for packages and the machine.

    The memory nodes can belong to the package of the initiator or to another package.
    """
    kinds = ["package", "machine"]
    rows = host.memory_rows().valid_rows()
    rows = rows.where(metric=BANDWIDTH, initiator_kind=kinds, target_kind="nodes")
    found: dict[tuple[str, str], dict[str, Estimate]] = {}
    for cell in summarise_cells(rows).to_dict("records") if len(rows) else []:
        place = found.setdefault((cell["initiator"], cell["target"]), {})
        place[str(cell["kernel"])] = Estimate.of_cell(cell)
    return found


def text_or_none(value: object) -> str | None:
    """Return the value if it is text, else None."""
    return value if isinstance(value, str) else None
