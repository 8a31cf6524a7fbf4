"""Read matrices of initiator node x target node from CSV files.

The first column of a file has the initiator nodes; each further column is a target node. A node's
number is at the end of its name (`3`, `mem_3`, `node3`). The output of Intel MLC with such a matrix
is read too. Rows that repeat an initiator are further replicates. An empty cell or `-` was not
measured.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chaosity.errors import UserError

BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
METRICS = {"bandwidth": BANDWIDTH, "latency": LATENCY}
# Metric -> unit -> the factor to bytes per second or nanoseconds.
UNITS: dict[str, dict[str, float]] = {
    BANDWIDTH: {"B/s": 1.0, "MB/s": 1e6, "MiB/s": 2.0**20, "GB/s": 1e9, "GiB/s": 2.0**30},
    LATENCY: {"ns": 1.0, "us": 1e3},
}
# The fastest memory that is a node today, stacked on a package, moves 4 to 8 TB/s (HBM3); a hit in
# the first cache takes about 1 ns, an access over a fabric a few microseconds. A value far outside
# is a typing error or has another unit.
_BOUNDS = {BANDWIDTH: (1e3, 2e13), LATENCY: (0.1, 1e6)}
_OUT_OF_BOUNDS = {
    BANDWIDTH: (
        "below the bandwidth of any memory",
        "above the bandwidth of any memory bus (about 8 TB/s)",
    ),
    LATENCY: ("below the time of any cache", "above the time of any memory"),
}
# The unit of a file without a known unit, by the median of its values: bytes per second above the
# first limit, megabytes per second above the second (0.1 GB/s as bytes, 2 GB/s or 2 TB/s), else
# gigabytes per second.
_UNIT_BY_MAGNITUDE = ((1e8, "B/s"), (2e3, "MB/s"))
_NUMBERED = re.compile(r"(.*?)(?<![0-9])([0-9]{1,6})")
_NOT_MEASURED = ("", "-")
# The rows of a matrix as Intel MLC prints it, see tests/data/mlc_bandwidth_matrix.txt.
_MLC_HEAD = re.compile(r"\s*Numa node((?:\s+[0-9]{1,6})+)\s*")
_MLC_ROW = re.compile(r"\s*[0-9]{1,6}(?:\s+(?:[0-9.]+|-))+\s*")
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
    """Return the matrix of measurements in a CSV file.

    Args:
        path: path of the file.
        metric: bandwidth or latency.
        unit: unit of the numbers. Default: from the file name (`_MBps`, `_ns`) or the magnitude.

    Raises:
        UserError: the file is not such a matrix, its name ends in a unit of another metric, or a
            value is impossible; the error names row and column.
    """
    name = METRICS[metric]
    if unit is not None and unit not in UNITS[name]:
        allowed = f"allowed: {', '.join(UNITS[name])}"
        raise UserError(f"{unit} is not a unit of {metric}", str(path), allowed)
    for other in METRICS.keys() - {metric}:
        if unit is None and _unit_in_name(path, METRICS[other]):  # ns would pass for GB/s
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
    """Return (initiator, target) -> entry of the SLIT in a CSV file of the same form.

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
    """Return the nodes of the rows, the nodes of the columns, and the numbers of a CSV file.

    `noun_and_remedy` are arguments of `parse_positive_number`.
    """
    lines = [row for row in read_csv_rows(path) if not row[1][0].startswith("#")]
    if len(lines) < 2:
        problem = "the file has column names but no row" if lines else "is empty"
        remedy = "a matrix has a column for each target node and a row for each initiator node"
        raise UserError(problem, str(path), remedy)
    (_, head), *body = lines
    targets = _target_nodes(head, f"{path}, row 1")
    initiators: dict[int, None] = {}
    cells = []
    for number, fields in body:
        where = f"{path}, row {number}"
        if len(fields) != len(head):
            raise UserError(
                f"the row has {len(fields)} cells, but the first row has {len(head)}",
                where,
                "every row needs an initiator and a cell for each target; leave a cell empty that "
                "was not measured",
            )
        initiator = _node(fields[0])
        if initiator is None:
            problem = f"{fields[0]!r} in the first column is not a node"
            raise UserError(problem, where, "write a node as 3 or node3")
        initiators[initiator] = None
        for name, target, text in zip(head[1:], targets, fields[1:], strict=True):
            if text not in _NOT_MEASURED:
                place = f"{where}, column {name}"
                value = parse_positive_number(text, place, *noun_and_remedy)
                cells.append((place, (initiator, target), value))
    if not cells:
        raise UserError("the file has no number", str(path))
    return tuple(initiators), targets, cells


def read_csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the cells of each row of a CSV file that is not empty, with the row's line number.

    Cells are stripped of spaces. The cells are separated by commas, semicolons or tabs, whichever
    the first row has most of. A matrix in the output of Intel MLC, whose columns are separated by
    spaces, is read too.

    Raises:
        UserError: the file cannot be read, or is not a CSV file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if rows := _rows_of_mlc_matrix(text):
            return rows
        first = next(filter(str.strip, text.splitlines()), "")
        reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
        stripped = ([field.strip() for field in fields] for fields in reader)
        return [(reader.line_num, fields) for fields in stripped if any(fields)]
    except OSError as error:
        raise UserError(f"the file cannot be read: {error}", str(path)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"the file is not a CSV file: {error}", str(path)) from error


def _rows_of_mlc_matrix(text: str) -> list[tuple[int, list[str]]]:
    """Return the rows of the first matrix that Intel MLC printed, with line numbers; or no rows."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if rows and not _MLC_ROW.fullmatch(line):
            break
        if rows:
            rows.append((number, line.split()))
        elif head := _MLC_HEAD.fullmatch(line):
            rows.append((number, ["node", *head[1].split()]))
    return rows


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
    found: dict[int, None] = {}
    for name in head[1:]:
        node = _node(name)
        if node is None:
            raise UserError(f"column {name!r} is not a node", where, remedy)
        if node in found:
            raise UserError(f"target node {node} has two columns", where)
        found[node] = None
    return tuple(found)


def parse_positive_number(
    text: str,
    where: str,
    noun: str = "measurement",
    remedy: str = "values must be above 0 and finite",
) -> float:
    """Return the number in a text.

    Raises:
        UserError: the text is not a number above 0 and finite; the error calls it "not a `noun`".
    """
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number", where) from None
    if not 0.0 < value < math.inf:  # true for NaN too
        raise UserError(f"{value:g} is not a {noun}", where, remedy)
    return value


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
    middle = median(values)
    unit = next((unit for least, unit in _UNIT_BY_MAGNITUDE if middle >= least), "GB/s")
    return unit, "by the magnitude of the numbers"


def _to_metric_unit(metric: str, value: float, unit: str, where: str) -> float:
    """Return a value in the metric's own unit."""
    converted = value * UNITS[metric][unit]
    least, most = _BOUNDS[metric]
    if not least <= converted <= most:
        problem = _OUT_OF_BOUNDS[metric][converted > most]
        remedy = "correct the value, or give the unit (--unit)"
        raise UserError(f"{value:g} {unit} is {problem}", where, remedy)
    return converted
