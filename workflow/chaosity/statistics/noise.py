"""Whether cells differ at all, or whether what they show is the noise of their replicates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from chaosity.statistics.summary import CELL, plain
from chaosity.store.tidy_table import valid

LEVEL = 0.05


def cells_differ(tidy: pd.DataFrame, by: Sequence[str] = CELL, level: float = LEVEL) -> bool | None:
    """One-way analysis of variance of the logarithms of positive values over cells.

    The best and the worst of many cells are far apart even when all cells are equal, so their
    intervals do not answer this question; the variance between cells against that within does.

    Args:
        tidy: rows of the tidy table.
        by: columns that make a cell.
        level: chance to see a difference where there is none.

    Returns:
        None when it cannot be said: a single cell, or no cell with two replicates.
    """
    rows = valid(plain(tidy))
    if rows.empty:
        return None
    codes = rows.groupby(list(by), dropna=False, sort=False).ngroup().to_numpy()
    logs = np.log(rows["value"].to_numpy(dtype=float))
    n = np.bincount(codes)
    cells, freedom = len(n), len(logs) - len(n)
    if cells < 2 or freedom < 1:
        return None
    means = np.bincount(codes, logs) / n
    within = float(np.sum((logs - means[codes]) ** 2)) / freedom
    between = float(np.sum(n * (means - logs.mean()) ** 2)) / (cells - 1)
    if within == 0.0:
        return between > 0.0
    return bool(stats.f.sf(between / within, cells - 1, freedom) < level)
