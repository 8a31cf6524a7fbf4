"""Note the hosts that a run skips, with time and reason: ``results/<host>/left_out.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from chaosity.errors import MALFORMED
from chaosity.records.atomic_writes_and_record_files import (
    read_regular_file,
    utc_now_text,
    write_atomically,
)

SKIPPED_HOST_FILE = "left_out.json"


@dataclass(frozen=True)
class SkippedHost:
    """A host that the last run skipped, at a time in UTC (ISO 8601; empty if unknown)."""

    host: str
    at: str
    reason: str

    @property
    def skip_time_and_reason(self) -> str:
        """Return the time and the reason of the skip as text, for a report."""
        return f"{self.time_to_the_minute}: {self.reason.rstrip('.')}"

    @property
    def time_to_the_minute(self) -> str:
        """Return the time to the minute, such as "2026-11-21 03:30 UTC"."""
        return self.at[:16].replace("T", " ") + " UTC" if self.at else "an unknown time"


def note_skipped_host(folder: Path, host: str, reason: str) -> None:
    """Note in ``results/<host>`` that a host is skipped; the reason is a clause."""
    note = {"host": host, "at": utc_now_text(), "reason": reason}
    write_atomically(folder / SKIPPED_HOST_FILE, json.dumps(note, indent=1) + "\n")


def read_skipped_host(folder: Path) -> SkippedHost | None:
    """Return the note of a skipped host in ``results/<host>``; None if the host is not skipped."""
    try:
        note = json.loads(read_regular_file(folder / SKIPPED_HOST_FILE))
        return SkippedHost(folder.name, str(note.get("at", "")), str(note["reason"]))
    except FileNotFoundError:
        return None
    except (OSError, *MALFORMED):
        reason = f"{SKIPPED_HOST_FILE} cannot be read, so the reason is not known"
        return SkippedHost(folder.name, "", reason)


def remove_skipped_host_note(folder: Path) -> None:
    """Remove the note about a skipped host, because the host answers again."""
    (folder / SKIPPED_HOST_FILE).unlink(missing_ok=True)
