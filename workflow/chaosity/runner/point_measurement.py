"""Measures one point: preconditions, one barrier, the common window, the verdict."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chaosity.errors import UserError
from chaosity.records import SCHEMA_VERSION, make_check, make_verdict, utc_now
from chaosity.runner import (
    drive_access,
    host_state,
    kernel_settings,
    observed_placement,
    opencl_devices,
    progress,
    record_checks,
)
from chaosity.runner.load_process import LoadError, LoadProcess

# Two controllers may meet on a host; the lock file is where every user may make one.
HOST_LOCK = Path("/tmp/chaosity-measuring.lock")
# How long to wait for another measurement to end before the point fails.
LOCK_SECONDS = 900.0
# Time to allocate, place and touch the memory: 64 GiB at 1 GB/s and some more.
READY_SECONDS = 120.0
# How often running loads are looked after. Each look costs microseconds.
POLL_SECONDS = 0.005
# How often the precision reached is computed; it reads all samples so far.
PRECISION_SECONDS = 0.1

# A load that reports no progress must run wholly beside the others: they begin this much earlier,
# time for fio to open its files and write its first row, and are stopped this much later, more than
# the 100 ms that a row covers.
HEAD_START_SECONDS = 1.0
TAIL_SECONDS = 0.3

Record = dict[str, Any]


class PointError(Exception):
    """The point cannot be measured; the text says why."""


@contextlib.contextmanager
def hold_host_lock() -> Iterator[int]:
    """Hold the host's lock: one measurement at a time, whoever asks.

    Yields:
        The lock's file descriptor. Loads inherit it, so that a load that outlives a killed runner
        still keeps others from measuring beside it.

    Raises:
        PointError: another measurement did not end in time.
    """
    handle = kernel_settings.open_lock_file(HOST_LOCK)
    try:
        limit = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise PointError(f"another measurement held {HOST_LOCK} too long") from None
                time.sleep(0.05)
        yield handle
    finally:
        os.close(handle)


def check_free_memory(point: Mapping[str, Any]) -> dict[str, Any]:
    """Check that the loads fit into the free memory of their nodes, read back just now.

    Raises:
        PointError: a node is missing or has too little.
    """
    free = host_state.free_memory_bytes()
    wanted: dict[int, int] = {}
    for load in point["loads"]:
        for node, share in memory_shares(load["placement"]).items():
            wanted[node] = wanted.get(node, 0) + int(load["memory_bytes"] * share)
    for node, size in wanted.items():
        if node not in free:
            raise PointError(f"node {node} has no memory on this host")
        if size > free[node]:
            raise PointError(f"node {node} has {free[node]} bytes free, {size} are needed")
    detail = ", ".join(f"node {n}: {s} of {free[n]} free bytes" for n, s in wanted.items())
    return make_check("free memory", True, detail)


def memory_shares(placement: Mapping[str, Any]) -> dict[int, float]:
    """The share of a load's memory by node; equal ones where none are asked for."""
    nodes = placement["memory_nodes"]
    given = placement.get("shares") or dict.fromkeys(nodes, 1 / len(nodes))
    return {int(node): share for node, share in given.items()}


def check_processing_units(point: Mapping[str, Any]) -> dict[str, Any]:
    """Check that every unit asked for may be used here (a cgroup may forbid some).

    Raises:
        PointError: some may not.
    """
    allowed = os.sched_getaffinity(0)
    for load in point["loads"]:
        missing = record_checks.parse_cpus(load["placement"]["cpus"]) - allowed
        if missing:
            raise PointError(f"this process may not run on PU {sorted(missing)}")
    return make_check("processing units", True, f"{len(allowed)} allowed")


def check_nodes_as_planned(point: Mapping[str, Any]) -> dict[str, Any]:
    """Check that the units of every initiator belong to the nodes that the plan knows them on.

    They do not when the host was booted into another mode since it was discovered, or when another
    host answers.

    Raises:
        PointError: a unit is on another node now.
    """
    node_of = {
        cpu: node for node, cpus in observed_placement.read_cpus_by_node().items() for cpu in cpus
    }
    for load in point["loads"]:
        initiator = load["initiator"]
        for cpu in record_checks.parse_cpus(initiator["cpus"]):
            now = node_of.get(cpu)
            if now is not None and initiator["nodes"] and now not in initiator["nodes"]:
                raise PointError(
                    f"PU {cpu} is on node {now} now, and was on node"
                    f" {', '.join(map(str, initiator['nodes']))} when the host was discovered"
                )
    return make_check(
        "nodes as planned", True if node_of else None, f"{len(node_of)} PUs on their nodes"
    )


def prepare_loads(
    point: Mapping[str, Any], folder: Path
) -> tuple[list[LoadProcess], list[dict[str, Any]]]:
    """Check the preconditions and lay out a working folder for each load."""
    checks = [
        check_processing_units(point),
        check_nodes_as_planned(point),
        check_free_memory(point),
    ]
    loads = []
    for spec in point["loads"]:
        own = folder / spec["name"]
        own.mkdir()
        checks += drive_access.link_drives(spec, own)
        numbered, seen = opencl_devices.fill_in_device_numbers(spec)
        checks += seen
        loads.append(LoadProcess(numbered, own))
    return loads, checks


def start_loads(loads: list[LoadProcess], lock: int) -> float:
    """Start all loads as one: those with a barrier get ready first, then all begin.

    A load whose pages are moved while it runs settles before it is ready; those that the runner can
    stop run beside it meanwhile, since a placement is searched for the company that it will have. A
    load that reports no progress begins last, once the others run.

    Returns:
        Time of the start on the monotonic clock, in seconds.
    """
    silent = [load for load in loads if load.silent]
    settling = [load for load in loads if load.barrier and load.settles]
    ahead = [
        load for load in loads if settling and load.stoppable and load not in silent + settling
    ]
    for load in loads:
        if load.barrier:
            load.start(lock)
    for load in loads:
        if load.barrier and load not in settling:
            load.wait_ready(READY_SECONDS)
    release_loads(ahead, lock)
    for load in settling:
        load.wait_ready(READY_SECONDS)
    release_loads([load for load in loads if load not in ahead + silent], lock)
    if silent and len(loads) > len(silent):
        time.sleep(HEAD_START_SECONDS)
        wait_for_samples([load for load in loads if load not in silent])
    release_loads(silent, lock)
    return time.monotonic()


def release_loads(loads: list[LoadProcess], lock: int) -> None:
    """Have loads run; what waits at a barrier needs only a line, and so comes last."""
    for load in loads:
        if not load.barrier:
            load.start(lock)
    for load in loads:
        if load.barrier:
            load.release()


def wait_for_samples(loads: list[LoadProcess]) -> None:
    """Wait until each load that tells while it runs has told once; a busy host takes its time.

    One that never does is judged when its output is read.
    """
    limit = time.monotonic() + READY_SECONDS
    for load in loads:
        while not load.has_told and load.running():
            if time.monotonic() > limit:
                return
            time.sleep(POLL_SECONDS)


def is_precise(loads: list[LoadProcess], wanted: float) -> bool:
    """Whether the rate of every load has settled closely enough since all of them run."""
    series = [list(load.samples) for load in loads]
    if not all(series):
        return False
    begin, end = progress.common_span(series)
    widths = [progress.relative_half_width([one], begin, end) for one in series]
    return all(width is not None and width <= wanted for width in widths)


def wait_for_end(
    loads: list[LoadProcess], began: float, stopping: Mapping[str, Any], timeout: float
) -> None:
    """Wait until the point has been measured, by the stopping rule.

    Loads that end by themselves decide where there are any: the first to end ends the window.
    Otherwise the point ends when its rates are precise enough or its time is up. A load that tells
    while it runs is given time to tell once, since a pass may take longer on a busy host.

    Raises:
        PointError: nothing ended in time.
    """
    own_end = [load for load in loads if not load.stoppable]
    shortest, longest = stopping["min_seconds"], stopping["max_seconds"]
    wanted = stopping.get("relative_precision")
    next_look = began + shortest
    while all(load.running() for load in loads):
        now = time.monotonic()
        if now - began > timeout:
            raise PointError(f"not finished after {timeout:g} s")
        for load in loads:
            load.look_when_due()
        if not own_end:
            if now - began >= longest and all(load.has_told for load in loads):
                return
            if wanted is not None and now >= next_look:
                if is_precise(loads, wanted):
                    return
                next_look = now + PRECISION_SECONDS
        time.sleep(POLL_SECONDS)


def run_loads(
    point: Mapping[str, Any], folder: Path, record: Record, lock: int
) -> list[dict[str, Any]]:
    """Measure the point; what is known goes into the record even when it fails midway.

    Returns:
        The checks of the verdict.
    """
    loads, checks = prepare_loads(point, folder)
    try:
        began = start_loads(loads, lock)
        wait_for_end(loads, began, point["stopping"], point["timeout_seconds"])
        if any(load.silent for load in loads) and len(loads) > 1:
            time.sleep(TAIL_SECONDS)
    finally:
        started = [load for load in loads if hasattr(load, "process")]
        for load in started:
            load.stop()
        for load in started:
            load.finish()
        record["loads"] = [load.report() for load in started]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    record["runner_seconds"] = usage.ru_utime + usage.ru_stime
    record["environment_after"] = host_state.read_host_state()
    return checks + record_checks.check_record(record)


def measure_point(point: Mapping[str, Any], replicate: int) -> Record:
    """Measure one replicate of a point and return its record, whatever happens.

    Args:
        point: what the design says, see ``schemas/record.schema.json``, key ``point``.
        replicate: 1, 2, ...
    """
    record: Record = {
        "schema_version": SCHEMA_VERSION,
        "point": point,
        "replicate": replicate,
        "order": point["orders"][replicate - 1],
        "stopping": point["stopping"],
        "began_at": utc_now(),
        "measured_on": socket.gethostname(),
        "loads": [],
    }
    checks: list[dict[str, Any]] = []
    folder = Path(tempfile.mkdtemp(prefix="chaosity-"))
    try:
        with hold_host_lock() as lock:
            kernel_settings.restore_leftover_settings()
            record["environment_before"] = host_state.read_host_state()
            checks = run_loads(point, folder, record, lock)
    except (
        PointError,
        LoadError,
        drive_access.DriveError,
        opencl_devices.OpenclError,
        UserError,
    ) as error:
        checks.append(make_check("measured", False, str(error)))
    except Exception as error:  # a fault of this program must not stop the others' points
        checks.append(make_check("measured", False, f"{type(error).__name__}: {error}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record["finished_at"] = utc_now()
    record["verdict"] = make_verdict(checks)
    return record
