"""Find the bandwidth from which on one configuration of a host has a lower latency than another.

They are compared at equal absolute bandwidth, since each configuration has a peak of its own.

**A curve** belongs to one replicate block. It is the frontier of its points (see
`loaded_latency_curves`), joined by monotone cubic interpolation of the logarithm of the latency
(Fritsch and Carlson, 1980). Straight lines would be too high between the points of a curve that
bends upwards.

**The interval** of a crossover has all bandwidths around it at which Welch's test at 5 % does not
tell the configurations apart (Fieller's method). The scatter of latency and of bandwidth is in it,
since each block has a curve of its own. Blocks of two configurations are not pairs. A crossover is
reported only if each configuration is clearly lower on one side of it. These tests are made at many
bandwidths, so their level is divided by the number of measured points (Bonferroni).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from scipy.interpolate import PchipInterpolator

from chaosity.statistics.estimates_and_ratios import Values
from chaosity.statistics.loaded_latency_curves import complete_blocks, frontier_points
from chaosity.statistics.significance_tests import LEVEL, silence_warnings_on_equal_values

# The shape of a curve is a guess where its points are farther apart than this share of its peak.
_WIDEST_GAP = 0.25
_BANDWIDTHS = 2001


@dataclass(frozen=True)
class Crossover:
    """The bandwidth at which the curves cross, with its 95 % interval, in the unit of `x`.

    `lower_above` is 0 or 1: which configuration has the lower latency above it.
    """

    bandwidth: float
    low: float
    high: float
    lower_above: int


@dataclass(frozen=True)
class CurveComparison:
    """The latencies of two configurations, compared where both reach the same bandwidth."""

    reach: float  # largest bandwidth that every curve of both configurations reaches
    n: tuple[int, int]  # number of complete replicate blocks of each configuration
    crossovers: tuple[Crossover, ...] = ()  # from low to high bandwidth
    # If there is no crossover: which configuration (0 or 1) has the lower latency wherever a
    # difference is detected; None if none is detected.
    lower: int | None = None
    reason: str | None = None  # why the curves cannot be compared, or None


def mean_curve_over_places(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the points of one line as a mean over its places, for each replicate block.

    Places measure the same points, so the points with the k-th smallest bandwidth belong together.

    Args:
        rows: rows with `point`, `replicate`, `initiator`, `target`, `x` (bandwidth of the other
            loads; 0 if nothing else ran) and `value` (latency; not a number for a failed point).

    Returns:
        The first row of each point, with `rank` (0, 1, ...), the mean `x` and the geometric mean
        `value`. A block that lacks a value of another block is left out.
    """
    blocks = complete_blocks(rows)
    complete = pd.concat(blocks) if blocks else rows.iloc[:0]
    places = complete.groupby(["replicate", "initiator", "target"], dropna=False)
    ranks = places["x"].rank(method="first").astype(int) - 1
    ranked = complete.assign(rank=ranks, value=np.log(complete["value"]))
    points = ranked.groupby(["replicate", "rank"])
    means = points[["x", "value"]].mean()
    first = points.first().assign(x=means["x"], value=np.exp(means["value"]))
    return first.reset_index()


def compare_latency_curves(first: pd.DataFrame, second: pd.DataFrame) -> CurveComparison:
    """Compare the latencies of two configurations; both are from `mean_curve_over_places`."""
    curves = [_curve_of_each_block(points) for points in (first, second)]
    n = len(curves[0]), len(curves[1])
    if min(n) < 2:
        return CurveComparison(0.0, n, reason="an interval needs two complete replicates of each")
    reach = min(float(bandwidth[-1]) for side in curves for bandwidth, _ in side)
    x = np.linspace(0.0, reach, _BANDWIDTHS)
    samples = [_mean_and_deviation(np.array([_logs(*c, x) for c in side])) for side in curves]
    (first_mean, first_deviation), (second_mean, second_deviation) = samples
    difference = first_mean - second_mean
    with silence_warnings_on_equal_values():
        p = stats.ttest_ind_from_stats(
            first_mean, first_deviation, n[0], second_mean, second_deviation, n[1], equal_var=False
        ).pvalue
    p = np.where(np.isfinite(p), p, difference == 0.0)  # without any scatter
    points = max(len(bandwidth) for side in curves for bandwidth, _ in side)
    sign, clear = np.sign(difference), np.flatnonzero(p < LEVEL / points)
    apart = np.flatnonzero(p < LEVEL)
    found = []
    for change in np.flatnonzero(np.diff(sign[clear])):
        begin, end = clear[change], clear[change + 1]
        zeros = begin + np.flatnonzero(np.diff(sign[begin : end + 1]))
        middle = zeros[len(zeros) // 2]
        if gap := _wide_gap(curves[0] + curves[1], x[middle]):
            return CurveComparison(reach, n, reason=gap)
        low = apart[(apart <= middle) & (sign[apart] == sign[begin])].max()
        high = apart[(apart > middle) & (sign[apart] == sign[end])].min()
        bounds = float(x[low]), float(x[high])
        found.append(Crossover(float(x[middle]), *bounds, lower_above=int(sign[end] > 0)))
    lower = int(sign[clear[0]] > 0) if len(clear) and not found else None
    return CurveComparison(reach, n, tuple(found), lower)


def _curve_of_each_block(points: pd.DataFrame) -> list[tuple[Values, Values]]:
    """Return bandwidth and latency of the frontier of each block."""
    blocks = (block for _, block in points.groupby("replicate"))
    return [frontier_points(*block[["x", "value"]].to_numpy(float).T) for block in blocks]


def _mean_and_deviation(logs: Values) -> tuple[Values, Values]:
    """Return mean and standard deviation of the blocks at each bandwidth.

    The curves of a few blocks meet at some bandwidths by chance, and then seem to be exact. So the
    deviation is at least its median over all bandwidths.
    """
    deviation = logs.std(axis=0, ddof=1)
    return logs.mean(axis=0), np.maximum(deviation, np.median(deviation))


def _logs(bandwidth: Values, latency: Values, x: Values) -> Values:
    """Return the logarithm of the latency at each bandwidth that the curve reaches.

    Below its first point, a curve has the latency of this point, which is the lowest measured.
    """
    logs: Values = np.log(latency)
    if len(logs) == 1:
        return np.full_like(x, logs[0])
    found: Values = PchipInterpolator(bandwidth, logs)(np.clip(x, bandwidth[0], bandwidth[-1]))
    return found


def _wide_gap(curves: list[tuple[Values, Values]], x: float) -> str | None:
    """Return why the curves are unknown at a bandwidth; None if the points next to it are near."""
    for bandwidth, _ in curves:
        above = int(np.searchsorted(bandwidth, x))
        gap = (bandwidth[above] - bandwidth[above - 1]) / bandwidth[-1] if above else 0.0
        if gap > _WIDEST_GAP:
            return f"the points next to the crossover are {100 * gap:.0f} % of the peak apart"
    return None
