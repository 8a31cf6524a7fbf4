"""Compute the values of a record's metrics from the raw output, and rates from progress samples.

A load's progress is a list of series: one for each log file, or a single series. A series is a list
of samples ``(begin, end, amount)``. `begin` and `end` are seconds on the host's monotonic clock;
`amount` was moved between these two times, usually in bytes.

With one load, the value is the number that the tool reports for its complete run, if the benchmark
file names this number. With several loads, the value is the rate over the window in which **all**
loads ran (docs/explanation/how-it-measures.md). A load that reports no progress has only the number
for its complete run. The number for the complete run is the value if the load ran completely while
all other loads made progress; otherwise, the point fails.

An optional metric may have the reason for a missing value instead of a value.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from chaosity.records.record_format import (
    LoadRecord,
    MetricSourceWithUpperBound,
    ProgressSource,
    UnfinishedRecord,
)
from chaosity.runner import event_counters
from chaosity.runner.tool_output import (
    ExtractionError,
    extract_number,
    malformed_as_extraction_error,
    output_texts_of_source,
    parse_json_lines,
)

Sample = tuple[float, float, float]  # begin and end in seconds, and the amount in this time
Samples = list[Sample]  # the samples of one output of a load, in the order of time

# Number of batches into which the samples of a run are joined before their spread is computed.
# Consecutive samples are correlated, so an interval from single samples would be too narrow. Ten
# batches are the smallest sufficient number (Schmeiser, Operations Research 30, 1982).
BATCHES = 10
# 97.5 % quantile of Student's t with BATCHES - 1 degrees of freedom.
T_QUANTILE = 2.262
# Smallest true standard deviation that agrees with a computed standard deviation, as a share of the
# computed one: the root of (BATCHES - 1) / 19.02. The number 19.02 is the 97.5 % quantile of
# chi-squared with BATCHES - 1 degrees of freedom.
LEAST_DEVIATION = 0.688
# Limit of von Neumann's ratio: squared steps from value to value, divided by squared deviations
# from the mean. For BATCHES independent normal values, the ratio is below this limit in 5 % of
# cases (Hart, Annals of Mathematical Statistics 13, 1942). A drift has a far smaller ratio.
DRIFT_RATIO = 1.06


def progress_series(
    source: ProgressSource, outputs: Mapping[str, str], realtime_minus_monotonic: float
) -> list[Samples]:
    """Return the series of a finished load.

    `source` is the key ``progress`` of the benchmark file. `outputs` is name -> raw output of the
    load. `realtime_minus_monotonic` is the difference of the two clocks in seconds.

    Raises:
        ExtractionError: the output has no progress in the form that the benchmark file describes.
    """
    parse = _samples_from_rows if "csv" in source else samples_from_json_lines
    texts = output_texts_of_source(source, outputs) if "csv" in source or "event" in source else []
    offset = realtime_minus_monotonic if source.get("clock") == "realtime" else 0.0
    shifted = [
        [(b - offset, e - offset, a) for b, e, a in samples]
        for samples in (parse(source, text) for text in texts)
        if samples
    ]
    if not shifted:
        raise ExtractionError("the tool reported no progress")
    return shifted


def sample_spans(
    source: ProgressSource, text: str
) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Yield the begin and the end of each sample in seconds, and the parsed line of this sample.

    A sample is a line such as ``{"event":"sample","begin_ns":..,"end_ns":..}``.
    """
    scale = float(source.get("time_scale", 1))
    for line in parse_json_lines(text):
        if line.get("event") == source["event"]:
            with malformed_as_extraction_error("a sample has no times"):
                times = float(line[source["begin"]]) * scale, float(line[source["end"]]) * scale
                if not all(map(math.isfinite, times)):
                    raise ExtractionError(f"a sample has impossible times {times}")
            yield *times, line


def samples_from_json_lines(source: ProgressSource, text: str) -> Samples:
    """Return (begin, end, amount) of each sample in JSON lines; other lines are skipped."""
    with malformed_as_extraction_error("a sample has no amount"):
        return [
            (begin, end, float(line[source["amount"]]))
            for begin, end, line in sample_spans(source, text)
        ]


def _samples_from_rows(source: ProgressSource, text: str) -> Samples:
    """Return the samples in CSV rows; a row has an end time and the rate since the row before."""
    # The first row has no row before it, and covers the requested averaging time.
    columns = source["csv"]
    time_scale, rate_scale = float(source.get("time_scale", 1)), float(source.get("rate_scale", 1))
    samples: Samples = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        with malformed_as_extraction_error(f"a progress row has an unexpected form: {row!r:.60}"):
            end = float(row[columns["end"]]) * time_scale
            rate = float(row[columns["rate"]]) * rate_scale
        begin = samples[-1][1] if samples else end - float(source["interval_seconds"])
        if end > begin:
            samples.append((begin, end, rate * (end - begin)))
    return samples


def common_time_span(series: Sequence[Samples]) -> tuple[float, float]:
    """Return the time in seconds in which all series run: the latest begin and the earliest end."""
    return max(samples[0][0] for samples in series), min(samples[-1][1] for samples in series)


def spans_without_pauses(
    pausing: Sequence[Samples], begin: float, end: float
) -> list[tuple[float, float]]:
    """Return the parts of a window in which all series with pauses have a sample."""
    spans = [(begin, end)] if end > begin else []
    for samples in pausing:
        overlaps = [(max(b, c), min(e, f)) for b, e in spans for c, f, _ in samples]
        spans = [(first, last) for first, last in overlaps if last > first]
    return spans


def samples_in_spans(
    series: Sequence[Samples], spans: Sequence[tuple[float, float]]
) -> Iterator[Sample]:
    """Yield the samples in spans of time; of a sample across an edge, only the inside counts."""
    for begin, end in spans:
        for samples in series:
            for first, last, amount in samples:
                if (inside := min(last, end) - max(first, begin)) > 0.0:
                    yield first, last, amount * inside / (last - first)


def rate_in_window(
    series: Sequence[Samples], begin: float, end: float, pausing: Sequence[Samples] = ()
) -> float:
    """Return the amount per second between two times; a sample across an edge counts in part.

    Time in which a series of `pausing` has no sample does not count.

    Raises:
        ExtractionError: the series of `pausing` have no common time between `begin` and `end`.
    """
    spans = spans_without_pauses(pausing, begin, end)
    if not spans:
        raise ExtractionError("the loads did not run at the same time")
    moved = sum(amount for *_, amount in samples_in_spans(series, spans))
    return moved / sum(end - begin for begin, end in spans)


def sample_quantile_in_window(
    progress: ProgressSource,
    metric: MetricSourceWithUpperBound,
    text: str,
    begin: float,
    end: float,
) -> float:
    """Return a quantile of the values that were counted within a window.

    Each sample counts how often each value occurred, e.g. ``"blocks": {"98.3": 12}``. The values
    are the centres of narrow bins and set the resolution of the quantile. In `metric`, ``key``
    names the counts, and ``quantile`` is from 0 to 1. The window is in monotonic seconds.

    Raises:
        ExtractionError: no sample with counts lies within the window.
    """
    counts = counts_in_window(progress, metric["key"], text, begin, end)
    values = sorted(counts)
    up_to = list(accumulate(counts[value] for value in values))
    # Rounding may make the rank of the quantile larger than the number of all values.
    rank = min(metric["quantile"] * up_to[-1], up_to[-1])
    return values[bisect_left(up_to, rank)]


def counts_in_window(
    progress: ProgressSource, key: str, text: str, begin: float, end: float
) -> Counter[float]:
    """Return value -> how often the samples within a window counted this value under a key.

    Raises:
        ExtractionError: no sample with counts lies within the window.
    """
    counts = Counter[float]()
    for first, last, line in sample_spans(progress, text):
        # A sample may begin or end half a nanosecond outside the window, since times are rounded to
        # nanoseconds.
        if first < begin - 5e-10 or last > end + 5e-10:
            continue
        with malformed_as_extraction_error(f"a sample has no counts as {key}"):
            for value, number in line.get(key, {}).items():
                counts[float(value)] += int(number)
    if not counts:
        raise ExtractionError(f"no sample with {key} lies within the common window")
    return counts


def rates_if_all_threads_used_one_node(
    progress: ProgressSource,
    metric: MetricSourceWithUpperBound,
    text: str,
    begin: float,
    end: float,
    nodes: Sequence[int],
    threads: int,
) -> dict[str, float]:
    """Return node -> the rate that a load would have if all its threads accessed only that node.

    For each node, a sample has the amount that was moved and the time that all threads together
    spent, e.g. ``"bytes_by_node": {"0": 4096}, "ns_by_node": {"0": 512}``. Threads change nodes at
    different times. So the value is the rate of one thread that accesses the node, times the number
    of all threads. Samples across an edge of the window count in part. In `metric`, ``by_node``
    names the keys of amount and time. The window is in monotonic seconds.

    Raises:
        ExtractionError: a node was not accessed within the window, or a sample lacks a key.
    """
    keys, scale = metric["by_node"], float(progress.get("time_scale", 1))
    inside = [
        (first, last, line)
        for first, last, line in sample_spans(progress, text)
        if min(last, end) > max(first, begin)
    ]
    if any(keys["amount"] not in line or keys["time"] not in line for *_, line in inside):
        raise ExtractionError(f"a sample has no {keys['amount']} or no {keys['time']}")

    def rate_on_node(key: str, node: str) -> float:
        with malformed_as_extraction_error(f"a sample has no numbers by node as {key}"):
            series = [(first, last, float(line[key].get(node, 0))) for first, last, line in inside]
            return rate_in_window([series], begin, end)

    rates = {}
    for node in map(str, nodes):
        spent = rate_on_node(keys["time"], node) * scale
        if not spent > 0:
            raise ExtractionError(f"node {node} was not accessed within the common window")
        rates[node] = rate_on_node(keys["amount"], node) / spent * threads
    return rates


class RatePrecision(NamedTuple):
    """The precision of a rate in a window of time, by batch means.

    `relative_half_width` is half the width of the 95 % interval, relative to the rate. `drifts`
    says whether the means of successive batches are too similar to vary at random.
    """

    relative_half_width: float
    drifts: bool

    def cannot_reach(self, wanted: float, time_factor: float) -> bool:
        """Return whether even a window `time_factor` times as long would miss the wanted precision.

        The interval of a rate that varies at random narrows with the square root of the time. The
        result is False for a rate that drifts, since a longer window changes its value.
        """
        narrowest = self.relative_half_width * LEAST_DEVIATION / math.sqrt(max(time_factor, 1.0))
        return not self.drifts and narrowest > wanted


def rate_precision(series: Sequence[Samples], begin: float, end: float) -> RatePrecision | None:
    """Return the precision of a rate between two times.

    The result is None if the rate is 0, or if there are fewer than two samples per batch.
    """
    inside = sum(first >= begin and last <= end for samples in series for first, last, _ in samples)
    if inside < 2 * BATCHES or end <= begin:
        return None
    step = (end - begin) / BATCHES
    means = [
        rate_in_window(series, begin + i * step, begin + (i + 1) * step) for i in range(BATCHES)
    ]
    mean = sum(means) / BATCHES
    if mean <= 0:
        return None
    squares = sum((m - mean) ** 2 for m in means)
    half_width = T_QUANTILE * math.sqrt(squares / (BATCHES - 1) / BATCHES) / mean
    steps = sum((after - before) ** 2 for before, after in pairwise(means))
    return RatePrecision(half_width, steps < DRIFT_RATIO * squares)


Method = Literal["counter", "by_node", "quantile", "rate", "output"]
# A metric's value: a number, or a number for each node of the target.
Value = float | dict[str, float]
# A value and None, or None and the reason for the missing value.
Reading = tuple[Value | None, str | None]


def series_by_load(
    record: UnfinishedRecord,
) -> dict[str, list[Samples]]:
    """Return the name of each load that reports progress -> the load's series of samples."""
    return {
        load["name"]: progress_series(
            load["progress"],
            load["outputs"],
            record["environment_before"]["realtime_minus_monotonic_seconds"],
        )
        for load in record["loads"]
        if load["progress"]
    }


def common_window_of_loads(
    record: UnfinishedRecord, series: Mapping[str, list[Samples]]
) -> tuple[float, float] | None:
    """Return begin and end of the common window in seconds; None if no load reports progress.

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


def series_of_pausing_loads(
    record: UnfinishedRecord, series: Mapping[str, list[Samples]]
) -> list[Samples]:
    """Return the series of samples of all loads that measure nothing between their samples."""
    pausing = (load for load in record["loads"] if (load["progress"] or {}).get("pauses"))
    return [samples for load in pausing for samples in series[load["name"]]]


def values_by_node(value: Value) -> dict[str | None, float]:
    """Return node -> number; a value that belongs to no single node has the key None."""
    return dict[str | None, float](value.items()) if isinstance(value, dict) else {None: value}


def metric_values_or_reasons(record: UnfinishedRecord) -> dict[str, dict[str, Reading]]:
    """Return load -> metric -> (value in SI units, None), or (None, reason why it has no value).

    Raises:
        ExtractionError: a metric that is not optional has no value.
    """
    series = series_by_load(record)
    window = common_window_of_loads(record, series) if len(record["loads"]) > 1 else None
    pausing = series_of_pausing_loads(record, series)
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
    """Return metric -> seconds for which its processor counter was enabled; empty without counters.

    For a counter with several counts, the longest of their times is returned.
    """
    counted = load.get("counted", {})
    return {
        metric: max(count.get("time_enabled_ns", 0) for count in result["counts"]) * 1e-9
        for metric, source in load["metrics"].items()
        if "counts" in (result := counted.get(source.get("counter", ""), {}))
    }


def is_optional_metric(source: MetricSourceWithUpperBound) -> bool:
    """Return whether a point may lack a metric, as it is optional or from a processor counter."""
    return bool(source.get("optional") or "counter" in source)


def _value(
    load: LoadRecord,
    metric: str,
    series: list[Samples] | None,
    window: tuple[float, float] | None,
    pausing: list[Samples],
) -> Value:
    """Return a metric's value in the common window; `pausing` is from `series_of_pausing_loads`."""
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
    """Return the name of the method that computes a metric; `alone` if the point has one load.

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
    """Return whether progress samples give the value of a metric in a part of the run."""
    # The progress samples give only rates, because shares and counts always refer to the complete
    # run. If a metric of the load is read from the samples, the samples belong to this metric.
    from_progress = any(source.get("progress") for source in load["metrics"].values())
    return metric.endswith("_per_second") and not from_progress
