"""Read the design of an analysis of variance: a response, crossed factors, and maybe blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.errors import UserError
from chaosity.place_names import natural_sort_key

Values = NDArray[np.float64]
# Numbers of the columns that make a term; () is the grand mean.
Term = tuple[int, ...]


@dataclass(frozen=True)
class AnovaDesign:
    """The levels of the factors in each row."""

    names: tuple[str, ...]  # names of the factors, then of the block if there is one
    # Levels of each name, in natural order (node9 before node10).
    levels: tuple[tuple[str, ...], ...]
    codes: NDArray[np.intp]  # number of the level, shape (rows, names)
    cells: Term  # the term of all factors, whose combinations of levels are the cells
    block: Term  # the block; () without a block

    @property
    def value_count(self) -> int:
        """The number of values."""
        return len(self.codes)

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
        found = np.zeros(self.value_count, dtype=np.intp)
        for member in term:
            found = found * len(self.levels[member]) + self.codes[:, member]
            found = np.unique(found, return_inverse=True)[1]
        return found

    @cached_property
    def is_balanced(self) -> bool:
        """Whether every combination of all names was measured equally often."""
        everything = (*self.cells, *self.block)
        counts = np.bincount(self.combination_of_each_row(everything))
        return len(counts) == self.combination_count(everything) and bool(
            (counts == counts[0]).all()
        )


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
        raise UserError(
            f"the response is {values[0]:g} in every row",
            f"column {response}",
            "there is no variation to explain",
        )
    design = AnovaDesign(
        names=names,
        levels=levels,
        codes=np.column_stack(codes),
        cells=tuple(range(len(factors))),
        block=tuple(range(len(factors), len(names))),
    )
    return design, values


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
        raise UserError(
            f"has a single level, {levels[0]}",
            f"column {name}",
            "omit it: a column that never varies explains nothing",
        )
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


def _text(cell: object) -> str:
    """Return a cell as text, empty without a value; 8 and 8.0 are equal."""
    if cell is None or cell is pd.NA or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()
