"""Comparisons are ratios within replicate blocks.

Replicate k of everything is measured before replicate k + 1 of anything, so two measurements of
one block saw the machine in the same hours. Their ratio cancels what drifts between blocks; the
spread of the ratios over the blocks gives the interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from chaosity.statistics.summary import CELL, Estimate, estimate, plain, summarise
from chaosity.store.tidy_table import valid

BLOCK = ("host", "configuration", "replicate")


def paired_ratios(
    numerator: pd.DataFrame, denominator: pd.DataFrame, on: Sequence[str]
) -> pd.DataFrame:
    """Ratio of each cell of one selection to its partner in another, paired by replicate block.

    Args:
        numerator: rows of the tidy table; its columns describe the result.
        denominator: rows of the tidy table; of several partners the geometric mean counts.
        on: columns that make two cells partners; `replicate` is added.

    Returns:
        As `summarise`, of the ratios (no unit); cells without any complete pair are left out.
    """
    keys = [*on, "replicate"]
    partners = valid(plain(denominator))[[*keys, "value"]]
    partners = partners.assign(_log=np.log(partners.pop("value").to_numpy(dtype=float)))
    partners = partners.groupby(keys, dropna=False, as_index=False)["_log"].mean()
    above = valid(plain(numerator))
    # A key without any value (no load has a kernel) has lost its type in the grouping.
    partners = partners.astype({key: above.dtypes[key] for key in keys})
    pairs = above.merge(partners, on=keys, how="inner")
    pairs["value"] = pairs["value"] / np.exp(pairs.pop("_log").to_numpy(dtype=float))
    return summarise(pairs)


def block_ratio(numerator: pd.DataFrame, denominator: pd.DataFrame) -> Estimate:
    """Ratio of the typical value of one group of cells to that of another.

    In each block, typical is the geometric mean over the group's cells. A cell that is missing in
    some block would shift that block's mean, so only cells that are complete count, unless none is.

    Args:
        numerator: rows of the tidy table, such as all cells of another package.
        denominator: rows of the tidy table, such as all cells of the same node.

    Returns:
        The ratio; n is the number of blocks that both groups share.
    """
    above, below = _block_logs(numerator), _block_logs(denominator)
    shared = above.index.intersection(below.index)
    return estimate(np.exp((above.loc[shared] - below.loc[shared]).to_numpy(dtype=float)))


def _block_logs(tidy: pd.DataFrame) -> pd.Series:
    """Mean logarithm per block over the cells that every block has."""
    rows = valid(plain(tidy))
    if rows.empty:
        return pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[]] * len(BLOCK)))
    blocks = rows.groupby(list(BLOCK), dropna=False).ngroups
    seen = rows.groupby(list(CELL), dropna=False)["value"].transform("size")
    complete = rows[seen == blocks]
    rows = rows if complete.empty else complete
    logs = pd.Series(np.log(rows["value"].to_numpy(dtype=float)), index=rows.index)
    return logs.groupby([rows[column] for column in BLOCK], dropna=False).mean()
