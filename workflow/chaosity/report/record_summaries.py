"""What the report needs of the records: times, command lines, checks and versions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from chaosity import records
from chaosity.units import format_count


@dataclass(frozen=True)
class Run:
    """One attempt to measure one replicate of a point.

    Attributes:
        experiment, point: as in the tidy table.
        replicate, order: number of the replicate, and its place in the random order.
        status: valid or failed.
        reason: why it failed, else None.
        began_at, finished_at: UTC, ISO 8601.
        commands: command line of each load by the load's name.
        checks: every line of the verdict.
        programs: version of each program by its name.
        noted: what a tool noted of each load, as note and target -> its words; None for none.
    """

    experiment: str
    point: str
    replicate: int
    order: int
    status: str
    reason: str | None
    began_at: str
    finished_at: str
    commands: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[Mapping[str, Any], ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
    noted: Mapping[tuple[str, str], str | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took, placement and verification included."""
        began, finished = (datetime.fromisoformat(t) for t in (self.began_at, self.finished_at))
        return (finished - began).total_seconds()


def summarise_records(paths: Iterable[Path]) -> list[Run]:
    """Read records; one that is no whole record is left out, the tidy table tells of it."""
    runs = []
    for path in sorted(paths):
        try:
            runs.append(summarise_record(records.load_record(path)))
        except (ValueError, KeyError):
            continue
    return runs


def summarise_record(record: Mapping[str, Any]) -> Run:
    """The summary of one record."""
    point, verdict = record["point"], record["verdict"]
    planned = {load["name"]: load for load in point["loads"]}
    began = {load["name"]: load for load in record["loads"]}
    loads = {**planned, **began}.values()
    return Run(
        experiment=point["experiment"],
        point=point["point"],
        replicate=record["replicate"],
        order=record["order"],
        status=verdict["status"],
        reason=verdict["reason"],
        began_at=record["began_at"],
        finished_at=record["finished_at"],
        commands={load["name"]: shlex.join(load["command"]) for load in loads},
        checks=tuple(verdict["checks"]),
        programs={
            load["program"]["name"]: load["program"]["version"] or "version unknown"
            for load in loads
            if "program" in load
        },
        noted=dict(_noted(record["loads"], verdict["checks"])),
    )


def _noted(
    loads: Iterable[Mapping[str, Any]], checks: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[tuple[str, str], str | None]]:
    by_name = {check["name"]: check for check in checks}
    for load in loads:
        for note in load.get("notes", ()):
            if check := by_name.get(f"{load['name']}: {note['name']}"):
                said = None if check["passed"] else check["detail"]
                yield (note["name"], load["target"]["name"]), said


def tool_notes(runs: Iterable[Run]) -> Iterator[str]:
    """A line for each thing that tools noted of valid runs: against which target, how often."""
    said = Counter(one for run in runs if run.status == records.VALID for one in run.noted.items())
    for ((note, target), words), number in said.items():
        if words is not None:
            of_all = sum(other for (key, _), other in said.items() if key == (note, target))
            yield f"{note}, {target}: not met in {number} of {format_count(of_all, 'run')}: {words}"
