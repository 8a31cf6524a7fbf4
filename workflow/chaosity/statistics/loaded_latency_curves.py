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


class _UnknownError(Exception):
    """A number of the curve is unknown; the message is the reason."""


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
    blocks = complete_blocks(points.valid_rows_with_value().rows)
    without = rows.groupby([c for c in _MARK if c in rows], dropna=False)["value"].count() == 0
    lost = f"{int(without.sum())} of the curve's points have no value" if without.any() else None
    for quantity in QUANTITIES:
        values, reasons, notes = [], [], []
        for block in blocks:
            x, y = (block[name].to_numpy(float) for name in ("x", "value"))
            try:
                value, note = _quantity(quantity, x, y)
            except _UnknownError as unknown:
                reasons.append(str(unknown))
            else:
                values.append(value)
                notes += [note] if note else []
        found = Estimate.of_values(values)
        note = lost if quantity == "peak" and values else None
        if notes:
            some = f" in {len(notes)} of {len(values)} replicates"
            note = notes[0] + (some if len(notes) < len(values) else "")
        reason = None if values else next(iter(reasons), "no replicate is complete")
        yield {"quantity": quantity, **asdict(found), "reason": reason, "note": note}


def complete_blocks(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each replicate block that has every point that any block has.

    Rows without `x` or `value` do not count.
    """
    known = rows.dropna(subset=["x", "value"])
    number = len(known[[column for column in _MARK if column in known]].drop_duplicates())
    return [block for _, block in known.groupby("replicate", sort=True) if len(block) == number]


def _quantity(quantity: str, x: Values, y: Values) -> tuple[float, str | None]:
    if quantity == "unloaded":
        return _unloaded(x, y), None
    peak = float(x.max())
    if peak <= 0.0:
        raise _UnknownError("no point with load")
    if quantity == "peak":
        return peak, None
    xs, ys = frontier_points(x, y)
    if quantity == "knee":
        wanted = KNEE * _unloaded(x, y)
        if ys[-1] < wanted:
            # Points that are behind the frontier may have doubled, with no more bandwidth.
            return peak, None if y.max() >= wanted else NOT_DOUBLED
        return _crossing(ys, xs, wanted, xs, peak), None
    share = int(quantity.rsplit("_", 1)[1])
    wanted = share / 100.0 * peak
    if xs[0] > wanted:
        raise _UnknownError(f"no point below {share} % of the peak")
    return _crossing(xs, ys, wanted, xs, peak), None


def _unloaded(x: Values, y: Values) -> float:
    """Return the latency without other loads, or with so small ones that they do not matter."""
    if (x == 0.0).any():
        return float(np.median(y[x == 0.0]))
    least = int(np.argmin(x))
    if x[least] > _IDLE * x.max():
        raise _UnknownError(f"no point without load or below {100.0 * _IDLE:.0f} % of the peak")
    return float(y[least])


def frontier_points(x: Values, y: Values) -> tuple[Values, Values]:
    """Return the points to which no other is better in both coordinates; both are ascending."""
    order = np.lexsort((-y, x))[::-1]
    lowest = np.minimum.accumulate(y[order])
    kept = order[np.diff(lowest, prepend=np.inf) < 0.0][::-1]
    return x[kept], y[kept]


def _crossing(along: Values, across: Values, wanted: float, xs: Values, peak: float) -> float:
    """Return the interpolated `across` at which the ascending `along` reaches `wanted`.

    `xs` and `peak`, the bandwidths and their peak, show whether the neighbouring points are near.
    """
    above = int(np.searchsorted(along, wanted))
    if above == 0:
        if along[0] > wanted:
            raise _UnknownError("latency has doubled at the first point with load")
        return float(across[0])
    gap = float(xs[above] - xs[above - 1]) / peak
    if gap > _WIDEST_GAP:
        raise _UnknownError(f"the points on both sides are {100.0 * gap:.0f} % of the peak apart")
    return float(np.interp(wanted, along, across))
