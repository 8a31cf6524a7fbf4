"""Reads and writes records, and writes any file whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from chaosity.records.point_types import Point
from chaosity.records.record_types import Record

SCHEMA_VERSION = 1
# When the run began, as `records.utc_now` writes it; unset outside a run. An attempt that is older
# is no reason not to measure: whoever starts a run anew wants what is missing measured.
RUN_BEGAN = "CHAOSITY_RUN_BEGAN"


def utc_now() -> str:
    """The time now, as `utc_text` writes it."""
    return format_utc(datetime.now(UTC))


def format_utc(moment: datetime) -> str:
    """A time in UTC as ISO 8601, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_atomically(path: Path, text: str) -> None:
    """Write a whole text file or none, see `write_bytes`."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or none: to a temporary name, flushed to the disk, then renamed.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def write_if_changed(path: Path, text: str) -> None:
    """Write a file only when its content changes, so that its time stamp means something."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)


def attempt_name(replicate: int, finished_at: str, status: str) -> str:
    """File name of an attempt, e.g. ``rep2.20261121T033000.123Z.valid.json``."""
    stamp = finished_at.replace("-", "").replace(":", "")
    return f"rep{replicate}.{stamp}.{status}.json"


def save_record(record: Record, path: Path) -> None:
    """Keep a record for good and make it the current one.

    The attempt is written below ``attempts/`` next to `path` and never touched again; `path`
    (``rep<N>.json``) becomes another name of the same file. So a retry or a rerun after a
    repair takes nothing away.
    """
    status = record["verdict"]["status"]
    name = attempt_name(record["replicate"], record["finished_at"], status)
    attempt = path.parent / "attempts" / name
    write_atomically(attempt, json.dumps(record, indent=1, sort_keys=True) + "\n")
    link_current_record(attempt, path)


def link_current_record(attempt: Path, path: Path) -> None:
    """Make `path` (``rep<N>.json``) another name of an attempt's file."""
    link = path.with_name(f".{path.name}.{os.getpid()}")
    link.unlink(missing_ok=True)
    os.link(attempt, link)
    link.replace(path)


def load_record(path: Path) -> Record:
    """Read a record back.

    Raises:
        ValueError: the file is no whole record of a version this program knows.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a whole record: {error}") from error
    if not isinstance(record, dict) or "verdict" not in record:
        raise ValueError(f"{path} is not a record: it has no verdict")
    if record.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has record version {record.get('schema_version')}, not {SCHEMA_VERSION}"
        )
    return record


def attempt_of_this_run(point: Point, replicate: int, path: Path) -> Path | None:
    """The newest record of this point and replicate that was made since the run began.

    Args:
        point: the point; only a record of the very same definition will do.
        replicate: 1, 2, ...
        path: where the record is to be, ``rep<N>.json``; ``attempts/`` is beside it.

    Returns:
        The attempt's file, None when there is none.
    """
    began = os.environ.get(RUN_BEGAN)
    if not began:
        return None
    for attempt in sorted(path.parent.glob(f"attempts/rep{replicate}.*.json"), reverse=True):
        try:
            record = load_record(attempt)
        except ValueError:
            continue
        same = record["point"].get("definition") == point["definition"]
        if same and record["replicate"] == replicate and record["began_at"] >= began:
            return attempt
    return None
