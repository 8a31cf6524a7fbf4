"""Compare values before and after a change of a component, such as a repair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pandas as pd

from chaosity.statistics.estimates_and_ratios import Estimate, Ratio
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
    for _, cell in history.performance_rows().valid_rows_with_value().groups_by_columns(CELL):
        periods = [period for _, period in cell.rows.groupby("era", sort=True)]
        for before, after in pairwise(periods):
            cell_values = [after[name].iloc[0] for name in (*CELL, "era")]
            found.append([*cell_values, *_change(before, after)])
    return pd.DataFrame(found, columns=columns)


def _change(before: pd.DataFrame, after: pd.DataFrame) -> Iterator[object]:
    """Yield the columns of a change, from `changed` on, for two successive periods of a cell."""
    old, new = (json.loads(period["components"].iloc[-1]) for period in (before, after))
    changed = {name: [old.get(name), new[name]] for name in new if old.get(name) != new[name]}
    yield json.dumps(changed, sort_keys=True)
    yield len(set(before["asked"]) | set(after["asked"])) == 1
    for period in (before, after):
        estimate = Estimate.of_values(period["value"])
        yield from (getattr(estimate, name) for name in _ESTIMATE)
    ratio = Ratio.of_runs(after["value"], before["value"])
    yield from (ratio.ratio, ratio.low, ratio.high)
