"""Convert the values of a table of initiators and targets to comparable scores.

A score is the logarithm of a value, since disturbances and faults multiply values. For metrics of
which less is better it is the negative logarithm. So a larger `log_score` is always better, and a
difference of 0.1 is about 10 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from chaosity.statistics.estimates_and_ratios import MAD_TO_DEVIATION
from chaosity.store.measurements import less_is_better

if TYPE_CHECKING:
    from pandas.core.groupby import SeriesGroupBy

# Name of an initiator or a target: a node number in a node matrix, else a place name.
Name = TypeVar("Name", int, str)
Position = tuple[int, int]  # row and column of a cell
Mask = NDArray[np.bool_]  # of cells
Scores = NDArray[np.float64]  # or their differences or errors
# The noise of a single run is unknown. Repeated runs of STREAM and MLC on quiet servers differ by
# about 1 %; this assumes twice as much.
ASSUMED_NOISE = 0.02
# Equal parts of a machine are not exactly equal: the two sockets of the published machines differ
# by up to 1.6 %.
NATURAL_SCATTER = 0.01
# Cells of which fewer have replicates, or are in a block, were chosen: by what they showed before.
_MOST = 0.5
# Replicates that scatter so many times as much as usual are disturbed.
_DISTURBED = 4.0
# Number of values -> what makes their median absolute deviation from the median an unbiased
# standard deviation, beside the factor of large samples (Croux and Rousseeuw, Time-efficient
# algorithms for two highly robust estimators of scale, 1992).
_SMALL_SAMPLE_FACTORS = {
    **{2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206},
    **{6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107},
}
# The variance of the median of a normal sample is pi/2 times that of its mean.
_MEDIAN_VARIANCE = np.pi / 2.0
# A median of variances uses about half of the information that their mean would.
_MEDIAN_INFORMATION = 0.5


def mad_to_deviation(number: int) -> float:
    """Return the factor from the median absolute deviation of so many values to a deviation."""
    return MAD_TO_DEVIATION * _SMALL_SAMPLE_FACTORS.get(number, number / (number - 0.8))


@dataclass(frozen=True)
class ScoredCells(Generic[Name]):
    """A table of measured cells."""

    metric: str  # full name of the metric
    rows: tuple[Name, ...]  # initiators
    columns: tuple[Name, ...]  # targets
    log_score: Scores  # score of each cell, NaN where nothing was measured; shape (rows, columns)
    n: NDArray[np.intp]  # replicates of each cell; same shape
    # Standard deviation of the logarithm of a single replicate: what is usual, and of each cell.
    noise: float
    own_noise: Scores
    freedom: float  # degrees of freedom of `noise`; 0 when the noise is assumed

    @cached_property
    def measured_mask(self) -> Mask:
        """Mask of the cells that have a value."""
        return ~np.isnan(self.log_score)

    @property
    def local_mask(self) -> Mask:
        """Mask of the cells whose initiator and target are the same."""
        return np.array([[row == column for column in self.columns] for row in self.rows])

    def mask_of_place(self, initiator: Name | None = None, target: Name | None = None) -> Mask:
        """Return the mask of all cells with this initiator or this target; either can be None."""
        rows = [name == initiator for name in self.rows]
        columns = [name == target for name in self.columns]
        mask: Mask = np.logical_or.outer(rows, columns)
        return mask

    def mask_of_path(self, initiator: Name, target: Name) -> Mask:
        """Return the mask of the cell of an initiator and a target."""
        mask: Mask = self.mask_of_place(initiator) & self.mask_of_place(target=target)
        return mask

    @property
    def disturbed_error(self) -> Scores:
        """Standard error of the score of each disturbed cell, 0 of others."""
        disturbed: Scores = np.where(self.own_noise > self.noise, self.standard_error, 0.0)
        return disturbed

    @cached_property
    def standard_error(self) -> Scores:
        """Standard error of each cell's score, from the noise of its replicates."""
        with np.errstate(divide="ignore"):
            variance = self.own_noise**2 / self.n * np.where(self.n > 2, _MEDIAN_VARIANCE, 1.0)
        return np.sqrt(variance)

    def value_of_score(self, log_score: float) -> float:
        """Convert a score to the value in the metric's unit."""
        return float(np.exp(-log_score if less_is_better(self.metric) else log_score))

    def initiator_and_target(self, position: Position) -> tuple[Name, Name]:
        """Return the initiator and target of a cell."""
        return self.rows[position[0]], self.columns[position[1]]


def cell_positions_in_mask(mask: Mask) -> list[Position]:
    """Return the row and column of each cell in a mask."""
    return [(int(row), int(column)) for row, column in zip(*np.nonzero(mask), strict=True)]


def loss_percent(departure: float, metric: str) -> float:
    """Return how much worse than expected a value is, in per cent of the expected value.

    Args:
        departure: difference of scores, negative for a loss.
        metric: name of the metric. A doubled latency is 100 % worse, a halved bandwidth 50 %.
    """
    if less_is_better(metric):
        return float(100.0 * np.expm1(-departure))
    return float(-100.0 * np.expm1(departure))


def score_cells(
    metric: str,
    values: pd.Series,
    rows: Sequence[Name],
    columns: Sequence[Name],
    blocks: ArrayLike | None = None,
) -> ScoredCells[Name]:
    """Return the scored cells of replicates.

    The noise does not contain the drift that all cells of a replicate block share.

    Args:
        metric: full name of the metric.
        values: values above 0 in the metric's unit; the index has the initiator and the target.
        rows: all initiators.
        columns: all targets.
        blocks: the replicate block of each value, if it is known.
    """
    sign = -1.0 if less_is_better(metric) else 1.0
    logs = pd.Series(sign * np.log(values.astype(float)))
    cells = logs.groupby(level=[0, 1])
    if blocks is not None:
        # The drift of a block is the typical departure of its values from the cells' medians. A
        # block of few cells has none: they may have been measured again since they were disturbed.
        own = (logs - cells.transform("median")).groupby(np.asarray(blocks))
        drift = own.transform("median").where(own.transform("size") >= _MOST * cells.ngroups, 0.0)
        cells = (logs - drift).groupby(level=[0, 1])
    counts = cells.count()
    noise, freedom = _pooled_noise(cells.var(), counts - 1.0)
    log_score, n, own_noise = (
        found.unstack().reindex(index=list(rows), columns=list(columns)).to_numpy(float)
        for found in (cells.median(), counts, _own_noise(cells, counts, noise))
    )
    n = np.nan_to_num(n).astype(np.intp)
    return ScoredCells(metric, tuple(rows), tuple(columns), log_score, n, noise, own_noise, freedom)


def _own_noise(cells: SeriesGroupBy[Any, Any], counts: pd.Series, noise: float) -> pd.Series:
    """Return the standard deviation of a replicate of each cell: `noise`, or more if disturbed.

    Of three replicates or more, the median is right if most are, so a single disturbed one does not
    count. Of two, it is not known which is right.
    """
    deviations = (cells.obj - cells.transform("median")).abs()
    typical = deviations.groupby(level=[0, 1]).median()
    own: pd.Series = typical * counts.map(mad_to_deviation)
    return own.where(own > _DISTURBED * noise, noise)


def _pooled_noise(variances: pd.Series, freedom: pd.Series) -> tuple[float, float]:
    """Return the standard deviation of a single replicate in all cells, and its degrees of freedom.

    It is assumed if most cells have one replicate. Else it is the median over the replicated cells,
    so that a few disturbed cells do not hide faults of others.
    """
    replicated = freedom > 0.0
    if not replicated.any() or replicated.sum() < _MOST * len(freedom):
        return ASSUMED_NOISE, 0.0
    variances, freedom = variances[replicated], freedom[replicated]
    # The median of a sample's variance is below its mean, most of all for small samples.
    typical = (variances / (stats.chi2.median(freedom.to_numpy()) / freedom)).median()
    return float(np.sqrt(typical)), float(max(1.0, _MEDIAN_INFORMATION * freedom.sum()))
