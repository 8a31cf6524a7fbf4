"""Build the tidy table from records, and the table of measurements before changes of components.

A planned point without a record has rows with the status ``missing``. A point that was never
planned has no rows in the table. To read a record, check its digest and compute its values takes
ten times as long as all other steps. So the values of each record are kept in files below `.tidy`,
and only new and changed records are read again. If the files below `.tidy` are deleted, all records
are read again.

Points that were measured again after a component changed are in a second table, the history. An
attempt belongs to the state that the components of its point had at the end of the attempt. The
module `components` says when each state begins. Snakemake compares the starts of states with the
ends of attempts to decide what to measure again. A period of a point is a series of attempts in one
state of the components.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import duckdb
import pandas as pd

from chaosity.components import ComponentState, component_state_at, read_component_histories
from chaosity.cpusets import format_cpu_list
from chaosity.errors import (
    ERRORS_OF_MALFORMED_DOCUMENTS,
    UserError,
    describe_malformed_document,
    malformed_as_user_error,
)
from chaosity.place_names import node_name
from chaosity.records.record_files import (
    DIGESTS_FILE,
    attempts_folder,
    current_record_path,
    file_time,
    load_record,
    read_regular_file,
    time_in_file_name,
)
from chaosity.records.record_format import (
    FAILED,
    VALID,
    Load,
    LoadRecord,
    MetricRatio,
    Point,
    PointAndLoadNames,
    PointKey,
    Record,
    point_key,
)
from chaosity.runner.metric_values import (
    Reading,
    counted_seconds_of_each_metric,
    metric_values_or_reasons,
)
from chaosity.runner.tool_output import ExtractionError
from chaosity.store.measurements import less_is_better
from chaosity.store.tidy_table_parquet import (
    COLUMN_TYPES,
    Row,
    column_types_from_groups,
    read_parquet_table,
    rows_to_table,
    write_parquet_table,
)

# Folder below ``results/<host>/<configuration>`` with the kept values of records.
KEPT_READINGS_FOLDER = ".tidy"
_KEPT_READING_COLUMNS = column_types_from_groups(("string", "program path identity reading"))
# Time stamps of files have a resolution of up to 2 s (on FAT), so two changes within 2 s can have
# equal time stamps. So a time stamp that is younger than 2 s does not identify a file's content.
_TIME_STAMP_RESOLUTION_NS = 2_000_000_000


class KeptReadings:
    """The values read from the records in ``results/<host>/<configuration>``, now and earlier."""

    def __init__(self, folder: Path, earlier: dict[str, tuple[str, str]]) -> None:
        self.folder = folder
        # Path of a record in the folder -> its identity, and the values read from it as JSON.
        # `earlier` is from the last run; `kept` has the records that this run asked for.
        self.earlier, self.kept = earlier, dict[str, tuple[str, str]]()

    def kept_or_new_reading(self, path: Path, request: str, read: Callable[[], Any]) -> Any:
        """Return the kept values if record and `request` did not change, or else call `read`.

        `request` names everything except the record that the values depend on, such as the
        definition of the planned point. `read` returns a JSON document. If `read` raises an error,
        nothing is kept.
        """
        name, identity = str(path.relative_to(self.folder)), _identity_of_record(path, request)
        before = self.earlier.get(name)
        if before is not None and before[0] == identity:
            self.kept[name] = before
            return json.loads(before[1])
        found = read()
        if identity is not None:
            self.kept[name] = identity, json.dumps(found)
        return found


def _identity_of_record(path: Path, request: str) -> str | None:
    """Return a text that changes when `request`, a record's file or one of its digests changes.

    The text has size, time stamps and inode number of the record, of the folder `attempts`, and of
    the list of digests by which `load_record` verifies the record. The time of the last change of
    the inode (ctime) also shows an edit whose author restored the older time stamp. The result is
    None if a change is too young, see `_TIME_STAMP_RESOLUTION_NS`.
    """
    attempts = attempts_folder(path)
    youngest = time.time_ns() - _TIME_STAMP_RESOLUTION_NS
    facts: list[object] = [request]
    for file in (path, attempts, attempts / DIGESTS_FILE):
        try:
            found = file.stat()
        except FileNotFoundError:
            facts.append(None)
            continue
        if max(found.st_mtime_ns, found.st_ctime_ns) >= youngest:
            return None
        facts += (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    return json.dumps(facts)


@contextmanager
def kept_readings(folder: Path, name: str, *, writes: bool = True) -> Iterator[KeptReadings]:
    """Yield the values that the last run kept; at the end, keep the values that this run used.

    `folder` is ``results/<host>/<configuration>``; `name` is the name of the table that is made
    from the values. A dry run must not write, so it sets `writes` to False.
    """
    path = folder / KEPT_READINGS_FOLDER / f"{name}.parquet"
    earlier: dict[str, tuple[str, str]] = {}
    with suppress(UserError):  # no file, or a file that this program did not write
        table = read_parquet_table(path, _KEPT_READING_COLUMNS, exact=True)
        table = table[table["program"] == _program_digest()]
        own = table[["identity", "reading"]].itertuples(index=False, name=None)
        earlier = dict(zip(table["path"], own, strict=True))
    readings = KeptReadings(folder, earlier)
    yield readings
    if writes and readings.kept != readings.earlier:
        rows = [
            {"program": _program_digest(), "path": record, "identity": identity, "reading": reading}
            for record, (identity, reading) in readings.kept.items()
        ]
        # Without kept values the next run only takes longer, so an unwritable folder is no error.
        with suppress(OSError, duckdb.Error):
            write_parquet_table(
                rows_to_table(rows, _KEPT_READING_COLUMNS), path, _KEPT_READING_COLUMNS
            )


@cache
def _program_digest() -> str:
    """Return a digest of Python's version and of all sources, on which the kept values depend."""
    digest = hashlib.sha256(sys.version.encode())
    for source in sorted(Path(__file__).resolve().parents[1].rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


MISSING = "missing"
# If a node has a smaller share of a load's pages, these pages are stacks and data of libraries, see
# MEMORY_SHARE of the runner's checks.
_MOST_STRAY_PAGES_SHARE = 0.02
_REASON_FOR_METRIC_NOT_IN_RECORD = "this record is older than the metric"
# Name of a check that a record did not pass -> remark in the tidy table.
_REMARK_OF_FAILED_CHECK = {"undisturbed": "disturbed", "precision": "imprecise"}
# Columns that are copied from the point, from the load, and from the outcome of a replicate.
_COLUMNS_OF_POINT = ("host", "configuration", "experiment", "point")
_COLUMNS_OF_LOAD = ("benchmark", "category", "kernel")
_COLUMNS_OF_OUTCOME = ("order", "status", "measured_at", "origin", "remarks")
_ERROR_OF_MALFORMED_POINT = "the file is not a point of a plan"


def note_on_records_without_digest(results: Path) -> str | None:
    """Return a sentence with the number of records that cannot be verified; None without any."""
    found = [attempts_folder(path) / DIGESTS_FILE for path in results.glob("*/*/rep*.json")]
    count = sum(not path.exists() for path in found)
    if not count:
        return None
    return f"{count} of {len(found)} records are not verifiable: an older version wrote no digest"


def read_points(folder: Path) -> Iterator[Point]:
    """Yield the points of a plan, from the files ``<experiment>/<point>.json`` of a folder.

    Raises:
        UserError: a file is not a point, or is a point of another name.
    """
    for path in sorted(folder.glob("*/*.json")):
        with malformed_as_user_error(_ERROR_OF_MALFORMED_POINT, str(path)):
            point: Point = json.loads(read_regular_file(path))
            found = point_key(point)
        if found != (path.parent.name, path.stem):
            what = f"the file has another point, {'/'.join(map(str, found))}, than its name says"
            raise UserError(what, str(path))
        yield point


@dataclass(frozen=True)
class ReplicateOutcome:
    """The result of one replicate of a point."""

    status: str  # valid, failed or missing
    reason: str | None = None  # why the replicate is not valid
    order: int | None = None  # position of the replicate in the random order of measurements
    measured_at: str | None = None  # time when the replicate ended, in UTC
    # Name of the load -> metric -> value or reason; empty unless the replicate is valid.
    readings: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict)
    # Name of the load -> nodes on which the kernel saw the load's pages, such as 0-1.
    seen_nodes: Mapping[str, str | None] = field(default_factory=dict)
    # "simulated" for a result of a simulated machine; None for a measurement.
    origin: str | None = None
    # Name of the load -> mean clock of its processing units in hertz; None if unknown.
    clocks: Mapping[str, float | None] = field(default_factory=dict)
    # Name of the load -> metric -> time for which the metric's counter counted, in seconds.
    counted_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # "disturbed", "imprecise" or both, by the checks in the record; None if all checks passed.
    remarks: str | None = None


def tidy_rows_of_outcome(point: Point, replicate: int, outcome: ReplicateOutcome) -> Iterator[Row]:
    """Yield a row for each load and metric of a replicate; for metrics by node, a row per node."""
    for load, columns in _common_columns_of_each_load(point, replicate, outcome):
        readings = outcome.readings.get(load["name"], {})
        for metric, source in load["metrics"].items():
            value, reason = readings.get(metric, (None, outcome.reason))
            row = {**columns, "metric": metric, "reason": reason}
            if "by_node" not in source:
                yield {**row, "value": value}
                continue
            for node, relation in load["target"]["by_node"].items():
                yield {
                    **row,
                    "target": node_name(int(node)),
                    "target_kind": "node",
                    "target_nodes": node,
                    **relation,
                    "value": value[node] if isinstance(value, dict) else None,
                }


def _common_columns_of_each_load(
    point: Point, replicate: int, outcome: ReplicateOutcome
) -> Iterator[tuple[Load, Row]]:
    """Yield each load of a replicate with the columns that do not depend on the metric."""
    for load in point["loads"]:
        levels, initiator, target = load.get("levels", {}), load["initiator"], load["target"]
        drives = target["drives"]
        backed = any(drive.get("file") for drive in drives)
        labels = [load["label"], "file-backed" if backed else None]
        yield (
            load,
            {
                **{name: point[name] for name in _COLUMNS_OF_POINT},  # type: ignore[literal-required]
                **{name: load[name] for name in _COLUMNS_OF_LOAD},  # type: ignore[literal-required]
                **{name: getattr(outcome, name) for name in _COLUMNS_OF_OUTCOME},
                "replicate": replicate,
                "load": load.get("role", load["name"]),
                "initiator": initiator["name"],
                "initiator_kind": initiator["kind"],
                "initiator_nodes": format_cpu_list(initiator["nodes"]),
                "threads": initiator["threads"],
                "target": target["name"],
                "target_kind": target["kind"],
                "target_nodes": format_cpu_list(target["nodes"]),
                "drives": len(drives) or None,
                "file_backed": backed,
                "relation": target["relation"],
                "distance": target.get("distance"),
                "label": ", ".join(filter(None, labels)) or None,
                "factors": json.dumps({**point["factors"], **levels}, sort_keys=True),
                "levels": json.dumps(levels, sort_keys=True),
                "seen_nodes": outcome.seen_nodes.get(load["name"]),
                "clock_hertz": outcome.clocks.get(load["name"]),
            },
        )


def tidy_rows_of_derived_metrics(
    point: Point, replicate: int, outcomes: Mapping[PointKey, list[ReplicateOutcome]]
) -> Iterator[Row]:
    """Yield a row for each ratio that the key `relative` of the experiment defines.

    `design.host_plan` chooses the reference of each ratio.

    A value and its reference are from the same replicate, and therefore from one block of the
    random order. A ratio of means over all replicates has a row in the first replicate only.
    `replicate` counts from 1. `outcomes` maps (experiment, point) to the outcomes of the point's
    replicates.
    """
    derived = [
        metric for metric in point.get("relative", []) if replicate == 1 or "of_means" not in metric
    ]
    if not derived:
        return
    outcome = outcomes[point_key(point)][replicate - 1]
    columns = {
        load["name"]: own for load, own in _common_columns_of_each_load(point, replicate, outcome)
    }
    for metric in derived:
        to = metric.get("to")
        value, reason = None, metric.get("reason") or outcome.reason
        if "per" in metric and outcome.status == VALID:
            value, reason = _count_per_unit_of_rate(metric, outcome)
        if to and "of_means" in metric:
            keys = point_key(point), (point["experiment"], to["point"])
            value, reason = _ratio_of_means(metric, to, *(outcomes.get(key, []) for key in keys))
        elif to and outcome.status == VALID:
            others = outcomes.get((point["experiment"], to["point"]), [])
            other = others[replicate - 1] if len(others) >= replicate else ReplicateOutcome(MISSING)
            own = outcome.readings[metric["load"]][metric["metric"]]
            value, reason = _reference_ratio(own, other, to, metric["metric"])
        yield {
            **columns[metric["load"]],
            "metric": metric["name"],
            "value": value,
            "reason": reason,
            "reference": to is not None and to == {"point": point["point"], "load": metric["load"]},
        }


def _count_per_unit_of_rate(metric: MetricRatio, outcome: ReplicateOutcome) -> Reading:
    """Return a count divided by the work of the load in the same time, or why there is no ratio.

    The rate of work is measured in the common window, but the counter counts until the load stops.
    So the work is the rate times the time for which the counter counted, and not the work of the
    common window alone.
    """
    readings = outcome.readings[metric["load"]]
    (count, reason), (rate, _) = readings[metric["metric"]], readings[metric["per"]]
    seconds = outcome.counted_seconds[metric["load"]].get(metric["metric"])
    if not isinstance(count, float) or not isinstance(rate, float) or not rate or not seconds:
        return None, reason or f"{metric['per']} is zero"
    return count / (rate * seconds), None


def _reference_ratio(
    own: Reading, other: ReplicateOutcome, to: PointAndLoadNames, metric: str
) -> tuple[float | None, str | None]:
    """Return a value divided by the value of its reference, or the reason why there is no ratio."""
    if own[0] is None:
        return None, own[1]
    if other.status != VALID:
        why = other.reason or "it is not in the plan"
        return None, f"its reference {to['point']} is {other.status}: {why}"
    divisor, reason = other.readings[to["load"]][metric]
    if divisor is None:
        return None, f"its reference {to['point']} has no value: {reason}"
    if not divisor:
        return None, f"its reference {to['point']} is zero"
    if isinstance(own[0], dict) or isinstance(divisor, dict):
        raise TypeError(f"{metric} has a value for each node, so it has no ratio")
    return own[0] / divisor, None


def _ratio_of_means(
    metric: MetricRatio,
    to: PointAndLoadNames,
    own: Sequence[ReplicateOutcome],
    others: Sequence[ReplicateOutcome],
) -> tuple[float | None, str | None]:
    """Return the ratio of the mean times of a load and its reference, or why there is no ratio.

    A rate is converted to a time (1 / rate). For a rate, the reference's mean time is divided by
    the load's mean time, so that a larger ratio is better.
    """
    name, means = metric["metric"], list[float]()
    for load, outcomes in ((metric["load"], own), (to["load"], others)):
        readings = [
            outcome.readings[load][name][0] if outcome.status == VALID else None
            for outcome in outcomes
        ]
        values = [value for value in readings if isinstance(value, float) and value > 0]
        if not values or len(values) < len(readings):
            return None, "the means need a value from each replicate of the load and its reference"
        times = values if less_is_better(name) else [1 / value for value in values]
        means.append(fmean(times))
    return (means[0] / means[1] if less_is_better(name) else means[1] / means[0]), None


def _read_outcome(path: Path, point: Point, kept: KeptReadings) -> ReplicateOutcome:
    """Return the outcome in the record of a replicate; a broken record has the status "failed"."""
    if not path.exists():
        return ReplicateOutcome(MISSING, "not measured yet")

    def outcome_document() -> dict[str, Any] | None:
        record = load_record(path)
        try:
            if record["point"]["definition"] != point["definition"]:
                return None
            return vars(status_and_values_of_record(record))
        except ERRORS_OF_MALFORMED_DOCUMENTS as error:
            reason = f"{path} is not a complete record: {describe_malformed_document(error)}"
            raise ValueError(reason) from error

    try:
        found = kept.kept_or_new_reading(path, point["definition"], outcome_document)
    except ValueError as error:
        return ReplicateOutcome(FAILED, str(error))
    if found is None:
        return ReplicateOutcome(MISSING, "measured under another definition")
    outcome = ReplicateOutcome(**found)
    return replace(outcome, readings=_with_present_metric_names(outcome.readings, point))


def _with_present_metric_names(
    readings: Mapping[str, Mapping[str, Reading]], point: Point
) -> dict[str, dict[str, Reading]]:
    """Return a record's values under the present names of metrics; old records have old names."""
    present = {name: dict(own) for name, own in readings.items()}
    for load in point["loads"]:
        own = present.get(load["name"], {})
        for metric, source in load["metrics"].items():
            if "formerly" in source and metric not in own:
                own[metric] = own.pop(
                    source["formerly"] or "", (None, _REASON_FOR_METRIC_NOT_IN_RECORD)
                )
    return present


def status_and_values_of_record(record: Record) -> ReplicateOutcome:
    """Return the outcome in a record; its values are computed from the raw output of the tools."""
    verdict = record["verdict"]
    status, reason = str(verdict["status"]), verdict["reason"]
    readings: dict[str, dict[str, Reading]] = {}
    if status == VALID:
        try:
            readings = metric_values_or_reasons(record)
        except ExtractionError as error:
            status, reason = FAILED, str(error)
    nodes = {load["name"]: _seen_nodes(load) for load in record["loads"]}
    unmet = [
        check["name"].split(": ")[-1] for check in verdict["checks"] if check["passed"] is False
    ]
    remarks = [_REMARK_OF_FAILED_CHECK[name] for name in unmet if name in _REMARK_OF_FAILED_CHECK]
    return ReplicateOutcome(
        status,
        reason,
        record["order"],
        record["finished_at"],
        readings,
        nodes,
        record.get("origin"),
        {load["name"]: load["clock"]["hertz"] for load in record["loads"] if "clock" in load},
        {load["name"]: counted_seconds_of_each_metric(load) for load in record["loads"]},
        ", ".join(dict.fromkeys(remarks)) or None,
    )


def _seen_nodes(load: LoadRecord) -> str | None:
    """Return the nodes that have at least 2 % of a load's pages; None if unknown."""
    seen = load["placement_seen"]
    by_node = (seen["memory_bytes_by_node"] if seen else None) or {}
    least = _MOST_STRAY_PAGES_SHARE * sum(by_node.values())
    return format_cpu_list(sorted(int(n) for n, size in by_node.items() if size > least)) or None


def build_tidy_table(points: Path, results: Path, *, writes: bool = True) -> pd.DataFrame:
    """Return the tidy table of one host and configuration.

    The folder `points` has the points of the plan, ``<experiment>/<point>.json``. The folder
    `results` has the records, ``<experiment>/<point>/rep<N>.json``. Only records that are new or
    changed since the last call are read, see `kept_readings`. With `writes`, the values of records
    are kept for the next call.
    """
    planned = {point_key(point): point for point in read_points(points)}
    outcomes: dict[PointKey, list[ReplicateOutcome]] = {}
    with kept_readings(results, "measurements", writes=writes) as kept:
        for key, point in planned.items():
            with malformed_as_user_error(_ERROR_OF_MALFORMED_POINT, str(points.joinpath(*key))):
                outcomes[key] = [
                    replace(
                        _read_outcome(results / current_record_path(*key, number), point, kept),
                        order=order,
                    )
                    for number, order in enumerate(point["orders"], start=1)
                ]
    rows: list[Row] = []
    for key, point in planned.items():
        with malformed_as_user_error(_ERROR_OF_MALFORMED_POINT, str(points.joinpath(*key))):
            for replicate, outcome in enumerate(outcomes[key], start=1):
                rows += tidy_rows_of_outcome(point, replicate, outcome)
                rows += tidy_rows_of_derived_metrics(point, replicate, outcomes)
    with malformed_as_user_error("a point or a record has a value of another type", str(results)):
        return rows_to_table(rows, COLUMN_TYPES)


# The columns of the tidy table, and three more. `era` is the number of the period; the oldest
# period of each point in the table has the number 1. `components` is a JSON object, component ->
# start of its state in this period. `asked` is a fingerprint of the request, without serial numbers
# of drives.
HISTORY_COLUMNS = {**COLUMN_TYPES, "era": "Int64", "components": "string", "asked": "string"}
# Number of periods in the history, the newest ones. To read the attempts of years would take longer
# than to measure.
_NEWEST_PERIODS_READ = 4
_VALID_ATTEMPT_FILE_NAME = re.compile(r"rep(\d+)\.(\d{8}T\d{6}\.\d{3}Z)\.valid\.json")
_Histories = Mapping[str, Sequence[ComponentState]]


@dataclass(frozen=True)
class _Attempt:
    """The file of a valid attempt, which is not yet read, and the states of its components."""

    replicate: int
    stamp: str  # end of the attempt, as in the file name
    path: Path
    states: Mapping[str, ComponentState]


def split_measurements_at_component_changes(
    points: Path, results: Path, components: Path
) -> pd.DataFrame:
    """Return all measurements of points whose components changed, with the number of their period.

    In each period, the last valid attempt of each replicate counts; the newest period has the
    current records. Only attempts that are new or changed since the last call are read, see
    `kept_readings`. The folder `points` has the points of the plan, `results` has the records with
    their attempts, and `components` has the component files with their history.
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
    """Yield the rows of a point in the history; no rows if none of its components changed."""
    own = {name: histories[name] for name in point["components"] if name in histories}
    if all(len(states) < 2 for states in own.values()):
        return
    attempts = []
    for path in folder.glob("rep*.valid.json"):
        if match := _VALID_ATTEMPT_FILE_NAME.fullmatch(path.name):
            # A measurement ends before its file is written. If the end in the file's name is later
            # than the file's time stamp, the clock of the measured host was ahead.
            stamp = min(match[2], time_in_file_name(file_time(path)))
            states = {name: component_state_at(stamp, known) for name, known in own.items()}
            attempts.append(_Attempt(int(match[1]), stamp, path, states))
    attempts.sort(key=lambda attempt: (attempt.stamp, attempt.replicate))
    periods = [
        list(period)
        for _, period in groupby(attempts, lambda a: [s.content for s in a.states.values()])
    ]
    for number, period in enumerate(
        periods[-_NEWEST_PERIODS_READ:] if len(periods) > 1 else [], start=1
    ):
        for attempt in {attempt.replicate: attempt for attempt in period}.values():
            yield from _attempt_rows(attempt, number, kept)


def _attempt_rows(attempt: _Attempt, period: int, kept: KeptReadings) -> Iterator[Row]:
    """Yield the rows of one attempt; no rows for a broken file or a record that is not valid."""

    def read_rows() -> list[Row]:
        record = load_record(attempt.path)
        outcome = status_and_values_of_record(record)
        if outcome.status != VALID:
            return []
        asked = _request_fingerprint(record["point"])
        rows = tidy_rows_of_outcome(record["point"], attempt.replicate, outcome)
        return [{**row, "asked": asked} for row in rows]

    try:
        found = kept.kept_or_new_reading(attempt.path, "", read_rows)
    except ERRORS_OF_MALFORMED_DOCUMENTS:
        return
    since = {name: state.since for name, state in attempt.states.items()}
    columns = {"era": period, "components": json.dumps(since, sort_keys=True)}
    for row in found:
        yield {**row, **columns}


def _request_fingerprint(point: Point) -> str:
    """Return a fingerprint of a point's request that stays the same when a drive is replaced.

    Values whose requests have the same fingerprint are comparable. The definition of a point cannot
    show which values are comparable, because it contains the serial numbers of the drives.
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
