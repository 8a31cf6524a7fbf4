"""Find the nights at which a series of values changes, and how certain each date is.

A series is divided into segments. A segment is a level or a straight line (a drift). The division
has the smallest sum of squared distances plus a penalty for each segment. The method is optimal
partitioning (Jackson and others, IEEE Signal Processing Letters 12(2), 2005). The result is the
exact minimum, and does not depend on chance. PELT (Killick and others, 2012) finds the same
minimum, but is faster only if a series has many changes. Libraries with PELT allow only one kind of
segment, so they would show a drift as a staircase of changes.
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

# Penalties for each segment, and for the slope of a line, in units of the variance of a value. With
# these penalties, a healthy host with 57 values has less than one false change in a year (`make
# bench BENCH_ARGUMENTS=history`).
_PENALTY, _SLOPE_PENALTY = 18.0, 14.0
# Fewest nights of a change and of a drift that are reported. So two disturbed nights are not a
# change, and a drift must last for a month.
LEAST_NIGHTS, _LEAST_DRIFT = 3, 28
# Largest distance of a value from the running median in standard deviations, and number of nights
# in the running median. A value farther away is replaced by a value at this distance, so a single
# disturbed night is not a change.
_CLIP, _MEDIAN_NIGHTS = 3.5, 7
# Assumed standard deviation from night to night before any check, and the number of nights as which
# this assumption counts. Runs of a machine differ by 1 to 2 % from boot to boot.
_NIGHTLY, _NIGHTLY_COUNTS = 0.015, 8
# Limit for the 95 % interval of the date of a change. The interval contains all nights at which the
# change gives a sum of squares that exceeds the smallest sum by at most this number of variances.
# In 95 of 100 series, the true night is in this interval. The limit is twice the 95 % point of the
# larger of two exponential variables, which are the maxima of a random walk to either side (Yao
# 1987).
_MOST_EXCESS_IN_DATE_INTERVAL = -2.0 * math.log1p(-math.sqrt(0.95))


@dataclass(frozen=True)
class Segment:
    """A part of a series whose fitted value is constant or drifts at a constant rate."""

    # begin, end: positions of the first value in the segment, and of the first value after it.
    begin: int
    end: int
    # first, last: fitted values at both ends. `first` and `last` differ only in a drift.
    first: float
    last: float
    # For each position in the series: how much larger the sum of squares, in variances, would be if
    # the segment began there. The number is infinite where no segment can begin. The first segment
    # has no numbers.
    excess: Numbers

    @property
    def is_drift(self) -> bool:
        """Return whether the fitted values of the segment drift."""
        return self.first != self.last

    @property
    def date_interval(self) -> tuple[int, int]:
        """Return the first and last position of the 95 % interval in which the segment begins."""
        return date_interval(self.excess)


def date_interval(excess: Numbers) -> tuple[int, int]:
    """Return the first and last position in the 95 % interval of a change, see `Segment.excess`."""
    [inside] = np.nonzero(excess <= excess.min() + _MOST_EXCESS_IN_DATE_INTERVAL)
    return int(inside[0]), int(inside[-1])


def find_segments(values: Sequence[float], days: Sequence[float]) -> list[Segment]:
    """Return the segments of a series of logarithms, the oldest first.

    `days` contains the time of each value in days, in ascending order.
    """
    raw, x = np.array(values), np.array(days) - days[0]
    # A change of level affects only one difference, so it hardly adds variance.
    steps = np.diff(raw)
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
    """Return, for each segment of `number` values: begin, end, and whether it is a line."""
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
    """Return the variance of values from the differences of neighbours; 0 without differences.

    A difference of two values has twice the variance of one value. Distances from the median would
    give a far too small variance for three to five values, since few values are closer to their
    median than to the true value.
    """
    sizes = np.abs(differences)
    return (MAD_TO_DEVIATION * float(np.median(sizes))) ** 2 / 2.0 if sizes.size else 0.0


class _RunningSums:
    """Sums that give the squared distances of a part of a series from its mean or fitted line."""

    def __init__(self, x: Numbers, y: Numbers, variance: float) -> None:
        self.x, self.variance = x, variance
        parts = (np.ones_like(x), x, y, x * x, x * y, y * y)
        self.sums = np.concatenate([np.zeros((6, 1)), np.cumsum(parts, axis=1)], axis=1)

    def _means_and_sums_of_squares(self, begin: Positions, end: Positions) -> tuple[Numbers, ...]:
        """Return the means of x and y in a part, and the sums of xx, xy and yy about them."""
        n, x, y, xx, xy, yy = np.atleast_2d(self.sums[:, end].T - self.sums[:, begin].T).T
        return x / n, y / n, xx - x * x / n, xy - x * y / n, np.maximum(yy - y * y / n, 0.0)

    def cost(self, begin: Positions, end: Positions, is_line: bool) -> Numbers:
        """Return the sum of squared distances of a part from its mean or line, in variances."""
        *_, xx, xy, yy = self._means_and_sums_of_squares(begin, end)
        if is_line:
            explained = np.divide(xy * xy, xx, out=np.zeros_like(yy), where=xx > 0.0)
            yy = np.maximum(yy - explained, 0.0)
        return yy / self.variance

    def fitted_ends(self, begin: int, end: int, is_line: bool) -> tuple[float, float]:
        """Return the fitted values at the first and the last position of a part."""
        x, y, xx, xy, _ = (float(each[0]) for each in self._means_and_sums_of_squares(begin, end))
        slope = xy / xx if is_line and xx > 0.0 else 0.0
        return y + slope * (self.x[begin] - x), y + slope * (self.x[end - 1] - x)
