"""Ratios of cells within replicate blocks.

Replicate k of everything is measured before replicate k + 1 of anything, so two measurements of
one block saw the machine in the same hours. Their ratio cancels what drifts between blocks; the
scatter of the ratios over the blocks gives the interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import CELL, Measurements, Table, as_measurements

BLOCK = ("host", "configuration", "replicate")


def summarise_cell_ratios_paired_by_block(
    numerator: Table, denominator: Table, on: Sequence[str]
) -> pd.DataFrame:
    """Divide each cell of one selection by its partner in another, paired by replicate block.

    Args:
        numerator: its columns describe the result.
        denominator: the geometric mean is used where a cell has several partners.
        on: columns that make two cells partners; `replicate` is added.

    Returns:
        As `summarise_cells`, of the ratios (no unit). Cells without any complete pair are left out.
    """
    keys = [*on, "replicate"]
    partners = as_measurements(denominator).valid_rows().rows[[*keys, "value"]]
    partners = partners.assign(_log=np.log(partners.pop("value").to_numpy(dtype=float)))
    partners = partners.groupby(keys, dropna=False)["_log"].mean().reset_index()
    above = as_measurements(numerator).valid_rows().rows
    # A key without any value (no load has a kernel) has lost its type in the grouping.
    partners = partners.astype({key: above.dtypes[key] for key in keys})
    pairs = above.merge(partners, on=keys, how="inner")
    pairs["value"] = pairs["value"] / np.exp(pairs.pop("_log").to_numpy(dtype=float))
    return summarise_cells(Measurements(pairs))


def estimate_group_ratio_paired_by_block(numerator: Table, denominator: Table) -> Estimate:
    """Return the ratio of the typical value of one group of cells to that of another.

    For example, all cells of another package are compared with all cells of the same node.
    The typical value of a block is the geometric mean over the group's cells. A cell that is
    missing in some block would shift that block's mean, so only complete cells count, unless no
    cell is complete. The ratio's n is the number of blocks that both groups share.
    """
    above, below = _block_logs(numerator), _block_logs(denominator)
    shared = above.index.intersection(below.index)
    return Estimate.of_values(np.exp((above.loc[shared] - below.loc[shared]).to_numpy(dtype=float)))


def _block_logs(group: Table) -> pd.Series:
    """Return the mean logarithm per block over the cells that every block has."""
    rows = as_measurements(group).valid_rows().rows
    if rows.empty:
        return pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[]] * len(BLOCK)))
    blocks = rows.groupby(list(BLOCK), dropna=False).ngroups
    seen = rows.groupby(list(CELL), dropna=False)["value"].transform("size")
    complete = rows[seen == blocks]
    rows = rows if complete.empty else complete
    logs = pd.Series(np.log(rows["value"].to_numpy(dtype=float)), index=rows.index)
    return logs.groupby([rows[column] for column in BLOCK], dropna=False).mean()
