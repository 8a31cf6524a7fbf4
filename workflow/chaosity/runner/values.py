"""The values of a record, computed from its raw output each time they are wanted.

With one load the value is what the tool says of its whole run, where its benchmark file points at
such a figure. With several loads it is the rate over the window in which **all** loads ran
(docs/design.md, section 5); a load that reports no progress must then have run wholly inside the
progress of all others, and its own figure counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaosity.runner import progress
from chaosity.runner.extract import ExtractionError, number

# A metric's value: one, or one for each node of the target.
Value = float | dict[str, float]


def offset(record: Mapping[str, Any]) -> float:
    """Offset of the wall clock from the monotonic clock when the point began, in seconds."""
    return record["environment_before"]["realtime_minus_monotonic_seconds"]


def all_series(record: Mapping[str, Any]) -> dict[str, list[progress.Series]]:
    """Progress of each load that reports it, by the load's name."""
    return {
        load["name"]: progress.read(load["progress"], load["outputs"], offset(record))
        for load in record["loads"]
        if load["progress"]
    }


def window(
    record: Mapping[str, Any], series: Mapping[str, list[progress.Series]]
) -> tuple[float, float] | None:
    """Begin and end of the time in which all loads ran; None when no load reports progress.

    Raises:
        ExtractionError: a load without progress ran outside the progress of another.
    """
    spans = {name: progress.span(one) for name, one in series.items()}
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


def each(value: Value) -> dict[str | None, float]:
    """The figures of a value, by the node that each is of; None for the load as a whole."""
    return dict(value) if isinstance(value, dict) else {None: value}


def of_record(record: Mapping[str, Any]) -> dict[str, dict[str, Value]]:
    """Value of every metric of every load, SI units: ``{load: {metric: value}}``.

    A metric by node has a value for each node of its target: ``{load: {metric: {node: value}}}``.

    Raises:
        ExtractionError: the raw output does not hold what the benchmark file promises.
    """
    series = all_series(record)
    common = window(record, series) if len(record["loads"]) > 1 else None
    found: dict[str, dict[str, Value]] = {}
    for load in record["loads"]:
        name = load["name"]
        found[name] = {}
        for metric, source in load["metrics"].items():
            whole = source.get("progress") is not True
            if "by_node" in source:
                begin, end = common or progress.span(series[name])
                found[name][metric] = progress.by_node(
                    load["progress"],
                    source,
                    load["outputs"]["stdout"],
                    begin,
                    end,
                    load["target"]["nodes"],
                    load["initiator"]["threads"],
                )
            elif "quantile" in source:
                begin, end = common or progress.span(series[name])
                output = load["outputs"]["stdout"]
                found[name][metric] = progress.quantile(
                    load["progress"], source, output, begin, end
                )
            elif name in series and (common is not None or not whole):
                begin, end = common or progress.span(series[name])
                found[name][metric] = progress.rate(series[name], begin, end)
            else:
                found[name][metric] = number(source, load["outputs"])
    return found
