"""Values before and after a change of a component, such as a repair."""

from __future__ import annotations

import json
from itertools import pairwise

import pandas as pd

from chaosity.statistics.estimates_and_ratios import Estimate, Ratio
from chaosity.store.measurements import CELL, Table, as_measurements

_ESTIMATE = ("median", "low", "high", "n")


def compare_neighbouring_periods(history: Table) -> pd.DataFrame:
    """Return each cell of each point in neighbouring periods, see `build_measurement_history`.

    Returns:
        One row for each cell and change of its components, the newest change last: the cell's
        columns and `era` (the number of the later period), `changed` (JSON: component -> [start of
        its earlier state, start of its later state]), `comparable` (whether both periods have the
        same request fingerprint), `median_before`, `low_before`, `high_before`, `n_before`, the
        same with `_after`, and `ratio`, `ratio_low`, `ratio_high`.
    """
    found = []
    for _, cell in as_measurements(history).performance_rows().rows_with_value().groups(CELL):
        periods = [period for _, period in cell.rows.groupby("era", sort=True)]
        for before, after in pairwise(periods):
            cell_columns = {name: after[name].iloc[0] for name in (*CELL, "era")}
            found.append({**cell_columns, **_change(before, after)})
    columns = [
        *(*CELL, "era", "changed", "comparable"),
        *(f"{name}_{side}" for side in ("before", "after") for name in _ESTIMATE),
        *("ratio", "ratio_low", "ratio_high"),
    ]
    return pd.DataFrame(found, columns=columns)


def _change(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, object]:
    """The changed components and both values of a cell in two neighbouring periods."""
    old, new = (json.loads(period["components"].iloc[-1]) for period in (before, after))
    changed = {name: [old.get(name), new[name]] for name in new if old.get(name) != new[name]}
    fingerprints = set(before["asked"]) | set(after["asked"])
    sides = {
        "before": Estimate.of_values(before["value"]),
        "after": Estimate.of_values(after["value"]),
    }
    ratio = Ratio.of_runs(after["value"], before["value"])
    return {
        "changed": json.dumps(changed, sort_keys=True),
        "comparable": len(fingerprints) == 1,
        **{
            f"{name}_{side}": getattr(estimate, name)
            for side, estimate in sides.items()
            for name in _ESTIMATE
        },
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }
