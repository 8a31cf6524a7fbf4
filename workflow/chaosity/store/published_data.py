"""Measurements that others published, as a tidy table: a YAML file says what their columns mean.

So they go through the same figures and statistics as our own. Nobody can verify them: the label of
each row says that they are not ours. A form may say that the file is a matrix of node x node; then
its cells are what the columns are made of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from chaosity.config import PUBLISHED, load_named_yaml
from chaosity.errors import UserError
from chaosity.records import VALID
from chaosity.store.node_matrix import read_matrix
from chaosity.store.tidy_table import COLUMNS

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIXED = re.compile(r"([0-9.]+)\s*([kKMGT]?)")


def prefixed(text: object) -> float | str:
    """A number with a decimal prefix, 189M; what is none is left as it is, and named later."""
    match = _PREFIXED.fullmatch(str(text).strip())
    try:
        return float(match[1]) * _PREFIXES[match[2]] if match else str(text)
    except ValueError:
        return str(text)


ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
ENVIRONMENT.filters["prefixed"] = prefixed


def read_published(path: Path, form: str, host: str, unit: str | None = None) -> pd.DataFrame:
    """The tidy table of a CSV file that others published.

    Args:
        path: of the file, with a line of column names.
        form: name of the file below ``templates/published`` that says what they mean.
        host: what the machine is to be called.
        unit: of the numbers in a matrix; without it the file's name says so, else their size.

    Raises:
        UserError: the file cannot be read, lacks a column, or holds something that is no number
            where one has to be; the sentence names row and column.
    """
    document = load_named_yaml(PUBLISHED, form, "the form", "published")
    if unit and "matrix" not in document:
        raise UserError(f"the form {form} knows its unit", "--unit", "leave it out")
    common = {"host": host, "configuration": "published", "replicate": 1, "status": VALID}
    common |= {key: document[key] for key in ("experiment", "load", "metric")}
    rows = _cells(path, document["matrix"], unit) if "matrix" in document else _lines(path)
    found = [{**common, **_row(document, row, place)} for place, row in rows]
    return pd.DataFrame(found, columns=list(COLUMNS)).astype(COLUMNS)


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table, each with its place as an editor counts, names in row 1."""
    try:
        rows = pd.read_csv(path).to_dict("records")
    except (OSError, ValueError) as error:
        raise UserError(f"is no CSV file: {error}", str(path)) from error
    for number, row in enumerate(rows, start=2):
        yield f"{path}, row {number}", row


def _cells(path: Path, metric: str, unit: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cells of a matrix, replicate by replicate."""
    for (initiator, target), values in read_matrix(path, metric, unit).samples.items():
        for replicate, value in enumerate(values, start=1):
            cell = {"initiator": initiator, "target": target, "replicate": replicate}
            yield f"{path}, initiator {initiator}, target {target}", {**cell, "value": value}


def _row(document: Mapping[str, Any], row: Mapping[str, Any], where: str) -> dict[str, Any]:
    columns = {name: _fill(text, row, where) for name, text in document["columns"].items()}
    factors = {name: _fill(text, row, where) for name, text in document.get("factors", {}).items()}
    numbers = {name: _number(columns[name], where) for name in columns if COLUMNS[name] == "Int64"}
    value = _number(_fill(document["value"], row, where), where)
    levels = {name: int(text) if text.isdecimal() else text for name, text in factors.items()}
    text = json.dumps(levels, sort_keys=True)
    known = {name: told or None for name, told in columns.items()}
    return {**known, **numbers, "value": value, "factors": text, "levels": text}


@cache
def _compiled(text: str) -> Template:
    return ENVIRONMENT.from_string(text)


def _fill(text: str, row: Mapping[str, Any], where: str) -> str:
    try:
        return _compiled(text).render(row)
    except (TemplateError, TypeError) as error:
        raise UserError(f"{text!r} cannot be filled in: {error}", where) from error


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number", where) from None
    if not value > 0:  # also what is no number at all
        raise UserError(f"{text!r} is no measurement", where)
    return value
