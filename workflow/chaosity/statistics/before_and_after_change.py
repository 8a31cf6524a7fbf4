"""Compare values before and after a change of a component, such as a repair."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    columns = [
        *(*CELL, "era", "changed", "comparable"),
        *(f"{name}_{side}" for side in ("before", "after") for name in _ESTIMATE),
        *("ratio", "ratio_low", "ratio_high"),
    ]
    found = []
    valid = history.performance_rows().valid_rows_with_value()
    keys = [*CELL, "era"]
    cells = summarise_cells(valid, keys).set_index(keys)[[*_ESTIMATE]]
    for _, cell in valid.groups_by_columns(CELL):
        periods = [period for _, period in cell.rows.groupby("era", sort=True)]
        for before, after in pairwise(periods):
            of_cell = [tuple(period[name].iloc[0] for name in keys) for period in (before, after)]
            estimates = [value for key in of_cell for value in cells.loc[key]]
            found.append([*of_cell[1], *_change(before, after, estimates)])
    return pd.DataFrame(found, columns=columns)


def _change(before: pd.DataFrame, after: pd.DataFrame, estimates: list[float]) -> Iterator[object]:
    """Yield the columns of a change, from `changed` on, for two successive periods of a cell."""
    old, new = (json.loads(period["components"].iloc[-1]) for period in (before, after))
    changed = {name: [old.get(name), new[name]] for name in new if old.get(name) != new[name]}
    yield json.dumps(changed, sort_keys=True)
    yield len(set(before["asked"]) | set(after["asked"])) == 1
    yield from estimates
    ratio = Ratio.of_runs(after["value"], before["value"])
    yield from (ratio.ratio, ratio.low, ratio.high)
