"""Write and read bundles: profiles in one file that others can import.

A bundle is a zip file of `manifest.json` (schema version, provenance, size and SHA-256 of each
part) and a Parquet file for each table. A bundle of others is checked before anything is put into
the database: names, sizes and hashes of parts, columns and types, texts and values.
"""

from __future__ import annotations

import contextlib
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
from typing import TypedDict, cast

import numpy as np
import pandas as pd

from chaosity import __version__
from chaosity.errors import MALFORMED, UserError
from chaosity.records.atomic_writes_and_record_files import utc_now_text, write_atomically
from chaosity.records.record_types_and_verdict import VALID
from chaosity.store.measurements import LOAD, POINT
from chaosity.store.profile_anonymisation import anonymise_profiles
from chaosity.store.profile_database import (
    IMPORTED,
    LOCAL,
    SCHEMA_VERSION,
    TABLES,
    ProfileTables,
    find_profiles,
    insert_profiles,
    newer_schema_error,
    open_database,
    read_profile_tables,
)
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table

BUNDLE_KIND = "chaosity profiles"
MANIFEST = "manifest.json"
# A host with 2 000 points in ten replicates has a table of less than 1 MB. Hundreds of such hosts
# stay below these limits, so a larger file was not written by this program.
_MOST_BYTES = 256 * 2**20
_MOST_MANIFEST_BYTES = 2**20
_LONGEST_TEXT = 400
_TOPOLOGY_TEXT = 4 * 2**20
# The largest and the smallest positive number of a bundle, in SI units. A rate of a whole machine
# has 13 digits.
_LARGEST, _SMALLEST = 1e18, 1e-18
_TIMES = {"profiles": ("measured_from", "measured_to"), "measurements": ("measured_at",)}
_IDENTITY = re.compile(r"[0-9a-f]{16}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,6})?Z)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NOT_A_ZIP_FILE = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
)
# The real times in a zip file would publish the time of day.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class Manifest(TypedDict):
    """The manifest of a bundle; `parts` have the SHA-256 and the number of bytes of each file."""

    bundle: str
    schema_version: int
    provenance: dict[str, str | bool | None]
    profiles: int
    measurements: int
    parts: dict[str, dict[str, str | int]]


def publish_bundle(
    database: Path,
    bundle: Path,
    *,
    with_names: bool = False,
    contact: str | None = None,
    licence: str | None = None,
    **query: str | None,
) -> Manifest:
    """Write local profiles into a bundle, by default without names, serials and addresses.

    Args:
        database: path of the database with the profiles.
        bundle: path of the file to write.
        with_names: keep names of hosts, and serials and slots of drives.
        contact: person or address for questions; published unchanged.
        licence: licence of the data; published unchanged.
        query: selects the profiles, see `find_profiles`.

    Returns:
        The manifest.

    Raises:
        UserError: no local profile matches, or the bundle has the name of another kind of file.
    """
    if bundle.suffix != ".zip":
        raise UserError("a bundle is a zip file", str(bundle), "give it a name that ends in .zip")
    _check_texts(pd.Series([contact or "", licence or ""]), "contact and licence", _LONGEST_TEXT)
    found = find_profiles(database, **{**query, "origin": LOCAL})
    if not found:
        raise UserError("the database has no local profile that matches", str(database))
    chosen = read_profile_tables(database, [profile["id"] for profile in found])
    tables = anonymise_profiles(chosen, secrets.token_bytes(32), with_names=with_names)
    files = {f"{name}.parquet": _parquet_content(table, name) for name, table in tables.items()}
    manifest: Manifest = {
        "bundle": BUNDLE_KIND,
        "schema_version": SCHEMA_VERSION,
        "provenance": {
            "chaosity_version": __version__,
            "published_on": utc_now_text()[:10],  # the time of day is private
            "with_names": with_names,
            "contact": contact,
            "licence": licence,
        },
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
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), content)
    write_atomically(bundle, stream.getvalue())
    return manifest


def _parquet_content(rows: pd.DataFrame, name: str) -> bytes:
    """Return rows as Parquet; a temporary file is used, since DuckDB writes only to files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        write_parquet_table(rows, path, TABLES[name])
        return path.read_bytes()


def import_bundle(bundle: Path, database: Path) -> int:
    """Put the profiles of a bundle into a database; a second import changes nothing.

    Returns:
        The number of new profiles.

    Raises:
        UserError: the file is not a bundle, damaged, of a newer chaosity, or has impossible values.
    """
    tables, manifest, digest = read_bundle(bundle)
    identities = {
        identity: hashlib.sha256(f"{digest}{identity}".encode()).hexdigest()[:12]
        for identity in tables["profiles"]["id"]
    }
    provenance = json.dumps({**manifest["provenance"], "bundle": digest}, sort_keys=True)
    renamed = {
        name: rows.assign(**{key: rows[key].map(identities)})
        for (name, rows), key in zip(tables.items(), ("id", "profile", "profile"), strict=True)
    }
    renamed["profiles"] = renamed["profiles"].assign(origin=IMPORTED, provenance=provenance)
    with open_database(database, write=True) as connection:
        [(known,)] = connection.execute(
            "SELECT count(*) FROM profiles WHERE list_contains(?, id)", [[*identities.values()]]
        ).fetchall()
        if not known:
            insert_profiles(connection, renamed)
    return 0 if known else len(identities)


def read_bundle(path: Path) -> tuple[ProfileTables, Manifest, str]:
    """Return the checked rows of a bundle, its manifest, and its SHA-256; see `import_bundle`."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive, where)
            files = {
                name: _part(archive, name, part, where) for name, part in manifest["parts"].items()
            }
    except _NOT_A_ZIP_FILE as error:
        raise UserError(f"the file is not a bundle of profiles: {error}", where) from error
    tables = {name: _rows(files[f"{name}.parquet"], name, where) for name in TABLES}
    _check_tables(tables, where)
    return tables, manifest, hashlib.sha256(path.read_bytes()).hexdigest()


def _manifest(archive: zipfile.ZipFile, where: str) -> Manifest:
    """Return the manifest; parts of the file that the manifest does not list are an error."""
    names, place = archive.namelist(), f"{where}, {MANIFEST}"
    if MANIFEST not in names:
        raise UserError("the file is not a bundle of profiles: it has no manifest", where)
    expected = {MANIFEST, *(f"{name}.parquet" for name in TABLES)}
    try:
        manifest = dict(json.loads(_bytes(archive, MANIFEST, _MOST_MANIFEST_BYTES, where)))
        kind, version = manifest["bundle"], int(manifest["schema_version"])
        parts, provenance = dict(manifest["parts"]), dict(manifest["provenance"])
    except MALFORMED as error:
        raise UserError("the bundle has a broken manifest", where) from error
    if kind != BUNDLE_KIND:
        raise UserError(f"the bundle is of the kind {kind!r}, not {BUNDLE_KIND!r}", where)
    if version > SCHEMA_VERSION:
        raise newer_schema_error(version, where)
    if version < 1 or sorted(names) != sorted(expected) or {*parts, MANIFEST} != expected:
        for part in sorted(set(names) ^ expected):
            what = "lacks the" if part in expected else "has the unknown"
            raise UserError(f"the bundle {what} part {part!r}", where)
        raise UserError("the manifest of the bundle does not fit its parts", where)
    if not all(isinstance(value, (str, bool, type(None))) for value in provenance.values()):
        raise UserError("the provenance has a value that is not a text", place)
    _check_texts(pd.Series(map(str, provenance.values()), dtype=object), place, _LONGEST_TEXT)
    _check_times(pd.Series([provenance.get("published_on")], dtype=object), place)
    return cast(Manifest, {**manifest, "parts": parts, "provenance": provenance})


def _part(archive: zipfile.ZipFile, name: str, description: object, where: str) -> bytes:
    """Return the content of a part, after its hash was compared with the manifest."""
    content = _bytes(archive, name, _MOST_BYTES, where)
    wanted = description.get("sha256") if isinstance(description, Mapping) else None
    if hashlib.sha256(content).hexdigest() != wanted:
        raise UserError("the hash differs from the manifest", f"{where}, {name}")
    return content


def _bytes(archive: zipfile.ZipFile, name: str, most: int, where: str) -> bytes:
    """Return a part of the zip file; the limit of its size applies whatever its header says."""
    with archive.open(name) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise UserError(f"the part is larger than {most // 2**20} MiB", f"{where}, {name}")
    return content


def _rows(content: bytes, name: str, where: str) -> pd.DataFrame:
    """Return a part as a table, with the columns and types of a profile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        path.write_bytes(content)
        return read_parquet_table(path, TABLES[name], f"{where}, {name}.parquet", exact=True)


def _check_tables(tables: ProfileTables, where: str) -> None:
    """Raise an error if rows do not belong together or have impossible values."""
    for name, rows in tables.items():
        for column, kind in TABLES[name].items():
            longest = _TOPOLOGY_TEXT if column == "topology" else _LONGEST_TEXT
            if kind == "string":
                _check_texts(rows[column].dropna(), f"{where}, {name}.parquet, {column}", longest)
    profiles, place = tables["profiles"], f"{where}, profiles.parquet"
    identities = set(profiles["id"])
    if len(identities) != len(profiles):
        raise UserError("two profiles have the same id", place)
    if not all(isinstance(text, str) and _IDENTITY.fullmatch(text) for text in identities):
        raise UserError("a profile has an id that is not 16 hexadecimal digits", place)
    if profiles[["host", "configuration"]].isna().any(axis=None):
        raise UserError("a profile has no host or configuration", place)
    for name in ("components", "measurements"):
        place = f"{where}, {name}.parquet"
        if unknown := set(tables[name]["profile"].dropna()) - identities:
            raise UserError(f"the part has rows with the unknown profile {min(unknown)!r}", place)
    measurements = tables["measurements"]
    _check_values(measurements, place)
    owner = ["profile", "host", "configuration"]
    owned = set(map(tuple, profiles[["id", "host", "configuration"]].to_numpy()))
    if not set(map(tuple, measurements[owner].drop_duplicates().to_numpy())) <= owned:
        raise UserError("a row is of another host than its profile", place)
    for name, rows in tables.items():
        _check_magnitudes(rows, TABLES[name], f"{where}, {name}.parquet")
        for column in _TIMES.get(name, ()):
            _check_times(rows[column], f"{where}, {name}.parquet, {column}")
    for column in ("factors", "levels"):
        _check_json(measurements[column], f"{place}, {column}")
    _check_json(profiles["topology"], f"{where}, profiles.parquet, topology")


def _check_values(rows: pd.DataFrame, where: str) -> None:
    """Raise an error if a required value is missing, or a value contradicts its status."""
    for column in ("profile", *POINT, "replicate", "status", *LOAD, "metric"):
        if rows[column].isna().any():
            raise UserError("a row has no value", f"{where}, {column}")
    valid = (rows["status"] == VALID).to_numpy()
    values = rows["value"].to_numpy(dtype=float, na_value=np.nan)
    bad = np.where(valid, ~((values >= 0.0) & np.isfinite(values)), ~np.isnan(values))
    if bad.any():
        number = int(np.argmax(bad))
        status = rows["status"].iloc[number]
        remedy = "a valid row has a finite value of at least zero, any other row has none"
        raise UserError(
            f"row {number + 1} has the status {status} and the value {values[number]:g}",
            where,
            remedy,
        )


def _check_magnitudes(rows: pd.DataFrame, columns: Mapping[str, str], where: str) -> None:
    """Raise an error if a number is negative, or larger or smaller than any that is measured."""
    for column in (name for name, kind in columns.items() if kind in ("Int64", "Float64")):
        values = rows[column].to_numpy(dtype=float, na_value=np.nan)
        bad = ~(np.isnan(values) | (values == 0) | ((values >= _SMALLEST) & (values <= _LARGEST)))
        if bad.any():
            number = int(np.argmax(bad))
            raise UserError(
                f"row {number + 1} has the number {values[number]:g}",
                f"{where}, {column}",
                f"a number is 0 or from {_SMALLEST:g} to {_LARGEST:g}",
            )


def _check_times(texts: pd.Series, where: str) -> None:
    """Raise an error if a text is no date, with or without a time of day, or one to come."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    for text in texts.dropna().unique():
        with contextlib.suppress(ValueError):
            if _TIME.fullmatch(text) and datetime.fromisoformat(text) and text < tomorrow:
                continue
        remedy = "a date is like 2026-11-21, with or without a time of day"
        raise UserError(f"{text!r} is not a date of a measurement", where, remedy)


def _check_texts(texts: pd.Series, where: str, longest: int) -> None:
    """Raise an error if a text is too long, or has characters that control a terminal."""
    for text in texts.unique():
        if len(text) > longest:
            raise UserError(f"a text has {len(text)} characters; allowed: {longest}", where)
        if _CONTROL.search(text):
            raise UserError("a text has control characters", where)


def _check_json(texts: pd.Series, where: str) -> None:
    """Raise an error if a text is not a JSON object."""
    for text in texts.dropna().unique():
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(json.loads(text), dict):
                continue
        raise UserError("a text is not a JSON object", where)
