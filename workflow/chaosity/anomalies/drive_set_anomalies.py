"""Find drives that are slow only together, and drive sets that lose bandwidth by adding drives.

Losses are those against the expected bandwidth of `drive_set_cells`. They are explained by the
smallest drive sets first: the loss of a set is also expected of all larger sets that contain it. If
the sets that depart alike involve all nodes that comparable sets have, the machine is built so, and
nothing is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.anomalies.anomaly_text import shorten_list
from chaosity.anomalies.cell_log_scores import Position, cell_positions_in_mask
from chaosity.anomalies.component_anomalies import CheckResult
from chaosity.anomalies.departure_significance import Departure
from chaosity.anomalies.drive_set_cells import DRIVES, PACKAGES, DriveSetCells
from chaosity.anomalies.matrix_structure import PackageNodes
from chaosity.place_names import initiator_to_target_name, node_name, package_name
from chaosity.prediction.drives_of_sets import drives_by_node_of_sets
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.units import format_count, join_with_and

_MOST_INITIATORS = 8  # in a sentence


def find_slow_drive_sets(
    rows: Measurements,
    packages: PackageNodes | None,
    models: Mapping[str, str],
    slow_drives: Sequence[Anomaly],
    drives: Mapping[int, Sequence[str]],
) -> CheckResult:
    """Find drives that are slow together, and sets slower than a part of their drives.

    Args:
        rows: valid rows of loads alone on drives and drive sets, without stand-in files.
        packages: nodes of each package; None when unknown.
        models: drive -> model.
        slow_drives: anomalies of single drives, which explain losses of the sets with these drives.
        drives: node -> its drives, as far as they are known without a measurement.
    """
    check = CheckResult("drive set")
    sets = drives_by_node_of_sets(rows, drives)
    slices = [
        DriveSetCells(part.rows, where, sets, models)
        for where, part in rows.comparable_slices()
        if not less_is_better(str(where["metric"]))
    ]
    comparisons = sum(int(cells.tested_mask.sum()) for cells in slices)
    losses = [
        (name, -np.log1p(-anomaly.loss_as_share_of_better_value))
        for anomaly in slow_drives
        for name in anomaly.components
    ]
    check.tests_count = 1 if slices else 0  # drives that are slow together, in all slices
    for cells in slices:
        check.add_tested_cells(cells, cells.cells.columns, axis=0)
        check.anomalies += _losses_by_adding_drives(cells)
        # Several metrics can show the same slow drive, so only its largest loss counts.
        explained_by_drives = [
            max((loss for drive, loss in losses if drive in drives), default=0.0)
            for drives in cells.drives
        ]
        cells.expect_less(np.array(explained_by_drives))
        remaining = cells.tested_mask.copy()
        for suspect in cells.suspects(packages or ()):
            departure = cells.comparison.departure_of_suspect(suspect, remaining, comparisons, 1)
            if departure is None or cells.is_structural(departure):
                continue
            if suspect.part != PACKAGES:
                larger = cells.largest_set_with_same_limit(departure)
                of_larger = larger and cells.comparison.departure_of_suspect(
                    larger, remaining, comparisons, 1
                )
                departure = of_larger or departure
            anomaly = _slow_together(cells, departure)
            departed = remaining & cells.departing_mask
            explained = cells.explained_cells(departure)
            others = map(
                cells.cells.initiator_and_target, cell_positions_in_mask(explained & departed)
            )
            names = tuple(dict.fromkeys([*anomaly.cells, *others]))
            check.anomalies.append(replace(anomaly, cells=names))
            remaining &= ~explained
    return check


def _slow_together(cells: DriveSetCells, departure: Departure) -> Anomaly:
    """Return the anomaly of drives that are slow together."""
    assert departure.suspect is not None
    part, name = departure.suspect.part, departure.suspect.name
    rows, columns = zip(*departure.cells, strict=True)
    nodes = [node_name(node) for node in sorted(cells.nodes[columns[0]])]
    initiators = [cells.cells.rows[row] for row in dict.fromkeys(rows)]
    if isinstance(name, tuple):
        source, target = map(package_name, name)
        seen_at: tuple[str | None, str] = (source, target)
        components = [initiator_to_target_name(source, target)]
        advice = "path_between_packages"
        together = f", {len(nodes)} nodes at a time" if len(nodes) > 1 else ""
        what = f"{source} reads the drives of {target} slowly{together}:"
    else:
        seen_at = (initiators[0] if len(initiators) == 1 else None, str(name))
        components, advice = nodes, "shared_drive_path"
        # Of drives that were only read together, a single one can be the reason.
        alone = cells.drives[columns[0]] <= set(cells.cells.columns)
        if len(nodes) == 1 and (part == DRIVES or not alone):
            drives = sorted(drive for drive in cells.drives[columns[0]] if "#" not in drive)
            components, advice = [*nodes, *drives], "drives_with_shared_parts"
        some = "" if cells.is_whole(columns[0]) else f"first {len(cells.drives[columns[0]])} "
        readers = join_with_and(shorten_list(initiators, _MOST_INITIATORS))
        readers = "all initiators" if len(initiators) == len(cells.cells.rows) else readers
        what = f"The {some}drives of {join_with_and(nodes)} are slow together, read from {readers}:"
    comparable = np.isin(cells.labels, [cells.labels[position] for position in departure.cells])
    others = format_count(int(comparable.sum()) - len(rows), "value")
    return cells.build_anomaly(
        departure,
        AnomalyKind.SLOW_PATH,
        tuple(components),
        what,
        advice,
        than=" than comparable drive sets",
        compared_with=f"the sum of their parts and {others} of comparable drive sets",
        seen_at=seen_at,
    )


def _losses_by_adding_drives(cells: DriveSetCells) -> list[Anomaly]:
    """Return drive sets that have less bandwidth than a subset of their drives.

    The worst set of each node and the worst set that spans nodes are returned.
    """
    by_node: dict[frozenset[int], list[Anomaly]] = {}
    scores = cells.cells.log_score
    for column, parts in enumerate(cells.parts):
        gains = scores[:, parts] - scores[:, [column]]
        for row in np.flatnonzero((gains > cells.scatter.matters).any(axis=1)).tolist():
            better = [part for part in parts if scores[row, part] > scores[row, column]]
            anomaly = _set_anomaly(cells, (row, column), better)
            if anomaly is not None:
                nodes = cells.nodes[column]
                by_node.setdefault(nodes if len(nodes) == 1 else frozenset(), []).append(anomaly)
    return [_worst_of(similar) for similar in by_node.values()]


def _set_anomaly(cells: DriveSetCells, position: Position, parts: Sequence[int]) -> Anomaly | None:
    """Return the anomaly of a drive set if it is clearly slower than its best subset."""
    scored = cells.cells
    best = position[0], parts[int(np.argmax(scored.log_score[position[0], parts]))]
    error = float(np.hypot(scored.standard_error[best], scored.standard_error[position]))
    # The best of several parts is selected, so noise alone makes it better than the whole.
    comparisons = int(scored.measured_mask.sum()) * len(scored.columns)
    departure = cells.comparison.significant_loss_against_cell(position, best, error, comparisons)
    if departure is None:
        return None
    (source, name), part = scored.initiator_and_target(position), scored.columns[best[1]]
    return cells.build_anomaly(
        departure,
        AnomalyKind.ADDING_DRIVES,
        tuple(node_name(node) for node in sorted(cells.nodes[position[1]])),
        f"{source} gets less bandwidth from {name} than from {part}, a part of these drives:",
        "added_drives",
        than="",
        reference=best,
        compared_with=f"{part}, a part of these drives",
    )


def _worst_of(similar: Sequence[Anomaly]) -> Anomaly:
    """Return the worst of similar anomalies, with the number of the others."""
    worst = max(similar, key=lambda anomaly: anomaly.loss_percent)
    others = {(other.initiator, other.target) for other in similar}
    others -= {(worst.initiator, worst.target)}
    if not others:
        return worst
    sets = len({target for _, target in others})
    sources = join_with_and(sorted({str(source) for source, _ in others}))
    also = f"The same holds for {format_count(sets, 'other set')}, seen from {sources}."
    cells = tuple(cell for anomaly in similar for cell in anomaly.cells)
    return replace(worst, cells=cells, also=(also,))
