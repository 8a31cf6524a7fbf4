"""The profile database: facts and measurements of every host, in one DuckDB file.

A profile is one host in one configuration: its facts, its measurements, its drives and GPUs.
Profiles of this site have the origin `local`, profiles from bundles of others `imported`. Values
are bound as parameters; no text of a table or a person becomes part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd

from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import utc_now
from chaosity.store.tidy_table import COLUMNS, Row, duckdb_column_type

SCHEMA_VERSION = 1
LOCAL, IMPORTED = "local", "imported"
PROFILE_COLUMNS = {
    "id": "string",
    "origin": "string",
    "host": "string",
    "configuration": "string",
    "cpu_model": "string",
    "packages": "Int64",
    "cores": "Int64",
    "pus": "Int64",
    "nodes": "Int64",
    "memory_bytes": "Int64",
    "memory": "string",
    "kernel": "string",
    "firmware": "string",
    "measured_from": "string",
    "measured_to": "string",
    "chaosity_version": "string",
    "topology": "string",
    "provenance": "string",
    "fingerprint": "string",
}
COMPONENT_COLUMNS = {
    "profile": "string",
    "component": "string",
    "kind": "string",
    "model": "string",
    "firmware": "string",
    "node": "Int64",
    "size_bytes": "Int64",
    "link_bytes_per_second": "Float64",
    "serial": "string",
}
# The columns of the tidy table without derived metrics: a profile holds measured values.
MEASUREMENT_COLUMNS = {
    "profile": "string",
    **{name: kind for name, kind in COLUMNS.items() if name != "reference"},
}
TABLES = {
    "profiles": PROFILE_COLUMNS,
    "components": COMPONENT_COLUMNS,
    "measurements": MEASUREMENT_COLUMNS,
}
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


@dataclass(frozen=True)
class ProfileTables:
    """Rows of the three tables: of one profile, or of all profiles in a bundle."""

    profiles: pd.DataFrame
    components: pd.DataFrame
    measurements: pd.DataFrame

    def tables_by_name(self) -> dict[str, pd.DataFrame]:
        """The tables by their names in the database."""
        return {name: getattr(self, name) for name in TABLES}


def is_duckdb_file(path: Path) -> bool:
    """Whether a file is a DuckDB database."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(12)[8:] == _MAGIC


@contextmanager
def open_database(path: Path, *, write: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The open database; changes are committed together at the end, or not at all.

    Args:
        path: of the file.
        write: whether changes are allowed; a missing file is then created.

    Raises:
        UserError: the file is missing, in use, not a profile database, or of a newer chaosity.
    """
    there = path.exists()
    if there and not is_duckdb_file(path):
        raise UserError("is not a DuckDB database", str(path))
    if not there and not write:
        raise UserError("does not exist", str(path), "chaosity profile collect creates it")
    try:
        connection = duckdb.connect(str(path), read_only=not write)
    except duckdb.Error as error:
        remedy = "another program may have it open"
        first = str(error).splitlines()[0]
        raise UserError(f"cannot be opened: {first}", str(path), remedy) from error
    with connection:
        if there:
            _check_version(connection, path)
        if not write:
            yield connection
            return
        connection.begin()
        if not there:
            _create(connection)
        yield connection
        connection.commit()


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE about (schema_version BIGINT NOT NULL)")
    connection.execute("INSERT INTO about VALUES (?)", [SCHEMA_VERSION])
    for name, columns in TABLES.items():
        listed = ", ".join(
            f'"{column}" {duckdb_column_type(kind)}' for column, kind in columns.items()
        )
        connection.execute(f"CREATE TABLE {name} ({listed})")


def _check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    try:
        [(version,)] = connection.execute("SELECT schema_version FROM about").fetchall()
    except (duckdb.Error, ValueError) as error:
        raise UserError("is a database, but not a profile database", str(path)) from error
    if version > SCHEMA_VERSION:
        raise UserError(
            f"was written by a newer chaosity (schema {version}; supported: {SCHEMA_VERSION})",
            str(path),
            "install that version",
        )


def insert_profiles(connection: duckdb.DuckDBPyConnection, tables: ProfileTables) -> None:
    """Add rows to the tables."""
    for name, columns in TABLES.items():
        rows = tables.tables_by_name()[name]
        connection.register("new_rows", rows.astype(object).where(rows.notna(), None))
        casts = ", ".join(
            f'CAST("{key}" AS {duckdb_column_type(kind)})' for key, kind in columns.items()
        )
        connection.execute(f"INSERT INTO {name} SELECT {casts} FROM new_rows")
        connection.unregister("new_rows")


def remove_profiles(connection: duckdb.DuckDBPyConnection, profiles: Iterable[str]) -> None:
    """Remove profiles from all tables."""
    for identity in profiles:
        connection.execute("DELETE FROM profiles WHERE id = ?", [identity])
        connection.execute("DELETE FROM components WHERE profile = ?", [identity])
        connection.execute("DELETE FROM measurements WHERE profile = ?", [identity])


def find_profiles(database: Path, **query: str | None) -> list[Row]:
    """The profiles that match a query, sorted by host and configuration.

    Args:
        database: the file.
        query: keys of QUERIES with the wanted values; None matches all.

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
    """The drives and the measured metrics of a profile."""
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


def read_profile_table(database: Path, profile: str) -> pd.DataFrame:
    """The tidy table of a profile."""
    with open_database(database) as connection:
        rows = connection.execute("FROM measurements WHERE profile = ?", [profile]).df()
    return rows.reindex(columns=list(COLUMNS)).astype(COLUMNS)


def read_profiles(database: Path, profiles: Iterable[str]) -> ProfileTables:
    """All rows of some profiles, with every column."""
    wanted = list(profiles)
    found = {}
    with open_database(database) as connection:
        for name, columns in TABLES.items():
            key = "id" if name == "profiles" else "profile"
            query = f"FROM {name} WHERE list_contains(?, {key})"
            rows = connection.execute(query, [wanted]).df()
            found[name] = rows[list(columns)].astype(columns)
    return ProfileTables(**found)


def utc_date_today() -> str:
    """The day, UTC, without the time of day, which is private."""
    return utc_now()[:10]
