"""The loads of a point, and what was asked of them."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

POINT = ("host", "configuration", "experiment", "point")
# A load's name in its experiment may stand for several loads of a point, one an initiator.
LOAD = ("load", "initiator", "target")
# Levels of a load that say what was asked of it. Values that differ in one of them are not like
# with like; other factors (how many drives, which node) only say where a load was.
ASKED = ("bytes", "pages", "share", "responder")


def load_counts(tidy: pd.DataFrame) -> pd.Series:
    """How many loads the point of each row has."""
    loads = tidy[[*POINT, *LOAD]].drop_duplicates()
    numbers = loads.groupby(list(POINT), dropna=False, sort=False).size()
    keys = pd.MultiIndex.from_frame(tidy[list(POINT)])
    return pd.Series(numbers.reindex(keys).to_numpy(), tidy.index, dtype=float)


def asked(tidy: pd.DataFrame) -> pd.Series:
    """What was asked of the load of each row, as JSON; "{}" where nothing of it was varied."""
    if "factors" not in tidy:
        return pd.Series("{}", tidy.index)
    texts = tidy["factors"].fillna("{}")
    return texts.map({text: _asked(json.loads(text)) for text in texts.unique()})


def _asked(factors: dict[str, Any]) -> str:
    return json.dumps({name: factors[name] for name in ASKED if name in factors})
