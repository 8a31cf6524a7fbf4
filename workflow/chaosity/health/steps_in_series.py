"""Find since when a host is slower, for the page of all hosts, which reads no points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from scipy.ndimage import median_filter

from chaosity.health.change_points import find_segments
from chaosity.health.check_series import days_of_times
from chaosity.health.judge_check_values import MATTERS
from chaosity.store.measurements import less_is_better

# With fewer checks, a few odd nights would be most of the series.
_FEWEST_CHECKS = 7
# Difference of the last median to the best running median below which there is no loss to tell.
_LIKELY = 0.9 * MATTERS


@dataclass(frozen=True)
class SeriesStep:
    """A loss that began between two checks and lasts."""

    point: str  # the point whose values became worse
    since: str  # time of the first check after the step, or of the begin of a drift, in UTC
    loss: float  # how much worse, as a share: 0.1 is 10 % less bandwidth, or 10 % more latency


def steps_in_series(rows: Sequence[Mapping[str, str]]) -> list[SeriesStep]:
    """Return the losses in a series of checks that last until its end, the largest first.

    The dates are those of `chaosity history`, see `health.change_points`.

    Args:
        rows: the rows of `checks.csv`.

    Raises:
        UserError: a time is not one of ISO 8601.
    """
    series: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for row in sorted(rows, key=lambda row: row["time"]):
        series.setdefault((row["experiment"], row["point"], row["metric"]), []).append(row)
    found = []
    for (_, point, metric), own in series.items():
        if len(own) >= _FEWEST_CHECKS and (step := _largest_lasting_step(point, metric, own)):
            found.append(step)
    return sorted(found, key=lambda step: -step.loss)


def _largest_lasting_step(
    point: str, metric: str, rows: Sequence[Mapping[str, str]]
) -> SeriesStep | None:
    sign = 1.0 if less_is_better(metric) else -1.0
    logs = [sign * math.log(float(row["value"])) for row in rows]  # larger is worse
    # Most series have no loss at their end; this spares them the search, 40 ms for a year.
    if median(logs[-_FEWEST_CHECKS:]) - median_filter(logs, 15, mode="nearest").min() < _LIKELY:
        return None
    segments = find_segments(logs, days_of_times(row["time"] for row in rows))
    # Before the change, afterwards, and the first check after it.
    changes = [(one.last, two.first, two.begin) for one, two in pairwise(segments)]
    changes += [(each.first, each.last, each.begin) for each in segments if each.is_drift]
    end = segments[-1].last
    lasting = [(min(after, end) - before, begin) for before, after, begin in changes]
    away, begin = max(lasting, default=(0.0, 0))
    loss = float(sign * math.expm1(sign * away))
    return SeriesStep(point, rows[begin]["time"], loss) if loss > MATTERS else None
