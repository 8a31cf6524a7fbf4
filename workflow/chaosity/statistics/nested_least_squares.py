"""Fit nested linear models of factors, interactions and blocks by least squares.

The sum of squares of a term is of type II: what the model gains when the term joins all terms that
do not contain it. Of the usual types only this one is independent of the coding of levels, defined
with empty cells, and the most powerful where there is no interaction (Langsrud, "ANOVA for
unbalanced data: Use Type II instead of Type III sums of squares", Statistics and Computing 13,
2003). In balanced data it is the sum of squares of the term's effects (Jain, "The Art of Computer
Systems Performance Analysis", 1991, chapters 20 to 23).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from chaosity.statistics.anova_design import AnovaDesign, Term, Values

# An interaction of four factors has hundreds of effects, which nobody can interpret.
MOST_FACTORS_INTERACTING = 3
# Effects that a model of unbalanced data has to solve; more take seconds.
_MOST_EFFECTS = 300
# Eigenvalues of indicator columns are counts or exactly 0, so a small share of a count is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class FittedTerms:
    """The largest model that leaves an error, fitted to each response."""

    terms: tuple[Term, ...]  # all terms of the model, without the grand mean
    squares: tuple[Values, ...]  # sum of squares of each term, for each response
    freedom: tuple[int, ...]  # degrees of freedom of each term
    residuals: Values  # shape (rows, responses)
    error_freedom: int  # degrees of freedom of the residuals
    # Interactions that count as error: their number of factors, and whether the model is too large;
    # else it leaves no error.
    omitted: tuple[tuple[int, bool], ...]
    lost: tuple[Term, ...]  # terms that the data cannot separate from the others


def fit_largest_model(design: AnovaDesign, responses: Values) -> FittedTerms:
    """Fit factors, interactions and the block to each column of `responses`.

    Of two terms that cannot be separated, the last is left out, and interactions before factors.
    """
    centred = responses - responses.mean(axis=0)  # a large common part would cost digits

    @cache
    def fit(terms: frozenset[Term]) -> tuple[Values, int]:
        return _residuals_and_rank(design, sorted(terms), centred)

    omitted = []
    for order in range(min(len(design.cells), MOST_FACTORS_INTERACTING), 0, -1):
        terms = [term for n in range(1, order + 1) for term in combinations(design.cells, n)]
        terms += [design.block] if design.block else []
        effects = sum(design.effect_count(term) for term in _solved_terms(design, terms))
        too_large = not design.is_balanced and effects > _MOST_EFFECTS
        if order == 1 or (not too_large and fit(frozenset(terms))[1] < design.value_count):
            break
        omitted.append((order, too_large))
    lost: list[Term] = []
    while True:
        others = [frozenset(o for o in terms if not set(term) <= set(o)) for term in terms]
        steps = [(fit(own), fit(own | {term})) for own, term in zip(others, terms, strict=True)]
        freedom = [rank - rank_without for (_, rank_without), (_, rank) in steps]
        if all(freedom):
            break
        nothing = [term for term, df in zip(terms, freedom, strict=True) if not df]
        lost.append(max(nothing, key=lambda term: (len(term), term)))
        terms.remove(lost[-1])
    residuals, rank = fit(frozenset(terms))
    return FittedTerms(
        terms=tuple(terms),
        squares=tuple(((before - after) ** 2).sum(axis=0) for (before, _), (after, _) in steps),
        freedom=tuple(freedom),
        residuals=residuals,
        error_freedom=design.value_count - rank,
        omitted=tuple(omitted),
        lost=tuple(lost),
    )


def _solved_terms(design: AnovaDesign, terms: Collection[Term]) -> list[Term]:
    """Return the terms that the term with most combinations does not contain."""
    largest: Term = max(terms, key=design.combination_count, default=())
    return [term for term in terms if not set(term) <= set(largest)]


def _residuals_and_rank(
    design: AnovaDesign, terms: Collection[Term], responses: Values
) -> tuple[Values, int]:
    """Return the residuals of a model with a grand mean, and its number of independent columns.

    Balanced data need no equations, which take 20 times as long (4 s in place of 0.2 s for 64 x 64
    nodes with four kernels): their terms are orthogonal, so the means of one term after the other
    are subtracted.

    Otherwise, the term with most combinations takes their means, and the effects of the terms that
    it does not contain are solved within these combinations (the theorem of Frisch, Waugh and
    Lovell).
    """
    if design.is_balanced:
        residuals = responses
        for term in terms:
            residuals = residuals - means(design.combination_of_each_row(term), residuals)
        return residuals, 1 + sum(map(design.effect_count, terms))
    cells = design.combination_of_each_row(max(terms, key=design.combination_count, default=()))
    residuals = responses - means(cells, responses)
    solved = [indicators(_effect_of_each_row(design, t)) for t in _solved_terms(design, terms)]
    if not solved:
        return residuals, int(cells.max()) + 1
    columns = sparse.hstack(solved, format="csr")
    sums = indicators(cells).T @ columns
    of_cells = sparse.diags_array(1.0 / np.bincount(cells)) @ sums
    inverse, rank = linalg.pinvh(
        (columns.T @ columns - sums.T @ of_cells).toarray(),
        atol=_ROUNDING * columns.sum(axis=0).max(),
        rtol=0.0,
        return_rank=True,
    )
    for _ in range(2):  # the second time removes the rounding of the first
        solution = inverse @ (columns.T @ residuals)
        residuals = residuals - columns @ solution + (of_cells @ solution)[cells]
    return residuals, int(cells.max()) + 1 + int(rank)


def _effect_of_each_row(design: AnovaDesign, term: Term) -> NDArray[np.intp]:
    """Return, for each row, the number of its effect; -1 for the first level of any factor."""
    codes = design.codes[:, list(term)] - 1
    shape = [len(design.levels[member]) - 1 for member in term]
    effects = np.ravel_multi_index(tuple(np.maximum(codes, 0).T), shape)
    return np.where((codes < 0).any(axis=1), -1, effects)


def indicators(codes: NDArray[np.intp]) -> sparse.csr_array:
    """Return a column for each code: 1 in its rows, else 0; rows with the code -1 have only 0."""
    rows = np.flatnonzero(codes >= 0)
    shape = (len(codes), int(codes.max(initial=0)) + 1)
    return sparse.csr_array((np.ones(len(rows)), (rows, codes[rows])), shape)


def means(codes: NDArray[np.intp], values: Values) -> Values:
    """Return, for each row, the mean of the values (rows, columns) over all rows with its code."""
    sums = np.column_stack([np.bincount(codes, column) for column in values.T])
    found: Values = (sums / np.bincount(codes)[:, None])[codes]
    return found
