"""Write and read bundles, which are files with profiles of hosts that others can import.

A profile has the facts and the measurements of one host in one configuration. A bundle is a zip
file of `manifest.json` (schema version, provenance, size and SHA-256 of each part) and a Parquet
file for each table. A bundle is checked before any of its rows is put into the database. This
module checks names, sizes and hashes of the parts, and the columns and types of the tables. The
constraints in `bundle_constraints.sql` check the rows.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template

import duckdb
import pandas as pd
from typing_extensions import TypedDict

from chaosity import __version__
from chaosity.documents.checked_yaml import check_document
from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, UserError
from chaosity.records.record_files import utc_now_text, write_atomically
from chaosity.store.measurements import LOAD_COLUMNS, POINT_COLUMNS
from chaosity.store.profile_anonymisation import anonymise_profiles
from chaosity.store.profile_database import (
    IMPORTED,
    LOCAL,
    PROFILE_KEYS,
    PROFILE_TABLES,
    SCHEMA_VERSION,
    ProfileTables,
    find_profiles,
    insert_rows,
    newer_schema_error,
    open_database,
    read_profile_tables,
)
from chaosity.store.tidy_table_parquet import (
    connect_isolated,
    duckdb_column_types,
    read_parquet_table,
    write_parquet_table,
)

BUNDLE_KIND = "chaosity profiles"
MANIFEST = "manifest.json"
_PARQUET_FILE_OF_TABLE = {name: f"{name}.parquet" for name in PROFILE_TABLES}
# The measurements of a host with 2 000 points in ten replicates have less than 1 MB. A bundle with
# hundreds of hosts stays below these limits, so a larger file is not from Chaosity.
_MOST_BUNDLE_PART_BYTES = 256 * 2**20
_MOST_MANIFEST_BYTES = 2**20
_CONSTRAINTS_SQL_TEMPLATE = Template(Path(__file__).with_name("bundle_constraints.sql").read_text())
# Type or name of a column -> the SQL macro that checks the values in the column.
_SQL_CHECK_OF_TYPE = {
    **{"string": "is_text", "Int64": "is_number", "Float64": "is_number"},
    **dict.fromkeys(("measured_from", "measured_to", "measured_at"), "is_date"),
    **dict.fromkeys(("topology", "factors", "levels"), "is_object"),
}
_REQUIRED_COLUMNS = ("profile", *POINT_COLUMNS, "replicate", "status", *LOAD_COLUMNS, "metric")
_ERRORS_OF_DAMAGED_ZIP = (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, EOFError)
# All parts of a bundle have this time stamp, since real time stamps show the private time of day.
_TIME_OF_ALL_ZIP_PARTS = (1980, 1, 1, 0, 0, 0)


class BundlePart(TypedDict):
    """The size and the hash of a file in a bundle."""

    sha256: str
    bytes: int


class BundleManifest(TypedDict):
    """The manifest of a bundle."""

    bundle: str
    schema_version: int
    provenance: dict[str, str | bool | None]
    profiles: int
    measurements: int
    parts: dict[str, BundlePart]  # file name -> size and hash, for each file but the manifest


def publish_bundle(
    database: Path,
    bundle: Path,
    *,
    with_names: bool = False,
    contact: str | None = None,
    licence: str | None = None,
    **query: str | None,
) -> BundleManifest:
    """Write local profiles into a bundle, and return its manifest.

    `query` selects the profiles, see `find_profiles`. `with_names` keeps the names of hosts, and
    the serial numbers and slots of drives. The contact (a person or address for questions) and the
    licence of the data are published unchanged.

    Raises:
        UserError: no local profile matches, the bundle has the name of another kind of file, or
            nobody could import the bundle, for example because a host's clock was years ahead.
    """
    if bundle.suffix != ".zip":
        raise UserError("a bundle is a zip file", str(bundle), "give it a name that ends in .zip")
    provenance: dict[str, str | bool | None] = {
        "chaosity_version": __version__,
        "published_on": utc_now_text()[:10],  # the time of day is private
        "with_names": with_names,
        "contact": contact,
        "licence": licence,
    }
    found = find_profiles(database, **{**query, "origin": LOCAL})
    if not found:
        raise UserError(
            "the database has no local profile that matches the given filters", str(database)
        )
    chosen = read_profile_tables(database, [profile["id"] for profile in found])
    tables = anonymise_profiles(chosen, secrets.token_bytes(32), with_names=with_names)
    _check_values(tables, provenance, str(bundle))
    files = {
        _PARQUET_FILE_OF_TABLE[name]: _parquet_content(table, name)
        for name, table in tables.items()
    }
    manifest: BundleManifest = {
        "bundle": BUNDLE_KIND,
        "schema_version": SCHEMA_VERSION,
        "provenance": provenance,
        "profiles": len(tables["profiles"]),
        "measurements": len(tables["measurements"]),
        "parts": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            for name, content in files.items()
        },
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        for name, content in {MANIFEST: text.encode(), **files}.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME_OF_ALL_ZIP_PARTS), content)
    write_atomically(bundle, stream.getvalue())
    return manifest


def _parquet_content(rows: pd.DataFrame, name: str) -> bytes:
    """Return rows as the bytes of a Parquet file; DuckDB first writes them to a temporary file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        write_parquet_table(rows, path, PROFILE_TABLES[name])
        return path.read_bytes()


def import_bundle(bundle: Path, database: Path) -> int:
    """Put the profiles of a bundle into a database; return the number of new profiles.

    A second import of the same bundle changes nothing.

    Raises:
        UserError: the file is no bundle, is damaged, is from a newer version of chaosity, or has
            impossible values.
    """
    tables, manifest, digest = read_bundle(bundle)
    identities = {
        identity: hashlib.sha256(f"{digest}{identity}".encode()).hexdigest()[:12]
        for identity in tables["profiles"]["id"]
    }
    provenance = json.dumps({**manifest["provenance"], "bundle": digest}, sort_keys=True)
    renamed = {
        name: tables[name].assign(**{key: tables[name][key].map(identities)})
        for name, key in PROFILE_KEYS.items()
    }
    renamed["profiles"] = renamed["profiles"].assign(origin=IMPORTED, provenance=provenance)
    with open_database(database, write=True) as connection:
        [(known,)] = connection.execute(
            "SELECT count(*) FROM profiles WHERE list_contains(?, id)", [[*identities.values()]]
        ).fetchall()
        if not known:
            for name, rows in renamed.items():
                insert_rows(connection, name, rows)
    return 0 if known else len(identities)


def read_bundle(path: Path) -> tuple[ProfileTables, BundleManifest, str]:
    """Return the checked tables, the manifest and the SHA-256 of a bundle; see `import_bundle`."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _read_manifest(archive, where)
            files = {
                name: _read_part_of_bundle(archive, name, _MOST_BUNDLE_PART_BYTES, where)
                for name in manifest["parts"]
            }
    except _ERRORS_OF_DAMAGED_ZIP as error:
        raise UserError(f"the file is not a bundle of profiles: {error}", where) from error
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != manifest["parts"][name]["sha256"]:
            raise UserError("the hash differs from that in the manifest", f"{where}, {name}")
    tables = {
        name: _read_table_of_part(files[part], name, f"{where}, {part}")
        for name, part in _PARQUET_FILE_OF_TABLE.items()
    }
    _check_values(tables, manifest["provenance"], where)
    return tables, manifest, hashlib.sha256(path.read_bytes()).hexdigest()


def _read_manifest(archive: zipfile.ZipFile, where: str) -> BundleManifest:
    """Return the manifest of a bundle; a part that the manifest does not list is an error."""
    names = archive.namelist()
    if MANIFEST not in names:
        raise UserError("the file is not a bundle of profiles: it has no manifest", where)
    try:
        document = json.loads(_read_part_of_bundle(archive, MANIFEST, _MOST_MANIFEST_BYTES, where))
        kind, version = document["bundle"], int(document["schema_version"])
        json.dumps(document, ensure_ascii=False).encode()  # refuses half of a surrogate pair
    except ERRORS_OF_MALFORMED_DOCUMENTS as error:
        raise UserError("the manifest of the bundle is broken", where) from error
    if kind != BUNDLE_KIND:
        raise UserError(f"the bundle is of the kind {kind!r}, not {BUNDLE_KIND!r}", where)
    if version > SCHEMA_VERSION:
        raise newer_schema_error(version, where)
    check_document(document, BundleManifest, f"{where}, {MANIFEST}")
    manifest: BundleManifest = document
    expected = {MANIFEST, *_PARQUET_FILE_OF_TABLE.values()}
    listed = {*manifest["parts"], MANIFEST}
    if version < 1 or sorted(names) != sorted(expected) or listed != expected:
        for part in sorted(set(names) ^ expected):
            what = "lacks the" if part in expected else "has the unknown"
            raise UserError(f"the bundle {what} part {part!r}", where)
        raise UserError("the manifest of the bundle does not fit its parts", where)
    return manifest


def _read_part_of_bundle(archive: zipfile.ZipFile, name: str, most: int, where: str) -> bytes:
    """Return a part of the zip file; its real size must be at most `most` bytes."""
    with archive.open(name) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise UserError(f"the part is larger than {most // 2**20} MiB", f"{where}, {name}")
    return content


def _read_table_of_part(content: bytes, name: str, where: str) -> pd.DataFrame:
    """Return the table in a part of a bundle; `PROFILE_TABLES` has its columns and types."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        path.write_bytes(content)
        return read_parquet_table(path, PROFILE_TABLES[name], where, exact=True)


def _check_values(tables: ProfileTables, provenance: Mapping[str, object], where: str) -> None:
    """Raise a UserError for an impossible value, which the constraints of SQL tables find."""
    place = f"{where}, {MANIFEST}"
    with connect_isolated(Path(":memory:")) as connection:
        connection.create_function("is_json_object", _is_json_object, ["VARCHAR"], "BOOLEAN")
        columns = {name: _checked_columns(kinds) for name, kinds in PROFILE_TABLES.items()}
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        connection.execute(_CONSTRAINTS_SQL_TEMPLATE.substitute(columns, tomorrow=tomorrow))
        try:
            for item in provenance.items():
                connection.execute("INSERT INTO provenance VALUES (?, ?)", item)
            for name, rows in tables.items():
                place = f"{where}, {_PARQUET_FILE_OF_TABLE[name]}"
                insert_rows(connection, name, rows)
        except duckdb.ConstraintException as error:
            column, what = _broken_constraint(str(error))
            raise UserError(what, f"{place}, {column}") from error


def _checked_columns(kinds: Mapping[str, str]) -> str:
    """Return the definitions of a table's columns in SQL, with the checks of their values."""
    columns = []
    for name, kind in duckdb_column_types(kinds).items():
        required = " NOT NULL" if name in _REQUIRED_COLUMNS else ""
        check = _SQL_CHECK_OF_TYPE.get(name) or _SQL_CHECK_OF_TYPE.get(kinds[name])
        checked = f" CHECK ({check}('{name}', \"{name}\"))" if check else ""
        columns.append(f'"{name}" {kind}{required}{checked}')
    return ", ".join(columns)


def _is_json_object(text: str) -> bool:
    """Return whether Python's JSON parser, which later reads the text, accepts it as an object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _broken_constraint(message: str) -> tuple[str, str]:
    """Return (column, what is wrong) from DuckDB's message about a violated constraint."""
    if said := re.search(r"\(Error: (.+?): (.+)\)", message, re.DOTALL):
        return said[1], said[2]
    if column := re.search(r'NOT NULL constraint failed: \w+\."?(\w+)"?', message):
        return column[1], "a row has no value"
    if key := re.search(r'foreign key constraint because key "(.+)" does not exist', message, re.S):
        return "profile", (
            "a row is of a profile that the bundle does not have, or of another host or "
            f"configuration than its profile: {key[1]}"
        )
    return "id", "two profiles have the same id"
