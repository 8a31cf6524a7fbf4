"""Find the best places for a program, with expected rates, limits and start commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from chaosity.advice.candidate_places import (
    LARGEST_DIFFERENCE_OF_EQUAL_SCORES,
    CandidatePlaces,
    Score,
)
from chaosity.advice.machine_map import ExpectedValue, MachineMap
from chaosity.advice.requests import BANDWIDTH, LATENCY, Place, Request, checked_request
from chaosity.components import (
    drive_component_name,
    drive_device_path,
)
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.page_placement import CANONICAL, FIRST_TOUCH, UNIFORM_WORKERS, uniform_shares
from chaosity.place_names import node_name
from chaosity.records.record_format import Load
from chaosity.simulation.simulated_loads import processing_units_of_load


def _start_commands(machine: MachineMap, place: Place) -> dict[str, str]:
    """Return name of a starting program -> the line to type; PROGRAM is the user's program.

    On systems other than Linux, which lack the starting programs, the result is empty. ``taskset``
    sets no memory policy, so its line exists only if first touch puts the pages on their nodes. The
    command of Slurm requests the host for one program, since Slurm ignores masks of processing
    units on shared hosts. The command of fio only reads. The command ``chaosity place`` also checks
    on which nodes the pages are.
    """
    if machine.topology.os_family != "linux":
        return {}
    cpus, nodes = format_cpu_list(place.cpus), format_cpu_list(place.shares)
    pages = [] if not place.shares else [f"--interleave={nodes}"]
    if len(place.shares) == 1:
        pages = [f"--membind={nodes}"]
    numactl = ["numactl", f"--physcpubind={cpus}", *pages, "PROGRAM"]
    found = {"numactl": shlex.join(numactl)}
    own = machine.topology.nodes_of_pus(place.cpus)
    found["place"] = shlex.join(_chaosity_place_command(place, own))
    if not place.shares or (len(own) == 1 and tuple(place.shares) == own):
        found["taskset"] = shlex.join(["taskset", "--cpu-list", cpus, "PROGRAM"])
    whole = ["srun", "--exclusive", f"--nodelist={machine.host}", "--ntasks=1", "--cpu-bind=none"]
    found["slurm"] = shlex.join([*whole, *numactl])
    if place.drives and (paths := _paths_of_drives(machine, place.drives)):
        policy = f"bind:{nodes}" if len(place.shares) == 1 else f"interleave:{nodes}"
        common = ["--rw=read", "--readonly", "--direct=1", "--bs=1M", "--ioengine=io_uring"]
        common += ["--iodepth=32", "--time_based", "--runtime=10", "--group_reporting"]
        common += [f"--cpus_allowed={cpus}", f"--numa_mem_policy={policy}"]
        # A colon separates file names in fio, so colons are escaped. Each drive has a separate job,
        # as in the measurements.
        jobs = [
            word
            for drive, path in zip(place.drives, paths, strict=True)
            for word in (f"--name={drive}", "--filename=" + path.replace(":", r"\:"))
        ]
        found["fio"] = shlex.join(["fio", *common, *jobs])
    return found


def _chaosity_place_command(place: Place, workers: Sequence[int]) -> list[str]:
    """Return the words of a command ``chaosity place`` that runs PROGRAM in a place."""
    words = ["chaosity", "place", f"--workers={format_cpu_list(workers)}"]
    words.append(f"--cpus={format_cpu_list(place.cpus)}")
    if not place.shares:
        words.append(f"--policy={FIRST_TOUCH}")
    elif place.shares == uniform_shares(workers):
        words.append(f"--policy={UNIFORM_WORKERS}")
    else:
        shares = ",".join(f"{node}:{share:g}" for node, share in place.shares.items())
        words += [f"--policy={CANONICAL}", f"--shares={shares}"]
    return [*words, "--", "PROGRAM"]


def _paths_of_drives(machine: MachineMap, drives: Sequence[str]) -> list[str] | None:
    """Return the path of each drive, or of the file that replaces the drive.

    The result is None if one of the paths is unknown.
    """
    known = {drive_component_name(each): each for each in machine.topology.drives if each.name}
    paths = []
    for drive in drives:
        facts = machine.drives[drive]
        path = facts.get("path") or facts.get("file")
        if path is None and drive in known:
            path = drive_device_path(known[drive])
        if path is None:
            return None
        paths.append(path)
    return paths


# Name of a metric: bytes per second of data from drives that cores process.
_PROCESSING_THROUGHPUT = "processing_throughput_bytes_per_second"
# Number of places that advice lists by default.
DEFAULT_NUMBER_OF_PLACES = 3


@dataclass(frozen=True)
class AdvisedPlace:
    """A place, and the bandwidth and latency that the program would get in this place.

    Attributes:
        place: cores, pages and drives.
        nodes: the nodes of the cores.
        bandwidth: bandwidth of memory or of the drives for all threads together, in bytes per
            second. The value is None only if bandwidth is not the goal and was not measured.
        latency: mean time of one access to data of this size, caches included, in nanoseconds. One
            thread of the program runs beside the other programs. The value is None only if latency
            is not the goal and was not measured.
        loss: share of bandwidth that is lost compared with the best place (0 to 1). If the goal is
            latency, the value says how much longer accesses take (1 is twice the time). The value
            is below 0 if the model expects more of this place than of the best place, but the
            measurements do not make this certain.
        commands: name of a starting program -> the line to type; PROGRAM is the user's program.
    """

    place: Place
    nodes: tuple[int, ...]
    bandwidth: ExpectedValue | None
    latency: ExpectedValue | None
    loss: float
    commands: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the place in the form of the JSON of `chaosity advise`."""
        return {
            "cpus": format_cpu_list(self.place.cpus),
            "nodes": list(self.nodes),
            "pages": _pages_json(self.place.shares),
            "drives": list(self.place.drives),
            BANDWIDTH: self.bandwidth and asdict(self.bandwidth),
            LATENCY: self.latency and asdict(self.latency),
            "loss": self.loss,
            "commands": dict(self.commands),
        }


@dataclass(frozen=True)
class ShareKeptInMemory:
    """The share of scanned data that is worth keeping in memory, 0 to 1.

    With this share, memory and drives end their parts of a scan at the same time, so that the rate
    of the scan is the sum of both rates.

    Attributes:
        share: the share of the data that is kept in memory.
        pages: node -> share of the data in memory.
        scan_bytes_per_second: rate of the scan.
        share_interval: 95 % interval of `share`; None if the uncertainty is unknown.
        scan_interval: 95 % interval of `scan_bytes_per_second`, or None.
        undetermined: name -> what to measure, for each capacity that no measurement determines and
            that can change these values.
    """

    share: float
    pages: Mapping[int, float]
    scan_bytes_per_second: float
    share_interval: tuple[float, float] | None = None
    scan_interval: tuple[float, float] | None = None
    undetermined: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the share and the rates in the form of the JSON of `chaosity advise`."""
        return {**asdict(self), "pages": _pages_json(self.pages)}


@dataclass(frozen=True)
class Advice:
    """The best places for a request, the best first.

    `cached` is None unless the program reads drives and the machine's memory was measured.
    """

    places: tuple[AdvisedPlace, ...]
    cached: ShareKeptInMemory | None = None


def advise(machine: MachineMap, request: Request, places: int = DEFAULT_NUMBER_OF_PLACES) -> Advice:
    """Return the best places for a program, also beside other programs on the machine.

    Args:
        machine: the map of the machine.
        request: what the program needs.
        places: the largest number of places.

    Raises:
        UserError: the host has too few free cores or drives, or too little memory; a part of the
            request is wrong; or the measurements do not suffice to predict any place.
    """
    request = checked_request(request, machine.topology, machine.drives)
    beside = machine.running_loads(request.beside)
    busy = {unit for load in beside for unit in processing_units_of_load(load)}
    used = _used_memory(machine, beside)
    candidates = CandidatePlaces(request, machine.topology, machine.drives, busy, used)
    metric = LATENCY if request.goal == "latency" else BANDWIDTH

    def score_by(value_of: Callable[[Sequence[Load], Sequence[Load]], float]) -> Score:
        def score(place: Place) -> float:
            value = value_of(_loads_of_place(machine, request, place, metric), beside)
            return 1 / value if metric == LATENCY else value

        return score

    found = candidates.best_place_by_node_set(
        score_by(machine.predicted_value),
        score_by(machine.value_with_least_capacities),
        lambda place: machine.highest_memory_bandwidth(place, request),
    )
    best = max(value for value, _ in found.values())

    def sort_key(nodes: tuple[int, ...]) -> tuple[float, ...]:
        """Return a sort key: best places come first, the simplest of them first, then others."""
        value, place = found[nodes]
        if value < best * (1 - LARGEST_DIFFERENCE_OF_EQUAL_SCORES):
            return 1.0, -value
        return 0.0, *candidates.simplicity(place, nodes), -round(value / best, 3), *nodes

    advised: list[AdvisedPlace] = []
    problem = None
    for nodes in sorted(found, key=sort_key):
        try:
            advised.append(
                _make_advised_place(machine, request, found[nodes][1], beside, advised[:1])
            )
        except UserError as error:  # the measurements do not suffice to predict this place
            problem = problem or error
        if len(advised) == places:
            break
    if not advised and problem:
        raise problem
    cached = None
    if request.goal == "drives":
        cached = _find_share_kept_in_memory(machine, candidates, advised[0].place, beside)
    return Advice(tuple(advised), cached)


def _pages_json(shares: Mapping[int, float]) -> dict[str, float]:
    return {node_name(node): share for node, share in shares.items()}


def _loads_of_place(
    machine: MachineMap, request: Request, place: Place, metric: str = BANDWIDTH
) -> list[Load]:
    return machine.loads(
        "program", place, request.kernel, metric=metric, memory_bytes=request.memory_bytes
    )


def _used_memory(machine: MachineMap, beside: Sequence[Load]) -> dict[int, float]:
    """Return node -> share (0 to 1) of its memory bandwidth that running programs use."""
    if not beside:
        return {}
    full = machine.model.results(beside)[beside[0]["name"]].utilisation
    return {node.os_index: full.get(f"node{node.os_index}", 0.0) for node in machine.topology.nodes}


def _make_advised_place(
    machine: MachineMap,
    request: Request,
    place: Place,
    beside: Sequence[Load],
    best: Sequence[AdvisedPlace],
) -> AdvisedPlace:
    """Return a place with the program's expected values; `best` is the best place, if known."""
    latency_is_goal = request.goal == "latency"
    memory = Place(place.cpus, place.shares)
    values: dict[str, ExpectedValue | None] = {}
    for metric, own in ((BANDWIDTH, place), (LATENCY, memory)):
        try:
            values[metric] = machine.expected_value(
                _loads_of_place(machine, request, own, metric), beside
            )
        except UserError:
            if (metric == LATENCY) == latency_is_goal:
                raise
            values[metric] = None
    goal = LATENCY if latency_is_goal else BANDWIDTH
    loss = 0.0
    for first in best:
        ours, others = values[goal], first.latency if latency_is_goal else first.bandwidth
        if ours and others:
            ratio = ours.median / others.median
            loss = ratio - 1 if latency_is_goal else 1 - ratio
    return AdvisedPlace(
        place,
        machine.topology.nodes_of_pus(place.cpus),
        values[BANDWIDTH],
        values[LATENCY],
        loss,
        _start_commands(machine, place),
    )


def _find_share_kept_in_memory(
    machine: MachineMap, candidates: CandidatePlaces, place: Place, beside: Sequence[Load]
) -> ShareKeptInMemory | None:
    """Return which share of scanned data is worth keeping in memory instead of on drives.

    The result is None if the speed of memory was not measured. With this share, the scans of memory
    and of the drives end at the same time (proportional caching, Nicholson et al., HPCache, DaMoN
    2022). The cores also read the data that the drives deliver.
    """
    drives = machine.loads("drives", place, metric=_PROCESSING_THROUGHPUT)
    found: list[tuple[float, dict[int, float]]] = []
    nodes = machine.topology.nodes_of_pus(place.cpus)
    for shares in candidates.page_shares(nodes):
        memory = machine.loads("memory", Place(place.cpus, shares))
        found.append((machine.predicted_scan_rate(memory, drives, beside), shares))
    fastest = max(rate for rate, _ in found)
    equal = [
        shares
        for rate, shares in found
        if rate >= fastest * (1 - LARGEST_DIFFERENCE_OF_EQUAL_SCORES)
    ]
    pages = min(equal, key=len)
    memory = machine.loads("memory", Place(place.cpus, pages))
    try:
        scan, share = machine.expected_scan_rate_and_memory_share(memory, drives, beside)
    except UserError:  # the speed of memory was not measured
        return None
    undetermined = {**share.undetermined, **scan.undetermined}
    ends = _ends_of_interval(share), _ends_of_interval(scan)
    return ShareKeptInMemory(share.median, pages, scan.median, *ends, undetermined)


def _ends_of_interval(value: ExpectedValue) -> tuple[float, float] | None:
    return None if value.low is None or value.high is None else (value.low, value.high)
