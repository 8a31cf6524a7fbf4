"""Find the working sets at which latency steps up, such as at the end of a cache.

Two neighbouring sizes are a rise when latency grows by more than RISE_PER_DOUBLING from one to the
other. Successive rises are one step, unless a much smaller rise lies between two larger ones: then
two caches end near each other. Latencies between two steps are a level. A cache has a soft
edge: some lines are evicted before it is full, and some are found when it is too small. So its end
is the size at which latency is the geometric mean of both levels. In the published sweep (document
003) this size is 35 MiB for an L3 cache of 32 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.statistics.estimates_and_ratios import Estimate

# Latencies of a level grow by up to 11 % for each doubling of the size, at the edges of caches.
RISE_PER_DOUBLING = 1.2
# A rise of less than this share of larger rises on both sides separates two steps.
_VALLEY = 0.7
# A smaller step is no cache: it may come from page tables, or from memory that fills up.
_SMALLEST_STEP = 1.25


@dataclass(frozen=True)
class LatencyStep:
    """A step of latency over the working set."""

    # first_bytes, last_bytes: measured sizes at the feet of the step.
    first_bytes: float
    last_bytes: float
    # below_bytes, above_bytes: neighbouring measured sizes around the middle of the step.
    below_bytes: float
    above_bytes: float
    end_bytes: Estimate  # size at which latency crosses the middle of the step, over the blocks
    # lower_ns, upper_ns: latency of the level before and after the step.
    lower_ns: float
    upper_ns: float
    # is_open_below, is_open_above: whether the level before or after the step is only the smallest
    # or the largest size, so that the true level may be lower or higher.
    is_open_below: bool
    is_open_above: bool


def find_latency_steps(rows: pd.DataFrame) -> tuple[LatencyStep, ...]:
    """Return the steps of latency, by ascending size.

    A step whose interval includes no rise is left out.

    Args:
        rows: a row for each size and replicate, with the columns `x` (bytes), `replicate` and
            `value` (ns). Replicates without a value at each size are not used.
    """
    table = rows.pivot_table(values="value", index="replicate", columns="x").dropna()
    if table.empty:
        return ()
    logs, sizes = np.log(table.to_numpy(float)), table.columns.to_numpy(float)
    powers, typical = np.log2(sizes), np.median(logs, axis=0)
    slopes = np.diff(typical) / np.diff(powers)
    rising = slopes > np.log(RISE_PER_DOUBLING)
    for first, last in _runs(rising):
        own = slopes[first:last]
        around = np.minimum(np.maximum.accumulate(own), np.maximum.accumulate(own[::-1])[::-1])
        rising[first:last] = own > _VALLEY * around
    feet = _runs(rising)
    borders = np.array([0, *feet.ravel(), len(sizes) - 1]).reshape(-1, 2)
    levels = [float(np.median(typical[begin : end + 1])) for begin, end in borders]
    steps = []
    for (first, last), lower, upper in zip(feet, levels, levels[1:], strict=False):
        rise = Estimate.of_values(np.exp(logs[:, last] - logs[:, first]))
        if upper - lower < np.log(_SMALLEST_STEP) or (rise.low is not None and rise.low <= 1.0):
            continue
        middle, inside = (lower + upper) / 2.0, slice(first, last + 1)
        ends = [np.interp(middle, run[inside], powers[inside]) for run in logs]
        above = first + 1 + int(np.argmax(typical[first + 1 : last + 1] >= middle))
        steps.append(
            LatencyStep(
                first_bytes=float(sizes[first]),
                last_bytes=float(sizes[last]),
                below_bytes=float(sizes[above - 1]),
                above_bytes=float(sizes[above]),
                end_bytes=Estimate.of_values(np.exp2(ends)),
                lower_ns=float(np.exp(lower)),
                upper_ns=float(np.exp(upper)),
                is_open_below=bool(first == 0),
                is_open_above=bool(last == len(sizes) - 1),
            )
        )
    return tuple(steps)


def _runs(rising: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the positions of the first and the last size of each run of successive rises."""
    return np.flatnonzero(np.diff([0, *rising, 0])).reshape(-1, 2)
