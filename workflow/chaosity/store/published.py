"""Measurements that others published, as a tidy table: a YAML file says what their columns mean.

So they go through the same figures and statistics as our own. Nobody can verify them: the label of
each row says that they are not ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from chaosity.config import PUBLISHED, named_document
from chaosity.errors import UserError
from chaosity.records import VALID
from chaosity.store.tidy import COLUMNS

ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


def read_published(path: Path, form: str, host: str) -> pd.DataFrame:
    """The tidy table of a CSV file that others published.

    Args:
        path: of the file, with a line of column names.
        form: name of the file below ``templates/published`` that says what they mean.
        host: what the machine is to be called.

    Raises:
        UserError: the file cannot be read, lacks a column, or holds something that is no number
            where one has to be; the sentence names row and column.
    """
    document = named_document(PUBLISHED, form, "the form", "published")
    try:
        rows = pd.read_csv(path).to_dict("records")
    except (OSError, ValueError) as error:
        raise UserError(f"is no CSV file: {error}", str(path)) from error
    common = {"host": host, "configuration": "published", "replicate": 1, "status": VALID}
    common |= {key: document[key] for key in ("experiment", "load", "metric")}
    found = [
        {**common, **_row(document, row, f"{path}, row {number}")}
        for number, row in enumerate(rows, start=2)  # as an editor counts, names in row 1
    ]
    return pd.DataFrame(found, columns=list(COLUMNS)).astype(COLUMNS)


def _row(document: Mapping[str, Any], row: Mapping[str, Any], where: str) -> dict[str, Any]:
    columns = {name: _fill(text, row, where) for name, text in document["columns"].items()}
    factors = {name: _fill(text, row, where) for name, text in document.get("factors", {}).items()}
    numbers = {name: _number(columns[name], where) for name in columns if COLUMNS[name] == "Int64"}
    value = _number(_fill(document["value"], row, where), where)
    levels = {name: int(text) if text.isdecimal() else text for name, text in factors.items()}
    text = json.dumps(levels, sort_keys=True)
    return {**columns, **numbers, "value": value, "factors": text, "levels": text}


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
