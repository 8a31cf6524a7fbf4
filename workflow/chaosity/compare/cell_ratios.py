"""The ratio of two cells, with its interval and the chance to see it where there is none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from chaosity.compare.matched_cells import Cell
from chaosity.statistics import run_ratio
from chaosity.statistics.summary import CONFIDENCE

# A difference counts when it is at least this large and not by chance. Equal servers differ by 1 or
# 2 % in what their memory gives; 5 % is what a wrong setting or a slow module takes at the least.
MATTERS = 1.05
LEVEL = 0.05


@dataclass(frozen=True)
class Ratio:
    """One cell's value over its partner's.

    Attributes:
        ratio: of the medians.
        low, high: 95 % interval; None when a side has fewer than two values.
        p: chance of a difference as large where there is none; None without an interval.
        n, n_reference: numbers of replicates, of pairs when paired.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float | None
    n: int
    n_reference: int


def ratio_of(cell: Cell, reference: Cell) -> Ratio:
    """Ratio of two cells of different runs: Welch's interval and test on logarithms."""
    found = run_ratio(cell.values, reference.values)
    p = None
    if found.low is not None:
        logs = [list(side.logs.values()) for side in (cell, reference)]
        with values_may_be_equal():
            p = _p(stats.ttest_ind(*logs, equal_var=False).pvalue, found.ratio)
    return Ratio(found.ratio, found.low, found.high, p, found.n, found.n_reference)


def paired_ratio_of(cell: Cell, reference: Cell) -> Ratio:
    """Ratio of two cells of one run in the replicate blocks that both have; without one, as others.

    What failed in some blocks here and in the others there makes no pair.
    """
    blocks = [block for block in cell.logs if block in reference.logs]
    if not blocks:
        return ratio_of(cell, reference)
    logs = np.array([cell.logs[block] - reference.logs[block] for block in blocks])
    n = len(logs)
    middle = float(np.exp(np.median(logs)))
    if n < 2:
        return Ratio(middle, None, None, None, n, n)
    low, high = (float(np.exp(end)) for end in mean_interval(logs))
    with values_may_be_equal():
        p = _p(stats.ttest_1samp(logs, 0.0).pvalue, middle)
    return Ratio(middle, min(low, middle), max(high, middle), p, n, n)


def mean_interval(logs: np.ndarray) -> tuple[float, float]:
    """Student's t interval of the mean of two or more logarithms."""
    half = stats.t.ppf(0.5 + CONFIDENCE / 2.0, len(logs) - 1) * stats.sem(logs)
    return float(logs.mean() - half), float(logs.mean() + half)


def typical(ratios: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The median of ratios and an interval over them, from three on: of two it is without end.

    By logarithms, so that the typical ratio of all reciprocals is the reciprocal.
    """
    logs = np.log(np.asarray(ratios, dtype=float))
    middle = float(np.exp(np.median(logs)))
    if len(logs) < 3:
        return middle, None, None
    low, high = (float(np.exp(end)) for end in mean_interval(logs))
    return middle, min(low, middle), max(high, middle)


def adjusted(chances: Sequence[float | None]) -> list[float | None]:
    """Chances adjusted for being many, by Benjamini and Hochberg.

    A list of cells is wanted of which few are wrong, not a list without a single wrong one: with
    three replicates and hundreds of cells Holm's method would find nothing at all. Their method
    holds for cells that share a run, whose errors go the same way (Benjamini and Yekutieli, 2001).
    """
    known = [number for number, p in enumerate(chances) if p is not None]
    found: list[float | None] = [None] * len(chances)
    if known:
        corrected = multipletests([chances[number] for number in known], method="fdr_bh")[1]
        for number, p in zip(known, corrected, strict=True):
            found[number] = float(p)
    return found


def matters(ratio: float) -> bool:
    """Whether a difference is large enough, in either direction."""
    return abs(np.log(ratio)) >= np.log(MATTERS)


@contextmanager
def values_may_be_equal() -> Iterator[None]:
    """Without scipy's warning of values that are all equal; `_p` knows what to make of them."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _p(p: float, ratio: float) -> float:
    """A chance; without any scatter it is clear."""
    return float(p) if np.isfinite(p) else float(ratio == 1.0)
