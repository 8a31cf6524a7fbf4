"""Earlier values of the points that were measured again since a component changed.

An attempt belongs to the state in which the components that its point touches were when it ended;
components.component_files says since when each was what it is. Snakemake decides by the same
comparison of times what to measure again. Attempts of one state in a row make an era of the point.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity import records
from chaosity.components import ComponentState, read_component_histories
from chaosity.store.tidy_table import COLUMNS, Row, outcome_of, point_files, rows_of_outcome

# Those of the tidy table, and: which era of its point a row belongs to, counted from the oldest
# that is in the table; since when each component of the point was what it was then, as a JSON
# object; a fingerprint of what was asked, without what belongs to a certain drive.
HISTORY_COLUMNS = {**COLUMNS, "era": "Int64", "components": "string", "asked": "string"}
# Reading every attempt of years would take longer than measuring; the newest changes are told.
MOST_ERAS = 4
_ATTEMPT = re.compile(r"rep(\d+)\.(\d{8}T\d{6}\.\d{3}Z)\.valid\.json")
Histories = Mapping[str, Sequence[ComponentState]]


@dataclass(frozen=True)
class _Attempt:
    """A valid attempt, known by its file's name alone; `since` is as in the column components."""

    replicate: int
    stamp: str
    path: Path
    since: Mapping[str, str]
    state: str


def history(points: Path, results: Path, components: Path) -> pd.DataFrame:
    """The last valid attempt of each replicate in each era of each point with several eras.

    Args:
        points: the plan, ``<experiment>/<point>.json``.
        results: the records, with all attempts below ``<experiment>/<point>/attempts``.
        components: the component files and their history.
    """
    known = read_component_histories(components)
    rows: list[Row] = []
    if any(len(states) > 1 for states in known.values()):
        for path in point_files(points):
            point = json.loads(path.read_text(encoding="utf-8"))
            folder = results / point["experiment"] / point["point"] / "attempts"
            rows += _rows_of_point(point, folder, known)
    return pd.DataFrame(rows, columns=list(HISTORY_COLUMNS)).astype(HISTORY_COLUMNS)


def _rows_of_point(point: Mapping[str, Any], folder: Path, known: Histories) -> Iterator[Row]:
    """Rows of a point; none when its components were always the same, as far as is known."""
    own = {name: known[name] for name in point["components"] if name in known}
    if all(len(states) < 2 for states in own.values()):
        return
    eras: list[list[_Attempt]] = []
    for attempt in _attempts(folder, own):
        if not eras or eras[-1][-1].state != attempt.state:
            eras.append([])
        eras[-1].append(attempt)
    if len(eras) < 2:
        return
    for number, era in enumerate(eras[-MOST_ERAS:], start=1):
        last = {attempt.replicate: attempt for attempt in era}
        for attempt in last.values():
            yield from _rows_of_attempt(attempt, number)


def _attempts(folder: Path, own: Histories) -> list[_Attempt]:
    """All valid attempts, the oldest first."""
    found = []
    for path in folder.glob("rep*.valid.json"):
        if match := _ATTEMPT.fullmatch(path.name):
            states = {name: _state_at(match[2], each) for name, each in own.items()}
            since = {name: state.since for name, state in states.items()}
            contents = {name: state.content for name, state in states.items()}
            text = json.dumps(contents, sort_keys=True)
            found.append(_Attempt(int(match[1]), match[2], path, since, text))
    return sorted(found, key=lambda attempt: (attempt.stamp, attempt.replicate))


def _state_at(stamp: str, states: Sequence[ComponentState]) -> ComponentState:
    """What a component was at a time; before its history begins, what it was first."""
    before = [one for one in states if one.since.replace("-", "").replace(":", "") <= stamp]
    return before[-1] if before else states[0]


def _rows_of_attempt(attempt: _Attempt, era: int) -> Iterator[Row]:
    """Rows of one attempt; none of a file that is broken or has no values."""
    try:
        record = records.load_record(attempt.path)
    except ValueError:
        return
    outcome = outcome_of(record)
    if outcome.status != records.VALID:
        return
    more = {
        "era": era,
        "components": json.dumps(attempt.since, sort_keys=True),
        "asked": request_fingerprint(record["point"]),
    }
    for row in rows_of_outcome(record["point"], attempt.replicate, outcome):
        yield {**row, **more}


def request_fingerprint(point: Mapping[str, Any]) -> str:
    """A fingerprint of what a point asked for, which a replaced drive does not change.

    The point's definition has the drives' serials in it, so it cannot tell whether two values may
    be compared.
    """
    parts = ("benchmark", "kernel", "command", "environment", "files")
    body = [
        [
            {part: load.get(part) for part in parts},
            {key: load["initiator"].get(key) for key in ("name", "cpus", "threads")},
            [
                load["target"]["name"],
                *(drive.get("component") for drive in load["target"]["drives"]),
            ],
        ]
        for load in point["loads"]
    ]
    text = json.dumps([body, point.get("stopping")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
