"""Sets of drives that give less than a part of them does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import ADDING_DRIVES, Anomaly
from chaosity.anomalies.cell_groups import GroupedCells, slices
from chaosity.anomalies.departures import gap, numbers
from chaosity.topology import parse_cpu_list
from chaosity.units import format_count

_SETS = (
    "Look at what the added drives share with the others: a switch, a root complex, memory "
    "channels of the node that the data goes to; read fewer drives from there."
)


def set_anomalies(rows: pd.DataFrame) -> list[Anomaly]:
    """Drive sets that give less than a part of them does.

    The worst is told of the sets of each node, and of those that span nodes.

    Args:
        rows: single loads on sets of drives, valid, no stand-in files.
    """
    found: list[Anomaly] = []
    for where, own in slices(rows):
        table = GroupedCells(own, where, ("target",))
        firsts = {target: row for (_, target), row in table.first.items()}
        sets = [_members(firsts[name]) for name in table.cells.columns]
        parts = [
            [part for part in range(len(sets)) if _within(sets[part], whole)] for whole in sets
        ]
        comparisons = int(table.cells.measured.sum())
        by: dict[frozenset[int], list[Anomaly]] = {}
        for row, column in zip(*np.nonzero(table.cells.measured), strict=True):
            known = [part for part in parts[column] if table.cells.measured[row, part]]
            if known:
                best = max(known, key=lambda part: table.cells.log_score[row, part])
                one = _set(table, int(row), int(column), best, comparisons)
                nodes = sets[column][0]
                if one is not None:
                    by.setdefault(nodes if len(nodes) == 1 else frozenset(), []).append(one)
        found += [_told_once(alike) for alike in by.values()]
    return found


def _members(row: pd.Series) -> tuple[frozenset[int], int, str]:
    """Nodes, number of drives and kind of a set."""
    nodes = frozenset(parse_cpu_list(str(row["target_nodes"] or "")))
    return nodes, int(row["drives"]), str(row["target_kind"])


def _within(part: tuple[frozenset[int], int, str], whole: tuple[frozenset[int], int, str]) -> bool:
    """Whether a set is a part of another: the first drives of its node, or all of fewer nodes."""
    if part[1] >= whole[1]:
        return False
    if part[0] == whole[0]:
        return len(part[0]) == 1 and part[2] != "drive"
    # Drives of no known node are a part of nothing but all.
    return part[2] in ("all_of_node", "all_of_nodes") and bool(part[0]) and part[0] < whole[0]


def _set(table: GroupedCells, row: int, column: int, best: int, comparisons: int) -> Anomaly | None:
    """A set that gives less than a part of it, if it does."""
    cells, source = table.cells, str(table.cells.rows[row])
    error = float(np.hypot(cells.error[row, best], cells.error[row, column]))
    # The best of several parts is taken, so noise alone makes it better than the whole.
    looks = comparisons * len(cells.columns)
    one = gap(cells, (row, column), (row, best), error, table.scatter, looks)
    if one is None:
        return None
    found = numbers(cells, one, cells.log_score[row, best], [(row, best)])
    name, part = str(cells.columns[column]), str(cells.columns[best])
    nodes = parse_cpu_list(str(table.first[source, name]["target_nodes"] or ""))
    return Anomaly(
        **found,
        kind=ADDING_DRIVES,
        initiator=source,
        target=name,
        components=tuple(f"node{node}" for node in sorted(nodes)),
        siblings=f"{part}, a part of it",
        sentence=f"{name} gives {source} less than {part}, a part of it: {anomaly_text.loss(found)}.",
        advice=_SETS,
        cells=((source, name),),
        where=dict(table.where),
    )


def _told_once(alike: Sequence[Anomaly]) -> Anomaly:
    """The worst of them, with how many others there are."""
    worst = max(alike, key=lambda one: one.loss_percent)
    others = {(one.initiator, one.target) for one in alike} - {(worst.initiator, worst.target)}
    if not others:
        return worst
    sets = len({target for _, target in others})
    sources = anomaly_text.listed(sorted({str(source) for source, _ in others}))
    also = (
        f"So {'do' if sets > 1 else 'does'} {format_count(sets, 'other set')}, seen from {sources}."
    )
    return replace(worst, cells=tuple(cell for one in alike for cell in one.cells), also=(also,))
