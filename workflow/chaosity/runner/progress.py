"""Progress with time stamps, and the value over the window in which all loads ran.

A load's progress is a list of series (one a log file; one in all for a tool that reports whole
figures), each a list of ``(begin, end, amount)``: seconds on the host's monotonic clock and the
amount moved between them, mostly bytes.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chaosity.runner.tool_output import ExtractionError, output_texts, parse_json_lines

Sample = tuple[float, float, float]
Series = list[Sample]

# Batches into which the samples of a run are joined before their spread is looked at: neighbours
# in time resemble each other, so single samples would give an interval that is too narrow. Ten is
# the least number that Schmeiser (Operations Research 30, 1982) found to be enough.
BATCHES = 10
# 97.5 % quantile of Student's t with BATCHES - 1 degrees of freedom.
T_QUANTILE = 2.262


def progress_series(
    spec: Mapping[str, Any], outputs: Mapping[str, str], realtime_minus_monotonic: float
) -> list[Series]:
    """The series of a finished load.

    Args:
        spec: the ``progress`` of its benchmark file.
        outputs: its raw output, by name.
        realtime_minus_monotonic: offset of the two clocks in seconds.

    Raises:
        ExtractionError: the output holds no progress of the form that the benchmark promises.
    """
    series = (
        [samples_from_events(spec, text) for text in output_texts(spec, outputs)]
        if "event" in spec
        else []
    )
    if "csv" in spec:
        series = [samples_from_rows(spec, text) for text in output_texts(spec, outputs)]
    offset = realtime_minus_monotonic if spec.get("clock") == "realtime" else 0.0
    moved = [[(b - offset, e - offset, a) for b, e, a in one] for one in series if one]
    if not moved:
        raise ExtractionError("the tool reported no progress")
    return moved


def sample_spans(
    spec: Mapping[str, Any], text: str
) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Begin and end of each sample among JSON lines, in seconds, and the whole line.

    A sample is such as ``{"event":"sample","begin_ns":..,"end_ns":..}``.
    """
    scale = float(spec.get("time_scale", 1))
    for line in parse_json_lines(text):
        if line.get("event") == spec["event"]:
            yield line[spec["begin"]] * scale, line[spec["end"]] * scale, line


def samples_from_events(spec: Mapping[str, Any], text: str) -> Series:
    """Samples from JSON lines."""
    return [
        (first, last, float(line[spec["amount"]])) for first, last, line in sample_spans(spec, text)
    ]


def samples_from_rows(spec: Mapping[str, Any], text: str) -> Series:
    """Samples from rows that hold a time of ending and the mean rate since the row before.

    The first row covers ``interval_seconds``, the averaging time that the tool was asked for.
    """
    columns = spec["csv"]
    time_scale, rate_scale = float(spec.get("time_scale", 1)), float(spec.get("rate_scale", 1))
    samples: Series = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        try:
            end = float(row[columns["end"]]) * time_scale
            rate = float(row[columns["rate"]]) * rate_scale
        except (IndexError, ValueError) as error:
            raise ExtractionError(f"a progress row is not of the promised form: {row}") from error
        begin = samples[-1][1] if samples else end - float(spec["interval_seconds"])
        if end > begin:
            samples.append((begin, end, rate * (end - begin)))
    return samples


def common_span(series: Sequence[Series]) -> tuple[float, float]:
    """The time in which every series of a load ran: latest begin, earliest end, in seconds."""
    return max(one[0][0] for one in series), min(one[-1][1] for one in series)


def rate_in_window(series: Sequence[Series], begin: float, end: float) -> float:
    """Amount a second moved between two times; samples that reach over an edge count in part."""
    if end <= begin:
        raise ExtractionError("the loads had no time in common")
    moved = sum(
        amount * max(0.0, min(last, end) - max(first, begin)) / (last - first)
        for one in series
        for first, last, amount in one
        if last > first
    )
    return moved / (end - begin)


def quantile_in_window(
    spec: Mapping[str, Any], source: Mapping[str, Any], text: str, begin: float, end: float
) -> float:
    """A quantile of what the samples counted, over those that lie within a window.

    Each sample holds how often which value was seen, e.g. ``"blocks": {"98.3": 12}``. Values are
    the centres of narrow bins, so the quantile is as fine as these.

    Args:
        spec: the ``progress`` of the benchmark file.
        source: of the metric: ``key`` names the counts, ``quantile`` is from 0 to 1.
        text: the output that holds the samples.
        begin: of the window, in seconds on the monotonic clock.
        end: of the window.

    Raises:
        ExtractionError: no sample lies within the window, or one holds no counts.
    """
    counts: Counter[float] = Counter()
    for first, last, line in sample_spans(spec, text):
        # Half a nanosecond for the rounding of times that were given in whole ones.
        if first < begin - 5e-10 or last > end + 5e-10:
            continue
        for value, number in line.get(source["key"], {}).items():
            counts[float(value)] += number
    if not counts:
        raise ExtractionError(f"no sample with {source['key']} lies within the common window")
    wanted, seen = source["quantile"] * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return max(counts)


def node_rates(
    spec: Mapping[str, Any],
    source: Mapping[str, Any],
    text: str,
    begin: float,
    end: float,
    nodes: Sequence[int],
    threads: int,
) -> dict[str, float]:
    """What a load would move a second to or from each node, had its threads nothing else to do.

    Each sample says how much was moved of each node and how long threads were at it, all threads
    added up, e.g. ``"bytes_by_node": {"0": 4096}, "ns_by_node": {"0": 512}``. Threads turn from
    node to node at different times, so the rate of one thread counts, times the threads. Samples
    that reach over an edge of the window count in part.

    Args:
        spec: the ``progress`` of the benchmark file.
        source: of the metric: ``by_node`` names amount and time.
        text: the output that holds the samples.
        begin: of the window, in seconds on the monotonic clock.
        end: of the window.
        nodes: of the target; each must have been reached.
        threads: of the load.

    Raises:
        ExtractionError: a node was not reached within the window, or a sample lacks the account.
    """
    keys, scale = source["by_node"], float(spec.get("time_scale", 1))
    inside = [one for one in sample_spans(spec, text) if min(one[1], end) > max(one[0], begin)]
    if any(keys["amount"] not in line or keys["time"] not in line for *_, line in inside):
        raise ExtractionError(f"a sample has no {keys['amount']} or no {keys['time']}")

    def a_second(key: str, node: str) -> float:
        series = [(first, last, float(line[key].get(node, 0))) for first, last, line in inside]
        return rate_in_window([series], begin, end)

    found = {}
    for node in map(str, nodes):
        spent = a_second(keys["time"], node) * scale
        if not spent > 0:
            raise ExtractionError(f"node {node} was not reached within the common window")
        found[node] = a_second(keys["amount"], node) / spent * threads
    return found


def relative_half_width(series: Sequence[Series], begin: float, end: float) -> float | None:
    """Half the width of the 95 % interval of the rate, relative to the rate, by batch means.

    None when the window holds fewer than two samples a batch, so that nothing can be said.
    """
    inside = sum(1 for one in series for first, last, _ in one if first >= begin and last <= end)
    if inside < 2 * BATCHES or end <= begin:
        return None
    step = (end - begin) / BATCHES
    means = [
        rate_in_window(series, begin + i * step, begin + (i + 1) * step) for i in range(BATCHES)
    ]
    mean = sum(means) / BATCHES
    if mean <= 0:
        return None
    variance = sum((m - mean) ** 2 for m in means) / (BATCHES - 1)
    return T_QUANTILE * math.sqrt(variance / BATCHES) / mean
