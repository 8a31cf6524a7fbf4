"""The values of a record, computed from its raw output each time they are wanted.

With one load the value is what the tool says of its whole run, where its benchmark file points at
such a figure. With several loads it is the rate over the window in which **all** loads ran
(docs/design.md, section 5); a load that reports no progress must then have run wholly inside the
progress of all others, and its own figure counts.

A metric that its benchmark file calls optional may have no value: then there is a reason instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaosity.runner import event_counters, progress
from chaosity.runner.tool_output import ExtractionError, extract_number

# A metric's value: one, or one for each node of the target.
Value = float | dict[str, float]
# A value, or None and why there is none.
Reading = tuple[Value | None, str | None]


def clock_offset(record: Mapping[str, Any]) -> float:
    """Offset of the wall clock from the monotonic clock when the point began, in seconds."""
    return record["environment_before"]["realtime_minus_monotonic_seconds"]


def progress_by_load(record: Mapping[str, Any]) -> dict[str, list[progress.Series]]:
    """Progress of each load that reports it, by the load's name."""
    return {
        load["name"]: progress.progress_series(
            load["progress"], load["outputs"], clock_offset(record)
        )
        for load in record["loads"]
        if load["progress"]
    }


def common_window(
    record: Mapping[str, Any], series: Mapping[str, list[progress.Series]]
) -> tuple[float, float] | None:
    """Begin and end of the time in which all loads ran; None when no load reports progress.

    Raises:
        ExtractionError: a load without progress ran outside the progress of another.
    """
    spans = {name: progress.common_span(one) for name, one in series.items()}
    silent = [load for load in record["loads"] if load["name"] not in series]
    if not spans:
        return None
    begin, end = max(b for b, _ in spans.values()), min(e for _, e in spans.values())
    for load in silent:
        first, last = load["began_monotonic_seconds"], load["ended_monotonic_seconds"]
        if first < begin or last > end:
            raise ExtractionError(f"{load['name']} ran outside the time in which all others ran")
        begin, end = first, last
    return begin, end


def values_by_node(value: Value) -> dict[str | None, float]:
    """The figures of a value, by the node that each is of; None for the load as a whole."""
    return dict(value) if isinstance(value, dict) else {None: value}


def values_of_record(record: Mapping[str, Any]) -> dict[str, dict[str, Value | None]]:
    """Value of every metric of every load, SI units: ``{load: {metric: value}}``.

    A metric by node has a value for each node of its target: ``{load: {metric: {node: value}}}``.

    Raises:
        ExtractionError: the raw output does not hold what the benchmark file promises.
    """
    return {
        load: {metric: value for metric, (value, _) in metrics.items()}
        for load, metrics in metric_readings(record).items()
    }


def metric_readings(record: Mapping[str, Any]) -> dict[str, dict[str, Reading]]:
    """Value of every metric of every load, or None with the reason.

    Raises:
        ExtractionError: a metric that is not optional has no value.
    """
    series = progress_by_load(record)
    common = common_window(record, series) if len(record["loads"]) > 1 else None
    found: dict[str, dict[str, Reading]] = {}
    for load in record["loads"]:
        name = load["name"]
        found[name] = {}
        for metric, source in load["metrics"].items():
            try:
                found[name][metric] = _value(load, metric, series.get(name), common), None
            except ExtractionError as error:
                if not is_optional(source):
                    raise
                found[name][metric] = None, str(error)
    return found


def is_optional(source: Mapping[str, Any]) -> bool:
    """Whether a point is valid without this metric: the file says so, or a counter gives it."""
    return bool(source.get("optional") or "counter" in source)


def _value(
    load: Mapping[str, Any],
    metric: str,
    series: list[progress.Series] | None,
    common: tuple[float, float] | None,
) -> Value:
    """Value of one metric; `series` is the load's progress, `common` the window of all loads."""
    source = load["metrics"][metric]
    if "counter" in source:
        return event_counters.counter_value(load.get("counted", {}), source["counter"])
    if series is not None and "by_node" in source:
        begin, end = common or progress.common_span(series)
        nodes, threads = load["target"]["nodes"], load["initiator"]["threads"]
        output = load["outputs"]["stdout"]
        return progress.node_rates(load["progress"], source, output, begin, end, nodes, threads)
    if series is not None and "quantile" in source:
        begin, end = common or progress.common_span(series)
        return progress.quantile_in_window(
            load["progress"], source, load["outputs"]["stdout"], begin, end
        )
    if series is not None and (source.get("progress") or (common and _is_progress(load, metric))):
        begin, end = common or progress.common_span(series)
        return progress.rate_in_window(series, begin, end)
    return extract_number(source, load["outputs"])


def _is_progress(load: Mapping[str, Any], metric: str) -> bool:
    """Whether a figure of the tool for its whole run is the rate that its progress gives too.

    It is the only rate of the load; shares and counts are figures of the whole run in any company.
    """
    told = any(source.get("progress") for source in load["metrics"].values())
    return metric.endswith("_per_second") and not told
