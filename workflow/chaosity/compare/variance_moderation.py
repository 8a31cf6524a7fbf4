"""Variances of many cells with few hosts each, made steadier by what they have in common.

With three hosts, two others are all that tells how much equal hosts scatter in a cell: a test with
one degree of freedom finds nothing. The cells of a metric scatter alike, though not equally, so
each cell's variance is drawn towards the typical one, by as much as the variances themselves show
to be due to chance (Smyth, "Linear models and empirical Bayes methods for assessing differential
expression", 2004, section 6.2, there for thousands of genes with few arrays each).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

# A standard deviation below a ten-thousandth is not one of measurements; its logarithm would pull
# all others down.
_LEAST = 1e-4**2
# Of fewer cells nothing can be learnt about how variances scatter.
_FEWEST = 5


@dataclass(frozen=True)
class Prior:
    """What the cells have in common.

    Attributes:
        freedom: degrees of freedom that it is worth; infinite when all cells scatter alike.
        variance: the typical one.
    """

    freedom: float
    variance: float

    def shrunk(
        self, variance: NDArray[np.float64], freedom: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Variances drawn towards the typical one, and their degrees of freedom.

        All cells together have no more than the sum of theirs, and no cell has more than that.
        """
        variance = np.maximum(variance, _LEAST)
        most = float(freedom.sum())
        if np.isinf(self.freedom):
            return np.full_like(variance, self.variance), np.full_like(variance, most)
        total = self.freedom + freedom
        shrunk = (self.freedom * self.variance + freedom * variance) / total
        return shrunk, np.minimum(total, most)


def prior_of(variance: NDArray[np.float64], freedom: NDArray[np.float64]) -> Prior:
    """The prior that fits the variances of many cells.

    Args:
        variance: of each cell.
        freedom: degrees of freedom of each, above 0.
    """
    if len(variance) < _FEWEST:
        return Prior(0.0, 0.0)
    logs = np.log(np.maximum(variance, _LEAST)) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, freedom / 2).mean())
    if excess <= 0.0:
        return Prior(float("inf"), float(np.exp(logs.mean())))
    half = brentq(lambda x: polygamma(1, x) - excess, 1e-6, 1e8) if excess > 1e-8 else 1e8
    centre = logs.mean() + digamma(half) - np.log(half)
    return Prior(2.0 * half, float(np.exp(centre)))
