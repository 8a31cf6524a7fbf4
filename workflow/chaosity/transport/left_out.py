"""Hosts that this run goes on without: ``results/<host>/left_out.json`` says since when and why."""

from __future__ import annotations

import json
from pathlib import Path

from chaosity.records import utc_now, write_atomically

NAME = "left_out.json"


def leave_out(folder: Path, host: str, reason: str) -> None:
    """Note that a host's points are left for a later run.

    Args:
        folder: ``results/<host>``.
        host: its name.
        reason: one clause for people.
    """
    note = {"host": host, "at": utc_now(), "reason": reason}
    write_atomically(folder / NAME, json.dumps(note, indent=1) + "\n")


def left_out(folder: Path) -> dict[str, str] | None:
    """The note about a host, with ``at`` and ``reason``; None when the host takes part."""
    try:
        note = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return {"at": str(note.get("at", "")), "reason": str(note["reason"])}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {"at": "", "reason": f"{NAME} cannot be read, so the reason is lost"}


def take_part(folder: Path) -> None:
    """Remove the note: the host answers again."""
    (folder / NAME).unlink(missing_ok=True)
