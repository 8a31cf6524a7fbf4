"""The best places for a program: expected values with intervals, limits, and the lines to type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chaosity.advice.candidate_places import EQUAL, CandidatePlaces
from chaosity.advice.machine_map import ExpectedValue, MachineMap
from chaosity.advice.requests import BANDWIDTH, LATENCY, Place, Request
from chaosity.cpusets import format_cpu_list
from chaosity.records.point_types import Load
from chaosity.simulation.simulated_loads import processing_units_of_load

# Number of places that advice has by default.
MOST_PLACES = 3


@dataclass(frozen=True)
class AdvisedPlace:
    """A place with what the program gets there.

    Attributes:
        place: cores, pages and drives.
        nodes: the nodes of the cores.
        bandwidth: of memory or of the drives, in bytes per second; of all threads together.
        latency: of memory that caches do not have, in nanoseconds, while all others run.
        loss: how much worse the goal is than in the best place, 0 to 1.
        commands: name of a program -> the line to type; PROGRAM stands for the user's program.
    """

    place: Place
    nodes: tuple[int, ...]
    bandwidth: ExpectedValue
    latency: ExpectedValue
    loss: float
    commands: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the place as in the JSON of `chaosity advise`."""
        return {
            "cpus": format_cpu_list(self.place.cpus),
            "nodes": list(self.nodes),
            "pages": {f"node{node}": share for node, share in self.place.shares.items()},
            "drives": list(self.place.drives),
            BANDWIDTH: asdict(self.bandwidth),
            LATENCY: asdict(self.latency),
            "loss": self.loss,
            "commands": dict(self.commands),
        }


@dataclass(frozen=True)
class Advice:
    """The best places for a request, the best first.

    `cached_share` is the share of scanned data that is worth keeping in memory, if the program
    reads drives: memory and drives then end their parts at the same time.
    """

    places: tuple[AdvisedPlace, ...]
    cached_share: float | None = None


def advise(machine: MachineMap, request: Request, places: int = MOST_PLACES) -> Advice:
    """Return the best places for a program on a machine where others may run.

    Args:
        machine: the map of the machine.
        request: what the program needs.
        places: the largest number of places.

    Raises:
        UserError: the host has too few free cores or drives, or too little memory.
    """
    beside = machine.running_loads(request.beside)
    busy = {unit for load in beside for unit in processing_units_of_load(load)}
    used = _used_memory(machine, beside)
    candidates = CandidatePlaces(request, machine.topology, machine.drives, busy, used)
    metric = LATENCY if request.goal == "latency" else BANDWIDTH

    def score(place: Place) -> float:
        value = machine.value(_loads(machine, request, place, metric), beside)
        return 1 / value if metric == LATENCY else value

    def sure_score(place: Place) -> float:
        value = machine.sure_value(_loads(machine, request, place, metric), beside)
        return 1 / value if metric == LATENCY else value

    found = candidates.search(score, sure_score)
    best = max(value for value, _ in found.values())

    def order(nodes: tuple[int, ...]) -> tuple[float, ...]:
        """Return what sorts places: equally good ones by simplicity, then others by score."""
        value, place = found[nodes]
        if value < best * (1 - EQUAL):
            return 1.0, -value
        return 0.0, *candidates.simplicity(place, nodes), -round(value / best, 3), *nodes

    chosen = [found[nodes] for nodes in sorted(found, key=order)[:places]]
    advised = [
        _advised(machine, request, place, beside, 1 - score / best) for score, place in chosen
    ]
    share = (
        _cached_share(machine, request, chosen[0][1], beside) if request.goal == "drives" else None
    )
    return Advice(tuple(advised), share)


def _loads(
    machine: MachineMap, request: Request, place: Place, metric: str = BANDWIDTH
) -> list[Load]:
    return machine.loads(
        "program", place, request.kernel, metric=metric, memory_bytes=request.memory_bytes
    )


def _used_memory(machine: MachineMap, beside: Sequence[Load]) -> dict[int, float]:
    """Return node -> how full its memory is by what runs already."""
    if not beside:
        return {}
    results = machine.model.noiseless_results([*beside])
    full = results[beside[0]["name"]].utilisation
    return {node.os_index: full.get(f"node{node.os_index}", 0.0) for node in machine.topology.nodes}


def _advised(
    machine: MachineMap, request: Request, place: Place, beside: Sequence[Load], loss: float
) -> AdvisedPlace:
    rates = _loads(machine, request, place)
    bandwidth = machine.expected(rates, beside)
    memory = Place(place.cpus, place.shares)
    latency = machine.expected(_loads(machine, request, memory, LATENCY), beside)
    return AdvisedPlace(
        place,
        machine.topology.nodes_of_pus(place.cpus),
        bandwidth,
        latency,
        loss,
        _commands(machine, place),
    )


def _cached_share(
    machine: MachineMap, request: Request, place: Place, beside: Sequence[Load]
) -> float:
    """Return the share of scanned data for memory, while the rest comes from the drives.

    Both parts end at the same time (proportional caching, Nicholson et al., HPCache, DaMoN 2022).
    """
    memory = Place(place.cpus, place.shares)
    scan = [
        {**load, "name": f"{load['name']} in memory"} for load in _loads(machine, request, memory)
    ]
    drives = _loads(machine, request, place)
    cached = machine.value(scan, [*drives, *beside])  # type: ignore[arg-type]
    read = machine.value(drives, [*scan, *beside])  # type: ignore[list-item]
    return cached / (cached + read)


def _commands(machine: MachineMap, place: Place) -> dict[str, str]:
    """Return the lines that start a program in a place."""
    cpus = format_cpu_list(place.cpus)
    nodes = format_cpu_list(place.shares)
    pages = {
        0: [],
        1: [f"--membind={nodes}"],
    }.get(len(place.shares), [f"--interleave={nodes}"])
    found = {
        "numactl": " ".join(["numactl", f"--physcpubind={cpus}", *pages, "PROGRAM"]),
        "taskset": f"taskset --cpu-list {cpus} PROGRAM",
    }
    bind = f"--cpu-bind=mask_cpu:{_hexadecimal(place.cpus)}"
    slurm = ["srun", "--ntasks=1", f"--cpus-per-task={len(place.cpus)}", bind]
    if len(place.shares) == 1:
        slurm.append(f"--mem-bind=map_mem:{nodes}")
        found["slurm"] = " ".join([*slurm, "PROGRAM"])
    else:
        found["slurm"] = " ".join([*slurm, *(["numactl", *pages] if pages else []), "PROGRAM"])
    if place.drives:
        names = [_device(machine, drive) for drive in place.drives]
        if all(names):
            files = ":".join(map(str, names))
            policy = f"bind:{nodes}" if len(place.shares) == 1 else f"interleave:{nodes}"
            found["fio"] = (
                f"fio --name=read --readonly --rw=read --direct=1 --bs=1M --ioengine=io_uring "
                f"--iodepth=32 --filename={files} --cpus_allowed={cpus} --numa_mem_policy={policy}"
            )
    return found


def _hexadecimal(cpus: Sequence[int]) -> str:
    """Return a mask of processing units as Slurm reads it."""
    return f"0x{sum(1 << unit for unit in cpus):x}"


def _device(machine: MachineMap, drive: str) -> str | None:
    """Return the path of a drive's device now, or of the file in its place."""
    facts = machine.drives[drive]
    if path := facts.get("path") or facts.get("file"):
        return path
    own = (each for each in machine.topology.drives if each.pci and each.pci == facts.get("pci"))
    names = [each.name for each in own if each.name]
    return f"/dev/{names[0]}" if len(names) == 1 else None
