"""Fit nested linear models to a design, and estimate effects of levels and their differences.

The sum of squares of a term is of type II: by how much the residual sum of squares falls when the
term is added to a model of all terms that do not contain this term. Of the usual types only type II
is independent of the coding of levels, defined with empty cells, and the most powerful where there
is no interaction (Langsrud, "ANOVA for unbalanced data: Use Type II instead of Type III sums of
squares", Statistics and Computing 13, 2003). In balanced data, the type II sum of squares is the
sum of the term's squared effects (Jain, "The Art of Computer Systems Performance Analysis", 1991,
chapters 20 to 23).

This module also estimates the difference between two groups of cells. All estimates have the scale
of the analysed values. If logarithms are analysed, a difference is the logarithm of a ratio, and
the ratio is given too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import combinations, product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, optimize, sparse, special, stats

from chaosity.errors import UserError
from chaosity.place_names import natural_sort_key

Values = NDArray[np.float64]
# A term is given by the numbers of the columns of its factors; () is the grand mean.
Term = tuple[int, ...]
# Largest number of factors in one interaction. An interaction of four factors has hundreds of
# effects, which nobody can interpret.
MOST_FACTORS_INTERACTING = 3
# The largest number of effects for which a model of unbalanced data is solved. To solve a model
# with more effects would take seconds.
_MOST_EFFECTS = 300
# Indicator columns are either independent or exactly dependent. So an eigenvalue is a rounding
# error if its share of the largest eigenvalue, or of the largest count of rows, is below 1e-9.
_EIGENVALUE_ROUNDING_ERROR = 1e-9


@dataclass(frozen=True)
class _AnovaDesign:
    """The factors and the block of a table, and their levels in each row."""

    names: tuple[str, ...]  # names of the factors, then the name of the block, if any
    # Levels of each name, in natural order (node9 before node10).
    levels: tuple[tuple[str, ...], ...]
    codes: NDArray[np.intp]  # the number of a level for each row and each of the `names`
    cells: Term  # the term of all factors; a cell is a combination of their levels
    block: Term  # the block; () without a block

    def term_name(self, term: Term) -> str:
        """Return the name of a term: "node x kernel"."""
        return " x ".join(self.names[member] for member in term)

    def combination_count(self, term: Term) -> int:
        """Return the number of combinations of a term's levels, with or without a value."""
        return math.prod(len(self.levels[member]) for member in term)

    def effect_count(self, term: Term) -> int:
        """Return the number of independent effects of a term if each combination has a value."""
        return math.prod(len(self.levels[member]) - 1 for member in term)

    def combination_of_each_row(self, term: Term) -> NDArray[np.intp]:
        """Return for each row the number of the combination of a term's levels in this row.

        Only combinations with a value get a number. The combinations are numbered in the order of
        their levels; the last factor varies fastest.
        """
        found = np.zeros(len(self.codes), dtype=np.intp)
        for member in term:
            found = found * len(self.levels[member]) + self.codes[:, member]
            found = np.unique(found, return_inverse=True)[1]
        return found

    @cached_property
    def is_balanced(self) -> bool:
        """Whether every combination of all factors and blocks was measured equally often."""
        everything = (*self.cells, *self.block)
        counts = np.bincount(self.combination_of_each_row(everything))
        return len(counts) == self.combination_count(everything) and not np.ptp(counts)


def read_anova_design_and_values(
    frame: pd.DataFrame, response: str, factors: Sequence[str], block: str | None = None
) -> tuple[_AnovaDesign, Values]:
    """Check a table and return its design and values; `anova.analyse_variance` has the arguments.

    Raises:
        UserError: a column is missing or named twice, a cell is empty or not a number, a factor
            has a single level, or the response never varies.
    """
    names = (*factors, *([block] if block is not None else []))
    _check_columns(frame, (response, *names), factors)
    values = _column_as_numbers(frame[response], response)
    levels, codes = zip(*(_levels_and_codes(frame[name], name) for name in names), strict=True)
    if np.ptp(values) == 0.0:
        what = f"the response is {values[0]:g} in every row"
        raise UserError(what, f"column {response}", "there is no variation to explain")
    places = range(len(names))
    cells, blocks = tuple(places[: len(factors)]), tuple(places[len(factors) :])
    return _AnovaDesign(names, levels, np.column_stack(codes), cells, blocks), values


def _check_columns(frame: pd.DataFrame, wanted: Sequence[str], factors: Sequence[str]) -> None:
    if not factors:
        raise UserError("there is no factor", None, "give the columns that were varied")
    columns = list(map(str, frame.columns))
    for name in wanted:
        if name not in columns:
            listed = ", ".join(columns) or "none"
            raise UserError("the table has no such column", name, f"columns: {listed}")
        if columns.count(name) > 1:
            raise UserError("two columns have this name", name, "rename one of them")
        if wanted.count(name) > 1:
            remedy = "response, factors and block must be different columns"
            raise UserError("the same column is used twice", name, remedy)
    if len(frame) < 2:
        few = f"the table has too few rows of values ({len(frame)})"
        raise UserError(few, None, "at least two rows are needed")


def _column_as_numbers(column: pd.Series, name: str) -> Values:
    values = np.empty(len(column))
    for place, (row, given) in enumerate(column.items()):
        where = f"row {row}, column {name}"
        if not _cell_as_text(given):
            raise UserError("the cell is empty", where, "give a value, or remove the row")
        try:
            values[place] = float(given)
        except (TypeError, ValueError):
            raise UserError(f"{given!r} is not a number", where) from None
        if not math.isfinite(values[place]):
            raise UserError(f"{given!r} is not a finite number", where)
    return values


def _levels_and_codes(column: pd.Series, name: str) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Return the levels as text in natural order, and for each row the number of its level."""
    texts = [_cell_as_text(given) for given in column]
    if "" in texts:
        where = f"row {column.index[texts.index('')]}, column {name}"
        raise UserError("the cell is empty", where, "every row needs a level")
    levels = sorted(set(texts), key=lambda level: (_level_order(level), level))  # "05" before "5"
    if len(levels) < 2:
        remedy = "omit this column: it never varies, so it explains nothing"
        raise UserError(f"the column has a single level, {levels[0]}", f"column {name}", remedy)
    return tuple(levels), pd.Index(levels).get_indexer(pd.Index(texts))


def _level_order(level: str) -> tuple[int, float, tuple[tuple[int, int, str], ...]]:
    """Return a sort key: numbers first, by value, then texts, with node10 after node9."""
    try:
        number = float(level)
    except ValueError:
        number = math.nan
    return (0, number, ()) if math.isfinite(number) else (1, 0.0, natural_sort_key(level))


def _cell_as_text(cell: object) -> str:
    """Return a cell as text: "" without a value; 8 and 8.0 give the same text."""
    if cell is None or cell is pd.NA or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


@dataclass(frozen=True)
class FittedTerms:
    """The largest model that leaves degrees of freedom for an error, fitted to each response."""

    terms: list[Term]  # all terms of the model, without the grand mean
    squares: list[Values]  # sum of squares of each term, for each response
    freedom: list[int]  # degrees of freedom of each term
    residuals: Values  # shape (rows, responses)
    error_freedom: int  # degrees of freedom of the residuals
    # Interactions that count as error, as (number of their factors, reason). The reason is True if
    # a model with these interactions is too large, and False if such a model leaves no degrees of
    # freedom for an error.
    omitted: Sequence[tuple[int, bool]] = ()
    lost: Sequence[Term] = ()  # terms that the data cannot separate from other terms


def fit_largest_model(design: _AnovaDesign, responses: Values) -> FittedTerms:
    """Fit the factors, their interactions and the block to each column of `responses`."""
    centred = responses - responses.mean(axis=0)  # a large mean would cost digits of precision
    fit_terms = _fit_balanced_data if design.is_balanced else _fit_any_data
    omitted = []
    for order in range(min(len(design.cells), MOST_FACTORS_INTERACTING), 0, -1):
        terms = [term for n in range(1, order + 1) for term in combinations(design.cells, n)]
        terms += [design.block] if design.block else []
        solved = map(design.effect_count, _split_off_largest(design, terms)[1])
        too_large = order > 1 and not design.is_balanced and sum(solved) > _MOST_EFFECTS
        if not too_large:
            found = fit_terms(design, terms, centred)
            if found.error_freedom > 0 or order == 1:
                break
        omitted.append((order, too_large))
    return replace(found, omitted=omitted)


# Terms of balanced data are orthogonal, so the means of each term are subtracted, one term after
# the other. `_fit_any_data` gives the same result, but for the 175 terms of ten factors with two
# levels `_fit_any_data` fits 350 models and takes 9 s instead of 0.1 s.
def _fit_balanced_data(design: _AnovaDesign, terms: list[Term], centred: Values) -> FittedTerms:
    residuals, squares = centred, []
    for term in terms:
        effects = _means_by_code(design.combination_of_each_row(term), residuals)
        residuals = residuals - effects
        squares.append((effects**2).sum(axis=0))
    freedom = [design.effect_count(term) for term in terms]
    rest = len(centred) - 1 - sum(freedom)
    return FittedTerms(terms, squares, freedom, residuals, rest)


# Fits all terms whose effects the data can separate. The sum of squares of a term is the difference
# between the sums of a model with the term and a model without it. If the data cannot separate
# terms, interactions are left out before factors, and later factors before earlier factors.
def _fit_any_data(design: _AnovaDesign, terms: list[Term], centred: Values) -> FittedTerms:
    columns = cache(lambda term: _indicator_columns(_effect_of_each_row(design, term)))

    @cache
    def fit(chosen: frozenset[Term]) -> tuple[Values, int]:
        largest, solved = _split_off_largest(design, sorted(chosen))
        cells = design.combination_of_each_row(largest)
        return _residuals_and_rank(cells, list(map(columns, solved)), centred)

    lost: list[Term] = []
    while True:
        kept = [term for term in terms if term not in lost]
        others = [frozenset(o for o in kept if not set(term) <= set(o)) for term in kept]
        steps = [(fit(own), fit(own | {term})) for own, term in zip(others, kept, strict=True)]
        freedom = [rank - rank_without for (_, rank_without), (_, rank) in steps]
        if all(freedom):
            break
        nothing = [term for term, df in zip(kept, freedom, strict=True) if not df]
        lost.append(max(nothing, key=lambda term: (len(term), term)))
    squares = [((before - after) ** 2).sum(axis=0) for (before, _), (after, _) in steps]
    residuals, rank = fit(frozenset(kept))
    return FittedTerms(kept, squares, freedom, residuals, len(centred) - rank, lost=lost)


def _split_off_largest(design: _AnovaDesign, terms: list[Term]) -> tuple[Term, list[Term]]:
    """Return the term with most combinations, and the terms that are not contained in this term."""
    largest: Term = max(terms, key=design.combination_count, default=())
    return largest, [term for term in terms if not set(term) <= set(largest)]


# `cells` has for each row the number of the combination of the largest term's levels. To fit the
# largest term, the mean of each combination is subtracted. The other effects, whose columns are
# `solved`, are then fitted within the combinations (the theorem of Frisch, Waugh and Lovell). So
# there are few columns to solve for, even with many cells.
def _residuals_and_rank(
    cells: NDArray[np.intp], solved: list[sparse.csc_array], responses: Values
) -> tuple[Values, int]:
    """Return the residuals of a model with a grand mean, and the rank of the model."""
    residuals, count = responses - _means_by_code(cells, responses), int(cells.max()) + 1
    if not solved:
        return residuals, count
    columns = sparse.hstack(solved, format="csc")
    sums = _indicator_columns(cells).T @ columns
    of_cells = (sparse.diags_array(1.0 / np.bincount(cells)) @ sums).tocsc()
    within = (columns.T @ columns - sums.T @ of_cells).toarray()
    tolerance = _EIGENVALUE_ROUNDING_ERROR * float(columns.sum(axis=0).max())
    inverse, rank = linalg.pinvh(within, atol=tolerance, rtol=0.0, return_rank=True)
    for _ in range(2):  # the second pass removes the rounding errors of the first
        solution = inverse @ (columns.T @ residuals)
        residuals = residuals - columns @ solution + (of_cells @ solution)[cells]
    return residuals, count + int(rank)


def _effect_of_each_row(design: _AnovaDesign, term: Term) -> NDArray[np.intp]:
    """Return for each row the number of its effect; -1 if any factor has its first level."""
    codes = design.codes[:, list(term)] - 1
    shape = [len(design.levels[member]) - 1 for member in term]
    effects = np.ravel_multi_index(tuple(np.maximum(codes, 0).T), shape)
    return np.where((codes < 0).any(axis=1), -1, effects)


def _indicator_columns(codes: NDArray[np.intp]) -> sparse.csc_array:
    """Return a column for each code from 0 on: 1 in rows with this code, 0 in all other rows."""
    rows = np.flatnonzero(codes >= 0)
    shape = (len(codes), int(codes.max(initial=0)) + 1)
    return sparse.csc_array((np.ones(len(rows)), (rows, codes[rows])), shape)


def _means_by_code(codes: NDArray[np.intp], values: Values) -> Values:
    """Return for each row the mean of each column of `values` over all rows with its code."""
    sums = np.column_stack([np.bincount(codes, column) for column in values.T])
    found: Values = (sums / np.bincount(codes)[:, None])[codes]
    return found


# Largest number of levels of a factor for which the differences of all pairs of levels are reported
# (66 pairs for twelve levels). With more levels only the pair with the largest difference is
# reported.
MOST_LEVELS_IN_PAIRS = 12
# With more levels no pair is reported: the studentized range takes seconds to compute, and its
# interval is too wide.
_MOST_LEVELS = 128
# Largest number of columns of a model. Inverting the normal equations of a larger model takes
# seconds.
_MOST_COLUMNS = 1000


@dataclass(frozen=True)
class DifferenceWithInterval:
    """A difference with the ends of its interval; None for an unknown end.

    If the analysed values are logarithms, `ratio` is the ratio whose logarithm is `value`. Without
    logarithms all ratios are None.
    """

    value: float
    low: float | None
    high: float | None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval excludes zero; None if there is no interval."""
        return None if self.low is None or self.high is None else not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class LevelEffect:
    """The departure of a level from the grand mean."""

    # factor, level: names of the factor and of the level.
    factor: str
    level: str
    n: int  # number of values at this level
    mean: float  # mean of the values at this level; the geometric mean if logarithms are analysed
    effect: DifferenceWithInterval  # departure from the grand mean if all other factors are equal


@dataclass(frozen=True)
class InteractionEffect:
    """The effect of two levels together beyond the sum of their single effects."""

    term: str  # name of the interaction
    levels: tuple[str, str]  # one level of each of the two factors
    n: int  # number of values with both levels
    effect: DifferenceWithInterval  # in unbalanced data the effect has no interval


@dataclass(frozen=True)
class Contrast:
    """The difference between two levels or between two groups of cells."""

    factor: str  # factor of the two levels, or column by which cells are grouped
    # level, against: names of the two levels or groups; the difference is `level` minus `against`.
    level: str
    against: str
    difference: DifferenceWithInterval  # the difference with its interval
    # "Tukey" if the interval is valid for all pairs at once; None if it is valid for a single pair.
    adjusted: str | None


@dataclass(frozen=True)
class ValuesAndError:
    """Analysed values or logarithms, and the error from which intervals are computed."""

    design: _AnovaDesign
    values: Values
    residuals: Values
    logs: bool  # whether the values are logarithms
    variance: float | None  # mean square of the error; None if no error is left
    freedom: int  # degrees of freedom of the error
    # Confidence of the intervals and tests, 0 to 1. Tests and intervals have the same confidence,
    # so a test is significant if the interval excludes zero.
    confidence: float

    @property
    def significant_below(self) -> float:
        """The p-value below which a term is significant: 0.1 at a confidence of 90 %."""
        return 1.0 - self.confidence

    def estimate(
        self, value: float, weight: float, multiple: float | None = None
    ) -> DifferenceWithInterval:
        """Return an estimate with its interval.

        The variance of the estimate is `weight` times the variance of the error. `multiple` is half
        the width of the interval, in standard errors; by default, the quantile of Student's t.
        """
        value = float(value)
        ends: list[float | None] = [None, None]
        if self.variance is not None:
            own = multiple or float(special.stdtrit(self.freedom, 0.5 + self.confidence / 2.0))
            half = own * math.sqrt(self.variance * max(0.0, weight))
            ends = [value - half, value + half]
        ratios = map(_ratio_of_logarithm, (value, *ends)) if self.logs else ()
        return DifferenceWithInterval(value, *ends, *ratios)


def _ratio_of_logarithm(logarithm: float | None) -> float | None:
    """Return the ratio that has a given logarithm; None if unknown or too large for a float."""
    try:
        return None if logarithm is None else math.exp(logarithm)
    except OverflowError:
        return None


def level_effects_and_contrasts(
    analysed: ValuesAndError, terms: Collection[Term]
) -> tuple[list[LevelEffect], list[Contrast]]:
    """Return the effects and the differences of the levels of the factors in `terms`.

    Effects and differences are those of a model without interactions. The effects of a factor sum
    to zero. The F test of the factor's sum of squares (of type II in unbalanced data) tests whether
    these effects are zero. Both lists are empty if the data cannot separate the levels of the
    factors, or if there are too many levels.
    """
    design = analysed.design
    codes = map(design.combination_of_each_row, terms)
    columns = sparse.hstack([_indicator_columns(own) for own in codes], format="csr")
    counts, rank = columns.sum(axis=0), 1 + sum(map(design.effect_count, terms))
    if design.is_balanced:  # each effect is the departure of a level's mean
        inverse = np.diag(1.0 / counts)
    elif rank > _MOST_COLUMNS:
        return [], []
    else:
        gram = (columns.T @ columns).toarray()
        inverse, found_rank = linalg.pinvh(gram, rtol=_EIGENVALUE_ROUNDING_ERROR, return_rank=True)
        if found_rank < rank:
            return [], []
    solution = inverse @ (columns.T @ (analysed.values - analysed.values.mean()))
    level_means = columns.T @ analysed.values / counts
    level_means = np.exp(level_means) if analysed.logs else level_means
    effects: list[LevelEffect] = []
    contrasts: list[Contrast] = []
    ends = np.cumsum([design.combination_count(term) for term in terms])
    for (member,), end in zip(terms, ends, strict=True):
        if (member,) == design.block:
            continue
        name, levels = design.names[member], design.levels[member]
        own = slice(end - len(levels), end)
        found = solution[own] - solution[own].mean()
        covariance = _without_means_of_rows_and_columns(inverse[own, own])
        numbers = (counts[own], level_means[own], found, np.diag(covariance))
        effects += [
            LevelEffect(name, level, int(n), float(mean), analysed.estimate(effect, variance))
            for level, n, mean, effect, variance in zip(levels, *numbers, strict=True)
        ]
        if len(levels) <= _MOST_LEVELS:
            contrasts += _level_contrasts(analysed, member, found, covariance)
    return effects, contrasts


def _level_contrasts(
    analysed: ValuesAndError, factor: int, effects: Values, covariance: Values
) -> Iterator[Contrast]:
    """Yield the difference of each pair of levels.

    With more than `MOST_LEVELS_IN_PAIRS` levels, only the pair with the largest difference is
    yielded. The confidence of the intervals is valid for all pairs at once (Tukey's method, in
    Kramer's form if the levels have different numbers of values).
    """
    levels = analysed.design.levels[factor]
    size = len(levels)
    pairs = [(int(np.argmin(effects)), int(np.argmax(effects)))]
    if size <= MOST_LEVELS_IN_PAIRS:
        pairs = list(combinations(range(size), 2))
    multiple, adjusted = None, "Tukey" if size > 2 else None
    if adjusted and analysed.variance is not None:
        multiple = _range_quantile(analysed.confidence, size, analysed.freedom) / math.sqrt(2.0)
    for i, j in pairs:
        weight = covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j]
        difference = analysed.estimate(effects[j] - effects[i], weight, multiple)
        yield Contrast(analysed.design.names[factor], levels[j], levels[i], difference, adjusted)


# `scipy.stats.studentized_range` integrates twice and takes 0.4 s for a quantile. Sums over 128
# nodes of a Gauss-Legendre rule in each direction take 30 ms. Their result differs from SciPy's
# quantile by less than 1e-4 of the value.
@lru_cache(maxsize=256)
def _range_quantile(confidence: float, levels: int, freedom: int) -> float:
    """Return the quantile of the studentized range."""
    nodes, weights = np.polynomial.legendre.leggauss(128)
    # Each level has one normal value, and `smallest` is the lowest of these values. All other
    # values lie between `smallest` and `smallest` plus the range.
    smallest, below = 8.0 * nodes, special.ndtr(8.0 * nodes)
    smallest_weights = levels * 8.0 * weights * stats.norm.pdf(smallest)
    # `roots` are square roots of the estimated standard deviation divided by the true one. With the
    # deviation instead of its root, the integral for one degree of freedom would need more nodes.
    low, high = (stats.chi2.ppf([1e-15, 1.0 - 1e-15], freedom) / freedom) ** 0.25
    roots = low + (high - low) * (nodes + 1.0) / 2.0
    density = 4.0 * freedom * roots**3 * stats.chi2.pdf(freedom * roots**4, freedom)
    deviations, deviation_weights = roots**2, (high - low) / 2.0 * weights * density

    def _probability_above_confidence(quantile: float) -> float:
        ranges = special.ndtr(smallest + quantile * deviations[:, None]) - below
        inside = ranges ** (levels - 1) @ smallest_weights
        return float(deviation_weights @ inside) - confidence

    high_quantile = 4.0
    while _probability_above_confidence(high_quantile) < 0.0:
        high_quantile *= 2.0
    return float(optimize.brentq(_probability_above_confidence, 0.0, high_quantile))


def interaction_effects(analysed: ValuesAndError, pair: Term) -> Iterator[InteractionEffect]:
    """Yield the effects of a two-factor interaction; nothing if a pair of levels has no value."""
    design = analysed.design
    first, second = (design.levels[member] for member in pair)
    codes = design.combination_of_each_row(pair)
    counts = np.bincount(codes)
    if len(counts) < design.combination_count(pair):
        return
    cells = (np.bincount(codes, analysed.values) / counts).reshape(len(first), len(second))
    effects = _without_means_of_rows_and_columns(cells).ravel()
    known = analysed if design.is_balanced else replace(analysed, variance=None)
    share = (1.0 - 1.0 / len(first)) * (1.0 - 1.0 / len(second))
    for levels, n, effect in zip(product(first, second), counts, effects, strict=True):
        estimate = known.estimate(effect, share / n)
        yield InteractionEffect(design.term_name(pair), levels, int(n), estimate)


def _without_means_of_rows_and_columns(matrix: Values) -> Values:
    """Return a matrix minus the means of its rows and columns plus its mean."""
    centred: Values = matrix - matrix.mean(axis=0) - matrix.mean(axis=1)[:, None] + matrix.mean()
    return centred


def compare_groups_of_cells(
    analysed: ValuesAndError, groups: Sequence[str], chosen: tuple[str, str], name: str
) -> Contrast | None:
    """Compare the mean over the cells of one group with the mean over the cells of another group.

    Cells have equal weights, also if they have different numbers of replicates. Differences between
    blocks are removed. The noise of a group is computed from the cells of this group alone, as in
    Welch's test. Remote memory can scatter far less than local memory, and then the noise of all
    cells together is wrong for both groups. With the noise of all cells, a 95 % interval contained
    the truth in 82 to 99 % of simulations (bench/interval_coverage.py).

    `groups` has the group of each row's cell, `chosen` has the names of the two groups, and `name`
    is the name of the contrast. The interval is valid for this single comparison.

    Returns:
        The contrast; None when one of the groups has no cell.
    """
    design = analysed.design
    cells = design.combination_of_each_row(design.cells)
    counts = np.bincount(cells)[cells].astype(float)  # replicates of each row's cell
    weights = np.zeros(len(cells))  # weight of each row in the contrast, which is a sum over rows
    parts = []  # variance and degrees of freedom of each summand of the contrast
    for group, sign in zip(chosen, (1.0, -1.0), strict=True):
        inside = np.asarray(groups, dtype=object) == group
        if not inside.any():
            return None
        shares = inside / counts / (1.0 / counts[inside]).sum()
        weights += sign * shares
        noise, freedom = _noise_variance_of_rows(analysed, inside, counts)
        parts.append((float((shares**2).sum()) * noise, freedom))
    if design.block:
        blocks = _indicator_columns(design.combination_of_each_row(design.block)).toarray()
        within = blocks - _means_by_code(cells, blocks)
        uneven = weights @ blocks  # differences of the groups' blocks; zero in balanced data
        shift = linalg.pinvh(within.T @ within, rtol=_EIGENVALUE_ROUNDING_ERROR) @ uneven
        weights -= within @ shift
        parts.append((float(uneven @ shift) * (analysed.variance or 0.0), analysed.freedom))
    value, weight, multiple = float(weights @ analysed.values), 0.0, None
    if analysed.variance is not None:
        variance = sum(own for own, _ in parts)
        # The formula of Welch and Satterthwaite gives the degrees of freedom.
        freedom = variance**2 / sum(own**2 / df for own, df in parts)
        multiple = float(special.stdtrit(freedom, 0.5 + analysed.confidence / 2.0))
        weight = variance / analysed.variance
    return Contrast(name, *chosen, analysed.estimate(value, weight, multiple), None)


# A cell with a single replicate does not count for the noise. If no cell has several replicates,
# the residuals come from an interaction, and all residuals count equally. If the rows have less
# than one degree of freedom, the result is the noise of all rows.
def _noise_variance_of_rows(
    analysed: ValuesAndError, rows: NDArray[np.bool_], counts: Values
) -> tuple[float, float]:
    """Return the variance of the noise of the chosen rows, and its degrees of freedom."""
    tells = 1.0 - 1.0 / counts
    if not tells.any():
        tells = np.ones_like(counts)
    freedom = analysed.freedom * float(tells[rows].sum() / tells.sum())
    squares = float((analysed.residuals[rows] ** 2).sum())
    if freedom < 1.0 or squares <= 0.0:
        return analysed.variance or 0.0, float(analysed.freedom)
    return squares / freedom, freedom
