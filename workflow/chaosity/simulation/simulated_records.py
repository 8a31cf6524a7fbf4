"""Make the record of a point on a simulated machine, in the format of measured records.

This module is the inverse of `runner.tool_output` and `runner.metric_values`. The benchmark file
says where each value is in the tool's output, so the same file says where to write the value. So no
code in this module belongs to a single tool.

The raw output has the form in which the benchmark's tool prints. The code for measured records
computes values and checks from the simulated output. Time is virtual: the time stamps of a record
say how long the measurement would have taken.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # typeshed lacks both
from typing import Any, cast

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.documents.machines import MachineDescription
from chaosity.errors import UserError
from chaosity.records.record_files import (
    begin_record,
    current_record_path,
    finish_record,
    has_valid_record,
    read_regular_file,
    replicate_numbers,
    save_record,
)
from chaosity.records.record_format import (
    SIMULATED,
    Check,
    CounterResult,
    EventCount,
    HostState,
    Load,
    LoadRecord,
    OutputValueSource,
    Point,
    Record,
    UnfinishedRecord,
    make_check,
    point_key,
)
from chaosity.runner.metric_values import Samples
from chaosity.runner.record_checks import check_record
from chaosity.runner.tool_output import json_path_steps
from chaosity.simulation.machine_description import MACHINE_FILE
from chaosity.simulation.machine_model import (
    COUNTED_SECONDS,
    P99_OVER_MEDIAN,
    MachineModel,
    TrueValues,
    UnknownMetricError,
    true_values,
)
from chaosity.simulation.simulated_loads import page_shares_by_node
from chaosity.topology.topology_model import read_topology

# Character class of a pattern -> the text that is written for it.
_TEXT_OF_CHARACTER_CLASS = {
    _constants.CATEGORY_SPACE: " ",
    _constants.CATEGORY_DIGIT: "1",
    _constants.CATEGORY_WORD: "a",
}


class _OutputWriter:
    """Collects the values of a load's output, and writes this output in the form of the tool.

    Each `OutputValueSource` of the load says where a value is in the output.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self._events: dict[str, dict[str, dict[str, Any]]] = {}
        self._documents: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._samples: list[dict[str, Any]] = []
        self._items = max(1, len(load["target"]["drives"]))

    def put_value(self, source: OutputValueSource, value: Any) -> None:
        """Write a value to the place from which a source reads it.

        The value is in SI units, or a text. A number is converted to the unit that the tool prints.
        """
        name = source.get("in", "stdout")
        if isinstance(value, float):
            if "amount" in source:
                value = float(source["amount"]) / value
            value /= float(source.get("scale", 1))
        if "event" in source:
            self._events.setdefault(name, {}).setdefault(source["event"], {})[source["key"]] = value
        elif "json" in source:
            if isinstance(value, float) and source.get("combine") == "sum":
                value /= self._items if "[*]" in source["json"] else 1
            steps = json_path_steps(source["json"])
            self._documents[name] = self._with_value(self._documents.get(name), steps, value)
        else:
            self._texts.setdefault(name, []).append(
                text_with_value_as_first_group(source["regex"], str(value))
            )

    def _with_value(self, document: Any, steps: Sequence[str], value: Any) -> Any:
        """Return a JSON document with a value at the path `steps`, in lists once per drive."""
        if not steps:
            return value
        step, rest = steps[0], steps[1:]
        if step == "[*]":
            items = document or [None] * self._items
            return [self._with_value(item, rest, value) for item in items]
        if step.isdigit():
            items = (document or []) + [None] * (int(step) + 1 - len(document or []))
            items[int(step)] = self._with_value(items[int(step)], rest, value)
            return items
        return {**(document or {}), step: self._with_value((document or {}).get(step), rest, value)}

    def put_progress_samples(
        self, samples: Samples, details: Mapping[str, Any], realtime_minus_monotonic: float
    ) -> None:
        """Write the progress of the load.

        `samples` are the begin and end (in seconds on the monotonic clock) and the amount of each
        sample. `details` are other keys of each sample. `realtime_minus_monotonic` is in seconds.
        """
        source = self.load["progress"]
        if source is None:
            return
        scale = float(source.get("time_scale", 1))
        offset = realtime_minus_monotonic if source.get("clock") == "realtime" else 0.0
        # fio writes a file for each drive, and a row for each interval.
        if columns := source.get("csv"):
            unit = float(source.get("rate_scale", 1)) * self._items
            rows = []
            for begin, end, amount in samples:
                row = [0] * (1 + max(columns["end"], columns["rate"]))
                row[columns["end"]] = round((end + offset) / scale)
                row[columns["rate"]] = round(amount / (end - begin) / unit)
                rows.append(", ".join(map(str, row)))
            for item in range(self._items):
                self._texts[source.get("in", "stdout").replace("*", str(item + 1))] = rows
            return
        self._samples = [
            {
                "event": source["event"],
                source["begin"]: round((begin + offset) / scale),
                source["end"]: round((end + offset) / scale),
                source["amount"]: amount,
                **details,
            }
            for begin, end, amount in samples
        ]

    def outputs(self) -> dict[str, str]:
        """Return name -> raw output of the load."""
        progress = self.load["progress"] or {}
        texts = {"stdout": "", "stderr": ""}
        for name in {*self._events, *([progress.get("in", "stdout")] if self._samples else [])}:
            lines = [{"event": event, **keys} for event, keys in self._events.get(name, {}).items()]
            if name == progress.get("in", "stdout"):
                lines[1:1] = self._samples
            texts[name] = "".join(json.dumps(line) + "\n" for line in lines)
        for name, document in self._documents.items():
            texts[name] = json.dumps(document) + "\n"
        for name, parts in self._texts.items():
            texts[name] = texts.get(name, "") + "".join(f"{part}\n" for part in parts)
        return texts


def text_with_value_as_first_group(pattern: str, value: str) -> str:
    """Return a text that matches a pattern, and whose first group is `value`."""
    return _text_of_tokens(_parser.parse(pattern, re.MULTILINE), value)


def _text_of_tokens(tokens: Any, value: str) -> str:
    """Return the shortest text that matches a parsed regular expression; group 1 is `value`."""
    text = ""
    for kind, argument in tokens:
        if kind is _constants.LITERAL:
            text += chr(argument)
        elif kind is _constants.SUBPATTERN:
            text += value if argument[0] == 1 else _text_of_tokens(argument[3], value)
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            text += _text_of_tokens(argument[2], value) * argument[0]
        elif kind is _constants.IN:
            text += _text_of_tokens(argument[:1], value)
        elif kind is _constants.CATEGORY:
            text += _TEXT_OF_CHARACTER_CLASS[argument]
        elif kind is _constants.RANGE:
            text += chr(argument[0])
        elif kind is _constants.BRANCH:
            text += _text_of_tokens(argument[1][0], value)
        elif kind is _constants.ANY:
            text += "x"
    return text


# Number of points that a process simulates before it takes the next points.
_POINTS_AT_ONCE = 100
TRUTH_COLUMNS = ["host", "configuration", "experiment", "point", "load", "metric", "node", "value"]
# Number of samples of a load: a few more than the stopping rule of the runner needs for an
# interval.
SAMPLES_PER_LOAD = 24
# Virtual time at which each measurement begins, in seconds since the boot of the host.
_BEGIN_SECONDS = 1000.0
_REALTIME_MINUS_MONOTONIC = 1.6e9


def open_machine_model(folder: Path, host: str) -> MachineModel:
    """Return the model of a simulated host with its present faults.

    `folder` is ``results/<host>/<configuration>``, with the files that discovery wrote.

    Raises:
        UserError: the host has not been discovered.
    """
    topology, machine = read_topology(folder / "topology.json"), folder / MACHINE_FILE
    if topology is None or not machine.exists():
        raise UserError("the folder has no simulated machine", str(folder), "run snakemake")
    description = json.loads(read_regular_file(machine))
    return MachineModel(description, topology, host, datetime.now(UTC).date())


def simulate_host(folder: Path, points: Sequence[Point]) -> int:
    """Write the missing records of a simulated host and return their number.

    `folder` is ``results/<host>/<configuration>``.

    Raises:
        UserError: the host has not been discovered.
    """
    with ProcessPoolExecutor() as pool:
        return sum(pool.map(partial(_simulate_point, folder), points, chunksize=_POINTS_AT_ONCE))


def _simulate_point(folder: Path, point: Point) -> int:
    """Write the missing records of a point and return their number."""
    model, written = _open_once(folder, point["host"]), 0
    for replicate in replicate_numbers(point):
        if not has_valid_record(folder, point, replicate):
            file = current_record_path(*point_key(point), replicate)
            save_record(simulate_replicate(point, replicate, model), folder / file)
            written += 1
    return written


def true_value_rows(folder: Path, points: Sequence[Point]) -> Iterator[tuple[object, ...]]:
    """Yield the true value of each metric of each load, in the order of `TRUTH_COLUMNS`."""
    for point in points:
        place = point["host"], point["configuration"], *point_key(point)
        for load, values in true_values(point, _open_once(folder, point["host"])).items():
            for metric, value in values.items():
                by_node = value if isinstance(value, dict) else {"": value}
                yield from ((*place, load, metric, node, each) for node, each in by_node.items())


@cache
def _open_once(folder: Path, host: str) -> MachineModel:
    """Return the model of a simulated host; cached, since opening it takes longer than a record."""
    return open_machine_model(folder, host)


def simulate_replicate(point: Point, replicate: int, model: MachineModel) -> Record:
    """Return the record of one replicate of a point; the same arguments give the same values."""
    record = begin_record(
        point, replicate, f"simulated machine {model.machine['simulated_machine']}"
    )
    record["origin"] = SIMULATED
    checks: list[Check] = [make_check("simulated", True, "no machine was measured")]
    try:
        _simulate_loads(record, model)
        checks += check_record(record)
    except UnknownMetricError as error:
        checks.append(make_check("measured", False, str(error)))
    return finish_record(record, checks)


@dataclass(frozen=True)
class RunNoise:
    """The noise of one replicate of a point."""

    lost: float  # share of the load's rates that other programs take; 0 in an undisturbed replicate
    # For each load: factor of its rates; its times are divided by the same factor.
    qualities: list[float]
    samples: list[list[float]]  # for each load: a second factor for the rate in each of its samples


def draw_noise(point: Point, replicate: int, machine: MachineDescription) -> RunNoise:
    """Return the noise of one replicate (1, 2, ...); the same arguments give the same noise."""
    noise = machine.get("noise", {})
    chance = random.Random(
        f"{machine.get('seed', 0)} {point['host']} {point['experiment']} {point['point']}"
        f" {replicate}"
    )
    disturbed = chance.random() < noise.get("disturbed_runs", 0.0)
    lost = noise.get("disturbed_loss", 0.0) if disturbed else 0.0
    order = point["orders"][replicate - 1]
    drift = 1 + noise.get("drift", 0.0) * order / (1 + max(point["orders"]))
    between, within = noise.get("between_runs", 0.0), noise.get("within_runs", 0.0)
    drawn = RunNoise(lost, [], [])
    for _ in point["loads"]:
        drawn.qualities.append(drift * math.exp(chance.gauss(0, between)) * (1 - lost))
        drawn.samples.append([math.exp(chance.gauss(0, within)) for _ in range(SAMPLES_PER_LOAD)])
    return drawn


def _simulate_loads(record: UnfinishedRecord, model: MachineModel) -> None:
    """Write the loads of a record, and the host's state before and after."""
    point = record["point"]
    noise = draw_noise(point, record["replicate"], model.machine)
    seconds = max(point["stopping"]["min_seconds"], 0.2)
    values = true_values(point, model)
    record["environment_before"] = _simulated_host_state(_BEGIN_SECONDS - 1)
    drawn = zip(point["loads"], noise.qualities, noise.samples, strict=True)
    for load, quality, factors in drawn:
        outputs = _raw_outputs(load, values[load["name"]], quality, factors, seconds)
        counted = _counts_of_load(load, values[load["name"]], quality)
        record["loads"].append(_load_record(load, outputs, seconds, counted))
    ended = _simulated_host_state(_BEGIN_SECONDS + seconds + 1)
    cpus = [load["placement"]["cpus"] for load in point["loads"]]
    units = {unit for listed in cpus for unit in parse_cpu_list(listed)}
    # Other programs disturb the host during the complete measurement, not only while the load runs.
    busy = (seconds + 2) * len(units) * noise.lost
    own = sum(load["processor_seconds"] for load in record["loads"])
    ended["processor_seconds"]["user"] += own + busy
    record["environment_after"] = ended
    record["runner_seconds"] = 0.0


def _simulated_host_state(monotonic: float) -> HostState:
    """Return the state of a simulated host at a virtual time in seconds."""
    return {
        "taken_monotonic_seconds": monotonic,
        "realtime_minus_monotonic_seconds": _REALTIME_MINUS_MONOTONIC,
        "processor_seconds": {"user": 0.0, "system": 0.0, "idle": 0.0, "steal": 0.0},
        "facts": {},
        "kernel": "simulated",
    }


def _load_record(
    load: Load, outputs: dict[str, str], seconds: float, counted: dict[str, CounterResult]
) -> LoadRecord:
    """Return the part of a record that describes a load, in the form that a real run writes."""
    placement = load["placement"]
    # A load that reports no progress runs only while all other loads run.
    margin = 0.0 if load["progress"] else seconds / SAMPLES_PER_LOAD
    units = parse_cpu_list(placement["cpus"])
    pages = {
        str(node): round(load["memory_bytes"] * share)
        for node, share in page_shares_by_node(load).items()
    }
    return {
        **load,
        "program": {"name": load["needs"]["program"], "path": None, "version": "simulated"},
        "began_monotonic_seconds": _BEGIN_SECONDS + margin,
        "ended_monotonic_seconds": _BEGIN_SECONDS + seconds - margin,
        "processor_seconds": seconds * len(units),
        "exit_status": 0,
        "signalled": None,
        "placement_seen": {
            "threads": [
                {"tid": unit, "cpus_allowed": format_cpu_list([unit]), "last_cpu": unit}
                for unit in units
            ],
            "memory_bytes_by_node": pages,
        },
        "outputs": outputs,
        "clock": {"hertz": None, "reason": "simulated"},
        "counted": counted,
    }


def _counts_of_load(load: Load, values: TrueValues, quality: float) -> dict[str, CounterResult]:
    """Return the count of each counter of a load, or the reason why the model lacks the counter."""
    counted: dict[str, CounterResult] = {
        name: {"reason": "simulated"} for name in load.get("counters", {})
    }
    nanoseconds = round(COUNTED_SECONDS * 1e9)
    for metric, value in values.items():
        name = load["metrics"][metric].get("counter")
        if name is not None and isinstance(value, float):
            times = {"time_enabled_ns": nanoseconds, "time_running_ns": nanoseconds}
            event = {"cpu": min(parse_cpu_list(load["placement"]["cpus"])), "type": 0, "config": 0}
            count = {**event, "count": round(value * quality), **times}
            counted[name] = {"counts": [cast(EventCount, count)]}
    return counted


def _raw_outputs(
    load: Load,
    values: TrueValues,
    quality: float,
    factors: Sequence[float],
    seconds: float,
) -> dict[str, str]:
    """Return name -> raw output of a load."""
    writer = _OutputWriter(load)
    for rule in load["valid"]:
        if "equals" in rule:
            writer.put_value(rule, rule["equals"])
        elif "one_of" in rule:
            writer.put_value(rule, rule["one_of"][0])
        else:
            writer.put_value(rule, rule.get("at_least", 0))
    rate = 0.0
    latency = None
    for metric, value in values.items():
        source = load["metrics"][metric]
        if "counter" in source:
            continue
        if isinstance(value, dict):
            rate = sum(value.values()) / len(value) * quality
        elif "quantile" in source:
            if source["quantile"] == 0.5:
                latency = value / quality
        elif source.get("progress"):
            rate = value * quality
        else:
            factor = 1 / quality if metric.endswith("_ns") else quality
            noisy = value if metric in ("locality", "dwp") else value * factor
            writer.put_value(source, noisy)
            rate = rate or noisy
    amount = rate if latency is None else 1e9 / latency
    step = seconds / SAMPLES_PER_LOAD
    begins = [_BEGIN_SECONDS + number * step for number in range(SAMPLES_PER_LOAD)]
    series = [
        (begin, begin + step, amount * step * factor)
        for begin, factor in zip(begins, factors, strict=True)
    ]
    writer.put_progress_samples(
        series, _sample_details(load, values, latency, quality, step), _REALTIME_MINUS_MONOTONIC
    )
    return writer.outputs()


def _sample_details(
    load: Load,
    values: TrueValues,
    latency: float | None,
    quality: float,
    seconds: float,
) -> dict[str, Any]:
    """Return the keys of a sample except its times: block times, or amount and time by node."""
    details: dict[str, Any] = {}
    for metric, value in values.items():
        source = load["metrics"][metric]
        if isinstance(value, dict):
            # The threads spend the same time on each node.
            each, keys = seconds / len(value), source["by_node"]
            amounts = {node: round(rate * quality * each) for node, rate in value.items()}
            details[keys["amount"]] = amounts
            details[keys["time"]] = dict.fromkeys(
                value, round(each * 1e9 * load["initiator"]["threads"])
            )
        elif "quantile" in source and latency is not None:
            # Of 100 blocks, two take the time of the 99th percentile.
            details[source["key"]] = {f"{latency:.6g}": 98, f"{latency * P99_OVER_MEDIAN:.6g}": 2}
    return details
