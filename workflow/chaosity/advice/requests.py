"""Define and check a program's request, and the programs that run already.

A program that runs already is given as a text such as ``node1:node4:triad:50``: its cores, the
target of its accesses, its kernel, and its rate in per cent of the highest rate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from chaosity.components import drive_component_name
from chaosity.cpusets import CpuSet, format_cpu_list, make_cpu_set, parse_cpu_list
from chaosity.design.host_resources import HostResources
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.place_names import InitiatorKind, PlaceName, parse_place_name
from chaosity.records.record_format import DriveFacts
from chaosity.topology.topology_model import Topology

Goal = Literal["bandwidth", "latency", "drives"]
# Default size of a program's data in bytes: more than the caches of every known server, and less
# than the memory of a node.
DEFAULT_MEMORY_BYTES = 4 << 30
BANDWIDTH, LATENCY = "bandwidth_bytes_per_second", "latency_ns"


@dataclass(frozen=True)
class Place:
    """A place: cores, and the nodes of the pages with the data of these cores.

    `shares` is node -> share of the pages. `shares` is empty if each thread accesses only data on
    its own node. `drives` are the names of drives that the program reads; if it reads drives, the
    pages are the buffers of the drives.
    """

    cpus: CpuSet
    shares: Mapping[int, float] = field(default_factory=dict)
    drives: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunningLoad:
    """A program that already runs on the machine.

    Without drives, the program accesses the memory of its place as fast as it can, or at `percent`
    of that rate. `kernel` names the accesses of the program: read, triad, ..., or read67 for 67 %
    reads.
    """

    place: Place
    kernel: str = "read"
    percent: float = 100.0


@dataclass(frozen=True)
class Request:
    """What a program needs.

    Attributes:
        cores: number of cores, with one thread on each.
        memory_bytes: size of the program's data, or of its buffers if the program reads drives.
        goal: the highest bandwidth of memory, the shortest latency of memory, or the highest
            bandwidth of drives.
        kernel: name of the program's accesses to memory, see `RunningLoad`.
        drives: for the goal `drives`, names of drives, such as nvme0n1, or the number of drives.
        partitioned: says whether each thread accesses only data that it touched first.
        beside: the programs that already run on the machine.
    """

    cores: int = 1
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    goal: Goal = "bandwidth"
    kernel: str = "read"
    drives: int | tuple[str, ...] = 0
    partitioned: bool = False
    beside: tuple[RunningLoad, ...] = ()


# Names of kernels whose reads and writes the model knows; shares of reads, such as read67, are also
# allowed.
KERNELS = ("read", "copy", "scale", "add", "triad", "fill")
_KERNEL_PATTERN = re.compile(rf"(?:{'|'.join(KERNELS)})(?:_nt)?|read\d{{1,2}}")


def parse_running_load(
    text: str, topology: Topology, drives: Mapping[str, DriveFacts], where: str
) -> RunningLoad:
    """Return the load in a text ``CORES[:TARGET[:KERNEL[:PERCENT]]]``.

    CORES is a name such as node1, package0 or core3, or a list of processing units such as 0-5.
    TARGET is node4, nodes0-3, a drive or node4drives; by default, each core uses the memory of its
    own node.

    Args:
        text: the text.
        topology: the topology of the host.
        drives: name of each drive -> its facts.
        where: source of the text, such as an option, for error messages.

    Raises:
        UserError: a part of the text has another form, or the machine has no place with this name.
    """
    parts = text.split(":")
    cores, target, kernel, percent = (*parts, "", "", "")[:4]
    if len(parts) > 4:
        raise UserError(f"{text!r} has too many parts", where, "write CORES:TARGET:KERNEL:PERCENT")
    cpus = _parse_units(cores, topology, where)
    try:
        share = float(percent or 100)
    except ValueError:
        share = 0.0
    if not 0 < share <= 100:
        raise UserError(
            f"{percent!r} is not a share in per cent", where, "write a number of per cent up to 100"
        )
    shares, names = _parse_target(target, topology, drives, where)
    if names:
        shares = {topology.nodes_of_pus(cpus)[0]: 1.0}
    return RunningLoad(Place(cpus, shares, names), check_kernel(kernel or "read", where), share)


def checked_request(
    request: Request, topology: Topology, drives: Mapping[str, DriveFacts]
) -> Request:
    """Check a request; replace the Linux names of drives (nvme0n1) by their names in points.

    Raises:
        UserError: a part of the request is wrong.
    """
    check_name_is_allowed(
        request.goal, get_args(Goal), f"there is no goal {request.goal!r}", "goal"
    )
    check_kernel(request.kernel, "kernel")
    if request.memory_bytes < 1:
        what = f"a program needs memory, but {request.memory_bytes} bytes are requested"
        raise UserError(what, remedy="request at least 1 byte")
    if bool(request.drives) != (request.goal == "drives"):
        remedy = "name drives, or their number, with the goal drives and with no other goal"
        raise UserError(f"the goal is {request.goal}, drives: {request.drives!r}", remedy=remedy)
    wanted = request.drives
    if not isinstance(wanted, int):
        wanted = tuple(drive_name_in_points(name, topology, drives, "drives") for name in wanted)
    for running in request.beside:
        check_place_parts(running.place, topology, drives)
        check_kernel(running.kernel, "beside")
        if not 0 < running.percent <= 100:
            what = f"another program cannot run at {running.percent:g} per cent"
            raise UserError(what, "beside", "use 1 to 100")
    return replace(request, drives=wanted)


def check_place_parts(place: Place, topology: Topology, drives: Mapping[str, DriveFacts]) -> None:
    """Check that a machine has the parts of a place, and that the shares of the pages add up to 1.

    Raises:
        UserError: the machine lacks a part of the place, or the shares are wrong.
    """
    if not place.cpus or not {*place.cpus} <= topology.node_of_pu.keys():
        what = f"the machine has no processing units {format_cpu_list(place.cpus) or '(none)'}"
        raise UserError(what, remedy=f"choose some of {format_cpu_list(topology.node_of_pu)}")
    memory = {node.os_index for node in topology.memory_nodes}
    if unknown := {*place.shares} - memory:
        what = f"node {min(unknown)} has no memory"
        raise UserError(what, remedy=f"nodes with memory: {format_cpu_list(memory)}")
    if place.shares and abs(sum(place.shares.values()) - 1) > 1e-6:
        raise UserError("the shares of the pages do not add up to 1", remedy="divide by their sum")
    for drive in place.drives:
        check_name_is_allowed(drive, drives, f"the machine has no drive {drive!r}", "drives")


def check_kernel(kernel: str, where: str) -> str:
    """Check that the model knows the reads and writes of a kernel, and return the kernel.

    Raises:
        UserError: the model does not know the kernel.
    """
    if not _KERNEL_PATTERN.fullmatch(kernel):
        remedy = f"use {', '.join(KERNELS)}, or a share of reads such as read67"
        raise UserError(f"there is no kernel {kernel!r}", where, remedy)
    return kernel


def drive_name_in_points(
    name: str, topology: Topology, drives: Mapping[str, DriveFacts], where: str
) -> str:
    """Return the name of a drive in points; `name` may be its Linux name, such as nvme0n1.

    Raises:
        UserError: the machine has no drive with this name.
    """
    of_kernel = {drive.name: drive_component_name(drive) for drive in topology.drives}
    found = of_kernel.get(name.removeprefix("/dev/"), name)
    check_name_is_allowed(found, drives, f"the machine has no drive {name!r}", where)
    return found


def _parse_units(text: str, topology: Topology, where: str) -> CpuSet:
    """Return one processing unit of each core of a place, or the units that a text lists."""
    place, units = parse_place_name(text), CpuSet()
    if place is None:
        with suppress(ValueError):
            units = parse_cpu_list(text)
        units = units if {*units} <= {*topology.pus} else ()
    elif place.kind in ("node", "nodes", "package", "core", "machine"):
        level: InitiatorKind = "node" if place.kind == "nodes" else place.kind
        wanted = {PlaceName(level, (index,)) for index in place.indices} or {place}
        groups = HostResources(topology, ()).cpu_groups_of_level(level)
        chosen = {unit for name, cpus in groups if name in wanted for unit in cpus}
        used = (core.cpus[0] for core in topology.cores if chosen.intersection(core.cpus))
        units = make_cpu_set(used)
    if not units:
        remedy = "name node1, nodes0-1, package0, core3, machine or units such as 0-5"
        raise UserError(f"the machine has no cores {text!r}", where, remedy)
    return units


def _parse_target(
    text: str, topology: Topology, drives: Mapping[str, DriveFacts], where: str
) -> tuple[dict[int, float], tuple[str, ...]]:
    """Return the target that a text names: node -> share of the pages, or names of drives."""
    if not text:
        return {}, ()
    if text in drives or text.startswith("nvme"):
        return {}, (drive_name_in_points(text, topology, drives, where),)
    place = parse_place_name(text)
    if place and place.kind in ("node", "nodes"):
        memory = {node.os_index for node in topology.memory_nodes}
        if set(place.indices) <= memory:
            return dict.fromkeys(place.indices, 1 / len(place.indices)), ()
    if place and place.kind in ("node_drives", "nodes_drives", "all_drives"):
        own = [
            name
            for name, facts in drives.items()
            if place.kind == "all_drives" or facts["node"] in place.indices
        ]
        if own:
            return {}, tuple(own[: place.count])
    remedy = "name node1, nodes0-1, a drive, node1drives or alldrives"
    raise UserError(f"the machine has no target {text!r}", where, remedy)
