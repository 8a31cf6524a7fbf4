"""The record: what one measurement of one point left behind.

One file per point and replicate holds what was asked, the exact command lines, the tools' raw
output, versions and hashes, the placement the kernel saw, the environment before and after, time
stamps and a verdict with every check. It holds no derived number: values are computed from it
each time, so a better computation never needs a new measurement.

This module and the runner use the standard library alone, because both are copied to hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
VALID = "valid"
FAILED = "failed"


def utc_now() -> str:
    """The time now, as `utc_text` writes it."""
    return utc_text(datetime.now(UTC))


def utc_text(moment: datetime) -> str:
    """A time in UTC as ISO 8601, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check(name: str, passed: bool | None, detail: str, *, decisive: bool = True) -> dict[str, Any]:
    """One line of a verdict.

    Args:
        name: what was checked, e.g. ``placement: memory``.
        passed: None when it could not be checked here; the detail says why.
        detail: what was seen, in words with figures.
        decisive: False for a note that does not make the record invalid.
    """
    return {"name": name, "passed": passed, "detail": detail, "decisive": decisive}


def verdict(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The verdict that follows from checks: failed when a decisive one did not pass."""
    broken = [c for c in checks if c["decisive"] and c["passed"] is False]
    reason = "; ".join(f"{c['name']}: {c['detail']}" for c in broken) or None
    return {"status": FAILED if broken else VALID, "reason": reason, "checks": checks}


def write_atomically(path: Path, text: str) -> None:
    """Write a whole text file or none, see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
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


def rewrite(path: Path, text: str) -> None:
    """Write a file only when its content changes, so that its time stamp means something."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)


def attempt_name(replicate: int, finished_at: str, status: str) -> str:
    """File name of an attempt, e.g. ``rep2.20261121T033000.123Z.valid.json``."""
    stamp = finished_at.replace("-", "").replace(":", "")
    return f"rep{replicate}.{stamp}.{status}.json"


def save(record: dict[str, Any], path: Path) -> None:
    """Keep a record for good and make it the current one.

    The attempt is written below ``attempts/`` next to `path` and never touched again; `path`
    (``rep<N>.json``) becomes another name of the same file. So a retry or a rerun after a
    repair takes nothing away.
    """
    status = record["verdict"]["status"]
    name = attempt_name(record["replicate"], record["finished_at"], status)
    attempt = path.parent / "attempts" / name
    write_atomically(attempt, json.dumps(record, indent=1, sort_keys=True) + "\n")
    make_current(attempt, path)


def make_current(attempt: Path, path: Path) -> None:
    """Make `path` (``rep<N>.json``) another name of an attempt's file."""
    link = path.with_name(f".{path.name}.{os.getpid()}")
    link.unlink(missing_ok=True)
    os.link(attempt, link)
    link.replace(path)


def load(path: Path) -> dict[str, Any]:
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
