"""A curve of latency over bandwidth in six numbers.

Of each curve and replicate block: the unloaded latency, the peak of the bandwidth, the bandwidth
at the knee, and the latency at 50, 75 and 90 % of the peak. The six numbers of the blocks are the
sample for median and interval: points of different blocks are never joined to one curve.

**The curve** is the frontier of the points: a point is left out when another point has more
bandwidth at less latency. Behind saturation bandwidth falls while latency goes on to rise
(Esmaili-Dokht et al., "A Mess of Memory System Benchmarking, Simulation and Application
Profiling", MICRO 2024, show it on most servers), so there a bandwidth has two latencies; the
lower one can be reached. Between neighbouring points the curve is a straight line.

**The knee** is the bandwidth at which latency has doubled. A curve that bends slowly has no corner:
tangents and largest curvature depend on the scales of the axes and on the noise of two or three
points. The bandwidth at twice the unloaded latency exists on any machine and depends on two
neighbouring points only. Where latency does not double before the peak, the peak is given, with a
note.

The peak is the largest of several noisy values, and so a little too high on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.statistics.estimates_and_ratios import Estimate
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
_Values = NDArray[np.float64]


class _UnknownError(Exception):
    """A number of the curve is unknown; the message is the reason."""


def latency_curve_quantities(measurements: Table, by: Sequence[str]) -> pd.DataFrame:
    """The six numbers of each curve.

    Args:
        measurements: `value` is the latency; the further column `x` is the bandwidth of the other
            loads, 0 where nothing else ran.
        by: columns that make a curve, with host and configuration.

    Returns:
        One row for each curve and quantity, in the order of QUANTITIES: `host`, `configuration`,
        the columns of `by`, `quantity`, `median`, `low`, `high`, `n`, `reason` (why there is no
        median, else None) and `note` (a remark on the number, else None). Bandwidths are in the
        unit of `x`, latencies in that of `value`. A block does not count when it lacks a point that
        another block has.
    """
    keys = ["host", "configuration", *by]
    found = []
    for curve, points in as_measurements(measurements).groups(keys):
        names = dict(zip(keys, curve, strict=True))
        found += [{**names, **number} for number in _numbers(points)]
    columns = [*keys, "quantity", "median", "low", "high", "n", "reason", "note"]
    return pd.DataFrame(found, columns=columns)


def repeat_unloaded_points_on_each_line(rows: pd.DataFrame, line: str) -> pd.DataFrame:
    """Return the rows of all lines, plus the points without other loads, once for every line.

    Args:
        rows: as `latency_curve_quantities` takes them; one group, such as a panel.
        line: column that names the line; null where nothing else ran.
    """
    lone = rows[rows[line].isna()]
    lines = rows[line].dropna().unique()
    if lone.empty or not len(lines):
        return rows
    copies = [lone.assign(**{line: name}) for name in lines]
    return pd.concat([rows[rows[line].notna()], *copies], ignore_index=True)


def _numbers(points: Measurements) -> Iterator[dict[str, object]]:
    """The numbers of one curve."""
    rows = points.rows
    blocks = _complete_blocks(points)
    without = rows.groupby([c for c in _MARK if c in rows], dropna=False)["value"].count() == 0
    lost = f"{int(without.sum())} of the curve's points have no value" if without.any() else None
    answers = [
        _of_block(block["x"].to_numpy(float), block["value"].to_numpy(float)) for block in blocks
    ]
    for quantity in QUANTITIES:
        numbers = [answer[quantity] for answer in answers]
        values = [value for value, _ in numbers if value is not None]
        reasons = [text for value, text in numbers if value is None]
        notes = [text for value, text in numbers if value is not None and text]
        found = Estimate.of_values(values)
        known = found.n > 0
        note = lost if quantity == "peak" and known else None
        if notes:
            note = notes[0]
            if len(notes) < len(values):
                note += f" in {len(notes)} of {len(values)} replicates"
        yield {
            "quantity": quantity,
            **asdict(found),
            "reason": None if known else (reasons[0] if reasons else "no replicate is complete"),
            "note": note,
        }


def _complete_blocks(points: Measurements) -> list[pd.DataFrame]:
    """The blocks that have every point that any block has, valid."""
    measured = points.rows_with_value().rows
    valid = measured[measured["x"].notna()]
    marks = [column for column in _MARK if column in valid.columns]
    number = valid.groupby(marks, dropna=False).ngroups if len(valid) else 0
    blocks = [block for _, block in valid.groupby("replicate", sort=True)]
    return [block for block in blocks if len(block) == number]


def _of_block(x: _Values, y: _Values) -> dict[str, tuple[float | None, str | None]]:
    """Each number of one block's curve with a note, or None with the reason."""

    def number(quantity: str) -> tuple[float | None, str | None]:
        try:
            return _quantity(quantity, x, y)
        except _UnknownError as reason:
            return None, str(reason)

    return {quantity: number(quantity) for quantity in QUANTITIES}


def _quantity(quantity: str, x: _Values, y: _Values) -> tuple[float, str | None]:
    if quantity == "unloaded":
        return _unloaded(x, y), None
    peak = float(x.max())
    if peak <= 0.0:
        raise _UnknownError("no point with load")
    if quantity == "peak":
        return peak, None
    xs, ys = _frontier(x, y)
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


def _unloaded(x: _Values, y: _Values) -> float:
    """Latency without other loads, or with so little that it makes no difference."""
    if (x == 0.0).any():
        return float(np.median(y[x == 0.0]))
    least = int(np.argmin(x))
    if x[least] > _IDLE * x.max():
        raise _UnknownError(f"no point without load or below {100.0 * _IDLE:.0f} % of the peak")
    return float(y[least])


def _frontier(x: _Values, y: _Values) -> tuple[_Values, _Values]:
    """The points that no other point beats in both coordinates; both coordinates rise."""
    order = np.lexsort((-y, x))[::-1]
    kept: list[int] = []
    for index in order:
        if not kept or y[index] < y[kept[-1]]:
            kept.append(int(index))
    kept.reverse()
    return x[kept], y[kept]


def _crossing(along: _Values, across: _Values, wanted: float, xs: _Values, peak: float) -> float:
    """The other coordinate where a rising line reaches a value, by linear interpolation.

    Args:
        along: the coordinate that reaches the value.
        across: the other coordinate.
        wanted: between the ends of `along`, or below the first.
        xs: bandwidths of the points.
        peak: of the bandwidth.
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
