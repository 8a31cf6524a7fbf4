"""Single drives against their siblings: drives of the same model, asked in the same way.

A drive's value hangs on the node that reads it, so a value is compared with those of the siblings
for the same relation of initiator and drive, in the same replicate block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from chaosity.statistics.loads import load_counts
from chaosity.statistics.summary import VALID, estimate, plain

# Of drives of one kind, and of a single drive's values those that may be compared.
_KIND = ["experiment", "benchmark", "kernel", "load", "metric", "model"]
_PLACE = ["initiator_kind", "relation", "replicate"]
# One sibling could as well be the one that is wrong.
FEWEST_SIBLINGS = 2


@dataclass(frozen=True)
class DriveAmongSiblings:
    """How one drive does.

    Attributes:
        drive: its component.
        model: that it shares with its siblings.
        experiment, benchmark, metric: of the values.
        median: of the drive, over all initiators and replicates, in the metric's unit.
        median_of_siblings: of the siblings, in the same places.
        ratio: of the drive to its siblings, typical over its initiators and the blocks.
        low, high: 95 % interval of the ratio over the blocks; None for one block.
        n: number of blocks.
        initiators: number of places that it was read from.
        siblings: number of drives that it was compared with.
    """

    drive: str
    model: str
    experiment: str
    benchmark: str
    metric: str
    median: float
    median_of_siblings: float
    ratio: float
    low: float | None
    high: float | None
    n: int
    initiators: int
    siblings: int


def drives_among_siblings(
    tidy: pd.DataFrame, models: Mapping[str, str]
) -> list[DriveAmongSiblings]:
    """Every single drive that has enough siblings, the slowest first.

    A drive that several experiments measured counts in the one that read it from most places.

    Args:
        tidy: the tidy table of one host in one configuration.
        models: model of each drive by its component; a drive that is not in it has no siblings.
    """
    rows = plain(tidy)
    if not models or rows.empty:
        return []
    rows = rows[(load_counts(rows) == 1) & (rows["status"] == VALID) & (rows["value"] > 0.0)]
    rows = rows[(rows["target_kind"] == "drive") & ~rows["file_backed"].astype(bool)]
    rows = rows.assign(model=rows["target"].map(models))
    rows = rows[rows["model"].notna()]
    found: list[DriveAmongSiblings | None] = []
    for _, alike in rows.groupby(_KIND, sort=False, dropna=False):
        drives = alike["target"].unique()
        if len(drives) > FEWEST_SIBLINGS:
            found += [_among(drive, alike, len(drives) - 1) for drive in drives]
    widest: dict[str, DriveAmongSiblings] = {}
    for one in found:
        if one and (one.drive not in widest or one.initiators > widest[one.drive].initiators):
            widest[one.drive] = one
    return sorted(widest.values(), key=lambda one: one.ratio)


def _among(drive: str, alike: pd.DataFrame, siblings: int) -> DriveAmongSiblings | None:
    """One drive; None when no sibling was measured in any of its places and blocks."""
    own, others = alike[alike["target"] == drive], alike[alike["target"] != drive]
    typical = others.groupby(_PLACE, dropna=False, as_index=False)["value"].median()
    pairs = own.merge(typical, on=_PLACE, suffixes=("", "_of_siblings"))
    if pairs.empty:
        return None
    logs = np.log(pairs["value"].to_numpy() / pairs["value_of_siblings"].to_numpy())
    blocks = pd.Series(logs).groupby(pairs["replicate"].to_numpy()).mean()
    ratio = estimate(np.exp(blocks.to_numpy()))
    first = own.iloc[0]
    return DriveAmongSiblings(
        drive=drive,
        model=first["model"],
        experiment=first["experiment"],
        benchmark=first["benchmark"],
        metric=first["metric"],
        median=float(pairs["value"].median()),
        median_of_siblings=float(pairs["value_of_siblings"].median()),
        ratio=ratio.median,
        low=ratio.low,
        high=ratio.high,
        n=ratio.n,
        initiators=pairs["initiator"].nunique(),
        siblings=siblings,
    )
