"""The noise of replicates: the variance of each cell, moderated by what cells of one kind share.

The variance of three replicates has two degrees of freedom. But cells of one kind scatter
similarly, so the variance of each cell is moved towards the typical variance. A variance moves
further if the variances of the kind differ less (Smyth, "Linear models and empirical Bayes methods
for assessing differential expression", 2004, section 6.2, there for thousands of genes with few
arrays each).

A disturbed replicate does not count: a replicate that the noise of its kind makes improbable, next
to other replicates of its cell that agree. If the other replicates do not agree either, nobody
knows which replicate is right. Then all replicates count, and the cell keeps its own variance with
its own degrees of freedom. A cell without other cells of its kind also keeps its own variance,
since three replicates alone do not show how far apart they should be. bench/interval_coverage.py
simulates the limits below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

# From fewer cells the prior of an interval is too uncertain: with 5 cells, of which some scatter 5
# times as much as others, a 95 % interval at n = 3 contains the truth in 92 % of simulations.
FEWEST_CELLS = 10
# Share of ordinary cells that are mistaken for cells whose replicates contradict each other.
_CONTRADICTING = 0.05
# A replicate counts as disturbed below this p-value. The p-value is the share of undisturbed cells
# in which a replicate counts as disturbed by chance. With 1 %, the coverage of cells of which some
# scatter 5 times as much as others is 92 % instead of 94 %.
_DISTURBED_P = 0.003
# Of two replicates it is not known which one is disturbed.
FEWEST_TO_JUDGE = 3
# The largest variance of a cell that counts for the prior, as a multiple of the typical variance; a
# larger one counts as this. Otherwise the worst disturbances would make themselves probable. Cells
# that scatter 5 times as much as others are below this limit.
_FARTHEST = 10.0**2
# Measurements do not have a standard deviation below 1e-4. The logarithm of a smaller variance
# would lower the typical variance of all cells.
_LEAST_VARIANCE = 1e-4**2
# Equal values have at most this variance, by rounding of their logarithms.
_ROUNDING = 1e-13**2
# From fewer cells it is not known how variances scatter.
_MIN_CELLS = 5
# A median of variances uses about half of the information that their mean would.
_MEDIAN_INFORMATION = 0.5
# Each pass finds the disturbed replicates that earlier passes could not see. More than 3 passes
# were never needed.
_MOST_PASSES = 10
_Values = NDArray[np.float64]
_Mask = NDArray[np.bool_]


def variance_of_median(n: ArrayLike) -> _Values:
    """Return the variance of the median of n normal values, as a share of that of one value.

    For many values the share is pi / 2n. For few values, a correction keeps the result within 5 %
    of the exact variances: 1, 0.5, 0.449, 0.298, 0.287, 0.215 for n = 1 to 6 (Arnold et al., A
    First Course in Order Statistics, 1992). For an even n the median is a mean of two values.
    """
    n = np.asarray(n, dtype=float)
    found: _Values = np.pi / 2.0 / (n + np.where(n % 2 == 1, 0.5, 1.2))
    return np.where(n > 0, found, np.inf)


@dataclass(frozen=True)
class VariancePrior:
    """The distribution from which the variances of cells come.

    Each attribute is a number for all cells, or an array with a number for each cell.
    """

    # Weight of the typical variance in degrees of freedom; 0 without a prior.
    freedom: float | _Values
    variance: float | _Values  # the typical variance; any number without a prior
    # Number of cells from which the prior was estimated; 0 without a prior.
    cells: float | _Values

    def shrink_variances(self, variance: _Values, freedom: _Values) -> tuple[_Values, _Values]:
        """Return the variances moved towards the typical variance, and their degrees of freedom.

        The variance of a single value (no freedom) may be NaN.
        """
        own = np.where(freedom > 0.0, np.maximum(variance, _LEAST_VARIANCE), 0.0)
        total = self.freedom + freedom
        with np.errstate(invalid="ignore"):
            return (self.freedom * np.nan_to_num(self.variance) + freedom * own) / total, total

    def is_probable(self, variance: _Values, freedom: _Values, level: float) -> _Mask:
        """Return whether the prior makes a variance probable; false without a prior.

        `level` is the share of the prior's cells for which the answer is wrong.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            p = stats.f.sf(variance / self.variance, freedom, self.freedom)
        return np.asarray((freedom == 0.0) | (p >= level)) & (np.asarray(self.cells) > 0)


WITHOUT_PRIOR = VariancePrior(0.0, np.nan, 0)


def fit_variance_prior(variance: _Values, freedom: _Values) -> VariancePrior:
    """Return the prior that fits the variances and degrees of freedom (above 0) of many cells."""
    if len(variance) < _MIN_CELLS:
        return WITHOUT_PRIOR
    logs = np.log(np.maximum(variance, _LEAST_VARIANCE))
    logs += np.log(freedom / 2) - digamma(freedom / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, freedom / 2).mean())
    # The prior comes from these cells, so it has at most their degrees of freedom.
    half, centre, most = np.inf, float(logs.mean()), float(freedom.sum())
    if excess > 0.0:
        half = 1e8
        if excess > 1e-8:
            half = float(brentq(lambda x: float(polygamma(1, x)) - excess, 1e-6, 1e8))
        centre += float(digamma(half) - np.log(half))
    return VariancePrior(min(2.0 * half, most), float(np.exp(centre)), len(variance))


def fit_common_variance(variance: _Values, freedom: _Values) -> VariancePrior:
    """Return the prior of cells that scatter alike, however few, from their own variances.

    The common variance is a median, which a few disturbed cells do not move.
    """
    # The median of a sample's variance is below its mean, most of all for small samples.
    typical = float(np.median(variance / (stats.chi2.median(freedom) / freedom)))
    weight = max(1.0, _MEDIAN_INFORMATION * float(freedom.sum()))
    return VariancePrior(weight, max(typical, _LEAST_VARIANCE), len(variance))


@dataclass(frozen=True)
class ReplicateNoise:
    """The noise of the replicates of cells: arrays by cell; `counted` is by value."""

    counted: _Mask  # whether each value counts; false for a disturbed replicate
    n: NDArray[np.intp]  # number of replicates that count
    mean: _Values  # mean of the replicates that count, NaN without a value
    own_variance: _Values  # variance of the replicates that count, NaN below two
    variance: _Values  # the moderated variance of one replicate, else the own variance
    freedom: _Values  # degrees of freedom of `variance`
    moderated: _Mask  # whether the variance is moderated by the prior


def estimate_noise(
    values: _Values,
    cells: NDArray[np.intp] | None = None,
    number: int = 1,
    prior: VariancePrior = WITHOUT_PRIOR,
) -> ReplicateNoise:
    """Return the noise of cells from their replicates.

    Args:
        values: finite values of all replicates, mostly logarithms.
        cells: number of the cell of each value; by default, all values are of one cell.
        number: number of cells.
        prior: the prior of each cell, see `fit_priors_of_kinds`; by default, cells share nothing.
    """
    cells = np.zeros(len(values), dtype=np.intp) if cells is None else cells
    counted = np.full(len(values), True)
    sizes = np.bincount(cells, minlength=number)
    while len(worst := _disturbed_replicates(values, cells, counted, sizes, prior)):
        counted[worst] = False
    n, mean, own = _moments(values[counted], cells[counted], number)
    variance, freedom, moderated = moderate_variances(own, np.maximum(n - 1.0, 0.0), prior)
    return ReplicateNoise(counted, n, mean, own, variance, freedom, moderated)


def moderate_variances(
    own: _Values, freedom: _Values, prior: VariancePrior
) -> tuple[_Values, _Values, _Mask]:
    """Return moderated variances, their degrees of freedom, and which cells the prior moderates.

    A cell whose variance its prior makes improbable keeps its own.
    """
    moderated = prior.is_probable(own, freedom, _CONTRADICTING)
    shrunk, total = prior.shrink_variances(own, freedom)
    return np.where(moderated, shrunk, own), np.where(moderated, total, freedom), moderated


def fit_priors_of_kinds(
    values: _Values, cells: NDArray[np.intp], kinds: NDArray[np.intp]
) -> VariancePrior:
    """Return the prior of each cell, estimated for each kind of at least `FEWEST_CELLS` cells.

    Args:
        values: finite values of all replicates, mostly logarithms.
        cells: number of the cell of each value.
        kinds: number of each cell's kind; a cell with a negative number has no prior.
    """
    noise = estimate_noise(values, cells, len(kinds))
    for _ in range(_MOST_PASSES):
        before = noise.counted
        prior = fit_priors_of_variances(noise.own_variance, noise.n.astype(float) - 1.0, kinds)
        noise = estimate_noise(values, cells, len(kinds), prior)
        if np.array_equal(noise.counted, before):
            break
    return prior


def fit_priors_of_variances(
    own: _Values, freedom: _Values, kinds: NDArray[np.intp]
) -> VariancePrior:
    """Return the prior of each cell from the variances of its kind, see `fit_priors_of_kinds`."""
    prior = VariancePrior(*(np.full(len(kinds), own) for own in vars(WITHOUT_PRIOR).values()))
    # Equal values say nothing about how much their kind scatters: a clock may be coarse.
    known = (freedom > 0.0) & (own > _ROUNDING)
    for kind in np.unique(kinds[kinds >= 0]):
        members = kinds == kind
        used = members & known
        if np.count_nonzero(used) >= FEWEST_CELLS:
            most = _FARTHEST * fit_common_variance(own[used], freedom[used]).variance
            fitted = fit_variance_prior(np.minimum(own[used], most), freedom[used])
            for name, number in vars(fitted).items():
                getattr(prior, name)[members] = number
    return prior


def _moments(
    values: _Values, cells: NDArray[np.intp], number: int
) -> tuple[NDArray[np.intp], _Values, _Values]:
    """Return the number of values of each cell, their mean and their variance, NaN if unknown."""
    n = np.bincount(cells, minlength=number)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(cells, values, number) / n
        squares = np.bincount(cells, (values - mean[cells]) ** 2, number)
        return n, mean, np.where(n > 1, squares / (n - 1.0), np.nan)


def _disturbed_replicates(
    values: _Values,
    cells: NDArray[np.intp],
    counted: _Mask,
    sizes: NDArray[np.intp],
    prior: VariancePrior,
) -> NDArray[np.intp]:
    """Return at most one replicate of each cell: the farthest one, if it is improbable.

    The replicate is compared with the other replicates of its cell that count. The counted
    replicates must be more than half of all replicates (`sizes`). The test is that of an externally
    studentised residual, with the moderated variance.
    """
    judged = (sizes >= FEWEST_TO_JUDGE) & (np.asarray(prior.cells) > 0)
    candidates = np.flatnonzero(counted & judged[cells])
    mean = _moments(values[counted], cells[counted], len(sizes))[1]
    distance = np.abs(values - mean[cells])[candidates]
    order = candidates[np.lexsort((distance, cells[candidates]))]
    farthest = order[np.diff(cells[order], append=-1) != 0]
    own = cells[farthest]
    rest = counted.copy()
    rest[farthest] = False
    others, centre, variance = (
        column[own] for column in _moments(values[rest], cells[rest], len(sizes))
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
    agree = of_own.is_probable(variance, freedom, _DISTURBED_P)
    found: NDArray[np.intp] = farthest[most & agree & (p < _DISTURBED_P)]
    return found
