"""Make the record of a point on a simulated machine, in the format of measured records.

The raw output is what the benchmark's tool would print. The same code as for measured records
computes values and checks from the output. Time is virtual: the time stamps say how long the
measurement would have taken.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.documents.machines import MachineDescription
from chaosity.errors import UserError
from chaosity.records.record_files import (
    SCHEMA_VERSION,
    current_record_path,
    is_measured,
    read_regular_file,
    replicate_numbers,
    save_record,
    utc_now_text,
)
from chaosity.records.record_format import (
    SIMULATED,
    Check,
    CounterResult,
    EventCount,
    HostState,
    Load,
    LoadRecord,
    Point,
    Record,
    UnfinishedRecord,
    make_check,
    make_verdict,
)
from chaosity.runner.point_measurement import memory_shares_by_node
from chaosity.runner.record_checks import check_record
from chaosity.simulation.machine_description import MACHINE_FILE
from chaosity.simulation.machine_model import (
    COUNTED_SECONDS,
    P99_OVER_MEDIAN,
    MachineModel,
    TrueValues,
    UnknownMetricError,
    true_values,
)
from chaosity.simulation.tool_output_from_values import OutputWriter
from chaosity.topology.topology_model import read_topology

# Number of points that a process simulates before it takes the next points.
_POINTS_AT_ONCE = 100
TRUTH_COLUMNS = ["host", "configuration", "experiment", "point", "load", "metric", "node", "value"]
# Number of samples of a load, a few more than the runner's stopping rule needs for an interval.
SAMPLES = 24
# Virtual time at which each measurement begins, in seconds since boot.
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
        if not is_measured(folder, point, replicate):
            file = current_record_path(point["experiment"], point["point"], replicate)
            save_record(simulate_replicate(point, replicate, model), folder / file)
            written += 1
    return written


def true_value_rows(folder: Path, points: Sequence[Point]) -> Iterator[tuple[object, ...]]:
    """Yield the true value of each metric of each load, in the order of `TRUTH_COLUMNS`."""
    for point in points:
        place = point["host"], point["configuration"], point["experiment"], point["point"]
        for load, values in true_values(point, _open_once(folder, point["host"])).items():
            for metric, value in values.items():
                by_node = value if isinstance(value, dict) else {"": value}
                yield from ((*place, load, metric, node, each) for node, each in by_node.items())


@cache
def _open_once(folder: Path, host: str) -> MachineModel:
    """Return the model of a simulated host; cached, since opening takes longer than a record."""
    return open_machine_model(folder, host)


def simulate_replicate(point: Point, replicate: int, model: MachineModel) -> Record:
    """Return the record of one replicate of a point; the same arguments give the same values."""
    record: UnfinishedRecord = {
        "schema_version": SCHEMA_VERSION,
        "origin": SIMULATED,
        "point": point,
        "replicate": replicate,
        "order": point["orders"][replicate - 1],
        "stopping": point["stopping"],
        "began_at": utc_now_text(),
        "measured_on": f"simulated machine {model.machine['simulated_machine']}",
        "loads": [],
    }
    checks: list[Check] = [make_check("simulated", True, "no machine was measured")]
    try:
        _simulate_loads(record, model)
        checks += check_record(record)
    except UnknownMetricError as error:
        checks.append(make_check("measured", False, str(error)))
    return {**record, "finished_at": utc_now_text(), "verdict": make_verdict(checks)}


@dataclass(frozen=True)
class RunNoise:
    """The noise of one replicate of a point."""

    lost: float  # share of the rates that other programs take in a disturbed replicate, else 0
    qualities: list[float]  # factor of each load's rates; times are divided by it
    samples: list[list[float]]  # further factors of each load, one for the rate in each sample


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
        drawn.samples.append([math.exp(chance.gauss(0, within)) for _ in range(SAMPLES)])
    return drawn


def _simulate_loads(record: UnfinishedRecord, model: MachineModel) -> None:
    """Write the loads of a record, and the host's state before and after."""
    point = record["point"]
    noise = draw_noise(point, record["replicate"], model.machine)
    seconds = max(point["stopping"]["min_seconds"], 0.2)
    values = true_values(point, model)
    record["environment_before"] = _host_state(_BEGIN_SECONDS - 1)
    drawn = zip(point["loads"], noise.qualities, noise.samples, strict=True)
    for load, quality, factors in drawn:
        outputs = _raw_outputs(load, values[load["name"]], quality, factors, seconds)
        counted = _counted(load, values[load["name"]], quality)
        record["loads"].append(_load_record(load, outputs, seconds, counted))
    ended = _host_state(_BEGIN_SECONDS + seconds + 1)
    cpus = [load["placement"]["cpus"] for load in point["loads"]]
    units = {unit for listed in cpus for unit in parse_cpu_list(listed)}
    # Other programs disturb the host all the time, not only while the load runs.
    busy = (seconds + 2) * len(units) * noise.lost
    own = sum(load["processor_seconds"] for load in record["loads"])
    ended["processor_seconds"]["user"] += own + busy
    record["environment_after"] = ended
    record["runner_seconds"] = 0.0


def _host_state(monotonic: float) -> HostState:
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
    """Return the load's part of the record, as a real run would have written it."""
    placement = load["placement"]
    # A load without progress runs while all other loads run.
    margin = 0.0 if load["progress"] else seconds / SAMPLES
    units = parse_cpu_list(placement["cpus"])
    pages = {
        str(node): round(load["memory_bytes"] * share)
        for node, share in memory_shares_by_node(placement).items()
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


def _counted(load: Load, values: TrueValues, quality: float) -> dict[str, CounterResult]:
    """Return the counts of a load's counters, or a reason for counters that the model lacks."""
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
    writer = OutputWriter(load)
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
    step = seconds / SAMPLES
    begins = [_BEGIN_SECONDS + number * step for number in range(SAMPLES)]
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
    """Return the keys of a sample besides its times: block times, or amount and time by node."""
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
            # Of 100 blocks, two take as long as the 99th percentile.
            details[source["key"]] = {f"{latency:.6g}": 98, f"{latency * P99_OVER_MEDIAN:.6g}": 2}
    return details
