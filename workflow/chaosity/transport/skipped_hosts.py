"""Hosts that this run goes on without: ``results/<host>/left_out.json`` says since when and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from chaosity.records import utc_now, write_atomically

SKIPPED_HOST_FILE = "left_out.json"


@dataclass(frozen=True)
class SkippedHost:
    """A host that the last run had to leave out.

    Attributes:
        host: its name.
        at: when, UTC.
        reason: one sentence.
    """

    host: str
    at: str
    reason: str

    @property
    def notice(self) -> str:
        """When and why, as it stands in a report."""
        return f"{self.minute}: {self.reason.rstrip('.')}"

    @property
    def minute(self) -> str:
        """When, as people write it."""
        return self.at[:16].replace("T", " ") + " UTC" if self.at else "an unknown time"


def skip_host(folder: Path, host: str, reason: str) -> None:
    """Note that a host's points are left for a later run.

    Args:
        folder: ``results/<host>``.
        host: its name.
        reason: one clause for people.
    """
    note = {"host": host, "at": utc_now(), "reason": reason}
    write_atomically(folder / SKIPPED_HOST_FILE, json.dumps(note, indent=1) + "\n")


def read_skipped_host(folder: Path) -> SkippedHost | None:
    """When and why the last run skipped a host; None when the run measured it.

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
