"""The history of a host's checks as a table, for files and figures."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
import pandas as pd

from chaosity.health.check_history import CheckHistory


def history_table(history: CheckHistory) -> pd.DataFrame:
    """Return a row for each value: time, place, value, fitted value, segment and change.

    The columns of a change are filled in the first row after it: the value's change in per cent,
    the 95 % interval of the date, the components that explain it, and what changed of components.
    A drift is told where it begins, with its end as the end of the interval.
    """
    told: dict[tuple[int, str], list[object]] = {}
    for change in history.changes:
        for series, before, after in change.values:
            # A common date can lie between two checks of this value.
            at = min(bisect_left(series.times, change.since), len(series.times) - 1)
            told[id(series), series.times[at]] = [
                "drift" if change.is_drift else "step",
                100.0 * (after / before - 1.0),
                change.first,
                change.last,
                "->".join(change.parts) or "most parts",
                "; ".join(change.components),
            ]
    rows = []
    for series in history.series:
        for number, segment in enumerate(series.segments, start=1):
            own = range(segment.begin, segment.end)
            fitted = np.exp(np.linspace(segment.first, segment.last, len(own)))
            for at, level in zip(own, fitted, strict=True):
                time, place = series.times[at], "->".join(series.check.parts)
                empty = [None, math.nan, None, None, None, None]
                about = [series.values[at], float(f"{level:.6g}"), number, series.replaced]
                rows.append(
                    [time, place, *series.key, *about, *told.get((id(series), time), empty)]
                )
    columns = ["time", "component", "experiment", "point", "metric", "value", "fitted", "segment"]
    columns += ["replaced", "change", "change_percent", "earliest", "latest", "explained_by"]
    return pd.DataFrame(rows, columns=[*columns, "components_changed"])
