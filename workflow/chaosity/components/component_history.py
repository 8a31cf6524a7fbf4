"""Keep the history of each component: its states, each with the time when the state began.

``components/.history/<name>.jsonl`` has lines ``{"since": ..., "content": {...}}``, the oldest
first. The content is null while the component did not exist. A person's edit of a component file is
a state too. So the history shows the serial number of the part that was present at each
measurement. A report can show what a repair changed.

``check_components.jsonl`` has a line for each check that saw other components than the check
before, with the documents of all components. This file is not in the folder ``components``, since
changes there request new measurements.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from chaosity.errors import MALFORMED, malformed_as_user_error, printable_short_line
from chaosity.records.record_files import (
    file_time,
    format_utc,
    read_regular_file,
    time_in_file_name,
    utc_now_text,
    write_atomically,
)
from chaosity.units import format_binary_bytes, format_quantity

# JSON values by key; `component` is the kind of component.
ComponentDocument = Mapping[str, object]
# Documents by the name of their component.
Components = Mapping[str, ComponentDocument]

HISTORY_FOLDER = ".history"
CHECKS_FILE = "check_components.jsonl"
# Of a list with more items than this, such as CPU flags, only the number of items is shown; the
# component file has all items.
_MOST_ITEMS = 12
_LONGEST_VALUE = 90
# Kinds of components that only discovery adds and removes; the inventory names the others.
_DISCOVERED = {"drive", "gpu", "node", "package"}
# A file server's clock may be ahead of this machine's by some seconds.
_CLOCK_SLACK = timedelta(seconds=60)


@dataclass(frozen=True)
class ComponentState:
    """A component's document during a period."""

    # Start of the period in UTC, ISO 8601: the time stamp of the component's file, which Snakemake
    # compares with the time stamps of records.
    since: str
    content: Mapping[str, object] | None  # the document; None while the component did not exist


def read_json_object_or_none(path: Path) -> dict[str, object] | None:
    """Return the JSON object in a file; None if the file is missing or has no JSON object."""
    try:
        return dict(json.loads(_text(path)))
    except (OSError, *MALFORMED):
        return None


def history_file(path: Path) -> Path:
    """Return the file with the history of a component file."""
    return path.parent / HISTORY_FOLDER / f"{path.stem}.jsonl"


def _text(path: Path) -> str:
    """Return the text in a file, with a replacement character for each byte that is not text."""
    return read_regular_file(path).decode(errors="replace")


def record_component_state(path: Path) -> None:
    """Add the content of a component file to the component's history, if it changed.

    A missing file is recorded as a missing component. Text that is not a JSON object is recorded
    under the key `unreadable`.
    """
    history = history_file(path)
    now = utc_now_text()
    states, content, since = read_component_states(history), read_json_object_or_none(path), now
    # If the clock was ahead and was set back, a state may begin in the future. Then every new
    # record would look older than this state, and Snakemake would measure its point in every run.
    soon = format_utc(datetime.now(UTC) + _CLOCK_SLACK)
    from_future = any(state.since > soon for state in states)
    if from_future:
        states = [replace(state, since=min(state.since, now)) for state in states]
    if path.exists():
        if file_time(path) > soon:
            os.utime(path)
        if content is None:
            content = {"unreadable": _text(path)}
        since = file_time(path)
    changed = states[-1].content != content if states else content is not None
    if not changed and not from_future:
        return
    if states and since <= states[-1].since:  # the file is a copy with an old time stamp
        since = utc_now_text()
    if changed:
        states.append(ComponentState(since, content))
    lines = (json.dumps(asdict(state), sort_keys=True, ensure_ascii=False) for state in states)
    write_atomically(history, "".join(f"{line}\n" for line in lines))


def read_component_histories(directory: Path) -> dict[str, list[ComponentState]]:
    """Return component name -> its states, the oldest first.

    States without content are left out. A component that was missing for a while and came back
    unchanged has a single state. `directory` has the component files.
    """
    histories: dict[str, list[ComponentState]] = {}
    for path in sorted((directory / HISTORY_FOLDER).glob("*.jsonl")):
        for state in read_component_states(path):
            states = histories.setdefault(path.name.removesuffix(".jsonl"), [])
            if state.content is not None and (not states or states[-1].content != state.content):
                states.append(state)
    return {name: states for name, states in histories.items() if states}


def notes_on_missing_components(directory: Path) -> list[str]:
    """Return a sentence for each component that an earlier discovery found, but not the last.

    `directory` has the component files. A component whose history a person deletes gets no
    sentence.
    """
    notes = []
    for path in sorted((directory / HISTORY_FOLDER).glob("*.jsonl")):
        states = read_component_states(path)
        document = states[-2].content if len(states) > 1 and not states[-1].content else None
        if document is None or document.get("component") not in _DISCOVERED:
            continue
        serial = document.get("serial")
        which = f" (serial {printable_short_line(str(serial))})" if serial else ""
        notes.append(
            f"{path.stem}{which} is missing since {states[-1].since[:16].replace('T', ' ')} UTC:"
            " nothing is measured with it, and its records are kept;"
            f" if it was removed on purpose, delete {path}"
        )
    return notes


def state_at(stamp: str, states: Sequence[ComponentState]) -> ComponentState:
    """Return the state of a component at a time; before the history begins, the first state.

    `stamp` has the form of `time_in_file_name`; `states` are the oldest first, at least one.
    """
    before = [state for state in states if time_in_file_name(state.since) <= stamp]
    return before[-1] if before else states[0]


def components_changed_since(
    stamp: str, names: Iterable[str], histories: Mapping[str, Sequence[ComponentState]]
) -> list[str]:
    """Return the names of components whose document at a time differs from their newest document.

    The time `stamp` has the form of `time_in_file_name`. A component that changed and changed back
    is not in the result.
    """
    return [
        name
        for name in names
        if len(states := histories.get(name, ())) > 1
        and state_at(stamp, states).content != states[-1].content
    ]


def read_component_states(history: Path) -> list[ComponentState]:
    """Return the states in a history file; unreadable lines and a missing file give no state."""
    states = []
    for line in _text(history).splitlines() if history.exists() else []:
        with suppress(*MALFORMED):
            entry = json.loads(line)
            states.append(ComponentState(entry["since"], entry["content"]))
    return states


def record_components_of_check(folder: Path, moment: str, components: Components) -> None:
    """Add the components that a check saw, if they differ from those of the last check."""
    path = folder / CHECKS_FILE
    states, content = read_component_states(path), json.loads(json.dumps(components))
    if not states or states[-1].content != content:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"since": moment, "content": content}, sort_keys=True) + "\n")


class ComponentLog:
    """The components of ``results/HOST/CONFIGURATION`` at any time, from discoveries and checks.

    Raises:
        UserError: the file of the checks' components has another form.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / CHECKS_FILE
        self.discovered = read_component_histories(folder / "components")
        with malformed_as_user_error("the file has no components of checks", str(path)):
            self.seen: list[tuple[str, Components]] = [
                (str(state.since), {name: dict(each) for name, each in state.content.items()})  # type: ignore[call-overload]
                for state in read_component_states(path)
                if state.content is not None
            ]
        self.times = {since for since, _ in self.seen}
        self.times |= {each.since for states in self.discovered.values() for each in states}

    def changes_between(self, before: str, after: str) -> list[tuple[str, str]]:
        """Return (component, change in words) for each change between two times.

        Where both a discovery and a check saw a value, that of the check counts, because a
        discovery can be days late.
        """
        if not any(before < time <= after for time in self.times):
            return []
        seen, known = [], []
        for moment in (before, after):
            seen.append(next((own for since, own in reversed(self.seen) if since <= moment), {}))
            stamp = time_in_file_name(moment)
            states = {name: state_at(stamp, each) for name, each in self.discovered.items()}
            known.append({name: state.content or {} for name, state in states.items()})
        if not all(seen):
            seen = [{}, {}]
        changed = sorted(seen[0].keys() ^ seen[1].keys())
        found = [(name, "is missing" if name in seen[0] else "is new") for name in changed]
        for name in sorted({*known[0], *seen[0]} - {*changed}):
            pairs = zip(known, seen, strict=True)
            old, new = ({**run.get(name, {}), **check.get(name, {})} for run, check in pairs)
            differences = component_differences(old, new)
            found += [(name, f"{key} {text or 'changed'}") for key, text in differences]
        return found

    def replacements(self, component: str) -> Iterator[tuple[str, str]]:
        """Yield (time, old and new serial number in words) for each replacement of a component."""
        found: dict[tuple[object, object], str] = {}
        by_runs = [
            (state.since, state.content or {}) for state in self.discovered.get(component, ())
        ]
        by_checks = [(since, own.get(component, {})) for since, own in self.seen]
        for states in (by_runs, by_checks):
            serials = [(since, own["serial"]) for since, own in states if own.get("serial")]
            for (_, old), (since, new) in pairwise(serials):
                if old != new:
                    found[old, new] = min(since, found.get((old, new), since))
        for (old, new), since in found.items():
            yield since, f"serial {old} \N{RIGHTWARDS ARROW} {new}"


def component_differences(
    old: Mapping[str, object], new: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Yield each key whose value differs, in words, and "before -> after"; also nested keys.

    The text "before -> after" is None if both have the same text, as long lists have.
    """
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        name = f"{prefix} {key_as_words(key)}".strip()
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from component_differences(before, after, name)
            continue
        texts = [_short_text(key, held[key]) if key in held else "nothing" for held in (old, new)]
        arrow = " \N{RIGHTWARDS ARROW} ".join(texts)
        yield name, None if texts[0] == texts[1] else arrow


def _short_text(key: str, value: object) -> str:
    text = component_value_text(key, value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def key_as_words(name: str) -> str:
    """Return a key as words, without its unit, since the value's text has the unit."""
    for suffix in ("_bytes", "_hertz", "_seconds"):
        name = name.removesuffix(suffix)
    text = name.replace("_", " ")
    return {"cpu": "CPU", "smt": "SMT", "numa": "NUMA"}.get(text, text)


def component_value_text(name: str, value: object) -> str:
    """Return a value of a component's document as text, with the unit that its key names."""
    if value is None or value == "":
        return "unknown" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return format_binary_bytes(value)
        return format_quantity(name, value) if name.endswith(("_hertz", "_seconds")) else str(value)
    if isinstance(value, list | tuple):
        if len(value) > _MOST_ITEMS:
            return f"{len(value)} values, see the component file"
        return ", ".join(component_value_text(name, item) for item in value) or "none known"
    if isinstance(value, Mapping):
        items = value.items()
        return " ".join(f"{key_as_words(key)} {component_value_text(key, v)}" for key, v in items)
    return str(value)
