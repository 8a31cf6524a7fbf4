"""Find earlier values of the points that were measured again because a component changed.

An attempt counts for the state that the components of its point had at its end; see
`components.component_history` for the start of each state. Snakemake compares the same times to
decide what to measure again. Successive attempts in one state are a period of the point.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pandas as pd

from chaosity.components.component_history import ComponentState, read_component_histories, state_at
from chaosity.errors import MALFORMED
from chaosity.records.record_files import file_time, load_record, time_in_file_name
from chaosity.records.record_format import VALID, Point
from chaosity.store.tidy_table_from_records import (
    KeptReadings,
    kept_readings,
    read_points,
    status_and_values_of_record,
    tidy_rows_of_outcome,
)
from chaosity.store.tidy_table_parquet import COLUMNS, Row, rows_to_table

# The columns of the tidy table, and: `era`, the period of the row's point, counted from the oldest
# in the table; `components`, the start of each component's state in this period, as a JSON object;
# `asked`, a fingerprint of the request, without the identity of drives.
HISTORY_COLUMNS = {**COLUMNS, "era": "Int64", "components": "string", "asked": "string"}
# Reading the attempts of years takes longer than measuring, so only the newest periods are read.
_MOST_PERIODS = 4
_ATTEMPT = re.compile(r"rep(\d+)\.(\d{8}T\d{6}\.\d{3}Z)\.valid\.json")
_Histories = Mapping[str, Sequence[ComponentState]]


@dataclass(frozen=True)
class _Attempt:
    """A valid attempt, known only by its file name, with the states of its components."""

    replicate: int
    stamp: str  # end of the attempt, as in the file name
    path: Path
    states: Mapping[str, ComponentState]


def split_measurements_at_component_changes(
    points: Path, results: Path, components: Path
) -> pd.DataFrame:
    """Return the measurements of points whose components changed, with a period for each state.

    In each period, the last valid attempt of each replicate counts. Only attempts that are new or
    changed since the last call are read, see `kept_readings`. The folders are those of the plan's
    points, of the records with their attempts, and of the component files with their history.
    """
    histories = read_component_histories(components)
    rows: list[Row] = []
    if any(len(states) > 1 for states in histories.values()):
        with kept_readings(results, "history") as kept:
            for point in read_points(points):
                folder = results / point["experiment"] / point["point"] / "attempts"
                rows += _point_rows(point, folder, histories, kept)
    return rows_to_table(rows, HISTORY_COLUMNS)


def _point_rows(
    point: Point, folder: Path, histories: _Histories, kept: KeptReadings
) -> Iterator[Row]:
    """Yield the rows of a point; none if the history shows no change of its components."""
    own = {name: histories[name] for name in point["components"] if name in histories}
    if all(len(states) < 2 for states in own.values()):
        return
    attempts = []
    for path in folder.glob("rep*.valid.json"):
        if match := _ATTEMPT.fullmatch(path.name):
            # A record ends before its file is written. If the file's name says that the record
            # ended later, the host's clock was ahead.
            stamp = min(match[2], time_in_file_name(file_time(path)))
            states = {name: state_at(stamp, known) for name, known in own.items()}
            attempts.append(_Attempt(int(match[1]), stamp, path, states))
    attempts.sort(key=lambda attempt: (attempt.stamp, attempt.replicate))
    periods = [
        list(period)
        for _, period in groupby(attempts, lambda a: [s.content for s in a.states.values()])
    ]
    for number, period in enumerate(periods[-_MOST_PERIODS:] if len(periods) > 1 else [], start=1):
        for attempt in {attempt.replicate: attempt for attempt in period}.values():
            yield from _attempt_rows(attempt, number, kept)


def _attempt_rows(attempt: _Attempt, period: int, kept: KeptReadings) -> Iterator[Row]:
    """Yield the rows of one attempt; none for a broken file or a record without values."""

    def read() -> list[Row]:
        record = load_record(attempt.path)
        outcome = status_and_values_of_record(record)
        if outcome.status != VALID:
            return []
        asked = _request_fingerprint(record["point"])
        rows = tidy_rows_of_outcome(record["point"], attempt.replicate, outcome)
        return [{**row, "asked": asked} for row in rows]

    try:
        found = kept.kept_or_new_reading(attempt.path, "", read)
    except MALFORMED:
        return
    since = {name: state.since for name, state in attempt.states.items()}
    columns = {"era": period, "components": json.dumps(since, sort_keys=True)}
    for row in found:
        yield {**row, **columns}


def _request_fingerprint(point: Point) -> str:
    """Return a fingerprint of a point's request that stays the same when a drive is replaced.

    Values with the same fingerprint are comparable. The point's definition cannot show what is
    comparable, because it contains the serial numbers of the drives.
    """
    parts = ("benchmark", "kernel", "command", "environment", "files")
    body = [
        [
            {part: load.get(part) for part in parts},
            {key: load["initiator"].get(key) for key in ("name", "cpus", "threads")},
            [target["name"], *(drive.get("component") for drive in target["drives"])],
        ]
        for load in point["loads"]
        for target in [load["target"]]
    ]
    text = json.dumps([body, point.get("stopping")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
