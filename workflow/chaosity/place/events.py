"""What programs say in JSON lines: that they are ready, and how far they have come."""

from __future__ import annotations

import json
from typing import Any


def ready_event(line: str) -> dict[str, Any] | None:
    """A line that says that the program is ready, with its memory touched; None for any other."""
    return _event(line, "ready")


def sample_event(line: str) -> dict[str, Any] | None:
    """A line that says what was done between two times; None for any other."""
    return _event(line, "sample")


def _event(line: str, name: str) -> dict[str, Any] | None:
    if f'"{name}"' not in line or not line.startswith("{"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if document.get("event") == name else None
