"""Compute ratios of cells within replicate blocks.

Replicate k of every point is measured before replicate k + 1 of any point, so two measurements of
one block were made in the same hours. Drift between blocks cancels out in their ratio. The scatter
of the ratios over the blocks gives the interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from chaosity.statistics.cell_summary import replace_values, summarise_cells
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import CELL, Measurements, Table, as_measurements

BLOCK = ("host", "configuration", "replicate")


def summarise_cell_ratios_paired_by_block(
    numerator: Table, denominator: Table, on: Sequence[str]
) -> pd.DataFrame:
    """Divide each cell of one selection by its partner in another, paired by replicate block.

    Args:
        numerator: divided selection, whose columns describe the result.
        denominator: reference; if a cell has several partners, their geometric mean is used.
        on: columns with equal values in partners; `replicate` is added.

    Returns:
        The table of `summarise_cells` for the ratios (no unit), without cells that have no pair.
    """
    keys = [*on, "replicate"]
    partners = as_measurements(denominator).valid_rows().rows[[*keys, "value"]]
    partners = partners.assign(_log=np.log(partners.pop("value").to_numpy(dtype=float)))
    partners = partners.groupby(keys, dropna=False)["_log"].mean().reset_index()
    above = as_measurements(numerator).valid_rows().rows
    # A key without any value (no load has a kernel) has lost its type in the grouping.
    partners = partners.astype({key: above.dtypes[key] for key in keys})
    pairs = above.merge(partners, on=keys, how="inner")
    ratios = pairs["value"] / np.exp(pairs.pop("_log").to_numpy(dtype=float))
    return summarise_cells(Measurements(replace_values(pairs, ratios)))


def estimate_group_ratio_paired_by_block(numerator: Table, denominator: Table) -> Estimate:
    """Return the ratio of the typical value of one group of cells to that of another.

    For example, all cells of another package are compared with all cells of the same node. The
    typical value of a block is the geometric mean over the group's cells. A cell without a value in
    a block would shift that block's mean, so only complete cells count, unless no cell is complete.
    n is the number of blocks that both groups have.
    """
    above, below = _block_logs(numerator), _block_logs(denominator)
    shared = above.index.intersection(below.index)
    return Estimate.of_values(np.exp((above.loc[shared] - below.loc[shared]).to_numpy(dtype=float)))


def _block_logs(group: Table) -> pd.Series:
    """Return block -> mean logarithm over the cells that have a value in every block."""
    rows = as_measurements(group).valid_rows().rows
    if rows.empty:
        return pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[]] * len(BLOCK)))
    blocks = rows.groupby(list(BLOCK), dropna=False).ngroups
    seen = rows.groupby(list(CELL), dropna=False)["value"].transform("size")
    complete = rows[seen == blocks]
    rows = rows if complete.empty else complete
    logs = pd.Series(np.log(rows["value"].to_numpy(dtype=float)), index=rows.index)
    return logs.groupby([rows[column] for column in BLOCK], dropna=False).mean()
