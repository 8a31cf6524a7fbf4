"""Read the results of a host and select its measurements of memory from node to node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.records.record_types_and_verdict import SIMULATED
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.statistics.cell_summary import summarise_cells, with_variance_priors
from chaosity.store.measurements import WORKING_SET, Measurements, SliceKey
from chaosity.store.read_node_matrix_csv import BANDWIDTH, LATENCY, NodeMatrix, read_matrix_csv
from chaosity.topology.topology_json import read_topology
from chaosity.topology.topology_model import Topology
from chaosity.weights.canonical_weights import find_contended_bandwidth_matrix

# Prefix of memory categories. Core-to-core transfers too have a latency and a node.
MEMORY = "memory_"
# Kinds of initiators that stand for a node: bandwidth takes all its cores, idle latency one.
_STANDS_FOR_NODE = {BANDWIDTH: ["node"], LATENCY: ["node", "pu"]}
# Triad reads two bytes for each byte that it writes. hwloc's Bandwidth is the mean of reads and
# writes, and programs do both. This preference decides only between kernels with equally many pairs
# of nodes.
_KERNEL = "triad"


@dataclass(frozen=True)
class MeasuredHost:
    """The results of a host: ``results/<host>/<configuration>``, its tidy table and topology."""

    folder: Path
    measurements: Measurements
    topology: Topology

    @property
    def origin_of_values(self) -> dict[str, str | None]:
        """Return the origin of the values, for documents outside the folder.

        The times are in UTC; simulated values have none, since nothing was measured.
        """
        valid = self.measurements.where(status="valid").rows
        simulated = self.measurements.is_simulated
        moments = valid["measured_at"].dropna().head(0 if simulated else len(valid))
        return {
            "host": str(valid["host"].iloc[0]),
            "configuration": str(valid["configuration"].iloc[0]),
            "cpu_model": self.topology.cpu_model,
            "kernel_release": self.topology.host.get("kernel_release"),
            "measured_at_first": min(moments, default=None),
            "measured_at_last": max(moments, default=None),
            "chaosity_version": __version__,
            **({"origin": SIMULATED} if simulated else {}),
        }

    def refuse_simulated_values(self, reader: str) -> None:
        """Raise an error if the values are simulated, because programs act on exported values.

        Raises:
            UserError: the values are simulated.
        """
        if self.measurements.is_simulated:
            raise UserError(f"{reader} must not use simulated values", str(self.folder))


@dataclass(frozen=True)
class NodeMeasurements:
    """Measurements of memory from each initiator node to each target node."""

    # Which rows of the tidy table: their experiment, load, benchmark, kernel, metric and so on.
    where: SliceKey
    # Table of `summarise_cells` with the columns `initiator_node` and `target_node`; it has cells
    # without a valid replicate too.
    cells: pd.DataFrame
    matrix: NodeMatrix  # matrix of the valid replicates

    @property
    def valid_cells(self) -> Iterator[tuple[int, int, pd.Series]]:
        """Yield initiator node, target node and row of each measured cell."""
        for _, cell in self.cells[self.cells["n"] > 0].iterrows():
            yield int(cell["initiator_node"]), int(cell["target_node"]), cell

    @property
    def missing_cells(self) -> list[tuple[int, int, str]]:
        """Return initiator node, target node and reason of each planned cell without a value."""
        cells = self.cells[self.cells["n"] == 0][["initiator_node", "target_node", "reason"]]
        return [
            (int(row), int(column), reason_without_value(reason))
            for row, column, reason in cells.itertuples(index=False)
        ]

    @property
    def source_text(self) -> str:
        """Return the source of the values: "triad of memory_bandwidth, chaosity_bandwidth"."""
        kernel = f"{self.where['kernel']} of " if self.where["kernel"] else ""
        return f"{kernel}{self.where['experiment']}, {self.where['benchmark']}"


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


def select_most_complete_node_measurements(
    host: MeasuredHost, metric: str
) -> NodeMeasurements | None:
    """Return the measurements that say most about memory from node to node, or None.

    Of several slices, the slice with the most pairs of nodes is selected. Equal slices are decided
    by triad, then by the larger experiment, then by the number of replicates. `metric` is the full
    name of bandwidth or latency.
    """
    rows = host.measurements.single_load_rows().where(
        metric=metric, initiator_kind=_STANDS_FOR_NODE[metric]
    )
    rows = rows.select(rows.rows["category"].str.startswith(MEMORY, na=False)).node_to_node_rows()
    rows = rows.with_columns(levels=rows.rows["load_parameters"])
    sizes = rows.rows["experiment"].value_counts()
    sweeps = size_sweeps(rows)
    slices = [
        (where, part)
        for where, part in rows.comparable_slices()
        if part.has_at_most_one_initiator_per_node
        and where["experiment"] not in sweeps
        and len(part.valid_rows())
    ]
    if not slices:
        return None

    def _rank_of_slice(item: tuple[SliceKey, Measurements]) -> tuple[int, bool, int, int]:
        where, part = item
        pairs = part.valid_rows().initiator_target_pair_count
        size = int(sizes[str(where["experiment"])])
        return pairs, where["kernel"] == _KERNEL, size, len(part.valid_rows_with_value())

    where, part = max(slices, key=_rank_of_slice)
    cells = summarise_cells(part).sort_values(["initiator_node", "target_node"], ignore_index=True)
    return NodeMeasurements(where, cells, part.valid_rows().node_matrix())


def select_node_bandwidths(host: MeasuredHost) -> NodeMeasurements:
    """Return the bandwidths from node to node, for weights.

    Raises:
        UserError: no bandwidth from a node to a node was measured.
    """
    found = select_most_complete_node_measurements(host, BANDWIDTH)
    if found is None:
        raise UserError(
            "no bandwidth from a node to a node was measured", str(host.folder), "run `make run`"
        )
    return found


def size_sweeps(rows: Measurements) -> set[str]:
    """Return experiments with several working-set sizes; some of their values are of caches."""
    sizes = rows.load_level_of_each_row(WORKING_SET).groupby(rows.rows["experiment"]).nunique()
    return {str(experiment) for experiment in sizes[sizes > 1].index}


def text_or_none(value: object) -> str | None:
    """Return a value of a table as text; None for a missing value."""
    return value if isinstance(value, str) else None


def reason_without_value(reason: object) -> str:
    """Return the reason in a row of a cell without a value, as text."""
    return text_or_none(reason) or "not measured yet"


def read_bandwidths_alone_and_contended(
    path: Path, unit: str | None, workers: list[int]
) -> tuple[NodeMatrix, NodeMatrix | None]:
    """Return the bandwidth of each path measured alone, and measured with all workers at once.

    Args:
        path: CSV file, tidy table, or folder of results; for a CSV file the second is None.
        unit: unit of the values in a CSV file, or None to infer it.
        workers: worker nodes.

    Raises:
        UserError: the path has no bandwidths, or a unit is given for a tidy table.
    """
    if path.suffix != ".parquet" and not path.is_dir():
        return read_matrix_csv(path, "bandwidth", unit), None
    if path.is_file() and path.name != MEASUREMENTS_FILE:
        raise UserError("the table is another one", str(path), f"name {MEASUREMENTS_FILE}")
    if unit:
        raise UserError("a tidy table has units of its own", "--unit", "remove the option --unit")
    host = read_measured_host(path if path.is_dir() else path.parent)
    contended = find_contended_bandwidth_matrix(host.measurements, workers)
    return select_node_bandwidths(host).matrix, contended
