"""Types of a record, with the keys of its JSON, and functions that make a verdict from checks."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from chaosity.records.point_types import CounterEvent, Load, Point, PointStoppingRule

VALID = "valid"
FAILED = "failed"
# Names of checks: of a load's end, after the name of the load, and of the values in its output.
ENDED_WELL, VALUES = ": ended well", "values"
# The `origin` of a record whose machine does not exist; records of real machines have no origin.
SIMULATED = "simulated"
# What every output about such values says.
NOTHING_MEASURED = "SIMULATED: this machine does not exist, and nothing was measured"


class ThreadPlacement(TypedDict):
    """The processing units that a thread may use (a Linux list), and that on which it last ran."""

    tid: int
    cpus_allowed: str | None
    last_cpu: int


class ObservedPlacement(TypedDict):
    """The units of a load's threads and the nodes of its pages, as the kernel reported them.

    If pages move during the load, `memory_bytes_by_node_at_first` is from the first look at pages.
    """

    threads: list[ThreadPlacement]
    memory_bytes_by_node: dict[str, int] | None
    memory_bytes_by_node_at_first: NotRequired[dict[str, int] | None]


class ProgramFacts(TypedDict):
    """The program that ran: name, path, the version that it reports, and what emulated it."""

    name: str
    path: str | None
    version: str | None
    emulator: NotRequired[str]


class EventCount(CounterEvent):
    """The count of an event on a processing unit, and the time for which the kernel counted."""

    cpu: int
    count: NotRequired[int]
    time_enabled_ns: NotRequired[int]
    time_running_ns: NotRequired[int]


class CounterResult(TypedDict, total=False):
    """The raw `counts` of a counter, or the `reason` why there are none."""

    counts: list[EventCount]
    reason: str


class LoadClock(TypedDict):
    """The mean clock of a load's units in hertz with its `source`, or None with the `reason`."""

    hertz: float | None
    source: NotRequired[str]
    reason: NotRequired[str]


class LoadRecord(Load):
    """A load with its results; times are on the host's monotonic clock, in seconds.

    `signalled` is the signal that ended the load, such as TERM. `outputs` has raw output by name.
    """

    program: ProgramFacts
    began_monotonic_seconds: float
    ended_monotonic_seconds: float
    processor_seconds: float
    exit_status: int | None
    signalled: str | None
    placement_seen: ObservedPlacement | None
    counted: NotRequired[dict[str, CounterResult]]
    clock: NotRequired[LoadClock]
    outputs: dict[str, str]


class HostState(TypedDict):
    """The state of a host at one time, see `runner.host_state`."""

    taken_monotonic_seconds: float
    realtime_minus_monotonic_seconds: float
    processor_seconds: dict[str, float]
    # The units of the loads with their SMT siblings, and their part of the processor time. Records
    # before 2026-11-26 and simulated records lack both.
    load_units: NotRequired[str]
    load_units_processor_seconds: NotRequired[dict[str, float]]
    facts: dict[str, str | None]
    kernel: str


class Check(TypedDict):
    """A line of a verdict, see `make_check`."""

    name: str
    passed: bool | None
    detail: str
    decisive: bool


class Verdict(TypedDict):
    """The status `VALID` or `FAILED`, the reason of a failure, and every check."""

    status: str
    reason: str | None
    checks: list[Check]


class UnfinishedRecord(TypedDict):
    """A record while the point is measured; after a failure, parts of it can be missing."""

    schema_version: int
    origin: NotRequired[str]
    point: Point
    replicate: int
    order: int
    stopping: PointStoppingRule
    began_at: str
    measured_on: str
    loads: list[LoadRecord]
    environment_before: NotRequired[HostState]
    environment_after: NotRequired[HostState]
    runner_seconds: NotRequired[float]


class Record(UnfinishedRecord):
    """The record of one measurement of a point; each replicate of each point has a file."""

    finished_at: str
    verdict: Verdict


def make_check(name: str, passed: bool | None, detail: str, *, decisive: bool = True) -> Check:
    """Return a check, which is a line of a verdict; `detail` is what was observed, with numbers.

    `passed` is None if the check was impossible; the detail gives the reason. If it is not
    `decisive`, the check is only a note, which cannot make the record invalid.
    """
    return {"name": name, "passed": passed, "detail": detail, "decisive": decisive}


def make_verdict(checks: list[Check]) -> Verdict:
    """Return the verdict of all checks: failed when a decisive check did not pass.

    The reason names the checks that failed. If a load did not end well, its other checks and the
    values fail for the same reason, so they are only counted.
    """
    broken = [c for c in checks if c["decisive"] and c["passed"] is False]
    ends = [c for c in broken if c["name"].endswith(ENDED_WELL)]
    dead = tuple(f"{c['name'].removesuffix(ENDED_WELL)}:" for c in ends)
    follow = [
        c
        for c in broken
        if dead and c not in ends and (c["name"].startswith(dead) or c["name"] == VALUES)
    ]
    causes = [c for c in broken if c not in follow]
    texts = [f"{c['name'].removesuffix(ENDED_WELL)}: {c['detail']}" for c in causes]
    if follow:
        texts.append(f"{len(follow)} other check{'s' if len(follow) > 1 else ''} failed too")
    reason = "; ".join(texts) or None
    return {"status": FAILED if broken else VALID, "reason": reason, "checks": checks}
