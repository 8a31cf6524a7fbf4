"""Write CSV files whose texts no spreadsheet takes for formulas.

Texts such as the serial of a drive come from devices, inventories and files that others wrote.
Spreadsheets evaluate a cell that begins with ``=``, ``+``, ``-`` or ``@``. As OWASP recommends (CSV
Injection), such a text gets an apostrophe in front. Numbers are unchanged, also in columns of
texts. Control characters, such as a carriage return, which would begin a row, are shown by their
numbers.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from chaosity.errors import printable_text

# Spreadsheets skip white space before a formula, and some accept the full-width signs.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20].", re.DOTALL)
_MARK = "'"


def without_formula(value: Any) -> Any:
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
        without_formula(name): table[name] if numeric[name] else table[name].map(without_formula)
        for name in table
    }
    return pd.DataFrame(cells, index=table.index).to_csv(index=False, lineterminator="\n")
