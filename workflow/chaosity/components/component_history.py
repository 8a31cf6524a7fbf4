"""Keeps the history of each component: its states, each with the time when it began.

``components/.history/<name>.jsonl`` has lines ``{"since": ..., "content": {...}}``, the oldest
first. The content is null while the component did not exist. A person's edit of a component file is
a state too. So each measurement can be assigned to the serial number of its day, and a report can
show the changes of a repair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from chaosity.records.atomic_writes_and_record_files import format_utc, utc_now, write_atomically

HISTORY_FOLDER = ".history"


@dataclass(frozen=True)
class ComponentState:
    """A component's document during a period.

    Attributes:
        since: start of the period in UTC, ISO 8601: the time stamp of the component's file, which
            Snakemake compares with the time stamps of records.
        content: the document; None while the component did not exist.
    """

    since: str
    content: Mapping[str, object] | None


def record_component_state(path: Path) -> None:
    """Adds the content of a component file to the component's history, if it changed.

    Args:
        path: of the component file; a missing file is recorded as a missing component.
    """
    states = _read_states(_history_path(path))
    content = _content(path)
    if states[-1].content == content if states else content is None:
        return
    since = utc_now() if content is None else _changed_at(path)
    if states and since <= states[-1].since:  # a copy with an old time stamp
        since = utc_now()
    states.append(ComponentState(since, content))
    lines = (json.dumps(asdict(state), sort_keys=True, ensure_ascii=False) for state in states)
    write_atomically(_history_path(path), "".join(f"{line}\n" for line in lines))


def read_component_histories(directory: Path) -> dict[str, list[ComponentState]]:
    """Returns the states of each component by name, the oldest first.

    Every state has content. A component that was missing for a while and came back unchanged has
    a single state.

    Args:
        directory: with the component files.
    """
    histories: dict[str, list[ComponentState]] = {}
    for path in sorted((directory / HISTORY_FOLDER).glob("*.jsonl")):
        states: list[ComponentState] = []
        for state in _read_states(path):
            if state.content is not None and (not states or states[-1].content != state.content):
                states.append(state)
        if states:
            histories[path.name.removesuffix(".jsonl")] = states
    return histories


def _history_path(path: Path) -> Path:
    return path.parent / HISTORY_FOLDER / f"{path.stem}.jsonl"


def _content(path: Path) -> dict[str, object] | None:
    """The content of a component file; text that is not a JSON object becomes `unreadable`."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {"unreadable": text}


def _changed_at(path: Path) -> str:
    return format_utc(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def _read_states(path: Path) -> list[ComponentState]:
    """The states in a history file, without broken lines; empty when there is no file."""
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
