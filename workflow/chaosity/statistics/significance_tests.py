"""Test whether cells differ, and adjust p-values for many tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from chaosity.statistics.moderated_variances import estimate_noise
from chaosity.store.measurements import CELL, Table, as_measurements

# The chance to report a difference where there is none.
LEVEL = 0.05
# A smaller difference between equal parts, hosts or runs is not worth a person's time: equal parts
# differ by 1 or 2 %, and so do runs from boot to boot. A wrong setting or a slow module takes at
# least 5 %.
MATTERS = 0.05
# In a single run a disturbance of a few seconds looks like a fault.
MATTERS_IN_ONE_RUN = 0.08


def adjust_family_wise_error(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values adjusted so that the chance of any false positive is at most the level.

    This is the step-down method of Holm (1979): the smallest of m p-values is multiplied by m, the
    next by m - 1, and so on; no result is below the previous one or above 1.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def adjust_false_discovery_rate(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for a low false discovery rate (Benjamini and Hochberg).

    Holm's method, which allows no false discovery, finds nothing with three replicates and hundreds
    of cells. This method is also valid for cells of one run, whose errors are positively dependent
    (Benjamini and Yekutieli, 2001). None means no test; it remains None and does not count.
    """
    known = [p for p in p_values if p is not None]
    adjusted = iter(stats.false_discovery_control(known) if known else ())
    return [None if p is None else float(next(adjusted)) for p in p_values]


def is_variation_between_cells_significant(
    measurements: Table, by: Sequence[str] = CELL
) -> bool | None:
    """Return whether cells differ by more than the noise of their replicates.

    The test is a one-way analysis of variance of the logarithms of valid values, or of the values
    themselves if one is zero; the columns `by` identify the cells.
    The best and the worst of many cells are far apart even when all cells are equal. So their
    intervals do not show whether cells differ, but the variance between cells compared with the
    variance within cells does.

    Returns:
        The answer; None for a single cell, or if no cell has two replicates.
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
        return bool(stats.f.sf(between / error, number - 1, freedom) < LEVEL)
