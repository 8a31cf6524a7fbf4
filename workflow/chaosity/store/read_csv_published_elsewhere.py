"""Read CSV files that somebody else published into a tidy table.

A YAML file of ``templates/published`` (the form) says what the columns mean. With this file,
figures and statistics can show the published values. Nobody can verify these values here, so the
label of each row says that the row was published elsewhere. If the form describes a matrix of node
x node, each cell becomes a row.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, TemplateError, TemplateRuntimeError
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from chaosity.documents.reference_data import PublishedForm
from chaosity.documents.shipped_documents import PUBLISHED, read_document
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.records.record_format import VALID
from chaosity.store.csv_tables import parse_positive_number, read_csv_or_mlc_table
from chaosity.store.read_node_matrix_csv import read_matrix_csv
from chaosity.store.tidy_table_parquet import COLUMNS, Row, rows_to_table

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# More digits than a column of 64 bits has are read as a float.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_PREFIXED = re.compile(r"([0-9.]+)\s*([kKMGT]?)")


def parse_number_with_si_prefix(text: object) -> float | str:
    """Return the number in a text with a decimal prefix, such as 189M; else the text itself."""
    with contextlib.suppress(ValueError):
        if match := _PREFIXED.fullmatch(str(text).strip()):
            return float(match[1]) * _PREFIXES[match[2]]
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


ENVIRONMENT = _FormEnvironment(undefined=StrictUndefined, autoescape=False)
ENVIRONMENT.filters["prefixed"] = parse_number_with_si_prefix


def read_published_csv(path: Path, form: str, host: str, unit: str | None = None) -> pd.DataFrame:
    """Return the tidy table of a CSV file that others published.

    Args:
        path: path of the file; its first line has the column names.
        form: name of the file in ``templates/published`` that explains the columns.
        host: name for the machine.
        unit: unit of the values of a matrix. Default: inferred from the file name, or from how
            large the values are.

    Raises:
        UserError: the file cannot be read, has no row of values, lacks a column, or has a value
            that is not a positive number; the error names the row.
    """
    document: PublishedForm = read_document(PUBLISHED, form, PublishedForm, "the form")
    for name in document["columns"]:
        problem = f"the tidy table has no column {name!r}"
        check_name_is_allowed(name, COLUMNS, problem, f"the form {form}, columns")
    if unit and "matrix" not in document:
        raise UserError(f"the form {form} has a unit of its own", "--unit", "remove the option")
    common = {"host": host, "configuration": "published", "replicate": 1, "status": VALID}
    common |= {name: document[name] for name in ("experiment", "load", "metric")}
    rows = _cells(path, document["matrix"], unit) if "matrix" in document else _lines(path)
    tidy = [{**common, **_row(document, row, place)} for place, row in rows]
    return rows_to_table(tidy, COLUMNS)


def _lines(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a table, each with its place in the file."""
    table = read_csv_or_mlc_table(path)
    columns = map(_numbers_or_texts, zip(*table.rows.values(), strict=True))
    for line, cells in zip(table.rows, zip(*columns, strict=True), strict=True):
        yield table.place_of_line(line), dict(zip(table.names, cells, strict=True))


def _numbers_or_texts(cells: Sequence[str]) -> Sequence[object]:
    """Return the cells of a column as numbers if all are, else as texts; an empty cell is NaN."""
    if all(map(_WHOLE.fullmatch, cells)):
        return [int(cell) for cell in cells]
    if all(_NUMBER.fullmatch(cell) for cell in cells if cell):
        return [float(cell or "nan") for cell in cells]
    return cells


def _cells(path: Path, metric: str, unit: str | None) -> Iterator[tuple[str, Row]]:
    """Yield the cells of a matrix, a row for each replicate."""
    for (initiator, target), values in read_matrix_csv(path, metric, unit).samples.items():
        for replicate, value in enumerate(values, start=1):
            cell = {"initiator": initiator, "target": target, "replicate": replicate}
            yield f"{path}, initiator {initiator}, target {target}", {**cell, "value": value}


def _row(form: PublishedForm, row: Row, where: str) -> Row:
    """Return a row of the tidy table, made from a row of the file as the form describes."""
    columns, factors = (
        {name: _fill(text, row, where) for name, text in texts.items()}
        for texts in (form["columns"], form.get("factors", {}))
    )
    numbers = {
        name: _whole_number(text, where)
        for name, text in columns.items()
        if COLUMNS[name] == "Int64"
    }
    value = parse_positive_number(_fill(form["value"], row, where), where)
    is_number = re.compile("[0-9]{1,18}").fullmatch
    levels = {name: int(text) if is_number(text) else text for name, text in factors.items()}
    text = json.dumps(levels, sort_keys=True)
    known = {name: filled or None for name, filled in columns.items()}
    return {**known, **numbers, "value": value, "factors": text, "levels": text}


_compiled = cache(ENVIRONMENT.from_string)


def _fill(text: str, row: Row, where: str) -> str:
    try:
        return _compiled(text).render(row)
    except (TemplateError, TypeError, ValueError, ArithmeticError, NameError) as error:
        # NameError: Jinja writes a number above all floats as `inf` into the code of the template.
        raise UserError(f"the template {text!r} cannot be filled in: {error}", where) from error


def _whole_number(text: str, where: str) -> int:
    value = parse_positive_number(text, where)
    if not value.is_integer() or value >= 2**63:  # the columns have 64 bits
        raise UserError(f"{text!r} is not a whole number below 2^63", where)
    return int(value)
