"""Read tables and node matrices from CSV files, and write CSV that spreadsheets do not execute.

Texts such as the serial of a drive come from devices, inventories and files that others wrote.
Spreadsheets evaluate a cell that begins with ``=``, ``+``, ``-`` or ``@``. An apostrophe is written
in front of a text that spreadsheets would evaluate, as OWASP recommends (CSV Injection). A number
gets no apostrophe, even in a column that also has texts. Control characters are written as numbers,
since a carriage return in a text would begin a new row.

The first column of a matrix file has the initiator nodes; each further column is a target node. A
node's number is at the end of its name (`3`, `mem_3`, `node3`). A matrix in the output of Intel MLC
is read too. If several rows have the same initiator, each row is a replicate. An empty cell or `-`
means "not measured".

A YAML file of ``templates/published`` (the form) says what the columns of a published CSV file
mean. With a form, figures and statistics can show the published values. Chaosity cannot verify
published values, so the label of each row says that others published the row. If the form describes
a matrix of nodes, each cell of the matrix becomes a row of the tidy table.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, TemplateError, TemplateRuntimeError
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from chaosity.documents.reference_data import PublishedForm
from chaosity.documents.shipped_documents import PUBLISHED_FOLDER, read_document
from chaosity.errors import UserError, check_name_is_allowed, printable_text
from chaosity.records.record_format import VALID
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, Row, rows_to_table

# Spreadsheets skip white space before a formula, and some accept full-width forms of = + - @.
_FORMULA_START = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20].", re.DOTALL)
_FORMULA_ESCAPE = "'"


def escape_formula(value: Any) -> Any:
    """Return a cell; a text that a spreadsheet would evaluate gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    text = printable_text(value)
    if not _FORMULA_START.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"{_FORMULA_ESCAPE}{text}"
    return text


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV without its index, so that spreadsheets execute none of its cells."""
    numeric = {name: pd.api.types.is_numeric_dtype(table[name].dtype) for name in table}
    cells = {
        escape_formula(name): table[name] if numeric[name] else table[name].map(escape_formula)
        for name in table
    }
    return pd.DataFrame(cells, index=table.index).to_csv(index=False, lineterminator="\n")


# Rows of a matrix that Intel MLC prints, see tests/data/mlc_bandwidth_matrix.txt.
_MLC_HEADER_PATTERN = re.compile(r"\s*Numa node((?:\s+[0-9]{1,6})+)\s*")
_MLC_ROW_PATTERN = re.compile(r"\s*[0-9]{1,6}(?:\s+(?:[0-9.]+|-))+\s*")


@dataclass(frozen=True)
class CsvTable:
    """The cells of a CSV file, as texts without spaces around them."""

    path: Path
    names: list[str]  # names of the columns, from the first row
    first_line: int  # number of the line with the names
    rows: dict[int, list[str]]  # number of the line -> the cells, one for each name

    def place_of_line(self, line: int) -> str:
        """Return the file name and a line number as text, for error messages."""
        return f"{self.path}, row {line}"


def read_csv_or_mlc_table(path: Path, *, comments: bool = False) -> CsvTable:
    """Return the table in a CSV file; its first row has the names of the columns.

    The cells are separated by commas, semicolons or tabs, whichever is most frequent in the first
    row. Empty rows are left out. A matrix in the output of Intel MLC, whose columns are separated
    by spaces, is read too. With `comments`, rows that begin with "#" are left out.

    Raises:
        UserError: the file cannot be read, is not a CSV file, has no row below its names, or has a
            row with fewer or more cells than names.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = _rows_of_mlc_matrix(text) or _rows_of_csv(text, "#" if comments else "\n")
    except OSError as error:
        raise UserError(f"the file cannot be read: {error}", str(path)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"the file is not a CSV file: {error}", str(path)) from error
    if len(rows) < 2:
        remedy = "write a row of column names, then rows of values"
        raise UserError("the file has no row of values", str(path), remedy)
    (first, names), *body = rows
    table = CsvTable(path, names, first, dict(body))
    for line, cells in body:
        if len(cells) != len(names):
            what = f"the row has {len(cells)} cells, but the first row has {len(names)}"
            raise UserError(
                what, table.place_of_line(line), "leave a cell empty that was not measured"
            )
    return table


def _rows_of_csv(text: str, comment: str) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each row that does not begin with `comment`."""
    first = next((line for line in text.splitlines() if line.strip() and line[0] != comment), "")
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
    rows = ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)
    return [(line, cells) for line, cells in rows if any(cells) and cells[0][:1] != comment]


def _rows_of_mlc_matrix(text: str) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each row of Intel MLC's first matrix; no rows without one."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if rows and not _MLC_ROW_PATTERN.fullmatch(line):
            break
        if rows:
            rows.append((number, line.split()))
        elif head := _MLC_HEADER_PATTERN.fullmatch(line):
            rows.append((number, ["node", *head[1].split()]))
    return rows


def _parse_positive_number(
    text: str,
    where: str,
    noun: str = "measurement",
    remedy: str = "values must be above 0 and finite",
) -> float:
    """Return the number in a text.

    Raises:
        UserError: the text is no finite number above 0; `noun` says what the number should be.
    """
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number", where) from None
    if not 0.0 < value < math.inf:  # true for NaN too
        raise UserError(f"{value:g} is not a {noun}", where, remedy)
    return value


BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"
METRIC_OF_MATRIX_KIND = {"bandwidth": BANDWIDTH, "latency": LATENCY}
# Metric -> unit -> factor that converts a value into bytes per second or nanoseconds.
UNIT_FACTORS: dict[str, dict[str, float]] = {
    BANDWIDTH: {"B/s": 1.0, "MB/s": 1e6, "MiB/s": 2.0**20, "GB/s": 1e9, "GiB/s": 2.0**30},
    LATENCY: {"ns": 1.0, "us": 1e3},
}
# The fastest memory nodes today (HBM3) move 4 to 8 TB/s. A hit in the first-level cache takes about
# 1 ns, and an access over a fabric takes a few microseconds. So a value far outside of its limits
# is a typing error or has another unit.
_IMPLAUSIBLE_VALUES = {
    BANDWIDTH: (
        (1e3, "below the bandwidth of any memory"),
        (2e13, "above the bandwidth of any memory bus (about 8 TB/s)"),
    ),
    LATENCY: ((0.1, "below the time of any cache"), (1e6, "above the time of any memory")),
}
# If a file does not name the unit of its bandwidths, the median of the numbers decides the unit:
# bytes per second for a median from 1e8 (0.1 GB/s), megabytes per second for a median from 2000 (2
# GB/s), and gigabytes per second for a smaller median.
_UNIT_BY_MAGNITUDE = ((1e8, "B/s"), (2e3, "MB/s"))
_NAME_AND_NUMBER = re.compile(r"(.*?)(?<![0-9])([0-9]{1,6})")
_TEXTS_OF_UNMEASURED_CELLS = ("", "-")
Pair = tuple[int, int]


@dataclass(frozen=True)
class NodeMatrix:
    """Measured values from each initiator node to each target node."""

    metric: str  # full name of the metric, such as bandwidth_bytes_per_second
    initiators: tuple[int, ...]  # node numbers, in the order of the rows
    targets: tuple[int, ...]  # node numbers, in the order of the columns
    # (initiator, target) -> values of the replicates in the metric's unit; only measured cells.
    samples: Mapping[Pair, tuple[float, ...]]
    # (initiator, target) -> block of replicates of each value in `samples`; empty if unknown.
    blocks: Mapping[Pair, tuple[int, ...]]
    source: str  # words that say where the values come from
    # Unit of the numbers in the file, and how the unit was found; None without a file.
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

    By default, the unit follows from the end of the file name (`_MBps`, `_ns`). If the file name
    ends in no unit, bandwidths get the unit that fits the size of the numbers, and latencies get
    ns.

    Raises:
        UserError: the file has no matrix of nodes, its name ends in a unit of another metric, or a
            value is impossible. An error about a value names the row and column of the value.
    """
    name = METRIC_OF_MATRIX_KIND[metric]
    if unit is not None and unit not in UNIT_FACTORS[name]:
        allowed = f"allowed: {', '.join(UNIT_FACTORS[name])}"
        raise UserError(f"{unit} is not a unit of {metric}", str(path), allowed)
    for other in METRIC_OF_MATRIX_KIND.keys() - {metric}:
        if unit is None and _unit_in_name(
            path, METRIC_OF_MATRIX_KIND[other]
        ):  # ns would be taken for GB/s
            problem = f"the file name ends in a unit of {other}, not of {metric}"
            remedy = f"if the file name is wrong, give the unit of the {metric} (--unit)"
            raise UserError(problem, str(path), remedy)
    initiators, targets, cells = _read_matrix_file(path)
    numbers = [value for _, _, value in cells]
    used, reason = (unit, "as given") if unit else _infer_unit(path, name, numbers)
    samples: dict[Pair, tuple[float, ...]] = {}
    for where, pair, value in cells:
        samples[pair] = (*samples.get(pair, ()), _to_metric_unit(name, value, used, where))
    return NodeMatrix(name, initiators, targets, samples, {}, path.name, f"{used}, {reason}")


def read_distances_csv(path: Path) -> dict[Pair, float]:
    """Return (initiator node, target node) -> distance, from a CSV file with a SLIT.

    Raises:
        UserError: the file has no matrix of distances, or an initiator has two rows.
    """
    found: dict[Pair, float] = {}
    remedy = "distances must be above 0 and finite; 10 is local"
    _, _, cells = _read_matrix_file(path, "distance", remedy)
    for _, pair, value in cells:
        if pair in found:
            raise UserError(f"initiator node {pair[0]} has two rows", str(path))
        found[pair] = value
    return found


# For each number in a file: its row and column in words, (initiator, target), the number.
_Cells = list[tuple[str, Pair, float]]


def _read_matrix_file(
    path: Path, *noun_and_remedy: str
) -> tuple[tuple[int, ...], tuple[int, ...], _Cells]:
    """Return the nodes of the rows, the nodes of the columns, and the numbers in a CSV file."""
    table = read_csv_or_mlc_table(path, comments=True)
    targets = _target_nodes(table.names, table.place_of_line(table.first_line))
    initiators: dict[int, None] = {}
    cells = []
    for line, (name, *texts) in table.rows.items():
        where = table.place_of_line(line)
        initiator = _node_number(name)
        if initiator is None:
            problem = f"{name!r} in the first column is not a node"
            raise UserError(problem, where, "write a node as 3 or node3")
        initiators[initiator] = None
        for column, target, text in zip(table.names[1:], targets, texts, strict=True):
            if text not in _TEXTS_OF_UNMEASURED_CELLS:
                place = f"{where}, column {column}"
                value = _parse_positive_number(text, place, *noun_and_remedy)
                cells.append((place, (initiator, target), value))
    if not cells:
        remedy = "write numbers; an empty cell or - was not measured"
        raise UserError("no cell has a value", str(path), remedy)
    return tuple(initiators), targets, cells


def _node_number(text: str) -> int | None:
    """Return the number at the end of a node's name; None without a number."""
    match = _NAME_AND_NUMBER.fullmatch(text)
    return int(match[2]) if match else None


def _target_nodes(head: Sequence[str], where: str) -> tuple[int, ...]:
    """Return the node numbers in the column names."""
    remedy = (
        "separate columns by commas, semicolons or tabs; all but the first are target nodes, "
        "such as 0, mem_0 or node0"
    )
    if len(head) < 2:
        raise UserError("the first row has no target node", where, remedy)
    found: list[int] = []
    for name in head[1:]:
        node = _node_number(name)
        if node is None:
            raise UserError(f"column {name!r} is not a node", where, remedy)
        if node in found:
            raise UserError(f"target node {node} has two columns", where)
        found.append(node)
    return tuple(found)


def _unit_in_name(path: Path, metric: str) -> str | None:
    """Return the unit of a metric at the end of a file name, or None."""
    ends = {unit: f"_{unit.replace('/', 'p')}" for unit in UNIT_FACTORS[metric]}
    return next((unit for unit, end in ends.items() if path.stem.endswith(end)), None)


def _infer_unit(path: Path, metric: str, values: Sequence[float]) -> tuple[str, str]:
    """Return the unit of a file's numbers, and in words how the unit was found."""
    if unit := _unit_in_name(path, metric):
        return unit, "by the file name"
    if metric == LATENCY:
        return "ns", "by default"
    units = (unit for least, unit in _UNIT_BY_MAGNITUDE if median(values) >= least)
    return next(units, "GB/s"), "by the magnitude of the numbers"


def _to_metric_unit(metric: str, value: float, unit: str, where: str) -> float:
    """Return a value converted from `unit` to the unit of the metric."""
    converted = value * UNIT_FACTORS[metric][unit]
    (least, below), (most, above) = _IMPLAUSIBLE_VALUES[metric]
    if not least <= converted <= most:
        problem = above if converted > most else below
        remedy = "correct the value, or give the unit (--unit)"
        raise UserError(f"{value:g} {unit} is {problem}", where, remedy)
    return converted


_FACTORS_OF_SI_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# A whole number with more than 18 digits may not fit into 64 bits, so it is read as a float.
_WHOLE_NUMBER_PATTERN = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER_PATTERN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBER_WITH_PREFIX_PATTERN = re.compile(r"([0-9.]+)\s*([kKMGT]?)")


def parse_number_with_si_prefix(text: object) -> float | str:
    """Return the number in a text such as 189M, or the text itself if the text is no number."""
    with contextlib.suppress(ValueError):
        if match := _NUMBER_WITH_PREFIX_PATTERN.fullmatch(str(text).strip()):
            return float(match[1]) * _FACTORS_OF_SI_PREFIXES[match[2]]
    return str(text)


class _FormEnvironment(SandboxedEnvironment):
    """Fills in templates with cells of published CSV files; `*` and `**` accept only numbers.

    In Jinja2, a text times a number repeats the text, so a cell with a text could fill the memory.
    """

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for value in (left, right):
            if not isinstance(value, int | float):
                raise TemplateRuntimeError(f"{value!r:.60} is not a number")
        return super().call_binop(context, operator, left, right)


JINJA_ENVIRONMENT = _FormEnvironment(undefined=StrictUndefined, autoescape=False)
JINJA_ENVIRONMENT.filters["prefixed"] = parse_number_with_si_prefix


def read_published_csv(path: Path, form: str, host: str, unit: str | None = None) -> pd.DataFrame:
    """Return the tidy table of a CSV file that others published.

    Args:
        path: path of the file; its first line has the column names.
        form: name of the file in ``templates/published`` that says what the columns mean.
        host: name for the machine in the tidy table.
        unit: unit of the values of a matrix. By default, the file name or the size of the values
            decides the unit.

    Raises:
        UserError: the file cannot be read, has no row of values, lacks a column, or has a value
            that is not a positive number; the error names the row.
    """
    document: PublishedForm = read_document(PUBLISHED_FOLDER, form, PublishedForm, "the form")
    for name in document["columns"]:
        problem = f"the tidy table has no column {name!r}"
        check_name_is_allowed(name, COLUMN_TYPES, problem, f"the form {form}, columns")
    if unit and "matrix" not in document:
        raise UserError(f"the form {form} already gives the unit", "--unit", "remove the option")
    common = {"host": host, "configuration": "published", "replicate": 1, "status": VALID}
    common |= {name: document[name] for name in ("experiment", "load", "metric")}
    rows = (
        _rows_of_matrix(path, document["matrix"], unit)
        if "matrix" in document
        else _rows_with_places(path)
    )
    tidy = [{**common, **_make_tidy_row(document, row, place)} for place, row in rows]
    return rows_to_table(tidy, COLUMN_TYPES)


def _rows_with_places(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (file and line in words, row) for each row of a table."""
    table = read_csv_or_mlc_table(path)
    columns = map(_numbers_or_texts, zip(*table.rows.values(), strict=True))
    for line, cells in zip(table.rows, zip(*columns, strict=True), strict=True):
        yield table.place_of_line(line), dict(zip(table.names, cells, strict=True))


def _numbers_or_texts(cells: Sequence[str]) -> Sequence[object]:
    """Return a column as numbers, or as texts if a cell is no number; an empty cell becomes NaN."""
    if all(map(_WHOLE_NUMBER_PATTERN.fullmatch, cells)):
        return [int(cell) for cell in cells]
    if all(_NUMBER_PATTERN.fullmatch(cell) for cell in cells if cell):
        return [float(cell or "nan") for cell in cells]
    return cells


def _rows_of_matrix(path: Path, metric: str, unit: str | None) -> Iterator[tuple[str, Row]]:
    """Yield (file and cell in words, row) for each replicate of each cell of a matrix."""
    for (initiator, target), values in read_matrix_csv(path, metric, unit).samples.items():
        for replicate, value in enumerate(values, start=1):
            cell = {"initiator": initiator, "target": target, "replicate": replicate}
            yield f"{path}, initiator {initiator}, target {target}", {**cell, "value": value}


def _make_tidy_row(form: PublishedForm, row: Row, where: str) -> Row:
    """Return the row of the tidy table that the form describes for a row of the file."""
    columns, factors = (
        {name: _fill_form_template(text, row, where) for name, text in texts.items()}
        for texts in (form["columns"], form.get("factors", {}))
    )
    numbers = {
        name: _whole_number(text, where)
        for name, text in columns.items()
        if COLUMN_TYPES[name] == "Int64"
    }
    value = _parse_positive_number(_fill_form_template(form["value"], row, where), where)
    is_number = re.compile("[0-9]{1,18}").fullmatch
    levels = {name: int(text) if is_number(text) else text for name, text in factors.items()}
    text = json.dumps(levels, sort_keys=True)
    known = {name: filled or None for name, filled in columns.items()}
    return {**known, **numbers, "value": value, "factors": text, "levels": text}


_compile_template = cache(JINJA_ENVIRONMENT.from_string)


def _fill_form_template(text: str, row: Row, where: str) -> str:
    try:
        return _compile_template(text).render(row)
    except (TemplateError, TypeError, ValueError, ArithmeticError, NameError) as error:
        # Jinja writes a number above all floats as `inf`, which raises a NameError in the template.
        raise UserError(f"the template {text!r} cannot be filled in: {error}", where) from error


def _whole_number(text: str, where: str) -> int:
    value = _parse_positive_number(text, where)
    if not value.is_integer() or value >= 2**63:  # the columns have 64 bits
        raise UserError(f"{text!r} is not a whole number below 2^63", where)
    return int(value)
