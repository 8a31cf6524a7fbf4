"""Matrices of initiator node x target node: anybody's CSV file, or slices of the tidy table.

A file has the initiator's node in the first column and then a column for each target node; the node
is the number at the end of a name (`3`, `mem_3`, `node3`). Rows that name the same initiator again
are further replicates. An empty cell or `-` is a cell that was not measured.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chaosity.errors import UserError

BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
METRICS = {"bandwidth": BANDWIDTH, "latency": LATENCY}
# What one of a unit is in bytes per second, or in nanoseconds.
UNITS: dict[str, dict[str, float]] = {
    BANDWIDTH: {
        "B/s": 1.0,
        "MB/s": 1e6,
        "MiB/s": 2.0**20,
        "GB/s": 1e9,
        "GiB/s": 2.0**30,
    },
    LATENCY: {"ns": 1.0, "us": 1e3},
}
# The fastest memory that is a node today, stacked on a package, moves 4 to 8 TB/s (HBM3); a load
# that hits the first cache takes about 1 ns, one over a fabric a few microseconds. What lies far
# outside is a slip of the pen or another unit.
_BOUNDS = {BANDWIDTH: (1e3, 2e13), LATENCY: (0.1, 1e6)}
_SAID = {BANDWIDTH: ("below any memory", "above any memory bus (some 8 TB/s)"),
         LATENCY: ("below the time of any cache", "above the time of any memory")}  # fmt: skip
# Median of a file whose unit nobody says: above the first it is bytes, above the second megabytes
# per second (0.1 GB/s as bytes, 2 GB/s or 2 TB/s), else gigabytes.
_LOOKS_LIKE = ((1e8, "B/s"), (2e3, "MB/s"))
_NUMBERED = re.compile(r"(.*?)(\d+)")
_NOT_MEASURED = ("", "-")
Pair = tuple[int, int]


@dataclass(frozen=True)
class NodeMatrix:
    """What was measured from each initiator node to each target node.

    Attributes:
        metric: its full name, such as bandwidth_bytes_per_second.
        initiators: node numbers, in the order of the rows.
        targets: node numbers, in the order of the columns.
        samples: (initiator, target) -> replicates in the metric's unit; only what was measured.
        blocks: (initiator, target) -> the replicate block of each sample; empty when unknown.
        source: what it came from, for sentences.
        unit: what the numbers of a file were taken for, or None.
    """

    metric: str
    initiators: tuple[int, ...]
    targets: tuple[int, ...]
    samples: Mapping[Pair, tuple[float, ...]]
    blocks: Mapping[Pair, tuple[int, ...]]
    source: str
    unit: str | None = None

    def median(self, initiator: int, target: int) -> float | None:
        """Of the replicates of a cell; None where nothing was measured."""
        values = self.samples.get((initiator, target))
        return median(values) if values else None

    @property
    def measured_share(self) -> float:
        """Of all cells, how many were measured."""
        return len(self.samples) / (len(self.initiators) * len(self.targets))


def read_matrix(path: Path, metric: str, unit: str | None = None) -> NodeMatrix:
    """Read a CSV file.

    Args:
        path: of the file.
        metric: bandwidth or latency.
        unit: of its numbers; without it the file's name says so (`_MBps`, `_ns`), else their size.

    Raises:
        UserError: the file is no such matrix, its name says that it holds another metric, or it
            holds what cannot be a measurement; the sentence names row and column.
    """
    name = METRICS[metric]
    if unit is not None and unit not in UNITS[name]:
        raise UserError(
            f"{unit} is no unit of {metric}", str(path), f"it is one of {', '.join(UNITS[name])}"
        )
    if unit is None:
        _refuse_other(path, metric)
    table = read_numbers(path)
    numbers = [value for _, _, value in table.cells]
    taken, why = (unit, "as asked") if unit else _unit(path, name, numbers)
    samples: dict[Pair, tuple[float, ...]] = {}
    for where, pair, value in table.cells:
        samples[pair] = (*samples.get(pair, ()), _checked(name, value, taken, where))
    return NodeMatrix(
        metric=name,
        initiators=table.rows,
        targets=table.columns,
        samples=samples,
        blocks={},
        source=path.name,
        unit=f"{taken}, {why}",
    )


def read_distances(path: Path) -> dict[Pair, float]:
    """Read a distance table, such as the firmware's SLIT, in the same form.

    Raises:
        UserError: it is no such table.
    """
    found: dict[Pair, float] = {}
    for where, pair, value in read_numbers(path).cells:
        if value <= 0.0:
            raise UserError(f"{value:g} is no distance", where, "distances are above 0, local 10")
        if pair in found:
            raise UserError(f"initiator {pair[0]} stands there twice", str(path))
        found[pair] = value
    return found


@dataclass(frozen=True)
class Numbers:
    """The numbers of a file: where each stands in words, its pair of nodes, its value."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: tuple[tuple[str, Pair, float], ...]


def read_numbers(path: Path) -> Numbers:
    """The numbered rows and columns of a CSV file.

    Raises:
        UserError: it is empty or ragged, or has text where a number has to be.
    """
    lines = _lines(path)
    if len(lines) < 2:
        what = "has a line of names but no row" if lines else "is empty"
        raise UserError(what, str(path), "a matrix has a column for each target node and a row "
                        "for each initiator node")  # fmt: skip
    (_, head), *body = lines
    columns = _targets(head, str(path))
    rows: dict[int, None] = {}
    cells = []
    for number, fields in body:
        where = f"{path}, row {number}"
        if len(fields) != len(head):
            raise UserError(
                f"has {len(fields)} cells, but the first row names {len(head)}", where,
                "every row has an initiator and a cell for each target; leave a cell empty that "
                "was not measured",
            )  # fmt: skip
        row = _node(fields[0])
        if row is None:
            raise UserError(
                f"{fields[0]!r} in the first column is no node",
                where,
                "it would be like 3 or node3",
            )
        rows[row] = None
        for name, column, text in zip(head[1:], columns, fields[1:], strict=True):
            if text not in _NOT_MEASURED:
                place = f"{where}, column {name}"
                cells.append((place, (row, column), _number(text, place)))
    if not cells:
        raise UserError("holds no number", str(path))
    return Numbers(tuple(rows), columns, tuple(cells))


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Rows that are not empty, with their numbers as an editor counts."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", str(path)) from error
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter)
    found = []
    for fields in reader:
        stripped = [field.strip() for field in fields]
        if any(stripped) and not stripped[0].startswith("#"):
            found.append((reader.line_num, stripped))
    return found


def _node(text: str) -> int | None:
    """The number at the end of a node's name."""
    match = _NUMBERED.fullmatch(text)
    return int(match[2]) if match else None


def _targets(head: Sequence[str], where: str) -> tuple[int, ...]:
    remedy = "columns after the first are target nodes, such as 0, mem_0 or node0"
    where = f"{where}, row 1"
    if len(head) < 2:
        raise UserError("names no target node", where, remedy)
    found = []
    for name in head[1:]:
        node = _node(name)
        if node is None:
            raise UserError(f"column {name!r} names no node", where, remedy)
        if node in found:
            raise UserError(f"target node {node} has two columns", where)
        found.append(node)
    return tuple(found)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number", where) from None


def _refuse_other(path: Path, metric: str) -> None:
    """Latencies would pass for GB/s, and the other way round.

    Raises:
        UserError: the file's name ends in a unit of another metric.
    """
    for other, name in METRICS.items():
        if other != metric and _unit_of_name(path, name) is not None:
            raise UserError(
                f"holds a {other} by its name, not a {metric}", str(path),
                f"where the name is wrong, say the unit of the {metric} (--unit)",
            )  # fmt: skip


def _unit_of_name(path: Path, metric: str) -> str | None:
    """The unit of a metric that a file's name ends in."""
    names = {unit: f"_{unit.replace('/', 'p')}" for unit in UNITS[metric]}
    return next((unit for unit, end in names.items() if path.stem.endswith(end)), None)


def _unit(path: Path, metric: str, values: Sequence[float]) -> tuple[str, str]:
    """The unit of a file's numbers, and how it is known."""
    named = _unit_of_name(path, metric)
    if named is not None:
        return named, "by the file's name"
    if metric == LATENCY:
        return "ns", "since nothing else was said"
    typical = median(values)
    unit = next((unit for least, unit in _LOOKS_LIKE if typical >= least), "GB/s")
    return unit, "by the size of the numbers"


def _checked(metric: str, value: float, unit: str, where: str) -> float:
    """A value in the metric's unit.

    Raises:
        UserError: nothing in this world could have been measured so.
    """
    if not value > 0.0:  # also what is no number at all
        raise UserError(f"{value:g} is no measurement", where, "it has to be above 0")
    converted = value * UNITS[metric][unit]
    least, most = _BOUNDS[metric]
    if not least <= converted <= most:
        said = _SAID[metric][converted > most]
        raise UserError(f"{value:g} {unit} is {said}", where, "mend it, or say the unit (--unit)")
    return converted
