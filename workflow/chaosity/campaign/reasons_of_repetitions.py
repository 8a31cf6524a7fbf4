"""Say why records that exist are measured again, before the first measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from chaosity.errors import printable_short_line
from chaosity.records.point_types import Point
from chaosity.records.record_files import load_record
from chaosity.records.record_types import VALID
from chaosity.units import format_count, join_with_and

# What a point's definition depends on, see `design.point_expansion`.
_DEFINED_BY = ("loads", "stopping")


class InputsOfMeasurement(Protocol):
    """The input files of a job that measures, by their names in rule `measure`."""

    changed_components: Iterable[str]


class Repetition(Protocol):
    """A job of Snakemake: its changed components as inputs, and its record as output."""

    input: InputsOfMeasurement
    output: list[str]


def describe_repetitions(jobs: Iterable[tuple[Repetition, Point]]) -> str | None:
    """Return how many records are measured again and why, as a sentence; None without any.

    Args:
        jobs: measurements that are to run, each with its planned point.
    """
    reasons = Counter(_reason(job, point) for job, point in jobs if Path(job.output[0]).exists())
    if not reasons:
        return None
    listed = "; ".join(f"{reason} ({number})" for reason, number in reasons.most_common())
    verb = "is" if reasons.total() == 1 else "are"
    return f"{format_count(reasons.total(), 'record')} {verb} measured again: {listed}"


def _reason(job: Repetition, point: Point) -> str:
    """Return why a record is measured again, as a clause."""
    if changed := [Path(file).stem for file in job.input.changed_components]:
        return f"{join_with_and(changed)} changed"
    try:
        record = load_record(Path(job.output[0]))
    except ValueError:
        return "damaged"
    if record["point"]["definition"] != point["definition"]:
        before, now = map(dict, (record["point"], point))
        found = (_first_difference(before.get(key), now[key], key) for key in _DEFINED_BY)
        return f"another definition: {next(filter(None, found), 'a new version')}"
    return "failed before" if record["verdict"]["status"] != VALID else "asked for"


def _first_difference(before: Any, now: Any, place: str) -> str | None:
    """Return place and values of the first difference of two JSON documents; None without any."""
    if before == now:
        return None
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            if found := _first_difference(before.get(key), now.get(key), f"{place}.{key}"):
                return found
    return printable_short_line(f"{place} was {before!r}, is {now!r}")
