"""Builds the tidy table from records, and keeps it as Parquet.

A planned point without a record becomes a row too, with status ``missing``, so that what was not
measured can be told from what was never asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from chaosity import records
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.runner import metric_values
from chaosity.runner.tool_output import ExtractionError

# Columns and their types; what each means is said in docs/design.md, section 6.
COLUMNS = {
    "host": "string",
    "configuration": "string",
    "experiment": "string",
    "point": "string",
    "replicate": "Int64",
    "order": "Int64",
    "measured_at": "string",
    "status": "string",
    "reason": "string",
    "load": "string",
    "benchmark": "string",
    "category": "string",
    "kernel": "string",
    "initiator": "string",
    "initiator_kind": "string",
    "initiator_nodes": "string",
    "threads": "Int64",
    "target": "string",
    "target_kind": "string",
    "target_nodes": "string",
    "drives": "Int64",
    "file_backed": "boolean",
    "relation": "string",
    "distance": "Float64",
    "seen_nodes": "string",
    "metric": "string",
    "value": "Float64",
    "reference": "boolean",
    "label": "string",
    "factors": "string",
    "levels": "string",
}
MISSING = "missing"
# Stacks and library data of a load lie where they like; they are below this share of its pages, see
# MEMORY_SHARE of the runner's checks.
STRAY_SHARE = 0.02
Row = dict[str, Any]


def point_files(points: Path) -> Iterator[Path]:
    """The files of a plan, in a stable order."""
    return iter(sorted(points.glob("*/*.json")))


@dataclass(frozen=True)
class Outcome:
    """What one replicate of a point came to.

    Attributes:
        status: valid, failed or missing.
        reason: why it is not valid.
        order: its place in the random order.
        measured_at: when it ended, UTC.
        readings: of each metric of each load, by the loads' names; empty unless valid.
        seen_nodes: where the kernel saw the pages of each load, as a list such as 0-1.
    """

    status: str
    reason: str | None = None
    order: int | None = None
    measured_at: str | None = None
    readings: Mapping[str, Mapping[str, metric_values.Reading]] = field(default_factory=dict)
    seen_nodes: Mapping[str, str | None] = field(default_factory=dict)


def outcomes_of(point: Mapping[str, Any], folder: Path) -> list[Outcome]:
    """What every replicate of a planned point came to.

    Args:
        point: the point as planned.
        folder: where its records are.
    """
    return [
        replace(read_outcome(folder / f"rep{replicate}.json", point), order=order)
        for replicate, order in enumerate(point["orders"], start=1)
    ]


def rows_of_outcome(point: Mapping[str, Any], replicate: int, outcome: Outcome) -> Iterator[Row]:
    """A row for each load and metric of a replicate, and each node of a metric by node."""
    for load, columns in columns_of_loads(point, replicate, outcome):
        for metric, source in load["metrics"].items():
            read = outcome.readings.get(load["name"], {})
            value, reason = read.get(metric, (None, outcome.reason))
            told = {**columns, "metric": metric, "reason": reason}
            if "by_node" not in source:
                yield {**told, "value": value}
                continue
            for node, place in load["target"]["by_node"].items():
                at = {"target": f"node{node}", "target_kind": "node", "target_nodes": node, **place}
                yield {**told, **at, "value": value[node] if isinstance(value, dict) else None}


def columns_of_loads(
    point: Mapping[str, Any], replicate: int, outcome: Outcome
) -> Iterator[tuple[Mapping[str, Any], Row]]:
    """Each load of a replicate with the columns that all rows of its metrics have."""
    common = {
        "host": point["host"],
        "configuration": point["configuration"],
        "experiment": point["experiment"],
        "point": point["point"],
        "replicate": replicate,
        "order": outcome.order,
        "status": outcome.status,
        "measured_at": outcome.measured_at,
    }
    for load in point["loads"]:
        levels = load.get("levels", {})
        own = {
            **load_columns(load),
            "factors": json.dumps({**point["factors"], **levels}, sort_keys=True),
            "levels": json.dumps(levels, sort_keys=True),
            "seen_nodes": outcome.seen_nodes.get(load["name"]),
        }
        yield load, {**common, **own}


def rows_of_ratios(
    point: Mapping[str, Any], replicate: int, outcomes: Mapping[tuple[str, str], list[Outcome]]
) -> Iterator[Row]:
    """A row for each derived metric of each load of a replicate, see `design.metric_references`.

    Value and reference are of one replicate, so they lie within one block of the random order.

    Args:
        point: the point as planned.
        replicate: from 1.
        outcomes: of all replicates of all points, by experiment and point.
    """
    derived = point.get("relative", [])
    if not derived:
        return
    outcome = outcomes[point["experiment"], point["point"]][replicate - 1]
    columns = {load["name"]: own for load, own in columns_of_loads(point, replicate, outcome)}
    for one in derived:
        to = one.get("to")
        value, reason = None, one.get("reason") or outcome.reason
        if to and outcome.status == records.VALID:
            others = outcomes.get((point["experiment"], to["point"]), [])
            other = others[replicate - 1] if len(others) >= replicate else Outcome(MISSING)
            own = outcome.readings[one["load"]][one["metric"]]
            value, reason = ratio(own, other, to, one["metric"])
        itself = to == {"point": point["point"], "load": one["load"]}
        yield {
            **columns[one["load"]],
            "metric": one["name"], "value": value, "reason": reason, "reference": itself,
        }  # fmt: skip


def ratio(
    own: metric_values.Reading, other: Outcome, to: Mapping[str, str], metric: str
) -> metric_values.Reading:
    """A value over that of its reference, or the reason why there is none."""
    value, reason = own
    if value is None:
        return None, reason
    if other.status != records.VALID:
        said = other.reason or "it is not in the plan"
        return None, f"its reference {to['point']} is {other.status}: {said}"
    divisor, reason = other.readings[to["load"]][metric]
    if divisor is None:
        return None, f"its reference {to['point']} has no value: {reason}"
    if not divisor:
        return None, f"its reference {to['point']} is zero"
    return value / divisor, None


def read_outcome(path: Path, point: Mapping[str, Any]) -> Outcome:
    """What the record of a replicate says; a broken one counts as failed."""
    if not path.exists():
        return Outcome(MISSING, "not measured yet")
    try:
        record = records.load_record(path)
    except ValueError as error:
        return Outcome(records.FAILED, str(error))
    if record["point"]["definition"] != point["definition"]:
        return Outcome(MISSING, "measured under another definition")
    return outcome_of(record)


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """What a record says, its values computed from the raw output."""
    status, reason = record["verdict"]["status"], record["verdict"]["reason"]
    found: dict[str, dict[str, metric_values.Reading]] = {}
    if status == records.VALID:
        try:
            found = metric_values.metric_readings(record)
        except ExtractionError as error:
            status, reason = records.FAILED, str(error)
    seen = {load["name"]: seen_nodes(load) for load in record["loads"]}
    return Outcome(status, reason, record["order"], record["finished_at"], found, seen)


def seen_nodes(load: Mapping[str, Any]) -> str | None:
    """The nodes on which the kernel saw a load's pages, but for stray ones; None when unknown."""
    by_node = (load["placement_seen"] or {}).get("memory_bytes_by_node") or {}
    least = STRAY_SHARE * sum(by_node.values())
    return format_cpu_list(sorted(int(n) for n, size in by_node.items() if size > least)) or None


def load_columns(load: Mapping[str, Any]) -> Row:
    """What a load was, in columns."""
    initiator, target = load["initiator"], load["target"]
    drives = target["drives"]
    backed = any(drive.get("file") for drive in drives)
    labels = [load["label"], "file-backed" if backed else None]
    return {
        "load": load.get("role", load["name"]),
        "benchmark": load["benchmark"],
        "category": load["category"],
        "kernel": load["kernel"],
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
    }


def tidy(points: Path, results: Path) -> pd.DataFrame:
    """The tidy table of one host and configuration.

    Args:
        points: the plan, ``<experiment>/<point>.json``.
        results: the records, ``<experiment>/<point>/rep<N>.json``.
    """
    planned = [json.loads(path.read_text(encoding="utf-8")) for path in point_files(points)]
    outcomes = {
        (point["experiment"], point["point"]): outcomes_of(
            point, results / point["experiment"] / point["point"]
        )
        for point in planned
    }
    rows: list[Row] = []
    for point in planned:
        own = outcomes[point["experiment"], point["point"]]
        for replicate, outcome in enumerate(own, start=1):
            rows += rows_of_outcome(point, replicate, outcome)
            rows += rows_of_ratios(point, replicate, outcomes)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def write_table(table: pd.DataFrame, path: Path, columns: Mapping[str, str] = COLUMNS) -> None:
    """Keep a table as Parquet, whole or not at all.

    Args:
        table: with these columns.
        path: of the file.
        columns: their types by their names.
    """
    part = path.with_name(f".{path.name}.part")
    with duckdb.connect() as connection:
        connection.register("tidy_table", table.astype(object).where(table.notna(), None))
        casts = ", ".join(
            f'CAST("{name}" AS {sql(kind)}) AS "{name}"' for name, kind in columns.items()
        )
        relation = connection.sql(f"SELECT {casts} FROM tidy_table")
        relation.write_parquet(str(part), compression="zstd")
    part.replace(path)


def valid(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a positive value that counts; ratios and logarithms need nothing else.

    Args:
        table: a tidy table in numpy's types, see `statistics.plain`.
    """
    return table[(table["status"] == records.VALID) & (table["value"] > 0.0)]


def sql(kind: str) -> str:
    """DuckDB's name of a column type."""
    return {"string": "VARCHAR", "Int64": "BIGINT", "boolean": "BOOLEAN", "Float64": "DOUBLE"}[kind]


def read_table(path: Path, columns: Mapping[str, str] = COLUMNS) -> pd.DataFrame:
    """Read a tidy table back.

    Args:
        path: of the file.
        columns: the types that it was written with.

    Raises:
        UserError: it is no Parquet file.
    """
    try:
        with duckdb.connect() as connection:
            found = connection.read_parquet(str(path)).df()
    except duckdb.Error as error:
        raise UserError(f"is no tidy table: {error}", str(path)) from error
    # A table of an earlier version, such as another configuration's, may lack newer columns.
    return found.reindex(columns=list(columns)).astype(dict(columns))
