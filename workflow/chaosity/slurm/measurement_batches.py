"""Group the measurements of a host into jobs that are long compared with their queue time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Experiment, point and replicate.
Key = tuple[str, ...]


@dataclass(frozen=True)
class ReplicateToMeasure:
    """A replicate of a point that has to be measured."""

    key: Key
    order: int  # position of the replicate in the host's random order
    seconds: float  # planned duration


# Measurements that run in one job, one after the other in their random order.
Batch = tuple[ReplicateToMeasure, ...]


def planned_seconds(batch: Iterable[ReplicateToMeasure]) -> float:
    """Return the planned duration of all measurements in seconds."""
    return sum(measurement.seconds for measurement in batch)


def time_limit_minutes(seconds: float, factor: float, slack: float, attempt: int = 1) -> int:
    """Return the time limit of a job in minutes.

    Args:
        seconds: planned duration of its measurements.
        factor: factor by which the planned time is multiplied.
        slack: minutes that are added for the start of the job, and for a point that waits for
            its memory or for another measurement on the host.
        attempt: 1, 2, ...; every retry adds the whole time once more.
    """
    return math.ceil(attempt * (seconds * factor / 60.0 + slack))


def cut_measurements_into_batches(
    measurements: Iterable[ReplicateToMeasure], minutes: float
) -> list[Batch]:
    """Return a host's measurements, in random order, divided into jobs of about `minutes`.

    A job ends with the measurement that reaches this length. The last job can be shorter. If it is
    shorter than a tenth of `minutes`, the previous job gets its measurements.
    """
    parts: list[list[ReplicateToMeasure]] = [[]]
    for measurement in sorted(measurements, key=lambda measurement: measurement.order):
        if planned_seconds(parts[-1]) >= 60.0 * minutes:
            parts.append([])
        parts[-1].append(measurement)
    if len(parts) > 1 and planned_seconds(parts[-1]) < 6.0 * minutes:
        parts[-2:] = [parts[-2] + parts[-1]]
    return [tuple(part) for part in parts if part]
