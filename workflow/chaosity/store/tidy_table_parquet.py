"""Define the columns of the tidy table; read and write Parquet files with typed columns.

Columns have pandas' nullable types, which can hold a missing number or truth value.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from chaosity.errors import UserError

# A row of the tidy table: values by the names of columns.
Row = dict[str, Any]
_DUCKDB_TYPES = {"string": "VARCHAR", "Int64": "BIGINT", "boolean": "BOOLEAN", "Float64": "DOUBLE"}


def column_types_from_groups(*groups: tuple[str, str]) -> dict[str, str]:
    """Return column -> type; each of `groups` is a type and the names of its columns."""
    return {name: kind for kind, names in groups for name in names.split()}


# Columns and their types; docs/design.md, section 6, explains them.
COLUMNS = column_types_from_groups(
    ("string", "host configuration experiment point"),
    ("Int64", "replicate order"),
    ("string", "measured_at status reason load benchmark category kernel"),
    ("string", "initiator initiator_kind initiator_nodes"),
    ("Int64", "threads"),
    ("string", "target target_kind target_nodes"),
    ("Int64", "drives"),
    ("boolean", "file_backed"),
    ("string", "relation"),
    ("Float64", "distance"),
    ("string", "seen_nodes metric"),
    ("Float64", "value"),
    ("boolean", "reference"),
    ("string", "label factors levels origin"),
    ("Float64", "clock_hertz"),
    ("string", "remarks"),
)


def rows_to_table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return rows as a table with these columns and types."""
    return pd.DataFrame(rows, columns=list(columns)).astype(dict(columns))


def duckdb_column_types(columns: Mapping[str, str]) -> dict[str, str]:
    """Return column -> DuckDB's name of its type."""
    return {name: _DUCKDB_TYPES[kind] for name, kind in columns.items()}


def typed_columns_sql(columns: Mapping[str, str]) -> str:
    """Return SQL that selects these columns, each converted to its type."""
    types = duckdb_column_types(columns)
    return ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in types.items())


def none_for_missing_values(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as Python objects with None for missing values, as DuckDB reads them."""
    return table.astype(object).where(table.notna(), None)


def write_parquet_table(
    table: pd.DataFrame, path: Path, columns: Mapping[str, str] = COLUMNS
) -> None:
    """Write these columns of a table as Parquet; the file is replaced as a whole.

    Raises:
        OSError: the file system is full; the old file is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with duckdb.connect() as connection:
            connection.register("tidy_table", none_for_missing_values(table))
            relation = connection.sql(f"SELECT {typed_columns_sql(columns)} FROM tidy_table")
            relation.write_parquet(str(part), compression="zstd")
        part.replace(path)
    except duckdb.IOException as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise OSError(errno.ENOSPC, str(error), str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def read_parquet_table(path: Path, columns: Mapping[str, str] = COLUMNS) -> pd.DataFrame:
    """Return the table in a Parquet file, with these columns and types.

    If a table of an earlier version lacks newer columns, they are empty.

    Raises:
        UserError: the file is not a Parquet file.
    """
    try:
        with duckdb.connect() as connection:
            table: pd.DataFrame = connection.read_parquet(str(path)).df()
    except duckdb.Error as error:
        raise UserError(f"the file is not a measurements table: {error}", str(path)) from error
    typed: pd.DataFrame = table.reindex(columns=list(columns)).astype(dict(columns))
    return typed
