"""Compute a score for each cell of a table of initiators and targets; find clearly low scores.

A score is the logarithm of a value, since disturbances and faults multiply values. For metrics of
which less is better, the score is the negative logarithm. So a larger `log_score` is always better.
A difference of 0.1 between two scores is about 10 %.

The departure of a cell from its group counts if the departure is large enough to matter, and
statistically clear after a correction for all tested cells (Bonferroni). Departures of several
cells that share an initiator, a target or a path have one cause and are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from chaosity.statistics.estimates import (
    LEAST_REPORTED_DIFFERENCE,
    LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN,
    MAD_TO_DEVIATION,
    VariancePrior,
    estimate_noise,
    fit_common_variance,
    variance_of_median,
)
from chaosity.store.measurements import less_is_better

# Name of an initiator or a target: a node number in a node matrix, otherwise the name of a place.
Name = TypeVar("Name", int, str)
Position = tuple[int, int]  # row and column of a cell
Mask = NDArray[np.bool_]  # for each cell, whether the mask has the cell
Scores = NDArray[np.float64]  # scores of cells, or their differences or standard errors
# Assumed noise of a single run as a share of the value, since a run without replicates does not
# show its noise. Repeated runs of STREAM and MLC on quiet servers differ by about 1 %. The assumed
# noise is twice as much.
ASSUMED_NOISE = 0.02
# Assumed difference between equal components of a machine, as a share. The two sockets of the
# published machines differ by up to 1.6 %.
NATURAL_SCATTER = 0.01
# Least share of the cells that must have replicates, or values in a block, to represent all cells.
# If fewer cells have replicates, these cells were measured again because of their earlier values.
_LEAST_SHARE_OF_REPRESENTATIVE_CELLS = 0.5
# Degrees of freedom of an assumed noise: so many that the noise counts as certain.
_FREEDOM_OF_ASSUMED_NOISE = 1e6
# Number of values -> factor for their median absolute deviation. With this factor and the factor
# for large samples, the result is an unbiased standard deviation (Croux and Rousseeuw,
# Time-efficient algorithms for two highly robust estimators of scale, 1992).
_SMALL_SAMPLE_FACTORS = {
    **{2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206},
    **{6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107},
}
# Probability of at least one false alarm in all tests of a healthy host together. A loss that is
# clear only among the cells of one test (one matrix or table) is a suspicion.
HOST_FALSE_ALARM_LEVEL = 0.01
# Highest confidence in an anomaly: the first number with replicates, the second with single runs.
MAX_CONFIDENCE, MAX_CONFIDENCE_OF_ONE_RUN = 0.9999, 0.95
# Fewest cells from which scatter is estimated.
_FEWEST_CELLS_FOR_SCATTER = 6


def mad_to_deviation_factor(count: int) -> float:
    """Return standard deviation divided by median absolute deviation, for `count` normal values.

    With this factor, the median absolute deviation of few values gives an unbiased estimate of the
    standard deviation.
    """
    return MAD_TO_DEVIATION * _SMALL_SAMPLE_FACTORS.get(count, count / (count - 0.8))


@dataclass(frozen=True)
class ScoredCells(Generic[Name]):
    """A table of cells of initiators and targets, with a score for each measured cell."""

    metric: str  # full name of the metric
    rows: tuple[Name, ...]  # initiators
    columns: tuple[Name, ...]  # targets
    log_score: Scores  # score of each cell, NaN if not measured; shape (rows, columns)
    n: NDArray[np.intp]  # number of replicates of each cell; shape (rows, columns)
    # noise, own_noise: standard deviation of the logarithm of a single replicate. `noise` is one
    # number for all cells, and `own_noise` has a number for each cell.
    noise: float
    own_noise: Scores
    freedom: float  # degrees of freedom of `noise`; 0 if `noise` is assumed

    @cached_property
    def measured_mask(self) -> Mask:
        """The mask of the cells that have a value."""
        return ~np.isnan(self.log_score)

    @property
    def local_mask(self) -> Mask:
        """The mask of the cells whose initiator and target have the same name."""
        return np.array([[row == column for column in self.columns] for row in self.rows])

    def mask_of_either_end(self, initiator: Name | None = None, target: Name | None = None) -> Mask:
        """Return the mask of all cells with this initiator or this target; one can be None."""
        rows = [name == initiator for name in self.rows]
        columns = [name == target for name in self.columns]
        mask: Mask = np.logical_or.outer(rows, columns)
        return mask

    def mask_of_path(self, initiator: Name, target: Name) -> Mask:
        """Return the mask that has only the cell of an initiator and a target."""
        mask: Mask = self.mask_of_either_end(initiator) & self.mask_of_either_end(target=target)
        return mask

    @cached_property
    def standard_error(self) -> Scores:
        """The standard error of each cell's score, which follows from the noise of replicates."""
        error: Scores = self.own_noise * np.sqrt(variance_of_median(self.n))
        return error

    @property
    def typical_standard_error(self) -> float:
        """The median of the standard errors of the measured cells."""
        return float(np.median(self.standard_error[self.measured_mask]))

    def limit_confidence(self, confidence: float) -> float:
        """Return the confidence, limited to the highest that the number of replicates allows."""
        return min(confidence, MAX_CONFIDENCE if self.freedom else MAX_CONFIDENCE_OF_ONE_RUN)

    def value_of_score(self, log_score: float) -> float:
        """Return the value in the metric's unit that has the given score."""
        return float(np.exp(-log_score if less_is_better(self.metric) else log_score))

    def initiator_and_target(self, position: Position) -> tuple[Name, Name]:
        """Return the initiator and target of a cell."""
        return self.rows[position[0]], self.columns[position[1]]


def cell_positions_in_mask(mask: Mask) -> list[Position]:
    """Return (row, column) of each cell that a mask has."""
    return [(int(row), int(column)) for row, column in zip(*np.nonzero(mask), strict=True)]


def mask_of_cells(positions: Iterable[Position], shape: tuple[int, ...]) -> Mask:
    """Return the mask that has the cells at the given positions (row, column)."""
    mask = np.zeros(shape, dtype=bool)
    for position in positions:
        mask[position] = True
    return mask


def score_cells(
    metric: str,
    values: pd.Series,
    rows: Sequence[Name],
    columns: Sequence[Name],
    blocks: ArrayLike | None = None,
) -> ScoredCells[Name]:
    """Return cells with scores; the score of a cell is the median score of its replicates.

    The drift that all cells of a replicate block share does not count as noise.

    Args:
        metric: full name of the metric.
        values: values above 0 in the metric's unit; the index has the initiator and the target.
        rows: all initiators.
        columns: all targets.
        blocks: the replicate block of each value, if it is known.
    """
    shape = len(rows), len(columns)
    places = (values.index.get_level_values(level) for level in (0, 1))
    indices = [
        pd.Index(names).get_indexer(own) for names, own in zip((rows, columns), places, strict=True)
    ]
    cells = np.ravel_multi_index(indices, shape)
    number = shape[0] * shape[1]
    sign = -1.0 if less_is_better(metric) else 1.0
    logs = pd.Series(sign * np.log(values.to_numpy(float)))
    if blocks is not None:
        # The drift of a block is the typical departure of its values from the medians of their
        # cells. For a block with few cells, no drift is computed, since these cells may have been
        # measured again because earlier measurements were disturbed.
        own = (logs - logs.groupby(cells).transform("median")).groupby(np.asarray(blocks))
        whole = own.transform("size") >= _LEAST_SHARE_OF_REPRESENTATIVE_CELLS * len(
            np.unique(cells)
        )
        logs -= own.transform("median").where(whole, 0.0)
    known = logs.to_numpy()
    n = np.bincount(cells, minlength=number)
    # If only few cells have several replicates, the noise is assumed.
    measured = np.count_nonzero(n > 1) >= max(
        1.0, _LEAST_SHARE_OF_REPRESENTATIVE_CELLS * np.count_nonzero(n)
    )
    prior = VariancePrior(_FREEDOM_OF_ASSUMED_NOISE, ASSUMED_NOISE**2, 1)
    if measured:
        # All cells are tested together, so their common noise counts. `estimate_noise` moderates
        # the noise of each cell by the common noise, and finds cells whose replicates contradict
        # each other.
        alone = estimate_noise(known, cells, number).own_variance
        prior = fit_common_variance(alone[n > 1], n[n > 1].astype(float) - 1.0)
    noise = estimate_noise(known, cells, number, prior)
    log_score = logs.groupby(cells).median().reindex(range(number)).to_numpy()
    return ScoredCells(
        metric,
        tuple(rows),
        tuple(columns),
        log_score.reshape(shape),
        n.reshape(shape),
        float(np.sqrt(prior.variance)),
        np.sqrt(noise.variance).reshape(shape),
        float(np.median(noise.freedom[n > 0])) if measured else 0.0,
    )


@dataclass(frozen=True)
class ScatterWithoutFaults:
    """How much the cells of a group differ from each other on a machine without faults."""

    # Standard deviation of each cell's departure from its group; an array with the shape of the
    # cells.
    error: Scores
    own: Scores  # as `error`, but without the scatter of the expected score
    # Degrees of freedom of `error` and `own`; infinite if both are assumed. An assumed
    # `NATURAL_SCATTER` counts as certain. So the larger its share of the variance is, the more
    # degrees of freedom there are.
    freedom: float
    # Standard deviation between equal components of a machine without faults. All cells of a
    # component share its difference. The number is 0 for single runs, whose `error` includes all
    # scatter.
    natural: float
    # Standard deviation of one replicate as a share of the value; `natural` is included.
    deviation_of_one_replicate: float
    # Smallest loss that is reported, as a share of the expected value.
    smallest_reported_loss: float

    def confidence_in_loss(self, loss: float, error: float, comparisons: int) -> float:
        """Return the probability that a loss is not noise; 0 if the loss is too small to matter.

        `loss` is a difference of logarithms. `error` is the standard deviation of this difference.
        `comparisons` is the number of tested cells and suspects.
        """
        if loss <= -np.log1p(-self.smallest_reported_loss):
            return 0.0
        return 1.0 - min(1.0, float(stats.t.sf(loss / error, self.freedom)) * comparisons)

    def departure_if_clear(
        self,
        suspect: SuspectedComponent | None,
        positions: Sequence[Position],
        losses: Sequence[float],
        error: float,
        comparisons: int,
    ) -> Departure | None:
        """Return a departure with its interval; None if the loss is not clear or too small.

        `losses` has the loss of each of the cells at `positions`. `error` is the standard deviation
        of the median of these losses.
        """
        loss = float(np.median(losses))
        confidence = self.confidence_in_loss(loss, error, comparisons)
        if confidence <= 1.0 - HOST_FALSE_ALARM_LEVEL:
            return None
        half = float(stats.t.isf(0.025, self.freedom)) * error
        return Departure(
            suspect, tuple(positions), tuple(losses), loss - half, loss + half, confidence
        )


@dataclass(frozen=True)
class SuspectedComponent:
    """A component that may be at fault, and the cells that depend on it."""

    part: str  # kind of the component, such as "target" or "drive"
    name: int | str | tuple[int, int]  # node number, place name, or pair of packages or nodes
    cells: Mask  # mask of the cells that depend on the component


@dataclass(frozen=True)
class Departure:
    """The loss of a suspected component or of a single cell, compared with expected scores."""

    suspect: SuspectedComponent | None  # the suspected component; None for a single cell
    cells: tuple[Position, ...]  # positions of the cells with the loss
    losses: tuple[float, ...]  # loss of each of the cells, as a difference of logarithms
    # low, high: ends of the 95 % interval of the loss.
    low: float
    high: float
    confidence: float  # probability that the loss is not noise, 0 to 1

    @cached_property
    def loss(self) -> float:
        """The median loss of the cells, a positive difference of logarithms."""
        return float(np.median(self.losses))


def estimate_scatter_without_faults(
    cells: ScoredCells[Name],
    departures: Scores,
    groups: NDArray[np.int_],
    references: NDArray[np.int_],
) -> ScatterWithoutFaults:
    """Return the scatter that replicates and natural differences of equal components cause.

    Args:
        cells: the cells.
        departures: for each cell, its difference from the expected score of its group.
        groups: for each cell, the number of its group; -1 without a group.
        references: like `groups`, but -1 for cells that do not count for the scatter.
    """
    sizes = np.bincount(references[references >= 0], minlength=int(groups.max()) + 1)
    size = np.where(groups >= 0, sizes[np.maximum(groups, 0)], 0)
    # In a group of one or two cells, the expected score is the score of one of the cells, which
    # then has a departure of 0.
    counts = (size > 2) & (references >= 0) & cells.measured_mask
    informative = departures[counts]
    spread = 0.0
    if len(informative) >= _FEWEST_CELLS_FOR_SCATTER:
        factors = np.array([mad_to_deviation_factor(int(number)) for number in size[counts]])
        deviations = np.abs(informative - np.median(informative)) * factors
        spread = float(np.median(deviations))
    if cells.freedom:
        noise = cells.standard_error
        typical = float(np.median(noise[cells.measured_mask]))
        natural = float(max(NATURAL_SCATTER, np.sqrt(max(0.0, spread**2 - typical**2))))
        single = float(np.hypot(cells.noise, natural))
        # The formula of Satterthwaite (An approximate distribution of estimates of variance
        # components, 1946) gives the degrees of freedom. Unless the natural scatter is assumed, it
        # is as certain as a median of variances.
        share = typical**2 / (typical**2 + natural**2)
        inverse = share**2 / cells.freedom
        if natural > NATURAL_SCATTER:
            inverse += 2.0 * (1.0 - share) ** 2 / (len(informative) - 1)
        freedom = float(1.0 / inverse) if inverse else np.inf
    else:
        # Scores of single runs differ by all kinds of scatter together; at least the assumed noise
        # counts.
        single = max(ASSUMED_NOISE, spread)
        noise, natural = np.maximum(single, cells.standard_error), 0.0
        freedom = float(len(informative) - 1) if spread > ASSUMED_NOISE else np.inf
    total = noise**2 + natural**2
    with np.errstate(divide="ignore", invalid="ignore"):
        # The expected score scatters too, because it is the median of the group.
        error = np.sqrt(total * (1.0 + np.pi / 2.0 / np.maximum(size, 1)))
    matters = LEAST_REPORTED_DIFFERENCE if cells.freedom else LEAST_REPORTED_DIFFERENCE_OF_ONE_RUN
    return ScatterWithoutFaults(error, np.sqrt(total), freedom, natural, single, matters)
