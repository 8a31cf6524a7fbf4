"""Puts measurements of one host together into jobs that are long beside their wait in the queue."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """One replicate of a point that has to be measured.

    Args:
        key: what tells it from all others.
        host: where it runs.
        order: its place in the host's random order.
        seconds: how long the plan says that it takes.
    """

    key: Hashable
    host: str
    order: int
    seconds: float


@dataclass(frozen=True)
class JobBatch:
    """Measurements that run in one job, one after the other in their random order."""

    host: str
    number: int
    measurements: tuple[Measurement, ...]

    @property
    def name(self) -> str:
        """A name for people, and for the names of log folders: the host and a number."""
        return f"{self.host}.{self.number}"

    @property
    def seconds(self) -> float:
        """How long the plan says that it takes."""
        return sum(one.seconds for one in self.measurements)

    def minutes(self, factor: float, slack: float, attempt: int = 1) -> int:
        """Time limit of the job.

        Args:
            factor: of the planned time.
            slack: minutes that come on top: for the start of the job, and for a point that waits
                for its memory or for another measurement on the host.
            attempt: 1, 2, ...: a job that ran out of time gets more the next time.
        """
        return math.ceil(attempt * (self.seconds * factor / 60.0 + slack))


def batches(measurements: Iterable[Measurement], minutes: float) -> list[JobBatch]:
    """Cut each host's measurements, in their random order, into jobs of about this length.

    A job ends with the measurement that reaches the length, so all but the last of a host are at
    least as long, and the last is not left with a single point's crumbs: what is shorter than a
    tenth of the length joins the one before it.
    """
    by_host: dict[str, list[Measurement]] = {}
    for one in sorted(measurements, key=lambda one: (one.host, one.order)):
        by_host.setdefault(one.host, []).append(one)
    found = []
    for host, ones in by_host.items():
        parts: list[list[Measurement]] = [[]]
        for one in ones:
            if sum(other.seconds for other in parts[-1]) >= 60.0 * minutes:
                parts.append([])
            parts[-1].append(one)
        if len(parts) > 1 and sum(one.seconds for one in parts[-1]) < 6.0 * minutes:
            crumbs = parts.pop()
            parts[-1] += crumbs
        found += [JobBatch(host, number, tuple(part)) for number, part in enumerate(parts, start=1)]
    return found
