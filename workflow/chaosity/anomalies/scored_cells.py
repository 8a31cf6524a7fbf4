"""ScoredCells of a table of initiators and targets as numbers that can be compared.

All arithmetic is on logarithms, since disturbances and faults multiply, and with the sign turned
where less is better: `log_score` is larger for the better, and a difference of 0.1 is about a tenth.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.statistics import less_is_better

Cell = tuple[Hashable, Hashable]
# Of a single run nobody knows the noise. Repeated runs of STREAM and MLC on quiet servers differ
# by about 1 %; twice that is reckoned with.
ASSUMED_NOISE = 0.02
# Equal parts of a machine are not quite equal (the published two-socket machines differ by up to
# 1.6 % between their sockets).
NATURAL = 0.01
# The median of a normal sample scatters pi/2 as much as its mean, as a variance.
_MEDIAN = np.pi / 2.0
# A median of variances uses about half of the information that their mean would.
_ROBUST = 0.5


@dataclass(frozen=True)
class ScoredCells:
    """A table of measured cells.

    Attributes:
        metric: its full name.
        rows: initiators.
        columns: targets.
        log_score: of each cell, NaN where nothing was measured; shape (rows, columns).
        n: replicates of each cell; same shape.
        noise: standard deviation of a replicate, on logarithms.
        freedom: degrees of freedom of `noise`; 0 when it is assumed.
    """

    metric: str
    rows: tuple[Hashable, ...]
    columns: tuple[Hashable, ...]
    log_score: NDArray[np.float64]
    n: NDArray[np.intp]
    noise: float
    freedom: float

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Where there is a value."""
        return ~np.isnan(self.log_score)

    @property
    def local(self) -> NDArray[np.bool_]:
        """Where initiator and target are the same."""
        return np.array([[row == column for column in self.columns] for row in self.rows])

    def line(self, row: int | None = None, column: int | None = None) -> NDArray[np.bool_]:
        """The cells of an initiator, of a target, or of either."""
        mask = np.zeros(self.log_score.shape, dtype=bool)
        if row is not None:
            mask[row] = True
        if column is not None:
            mask[:, column] = True
        return mask

    @property
    def error(self) -> NDArray[np.float64]:
        """Standard error of each cell's log_score by the noise of its replicates."""
        with np.errstate(divide="ignore"):
            variance = self.noise**2 / self.n * np.where(self.n > 2, _MEDIAN, 1.0)
        return np.sqrt(variance)

    def value(self, log_score: float) -> float:
        """In the metric's unit."""
        return float(np.exp(-log_score if less_is_better(self.metric) else log_score))

    def cell(self, row: int, column: int) -> Cell:
        """The names of a place."""
        return self.rows[row], self.columns[column]


def loss_percent(departure: float, metric: str) -> float:
    """How much worse than expected, in per cent of what was expected.

    Args:
        departure: of the log_score, negative for the worse.
        metric: a latency that doubles is 100 % worse, a bandwidth that halves 50 %.
    """
    if less_is_better(metric):
        return float(100.0 * np.expm1(-departure))
    return float(-100.0 * np.expm1(departure))


def cells_of(
    metric: str,
    samples: Mapping[Cell, Sequence[float]],
    blocks: Mapping[Cell, Sequence[int]] | None = None,
    rows: Sequence[Hashable] | None = None,
    columns: Sequence[Hashable] | None = None,
) -> ScoredCells:
    """Replicates as cells.

    What a replicate block has in common, since the machine drifts, is taken out of the noise.

    Args:
        metric: its full name.
        samples: positive replicates of each measured cell, in the metric's unit.
        blocks: the replicate block of each sample.
        rows: the initiators in their order; without it as they appear.
        columns: the targets likewise.
    """
    rows = tuple(rows or dict.fromkeys(row for row, _ in samples))
    columns = tuple(columns or dict.fromkeys(column for _, column in samples))
    sign = -1.0 if less_is_better(metric) else 1.0
    logs = {
        cell: sign * np.log(np.asarray(values, dtype=float)) for cell, values in samples.items()
    }
    if blocks:
        logs = _without_drift(logs, blocks)
    log_score = np.full((len(rows), len(columns)), np.nan)
    n = np.zeros(log_score.shape, dtype=np.intp)
    place = {name: i for i, name in enumerate(rows)}, {name: i for i, name in enumerate(columns)}
    for (row, column), values in logs.items():
        at = place[0][row], place[1][column]
        log_score[at], n[at] = np.median(values), len(values)
    noise, freedom = _noise(list(logs.values()))
    return ScoredCells(metric, rows, columns, log_score, n, noise, freedom)


def _without_drift(
    logs: Mapping[Cell, NDArray[np.float64]], blocks: Mapping[Cell, Sequence[int]]
) -> dict[Cell, NDArray[np.float64]]:
    """Each value less what its block typically departs from the cells' medians."""
    departures: dict[int, list[float]] = {}
    for cell, values in logs.items():
        for block, value in zip(blocks[cell], values - np.median(values), strict=True):
            departures.setdefault(block, []).append(float(value))
    drift = {block: float(np.median(found)) for block, found in departures.items()}
    return {
        cell: values - np.array([drift[block] for block in blocks[cell]])
        for cell, values in logs.items()
    }


def _noise(samples: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Standard deviation of a replicate and its degrees of freedom, pooled over the cells.

    The median over the cells counts, so that a few disturbed cells do not hide the others' faults.
    """
    several = [values for values in samples if len(values) > 1]
    if not several:
        return ASSUMED_NOISE, 0.0
    freedoms = np.array([len(values) - 1 for values in several], dtype=float)
    variances = np.array([np.var(values, ddof=1) for values in several])
    # The median of a sample's variance is below its mean, the more so the smaller the sample.
    typical = np.median(variances / (stats.chi2.median(freedoms) / freedoms))
    return float(np.sqrt(typical)), float(max(1.0, _ROBUST * freedoms.sum()))
