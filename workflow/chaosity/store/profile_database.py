"""Read and write the profile database: facts and measurements of all hosts in one DuckDB file.

A profile has the facts, measurements, drives and GPUs of one host in one configuration. Profiles of
this site have the origin `local`, profiles from bundles `imported`. SQL statements get values as
parameters, so no text of a table or a person becomes SQL.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import duckdb
import pandas as pd

from chaosity import __version__
from chaosity.components import SYSTEM_COMPONENT, read_component_documents, read_json_object_or_none
from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, UserError, malformed_as_user_error
from chaosity.records.record_format import VALID
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import (
    COLUMN_TYPES,
    Row,
    column_types_from_groups,
    connect_isolated,
    duckdb_column_types,
    first_line_of_duckdb_error,
    none_for_missing_values,
    read_parquet_table,
    rows_to_table,
    typed_columns_sql,
)
from chaosity.topology.topology_model import Topology, topology_from_json
from chaosity.topology.topology_parts import HostFacts, MemoryModuleSlot

SCHEMA_VERSION = 1
LOCAL, IMPORTED = "local", "imported"
# Columns of the tidy table that a profile lacks. A profile has no derived metrics, so it has no
# references. Databases of earlier versions have no clock.
_COLUMNS_NOT_IN_PROFILES = ("reference", "origin", "clock_hertz", "remarks")
PROFILE_TABLES = {
    "profiles": column_types_from_groups(
        ("string", "id origin host configuration cpu_model"),
        ("Int64", "packages cores pus nodes memory_bytes"),
        ("string", "memory kernel firmware measured_from measured_to"),
        ("string", "chaosity_version topology provenance fingerprint"),
    ),
    "components": column_types_from_groups(
        ("string", "profile component kind model firmware"),
        ("Int64", "node size_bytes"),
        ("Float64", "link_bytes_per_second"),
        ("string", "serial"),
    ),
    "measurements": {
        "profile": "string",
        **{
            name: kind
            for name, kind in COLUMN_TYPES.items()
            if name not in _COLUMNS_NOT_IN_PROFILES
        },
    },
}
# Table -> the column that has the id of the profile.
PROFILE_KEYS = {"profiles": "id", "components": "profile", "measurements": "profile"}
# Name of a filter of `find_profiles` -> its SQL condition, which has one parameter.
PROFILE_FILTERS = {
    "id": "starts_with(p.id, ?)",
    "host": "p.host = ?",
    "configuration": "p.configuration = ?",
    "cpu": "contains(lower(p.cpu_model), lower(?))",
    "drive": "EXISTS (FROM components c WHERE c.profile = p.id AND c.kind = 'drive' "
    "AND contains(lower(c.model), lower(?)))",
    "origin": "p.origin = ?",
}
_DUCKDB_FILE_SIGNATURE = b"DUCK"  # from byte 8 of every database file, after a checksum
# Name of a table in `PROFILE_TABLES` -> the rows of one or several profiles in this table.
ProfileTables = Mapping[str, pd.DataFrame]


def is_duckdb_file(path: Path) -> bool:
    """Return whether a file is a DuckDB database."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(12)[8:] == _DUCKDB_FILE_SIGNATURE


@contextmanager
def open_database(path: Path, *, write: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the open database; at the end, commit all changes, or none if there was an error.

    With `write`, changes are allowed and a missing file is created.

    Raises:
        UserError: the file is missing, is in use, is not a profile database, or is from a newer
            version of chaosity.
    """
    exists = path.exists()
    if exists and not is_duckdb_file(path):
        raise UserError("the file is not a DuckDB database", str(path))
    if not exists and not write:
        raise UserError("the database does not exist", str(path), "run chaosity profile collect")
    try:
        connection = connect_isolated(path, read_only=not write)
    except duckdb.Error as error:
        reason = f"the database cannot be opened: {first_line_of_duckdb_error(error)}"
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
    except duckdb.Error as error:  # a damaged file can cause this error at any time
        reason = f"the database is damaged: {first_line_of_duckdb_error(error)}"
        raise UserError(
            reason, str(path), "move the file away, then run chaosity profile collect"
        ) from error


def _create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE about (schema_version BIGINT NOT NULL)")
    connection.execute("INSERT INTO about VALUES (?)", [SCHEMA_VERSION])
    for name, columns in PROFILE_TABLES.items():
        types = duckdb_column_types(columns).items()
        listed = ", ".join(f'"{column}" {kind}' for column, kind in types)
        connection.execute(f"CREATE TABLE {name} ({listed})")


def _check_schema(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Check that a database has a supported version and contains only plain tables.

    DuckDB would execute the SQL in views, macros and generated columns of a foreign file.
    """
    other = UserError("the file is a database, but not a profile database", str(path))
    try:
        [(version,)] = connection.execute("SELECT schema_version FROM about").fetchall()
        newer = int(version) > SCHEMA_VERSION
    except (duckdb.CatalogException, duckdb.BinderException, ValueError, TypeError) as error:
        raise other from error
    if newer:
        raise newer_schema_error(version, str(path))
    listed = connection.execute("SELECT table_name, sql FROM duckdb_tables() WHERE NOT internal")
    tables = dict(listed.fetchall())
    [(code,)] = connection.execute(
        "SELECT (SELECT count(*) FROM duckdb_views() WHERE NOT internal)"
        " + (SELECT count(*) FROM duckdb_functions() WHERE NOT internal)"
    ).fetchall()
    generated = any("GENERATED" in sql for sql in tables.values())
    if code or generated or not {*PROFILE_TABLES, "about"} <= tables.keys():
        raise other


def newer_schema_error(version: int, where: str) -> UserError:
    """Return the error for a file whose schema is newer than `SCHEMA_VERSION`."""
    problem = f"a newer chaosity wrote this file (schema {version}; supported: {SCHEMA_VERSION})"
    return UserError(problem, where, "install a newer version")


def insert_rows(connection: duckdb.DuckDBPyConnection, name: str, rows: pd.DataFrame) -> None:
    """Add rows to the table `name` of `PROFILE_TABLES`."""
    columns = typed_columns_sql(PROFILE_TABLES[name])
    connection.register("new_rows", none_for_missing_values(rows))
    connection.execute(f"INSERT INTO {name} SELECT {columns} FROM new_rows")
    connection.unregister("new_rows")


def find_profiles(database: Path, **query: str | None) -> list[Row]:
    """Return the profiles that match a query, sorted by host and configuration.

    `query` maps a key of PROFILE_FILTERS to the wanted value; the value None matches all profiles.
    A returned profile has all columns of the table but topology and fingerprint. A returned profile
    also has `drives` (model -> number of drives) and `measured`. `measured` has, for each category
    and metric, the number of cells, and the median, lowest and highest value in the metric's unit.
    """
    given = {name: value for name, value in query.items() if value is not None}
    conditions = " AND ".join(PROFILE_FILTERS[name] for name in given) or "true"
    columns = [
        name for name in PROFILE_TABLES["profiles"] if name not in ("topology", "fingerprint")
    ]
    listed = ", ".join(f'p."{name}"' for name in columns)
    with open_database(database) as connection:
        rows = connection.execute(
            f"SELECT {listed} FROM profiles p WHERE {conditions} "
            "ORDER BY p.host, p.configuration, p.id",
            list(given.values()),
        ).fetchall()
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        return [
            {**profile, **_drives_and_metrics_of_profile(connection, profile["id"])}
            for profile in found
        ]


def _drives_and_metrics_of_profile(connection: duckdb.DuckDBPyConnection, profile: str) -> Row:
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
    measured = [dict(zip(names, row, strict=True)) for row in values]
    return {"drives": {model or "unknown": n for model, n in drives}, "measured": measured}


def read_profile_measurements(database: Path, profile: str) -> pd.DataFrame:
    """Return the measurements of a profile as a tidy table."""
    with open_database(database) as connection:
        rows = connection.execute("FROM measurements WHERE profile = ?", [profile]).df()
    with malformed_as_user_error("the database has values of other types", str(database)):
        return rows_to_table(rows, COLUMN_TYPES)


def read_profile_tables(database: Path, profiles: Iterable[str]) -> ProfileTables:
    """Return all rows of these profiles from all tables, with every column."""
    wanted = list(profiles)
    found = {}
    with open_database(database) as connection:
        for name, columns in PROFILE_TABLES.items():
            query = f"FROM {name} WHERE list_contains(?, {PROFILE_KEYS[name]})"
            rows = connection.execute(query, [wanted]).df()
            with malformed_as_user_error(f"the table {name} has other columns", str(database)):
                found[name] = rows[list(columns)].astype(columns)
    return found


def update_profiles_from_results(results: Iterable[Path], database: Path) -> dict[str, list[str]]:
    """Put the results of every host and configuration in `results` into the database.

    A newer run replaces the profile of its host and configuration. An older run changes nothing.
    Each folder in `results` has results of all hosts, of one host, or of one configuration. A
    missing database is created.

    Returns:
        What happened (`added`, `replaced`, `unchanged`, or `older` than the run in the database) ->
            hosts with their configurations.

    Raises:
        UserError: a folder has no measurements table, or a file is not a measurements table.
    """
    done: dict[str, list[str]] = {"added": [], "replaced": [], "unchanged": [], "older": []}
    paths = [path for folder in results for path in _measurement_files(folder)]
    built = [tables for tables in map(_build_profile, paths) if tables is not None]
    with open_database(database, write=True) as connection:
        for tables in built:
            profile = tables["profiles"].iloc[0]
            known = connection.execute(
                "SELECT fingerprint, measured_to FROM profiles WHERE id = ?", [profile["id"]]
            ).fetchone()
            action = "added"
            if known and known[0] == profile["fingerprint"]:
                action = "unchanged"
            elif known:
                action = "older" if known[1] > profile["measured_to"] else "replaced"
            done[action].append(f"{profile['host']} {profile['configuration']}")
            if action in ("added", "replaced"):
                for name, key in PROFILE_KEYS.items():
                    connection.execute(f"DELETE FROM {name} WHERE {key} = ?", [profile["id"]])
                    insert_rows(connection, name, tables[name])
    return done


def _measurement_files(folder: Path) -> list[Path]:
    """Return the paths of tidy tables in a folder, or else one or two levels below the folder."""
    for pattern in (MEASUREMENTS_FILE, f"*/{MEASUREMENTS_FILE}", f"*/*/{MEASUREMENTS_FILE}"):
        if found := sorted(folder.glob(pattern)):
            return found
    remedy = "give the folder of results or a folder in it"
    raise UserError(f"the folder has no {MEASUREMENTS_FILE}", str(folder), remedy)


def _build_profile(path: Path) -> ProfileTables | None:
    """Return the profile of a tidy table and the files beside it; None if nothing was measured."""
    table = read_parquet_table(path)
    # A profile has only measured values: no derived metric, and no optional metric without a value.
    unmeasured = (table["status"] == VALID) & table["value"].isna()
    table = table[table["reference"].isna() & ~unmeasured]
    owners = table[["host", "configuration"]].drop_duplicates()
    if len(owners) > 1:
        raise UserError("the table has several hosts or configurations", str(path))
    if Measurements(table).is_simulated:
        wrong = "the table is of a simulated host, and profiles have only measured values"
        raise UserError(wrong, str(path), "name the results of a real host")
    if table.empty or not (table["status"] == VALID).any():
        return None
    host, configuration = (str(name) for name in owners.iloc[0])
    folder = path.parent
    documents = read_component_documents(folder / "components")
    topology = read_json_object_or_none(folder / "topology.json") or {}
    identity = hashlib.sha256(f"{host}\0{configuration}".encode()).hexdigest()[:12]
    times = table["measured_at"].dropna().astype(str)
    profile: Row = {
        "host": host,
        "configuration": configuration,
        **_host_columns(topology, documents.get(SYSTEM_COMPONENT, {})),
        "origin": LOCAL,
        "measured_from": min(times, default=None),
        "measured_to": max(times, default=""),
        "chaosity_version": __version__,
        "provenance": json.dumps({"origin": LOCAL}),
    }
    components = [
        {
            **{key: document.get(key) for key in PROFILE_TABLES["components"]},
            "profile": identity,
            "component": name,
            "kind": document["component"],
            "size_bytes": document.get("size_bytes") or document.get("memory_bytes"),
        }
        for name, document in sorted(documents.items())
        if document.get("component") in ("drive", "gpu")
    ]
    content = [table.to_csv(index=False), json.dumps([profile, components], sort_keys=True)]
    fingerprint = hashlib.sha256("\0".join(content).encode()).hexdigest()
    profile |= {"id": identity, "fingerprint": fingerprint}
    return {
        "profiles": rows_to_table([profile], PROFILE_TABLES["profiles"]),
        "components": rows_to_table(components, PROFILE_TABLES["components"]),
        "measurements": table.assign(profile=identity)[list(PROFILE_TABLES["measurements"])],
    }


def _host_columns(document: Mapping[str, object], system: Mapping[str, object]) -> Row:
    """Return a profile's columns on its host, from the topology (JSON) and system component."""
    try:
        topology = topology_from_json(document)
    except ERRORS_OF_MALFORMED_DOCUMENTS:
        topology = Topology()
    facts = cast(HostFacts, {**topology.host, **system})
    firmware = facts.get("firmware") or {}
    texts = [firmware.get("bios_vendor"), firmware.get("bios_version")]
    if facts.get("microcode"):
        texts.append(f"microcode {facts['microcode']}")
    return {
        "cpu_model": facts.get("cpu_model"),
        "packages": topology.counts.packages,
        "cores": topology.counts.cores,
        "pus": topology.counts.pus,
        "nodes": len(topology.nodes) or None,
        "memory_bytes": topology.total_memory_bytes,
        "memory": _memory_modules_text(facts.get("memory_modules") or []),
        "kernel": facts.get("kernel_release"),
        "firmware": " ".join(text for text in texts if text) or None,
        "topology": json.dumps(document, sort_keys=True),
    }


def _memory_modules_text(modules: Iterable[MemoryModuleSlot]) -> str | None:
    """Return the number and kind of memory modules, "16 x 32 GB DDR4 3200 MT/s", or None."""
    kinds = Counter(
        " ".join(filter(None, (slot.get("size"), slot.get("type"), slot.get("configured_speed"))))
        for slot in modules
    )
    return ", ".join(f"{number} x {kind}" for kind, number in kinds.items() if kind) or None
