"""Check residuals: whether logarithms are the better scale, and normal quantiles."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from chaosity.statistics.anova_design import Values

# Half the 95 % point of chi square with one degree of freedom: two powers of the response whose
# log likelihoods differ by more cannot both lie in the 95 % interval (Box and Cox, "An Analysis of
# Transformations", Journal of the Royal Statistical Society B 26, 1964).
CLEAR_LIKELIHOOD_GAIN = float(stats.chi2.ppf(0.95, 1)) / 2.0
# A trend is noted at this level, which chance reaches once in a hundred tables. At 5 % every
# twentieth healthy table would have a note.
TREND_LEVEL = 0.01
# With thousands of values even a faint trend is significant; below Cohen's "medium" (Statistical
# Power Analysis, 1988) it does not harm the tests.
TREND_LEAST = 0.3


def log_likelihood_gain_of_logarithms(
    values: Values, error: float, error_of_logs: float, freedom: int
) -> float | None:
    """Return the log likelihood of a model of the logarithms minus that of the values.

    Box and Cox compare the residual sums of squares of y and of G ln y, where G is the geometric
    mean, so both have the same unit. The likelihood uses the degrees of freedom of the error, since
    a model with a mean for each cell has far fewer of them than rows. `error` and `error_of_logs`
    are the residual sums of squares of the same model, for values and logarithms.

    Returns:
        A number; above 0, logarithms fit better; above `CLEAR_LIKELIHOOD_GAIN`, clearly better.
            None without a residual.
    """
    if freedom < 1 or error <= 0.0 or error_of_logs <= 0.0:
        return None
    scale = float(np.mean(np.log(values)))
    return freedom / 2.0 * (math.log(error) - math.log(error_of_logs) - 2.0 * scale)


def normal_quantiles(residuals: Values) -> Values:
    """Return the normal quantile of each residual's rank, in standard deviations."""
    positions = stats.probplot(residuals, fit=False)[0]
    quantiles = np.empty(len(residuals))
    quantiles[np.argsort(residuals, kind="stable")] = positions
    return quantiles


def trend_of_spread(fitted: Values, residuals: Values) -> float | None:
    """Return the rank correlation of fitted values and absolute residuals if it is a trend.

    The result is None without a clear and large trend, or if either side is constant.
    """
    if len(fitted) < 3 or np.ptp(fitted) == 0.0 or np.ptp(np.abs(residuals)) == 0.0:
        return None
    found = stats.spearmanr(fitted, np.abs(residuals))
    correlation, p = float(found.statistic), float(found.pvalue)
    return correlation if p < TREND_LEVEL and abs(correlation) >= TREND_LEAST else None
