"""Compare values before and after a change of a component, such as a repair."""

from __future__ import annotations

import json
from itertools import pairwise

import pandas as pd

from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates_and_ratios import Ratio
from chaosity.store.measurements import CELL, Measurements

_ESTIMATE = ("median", "low", "high", "n")


def compare_neighbouring_periods(history: Measurements) -> pd.DataFrame:
    """Compare each cell of each point in successive periods of a history.

    Returns:
        One row for each cell and change of its components, the newest change last: the cell's
        columns and `era` (the number of the later period), `changed` (JSON: component -> [start of
        its earlier state, start of its later state]), `comparable` (whether both periods have the
        same request fingerprint), `median_before`, `low_before`, `high_before`, `n_before`, the
        same with `_after`, and `ratio`, `ratio_low`, `ratio_high`.
    """
    found = []
    valid = history.performance_rows().valid_rows_with_value()
    keys = [*CELL, "era"]
    cells = summarise_cells(valid, keys).set_index(keys)
    for _, cell in valid.groups_by_columns(CELL):
        for (_, before), (_, after) in pairwise(cell.rows.groupby("era", sort=True)):
            old, new = (json.loads(own["components"].iloc[-1]) for own in (before, after))
            changed = {c: [old.get(c), new[c]] for c in new if old.get(c) != new[c]}
            of_cell = [tuple(own[keys].iloc[0]) for own in (before, after)]
            old_cell, new_cell = (cells.loc[key] for key in of_cell)
            ratio = Ratio.of_cells(new_cell, old_cell)
            found.append(
                [
                    *(*of_cell[1], json.dumps(changed, sort_keys=True)),
                    len({*before["asked"], *after["asked"]}) == 1,
                    *(own[name] for own in (old_cell, new_cell) for name in _ESTIMATE),
                    *(ratio.ratio, ratio.low, ratio.high),
                ]
            )
    columns = [
        *(*CELL, "era", "changed", "comparable"),
        *(f"{name}_{side}" for side in ("before", "after") for name in _ESTIMATE),
        *("ratio", "ratio_low", "ratio_high"),
    ]
    return pd.DataFrame(found, columns=columns)
