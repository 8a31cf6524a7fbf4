"""Comparisons of values from different runs: other configurations, and before and after a repair.

Such values are no pairs: hours or days, and often a reboot, lie between them. So the interval is
Welch's for two samples, on logarithms. It holds what scatters within the runs, and cannot hold what
differs between one run and the next.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from chaosity.statistics.summary import (
    CELL,
    CONFIDENCE,
    VALID,
    estimate,
    is_performance,
    plain,
)


@dataclass(frozen=True)
class RunRatio:
    """The typical value of one sample over that of another.

    Attributes:
        ratio: of the medians; NaN when a sample is empty.
        low, high: 95 % interval; None when a sample has fewer than two values.
        n, n_reference: sizes of the samples.
    """

    ratio: float
    low: float | None
    high: float | None
    n: int
    n_reference: int


def run_ratio(values: ArrayLike, reference: ArrayLike, confidence: float = CONFIDENCE) -> RunRatio:
    """Ratio of two samples that are no pairs; only positive values count."""
    above, below = _logs(values), _logs(reference)
    n, m = len(above), len(below)
    if not n or not m:
        return RunRatio(float("nan"), None, None, n, m)
    ratio = float(np.exp(np.median(above) - np.median(below)))
    if n < 2 or m < 2:
        return RunRatio(ratio, None, None, n, m)
    a, b = above.var(ddof=1) / n, below.var(ddof=1) / m
    difference, error = above.mean() - below.mean(), np.sqrt(a + b)
    half = 0.0
    if error > 0.0:
        # Degrees of freedom by Welch and Satterthwaite.
        freedom = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
        half = float(stats.t.ppf(0.5 + confidence / 2.0, freedom) * error)
    low, high = float(np.exp(difference - half)), float(np.exp(difference + half))
    return RunRatio(ratio, min(low, ratio), max(high, ratio), n, m)


def _logs(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float).ravel()
    return np.log(array[array > 0.0])  # NaN is not above zero


def before_and_after(history: pd.DataFrame) -> pd.DataFrame:
    """Each cell of each point in neighbouring eras, see `store.measurement_history`.

    Returns:
        One row a cell and change of its components, the newest change last: the cell's columns and
        `era` (the later one), `changed` (JSON: component -> [since when it was what it was before,
        since when it is what it was after]), `comparable` (whether both were asked the same),
        `median_before`, `low_before`, `high_before`, `n_before`, the same with `_after`, and
        `ratio`, `ratio_low`, `ratio_high`.
    """
    rows = plain(history)
    rows = rows[(rows["status"] == VALID) & rows["value"].notna()]
    rows = rows[rows["metric"].map(is_performance).astype(bool)]
    found = []
    for _, cell in rows.groupby([*CELL], sort=False, dropna=False):
        eras = [era for _, era in cell.groupby("era", sort=True)]
        for before, after in pairwise(eras):
            found.append({**after.iloc[0][[*CELL, "era"]].to_dict(), **_change(before, after)})
    columns = [
        *(*CELL, "era", "changed", "comparable"),
        *(f"{name}_{side}" for side in ("before", "after") for name in _ESTIMATE),
        *("ratio", "ratio_low", "ratio_high"),
    ]
    return pd.DataFrame(found, columns=columns)


_ESTIMATE = ("median", "low", "high", "n")


def _change(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, object]:
    """What two eras of a cell have to do with each other."""
    was, became = (json.loads(era["components"].iloc[-1]) for era in (before, after))
    changed = {name: [was.get(name), became[name]] for name in became
               if was.get(name) != became[name]}  # fmt: skip
    both = {"before": estimate(before["value"]), "after": estimate(after["value"])}
    ratio = run_ratio(after["value"], before["value"])
    return {
        "changed": json.dumps(changed, sort_keys=True),
        "comparable": set(before["asked"]) == set(after["asked"]) and len(set(after["asked"])) == 1,
        **{f"{name}_{side}": getattr(found, name)
           for side, found in both.items() for name in _ESTIMATE},
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }  # fmt: skip
