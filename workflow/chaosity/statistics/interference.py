"""What a load loses when others run at the same time: its value in company over its value alone.

Works on any experiment: a point with several loads is company, a point with one load is alone,
and two loads are the same when benchmark, kernel, initiator, target, metric and what was asked of
them (the size of a working set, its pages) are.
"""

from __future__ import annotations

import pandas as pd

from chaosity.statistics.loads import LOAD, POINT, load_counts, load_parameters
from chaosity.statistics.ratios import paired_ratios

_SAME_LOAD = [
    "host",
    "configuration",
    "load",
    "benchmark",
    "kernel",
    "initiator",
    "target",
    "metric",
    "levels",
]


def corun_slowdown(tidy: pd.DataFrame) -> pd.DataFrame:
    """Each load of each point with several loads, as a ratio to the same load alone.

    The partner is measured in the same replicate block, and in the same experiment when that has
    one: other experiments may have other durations.

    Returns:
        As `summarise`, of the ratios: 1 is no loss, 0.6 means 40 % lost. Empty when no load was
        measured both ways.
    """
    if tidy.empty:
        tidy = tidy.assign(levels=None)
        return paired_ratios(tidy, tidy, _SAME_LOAD)
    tidy = tidy.assign(levels=load_parameters(tidy))
    loads = load_counts(tidy)
    alone, company = tidy[loads == 1], tidy[loads > 1]
    near = paired_ratios(company, alone, ["experiment", *_SAME_LOAD])
    found = pd.MultiIndex.from_frame(near[[*POINT, *LOAD, "metric"]])
    wanted = pd.MultiIndex.from_frame(company[[*POINT, *LOAD, "metric"]])
    far = paired_ratios(company[~wanted.isin(found)], alone, _SAME_LOAD)
    parts = [part for part in (near, far) if not part.empty]
    return pd.concat(parts, ignore_index=True) if parts else near
