"""Find the nights at which a series of values changes, and how sure each date is.

A series is divided into segments, each of them a level or a straight line (a drift), so that the
sum of squared distances and of a penalty for each segment is smallest: optimal partitioning
(Jackson and others, IEEE Signal Processing Letters 12(2), 2005). The result is the exact minimum,
and does not depend on chance. PELT (Killick and others, 2012) finds the same minimum, and is faster
only where changes are many; the libraries that have it know no segments of both kinds, so a drift
would be a staircase of changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import median_filter

from chaosity.statistics.estimates import MAD_TO_DEVIATION

Numbers = NDArray[np.float64]
Positions = int | NDArray[np.int_]

# Penalties for each segment, and for the slope of a line, in variances of a value. With them, a
# healthy host with 57 values has less than one false change in a year (`make bench
# BENCH_ARGUMENTS=history`).
_PENALTY, _SLOPE_PENALTY = 18.0, 14.0
# A change that lasts for fewer nights is not reported, so two disturbed nights are not a change. A
# drift needs a month.
LEAST_NIGHTS, _LEAST_DRIFT = 3, 28
# A value that is farther from the running median than this many standard deviations counts as at
# this distance, so a single disturbed night is not a change. The running median has this many
# nights.
_CLIP, _MEDIAN_NIGHTS = 3.5, 7
# Standard deviation from night to night that is assumed at first, and the number of nights as which
# this assumption counts. Runs of a machine differ by 1 to 2 % from boot to boot.
_NIGHTLY, _NIGHTLY_COUNTS = 0.015, 8
# How much larger the sum of squares may be, in variances, with the change at another night than
# with the change at the best night: in 95 of 100 series the true night is below this limit. The
# limit is twice the 95 % point of the larger of two exponential variables, which are the maxima of
# a random walk to either side (Yao 1987).
_DATE_LIMIT = -2.0 * math.log1p(-math.sqrt(0.95))


@dataclass(frozen=True)
class Segment:
    """A part of a series whose fitted value is constant or drifts steadily."""

    # begin, end: positions of its first value, and of the first one after it.
    begin: int
    end: int
    # first, last: fitted values at both ends; they differ in a drift.
    first: float
    last: float
    # For each position in the series, how much worse the fit is if the segment began there, in
    # variances; infinite where no segment can begin; empty for the first segment.
    excess: Numbers

    @property
    def is_drift(self) -> bool:
        """Return whether the values of the segment drift."""
        return self.first != self.last

    @property
    def date_interval(self) -> tuple[int, int]:
        """Return the first and last position at which the segment may begin, with 95 %."""
        return date_interval(self.excess)


def date_interval(excess: Numbers) -> tuple[int, int]:
    """Return the first and last position in a change's 95 % interval, see `Segment.excess`."""
    [inside] = np.nonzero(excess <= excess.min() + _DATE_LIMIT)
    return int(inside[0]), int(inside[-1])


def find_segments(values: Sequence[float], days: Sequence[float]) -> list[Segment]:
    """Return the segments of a series of logarithms, the oldest first.

    `days` has the time of each value in days, ascending.
    """
    raw, x = np.array(values), np.array(days) - days[0]
    steps = np.diff(raw)  # a change moves a single difference, so it does not widen the variance
    total = _NIGHTLY_COUNTS * _NIGHTLY**2 + len(steps) * variance_from_neighbour_differences(steps)
    variance = total / (_NIGHTLY_COUNTS + len(steps))
    middle = median_filter(raw, _MEDIAN_NIGHTS, mode="mirror")
    reach = _CLIP * math.sqrt(variance)
    y = np.clip(raw, middle - reach, middle + reach) - raw[0]
    sums = _RunningSums(x, y, variance)
    found: list[Segment] = []
    start, was_line = 0, False
    for begin, end, is_line in _best_partition(sums, len(y)):
        excess = np.array([])
        if begin:
            excess, inside = np.full(len(y), np.inf), np.arange(start + 1, end)
            cost = sums.cost(start, inside, was_line) + sums.cost(inside, end, is_line)
            excess[inside] = cost - cost.min()
        first, last = sums.fitted_ends(begin, end, is_line)
        found.append(Segment(begin, end, first + raw[0], last + raw[0], excess))
        start, was_line = begin, is_line
    return found


def _best_partition(sums: _RunningSums, number: int) -> list[tuple[int, int, bool]]:
    """Return begin and end of each segment of `number` values, and whether a line fits it."""
    costs, is_line = np.full(number + 1, np.inf), np.zeros(number + 1, bool)
    costs[0], before = -_PENALTY, np.zeros(number + 1, int)
    for end in range(min(LEAST_NIGHTS, number), number + 1):
        begins = np.arange(max(end - LEAST_NIGHTS, 0) + 1)
        level = sums.cost(begins, end, False)
        line = sums.cost(begins, end, True) + _SLOPE_PENALTY
        line[end - begins < _LEAST_DRIFT] = np.inf
        totals = costs[begins] + _PENALTY + np.minimum(level, line)
        before[end] = begin = int(np.argmin(totals))
        costs[end], is_line[end] = totals[begin], line[begin] < level[begin]
    ends = [number]
    while ends[-1]:
        ends.append(int(before[ends[-1]]))
    return [(begin, end, bool(is_line[end])) for end, begin in pairwise(ends)][::-1]


def variance_from_neighbour_differences(differences: ArrayLike) -> float:
    """Return the variance of values, from the differences of neighbours; 0 if there are none.

    A difference of two values has twice their variance. Distances from the median would give far
    too little for three to five values, since these lie closer to their own median than to the
    true value.
    """
    sizes = np.abs(differences)
    return (MAD_TO_DEVIATION * float(np.median(sizes))) ** 2 / 2.0 if sizes.size else 0.0


class _RunningSums:
    """Gives the sum of squared distances of any part of a series to its mean or fitted line."""

    def __init__(self, x: Numbers, y: Numbers, variance: float) -> None:
        self.x, self.variance = x, variance
        parts = (np.ones_like(x), x, y, x * x, x * y, y * y)
        self.sums = np.concatenate([np.zeros((6, 1)), np.cumsum(parts, axis=1)], axis=1)

    def _moments(self, begin: Positions, end: Positions) -> tuple[Numbers, ...]:
        """Return the means of x and y, and the sums of squares xx, xy, yy about them."""
        n, x, y, xx, xy, yy = np.atleast_2d(self.sums[:, end].T - self.sums[:, begin].T).T
        return x / n, y / n, xx - x * x / n, xy - x * y / n, np.maximum(yy - y * y / n, 0.0)

    def cost(self, begin: Positions, end: Positions, is_line: bool) -> Numbers:
        """Return the sum of squared distances from the mean or the line, in variances."""
        *_, xx, xy, yy = self._moments(begin, end)
        if is_line:
            explained = np.divide(xy * xy, xx, out=np.zeros_like(yy), where=xx > 0.0)
            yy = np.maximum(yy - explained, 0.0)
        return yy / self.variance

    def fitted_ends(self, begin: int, end: int, is_line: bool) -> tuple[float, float]:
        """Return the fitted values at the first and the last position of a part."""
        x, y, xx, xy, _ = (float(each[0]) for each in self._moments(begin, end))
        slope = xy / xx if is_line and xx > 0.0 else 0.0
        return y + slope * (self.x[begin] - x), y + slope * (self.x[end - 1] - x)
