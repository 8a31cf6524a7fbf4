"""Read matrices of initiator node x target node from CSV files.

The first column of a file has the initiator nodes; each further column is a target node. A node's
number is at the end of its name (`3`, `mem_3`, `node3`). The output of Intel MLC with such a matrix
is read too. Rows that repeat an initiator are further replicates. An empty cell or `-` was not
measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chaosity.errors import UserError
from chaosity.store.csv_tables import parse_positive_number, read_csv_or_mlc_table

BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
METRICS = {"bandwidth": BANDWIDTH, "latency": LATENCY}
# Metric -> unit -> the factor to bytes per second or nanoseconds.
UNITS: dict[str, dict[str, float]] = {
    BANDWIDTH: {"B/s": 1.0, "MB/s": 1e6, "MiB/s": 2.0**20, "GB/s": 1e9, "GiB/s": 2.0**30},
    LATENCY: {"ns": 1.0, "us": 1e3},
}
# The fastest memory that is a node today, stacked on a package, moves 4 to 8 TB/s (HBM3); a hit in
# the first cache takes about 1 ns, an access over a fabric a few microseconds. A value far outside
# these limits is a typing error or has another unit.
_LIMITS = {
    BANDWIDTH: (
        (1e3, "below the bandwidth of any memory"),
        (2e13, "above the bandwidth of any memory bus (about 8 TB/s)"),
    ),
    LATENCY: ((0.1, "below the time of any cache"), (1e6, "above the time of any memory")),
}
# The unit of bandwidths in a file that does not name it, by the median of its numbers: bytes per
# second from the first limit on (0.1 GB/s), megabytes per second from the second limit on (2 GB/s;
# in gigabytes it would be 2 TB/s), else gigabytes per second.
_UNIT_BY_MAGNITUDE = ((1e8, "B/s"), (2e3, "MB/s"))
_NUMBERED = re.compile(r"(.*?)(?<![0-9])([0-9]{1,6})")
_NOT_MEASURED = ("", "-")
Pair = tuple[int, int]


@dataclass(frozen=True)
class NodeMatrix:
    """Measured values from each initiator node to each target node."""

    metric: str  # full name of the metric, such as bandwidth_bytes_per_second
    initiators: tuple[int, ...]  # node numbers, in the order of the rows
    targets: tuple[int, ...]  # node numbers, in the order of the columns
    # (initiator, target) -> replicates in the metric's unit; only measured cells.
    samples: Mapping[Pair, tuple[float, ...]]
    # (initiator, target) -> the replicate block of each sample; empty when unknown.
    blocks: Mapping[Pair, tuple[int, ...]]
    source: str  # origin of the values, for sentences
    # Unit of the numbers in the file and how it is known; None without a file.
    unit: str | None = None

    def median_of_cell(self, initiator: int, target: int) -> float | None:
        """Return the median of a cell's replicates, or None for a cell without a value."""
        values = self.samples.get((initiator, target))
        return median(values) if values else None

    @property
    def share_of_measured_cells(self) -> float:
        """Return the share of cells that have a value, 0 to 1."""
        return len(self.samples) / (len(self.initiators) * len(self.targets))


def read_matrix_csv(path: Path, metric: str, unit: str | None = None) -> NodeMatrix:
    """Return the matrix of measurements of the metric bandwidth or latency in a CSV file.

    By default, the unit follows from the end of the file name (`_MBps`, `_ns`), or from how large
    the numbers are.

    Raises:
        UserError: the file is not such a matrix, its name ends in a unit of another metric, or a
            value is impossible; the error names row and column.
    """
    name = METRICS[metric]
    if unit is not None and unit not in UNITS[name]:
        allowed = f"allowed: {', '.join(UNITS[name])}"
        raise UserError(f"{unit} is not a unit of {metric}", str(path), allowed)
    for other in METRICS.keys() - {metric}:
        if unit is None and _unit_in_name(path, METRICS[other]):  # ns would be taken for GB/s
            problem = f"the file name ends in a unit of {other}, not of {metric}"
            remedy = f"if the file name is wrong, give the unit of the {metric} (--unit)"
            raise UserError(problem, str(path), remedy)
    initiators, targets, cells = _read_cells(path)
    numbers = [value for _, _, value in cells]
    used, reason = (unit, "as given") if unit else _infer_unit(path, name, numbers)
    samples: dict[Pair, tuple[float, ...]] = {}
    for where, pair, value in cells:
        samples[pair] = (*samples.get(pair, ()), _to_metric_unit(name, value, used, where))
    return NodeMatrix(name, initiators, targets, samples, {}, path.name, f"{used}, {reason}")


def read_distances_csv(path: Path) -> dict[Pair, float]:
    """Return (initiator, target) -> entry of the SLIT in a CSV file with the form of a matrix.

    Raises:
        UserError: the file is not such a table.
    """
    found: dict[Pair, float] = {}
    remedy = "distances must be above 0 and finite; 10 is local"
    _, _, cells = _read_cells(path, "distance", remedy)
    for _, pair, value in cells:
        if pair in found:
            raise UserError(f"initiator node {pair[0]} has two rows", str(path))
        found[pair] = value
    return found


# Position in words, (initiator, target) and value of each number in a file.
_Cells = list[tuple[str, Pair, float]]


def _read_cells(
    path: Path, *noun_and_remedy: str
) -> tuple[tuple[int, ...], tuple[int, ...], _Cells]:
    """Return the nodes of the rows, the nodes of the columns, and the numbers of a CSV file."""
    table = read_csv_or_mlc_table(path, comments=True)
    targets = _target_nodes(table.names, table.place_of_line(table.first_line))
    initiators: dict[int, None] = {}
    cells = []
    for line, (name, *texts) in table.rows.items():
        where = table.place_of_line(line)
        initiator = _node(name)
        if initiator is None:
            problem = f"{name!r} in the first column is not a node"
            raise UserError(problem, where, "write a node as 3 or node3")
        initiators[initiator] = None
        for column, target, text in zip(table.names[1:], targets, texts, strict=True):
            if text not in _NOT_MEASURED:
                place = f"{where}, column {column}"
                value = parse_positive_number(text, place, *noun_and_remedy)
                cells.append((place, (initiator, target), value))
    if not cells:
        raise UserError("the file has no number", str(path))
    return tuple(initiators), targets, cells


def _node(text: str) -> int | None:
    """Return the number at the end of a node's name; None without a number."""
    match = _NUMBERED.fullmatch(text)
    return int(match[2]) if match else None


def _target_nodes(head: Sequence[str], where: str) -> tuple[int, ...]:
    """Return the node numbers in the column names."""
    remedy = (
        "commas, semicolons or tabs separate the columns; those after the first are target nodes, "
        "such as 0, mem_0 or node0"
    )
    if len(head) < 2:
        raise UserError("the first row has no target node", where, remedy)
    found: list[int] = []
    for name in head[1:]:
        node = _node(name)
        if node is None:
            raise UserError(f"column {name!r} is not a node", where, remedy)
        if node in found:
            raise UserError(f"target node {node} has two columns", where)
        found.append(node)
    return tuple(found)


def _unit_in_name(path: Path, metric: str) -> str | None:
    """Return the unit of a metric at the end of a file name, or None."""
    ends = {unit: f"_{unit.replace('/', 'p')}" for unit in UNITS[metric]}
    return next((unit for unit, end in ends.items() if path.stem.endswith(end)), None)


def _infer_unit(path: Path, metric: str, values: Sequence[float]) -> tuple[str, str]:
    """Return the unit of a file's numbers, and how it is known."""
    if unit := _unit_in_name(path, metric):
        return unit, "by the file name"
    if metric == LATENCY:
        return "ns", "by default"
    units = (unit for least, unit in _UNIT_BY_MAGNITUDE if median(values) >= least)
    return next(units, "GB/s"), "by the magnitude of the numbers"


def _to_metric_unit(metric: str, value: float, unit: str, where: str) -> float:
    """Return a value in the metric's own unit."""
    converted = value * UNITS[metric][unit]
    (least, below), (most, above) = _LIMITS[metric]
    if not least <= converted <= most:
        problem = above if converted > most else below
        remedy = "correct the value, or give the unit (--unit)"
        raise UserError(f"{value:g} {unit} is {problem}", where, remedy)
    return converted
