"""Read tables from CSV files, and write CSV whose texts no spreadsheet takes for formulas.

Texts such as the serial of a drive come from devices, inventories and files that others wrote.
Spreadsheets evaluate a cell that begins with ``=``, ``+``, ``-`` or ``@``. As OWASP recommends (CSV
Injection), such a text gets an apostrophe in front. Numbers are unchanged, also in columns of
texts. Control characters, such as a carriage return, which would begin a row, are shown by their
numbers.
"""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.errors import UserError, printable_text

# Spreadsheets skip white space before a formula, and some accept the full-width signs.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20].", re.DOTALL)
_MARK = "'"


def escape_formula(value: Any) -> Any:
    """Return a cell; a text that a spreadsheet would evaluate gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    text = printable_text(value)
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"{_MARK}{text}"
    return text


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV without its index, safe for spreadsheets."""
    numeric = {name: pd.api.types.is_numeric_dtype(table[name].dtype) for name in table}
    cells = {
        escape_formula(name): table[name] if numeric[name] else table[name].map(escape_formula)
        for name in table
    }
    return pd.DataFrame(cells, index=table.index).to_csv(index=False, lineterminator="\n")


# The rows of a matrix as Intel MLC prints it, see tests/data/mlc_bandwidth_matrix.txt.
_MLC_HEAD = re.compile(r"\s*Numa node((?:\s+[0-9]{1,6})+)\s*")
_MLC_ROW = re.compile(r"\s*[0-9]{1,6}(?:\s+(?:[0-9.]+|-))+\s*")


@dataclass(frozen=True)
class CsvTable:
    """The cells of a CSV file, as texts without spaces around them."""

    path: Path
    names: list[str]  # names of the columns, from the first row
    first_line: int  # number of the line with the names
    rows: dict[int, list[str]]  # number of the line -> the cells, one for each name

    def place_of_line(self, line: int) -> str:
        """Return the file and a line of it, for error messages."""
        return f"{self.path}, row {line}"


def read_csv_or_mlc_table(path: Path, *, comments: bool = False) -> CsvTable:
    """Return the table in a CSV file; its first row has the names of the columns.

    The cells are separated by commas, semicolons or tabs, whichever the first row has most of.
    Empty rows are left out. A matrix in the output of Intel MLC, whose columns are separated by
    spaces, is read too. With `comments`, rows that begin with "#" are left out.

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
    """Return the cells of each row that does not begin with `comment`, with its line number."""
    first = next((line for line in text.splitlines() if line.strip() and line[0] != comment), "")
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
    rows = ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)
    return [(line, cells) for line, cells in rows if any(cells) and cells[0][:1] != comment]


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
