"""Ratios of many cells at once, with moderated variances.

Samples are tables with a row for each cell: `n` values, and `median`, `mean`, `variance` and its
degrees of `freedom` of their logarithms, as in `MatchedCells.samples`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from chaosity.statistics.cell_summary import KIND
from chaosity.statistics.estimates_and_ratios import intervals_and_p_of_ratios
from chaosity.statistics.moderated_variances import fit_priors_of_variances, moderate_variances

# Two values do not show that their cell is disturbed. If they are moderated, and a quarter of the
# cells scatters four times as much as the others, 14 of 60 comparisons of equal hosts tell a
# difference; from three values on it is 3 of 60 (n = 3) and 5 of 60 (n = 5).
_LEAST_FREEDOM = 2


def moderated(samples: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of one side with moderated variances.

    `cells` describes the same cells in the same order.
    """
    kinds = cells.groupby([name for name in KIND if name in cells], dropna=False).ngroup()
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
    return _ratios(above["median"] - below["median"], above["mean"] - below["mean"], (above, below))


def ratios_of_pairs(differences: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of cells from samples of differences in one replicate block, see `_ratios`.

    Drift between blocks cancels.
    """
    return _ratios(differences["median"], differences["mean"], (differences,))


def _ratios(median: pd.Series, mean: pd.Series, samples: tuple[pd.DataFrame, ...]) -> pd.DataFrame:
    """Return `ratio`, 95 % interval `low`, `high`, and `p` of each cell, NaN without a variance.

    The ratio is that of the medians, by which swapped sides have the reciprocal ratio. The noise of
    `mean` is that of the samples together.
    """
    ratio = np.exp(median)
    errors = [sample["variance"] / sample["n"] for sample in samples]
    freedom = [sample["freedom"] for sample in samples]
    low, high, p = intervals_and_p_of_ratios(mean, errors, freedom, ratio)
    return pd.DataFrame({"ratio": ratio, "low": low, "high": high, "p": p}, index=median.index)
