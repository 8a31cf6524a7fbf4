"""Hosts that a run skips: ``results/<host>/left_out.json`` says since when and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from chaosity.records.atomic_writes_and_record_files import utc_now, write_atomically

SKIPPED_HOST_FILE = "left_out.json"


@dataclass(frozen=True)
class SkippedHost:
    """A host that the last run skipped.

    Attributes:
        host: its name.
        at: time in UTC (ISO 8601); empty when unknown.
        reason: one clause.
    """

    host: str
    at: str
    reason: str

    @property
    def skip_notice(self) -> str:
        """Return the time and reason, for a report."""
        return f"{self.minute}: {self.reason.rstrip('.')}"

    @property
    def minute(self) -> str:
        """Return the time to the minute, such as "2026-11-21 03:30 UTC"."""
        return self.at[:16].replace("T", " ") + " UTC" if self.at else "an unknown time"


def skip_host(folder: Path, host: str, reason: str) -> None:
    """Note that a host is skipped; a later run measures its points.

    Args:
        folder: ``results/<host>``.
        host: its name.
        reason: one clause.
    """
    note = {"host": host, "at": utc_now(), "reason": reason}
    write_atomically(folder / SKIPPED_HOST_FILE, json.dumps(note, indent=1) + "\n")


def read_skipped_host(folder: Path) -> SkippedHost | None:
    """Return when and why a host is skipped; None when it is not.

    Args:
        folder: ``results/<host>``.
    """
    try:
        note = json.loads((folder / SKIPPED_HOST_FILE).read_text(encoding="utf-8"))
        return SkippedHost(folder.name, str(note.get("at", "")), str(note["reason"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        reason = f"{SKIPPED_HOST_FILE} cannot be read, so the reason is lost"
        return SkippedHost(folder.name, "", reason)


def readmit_host(folder: Path) -> None:
    """Remove the note: the host answers again."""
    (folder / SKIPPED_HOST_FILE).unlink(missing_ok=True)
