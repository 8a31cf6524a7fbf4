"""Slow drives, slow ways to drives, and drives that are reached better from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import REMOTE_BETTER, SLOW_COMPONENT, SLOW_PATH, Anomaly
from chaosity.anomalies.cell_groups import GroupedCells, slices
from chaosity.anomalies.departures import Departure, Group, find, gap, numbers

_DRIVE = (
    "Look at its link (lspci -vv: LnkSta), temperature and wear (nvme smart-log), or replace it; "
    "the next run measures only the points that touch it."
)
_NODE_OF_DRIVES = (
    "Look at what these drives share: the PCIe switch or riser, the root complex of that node, its "
    "power and cooling."
)
_PATH = "Measure it again alone; look at the way between the two and at interrupts bound elsewhere."
_SWAPPED = (
    "Look at the wiring: the drive may hang off another node than the firmware says (swapped cable "
    "or slot), or its interrupts are bound there."
)


def drive_anomalies(
    rows: pd.DataFrame, models: Mapping[str, str]
) -> tuple[list[Anomaly], int, list[float]]:
    """Slow drives, slow ways to drives, and drives that are reached better from elsewhere.

    Args:
        rows: single loads on single drives, valid, no stand-in files; one drive a target.
        models: model of each drive by its component; drives of unknown model have no siblings.

    Returns:
        The anomalies, the number of drives that were compared with siblings, and of each slice the
        loss of a single value that would have been found.
    """
    found: list[Anomaly] = []
    compared: set[str] = set()
    least: list[float] = []
    for where, own in slices(rows):
        own = own.assign(model=[models.get(name, name) for name in own["target"]])
        table = GroupedCells(own, where, ("relation", "model"))
        normal = table.lonely()
        least += table.detectable_percent(~normal)
        some = (~normal & table.cells.measured).any(axis=0)
        compared |= {str(n) for n, held in zip(table.cells.columns, some, strict=True) if held}
        groups = list(_drive_groups(table))
        for one in find(table.cells, table.residual, table.scatter, groups, normal):
            found.append(_drive(table, one))
        found += _reached_better(table)
    return found, len(compared), least


def _drive_groups(table: GroupedCells) -> Iterator[Group]:
    yield from table.of_columns("drive")
    yield from table.of_rows("initiator")
    nodes: dict[str, list[int]] = {}
    for column, name in enumerate(table.cells.columns):
        row = next(row for cell, row in table.first.items() if cell[1] == name)
        nodes.setdefault(str(row["target_nodes"]), []).append(column)
    for node, columns in nodes.items():
        if len(columns) > 1 and len(nodes) > 1:
            yield Group(
                ("node", node), np.any([table.cells.line(column=c) for c in columns], axis=0)
            )


def _drive(table: GroupedCells, one: Departure) -> Anomaly:
    names = [table.cells.cell(*place) for place in one.cells]
    source, drive = (str(name) for name in names[0])
    from_others = int(table.cells.measured[:, table.cells.columns.index(drive)].sum()) > 1
    if one.group is None and from_others:
        return table.anomaly(
            one, SLOW_PATH, (drive,), advice=_PATH, what=f"The way from {source} to {drive} is slow"
        )
    kind = one.group.name[0] if one.group else "drive"
    if kind == "initiator":
        return table.anomaly(
            one,
            SLOW_COMPONENT,
            (source,),
            advice=anomaly_text.UNITS,
            what=f"{source} is slow on drives",
        )
    if one.group is not None and kind == "node":
        drives = sorted({str(name) for _, name in names})
        node = str(one.group.name[1])
        place = f"node {node}" if node else "no known node"
        return table.anomaly(
            one,
            SLOW_COMPONENT,
            (*([f"node{node}"] if node else []), *drives),
            what=f"All {len(drives)} drives of {place} are slow",
            advice=_NODE_OF_DRIVES,
        )
    return table.anomaly(one, SLOW_COMPONENT, (drive,), what=f"{drive} is slow", advice=_DRIVE)


def _reached_better(table: GroupedCells) -> Iterator[Anomaly]:
    """Drives that an initiator elsewhere reads clearly faster than one on their own node."""
    cells = table.cells
    comparisons = int(cells.measured.sum())
    for column, drive in enumerate(cells.columns):
        at = {
            cells.rows.index(row): first["relation"]
            for (row, name), first in table.first.items()
            if name == drive
        }
        local = [(row, column) for row, relation in at.items() if relation == "same_node"]
        remote = [(row, column) for row, relation in at.items() if relation != "same_node"]
        if not local or not remote:
            continue
        own = max(local, key=lambda place: cells.log_score[place])
        best = max(remote, key=lambda place: cells.log_score[place])
        noise = np.hypot(cells.error[own], cells.error[best])
        error = float(np.hypot(noise, table.scatter.natural))
        one = gap(cells, own, best, error, table.scatter, comparisons)
        if one is not None:
            yield _better(table, one, best)


def _better(table: GroupedCells, one: Departure, best: tuple[int, int]) -> Anomaly:
    cells = table.cells
    found = numbers(cells, one, cells.log_score[best], [best])
    home, drive = (str(name) for name in cells.cell(*one.cells[0]))
    source = str(cells.rows[best[0]])
    return Anomaly(
        **found,
        kind=REMOTE_BETTER,
        initiator=source,
        target=drive,
        components=(drive,),
        siblings=f"{source} on the same drive",
        sentence=(
            f"{drive} is reached better from {source} than from {home}, the node that it is on: "
            f"local {anomaly_text.loss(found)} than from there."
        ),
        advice=_SWAPPED,
        cells=((source, drive), (home, drive)),
        where=dict(table.where),
    )
