"""How well the history of nightly checks finds changes: recall, delay, date and false changes.

The hosts, their noise and their faults are the same as in the section `checks`. A step begins after
60 nights, and the drift lasts a year. "Reported" means that a change names the part. The date of a
change is judged 30 nights after the step.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity.health.check_history import Change, append_check, read_check_history
from chaosity.records.record_format import PointKey
from nightly_check_recall import DRIFT_A_MONTH, FAULTS, HEALTHY_NIGHTS, Host, drifted, values_of
from nightly_checks import check_points, time_of_night, write_points

QUIET_NIGHTS, SICK_NIGHTS, NIGHTS_BETWEEN_LOOKS = 60, 30, 7


class HistoryOfHost:
    """A host whose checks are written to a folder of results."""

    def __init__(self, seed: str, healthy: Mapping[PointKey, float], folder: Path) -> None:
        self.host, self.folder, self.night = Host(seed, healthy), folder, 0
        write_points(folder, check_points())

    def check(self, nights: int, true: Mapping[PointKey, float]) -> None:
        """Check the host for some nights."""
        for _ in range(nights):
            values = self.host.check(self.night, true)
            append_check(self.folder, time_of_night(self.night), values, [])
            self.night += 1

    def reported_changes(self) -> tuple[Change, ...]:
        """Return all changes that the history reports now."""
        return read_check_history(self.folder).reported_changes


@dataclass(frozen=True)
class Step:
    """Nights until a step was reported, and what was reported in the end."""

    nights: int | None
    error: int | None = None
    covered: bool = False
    others: int = 0


def reported_step(
    seed: str, healthy: Mapping[PointKey, float], sick: Mapping[PointKey, float], part: str
) -> Step:
    """Return what the history reports about a step, and the number of nights until the report."""
    with tempfile.TemporaryDirectory() as folder:
        host = HistoryOfHost(seed, healthy, Path(folder))
        host.check(QUIET_NIGHTS, healthy)
        nights = None
        for night in range(1, SICK_NIGHTS + 1):
            host.check(1, sick)
            # Reading the history costs more than a check. So after the step was reported, the
            # history is read only once more, at the end.
            if nights is None or night == SICK_NIGHTS:
                changes = host.reported_changes()
                right = [each for each in changes if each.parts == (part,) and each.is_worse]
                nights = nights or (night if right else None)
        if not right:
            return Step(nights, others=len(changes))
        true = time_of_night(QUIET_NIGHTS)
        times = [time_of_night(night) for night in range(host.night)]
        best = min(right, key=lambda each: abs(times.index(each.since) - QUIET_NIGHTS))
        error = abs(times.index(best.since) - QUIET_NIGHTS)
        return Step(nights, error, best.first <= true <= best.last, len(changes) - 1)


def compare(pairs: int) -> Iterator[str]:
    """Yield the tables, for `pairs` hosts each."""
    healthy = values_of([])
    yield f"{len(check_points())} values; {pairs} hosts each"
    yield (
        "| what | reported within 30 nights | median delay, nights | error of the date, nights: "
        "median, largest | true date in the interval | further changes |"
    )
    yield "|---|---|---|---|---|---|"
    for part, fault in FAULTS.items():
        for loss in (0.03, 0.05, 0.10):
            name = f"{part}, {loss:.0%} less"
            sick = values_of([fault(1.0 - loss)])
            yield table_line(
                name, [reported_step(f"{name} {n}", healthy, sick, part) for n in range(pairs)]
            )
    yield drift_line(healthy, pairs)
    yield from false_changes(healthy, pairs)


def table_line(what: str, steps: Sequence[Step]) -> str:
    """Return a line of the table."""
    nights = [each.nights for each in steps if each.nights is not None]
    errors = [each.error for each in steps if each.error is not None]
    cells = [
        what,
        f"{len(nights)} of {len(steps)}",
        f"{statistics.median(nights):g}" if nights else "-",
        f"{statistics.median(errors):g}, {max(errors)}" if errors else "-",
        f"{sum(each.covered for each in steps)} of {len(errors)}",
        str(sum(each.others for each in steps)),
    ]
    return f"| {' | '.join(cells)} |"


def drift_line(healthy: Mapping[PointKey, float], hosts: int) -> str:
    """Return what the history reports of a node that drifts for a year, as a line."""
    drifts = steps = 0
    for number in range(hosts):
        with tempfile.TemporaryDirectory() as folder:
            host = HistoryOfHost(f"drift {number}", healthy, Path(folder))
            host.check(QUIET_NIGHTS, healthy)
            for night in range(HEALTHY_NIGHTS):
                host.check(1, drifted(healthy, "node5", night))
            own = [each for each in host.reported_changes() if each.parts == ("node5",)]
            drifts += any(each.is_drift for each in own)
            steps += sum(not each.is_drift for each in own)
    return (
        f"node5, drift of {DRIFT_A_MONTH:.1%} a month for a year: reported as a drift for {drifts} "
        f"of {hosts}, and {steps} steps"
    )


def false_changes(healthy: Mapping[PointKey, float], hosts: int) -> Iterator[str]:
    """Yield lines on changes of healthy hosts: at the end of a year, and on any of its days."""
    last = ever = 0
    for number in range(hosts):
        with tempfile.TemporaryDirectory() as folder:
            host = HistoryOfHost(f"healthy {number}", healthy, Path(folder))
            seen: set[tuple[str, ...]] = set()
            while host.night < HEALTHY_NIGHTS:
                host.check(min(NIGHTS_BETWEEN_LOOKS, HEALTHY_NIGHTS - host.night), healthy)
                now = {(*each.parts, each.since[:7]) for each in host.reported_changes()}
                seen |= now
            last, ever = last + len(now), ever + len(seen)
    yield f"healthy: {last / hosts:.2f} changes in the history of a host's year"
    yield (
        f"healthy: {ever / hosts:.2f} changes a year that any look reported, "
        f"one look in {NIGHTS_BETWEEN_LOOKS} nights"
    )


PARTS = {"history": compare}
