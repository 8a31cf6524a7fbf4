"""Read and write the profile database: facts and measurements of all hosts in one DuckDB file.

A profile has the facts, measurements, drives and GPUs of one host in one configuration. Profiles of
this site have the origin `local`, profiles from bundles of others `imported`. Values are passed as
parameters, so no text of a table or a person becomes part of an SQL statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd

from chaosity.errors import UserError, malformed_as_user_error
from chaosity.store.tidy_table_parquet import (
    COLUMNS,
    Row,
    column_types_from_groups,
    connect_isolated,
    duckdb_column_types,
    duckdb_reason,
    none_for_missing_values,
    typed_columns_sql,
)

SCHEMA_VERSION = 1
LOCAL, IMPORTED = "local", "imported"
PROFILE_COLUMNS = column_types_from_groups(
    ("string", "id origin host configuration cpu_model"),
    ("Int64", "packages cores pus nodes memory_bytes"),
    ("string", "memory kernel firmware measured_from measured_to"),
    ("string", "chaosity_version topology provenance fingerprint"),
)
COMPONENT_COLUMNS = column_types_from_groups(
    ("string", "profile component kind model firmware"),
    ("Int64", "node size_bytes"),
    ("Float64", "link_bytes_per_second"),
    ("string", "serial"),
)
# The columns of the tidy table without derived metrics: a profile holds measured values. Databases
# of earlier versions have no clock.
_NOT_IN_PROFILES = ("reference", "origin", "clock_hertz", "remarks")
MEASUREMENT_COLUMNS = {
    "profile": "string",
    **{name: kind for name, kind in COLUMNS.items() if name not in _NOT_IN_PROFILES},
}
TABLES = {
    "profiles": PROFILE_COLUMNS,
    "components": COMPONENT_COLUMNS,
    "measurements": MEASUREMENT_COLUMNS,
}
# The column of each table with the profile's id.
PROFILE_KEYS = {"profiles": "id", "components": "profile", "measurements": "profile"}
# Name of a query -> its condition; each has one parameter.
QUERIES = {
    "id": "starts_with(p.id, ?)",
    "host": "p.host = ?",
    "configuration": "p.configuration = ?",
    "cpu": "contains(lower(p.cpu_model), lower(?))",
    "drive": "EXISTS (FROM components c WHERE c.profile = p.id AND c.kind = 'drive' "
    "AND contains(lower(c.model), lower(?)))",
    "origin": "p.origin = ?",
}
_MAGIC = b"DUCK"  # from byte 8 of every database file, after a checksum
# The rows of one or several profiles, by the name of the table in `TABLES`.
ProfileTables = Mapping[str, pd.DataFrame]


def is_duckdb_file(path: Path) -> bool:
    """Return whether a file is a DuckDB database."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(12)[8:] == _MAGIC


@contextmanager
def open_database(path: Path, *, write: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the open database; changes are committed together at the end, or not at all.

    With `write`, changes are allowed and a missing file is created.

    Raises:
        UserError: the file is missing, in use, not a profile database, or of a newer chaosity.
    """
    exists = path.exists()
    if exists and not is_duckdb_file(path):
        raise UserError("the file is not a DuckDB database", str(path))
    if not exists and not write:
        raise UserError("there is no such database", str(path), "run chaosity profile collect")
    try:
        connection = connect_isolated(path, read_only=not write)
    except duckdb.Error as error:
        reason = f"the database cannot be opened: {duckdb_reason(error)}"
        raise UserError(reason, str(path), "close other programs that use the database") from error
    try:
        with connection:
            if exists:
                _check_schema(connection, path)
            if write:
                connection.begin()
            if not exists:
                _create_tables(connection)
            yield connection
            if write:
                connection.commit()
    except duckdb.Error as error:  # which a damaged file causes at any time
        reason = f"the database is damaged: {duckdb_reason(error)}"
        raise UserError(reason, str(path), "make it again with chaosity profile") from error


def _create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE about (schema_version BIGINT NOT NULL)")
    connection.execute("INSERT INTO about VALUES (?)", [SCHEMA_VERSION])
    for name, columns in TABLES.items():
        types = duckdb_column_types(columns).items()
        listed = ", ".join(f'"{column}" {kind}' for column, kind in types)
        connection.execute(f"CREATE TABLE {name} ({listed})")


def _check_schema(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Check the version of a database, and that it has plain tables only.

    Views, macros and generated columns of others would be executed.
    """
    other = UserError("the file is a database, but not a profile database", str(path))
    try:
        [(version,)] = connection.execute("SELECT schema_version FROM about").fetchall()
        newer = int(version) > SCHEMA_VERSION
    except (duckdb.CatalogException, duckdb.BinderException, ValueError, TypeError) as error:
        raise other from error
    if newer:
        raise newer_schema_error(version, str(path))
    tables = dict(
        connection.execute(
            "SELECT table_name, sql FROM duckdb_tables() WHERE NOT internal"
        ).fetchall()
    )
    [(code,)] = connection.execute(
        "SELECT (SELECT count(*) FROM duckdb_views() WHERE NOT internal)"
        " + (SELECT count(*) FROM duckdb_functions() WHERE NOT internal)"
    ).fetchall()
    generated = any("GENERATED" in sql for sql in tables.values())
    if code or generated or not {*TABLES, "about"} <= tables.keys():
        raise other


def newer_schema_error(version: int, where: str) -> UserError:
    """Return the error for a file whose schema is newer than `SCHEMA_VERSION`."""
    problem = f"a newer chaosity wrote this file (schema {version}; supported: {SCHEMA_VERSION})"
    return UserError(problem, where, "install a newer version")


def insert_rows(connection: duckdb.DuckDBPyConnection, name: str, rows: pd.DataFrame) -> None:
    """Add rows to the table `name` of `TABLES`."""
    columns = typed_columns_sql(TABLES[name])
    connection.register("new_rows", none_for_missing_values(rows))
    connection.execute(f"INSERT INTO {name} SELECT {columns} FROM new_rows")
    connection.unregister("new_rows")


def find_profiles(database: Path, **query: str | None) -> list[Row]:
    """Return the profiles that match a query, sorted by host and configuration.

    Args:
        database: path of the file.
        query: wanted values by keys of QUERIES; None matches all.

    Returns:
        The columns of each profile without topology and fingerprint, and `drives` (model -> number)
        and `measured` (a row for each category and metric: cells, median, lowest, highest, in the
        metric's unit).
    """
    given = {name: value for name, value in query.items() if value is not None}
    conditions = " AND ".join(QUERIES[name] for name in given) or "true"
    columns = [name for name in PROFILE_COLUMNS if name not in ("topology", "fingerprint")]
    listed = ", ".join(f'p."{name}"' for name in columns)
    with open_database(database) as connection:
        rows = connection.execute(
            f"SELECT {listed} FROM profiles p WHERE {conditions} "
            "ORDER BY p.host, p.configuration, p.id",
            list(given.values()),
        ).fetchall()
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        return [{**profile, **_contents(connection, profile["id"])} for profile in found]


def _contents(connection: duckdb.DuckDBPyConnection, profile: str) -> Row:
    """Return the drives and the measured metrics of a profile."""
    drives = connection.execute(
        "SELECT model, count(*) FROM components WHERE profile = ? AND kind = 'drive' "
        "GROUP BY model ORDER BY model",
        [profile],
    ).fetchall()
    names = ("category", "metric", "cells", "median", "lowest", "highest")
    values = connection.execute(
        "SELECT category, metric, count(DISTINCT (experiment, point, load, initiator, target)), "
        "median(value), min(value), max(value) FROM measurements "
        "WHERE profile = ? AND status = 'valid' GROUP BY category, metric ORDER BY ALL",
        [profile],
    ).fetchall()
    return {
        "drives": {model or "unknown": number for model, number in drives},
        "measured": [dict(zip(names, row, strict=True)) for row in values],
    }


def read_profile_measurements(database: Path, profile: str) -> pd.DataFrame:
    """Return the measurements of a profile as a tidy table."""
    with open_database(database) as connection:
        rows = connection.execute("FROM measurements WHERE profile = ?", [profile]).df()
    with malformed_as_user_error("the database has values of other types", str(database)):
        return rows.reindex(columns=list(COLUMNS)).astype(COLUMNS)


def read_profile_tables(database: Path, profiles: Iterable[str]) -> ProfileTables:
    """Return all rows of these profiles, with every column."""
    wanted = list(profiles)
    found = {}
    with open_database(database) as connection:
        for name, columns in TABLES.items():
            query = f"FROM {name} WHERE list_contains(?, {PROFILE_KEYS[name]})"
            rows = connection.execute(query, [wanted]).df()
            with malformed_as_user_error(f"the table {name} has other columns", str(database)):
                found[name] = rows[list(columns)].astype(columns)
    return found
