"""Compute the values of a record's metrics from the raw output.

With one load, the value is the tool's own number for its whole run, if the benchmark file names
such a number. With several loads, the value is the rate over the window in which **all** loads ran
(docs/explanation/how-it-measures.md). A load that reports no progress has only its own number for
the whole run. This number is the value if the load ran completely while all others made progress;
otherwise the point fails.

An optional metric may have a reason instead of a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from chaosity.records.point_types import MetricSourceWithUpperBound
from chaosity.records.record_types import LoadRecord, UnfinishedRecord
from chaosity.runner import event_counters
from chaosity.runner.progress_rates import (
    Samples,
    common_time_span,
    progress_series,
    rate_in_window,
    rates_if_all_threads_used_one_node,
    sample_quantile_in_window,
)
from chaosity.runner.tool_output import (
    ExtractionError,
    extract_number,
    malformed_as_extraction_error,
)

Method = Literal["counter", "by_node", "quantile", "rate", "output"]
# A metric's value: a number, or a number for each node of the target.
Value = float | dict[str, float]
# A value, or None and the reason.
Reading = tuple[Value | None, str | None]


def progress_by_load(
    record: UnfinishedRecord,
) -> dict[str, list[Samples]]:
    """Return name -> progress of each load that reports progress."""
    return {
        load["name"]: progress_series(
            load["progress"],
            load["outputs"],
            record["environment_before"]["realtime_minus_monotonic_seconds"],
        )
        for load in record["loads"]
        if load["progress"]
    }


def window_of_all_loads(
    record: UnfinishedRecord, series: Mapping[str, list[Samples]]
) -> tuple[float, float] | None:
    """Return begin and end of the common window; None if no load reports progress.

    Raises:
        ExtractionError: a load without progress ran outside the progress of another load.
    """
    spans = {name: common_time_span(own) for name, own in series.items()}
    if not spans:
        return None
    begin, end = max(b for b, _ in spans.values()), min(e for _, e in spans.values())
    for load in record["loads"]:
        if load["name"] in series:
            continue
        first, last = load["began_monotonic_seconds"], load["ended_monotonic_seconds"]
        if first < begin or last > end:
            raise ExtractionError(f"{load['name']} ran while another load did not run")
        begin, end = first, last
    return begin, end


def progress_with_pauses(
    record: UnfinishedRecord, series: Mapping[str, list[Samples]]
) -> list[Samples]:
    """Return the progress of the loads that do not measure between their samples."""
    pausing = (load for load in record["loads"] if (load["progress"] or {}).get("pauses"))
    return [samples for load in pausing for samples in series[load["name"]]]


def values_by_node(value: Value) -> dict[str | None, float]:
    """Return node -> number; a value for the whole load has the key None."""
    return dict[str | None, float](value.items()) if isinstance(value, dict) else {None: value}


def metric_values_or_reasons(record: UnfinishedRecord) -> dict[str, dict[str, Reading]]:
    """Return ``{load: {metric: (value, None)}}`` in SI units; (None, reason) without a value.

    Raises:
        ExtractionError: a metric that is not optional has no value.
    """
    series = progress_by_load(record)
    window = window_of_all_loads(record, series) if len(record["loads"]) > 1 else None
    pausing = progress_with_pauses(record, series)
    readings: dict[str, dict[str, Reading]] = {}
    for load in record["loads"]:
        name = load["name"]
        own = readings[name] = {}
        for metric, source in load["metrics"].items():
            try:
                with malformed_as_extraction_error("its values have an unexpected form"):
                    own[metric] = _value(load, metric, series.get(name), window, pausing), None
            except ExtractionError as error:
                if not is_optional_metric(source):
                    raise ExtractionError(f"{name}, {metric}: {error}") from None
                own[metric] = None, str(error)
    return readings


def counted_seconds_of_each_metric(load: LoadRecord) -> dict[str, float]:
    """Return metric -> for how long its processor counter counted; empty without counters."""
    counted = load.get("counted", {})
    return {
        metric: max(count.get("time_enabled_ns", 0) for count in result["counts"]) * 1e-9
        for metric, source in load["metrics"].items()
        if "counts" in (result := counted.get(source.get("counter", ""), {}))
    }


def is_optional_metric(source: MetricSourceWithUpperBound) -> bool:
    """Return whether a point is valid without this metric, which is optional or from a counter."""
    return bool(source.get("optional") or "counter" in source)


def _value(
    load: LoadRecord,
    metric: str,
    series: list[Samples] | None,
    window: tuple[float, float] | None,
    pausing: list[Samples],
) -> Value:
    """Return a metric's value in the common window, see `progress_with_pauses` for `pausing`."""
    source, method = load["metrics"][metric], method_of_metric(load, metric, alone=not window)
    if method == "counter":
        return event_counters.counter_value(load.get("counted", {}), source["counter"])
    if method == "output" or series is None or not load["progress"]:
        return extract_number(source, load["outputs"])
    begin, end = window or common_time_span(series)
    if method == "rate":
        return rate_in_window(series, begin, end, pausing)
    output = load["outputs"]["stdout"]
    if method == "quantile":
        return sample_quantile_in_window(load["progress"], source, output, begin, end)
    nodes, threads = load["target"]["nodes"], load["initiator"]["threads"]
    return rates_if_all_threads_used_one_node(
        load["progress"], source, output, begin, end, nodes, threads
    )


def method_of_metric(load: LoadRecord, metric: str, *, alone: bool) -> Method:
    """Return how a metric's value comes about; `alone` says that the point has one load.

    The methods are "counter" (`counter_value`), "by_node" (`rates_if_all_threads_used_one_node`),
    "quantile" (`sample_quantile_in_window`), "rate" (`rate_in_window`) and "output"
    (`extract_number`).
    """
    source = load["metrics"][metric]
    if "counter" in source:
        return "counter"
    if load["progress"] and "by_node" in source:
        return "by_node"
    if load["progress"] and "quantile" in source:
        return "quantile"
    from_progress = source.get("progress") or (not alone and _is_progress_rate(load, metric))
    return "rate" if load["progress"] and from_progress else "output"


def _is_progress_rate(load: LoadRecord, metric: str) -> bool:
    """Return whether the tool's progress shows this metric over a part of the run."""
    # It must be a rate, and no metric may be read from the progress samples. Shares and counts
    # always refer to the whole run.
    from_progress = any(source.get("progress") for source in load["metrics"].values())
    return metric.endswith("_per_second") and not from_progress
