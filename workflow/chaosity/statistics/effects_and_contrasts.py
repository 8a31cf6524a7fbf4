"""Estimate effects of levels, and differences of levels or of groups of cells, with intervals.

All are on the analysed scale. For logarithms a difference is the logarithm of a ratio, which is
given too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, special, stats

from chaosity.statistics.anova_design import AnovaDesign, Members, Values
from chaosity.statistics.estimates_and_ratios import CONFIDENCE
from chaosity.statistics.sums_of_squares import indicator_columns

# All pairs of twelve levels are 66 lines; of more levels only the extremes are reported.
MOST_LEVELS_IN_PAIRS = 12
# For more levels the studentized range takes seconds to compute and its interval is too wide.
_MOST_LEVELS = 128
# Inverting the normal equations of a larger model takes seconds.
_MOST_COLUMNS = 1000


@lru_cache(maxsize=256)
def _half_width_in_standard_errors(confidence: float, freedom: float) -> float:
    """Return half the width of the interval of one estimate, in standard errors."""
    return float(stats.t.ppf(0.5 + confidence / 2.0, freedom))


@dataclass(frozen=True)
class DifferenceWithInterval:
    """A difference on the analysed scale, with its interval; None if unknown.

    The ratio and its interval follow; they are None unless logarithms are analysed.
    """

    value: float
    low: float | None
    high: float | None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval excludes zero; None without an interval."""
        return None if self.low is None or self.high is None else not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class ResidualError:
    """The error of a model, from which intervals are computed."""

    variance: float | None  # mean square of the error; None when there is none
    freedom: int  # degrees of freedom of the error
    logs: bool  # whether logarithms are analysed
    # Confidence of the intervals, 0 to 1. Tests have the same: a test finds what an interval finds.
    confidence: float = CONFIDENCE

    @property
    def significant_below(self) -> float:
        """Return the p value below which a term is significant: 0.1 at a confidence of 90 %."""
        return 1.0 - self.confidence

    def interval_of_estimate(
        self, value: float, weight: float, multiple: float | None = None
    ) -> DifferenceWithInterval:
        """Return an estimate with its interval; its variance is `weight` times that of the error.

        `multiple` is half the width in standard errors. Default: the value of Student's t.
        """
        ends: list[float | None] = [None, None]
        if self.variance is not None:
            if multiple is None:
                multiple = _half_width_in_standard_errors(self.confidence, self.freedom)
            half = multiple * math.sqrt(self.variance * max(0.0, weight))
            ends = [value - half, value + half]
        if not self.logs:
            return DifferenceWithInterval(value, *ends)
        return DifferenceWithInterval(value, *ends, *map(_ratio, (value, *ends)))


def _ratio(logarithm: float | None) -> float | None:
    """Return the ratio of a difference of logarithms; None if unknown or above all numbers."""
    try:
        return None if logarithm is None else math.exp(logarithm)
    except OverflowError:
        return None


@dataclass(frozen=True)
class LevelEffect:
    """The departure of a level from the grand mean."""

    # factor, level: names of the factor and of the level.
    factor: str
    level: str
    n: int  # number of values at this level
    mean: float  # their mean in the response's unit; the geometric mean for logarithms
    effect: DifferenceWithInterval  # departure from the grand mean, with all other factors equal


@dataclass(frozen=True)
class InteractionEffect:
    """The effect of two levels together beyond the sum of their single effects."""

    term: str  # name of the interaction
    levels: tuple[str, str]  # one level of each of the two factors
    n: int  # number of values with both levels
    effect: DifferenceWithInterval  # the effect; without an interval in unbalanced data


@dataclass(frozen=True)
class Contrast:
    """The difference of two levels or of two groups of cells."""

    factor: str  # factor of the levels, or column by which cells are grouped
    # level, against: names of both sides; the difference is `level` minus `against`.
    level: str
    against: str
    difference: DifferenceWithInterval  # the difference with its interval
    # "Tukey" for an interval that holds for all pairs, None for a single comparison.
    adjusted: str | None


Estimates = tuple[Values, Values]


def estimate_level_effects_and_covariance(
    design: AnovaDesign, values: Values, factor: int, terms: Sequence[Members]
) -> Estimates | None:
    """Estimate the effects of a factor's levels in the model without interactions.

    The factor's sum of squares (of type II in unbalanced data) tests these effects. In balanced
    data they are the departures of the means.

    Returns:
        The effects, which sum to zero, and their covariance as a multiple of the error's variance;
        None when the data cannot separate the levels from those of another factor, or for very many
        levels.
    """
    size = design.level_counts[factor]
    centre = np.eye(size) - 1.0 / size
    if design.is_balanced:
        n = design.value_count / size
        return centre @ (np.bincount(design.codes[:, factor], values) / n), centre / n
    sizes = {member: design.level_counts[member] - 1 for (member,) in terms}
    if sum(sizes.values()) > _MOST_COLUMNS:
        return None
    columns = indicator_columns(design, terms)
    if np.linalg.matrix_rank(columns.T @ columns, hermitian=True) < columns.shape[1]:
        return None
    inverse = linalg.inv(columns.T @ columns)
    solution = inverse @ (columns.T @ (values - values.mean()))
    start = 1 + sum(width for member, width in sizes.items() if member < factor)
    own = slice(start, start + size - 1)
    covariance = np.pad(inverse[own, own], ((1, 0), (1, 0)))  # the first level has effect 0
    return centre @ np.pad(solution[own], (1, 0)), centre @ covariance @ centre


def level_effects(
    design: AnovaDesign, values: Values, factor: int, found: Estimates, error: ResidualError
) -> list[LevelEffect]:
    """Return the effect of every level of a factor."""
    effects, covariance = found
    n = design.rows_per_combination((factor,))
    means = np.bincount(design.codes[:, factor], values) / n
    return [
        LevelEffect(
            factor=design.names[factor],
            level=level,
            n=int(n[k]),
            mean=float(np.exp(means[k]) if error.logs else means[k]),
            effect=error.interval_of_estimate(float(effects[k]), float(covariance[k, k])),
        )
        for k, level in enumerate(design.levels[factor])
    ]


def compare_level_pairs_with_tukey_intervals(
    design: AnovaDesign, factor: int, found: Estimates, error: ResidualError
) -> list[Contrast]:
    """Compare all pairs of a factor's levels, or the largest with the smallest of many levels.

    The intervals are valid for all pairs at once (Tukey; Kramer's form if counts differ).
    """
    effects, covariance = found
    levels, size = design.levels[factor], design.level_counts[factor]
    if size > _MOST_LEVELS:
        return []
    chosen = [(int(np.argmax(effects)), int(np.argmin(effects)))]
    if size <= MOST_LEVELS_IN_PAIRS:
        chosen = [(j, i) for i, j in combinations(range(size), 2)]
    multiple = None
    if size > 2 and error.variance is not None:
        multiple = _range_quantile(error.confidence, size, error.freedom) / math.sqrt(2.0)
    return [
        Contrast(
            factor=design.names[factor],
            level=levels[i],
            against=levels[j],
            difference=error.interval_of_estimate(
                float(effects[i] - effects[j]),
                float(covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j]),
                multiple,
            ),
            adjusted="Tukey" if size > 2 else None,
        )
        for i, j in chosen
    ]


@lru_cache(maxsize=256)
def _range_quantile(confidence: float, levels: int, freedom: int) -> float:
    """Return the quantile of the studentized range.

    `scipy.stats.studentized_range` integrates twice and takes 0.4 s for a quantile. Sums over
    128 nodes of a Gauss-Legendre rule in each direction take 30 ms, and differ from it by less than
    1e-4 of the value.
    """
    nodes, weights = np.polynomial.legendre.leggauss(128)
    # One normal value is the smallest of all levels, and the others are within the range above it.
    smallest, below = 8.0 * nodes, special.ndtr(8.0 * nodes)
    smallest_weights = levels * 8.0 * weights * stats.norm.pdf(smallest)
    # The square root of the residuals' standard deviation relative to the true one; without this
    # root, one degree of freedom would need more nodes.
    low, high = (stats.chi2.ppf([1e-15, 1.0 - 1e-15], freedom) / freedom) ** 0.25
    roots = low + (high - low) * (nodes + 1.0) / 2.0
    density = 4.0 * freedom * roots**3 * stats.chi2.pdf(freedom * roots**4, freedom)
    deviations, deviation_weights = roots**2, (high - low) / 2.0 * weights * density

    def _excess(quantile: float) -> float:
        ranges = special.ndtr(smallest + quantile * deviations[:, None]) - below
        inside = ranges ** (levels - 1) @ smallest_weights
        return float(deviation_weights @ inside) - confidence

    high_quantile = 4.0
    while _excess(high_quantile) < 0.0:
        high_quantile *= 2.0
    return float(optimize.brentq(_excess, 0.0, high_quantile))


def interaction_effects(
    design: AnovaDesign, values: Values, pair: tuple[int, int], error: ResidualError
) -> list[InteractionEffect]:
    """Return the effects of an interaction; empty when a pair of levels has no value."""
    a, b = (design.level_counts[member] for member in pair)
    counts = design.rows_per_combination(pair).reshape(a, b)
    if not counts.all():
        return []
    codes, _ = design.combination_of_each_row(pair)
    means = np.bincount(codes, values).reshape(a, b) / counts
    effects = means - means.mean(axis=0) - means.mean(axis=1)[:, None] + means.mean()
    known = error if design.is_balanced else replace(error, variance=None)
    share = (1.0 - 1.0 / a) * (1.0 - 1.0 / b)
    first, second = (design.levels[member] for member in pair)
    return [
        InteractionEffect(
            term=design.term_name(pair),
            levels=(first[i], second[j]),
            n=int(counts[i, j]),
            effect=known.interval_of_estimate(float(effects[i, j]), share / float(counts[i, j])),
        )
        for i, j in np.ndindex(a, b)
    ]


def compare_groups_of_cells(
    design: AnovaDesign,
    values: Values,
    residuals: Values,
    groups: Sequence[str],
    chosen: tuple[str, str],
    error: ResidualError,
    name: str,
) -> Contrast | None:
    """Compare the means over the cells of two groups.

    Cells have equal weights, whatever their number of replicates; differences between blocks are
    removed. Each group has the noise of its own cells, as in Welch's test: remote memory can
    scatter far less than local memory, and then the noise of all cells together is wrong for both.
    With pooled noise a 95 % interval was right in 82 to 99 % of simulations, see
    bench/interval_coverage.py.

    `groups` has the group of each row's cell, `chosen` has the names of both groups, and `name` is
    the name of the contrast. The interval is that of a single planned comparison.

    Returns:
        The contrast; None when one of the groups has no cell.
    """
    codes, number = design.combination_of_each_row(design.all_factors_term)
    counts = np.bincount(codes, minlength=number).astype(float)
    names = np.empty(number, dtype=object)
    names[codes] = list(groups)
    inside = [names == group for group in chosen]
    if not all(members.any() for members in inside):
        return None
    shares = np.zeros(number)
    parts = []
    for members, sign in zip(inside, (1.0, -1.0), strict=True):
        shares[members] = sign / members.sum() / counts[members]
        weight = float((shares[members] ** 2 * counts[members]).sum())
        parts.append((weight, *_own_noise(members[codes], residuals, counts[codes], error)))
    rows = shares[codes]  # the contrast as a sum over the rows, not yet corrected for blocks
    value = float(rows @ values)
    if design.block_term:
        columns = indicator_columns(design, [design.block_term])[:, 1:]
        sums = np.column_stack([np.bincount(codes, column, number) for column in columns.T])
        within = columns - sums[codes] / counts[codes, None]
        inverse = linalg.pinvh(within.T @ within)
        uneven = rows @ columns  # how much the groups' blocks differ; zero in balanced data
        value -= float(uneven @ inverse @ (within.T @ values))
        parts.append((float(uneven @ inverse @ uneven), error.variance or 0.0, error.freedom))
    if error.variance is None:
        return Contrast(name, *chosen, error.interval_of_estimate(value, 0.0), None)
    squares = [weight * variance for weight, variance, _ in parts]
    # Degrees of freedom by Welch and Satterthwaite.
    freedom = sum(squares) ** 2 / sum(
        square**2 / df for square, (_, _, df) in zip(squares, parts, strict=True)
    )
    weight = sum(squares) / error.variance
    multiple = _half_width_in_standard_errors(error.confidence, freedom)
    return Contrast(name, *chosen, error.interval_of_estimate(value, weight, multiple), None)


def _own_noise(
    rows: NDArray[np.bool_], residuals: Values, counts: Values, error: ResidualError
) -> tuple[float, float]:
    """Return the noise variance of some rows and its share of the error's degrees of freedom.

    A cell with a single replicate contributes no noise. If no cell has more, the residuals are
    those of an interaction, and all count equally. Rows with too few degrees of freedom get the
    noise of all rows.
    """
    tells = 1.0 - 1.0 / counts
    if not tells.any():
        tells = np.ones_like(counts)
    freedom = error.freedom * float(tells[rows].sum() / tells.sum())
    squares = float((residuals[rows] ** 2).sum())
    if freedom < 1.0 or squares <= 0.0:
        return error.variance or 0.0, float(error.freedom)
    return squares / freedom, freedom
