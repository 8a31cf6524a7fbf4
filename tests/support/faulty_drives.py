"""Synthetic drives behind nodes, slow or wired to another node, as a tidy table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from faulty_machines import DISTURBANCE, DISTURBED, DRIFT, NATURAL, Layout
from table_rows import rows, table

MODEL = "M1"


def drive_name(node: int, number: int) -> str:
    return f"drive-{node}-{number}"


def measure_drives(
    layout: Layout,
    rng: np.random.Generator,
    *,
    each: int = 2,
    slow: Mapping[str, float] | None = None,
    swapped: tuple[str, str] | None = None,
    n: int = 5,
    noise: float = 0.02,
    far: float = 0.8,
) -> pd.DataFrame:
    """Every drive read alone from every node.

    Args:
        layout: of the nodes.
        rng: of the noise.
        each: drives of a node.
        slow: drive -> the share of its bandwidth that is left.
        swapped: two drives whose cables changed places, so that each hangs off the other's node.
        n: replicates.
        noise: standard deviation of a replicate.
        far: what a node gets from a drive of another node, as a share.
    """
    names = {drive_name(node, k): node for node in range(layout.nodes) for k in range(each)}
    wired = dict(names)
    if swapped:
        one, other = swapped
        wired[one], wired[other] = names[other], names[one]
    drift = np.exp(DRIFT * rng.standard_normal(n))
    parts, measured = [], []
    for name, node in names.items():
        own = 7e9 * np.exp(NATURAL * rng.standard_normal()) * (slow or {}).get(name, 1.0)
        for reader in range(layout.nodes):
            share = 1.0 if reader == wired[name] else far
            values = own * share * drift * np.exp(noise * rng.standard_normal(n))
            measured += np.where(rng.random(n) < DISTURBED, values * DISTURBANCE, values).tolist()
            columns: dict[str, Any] = {
                "point": f"storage=node{reader}+{name}",
                "relation": "same_node" if reader == node else "other_node",
                **{"target": name, "target_kind": "drive", "drives": 1},
                **dict.fromkeys(("experiment", "category"), "storage_bandwidth"),
                **{"load": "storage", "kernel": None},
            }
            parts.append(rows(lambda *_: 1.0, [reader], [node], replicates=n, **columns))
    return table(*parts).assign(value=measured)


def models(tidy: pd.DataFrame) -> dict[str, str]:
    return dict.fromkeys(tidy["target"].unique(), MODEL)
