"""The profile database: what every host was found to do, in one DuckDB file.

A profile is one host in one configuration: what it is, what of it was measured, and its drives and
GPUs. Profiles of this site have the origin `local`, those from others' bundles `imported`. Values
are bound as parameters; no text of a table or a person becomes part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from chaosity.errors import UserError
from chaosity.records import utc_now
from chaosity.store.tidy_table import COLUMNS, sql

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
# Of the tidy table, without what belongs to derived metrics: a profile holds what was measured.
MEASUREMENT_COLUMNS = {
    "profile": "string",
    **{name: kind for name, kind in COLUMNS.items() if name != "reference"},
}
TABLES = {
    "profiles": PROFILE_COLUMNS,
    "components": COMPONENT_COLUMNS,
    "measurements": MEASUREMENT_COLUMNS,
}
# What a person may ask for -> the condition; each takes one parameter.
QUERIES = {
    "id": "starts_with(p.id, ?)",
    "host": "p.host = ?",
    "configuration": "p.configuration = ?",
    "cpu": "contains(lower(p.cpu_model), lower(?))",
    "drive": "EXISTS (FROM components c WHERE c.profile = p.id AND c.kind = 'drive' "
    "AND contains(lower(c.model), lower(?)))",
    "origin": "p.origin = ?",
}
_MAGIC = b"DUCK"  # at byte 8 of every database file, behind a checksum


@dataclass(frozen=True)
class Parts:
    """Rows for the three tables: of one profile, or of all of a bundle."""

    profiles: pd.DataFrame
    components: pd.DataFrame
    measurements: pd.DataFrame

    def by_name(self) -> dict[str, pd.DataFrame]:
        """The tables by their names in the database."""
        return {name: getattr(self, name) for name in TABLES}


def is_database(path: Path) -> bool:
    """Whether a file is a DuckDB database."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(12)[8:] == _MAGIC


@contextmanager
def open_database(path: Path, *, write: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database; what is written within becomes true as a whole or not at all.

    Args:
        path: of the file.
        write: whether it may be changed; a missing one is then made.

    Raises:
        UserError: it is no profile database, of a newer chaosity, missing, or in use.
    """
    there = path.exists()
    if there and not is_database(path):
        raise UserError("is no DuckDB database", str(path))
    if not there and not write:
        raise UserError("is not there", str(path), "chaosity profile collect makes it")
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
        listed = ", ".join(f'"{column}" {sql(kind)}' for column, kind in columns.items())
        connection.execute(f"CREATE TABLE {name} ({listed})")


def _check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    try:
        [(version,)] = connection.execute("SELECT schema_version FROM about").fetchall()
    except (duckdb.Error, ValueError) as error:
        raise UserError("is a database, but not one of profiles", str(path)) from error
    if version > SCHEMA_VERSION:
        raise UserError(
            f"was written by a newer chaosity (schema {version}, this one knows {SCHEMA_VERSION})",
            str(path), "install a newer one",
        )  # fmt: skip


def frame(rows: list[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """Rows as a table of these columns and types."""
    return pd.DataFrame(rows, columns=list(columns)).astype(dict(columns))


def insert(connection: duckdb.DuckDBPyConnection, parts: Parts) -> None:
    """Add rows to the tables."""
    for name, columns in TABLES.items():
        rows = parts.by_name()[name]
        plain = rows.astype(object).where(rows.notna(), None)
        connection.register("new_rows", plain)
        casts = ", ".join(f'CAST("{key}" AS {sql(kind)})' for key, kind in columns.items())
        connection.execute(f"INSERT INTO {name} SELECT {casts} FROM new_rows")
        connection.unregister("new_rows")


def remove(connection: duckdb.DuckDBPyConnection, profiles: Iterable[str]) -> None:
    """Take profiles out of all tables."""
    for identity in profiles:
        connection.execute("DELETE FROM profiles WHERE id = ?", [identity])
        connection.execute("DELETE FROM components WHERE profile = ?", [identity])
        connection.execute("DELETE FROM measurements WHERE profile = ?", [identity])


def find_profiles(database: Path, **asked: str | None) -> list[dict[str, Any]]:
    """Profiles that fit all that is asked for, by host and configuration.

    Args:
        database: the file.
        asked: names of QUERIES; None is not asked for.

    Returns:
        The columns of a profile but for topology and fingerprint, and `drives` (model -> how many)
        and `measured` (a row a category and metric: cells, median, lowest, highest, in the
        metric's unit).
    """
    given = {name: value for name, value in asked.items() if value is not None}
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
        return [{**one, **_contents(connection, one["id"])} for one in found]


def _contents(connection: duckdb.DuckDBPyConnection, profile: str) -> dict[str, Any]:
    """What a profile has beside its own columns."""
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


def table_of(database: Path, profile: str) -> pd.DataFrame:
    """The tidy table of a profile."""
    with open_database(database) as connection:
        rows = connection.execute("FROM measurements WHERE profile = ?", [profile]).df()
    return rows.reindex(columns=list(COLUMNS)).astype(COLUMNS)


def parts_of(database: Path, profiles: Iterable[str]) -> Parts:
    """All rows of some profiles, with every column."""
    wanted = list(profiles)
    with open_database(database) as connection:
        found = {
            name: connection.execute(
                f"FROM {name} WHERE list_contains(?, {'id' if name == 'profiles' else 'profile'})",
                [wanted],
            ).df()[list(columns)].astype(columns)
            for name, columns in TABLES.items()
        }  # fmt: skip
    return Parts(**found)


def now() -> str:
    """The day, UTC; the time of day is nobody's business."""
    return utc_now()[:10]
