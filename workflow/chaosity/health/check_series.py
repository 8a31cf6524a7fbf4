"""The series of a host's checks: a CSV file with every value, and the raw records of each check."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from chaosity.components.component_documents import processor_model_and_group, read_host_json
from chaosity.errors import UserError
from chaosity.health.choose_check_points import PointKey
from chaosity.health.judge_check_values import CheckedValue, RecentValues
from chaosity.hosts.runner_command import SIMULATED
from chaosity.records.record_files import format_utc, time_in_file_name, write_atomically
from chaosity.records.record_format import Record

SERIES_FILE = "checks.csv"
RECORDS_FOLDER = "checks"
COLUMNS = [
    "time",
    "experiment",
    "point",
    "metric",
    "value",
    "n",
    "expected",
    "loss",
    "limit",
    "clear",
]
# A line has about 150 bytes, so this is a century of nights.
_MOST_BYTES = 2**28
_SECONDS_A_DAY = 86400.0
# Older checks do not count for the comparison with equal hosts: a host can have been repaired.
_DAYS = 14
# More than the lines of 14 nights: a check measures about 60 points.
_NEWEST_BYTES = 2**18


def read_series(folder: Path, newest_bytes: int = _MOST_BYTES) -> list[dict[str, str]]:
    """Return the rows of the checks of ``results/HOST/CONFIGURATION``, oldest first.

    Of the newest rows, at most `newest_bytes` bytes are read.

    Raises:
        UserError: the file is not a series of checks.
    """
    path = folder / SERIES_FILE
    if not path.exists():
        return []
    if path.stat().st_size > _MOST_BYTES:
        raise UserError("the series is too large", str(path), "move it away")
    try:
        with path.open("rb") as stream:
            text = stream.readline()
            if stream.seek(0, os.SEEK_END) - len(text) > newest_bytes:
                stream.seek(-newest_bytes, os.SEEK_END)
                stream.readline()  # the rest of a row
            else:
                stream.seek(len(text))
            text += stream.read()
        reader = csv.DictReader(io.StringIO(text.decode()), strict=True)
        rows = list(reader)
        if reader.fieldnames != COLUMNS:
            raise ValueError("it has other columns")
        for row in rows:
            if list(row) != COLUMNS or not 0.0 < float(row["value"]) < float("inf"):
                raise ValueError("a row has other columns, or no value")
    except (ValueError, TypeError, csv.Error) as error:
        remedy = "move it away; the next check begins a new series"
        raise UserError(f"the file is not a series of checks: {error}", str(path), remedy) from None
    return rows


def days_of_times(times: Iterable[str]) -> list[float]:
    """Return the times of checks in days since 1970.

    Raises:
        UserError: a time does not have the form of ISO 8601.
    """
    try:
        return [datetime.fromisoformat(time).timestamp() / _SECONDS_A_DAY for time in times]
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"a time does not have the form 2026-03-14T02:00:00Z: {error}", SERIES_FILE
        ) from None


def is_simulated_host(folder: Path) -> bool:
    """Return whether the host of ``results/HOST/CONFIGURATION`` is simulated; False if unknown."""
    transport = read_host_json(folder).get("transport")
    return isinstance(transport, dict) and transport.get("kind") == SIMULATED


def earlier_values(
    rows: Sequence[Mapping[str, str]], mapped_at: Mapping[PointKey, str]
) -> dict[PointKey, list[float]]:
    """Return experiment and point -> values of earlier checks, without slow and disturbed values.

    `mapped_at` has the time of each point's last measurement in the map. Checks before this time
    belong to another map, for example from before a repair.
    """
    found: dict[PointKey, list[float]] = {}
    for row in rows:
        key = row["experiment"], row["point"]
        if row["clear"] == "no" and row["time"] > mapped_at.get(key, ""):
            found.setdefault(key, []).append(float(row["value"]))
    return found


def recent_values(
    rows: Sequence[Mapping[str, str]], moment: str, mapped_at: Mapping[PointKey, str]
) -> RecentValues:
    """Return the values of checks in the two weeks before a moment, by experiment and point.

    See `earlier_values` for the values that count.
    """
    first = format_utc(datetime.fromisoformat(moment) - timedelta(days=_DAYS))
    return earlier_values([row for row in rows if row["time"] >= first], mapped_at)


def recent_values_of_equal_hosts(folder: Path, moment: str) -> list[RecentValues]:
    """Return the values of the two weeks before a moment, for each host equal to that of `folder`.

    Equal hosts have the same processor model, are in the same configuration, and have results below
    the same folder.
    """
    folder = folder.resolve()
    built_like, is_simulated = processor_model_and_group(folder), is_simulated_host(folder)
    found = []
    for path in sorted(folder.parent.parent.glob(f"*/{folder.name}/{SERIES_FILE}")):
        other = path.parent
        is_equal = built_like[0] is not None and processor_model_and_group(other) == built_like
        if other != folder and is_equal and is_simulated_host(other) == is_simulated:
            # The page of all hosts reports a series that cannot be read. Such a series must not
            # stop this check.
            with suppress(UserError):
                found.append(recent_values(read_series(other, _NEWEST_BYTES), moment, {}))
    return [values for values in found if values]


def time_of_last_check_by_point(rows: Sequence[Mapping[str, str]]) -> dict[PointKey, str]:
    """Return experiment and point -> time of the last check that measured it."""
    return {(row["experiment"], row["point"]): row["time"] for row in rows}


def append_check(
    folder: Path, moment: str, values: Sequence[CheckedValue], records: Sequence[Record]
) -> None:
    """Append the values of a check to the series of a folder, and write all its records.

    The records come first, and the lines of the series in a single write, so that a check that is
    killed leaves no part of itself in the series. `moment` is when the check began, in UTC.
    """
    path = folder / RECORDS_FOLDER / f"{time_in_file_name(moment)}.json.gz"
    write_atomically(path, gzip.compress(json.dumps(records).encode(), mtime=0))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not (folder / SERIES_FILE).exists():
        writer.writerow(COLUMNS)
    for value in values:
        tonight = value.tonight
        # Values that were measured beside other programs would widen the scatter, and hide a loss.
        clear = "yes" if tonight.is_clear else "disturbed" if value.disturbed else "no"
        numbers = (f"{each:.6g}" for each in (value.expected, tonight.loss, tonight.limit))
        measured = (repr(value.value), len(value.values))
        writer.writerow([moment, *value.check.key, value.check.metric, *measured, *numbers, clear])
    handle = os.open(folder / SERIES_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, text.getvalue().encode())
        os.fsync(handle)
    finally:
        os.close(handle)
