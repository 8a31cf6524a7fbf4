"""What each component was, and since when: one line a state, beside the component files.

``components/.history/<name>.jsonl`` holds lines ``{"since": ..., "content": {...}}``, the oldest
first; the content is null while the component was not there. A person's edit of a component file
is a state like any other. So a measurement of any day can be told which serial it is of, and a
report can say what a repair changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaosity.records import format_utc, utc_now, write_atomically

HISTORY = ".history"


@dataclass(frozen=True)
class ComponentState:
    """What a component was for some time.

    Attributes:
        since: UTC, ISO 8601: the time stamp of the component's file, with which Snakemake
            compares those of the records.
        content: of the component's file; None while there was no such component.
    """

    since: str
    content: Mapping[str, Any] | None


def remember(path: Path) -> None:
    """Add a component file's present content to the component's history, unless it is its last.

    Args:
        path: of the component file; one that is not there is remembered as gone.
    """
    states = _read(_history_of(path))
    content = _content(path)
    if states[-1].content == content if states else content is None:
        return
    since = utc_now() if content is None else _changed_at(path)
    if states and since <= states[-1].since:  # copied with an old time stamp
        since = utc_now()
    states.append(ComponentState(since, content))
    lines = (
        json.dumps({"since": one.since, "content": one.content}, sort_keys=True, ensure_ascii=False)
        for one in states
    )
    write_atomically(_history_of(path), "".join(f"{line}\n" for line in lines))


def read_history(directory: Path) -> dict[str, list[ComponentState]]:
    """The states of every component, the oldest first.

    None is without content: a component that was gone for a while and came back as it had been has
    one state.

    Args:
        directory: with the component files.
    """
    found = {}
    for path in sorted((directory / HISTORY).glob("*.jsonl")):
        states: list[ComponentState] = []
        for state in _read(path):
            if state.content is not None and (not states or states[-1].content != state.content):
                states.append(state)
        if states:
            found[path.name.removesuffix(".jsonl")] = states
    return found


def _history_of(path: Path) -> Path:
    return path.parent / HISTORY / f"{path.stem}.jsonl"


def _content(path: Path) -> dict[str, Any] | None:
    """A component file's content; a text that is no JSON object is kept as it is."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {"unreadable": text}


def _changed_at(path: Path) -> str:
    return format_utc(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def _read(path: Path) -> list[ComponentState]:
    """The lines of a history; none when there is no file, and broken lines are left out."""
    states = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            entry = json.loads(line)
            states.append(ComponentState(entry["since"], entry["content"]))
        except (ValueError, KeyError, TypeError):
            continue
    return states
