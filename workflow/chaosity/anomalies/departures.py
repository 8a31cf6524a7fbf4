"""ScoredCells that are clearly and considerably worse than their siblings, and what they share.

A departure counts when it is statistically clear, adjusted for all cells that were looked at
(Bonferroni), and large enough to matter. Departures of several cells that share an initiator, a
target or a path have one cause and are told as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.anomalies.scored_cells import ASSUMED_NOISE, NATURAL, ScoredCells, loss_percent

# Below this nobody would open a server: equal parts differ by a per cent or two, and runs from boot
# to boot by as much.
MATTERS = 0.05
# A single run shows a disturbance of its seconds as if it were the machine.
MATTERS_IN_ONE_RUN = 0.08
# Chance of a false alarm in one matrix, all its cells together.
LEVEL = 0.01
# A single run has no replicates to confirm it.
MOST_CONFIDENCE, MOST_CONFIDENCE_OF_ONE = 0.9999, 0.95
# Of the cells of a group so many have to depart; some may be lost in the noise.
_SHARE = 0.75
# A normal sample's standard deviation over its median absolute deviation.
_MAD = 1.4826
# A scatter is estimated from at least so many cells.
_ENOUGH = 6


@dataclass(frozen=True)
class Scatter:
    """What cells of one class differ by without a fault.

    Attributes:
        error: standard deviation of a departure, of each cell; shape as the cells.
        own: the same of a cell's log_score by itself.
        freedom: degrees of freedom of both; infinite where they are assumed.
        natural: what equal parts differ by, as a standard deviation; 0 where it cannot be told
            from the noise. ScoredCells that share a part share it.
        single: standard deviation of a single value, as a share.
        matters: the least loss that is told, as a share.
    """

    error: NDArray[np.float64]
    own: NDArray[np.float64]
    freedom: float
    natural: float
    single: float
    matters: float


@dataclass(frozen=True)
class Group:
    """ScoredCells that share a component.

    Attributes:
        name: what it is, for the caller.
        cells: which they are; shape as the cells.
    """

    name: tuple[str, object]
    cells: NDArray[np.bool_]


@dataclass(frozen=True)
class Departure:
    """A group of cells, or a single one, that departs.

    Attributes:
        group: None for a single cell.
        cells: places (row, column).
        loss: on logarithms, positive: the median over its cells.
        low, high: 95 % interval of the loss.
        confidence: see Anomaly.
    """

    group: Group | None
    cells: tuple[tuple[int, int], ...]
    loss: float
    low: float
    high: float
    confidence: float


def scatter(
    cells: ScoredCells, departures: NDArray[np.float64], labels: NDArray[np.int_]
) -> Scatter:
    """Noise of the replicates, and what equal parts of the machine differ by besides.

    Args:
        cells: with their noise.
        departures: from the centres of their classes.
        labels: class of each cell.
    """
    sizes = np.bincount(labels[labels >= 0], minlength=int(labels.max()) + 1)
    size = np.where(labels >= 0, sizes[np.maximum(labels, 0)], 0)
    # A class of one or two has its centre in one of them, which departs by nothing.
    telling = departures[(size > 2) & (labels >= 0) & cells.measured]
    spread = 0.0
    if len(telling) >= _ENOUGH:
        spread = _MAD * float(np.median(np.abs(telling - np.median(telling))))
    noise = cells.error
    typical = float(np.median(noise[cells.measured]))
    natural = max(NATURAL, np.sqrt(max(0.0, spread**2 - typical**2)))
    freedom = cells.freedom if cells.freedom else np.inf
    if not cells.freedom:
        # One run: all scatter is in the spread, and less than the assumed is not believed.
        single = max(ASSUMED_NOISE, spread)
        noise, natural = np.full(noise.shape, single), 0.0
        freedom = float(len(telling) - 1) if spread > ASSUMED_NOISE else np.inf
    total = noise**2 + natural**2
    with np.errstate(divide="ignore", invalid="ignore"):
        # The centre scatters too: it is a median over the class.
        error = np.sqrt(total * (1.0 + np.pi / 2.0 / np.maximum(size, 1)))
    if cells.freedom:
        single = float(np.hypot(cells.noise, natural))
        return Scatter(error, np.sqrt(total), freedom, float(natural), single, MATTERS)
    return Scatter(error, np.sqrt(total), freedom, 0.0, single, MATTERS_IN_ONE_RUN)


def clear(difference: float, error: float, found: Scatter, comparisons: int) -> tuple[bool, float]:
    """Whether a loss is clear and matters, and how sure that is.

    Args:
        difference: of logarithms, positive for a loss.
        error: its standard deviation.
        found: the scatter that `error` comes from.
        comparisons: how many were looked at.
    """
    chance = float(stats.t.sf(difference / error, found.freedom)) * comparisons
    large = difference > -np.log1p(-found.matters)
    return bool(chance < LEVEL and large), 1.0 - min(1.0, chance)


def critical(freedom: float, chance: float) -> float:
    """Quantile above which a statistic lies with a chance; infinite freedom is a normal one."""
    return float(stats.t.isf(chance, freedom))


def detectable(cells: ScoredCells, found: Scatter, power: float = 0.95) -> float:
    """The loss of one cell, on logarithms, that would be found with a probability.

    What is below MATTERS is not reported, so a cell has to lose that much more than its own error.
    """
    comparisons = int(cells.measured.sum())
    error = float(np.nanmedian(found.error[cells.measured]))
    least = max(critical(found.freedom, LEVEL / comparisons) * error, -np.log1p(-found.matters))
    return least + float(stats.norm.ppf(power)) * error


def find(
    cells: ScoredCells,
    departures: NDArray[np.float64],
    found: Scatter,
    groups: Sequence[Group],
    normal: NDArray[np.bool_],
    looks: int = 1,
) -> list[Departure]:
    """Groups and single cells that depart, the groups that explain most first.

    Args:
        cells: the table.
        departures: from the centres of the classes.
        found: their scatter.
        groups: cells that share something, in the order of preference.
        normal: cells that are not to be told, since they are how the machine is built.
        looks: how many tables are looked at for one machine.
    """
    measured = cells.measured & ~normal & ~np.isnan(departures)
    left = measured.copy()
    comparisons = int(measured.sum()) * looks
    result = []
    while True:
        best = _best(cells, departures, found, groups, left, comparisons)
        if best is None:
            break
        result.append(best)
        for place in best.cells:
            left[place] = False
    for place in zip(*np.nonzero(left), strict=True):
        one = _departure(departures, found, None, [place], comparisons)
        if one is not None:
            result.append(one)
    return result


def _best(
    cells: ScoredCells,
    departures: NDArray[np.float64],
    found: Scatter,
    groups: Sequence[Group],
    left: NDArray[np.bool_],
    comparisons: int,
) -> Departure | None:
    """The group that explains most of what is left."""
    best, most = None, 0.0
    for group in groups:
        part = group.cells & cells.measured
        if (part & left).sum() < max(2, _SHARE * part.sum()):
            continue
        places = list(zip(*np.nonzero(part & left), strict=True))
        losses = np.array([-departures[place] for place in places])
        if np.mean(losses > found.matters / 2.0) < max(_SHARE, 1.0 - 1.0 / len(losses)):
            continue
        one = _departure(departures, found, group, places, comparisons)
        # A larger group that takes in cells without a loss explains no more.
        explained = float(np.clip(losses, 0.0, one.loss * 1.5).sum()) if one else 0.0
        if one is not None and explained > most * 1.05:
            best, most = one, explained
    return best


def _departure(
    departures: NDArray[np.float64],
    found: Scatter,
    group: Group | None,
    places: Sequence[tuple[int, int]],
    comparisons: int,
) -> Departure | None:
    losses = np.array([-departures[place] for place in places])
    errors = np.array([found.error[place] for place in places])
    loss = float(np.median(losses))
    noise = np.mean(errors**2 - found.natural**2)
    # A median over more than two cells scatters pi/2 as much as their mean.
    noise *= (np.pi / 2.0 if len(places) > 2 else 1.0) / len(places)
    error = float(np.sqrt(noise + found.natural**2))
    return _if_clear(group, places, loss, error, found, comparisons)


def _if_clear(
    group: Group | None,
    places: Sequence[tuple[int, int]],
    loss: float,
    error: float,
    found: Scatter,
    comparisons: int,
) -> Departure | None:
    """A loss with its interval, if it is clear and matters."""
    is_clear, confidence = clear(loss, error, found, comparisons)
    if not is_clear:
        return None
    half = critical(found.freedom, 0.025) * error
    cells = tuple((int(row), int(column)) for row, column in places)
    return Departure(group, cells, loss, loss - half, loss + half, confidence)


def gap(
    cells: ScoredCells,
    worse: tuple[int, int],
    better: tuple[int, int],
    error: float,
    found: Scatter,
    comparisons: int,
) -> Departure | None:
    """What one cell has less than another that it ought to equal or to beat, if that is clear.

    Args:
        cells: the table.
        worse: place (row, column) of the one.
        better: place of the other.
        error: standard deviation of their difference.
        found: the scatter that `error` comes from.
        comparisons: how many were looked at.
    """
    loss = float(cells.log_score[better] - cells.log_score[worse])
    return _if_clear(None, [worse], loss, error, found, comparisons)


def told_confidence(cells: ScoredCells, confidence: float) -> float:
    """No more than replicates, or their absence, allow."""
    return min(confidence, MOST_CONFIDENCE if cells.freedom else MOST_CONFIDENCE_OF_ONE)


def numbers(
    cells: ScoredCells, one: Departure, expected: float, beside: Sequence[tuple[int, int]] = ()
) -> dict[str, Any]:
    """The numbers of an anomaly, by the names of its attributes.

    Args:
        cells: the table.
        one: the departure.
        expected: log_score of what it was compared with.
        beside: places whose replicates count besides.
    """
    observed = float(np.median([cells.log_score[place] for place in one.cells]))
    return {
        "metric": cells.metric,
        "observed": cells.value(observed),
        "expected": cells.value(expected),
        "loss_percent": loss_percent(-one.loss, cells.metric),
        "loss_low": loss_percent(-one.low, cells.metric),
        "loss_high": loss_percent(-one.high, cells.metric),
        "confidence": told_confidence(cells, one.confidence),
        "n": int(min(cells.n[place] for place in (*one.cells, *beside))),
    }
