"""Counts the processor's events while a load runs, by perf_event_open(2).

Events are counted on the load's processing units and not for its processes: its threads are pinned
there, nothing else is measured meanwhile, and what a tool starts later is counted as well. That
takes root, CAP_PERFMON or a `kernel.perf_event_paranoid` below 1. `place` counts for a process.

A counter is a list of events with signs, since some processors tell what comes from remote caches
only as a difference. What cannot be counted keeps the kernel's reason, and the point stays valid.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable, Mapping
from fcntl import ioctl
from typing import Any

from chaosity.runner.tool_output import ExtractionError

# Numbers of the system call by architecture (the kernel's tables of system calls), for Python has
# no function for it.
SYSTEM_CALL = {
    "x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319, "s390x": 331,
}  # fmt: skip
# From the kernel's include/uapi/linux/perf_event.h.
RAW = 4  # PERF_TYPE_RAW: an event of the processor, as its manual numbers it
INSTRUCTIONS = {"type": 0, "config": 1}  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS
ANY = -1  # processor or process
CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC
ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403  # PERF_EVENT_IOC_*
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
ONLY_USER = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING, read behind the value
READ = struct.Struct("=QQQ")
# Counts that are subtracted were not read at one instant, so a difference of nothing may come out a
# little below zero. Beyond this share of what it is taken from, the processor counts wrongly.
CONTRADICTION = 0.01
# What a refusal means, in words that lead on.
MEANINGS = {
    errno.ENOENT: "this machine has no such counter",
    errno.ENODEV: "this machine has no such counter",
    errno.EOPNOTSUPP: "this machine has no such counter",
    errno.EINVAL: "the kernel does not know this event",
    errno.EACCES: "it needs root or kernel.perf_event_paranoid below {limit}",
    errno.EPERM: "it needs root or kernel.perf_event_paranoid below {limit}",
    errno.EMFILE: "too many counters at once for this process",
    errno.EBUSY: "another program holds the counters",
    errno.ENOSYS: "this kernel counts no events",
}

Counted = dict[str, Any]


class CounterError(Exception):
    """An event cannot be counted; the text says why."""


class EventAttributes(ctypes.Structure):
    """struct perf_event_attr in its first published size, which every kernel takes."""

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
    """The counters of one load, from its release to its stop.

    Args:
        wanted: of the load: counter -> `events`, each with `config` and `sign` (and `type`, for
            those that are not the processor's), or the `reason` why the host has none.
        cpus: processing units to count on.
    """

    def __init__(self, wanted: Mapping[str, Mapping[str, Any]], cpus: Iterable[int]) -> None:
        self.counted: dict[str, Counted] = {}
        self._open: list[tuple[Counted, int]] = []
        self._running = False
        cpus = sorted(cpus)
        if any("events" in one for one in wanted.values()):
            raise_file_limit(len(cpus) * sum(len(one.get("events", ())) for one in wanted.values()))
        for name, one in wanted.items():
            self.counted[name] = self._prepare(one, cpus)

    def _prepare(self, one: Mapping[str, Any], cpus: Iterable[int]) -> Counted:
        """Open the events of one counter on each unit, or none of them."""
        if "reason" in one:
            return {"reason": one["reason"]}
        opened: list[tuple[Counted, int]] = []
        try:
            for event in one["events"]:
                for cpu in cpus:
                    opened.append(({**event, "cpu": cpu}, open_event_on_cpu(event, cpu)))
        except CounterError as error:
            for _, handle in opened:
                os.close(handle)
            return {"reason": str(error)}
        self._open += opened
        return {"counts": [count for count, _ in opened]}

    def start(self) -> None:
        """Begin to count, from zero."""
        self._running = True
        for _, handle in self._open:
            ioctl(handle, RESET, 0)
            ioctl(handle, ENABLE, 0)

    def stop(self) -> None:
        """Stop counting, once, and read what was counted."""
        if self._running:
            for _, handle in self._open:
                ioctl(handle, DISABLE, 0)
            for count, handle in self._open:
                names = ("count", "time_enabled_ns", "time_running_ns")
                count.update(zip(names, read_event_count(handle), strict=True))
        self._running = False

    def close(self) -> None:
        """Give the counters back to the kernel."""
        for _, handle in self._open:
            os.close(handle)
        self._open = []


def raise_file_limit(number: int) -> None:
    """Let this process hold so many files more, as far as it may; a counter is one a unit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + number
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def open_event_on_cpu(event: Mapping[str, Any], cpu: int) -> int:
    """A file that counts an event on a unit, whoever runs there; it stands still.

    Raises:
        CounterError: the kernel does not give it.
    """
    # What the processor counts is about the load's own accesses. The kernel's events, such as a
    # switch between tasks, happen in the kernel.
    only_load = ONLY_USER if event.get("type", RAW) == RAW else 0
    return _open(event, DISABLED | only_load, cpu=cpu)


def open_event_for_process(event: Mapping[str, Any], pid: int) -> int:
    """A file that counts an event for a process and what it starts from now on; it counts already.

    Raises:
        CounterError: the kernel does not give it.
    """
    return _open(event, INHERIT | ONLY_USER, pid=pid)


def _open(event: Mapping[str, Any], flags: int, pid: int = ANY, cpu: int = ANY) -> int:
    attributes = EventAttributes(
        type=event.get("type", RAW),
        size=ctypes.sizeof(EventAttributes),
        config=event["config"],
        read_format=TIMES,
        flags=flags,
    )
    number = SYSTEM_CALL.get(platform.machine())
    if number is None:
        raise CounterError(f"how {platform.machine()} counts events is not known here")
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    handle = call(
        ctypes.c_long(number), ctypes.byref(attributes), ctypes.c_int(pid), ctypes.c_int(cpu),
        ctypes.c_int(-1), ctypes.c_ulong(CLOSE_ON_EXEC),
    )  # fmt: skip
    if handle < 0:
        code = ctypes.get_errno()
        name = errno.errorcode.get(code, str(code))
        # A unit shows what others do. Of one's own processes all but the kernel's events may be
        # counted, unless the 3 of some distributions forbids that too.
        meaning = MEANINGS.get(code, os.strerror(code)).format(limit=1 if pid == ANY else 3)
        raise CounterError(f"{meaning} ({name})")
    return int(handle)


def read_event_count(handle: int) -> tuple[int, int, int]:
    """What a file has counted, and for how long it was wanted and did count, in nanoseconds."""
    return READ.unpack(os.read(handle, READ.size))


def counter_value(counted: Mapping[str, Counted], name: str) -> float:
    """The count of a counter, summed over units and events.

    Each is scaled to the longest time that one of them was wanted: for the time it took turns, and
    because a busy host may hold up this process between the start of one and that of the next.

    Raises:
        ExtractionError: it did not count; the text says why.
    """
    one = counted.get(name)
    if one is None:
        raise ExtractionError(f"nothing was counted as {name}")
    if "reason" in one:
        raise ExtractionError(one["reason"])
    if any("count" not in count for count in one["counts"]):
        raise ExtractionError("the load never began")
    wanted_ns = max((count["time_enabled_ns"] for count in one["counts"]), default=0)
    total = added = 0.0
    for count in one["counts"]:
        if not count["time_running_ns"]:
            raise ExtractionError(f"it never got its turn on PU {count['cpu']}")
        scaled = count["count"] * wanted_ns / count["time_running_ns"]
        total += count.get("sign", 1) * scaled
        added += scaled if count.get("sign", 1) > 0 else 0.0
    if total < -CONTRADICTION * added:
        raise ExtractionError("its events contradict each other: their difference is below zero")
    return max(total, 0.0)


def counted_time_share(counted: Counted) -> float | None:
    """The least share of the time that one of its events was counted; None where none was."""
    shares = [
        count["time_running_ns"] / count["time_enabled_ns"]
        for count in counted.get("counts", ())
        if count.get("time_enabled_ns")
    ]
    return min(shares, default=None)
