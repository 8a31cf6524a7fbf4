"""Does `chaosity advise` name the best place, and how much does a program gain over usual choices?

Each machine is fitted to the simulated records of its default plan. Random programs then ask where
to run while up to three other programs run. The true values follow from the machine's description,
without noise. The best place is searched among all sets of nodes, or among some sets if there are
thousands. For each set, the search tries all placements of pages that the advice considers, and
all pages on each single node. Times are processor times.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations

import numpy as np

from chaosity.advice.advise import advise
from chaosity.advice.candidate_places import CandidatePlaces
from chaosity.advice.machine_map import MachineMap
from chaosity.advice.open_map import map_of_results
from chaosity.advice.requests import BANDWIDTH, LATENCY, Goal, Place, Request, RunningLoad
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.cpusets import make_cpu_set
from chaosity.documents.config import read_config
from chaosity.documents.machines import Fault
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.fit_results import faults_of_findings
from chaosity.twin.fitted_description import fitted_machine_of_description
from machines import SimulatedHost, shipped_machine, shipped_topology

FAULTS: tuple[Fault, ...] = (
    {"fault": "slow_node", "node": 5, "remaining": 0.7},
    {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5},
)
# Name -> topology, description, faults.
MACHINES: dict[str, tuple[str, str, tuple[Fault, ...]]] = {
    "8 nodes": ("epyc_7413_nps4", "epyc_7413", ()),
    "8 nodes, node and link faulty": ("epyc_7413_nps4", "epyc_7413", FAULTS),
    "16 nodes": ("sixteen_nodes", "sixteen_nodes", ()),
    "memory on CXL": ("epyc_9554_cxl", "epyc_9554_cxl", ()),
    "memory of two kinds, HBM and DRAM": ("xeon_max_9480_snc4", "xeon_max_9480_snc4", ()),
}
REQUESTS = 200
# The largest number of sets of nodes among which the best place is searched.
MOST_SETS = 300
# A place is as good as the best place if the program loses at most this share of its speed.
LOSS = 0.02


@dataclass(frozen=True)
class Outcome:
    """Result of one request: loss against the best place, intervals with the truth, seconds."""

    goal: Goal
    loss: float
    held: tuple[bool, ...]
    gains: tuple[float, float]  # over numactl's local choice and over interleaving all nodes
    seconds: float


@cache
def fitted_and_true_map(name: str, seed: int) -> tuple[MachineMap, MachineMap]:
    """Return the map that was fitted to the records of a seed, and the true map."""
    topology_name, machine_name, faults = MACHINES[name]
    topology = shipped_topology(topology_name)
    machine = shipped_machine(machine_name, topology)
    host = SimulatedHost.planned(machine, topology, faults, read_config(), all_points=False)
    table = host.table(seed)
    findings = analyse_host(table, host.component_facts)
    points = list(host.points)
    fitted = fit_machine(table, points, topology, faults_of_findings(findings, topology))
    known = map_of_results(table, points, topology, fitted)
    truth = MachineMap(
        topology, fitted_machine_of_description(host.machine, topology, machine_name), known.drives
    )
    return known, truth


def random_request(machine: MachineMap, draw: random.Random) -> Request:
    """Return a random program that fits on the machine, and the other programs that run."""
    topology = machine.topology
    nodes = [node.os_index for node in topology.initiator_nodes]
    cores = {
        node: [core.cpus[0] for core in topology.cores if topology.node_of_pu[core.cpus[0]] == node]
        for node in nodes
    }
    memory = [node.os_index for node in topology.memory_nodes]
    beside = []
    busy = draw.sample(nodes, min(draw.randint(0, 3), len(nodes) - 1))
    for node in busy:
        units = make_cpu_set(draw.sample(cores[node], draw.randint(1, len(cores[node]))))
        target = draw.choice([node, draw.choice(memory)])
        kernel = draw.choice(["read", "triad", "copy"])
        beside.append(RunningLoad(Place(units, {target: 1.0}), kernel, draw.choice([25.0, 100.0])))
    if machine.drives and draw.random() < 0.3:
        node = draw.choice(nodes)
        drives = draw.sample(sorted(machine.drives), min(4, len(machine.drives)))
        units = {unit for each in beside for unit in each.place.cpus}
        if unit := next((unit for unit in cores[node] if unit not in units), None):
            place = Place((unit,), {draw.choice(memory): 1.0}, tuple(drives))
            beside.append(RunningLoad(place))
    taken = sum(len(each.place.cpus) for each in beside)
    free = sum(map(len, cores.values())) - taken
    goals: list[Goal] = ["bandwidth", "bandwidth", "latency"]
    goal = draw.choice([*goals, "drives"] if machine.drives else goals)
    wanted: int | tuple[str, ...] = 0
    if goal == "drives":
        count = draw.randint(1, min(8, len(machine.drives)))
        wanted = draw.choice([count, tuple(draw.sample(sorted(machine.drives), count))])
    return Request(
        cores=draw.randint(1, min(free, draw.choice([2, 8, 32, 128]))),
        memory_bytes=draw.choice([2, 8, 24]) << 30,
        goal=goal,
        kernel=draw.choice(["read", "triad", "copy"]),
        drives=wanted,
        beside=tuple(beside),
    )


def speed(machine: MachineMap, request: Request, place: Place) -> float:
    """Return the speed of the program in a place: bytes per second, or 1 / latency."""
    metric = LATENCY if request.goal == "latency" else BANDWIDTH
    loads = machine.loads(
        "program", place, request.kernel, metric=metric, memory_bytes=request.memory_bytes
    )
    value = machine.predicted_value(loads, machine.running_loads(request.beside))
    return 1 / value if metric == LATENCY else value


def advice_outcome(name: str, seed: int, number: int) -> Outcome:
    """Ask for one place, and compare it with the truth."""
    machine, truth = fitted_and_true_map(name, seed)
    draw = random.Random(f"{name} {seed} {number}")
    request = random_request(machine, draw)
    begin = time.process_time()
    best = advise(machine, request).places[0]
    seconds = time.process_time() - begin
    got = speed(truth, request, best.place)
    busy = [unit for each in request.beside for unit in each.place.cpus]
    candidates = CandidatePlaces(request, truth.topology, truth.drives, busy, {})
    most = max(
        (
            speed(truth, request, place)
            for nodes in sets_of_nodes(candidates.nodes, draw)
            for place in places_on(candidates, truth, request, nodes)
            if truth.highest_memory_bandwidth(place, request) > got
        ),
        default=got,
    )
    latency = truth.predicted_value(
        truth.loads(
            "program",
            Place(best.place.cpus, best.place.shares),
            metric=LATENCY,
            memory_bytes=request.memory_bytes,
        ),
        truth.running_loads(request.beside),
    )
    values = [(best.latency, latency)]
    if request.goal != "latency":
        values.append((best.bandwidth, got))
    held = tuple(each.low <= value <= each.high for each, value in values if each.low and each.high)
    usual = [speed(truth, request, place) for place in usual_places(candidates, best.place.drives)]
    gains = got / usual[0], got / usual[1]
    return Outcome(request.goal, 1 - got / max(got, most), held, gains, seconds)


def sets_of_nodes(nodes: Sequence[int], draw: random.Random) -> Iterator[tuple[int, ...]]:
    """Yield all sets of nodes, or the smallest sets and some of the other sets."""
    every = [own for size in range(1, len(nodes) + 1) for own in combinations(nodes, size)]
    if len(every) <= MOST_SETS:
        yield from every
        return
    small = [own for own in every if len(own) <= 2 or len(own) == len(nodes)]
    yield from small
    yield from draw.sample(every, MOST_SETS - len(small))


def places_on(
    candidates: CandidatePlaces, truth: MachineMap, request: Request, nodes: Sequence[int]
) -> Iterator[Place]:
    """Yield the places to consider on some nodes, and the places with all pages on one node."""
    found = [*candidates.places_on(nodes)]
    yield from found
    for drives in {place.drives for place in found}:
        for node in truth.topology.memory_nodes:
            if request.memory_bytes <= (node.size_bytes or request.memory_bytes):
                yield Place(found[0].cpus, {node.os_index: 1.0}, drives)


def usual_places(candidates: CandidatePlaces, drives: tuple[str, ...]) -> tuple[Place, Place]:
    """Return two places without advice: on the first free cores, and spread over all nodes.

    The first place has its pages on the node of its first core, where the kernel puts the pages
    that a program's first thread touches. The second place is ``numactl --interleave=all`` on free
    cores of all nodes, since the scheduler spreads threads.
    """
    cores = candidates.request.cores
    units = [unit for node in candidates.nodes for unit in candidates.free_units(node)]
    first = make_cpu_set(units[:cores])
    memory = [node.os_index for node in candidates.topology.memory_nodes]
    nodes = candidates.nodes[: min(cores, len(candidates.nodes))]
    spread = candidates.units_on(nodes) or first
    own = candidates.topology.nodes_of_pus(first)[0]
    everywhere = dict.fromkeys(memory, 1 / len(memory))
    return Place(first, {own: 1.0}, drives), Place(spread, everywhere, drives)


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    heads = (
        "machine",
        "requests",
        "within 2 % of the best",
        "worst",
        "intervals that hold the truth",
    )
    gains = "gain over the first cores", "over interleaving all nodes", "time"
    yield f"| {' | '.join((*heads, *gains))} |"
    yield "|---" * 8 + "|"
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in MACHINES:
            ask = partial(advice_outcome, name, seeds)
            own = list(pool.map(ask, range(REQUESTS), chunksize=REQUESTS // 2))
            losses = np.array([each.loss for each in own])
            held = [inside for each in own for inside in each.held]
            middle = [np.median([each.gains[place] for each in own]) for place in (0, 1)]
            seconds = np.quantile([each.seconds for each in own], [0.5, 0.95]) * 1e3
            yield (
                f"| {name} | {len(own)} | {np.mean(losses <= LOSS):.1%} | {losses.max():.1%} | "
                f"{np.mean(held):.1%} | {middle[0]:.2f} | {middle[1]:.2f} | "
                f"{seconds[0]:.0f} ms (95 % below {seconds[1]:.0f} ms) |"
            )


ONLY_IF_NAMED = {"advice": compare}
