"""Describe a curve of latency over bandwidth by six numbers.

They are, for each curve and replicate block: the unloaded latency, the peak of the bandwidth, the
bandwidth at the knee, and the latency at 50, 75 and 90 % of the peak. Median and interval of each
number are over the blocks: points of different blocks are never joined to one curve.

**The curve** is the frontier of the points: a point is left out when another point has more
bandwidth at less latency. After saturation, bandwidth falls while latency continues to rise
(Esmaili-Dokht et al., "A Mess of Memory System Benchmarking, Simulation and Application Profiling",
MICRO 2024, show it on most servers). Then a bandwidth has two latencies; the lower one can be
reached. Between neighbouring points the curve is a straight line.

**The knee** is the bandwidth at which latency has doubled. Other definitions fail on a curve that
bends slowly: tangents and largest curvature depend on the scales of the axes and on the noise of
two or three points. The bandwidth at twice the unloaded latency depends only on two neighbouring
points. If latency does not double before the peak, the peak is given, with a note.

The peak is the largest of several noisy values, so on average it is slightly too high.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from chaosity.statistics.estimates_and_ratios import Estimate, Values
from chaosity.store.measurements import Measurements, Table, as_measurements

SHARES = (50, 75, 90)  # per cent of the peak
KNEE = 2.0
QUANTITIES = ("unloaded", "peak", "knee", *(f"latency_at_{share}" for share in SHARES))
NOT_DOUBLED = "latency did not double"
# A tool that cannot measure without load gives its smallest load. Below a twentieth of the peak
# published curves (Intel MLC on seven servers) are within 7 % of their lowest latency.
_IDLE = 0.05
# The shape of a curve is unknown between points farther apart than this share of the peak.
_WIDEST_GAP = 0.6
_MARK = ("experiment", "point", "load", "initiator", "target")


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


def repeat_unloaded_points_on_each_line(rows: pd.DataFrame, line: str) -> pd.DataFrame:
    """Return the rows of all lines; points without other loads are repeated for every line.

    `rows` are those of one group, such as a panel, in the form for `latency_curve_quantities`. The
    column `line` has the name of the line; it is null if nothing else ran.
    """
    lone = rows[rows[line].isna()]
    lines = rows[line].dropna().unique()
    if lone.empty or not len(lines):
        return rows
    copies = [lone.assign(**{line: name}) for name in lines]
    return pd.concat([rows[rows[line].notna()], *copies], ignore_index=True)


def _numbers(points: Measurements) -> Iterator[dict[str, object]]:
    """Yield the six numbers of one curve, a mapping for each."""
    rows = points.rows
    complete = complete_blocks(points.valid_rows_with_value().rows)
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


def complete_blocks(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each replicate block that has every point that any block has.

    Rows without `x` or `value` do not count.
    """
    known = rows.dropna(subset=["x", "value"])
    number = len(known[[column for column in _MARK if column in known]].drop_duplicates())
    return [block for _, block in known.groupby("replicate", sort=True) if len(block) == number]


def _quantity(quantity: str, x: Values, y: Values) -> float | str:
    """Return a number of one block's curve, or why it is unknown."""
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
    """Return the latency without other loads, or with so small ones that they do not matter."""
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
    """Return the points to which no other is better in both coordinates; both are ascending."""
    order = np.lexsort((-y, x))[::-1]
    lowest = np.minimum.accumulate(y[order])
    kept = order[np.diff(lowest, prepend=np.inf) < 0.0][::-1]
    return x[kept], y[kept]


def _crossing(along: Values, across: Values, wanted: float, shares: Values) -> float | str:
    """Return the interpolated `across` at which the ascending `along` reaches `wanted`.

    `shares`, the bandwidths divided by the peak, show whether the neighbouring points are near.
    """
    above = int(np.searchsorted(along, wanted))
    if above == 0:
        known = along[0] == wanted
        return float(across[0]) if known else "latency has doubled at the first point with load"
    gap = float(shares[above] - shares[above - 1])
    if gap > _WIDEST_GAP:
        return f"the points on both sides are {100.0 * gap:.0f} % of the peak apart"
    return float(np.interp(wanted, along, across))
