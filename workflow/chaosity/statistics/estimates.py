"""Estimate medians and ratios of samples with noise and intervals; test whether cells differ.

The variance of three replicates has only two degrees of freedom. But cells of one kind scatter
similarly, so the variance of each cell is moved towards the typical variance of its kind. The more
alike the variances of a kind are, the farther they are moved (Smyth, "Linear models and empirical
Bayes methods for assessing differential expression", 2004, section 6.2). Smyth has thousands of
genes on a few arrays instead of cells with a few replicates.

A disturbed replicate does not count for the interval. A replicate is disturbed if the other
replicates of its cell agree, and if a replicate so far from the others is improbable under the
noise of the cell's kind. If the other replicates do not agree either, nobody knows which replicate
is right. If nobody knows which replicate is right, all replicates count, and the variance of the
cell is not moved. In a cell without other cells of its kind all replicates count too, since three
replicates alone do not show how far apart replicates should be. bench/interval_coverage.py
simulates the limits that this module uses.

Intervals are computed by Student's t from the noise of a sample alone, or from the noise of a cell
among cells of its kind (see `cell_summary`). Order statistics would fit the median better. But the
widest interval of order statistics goes from the smallest to the largest replicate. This widest
interval contains the median with probability 1 - 2^(1 - n), which is 75 % at n = 3 and 93.8 % at n
= 5. So below n = 6, order statistics have no 95 % interval, and machines rarely have six
replicates.

Positive quantities are analysed as logarithms, for three reasons. Disturbances multiply values: a
disturbance costs a share of the bandwidth, not a fixed number of bytes. An interval of a difference
of logarithms becomes an interval of a ratio. And no end of an interval is negative. For logarithms
with symmetric noise, median and geometric mean estimate the same centre. The median is reported
because one disturbed replicate hardly changes the median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from chaosity.store.measurements import CELL_COLUMNS, Table, as_measurements, less_is_better
from chaosity.units import UnitScale

# Fewest cells from which the prior of an interval is estimated. If the prior came from 5 cells,
# some of which scatter 5 times as much as others, a 95 % interval at n = 3 would contain the truth
# in 92 % of simulations.
FEWEST_CELLS_FOR_PRIOR = 10
# Share of ordinary cells whose variance is called improbable by mistake.
_SHARE_OF_CONTRADICTING_CELLS = 0.05
# The p-value below which a replicate counts as disturbed. So a replicate is called disturbed by
# mistake in 0.3 % of the cells. If some cells scatter 5 times as much as others, a limit of 1 %
# would reduce the coverage of intervals from 94 % to 92 %.
_MOST_P_OF_DISTURBED_REPLICATE = 0.003
# Fewest replicates of a cell in which one can count as disturbed: two replicates do not show which
# of them is wrong.
FEWEST_REPLICATES_TO_FIND_DISTURBED = 3
# Largest variance of a cell from which the prior is estimated, as a multiple of the typical
# variance. A larger variance is reduced to the largest variance. Without the limit, the worst
# disturbances would enlarge the prior so much that they would seem probable. Variances of cells
# that scatter 5 times as much as others are smaller than the largest variance.
_MOST_VARIANCE_RATIO = 10.0**2
# Real measurements do not have a relative standard deviation below 1e-4. The logarithm of a smaller
# variance would lower the typical variance of all cells.
_LEAST_REAL_VARIANCE = 1e-4**2
# Equal values have at most this variance, because of the rounding of their logarithms.
_VARIANCE_BY_ROUNDING = 1e-13**2
# From fewer cells the scatter of their variances cannot be estimated.
_FEWEST_VARIANCES = 5
# The median of variances is as precise as the mean of about half as many variances.
_INFORMATION_OF_MEDIAN = 0.5
# Largest number of passes of the search for disturbed replicates. Each pass can find replicates
# that earlier passes could not find. No search has needed more than 3 passes.
_MOST_SEARCHES_FOR_DISTURBED = 10
_Mask = NDArray[np.bool_]


def variance_of_median(n: ArrayLike) -> Values:
    """Return the variance of the median of n normal values, divided by the variance of one value.

    For many values the result is pi / (2 n). For few values, a correction keeps the result within 5
    % of the exact variances, which are 1, 0.5, 0.449, 0.298, 0.287 and 0.215 for n = 1 to 6 (Arnold
    et al., A First Course in Order Statistics, 1992). The correction of an even n is another one,
    since the median is the mean of two values.
    """
    n = np.asarray(n, dtype=float)
    found: Values = np.pi / 2.0 / (n + np.where(n % 2 == 1, 0.5, 1.2))
    return np.where(n > 0, found, np.inf)


@dataclass(frozen=True)
class VariancePrior:
    """The distribution from which the variances of cells come.

    Each attribute is one number for all cells, or an array with one number for each cell.
    """

    # Weight of the typical variance, in degrees of freedom; 0 without a prior.
    freedom: float | Values
    variance: float | Values  # the typical variance; any number without a prior
    # Number of cells from which the prior was estimated; 0 without a prior.
    cells: float | Values

    def shrink_variances(self, variance: Values, freedom: Values) -> tuple[Values, Values]:
        """Return variances moved towards the typical variance, and their degrees of freedom.

        `variance` may be NaN for a cell with a single value, whose `freedom` is 0.
        """
        own = np.where(freedom > 0.0, np.maximum(variance, _LEAST_REAL_VARIANCE), 0.0)
        total = self.freedom + freedom
        with np.errstate(invalid="ignore"):
            return (self.freedom * np.nan_to_num(self.variance) + freedom * own) / total, total

    def is_probable(self, variance: Values, freedom: Values, level: float) -> _Mask:
        """Return whether each variance is probable under the prior; false without a prior.

        `level` is the share of ordinary cells whose variance may be called improbable by mistake.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            p = stats.f.sf(variance / self.variance, freedom, self.freedom)
        return np.asarray((freedom == 0.0) | (p >= level)) & (np.asarray(self.cells) > 0)


WITHOUT_PRIOR = VariancePrior(0.0, np.nan, 0)


def fit_variance_prior(variance: Values, freedom: Values) -> VariancePrior:
    """Return the prior that fits the variances of many cells; each `freedom` must be above 0."""
    if len(variance) < _FEWEST_VARIANCES:
        return WITHOUT_PRIOR
    logs = np.log(np.maximum(variance, _LEAST_REAL_VARIANCE))
    logs += np.log(freedom / 2) - digamma(freedom / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, freedom / 2).mean())
    # The prior is estimated from the given cells, so it has at most as many degrees of freedom as
    # all these cells together.
    half, centre, most = np.inf, float(logs.mean()), float(freedom.sum())
    if excess > 0.0:
        half = 1e8
        if excess > 1e-8:
            half = float(brentq(lambda x: float(polygamma(1, x)) - excess, 1e-6, 1e8))
        centre += float(digamma(half) - np.log(half))
    return VariancePrior(min(2.0 * half, most), float(np.exp(centre)), len(variance))


def fit_common_variance(variance: Values, freedom: Values) -> VariancePrior:
    """Return a prior from the variances of any number of cells, as if all cells scattered alike.

    The common variance is a median, which a few disturbed cells hardly change.
    """
    # The variance of a sample is more often below than above the true variance, most of all for
    # small samples. So each variance is divided by its expected median.
    typical = float(np.median(variance / (stats.chi2.median(freedom) / freedom)))
    weight = max(1.0, _INFORMATION_OF_MEDIAN * float(freedom.sum()))
    return VariancePrior(weight, max(typical, _LEAST_REAL_VARIANCE), len(variance))


@dataclass(frozen=True)
class ReplicateNoise:
    """The noise of cells' replicates; all arrays but `counted` have one item for each cell."""

    counted: _Mask  # whether each value counts; false for a disturbed replicate
    n: NDArray[np.intp]  # number of replicates that count
    mean: Values  # mean of the replicates that count, NaN without a value
    own_variance: Values  # variance of the replicates that count; NaN for fewer than two
    variance: Values  # variance of one replicate; moderated if `moderated` is true
    freedom: Values  # degrees of freedom of `variance`
    moderated: _Mask  # whether the variance is moderated by the prior


def estimate_noise(
    values: Values,
    cells: NDArray[np.intp] | None = None,
    number: int = 1,
    prior: VariancePrior = WITHOUT_PRIOR,
) -> ReplicateNoise:
    """Return the noise of cells from their replicates.

    Args:
        values: finite values of all replicates, mostly logarithms.
        cells: for each value, the number of its cell; by default, all values are of one cell.
        number: number of cells.
        prior: the prior of each cell, see `fit_priors_of_kinds`; by default, no cell has a prior.
    """
    cells = np.zeros(len(values), dtype=np.intp) if cells is None else cells
    counted = np.full(len(values), True)
    sizes = np.bincount(cells, minlength=number)
    while len(worst := _disturbed_replicates(values, cells, counted, sizes, prior)):
        counted[worst] = False
    n, mean, own = _count_mean_and_variance(values[counted], cells[counted], number)
    variance, freedom, moderated = moderate_variances(own, np.maximum(n - 1.0, 0.0), prior)
    return ReplicateNoise(counted, n, mean, own, variance, freedom, moderated)


def moderate_variances(
    own: Values, freedom: Values, prior: VariancePrior
) -> tuple[Values, Values, _Mask]:
    """Return moderated variances, their degrees of freedom, and for each whether it is moderated.

    The variance of a cell is not moderated if it is improbable under the prior.
    """
    moderated = prior.is_probable(own, freedom, _SHARE_OF_CONTRADICTING_CELLS)
    shrunk, total = prior.shrink_variances(own, freedom)
    return np.where(moderated, shrunk, own), np.where(moderated, total, freedom), moderated


def fit_priors_of_kinds(
    values: Values, cells: NDArray[np.intp], kinds: NDArray[np.intp]
) -> VariancePrior:
    """Return the prior of each cell, for each kind of at least `FEWEST_CELLS_FOR_PRIOR` cells.

    Args:
        values: finite values of all replicates, mostly logarithms.
        cells: for each value, the number of its cell.
        kinds: for each cell, the number of its kind; a cell with a negative number has no prior.
    """
    noise = estimate_noise(values, cells, len(kinds))
    for _ in range(_MOST_SEARCHES_FOR_DISTURBED):
        before = noise.counted
        prior = fit_priors_of_variances(noise.own_variance, noise.n.astype(float) - 1.0, kinds)
        noise = estimate_noise(values, cells, len(kinds), prior)
        if np.array_equal(noise.counted, before):
            break
    return prior


def fit_priors_of_variances(own: Values, freedom: Values, kinds: NDArray[np.intp]) -> VariancePrior:
    """Return the prior of each cell from the variances of its kind, see `fit_priors_of_kinds`."""
    prior = VariancePrior(*(np.full(len(kinds), own) for own in vars(WITHOUT_PRIOR).values()))
    # Cells with equal values do not show how much cells of their kind scatter, since a coarse clock
    # can cause equal values.
    known = (freedom > 0.0) & (own > _VARIANCE_BY_ROUNDING)
    for kind in np.unique(kinds[kinds >= 0]):
        members = kinds == kind
        used = members & known
        if np.count_nonzero(used) >= FEWEST_CELLS_FOR_PRIOR:
            most = _MOST_VARIANCE_RATIO * fit_common_variance(own[used], freedom[used]).variance
            fitted = fit_variance_prior(np.minimum(own[used], most), freedom[used])
            for name, number in vars(fitted).items():
                getattr(prior, name)[members] = number
    return prior


def _count_mean_and_variance(
    values: Values, cells: NDArray[np.intp], number: int
) -> tuple[NDArray[np.intp], Values, Values]:
    """Return for each cell the number, the mean and the variance of its values, NaN if unknown."""
    n = np.bincount(cells, minlength=number)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(cells, values, number) / n
        squares = np.bincount(cells, (values - mean[cells]) ** 2, number)
        return n, mean, np.where(n > 1, squares / (n - 1.0), np.nan)


def _disturbed_replicates(
    values: Values,
    cells: NDArray[np.intp],
    counted: _Mask,
    sizes: NDArray[np.intp],
    prior: VariancePrior,
) -> NDArray[np.intp]:
    """Return at most one replicate of each cell: the farthest from the mean, if improbable.

    The replicate is compared with the other counted replicates of its cell. The other counted
    replicates must be more than half of all replicates of the cell (`sizes`). The test is that of
    an externally studentised residual, with the moderated variance.
    """
    judged = (sizes >= FEWEST_REPLICATES_TO_FIND_DISTURBED) & (np.asarray(prior.cells) > 0)
    candidates = np.flatnonzero(counted & judged[cells])
    mean = _count_mean_and_variance(values[counted], cells[counted], len(sizes))[1]
    distance = np.abs(values - mean[cells])[candidates]
    order = candidates[np.lexsort((distance, cells[candidates]))]
    farthest = order[np.diff(cells[order], append=-1) != 0]
    own = cells[farthest]
    rest = counted.copy()
    rest[farthest] = False
    others, centre, variance = (
        column[own] for column in _count_mean_and_variance(values[rest], cells[rest], len(sizes))
    )
    of_own = VariancePrior(
        *(np.broadcast_to(each, sizes.shape)[own] for each in vars(prior).values())
    )
    freedom = np.maximum(others - 1.0, 0.0)
    moderated, total = of_own.shrink_variances(variance, freedom)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt(moderated * (1.0 + 1.0 / others))
        p = 2.0 * stats.t.sf(np.abs(values[farthest] - centre) / error, total) * (others + 1)
    most = (others > 1) & (2 * others > sizes[own])
    agree = of_own.is_probable(variance, freedom, _MOST_P_OF_DISTURBED_REPLICATE)
    found: NDArray[np.intp] = farthest[most & agree & (p < _MOST_P_OF_DISTURBED_REPLICATE)]
    return found


Values = NDArray[np.float64]
# Standard deviation of normal values divided by their median absolute deviation.
MAD_TO_DEVIATION = 1.4826
CONFIDENCE = 0.95
_confidence_of_intervals = ContextVar("confidence", default=CONFIDENCE)
# Fewest ratios for an interval. An interval from two ratios would be 13 times as wide as the
# distance of the two ratios.
FEWEST_RATIOS = 3


@contextmanager
def intervals_with_confidence(share: float) -> Iterator[None]:
    """Set the confidence of intervals, such as 0.9, until the end of the `with` block."""
    token = _confidence_of_intervals.set(share)
    try:
        yield
    finally:
        _confidence_of_intervals.reset(token)


def confidence_text(confidence: float) -> str:
    """Return a confidence between 0 and 1 as text in per cent: "95 %"."""
    return f"{100.0 * confidence:g} %"


def change_text(ratio: float) -> str:
    """Return a ratio as a signed change: 1.053 -> "+5.3 %", 0.5 -> "-50 %"."""
    change = 100.0 * (ratio - 1.0)
    return f"{change:+.1f} %" if abs(change) < 9.95 else f"{change:+.0f} %"


class _IntervalTexts:
    """Methods that describe in words a number with an interval and a sample size n."""

    low: float | None
    high: float | None
    n: int

    @property
    def low_and_high(self) -> tuple[float, float] | None:
        """Return both ends of the interval, or None if there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def n_text(self) -> str:
        """The size of the sample as text: "n = 3"."""
        return f"n = {self.n}"

    def is_outside_interval(self, value: float) -> bool:
        """Return whether a value is outside the interval; False if there is no interval."""
        return (
            self.low_and_high is not None
            and not self.low_and_high[0] <= value <= self.low_and_high[1]
        )

    def interval_text(self, show: Callable[[float], str] = "{:.2f}".format, unit: str = "") -> str:
        """Return "95 % interval 17.9 to 18.8", or "no interval".

        `show` converts an end of the interval to text. The `unit` is written once, after the second
        end.
        """
        if self.low_and_high is None:
            return "no interval"
        low, high = map(show, self.low_and_high)
        confidence = confidence_text(_confidence_of_intervals.get())
        return f"{confidence} interval {low} to {high} {unit}".rstrip()

    def interval_and_n_text(
        self, show: Callable[[float], str] = "{:.2f}".format, unit: str = ""
    ) -> str:
        """Return the interval with n: "95 % interval 17.9 to 18.8, n = 3"."""
        separator = ": " if self.low_and_high is None else ", "
        return f"{self.interval_text(show, unit)}{separator}{self.n_text}"


@dataclass(frozen=True)
class Estimate(_IntervalTexts):
    """The median of a sample with its 95 % interval."""

    median: float  # median of the sample; NaN if the sample is empty
    # low, high: ends of the interval; None for fewer than two values.
    low: float | None
    high: float | None
    n: int  # number of values

    @classmethod
    def of_values(cls, values: ArrayLike) -> Estimate:
        """Return the median and t interval of one sample; NaNs are skipped."""
        array = np.asarray(values, dtype=float).ravel()
        array = array[~np.isnan(array)]
        n = len(array)
        median = float(np.median(array)) if n else math.nan
        if n < 2:
            return cls(median, None, None, n)
        is_positive = bool((array > 0.0).all())
        noise = estimate_noise(np.log(array) if is_positive else array)
        low, high = t_interval(
            noise.mean, noise.variance, noise.freedom, noise.n, median, is_positive
        )
        return cls(median, float(low[0]), float(high[0]), n)

    @classmethod
    def of_cell(cls, cell: Mapping[Any, Any]) -> Estimate:
        """Return the estimate in the columns `median`, `low`, `high` and `n` of a summary row."""
        low, high = (None if pd.isna(cell[end]) else float(cell[end]) for end in ("low", "high"))
        return cls(float(cell["median"]), low, high, int(cell["n"]))

    def text(self, scale: UnitScale) -> str:
        """Return median, interval and n: "18.3 GB/s, 95 % interval 17.9 to 18.8 GB/s, n = 3"."""
        interval = self.interval_and_n_text(scale.number, scale.symbol)
        return f"{scale.text(self.median)}, {interval}"

    def short_text(self, scale: UnitScale, *, with_interval: bool) -> str:
        """Return the median without unit: "18.3", or `with_interval` "18.3 (17.9 to 18.8)"."""
        median = scale.number(self.median)
        if self.low_and_high is None or not with_interval:
            return median
        return f"{median} ({' to '.join(map(scale.number, self.low_and_high))})"


@dataclass(frozen=True)
class Ratio(_IntervalTexts):
    """The value of one sample divided by the value of another sample, the reference."""

    ratio: float  # the ratio; NaN if a sample is empty
    # low, high: ends of the 95 % interval; None if a sample is too small.
    low: float | None
    high: float | None
    n: int  # number of values in the first sample, or number of pairs
    n_reference: int  # number of values in the reference, or number of pairs
    # Probability of this difference, or of a larger one, if both samples are alike; None if there
    # was no test.
    p: float | None = None

    @classmethod
    def of_samples(cls, values: ArrayLike, reference: ArrayLike, *, paired: bool) -> Ratio:
        """Return the ratio of two samples of positive values.

        Args:
            values: the numerators; if unpaired, values that are not above 0 are skipped.
            reference: the denominators.
            paired: whether the values at the same position of both samples make a pair, such as two
                cells in the same replicate block. The result for pairs is the median of the ratios
                of the pairs. The result without pairs is the ratio of the medians, and interval and
                p are those of Welch's test of the logarithms. Samples of different runs are
                unpaired, since hours or days, and often a reboot, are between the runs. The
                interval without pairs includes the scatter within the runs, but not the differences
                between one run and the next.
        """
        both = (np.asarray(values, float).ravel(), np.asarray(reference, float).ravel())
        samples = [np.log(own if paired else own[own > 0.0]) for own in both]  # NaN is not above 0
        n, m = map(len, samples)
        if not n or not m:
            return cls(math.nan, None, None, n, m)
        samples = [samples[0] - samples[1]] if paired else samples
        sizes, signs = [*map(len, samples)], np.array([1.0, -1.0])[: len(samples)]
        cells = np.repeat(np.arange(len(samples)), sizes)
        noise = estimate_noise(np.concatenate(samples), cells, len(samples))
        ratio = float(np.exp(signs @ [np.median(own) for own in samples]))
        difference = float(signs @ noise.mean)
        low, high, p = _interval_and_p_of_ratio(
            difference, noise.variance / noise.n, noise.freedom, ratio
        )
        return cls(ratio, low, high, n, m, p)

    @classmethod
    def of_cells(cls, cell: Mapping[Any, Any], reference: Mapping[Any, Any]) -> Ratio:
        """Return the unpaired ratio of the medians in two rows of `summarise_cells`."""
        both = cell, reference
        n, m = (int(own["n"]) for own in both)
        if not (cell["is_positive"] and reference["is_positive"]):
            return cls(math.nan, None, None, n, m)
        ratio = float(cell["median"] / reference["median"])
        errors = np.array([own["variance"] / own["counted"] for own in both])
        freedom = np.array([own["freedom"] for own in both])
        # Two cells of one kind share a prior, so the degrees of freedom of the prior count only
        # once.
        most = max(own["prior_freedom"] for own in both) + sum(own["counted"] - 1 for own in both)
        low, high, p = _interval_and_p_of_ratio(
            cell["mean"] - reference["mean"], errors, freedom, ratio, most
        )
        return cls(ratio, low, high, n, m, p)

    @classmethod
    def of_many_cells(cls, ratios: ArrayLike) -> Ratio:
        """Return the median of many cells' ratios, with an interval from three cells on.

        The median is computed from logarithms, so the median of the reciprocals is the reciprocal
        of the median.
        """
        found = cls.of_samples(ratios, np.ones_like(ratios, dtype=float), paired=True)
        return found if found.n >= FEWEST_RATIOS else replace(found, low=None, high=None, p=None)

    @property
    def n_text(self) -> str:
        """The sizes of the samples as text: "n = 3", or "n = 3 and 5" if the sizes differ."""
        return f"n = {self.n}" + (f" and {self.n_reference}" if self.n_reference != self.n else "")


def _interval_and_p_of_ratio(
    difference: float, errors: Values, freedom: Values, ratio: float, most: float = math.inf
) -> tuple[float | None, float | None, float | None]:
    """Return the interval of one ratio and its p-value; see `intervals_and_p_of_ratios`."""
    found = intervals_and_p_of_ratios(difference, errors, freedom, ratio, most)
    low, high, p = (None if math.isnan(own) else float(own) for own in found)
    return low, high, p


def intervals_and_p_of_ratios(
    difference: ArrayLike,
    errors: ArrayLike,
    freedom: ArrayLike,
    ratio: ArrayLike,
    most: ArrayLike = math.inf,
) -> tuple[Values, Values, Values]:
    """Return both ends of the intervals of ratios, and the p-values for "no difference".

    Ends and p-values are NaN where the noise is unknown. An argument is one number for all ratios,
    or one number for each ratio.

    Args:
        difference: difference of the means of logarithms.
        errors: squared standard errors, along the first axis: of the two means of two runs, or of
            the mean difference of pairs.
        freedom: degrees of freedom of each of the `errors`, which Welch's formula combines.
        ratio: the ratio of the medians. The interval is widened to include this ratio, since the
            median of an asymmetric sample can be outside of the interval.
        most: upper limit of the combined degrees of freedom.
    """
    errors, freedom = np.asarray(errors, dtype=float), np.asarray(freedom, dtype=float)
    error, is_known = errors.sum(axis=0), (freedom > 0.0).all(axis=0)
    exact = error == 0.0  # without scatter, p is 1 for equal and 0 for different values
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.fmin(error**2 / (errors**2 / freedom).sum(axis=0), most)
        total = np.where(exact, 1.0, np.where(is_known, total, np.nan))
        p = 2.0 * stats.t.sf(np.abs(difference) / np.sqrt(error), total)
    low, high = t_interval(difference, error, total, 1, ratio, True)
    p = np.where(exact, np.equal(ratio, 1.0), p)
    low, high, p = (np.where(is_known, each, np.nan) for each in (low, high, p))
    return low, high, p


def t_interval(
    mean: ArrayLike,
    variance: ArrayLike,
    freedom: ArrayLike,
    n: ArrayLike,
    median: ArrayLike,
    is_positive: ArrayLike,
) -> tuple[Values, Values]:
    """Return the ends of 95 % t intervals of samples; NaN where the variance is unknown.

    `is_positive` says which samples have only values above 0; mean and variance of these samples
    are those of logarithms. In an asymmetric sample the median can lie outside the interval of the
    mean. If the median lies outside of the interval, the interval is widened to include the median.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = stats.t.ppf(0.5 + _confidence_of_intervals.get() / 2.0, np.asarray(freedom, float))
        half = errors * np.sqrt(np.divide(variance, n))
        ends = np.subtract(mean, half), np.add(mean, half)
        low, high = (np.where(is_positive, np.exp(end), end) for end in ends)
    median = np.where(np.isnan(low), np.nan, median)
    return np.fmin(low, median), np.fmax(high, median)


# Probability that a test reports a difference although there is none.
FALSE_ALARM_PROBABILITY = 0.05
# A smaller relative difference between equal components, hosts or runs is not worth a person's
# time. Equal components differ by 1 or 2 %, and so do two runs with a reboot between the runs. A
# wrong setting or a slow memory module costs at least 5 %.
LEAST_REPORTED_DIFFERENCE = 0.05
# The smallest relative difference that matters within a single run, in which a disturbance of a few
# seconds looks like a fault.
LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN = 0.08


def lost_share(log_loss: float, metric: str) -> float:
    """Return as a share the loss of a value whose logarithm is worse by `log_loss`.

    For example, a loss of 0.1 is 10 % less bandwidth. Twice the latency is a loss of 1.0, and half
    the bandwidth is a loss of 0.5.
    """
    return float(np.expm1(log_loss) if less_is_better(metric) else -np.expm1(-log_loss))


def adjust_family_wise_error(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values, adjusted so that a test level limits the chance of any false positive.

    The function uses the step-down method of Holm (1979). The smallest of m p-values is multiplied
    by m, the next one by m - 1, and so on. No result is below the previous result or above 1.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def adjust_false_discovery_rate(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for a low false discovery rate (Benjamini and Hochberg).

    With three replicates and hundreds of cells, Holm's method finds nothing, because it allows no
    false discovery. The method of Benjamini and Hochberg is also valid for cells of one run, whose
    errors are positively dependent (Benjamini and Yekutieli, 2001). A p-value of None means that
    there was no test. None remains None and does not count as a test.
    """
    known = [p for p in p_values if p is not None]
    adjusted = iter(stats.false_discovery_control(known) if known else ())
    return [None if p is None else float(next(adjusted)) for p in p_values]


def is_variation_between_cells_significant(
    measurements: Table, by: Sequence[str] = CELL_COLUMNS
) -> bool | None:
    """Return whether cells differ by more than the noise of their replicates.

    The test is a one-way analysis of variance of the logarithms of valid values, or of the values
    themselves if one of them is zero. The columns `by` identify the cells. The best and the worst
    of many cells are far apart even when all cells are equal, so the intervals of these two cells
    do not show whether cells differ. Instead the test compares the variance between cells with the
    variance within cells.

    Returns:
        Whether cells differ; None if there is a single cell, or if no cell has two replicates.
    """
    valid = as_measurements(measurements).valid_rows_with_value().rows
    values = valid["value"].to_numpy(dtype=float)
    if (values > 0.0).all():  # a share or a count may be zero
        values = np.log(values)
    cells = valid.groupby(list(by), dropna=False, observed=True).ngroup().to_numpy().astype(np.intp)
    number = len(np.unique(cells))
    noise = estimate_noise(values, cells, number)
    within = noise.freedom > 0.0
    if number < 2 or not within.any():
        return None
    between = noise.n @ (noise.mean - np.average(noise.mean, weights=noise.n)) ** 2 / (number - 1)
    freedom = float(noise.freedom.sum())
    error = noise.freedom[within] @ noise.variance[within] / freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        return bool(stats.f.sf(between / error, number - 1, freedom) < FALSE_ALARM_PROBABILITY)
