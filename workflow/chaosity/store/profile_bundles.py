"""A bundle: profiles in one file that others can import.

A zip file of `manifest.json` (schema version, provenance, size and SHA-256 of each part) and a
Parquet file for each table. What comes from others is checked before any of it reaches the
database: parts by name, size and hash, columns and types, texts and values.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.records import VALID, write_bytes_atomically
from chaosity.store.anonymisation import anonymous
from chaosity.store.profile_database import (
    IMPORTED,
    LOCAL,
    SCHEMA_VERSION,
    TABLES,
    Parts,
    find_profiles,
    insert,
    now,
    open_database,
    parts_of,
)
from chaosity.store.tidy_table import sql, write_table

WHAT = "chaosity profiles"
MANIFEST = "manifest.json"
# A host with 2 000 points in ten replicates makes a table of less than 1 MB; a thousand of them are
# far below. What is above was not made by this program.
_MOST_BYTES = 256 * 2**20
_MOST_MANIFEST_BYTES = 2**20
_MOST_ROWS = 20_000_000
_LONGEST_TEXT = 400
_TOPOLOGY_TEXT = 4 * 2**20
_IDENTITY = re.compile(r"[0-9a-f]{16}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# A zip file's own times would tell the time of day.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def publish(
    database: Path,
    bundle: Path,
    *,
    with_names: bool = False,
    contact: str | None = None,
    licence: str | None = None,
    **asked: str | None,
) -> dict[str, Any]:
    """Write local profiles into a bundle, without names, serials and addresses unless asked.

    Args:
        database: the profiles.
        bundle: the file to write.
        with_names: leave names of hosts, serials and slots of drives in it.
        contact: whom to ask; public as it is.
        licence: under which others may use it; public as it is.
        asked: only profiles that fit, see `find_profiles`.

    Returns:
        The manifest.

    Raises:
        UserError: no local profile fits.
    """
    _check_texts(pd.Series([contact or "", licence or ""]), "contact and licence", _LONGEST_TEXT)
    found = find_profiles(database, **{**asked, "origin": LOCAL})
    if not found:
        raise UserError("has no such profile that was measured here", str(database))
    parts = anonymous(
        parts_of(database, [one["id"] for one in found]),
        secrets.token_bytes(32),
        with_names=with_names,
    )
    files = {f"{name}.parquet": _parquet(part, name) for name, part in parts.by_name().items()}
    manifest = {
        "bundle": WHAT,
        "schema_version": SCHEMA_VERSION,
        "provenance": {
            "chaosity_version": __version__,
            "published_on": now(),
            "with_names": with_names,
            "contact": contact,
            "licence": licence,
        },
        "profiles": len(parts.profiles),
        "measurements": len(parts.measurements),
        "parts": {name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
                  for name, content in files.items()},
    }  # fmt: skip
    with tempfile.SpooledTemporaryFile() as stream:
        with zipfile.ZipFile(stream, "w") as archive:
            text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
            for name, content in {MANIFEST: text.encode(), **files}.items():
                archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), content)
        stream.seek(0)
        write_bytes_atomically(bundle, stream.read())
    return manifest


def _parquet(rows: pd.DataFrame, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        write_table(rows, path, TABLES[name])
        return path.read_bytes()


def import_bundle(bundle: Path, database: Path) -> int:
    """Put the profiles of a bundle into a database; a second time changes nothing.

    Returns:
        How many profiles are new.

    Raises:
        UserError: it is no bundle, of a newer chaosity, damaged, or holds what no profile has.
    """
    parts, manifest, digest = read_bundle(bundle)
    identities = {one: hashlib.sha256(f"{digest}{one}".encode()).hexdigest()[:12]
                  for one in parts.profiles["id"]}  # fmt: skip
    provenance = json.dumps({"bundle": digest, **manifest["provenance"]}, sort_keys=True)
    renamed = Parts(
        profiles=parts.profiles.assign(
            id=parts.profiles["id"].map(identities), origin=IMPORTED, provenance=provenance
        ),
        components=parts.components.assign(profile=parts.components["profile"].map(identities)),
        measurements=parts.measurements.assign(
            profile=parts.measurements["profile"].map(identities)
        ),
    )
    with open_database(database, write=True) as connection:
        [(known,)] = connection.execute(
            "SELECT count(*) FROM profiles WHERE list_contains(?, id)", [[*identities.values()]]
        ).fetchall()
        if not known:
            insert(connection, renamed)
    return 0 if known else len(identities)


def read_bundle(path: Path) -> tuple[Parts, dict[str, Any], str]:
    """The rows of a bundle, checked; its manifest; its SHA-256.

    Raises:
        UserError: as `import_bundle`.
    """
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive, where)
            files = {name: _part(archive, name, said, where)
                     for name, said in manifest["parts"].items()}  # fmt: skip
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UserError(f"is no bundle of profiles: {error}", where) from error
    tables = {name: _rows(files[f"{name}.parquet"], name, f"{where}, {name}.parquet")
              for name in TABLES}  # fmt: skip
    parts = Parts(**tables)
    _check(parts, where)
    return parts, manifest, hashlib.sha256(path.read_bytes()).hexdigest()


def _manifest(archive: zipfile.ZipFile, where: str) -> dict[str, Any]:
    """The manifest, and nothing else in the file than what it may list."""
    names = archive.namelist()
    if MANIFEST not in names:
        raise UserError("is no bundle of profiles: it has no manifest", where)
    expected = {MANIFEST, *(f"{name}.parquet" for name in TABLES)}
    try:
        manifest = dict(json.loads(_bytes(archive, MANIFEST, _MOST_MANIFEST_BYTES, where)))
        what, version = manifest["bundle"], int(manifest["schema_version"])
        parts, provenance = dict(manifest["parts"]), dict(manifest["provenance"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError("has no manifest of a bundle", where) from error
    if what != WHAT:
        raise UserError("is a bundle of something else", where)
    if version > SCHEMA_VERSION:
        raise UserError(
            f"is of a newer chaosity (schema {version}, this one knows {SCHEMA_VERSION})", where,
            "install a newer one",
        )  # fmt: skip
    if version < 1 or sorted(names) != sorted(expected) or {*parts, MANIFEST} != expected:
        unexpected = sorted(set(names) ^ expected) or sorted(names)
        raise UserError(f"does not hold what a bundle holds: {unexpected[0]!r}", where)
    if not all(isinstance(one, (str, bool, type(None))) for one in provenance.values()):
        raise UserError("says where it comes from in no known form", f"{where}, {MANIFEST}")
    said = pd.Series(list(map(str, provenance.values())), dtype=object)
    _check_texts(said, f"{where}, {MANIFEST}", _LONGEST_TEXT)
    return {**manifest, "parts": parts, "provenance": provenance}


def _part(archive: zipfile.ZipFile, name: str, said: Any, where: str) -> bytes:
    content = _bytes(archive, name, _MOST_BYTES, where)
    wanted = said.get("sha256") if isinstance(said, Mapping) else None
    if hashlib.sha256(content).hexdigest() != wanted:
        raise UserError("is damaged: its hash is not the one in the manifest", f"{where}, {name}")
    return content


def _bytes(archive: zipfile.ZipFile, name: str, most: int, where: str) -> bytes:
    """A part of the zip file, no larger than it may be whatever its header says."""
    with archive.open(name) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise UserError(f"is larger than {most // 2**20} MiB", f"{where}, {name}")
    return content


def _rows(content: bytes, name: str, where: str) -> pd.DataFrame:
    """A part as a table, its columns and types as they have to be."""
    wanted = {column: sql(kind) for column, kind in TABLES[name].items()}
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder) / "part.parquet"
        path.write_bytes(content)
        try:
            relation = connection.read_parquet(str(path))
            found = dict(zip(relation.columns, map(str, relation.types), strict=True))
            if found != wanted:
                differ = sorted(set(found.items()) ^ set(wanted.items()))
                raise UserError(f"its columns are not those of a profile: {differ[0][0]!r}", where)
            [(rows,)] = relation.count("*").fetchall()
            if rows > _MOST_ROWS:
                raise UserError(f"has {rows} rows, more than any profile", where)
            return relation.df()[list(wanted)].astype(TABLES[name])
        except duckdb.Error as error:
            raise UserError(f"is no Parquet file: {str(error).splitlines()[0]}", where) from error


def _check(parts: Parts, where: str) -> None:
    """Whether rows belong together and hold what can be true."""
    for name, rows in parts.by_name().items():
        place = f"{where}, {name}.parquet"
        for column in rows.columns:
            if rows[column].dtype == "string":
                longest = _TOPOLOGY_TEXT if column == "topology" else _LONGEST_TEXT
                _check_texts(rows[column].dropna(), f"{place}, {column}", longest)
    profiles = parts.profiles
    identities = set(profiles["id"])
    if len(identities) != len(profiles) or not all(
        isinstance(one, str) and _IDENTITY.fullmatch(one) for one in identities
    ):
        raise UserError("profiles have no names of their own", f"{where}, profiles.parquet")
    if profiles[["host", "configuration"]].isna().any(axis=None):
        raise UserError("a profile has no host or configuration", f"{where}, profiles.parquet")
    for name in ("components", "measurements"):
        if not set(parts.by_name()[name]["profile"].dropna()) <= identities:
            raise UserError("has rows of no profile", f"{where}, {name}.parquet")
    _check_values(parts.measurements, f"{where}, measurements.parquet")
    places = ["profile", "host", "configuration"]
    owned = set(map(tuple, profiles[["id", "host", "configuration"]].to_numpy()))
    if not set(map(tuple, parts.measurements[places].drop_duplicates().to_numpy())) <= owned:
        raise UserError(
            "has rows of another host than their profile", f"{where}, measurements.parquet"
        )
    for column in ("factors", "levels"):
        _check_json(parts.measurements[column], f"{where}, measurements.parquet, {column}")
    _check_json(profiles["topology"], f"{where}, profiles.parquet, topology")


def _check_values(rows: pd.DataFrame, where: str) -> None:
    needed = ("profile", "host", "configuration", "experiment", "point", "replicate", "status",
              "load", "initiator", "target", "metric")  # fmt: skip
    for column in needed:
        if rows[column].isna().any():
            raise UserError("a row has no value", f"{where}, {column}")
    known = rows["status"] == VALID
    values = rows["value"].to_numpy(dtype=float, na_value=np.nan)
    bad = known.to_numpy() & ~((values >= 0.0) & np.isfinite(values))
    bad |= ~known.to_numpy() & ~np.isnan(values)
    if bad.any():
        number = int(np.argmax(bad))
        raise UserError(
            f"row {number + 1} has the value {values[number]:g}",
            where,
            "valid values are finite and not below zero, others have none",
        )


def _check_texts(texts: pd.Series, where: str, longest: int) -> None:
    """No text that is endless, and none that could steer a terminal."""
    for text in texts.unique():
        if len(text) > longest:
            raise UserError(f"has a text of {len(text)} characters", where)
        if _CONTROL.search(text):
            raise UserError("has a text with control characters", where)


def _check_json(texts: pd.Series, where: str) -> None:
    for text in texts.dropna().unique():
        try:
            held = isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            held = False
        if not held:
            raise UserError("has a text that is no JSON object", where)
