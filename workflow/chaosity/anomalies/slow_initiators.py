"""Slow processing units, cores and L3 domains, and memory that is slow for all of them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import SLOW_COMPONENT, SLOW_PATH, Anomaly
from chaosity.anomalies.cell_groups import GroupedCells, slices
from chaosity.anomalies.departures import Departure, find


def initiator_anomalies(
    rows: pd.DataFrame, kinds: Mapping[str, str]
) -> tuple[list[Anomaly], int, list[float]]:
    """Slow processing units, cores, L3 domains on memory.

    Args:
        rows: single loads on one memory node each, valid, of slices in which nodes have several
            initiators.
        kinds: kind of core of each initiator, where a machine has several (performance,
            efficiency); they are no siblings.

    Returns:
        The anomalies, the number of initiators that were compared with siblings, and of each slice
        the loss of a single value that would have been found.
    """
    found: list[Anomaly] = []
    compared: set[str] = set()
    least: list[float] = []
    for where, own in slices(rows):
        own = own.assign(
            near=own["distance"].astype(float).fillna(-1.0),
            core=[kinds.get(name, "") for name in own["initiator"]],
        )
        table = GroupedCells(own, where, ("relation", "near", "threads", "core"))
        normal = table.lonely()
        least += table.detectable_percent(~normal)
        some = (~normal & table.cells.measured).any(axis=1)
        compared |= {str(n) for n, held in zip(table.cells.rows, some, strict=True) if held}
        groups = [*table.of_rows("initiator"), *table.of_columns("target")]
        for one in find(table.cells, table.residual, table.scatter, groups, normal):
            found.append(_initiator(table, one))
    return found, len(compared), least


def _initiator(table: GroupedCells, one: Departure) -> Anomaly:
    source, sink = (str(part) for part in table.cells.cell(*one.cells[0]))
    if one.group is not None and one.group.name[0] == "target":
        return table.anomaly(
            one,
            SLOW_COMPONENT,
            (sink,),
            what=f"The memory of {sink} is slow",
            advice=anomaly_text.ADVICE[anomaly_text.TARGET],
        )
    if one.group is not None or len(table.cells.columns) == 1 or _one_cell(table, source):
        return table.anomaly(
            one,
            SLOW_COMPONENT,
            (source,),
            what=f"{source} is slow on memory",
            advice=anomaly_text.UNITS,
        )
    # The suspect is the way between nodes, by whichever of a node's units it was seen.
    home = table.first[source, sink]["initiator_nodes"]
    return table.anomaly(
        one,
        SLOW_PATH,
        (f"node{home}->{sink}",),
        what=f"The way from {source} to {sink} is slow",
        advice=anomaly_text.ADVICE[anomaly_text.PATH],
    )


def _one_cell(table: GroupedCells, source: str) -> bool:
    """Whether an initiator was measured on one target alone."""
    return int(table.cells.measured[table.cells.rows.index(source)].sum()) == 1
