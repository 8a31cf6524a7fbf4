"""Count processor events while a load runs, by perf_event_open(2), and find the mean clock.

Events are counted on the load's processing units, not for the load's processes. So the counts
include programs that the tool starts later. The load's threads are pinned to these units, and no
other load uses these units at the same time. Counting on units needs root, CAP_PERFMON or
`kernel.perf_event_paranoid` below 1. In contrast, `chaosity.place` counts the events of a process.

A counter is a list of events whose counts are added or subtracted, since some processors count
accesses to remote caches only as a difference of two events. When an event cannot be counted, the
record keeps the kernel's reason, and the point stays valid.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from statistics import fmean
from typing import cast

from chaosity.records.record_format import (
    CounterEvent,
    CounterEventsOrReason,
    CounterResult,
    EventCount,
    LoadClock,
)
from chaosity.runner.observed_state import read_file_if_present
from chaosity.runner.tool_output import ExtractionError

# Architecture -> number of the system call perf_event_open (the kernel's system call tables).
# Python has no function for this system call.
NUMBER_OF_PERF_EVENT_OPEN = {
    "x86_64": 298,
    "aarch64": 241,
    "riscv64": 241,
    "loongarch64": 241,
    "ppc64le": 319,
    "s390x": 331,
}
# The numbers below are from the kernel's include/uapi/linux/perf_event.h.
TYPE_OF_RAW_EVENT = 4  # PERF_TYPE_RAW: an event by its number in the processor's manual
INSTRUCTIONS: CounterEvent = {"type": 0, "config": 1}  # PERF_TYPE_HARDWARE, ..._HW_INSTRUCTIONS
ANY_PROCESS_OR_PROCESSOR = -1  # any processor or any process
CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC
ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403  # PERF_EVENT_IOC_*
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
USER_MODE_ONLY_FLAGS = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
READ_TIMES_FLAGS = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING, which follow the count
READ_FORMAT = struct.Struct("=QQQ")
# The two counts of a difference are not read at the same instant, so the difference may be slightly
# below zero. If the difference is below zero by more than this share of the positive counts, the
# two counts contradict each other.
MOST_NEGATIVE_COUNT_SHARE = 0.01
# Error number of the kernel -> the reason why an event cannot be counted.
_REASON_OF_ABSENT_COUNTER = "this machine has no such counter"
_REASON_OF_FORBIDDEN_COUNTER = "counting needs root or kernel.perf_event_paranoid below {limit}"
REASON_OF_ERROR_NUMBER = {
    errno.ENOENT: _REASON_OF_ABSENT_COUNTER,
    errno.ENODEV: _REASON_OF_ABSENT_COUNTER,
    errno.EOPNOTSUPP: _REASON_OF_ABSENT_COUNTER,
    errno.EINVAL: "the kernel does not know this event",
    errno.EACCES: _REASON_OF_FORBIDDEN_COUNTER,
    errno.EPERM: _REASON_OF_FORBIDDEN_COUNTER,
    errno.EMFILE: "too many counters at once for this process",
    errno.EBUSY: "another program holds the counters",
    errno.ENOSYS: "this kernel counts no events",
}


class CounterError(Exception):
    """The kernel cannot count an event; the text gives the reason."""


class _EventAttributes(ctypes.Structure):
    """The C struct perf_event_attr in its first published size, which every kernel accepts."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    )


class LoadCounters:
    """The event counters of one load, which count on the load's units from its start to its stop.

    `counted` maps the name of a counter to its result. Results are complete after `stop_counting`.
    """

    def __init__(self, wanted: Mapping[str, CounterEventsOrReason], cpus: Iterable[int]) -> None:
        self._open: list[tuple[EventCount, int]] = []
        self._running = False
        cpus = sorted(cpus)
        if events := sum(len(request.get("events", ())) for request in wanted.values()):
            _raise_file_limit(len(cpus) * events)
        self.counted = {name: self._open_counter(wanted[name], cpus) for name in wanted}

    def _open_counter(self, request: CounterEventsOrReason, cpus: Collection[int]) -> CounterResult:
        """Open all events of a counter on all units; if one event cannot be opened, close all."""
        if "reason" in request:
            return {"reason": request["reason"]}
        opened: list[tuple[EventCount, int]] = []
        try:
            for event in request["events"]:
                # Processor events are counted only in user mode, so that they count only accesses
                # of the load. Events such as task switches happen in the kernel, so they are
                # counted in the kernel too.
                flags = DISABLED | (
                    USER_MODE_ONLY_FLAGS
                    if event.get("type", TYPE_OF_RAW_EVENT) == TYPE_OF_RAW_EVENT
                    else 0
                )
                for cpu in cpus:
                    count = cast(EventCount, {**event, "cpu": cpu})
                    opened.append((count, _open_event(event, flags, cpu=cpu)))
        except CounterError as error:
            for _, handle in opened:
                os.close(handle)
            return {"reason": str(error)}
        self._open += opened
        return {"counts": [count for count, _ in opened]}

    def start_counting(self) -> None:
        """Begin to count, from zero."""
        self._running = True
        for _, handle in self._open:
            ioctl(handle, RESET, 0)
            ioctl(handle, ENABLE, 0)

    def stop_counting(self) -> None:
        """Stop counting and read the counts; a second call does nothing."""
        if self._running:
            for _, handle in self._open:
                ioctl(handle, DISABLE, 0)
            for count, handle in self._open:
                number, enabled_ns, running_ns = read_event_count(handle)
                count["count"] = number
                count["time_enabled_ns"], count["time_running_ns"] = enabled_ns, running_ns
        self._running = False

    def close_counters(self) -> None:
        """Close the kernel's counters."""
        for _, handle in self._open:
            os.close(handle)
        self._open = []


def _raise_file_limit(number: int) -> None:
    """Allow this process to open `number` more files, up to its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft + number if hard == resource.RLIM_INFINITY else min(soft + number, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def open_event_for_process(event: CounterEvent, pid: int) -> int:
    """Return a file descriptor that counts an event for a process and its future children.

    Raises:
        CounterError: the kernel refuses.
    """
    return _open_event(event, INHERIT | USER_MODE_ONLY_FLAGS, pid=pid)


def _open_event(
    event: CounterEvent,
    flags: int,
    pid: int = ANY_PROCESS_OR_PROCESSOR,
    cpu: int = ANY_PROCESS_OR_PROCESSOR,
) -> int:
    attributes = _EventAttributes(
        type=event.get("type", TYPE_OF_RAW_EVENT),
        size=ctypes.sizeof(_EventAttributes),
        config=event["config"],
        read_format=READ_TIMES_FLAGS,
        flags=flags,
    )
    number = NUMBER_OF_PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise CounterError(f"the system call for counters on {platform.machine()} is unknown")
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    handle = call(
        ctypes.c_long(number),
        ctypes.byref(attributes),
        ctypes.c_int(pid),
        ctypes.c_int(cpu),
        ctypes.c_int(-1),
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )
    if handle < 0:
        code = ctypes.get_errno()
        # Counts on a unit include other users' programs, so kernel.perf_event_paranoid must be
        # below 1. For counts of a process of the same user, this setting must be below 3 (some
        # distributions add the value 3).
        limit = 1 if pid == ANY_PROCESS_OR_PROCESSOR else 3
        reason = REASON_OF_ERROR_NUMBER.get(code, os.strerror(code)).format(limit=limit)
        raise CounterError(f"{reason} ({errno.errorcode.get(code, str(code))})")
    return int(handle)


def read_event_count(handle: int) -> tuple[int, int, int]:
    """Return the count of an open event, and its enabled and running time in nanoseconds."""
    count, enabled_ns, running_ns = READ_FORMAT.unpack(os.read(handle, READ_FORMAT.size))
    return count, enabled_ns, running_ns


def counter_value(counted: Mapping[str, CounterResult], name: str) -> float:
    """Return the count of a counter, summed over units and events.

    Each count is scaled to the longest enabled time, since events may share a hardware counter in
    turns, and a busy host may delay this process between the start of two events.

    Raises:
        ExtractionError: there is no count; the text gives the reason.
    """
    result = counted.get(name)
    if result is None:
        raise ExtractionError(f"the kernel counted nothing as {name}")
    if "reason" in result:
        raise ExtractionError(result["reason"])
    if any("count" not in count for count in result["counts"]):
        raise ExtractionError("the load did not begin")
    longest_ns = max((count["time_enabled_ns"] for count in result["counts"]), default=0)
    total = added = 0.0
    for count in result["counts"]:
        if not count["time_running_ns"]:
            raise ExtractionError(f"the kernel never ran the counter on PU {count['cpu']}")
        signed = count.get("sign", 1) * count["count"] * longest_ns / count["time_running_ns"]
        total, added = total + signed, added + max(signed, 0.0)
    if total < -MOST_NEGATIVE_COUNT_SHARE * added:
        raise ExtractionError("the difference of the counter's two events is below zero")
    return max(total, 0.0)


def smallest_counted_time_share(result: CounterResult) -> float | None:
    """Return the share of time (0 to 1) in which the least counted event was counted.

    The result is None if no event was enabled for any time.
    """
    shares = [
        count["time_running_ns"] / count["time_enabled_ns"]
        for count in result.get("counts", ())
        if count.get("time_enabled_ns")
    ]
    return min(shares, default=None)


# The functions below find the clock that a load's units really reached. Turbo, power limits and
# heat change this clock, so it explains differences between nodes, replicates and hosts. The clock
# has two sources:
#
# - APERF and MPERF count only while a unit is not halted. APERF counts at the unit's real clock,
#   MPERF at the rate of the time stamp counter (TSC). The mean clock is APERF / MPERF times the
#   rate of the TSC (Intel SDM volume 3, section 15.2; AMD APM volume 2, section 17.3). The kernel's
#   PMU `msr` counts APERF and MPERF. The PMU `msr` takes no counter from other events, but needs
#   the same rights.
# - `scaling_cur_freq` of the frequency driver, read while the load runs. Some drivers report the
#   clock that they requested, so the mean of these values is an estimate.
#
# Most virtual machines lack both sources. The record of a machine without both sources has a reason
# instead of a clock.
MSR_PMU = Path("/sys/bus/event_source/devices/msr")
FREQUENCY_FILE = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
_MSR_CLOCK_EVENTS = ("aperf", "mperf", "tsc")
# Largest number of units whose frequency files are read; reading a file takes some microseconds.
_MOST_UNITS_READ = 16
COUNTED, ESTIMATED = "APERF and MPERF", "mean of scaling_cur_freq"


def clock_counter_requests(pmu: Path = MSR_PMU) -> dict[str, CounterEventsOrReason]:
    """Return name -> request of the counters for the clock; empty if the kernel lacks a counter."""
    kind = read_file_if_present(pmu / "type")
    codes = {name: read_file_if_present(pmu / "events" / name) for name in _MSR_CLOCK_EVENTS}
    return {
        name: {"events": [{"type": int(kind), "config": int(code.removeprefix("event="), 16)}]}
        for name, code in codes.items()
        if kind and code and all(codes.values())
    }


def read_scaling_frequency(cpus: Sequence[int], file: str = FREQUENCY_FILE) -> float | None:
    """Return the mean frequency in hertz that the frequency driver reports for processing units.

    At most 16 units, evenly spread over `cpus`, are read. The result is None if no unit has a file
    with its frequency.
    """
    chosen = cpus[:: -(-len(cpus) // _MOST_UNITS_READ)] if cpus else cpus
    texts = (read_file_if_present(file.format(cpu)) for cpu in chosen)
    kilohertz = [int(text) for text in texts if text and text.isdigit()]
    return fmean(kilohertz) * 1e3 if kilohertz else None


def clock_of_load(
    counted: Mapping[str, CounterResult], units: int, frequencies: Sequence[float]
) -> LoadClock:
    """Return the mean clock of a load in hertz with its source, or the reason why it is unknown.

    `counted` contains the counts that `clock_counter_requests` requests, and `units` is the number
    of the load's processing units. `frequencies` are the values of `read_scaling_frequency` while
    the load ran, in hertz.
    """
    try:
        if not counted:
            raise ExtractionError("the kernel has no APERF and MPERF events")
        aperf, mperf, tsc = (counter_value(counted, name) for name in _MSR_CLOCK_EVENTS)
        if not mperf:
            raise ExtractionError("all processing units were halted")
    except ExtractionError as error:
        if frequencies:
            return {"hertz": fmean(frequencies), "source": ESTIMATED}
        return {"hertz": None, "reason": f"{error}, and there is no scaling_cur_freq"}
    # `counter_value` scaled the counts of all units to the longest time, so this time is used.
    longest_ns = max(count["time_enabled_ns"] for count in counted["tsc"]["counts"])
    return {"hertz": aperf / mperf * tsc / units / longest_ns * 1e9, "source": COUNTED}
