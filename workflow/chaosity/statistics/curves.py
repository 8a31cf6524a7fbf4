"""Describe curves of latency over bandwidth, and of latency over the size of the working set.

For latency over bandwidth, this module computes six numbers of each curve, and the bandwidth at
which two curves cross. For latency over size, this module finds steps, such as the end of a cache.

**A loaded curve** is latency over bandwidth. Its six numbers are the unloaded latency, the peak of
the bandwidth, the bandwidth at the knee, and the latency at 50, 75 and 90 % of the peak. Each
replicate block gives a separate curve with its six numbers, because points of different blocks are
never joined. Median and interval of a number are computed over the blocks. The curve is the
frontier of the points: a point is left out when another point has more bandwidth at less latency.
After saturation, bandwidth falls while latency continues to rise. Esmaili-Dokht et al. ("A Mess of
Memory System Benchmarking, Simulation and Application Profiling", MICRO 2024) show this on most
servers. After saturation, one bandwidth can have two latencies, and the curve has the lower
latency. Between two points the curve is a straight line. The peak is the largest of several noisy
values, so on average it is slightly too high.

**The knee** is the bandwidth at which latency is twice the unloaded latency. The bandwidth of the
knee depends only on two neighbouring points. Other definitions of a knee (tangents, the largest
curvature) depend on the scales of the axes. On a curve that bends slowly, other definitions also
depend on the noise of two or three points. If latency does not double before the peak, the knee is
the peak, and a note says so.

**A crossover** is the bandwidth above which the other one of two configurations of a host has the
lower latency. Configurations are compared at equal bandwidth in GB/s, not at equal shares of their
different peaks. The points on the frontier of each block are joined by monotone cubic interpolation
of the logarithm of the latency (Fritsch and Carlson, 1980). Straight lines between the points of a
curve that bends upwards would lie too high. The interval has all bandwidths around the crossover at
which Welch's test at 5 % finds no difference between the configurations (Fieller's method). The
interval includes the scatter of latency and of bandwidth, since each block has its own curve. The
test is unpaired, because the blocks of two configurations have nothing in common. A crossover is
reported only if one configuration has clearly lower latency at some lower bandwidth, and the other
configuration at some higher bandwidth. Welch's tests are made at many bandwidths, so the level of
the tests is divided by the number of measured points (Bonferroni).

**A step** is a rise of latency over the size of the working set, such as at the end of a cache. Two
neighbouring sizes are a rise when latency grows between them by more than RISE_PER_DOUBLING for
each doubling of the size. Neighbouring rises form one step. But a much smaller rise between two
larger rises separates two steps, since two caches can have similar sizes. The latencies between two
steps form a level. Latency rises slowly at the end of a cache: some lines are evicted before the
cache is full, and a cache that is too small still holds some lines. So the end of a cache is the
size at which latency is the geometric mean of both levels. In the published sweep (document 003),
the end of an L3 cache of 32 MiB is at 35 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from chaosity.statistics.estimates import (
    FALSE_ALARM_PROBABILITY,
    Estimate,
    Values,
    intervals_and_p_of_ratios,
)
from chaosity.store.measurements import Measurements, Table, as_measurements

PERCENTAGES_OF_PEAK = (50, 75, 90)  # per cent of the peak
LATENCY_RATIO_AT_KNEE = 2.0
CURVE_QUANTITIES = (
    "unloaded",
    "peak",
    "knee",
    *(f"latency_at_{share}" for share in PERCENTAGES_OF_PEAK),
)
REASON_FOR_NO_KNEE = "latency did not double"
# Share of the peak bandwidth below which a load counts as no load, since some tools can measure
# latency only with other load. At bandwidths below 5 % of the peak, the published curves (Intel MLC
# on seven servers) are within 7 % of their lowest latency.
_MOST_IDLE_SHARE_OF_PEAK = 0.05
# Largest distance between neighbouring points, as a share of the peak; between points that are
# farther apart, the curve is unknown.
_WIDEST_GAP_SHARE = 0.6
# Columns whose values together identify one point of a curve.
_POINT_OF_CURVE_COLUMNS = ("experiment", "point", "load", "initiator", "target")
# The widest gap between the two measured points around a crossover, as a share of the peak. In a
# wider gap, interpolation is too uncertain.
_WIDEST_GAP_SHARE_AT_CROSSOVER = 0.25
_COMPARED_BANDWIDTHS_COUNT = 2001  # number of bandwidths at which two curves are compared
# Ratio of latencies for each doubling of the size from which on latency counts as rising. Near the
# end of a cache, latency grows by up to 11 % for each doubling even without a step.
RISE_PER_DOUBLING = 1.2
# A rise separates two steps if on each side there is a larger rise, and its share of both larger
# rises is below 0.7.
_LEAST_RISE_WITHIN_STEP = 0.7
# The least ratio of the latencies after and before a step. Page tables or full memory can cause
# smaller steps, which are no ends of caches.
_LEAST_LATENCY_RATIO_OF_STEP = 1.25


def latency_curve_quantities(measurements: Table, by: Sequence[str]) -> pd.DataFrame:
    """Compute the six numbers of each curve.

    Args:
        measurements: `value` is the latency; the additional column `x` is the bandwidth of the
            other loads, or 0 if no other load ran.
        by: columns that identify a curve, in addition to host and configuration.

    Returns:
        One row for each curve and quantity, in the order of `CURVE_QUANTITIES`: `host`,
        `configuration`, the columns of `by`, `quantity`, `median`, `low`, `high`, `n`, `reason`
        (why there is no median, else None) and `note` (a remark on the number, else None).
        Bandwidths are in the unit of `x`, latencies in the unit of `value`. A replicate block does
        not count if it lacks a point that another block has.
    """
    keys = ["host", "configuration", *by]
    found = []
    for curve, points in as_measurements(measurements).groups_by_columns(keys):
        names = dict(zip(keys, curve, strict=True))
        found += [{**names, **number} for number in _quantities_of_curve(points)]
    columns = [*keys, "quantity", "median", "low", "high", "n", "reason", "note"]
    return pd.DataFrame(found, columns=columns)


def repeat_unloaded_points_on_each_line(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all lines, and copies of the points without other loads for each line.

    `rows` has the rows of one group, such as a panel of a figure, in the form for
    `latency_curve_quantities`. The column `series` has the name of the line, or null if no other
    load ran.
    """
    lone = rows[rows["series"].isna()]
    lines = rows["series"].dropna().unique()
    if lone.empty or not len(lines):
        return rows
    copies = [lone.assign(series=name) for name in lines]
    return pd.concat([rows[rows["series"].notna()], *copies], ignore_index=True)


def _quantities_of_curve(points: Measurements) -> Iterator[dict[str, object]]:
    """Yield a mapping for each of the six numbers of one curve."""
    rows = points.rows
    complete = rows_of_complete_blocks(points.valid_rows_with_value().rows)
    blocks = [block[["x", "value"]].to_numpy(float).T for block in complete]
    without = (
        rows.groupby([c for c in _POINT_OF_CURVE_COLUMNS if c in rows], dropna=False)[
            "value"
        ].count()
        == 0
    )
    for quantity in CURVE_QUANTITIES:
        found = [(_quantity_of_block(quantity, x, y), x, y) for x, y in blocks]
        known = [(each, x, y) for each, x, y in found if not isinstance(each, str)]
        note = None
        if quantity == "peak" and known and without.any():
            note = f"{int(without.sum())} of the curve's points have no value"
        if quantity == "knee" and (flat := sum(not _latency_doubles(x, y) for _, x, y in known)):
            some = f" in {flat} of {len(known)} replicates" if flat < len(known) else ""
            note = f"{REASON_FOR_NO_KNEE}{some}"
        reason = None if known else found[0][0] if found else "no replicate is complete"
        estimate = Estimate.of_values([each for each, _, _ in known])
        yield {"quantity": quantity, **asdict(estimate), "reason": reason, "note": note}


def rows_of_complete_blocks(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each complete replicate block: a block that lacks no point of any block.

    Rows without `x` or without `value` do not count.
    """
    known = rows.dropna(subset=["x", "value"])
    number = len(
        known[[column for column in _POINT_OF_CURVE_COLUMNS if column in known]].drop_duplicates()
    )
    return [block for _, block in known.groupby("replicate", sort=True) if len(block) == number]


def _quantity_of_block(quantity: str, x: Values, y: Values) -> float | str:
    """Return a quantity of the curve of one block, such as the peak, or why it is unknown."""
    peak, unloaded = float(x.max()), _unloaded_latency(x, y)
    if quantity == "unloaded":
        return unloaded
    if peak <= 0.0:
        return "no point with load"
    if quantity == "peak":
        return peak
    xs, ys = frontier_points(x, y)
    if quantity == "knee":
        if isinstance(unloaded, str):
            return unloaded
        wanted = LATENCY_RATIO_AT_KNEE * unloaded
        return peak if ys[-1] < wanted else _value_at_crossing(ys, xs, wanted, xs / peak)
    share = int(quantity.rsplit("_", 1)[1])
    if xs[0] > share / 100.0 * peak:
        return f"no point below {share} % of the peak"
    return _value_at_crossing(xs, ys, share / 100.0 * peak, xs / peak)


def _unloaded_latency(x: Values, y: Values) -> float | str:
    """Return the latency without other load or at negligible load, or else why it is unknown."""
    if (x == 0.0).any():
        return float(np.median(y[x == 0.0]))
    least = int(np.argmin(x))
    if x[least] > _MOST_IDLE_SHARE_OF_PEAK * x.max():
        return (
            f"no point without load or below {100.0 * _MOST_IDLE_SHARE_OF_PEAK:.0f} % of the peak"
        )
    return float(y[least])


def _latency_doubles(x: Values, y: Values) -> bool:
    """Return whether a latency, at any bandwidth, is at least twice the unloaded latency."""
    return float(y.max()) >= LATENCY_RATIO_AT_KNEE * float(_unloaded_latency(x, y))


def frontier_points(x: Values, y: Values) -> tuple[Values, Values]:
    """Return the points for which no other point has both a larger x and a smaller y.

    The points are returned in ascending order of x, which is also their ascending order of y.
    """
    order = np.lexsort((-y, x))[::-1]
    lowest = np.minimum.accumulate(y[order])
    kept = order[np.diff(lowest, prepend=np.inf) < 0.0][::-1]
    return x[kept], y[kept]


def _value_at_crossing(along: Values, across: Values, wanted: float, shares: Values) -> float | str:
    """Return the value of `across` where `along` reaches `wanted`, or why this value is unknown.

    `along` and `across` ascend. The value is interpolated. `shares` is the bandwidth of each point
    as a share of the peak.
    """
    above = int(np.searchsorted(along, wanted))
    if above == 0:
        known = along[0] == wanted
        return float(across[0]) if known else "latency has doubled at the first point with load"
    gap = float(shares[above] - shares[above - 1])
    if gap > _WIDEST_GAP_SHARE:
        return f"the points on both sides are {100.0 * gap:.0f} % of the peak apart"
    return float(np.interp(wanted, along, across))


@dataclass(frozen=True)
class Crossover:
    """The bandwidth at which two curves cross, with its 95 % interval, in the unit of `x`.

    `lower_above` is the number (0 or 1) of the configuration that has the lower latency above the
    crossover.
    """

    bandwidth: float
    low: float
    high: float
    lower_above: int


@dataclass(frozen=True)
class CurveComparison:
    """The latencies of two configurations, compared at bandwidths that both reach."""

    reach: float  # largest bandwidth that every curve of both configurations reaches
    n: tuple[int, int]  # number of complete replicate blocks of each configuration
    crossovers: tuple[Crossover, ...] = ()  # from low to high bandwidth
    # The number (0 or 1) of the configuration that has the lower latency wherever the latencies
    # clearly differ; None if there is a crossover or no clear difference.
    lower: int | None = None
    reason: str | None = None  # why the curves cannot be compared, or None


def mean_curve_over_places(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean curve of one line over all its places, for each replicate block.

    A place is a pair of initiator and target. All places measure the same points, so the points
    with the k-th smallest bandwidth of each place are averaged.

    Args:
        rows: rows with `point`, `replicate`, `initiator`, `target`, `x` (bandwidth of the other
            loads; 0 if nothing else ran) and `value` (latency; not a number for a failed point).

    Returns:
        One row for each block and `rank` (k: 0, 1, ...), with the mean `x` and the geometric mean
        `value`; the other columns are from the first row of the point. A block that lacks a value
        which another block has is left out.
    """
    blocks = rows_of_complete_blocks(rows)
    complete = pd.concat(blocks) if blocks else rows.iloc[:0]
    places = complete.groupby(["replicate", "initiator", "target"], dropna=False)
    ranks = places["x"].rank(method="first").astype(int) - 1
    ranked = complete.assign(rank=ranks, value=np.log(complete["value"]))
    points = ranked.groupby(["replicate", "rank"])
    means = points[["x", "value"]].mean()
    first = points.first().assign(x=means["x"], value=np.exp(means["value"]))
    return first.reset_index()


def compare_latency_curves(first: pd.DataFrame, second: pd.DataFrame) -> CurveComparison:
    """Compare the latencies of two configurations, given as rows from `mean_curve_over_places`."""
    curves = [
        [frontier_points(*block[["x", "value"]].to_numpy(float).T) for _, block in blocks]
        for blocks in (first.groupby("replicate"), second.groupby("replicate"))
    ]
    n = len(curves[0]), len(curves[1])
    if min(n) < 2:
        return CurveComparison(0.0, n, reason="an interval needs two complete replicates of each")
    reach = min(float(bandwidth[-1]) for side in curves for bandwidth, _ in side)
    x = np.linspace(0.0, reach, _COMPARED_BANDWIDTHS_COUNT)
    samples = [
        np.array([_log_latency_at_bandwidths(*curve, x) for curve in side]) for side in curves
    ]
    difference = samples[0].mean(axis=0) - samples[1].mean(axis=0)
    # The curves of a few blocks meet at some bandwidths by chance, and seem to have no scatter
    # there. So the variance at each bandwidth is at least the median of the variances at all
    # bandwidths.
    variances = np.array([own.var(axis=0, ddof=1) for own in samples])
    variances = np.maximum(variances, np.median(variances, axis=1)[:, None])
    sizes = np.array(n)[:, None]
    p = intervals_and_p_of_ratios(difference, variances / sizes, sizes - 1, np.exp(difference))[2]
    points = max(len(bandwidth) for side in curves for bandwidth, _ in side)
    sign, clear = np.sign(difference), np.flatnonzero(p < FALSE_ALARM_PROBABILITY / points)
    apart = np.flatnonzero(p < FALSE_ALARM_PROBABILITY)
    found = []
    for change in np.flatnonzero(np.diff(sign[clear])):
        begin, end = clear[change], clear[change + 1]
        zeros = begin + np.flatnonzero(np.diff(sign[begin : end + 1]))
        middle = zeros[len(zeros) // 2]
        if gap := _reason_of_wide_gap(curves[0] + curves[1], x[middle]):
            return CurveComparison(reach, n, reason=gap)
        low = apart[(apart <= middle) & (sign[apart] == sign[begin])].max()
        high = apart[(apart > middle) & (sign[apart] == sign[end])].min()
        bounds = float(x[low]), float(x[high])
        found.append(Crossover(float(x[middle]), *bounds, lower_above=int(sign[end] > 0)))
    lower = int(sign[clear[0]] > 0) if len(clear) and not found else None
    return CurveComparison(reach, n, tuple(found), lower)


def _log_latency_at_bandwidths(bandwidth: Values, latency: Values, x: Values) -> Values:
    """Return the logarithm of the latency at each bandwidth that the curve reaches.

    Below its first point, a curve has the latency of the first point, which is its lowest latency.
    """
    logs: Values = np.log(latency)
    if len(logs) == 1:
        return np.full_like(x, logs[0])
    found: Values = PchipInterpolator(bandwidth, logs)(np.clip(x, bandwidth[0], bandwidth[-1]))
    return found


def _reason_of_wide_gap(curves: list[tuple[Values, Values]], x: float) -> str | None:
    """Return why the curves are unknown at a bandwidth; None if measured points are near it."""
    for bandwidth, _ in curves:
        above = int(np.searchsorted(bandwidth, x))
        gap = (bandwidth[above] - bandwidth[above - 1]) / bandwidth[-1] if above else 0.0
        if gap > _WIDEST_GAP_SHARE_AT_CROSSOVER:
            return f"the points next to the crossover are {100 * gap:.0f} % of the peak apart"
    return None


@dataclass(frozen=True)
class LatencyStep:
    """A step of latency over the size of the working set."""

    # first_bytes, last_bytes: last measured size before the step, and first measured size after the
    # step.
    first_bytes: float
    last_bytes: float
    # below_bytes, above_bytes: neighbouring measured sizes around the middle of the step.
    below_bytes: float
    above_bytes: float
    # Size at which latency is the geometric mean of both levels; median over the blocks.
    end_bytes: Estimate
    # lower_ns, upper_ns: latency of the levels before and after the step.
    lower_ns: float
    upper_ns: float
    # is_open_below: whether the level before the step has only the smallest size, so that the true
    # level may be lower. is_open_above: whether the level after the step has only the largest size,
    # so that the true level may be higher.
    is_open_below: bool
    is_open_above: bool


def find_latency_steps(rows: pd.DataFrame) -> tuple[LatencyStep, ...]:
    """Return the steps of latency, by ascending size.

    A step is left out if its rise is too small, or if the interval of its ratio contains 1.

    Args:
        rows: a row for each size and replicate, with the columns `x` (size in bytes), `replicate`
            and `value` (ns). Replicates that lack a value at some size are not used.
    """
    table = rows.pivot_table(values="value", index="replicate", columns="x").dropna()
    if table.empty:
        return ()
    logs, sizes = np.log(table.to_numpy(float)), table.columns.to_numpy(float)
    powers, typical = np.log2(sizes), np.median(logs, axis=0)
    slopes = np.diff(typical) / np.diff(powers)
    rising = slopes > np.log(RISE_PER_DOUBLING)
    for first, last in _begins_and_ends_of_rises(rising):
        own = slopes[first:last]
        around = np.minimum(np.maximum.accumulate(own), np.maximum.accumulate(own[::-1])[::-1])
        rising[first:last] = own > _LEAST_RISE_WITHIN_STEP * around
    feet = _begins_and_ends_of_rises(rising)
    borders = np.array([0, *feet.ravel(), len(sizes) - 1]).reshape(-1, 2)
    levels = [float(np.median(typical[begin : end + 1])) for begin, end in borders]
    steps = []
    for (first, last), lower, upper in zip(feet, levels, levels[1:], strict=False):
        rise = Estimate.of_values(np.exp(logs[:, last] - logs[:, first]))
        if upper - lower < np.log(_LEAST_LATENCY_RATIO_OF_STEP) or (
            rise.low is not None and rise.low <= 1.0
        ):
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


def _begins_and_ends_of_rises(rising: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the positions of the first and last size of each rise over neighbouring sizes."""
    return np.flatnonzero(np.diff([0, *rising, 0])).reshape(-1, 2)
