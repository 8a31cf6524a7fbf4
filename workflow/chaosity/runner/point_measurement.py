"""Measure a point: check its preconditions, run its loads at the same time, make its record."""

from __future__ import annotations

import contextlib
import glob
import os
import resource
import shutil
import socket
import stat
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import MeasurementError, UserError, check_free_space, printable_text
from chaosity.records.record_files import begin_record, finish_record
from chaosity.records.record_format import (
    Check,
    Point,
    PointStoppingRule,
    Record,
    RequiredPlacement,
    UnfinishedRecord,
    make_check,
)
from chaosity.runner import (
    devices_of_point,
    linux_settings,
    lock_files,
    observed_state,
)
from chaosity.runner.guardian_process import Guardian, with_guardian
from chaosity.runner.load_process import LoadProcess
from chaosity.runner.metric_values import common_time_span, rate_precision
from chaosity.runner.record_checks import check_record

# Longest time in seconds that a point waits for the end of another measurement before the point
# fails.
LOCK_SECONDS = 900.0
# Longest time in seconds in which a load allocates, places and touches its memory: 64 GiB at 1
# GB/s, and a reserve.
READY_SECONDS = 120.0
# Interval in which the runner checks whether the loads still run; a check costs microseconds.
POLL_SECONDS = 0.005
# Interval between two computations of the precision so far; a computation reads all samples.
PRECISION_CHECK_INTERVAL_SECONDS = 0.1
# A load that reports no progress must run completely while the other loads run. So the other loads
# start SECONDS_BEFORE_LOAD_WITHOUT_PROGRESS before this load, since fio first opens its files and
# writes its first row. The other loads stop SECONDS_AFTER_LOAD_WITHOUT_PROGRESS after this load,
# since a row of fio covers 100 ms.
SECONDS_BEFORE_LOAD_WITHOUT_PROGRESS = 1.0
SECONDS_AFTER_LOAD_WITHOUT_PROGRESS = 0.3
# Least free space in bytes after the loads. With less free space, files that the loads wrote may be
# cut off, and not every tool notices a full disk.
LEAST_FREE_BYTES_AFTER_LOADS = 64 * 1024


@contextlib.contextmanager
def hold_host_lock() -> Iterator[int]:
    """Hold the host's lock, so that only one measurement runs; yield the lock's file descriptor.

    The lock is necessary because two controllers may want to measure on one host. Loads inherit the
    lock, so a load that survives a killed runner blocks other measurements.

    Raises:
        MeasurementError: another measurement did not end in time.
        UserError: the lock cannot be opened.
    """
    path = lock_files.lock_file_path(lock_files.MEASURING)
    handle = lock_files.open_lock_file(path)
    try:
        limit = time.monotonic() + LOCK_SECONDS
        while not lock_files.try_to_lock(handle):
            if time.monotonic() > limit:
                holders = lock_files.describe_holders(handle)
                raise MeasurementError(f"{holders} held {path} for {LOCK_SECONDS:g} s")
            time.sleep(0.05)
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _working_folder() -> Iterator[tuple[Path, Guardian]]:
    """Make a working folder, and remove folders that killed runners of this user left behind."""
    # The caller has locked this host, so no other working folder of this host is in use. Hosts may
    # share a temporary folder, so only folders of this host are removed. If this runner is killed,
    # the guardian kills the loads and removes the folder.
    prefix = f"chaosity-point-{socket.gethostname()}-"
    for leftover in Path(tempfile.gettempdir()).glob(f"{glob.escape(prefix)}*"):
        status = leftover.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            shutil.rmtree(leftover, ignore_errors=True)
    check_free_space(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
        with_guardian(lambda: shutil.rmtree(folder, ignore_errors=True)) as guardian,
    ):
        yield Path(folder), guardian


def check_free_memory(point: Point) -> Check:
    """Check that the loads fit into the free memory of their nodes and of this process's cgroup.

    Raises:
        MeasurementError: a node is missing or has too little free memory, or the cgroup allows too
            little.
    """
    free = observed_state.available_memory_bytes()
    needed: Counter[int] = Counter()
    for load in point["loads"]:
        for node, share in memory_shares_by_node(load["placement"]).items():
            needed[node] += int(load["memory_bytes"] * share)
    for node, size in needed.items():
        if node not in free:
            raise MeasurementError(f"node {node} has no memory on this host")
        if size > free[node]:
            raise MeasurementError(f"node {node} has {free[node]} bytes free, {size} are needed")
    cgroup, total = observed_state.tightest_cgroup_memory(), sum(needed.values())
    if cgroup and total > cgroup.available_bytes:
        raise MeasurementError(
            f"{cgroup.limit_file} allows {cgroup.available_bytes} more bytes, {total} are needed; "
            "raise the limit of this cgroup, such as the memory of the Slurm job"
        )
    detail = ", ".join(f"node {n}: {s} of {free[n]} free bytes" for n, s in needed.items())
    return make_check("free memory", True, detail)


def memory_shares_by_node(placement: RequiredPlacement) -> dict[int, float]:
    """Return node -> share of a load's memory; equal shares if the placement names no shares."""
    if shares := placement.get("shares"):
        return {int(node): share for node, share in shares.items()}
    nodes = placement["memory_nodes"]
    return dict.fromkeys(nodes, 1 / len(nodes))


def _check_processing_units(point: Point) -> Check:
    """Check that this process may run on all units of the loads; its cgroup may forbid units."""
    allowed = os.sched_getaffinity(0)
    for load in point["loads"]:
        missing = set(parse_cpu_list(load["placement"]["cpus"])) - allowed
        if missing:
            raise MeasurementError(f"this process may not run on PU {sorted(missing)}")
    return make_check("processing units", True, f"{len(allowed)} allowed")


def _check_initiator_nodes_as_planned(point: Point) -> Check:
    """Check that the units of every initiator are on the nodes that the plan names."""
    # The nodes of the units differ after a boot into another firmware mode, or if another host
    # answers.
    cpus_by_node = observed_state.read_cpus_by_node()
    node_of = {cpu: node for node, cpus in cpus_by_node.items() for cpu in cpus}
    for load in point["loads"]:
        planned = load["initiator"]["nodes"]
        for cpu in parse_cpu_list(load["initiator"]["cpus"]):
            if planned and cpu in node_of and node_of[cpu] not in planned:
                listed = ", ".join(map(str, planned))
                raise MeasurementError(
                    f"PU {cpu} is on node {node_of[cpu]} now; at discovery it was on node {listed}"
                )
    detail = f"{len(node_of)} PUs on their nodes"
    return make_check("nodes as planned", True if node_of else None, detail)


def _prepare_loads(
    point: Point, folder: Path, guardian: Guardian, held: devices_of_point.HeldDrives
) -> tuple[list[LoadProcess], list[Check]]:
    """Check the preconditions and make a working folder for each load."""
    checks = [
        _check_processing_units(point),
        _check_initiator_nodes_as_planned(point),
        check_free_memory(point),
    ]
    loads = []
    for spec in point["loads"]:
        own_folder = folder / spec["name"]
        own_folder.mkdir()
        checks += devices_of_point.check_and_link_drives(spec, own_folder, held)
        spec, device_checks = devices_of_point.fill_in_device_numbers(spec)
        checks += device_checks
        loads.append(LoadProcess(spec, own_folder, guardian))
    return loads, checks


def _start_loads(loads: list[LoadProcess], lock: int) -> float:
    """Start all loads, together if possible; return when the last began, in monotonic seconds."""
    # Loads with a barrier prepare their memory before any load begins. Some loads cannot begin
    # together with the others. If the pages of a load first move to the best nodes while it runs,
    # the loads that the runner stops begin before this load, because the best nodes depend on the
    # traffic of these loads. The remaining loads begin when the pages no longer move. A load whose
    # program reports no progress begins last, when all other loads run.
    silent = [load for load in loads if load.reports_no_progress]
    reporting = [load for load in loads if not load.reports_no_progress]
    barriers = [load for load in loads if load.has_barrier]
    settling = [load for load in barriers if load.reports_settled_pages]
    early = [load for load in reporting if load.is_ended_by_runner and load not in settling]
    waiting = [load for load in barriers if load not in settling]
    _start_and_wait(waiting, lock)
    if settling:
        _release_loads(early, lock)
        _start_and_wait(settling, lock)
        reporting = [load for load in reporting if load not in early]
    _release_loads(reporting, lock)
    if silent and len(loads) > len(silent):
        time.sleep(SECONDS_BEFORE_LOAD_WITHOUT_PROGRESS)
        _wait_for_samples([load for load in loads if not load.reports_no_progress])
    _release_loads(silent, lock)
    return time.monotonic()


def _start_and_wait(loads: list[LoadProcess], lock: int) -> None:
    """Start loads with a barrier, and wait until all are ready."""
    for load in loads:
        load.start_process(lock)
    for load in loads:
        load.wait_until_ready(READY_SECONDS)


def _release_loads(loads: list[LoadProcess], lock: int) -> None:
    """Let loads run: start the loads without a barrier, then release the loads at their barriers.

    The loads at barriers come last, because a release is a single line of input, and is faster than
    a start.
    """
    for load in loads:
        if not load.has_barrier:
            load.start_process(lock)
    for load in loads:
        if load.has_barrier:
            load.release_from_barrier()


def _wait_for_samples(loads: list[LoadProcess]) -> None:
    """Wait until each load has reported a sample, but at most `READY_SECONDS`.

    The check of the output fails for a load that reports no sample.
    """
    limit = time.monotonic() + READY_SECONDS
    for load in loads:
        while not load.needs_no_wait_for_progress and load.is_running():
            if time.monotonic() > limit:
                return
            time.sleep(POLL_SECONDS)


def can_stop_by_precision(loads: list[LoadProcess], wanted: float, longest: float) -> bool:
    """Return whether all rates are precise enough, or one cannot become precise enough in time.

    `wanted` is the half width of the rates' 95 % intervals, relative to the rates; `longest` is the
    longest duration of the common window, in seconds.
    """
    series = [list(load.samples) for load in loads]
    if not all(series):
        return False
    begin, end = common_time_span(series)
    found = [rate_precision([own], begin, end) for own in series]
    reached = [precision for precision in found if precision is not None]
    if len(reached) < len(loads):
        return False
    longer = longest / (end - begin)
    return all(precision.relative_half_width <= wanted for precision in reached) or any(
        precision.cannot_reach(wanted, longer) for precision in reached
    )


def _wait_for_end(
    loads: list[LoadProcess], began: float, stopping: PointStoppingRule, timeout: float
) -> None:
    """Wait until a load ends by itself or the stopping rule is met; raise an error at `timeout`."""
    # If loads end by themselves, the window closes when the first load ends. If no load ends by
    # itself, the point ends when its rates are precise enough, when a rate cannot become precise
    # enough, or when the longest time is over. If one pass over the memory takes longer than this
    # time, the point ends after the first sample of each load.
    ends_by_itself = any(not load.is_ended_by_runner for load in loads)
    shortest, longest = stopping["min_seconds"], stopping["max_seconds"]
    wanted = stopping.get("relative_precision")
    next_look = began + shortest
    while all(load.is_running() for load in loads):
        now = time.monotonic()
        if now - began > timeout:
            raise MeasurementError(f"the loads have not ended after {timeout:g} s")
        for load in loads:
            load.observe_placement_when_due()
            load.observe_clock_when_due()
        if not ends_by_itself:
            if now - began >= longest and all(load.needs_no_wait_for_progress for load in loads):
                return
            if wanted is not None and now >= next_look:
                if can_stop_by_precision(loads, wanted, longest):
                    return
                next_look = now + PRECISION_CHECK_INTERVAL_SECONDS
        time.sleep(POLL_SECONDS)


def spent_processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _run_loads(
    point: Point,
    folder: Path,
    record: UnfinishedRecord,
    lock: int,
    guardian: Guardian,
    spent_before: float,
) -> list[Check]:
    """Run the loads of a point, and return the checks; all loads that started are in the record."""
    with devices_of_point.HeldDrives() as held:
        loads, checks = _prepare_loads(point, folder, guardian, held)
        try:
            began = _start_loads(loads, lock)
            _wait_for_end(loads, began, point["stopping"], point["timeout_seconds"])
            if any(load.reports_no_progress for load in loads) and len(loads) > 1:
                time.sleep(SECONDS_AFTER_LOAD_WITHOUT_PROGRESS)
        finally:
            started = [load for load in loads if hasattr(load, "process")]
            for load in started:
                load.send_stop_signal()
            for load in started:
                load.wait_for_end_or_kill()
            record["loads"] = [load.record_of_load() for load in started]
    spent = spent_processor_seconds() - spent_before
    record["runner_seconds"] = spent - sum(load.processor_seconds for load in started)
    units = parse_cpu_list(record["environment_before"]["load_units"])
    record["environment_after"] = observed_state.read_host_state(units)
    check_free_space(folder, LEAST_FREE_BYTES_AFTER_LOADS)
    checks += devices_of_point.check_drives_are_still_there(point["loads"])
    return checks + check_record(record)


def measure_point(point: Point, replicate: int, *, spent_before: float = 0.0) -> Record:
    """Measure one replicate of a point; after a failure, the record has the verdict "failed".

    `spent_before` are processor seconds of this process that do not belong to the measurement: 0 in
    a process that measures a single point. A process that measures many points gives the value of
    `spent_processor_seconds()` before each point.
    """
    measurement = begin_record(point, replicate, socket.gethostname())
    checks: list[Check] = []
    try:
        with hold_host_lock() as lock, _working_folder() as (folder, guardian):
            linux_settings.restore_leftover_kernel_settings()
            listed = (parse_cpu_list(load["placement"]["cpus"]) for load in point["loads"])
            units = observed_state.units_with_siblings(set[int]().union(*listed))
            measurement["environment_before"] = observed_state.read_host_state(units)
            checks = _run_loads(point, folder, measurement, lock, guardian, spent_before)
    except (MeasurementError, UserError) as error:
        checks.append(make_check("measured", False, str(error)))
    except Exception as error:
        # A fault of this program must fail only this point, not the other points of the run.
        checks.append(make_check("measured", False, f"{type(error).__name__}: {error}"))
        # The log shows in which lines of this program the fault happened, but no values of
        # variables.
        sys.stderr.write(printable_text(traceback.format_exc()))
    return finish_record(measurement, checks)
