"""Read a design (a response, crossed factors, maybe blocks), and fit nested linear models to it.

The sum of squares of a term is of type II: what the model gains when the term joins all terms that
do not contain it. Of the usual types only this one is independent of the coding of levels, defined
with empty cells, and the most powerful where there is no interaction (Langsrud, "ANOVA for
unbalanced data: Use Type II instead of Type III sums of squares", Statistics and Computing 13,
2003). In balanced data, the type II sum of squares is that of the term's effects (Jain, "The Art of
Computer Systems Performance Analysis", 1991, chapters 20 to 23).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, sparse

from chaosity.errors import UserError
from chaosity.place_names import natural_sort_key

Values = NDArray[np.float64]
# Numbers of the columns that make a term; () is the grand mean.
Term = tuple[int, ...]
# An interaction of four factors has hundreds of effects, which nobody can interpret.
MOST_FACTORS_INTERACTING = 3
# Most effects that are solved in a model of unbalanced data; more would take seconds.
_MOST_EFFECTS = 300
# Indicator columns are independent or exactly dependent, so an eigenvalue below this share of a
# count is a rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class AnovaDesign:
    """The factors and the block of a table, and their levels in each row."""

    names: tuple[str, ...]  # names of the factors, then of the block if there is one
    # Levels of each name, in natural order (node9 before node10).
    levels: tuple[tuple[str, ...], ...]
    codes: NDArray[np.intp]  # number of each row's level, shape (rows, names)
    cells: Term  # the term of all factors, whose combinations of levels are the cells
    block: Term  # the block; () without a block

    def term_name(self, term: Term) -> str:
        """Return the name of a term: "node x kernel"."""
        return " x ".join(self.names[member] for member in term)

    def combination_count(self, term: Term) -> int:
        """Return the number of combinations of a term's levels, with and without values."""
        return math.prod(len(self.levels[member]) for member in term)

    def effect_count(self, term: Term) -> int:
        """Return the number of independent effects of a term if each combination has a value."""
        return math.prod(len(self.levels[member]) - 1 for member in term)

    def combination_of_each_row(self, term: Term) -> NDArray[np.intp]:
        """Return, for each row, the number of its combination of a term's levels.

        Only combinations that have a value are numbered, in the order of their levels; the last
        factor varies fastest.
        """
        found = np.zeros(len(self.codes), dtype=np.intp)
        for member in term:
            found = found * len(self.levels[member]) + self.codes[:, member]
            found = np.unique(found, return_inverse=True)[1]
        return found

    @cached_property
    def is_balanced(self) -> bool:
        """Whether every combination of all names was measured equally often."""
        everything = (*self.cells, *self.block)
        counts = np.bincount(self.combination_of_each_row(everything))
        return len(counts) == self.combination_count(everything) and not np.ptp(counts)


def read_anova_design_and_values(
    frame: pd.DataFrame, response: str, factors: Sequence[str], block: str | None = None
) -> tuple[AnovaDesign, Values]:
    """Check a table and return its design and values; for arguments see `anova.analyse_variance`.

    Raises:
        UserError: a column is missing or named twice, a cell is empty or not a number, a factor
            has a single level, or the response never varies.
    """
    names = (*factors, *([block] if block is not None else []))
    _check_columns(frame, (response, *names), factors)
    values = _numbers(frame[response], response)
    levels, codes = zip(*(_levels(frame[name], name) for name in names), strict=True)
    if np.ptp(values) == 0.0:
        what = f"the response is {values[0]:g} in every row"
        raise UserError(what, f"column {response}", "there is no variation to explain")
    places = range(len(names))
    cells, blocks = tuple(places[: len(factors)]), tuple(places[len(factors) :])
    return AnovaDesign(names, levels, np.column_stack(codes), cells, blocks), values


def _check_columns(frame: pd.DataFrame, wanted: Sequence[str], factors: Sequence[str]) -> None:
    if not factors:
        raise UserError("there is no factor", None, "give the columns that were varied")
    columns = list(map(str, frame.columns))
    for name in wanted:
        if name not in columns:
            listed = ", ".join(columns) or "none"
            raise UserError("is not a column of the table", name, f"columns: {listed}")
        if columns.count(name) > 1:
            raise UserError("two columns have this name", name, "rename one of them")
        if wanted.count(name) > 1:
            remedy = "response, factors and block are different columns"
            raise UserError("the same column is used twice", name, remedy)
    if len(frame) < 2:
        few = f"the table has too few rows of values ({len(frame)})"
        raise UserError(few, None, "at least two are needed")


def _numbers(column: pd.Series, name: str) -> Values:
    values = np.empty(len(column))
    for place, (row, given) in enumerate(column.items()):
        where = f"row {row}, column {name}"
        if not _text(given):
            raise UserError("is empty", where, "give a value, or remove the row")
        try:
            values[place] = float(given)
        except (TypeError, ValueError):
            raise UserError(f"{given!r} is not a number", where) from None
        if not math.isfinite(values[place]):
            raise UserError(f"{given!r} is not a finite number", where)
    return values


def _levels(column: pd.Series, name: str) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Return the levels as text in natural order, and for each row the number of its level."""
    texts = [_text(given) for given in column]
    if "" in texts:
        where = f"row {column.index[texts.index('')]}, column {name}"
        raise UserError("is empty", where, "every row needs a level")
    levels = sorted(set(texts), key=lambda level: (_level_order(level), level))  # 05 before 5
    if len(levels) < 2:
        remedy = "omit it: a column that never varies explains nothing"
        raise UserError(f"has a single level, {levels[0]}", f"column {name}", remedy)
    return tuple(levels), pd.Index(levels).get_indexer(pd.Index(texts))


def _level_order(level: str) -> tuple[int, float, tuple[tuple[int, int, str], ...]]:
    """Return a sort key: numbers first, by value; then texts, with node10 after node9."""
    try:
        number = float(level)
    except ValueError:
        number = math.nan
    return (0, number, ()) if math.isfinite(number) else (1, 0.0, natural_sort_key(level))


def _text(cell: object) -> str:
    """Return a cell as text, empty without a value; 8 and 8.0 are equal."""
    if cell is None or cell is pd.NA or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


@dataclass(frozen=True)
class FittedTerms:
    """The largest model that leaves an error, fitted to each response."""

    terms: list[Term]  # all terms of the model, without the grand mean
    squares: list[Values]  # sum of squares of each term, for each response
    freedom: list[int]  # degrees of freedom of each term
    residuals: Values  # shape (rows, responses)
    error_freedom: int  # degrees of freedom of the residuals
    # Interactions that count as error: their number of factors, and True if a model with them is
    # too large; False if it leaves no error.
    omitted: Sequence[tuple[int, bool]] = ()
    lost: Sequence[Term] = ()  # terms that the data cannot separate from other terms


def fit_largest_model(design: AnovaDesign, responses: Values) -> FittedTerms:
    """Fit factors, interactions and the block to each column of `responses`."""
    centred = responses - responses.mean(axis=0)  # a large common part would cost digits
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


# Fits orthogonal terms: the means of each term are subtracted, one term after the other.
# `_fit_any_data` gives the same result but takes longer: 9 s instead of 0.1 s for ten factors with
# two levels, because it fits 350 models for their 175 terms.
def _fit_balanced_data(design: AnovaDesign, terms: list[Term], centred: Values) -> FittedTerms:
    residuals, squares = centred, []
    for term in terms:
        effects = means_by_code(design.combination_of_each_row(term), residuals)
        residuals = residuals - effects
        squares.append((effects**2).sum(axis=0))
    freedom = [design.effect_count(term) for term in terms]
    rest = len(centred) - 1 - sum(freedom)
    return FittedTerms(terms, squares, freedom, residuals, rest)


# Fits all terms whose effects the data can tell apart; the sum of squares of each term is the
# difference of two models. Of terms that cannot be told apart, interactions are left out first, and
# of two factors the last one.
def _fit_any_data(design: AnovaDesign, terms: list[Term], centred: Values) -> FittedTerms:
    columns = cache(lambda term: indicator_columns(_effect_of_each_row(design, term)))

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


def _split_off_largest(design: AnovaDesign, terms: list[Term]) -> tuple[Term, list[Term]]:
    """Return the term with most combinations, and the terms that it does not contain."""
    largest: Term = max(terms, key=design.combination_count, default=())
    return largest, [term for term in terms if not set(term) <= set(largest)]


# `cells` has, for each row, its combination of the levels of the largest term. The means of these
# combinations are subtracted. Only the columns of the other effects, `solved`, are solved for,
# within these combinations (the theorem of Frisch, Waugh and Lovell). So few columns are left,
# whatever the number of cells.
def _residuals_and_rank(
    cells: NDArray[np.intp], solved: list[sparse.csc_array], responses: Values
) -> tuple[Values, int]:
    """Return the residuals of a model with a grand mean, and its number of independent columns."""
    residuals, count = responses - means_by_code(cells, responses), int(cells.max()) + 1
    if not solved:
        return residuals, count
    columns = sparse.hstack(solved, format="csc")
    sums = indicator_columns(cells).T @ columns
    of_cells = (sparse.diags_array(1.0 / np.bincount(cells)) @ sums).tocsc()
    within = (columns.T @ columns - sums.T @ of_cells).toarray()
    tolerance = _ROUNDING * float(columns.sum(axis=0).max())
    inverse, rank = linalg.pinvh(within, atol=tolerance, rtol=0.0, return_rank=True)
    for _ in range(2):  # the second time removes the rounding of the first
        solution = inverse @ (columns.T @ residuals)
        residuals = residuals - columns @ solution + (of_cells @ solution)[cells]
    return residuals, count + int(rank)


def _effect_of_each_row(design: AnovaDesign, term: Term) -> NDArray[np.intp]:
    """Return, for each row, the number of its effect; -1 for the first level of any factor."""
    codes = design.codes[:, list(term)] - 1
    shape = [len(design.levels[member]) - 1 for member in term]
    effects = np.ravel_multi_index(tuple(np.maximum(codes, 0).T), shape)
    return np.where((codes < 0).any(axis=1), -1, effects)


def indicator_columns(codes: NDArray[np.intp]) -> sparse.csc_array:
    """Return a column for each code: 1 in its rows, else 0; rows with the code -1 have only 0."""
    rows = np.flatnonzero(codes >= 0)
    shape = (len(codes), int(codes.max(initial=0)) + 1)
    return sparse.csc_array((np.ones(len(rows)), (rows, codes[rows])), shape)


def means_by_code(codes: NDArray[np.intp], values: Values) -> Values:
    """Return, for each row, the mean of the values (rows, columns) over all rows with its code."""
    sums = np.column_stack([np.bincount(codes, column) for column in values.T])
    found: Values = (sums / np.bincount(codes)[:, None])[codes]
    return found
