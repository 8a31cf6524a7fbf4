"""Read the facts that the report needs from records: times, command lines, checks, versions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from chaosity.errors import MALFORMED
from chaosity.records.atomic_writes_and_record_files import load_record
from chaosity.records.point_types import Load
from chaosity.records.record_types_and_verdict import VALID, Check, LoadClock, Record
from chaosity.units import format_count


@dataclass(frozen=True)
class RecordSummary:
    """One measurement of one replicate of a point."""

    # experiment, point: names as in the tidy table.
    experiment: str
    point: str
    replicate: int  # number of the replicate
    status: str  # valid or failed
    # began_at, finished_at: times in UTC, ISO 8601.
    began_at: str
    finished_at: str
    # Name of a load -> the command line of this load.
    commands: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()  # the checks of the verdict
    programs: Mapping[str, str] = field(default_factory=dict)  # name of each program -> its version
    # (note, target) -> message of the tool, or None if the note's check passed.
    tool_notes: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    # The clock of each load, or why it is unknown; older records have no clock.
    clocks: tuple[LoadClock, ...] = ()

    @property
    def measurement_seconds(self) -> float:
        """Return the duration of the measurement, including placement and verification."""
        began, finished = map(datetime.fromisoformat, (self.began_at, self.finished_at))
        return (finished - began).total_seconds()


def read_record_summaries(paths: Iterable[Path]) -> list[RecordSummary]:
    """Return the summaries of records, without incomplete files, which the tidy table reports."""
    summaries = []
    for path in sorted(paths):
        with suppress(*MALFORMED):
            summaries.append(_summarise_record(load_record(path)))
    return summaries


def _summarise_record(record: Record) -> RecordSummary:
    point, verdict = record["point"], record["verdict"]
    started = {load["name"]: load for load in record["loads"]}
    loads: dict[str, Load] = {load["name"]: load for load in point["loads"]} | started
    return RecordSummary(
        experiment=point["experiment"],
        point=point["point"],
        replicate=record["replicate"],
        status=verdict["status"],
        began_at=record["began_at"],
        finished_at=record["finished_at"],
        commands={name: shlex.join(load["command"]) for name, load in loads.items()},
        checks=tuple(verdict["checks"]),
        programs={
            load["program"]["name"]: load["program"]["version"] or "version unknown"
            for load in started.values()
            if "program" in load
        },
        clocks=tuple(load["clock"] for load in record["loads"] if "clock" in load),
        tool_notes=dict(_tool_notes(record["loads"], verdict["checks"])),
    )


def _tool_notes(
    loads: Iterable[Load], checks: Iterable[Check]
) -> Iterator[tuple[tuple[str, str], str | None]]:
    """Yield ((note, target), message) for each note of each load; the message can be None."""
    by_name = {check["name"]: check for check in checks}
    for load in loads:
        for note in load.get("notes", ()):
            if check := by_name.get(f"{load['name']}: {note['name']}"):
                message = None if check["passed"] else check["detail"]
                yield (note["name"], load["target"]["name"]), message


def tool_note_sentences(summaries: Sequence[RecordSummary]) -> Iterator[str]:
    """Yield a sentence for each tool message in valid records: note, target and how many times."""
    messages = Counter(
        item
        for summary in summaries
        if summary.status == VALID
        for item in summary.tool_notes.items()
    )
    for (key, message), number in messages.items():
        if message is not None:
            total = sum(times for (other, _), times in messages.items() if other == key)
            runs = format_count(total, "run")
            yield f"{', '.join(key)}: not met in {number} of {runs}: {message}"
