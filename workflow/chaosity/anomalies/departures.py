"""Cells that are clearly and considerably worse than their group, and what they have in common.

A departure counts when it is statistically clear, adjusted for all tested cells (Bonferroni), and
large enough to matter. Departures of several cells that share an initiator, a target or a path
have one cause and are reported as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.anomaly_model import Loss
from chaosity.anomalies.scored_cells import (
    ASSUMED_NOISE,
    NATURAL_SCATTER,
    Name,
    Position,
    ScoredCells,
    loss_percent,
    positions_of,
)

# A smaller loss does not justify opening a server: equal parts differ by 1 or 2 %, and so do runs
# from boot to boot.
MATTERS = 0.05
# In a single run a disturbance of a few seconds looks like a fault.
MATTERS_IN_ONE_RUN = 0.08
# Probability of a false alarm in one matrix, for all its cells together.
LEVEL = 0.01
# A single run has no replicates to confirm it.
MAX_CONFIDENCE, MAX_CONFIDENCE_OF_ONE_RUN = 0.9999, 0.95
# Share of a component's cells that have to depart. Noise may hide the others.
_DEPARTING_SHARE = 0.75
# Standard deviation of a normal sample, divided by its median absolute deviation.
_MAD_TO_DEVIATION = 1.4826
# The scatter is estimated from at least so many cells.
_MIN_CELLS = 6
# A median over more than two values varies pi/2 as much as their mean, as a variance.
_MEDIAN_VARIANCE = np.pi / 2.0


@dataclass(frozen=True)
class Scatter:
    """Differences within a cell group that are not faults.

    Attributes:
        error: standard deviation of each cell's departure from its group; shape as the cells.
        own: standard deviation of each cell's score alone.
        freedom: degrees of freedom of both; infinite where they are assumed.
        natural: standard deviation between equal parts of the machine; 0 where it cannot be
            separated from the noise. Cells that share a part share this difference.
        single: standard deviation of a single value, as a share.
        matters: smallest loss that is reported, as a share.
    """

    error: NDArray[np.float64]
    own: NDArray[np.float64]
    freedom: float
    natural: float
    single: float
    matters: float


@dataclass(frozen=True)
class Suspect:
    """A component and the cells that depend on it.

    Attributes:
        part: which part of the machine it is, such as target or drive.
        name: node number, place name, or the two packages of a path.
        cells: mask of its cells.
    """

    part: str
    name: int | str | tuple[int, int]
    cells: NDArray[np.bool_]


@dataclass(frozen=True)
class Departure:
    """A suspect, or a single cell, that is worse than expected.

    Attributes:
        suspect: None for a single cell.
        cells: positions of the cells.
        loss: median loss of its cells; difference of logarithms, positive.
        low, high: 95 % interval of the loss.
        confidence: see `Loss`.
    """

    suspect: Suspect | None
    cells: tuple[Position, ...]
    loss: float
    low: float
    high: float
    confidence: float


def estimate_scatter(
    cells: ScoredCells[Name], departures: NDArray[np.float64], labels: NDArray[np.int_]
) -> Scatter:
    """The noise of the replicates, and the natural difference of equal parts.

    Args:
        cells: the cells with their noise.
        departures: difference of each cell from its group.
        labels: group of each cell, below 0 where it is excluded.
    """
    sizes = np.bincount(labels[labels >= 0], minlength=int(labels.max()) + 1)
    size = np.where(labels >= 0, sizes[np.maximum(labels, 0)], 0)
    # The expected score of a group of one or two is that of a cell, whose departure is 0.
    informative = departures[(size > 2) & (labels >= 0) & cells.measured]
    spread = 0.0
    if len(informative) >= _MIN_CELLS:
        middle = np.median(informative)
        spread = _MAD_TO_DEVIATION * float(np.median(np.abs(informative - middle)))
    if cells.freedom:
        noise = cells.error
        typical = float(np.median(noise[cells.measured]))
        natural = float(max(NATURAL_SCATTER, np.sqrt(max(0.0, spread**2 - typical**2))))
        single, freedom = float(np.hypot(cells.noise, natural)), cells.freedom
    else:
        # One run: the spread holds all scatter. A spread below the assumed noise is not trusted.
        single = max(ASSUMED_NOISE, spread)
        noise, natural = np.full(size.shape, single), 0.0
        freedom = float(len(informative) - 1) if spread > ASSUMED_NOISE else np.inf
    total = noise**2 + natural**2
    with np.errstate(divide="ignore", invalid="ignore"):
        # The expected score varies too: it is a median over the group.
        error = np.sqrt(total * (1.0 + np.pi / 2.0 / np.maximum(size, 1)))
    matters = MATTERS if cells.freedom else MATTERS_IN_ONE_RUN
    return Scatter(error, np.sqrt(total), freedom, natural, single, matters)


def is_clear(
    difference: float, error: float, scatter: Scatter, comparisons: int
) -> tuple[bool, float]:
    """Whether a loss is clear and matters, and the confidence in it.

    Args:
        difference: of logarithms, positive for a loss.
        error: its standard deviation.
        scatter: the scatter from which `error` was computed.
        comparisons: number of tested cells.
    """
    p = float(stats.t.sf(difference / error, scatter.freedom)) * comparisons
    large = difference > -np.log1p(-scatter.matters)
    return bool(p < LEVEL and large), 1.0 - min(1.0, p)


def critical_value(freedom: float, p: float) -> float:
    """The value that Student's t exceeds with probability p; infinite freedom is a normal one."""
    return float(stats.t.isf(p, freedom))


def detectable_loss(cells: ScoredCells[Name], scatter: Scatter, power: float = 0.95) -> float:
    """Smallest loss of one cell, on logarithms, that is found with this probability.

    Losses below `scatter.matters` are not reported, so a cell has to lose more than that.
    """
    comparisons = int(cells.measured.sum())
    error = float(np.nanmedian(scatter.error[cells.measured]))
    clear = critical_value(scatter.freedom, LEVEL / comparisons) * error
    least = max(clear, -np.log1p(-scatter.matters))
    return float(least + stats.norm.ppf(power) * error)


def find_departures(
    cells: ScoredCells[Name],
    departures: NDArray[np.float64],
    scatter: Scatter,
    suspects: Sequence[Suspect],
    excluded: NDArray[np.bool_],
    looks: int = 1,
) -> list[Departure]:
    """Suspects and single cells that depart, those that explain most first.

    Args:
        cells: the table.
        departures: difference of each cell from its group.
        scatter: their scatter.
        suspects: components, in the order of preference.
        excluded: mask of cells that are not reported.
        looks: number of tables that are tested for one machine.
    """
    measured = cells.measured & ~excluded & ~np.isnan(departures)
    remaining = measured.copy()
    comparisons = int(measured.sum()) * looks
    found = []
    while True:
        best = _best_suspect(cells, departures, scatter, suspects, remaining, comparisons)
        if best is None:
            break
        found.append(best)
        for position in best.cells:
            remaining[position] = False
    for position in positions_of(remaining):
        departure = _departure(departures, scatter, None, [position], comparisons)
        if departure is not None:
            found.append(departure)
    return found


def _best_suspect(
    cells: ScoredCells[Name],
    departures: NDArray[np.float64],
    scatter: Scatter,
    suspects: Sequence[Suspect],
    remaining: NDArray[np.bool_],
    comparisons: int,
) -> Departure | None:
    """The suspect that explains most of the remaining loss."""
    best, most = None, 0.0
    for suspect in suspects:
        part = suspect.cells & cells.measured
        if (part & remaining).sum() < max(2, _DEPARTING_SHARE * part.sum()):
            continue
        positions = positions_of(part & remaining)
        losses = np.array([-departures[position] for position in positions])
        share = max(_DEPARTING_SHARE, 1.0 - 1.0 / len(losses))
        if np.mean(losses > scatter.matters / 2.0) < share:
            continue
        departure = _departure(departures, scatter, suspect, positions, comparisons)
        if departure is None:
            continue
        # A larger suspect that includes cells without a loss explains no more.
        explained = float(np.clip(losses, 0.0, departure.loss * 1.5).sum())
        if explained > most * 1.05:
            best, most = departure, explained
    return best


def _departure(
    departures: NDArray[np.float64],
    scatter: Scatter,
    suspect: Suspect | None,
    positions: Sequence[Position],
    comparisons: int,
) -> Departure | None:
    losses = np.array([-departures[position] for position in positions])
    errors = np.array([scatter.error[position] for position in positions])
    noise = np.mean(errors**2 - scatter.natural**2)
    noise *= (_MEDIAN_VARIANCE if len(positions) > 2 else 1.0) / len(positions)
    error = float(np.sqrt(noise + scatter.natural**2))
    return _if_clear(suspect, positions, float(np.median(losses)), error, scatter, comparisons)


def _if_clear(
    suspect: Suspect | None,
    positions: Sequence[Position],
    loss: float,
    error: float,
    scatter: Scatter,
    comparisons: int,
) -> Departure | None:
    """A loss with its interval, if it is clear and matters."""
    clear, confidence = is_clear(loss, error, scatter, comparisons)
    if not clear:
        return None
    half = critical_value(scatter.freedom, 0.025) * error
    return Departure(suspect, tuple(positions), loss, loss - half, loss + half, confidence)


def compare_cells(
    cells: ScoredCells[Name],
    worse: Position,
    better: Position,
    error: float,
    scatter: Scatter,
    comparisons: int,
) -> Departure | None:
    """The loss of one cell against a cell that it should equal or exceed, if it is clear.

    Args:
        cells: the table.
        worse: position of the worse cell.
        better: position of the better cell.
        error: standard deviation of their difference.
        scatter: the scatter from which `error` was computed.
        comparisons: number of tested pairs.
    """
    loss = float(cells.log_score[better] - cells.log_score[worse])
    return _if_clear(None, [worse], loss, error, scatter, comparisons)


def limit_confidence(cells: ScoredCells[Name], confidence: float) -> float:
    """The confidence, at most what the replicates, or their absence, allow."""
    return min(confidence, MAX_CONFIDENCE if cells.freedom else MAX_CONFIDENCE_OF_ONE_RUN)


def loss_of(
    cells: ScoredCells[Name],
    departure: Departure,
    expected: float,
    reference: Sequence[Position] = (),
) -> Loss:
    """The numbers of a departure, in the metric's unit.

    Args:
        cells: the table.
        departure: the departure.
        expected: score of the comparable cells.
        reference: positions of cells whose replicates limit `n` too.
    """
    observed = float(np.median([cells.log_score[position] for position in departure.cells]))
    return Loss(
        metric=cells.metric,
        observed=cells.value(observed),
        expected=cells.value(expected),
        loss_percent=loss_percent(-departure.loss, cells.metric),
        loss_low=loss_percent(-departure.low, cells.metric),
        loss_high=loss_percent(-departure.high, cells.metric),
        confidence=limit_confidence(cells, departure.confidence),
        n=int(min(cells.n[position] for position in (*departure.cells, *reference))),
    )
