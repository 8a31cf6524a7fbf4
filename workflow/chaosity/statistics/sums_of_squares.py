"""Fit a linear model with factors, interactions and blocks; compute its sums of squares.

Balanced data need only means: their terms are orthogonal, and each sum of squares is that of the
term's effects (Jain, "The Art of Computer Systems Performance Analysis", 1991, chapters 20 to 23).
Means are also fast enough for an interaction with thousands of effects.

In unbalanced data, a term's sum of squares is of type II: the increase of the residual sum when the
term is removed from the model of all terms that do not contain it. Of the usual types only this one
is independent of the coding of levels, defined with empty cells, and the most powerful where there
is no interaction (Langsrud, "ANOVA for unbalanced data: Use Type II instead of Type III sums of
squares", Statistics and Computing 13, 2003).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations

import numpy as np
from scipy import linalg

from chaosity.statistics.anova_design import AnovaDesign, Members, Values

# Columns of a model that is solved by least squares; a model with more takes seconds.
MOST_COLUMNS = 300
# Indicator columns are independent or exactly dependent, so anything between is rounding.
_DEPENDENT = 1e-9


# Squares and degrees of freedom of each term, fitted values, degrees of freedom of the error.
_Fit = tuple[list[Values], list[int], Values, int]


@dataclass(frozen=True)
class FittedModel:
    """A fitted model."""

    terms: tuple[Members, ...]  # all terms of the model, without the grand mean
    squares: tuple[Values, ...]  # sum of squares of each term, for each response
    freedom: tuple[int, ...]  # degrees of freedom of each term
    fitted: Values  # fitted values, shape (rows, responses)
    error: Values  # residual sum of squares of each response
    error_degrees_of_freedom: int  # degrees of freedom of the residuals


def fit_model(design: AnovaDesign, terms: Sequence[Members], responses: Values) -> FittedModel:
    """Fit a model with these terms to each column of `responses`, of shape (rows, responses).

    The terms that are contained in a term are in the model too. The block is a term.
    """
    means = responses.mean(axis=0)
    centred = responses - means  # a large common part would cost digits
    fit = _fit_by_means if design.is_balanced else _fit_by_least_squares
    squares, freedom, fitted, error_degrees_of_freedom = fit(design, terms, centred)
    return FittedModel(
        terms=tuple(terms),
        squares=tuple(squares),
        freedom=tuple(freedom),
        fitted=fitted + means,
        error=((centred - fitted) ** 2).sum(axis=0),
        error_degrees_of_freedom=error_degrees_of_freedom,
    )


def error_degrees_of_freedom(design: AnovaDesign, terms: Sequence[Members]) -> int:
    """Return the degrees of freedom that a model leaves to the error."""
    if design.is_balanced:
        return design.value_count - 1 - sum(_freedom(design, term) for term in terms)
    return design.value_count - _predict(design, terms, np.zeros((design.value_count, 1)))[1]


def _freedom(design: AnovaDesign, term: Members) -> int:
    """Return the degrees of freedom of a term that has an effect for each combination of levels."""
    return math.prod(design.level_counts[member] - 1 for member in term)


def _fit_by_means(design: AnovaDesign, terms: Sequence[Members], centred: Values) -> _Fit:
    fitted = np.zeros_like(centred)
    effects: dict[Members, Values] = {(): np.zeros_like(centred)}
    for term in terms:
        inside = chain.from_iterable(combinations(term, size) for size in range(len(term)))
        effects[term] = _means(design, term, centred) - sum(effects[part] for part in inside)
        fitted += effects[term]
    squares = [(effects[term] ** 2).sum(axis=0) for term in terms]
    freedom = [_freedom(design, term) for term in terms]
    return squares, freedom, fitted, design.value_count - 1 - sum(freedom)


def _means(design: AnovaDesign, members: Members, responses: Values) -> Values:
    """Return, for each row and response, the mean over all rows with the same levels."""
    codes, number = design.combination_of_each_row(members)
    counts = np.bincount(codes, minlength=number)
    sums = [np.bincount(codes, column, number) for column in responses.T]
    with np.errstate(invalid="ignore"):
        return (np.column_stack(sums) / counts[:, None])[codes]


def _fit_by_least_squares(design: AnovaDesign, terms: Sequence[Members], centred: Values) -> _Fit:
    @cache
    def residual(members: frozenset[Members]) -> tuple[Values, int]:
        predicted, rank = _predict(design, [term for term in terms if term in members], centred)
        return ((centred - predicted) ** 2).sum(axis=0), rank

    squares, freedom = [], []
    for term in terms:
        others = frozenset(other for other in terms if not set(term) <= set(other))
        without, rank_without = residual(others)
        with_term, rank = residual(others | {term})
        squares.append(np.maximum(0.0, without - with_term))
        freedom.append(rank - rank_without)
    fitted, rank = _predict(design, terms, centred)
    return squares, freedom, fitted, design.value_count - rank


def _predict(
    design: AnovaDesign, terms: Sequence[Members], responses: Values
) -> tuple[Values, int]:
    """Return the fitted values of a model with a grand mean, and its number of independent columns.

    A model with the term of all factors has a mean for each cell. Then only the block has to be
    fitted, within cells (the theorem of Frisch, Waugh and Lovell).
    """
    if design.all_factors_term not in terms:
        columns = indicator_columns(design, terms)
        solution, rank = _solve(columns, responses)
        return columns @ solution, rank
    cells = _means(design, design.all_factors_term, responses)
    rank = int(np.count_nonzero(design.rows_per_combination(design.all_factors_term)))
    if not design.block_term or design.block_term not in terms:
        return cells, rank
    columns = indicator_columns(design, [design.block_term])[:, 1:]
    within = columns - _means(design, design.all_factors_term, columns)
    solution, more = _solve(within, responses - cells)
    return cells + within @ solution, rank + more


def _solve(columns: Values, responses: Values) -> tuple[Values, int]:
    solution, _, rank, _ = linalg.lstsq(
        columns, responses, cond=_DEPENDENT, lapack_driver="gelsy", check_finite=False
    )
    return solution, int(rank)


def count_model_columns(design: AnovaDesign, terms: Sequence[Members]) -> int:
    """Return the number of columns of the largest least-squares model for these terms."""
    return 1 + sum(
        _freedom(design, term)
        for term in terms
        if term != design.all_factors_term or len(term) == 1
    )


def indicator_columns(design: AnovaDesign, terms: Sequence[Members]) -> Values:
    """Return a column of ones and the indicator columns of the terms, without each first level.

    The shape is (rows, columns); in the columns of a term the last factor varies fastest.
    """
    blocks = [np.ones((design.value_count, 1))]
    for term in terms:
        block = np.ones((design.value_count, 1))
        for member in term:
            levels = np.arange(1, design.level_counts[member])
            indicators = (design.codes[:, [member]] == levels).astype(float)
            block = block[:, :, None] * indicators[:, None, :]
            block = block.reshape(design.value_count, -1)
        blocks.append(block)
    return np.hstack(blocks)
