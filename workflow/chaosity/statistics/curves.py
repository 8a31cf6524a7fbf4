"""Describe curves of latency: over bandwidth, and over the size of the working set.

Over bandwidth, this module finds six numbers of each curve, and where two curves cross. Over the
size, it finds steps, such as the end of a cache.

**A loaded curve** has six numbers: the unloaded latency, the peak of the bandwidth, the bandwidth
at the knee, and the latency at 50, 75 and 90 % of the peak. Median and interval of each number are
computed over the replicate blocks: points of different blocks are never joined to one curve. The
curve is the frontier of the points: a point is left out when another point has more bandwidth at
less latency. After saturation, bandwidth falls while latency continues to rise (Esmaili-Dokht et
al., "A Mess of Memory System Benchmarking, Simulation and Application Profiling", MICRO 2024, show
it on most servers). Where bandwidth falls, a bandwidth has two latencies; the curve has the lower
one. Between its points the curve is a straight line. The peak is the largest of several noisy
values, so on average it is slightly too high.

**The knee** is the bandwidth at which latency has doubled. On a curve that bends slowly, other
definitions of a knee (tangents, the largest curvature) depend on the axes' scales and on the noise
of two or three points. The bandwidth at twice the unloaded latency depends only on two neighbouring
points. If latency does not double before the peak, the peak is given, with a note.

**A crossover** is the bandwidth from which on one configuration of a host has a lower latency than
another. Configurations are compared at equal bandwidth in GB/s, not at equal shares of their
different peaks. The frontier of each block is joined by monotone cubic interpolation of the
logarithm of the latency (Fritsch and Carlson, 1980). Straight lines would be too high between the
points of a curve that bends upwards. The interval has all bandwidths around the crossover at which
Welch's test at 5 % finds no difference between the configurations (Fieller's method). The interval
accounts for the scatter of latency and of bandwidth, since each block has its own curve. Blocks of
two configurations are not pairs. A crossover is reported only if each configuration is clearly
lower on one side of it. Welch's tests are made at many bandwidths, so their level is divided by the
number of measured points (Bonferroni).

**A step** is a rise of latency over the size of the working set, such as at the end of a cache. Two
neighbouring sizes are a rise when latency grows by more than RISE_PER_DOUBLING from one to the
other. Neighbouring rises form one step; but if a much smaller rise lies between two larger rises,
these are two steps, since two caches end near each other. Latencies between two steps are a level.
A cache has a soft edge: some lines are evicted before it is full, and some are found when it is too
small. So the end of a cache is the size at which latency is the geometric mean of both levels. In
the published sweep (document 003) this size is 35 MiB for an L3 cache of 32 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from chaosity.statistics.estimates import LEVEL, Estimate, Values, intervals_and_p_of_ratios
from chaosity.store.measurements import Measurements, Table, as_measurements

SHARES = (50, 75, 90)  # per cent of the peak
KNEE = 2.0
QUANTITIES = ("unloaded", "peak", "knee", *(f"latency_at_{share}" for share in SHARES))
NOT_DOUBLED = "latency did not double"
# A tool that cannot measure without load measures with its smallest load. A load below this share
# of the peak counts as none: there, published curves (Intel MLC on seven servers) are within 7 % of
# their lowest latency.
_IDLE = 0.05
# The shape of a curve is unknown between points farther apart than this share of the peak.
_WIDEST_GAP = 0.6
# Columns that identify one point of a curve.
_MARK = ("experiment", "point", "load", "initiator", "target")
# The widest gap around a crossover, as a share of the peak: interpolation is less certain there.
_WIDEST_GAP_AT_CROSSOVER = 0.25
_BANDWIDTHS = 2001  # number of bandwidths at which two curves are compared
# Latencies of a level grow by up to 11 % for each doubling of the size, at the edges of caches.
RISE_PER_DOUBLING = 1.2
# A rise of less than this share of larger rises on both sides separates two steps.
_VALLEY = 0.7
# A smaller step is not a cache: it may come from page tables, or from memory that fills up.
_SMALLEST_STEP = 1.25


def latency_curve_quantities(measurements: Table, by: Sequence[str]) -> pd.DataFrame:
    """Compute the six numbers of each curve.

    Args:
        measurements: `value` is the latency; the additional column `x` is the bandwidth of the
            other loads, 0 if nothing else ran.
        by: columns that, with host and configuration, identify a curve.

    Returns:
        One row for each curve and quantity, in the order of QUANTITIES: `host`, `configuration`,
        the columns of `by`, `quantity`, `median`, `low`, `high`, `n`, `reason` (why there is no
        median, else None) and `note` (a remark on the number, else None). Bandwidths are in the
            unit of `x`, latencies in the unit of `value`. A block does not count if it lacks a
            point that another block has.
    """
    keys = ["host", "configuration", *by]
    found = []
    for curve, points in as_measurements(measurements).groups_by_columns(keys):
        names = dict(zip(keys, curve, strict=True))
        found += [{**names, **number} for number in _numbers(points)]
    columns = [*keys, "quantity", "median", "low", "high", "n", "reason", "note"]
    return pd.DataFrame(found, columns=columns)


def repeat_unloaded_points_on_each_line(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all lines; points without other loads are repeated for every line.

    `rows` are those of one group, such as a panel, in the form for `latency_curve_quantities`. The
    column `series` has the name of the line; it is null if nothing else ran.
    """
    lone = rows[rows["series"].isna()]
    lines = rows["series"].dropna().unique()
    if lone.empty or not len(lines):
        return rows
    copies = [lone.assign(series=name) for name in lines]
    return pd.concat([rows[rows["series"].notna()], *copies], ignore_index=True)


def _numbers(points: Measurements) -> Iterator[dict[str, object]]:
    """Yield the six numbers of one curve, a mapping for each."""
    rows = points.rows
    complete = rows_of_complete_blocks(points.valid_rows_with_value().rows)
    blocks = [block[["x", "value"]].to_numpy(float).T for block in complete]
    without = rows.groupby([c for c in _MARK if c in rows], dropna=False)["value"].count() == 0
    for quantity in QUANTITIES:
        found = [(_quantity(quantity, x, y), x, y) for x, y in blocks]
        known = [(each, x, y) for each, x, y in found if not isinstance(each, str)]
        note = None
        if quantity == "peak" and known and without.any():
            note = f"{int(without.sum())} of the curve's points have no value"
        if quantity == "knee" and (flat := sum(not _doubles(x, y) for _, x, y in known)):
            some = f" in {flat} of {len(known)} replicates" if flat < len(known) else ""
            note = f"{NOT_DOUBLED}{some}"
        reason = None if known else found[0][0] if found else "no replicate is complete"
        estimate = Estimate.of_values([each for each, _, _ in known])
        yield {"quantity": quantity, **asdict(estimate), "reason": reason, "note": note}


def rows_of_complete_blocks(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of the complete replicate blocks: those that have each point of any block.

    Rows without `x` or `value` do not count.
    """
    known = rows.dropna(subset=["x", "value"])
    number = len(known[[column for column in _MARK if column in known]].drop_duplicates())
    return [block for _, block in known.groupby("replicate", sort=True) if len(block) == number]


def _quantity(quantity: str, x: Values, y: Values) -> float | str:
    """Return a quantity of the curve of one block, such as its peak, or why it is unknown."""
    peak, unloaded = float(x.max()), _unloaded(x, y)
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
        wanted = KNEE * unloaded
        return peak if ys[-1] < wanted else _crossing(ys, xs, wanted, xs / peak)
    share = int(quantity.rsplit("_", 1)[1])
    if xs[0] > share / 100.0 * peak:
        return f"no point below {share} % of the peak"
    return _crossing(xs, ys, share / 100.0 * peak, xs / peak)


def _unloaded(x: Values, y: Values) -> float | str:
    """Return the latency at no other load, or at the least one if it is small; else why not."""
    if (x == 0.0).any():
        return float(np.median(y[x == 0.0]))
    least = int(np.argmin(x))
    if x[least] > _IDLE * x.max():
        return f"no point without load or below {100.0 * _IDLE:.0f} % of the peak"
    return float(y[least])


def _doubles(x: Values, y: Values) -> bool:
    """Return whether any latency is at the knee or above, with however little bandwidth."""
    return float(y.max()) >= KNEE * float(_unloaded(x, y))


def frontier_points(x: Values, y: Values) -> tuple[Values, Values]:
    """Return the points for which no other point has both a larger x and a smaller y.

    The points are returned in ascending order of x, which is also that of y.
    """
    order = np.lexsort((-y, x))[::-1]
    lowest = np.minimum.accumulate(y[order])
    kept = order[np.diff(lowest, prepend=np.inf) < 0.0][::-1]
    return x[kept], y[kept]


def _crossing(along: Values, across: Values, wanted: float, shares: Values) -> float | str:
    """Return the value of `across` where `along` reaches `wanted`, or why it is unknown.

    `along` and `across` ascend. The value is interpolated. `shares` is the bandwidth of each point
    as a share of the peak.
    """
    above = int(np.searchsorted(along, wanted))
    if above == 0:
        known = along[0] == wanted
        return float(across[0]) if known else "latency has doubled at the first point with load"
    gap = float(shares[above] - shares[above - 1])
    if gap > _WIDEST_GAP:
        return f"the points on both sides are {100.0 * gap:.0f} % of the peak apart"
    return float(np.interp(wanted, along, across))


@dataclass(frozen=True)
class Crossover:
    """The bandwidth at which the curves cross, with its 95 % interval, in the unit of `x`.

    `lower_above` is 0 or 1: which configuration has the lower latency at larger bandwidths.
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
        `value`. A block that lacks a value which another block has is left out.
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
    """Compare the latencies of two configurations, whose rows `mean_curve_over_places` returned."""
    curves = [
        [frontier_points(*block[["x", "value"]].to_numpy(float).T) for _, block in blocks]
        for blocks in (first.groupby("replicate"), second.groupby("replicate"))
    ]
    n = len(curves[0]), len(curves[1])
    if min(n) < 2:
        return CurveComparison(0.0, n, reason="an interval needs two complete replicates of each")
    reach = min(float(bandwidth[-1]) for side in curves for bandwidth, _ in side)
    x = np.linspace(0.0, reach, _BANDWIDTHS)
    samples = [np.array([_logs(*curve, x) for curve in side]) for side in curves]
    difference = samples[0].mean(axis=0) - samples[1].mean(axis=0)
    # The curves of a few blocks meet at some bandwidths by chance, and then seem to be exact. So
    # the variance at each bandwidth is at least the median over all bandwidths.
    variances = np.array([own.var(axis=0, ddof=1) for own in samples])
    variances = np.maximum(variances, np.median(variances, axis=1)[:, None])
    sizes = np.array(n)[:, None]
    p = intervals_and_p_of_ratios(difference, variances / sizes, sizes - 1, np.exp(difference))[2]
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
        if gap > _WIDEST_GAP_AT_CROSSOVER:
            return f"the points next to the crossover are {100 * gap:.0f} % of the peak apart"
    return None


@dataclass(frozen=True)
class LatencyStep:
    """A step of latency over the working set."""

    # first_bytes, last_bytes: last measured size before the step, and first one after it.
    first_bytes: float
    last_bytes: float
    # below_bytes, above_bytes: neighbouring measured sizes around the middle of the step.
    below_bytes: float
    above_bytes: float
    # size at which latency is the geometric mean of both levels, over the blocks
    end_bytes: Estimate
    # lower_ns, upper_ns: latency of the level before and after the step.
    lower_ns: float
    upper_ns: float
    # is_open_below, is_open_above: whether the level before or after the step is only the smallest
    # or the largest size, so that the true level may be lower or higher.
    is_open_below: bool
    is_open_above: bool


def find_latency_steps(rows: pd.DataFrame) -> tuple[LatencyStep, ...]:
    """Return the steps of latency, by ascending size.

    A step is left out if its rise is too small, or if the interval of its ratio contains 1.

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
