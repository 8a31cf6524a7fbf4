"""Where two ways to measure the same load part: alone and all together, over a size.

Each load is paired with itself: the same initiator, target, size and replicate block. The typical
ratio of a size is the geometric mean over the pairs; the blocks' means give the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from chaosity.statistics.summary import Estimate, estimate, plain
from chaosity.store.tidy_table import valid

# Where cores share little the geometric means of the published sweep (document 003, one run, eight
# cores, 2 to 64 MB) lie within about 5 % of 1. Half as much again is more than such noise.
DIVERGES = 1.075
# Of a core to the others of its node. In the published sweep such ratios are 1 within 1 % as long
# as each core runs alone, and 1.26 to 1.30 for the slow ones when all run.
SLOWER = 1.1
_PAIR = ["host", "configuration", "initiator", "target", "x", "replicate"]


@dataclass(frozen=True)
class SlowOne:
    """An initiator that is slower than others of its node.

    Attributes:
        initiator, nodes: its name and its node's, as a Linux list.
        together: its latency over the geometric mean of the others' at the same sizes, measured
            together, from the diverging size on.
        alone: the same measured alone; NaN where that was not.
    """

    initiator: str
    nodes: str
    together: Estimate
    alone: float


@dataclass(frozen=True)
class Divergence:
    """How two ways to measure differ.

    Attributes:
        ratios: size -> together over alone, ascending.
        start: the smallest size from which on every ratio is above DIVERGES; None without one.
        slow: initiators that are slower than others of their node, the slowest first; empty
            without a start.
        compared: number of initiators that have another one on their node.
    """

    ratios: dict[float, Estimate]
    start: float | None
    slow: tuple[SlowOne, ...]
    compared: int


def divergence(rows: pd.DataFrame, level: str, to: str) -> Divergence:
    """Compare the rows of two levels.

    Args:
        rows: of the tidy table, of a metric of which less is better, with the further columns `x`
            (size) and `level`.
        level: the level of those that were measured together.
        to: the level of those that were measured alone.
    """
    known = valid(plain(rows))
    known = known[known["x"].notna()]
    together, alone = (known[known["level"] == name] for name in (level, to))
    ratios = _ratios(together, alone)
    start = _start(ratios)
    slow, compared = _slow(together, alone, start) if start is not None else ((), 0)
    return Divergence(ratios, start, slow, compared)


def _logs(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Mean logarithm of each pair's side."""
    logs = rows.assign(**{name: np.log(rows["value"].to_numpy(dtype=float))})
    return logs.groupby(_PAIR, as_index=False)[name].mean()


def _ratios(together: pd.DataFrame, alone: pd.DataFrame) -> dict[float, Estimate]:
    """Geometric mean over the pairs, of each size."""
    pairs = _logs(together, "above").merge(_logs(alone, "below"), on=_PAIR)
    pairs["log"] = pairs["above"] - pairs["below"]
    found = {}
    for size, own in pairs.groupby("x", sort=True):
        blocks = own.groupby(["host", "configuration", "replicate"])["log"].mean()
        found[float(size)] = estimate(np.exp(blocks.to_numpy()))
    return found


def _start(ratios: dict[float, Estimate]) -> float | None:
    start = None
    for size, ratio in reversed(ratios.items()):
        if ratio.median <= DIVERGES:
            break
        start = size
    return start


def _slow(
    together: pd.DataFrame, alone: pd.DataFrame, start: float
) -> tuple[tuple[SlowOne, ...], int]:
    """Initiators that stand out on their node from a size on."""
    large = [side[side["x"] >= start] for side in (together, alone)]
    among = [_among(side) for side in large]
    found = []
    for (initiator, nodes), blocks in among[0].items():
        ratio = estimate(np.exp(blocks))
        if ratio.median > SLOWER and (ratio.low is None or ratio.low > 1.0):
            without = among[1].get((initiator, nodes))
            beside = float(np.exp(np.median(without))) if without is not None else float("nan")
            found.append(SlowOne(initiator, nodes, ratio, beside))
    found.sort(key=lambda one: one.together.median, reverse=True)
    return tuple(found), len(among[0])


def _among(rows: pd.DataFrame) -> dict[tuple[str, str], np.ndarray]:
    """Of each initiator with others on its node: log ratio to their mean, one a block.

    Targets and sizes at which not all initiators of the node were measured do not count.
    """
    place = ["host", "configuration", "initiator_nodes", "target", "x", "replicate"]
    logs = rows.assign(log=np.log(rows["value"].to_numpy(dtype=float)))
    logs = logs.groupby([*place, "initiator"], as_index=False)["log"].mean()
    held = logs.groupby(place)["log"].transform("size")
    whole = logs.groupby("initiator_nodes")["initiator"].transform("nunique")
    logs = logs[(held == whole) & (whole > 1)].copy()
    sums, sizes = (logs.groupby(place)["log"].transform(name) for name in ("sum", "size"))
    logs["ratio"] = logs["log"] - (sums - logs["log"]) / (sizes - 1)
    blocks = logs.groupby(["initiator", "initiator_nodes", "replicate"], sort=True)["ratio"].mean()
    return {
        key: own.to_numpy()
        for key, own in blocks.groupby(level=["initiator", "initiator_nodes"], sort=True)
    }
