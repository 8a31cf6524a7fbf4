"""Read the design of an analysis of variance: a response, crossed factors, and maybe blocks.

`read_anova_design_and_values` checks the table and names row and column of every error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.errors import UserError
from chaosity.place_names import natural_sort_key

Values = NDArray[np.float64]
# Numbers of the columns that make a term; () is the grand mean.
Members = tuple[int, ...]


@dataclass(frozen=True)
class AnovaDesign:
    """The levels of the factors in each row."""

    names: tuple[str, ...]  # names of the factors, then of the block if there is one
    # Levels of each name, in natural order (node9 before node10).
    levels: tuple[tuple[str, ...], ...]
    codes: NDArray[np.intp]  # number of the level, shape (rows, names)
    factor_count: int  # number of names that are factors; one more name is the block

    @property
    def value_count(self) -> int:
        """The number of values."""
        return len(self.codes)

    @property
    def level_counts(self) -> tuple[int, ...]:
        """Number of levels of each name."""
        return tuple(map(len, self.levels))

    @property
    def block_term(self) -> Members:
        """The block as a term; () without a block."""
        return tuple(range(self.factor_count, len(self.names)))

    @property
    def all_factors_term(self) -> Members:
        """The term of all factors, whose levels are the cells."""
        return tuple(range(self.factor_count))

    def terms_up_to_order(self, order: int) -> list[Members]:
        """Return factors, interactions of at most `order` factors, and the block."""
        found = [
            m for size in range(1, order + 1) for m in combinations(self.all_factors_term, size)
        ]
        return found + ([self.block_term] if self.block_term else [])

    def term_name(self, members: Members) -> str:
        """Return the name of a term: "node x kernel"."""
        return " x ".join(self.names[member] for member in members)

    def combination_of_each_row(self, members: Members) -> tuple[NDArray[np.intp], int]:
        """Return, for each row, the number of its combination of levels; and how many there are."""
        shape = [self.level_counts[member] for member in members]
        return np.ravel_multi_index(tuple(self.codes[:, list(members)].T), shape), math.prod(shape)

    def rows_per_combination(self, members: Members) -> NDArray[np.intp]:
        """Return the number of rows of each combination of levels."""
        codes, number = self.combination_of_each_row(members)
        return np.bincount(codes, minlength=number)

    @property
    def is_balanced(self) -> bool:
        """Whether every combination of all names was measured equally often."""
        if math.prod(self.level_counts) > self.value_count:
            return False
        counts = self.rows_per_combination((*self.all_factors_term, *self.block_term))
        return bool(counts.min() == counts.max())


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
    for name, found in zip(names, levels, strict=True):
        if len(found) < 2:
            raise UserError(
                f"has a single level, {found[0]}",
                f"column {name}",
                "omit it: a column that never varies explains nothing",
            )
    if np.ptp(values) == 0.0:
        raise UserError(
            f"the response is {values[0]:g} in every row",
            f"column {response}",
            "there is no variation to explain",
        )
    return AnovaDesign(names, levels, np.column_stack(codes), len(factors)), values


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
        if _is_empty(given):
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
    for row, given in column.items():
        if _is_empty(given):
            raise UserError("is empty", f"row {row}, column {name}", "every row needs a level")
    texts = [_text(given) for given in column]
    levels = sorted(set(texts), key=lambda level: (_level_order(level), level))  # 05 before 5
    numbers = {level: number for number, level in enumerate(levels)}
    return tuple(levels), np.array([numbers[text] for text in texts], dtype=np.intp)


def _level_order(level: str) -> tuple[int, float, tuple[tuple[int, int, str], ...]]:
    """Return a sort key: numbers first, by value; then texts, with node10 after node9."""
    try:
        number = float(level)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return 0, number, ()
    return 1, 0.0, natural_sort_key(level)


def _text(level: object) -> str:
    """Return a level as text; 8 and 8.0 are equal."""
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level).strip()


def _is_empty(cell: object) -> bool:
    """Return whether a cell of a table is empty."""
    return cell is None or cell is pd.NA or cell != cell or str(cell).strip() == ""
