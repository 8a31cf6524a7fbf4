"""Define the columns of the tidy table; read and write Parquet files with typed columns.

Columns have pandas' nullable types, which can hold a missing number or truth value.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from chaosity.errors import UserError, malformed_as_user_error

# A row of the tidy table: name of a column -> value.
Row = dict[str, Any]
# A table with more rows or more bytes of text is not read. A row of the simulated server of
# document 001 has 230 bytes of text on average.
_MOST_TABLE_ROWS = 5_000_000
_MOST_TEXT_BYTES = 2**31
_DUCKDB_TYPES = {"string": "VARCHAR", "Int64": "BIGINT", "boolean": "BOOLEAN", "Float64": "DOUBLE"}


def column_types_from_groups(*groups: tuple[str, str]) -> dict[str, str]:
    """Return column -> type; each argument has a type and the names of columns of this type."""
    return {name: kind for kind, names in groups for name in names.split()}


# Column -> its type and meaning. A row has one metric of one load of one replicate of a point.
COLUMN_TYPES_WITH_MEANINGS = {
    "host": ("string", "host of the inventory"),
    "configuration": ("string", "mode of the firmware, such as nps4"),
    "experiment": ("string", "experiment"),
    "point": ("string", "point, such as memory=node3+node4+triad"),
    "replicate": ("Int64", "number of the replicate, from 1"),
    "order": ("Int64", "position in the random order of the measurements, from 0"),
    "measured_at": ("string", "end of the measurement, UTC (ISO 8601)"),
    "status": ("string", "valid, failed or missing"),
    "reason": ("string", "why there is no value"),
    "load": ("string", "role of the load in the point; loads of a role differ in the initiator"),
    "benchmark": ("string", "benchmark that measured it"),
    "category": ("string", "category of the benchmark"),
    "kernel": ("string", "kernel of the benchmark, such as triad"),
    "initiator": ("string", "processing units that issue the accesses"),
    "initiator_kind": ("string", "kind of the initiator, such as pu, l3, node, package, machine"),
    "initiator_nodes": ("string", "nodes of these processing units"),
    "threads": ("Int64", "number of threads"),
    "target": ("string", "memory nodes, drive set or device that is accessed"),
    "target_kind": ("string", "kind of the target, such as node, nodes, drive, all_of_node"),
    "target_nodes": ("string", "nodes of the target"),
    "drives": ("Int64", "number of drives of the target"),
    "file_backed": ("boolean", "whether files replace drives"),
    "relation": ("string", "where the target lies: same_node, same_package, other_package, ..."),
    "distance": ("Float64", "entry of the SLIT from initiator to target; 10 is local"),
    "seen_nodes": ("string", "nodes on which the kernel saw the pages of the load"),
    "metric": ("string", "name of the metric, which ends in its unit"),
    "value": ("Float64", "value, in the unit of the metric"),
    "reference": ("boolean", "true for the reference of a ratio; empty if the load has none"),
    "label": ("string", "label for figures, such as variant of STREAM"),
    "factors": ("string", "factors of the point and their levels, as JSON"),
    "levels": ("string", "levels of the load, such as its working set, as JSON"),
    "origin": ("string", "measured, simulated or published"),
    "clock_hertz": ("Float64", "mean clock of the load's processing units while not halted, in Hz"),
    "remarks": ("string", "what the record says of itself: disturbed, imprecise or both"),
}
COLUMN_TYPES = {name: kind for name, (kind, _meaning) in COLUMN_TYPES_WITH_MEANINGS.items()}


_ISOLATED_DUCKDB_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}


def connect_isolated(database: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a connection whose SQL can reach no other file, network address or extension.

    A database from elsewhere can have views and macros, which are SQL. SQL from elsewhere must not
    read or write other files, nor load code.
    """
    connection = duckdb.connect(str(database), read_only=read_only, config=_ISOLATED_DUCKDB_CONFIG)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@cache
def _database_in_memory(process: int) -> duckdb.DuckDBPyConnection:
    """Return the in-memory database of a process, which can read and write Parquet files.

    A process makes its database once, since to make a database takes longer than to read a table. A
    child process lacks the threads of its parent's database, so the child makes another database.
    The database executes only SQL of this module. The database caches no content of files, which
    can change, and writes no temporary files.
    """
    own = {"enable_external_file_cache": "false", "temp_directory": ""}
    return duckdb.connect(config=_ISOLATED_DUCKDB_CONFIG | own)


def first_line_of_duckdb_error(error: duckdb.Error) -> str:
    """Return the first line of DuckDB's error message, since further lines repeat the query."""
    return str(error).partition("\n")[0].strip()


def _check_table_size(relation: duckdb.DuckDBPyRelation, where: str) -> None:
    """Check a table's number of rows and bytes of text before the table is read into memory.

    A small compressed file can hold the same text so often that the table would fill the memory.
    """
    [(rows,)] = relation.count("*").fetchall()
    if rows > _MOST_TABLE_ROWS:
        raise UserError(f"the table has {rows} rows; allowed: {_MOST_TABLE_ROWS}", where)
    names = zip(relation.columns, relation.types, strict=True)
    quoted = (name.replace('"', '""') for name, kind in names if str(kind) == "VARCHAR")
    if lengths := [f'coalesce(sum(strlen("{name}")), 0)' for name in quoted]:
        [(size,)] = relation.aggregate(" + ".join(lengths)).fetchall()
        if size > _MOST_TEXT_BYTES:
            raise UserError(f"the texts have {size} bytes; allowed: {_MOST_TEXT_BYTES}", where)


def rows_to_table(
    rows: Sequence[Mapping[str, object]] | pd.DataFrame, columns: Mapping[str, str]
) -> pd.DataFrame:
    """Return rows as a table with these columns and types; a missing column is empty."""
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(columns)).astype(dict(columns))
    return table


def duckdb_column_types(columns: Mapping[str, str]) -> dict[str, str]:
    """Return column name -> DuckDB's name of the column's type."""
    return {name: _DUCKDB_TYPES[kind] for name, kind in columns.items()}


def typed_columns_sql(columns: Mapping[str, str]) -> str:
    """Return SQL that selects these columns, each converted to its type."""
    types = duckdb_column_types(columns)
    return ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in types.items())


def none_for_missing_values(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as Python objects, with None for missing values, which DuckDB reads."""
    return table.astype(object).where(table.notna(), None)


def write_parquet_table(
    table: pd.DataFrame, path: Path, columns: Mapping[str, str] = COLUMN_TYPES
) -> None:
    """Write these columns of a table as Parquet; a complete new file replaces the old file.

    Raises:
        OSError: the file system is full; the old file is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with _database_in_memory(os.getpid()).cursor() as connection:
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


def read_parquet_table(
    path: Path,
    columns: Mapping[str, str] = COLUMN_TYPES,
    where: str | None = None,
    *,
    exact: bool = False,
) -> pd.DataFrame:
    """Return the table in a Parquet file, with these columns and types.

    Newer columns that a table of an earlier version lacks are empty. With `exact`, a table with
    other columns or types is an error. `where` is the file's name, for error messages.

    Raises:
        UserError: the file is not a Parquet file, is too large, or has values of other types.
    """
    what = "the part is not a Parquet file" if exact else "the file is not a measurements table"
    where = where or str(path)
    if path.exists() and not path.is_file():  # opening a FIFO would wait for ever
        raise UserError(f"{what}: it is not a regular file", where)
    try:
        with _database_in_memory(os.getpid()).cursor() as connection:
            relation = connection.read_parquet(str(path))
            if exact:
                found = dict(zip(relation.columns, map(str, relation.types), strict=True))
                wanted = duckdb_column_types(columns)
                if differ := sorted({*found.items()} ^ {*wanted.items()}):
                    name = differ[0][0]
                    wrong = f"has the type {found.get(name)}, not {wanted.get(name)}"
                    if name not in found:
                        wrong = "is missing"
                    elif name not in wanted:
                        wrong = "is unknown"
                    raise UserError(f"the column {name!r} {wrong}", where)
            _check_table_size(relation, where)
            table: pd.DataFrame = relation.df()
    except duckdb.Error as error:
        raise UserError(f"{what}: {first_line_of_duckdb_error(error)}", where) from error
    with malformed_as_user_error(what, where):
        return rows_to_table(table, columns)
