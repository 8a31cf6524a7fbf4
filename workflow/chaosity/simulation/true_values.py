"""Compute the values of metrics of loads on a simulated machine, without noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from chaosity.errors import UserError
from chaosity.records.point_types import Load, MetricSourceWithUpperBound, Point
from chaosity.simulation.access_paths import LINE_BYTES
from chaosity.simulation.machine_model import MachineModel, NoiselessLoadResult
from chaosity.simulation.simulated_loads import simulated_program

# Ratio of the 99th percentile of block times to their median on a quiet machine.
P99_OVER_MEDIAN = 1.06
# Bytes that a program moves for one element, cell or gathered value: two doubles and an index.
_ELEMENT_BYTES = 24
# Counters of the model, and the time for which they count.
_LOCAL_MISSES, _REMOTE_MISSES = "last_level_misses_local_memory", "last_level_misses_remote_memory"
COUNTED_SECONDS = 1.0

# The values of a load's metrics without noise; a metric by node has one for each node.
TrueValues = Mapping[str, float | dict[str, float]]


class UnknownMetricError(Exception):
    """The simulation has no value for a metric; the text names it."""


class UnknownProgramError(UnknownMetricError):
    """The simulation does not know how fast a program is; the text names it."""


def true_values(point: Point, model: MachineModel) -> dict[str, TrueValues]:
    """Return the value of every metric of every load without noise: ``{load: {metric: value}}``.

    A metric by node has a value for each node of the target.

    Raises:
        UnknownMetricError: the simulation has no value for a metric.
    """
    truths = model.noiseless_results(point["loads"])
    return {
        load["name"]: {
            metric: value
            for metric, source in load["metrics"].items()
            if (value := _true_value(metric, source, load, truths[load["name"]], model)) is not None
        }
        for load in point["loads"]
    }


def _true_value(
    metric: str,
    source: MetricSourceWithUpperBound,
    load: Load,
    truth: NoiselessLoadResult,
    model: MachineModel,
) -> float | dict[str, float] | None:
    """Return the value of a metric without noise; None if the load has no such value.

    Raises:
        UnknownMetricError: the simulation has no value for the metric.
    """
    devices = model.machine.get("devices")
    if "counter" in source:
        local, missed = model.own_node_and_cache_miss_shares(load)
        shares = {_LOCAL_MISSES: local, _REMOTE_MISSES: 1 - local}
        lines = truth.moved_bytes_per_second * COUNTED_SECONDS / LINE_BYTES
        return shares[source["counter"]] * missed * lines if source["counter"] in shares else None
    if "by_node" in source:
        return {str(node): rate for node, rate in truth.bytes_per_second_by_node.items()}
    if metric in ("bandwidth_bytes_per_second", "processing_throughput_bytes_per_second"):
        return truth.counted_bytes_per_second
    if metric == "traffic_bytes_per_second":
        return truth.moved_bytes_per_second
    value: float | None = getattr(truth, metric, None)
    if value is not None:  # latency_ns, read_rate_reads_per_second, ...
        return value
    if metric == "latency_p99_of_block_means_ns" and truth.latency_ns is not None:
        return truth.latency_ns * P99_OVER_MEDIAN
    if bytes_per_unit := source.get("simulated_bytes_per_unit"):
        return truth.moved_bytes_per_second / bytes_per_unit
    if metric == "elements_per_second":
        if load["kernel"] is None:
            raise UnknownProgramError(
                f"the simulation does not know how fast {load['benchmark']} is"
            )
        return truth.moved_bytes_per_second / _ELEMENT_BYTES
    if metric == "runs_per_second":
        return (
            truth.moved_bytes_per_second / load["memory_bytes"] / simulated_program(load)["moves"]
        )
    if metric == "dwp":
        return truth.dwp
    if metric == "locality":
        return model.own_node_and_cache_miss_shares(load)[0]
    if devices and metric == "device_copy_bytes_per_second":
        return devices["memory_bytes_per_second"] / 2
    if devices and metric.startswith(("host_to_device", "device_to_host")):
        return min(devices["link_bytes_per_second"], truth.moved_bytes_per_second or math.inf)
    if source.get("optional"):
        return None
    raise UnknownMetricError(f"{load['benchmark']}: the simulation has no value for {metric}")


def check_programs_can_be_simulated(points: Iterable[Point], model: MachineModel) -> None:
    """Check that the model knows the speed of every program in the plan of a simulated host.

    Raises:
        UserError: a benchmark file does not say how much memory traffic its program causes.
    """
    by_program = {
        load["benchmark"]: point
        for point in points
        for load in point["loads"]
        if "elements_per_second" in load["metrics"]
    }
    for name, point in by_program.items():
        try:
            true_values(point, model)
        except UnknownProgramError as error:
            place = f"host {point['host']}, templates/benchmarks/{name}.yaml"
            remedy = "state the memory traffic of an element as simulated_bytes_per_unit"
            raise UserError(str(error), place, remedy) from None
