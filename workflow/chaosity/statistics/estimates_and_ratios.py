"""Estimate the median of a sample with its interval, and the ratio of two samples.

Intervals use Student's t; `cell_summary` moderates the variances of many cells for it. Order
statistics fit the median better, but their widest interval goes from the smallest to the largest
replicate and includes the median with probability 1 - 2^(1 - n), which is 75 % at n = 3 and 93.8 %
at n = 5. So below n = 6 they have no 95 % interval, and a machine is rarely measured more often.
Positive quantities are analysed as logarithms: disturbances multiply (a share of the bandwidth is
lost, not a fixed number of bytes), intervals become intervals of ratios, and no end is negative.
For logarithms with symmetric noise, median and geometric mean estimate the same centre. The median
is reported because one disturbed replicate changes it little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from chaosity.statistics.significance_tests import (
    p_value_or_exact_comparison,
    silence_warnings_on_equal_values,
)
from chaosity.units import UnitScale

Values = NDArray[np.float64]
# Standard deviation of a normal sample, divided by its median absolute deviation.
MAD_TO_DEVIATION = 1.4826
CONFIDENCE = 0.95
_confidence = ContextVar("confidence", default=CONFIDENCE)
# An interval from only two ratios would be 13 times as wide as the distance between them.
FEWEST_RATIOS = 3


@contextmanager
def intervals_with_confidence(share: float) -> Iterator[None]:
    """Set the confidence of intervals, such as 0.9; it is 0.95 again after the `with` block."""
    token = _confidence.set(share)
    try:
        yield
    finally:
        _confidence.reset(token)


def confidence_text(confidence: float) -> str:
    """Return a confidence in per cent: "95 %"."""
    return f"{100.0 * confidence:g} %"


def change_text(ratio: float) -> str:
    """Return a ratio as a signed change: 1.053 -> "+5.3 %", 0.5 -> "-50 %"."""
    change = 100.0 * (ratio - 1.0)
    return f"{change:+.1f} %" if abs(change) < 9.95 else f"{change:+.0f} %"


class _HasInterval:
    """Text methods of a number with a 95 % interval and n."""

    low: float | None
    high: float | None
    n: int

    @property
    def low_and_high(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None without an interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def n_text(self) -> str:
        """The size of the sample: "n = 3"."""
        return f"n = {self.n}"

    def is_outside_interval(self, value: float) -> bool:
        """Return whether a value is outside the interval; False without an interval."""
        return (
            self.low_and_high is not None
            and not self.low_and_high[0] <= value <= self.low_and_high[1]
        )

    def interval_text(self, show: Callable[[float], str] = "{:.2f}".format) -> str:
        """Return "95 % interval 17.9 to 18.8", or "no interval"; `show` converts an end to text."""
        if self.low_and_high is None:
            return "no interval"
        low, high = map(show, self.low_and_high)
        return f"{confidence_text(_confidence.get())} interval {low} to {high}"

    def interval_and_n_text(self, show: Callable[[float], str] = "{:.2f}".format) -> str:
        """Return the interval with n: "95 % interval 17.9 to 18.8, n = 3"."""
        separator = ": " if self.low_and_high is None else ", "
        return f"{self.interval_text(show)}{separator}{self.n_text}"


@dataclass(frozen=True)
class Estimate(_HasInterval):
    """The median of a sample with its 95 % interval."""

    median: float  # median of the sample; NaN if it is empty
    # low, high: ends of the interval; None for fewer than two values.
    low: float | None
    high: float | None
    n: int  # number of values

    @classmethod
    def of_values(cls, values: ArrayLike) -> Estimate:
        """Return the median and t interval of one sample; NaN are skipped."""
        array = np.asarray(values, dtype=float).ravel()
        array = array[~np.isnan(array)]
        n = len(array)
        median = float(np.median(array)) if n else math.nan
        if n < 2:
            return cls(median, None, None, n)
        is_positive = (array > 0.0).all()
        scaled = np.log(array) if is_positive else array
        low, high = t_interval(scaled.mean(), scaled.var(ddof=1), n - 1, n, median, is_positive)
        return cls(median, float(low), float(high), n)

    @classmethod
    def of_cell(cls, cell: Mapping[Any, Any]) -> Estimate:
        """Return the estimate in the columns `median`, `low`, `high` and `n` of a summary row."""
        low, high = (None if pd.isna(cell[end]) else float(cell[end]) for end in ("low", "high"))
        return cls(float(cell["median"]), low, high, int(cell["n"]))

    def text(self, scale: UnitScale) -> str:
        """Return the whole estimate: "18.3 GB/s, 95 % interval 17.9 to 18.8, n = 3"."""
        return f"{scale.text(self.median)}, {self.interval_and_n_text(scale.number)}"

    def short_text(self, scale: UnitScale, *, with_interval: bool) -> str:
        """Return the median without its unit, and the interval if wanted: "18.3 (17.9 to 18.8)"."""
        median = scale.number(self.median)
        if self.low_and_high is None or not with_interval:
            return median
        return f"{median} ({' to '.join(map(scale.number, self.low_and_high))})"


@dataclass(frozen=True)
class Ratio(_HasInterval):
    """The value of one sample divided by the value of another sample, the reference."""

    ratio: float  # the ratio; NaN when a sample is empty
    # low, high: ends of the 95 % interval; None when a sample is too small.
    low: float | None
    high: float | None
    n: int  # size of the sample, or number of pairs
    n_reference: int  # size of the reference, or again the number of pairs
    p: float | None = None  # probability of such a difference if there is none; None without a test

    @classmethod
    def of_runs(cls, values: ArrayLike, reference: ArrayLike) -> Ratio:
        """Return the ratio of the medians of two samples of positive values from different runs.

        Such values are not pairs: hours or days, and often a reboot, are between them. So interval
        and p are from Welch's test for two samples of logarithms. The interval includes the scatter
        within the runs, but not the differences between one run and the next.
        """
        above, below = _logs(values), _logs(reference)
        n, m = len(above), len(below)
        if not n or not m:
            return cls(math.nan, None, None, n, m)
        ratio = float(np.exp(np.median(above) - np.median(below)))
        if n < 2 or m < 2:
            return cls(ratio, None, None, n, m)
        with silence_warnings_on_equal_values():
            test = stats.ttest_ind(above, below, equal_var=False)
            low, high = test.confidence_interval(_confidence.get())
        if not np.isfinite(low):  # without any scatter
            low = high = above.mean() - below.mean()
        p = p_value_or_exact_comparison(float(test.pvalue), ratio)
        return cls(ratio, *_ends(low, high, ratio), n, m, p)

    @classmethod
    def of_many_cells(cls, ratios: ArrayLike) -> Ratio:
        """Return the median of the ratios of many cells, with an interval from three cells on.

        It is computed from logarithms, so that reciprocals have the reciprocal typical ratio.
        """
        logs = np.log(np.asarray(ratios, dtype=float))
        n, ratio = len(logs), float(np.exp(np.median(logs)))
        if n < FEWEST_RATIOS:
            return cls(ratio, None, None, n, n)
        half = stats.t.ppf(0.5 + _confidence.get() / 2.0, n - 1) * stats.sem(logs)
        with silence_warnings_on_equal_values():
            p = p_value_or_exact_comparison(float(stats.ttest_1samp(logs, 0.0).pvalue), ratio)
        return cls(ratio, *_ends(logs.mean() - half, logs.mean() + half, ratio), n, n, p)

    @property
    def n_text(self) -> str:
        """The sizes of the samples: "n = 3", or "n = 3 and 5"."""
        return f"n = {self.n}" + (f" and {self.n_reference}" if self.n_reference != self.n else "")


def _logs(values: ArrayLike) -> Values:
    array = np.asarray(values, dtype=float).ravel()
    logs: Values = np.log(array[array > 0.0])  # NaN is not above zero
    return logs


def _ends(low: float, high: float, ratio: float) -> tuple[float, float]:
    """Return the interval of a ratio from that of its logarithm, widened to include the ratio.

    The interval is one of the mean logarithm; the median of an asymmetric sample can be outside.
    """
    return min(float(np.exp(low)), ratio), max(float(np.exp(high)), ratio)


def t_interval(
    mean: ArrayLike,
    variance: ArrayLike,
    freedom: ArrayLike,
    n: ArrayLike,
    median: ArrayLike,
    is_positive: ArrayLike,
) -> tuple[Values, Values]:
    """Return the ends of 95 % t intervals of samples; NaN for an unknown variance.

    Where `is_positive`, all values are above 0, and mean and variance are of their logarithms. In
    an asymmetric sample the median can lie outside the interval of the mean. Then the interval is
    widened to include the median.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = stats.t.ppf(0.5 + _confidence.get() / 2.0, np.asarray(freedom, float))
        half = errors * np.sqrt(np.divide(variance, n))
        ends = np.subtract(mean, half), np.add(mean, half)
        low, high = (np.where(is_positive, np.exp(end), end) for end in ends)
    median = np.where(np.isnan(low), np.nan, median)
    return np.fmin(low, median), np.fmax(high, median)
