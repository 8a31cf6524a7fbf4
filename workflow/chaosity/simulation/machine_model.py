"""Model of a simulated machine: the rates, latencies and metrics of a point's loads without noise.

Every part on the path of an access is a resource with a capacity: a core, an L3 domain, the link
between two nodes or packages, the memory controllers of a node, a drive, its PCI link. The loads of
a point are flows over these resources, and their rates are max-min fair, so interference follows
from the paths. Latency is the latency without other traffic plus the time in the queues of busy
resources. docs/explanation/simulated-machine.md explains the model and names its sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from chaosity.documents.machines import MachineDescription
from chaosity.errors import UserError
from chaosity.records.record_format import Load, MetricSourceWithUpperBound, Point
from chaosity.simulation.access_paths import (
    LINE_BYTES,
    AccessPaths,
    Flow,
    FlowRatesAndUtilisation,
    max_min_fair_rates,
)
from chaosity.simulation.machine_description import (
    HitShares,
    IdleMachine,
    current_faults,
    missed_share,
    resource_capacities,
)
from chaosity.simulation.simulated_loads import (
    begins_with_placement_search,
    block_bytes,
    page_shares_by_node,
    processing_units,
    processing_units_of_load,
    read_written_and_counted_shares,
    share_of_peak_rate,
    shared_access_share,
    shares_work,
    simulated_program,
    with_data_to_worker_proximity,
)
from chaosity.topology.topology_model import Topology

# Utilisation of a resource above which its queue grows no further, since each core has few accesses
# in flight.
_MOST_UTILISATION_OF_QUEUE = 0.97


@dataclass
class NoiselessLoadResult:
    """The rates and latency of a load without noise."""

    moved_bytes_per_second: float = 0.0  # bytes per second that memory or drives move for the load
    # Bytes per second that the program counts; STREAM does not count fetches.
    counted_bytes_per_second: float = 0.0
    # Time of one dependent access or transfer; None for other loads.
    latency_ns: float | None = None
    # Node -> rate to this node of the target, while the load accesses all nodes of the target.
    bytes_per_second_by_node: dict[int, float] = field(default_factory=dict)
    # Data-to-worker proximity that the load's search finds; None without a search.
    dwp: float | None = None
    # Random reads of drives per second; None for other loads.
    read_rate_reads_per_second: float | None = None
    # completion_latency_ns, completion_latency_p99_ns: median and 99th percentile of the time of a
    # random read; None for other loads.
    completion_latency_ns: float | None = None
    completion_latency_p99_ns: float | None = None
    # How full each resource with a limit is while all loads run, 0 to 1.
    utilisation: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Routes:
    """How loads use the parts of a machine while all loads of a point run.

    Routes depend on the speed of cores and drives, and not on the capacities of resources that
    loads share.
    """

    # Name of each load -> its hits in caches; empty for loads on drives.
    hits: Mapping[str, HitShares]
    flows: list[Flow]  # the flows of all loads, in their order


class MachineModel:
    """Rates and latencies of loads on a simulated machine.

    A fault can affect only one of several hosts, and begin on a date.
    """

    def __init__(
        self, machine: MachineDescription, topology: Topology, host: str, today: date
    ) -> None:
        self.machine, self.topology = machine, topology
        faults = current_faults(machine, host, today)
        self.capacities = resource_capacities(machine, topology, faults)
        self._idle = IdleMachine(machine, topology, faults)
        self._paths = AccessPaths(self._idle, self.capacities, faults)

    def noiseless_results(self, loads: list[Load]) -> dict[str, NoiselessLoadResult]:
        """Return name of each load -> its rates and latency while all loads run.

        If a load searches for a placement, all steps of data-to-worker proximity are tried, and the
        result is that of the fastest step.
        """
        searched = [load for load in loads if begins_with_placement_search(load)]
        if not searched:
            return self.results_on(self.routes(loads), loads)
        [load], tried = searched, []
        for tenths in range(11):
            moved = with_data_to_worker_proximity(load, tenths / 10)
            now = [moved if each is load else each for each in loads]
            results = self.results_on(self.routes(now), now)
            results[load["name"]].dwp = tenths / 10
            tried.append(results)
        return max(tried, key=lambda results: results[load["name"]].moved_bytes_per_second)

    def routes(self, loads: list[Load]) -> Routes:
        """Return the routes of all loads of a point through the machine."""
        hits = {
            load["name"]: [] if load["target"]["drives"] else self._idle.hit_shares(load, loads)
            for load in loads
        }
        found = (self._paths.flows_of_load(load, hits[load["name"]]) for load in loads)
        return Routes(hits, [flow for own in found for flow in own])

    def results_on(self, routes: Routes, loads: list[Load]) -> dict[str, NoiselessLoadResult]:
        """Return name of each load -> its rates and latency, without a search for a placement.

        `routes` can be from another model of which only the capacities of shared resources differ.
        """
        flows, free = self.flow_rates(routes, loads)
        results = {}
        for load in loads:
            results[load["name"]] = self._result_of_load(
                load, routes.hits[load["name"]], flows, free
            )
            if (latency := results[load["name"]].latency_ns) is not None:
                wait = self._idle.wait_beside_other_l3_domains_ns(load, loads)
                results[load["name"]].latency_ns = latency + wait
        return results

    def flow_rates(
        self, routes: Routes, loads: Sequence[Load]
    ) -> tuple[list[Flow], FlowRatesAndUtilisation]:
        """Return the flows of loads, limited as their programs require, and the rates of flows."""
        for load in loads:
            self._paths.add_capacities_of_stand_in_files(load)
        flows = routes.flows
        free = max_min_fair_rates(flows, self.capacities)
        if any(share_of_peak_rate(load) < 1 or shares_work(load) for load in loads):
            flows = _limited_by_programs(loads, flows, free.rates)
            free = max_min_fair_rates(flows, self.capacities)
        return flows, free

    def _result_of_load(
        self, load: Load, hits: HitShares, flows: list[Flow], fair: FlowRatesAndUtilisation
    ) -> NoiselessLoadResult:
        """Return a load's rates and latency at the given rates of the flows."""
        rates = [
            rate for flow, rate in zip(flows, fair.rates, strict=True) if flow.load == load["name"]
        ]
        moved = sum(rates)
        counted = 1.0 if load["target"]["drives"] else read_written_and_counted_shares(load)[2]
        truth = NoiselessLoadResult(moved, moved * counted, utilisation=fair.utilisation)
        others = processing_units(load["placement"]["cpus"]) - processing_units_of_load(load)
        if others:
            truth.latency_ns = self._idle.core_to_core_transfer_ns(load, min(others))
        elif "latency_ns" in load["metrics"]:
            truth.latency_ns = self._access_ns(load, hits, fair)
        elif self._paths.reads_at_random(load):
            idle = [self._idle.random_read_ns(load, drive) for drive in load["target"]["drives"]]
            # Little's law gives the mean time of a random read. The time in the queue (M/M/1) has
            # an exponential distribution.
            waiting = load["memory_bytes"] / moved * 1e9 - sum(idle) / len(idle)
            truth.read_rate_reads_per_second = moved / block_bytes(load)
            truth.completion_latency_ns, truth.completion_latency_p99_ns = (
                sum(idle) / len(idle) + max(0.0, waiting) * math.log(times) for times in (2, 100)
            )
        elif "by_node" in load["target"]:
            # Threads visit the nodes in turn, so the rate to a node is the rate of all threads
            # together.
            for node in load["target"]["nodes"]:
                alone = [*self._paths.memory_flows(load, hits, {node: 1.0})]
                rate = sum(max_min_fair_rates(alone, self.capacities).rates)
                truth.bytes_per_second_by_node[node] = rate
        return truth

    def _access_ns(self, load: Load, hits: HitShares, fair: FlowRatesAndUtilisation) -> float:
        """Return the latency of dependent accesses while other loads use the machine, in ns."""
        queue = self.machine["latency_ns"].get("queue", 0.0)
        unit = min(processing_units_of_load(load))
        waiting = 0.0
        for node, share in page_shares_by_node(load).items():
            # If the memory of a node is in several packages, only a part of the accesses uses a
            # link.
            for name, part in self._paths.memory_uses(unit, node, 1.0, 0.0).items():
                full = min(fair.utilisation.get(name, 0.0), _MOST_UTILISATION_OF_QUEUE)
                waiting += share * part * queue * full / (1 - full)  # time in the queue (M/M/1)
        return self._idle.access_ns(load, hits) + missed_share(hits) * waiting

    def own_node_share(self, load: Load) -> float:
        """Return the share of a load's accesses that are to the core's own node."""
        pages, units = page_shares_by_node(load), processing_units_of_load(load)
        shares = ((self._idle.node_of(u), self._paths.access_shares(load, u, pages)) for u in units)
        return sum(own.get(node, 0.0) for node, own in shares) / len(units)

    def miss_share_by_counter(self, load: Load) -> Mapping[str, float]:
        """Return counter -> share of a load's accesses that the counter counts as cache misses."""
        pages, units = page_shares_by_node(load), processing_units_of_load(load)
        near = sum(pages.get(self._idle.node_of(unit), 0.0) for unit in units) / len(units)
        shared = shared_access_share(load)
        # A cache line that is in a cache of another node is read from this cache, not from memory.
        held = self._idle.share_in_other_nodes_l3(load)
        shares = {
            _LOCAL_MISSES: 1 - shared + shared * near * (1 - held),
            _REMOTE_MISSES: shared * (1 - near) * (1 - held),
            _COUNTER_OF_REMOTE_CACHE_HITS: shared * held,
        }
        missed = missed_share(self._idle.hit_shares(load, [load]))
        return {counter: share * missed for counter, share in shares.items()}


def _limited_by_programs(
    loads: Sequence[Load], flows: Sequence[Flow], rates: Sequence[float]
) -> list[Flow]:
    """Return the flows, with limits for programs that use less than the possible rates."""
    slowest: dict[str, float] = {}
    for flow, rate in zip(flows, rates, strict=True):
        slowest[flow.load] = min(rate, slowest.get(flow.load, rate))
    # The program that makes limited traffic first finds its peak rate, then keeps to a share of
    # this peak.
    share = {load["name"]: share_of_peak_rate(load) for load in loads}
    waiting = {load["name"] for load in loads if shares_work(load)}
    limits = (
        share[flow.load] * (slowest[flow.load] if flow.load in waiting else rate)
        if flow.load in waiting or share[flow.load] < 1
        else flow.limit  # loads without a limit also get the rates that other loads leave
        for flow, rate in zip(flows, rates, strict=True)
    )
    return [replace(flow, limit=limit) for flow, limit in zip(flows, limits, strict=True)]


# Ratio of the 99th percentile of block times to the median block time, on a machine without other
# traffic.
P99_OVER_MEDIAN = 1.06
# Bytes that a program moves for one element, cell or gathered value: two doubles and an index.
_BYTES_MOVED_PER_ELEMENT = 24
# Names of the counters for which the model has values, and the time in seconds in which they count.
_LOCAL_MISSES, _REMOTE_MISSES = "last_level_misses_local_memory", "last_level_misses_remote_memory"
_COUNTER_OF_REMOTE_CACHE_HITS = "last_level_misses_remote_cache"
COUNTED_SECONDS = 1.0

# Metric of a load -> its value without noise; a metric by node has a value for each node.
TrueValues = Mapping[str, float | dict[str, float]]


class UnknownMetricError(Exception):
    """The simulation has no value for a metric; the text names the metric."""


class UnknownProgramError(UnknownMetricError):
    """The simulation does not know the speed of a program; the text names the program."""


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
    """Return the value of a metric without noise; None if the load has no value for this metric."""
    devices = model.machine.get("devices")
    if "counter" in source:
        lines = truth.moved_bytes_per_second * COUNTED_SECONDS / LINE_BYTES
        share = model.miss_share_by_counter(load).get(source["counter"])
        return None if share is None else share * lines
    if "by_node" in source:
        return {str(node): rate for node, rate in truth.bytes_per_second_by_node.items()}
    if metric in ("bandwidth_bytes_per_second", "processing_throughput_bytes_per_second"):
        return truth.counted_bytes_per_second
    if metric == "traffic_bytes_per_second":
        return truth.moved_bytes_per_second
    value: float | None = getattr(truth, metric, None)
    if value is not None:  # the metric has the name of a field, such as latency_ns
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
        return truth.moved_bytes_per_second / _BYTES_MOVED_PER_ELEMENT
    if metric == "runs_per_second":
        return (
            truth.moved_bytes_per_second / load["memory_bytes"] / simulated_program(load)["moves"]
        )
    if metric == "dwp":
        return truth.dwp
    if metric == "locality":
        return model.own_node_share(load)
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
