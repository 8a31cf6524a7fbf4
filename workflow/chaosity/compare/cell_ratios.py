"""Ratios of many cells at once, with moderated variances.

Samples are tables with a row for each cell: `n` values, and `median`, `mean`, `variance` and its
degrees of `freedom` of their logarithms, as in `MatchedCells.samples`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from chaosity.statistics.estimates_and_ratios import t_interval
from chaosity.statistics.moderated_variances import fit_priors_of_variances, moderate_variances

# Cells with equal values in these columns scatter similarly.
_KIND = ("host", "configuration", "experiment", "load", "benchmark", "kernel", "metric")
# Two values do not show that their cell is disturbed. If they are moderated, and a quarter of the
# cells scatters four times as much as the others, 14 of 60 comparisons of equal hosts tell a
# difference; from three values on it is 3 of 60 (n = 3) and 5 of 60 (n = 5).
_LEAST_FREEDOM = 2


def moderated(samples: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of one side with moderated variances.

    `cells` describes the same cells in the same order.
    """
    kinds = cells.groupby([name for name in _KIND if name in cells], dropna=False).ngroup()
    variance, freedom = (samples[name].to_numpy(float) for name in ("variance", "freedom"))
    known = np.where(freedom >= _LEAST_FREEDOM, kinds.to_numpy(dtype=np.intp), -1)
    prior = fit_priors_of_variances(variance, freedom, known)
    variance, freedom, _ = moderate_variances(variance, freedom, prior)
    return samples.assign(variance=variance, freedom=freedom)


def ratios_of_runs(above: pd.DataFrame, below: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of cells to the same cells of another run, see `_ratios`.

    Such values are not pairs: hours or days, and often a reboot, are between them (Welch's test).
    The interval includes the scatter within the runs, but not the differences between one run and
    the next.
    """
    parts = [side["variance"] / side["n"] for side in (above, below)]
    error = parts[0] + parts[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = error**2 / (parts[0] ** 2 / above["freedom"] + parts[1] ** 2 / below["freedom"])
    return _ratios(above["median"] - below["median"], above["mean"] - below["mean"], error, freedom)


def ratios_of_pairs(differences: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of cells from samples of differences in one replicate block, see `_ratios`.

    Drift between blocks cancels.
    """
    error = differences["variance"] / differences["n"]
    return _ratios(differences["median"], differences["mean"], error, differences["freedom"])


def _ratios(
    median: pd.Series, mean: pd.Series, error: pd.Series, freedom: ArrayLike
) -> pd.DataFrame:
    """Return `ratio`, 95 % interval `low`, `high`, and `p` of each cell, NaN without a variance.

    The ratio is that of the medians, by which swapped sides have the reciprocal ratio. `error` is
    the variance of `mean`; p is the probability of such a mean if there is no difference.
    """
    ratio = np.exp(median)
    exact = error == 0.0  # values without any scatter are compared exactly
    freedom = np.where(exact, 1.0, freedom)
    low, high = t_interval(mean, error, freedom, 1, ratio, True)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = 2.0 * stats.t.sf(np.abs(mean) / np.sqrt(error), freedom)
    p = np.where(exact, ratio == 1.0, p)
    return pd.DataFrame({"ratio": ratio, "low": low, "high": high, "p": p}, index=median.index)
