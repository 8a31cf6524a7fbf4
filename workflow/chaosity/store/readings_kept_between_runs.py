"""Keep what was read from records, so that the next run reads only new and changed records.

To read a record, check its digest and compute its values takes ten times as long as everything else
that makes the tidy table. The files can be deleted at any time: then all records are read.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from chaosity.errors import UserError
from chaosity.records.record_files import DIGESTS_FILE
from chaosity.store.tidy_table_parquet import (
    column_types_from_groups,
    read_parquet_table,
    rows_to_table,
    write_parquet_table,
)

# Folder of the files below ``results/<host>/<configuration>``.
FOLDER = ".tidy"
_COLUMNS = column_types_from_groups(("string", "program path identity reading"))
# A file that changes twice within the resolution of its file system's time stamps (2 s on FAT) can
# have the time stamp of the first change after the second. So younger changes identify no content.
_RESOLUTION_NS = 2_000_000_000


class KeptReadings:
    """Readings of the records in ``results/<host>/<configuration>``, by path and identity."""

    def __init__(self, folder: Path, earlier: dict[str, tuple[str, str]]) -> None:
        self.folder = folder
        # Path in the folder -> identity and reading as JSON: of the run before, and of the records
        # that this run asked for.
        self.earlier, self.kept = earlier, dict[str, tuple[str, str]]()

    def reading(self, path: Path, request: str, read: Callable[[], Any]) -> Any:
        """Return the kept reading if record and `request` did not change; else call `read`.

        `request` is what else the reading depends on, such as the definition of the planned point.
        `read` returns a JSON document. If it raises an error, nothing is kept.
        """
        name, identity = str(path.relative_to(self.folder)), _identity(path, request)
        before = self.earlier.get(name)
        if before is not None and before[0] == identity:
            self.kept[name] = before
            return json.loads(before[1])
        found = read()
        if identity is not None:
            self.kept[name] = identity, json.dumps(found)
        return found


def _identity(path: Path, request: str) -> str | None:
    """Return a text that changes when a record's file or one of its digests changes.

    Size, time stamps and inode number of three files: the record, and the folder and the list of
    digests by which `load_record` verifies the record. The time of the last change of the inode
    (ctime) also shows an edit whose author restored the older time stamp. The result is None if a
    change is too young, see `_RESOLUTION_NS`.
    """
    attempts = path.parent if path.parent.name == "attempts" else path.parent / "attempts"
    youngest = time.time_ns() - _RESOLUTION_NS
    facts: list[object] = [request]
    for file in (path, attempts, attempts / DIGESTS_FILE):
        try:
            found = file.stat()
        except FileNotFoundError:
            facts.append(None)
            continue
        if max(found.st_mtime_ns, found.st_ctime_ns) >= youngest:
            return None
        facts += (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    return json.dumps(facts)


@contextmanager
def kept_readings(folder: Path, name: str, *, writes: bool = True) -> Iterator[KeptReadings]:
    """Yield the readings of the last run; at the end, write those that were asked for.

    `folder` is ``results/<host>/<configuration>``; `name` is the name of the table that is made
    from the readings. A dry run must not write.
    """
    path = folder / FOLDER / f"{name}.parquet"
    earlier: dict[str, tuple[str, str]] = {}
    with suppress(UserError):  # no file, or not one that this program wrote
        table = read_parquet_table(path, _COLUMNS, exact=True)
        table = table[table["program"] == _program_digest()]
        own = table[["identity", "reading"]].itertuples(index=False, name=None)
        earlier = dict(zip(table["path"], own, strict=True))
    readings = KeptReadings(folder, earlier)
    yield readings
    if writes and readings.kept != readings.earlier:
        rows = [
            {"program": _program_digest(), "path": record, "identity": identity, "reading": reading}
            for record, (identity, reading) in readings.kept.items()
        ]
        # Without these files the next run takes longer, so an unwritable folder is not an error.
        with suppress(OSError, duckdb.Error):
            write_parquet_table(rows_to_table(rows, _COLUMNS), path, _COLUMNS)


@cache
def _program_digest() -> str:
    """Return a digest of Python's version and of all sources, since readings depend on them."""
    digest = hashlib.sha256(sys.version.encode())
    for source in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
