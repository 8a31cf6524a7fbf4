"""What residuals say: whether logarithms should be analysed, and how normal they are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

# Half the 95 % point of chi square with one degree of freedom: two powers of the response whose
# log likelihoods differ by more cannot both lie in the 95 % interval (Box and Cox, "An Analysis of
# Transformations", Journal of the Royal Statistical Society B 26, 1964).
CLEARLY_BETTER = float(stats.chi2.ppf(0.95, 1)) / 2.0
# A trend that chance gives once in a hundred tables is worth a word; one in twenty would be said
# of healthy tables all the time.
TREND_LEVEL = 0.01
# Of thousands of values even a faint trend is beyond chance; below Cohen's "medium" (Statistical
# Power Analysis, 1988) it does the tests no harm.
TREND_LEAST = 0.3


def gain_of_logarithms(
    values: NDArray[np.float64], error: float, error_of_logs: float, freedom: int
) -> float | None:
    """Log likelihood of a model of the logarithms beyond that of the values themselves.

    Box and Cox compare the residual sums of squares of y and of G ln y, where G is the geometric
    mean, which puts both into the same unit. Their likelihood is taken with the degrees of freedom
    of the error, since a model with a mean for each cell leaves far fewer than there are rows.

    Args:
        values: of the response, all positive.
        error: residual sum of squares of a model of the values.
        error_of_logs: that of the same model of their logarithms.
        freedom: degrees of freedom of the error.

    Returns:
        Above zero logarithms fit better, above `CLEARLY_BETTER` clearly so; None when there is no
        residual.
    """
    if freedom < 1 or error <= 0.0 or error_of_logs <= 0.0:
        return None
    scale = float(np.mean(np.log(values)))
    return freedom / 2.0 * (math.log(error) - math.log(error_of_logs) - 2.0 * scale)


def normal_quantiles(residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where each residual would lie if they were normal, in standard deviations."""
    positions = stats.probplot(residuals, fit=False)[0]
    quantiles = np.empty(len(residuals))
    quantiles[np.argsort(residuals, kind="stable")] = positions
    return quantiles


def spread_follows_fit(
    fitted: NDArray[np.float64], residuals: NDArray[np.float64]
) -> tuple[float, float] | None:
    """Rank correlation of fitted values and size of the residuals, and its p; None without any."""
    if len(fitted) < 3 or np.ptp(fitted) == 0.0 or np.ptp(np.abs(residuals)) == 0.0:
        return None
    found = stats.spearmanr(fitted, np.abs(residuals))
    return float(found.statistic), float(found.pvalue)
