"""The loads of a point, and what was asked of them."""

from __future__ import annotations

import pandas as pd

POINT = ("host", "configuration", "experiment", "point")
# A load's name in its experiment may stand for several loads of a point, one an initiator.
LOAD = ("load", "initiator", "target")


def load_counts(tidy: pd.DataFrame) -> pd.Series:
    """How many loads the point of each row has.

    Targets do not count: a load whose metric is told by node has a row for each of them.
    """
    loads = tidy[[*POINT, "load", "initiator"]].drop_duplicates()
    numbers = loads.groupby(list(POINT), dropna=False, sort=False).size()
    keys = pd.MultiIndex.from_frame(tidy[list(POINT)])
    return pd.Series(numbers.reindex(keys).to_numpy(), tidy.index, dtype=float)


def load_parameters(tidy: pd.DataFrame) -> pd.Series:
    """What was varied of the load of each row, as JSON; "{}" where nothing was.

    Values that differ in it are not like with like. Other factors (how many drives, which node)
    only say where a load was and what ran beside it.
    """
    if "levels" not in tidy:
        return pd.Series("{}", tidy.index)
    return tidy["levels"].fillna("{}")
