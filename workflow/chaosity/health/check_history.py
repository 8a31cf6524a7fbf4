"""Keep the values of a host's checks, and find when the host became slower and what changed.

The series of a point contains its values in order of time. A series is divided at the nights at
which its level changed. If changes of several points can have happened in the same night, they are
reported as one change, with the component that explains all of them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from scipy.ndimage import median_filter

from chaosity.components import (
    SYSTEM_COMPONENT,
    ComponentLog,
    processor_model_and_group,
    read_host_json,
)
from chaosity.errors import UserError
from chaosity.health.change_points import LEAST_NIGHTS, Segment, date_interval, find_segments
from chaosity.health.check_points import (
    LEAST_REPORTED_LOSS_OF_CHECK,
    CheckedValue,
    CheckPoint,
    RecentValues,
    check_point_of_single_part,
    suspected_parts,
)
from chaosity.hosts.runner_command import SIMULATED
from chaosity.records.record_files import format_utc, time_in_file_name, write_atomically
from chaosity.records.record_format import PointKey, Record
from chaosity.statistics.estimates import lost_share
from chaosity.store.measurements import less_is_better
from chaosity.store.tidy_table_from_records import read_points
from chaosity.text_templates import text_of_macro

SERIES_FILE = "checks.csv"
RECORDS_FOLDER = "checks"
SERIES_COLUMNS = [
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
# Largest size in bytes of the file with a series of checks. With 150 bytes a line and 60 lines a
# night, this size is reached in about 80 years.
_MOST_SERIES_FILE_BYTES = 2**28
_REMEDY_FOR_DAMAGED_SERIES = "move the file away, and the next check begins a new file"
_SECONDS_A_DAY = 86400.0
# Number of days whose checks are compared with equal hosts. Earlier values can be from before a
# repair of a host.
_DAYS_FOR_EQUAL_HOSTS = 14
# Number of bytes that surely contain the lines of 14 nights. A check measures about 60 points.
_BYTES_OF_NEWEST_NIGHTS = 2**18


def read_series(folder: Path, newest_bytes: int = _MOST_SERIES_FILE_BYTES) -> list[dict[str, str]]:
    """Return the rows of the checks in ``results/HOST/CONFIGURATION``, the oldest first.

    At most the last `newest_bytes` bytes of the file are read.

    Raises:
        UserError: the file is not a series of checks.
    """
    path = folder / SERIES_FILE
    if not path.exists():
        return []
    if path.stat().st_size > _MOST_SERIES_FILE_BYTES:
        raise UserError("the series of checks is too large", str(path), _REMEDY_FOR_DAMAGED_SERIES)
    try:
        with path.open("rb") as stream:
            text = stream.readline()
            if stream.seek(0, os.SEEK_END) - len(text) > newest_bytes:
                stream.seek(-newest_bytes, os.SEEK_END)
                stream.readline()  # skip the rest of a row whose first part was not read
            else:
                stream.seek(len(text))
            text += stream.read()
        reader = csv.DictReader(io.StringIO(text.decode()), strict=True)
        rows = list(reader)
        if reader.fieldnames != SERIES_COLUMNS:
            raise ValueError("it has other columns")
        for row in rows:
            if list(row) != SERIES_COLUMNS or not 0.0 < float(row["value"]) < float("inf"):
                raise ValueError("a row has other columns, or no value")
    except (ValueError, TypeError, csv.Error) as error:
        what = f"the file is not a series of checks: {error}"
        raise UserError(what, str(path), _REMEDY_FOR_DAMAGED_SERIES) from None
    return rows


def _days_of_times(times: Iterable[str]) -> list[float]:
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


def _is_simulated_host(folder: Path) -> bool:
    """Return whether the host of ``results/HOST/CONFIGURATION`` is simulated; False if unknown."""
    transport = read_host_json(folder).get("transport")
    return isinstance(transport, dict) and transport.get("kind") == SIMULATED


def earlier_normal_values(
    rows: Sequence[Mapping[str, str]], mapped_at: Mapping[PointKey, str]
) -> dict[PointKey, list[float]]:
    """Return experiment and point -> values of earlier checks that were neither slow nor disturbed.

    `mapped_at` contains the time of each point's last measurement in the map. Checks before this
    time are left out, since they were compared with an earlier map, for example from before a
    repair.
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
    """Return experiment and point -> values of the checks in the two weeks before a moment.

    Only values count that were neither slow nor disturbed, as in `earlier_normal_values`.
    """
    first = format_utc(datetime.fromisoformat(moment) - timedelta(days=_DAYS_FOR_EQUAL_HOSTS))
    return earlier_normal_values([row for row in rows if row["time"] >= first], mapped_at)


def recent_values_of_equal_hosts(folder: Path, moment: str) -> list[RecentValues]:
    """Return, for each host equal to the host of `folder`, the values of two weeks.

    Equal hosts have the same processor model, are in the same configuration, and have results below
    the same folder.
    """
    folder = folder.resolve()
    built_like, is_simulated = processor_model_and_group(folder), _is_simulated_host(folder)
    found = []
    for path in sorted(folder.parent.parent.glob(f"*/{folder.name}/{SERIES_FILE}")):
        other = path.parent
        is_equal = built_like[0] is not None and processor_model_and_group(other) == built_like
        if other != folder and is_equal and _is_simulated_host(other) == is_simulated:
            # A series of another host that cannot be read must not stop this check. The page of all
            # hosts reports the unreadable series.
            with suppress(UserError):
                found.append(recent_values(read_series(other, _BYTES_OF_NEWEST_NIGHTS), moment, {}))
    return [values for values in found if values]


def time_of_last_check_by_point(rows: Sequence[Mapping[str, str]]) -> dict[PointKey, str]:
    """Return experiment and point -> time of the last check that measured this point."""
    return {(row["experiment"], row["point"]): row["time"] for row in rows}


def append_check(
    folder: Path, moment: str, values: Sequence[CheckedValue], records: Sequence[Record]
) -> None:
    """Append the values of a check to the series of a folder, and write all records of the check.

    The records are written first, and all lines of the series in a single write. So a killed check
    leaves either all or none of its lines in the series. `moment` is the time in UTC at which the
    check began.
    """
    path = folder / RECORDS_FOLDER / f"{time_in_file_name(moment)}.json.gz"
    write_atomically(path, gzip.compress(json.dumps(records).encode(), mtime=0))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not (folder / SERIES_FILE).exists():
        writer.writerow(SERIES_COLUMNS)
    for value in values:
        tonight = value.tonight
        # Values that other programs disturbed are marked, since they would widen the scatter and
        # hide a loss.
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


# Fewest checks in a series whose changes are searched. In a shorter series, a few unusual nights
# would be most of the values.
_FEWEST_CHECKS_OF_SERIES = 7
# Smallest reported loss of the last running median, compared with the best running median.
_LEAST_LIKELY_LOSS = 0.9 * LEAST_REPORTED_LOSS_OF_CHECK
_HISTORY_TABLE_COLUMNS = (
    *("time", "component", "experiment", "point", "metric", "value", "fitted", "segment"),
    *("replaced", "change", "change_percent", "earliest", "latest", "explained_by"),
    "components_changed",
)
_COLUMNS_WITHOUT_CHANGE = (None, math.nan, None, None, None, None)


@dataclass(frozen=True)
class ValueSeries:
    """The values of one metric of a point over time, while the same component was in place."""

    check: CheckPoint  # the point, the metric and the components
    times: tuple[str, ...]  # UTC times at which the checks began, ascending
    values: tuple[float, ...]  # value of each check, in the metric's unit
    segments: tuple[Segment, ...]  # the parts of the series between changes, see `find_segments`
    # Text on the replacement of a component with which the series begins; None without a
    # replacement.
    replaced: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        """Return experiment, point and metric."""
        return (*self.check.key, self.check.metric)

    @property
    def ends(self) -> tuple[float, float]:
        """Return the fitted values at the beginning and at the end of the series."""
        return math.exp(self.segments[0].first), math.exp(self.segments[-1].last)


@dataclass(frozen=True)
class _ChangeOfSeries:
    """A change: a step between the checks `earliest` and `last`, or a drift between both."""

    series: ValueSeries
    # before, after: fitted values before and after the step, or at both ends of the drift.
    before: float
    after: float
    is_drift: bool
    segment: Segment  # the segment after the step, or the segment that drifts
    earliest: str
    last: str

    @property
    def kind(self) -> tuple[bool, bool]:
        """Return whether the change is a drift, and whether the values are worse after it."""
        return self.is_drift, (self.after < self.before) != less_is_better(self.series.check.metric)

    @property
    def judged_value(self) -> CheckedValue:
        """Return the change as a judged value: the worse side, compared with the better side."""
        worse, better = (self.after, self.before) if self.kind[1] else (self.before, self.after)
        return CheckedValue(self.series.check, (worse,), better, 0.0)


@dataclass(frozen=True)
class Change:
    """A change of one or several values that a component explains."""

    # Names of components. If several components are named, each of them alone can explain the
    # values. No component is named if most values of the host changed.
    parts: tuple[str, ...]
    # Each changed series with its value before and its value after the change; the largest change
    # first.
    values: tuple[tuple[ValueSeries, float, float], ...]
    is_worse: bool  # says whether the values are worse after the change
    # Says whether the values drift from `since` to `last`, instead of changing in one step.
    is_drift: bool
    since: str  # the first check after the change
    # first, last: 95 % interval of the date, as the times of two checks.
    first: str
    last: str
    components: tuple[str, ...]  # texts on changes of components around the date of the change


@dataclass(frozen=True)
class CheckHistory:
    """What a host's checks show: values over time, changes of values, and changes of components."""

    series: tuple[ValueSeries, ...]  # the series of all points
    changes: tuple[Change, ...]  # changes of values, the newest first
    # Time of the first check after each change of components, and a text on the change; the oldest
    # first.
    component_changes: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]  # points that were checked, but are no longer in the plan
    is_simulated: bool  # says whether the host is simulated, so that it does not exist

    @property
    def times_of_checks(self) -> list[str]:
        """Return the times at which the checks began, ascending."""
        return sorted({time for each in self.series for time in each.times})

    @property
    def changed_series(self) -> list[ValueSeries]:
        """Return the series with changes, in the order of `changes`."""
        found = {id(own): own for change in self.changes for own, _, _ in change.values}
        return list(found.values())

    def sentences(self) -> list[str]:
        """Return sentences on each change, each replaced component, and the number of checks."""
        times = self.times_of_checks
        # A date is shown as a day, or as a day with the time if a day has several checks.
        letters = 10 if len({time[:10] for time in times}) == len(times) else 16
        texts = [
            text_of_macro(
                "history",
                "change",
                change=change,
                letters=letters,
                metric=own.check.metric,
                **{"before": before, "after": after},
            )
            for change in self.changes
            for own, before, after in change.values[:1]
        ]
        if not texts:
            # A change divides a series into two parts, and each part needs `LEAST_NIGHTS` checks or
            # more.
            longest = max((len(each.times) for each in self.series), default=0)
            values: dict[str, object] = {"longest": longest, "least": LEAST_NIGHTS}
            texts = [text_of_macro("history", "no_change", **values)]
        for words in dict.fromkeys(each.replaced for each in self.series if each.replaced):
            texts.append(f"{words}: its values begin anew.")
        if times:
            values = {"values": len(self.series), "checks": len(times)}
            values |= {"first": times[0], "last": times[-1], "letters": letters}
            texts.append(text_of_macro("history", "extent", **values))
        return texts

    def table(self) -> pd.DataFrame:
        """Return a row for each value: time, place, value, fitted value, segment and change.

        Only the first row after a change has values in the columns of the change. The columns of
        the change contain the change of the value in per cent, the 95 % interval of the date, the
        components that explain the change, and changes of components around the date. A drift is in
        the row in which it begins, and its interval ends at the end of the drift.
        """
        written: dict[tuple[int, str], list[object]] = {}
        for change in self.changes:
            for series, before, after in change.values:
                # The date of a change that several values share can lie between two checks of this
                # value.
                at = min(bisect_left(series.times, change.since), len(series.times) - 1)
                written[id(series), series.times[at]] = [
                    *("drift" if change.is_drift else "step", 100.0 * (after / before - 1.0)),
                    *(change.first, change.last, "->".join(change.parts) or "most parts"),
                    "; ".join(change.components),
                ]
        rows = []
        for series in self.series:
            place = ("->".join(series.check.parts), *series.key)
            for number, segment in enumerate(series.segments, start=1):
                own = range(segment.begin, segment.end)
                fitted = np.exp(np.linspace(segment.first, segment.last, len(own)))
                for at, level in zip(own, fitted, strict=True):
                    time, value = series.times[at], series.values[at]
                    about = (value, float(f"{level:.6g}"), number, series.replaced)
                    change_here = written.get((id(series), time), _COLUMNS_WITHOUT_CHANGE)
                    rows.append([time, *place, *about, *change_here])
        return pd.DataFrame(rows, columns=_HISTORY_TABLE_COLUMNS)


@dataclass(frozen=True)
class LastingLoss:
    """A loss of a value that began between two checks and lasts until the end of the series."""

    point: str  # the point whose values became worse
    since: str  # UTC time of the first check after the step, or of the first check in the drift
    loss: float  # the loss as a share: 0.1 is 10 % less bandwidth, or 10 % more latency


def lasting_losses(rows: Sequence[Mapping[str, str]]) -> list[LastingLoss]:
    """Return the losses that last until the end of a series of checks, the largest first.

    The page of all hosts shows these losses. `rows` is the result of `read_series`. The function
    does not need the points of the plan.

    Raises:
        UserError: a time does not have the form of ISO 8601.
    """
    found = []
    for (_, point, metric), values in _values_of_points(rows).items():
        sign = 1.0 if less_is_better(metric) else -1.0
        # With this sign, a larger number is worse for each metric.
        logs = [sign * math.log(value) for value in values.values()]
        if len(logs) < _FEWEST_CHECKS_OF_SERIES:
            continue
        # Most series have no loss at their end. For series without a loss, this test saves the
        # search for changes, which takes 40 ms for a year of checks.
        if (
            median(logs[-_FEWEST_CHECKS_OF_SERIES:]) - median_filter(logs, 15, mode="nearest").min()
            < _LEAST_LIKELY_LOSS
        ):
            continue
        segments = find_segments(logs, _days_of_times(values))
        # Fitted values before and after each change, and position of the first check after the
        # change.
        changes = [(one.last, two.first, two.begin) for one, two in pairwise(segments)]
        changes += [(each.first, each.last, each.begin) for each in segments if each.is_drift]
        end = segments[-1].last
        lasting = [(min(after, end) - before, begin) for before, after, begin in changes]
        away, begin = max(lasting, default=(0.0, 0))
        loss = lost_share(away, metric)
        if loss > LEAST_REPORTED_LOSS_OF_CHECK:
            found.append(LastingLoss(point, [*values][begin], loss))
    return sorted(found, key=lambda each: -each.loss)


def _values_of_points(
    rows: Sequence[Mapping[str, str]],
) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return (experiment, point, metric) -> time of the check -> value, in order of time."""
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: row["time"]):
        key = row["experiment"], row["point"], row["metric"]
        values.setdefault(key, {})[row["time"]] = float(row["value"])
    return values


def read_check_history(folder: Path) -> CheckHistory:
    """Return the history of the checks of ``results/HOST/CONFIGURATION``.

    Raises:
        UserError: there are no checks, or a file is damaged.
    """
    rows = read_series(folder)
    if not rows:
        raise UserError(
            "there are no checks",
            str(folder),
            "run chaosity check every night; see docs/how-to/every-night.md",
        )
    checks = {
        (*check.key, check.metric): check
        for point in read_points(folder / "points")
        if (check := check_point_of_single_part(point))
    }
    values, log = _values_of_points(rows), ComponentLog(folder)
    series = tuple(
        each
        for key, own in values.items()
        if key in checks
        for each in _series_of_parts(checks[key], own, log)
    )
    unknown = tuple("/".join(key[:2]) for key in values if key not in checks)
    changes = sorted(
        _changes_of_all_series(series, log), key=lambda change: change.since, reverse=True
    )
    changed = []
    for before, after in pairwise(sorted({time for each in series for time in each.times})):
        if found := log.changes_between(before, after):
            changed.append((after, "; ".join(map(_component_words, found))))
    return CheckHistory(series, tuple(changes), tuple(changed), unknown, _is_simulated_host(folder))


def _component_words(difference: tuple[str, str]) -> str:
    """Return a text on a change, with the name of the component unless the system changed."""
    name, text = difference
    return text if name == SYSTEM_COMPONENT else f"{name} {text}"


def _series_of_parts(
    check: CheckPoint, values: dict[str, float], log: ComponentLog
) -> Iterator[ValueSeries]:
    """Yield the series of a point: one series for each component that was in use in turn."""
    replaced = sorted(
        (since, f"{part} was replaced, {words}")
        for part in check.parts
        for since, words in log.replacements(part)
    )

    def newest_replacement(time: str) -> str | None:
        return next((words for since, words in reversed(replaced) if since <= time), None)

    for words, times in groupby(values, newest_replacement):
        own = tuple(times)
        numbers = tuple(values[time] for time in own)
        segments = find_segments([math.log(value) for value in numbers], _days_of_times(own))
        yield ValueSeries(check, own, numbers, tuple(segments), words)


def _large_changes_of_series(series: Sequence[ValueSeries]) -> Iterator[_ChangeOfSeries]:
    """Yield the changes of several series that are large enough to be reported."""
    for own in series:
        found = []
        for before, after in pairwise(own.segments):
            first, last = after.date_interval
            levels = math.exp(before.last), math.exp(after.first)
            ends = own.times[first - 1], own.times[last]
            found.append(_ChangeOfSeries(own, *levels, False, after, *ends))
        for segment in own.segments:
            levels = math.exp(segment.first), math.exp(segment.last)
            ends = own.times[segment.begin], own.times[segment.end - 1]
            found.append(_ChangeOfSeries(own, *levels, True, segment, *ends))
        yield from (event for event in found if event.judged_value.tonight.is_clear)


def _changes_of_all_series(series: Sequence[ValueSeries], log: ComponentLog) -> Iterator[Change]:
    """Yield the changes of all series; changes in one night by a common component are merged."""
    groups: list[list[_ChangeOfSeries]] = []
    for event in sorted(
        _large_changes_of_series(series), key=lambda each: (each.kind, each.earliest, each.last)
    ):
        group = groups[-1] if groups else []
        # Changes are merged only if all of them can have happened in the same night.
        same = group and group[0].kind == event.kind and event.earliest < min(e.last for e in group)
        if same and all(event.series is not each.series for each in group):
            group.append(event)
        else:
            groups.append([event])
    for group in groups:
        judged = [(event.judged_value, event) for event in group]
        unchanged = [
            CheckedValue(own.check, (1.0,), 1.0, 0.0)
            for own in series
            if all(own is not event.series for event in group)
            and own.times[0] < group[0].last <= own.times[-1]
        ]
        for suspect in suspected_parts([*(value for value, _ in judged), *unchanged]):
            events = [event for each in suspect.values for value, event in judged if value is each]
            yield _change_of_parts(suspect.parts, events, log)


def _change_of_parts(
    parts: tuple[str, ...], events: Sequence[_ChangeOfSeries], log: ComponentLog
) -> Change:
    """Return the change of several values by one component, with the date that they share."""
    times = sorted({time for event in events for time in event.series.times})
    is_drift, is_worse = events[0].kind
    if is_drift:
        first, last = (min(e.earliest for e in events), max(e.last for e in events))
        since, components = first, []
    else:
        excess = np.zeros(len(times))
        for event in events:
            at = np.searchsorted(event.series.times, times)
            excess += np.append(event.segment.excess, np.inf)[at]
        since = times[int(np.argmin(excess))]
        low, high = date_interval(excess)
        first, last = times[low], times[high]
        components = log.changes_between(times[low - 1], last)
    values = tuple((event.series, event.before, event.after) for event in events)
    words = tuple(map(_component_words, components))
    return Change(parts, values, is_worse, is_drift, since, first, last, words)
