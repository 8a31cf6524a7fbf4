"""Decide which departures of cells from their group are clear, from how much they scatter.

A departure counts when it is statistically clear, adjusted for all tested cells (Bonferroni), and
large enough to matter. Departures of several cells that share an initiator, a target or a path
have one cause and are reported together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.cell_log_scores import (
    ASSUMED_NOISE,
    NATURAL_SCATTER,
    Mask,
    Name,
    Position,
    ScoredCells,
    Scores,
    mad_to_deviation,
)
from chaosity.statistics.significance_tests import MATTERS, MATTERS_IN_ONE_RUN

# Probability of a false alarm in one matrix, for all its cells together.
LEVEL = 0.01
# A single run has no replicates to confirm it.
MAX_CONFIDENCE, MAX_CONFIDENCE_OF_ONE_RUN = 0.9999, 0.95
# The scatter is estimated from at least so many cells.
_MIN_CELLS = 6


@dataclass(frozen=True)
class ScatterWithoutFaults:
    """How much the cells of a group differ without a fault."""

    # Standard deviation of each cell's departure from its group; an array like the cells.
    error: Scores
    own: Scores  # standard deviation of each cell's score alone
    # Degrees of freedom of `error` and `own`; infinite where these are assumed. `NATURAL_SCATTER`
    # is assumed, so there is more freedom the more it exceeds the noise.
    freedom: float
    # Standard deviation between equal parts of a healthy machine; 0 if the noise hides it. All
    # cells of a part have the difference of this part.
    natural: float
    single: float  # standard deviation of a single replicate, as a share of its value
    matters: float  # smallest loss that is reported, as a share of the expected value


@dataclass(frozen=True)
class SuspectedComponent:
    """A component that may be at fault, and the cells that depend on it."""

    part: str  # kind of the component, such as target or drive
    name: int | str | tuple[int, int]  # node number, place name, or the two packages of a path
    cells: Mask  # mask of its cells


@dataclass(frozen=True)
class Departure:
    """A suspect, or a single cell, that is worse than expected."""

    suspect: SuspectedComponent | None  # the suspected component; None for a single cell
    cells: tuple[Position, ...]  # positions of the cells
    loss: float  # median loss of the cells, a positive difference of logarithms
    # low, high: 95 % interval of the loss.
    low: float
    high: float
    confidence: float  # probability that the loss is not noise, 0 to 1


def estimate_scatter_without_faults(
    cells: ScoredCells[Name],
    departures: Scores,
    groups: NDArray[np.int_],
    references: NDArray[np.int_] | None = None,
) -> ScatterWithoutFaults:
    """Return the scatter from the noise of replicates and from natural differences of equal parts.

    Args:
        cells: the cells.
        departures: each cell's difference from its group.
        groups: number of each cell's group, -1 without one.
        references: the same of the cells that show the scatter. Default: all cells do.
    """
    references = groups if references is None else references
    sizes = np.bincount(references[references >= 0], minlength=int(groups.max()) + 1)
    size = np.where(groups >= 0, sizes[np.maximum(groups, 0)], 0)
    # In a group of one or two cells, one cell is the expected score, so it always departs by 0.
    counts = (size > 2) & (references >= 0) & cells.measured_mask
    informative = departures[counts]
    spread = 0.0
    if len(informative) >= _MIN_CELLS:
        factors = np.array([mad_to_deviation(int(number)) for number in size[counts]])
        deviations = np.abs(informative - np.median(informative)) * factors
        spread = float(np.median(deviations))
    if cells.freedom:
        noise = cells.standard_error
        typical = float(np.median(noise[cells.measured_mask]))
        natural = float(max(NATURAL_SCATTER, np.sqrt(max(0.0, spread**2 - typical**2))))
        single = float(np.hypot(cells.noise, natural))
        # Satterthwaite, An approximate distribution of estimates of variance components, 1946. The
        # natural scatter is as certain as a median of variances, unless it is assumed.
        share = typical**2 / (typical**2 + natural**2)
        inverse = share**2 / cells.freedom
        if natural > NATURAL_SCATTER:
            inverse += 2.0 * (1.0 - share) ** 2 / (len(informative) - 1)
        freedom = float(1.0 / inverse) if inverse else np.inf
    else:
        # With one run, the spread includes all scatter. The assumed noise is its lower limit.
        single = max(ASSUMED_NOISE, spread)
        noise, natural = np.maximum(single, cells.standard_error), 0.0
        freedom = float(len(informative) - 1) if spread > ASSUMED_NOISE else np.inf
    total = noise**2 + natural**2
    with np.errstate(divide="ignore", invalid="ignore"):
        # The expected score varies too: it is a median over the group.
        error = np.sqrt(total * (1.0 + np.pi / 2.0 / np.maximum(size, 1)))
    matters = MATTERS if cells.freedom else MATTERS_IN_ONE_RUN
    return ScatterWithoutFaults(error, np.sqrt(total), freedom, natural, single, matters)


def is_significant_and_large(
    difference: float, error: float, scatter: ScatterWithoutFaults, comparisons: int
) -> tuple[bool, float]:
    """Return whether a loss is clear and large enough to matter, and the confidence in the loss.

    `difference` is the loss as a difference of logarithms; `error` is its standard deviation,
    computed from the scatter. `comparisons` is the number of tested cells.
    """
    if difference <= -np.log1p(-scatter.matters):
        return False, 0.0
    p = float(stats.t.sf(difference / error, scatter.freedom)) * comparisons
    return bool(p < LEVEL), 1.0 - min(1.0, p)


def limit_confidence_by_replicates(cells: ScoredCells[Name], confidence: float) -> float:
    """Return the confidence, limited to the highest value that this number of replicates allows."""
    return min(confidence, MAX_CONFIDENCE if cells.freedom else MAX_CONFIDENCE_OF_ONE_RUN)
